//! Delivery: runs handlers on the server's stack of the thread that has the turn, or on its alternate stack. All data in their frames follow from the log.
//!
//! As in Linux a signal that becomes deliverable while another is about to be handled goes first: its handler is run on top of the other's.

use super::{Action, Info, write_info};
use crate::frame::{OTHERS, Registers, Trap};
use crate::kernel::{Kernel, kernel};
use crate::local::ready;
use crate::patch;
use crate::stack::{self, Place};
use crate::turn::{self, trace};
use libc::{c_int, c_void};
use skein_libos::errno::{RESTART, Result, fail};
use skein_libos::signal::{self, deliver::enter, set_mask};

/// The end of a hook: delivers the thread's signals.
#[inline]
pub fn boundary() {
    if ready() {
        let k = kernel();
        if k.signals.any.get() != 0 {
            deliver(k);
        }
    }
}

/// The same at the end of a hook that returns `result`.
#[inline]
pub fn boundary_of<T>(result: &T) {
    if ready() {
        let k = kernel();
        if k.signals.any.get() != 0 {
            returns(k, trace::value_of(result), 0);
        }
    }
}

/// The same at the end of a system call, which returns `value` in the kernel's way.
pub fn boundary_of_call(value: i64) {
    if ready() {
        let k = kernel();
        if k.signals.any.get() != 0 {
            match value {
                -4095..0 => returns(k, -1, -value as i32),
                _ => returns(k, value, 0),
            }
        }
    }
}

/// While operations are traced, a signal always seems to wait: so this costs nothing while they are not.
#[cold]
fn returns(k: &Kernel, value: i64, errno: i32) {
    if k.sched.is_traced() {
        trace::ends(value, errno);
    }
    deliver(k);
}

/// Delivers all signals that are for the turn's holder. Its `errno` is kept.
#[cold]
pub fn deliver(k: &Kernel) {
    keeping_errno(|| signal::deliver(k));
}

/// A call with nothing held was interrupted: delivers, and answers whether it is to be done again. `restartable` says whether `SA_RESTART` counts.
#[cold]
pub fn interrupted(restartable: bool) -> bool {
    keeping_errno(|| signal::interrupted(kernel(), restartable))
}

fn keeping_errno<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    let result = f();
    // SAFETY: as above.
    unsafe { *errno = kept };
    result
}

/// The answer of a call with nothing held that may have been interrupted; `None` when it must be repeated.
pub fn settle(result: Result<usize>) -> Option<Result<usize>> {
    if result != Err(RESTART) {
        return Some(result);
    }
    if interrupted(true) {
        turn::end();
        return None;
    }
    Some(fail(libc::EINTR))
}

/// A handler's second and third argument, on its stack.
#[repr(C, align(64))]
struct Frame {
    info: libc::siginfo_t,
    context: libc::ucontext_t,
}

/// Where glibc's `ucontext_t` has room for the floating-point registers, and behind that four words more.
const FLOATING_AT: usize = size_of::<libc::ucontext_t>() - 4 * 8 - FLOATING_BYTES;
const FLOATING_BYTES: usize = 512;
/// The processor's own part: x87 and SSE. Behind it the kernel lists the other parts.
const REGISTERS_BYTES: usize = 416;

/// Calls a handler, which finds that `mask` comes back, after `meanwhile` has run those on top of its frame. Answers the mask that does.
pub fn call_handler(
    k: &Kernel,
    info: &Info,
    action: &Action,
    mask: u64,
    meanwhile: impl FnOnce(),
) -> u64 {
    let frames = &k.this().frames;
    let below = frames.get();
    let place = place(k, action);
    let frame = place.sp as *mut Frame;
    // SAFETY: free memory of the server's stack.
    unsafe {
        begin(k, frame, mask);
        write_info(info, &raw mut (*frame).info);
        here(&mut (*frame).context.uc_mcontext.gregs);
        frames.set(place);
        meanwhile();
        // The server's own code has none but those of handlers that have begun, even if it jumps out of this one.
        frames.set(Place::default());
        call(k, action, info.signo, frame, place);
        frames.set(below);
        mask_of(frame).read()
    }
}

