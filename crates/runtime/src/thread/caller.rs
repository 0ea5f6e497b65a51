//! Threads that call timers' functions.
//!
//! A timer that calls a function (`SIGEV_THREAD`) has a thread made for each call by a helper thread, as in glibc; both are threads like the server's
//! own.

use super::{create, find};
use crate::frame::entry;
use crate::kernel::Kernel;
use crate::turn;
use libc::c_void;
use skein_libos::errno::Result;
use skein_libos::signal::timer::{self, Call};
use skein_sched::op::{Kind, Object};

/// Makes the helper thread of this process.
pub fn make_caller(k: &Kernel) -> Result<()> {
    let mut helper = 0;
    // SAFETY: a start routine of the right type without attributes.
    unsafe {
        create(&raw mut helper, core::ptr::null_mut(), callers as *const () as usize, 0)?;
    }
    if let Some(h) = find(k, helper) {
        k.threads.get(h).signals.mask.set(u64::MAX);
    }
    Ok(())
}

/// The helper thread.
#[unsafe(naked)]
extern "C" fn callers(nothing: *mut c_void) -> *mut c_void {
    entry!(make_calls)
}

extern "C" fn make_calls(_: *mut c_void) -> *mut c_void {
    loop {
        let turn = turn::enter(Object::Timers, Kind::Wait);
        let k = &*turn;
        let Some(call) = timer::next_call(k) else {
            timer::await_call(k);
            turn.end();
            continue;
        };
        if make_call(k, &call).is_err() {
            crate::fatal::notice(b"no thread could be made for a timer's function");
        }
        turn.end();
    }
}

/// Makes a thread that calls a timer's function.
fn make_call(k: &Kernel, call: &Call) -> Result<()> {
    // SAFETY: all-zero bytes, made attributes by the next call.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    let mut pthread = 0;
    // SAFETY: libc's functions on locals; the function takes its value in the register of a start routine's argument.
    let made = unsafe {
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        if call.stack_bytes != 0 {
            libc::pthread_attr_setstacksize(&raw mut attributes, call.stack_bytes);
        }
        let value = call.value as usize;
        let made = create(&raw mut pthread, &raw mut attributes, call.function, value);
        libc::pthread_attr_destroy(&raw mut attributes);
        made
    };
    if let Some(h) = find(k, pthread).filter(|_| made.is_ok()) {
        k.threads.get(h).signals.mask.set(0);
    }
    made
}
