//! The server's threads: birth, parking, the end on their own kernel thread, joining and cancellation.
//!
//! Birth: `pthread_create` really creates a thread with libc's help; its kernel thread comes to [`born`], notes its TLS and id, parks on
//! a small stack and tells the carrier. From then on the carrier runs its context.
//!
//! End ([`end`]): the context is pinned ([`turn::pin_current`]) and taken up by its own kernel thread, which runs destructors and libc's exit path
//! while the carrier waits until the kernel has cleared the thread's id. So no code of a dying thread runs beside the turn's holder.

pub mod birth;
mod caller;
mod end;

pub use crate::kernel::thread::{Thread, find};
pub use caller::make_caller;
pub use end::{exit, exit_by_call, gone};

use crate::frame::entry;
use crate::glibc;
use crate::kernel::name;
use crate::kernel::thread::{PARKED, SLEEP, UNPARKED, discard, let_run};
use crate::kernel::{Kernel, kernel};
use crate::local::header;
use crate::process::{self};
use crate::stack::{self, Level, Place};
use crate::sys;
use crate::turn::{self, Turn, carrier};
use crate::{context, original, patch, signal};
use core::sync::atomic::Ordering;
use libc::c_void;
use skein_arena::pool::Handle;
use skein_libos::Host;
use skein_libos::abi::timespec;
use skein_libos::errno::{Errno, Result};
use skein_libos::keys::Key;
use skein_libos::process::threads_of;
use skein_libos::thread::Life;
use skein_libos::thread::Wake;
use skein_libos::time::to_ns;
use skein_sched::op::{Kind, Object};

unsafe extern "C" {
    fn pthread_attr_getdetachstate(
        attr: *const libc::pthread_attr_t,
        state: *mut libc::c_int,
    ) -> libc::c_int;
}

/// Makes the main thread, which is running, the first thread.
pub fn adopt_main(k: &Kernel) {
    let main = k.threads.alloc().expect("an empty thread table");
    let t = k.threads.get(main);
    t.life.set(Life::Running);
    t.fs.set(context::fs_base());
    t.stack.set(stack::of_main());
    t.tid.set(sys::gettid());
    t.name.set(name::of_kernels());
    let root = process::adopt_root(k, t.tid.get() as libc::pid_t);
    turn::cores::begin(k);
    t.process.set(Some(root));
    process::this().threads.set(1);
    carrier::be_main();
    k.current.set(main.raw());
    header().carrier_tid.store(t.tid.get(), Ordering::Relaxed);
    header().turn_holder.store(main.raw(), Ordering::Relaxed);
}

/// In a new program: the running thread is `thread`, which executed it.
pub fn be_new_main(k: &Kernel, thread: Handle<Thread>) {
    let t = k.threads.get(thread);
    t.fs.set(context::fs_base());
    t.stack.set(stack::of_main());
    t.tid.set(sys::gettid());
    t.pinned.set(false);
    t.detached.set(false);
    t.cancel_asked.set(false);
    t.cancel_off.set(false);
    t.cancel_async.set(false);
    t.clear_at_end.set(0);
    t.robust.set(0);
    t.name.set(name::of_kernels());
    carrier::be_main();
}

