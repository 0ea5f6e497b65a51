//! Behaviour of sockets; the first thread is the one under test, and others act while it is blocked.

mod datagrams;
mod layouts;
mod outside;
mod streams;
mod unix_sockets;

use super::exchange::{self, Incoming, Outgoing};
use super::{accept, bind, close, connect, create, name, of, options};
use crate::abi;
use crate::errno::{Errno, Result};
use crate::fake::Fake;
use crate::file::buffers::{Buffers, single};
use crate::file::{self, Hold};

const fn err<T>(errno: i32) -> Result<T> {
    Err(Errno(errno))
}

/// A call on a descriptor.
fn on<'a, R>(k: &Fake<'a>, fd: i32, call: impl FnOnce(&Hold<'_, Fake<'a>>) -> R) -> R {
    call(&Hold::new(k, k.file_of(fd).expect("an open descriptor")))
}

fn socket(k: &Fake<'_>, family: i32, kind: i32) -> i32 {
    create::create(k, family, kind, 0).expect("a socket") as i32
}

fn bind(k: &Fake<'_>, fd: i32, addr: &[u8]) -> Result<usize> {
    on(k, fd, |hold| bind::bind(k, hold, addr))
}

fn listen(k: &Fake<'_>, fd: i32, backlog: i32) -> Result<usize> {
    on(k, fd, |hold| bind::listen(k, hold, backlog))
}

fn connect(k: &Fake<'_>, fd: i32, addr: &[u8]) -> Result<usize> {
    on(k, fd, |hold| connect::connect(k, hold, addr))
}

fn accept(k: &Fake<'_>, fd: i32) -> Result<i32> {
    on(k, fd, |hold| accept::accept(k, hold, 0)).map(|(fd, _)| fd)
}

fn shutdown(k: &Fake<'_>, fd: i32, how: i32) -> Result<usize> {
    on(k, fd, |hold| close::shutdown(k, hold, how))
}

/// Its own name, or its peer's.
fn names(k: &Fake<'_>, fd: i32) -> (Vec<u8>, Result<Vec<u8>>) {
    let mut out = [0; name::MAX_BYTES];
    let own = on(k, fd, |hold| name::local(k, hold, &mut out)).map(|n| out[..n].to_vec());
    let peers = on(k, fd, |hold| name::remote(k, hold, &mut out)).map(|n| out[..n].to_vec());
    (own.expect("every socket has one"), peers)
}

fn own_name(k: &Fake<'_>, fd: i32) -> Vec<u8> {
    names(k, fd).0
}

fn send_all(k: &Fake<'_>, fd: i32, bytes: &[u8], outgoing: &Outgoing<'_>) -> Result<usize> {
    let parts = [single(bytes.as_ptr().cast_mut().cast(), bytes.len())];
    on(k, fd, |hold| exchange::send(k, hold, of(k, hold)?, &mut Buffers::new(&parts)?, outgoing))
}

fn send(k: &Fake<'_>, fd: i32, bytes: &[u8]) -> Result<usize> {
    send_all(k, fd, bytes, &Outgoing::plain(0))
}

/// Without waiting.
fn try_send(k: &Fake<'_>, fd: i32, bytes: &[u8]) -> Result<usize> {
    send_all(k, fd, bytes, &Outgoing::plain(abi::MSG_DONTWAIT))
}

fn send_to(k: &Fake<'_>, fd: i32, bytes: &[u8], to: &[u8]) -> Result<usize> {
    send_all(k, fd, bytes, &Outgoing { flags: 0, to, control: &[] })
}

/// What a receive answers.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    answer: usize,
    bytes: Vec<u8>,
    from: Vec<u8>,
    control: Vec<u8>,
    flags: i32,
}

/// Receives with room for so many bytes of data and of control messages.
fn receive(k: &Fake<'_>, fd: i32, room: [usize; 2], flags: i32) -> Result<Got> {
    let [mut bytes, mut control] = room.map(|room| vec![0; room]);
    let mut from = vec![0; name::MAX_BYTES];
    let parts = [single(bytes.as_mut_ptr().cast(), bytes.len())];
    let mut incoming = Incoming::new(flags, &mut from, &mut control);
    let answer = on(k, fd, |hold| {
        exchange::receive(k, hold, of(k, hold)?, &mut Buffers::new(&parts)?, &mut incoming)
    })?;
    let (used, named, flags) = (incoming.control_used, incoming.name_len, incoming.out_flags);
    bytes.truncate(answer);
    control.truncate(used);
    from.truncate(named);
    Ok(Got { answer, bytes, from, control, flags })
}

/// Without waiting.
fn recv(k: &Fake<'_>, fd: i32, most: usize) -> Result<Vec<u8>> {
    receive(k, fd, [most, 0], abi::MSG_DONTWAIT).map(|got| got.bytes)
}

fn mask(k: &Fake<'_>, fd: i32) -> u32 {
    file::mask(k, k.file_of(fd).expect("an open descriptor"))
}

fn set_option(k: &Fake<'_>, fd: i32, option: (i32, i32), value: &[u8]) -> Result<usize> {
    on(k, fd, |hold| options::set(k, of(k, hold)?, option.0, option.1, value))
}

fn option(k: &Fake<'_>, fd: i32, option: (i32, i32)) -> Result<Vec<u8>> {
    let mut out = [0; options::MAX_BYTES];
    let n = on(k, fd, |hold| options::get(k, of(k, hold)?, option.0, option.1, &mut out))?;
    Ok(out[..n].to_vec())
}

/// The pending error.
fn error(k: &Fake<'_>, fd: i32) -> i32 {
    let bytes = option(k, fd, (abi::SOL_SOCKET, libc::SO_ERROR)).unwrap();
    i32::from_ne_bytes(bytes.try_into().unwrap())
}

/// The bytes of one of libc's structures.
fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
    let at = core::ptr::from_ref(value).cast::<u8>();
    // SAFETY: a live value; libc's structures that tests make are zeroed first, padding included.
    unsafe { core::slice::from_raw_parts(at, size_of::<T>()) }.to_vec()
}

/// The address 127.0.0.1.
fn v4(port: u16) -> Vec<u8> {
    // SAFETY: all-zero is a valid address.
    let mut addr: libc::sockaddr_in = unsafe { core::mem::zeroed() };
    addr.sin_family = libc::AF_INET as u16;
    addr.sin_port = port.to_be();
    addr.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    bytes_of(&addr)
}

fn port_of(addr: &[u8]) -> u16 {
    u16::from_be_bytes(addr[2..4].try_into().unwrap())
}

/// An abstract name.
fn abstract_name(name: &[u8]) -> Vec<u8> {
    [&(libc::AF_UNIX as u16).to_ne_bytes()[..], &[0], name].concat()
}

/// No socket, file or message is left.
fn assert_nothing_left(k: &Fake<'_>) {
    let left = [k.net.sockets.used(), k.net.messages.used(), k.net.rights.used()];
    assert_eq!((left, k.net.names.used(), k.fds.files.used()), ([0; 3], 0, 0));
}
