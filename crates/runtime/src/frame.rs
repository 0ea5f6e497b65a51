//! The server's entries into the runtime: by a hook, by a replaced place, by a trap. All change to the running thread's own stack
//! ([`crate::stack`]), and leave nothing on the server's stack except a return address, which is a function of the log.
//!
//! - [`entry!`] is the whole of a hook.
//! - [`enter`] is called by the stub of a replaced instruction ([`crate::patch`]).
//! - [`bind`] takes the place of the loader's lazy binding ([`crate::loader`]).
//! - A trap is a signal of the kernel's, which runs [`leave_signal`] on a stack for signals. That copies the needed data, and makes the kernel
//!   return to [`resumed`] on the thread's stack: from then on a trap is as good as a call, and may block.
//!
//! Stubs and traps save [`Registers`] and vector registers, ask [`crate::entry::net::met`], and continue with the registers as that has left them. An unwinder that
//! comes from below finds the server's registers and goes on in its text: threads that end inside a call do that.

use crate::local::{LOCAL, Local};
use crate::stack;
use crate::vectors::{restore_vectors, save_vectors};
use core::arch::naked_asm;
use core::mem::offset_of;
use libc::{c_int, c_void};

/// Defines a function that the server calls: `$body`, with the same arguments, at most six, does the work on the thread's own stack.
///
/// Registers that the calling convention lets a function overwrite are cleared: a fault's handler sees all registers, and some programs save all of them.
macro_rules! entry {
    ($body:path) => {
        $crate::frame::entry!(@ $body, [
            // The frame above is where the word at the stack pointer says, behind the return address there.
            ".cfi_escape 0x0f, 0x05, 0x77, 0x00, 0x06, 0x23, 0x08",
            "call {body}"
        ])
    };
    // With a seventh argument, which comes on the stack.
    ($body:path, on stack) => {
        $crate::frame::entry!(@ $body, [
            // An address in here, as a call leaves it.
            "lea r10, [rip + 2f]",
            "push r10",
            "push [r11 + 8]",
            ".cfi_escape 0x0f, 0x05, 0x77, 0x10, 0x06, 0x23, 0x08",
            "call {body}",
            "add rsp, 16",
            ".cfi_escape 0x0f, 0x05, 0x77, 0x00, 0x06, 0x23, 0x08"
        ])
    };
    (@ $body:path, [$($call:literal),*]) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov r10, rsp",
            "shr r10, {bits}",
            "cmp r10d, {place}",
            "je 2f",
            "mov r10, [rip + {level}]",
            "test r10, r10",
            "jz 2f",
            "mov r11, rsp",
            "mov rsp, r10",
            "push r11",
            $($call,)*
            "call {settle}",
            "xor ecx, ecx",
            "xor edx, edx",
            "xor esi, esi",
            "xor edi, edi",
            "xor r8d, r8d",
            "xor r9d, r9d",
            "xor r10d, r10d",
            "xor r11d, r11d",
            "pop rsp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            "2:",
            "jmp {body}",
            ".cfi_endproc",
            bits = const $crate::stack::PLACE_BITS,
            place = const $crate::stack::PLACE,
            level = sym $crate::local::LOCAL,
            body = sym $body,
            settle = sym $crate::vectors::settle,
        )
    };
}
pub(crate) use entry;

/// The server's registers at an instruction that the runtime carries out. It continues with their values.
#[repr(C)]
#[derive(Debug)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    pub flags: u64,
    /// Where it goes on.
    pub rip: u64,
    /// Where that is in the server's text, for unwinders.
    pub at: u64,
    /// An address in a stub, or of a [`Trap`].
    pub cause: u64,
    /// The word that is the server's stack pointer for [`stack::servers`], too.
    pub rsp: u64,
}

/// Where the processor's own order of registers is in the kernel's.
const NAMES: [c_int; 17] = [
    libc::REG_R15,
    libc::REG_R14,
    libc::REG_R13,
    libc::REG_R12,
    libc::REG_R11,
    libc::REG_R10,
    libc::REG_R9,
    libc::REG_R8,
    libc::REG_RDI,
    libc::REG_RSI,
    libc::REG_RBP,
    libc::REG_RBX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RAX,
    libc::REG_EFL,
    libc::REG_RIP,
];
const _: () = assert!(offset_of!(Registers, rip) == 8 * (NAMES.len() - 1));

