//! Descriptors and everything behind them.

pub mod inbound;
pub mod timerfd;

use crate::kernel::Room;
use crate::sys::Result;

/// All descriptors, files, sockets, epoll sets. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct IoState {
    _unused: core::cell::Cell<u32>,
}

impl IoState {
    /// Takes its memory.
    pub fn lay_out(&self, _room: &mut Room) {}
}

/// Takes over the descriptors that the process was started with.
pub fn adopt_descriptors() {}

/// An I/O system call by number: `None` when it is not one, or not on a virtual descriptor.
pub fn syscall(_nr: i64, _args: [usize; 6]) -> Option<Result<usize>> {
    None
}
