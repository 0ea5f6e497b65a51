//! The end of a thread: by libc, when its start routine returns, it calls `pthread_exit` or is cancelled; or by the system call `exit`, made around libc.
//!
//! Both end on the thread's own kernel thread, for the kernel's own work (it clears the word that `pthread_join` waits for). A main thread's is
//! the carrier, which goes on: its end is the runtime's alone.
//!
//! libc counts its threads, and runs the `atexit` functions when the last one ends. It does not see those that end around it: after one of
//! them it takes no thread for the last, and the process ends like a kernel process, with the last thread's code and nothing else.

use super::{Life, Thread, end_key, enter_own, forget};
use crate::kernel::{Kernel, kernel};
use crate::local::LOCAL;
use crate::stack::{self, Level, Place};
use crate::turn::{self, carrier::main_fs, trace};
use crate::{context, original, process, sys, vectors};
use core::sync::atomic::Ordering;
use libc::c_void;
use skein_arena::pool::Handle;
use skein_libos::keys::Key;
use skein_sched::op::Kind;

/// The kernel thread of `handle` is gone: joiners go on, a detached one is forgotten.
pub fn gone(k: &Kernel, handle: Handle<Thread>) {
    let t = k.threads.get(handle);
    t.life.set(Life::Ended);
    skein_libos::signal::thread_ended(k, t);
    skein_libos::sync::mutex::owner_gone(k, handle);
    one_less(k, t);
    if t.detached.get() {
        forget(k, handle);
    } else {
        k.keys.wake(k, end_key(handle), u32::MAX, u32::MAX);
    }
}

/// `pthread_exit`.
pub fn exit(value: *mut c_void) -> ! {
    // It may be cancelled in a call, or inside of handlers.
    trace::leaves(kernel().current.get(), 0);
    let turn = enter_own(Kind::Exit);
    let k = &*turn;
    k.this().exiting.set(true);
    if k.this().fs.get() == main_fs() {
        leave_main(k, value);
    }
    turn::pin_current();
    turn.end();
    // SAFETY: on the thread's own kernel thread now: libc unwinds its stack, runs cleanup handlers and destructors, and ends it.
    unsafe {
        vectors::settle();
        (original::originals().pthread_exit)(value)
    }
}

/// The system call `exit`. `libcs` says whether libc's text made it.
pub fn exit_by_call(code: i32, libcs: bool) -> ! {
    let k = kernel();
    let this = k.this();
    if libcs && this.pinned.get() {
        // libc's last action on a thread; the carrier waits for it.
        exit_for_good(0);
    }
    // It may have interrupted a call of its own with a handler.
    trace::leaves(k.current.get(), 0);
    let turn = enter_own(Kind::Exit);
    this.exiting.set(true);
    process::end::abandon(k, k.current(), this);
    process::this().ended_around_libc.set(true);
    this.code.set(code);
    if this.fs.get() == main_fs() {
        leave_main(k, core::ptr::null_mut());
    }
    turn::pin_current();
    turn.end();
    exit_for_good(code)
}

/// The main thread, which has the turn, is done.
fn leave_main(k: &Kernel, value: *mut c_void) -> ! {
    let this = k.this();
    one_less(k, this);
    skein_libos::signal::thread_ended(k, this);
    skein_libos::sync::mutex::owner_gone(k, k.current());
    this.arg.set(value as usize);
    k.keys.wake(k, end_key(k.current()), u32::MAX, u32::MAX);
    LOCAL.main_ended_at.store(stack::servers() as u64, Ordering::Relaxed);
    turn::end();
    turn::end_main()
}

/// The running process has one thread less, `t`. Does not return when that was its last.
fn one_less(k: &Kernel, t: &Thread) {
    let p = process::this();
    p.threads.set(p.threads.get() - 1);
    if p.threads.get() != 0 {
        clear_word(k, t);
        return;
    }
    if p.ended_around_libc.get() {
        process::end::exit(t.code.get());
    }
    p.threads.set(1);
    turn::end();
    if context::fs_base() == t.fs.get() {
        // SAFETY: a function that does not return, where nothing is needed again.
        unsafe { stack::call_server(exit_process as *const () as usize, [0; 3], Place::here()) };
    }
    // The carrier, on its idle stack, continues as this thread for the `atexit` functions: where the main thread has ended there is room for that.
    t.life.set(Life::Running);
    t.pinned.set(false);
    t.fs.set(main_fs());
    let mut nowhere = 0;
    let top = (LOCAL.main_ended_at.load(Ordering::Relaxed) & !15) as *mut u8;
    Level::bottom(stack::of_main()).set();
    // SAFETY: the main thread has ended, or this were not the last one; nothing that lies below is needed again.
    unsafe { context::onto_stack(&raw mut nowhere, top, main_fs(), exit_process, 0) };
}

/// As if main had returned 0.
extern "C" fn exit_process(_: u32) -> ! {
    // SAFETY: by the process's last thread.
    unsafe {
        vectors::settle();
        libc::exit(0)
    }
}

/// Clears the thread's requested word, and wakes one thread that waits for it. As with the kernel a missing address is no fault.
fn clear_word(k: &Kernel, t: &Thread) {
    let address = t.clear_at_end.get();
    // `FUTEX_OP(FUTEX_OP_SET, 0, FUTEX_OP_CMP_EQ, 0)`: stores zero, and nobody waits in the kernel.
    const SET_ZERO: usize = 0;
    let op = libc::FUTEX_WAKE_OP as usize;
    // SAFETY: the kernel checks the address.
    let stored = address != 0
        && unsafe { sys::call(libc::SYS_futex, [address, op, 0, 0, address, SET_ZERO]) }.is_ok();
    if stored {
        k.keys.wake(k, Key::of(k, address as *const u32), 1, u32::MAX);
    }
}

/// The calling kernel thread ends.
fn exit_for_good(code: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { sys::raw(libc::SYS_exit, sys::args([code as usize])) };
    }
}
