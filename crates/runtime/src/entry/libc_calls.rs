//! System calls that libc makes inside itself while it creates a thread: some of them on the new kernel thread, which does not have the turn.
//!
//! Creating a thread, libc blocks all signals, makes the thread with `clone` and unblocks them on both. SIGSYS is never blocked (a trapped call would
//! kill), and `clone` is made by [`clone_thread`]. On a new thread a trapped call is answered in the kernel's handler, whose context has the mask; at
//! places that were replaced ([`crate::patch`]) there is no context.

use crate::fatal::refuse;
use crate::glibc;
use crate::process;
use crate::sys;
use crate::thread::birth::{clone_thread, creating, newborn};
use libc::ucontext_t;
use skein_libos::errno::{Errno, Result};
use skein_model::limits::SPIN_SIGNAL;

/// Signals that stay unblocked in any case.
const OPEN: u64 = 1 << (libc::SIGSYS - 1) | 1 << (SPIN_SIGNAL - 1);

/// A trapped call on a kernel thread that libc has just made, answered where it was trapped: it concerns that thread only.
///
/// # Safety
/// The arguments are those of the call, which was trapped at `context`.
pub unsafe fn of_newborn(nr: i64, a: [usize; 6], context: *mut ucontext_t) -> Result<usize> {
    if nr == libc::SYS_rt_sigprocmask {
        // SAFETY: the caller's contract.
        return unsafe { change_mask(a, (&raw mut (*context).uc_sigmask).cast()) };
    }
    // SAFETY: as above.
    unsafe { sys::call(nr, a) }
}

/// `clone` that makes a thread, which goes on at `go_on`.
///
/// # Safety
/// The arguments are those of the call; code that expects its result is at `go_on`.
unsafe fn thread(a: [usize; 6], go_on: usize) -> Result<usize> {
    if !creating() {
        refuse!(
            "clone was called outside pthread_create: a thread that Skein does not know cannot be made deterministic"
        );
    }
    glibc::note_birth(a);
    // SAFETY: libc's own arguments for a new thread.
    sys::check(unsafe { clone_thread(a[0], a[1], a[2], a[3], a[4], go_on) })
}

/// `clone`: a new thread continues at `go_on`; a new process returns, too, and continues with the stack in the answer.
///
/// # Safety
/// The arguments are those of the call; code that expects its result is at `go_on`.
pub unsafe fn birth(a: [usize; 6], go_on: usize) -> (Result<usize>, Option<usize>) {
    let mut stack = None;
    // SAFETY: the caller's contract.
    let result = unsafe {
        if a[0] as i32 & libc::CLONE_THREAD == 0 {
            process::fork::clone(a, |at| stack = Some(at))
        } else {
            thread(a, go_on)
        }
    };
    (result, stack)
}

/// A call that libc made for itself: `None` when it is another one. `libcs` says whether libc's text made it.
///
/// # Safety
/// The arguments are those of the call.
pub unsafe fn handle(nr: i64, mut a: [usize; 6], libcs: bool) -> Option<Result<usize>> {
    if nr == libc::SYS_rt_sigprocmask && libcs {
        // SAFETY: the caller's contract.
        let mut set = unsafe { (a[1] as *const u64).as_ref() }.copied();
        if let Some(set) = &mut set {
            // Unblocked signals stay so without a request.
            *set &= !OPEN;
            a[1] = core::ptr::from_ref(set) as usize;
        }
        // SAFETY: libc's own arguments, but for the set.
        return Some(unsafe { sys::call(nr, a) });
    }
    // SAFETY: the caller's contract; of libc's own on a new thread.
    newborn().then(|| unsafe { sys::call(nr, a) })
}

/// `rt_sigprocmask` on the mask at `mask`.
///
/// # Safety
/// The arguments are those of the call; `mask` is valid.
unsafe fn change_mask([how, set, old, ..]: [usize; 6], mask: *mut u64) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        let before = mask.read();
        if let Some(set) = (set as *const u64).as_ref() {
            let after = match how as i32 {
                libc::SIG_BLOCK => before | set,
                libc::SIG_UNBLOCK => before & !set,
                libc::SIG_SETMASK => *set,
                _ => return Err(Errno(libc::EINVAL)),
            };
            mask.write(after & !OPEN);
        }
        if let Some(old) = (old as *mut u64).as_mut() {
            *old = before;
        }
    }
    Ok(0)
}
