//! Descriptors and credentials on their way (`SCM_RIGHTS`, `SCM_CREDENTIALS`).
//!
//! A virtual file on its way is a reference to it. A file of the kernel is parked ([`super::park`]) where every process of the server can
//! get it. A file in flight stays open; when its message is dropped it is closed. A socket on its way through itself, closed everywhere
//! else, stays for ever: Linux would collect it.

use super::super::exchange::{Incoming, Outgoing, each_control};
use super::park;
use crate::io::table;
use crate::kernel::Kernel;
use crate::sys;
use core::cell::Cell;
use libc::{SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET};
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Link};
use skein_libos::errno::{Result, fail};
use skein_libos::file::{self, File};

/// Descriptors in one message: Linux's `SCM_MAX_FD`.
const MAX_RIGHTS: usize = 253;

/// A descriptor's place in its message.
pub struct InMessage;
/// The descriptors of a message.
pub type Rights = List<Right, InMessage>;

/// A descriptor on its way.
#[repr(C)]
pub struct Right {
    node: Node<Right>,
    /// A virtual file.
    file: Link<File>,
    /// A parked file of the kernel.
    ticket: Cell<u64>,
}

// SAFETY: links and cells; all-zero is a right to nothing.
unsafe impl ArenaObject for Right {}
impl In<InMessage> for Right {
    fn node(&self) -> &Node<Right> {
        &self.node
    }
}

/// A process's credentials, as a receiver sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cred {
    /// The process; 0 when nobody is meant.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Cred {
    /// No process: Linux's answer for an unknown sender.
    pub const NOBODY: Self = Self { pid: 0, uid: 65_534, gid: 65_534 };

    /// The running process's, as messages carry them.
    pub fn real() -> Self {
        Self::by(libc::SYS_getuid, libc::SYS_getgid)
    }

    /// The running process's, as `SO_PEERCRED` shows them.
    pub fn effective() -> Self {
        Self::by(libc::SYS_geteuid, libc::SYS_getegid)
    }

    fn by(user: i64, group: i64) -> Self {
        // SAFETY: no arguments.
        let get = |nr| unsafe { sys::raw(nr, sys::args([])) } as u32;
        Self { pid: get(libc::SYS_getpid), uid: get(user), gid: get(group) }
    }

    /// As in a `ucred`.
    pub fn bytes(self) -> [u8; 12] {
        let mut out = [0; 12];
        for (at, part) in [self.pid, self.uid, self.gid].into_iter().enumerate() {
            out[at * 4..][..4].copy_from_slice(&part.to_ne_bytes());
        }
        out
    }
}

/// The requests of a send's control messages.
#[derive(Default)]
pub struct Sent {
    /// Descriptors.
    pub rights: Rights,
    /// The credentials that the sender claims.
    pub cred: Option<Cred>,
}

/// Takes the control messages of a send in.
pub fn collect(k: &Kernel, outgoing: &Outgoing<'_>) -> Result<Sent> {
    let mut sent = Sent::default();
    let taken = each_control(outgoing.control, |control| {
        match (control.level, control.kind) {
            (SOL_SOCKET, SCM_RIGHTS) => take_rights(k, &sent.rights, control.data),
            (SOL_SOCKET, SCM_CREDENTIALS) => {
                sent.cred = Some(claimed(control.data)?);
                Ok(())
            }
            (SOL_SOCKET, _) => fail(libc::EINVAL),
            // Other levels' messages are passed over.
            _ => Ok(()),
        }
    });
    if taken.is_err() {
        drop_all(k, &sent.rights);
    }
    taken.map(|()| sent)
}

/// A process may claim only the truth, unless it is root.
fn claimed(data: &[u8]) -> Result<Cred> {
    if data.len() != size_of::<libc::ucred>() {
        return fail(libc::EINVAL);
    }
    let word = |at: usize| u32::from_ne_bytes(data[at..at + 4].try_into().expect("four bytes"));
    let cred = Cred { pid: word(0), uid: word(4), gid: word(8) };
    let (real, effective) = (Cred::real(), Cred::effective());
    let allowed = effective.uid == 0
        || cred.pid == real.pid
            && [real.uid, effective.uid].contains(&cred.uid)
            && [real.gid, effective.gid].contains(&cred.gid);
    if allowed { Ok(cred) } else { fail(libc::EPERM) }
}

