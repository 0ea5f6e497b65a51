//! poll. Descriptors that are not virtual are regular files: always ready, as on Linux.

use crate::io::epoll::Timeout;
use crate::io::file::{self, ready};
use crate::io::wait::WaitSet;
use crate::io::{Answer, table};
use crate::kernel::Kernel;
use crate::signal::wait::masked;
use crate::{thread, turn};
use libc::{nfds_t, pollfd, sigset_t};
use skein_libos::abi::timespec;
use skein_libos::errno::{Result, fail};
use skein_libos::thread::Wake;
use skein_sched::op::{Kind, Object};

const NVAL: u32 = libc::POLLNVAL as u32;

/// `poll`. Returns early with `EINVAL` when there are more descriptors than may be open.
///
/// # Safety
/// `fds` is `count` valid elements.
pub unsafe fn poll(fds: *mut pollfd, count: usize, timeout: Timeout) -> Result<usize> {
    thread::test_cancel();
    let turn = turn::enter(Object::Several, Kind::Wait);
    let k = &*turn;
    if count > table::MAX_FDS as usize {
        return fail(libc::EINVAL);
    }
    let fds = match count {
        0 => &mut [],
        // SAFETY: the caller's contract.
        _ => unsafe { core::slice::from_raw_parts_mut(fds, count) },
    };
    file::interruptible(wait(k, fds, timeout))
}

fn wait(k: &Kernel, fds: &mut [pollfd], timeout: Timeout) -> Result<usize> {
    let deadline = timeout.deadline_ns();
    loop {
        let found = look(k, fds);
        if found > 0 || matches!(timeout, Timeout::Poll) {
            return Ok(found);
        }
        let waits = WaitSet::default();
        for fd in fds.iter() {
            if let Some(file) = k.table().get(fd.fd)
                && let Err(e) = waits.add(k, file, fd.events as u16 as u32, false)
            {
                waits.clear(k);
                return Err(e);
            }
        }
        match waits.block(k, deadline) {
            Wake::Event => {}
            Wake::Timeout => return Ok(look(k, fds)),
            Wake::Interrupted => return fail(libc::EINTR),
        }
    }
}

fn look(k: &Kernel, fds: &mut [pollfd]) -> usize {
    let mut found = 0;
    for fd in fds.iter_mut() {
        let wanted = fd.events as u16 as u32 | ready::ERR | ready::HUP | NVAL;
        fd.revents = (state(k, fd.fd) & wanted) as i16;
        found += usize::from(fd.revents != 0);
    }
    found
}

/// What a descriptor is ready for; nothing when the number is negative.
fn state(k: &Kernel, fd: i32) -> u32 {
    match k.table().get(fd) {
        Some(file) => file::mask(k, file),
        None if fd < 0 => 0,
        None if table::is_open(fd) => ready::IN | ready::OUT,
        None => NVAL,
    }
}

/// `ppoll`.
///
/// # Safety
/// The pointers are the server's for this call.
pub unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Answer {
    // SAFETY: the caller's arguments.
    unsafe {
        match Timeout::from_timespec(timeout.as_ref()) {
            Ok(timeout) => masked(mask, || Some(poll(fds, count as usize, timeout))),
            Err(e) => Some(Err(e)),
        }
    }
}
