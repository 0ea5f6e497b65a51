//! Descriptors and all objects behind them.
//!
//! A virtual descriptor ([`skein_libos::file::table`]) points to an open file description ([`skein_libos::file`]), which points to one object: a socket, an end of
//! a pipe, an epoll set, an eventfd, a timerfd. The library has the table, the descriptions, how they are waited for and watched, and all kinds of objects.
//! The kernel's side of the table is [`mod@table`]; the other modules begin a call's operation and hand it to the library.
//!
//! Descriptors that are not in the table are the kernel's own (regular files): the functions in here answer `None` for them, and
//! the call passes through.

pub mod call;
pub mod descriptor;
pub mod msg;
pub mod park;
pub mod readiness;
pub mod socket;
pub mod table;
pub mod transfer;

use skein_libos::errno::Result;

/// A call's answer: `None` when it is not on a virtual descriptor and passes through.
pub type Answer = Option<Result<usize>>;

/// Gives two descriptors back.
///
/// # Safety
/// `out` is an array of two.
pub unsafe fn put_pair(out: *mut i32, ends: [i32; 2]) -> usize {
    // SAFETY: the caller's array.
    unsafe { out.cast::<[i32; 2]>().write_unaligned(ends) };
    0
}
