//! The birth of a thread's kernel thread: libc makes it, and the runtime provides its stacks.
//!
//! While libc does, the new kernel thread may run beside the turn's holder, until it is parked. Its first instructions are in [`clone_thread`].

use crate::context;
use crate::kernel::kernel;
use crate::local::LOCAL;
use crate::stack;
use core::arch::naked_asm;
use core::cell::Cell;
use core::sync::atomic::Ordering;

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
    let result = stack::in_library(|| stack::while_creating(stack, create));
    LOCAL.creates_thread.store(false, Ordering::Relaxed);
    result
}

/// Whether a kernel thread may be running beside the turn's holder: one that libc has made and that has not come to the runtime yet.
pub fn creating() -> bool {
    LOCAL.creates_thread.load(Ordering::Relaxed)
}

/// Whether the running kernel thread is one that libc has just made: it makes calls of its own before it comes to the runtime.
pub fn newborn() -> bool {
    kernel().this().fs.get() != context::fs_base()
}

/// `clone` for a thread: the new one goes on at `go_on` on its stack, with 0 as its result; the calling one returns.
///
/// # Safety
/// The arguments are those of a `clone` with a stack, below which a word is free.
#[unsafe(naked)]
pub unsafe extern "C" fn clone_thread(
    flags: usize,
    stack: usize,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
    go_on: usize,
) -> isize {
    naked_asm!(
        // The new one has this one's.
        "call {settle}",
        "mov [rsi - 8], r9",
        "mov r10, rcx",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        // The new one: sets the stack for the kernel's handlers, then continues with none of the runtime's registers.
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
        settle = sym crate::vectors::settle,
    )
}
