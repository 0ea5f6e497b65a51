//! System calls that libc makes inside itself while it creates a thread: some of them on the new kernel thread, which does not have the turn.
//!
//! Creating a thread, libc blocks all signals, makes the thread with `clone` and unblocks them on both. Here the mask is changed in the context
//! that the net's handler returns to, SIGSYS never being in it (a trapped call would kill), and `clone` is made by [`clone_thread`]. At places that were
//! replaced ([`crate::patch`]) the same is done without a context.

use crate::context;
use crate::fatal::refuse;
use crate::kernel::kernel;
use crate::process;
use crate::sys::{self, Errno, Result};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::ucontext_t;
use skein_model::limits::SPIN_SIGNAL;

/// Whether libc is creating a thread that the runtime has asked it for.
static CREATING: AtomicBool = AtomicBool::new(false);

/// Runs libc's `pthread_create`.
pub fn while_creating<T>(create: impl FnOnce() -> T) -> T {
    CREATING.store(true, Ordering::Relaxed);
    let result = create();
    CREATING.store(false, Ordering::Relaxed);
    result
}

/// Whether a kernel thread may be running beside the turn's holder: one that libc has made and that has not come to the runtime yet.
pub fn creating() -> bool {
    CREATING.load(Ordering::Relaxed)
}

/// Signals that stay open whatever is asked for.
const OPEN: u64 = 1 << (libc::SIGSYS - 1) | 1 << (SPIN_SIGNAL - 1);

/// Whether the running kernel thread is one that libc has just made: it makes calls of its own before it comes to the runtime.
pub fn newborn() -> bool {
    kernel().this().fs.get() != context::fs_base()
}

/// A trapped call that libc made for itself, or that makes a process: `None` when it is another one. `libcs` says whether libc's text made it.
///
/// # Safety
/// The arguments are those of the call, which was trapped at `context`.
pub unsafe fn handle(
    nr: i64,
    a: [usize; 6],
    context: *mut ucontext_t,
    libcs: bool,
) -> Option<Result<usize>> {
    // SAFETY: the caller's contract.
    let at = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] } as usize;
    match nr {
        // SAFETY: the caller's contract.
        libc::SYS_rt_sigprocmask if libcs => unsafe {
            Some(change_mask(a, (&raw mut (*context).uc_sigmask).cast()))
        },
        // SAFETY: the caller's contract.
        libc::SYS_clone if a[0] as i32 & libc::CLONE_THREAD == 0 => unsafe {
            let rsp = &mut (*context).uc_mcontext.gregs[libc::REG_RSP as usize];
            Some(process::fork::clone(a, |stack| *rsp = stack as i64))
        },
        // SAFETY: behind the trapped instruction.
        libc::SYS_clone => Some(unsafe { thread(a, at) }),
        // SAFETY: what libc does first on a new thread concerns that thread only.
        _ if newborn() => Some(unsafe { sys::call(nr, a) }),
        _ => None,
    }
}

/// `clone` that makes a thread, which goes on at `go_on`.
///
/// # Safety
/// The arguments are those of the call; code that expects its result is at `go_on`.
unsafe fn thread(a: [usize; 6], go_on: usize) -> Result<usize> {
    if !CREATING.load(Ordering::Relaxed) {
        refuse!(
            "clone was called outside pthread_create: a thread that Skein does not know cannot be made deterministic"
        );
    }
    // SAFETY: libc's own arguments for a new thread.
    sys::check(unsafe { clone_thread(a[0], a[1], a[2], a[3], a[4], go_on) })
}

/// `clone` at a place that was replaced: a new thread goes on at `go_on`; a new process returns, too, and goes on with the stack that is answered.
///
/// # Safety
/// The arguments are those of the call; code that expects its result is at `go_on`.
pub unsafe fn birth_patched(a: [usize; 6], go_on: usize) -> (Result<usize>, Option<usize>) {
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

/// What [`handle`] does at a place that was replaced ([`crate::patch`]), where no context is returned to.
///
/// # Safety
/// The arguments are those of the call.
pub unsafe fn handle_patched(nr: i64, mut a: [usize; 6], libcs: bool) -> Option<Result<usize>> {
    if nr == libc::SYS_rt_sigprocmask && libcs {
        // SAFETY: the caller's contract.
        let mut set = unsafe { (a[1] as *const u64).as_ref() }.copied();
        if let Some(set) = &mut set {
            // What is open is never asked to be opened.
            *set &= !OPEN;
            a[1] = core::ptr::from_ref(set) as usize;
        }
        // SAFETY: libc's own arguments, but for the set.
        return Some(unsafe { sys::call(nr, a) });
    }
    // SAFETY: as in `handle`.
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

/// `clone` for a thread: the new one goes on at `go_on` on its stack, with 0 as its result; the calling one returns.
///
/// # Safety
/// The arguments are those of a `clone` with a stack, below which a word is free.
#[unsafe(naked)]
unsafe extern "C" fn clone_thread(
    flags: usize,
    stack: usize,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
    go_on: usize,
) -> isize {
    naked_asm!(
        "mov [rsi - 8], r9",
        "mov r10, rcx",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2: jmp [rsp - 8]",
        clone = const libc::SYS_clone,
    )
}
