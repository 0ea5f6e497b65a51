//! A processor that executes the server's code one instruction at a time, without the kernel.
//!
//! Single-stepping by the trap flag takes a signal an instruction: 2 us, and more than 20 us where a hypervisor intercepts debug exceptions. Here an
//! instruction is copied to a slot, with a jump back behind it, and executed there with the server's registers; only changes of the
//! instruction pointer are computed in software. So an instruction does exactly the same as natively.
//!
//! It runs inside the handler of [`super::on_tick`], on the runtime's own signal stack, with all signals blocked that can be: the server's stack
//! pointer is in use meanwhile.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;

/// The server's registers, in the processor's order, its flags, and where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registers {
    pub rip: u64,
    pub general: [u64; 16],
    pub flags: u64,
}

pub const RSP: usize = 4;
pub const RBP: usize = 5;

/// The flags that instructions change and that are compared: carry, parity, adjust, zero, sign, direction, overflow.
pub const FLAGS: u64 = 0xcd5;

/// Data handed over between the runtime and the slot.
#[repr(C)]
struct Transfer {
    general: [u64; 16],
    flags: u64,
    own_sp: u64,
    slot: u64,
    /// Where the vector registers are saved, if the instruction uses them; 0 otherwise.
    vectors: u64,
    /// Which of them.
    mask: u64,
}

struct Shared(UnsafeCell<Transfer>);

// SAFETY: used in one signal handler of one kernel thread only.
unsafe impl Sync for Shared {}

static TRANSFER: Shared = Shared(UnsafeCell::new(Transfer {
    general: [0; 16],
    flags: 0,
    own_sp: 0,
    slot: 0,
    vectors: 0,
    mask: 0,
}));

/// Where the server's vector registers are, as the kernel has saved them for a signal's handler.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    /// In the format of `xsave`, aligned to 64 bytes.
    pub at: *mut u8,
    pub bytes: usize,
    /// The parts that are there.
    pub mask: u64,
}

/// Executes the instruction in the slot at `slot`; with `vectors` where it uses vector registers.
///
/// # Safety
/// The slot has an instruction that goes on behind itself and may be executed with these registers, and [`back`] behind it. `registers` is not touched
/// by anybody else meanwhile.
pub unsafe fn execute(registers: &mut Registers, slot: usize, vectors: Option<Vectors>) {
    let transfer = TRANSFER.0.get();
    // SAFETY: this is the only user; the rest is the caller's contract.
    unsafe {
        (*transfer).general = registers.general;
        (*transfer).flags = registers.flags;
        (*transfer).slot = slot as u64;
        (*transfer).vectors = vectors.map_or(0, |v| v.at as u64);
        (*transfer).mask = vectors.map_or(0, |v| v.mask);
        enter();
        registers.general = (*transfer).general;
        registers.flags = (*transfer).flags & FLAGS | registers.flags & !FLAGS;
    }
}

/// Where a slot jumps to behind its instruction.
pub fn back() -> usize {
    leave as *const () as usize
}

const FLAGS_AT: usize = offset_of!(Transfer, flags);
const OWN_SP: usize = offset_of!(Transfer, own_sp);
const SLOT: usize = offset_of!(Transfer, slot);
const VECTORS: usize = offset_of!(Transfer, vectors);
const MASK: usize = offset_of!(Transfer, mask);

#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rip + {t} + {own_sp}], rsp",
        "mov rcx, [rip + {t} + {vectors}]",
        "test rcx, rcx",
        "jz 2f",
        "mov eax, [rip + {t} + {mask}]",
        "mov edx, [rip + {t} + {mask} + 4]",
        "xrstor64 [rcx]",
        "2:",
        "push qword ptr [rip + {t} + {flags}]",
        "popfq",
        "mov rax, [rip + {t}]",
        "mov rcx, [rip + {t} + 8]",
        "mov rdx, [rip + {t} + 16]",
        "mov rbx, [rip + {t} + 24]",
        "mov rbp, [rip + {t} + 40]",
        "mov rsi, [rip + {t} + 48]",
        "mov rdi, [rip + {t} + 56]",
        "mov r8, [rip + {t} + 64]",
        "mov r9, [rip + {t} + 72]",
        "mov r10, [rip + {t} + 80]",
        "mov r11, [rip + {t} + 88]",
        "mov r12, [rip + {t} + 96]",
        "mov r13, [rip + {t} + 104]",
        "mov r14, [rip + {t} + 112]",
        "mov r15, [rip + {t} + 120]",
        "mov rsp, [rip + {t} + 32]",
        "jmp qword ptr [rip + {t} + {slot}]",
        t = sym TRANSFER,
        flags = const FLAGS_AT,
        own_sp = const OWN_SP,
        slot = const SLOT,
        vectors = const VECTORS,
        mask = const MASK,
    )
}

#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "mov [rip + {t}], rax",
        "mov [rip + {t} + 8], rcx",
        "mov [rip + {t} + 16], rdx",
        "mov [rip + {t} + 24], rbx",
        "mov [rip + {t} + 32], rsp",
        "mov [rip + {t} + 40], rbp",
        "mov [rip + {t} + 48], rsi",
        "mov [rip + {t} + 56], rdi",
        "mov [rip + {t} + 64], r8",
        "mov [rip + {t} + 72], r9",
        "mov [rip + {t} + 80], r10",
        "mov [rip + {t} + 88], r11",
        "mov [rip + {t} + 96], r12",
        "mov [rip + {t} + 104], r13",
        "mov [rip + {t} + 112], r14",
        "mov [rip + {t} + 120], r15",
        "mov rsp, [rip + {t} + {own_sp}]",
        "pushfq",
        "pop qword ptr [rip + {t} + {flags}]",
        "cld",
        "mov rcx, [rip + {t} + {vectors}]",
        "test rcx, rcx",
        "jz 2f",
        "mov eax, [rip + {t} + {mask}]",
        "mov edx, [rip + {t} + {mask} + 4]",
        "xsave64 [rcx]",
        "2:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        t = sym TRANSFER,
        flags = const FLAGS_AT,
        own_sp = const OWN_SP,
        vectors = const VECTORS,
        mask = const MASK,
    )
}
