//! inotify, as on a machine that allows no watches (`max_user_watches` is 0): descriptors can be opened, but no event ever arrives, and watches
//! are refused by name.
//!
//! A server that would watch files, but can do without, runs; a server that only tests for inotify does not fail for the lack of it.

use super::buffers::Buffers;
use super::ops::{FileOps, Queue};
use super::wait::wait_if_blocking;
use super::{File, Hold, Kind, ready};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use skein_arena::pool::Handle;

/// `inotify_init1`.
pub fn create<H: Host>(k: &H, flags: i32) -> Result<usize> {
    if flags & !(abi::IN_CLOEXEC | abi::IN_NONBLOCK) != 0 {
        return fail(abi::EINVAL);
    }
    let status = abi::O_RDONLY | flags & abi::O_NONBLOCK;
    let cloexec = flags & abi::IN_CLOEXEC != 0;
    super::open(k, Kind::Inotify, 0, status, cloexec).map(|(_, fd)| fd as usize)
}

/// The functions of such a descriptor.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    fn mask(&self, _: &H, _: &File) -> u32 {
        0
    }

    fn release(&self, _: &H, _: Handle<File>) {}

    /// Waits for ever: no event arrives.
    fn read(&self, k: &H, hold: &Hold<'_, H>, _: &mut Buffers<'_>) -> Result<usize> {
        loop {
            wait_if_blocking(k, hold, ready::IN)?;
        }
    }

    fn queued(&self, _: &H, _: &File, queue: Queue) -> Result<usize> {
        if queue == Queue::Unread { Ok(0) } else { fail(abi::ENOTTY) }
    }

    fn stays(&self) -> bool {
        true
    }
}

fn check<H: Host>(k: &H, hold: &Hold<'_, H>) -> Result<()> {
    if hold.file(k).kind.get() == Kind::Inotify { Ok(()) } else { fail(abi::EINVAL) }
}

/// `inotify_add_watch`.
pub fn add_watch<H: Host>(k: &H, hold: &Hold<'_, H>, events: u32) -> Result<usize> {
    if events & abi::IN_ALL_EVENTS == 0 {
        return fail(abi::EINVAL);
    }
    check(k, hold)?;
    k.refused(format_args!("inotify_add_watch"));
    fail(abi::ENOSPC)
}

/// `inotify_rm_watch`: there are none.
pub fn remove_watch<H: Host>(k: &H, hold: &Hold<'_, H>) -> Result<usize> {
    check(k, hold).and_then(|()| fail(abi::EINVAL))
}
