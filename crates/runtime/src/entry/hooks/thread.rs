//! Hooks: threads, from creation to cancellation, POSIX and C11.

use super::{hook, pthread_result};
use crate::frame::entry;
use crate::thread;
use crate::thread::Thread;
use crate::turn::{self, trace};
use core::cell::Cell;
use libc::{c_char, c_int, c_void, pthread_attr_t, pthread_t};
use skein_libos::abi::timespec;
use skein_libos::errno::{Errno, Result};
use skein_sched::op::{Kind, Object};

const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;
// C11 threads: results as glibc has them.
const THRD_SUCCESS: c_int = 0;
const THRD_BUSY: c_int = 1;
const THRD_ERROR: c_int = 2;
const THRD_NOMEM: c_int = 3;

fn join_into(
    t: pthread_t,
    out: *mut *mut c_void,
    until: Option<(c_int, &timespec)>,
    try_only: bool,
) -> Result<()> {
    let value = thread::join(t, until, try_only)?;
    if !out.is_null() {
        // SAFETY: the server's own pointer, not null.
        unsafe { out.write(value) };
    }
    Ok(())
}

/// Sets a flag of the turn's holder.
fn switch(flag: fn(&Thread) -> &Cell<bool>, to: c_int, old: *mut c_int, on: c_int) -> Result<()> {
    let turn = thread::enter_own(Kind::Set);
    let flag = flag(turn.this());
    if !(0..=1).contains(&to) {
        return Err(Errno(libc::EINVAL));
    }
    if !old.is_null() {
        // SAFETY: the server's own pointer, not null.
        unsafe { old.write(c_int::from(flag.get()) * on) };
    }
    flag.set(to == on);
    Ok(())
}

/// What a C11 thread's start routine returns, as a pthread's value.
type C11Start = extern "C" fn(*mut c_void) -> c_int;

hook! {
    fn pthread_create(out: *mut pthread_t, attr: *mut pthread_attr_t, start: *mut c_void, arg: *mut c_void) -> c_int {
        let _turn = turn::enter(Object::Thread(0), Kind::Create);
        // SAFETY: the arguments are those of `pthread_create`.
        pthread_result(unsafe { thread::create(out, attr, start as usize, arg as usize) })
    }

    fn pthread_join(t: pthread_t, out: *mut *mut c_void) -> c_int {
        pthread_result(join_into(t, out, None, false))
    }

    fn pthread_tryjoin_np(t: pthread_t, out: *mut *mut c_void) -> c_int {
        pthread_result(join_into(t, out, None, true))
    }

    fn pthread_timedjoin_np(t: pthread_t, out: *mut *mut c_void, at: *const timespec) -> c_int {
        // SAFETY: the server's own pointer.
        let until = unsafe { at.as_ref() }.map(|at| (libc::CLOCK_REALTIME, at));
        pthread_result(join_into(t, out, until, false))
    }

    fn pthread_clockjoin_np(t: pthread_t, out: *mut *mut c_void, clock: c_int, at: *const timespec) -> c_int {
        // SAFETY: the server's own pointer.
        let until = unsafe { at.as_ref() }.map(|at| (clock, at));
        pthread_result(join_into(t, out, until, false))
    }

    fn pthread_detach(t: pthread_t) -> c_int {
        pthread_result(thread::detach(t))
    }

    fn pthread_cancel(t: pthread_t) -> c_int {
        pthread_result(thread::cancel(t))
    }

    fn pthread_setcancelstate(to: c_int, old: *mut c_int) -> c_int {
        pthread_result(switch(|t| &t.cancel_off, to, old, PTHREAD_CANCEL_DISABLE))
    }

    fn pthread_setcanceltype(to: c_int, old: *mut c_int) -> c_int {
        let result = switch(|t| &t.cancel_async, to, old, PTHREAD_CANCEL_ASYNCHRONOUS);
        if to == PTHREAD_CANCEL_ASYNCHRONOUS {
            thread::test_cancel();
        }
        pthread_result(result)
    }

    fn pthread_setname_np(t: pthread_t, name: *const c_char) -> c_int {
        pthread_result(thread::set_name(t, name))
    }

    fn pthread_getname_np(t: pthread_t, out: *mut c_char, n: usize) -> c_int {
        pthread_result(thread::get_name(t, out, n))
    }

    fn thrd_create(out: *mut pthread_t, start: C11Start, arg: *mut c_void) -> c_int {
        let _turn = turn::enter(Object::Thread(0), Kind::Create);
        // SAFETY: as for `pthread_create`; an int is returned in the register of which the low half is the result.
        match unsafe { thread::create(out, core::ptr::null_mut(), start as usize, arg as usize) } {
            Ok(()) => THRD_SUCCESS,
            Err(Errno(libc::EAGAIN | libc::ENOMEM)) => THRD_NOMEM,
            Err(_) => THRD_ERROR,
        }
    }

    fn thrd_join(t: pthread_t, out: *mut c_int) -> c_int {
        match thread::join(t, None, false) {
            Ok(value) => {
                if !out.is_null() {
                    // SAFETY: the server's own pointer, not null.
                    unsafe { out.write(value as usize as c_int) };
                }
                THRD_SUCCESS
            }
            Err(Errno(libc::EBUSY)) => THRD_BUSY,
            Err(_) => THRD_ERROR,
        }
    }

    fn thrd_detach(t: pthread_t) -> c_int {
        if thread::detach(t).is_ok() { THRD_SUCCESS } else { THRD_ERROR }
    }

    fn thrd_yield() {
        let _turn = turn::enter(Object::Machine, Kind::Yield);
        turn::yield_now();
    }

    fn thrd_sleep(request: *const skein_libos::abi::timespec, left: *mut skein_libos::abi::timespec) -> c_int {
        // SAFETY: the server's own pointers.
        match unsafe { crate::time::calls::nanosleep(libc::CLOCK_MONOTONIC, 0, request, left) } {
            Ok(_) => 0,
            Err(Errno(libc::EINTR)) => -1,
            Err(_) => -2,
        }
    }
}

/// The calling thread ends. Unwinds the caller's frames, so it may be left by unwinding.
///
/// # Safety
/// As `pthread_exit`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    entry!(end)
}

unsafe extern "C" fn end(value: *mut c_void) -> ! {
    if crate::entry::init::ensure() {
        thread::exit(value)
    }
    // SAFETY: libc's own function.
    unsafe { (crate::original::originals().pthread_exit)(value) }
}

/// The calling C11 thread ends.
///
/// # Safety
/// As `thrd_exit`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn thrd_exit(value: c_int) -> ! {
    entry!(end_c11)
}

unsafe extern "C" fn end_c11(value: c_int) -> ! {
    // SAFETY: as for `pthread_exit`.
    unsafe { end(value as isize as *mut c_void) }
}

/// A cancellation point.
///
/// # Safety
/// As `pthread_testcancel`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_testcancel() {
    entry!(test_cancel)
}

unsafe extern "C" fn test_cancel() {
    if crate::entry::init::ensure() {
        let _turn = thread::enter_own(Kind::Ask);
        thread::test_cancel();
        trace::returns(0);
    }
}

const _: () = assert!(PTHREAD_CANCEL_ENABLE == 0 && PTHREAD_CANCEL_DEFERRED == 0);
