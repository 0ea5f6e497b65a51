//! inotify, as on a machine that allows no watches (`max_user_watches` is 0): descriptors can be had, by which nothing ever comes, and watches
//! are refused by name.
//!
//! A server that would watch files, but can do without, runs; one that only asks whether there is inotify does not end for the lack of it.

use crate::fatal;
use crate::io::Answer;
use crate::io::file::{self, Hold, Kind, ready};
use crate::io::wait::wait_if_blocking;
use crate::kernel::Kernel;
use crate::turn;
use skein_libos::errno::{Result, fail};
use skein_sched::op::{Kind as Op, Object};

/// `inotify_init1`.
pub fn create(flags: i32) -> Result<usize> {
    let turn = turn::enter(Object::Descriptors, Op::Create);
    if flags & !(libc::IN_CLOEXEC | libc::IN_NONBLOCK) != 0 {
        return fail(libc::EINVAL);
    }
    let k = &*turn;
    let status = libc::O_RDONLY | flags & libc::O_NONBLOCK;
    let cloexec = flags & libc::IN_CLOEXEC != 0;
    file::open(k, Kind::Inotify, 0, status, cloexec).map(|(_, fd)| fd as usize)
}

/// Waits for what never comes.
pub fn read(k: &Kernel, hold: &Hold) -> Result<usize> {
    loop {
        wait_if_blocking(k, hold, ready::IN)?;
    }
}

fn check(k: &Kernel, hold: &Hold) -> Result<()> {
    if hold.file(k).kind.get() == Kind::Inotify { Ok(()) } else { fail(libc::EINVAL) }
}

/// `inotify_add_watch`.
pub fn add_watch(fd: i32, events: u32) -> Answer {
    on_any(fd, |k, hold| {
        if events & libc::IN_ALL_EVENTS == 0 {
            return fail(libc::EINVAL);
        }
        check(k, hold)?;
        fatal::refused(b"inotify_add_watch");
        fail(libc::ENOSPC)
    })
}

/// `inotify_rm_watch`: there are none.
pub fn remove_watch(fd: i32) -> Answer {
    on_any(fd, |k, hold| check(k, hold).and_then(|()| fail(libc::EINVAL)))
}

/// A descriptor of the kernel's is none of inotify's.
fn on_any(fd: i32, call: impl FnOnce(&Kernel, &Hold) -> Result<usize>) -> Answer {
    file::only_virtual(file::with(fd, Op::Watch, call), fd, libc::EINVAL)
}
