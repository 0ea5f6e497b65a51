//! The interposed symbols. A hook is one entry of the [`hook!`] macro: it resolves, guards and dispatches; the logic is elsewhere.
//! A hook that is a system call is one line of [`syscalls!`], which names the number; the answer is in [`crate::entry::calls`].
//!
//! Before the runtime is ready, and in processes that are not replicated, hooks pass through to libc's own functions
//! ([`crate::original`]).

mod descriptors;
mod files;
mod fork;
mod ipc;
pub mod jump;
mod lookup;
mod memory;
mod names;
mod once;
mod process;
mod readiness;
mod signal;
mod sockets;
mod sync;
mod thread;
mod time;

use libc::{c_int, c_uint};
use skein_libos::errno::{Errno, Result};

/// Sets `errno`.
pub fn set_errno(e: Errno) {
    // SAFETY: always a valid pointer to the running thread's errno.
    unsafe { *libc::__errno_location() = e.0 };
}

/// A result in C's way: -1 and `errno`.
pub trait IntoC<T> {
    /// The value, or -1 with `errno` set.
    fn into_c(self) -> T;
}

impl IntoC<isize> for Result<usize> {
    fn into_c(self) -> isize {
        match self {
            Ok(n) => n as isize,
            Err(e) => {
                set_errno(e);
                -1
            }
        }
    }
}

impl IntoC<c_int> for Result<usize> {
    fn into_c(self) -> c_int {
        self.map(|n| n as c_int).into_c()
    }
}

impl IntoC<i64> for Result<usize> {
    fn into_c(self) -> i64 {
        self.map_or_else(
            |e| {
                set_errno(e);
                -1
            },
            |n| n as i64,
        )
    }
}

impl IntoC<c_uint> for Result<usize> {
    fn into_c(self) -> c_uint {
        self.map(|n| n as c_int).into_c() as c_uint
    }
}

impl IntoC<c_int> for Result<i32> {
    fn into_c(self) -> c_int {
        self.unwrap_or_else(|e| {
            set_errno(e);
            -1
        })
    }
}

impl IntoC<c_int> for Result<()> {
    fn into_c(self) -> c_int {
        self.map(|()| 0).into_c()
    }
}

/// A result in the pthread functions' way: 0 or the error number.
pub fn pthread_result(result: Result<()>) -> c_int {
    result.map_or_else(|e| e.0, |()| 0)
}

/// Defines interposed functions: `hook! { fn name(args) -> ret { handled } }`. When the process is not replicated, or not yet, libc's own
/// function is called instead, or the block behind `else`. It runs on the runtime's own stack, with up to six arguments, or a seventh that comes `on stack`.
macro_rules! hook {
    ($( $(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block $(else $pass:block)? $(on $stack:ident)? )*) => {$(
        const _: () = {
            $(#[$meta])*
            #[allow(unused_variables, reason = "some calls are answered without looking at what they were asked")]
            #[allow(unreachable_code, clippy::diverging_sub_expression, reason = "some calls do not return")]
            #[allow(clippy::let_unit_value, reason = "some calls answer nothing")]
            unsafe extern "C" fn body($($arg: $ty),*) $(-> $ret)? {
                if $crate::entry::init::ensure() {
                    let result = $body;
                    // Signals that came meanwhile are delivered between two operations of the thread.
                    $crate::signal::boundary_of(&result);
                    result
                } else {
                    $crate::entry::hooks::pass!($name($($arg: $ty),*) $(-> $ret)? $(, $pass)?)
                }
            }

            $(#[$meta])*
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
                $crate::frame::entry!(body $(, on $stack)?)
            }
        };
    )*};
}
pub(crate) use hook;

/// Defines hooks that are system calls, a line each: the number, and the function. The arguments are those of the call, or those behind `=`.
/// When the process is not replicated, or not yet, libc's own function is called.
macro_rules! syscalls {
    ($( $nr:ident: fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $(= ($($given:expr),* $(,)?))?; )*) => { $crate::entry::hooks::hook! {$(
        fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the arguments are the caller's, as for libc's own function.
            let result = unsafe { $crate::entry::hooks::as_given!($nr, ($($arg),*) $(, ($($given),*))?) };
            $crate::entry::hooks::IntoC::into_c(result)
        }
    )*}};
}
pub(crate) use syscalls;

/// As [`syscalls!`], for calls without an answer in the list of [`crate::entry::calls`]: their rows decide.
macro_rules! rows {
    ($( $nr:ident: fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $(= ($($given:expr),* $(,)?))?; )*) => { $crate::entry::hooks::hook! {$(
        fn $name($($arg: $ty),*) -> $ret {
            let args = $crate::entry::hooks::words!(($($arg),*) $(, ($($given),*))?);
            // SAFETY: the arguments are the caller's, as for libc's own function.
            let result = unsafe { $crate::entry::calls::of_row::<{ libc::$nr }>(args) };
            $crate::entry::hooks::IntoC::into_c(result)
        }
    )*}};
}
pub(crate) use rows;

/// The arguments of a line of [`rows!`], as words.
macro_rules! words {
    (($($arg:expr),*)) => { $crate::sys::args([$($arg as usize),*]) };
    (($($arg:expr),*), ($($given:expr),*)) => { $crate::sys::args([$($given as usize),*]) };
}
pub(crate) use words;

/// The system call of a line of [`syscalls!`].
macro_rules! as_given {
    ($nr:ident, ($($arg:expr),*)) => { $crate::entry::calls::made!($nr($($arg),*)) };
    ($nr:ident, ($($arg:expr),*), ($($given:expr),*)) => { $crate::entry::calls::made!($nr($($given),*)) };
}
pub(crate) use as_given;

/// Calls libc's own function with a hook's arguments, unless the hook says otherwise.
macro_rules! pass {
    ($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?) => {
        // SAFETY: the caller of the hook keeps the contract of libc's function, whose arguments these are.
        unsafe { $crate::original::real!($name: fn($($ty),*) $(-> $ret)?)($($arg),*) }
    };
    ($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, $pass:block) => { $pass };
}
pub(crate) use pass;
