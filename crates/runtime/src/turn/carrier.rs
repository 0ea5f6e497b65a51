//! The carrier, which runs all threads of its process, and the kernel threads of those that end.
//!
//! A thread that ends is pinned: it runs on its own kernel thread, while the carrier waits until that gives the turn back or is gone. When the carrier has no thread's
//! stack to stand on, it stands on its idle stack, with the main thread's TLS.

use crate::context;
use crate::fatal::refuse;
use crate::glibc;
use crate::kernel::thread::{AWAITS, GIVEN_UP, GO, OUT, SLEEP, Thread};
use crate::local::LOCAL;
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// The stack on which the carrier waits when it has no thread's stack to stand on.
#[repr(C, align(64))]
struct IdleStack(UnsafeCell<[u8; 64 << 10]>);
// SAFETY: used by the carrier only.
unsafe impl Sync for IdleStack {}
static IDLE: IdleStack = IdleStack(UnsafeCell::new([0; 64 << 10]));

/// The end of the carrier's idle stack.
pub fn idle_stack_top() -> *mut u8 {
    // SAFETY: one past the end of the stack.
    unsafe { IDLE.0.get().cast::<u8>().add(64 << 10) }
}

/// The TLS of the main thread, which the carrier uses on its idle stack.
pub fn main_fs() -> u64 {
    LOCAL.main_fs.load(Ordering::Relaxed)
}

/// The running thread is the main thread of this process from now on: the kernel thread that runs it is the carrier.
pub fn be_main() {
    LOCAL.main_fs.store(context::fs_base(), Ordering::Relaxed);
}

/// Suspends the carrier's context where an image may be taken of it, and calls `sleep(arg)`; true in a process that was made from that image.
pub fn hold(sleep: extern "C" fn(usize), arg: usize) -> bool {
    LOCAL.resume[1].store(context::fs_base(), Ordering::Relaxed);
    LOCAL.resume[2].store(context::gs_base(), Ordering::Relaxed);
    // SAFETY: the word is this process's; `sleep` takes the argument.
    unsafe { context::hold(LOCAL.resume[0].as_ptr(), sleep, arg) != 0 }
}

/// The end of a pinned thread's turn.
pub enum HandBack {
    /// It blocks, or has yielded.
    GaveUp,
    /// It has the turn still, and waits for an entry to be admitted.
    AwaitsEntry,
    /// Its kernel thread is gone.
    Gone,
}

/// Carrier: lets the pinned thread `t` run on its own kernel thread until it hands the turn back or is gone.
pub fn run_on_own(t: &Thread) -> HandBack {
    t.back.store(OUT, Ordering::Relaxed);
    t.go.store(GO, Ordering::Release);
    sys::futex_wake(&t.go);
    // SAFETY: libc's descriptor of the thread stays until we join it; the kernel clears the word when the thread is gone.
    let tid_word = unsafe { glibc::tid_word(t.fs.get()) };
    loop {
        let back = t.back.load(Ordering::Acquire);
        match back {
            GIVEN_UP => return HandBack::GaveUp,
            AWAITS => return HandBack::AwaitsEntry,
            _ => {}
        }
        let tid = tid_word.load(Ordering::Acquire);
        if tid == 0 {
            return HandBack::Gone;
        }
        wait_either(&t.back, back, tid_word, tid);
    }
}

/// Pinned thread: hands the turn to the carrier and sleeps until it has it again.
pub fn hand_to_carrier(t: &Thread) {
    hand_back(t, GIVEN_UP);
}

/// Pinned thread: has the carrier await an entry, whose context an image knows ([`hold`]).
pub fn have_entry_awaited(t: &Thread) {
    hand_back(t, AWAITS);
}

/// Whether the running kernel thread is that of this thread, which is pinned, and not the carrier.
pub fn is_on_own(t: &Thread) -> bool {
    t.pinned.get() && t.fs.get() == context::fs_base()
}

/// Tells the carrier, and sleeps until it may go on. In a process that is restored meanwhile another kernel thread goes on in this context.
fn hand_back(t: &Thread, how: u32) {
    extern "C" fn sleep(hands: usize) {
        // SAFETY: `hand_back`'s, which waits for this.
        let (t, how) = unsafe { *(hands as *const (&Thread, u32)) };
        t.back.store(how, Ordering::Release);
        sys::futex_wake(&t.back);
        while t.go.load(Ordering::Acquire) == SLEEP {
            sys::futex_wait(&t.go, SLEEP);
        }
        t.go.store(SLEEP, Ordering::Relaxed);
    }
    let hands = (t, how);
    // SAFETY: the word is this thread's; `sleep` takes the argument.
    unsafe { context::hold(t.sp.as_ptr(), sleep, &raw const hands as usize) };
}

/// Sleeps until one of two words may have changed (futex_waitv, Linux 5.16).
fn wait_either(a: &AtomicU32, a_value: u32, b: &AtomicU32, b_value: u32) {
    #[repr(C)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const FUTEX2_SIZE_U32: u32 = 2;
    let waiter = |word: &AtomicU32, value: u32| Waiter {
        value: u64::from(value),
        address: core::ptr::from_ref(word) as u64,
        flags: FUTEX2_SIZE_U32,
        reserved: 0,
    };
    let both = [waiter(a, a_value), waiter(b, b_value)];
    // SAFETY: two valid waiters on words that outlive the call.
    let result =
        unsafe { sys::raw(libc::SYS_futex_waitv, sys::args([both.as_ptr() as usize, 2, 0, 0, 0])) };
    if result == -(libc::ENOSYS as isize) {
        refuse!("the kernel has no futex_waitv: Linux 5.16 or newer is needed");
    }
}