/// `pthread_create`.
///
/// # Safety
/// The arguments are those of `pthread_create`.
pub unsafe fn create(
    out: *mut libc::pthread_t,
    attr: *mut libc::pthread_attr_t,
    start: usize,
    arg: usize,
) -> Result<()> {
    let k = kernel();
    let Some(handle) = k.threads.alloc() else { return Err(Errno(libc::EAGAIN)) };
    let t = k.threads.get(handle);
    let Some(stack) = stack::alloc() else {
        discard(k, handle);
        return Err(Errno(libc::EAGAIN));
    };
    t.stack.set(stack);
    t.life.set(Life::Unborn);
    t.start.set(start);
    t.arg.set(arg);
    t.process.set(Some(process::handle()));
    t.name.set(k.this().name.get());
    t.alternate.set(signal::NO_ALTERNATE);
    skein_libos::signal::inherit(k.this(), t);
    let mut detached = libc::PTHREAD_CREATE_JOINABLE;
    let real = original::originals();
    if !attr.is_null() {
        // SAFETY: `attr` is initialised by the caller; libc must see it joinable, because we join the kernel thread ourselves.
        unsafe {
            pthread_attr_getdetachstate(attr, &raw mut detached);
            libc::pthread_attr_setdetachstate(attr, libc::PTHREAD_CREATE_JOINABLE);
        }
    }
    t.detached.set(detached == libc::PTHREAD_CREATE_DETACHED);
    let mut pthread: libc::pthread_t = 0;
    let error = birth::while_creating(stack, || {
        // SAFETY: libc's function, with our start routine.
        let error = unsafe {
            (real.pthread_create)(&raw mut pthread, attr, born, handle.raw() as *mut c_void)
        };
        while error == 0 && t.back.load(Ordering::Acquire) == UNPARKED {
            sys::futex_wait(&t.back, UNPARKED);
        }
        error
    });
    if !attr.is_null() {
        // SAFETY: restores what was there.
        unsafe { libc::pthread_attr_setdetachstate(attr, detached) };
    }
    if error != 0 {
        stack::release(stack);
        discard(k, handle);
        return Err(Errno(error));
    }
    k.last_number.set(t.tid.get());
    patch::thread_created();
    crate::uses::note(crate::uses::Use::Threads);
    let threads = &process::this().threads;
    threads.set(threads.get() + 1);
    // SAFETY: the caller's variable.
    unsafe { out.write(pthread) };
    let_run(k, handle);
    Ok(())
}

/// Where a new kernel thread begins.
#[unsafe(naked)]
extern "C-unwind" fn born(arg: *mut c_void) -> *mut c_void {
    entry!(live)
}

/// A thread's life, on its stack of the runtime's.
extern "C" fn live(arg: *mut c_void) -> *mut c_void {
    let k = kernel();
    let raw = arg as usize as u32;
    let t = k.threads.get(Handle::from_raw(raw).expect("a thread's handle"));
    block_signals();
    // The kernel has given it the carrier's, which may not be that of the thread that made it.
    name::give(&t.name.get());
    t.fs.set(context::fs_base());
    t.tid.set(sys::gettid());
    let top = t.park_stack.get().cast::<u8>().wrapping_add(context::PARK_STACK_BYTES);
    // SAFETY: the park stack is this thread's own; `parked` returns this thread's saved context.
    unsafe { context::park_here(t.sp.as_ptr(), top, parked, raw) };
    // From here the carrier runs, on this stack and TLS.
    Level::bottom(t.stack.get()).set();
    signal::boundary();
    // SAFETY: the start routine and argument of `pthread_create`. It may be left by forced unwinding, for which this frame must have
    // no landing pad ([`original::PthreadExit`]): so it is not called as one that unwinds.
    let value = unsafe { stack::call_server(t.start.get(), [t.arg.get(), 0, 0], Place::here()) };
    let value = value as *mut c_void;
    if context::fs_base() == carrier::main_fs() {
        // In a process that it has forked, as the main thread there: it has no kernel thread of its own.
        exit(value);
    }
    t.exiting.set(true);
    let turn = enter_own(Kind::Exit);
    turn::pin_current();
    turn.end();
    // From here this thread's own kernel thread runs again.
    value
}

/// Signals are for the carrier. SIGSYS stays open: blocked, a trapped system call would kill.
fn block_signals() {
    let set: u64 = !(1 << (libc::SIGSYS - 1));
    // SAFETY: sets this kernel thread's mask, libc's internal signals included.
    unsafe {
        sys::raw(
            libc::SYS_rt_sigprocmask,
            sys::args([libc::SIG_SETMASK as usize, &raw const set as usize, 0, 8]),
        );
    }
}

