//! `ioctl` about interfaces, on any socket. [Netlink](super::netlink) sockets report them, too; C libraries' `getifaddrs` and `if_nameindex` use
//! those. Changes of an interface are refused.

use super::bytes::word;
use super::interface::{Face, Interfaces, QUEUE_LEN};
use crate::abi::{self, AF_INET};
use crate::errno::{Result, fail};
use crate::host::Host;
use skein_arena::uses::Use;

// Requests.
const SIOCATMARK: usize = 0x8905;
const SIOCGIFNAME: usize = 0x8910;
const SIOCGIFCONF: usize = 0x8912;
const SIOCGIFFLAGS: usize = 0x8913;
const SIOCGIFADDR: usize = 0x8915;
const SIOCGIFDSTADDR: usize = 0x8917;
const SIOCGIFBRDADDR: usize = 0x8919;
const SIOCGIFNETMASK: usize = 0x891b;
const SIOCGIFMETRIC: usize = 0x891d;
const SIOCGIFMTU: usize = 0x8921;
const SIOCGIFHWADDR: usize = 0x8927;
const SIOCGIFINDEX: usize = 0x8933;
const SIOCGIFTXQLEN: usize = 0x8942;

/// Bytes of an interface's name in a request.
const NAME_BYTES: usize = 16;
/// Bytes of a request (`ifreq`): a name, and a value behind it.
const REQUEST_BYTES: usize = 40;
/// Where its value begins.
const VALUE_AT: usize = NAME_BYTES;

/// A request's bytes.
type Request = [u8; REQUEST_BYTES];

/// The argument of `SIOCGIFCONF` (`ifconf`).
#[repr(C)]
struct List {
    len: i32,
    requests: *mut Request,
}

fn all<H: Host>(k: &H) -> impl Iterator<Item = Face> + use<H> {
    Interfaces::of(k.net.interface.get()).all()
}

/// An `ioctl` about interfaces on a socket.
///
/// # Safety
/// `arg` is the request's argument.
///
/// # Errors
/// `ENODEV` for an interface that there is not, `ENOTTY` for a request that is not known.
pub unsafe fn ioctl<H: Host>(k: &H, request: usize, arg: usize) -> Result<usize> {
    if request == SIOCGIFCONF {
        k.note(Use::Interfaces);
        // SAFETY: the caller's contract.
        return unsafe { list(k, arg as *mut List) };
    }
    let known = matches!(
        request,
        SIOCGIFNAME
            | SIOCGIFFLAGS
            | SIOCGIFADDR
            | SIOCGIFDSTADDR
            | SIOCGIFBRDADDR
            | SIOCGIFNETMASK
            | SIOCGIFMETRIC
            | SIOCGIFMTU
            | SIOCGIFHWADDR
            | SIOCGIFINDEX
            | SIOCGIFTXQLEN
    );
    if !known {
        let what = if request == SIOCATMARK { " (SIOCATMARK)" } else { "" };
        k.refused(format_args!("ioctl {request:#x}{what} on a socket"));
        return fail(abi::ENOTTY);
    }
    // SAFETY: the caller's contract.
    let asked = unsafe { &mut *(arg as *mut Request) };
    if request == SIOCGIFNAME {
        let number = word(asked, VALUE_AT);
        let Some(face) = all(k).find(|face| face.index == number) else {
            return fail(abi::ENODEV);
        };
        put_name(asked, &face);
        return Ok(0);
    }
    let name = asked[..NAME_BYTES].split(|b| *b == 0).next().unwrap_or_default();
    let Some(face) = all(k).find(|face| face.name.to_bytes() == name) else {
        return fail(abi::ENODEV);
    };
    asked[VALUE_AT..].fill(0);
    let mut put = |bytes: &[u8]| asked[VALUE_AT..][..bytes.len()].copy_from_slice(bytes);
    match request {
        SIOCGIFFLAGS => put(&(face.flags as i16).to_ne_bytes()),
        SIOCGIFADDR | SIOCGIFDSTADDR => put(&internet(face.address)),
        SIOCGIFBRDADDR => put(&internet(face.broadcast)),
        SIOCGIFNETMASK => put(&internet(face.mask)),
        SIOCGIFMTU => put(&face.mtu_bytes.to_ne_bytes()),
        SIOCGIFHWADDR => {
            let (kind, address) = face.hardware;
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            bytes[2..].copy_from_slice(&address);
            put(&bytes);
        }
        SIOCGIFINDEX => put(&face.index.to_ne_bytes()),
        SIOCGIFTXQLEN => put(&QUEUE_LEN.to_ne_bytes()),
        // The metric is 0.
        _ => {}
    }
    Ok(0)
}

/// An address without a port (`sockaddr_in`).
fn internet(ip: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    bytes[4..8].copy_from_slice(&ip);
    bytes
}

fn put_name(to: &mut Request, face: &Face) {
    let name = face.name.to_bytes();
    to[..NAME_BYTES].fill(0);
    to[..name.len()].copy_from_slice(name);
}

/// Without a buffer, how long it had to be.
unsafe fn list<H: Host>(k: &H, at: *mut List) -> Result<usize> {
    // SAFETY: the caller's contract.
    let list = unsafe { &mut *at };
    if list.requests.is_null() {
        list.len = (REQUEST_BYTES * all(k).count()) as i32;
        return Ok(0);
    }
    let room = usize::try_from(list.len).unwrap_or(0) / REQUEST_BYTES;
    let mut count = 0;
    for face in all(k).take(room) {
        let mut entry = [0; REQUEST_BYTES];
        put_name(&mut entry, &face);
        entry[VALUE_AT..][..16].copy_from_slice(&internet(face.address));
        // SAFETY: there is room for one more, by the length.
        unsafe { list.requests.add(count).write(entry) };
        count += 1;
    }
    list.len = (REQUEST_BYTES * count) as i32;
    Ok(0)
}
