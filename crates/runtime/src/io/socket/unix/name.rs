//! Names of UNIX sockets: paths, abstract names, none.
//!
//! A name is shared by the sockets that a listener accepts and by messages on their way, which is why it is an object of its own. A path's name
//! knows the inode: `connect` finds that, not the path, after any rename, link or change of directory.

use crate::fatal;
use crate::files::{change, inputs};
use crate::kernel::{Kernel, kernel};
use crate::sys;
use core::cell::Cell;
use core::mem::offset_of;
use libc::{sockaddr, socklen_t};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::room::Room;

/// Bytes of `sun_path`.
pub const MAX_PATH: usize = 108;
/// Bytes before it.
const FAMILY_BYTES: usize = size_of::<libc::sa_family_t>();
/// Bytes of a whole address; a path that fills it gets the NUL that it lacks.
pub const MAX_ADDRESS: usize = FAMILY_BYTES + MAX_PATH + 1;

/// A name.
#[repr(C)]
pub struct Name {
    refs: Cell<u32>,
    len: Cell<u32>,
    path: Cell<[u8; MAX_PATH]>,
    inode: Cell<Inode>,
}

impl Name {
    /// The part of names that belongs to one replica: the kernel's numbers.
    pub fn note_own(room: &Room, names: *const u8, count: u32) {
        room.own::<Self>(names, count, offset_of!(Self, inode), size_of::<Inode>());
    }
}

// SAFETY: cells; all-zero is a name of no bytes that nobody has.
unsafe impl ArenaObject for Name {}

/// A file, for as long as it exists.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Inode {
    device: u64,
    number: u64,
}

/// The inode of an abstract name, and of a removed file.
pub const NO_INODE: Inode = Inode { device: 0, number: 0 };

/// A name in the form that calls give it.
#[derive(Clone, Copy)]
pub struct Given {
    path: [u8; MAX_PATH + 1],
    len: usize,
}

impl Given {
    /// This many bytes of `sun_path`.
    pub fn new(bytes: &[u8]) -> Self {
        let mut path = [0; MAX_PATH + 1];
        path[..bytes.len()].copy_from_slice(bytes);
        Self { path, len: bytes.len() }
    }

    /// Whether it is in the abstract name space.
    pub const fn is_abstract(&self) -> bool {
        self.path[0] == 0
    }

    fn bytes(&self) -> &[u8] {
        &self.path[..self.len]
    }

    /// For the node's log.
    pub fn describe(&self, call: &str) -> fatal::Line {
        let text = self.bytes().split(|b| *b == 0).next().unwrap_or_default();
        fatal::line!("{call} {}", core::str::from_utf8(text).unwrap_or("a path"))
    }
}

/// The content of an address.
pub enum Address {
    /// A family and nothing else.
    Empty,
    /// A name.
    Name(Given),
}

/// Reads an address.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn read(addr: *const sockaddr, len: socklen_t) -> Result<Address> {
    let len = len as usize;
    if !(FAMILY_BYTES..=FAMILY_BYTES + MAX_PATH).contains(&len) {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's contract.
    let bytes = unsafe { core::slice::from_raw_parts(addr.cast::<u8>(), len) };
    if i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) != libc::AF_UNIX {
        return fail(libc::EINVAL);
    }
    let path = &bytes[FAMILY_BYTES..];
    Ok(match path.first() {
        None => Address::Empty,
        Some(0) => Address::Name(Given::new(path)),
        // A path ends at its NUL, which counts.
        Some(_) => {
            let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
            let mut given = Given::new(&path[..end]);
            given.len = end + 1;
            Address::Name(given)
        }
    })
}

/// Writes an address into `out`; answers its length.
pub fn encode(k: &Kernel, name: Option<Handle<Name>>, out: &mut [u8; MAX_ADDRESS]) -> usize {
    out[..FAMILY_BYTES].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    let Some(name) = name else { return FAMILY_BYTES };
    let n = k.io.names.get(name);
    let len = n.len.get() as usize;
    let path = n.path.get();
    let held = len.min(MAX_PATH);
    out[FAMILY_BYTES..][..held].copy_from_slice(&path[..held]);
    out[FAMILY_BYTES + held..FAMILY_BYTES + len].fill(0);
    FAMILY_BYTES + len
}