fn take_rights(k: &Kernel, rights: &Rights, data: &[u8]) -> Result<()> {
    let fds = data.chunks_exact(size_of::<i32>());
    if rights.len() as usize + fds.len() > MAX_RIGHTS {
        return fail(libc::EINVAL);
    }
    for bytes in fds {
        let fd = i32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        let Some(right) = k.io.rights.alloc() else { return fail(libc::ETOOMANYREFS) };
        let r = k.io.rights.get(right);
        match k.file(fd) {
            Some(file) => {
                file::add_ref(k, file);
                r.file.set(Some(file));
            }
            None => {
                let parked = if table::is_open(fd) { park::park(k, fd) } else { fail(libc::EBADF) };
                match parked {
                    Ok(ticket) => r.ticket.set(ticket),
                    Err(e) => {
                        k.io.rights.free(right);
                        return Err(e);
                    }
                }
            }
        }
        rights.push_back(&k.io.rights, right);
    }
    Ok(())
}

/// Moves all rights from one list to another.
pub fn hand_over(k: &Kernel, from: &Rights, to: &Rights) {
    while let Some(right) = from.pop_front(&k.io.rights) {
        to.push_back(&k.io.rights, right);
    }
}

/// Puts a second right to each file of `from` into `to`, for a peek.
pub fn duplicate(k: &Kernel, from: &Rights, to: &Rights) -> Result<()> {
    for (_, r) in from.iter(&k.io.rights) {
        let Some(copy) = k.io.rights.alloc() else { return fail(libc::ENOMEM) };
        let c = k.io.rights.get(copy);
        if let Some(file) = r.file.get() {
            file::add_ref(k, file);
            c.file.set(Some(file));
        } else {
            match park::duplicate(k, r.ticket.get()) {
                Ok(ticket) => c.ticket.set(ticket),
                Err(e) => {
                    k.io.rights.free(copy);
                    return Err(e);
                }
            }
        }
        to.push_back(&k.io.rights, copy);
    }
    Ok(())
}

/// Closes all files of a list.
pub fn drop_all(k: &Kernel, rights: &Rights) {
    // A file may hold messages with files in them, and so on: they are all closed from here, not one within the other.
    hand_over(k, rights, &k.io.dropped);
    if k.io.dropping.replace(true) {
        return;
    }
    while let Some(right) = k.io.dropped.pop_front(&k.io.rights) {
        let r = k.io.rights.get(right);
        let (file, ticket) = (r.file.get(), r.ticket.get());
        k.io.rights.free(right);
        match file {
            Some(file) => file::drop_ref(k, file),
            None => park::discard(k, ticket),
        }
    }
    k.io.dropping.set(false);
}

/// Gives the receiver descriptors for the rights, as far as there are numbers; the rest is closed.
pub fn deliver(k: &Kernel, incoming: &mut Incoming) {
    if incoming.rights.is_empty() {
        return;
    }
    let cloexec = incoming.flags & libc::MSG_CMSG_CLOEXEC != 0;
    let mut numbers = [0u8; MAX_RIGHTS * size_of::<i32>()];
    let room = (incoming.control_left() / size_of::<i32>()).min(MAX_RIGHTS);
    let mut count = 0;
    while count < room {
        let Some(right) = incoming.rights.front() else { break };
        let r = k.io.rights.get(right);
        let fd = match r.file.get() {
            Some(file) => file::table::of(k).install(k, file, 0, cloexec),
            None => park::take(k, r.ticket.get(), cloexec),
        };
        let Ok(fd) = fd else { break };
        incoming.rights.remove(&k.io.rights, right);
        if let Some(file) = r.file.get() {
            file::drop_ref(k, file);
        }
        k.io.rights.free(right);
        numbers[count * 4..][..4].copy_from_slice(&fd.to_ne_bytes());
        count += 1;
    }
    if count > 0 {
        incoming.put_control(SOL_SOCKET, SCM_RIGHTS, &numbers[..count * 4]);
    }
    if !incoming.rights.is_empty() {
        incoming.out_flags |= libc::MSG_CTRUNC;
        drop_all(k, &incoming.rights);
    }
}