impl Registers {
    fn words(&mut self) -> &mut [u64; 17] {
        // SAFETY: the structure begins with so many words.
        unsafe { &mut *core::ptr::from_mut(self).cast() }
    }

    /// A system call's arguments.
    pub fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9].map(|word| word as usize)
    }

    /// Writes them as the kernel does.
    pub fn write(&mut self, to: &mut [libc::greg_t; 23]) {
        for (name, word) in NAMES.iter().zip(self.words()) {
            to[*name as usize] = *word as i64;
        }
        to[libc::REG_RSP as usize] = self.rsp as i64;
    }

    /// Takes them over.
    pub fn read(&mut self, from: &[libc::greg_t; 23]) {
        for (name, word) in NAMES.iter().zip(self.words()) {
            *word = from[*name as usize] as u64;
        }
        self.rsp = from[libc::REG_RSP as usize] as u64;
    }

    /// The server's registers, if it entered by anything but a hook.
    pub fn of_entry() -> *mut Self {
        (stack::own_level() - size_of::<Self>()) as *mut Self
    }

    /// Whether the word below the server's stack pointer belongs to such registers: a hook leaves an address of this library's text.
    pub fn are_at(below: usize) -> bool {
        !stack::is_own(below) || below >= stack::SLOTS_AT
    }

    /// The trap, if it was one.
    pub fn trap(&self) -> Option<&Trap> {
        // SAFETY: `leave_signal` has put it there; stubs are elsewhere.
        stack::is_own(self.cause as usize).then(|| unsafe { &*(self.cause as *const Trap) })
    }
}

/// The kernel's data of a trap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Trap {
    pub signo: c_int,
    pub info: libc::siginfo_t,
    /// The rest of its registers: error, number and address of the fault, segments.
    pub others: [libc::greg_t; 5],
}

/// What [`Trap::others`] are.
pub const OTHERS: [c_int; 5] =
    [libc::REG_CSGSFS, libc::REG_ERR, libc::REG_TRAPNO, libc::REG_OLDMASK, libc::REG_CR2];

impl Trap {
    /// The kernel's reason for it.
    pub const fn code(&self) -> c_int {
        self.info.si_code
    }
}

/// On a stack for signals: has the kernel return to the thread's own stack, where the trap is answered.
///
/// # Safety
/// The arguments are those of a kernel's handler.
pub unsafe fn leave_signal(signo: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    const INTERRUPTS: i64 = 0x200;
    // SAFETY: the kernel passes a valid context; it belongs to the handler's frame.
    let gregs = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let sp = gregs[libc::REG_RSP as usize] as usize;
    let top = if stack::is_own(sp) { stack::below(sp) } else { stack::entry_level() };
    let registers = (top - size_of::<Registers>()) as *mut Registers;
    let trap = ((registers as usize - size_of::<Trap>()) & !63) as *mut Trap;
    // SAFETY: free memory of the thread's own stack, as large as it needs to be.
    unsafe {
        trap.write(Trap { signo, info: info.read(), others: OTHERS.map(|r| gregs[r as usize]) });
        (*registers).read(gregs);
        (*registers).at = (*registers).rip;
        (*registers).cause = trap as u64;
    }
    gregs[libc::REG_RBP as usize] = registers as i64;
    gregs[libc::REG_RSP as usize] = trap as i64;
    gregs[libc::REG_RIP as usize] = resumed as *const () as i64;
    gregs[libc::REG_EFL as usize] = INTERRUPTS;
}

/// Called by a stub, 128 bytes below the server's stack pointer, with the address behind the call as the place where it goes on.
#[unsafe(naked)]
pub unsafe extern "C" fn enter() {
    naked_asm!(
        // What is pushed here is the server's own.
        "pushfq",
        "push rax",
        "push rcx",
        "mov rcx, rsp",
        "mov rax, rsp",
        "shr rax, {bits}",
        "cmp eax, {place}",
        "je 2f",
        "mov rsp, [rip + {level}]",
        "jmp 3f",
        "2:",
        "and rsp, -16",
        "sub rsp, 8",
        "3:",
        // The stack pointer: below it are 128 bytes, the return address, and three words.
        "lea rax, [rcx + 160]",
        "push rax",
        "push [rcx + 24]",
        "push [rcx + 24]",
        "push [rcx + 24]",
        "push [rcx + 16]",
        "push [rcx + 8]",
        "push [rcx]",
        "push rdx",
        "push rbx",
        "push rbp",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "cld",
        "mov rbp, rsp",
        "jmp {resumed}",
        bits = const stack::PLACE_BITS,
        place = const stack::PLACE,
        level = sym LOCAL,
        resumed = sym resumed,
    )
}