/// A name that one socket has.
pub fn make(k: &Kernel, given: &Given, inode: Inode) -> Result<Handle<Name>> {
    let Some(name) = k.io.names.alloc() else { return fail(libc::ENOMEM) };
    let n = k.io.names.get(name);
    n.refs.set(1);
    n.len.set(given.len as u32);
    let mut path = [0; MAX_PATH];
    path.copy_from_slice(&given.path[..MAX_PATH]);
    n.path.set(path);
    n.inode.set(inode);
    Ok(name)
}

/// Drops a reference.
pub fn drop_ref(k: &Kernel, name: Handle<Name>) {
    let n = k.io.names.get(name);
    n.refs.set(n.refs.get() - 1);
    if n.refs.get() == 0 {
        k.io.names.free(name);
    }
}

/// Makes `to` have what `from` has.
pub fn share(k: &Kernel, from: &Link<Name>, to: &Link<Name>) {
    if let Some(name) = from.get() {
        let n = k.io.names.get(name);
        n.refs.set(n.refs.get() + 1);
    }
    if let Some(before) = to.get() {
        drop_ref(k, before);
    }
    to.set(from.get());
}

/// Whether a name is that of `given`, whose inode is `inode`.
pub fn is(k: &Kernel, name: Handle<Name>, given: &Given, inode: Inode) -> bool {
    let n = k.io.names.get(name);
    if given.is_abstract() {
        return n.inode.get() == NO_INODE
            && n.len.get() as usize == given.len
            && n.path.get()[..given.len] == *given.bytes();
    }
    n.inode.get() != NO_INODE && n.inode.get() == inode
}

/// The file that had this inode before is gone: the number is reused.
pub fn forget_inode(k: &Kernel, name: Handle<Name>, inode: Inode) {
    let n = k.io.names.get(name);
    if n.inode.get() == inode {
        n.inode.set(NO_INODE);
        // No abstract name has this length.
        n.len.set(n.len.get().max(1));
    }
}

/// Makes the inode of a path.
pub fn make_inode(given: &Given, mode: u32) -> Result<Inode> {
    let path = given.path.as_ptr().cast();
    // As the kernel's bind does: without the umask's bits.
    // SAFETY: a path that ends in a NUL.
    match unsafe { change::mknodat(kernel(), libc::AT_FDCWD, path, libc::S_IFSOCK | mode, 0) } {
        Ok(_) => {}
        Err(Errno(libc::EEXIST)) => return fail(libc::EADDRINUSE),
        Err(e) => return Err(e),
    }
    look(given).map(|st| inode_of(&st))
}

/// Takes back what [`make_inode`] made.
pub fn remove_inode(given: &Given) {
    let args = sys::args([given.path.as_ptr() as usize]);
    let at = [(libc::AT_FDCWD, given.path.as_ptr().cast())];
    // SAFETY: a path that ends in a NUL.
    let _ = unsafe { change::entries(kernel(), sys::Call { nr: libc::SYS_unlink, args }, &at) };
}

/// The inode that a path leads to; it must be a socket that the server may write to.
pub fn find_inode(given: &Given) -> Result<Inode> {
    let st = look(given)?;
    let args = sys::args([
        libc::AT_FDCWD as usize,
        given.path.as_ptr() as usize,
        libc::W_OK as usize,
        libc::AT_EACCESS as usize,
    ]);
    // SAFETY: a path that ends in a NUL.
    unsafe { sys::call(libc::SYS_faccessat2, args) }?;
    if st.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        return fail(libc::ECONNREFUSED);
    }
    Ok(inode_of(&st))
}

fn look(given: &Given) -> Result<libc::stat> {
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    let args = sys::args([given.path.as_ptr() as usize, &raw mut st as usize]);
    // SAFETY: a path that ends in a NUL, a local.
    unsafe {
        inputs::glance(kernel(), libc::AT_FDCWD, given.path.as_ptr().cast(), 0);
        sys::call(libc::SYS_stat, args)?;
    }
    Ok(st)
}

const fn inode_of(st: &libc::stat) -> Inode {
    Inode { device: st.st_dev, number: st.st_ino }
}
