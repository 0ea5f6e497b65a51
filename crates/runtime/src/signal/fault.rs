//! The kernel's own signal handlers.
//!
//! Faults of the server (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP) come from the kernel, at the instruction that made them: a function of the log.
//! They go to the server's disposition with the kernel's own `siginfo` and registers. All other signals from the kernel come from
//! outside at arbitrary times: they are ignored, and the node is told once per signal.

use super::{LAST, bit, deliver};
use crate::fatal::{line, notice, refuse};
use crate::frame::{self, Registers, Trap};
use crate::kernel::kernel;
use crate::local::LOCAL;
use crate::sys::{self, args};
use crate::turn::above::above;
use core::arch::naked_asm;
use core::sync::atomic::Ordering;
use libc::{c_int, c_void};
use skein_libos::Host;
use skein_libos::signal::process_of;
use skein_model::limits::SPIN_SIGNAL;

/// A kernel's handler.
pub type KernelHandler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The kernel's `sigaction`.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

const SA_RESTORER: u64 = 0x0400_0000;

/// Where a kernel's handler returns to. Unwinders know the instructions behind the first one, and look a byte before them for a table.
#[unsafe(naked)]
unsafe extern "C" fn restorer() {
    naked_asm!("nop", "mov rax, 15", "syscall")
}

fn kernel_action(signo: c_int, action: &KernelAction) {
    // SAFETY: a valid action, whose handler is in this library for good.
    let set = unsafe {
        sys::call(
            libc::SYS_rt_sigaction,
            args([signo as usize, core::ptr::from_ref(action) as usize, 0, 8]),
        )
    };
    if let Err(e) = set {
        refuse!("cannot handle signal {signo}: errno {}", e.0);
    }
}

/// Makes the kernel call `handler` for a signal, on a stack for signals, with nothing blocked meanwhile.
pub fn handle(signo: c_int, handler: KernelHandler) {
    let flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK;
    let flags = flags as u64 | SA_RESTORER;
    let restorer = restorer as *const () as usize + 1;
    kernel_action(
        signo,
        &KernelAction { handler: handler as *const () as usize, flags, restorer, mask: 0 },
    );
}

/// Makes the kernel call `handler` for a signal on the carrier's signal stack, with everything blocked meanwhile but faults.
pub fn handle_apart(signo: c_int, handler: KernelHandler) {
    let flags = (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64 | SA_RESTORER;
    let restorer = restorer as *const () as usize + 1;
    let handler = handler as *const () as usize;
    kernel_action(signo, &KernelAction { handler, flags, restorer, mask: !super::FAULTS });
}

/// libc's own: cancellation and changes of identity.
const LIBC: [c_int; 2] = [32, 33];

/// Takes over the kernel's signals, but SIGSYS, SIGSEGV and the node's, which others handle.
pub fn install() {
    for signo in 1..=LAST {
        match signo {
            libc::SIGKILL
            | libc::SIGSTOP
            | libc::SIGSYS
            | libc::SIGSEGV
            | libc::SIGCHLD
            | SPIN_SIGNAL => {}
            _ if LIBC.contains(&signo) => {}
            libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP => {
                handle(signo, on_trap);
            }
            _ => handle(signo, on_outside),
        }
    }
}

/// A fault of the server's own, an instruction that traps, or a signal of that number from outside.
pub extern "C" fn on_trap(signo: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo`, and a valid context.
    unsafe {
        if (*info).si_code <= 0 {
            on_outside(signo, info, context);
        } else {
            frame::leave_signal(signo, info, context);
        }
    }
}

extern "C" fn on_outside(signo: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    LOCAL.signals_came.fetch_or(bit(signo), Ordering::Relaxed);
    if crate::local::ready() {
        // The wait for the node, which the kernel takes up again by itself, ends, and the node is told.
        let _was_closed = crate::local::header().server_gate.open();
    }
}

/// Tells the node of signals from outside. Called where the server waits for the node.
pub fn report_outside() {
    let mut new =
        LOCAL.signals_came.load(Ordering::Relaxed) & !LOCAL.signals_told.load(Ordering::Relaxed);
    LOCAL.signals_told.fetch_or(new, Ordering::Relaxed);
    if new == 0 {
        return;
    }
    while new != 0 {
        let signo = new.trailing_zeros() + 1;
        new &= new - 1;
        notice(
            line!(
                "signal {signo} was sent to the server from outside and ignored: it would reach the replicas at different points. \
                 Use `skein signal` instead"
            )
            .bytes(),
        );
    }
    // It was woken before the server went to sleep.
    crate::turn::output::wake_node();
}

/// A fault of the server's own.
///
/// # Safety
/// `vectors` is what `xsave` has left at the fault.
pub unsafe fn fault(registers: &mut Registers, trap: &Trap, vectors: *mut u8) {
    let k = kernel();
    let t = k.this();
    let signo = trap.signo;
    let action = process_of(k, t).action(signo);
    above().before_fault(signo, trap.info.si_code);
    let blocked = t.signals.mask.get() & bit(signo) != 0;
    if blocked || matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN) {
        terminate_by_signal(signo);
    }
    // SAFETY: this thread's errno, and the caller's contract.
    unsafe {
        let errno = *libc::__errno_location();
        deliver::handle_fault(k, &action, registers, trap, vectors);
        *libc::__errno_location() = errno;
    }
    super::boundary();
}

/// Ends the process by a signal.
pub fn terminate_by_signal(signo: c_int) -> ! {
    kernel().end_by_signal(signo)
}