// What the unwinder's expressions in `resumed` say.
const _: () = assert!(
    offset_of!(Registers, rsp) == 128 + 24
        && offset_of!(Registers, at) == 128 + 8
        && offset_of!(Registers, rbx) == 88
        && offset_of!(Registers, rbp) == 80
        && offset_of!(Registers, r12) == 24
        && offset_of!(Registers, r13) == 16
        && offset_of!(Registers, r14) == 8
        && offset_of!(Registers, r15) == 0
);

/// On the thread's own stack with its [`Registers`] at `rbp`: answers, and goes on in the server.
#[unsafe(naked)]
unsafe extern "C" fn resumed() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_signal_frame",
        // The server's stack pointer is a word at `rbp` and some, and so is each other register that an unwinder needs.
        ".cfi_escape 0x0f, 4, 0x76, 0x80 | 24, 1, 0x06",
        ".cfi_escape 0x10, 16, 3, 0x76, 0x80 | 8, 1",
        ".cfi_escape 0x10, 3, 3, 0x76, 0x80 | 88, 0",
        ".cfi_escape 0x10, 6, 3, 0x76, 0x80 | 80, 0",
        ".cfi_escape 0x10, 12, 2, 0x76, 24",
        ".cfi_escape 0x10, 13, 2, 0x76, 16",
        ".cfi_escape 0x10, 14, 2, 0x76, 8",
        ".cfi_escape 0x10, 15, 2, 0x76, 0",
        // Unwinders that look a byte before an address find the same.
        "nop",
        save_vectors!(),
        "mov rdi, rbp",
        "mov rsi, rsp",
        "call [rip + {local} + {met}]",
        restore_vectors!(),
        "mov rsp, rbp",
        // Where it goes on is left below what a function may use of the server's stack: no register is left to hold it.
        "mov rax, [rsp + {rsp}]",
        "mov rcx, [rsp + {rip}]",
        "sub rax, 136",
        "mov [rax], rcx",
        "mov [rsp + {rsp}], rax",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rbp",
        "pop rbx",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "popfq",
        "lea rsp, [rsp + 24]",
        "pop rsp",
        "ret 128",
        ".cfi_endproc",
        local = sym LOCAL,
        vectors = const offset_of!(Local, vectors),
        met = const offset_of!(Local, met),
        rsp = const offset_of!(Registers, rsp),
        rip = const offset_of!(Registers, rip),
    )
}

/// Jumped to instead of the loader's own `_dl_runtime_resolve`, which saves registers on the server's stack: of vector registers those that the processor has
/// in use, and that differs. The record of the object, the function's number in it and the caller's return address are on the stack.
#[unsafe(naked)]
pub unsafe extern "C" fn bind() {
    naked_asm!(
        // No function is called with anything in r11.
        "mov r11, rsp",
        "shr r11, {bits}",
        "cmp r11d, {place}",
        "mov r11, rsp",
        "je 2f",
        "cmp qword ptr [rip + {level}], 0",
        "je 2f",
        "mov rsp, [rip + {level}]",
        "jmp 3f",
        "2:",
        "and rsp, -16",
        "sub rsp, 8",
        "3:",
        "push r11",
        // An address in here, as a hook's call leaves it.
        "lea r11, [rip + 3b]",
        "push r11",
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push rbx",
        "mov rbx, rsp",
        save_vectors!(),
        "mov r11, [rbx + 80]",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "call [rip + {local} + {fixup}]",
        "mov r11, rax",
        restore_vectors!(),
        "mov rsp, rbx",
        "pop rbx",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "add rsp, 8",
        "pop rsp",
        "add rsp, 16",
        "jmp r11",
        bits = const stack::PLACE_BITS,
        place = const stack::PLACE,
        level = sym LOCAL,
        local = sym LOCAL,
        vectors = const offset_of!(Local, vectors),
        fixup = const offset_of!(Local, fixup),
    )
}
