//! readv and writev in all their forms; for `read` and `write` see [`ops`](super::ops).

use super::buffers::Buffers;
use super::{Hold, Kind, ops};
use crate::abi::{self, iovec};
use crate::errno::{Result, fail};
use crate::host::Host;

/// `readv`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn readv<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    list: *const iovec,
    count: i32,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let mut buffers = unsafe { parts(list, count) }?;
    let readable = |kind| matches!(kind, Kind::TimerFd | Kind::SignalFd);
    if buffers.left() == 0 && (is_duplex(k, hold) || readable(hold.file(k).kind.get())) {
        return Ok(0);
    }
    ops::read(k, hold, &mut buffers)
}

/// `writev`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn writev<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    list: *const iovec,
    count: i32,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let mut buffers = unsafe { parts(list, count) }?;
    if buffers.left() == 0 && is_duplex(k, hold) {
        return Ok(0);
    }
    ops::write(k, hold, &mut buffers)
}

/// Whether the file is of a kind that is read and written: Linux does not ask it for a list of no bytes, as it does for no bytes by `read` and `write`.
fn is_duplex<H: Host>(k: &H, hold: &Hold<'_, H>) -> bool {
    matches!(hold.file(k).kind.get(), Kind::Socket | Kind::EventFd)
}

unsafe fn parts<'a>(list: *const iovec, count: i32) -> Result<Buffers<'a>> {
    if count < 0 {
        return fail(abi::EINVAL);
    }
    // SAFETY: the caller's contract.
    unsafe { Buffers::from_raw(list, count as usize, abi::EINVAL) }
}

/// `preadv2` and `pwritev2` at the file's own position, with flags, which virtual files do not know.
pub fn flagged<H: Host>(k: &H, flags: i32) -> Result<usize> {
    k.refused(format_args!("preadv2 or pwritev2 with flags {flags:#x} on a socket or pipe"));
    fail(abi::EOPNOTSUPP)
}
