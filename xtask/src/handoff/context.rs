//! Two user-level contexts on one kernel thread, no more than the measurement needs.
//!
//! The runtime's own switch saves the same things: callee-saved registers, stack pointer, FS base.
//! Here both contexts write the same FS base, which costs what a different one costs and keeps the
//! standard library's thread-locals valid throughout.

use std::cell::UnsafeCell;
use std::time::{Duration, Instant};

/// Bit 1 of AT_HWCAP2: the kernel lets user space write the FS base.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

const STACK_BYTES: usize = 64 << 10;

/// Where the two contexts find each other's stack pointers.
#[repr(C)]
struct Pair {
    main_sp: UnsafeCell<usize>,
    other_sp: UnsafeCell<usize>,
}

/// Whether the switch can be measured here.
pub fn supported() -> bool {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    capabilities & HWCAP2_FSGSBASE != 0
}

/// How long `count` switches take.
pub fn ping_pong(count: u32) -> Duration {
    let mut stack = vec![0_usize; STACK_BYTES / size_of::<usize>()];
    let pair = Pair { main_sp: UnsafeCell::new(0), other_sp: UnsafeCell::new(0) };
    // The other context begins as if it had been switched away from: six registers, of which the
    // first that `switch` pops is r12, and the address that its `ret` goes to.
    let top = stack.len() - 1 - stack.len() % 2;
    stack[top - 1] = other as *const () as usize;
    let first = top - 1 - 6;
    stack[first] = &raw const pair as usize;
    let to = stack.as_mut_ptr().wrapping_add(first) as usize;
    // SAFETY: `to` points at a frame of the form that `switch` restores, on memory that lives until
    // the last switch back; `pair` outlives it, too. `other` never returns and is simply left.
    unsafe {
        *pair.other_sp.get() = to;
        let start = Instant::now();
        for _ in 0..count / 2 {
            switch(pair.main_sp.get(), *pair.other_sp.get());
        }
        start.elapsed()
    }
}

/// Saves this context's stack pointer in `save` and continues the context whose pointer is `to`.
#[unsafe(naked)]
unsafe extern "C" fn switch(save: *mut usize, to: usize) {
    std::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "rdfsbase rax",
        "wrfsbase rax",
        "pop r12",
        "pop r13",
        "pop r14",
        "pop r15",
        "pop rbx",
        "pop rbp",
        "ret",
    );
}

/// The other context: hands the turn back for ever. Its `Pair` comes in r12.
#[unsafe(naked)]
unsafe extern "C" fn other() {
    std::arch::naked_asm!(
        "2:",
        "lea rdi, [r12 + 8]",
        "mov rsi, [r12]",
        "call {switch}",
        "jmp 2b",
        switch = sym switch,
    );
}