/// A kernel thread sleeps here, on its park stack, until its context is given back to it.
extern "C" fn parked(raw: u32) -> u64 {
    let t = kernel().threads.get(Handle::from_raw(raw).expect("a thread's handle"));
    t.back.store(PARKED, Ordering::Release);
    sys::futex_wake(&t.back);
    while t.go.load(Ordering::Acquire) == SLEEP {
        sys::futex_wait(&t.go, SLEEP);
    }
    t.go.store(SLEEP, Ordering::Relaxed);
    t.sp.get()
}

/// In a process that was restored: makes the kernel threads of its parked threads again, by `make`, which gives them the numbers that they had.
pub fn revive_all(k: &Kernel, make: impl Fn(u32, &mut dyn FnMut() -> isize)) {
    for (handle, t) in threads_of(k, process::handle()) {
        // SAFETY: a thread of libc's, whose descriptor is as it was.
        let lives =
            t.tid.get() != 0 && unsafe { glibc::tid_word(t.fs.get()) }.load(Ordering::Relaxed) != 0;
        if lives && t.fs.get() != carrier::main_fs() {
            make(t.tid.get(), &mut || revive(t, handle.raw()));
            while t.back.load(Ordering::Acquire) == UNPARKED {
                sys::futex_wait(&t.back, UNPARKED);
            }
        }
    }
}

/// Makes a kernel thread; answers as `clone` does.
fn revive(t: &Thread, raw: u32) -> isize {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_CHILD_CLEARTID;
    let end = t.park_stack.get() as usize + context::PARK_STACK_BYTES;
    t.back.store(UNPARKED, Ordering::Relaxed);
    t.go.store(SLEEP, Ordering::Relaxed);
    // SAFETY: the thread's park stack, on which nobody sleeps any more; the word that its libc's descriptor has for the kernel.
    unsafe {
        ((end - 16) as *mut usize).write(raw as usize);
        ((end - 8) as *mut usize).write(parked_again as *const () as usize);
        let word = core::ptr::from_ref(glibc::tid_word(t.fs.get()));
        context::revive(flags as usize, end - 16, 0, word as usize, t.fs.get() as usize)
    }
}

/// A kernel thread that was made again sleeps until its thread's context is given back to it.
extern "C" fn parked_again(raw: u32) -> u64 {
    let t = kernel().threads.get(Handle::from_raw(raw).expect("a thread's handle"));
    stack::take_signals(t.stack.get());
    block_signals();
    name::give(&t.name.get());
    turn::above::above().revived();
    parked(raw)
}

/// Frees libc's descriptor and stack of an ended thread, and its place here. Answers its return value.
fn forget(k: &Kernel, handle: Handle<Thread>) -> *mut c_void {
    let t = k.threads.get(handle);
    let mut value = core::ptr::null_mut();
    stack::release(t.stack.get());
    if t.fs.get() == carrier::main_fs() {
        // Its kernel thread is the carrier, which goes on.
        value = t.arg.get() as *mut c_void;
    } else {
        stack::in_library(|| {
            // SAFETY: the thread is joinable for libc and ended, so this neither blocks nor fails.
            unsafe { (original::originals().pthread_join)(t.fs.get(), &raw mut value) };
        });
    }
    discard(k, handle);
    value
}

const fn end_key(handle: Handle<Thread>) -> Key {
    Key::of_runtime(0, handle.raw())
}

/// Begins an operation on a thread of this process.
fn enter(pthread: libc::pthread_t, kind: Kind) -> (Turn, Result<Handle<Thread>>) {
    let named = find(kernel(), pthread).map_or(0, Handle::raw);
    let turn = turn::enter(Object::Thread(named), kind);
    // Another thread may have joined it meanwhile.
    let found = find(&turn, pthread).ok_or(Errno(libc::ESRCH));
    (turn, found)
}

