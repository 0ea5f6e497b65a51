//! libc's own functions, which the hooks of the same names hide: looked up once, at the first use or at the start.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use libc::{c_int, c_void};

/// libc's function behind a symbol that is resolved at the first use; for functions that hooks pass through to.
macro_rules! real {
    ($name:ident: fn($($ty:ty),*) $(-> $ret:ty)?) => {{
        static SLOT: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        $crate::original::original::<unsafe extern "C" fn($($ty),*) $(-> $ret)?>(
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
