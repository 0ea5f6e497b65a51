//! Names of UNIX sockets: paths, abstract names, none.
//!
//! A name is shared by the sockets that a listener accepts and by messages on their way, which is why it is an object of its own. A path's name
//! knows the inode: `connect` finds that, not the path, after any rename, link or change of directory.

use super::super::bytes::half;
use crate::abi;
use crate::errno::{Errno, Result, fail};
use crate::host::Host;
pub use crate::state::net::{Inode, MAX_PATH, NO_INODE, Name};
use core::ffi::CStr;
use core::fmt::{self, Display, Formatter};
use skein_arena::pool::{Handle, Link};

/// Bytes before it.
const FAMILY_BYTES: usize = size_of::<u16>();
/// Bytes of a whole address; a path that fills it gets the NUL that it lacks.
pub const MAX_ADDRESS: usize = FAMILY_BYTES + MAX_PATH + 1;

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

    /// The path of one that is not abstract.
    pub fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).unwrap_or_default()
    }
}

/// For the node's log.
impl Display for Given {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.path().to_str().unwrap_or("a path"))
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
/// # Errors
/// `EINVAL` when it is none.
pub fn read(addr: &[u8]) -> Result<Address> {
    if !(FAMILY_BYTES..=FAMILY_BYTES + MAX_PATH).contains(&addr.len())
        || i32::from(half(addr, 0)) != abi::AF_UNIX
    {
        return fail(abi::EINVAL);
    }
    let path = &addr[FAMILY_BYTES..];
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
pub fn encode<H: Host>(k: &H, name: Option<Handle<Name>>, out: &mut [u8; MAX_ADDRESS]) -> usize {
    out[..FAMILY_BYTES].copy_from_slice(&(abi::AF_UNIX as u16).to_ne_bytes());
    let Some(name) = name else { return FAMILY_BYTES };
    let n = k.net.names.get(name);
    let len = n.len.get() as usize;
    let path = n.path.get();
    let held = len.min(MAX_PATH);
    out[FAMILY_BYTES..][..held].copy_from_slice(&path[..held]);
    out[FAMILY_BYTES + held..FAMILY_BYTES + len].fill(0);
    FAMILY_BYTES + len
}

/// A name that one socket has.
pub fn make<H: Host>(k: &H, given: &Given, inode: Inode) -> Result<Handle<Name>> {
    let Some(name) = k.net.names.alloc() else { return fail(abi::ENOMEM) };
    let n = k.net.names.get(name);
    n.refs.set(1);
    n.len.set(given.len as u32);
    let mut path = [0; MAX_PATH];
    path.copy_from_slice(&given.path[..MAX_PATH]);
    n.path.set(path);
    n.inode.set(inode);
    Ok(name)
}

/// Drops a reference.
pub fn drop_ref<H: Host>(k: &H, name: Handle<Name>) {
    let n = k.net.names.get(name);
    n.refs.set(n.refs.get() - 1);
    if n.refs.get() == 0 {
        k.net.names.free(name);
    }
}

/// Makes `to` have what `from` has.
pub fn share<H: Host>(k: &H, from: &Link<Name>, to: &Link<Name>) {
    if let Some(name) = from.get() {
        let n = k.net.names.get(name);
        n.refs.set(n.refs.get() + 1);
    }
    if let Some(before) = to.get() {
        drop_ref(k, before);
    }
    to.set(from.get());
}

/// Whether a name is that of `given`, whose inode is `inode`.
pub fn is<H: Host>(k: &H, name: Handle<Name>, given: &Given, inode: Inode) -> bool {
    let n = k.net.names.get(name);
    if given.is_abstract() {
        return n.inode.get() == NO_INODE
            && n.len.get() as usize == given.len
            && n.path.get()[..given.len] == *given.bytes();
    }
    n.inode.get() != NO_INODE && n.inode.get() == inode
}

/// The file that had this inode before is gone: the number is reused.
pub fn forget_inode<H: Host>(k: &H, name: Handle<Name>, inode: Inode) {
    let n = k.net.names.get(name);
    if n.inode.get() == inode {
        n.inode.set(NO_INODE);
        // No abstract name has this length.
        n.len.set(n.len.get().max(1));
    }
}

/// The host has numbered all files anew: `now` knows how it calls a file, if that exists.
pub fn renew<H: Host>(k: &H, now: impl Fn(Inode) -> Option<Inode>) {
    for name in (1..=k.net.names.high()).filter_map(Handle::from_raw) {
        let was = k.net.names.get(name).inode.get();
        if was != NO_INODE {
            match now(was) {
                Some(is) => k.net.names.get(name).inode.set(is),
                None => forget_inode(k, name, was),
            }
        }
    }
}

/// Makes the file of a path.
///
/// # Errors
/// `EADDRINUSE` when there is a file; those of the path.
pub fn make_inode<H: Host>(k: &H, given: &Given, mode: u32) -> Result<Inode> {
    match k.make_socket_file(given.path(), mode) {
        Err(Errno(abi::EEXIST)) => fail(abi::EADDRINUSE),
        made => made,
    }
}
