//! `pthread_once` and `call_once`, with glibc's values: 0 fresh, 1 the routine runs, 2 done.
//!
//! The routine may be left by an exception or by cancellation; then the next caller runs it again. Rust has no frame that a foreign
//! exception may pass through, so the frame that calls the routine is written by hand: it catches what unwinds through it in a
//! landing pad (C's personality, as for `__attribute__((cleanup))`), resets the control word, and lets the unwinding go on.

use crate::entry::init;
use crate::frame::entry;
use crate::original::real;
use crate::turn::{self, trace};
use core::arch::naked_asm;
use core::cell::Cell;
use libc::c_int;
use skein_libos::keys::Key;
use skein_libos::sync::block;
use skein_sched::op::{Kind, Object};

/// `pthread_once_t`.
type Control = Cell<u32>;

const FRESH: u32 = 0;
const RUNS: u32 = 1;
const DONE: u32 = 2;

/// The answer of [`begin`] when there is nothing left to do.
const RETURN: usize = 0;
/// Its answer when the caller must run the routine. Any other answer is libc's own function, to be called instead.
const RUN: usize = 1;

fn object(control: &Control) -> Object {
    Object::Memory(core::ptr::from_ref(control) as usize)
}

/// Waits until the routine has run, or is the caller's to run.
#[unsafe(naked)]
unsafe extern "C" fn begin(control: &Control) -> usize {
    entry!(wait)
}

extern "C" fn wait(control: &Control) -> usize {
    if !init::ensure() {
        return real!(pthread_once: fn(*mut c_int, usize) -> c_int) as usize;
    }
    let turn = turn::enter(object(control), Kind::Lock);
    loop {
        match control.get() {
            FRESH => {
                control.set(RUNS);
                trace::returns(0);
                return RUN;
            }
            word if word & DONE != 0 => {
                trace::returns(0);
                return RETURN;
            }
            _ => {
                block(&*turn, Key::of(&*turn, control), None);
            }
        }
    }
}

/// The routine has run, or was left.
#[unsafe(naked)]
unsafe extern "C" fn end(control: &Control, word: u32) {
    entry!(leave)
}

extern "C" fn leave(control: &Control, word: u32) {
    let turn = turn::enter(object(control), Kind::Unlock);
    let k = &*turn;
    control.set(word);
    k.keys.wake(k, Key::of(k, control), u32::MAX, u32::MAX);
    trace::returns(0);
}

/// `pthread_once`.
///
/// # Safety
/// As `pthread_once`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_once(
    control: *mut c_int,
    routine: extern "C-unwind" fn(),
) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x9b, DW.ref.__gcc_personality_v0",
        ".cfi_lsda 0x1b, .Lskein_once_table",
        ".Lskein_once:",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "push r12",
        ".cfi_def_cfa_offset 24",
        ".cfi_offset r12, -24",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 32",
        "mov rbx, rdi",
        "mov r12, rsi",
        "call {begin}",
        "cmp rax, {run}",
        "ja 3f",
        "jb 2f",
        ".Lskein_once_call:",
        "call r12",
        ".Lskein_once_called:",
        "mov rdi, rbx",
        "mov esi, {done}",
        "call {end}",
        "2:",
        ".cfi_remember_state",
        "xor eax, eax",
        "add rsp, 8",
        ".cfi_def_cfa_offset 24",
        "pop r12",
        ".cfi_def_cfa_offset 16",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        // libc's own function, in this one's place.
        "3:",
        ".cfi_restore_state",
        ".cfi_remember_state",
        "mov rdi, rbx",
        "mov rsi, r12",
        "add rsp, 8",
        ".cfi_def_cfa_offset 24",
        "pop r12",
        ".cfi_def_cfa_offset 16",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "jmp rax",
        // The landing pad: rax is the exception.
        ".Lskein_once_left:",
        ".cfi_restore_state",
        "mov [rsp], rax",
        "mov rdi, rbx",
        "mov esi, {fresh}",
        "call {end}",
        "mov rdi, [rsp]",
        "call _Unwind_Resume@PLT",
        "ud2",
        ".cfi_endproc",
        // Call sites: while the routine is called, and only then, the landing pad is to be run.
        ".pushsection .gcc_except_table, \"a\", @progbits",
        ".p2align 2",
        ".Lskein_once_table:",
        ".byte 0xff, 0xff, 0x01",
        ".uleb128 .Lskein_once_sites_end - .Lskein_once_sites",
        ".Lskein_once_sites:",
        ".uleb128 .Lskein_once_call - .Lskein_once",
        ".uleb128 .Lskein_once_called - .Lskein_once_call",
        ".uleb128 .Lskein_once_left - .Lskein_once",
        ".uleb128 0",
        ".Lskein_once_sites_end:",
        ".popsection",
        ".pushsection .data.DW.ref.__gcc_personality_v0, \"awG\", @progbits, DW.ref.__gcc_personality_v0, comdat",
        ".weak DW.ref.__gcc_personality_v0",
        ".hidden DW.ref.__gcc_personality_v0",
        ".p2align 3",
        ".type DW.ref.__gcc_personality_v0, @object",
        ".size DW.ref.__gcc_personality_v0, 8",
        "DW.ref.__gcc_personality_v0:",
        ".quad __gcc_personality_v0",
        ".popsection",
        begin = sym begin,
        end = sym end,
        done = const DONE,
        fresh = const FRESH,
        run = const RUN,
    )
}

/// As [`pthread_once`], under the name that old programs use.
///
/// # Safety
/// As `pthread_once`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __pthread_once(
    control: *mut c_int,
    routine: extern "C-unwind" fn(),
) -> c_int {
    naked_asm!("jmp {once}", once = sym pthread_once)
}

/// C11's form, on the same control word.
///
/// # Safety
/// As `call_once`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn call_once(control: *mut c_int, routine: extern "C-unwind" fn()) {
    naked_asm!("jmp {once}", once = sym pthread_once)
}
