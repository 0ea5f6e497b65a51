//! System calls that libc makes inside itself while it creates a thread: some of them on the new kernel thread, which does not have the turn.
//!
//! Creating a thread, libc blocks all signals, makes the thread with `clone` and unblocks them on both. Here the mask is changed in the context
//! that the net's handler returns to, SIGSYS never being in it (a trapped call would kill), and `clone` is made by [`clone_thread`].

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

/// Signals that stay open whatever is asked for.
const OPEN: u64 = 1 << (libc::SIGSYS - 1) | 1 << (SPIN_SIGNAL - 1);

/// Whether the running kernel thread is one that libc has just made: it makes calls of its own before it comes to the runtime.
fn newborn() -> bool {
    kernel().this().fs.get() != context::fs_base()
}

/// A trapped call that libc made for itself, or that makes a process: `None` when it is another one. `libc` is where its text is.
///
/// # Safety
/// The arguments are those of the call, which was trapped at `context`.
pub unsafe fn handle(
    nr: i64,
    a: [usize; 6],
    context: *mut ucontext_t,
    libc: (usize, usize),
) -> Option<Result<usize>> {
    // SAFETY: the caller's contract.
    let at = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] } as usize;
    match nr {
        // SAFETY: the caller's contract.
        libc::SYS_rt_sigprocmask if (libc.0..libc.1).contains(&at) => unsafe {
            Some(change_mask(a, (&raw mut (*context).uc_sigmask).cast()))
        },
        // SAFETY: the caller's contract.
        libc::SYS_clone if a[0] as i32 & libc::CLONE_THREAD == 0 => unsafe {
            Some(process::fork::clone(a, context))
        },
        libc::SYS_clone => {
            if !CREATING.load(Ordering::Relaxed) {
                refuse!(
                    "clone was called outside pthread_create: a thread that Skein does not know cannot be made deterministic"
                );
            }
            // SAFETY: libc's own arguments for a new thread, which goes on behind the trapped instruction.
            sys::check(unsafe { clone_thread(a[0], a[1], a[2], a[3], a[4], at) }).into()
        }
        // SAFETY: what libc does first on a new thread concerns that thread only.
        _ if newborn() => Some(unsafe { sys::call(nr, a) }),
        _ => None,
    }
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
