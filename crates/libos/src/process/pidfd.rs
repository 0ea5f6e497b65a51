//! pidfds: descriptors of processes. They become readable when the process ends, and name no process when it has been waited for.

use super::{Life, Process, find};
use crate::abi;
use crate::errno::{Errno, Result, fail};
use crate::file::ops::FileOps;
use crate::file::{self, File, Kind, handle, ready};
use crate::host::Host;
use crate::state::process::PidFd;
use skein_arena::pool::Handle;

/// `pidfd_open`.
///
/// # Errors
/// `EINVAL`, `ESRCH`, `ENFILE`, `EMFILE`.
pub fn open<H: Host>(k: &H, pid: i32, flags: u32) -> Result<usize> {
    let nonblock = abi::O_NONBLOCK;
    if pid <= 0 || flags & !(nonblock as u32) != 0 {
        return fail(abi::EINVAL);
    }
    let process = find(k, pid).ok_or(Errno(abi::ESRCH))?;
    let pidfds = &k.processes.pidfds;
    let Some(pidfd) = pidfds.alloc() else { return fail(abi::ENFILE) };
    let status = abi::O_RDWR | flags as i32 & nonblock;
    let (file, fd) = file::open(k, Kind::PidFd, pidfd.raw(), status, true)
        .inspect_err(|_| pidfds.free(pidfd))?;
    let p = pidfds.get(pidfd);
    p.process.set(Some(process));
    p.file.set(Some(file));
    k.processes.get(process).pidfds.push_back(pidfds, pidfd);
    Ok(fd as usize)
}

/// A process has ended.
pub fn ended<H: Host>(k: &H, p: &Process) {
    for (_, pidfd) in p.pidfds.iter(&k.processes.pidfds) {
        file::notify(k, pidfd.file.get(), ready::IN);
    }
}

/// A process has been waited for: its pidfds name no process.
pub fn reaped<H: Host>(k: &H, p: &Process) {
    let pidfds = &k.processes.pidfds;
    while let Some(pidfd) = p.pidfds.pop_front(pidfds) {
        pidfds.get(pidfd).process.set(None);
    }
}

/// The id of a pidfd's process, none when that has been waited for, and whether calls on it do not block.
///
/// # Errors
/// `EBADF` when it is no pidfd.
pub fn process_of<H: Host>(k: &H, fd: i32) -> Result<(Option<i32>, bool)> {
    let file = file::table::file(k, fd).ok_or(Errno(abi::EBADF))?;
    let f = k.fds.files.get(file);
    let pidfd = f.as_kind::<PidFd>(Kind::PidFd).ok_or(Errno(abi::EBADF))?;
    let process = k.processes.pidfds.get(pidfd).process.get();
    Ok((process.map(|process| k.processes.get(process).pid.get()), f.nonblocking()))
}

/// The functions of a pidfd.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    fn mask(&self, k: &H, file: &File) -> u32 {
        let pidfd: &PidFd = k.processes.pidfds.get(handle(file.object.get()));
        let lives =
            pidfd.process.get().is_some_and(|p| k.processes.get(p).life.get() == Life::Alive);
        if lives { 0 } else { ready::IN }
    }

    fn release(&self, k: &H, file: Handle<File>) {
        let pidfds = &k.processes.pidfds;
        let pidfd = handle(k.fds.files.get(file).object.get());
        if let Some(process) = pidfds.get(pidfd).process.take() {
            k.processes.get(process).pidfds.remove(pidfds, pidfd);
        }
        pidfds.free(pidfd);
    }
}
