//! System calls that libc makes inside itself while it creates a thread: some of them on the new kernel thread, which does not have the turn.
//!
//! Creating a thread, libc blocks all signals, makes the thread with `clone` and unblocks them on both. SIGSYS is never blocked (a trapped call would
//! kill), and `clone` is made by [`clone_thread`]. On a new thread a trapped call is answered in the kernel's handler, whose context has the mask; at
//! places that were replaced ([`crate::patch`]) there is no context.

use crate::context;
use crate::fatal::refuse;
use crate::glibc;
use crate::kernel::kernel;
use crate::local::LOCAL;
use crate::process;
use crate::stack;
use crate::sys;
use core::arch::naked_asm;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use libc::ucontext_t;
use skein_libos::errno::{Errno, Result};
use skein_model::limits::SPIN_SIGNAL;

/// The kernel's stack for signals of the thread that is being created.
struct Signals(Cell<libc::stack_t>);
// SAFETY: written before there is a thread that reads it.
unsafe impl Sync for Signals {}
static SIGNALS: Signals = Signals(Cell::new(libc::stack_t {
    ss_sp: core::ptr::null_mut(),
    ss_flags: libc::SS_DISABLE,
    ss_size: 0,
}));

/// Runs libc's `pthread_create` for a thread whose stack of the runtime's ends at `stack`, until its kernel thread is parked.
pub fn while_creating<T>(stack: usize, create: impl FnOnce() -> T) -> T {
    let signals = stack::for_signals(stack);
    SIGNALS.0.set(signals);
    LOCAL.creates_thread.store(true, Ordering::Relaxed);
    let result = stack::while_creating(stack, create);
    LOCAL.creates_thread.store(false, Ordering::Relaxed);
    result
}

/// Whether a kernel thread may be running beside the turn's holder: one that libc has made and that has not come to the runtime yet.
pub fn creating() -> bool {
    LOCAL.creates_thread.load(Ordering::Relaxed)
}

/// Signals that stay open whatever is asked for.
const OPEN: u64 = 1 << (libc::SIGSYS - 1) | 1 << (SPIN_SIGNAL - 1);

/// Whether the running kernel thread is one that libc has just made: it makes calls of its own before it comes to the runtime.
pub fn newborn() -> bool {
    kernel().this().fs.get() != context::fs_base()
}

/// A trapped call on a kernel thread that libc has just made, answered where it was trapped: what libc does there concerns that thread only.
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
    if !LOCAL.creates_thread.load(Ordering::Relaxed) {
        refuse!(
            "clone was called outside pthread_create: a thread that Skein does not know cannot be made deterministic"
        );
    }
    glibc::note_birth(a);
    // SAFETY: libc's own arguments for a new thread.
    sys::check(unsafe { clone_thread(a[0], a[1], a[2], a[3], a[4], go_on) })
}

/// `clone`: a new thread goes on at `go_on`; a new process returns, too, and goes on with the stack that is answered.
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
            // What is open is never asked to be opened.
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
        // The new one: what the kernel's handlers run on, then on with none of the runtime's registers.
        "2:",
        "lea rdi, [rip + {signals}]",
        "xor esi, esi",
        "mov eax, {sigaltstack}",
        "syscall",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "jmp [rsp - 8]",
        clone = const libc::SYS_clone,
        sigaltstack = const libc::SYS_sigaltstack,
        signals = sym SIGNALS,
    )
}
