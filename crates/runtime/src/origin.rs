//! The calling place of a call in the server, for a line about it: found only when a call is refused, so hooks pay nothing for it.
//!
//! A trapped call's instruction is known ([`crate::thread::Thread::trapped_at`]). A call through an interposed symbol is found by walking the stack
//! out of this library. The library's place is asked of the loader, so that the line means the same on every machine.

use crate::fatal::{Line, line};
use core::ffi::CStr;
use libc::{c_int, c_void};

/// The most frames of this library on top of the caller's.
const MAX_FRAMES: u32 = 64;

const CONTINUE: c_int = 0;
const STOP: c_int = 4;

/// The unwinder's own.
enum UnwindContext {}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut UnwindContext, *mut c_void) -> c_int,
        arg: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut UnwindContext) -> usize;
}

/// A walk out of this library.
struct Walk {
    own: usize,
    frames: u32,
    found: usize,
}

/// Adds `program+0x12ab` or `libfoo.so+0x12ab (function)` to a line, of the instruction that was caught behind `trapped_at`, or of the caller; nothing when it cannot be found.
pub fn append_caller(to: &mut Line, trapped_at: usize) {
    let at = match trapped_at {
        0 => caller(),
        trapped => trapped,
    };
    if at == 0 {
        return;
    }
    let Some(place) = look_up(at) else {
        to.append(line!("{at:#x}").bytes());
        return;
    };
    // SAFETY: the loader's strings live as long as their libraries.
    let name = |text: *const libc::c_char| unsafe { CStr::from_ptr(text) }.to_bytes();
    let path = name(place.dli_fname);
    to.append(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path));
    to.append(line!("+{:#x}", at - place.dli_fbase as usize).bytes());
    if !place.dli_sname.is_null() {
        to.append(b" (");
        to.append(name(place.dli_sname));
        to.append(b")");
    }
}

/// Calls `each` with the place of every frame of the server's below this library's, the innermost first, as long as it answers true.
pub fn each_frame(mut each: impl FnMut(usize) -> bool) {
    extern "C" fn step<F: FnMut(usize) -> bool>(
        context: *mut UnwindContext,
        each: *mut c_void,
    ) -> c_int {
        // SAFETY: the pointer that `each_frame` passed; the unwinder's own context.
        let (each, at) = unsafe { (&mut *each.cast::<F>(), _Unwind_GetIP(context)) };
        if at == 0 {
            return STOP;
        }
        if crate::stack::is_own(at) || each(at) { CONTINUE } else { STOP }
    }
    fn walk<F: FnMut(usize) -> bool>(each: &mut F) {
        // SAFETY: `step` is what the unwinder wants; `each` outlives the call.
        unsafe { _Unwind_Backtrace(step::<F>, core::ptr::from_mut(each).cast()) };
    }
    walk(&mut each);
}

/// Which library an address lies in.
fn look_up(at: usize) -> Option<libc::Dl_info> {
    // SAFETY: all-zero is a valid `Dl_info`: null pointers.
    let mut place: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: libc's own function with a live result; it only reads the loader's tables.
    let known = unsafe { libc::dladdr(at as *const c_void, &raw mut place) } != 0;
    (known && !place.dli_fname.is_null()).then_some(place)
}

/// The address behind the call into this library; 0 if it is not on the stack.
fn caller() -> usize {
    let here = append_caller as *const () as usize;
    let Some(own) = look_up(here) else { return 0 };
    let mut walk = Walk { own: own.dli_fbase as usize, frames: 0, found: 0 };
    // SAFETY: `step` is what the unwinder wants; `walk` outlives the call.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.found
}

extern "C" fn step(context: *mut UnwindContext, walk: *mut c_void) -> c_int {
    // SAFETY: the pointer that `caller` passed.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the unwinder's own context.
    let at = unsafe { _Unwind_GetIP(context) };
    walk.frames += 1;
    if at == 0 || walk.frames > MAX_FRAMES {
        return STOP;
    }
    match look_up(at) {
        Some(place) if place.dli_fbase as usize == walk.own => CONTINUE,
        _ => {
            // The return address: the call is just before it.
            walk.found = at - 1;
            STOP
        }
    }
}
