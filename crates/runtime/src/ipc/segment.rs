//! Segments of System V shared memory: the library's objects, whose memory is a memory file of the kernel's. All processes find it where files on their way
//! wait ([`park`]).

use crate::io::{park, table};
use crate::process::shared;
use crate::sys::{self, args};
use crate::turn;
use libc::c_int;
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::ipc::segment;
use skein_sched::op::{Kind, Object};

const PAGE_BYTES: usize = 4096;

/// A new memory file of this length.
fn memory(bytes: u64) -> Result<c_int> {
    table::check_free()?;
    let name = c"SYSV".as_ptr() as usize;
    // SAFETY: a constant name; a number that the kernel has just given.
    unsafe {
        let fd = sys::call(libc::SYS_memfd_create, args([name, libc::MFD_CLOEXEC as usize]))?;
        if let Err(error) = sys::call(libc::SYS_ftruncate, args([fd, bytes as usize])) {
            let _ = sys::close(fd as c_int);
            return Err(error);
        }
        Ok(fd as c_int)
    }
}

/// `shmget`.
pub fn get(key: c_int, bytes: usize, flags: c_int) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Open);
    let k = turn.kernel();
    segment::get(k, key, bytes as u64, flags, |bytes| {
        let fd = memory(bytes.next_multiple_of(PAGE_BYTES as u64)).map_err(no_room)?;
        let ticket = park::park(k, fd).map_err(no_room);
        let _ = sys::close(fd);
        ticket
    })
}

/// A server that has no descriptor left, or too many segments, is told that there is no room.
fn no_room(_: Errno) -> Errno {
    Errno(libc::ENOSPC)
}

/// `shmat`.
pub fn attach(id: c_int, at: usize, flags: c_int) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Open);
    let k = turn.kernel();
    let (ticket, bytes) = segment::memory(k, id, flags)?;
    let mut fixed = 0;
    let mut start = at;
    if at != 0 {
        if flags & libc::SHM_RND != 0 {
            start -= at % PAGE_BYTES;
        }
        if !start.is_multiple_of(PAGE_BYTES) || start == 0 {
            return fail(libc::EINVAL);
        }
        let replace = flags & libc::SHM_REMAP != 0;
        fixed = if replace { libc::MAP_FIXED } else { libc::MAP_FIXED_NOREPLACE };
    } else if flags & libc::SHM_REMAP != 0 {
        return fail(libc::EINVAL);
    }
    let mut protection = libc::PROT_READ;
    if flags & segment::READ_ONLY == 0 {
        protection |= libc::PROT_WRITE;
    }
    if flags & libc::SHM_EXEC != 0 {
        protection |= libc::PROT_EXEC;
    }
    let fd = park::look(k, ticket)?;
    let bytes = bytes as usize;
    let shared_flags = libc::MAP_SHARED | fixed;
    let all = [start, bytes, protection as usize, shared_flags as usize, fd as usize, 0];
    // SAFETY: the server's own call.
    let mapped = unsafe { sys::call(libc::SYS_mmap, all) };
    let _ = sys::close(fd);
    let mapped = match mapped {
        Err(Errno(libc::EEXIST)) => return fail(libc::EINVAL),
        mapped => mapped?,
    };
    if shared::any() {
        shared::unmapped(mapped, bytes);
    }
    shared::note(mapped, bytes, shared::What::Named(0, id as u64), 0);
    Ok(mapped)
}

/// `shmdt`.
pub fn detach(at: usize) -> Result<usize> {
    let _turn = turn::enter(Object::Ipc, Kind::Close);
    if at.is_multiple_of(PAGE_BYTES) && shared::detach(at) { Ok(0) } else { fail(libc::EINVAL) }
}

/// `shmctl`.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn control(id: c_int, command: c_int, arg: usize) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Set);
    let k = turn.kernel();
    // SAFETY: the caller's contract.
    let (answer, unreachable) = unsafe { segment::control(k, id, command, arg)? };
    if let Some(ticket) = unreachable {
        park::discard(k, ticket);
    }
    Ok(answer)
}
