//! Hooks: descriptors. What is not virtual passes through to libc.

pub mod files;
pub mod readiness;
pub mod sockets;

use crate::hooks::{IntoC, set_errno};
use libc::c_int;
use skein_libos::errno::Result;

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

/// Defines hooks whose handler answers an [`crate::io::Answer`]; `None` passes through.
macro_rules! answer {
    ($( fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty { $handler:expr } )*) => { $crate::hooks::hook! {$(
        fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the arguments are the caller's, as for libc's own function.
            #[allow(unused_unsafe)]
            #[allow(clippy::macro_metavars_in_unsafe)]
            match unsafe { $handler } {
                Some(result) => $crate::hooks::IntoC::into_c(result),
                None => {
                    let real = $crate::original::real!($name: fn($($ty),*) -> $ret);
                    // SAFETY: libc's own function, called as it was.
                    unsafe { real($($arg),*) }
                }
            }
        } else {
            let real = $crate::original::real!($name: fn($($ty),*) -> $ret);
            // SAFETY: libc's own function, called as it was.
            unsafe { real($($arg),*) }
        }
    )*}};
}
pub(crate) use answer;

/// As [`answer`], for calls that the safety net catches when libc makes them itself: what passes through is the system call, made from here.
macro_rules! answer_or_call {
    ($( $nr:ident: fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty { $handler:expr } )*) => { $crate::hooks::hook! {$(
        fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the arguments are the caller's, as for libc's own function.
            #[allow(unused_unsafe)]
            #[allow(clippy::macro_metavars_in_unsafe)]
            let result = unsafe { $handler };
            $crate::hooks::IntoC::into_c(result.unwrap_or_else(|| {
                let args = $crate::sys::args([$($arg as usize),*]);
                $crate::io::table::no_own(libc::$nr, &args)?;
                // SAFETY: as above.
                unsafe { $crate::sys::call(libc::$nr, args) }
            }))
        } else {
            let real = $crate::original::real!($name: fn($($ty),*) -> $ret);
            // SAFETY: libc's own function, called as it was.
            unsafe { real($($arg),*) }
        }
    )*}};
}
pub(crate) use answer_or_call;
