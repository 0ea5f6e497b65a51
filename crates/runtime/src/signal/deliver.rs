//! Delivery: runs handlers on the stack of the thread that has the turn, or on its alternate stack.
//!
//! As in Linux a signal that becomes deliverable while another is about to be handled goes first: its handler is run on top of the other's.

use super::{
    Action, Info, NEVER_BLOCKED, RESTART, STOPS, bit, due, process_of, set_mask, stop, take,
};
use crate::kernel::{Kernel, kernel, ready};
use crate::sys::Result;
use core::arch::naked_asm;
use core::mem::MaybeUninit;
use libc::{c_int, c_void};

/// The end of a hook: delivers what has come for the thread.
#[inline]
pub fn boundary() {
    if ready() {
        let k = kernel();
        if k.signals.any.get() != 0 {
            deliver(k);
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// No handler ran.
    Nothing,
    /// The first that was taken has a handler without `SA_RESTART`.
    Interrupts,
    /// The first that was taken has a handler with it.
    Restarts,
}

/// Delivers all signals that are for the turn's holder. Its `errno` is kept.
#[cold]
pub fn deliver(k: &Kernel) {
    run(k);
}

/// A call with nothing held was interrupted: delivers, and answers whether it is to be done again. `restartable` says whether `SA_RESTART` counts.
#[cold]
pub fn interrupted(restartable: bool) -> bool {
    match run(kernel()) {
        Handled::Nothing => true,
        Handled::Restarts => restartable,
        Handled::Interrupts => false,
    }
}

/// What a call with nothing held that may have been interrupted answers; `None` when it is to be done again.
pub fn settle(result: Result<usize>) -> Option<Result<usize>> {
    if result != Err(RESTART) {
        return Some(result);
    }
    (!interrupted(true)).then_some(Err(crate::sys::Errno(libc::EINTR)))
}

fn run(k: &Kernel) -> Handled {
    // SAFETY: this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    let mut handled = Handled::Nothing;
    loop {
        stop::obey();
        let set = due(k);
        let Some(info) = take(k, set) else { break };
        let p = process_of(k, k.this());
        let action = p.action(info.signo);
        match action.handler {
            libc::SIG_IGN => {}
            libc::SIG_DFL if p.ends(info.signo) => super::terminate_by_signal(info.signo),
            libc::SIG_DFL => {
                if STOPS & bit(info.signo) != 0 {
                    stop::stop(k, crate::process::handle(), info.signo);
                }
            }
            _ => {
                if handled == Handled::Nothing {
                    let restarts = action.has(libc::SA_RESTART);
                    handled = if restarts { Handled::Restarts } else { Handled::Interrupts };
                }
                handle(k, info, action);
            }
        }
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
    handled
}

/// What a handler finds behind its second and third argument.
#[repr(C, align(16))]
struct Frame {
    info: MaybeUninit<libc::siginfo_t>,
    context: MaybeUninit<libc::ucontext_t>,
}

fn handle(k: &Kernel, info: Info, action: Action) {
    let before = enter(k, info.signo, &action);
    // Those that this one does not block go first, on top.
    run(k);
    let mut frame = Frame { info: MaybeUninit::uninit(), context: MaybeUninit::zeroed() };
    // SAFETY: a local; all-zero is a valid `ucontext`, whose parts are filled in.
    unsafe {
        info.write(frame.info.as_mut_ptr());
        let context = &mut *frame.context.as_mut_ptr();
        let (start, bytes, flags) = k.this().signals.alternate.get();
        context.uc_stack.ss_sp = start as *mut c_void;
        context.uc_stack.ss_size = bytes;
        context.uc_stack.ss_flags = if bytes == 0 { libc::SS_DISABLE } else { flags };
        (&raw mut context.uc_sigmask).cast::<u64>().write(before);
        here(context.uc_mcontext.gregs.as_mut_ptr());
    }
    // SAFETY: the server's own handler.
    unsafe { call(k, info.signo, &action, frame.info.as_mut_ptr(), frame.context.as_mut_ptr()) };
    // SAFETY: written above; the handler may have changed the mask that comes back.
    let after = unsafe { (&raw const (*frame.context.as_ptr()).uc_sigmask).cast::<u64>().read() };
    set_mask(k, after);
}

/// Sets what a handler runs with; answers the mask that comes back afterwards.
pub fn enter(k: &Kernel, signo: c_int, action: &Action) -> u64 {
    let t = k.this();
    let s = &t.signals;
    let mask = s.mask.get();
    let before = if s.has_saved.replace(false) { s.saved.get() } else { mask };
    let itself = if action.has(libc::SA_NODEFER) { 0 } else { bit(signo) };
    set_mask(k, (mask | action.mask | itself) & !NEVER_BLOCKED);
    if action.has(libc::SA_RESETHAND) {
        let cell = &process_of(k, t).actions[signo as usize - 1];
        cell.set(Action { handler: libc::SIG_DFL, ..*action });
    }
    before
}

/// Calls a handler, on the alternate stack if it wants that.
///
/// # Safety
/// `action` has a handler; `info` and `context` are valid.
pub unsafe fn call(
    k: &Kernel,
    signo: c_int,
    action: &Action,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    let t = k.this();
    let cancel_point = t.at_cancel_point.replace(false);
    let top = if action.has(libc::SA_ONSTACK) { t.signals.alternate_top() } else { None };
    // Handlers of either kind take their arguments in the same registers.
    // SAFETY: the server's own handler; the alternate stack is its own and not in use.
    unsafe { call_on(action.handler, signo, info, context, top.unwrap_or(0)) };
    t.at_cancel_point.set(cancel_point);
}

/// Calls `handler(signo, info, context)` on the stack that ends at `top`; 0 means here.
#[unsafe(naked)]
unsafe extern "C" fn call_on(
    handler: usize,
    signo: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    top: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "test r8, r8",
        "jz 2f",
        "mov rsp, r8",
        "2:",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Writes where the caller is into a context's registers: what a handler that prints a backtrace wants.
#[unsafe(naked)]
unsafe extern "C" fn here(registers: *mut libc::greg_t) {
    naked_asm!(
        "mov rax, [rsp]",
        "mov [rdi + 8 * {rip}], rax",
        "lea rax, [rsp + 8]",
        "mov [rdi + 8 * {rsp}], rax",
        "mov [rdi + 8 * {rbp}], rbp",
        "mov [rdi + 8 * {rbx}], rbx",
        "mov [rdi + 8 * {r12}], r12",
        "mov [rdi + 8 * {r13}], r13",
        "mov [rdi + 8 * {r14}], r14",
        "mov [rdi + 8 * {r15}], r15",
        "ret",
        rip = const libc::REG_RIP,
        rsp = const libc::REG_RSP,
        rbp = const libc::REG_RBP,
        rbx = const libc::REG_RBX,
        r12 = const libc::REG_R12,
        r13 = const libc::REG_R13,
        r14 = const libc::REG_R14,
        r15 = const libc::REG_R15,
    )
}