/// Begins an operation of the turn's holder on itself.
pub fn enter_own(kind: Kind) -> Turn {
    turn::enter(Object::Thread(kernel().current.get()), kind)
}

/// `pthread_join` and its variants: waits until the absolute time on a clock, if one is given; `try_only` does not wait.
pub fn join(
    pthread: libc::pthread_t,
    until: Option<(libc::c_int, &timespec)>,
    try_only: bool,
) -> Result<*mut c_void> {
    let (turn, found) = enter(pthread, Kind::Join);
    let k = &*turn;
    let deadline_ns = until.map(|(clock, at)| k.deadline_of(clock, to_ns(at)?)).transpose()?;
    let handle = found?;
    let t = k.threads.get(handle);
    if handle == k.current() {
        return Err(Errno(libc::EDEADLK));
    }
    if t.detached.get() || t.joining.get() {
        return Err(Errno(libc::EINVAL));
    }
    if t.life.get() != Life::Ended {
        if try_only {
            return Err(Errno(libc::EBUSY));
        }
        while t.life.get() != Life::Ended {
            // A thread that ends here is not joining any more.
            test_cancel();
            let this = k.this();
            t.joining.set(true);
            this.at_cancel_point.set(true);
            let why = k.keys.wait(k, end_key(handle), u32::MAX, deadline_ns);
            this.at_cancel_point.set(false);
            t.joining.set(false);
            match why {
                Wake::Timeout => return Err(Errno(libc::ETIMEDOUT)),
                Wake::Interrupted => {
                    test_cancel();
                    signal::deliver(k);
                }
                Wake::Event => {}
            }
        }
    }
    Ok(forget(k, handle))
}

/// `pthread_detach`.
pub fn detach(pthread: libc::pthread_t) -> Result<()> {
    let (turn, found) = enter(pthread, Kind::Set);
    let (k, handle) = (&*turn, found?);
    let t = k.threads.get(handle);
    if t.detached.get() {
        return Err(Errno(libc::EINVAL));
    }
    t.detached.set(true);
    if t.life.get() == Life::Ended {
        forget(k, handle);
    }
    Ok(())
}

/// `pthread_cancel`: deferred to the target's next cancellation point.
pub fn cancel(pthread: libc::pthread_t) -> Result<()> {
    let (turn, found) = enter(pthread, Kind::Send);
    let (k, handle) = (&*turn, found?);
    let t = k.threads.get(handle);
    if t.life.get() == Life::Ended {
        return Ok(());
    }
    t.cancel_asked.set(true);
    if t.at_cancel_point.get() && !t.cancel_off.get() {
        turn::resume(handle, Wake::Interrupted);
    }
    if handle == k.current() && t.cancel_async.get() {
        test_cancel();
    }
    Ok(())
}

/// Whether the turn's holder must end at its next cancellation point.
pub fn cancel_pending() -> bool {
    kernel().this().cancel_pending()
}

/// A cancellation point: ends the thread if it was cancelled.
pub fn test_cancel() {
    if cancel_pending() {
        exit(usize::MAX as *mut c_void); // PTHREAD_CANCELED
    }
}

/// `pthread_setname_np`.
pub fn set_name(pthread: libc::pthread_t, name: *const libc::c_char) -> Result<()> {
    let (turn, found) = enter(pthread, Kind::Set);
    // SAFETY: the server's own string.
    name::name(turn.threads.get(found?), unsafe { core::ffi::CStr::from_ptr(name) })
}

/// `pthread_getname_np`.
pub fn get_name(pthread: libc::pthread_t, out: *mut libc::c_char, len: usize) -> Result<()> {
    let (turn, found) = enter(pthread, Kind::Ask);
    let name = turn.threads.get(found?).name.get();
    if len < name.len() {
        return Err(Errno(libc::ERANGE));
    }
    // SAFETY: the server's own buffer of `len` bytes.
    unsafe { core::ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len()) };
    Ok(())
}
