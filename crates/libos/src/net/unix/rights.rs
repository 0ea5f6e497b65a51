//! Descriptors and credentials on their way (`SCM_RIGHTS`, `SCM_CREDENTIALS`).
//!
//! A virtual file on its way is a reference to it. A file of the kernel is parked ([`Host::park`]) where every process of the server can
//! get it. A file in flight stays open; when its message is dropped it is closed. A socket on its way through itself, closed everywhere
//! else, stays for ever: Linux would collect it.

use super::super::bytes::word;
use super::super::exchange::{Incoming, Outgoing, each_control};
use crate::abi::{self, SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET};
use crate::errno::{Result, fail};
use crate::file::{self};
use crate::host::Host;
pub use crate::state::net::{Cred, Right, Rights};

/// Descriptors in one message: Linux's `SCM_MAX_FD`.
const MAX_RIGHTS: usize = 253;

impl Cred {
    /// No process: Linux's answer for an unknown sender.
    pub const NOBODY: Self = Self { pid: 0, uid: 65_534, gid: 65_534 };

    /// The running process's, as messages carry them.
    pub fn real<H: Host>(k: &H) -> Self {
        Self::by(k, [k.real_user(), k.real_group()])
    }

    /// The running process's, as `SO_PEERCRED` shows them.
    pub fn effective<H: Host>(k: &H) -> Self {
        Self::by(k, k.user())
    }

    fn by<H: Host>(k: &H, [uid, gid]: [u32; 2]) -> Self {
        Self { pid: k.this_process().pid.get() as u32, uid, gid }
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
pub fn collect<H: Host>(k: &H, outgoing: &Outgoing<'_>) -> Result<Sent> {
    let mut sent = Sent::default();
    let taken = each_control(outgoing.control, |control| {
        match (control.level, control.kind) {
            (SOL_SOCKET, SCM_RIGHTS) => take_rights(k, &sent.rights, control.data),
            (SOL_SOCKET, SCM_CREDENTIALS) => {
                sent.cred = Some(claimed(k, control.data)?);
                Ok(())
            }
            (SOL_SOCKET, _) => fail(abi::EINVAL),
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
fn claimed<H: Host>(k: &H, data: &[u8]) -> Result<Cred> {
    // A `ucred`.
    if data.len() != 12 {
        return fail(abi::EINVAL);
    }
    let cred = Cred { pid: word(data, 0), uid: word(data, 4), gid: word(data, 8) };
    let (real, effective) = (Cred::real(k), Cred::effective(k));
    let allowed = effective.uid == 0
        || cred.pid == real.pid
            && [real.uid, effective.uid].contains(&cred.uid)
            && [real.gid, effective.gid].contains(&cred.gid);
    if allowed { Ok(cred) } else { fail(abi::EPERM) }
}

fn take_rights<H: Host>(k: &H, rights: &Rights, data: &[u8]) -> Result<()> {
    let fds = data.chunks_exact(size_of::<i32>());
    if rights.len() as usize + fds.len() > MAX_RIGHTS {
        return fail(abi::EINVAL);
    }
    for bytes in fds {
        let fd = word(bytes, 0) as i32;
        let Some(right) = k.net.rights.alloc() else { return fail(abi::ETOOMANYREFS) };
        let r = k.net.rights.get(right);
        match file::table::file(k, fd) {
            Some(file) => {
                file::add_ref(k, file);
                r.file.set(Some(file));
            }
            None => match k.park(fd) {
                Ok(ticket) => r.ticket.set(ticket),
                Err(e) => {
                    k.net.rights.free(right);
                    return Err(e);
                }
            },
        }
        rights.push_back(&k.net.rights, right);
    }
    Ok(())
}

/// Moves all rights from one list to another.
pub fn hand_over<H: Host>(k: &H, from: &Rights, to: &Rights) {
    while let Some(right) = from.pop_front(&k.net.rights) {
        to.push_back(&k.net.rights, right);
    }
}

/// Puts a second right to each file of `from` into `to`, for a peek.
pub fn duplicate<H: Host>(k: &H, from: &Rights, to: &Rights) -> Result<()> {
    for (_, r) in from.iter(&k.net.rights) {
        let Some(copy) = k.net.rights.alloc() else { return fail(abi::ENOMEM) };
        let c = k.net.rights.get(copy);
        if let Some(file) = r.file.get() {
            file::add_ref(k, file);
            c.file.set(Some(file));
        } else {
            match k.park_again(r.ticket.get()) {
                Ok(ticket) => c.ticket.set(ticket),
                Err(e) => {
                    k.net.rights.free(copy);
                    return Err(e);
                }
            }
        }
        to.push_back(&k.net.rights, copy);
    }
    Ok(())
}

/// Closes all files of a list.
pub fn drop_all<H: Host>(k: &H, rights: &Rights) {
    // A file may hold messages with files in them, and so on: they are all closed from here, not one within the other.
    hand_over(k, rights, &k.net.dropped);
    if k.net.dropping.replace(true) {
        return;
    }
    while let Some(right) = k.net.dropped.pop_front(&k.net.rights) {
        let r = k.net.rights.get(right);
        let (file, ticket) = (r.file.get(), r.ticket.get());
        k.net.rights.free(right);
        match file {
            Some(file) => file::drop_ref(k, file),
            None => k.discard_parked(ticket),
        }
    }
    k.net.dropping.set(false);
}

/// Gives the receiver descriptors for the rights, as far as there are numbers; the rest is closed.
pub fn deliver<H: Host>(k: &H, incoming: &mut Incoming<'_>) {
    if incoming.rights.is_empty() {
        return;
    }
    let cloexec = incoming.flags & abi::MSG_CMSG_CLOEXEC != 0;
    let mut numbers = [0u8; MAX_RIGHTS * size_of::<i32>()];
    let room = (incoming.control_left() / size_of::<i32>()).min(MAX_RIGHTS);
    let mut count = 0;
    while count < room {
        let Some(right) = incoming.rights.front() else { break };
        let r = k.net.rights.get(right);
        let fd = match r.file.get() {
            Some(file) => file::table::of(k).install(k, file, 0, cloexec),
            None => k.take_parked(r.ticket.get(), cloexec),
        };
        let Ok(fd) = fd else { break };
        incoming.rights.remove(&k.net.rights, right);
        if let Some(file) = r.file.get() {
            file::drop_ref(k, file);
        }
        k.net.rights.free(right);
        numbers[count * 4..][..4].copy_from_slice(&fd.to_ne_bytes());
        count += 1;
    }
    if count > 0 {
        incoming.put_control(SOL_SOCKET, SCM_RIGHTS, &numbers[..count * 4]);
    }
    if !incoming.rights.is_empty() {
        incoming.out_flags |= abi::MSG_CTRUNC;
        drop_all(k, &incoming.rights);
    }
}
