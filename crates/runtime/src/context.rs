//! Switching between the server's threads without the kernel, and parking the kernel threads that they were born with.
//!
//! A suspended context is a stack pointer to the callee-saved registers and floating-point control words, and an FS base (its TLS). Three
//! ways lead out of one and back:
//!
//! - [`switch`]: the carrier leaves one context and takes up another.
//! - [`park_here`]: a kernel thread leaves its context for others to run and sleeps on a small stack of its own until the context is
//!   given back to it.
//! - [`onto_stack`]: the carrier leaves a context for good and goes on with a function on its idle stack.

use core::arch::naked_asm;

/// Bytes of the stack on which a parked kernel thread sleeps.
pub const PARK_STACK_BYTES: usize = 8 << 10;

/// Saves the running context on its stack and the stack pointer in `*rdi`.
macro_rules! leave {
    () => {
        "push rbp
         push rbx
         push r12
         push r13
         push r14
         push r15
         sub rsp, 8
         stmxcsr [rsp]
         fnstcw [rsp + 4]
         mov [rdi], rsp"
    };
}

/// Restores the context at which the stack pointer is, and goes on where it was left.
macro_rules! take_up {
    () => {
        "ldmxcsr [rsp]
         fldcw [rsp + 4]
         add rsp, 8
         pop r15
         pop r14
         pop r13
         pop r12
         pop rbx
         pop rbp
         ret"
    };
}

/// Suspends the running context into `*save` and takes up the context `sp` with FS base `fs`.
///
/// # Safety
/// `sp` was saved by one of this module's functions and was not taken up since; `fs` is its TLS.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut u64, sp: u64, fs: u64) {
    naked_asm!(leave!(), "wrfsbase rdx", "mov rsp, rsi", take_up!(),)
}

/// Takes up the context `sp` with FS base `fs`; the running one is forgotten.
///
/// # Safety
/// As for [`switch`]; nothing of the running stack is needed again.
#[unsafe(naked)]
pub unsafe extern "C" fn take_up(sp: u64, fs: u64) -> ! {
    naked_asm!("wrfsbase rsi", "mov rsp, rdi", take_up!(),)
}

/// Suspends the running context into `*save` and calls `sleep(arg)` on the stack that ends at `top`; what that returns is taken up
/// as a context, by the same kernel thread and with the same FS base. Returns when somebody takes `*save` up.
///
/// # Safety
/// `top` is 16-byte aligned with room enough below it; `sleep` returns a context saved by this module.
#[unsafe(naked)]
pub unsafe extern "C" fn park_here(
    save: *mut u64,
    top: *mut u8,
    sleep: extern "C" fn(u32) -> u64,
    arg: u32,
) {
    naked_asm!(leave!(), "mov rsp, rsi", "mov edi, ecx", "call rdx", "mov rsp, rax", take_up!(),)
}

/// Suspends the running context into `*save` and calls `then(arg)` on the stack that ends at `top` with FS base `fs`.
///
/// # Safety
/// `top` is 16-byte aligned with room enough below it and not in use.
#[unsafe(naked)]
pub unsafe extern "C" fn onto_stack(
    save: *mut u64,
    top: *mut u8,
    fs: u64,
    then: extern "C" fn(u32) -> !,
    arg: u32,
) {
    naked_asm!(leave!(), "wrfsbase rdx", "mov rsp, rsi", "mov edi, r8d", "call rcx", "ud2",)
}

/// Suspends the running context into `*save` and calls `sleep(arg)` on the same stack. Returns 0 when that returns; 1 when the context was taken up by
/// [`take_up_restored`], in a process whose registers are another one's.
///
/// # Safety
/// `sleep` takes this argument.
#[unsafe(naked)]
pub unsafe extern "C" fn hold(save: *mut u64, sleep: extern "C" fn(usize), arg: usize) -> u32 {
    naked_asm!(
        ".cfi_startproc",
        leave!(),
        // Debuggers look at threads that sleep in here.
        ".cfi_adjust_cfa_offset 56",
        ".cfi_offset rbp, -16",
        ".cfi_offset rbx, -24",
        ".cfi_offset r12, -32",
        ".cfi_offset r13, -40",
        ".cfi_offset r14, -48",
        ".cfi_offset r15, -56",
        "mov rbx, rsp",
        ".cfi_def_cfa_register rbx",
        // x87's status, too, which a call keeps: right below what was saved.
        "sub rsp, 512",
        "fxsave64 [rsp]",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbx",
        ".cfi_def_cfa_register rsp",
        "xor eax, eax",
        take_up!(),
        ".cfi_endproc",
    )
}

/// Takes up the context `sp` of [`hold`] with FS base `fs`, in a process that was restored.
///
/// # Safety
/// As for [`take_up`].
#[unsafe(naked)]
pub unsafe extern "C" fn take_up_restored(sp: u64, fs: u64) -> ! {
    naked_asm!("wrfsbase rsi", "fxrstor64 [rdi - 512]", "mov rsp, rdi", "mov eax, 1", take_up!(),)
}

/// Makes a kernel thread by `clone` that sleeps as one that parked ([`park_here`]): it calls `sleep(arg)` on its stack, whose end holds both, and takes up what that returns.
///
/// # Safety
/// The arguments are those of `clone`; `stack` is 16 bytes below a multiple of 16, with `arg` and `sleep` in them.
#[unsafe(naked)]
pub unsafe extern "C" fn revive(
    flags: usize,
    stack: usize,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
) -> isize {
    naked_asm!(
        "mov r10, rcx",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "pop rdi",
        "pop rax",
        "call rax",
        "mov rsp, rax",
        take_up!(),
        clone = const libc::SYS_clone,
    )
}

/// The FS base of the running context.
pub fn fs_base() -> u64 {
    let fs: u64;
    // SAFETY: reads a register; FSGSBASE was found enabled at start.
    unsafe {
        core::arch::asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack, preserves_flags))
    };
    fs
}

/// The GS base of the running kernel thread: a server's own, by an instruction; all threads that the carrier runs have the same.
pub fn gs_base() -> u64 {
    let gs: u64;
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("rdgsbase {}", out(reg) gs, options(nomem, nostack, preserves_flags))
    };
    gs
}

/// Sets it.
pub fn set_gs_base(gs: u64) {
    // SAFETY: as above; the runtime has nothing there.
    unsafe {
        core::arch::asm!("wrgsbase {}", in(reg) gs, options(nomem, nostack, preserves_flags))
    };
}
