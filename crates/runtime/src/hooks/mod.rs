//! The interposed symbols. A hook is one entry of the [`hook!`] macro: it resolves, guards and dispatches; the logic is elsewhere.
//!
//! Before the runtime is ready, and in processes that are not replicated, hooks pass through to libc's own functions, which
//! [`resolve`] looked up once ([`originals`]).

pub mod files;
pub mod fork;
pub mod io;
pub mod ipc;
pub mod lookup;
pub mod memory;
pub mod names;
pub mod process;
pub mod signal;
pub mod sync;
pub mod thread;
pub mod time;

use crate::errno::{Errno, Result};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use libc::{c_int, c_void};

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
                if $crate::init::ensure() {
                    let result = $body;
                    // What came for the thread meanwhile is delivered between two of its operations.
                    $crate::signal::boundary();
                    result
                } else {
                    $crate::hooks::pass!($name($($arg: $ty),*) $(-> $ret)? $(, $pass)?)
                }
            }

            $(#[$meta])*
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
                $crate::entry::entry!(body $(, on $stack)?)
            }
        };
    )*};
}
pub(crate) use hook;

/// Calls libc's own function with a hook's arguments, unless the hook says otherwise.
macro_rules! pass {
    ($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?) => {
        // SAFETY: the caller of the hook keeps the contract of libc's function, whose arguments these are.
        unsafe { $crate::hooks::real!($name: fn($($ty),*) $(-> $ret)?)($($arg),*) }
    };
    ($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, $pass:block) => { $pass };
}
pub(crate) use pass;

/// libc's function behind a symbol that is resolved at the first use; for functions that hooks pass through to.
macro_rules! real {
    ($name:ident: fn($($ty:ty),*) $(-> $ret:ty)?) => {{
        static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        $crate::hooks::original::<unsafe extern "C" fn($($ty),*) $(-> $ret)?>(
            &SLOT,
            concat!(stringify!($name), "\0"),
        )
    }};
}
pub(crate) use real;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const libc::c_char) -> *mut c_void;

/// libc's own `dlsym`, which the hook of that name hides from this library, too.
pub fn real_dlsym() -> Dlsym {
    unsafe extern "C" {
        fn dlvsym(
            handle: *mut c_void,
            name: *const libc::c_char,
            version: *const libc::c_char,
        ) -> *mut c_void;
    }
    static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
    let mut at = SLOT.load(core::sync::atomic::Ordering::Relaxed);
    if at == 0 {
        // The version is that of libc since it holds what was libdl.
        // SAFETY: looks a name up.
        at = unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.34".as_ptr()) } as usize;
        if at == 0 {
            crate::fatal::refuse!("the C library lacks dlsym");
        }
        SLOT.store(at, core::sync::atomic::Ordering::Relaxed);
    }
    // SAFETY: libc's function of this name, which has this signature.
    unsafe { core::mem::transmute::<usize, Dlsym>(at) }
}

/// libc's function `name`, of type `F`, looked up once.
pub fn original<F: Copy>(slot: &core::sync::atomic::AtomicUsize, name: &'static str) -> F {
    let mut at = slot.load(core::sync::atomic::Ordering::Relaxed);
    if at == 0 {
        at = next_symbol(name);
        slot.store(at, core::sync::atomic::Ordering::Relaxed);
    }
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: `real!` is this function's only caller: `F` is the signature of libc's function of that name.
    unsafe { core::mem::transmute_copy(&at) }
}

/// The address of libc's own definition of `name` (which ends in a NUL).
pub fn next_symbol(name: &'static str) -> usize {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("a name that ends in NUL");
    // SAFETY: looks a name up.
    let at = unsafe { real_dlsym()(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if at == 0 {
        crate::fatal::refuse!("the C library lacks {}", name.to_str().unwrap_or("?"));
    }
    at
}

type PthreadCreate = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;
type PthreadJoin = unsafe extern "C" fn(libc::pthread_t, *mut *mut c_void) -> c_int;
/// It unwinds, but is called as one that does not: with `panic = "abort"` rustc guards a call of a `C-unwind` function with a landing pad
/// that aborts. Without landing pads this library's frames have unwind tables only, and the forced unwinding passes through them.
type PthreadExit = unsafe extern "C" fn(*mut c_void) -> !;

/// libc's own functions that the runtime itself needs, resolved before anything else.
pub struct Originals {
    /// `pthread_create`.
    pub pthread_create: PthreadCreate,
    /// `pthread_join`.
    pub pthread_join: PthreadJoin,
    /// `pthread_exit`.
    pub pthread_exit: PthreadExit,
}

struct Place(UnsafeCell<Option<Originals>>);
// SAFETY: written once, by the only thread, before it is read.
unsafe impl Sync for Place {}
static ORIGINALS: Place = Place(UnsafeCell::new(None));

/// Looks up libc's own functions.
pub fn resolve() {
    macro_rules! symbol {
        ($name:literal as $ty:ty) => {
            // SAFETY: the symbol is libc's function of this name, which has this signature.
            unsafe { core::mem::transmute::<usize, $ty>(next_symbol(concat!($name, "\0"))) }
        };
    }
    let found = Originals {
        pthread_create: symbol!("pthread_create" as PthreadCreate),
        pthread_join: symbol!("pthread_join" as PthreadJoin),
        pthread_exit: symbol!("pthread_exit" as PthreadExit),
    };
    // SAFETY: as for `Place`.
    unsafe { *ORIGINALS.0.get() = Some(found) };
}

/// libc's own functions.
pub fn originals() -> &'static Originals {
    // SAFETY: written once before the first call.
    unsafe { &*ORIGINALS.0.get() }.as_ref().expect("resolved at start")
}