/// Runs the handler of a fault. Its changes of the registers are kept.
///
/// # Safety
/// `vectors` is what `xsave` has left at the fault.
pub unsafe fn handle_fault(
    k: &Kernel,
    action: &Action,
    registers: &mut Registers,
    trap: &Trap,
    vectors: *mut u8,
) {
    let before = enter(k, trap.signo, action);
    let place = place(k, action);
    let frame = place.sp as *mut Frame;
    // SAFETY: free memory of the server's stack, and the caller's contract.
    unsafe {
        begin(k, frame, before);
        (*frame).info = trap.info;
        let gregs = &mut (*frame).context.uc_mcontext.gregs;
        registers.write(gregs);
        for (name, word) in OTHERS.iter().zip(trap.others) {
            gregs[*name as usize] = word;
        }
        // A handler sees the server's text, not the stub that an instruction was moved to.
        let really_at = registers.rip as usize;
        gregs[libc::REG_RIP as usize] = patch::original(really_at) as i64;
        let floating = (&raw mut (*frame).context).cast::<u8>().add(FLOATING_AT);
        floating.copy_from_nonoverlapping(vectors, REGISTERS_BYTES);
        (*frame).context.uc_mcontext.fpregs = floating.cast();
        call(k, action, trap.signo, frame, place);
        vectors.copy_from_nonoverlapping(floating, REGISTERS_BYTES);
        // x87 and SSE are there, whatever the processor thought of them before.
        let present = vectors.add(FLOATING_BYTES).cast::<u64>();
        present.write(present.read() | 0b11);
        registers.read(&(*frame).context.uc_mcontext.gregs);
        registers.rip = patch::moved(really_at, registers.rip as usize) as u64;
        set_mask(k, mask_of(frame).read());
    }
}

/// The place of a handler's frame: on the alternate stack, if the handler wants that and nothing is there; else below the frames of handlers that are about
/// to be called.
fn place(k: &Kernel, action: &Action) -> Place {
    let t = k.this();
    let frames = t.frames.get();
    let here = if frames.sp == 0 { Place::here() } else { frames };
    let place = if action.has(libc::SA_ONSTACK) && t.alternate_state(here.sp) == 0 {
        let alternate = t.alternate_range();
        Place { sp: alternate.1 & !15, alternate }
    } else {
        here
    };
    place.with_room(size_of::<Frame>())
}

/// Writes what all frames have.
unsafe fn begin(k: &Kernel, frame: *mut Frame, mask: u64) {
    // SAFETY: the caller's frame; all-zero is a valid one, whose parts are filled in.
    unsafe {
        frame.write_bytes(0, 1);
        let context = &mut (*frame).context;
        let (start, bytes, flags) = k.this().alternate.get();
        context.uc_stack.ss_sp = start as *mut c_void;
        context.uc_stack.ss_size = bytes;
        context.uc_stack.ss_flags = flags as i32;
        k.this().frame_made();
        mask_of(frame).write(mask);
    }
}

/// The mask that comes back, the first word of libc's set.
unsafe fn mask_of(frame: *mut Frame) -> *mut u64 {
    // SAFETY: the caller's frame.
    unsafe { (&raw mut (*frame).context.uc_sigmask).cast() }
}

/// Calls a handler.
///
/// # Safety
/// `action` has a handler; `frame` is at `place`.
unsafe fn call(k: &Kernel, action: &Action, signo: c_int, frame: *mut Frame, place: Place) {
    let t = k.this();
    let cancel_point = t.at_cancel_point.replace(false);
    // Handlers of either kind take their arguments in the same registers.
    // SAFETY: the server's own handler, with the frame above its stack.
    unsafe {
        let arguments =
            [signo as usize, &raw mut (*frame).info as usize, &raw mut (*frame).context as usize];
        stack::call_server(action.handler, arguments, place);
        // As in Linux the frame's alternate stack comes back, unless the frame is on the one that is set; a wrong one is passed over.
        let back = &(*frame).context.uc_stack;
        let _ = t.change_alternate((back.ss_sp as usize, back.ss_size, back.ss_flags), place.sp);
    }
    t.at_cancel_point.set(cancel_point);
}

/// Writes the server's position into a context's registers, for handlers that print a backtrace. For a call by a hook that is its return address.
fn here(gregs: &mut [libc::greg_t; 23]) {
    let sp = stack::servers();
    if !Registers::are_at(stack::below_servers()) {
        gregs[libc::REG_RSP as usize] = sp as i64 + 8;
        // SAFETY: what a hook's caller has left there.
        gregs[libc::REG_RIP as usize] = unsafe { *(sp as *const i64) };
        return;
    }
    // SAFETY: an entry that is no hook has left them there.
    let registers = unsafe { &mut *Registers::of_entry() };
    registers.write(gregs);
    gregs[libc::REG_RIP as usize] = registers.at as i64;
}
