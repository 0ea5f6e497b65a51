//! The vector registers. The calling convention lets a function overwrite them, and what the runtime leaves in them is not the same on all replicas: a leader has waited where a follower has
//! not, and a process that continues from an image has those of the code that restored it. Some programs save them all, used or not: the JVM does on its threads' stacks.
//!
//! - [`settle`] gives them one value, on each way from the runtime into the server that does not take the server's own back.
//! - [`save_vectors!`] and [`restore_vectors!`] are for those that do: stubs and traps ([`crate::frame`]).

use crate::local::{LOCAL, Local};
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::arch::{asm, naked_asm};
use core::mem::offset_of;
use core::sync::atomic::Ordering;

/// x87, SSE, AVX, and the three parts of AVX-512: the registers that libc's functions may use.
const SAVED: u64 = 0b1110_0111;

/// [`settle`] has only SSE's registers to care for; the upper halves of AVX's, too; AVX-512's, too.
const SSE: u64 = 0;
const AVX: u64 = 1;
const AVX_512: u64 = 2;

/// Saves vector registers at the stack pointer, which has room for them, and with [`LOCAL`] as `{local}`, where `{vectors}` is the place of its `vectors`. `rax` and `rdx` are lost.
macro_rules! save_vectors {
    () => {
        concat!(
            "sub rsp, [rip + {local} + {vectors}]\n",
            "and rsp, -64\n",
            // The header behind the first 512 bytes: what `xsave` does not write must be zero.
            "xor eax, eax\n",
            "mov [rsp + 512], rax\n",
            "mov [rsp + 520], rax\n",
            "mov [rsp + 528], rax\n",
            "mov [rsp + 536], rax\n",
            "mov [rsp + 544], rax\n",
            "mov [rsp + 552], rax\n",
            "mov [rsp + 560], rax\n",
            "mov [rsp + 568], rax\n",
            "xor edx, edx\n",
            "mov eax, [rip + {local} + {vectors} + 8]\n",
            "xsave64 [rsp]",
        )
    };
}

/// Takes them back from there. `rax` and `rdx` are lost.
macro_rules! restore_vectors {
    () => {
        concat!("xor edx, edx\n", "mov eax, [rip + {local} + {vectors} + 8]\n", "xrstor64 [rsp]")
    };
}
pub(crate) use {restore_vectors, save_vectors};

/// Finds out which there are and how they are saved, while `cpuid` does not trap. Answers whether they can be.
pub fn prepare() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let on: u32;
    // SAFETY: reads a register that is there.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") on, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    // Of all that the kernel has switched on: more than is needed.
    let bytes = __cpuid_count(0xd, 0).ebx;
    LOCAL.vectors[0].store(u64::from(bytes).next_multiple_of(64), Ordering::Relaxed);
    // A server that continues from an image may come to a processor that has more of them, for which there is no room.
    LOCAL.vectors[1].store(SAVED & u64::from(on), Ordering::Relaxed);
    LOCAL.vectors[2].store(kind(on), Ordering::Relaxed);
    true
}

/// With these `on`.
fn kind(on: u32) -> u64 {
    /// In the first leaf's `ecx`; in the seventh's `ebx`, the parts of AVX-512 that [`settle`] uses: F, BW and VL.
    const AVX_KNOWN: u32 = 1 << 28;
    const AVX_512_KNOWN: u32 = 1 << 16 | 1 << 30 | 1 << 31;
    /// What the kernel has switched on.
    const AVX_ON: u32 = 0b110;
    const AVX_512_ON: u32 = 0b1110_0110;
    let (first, seventh) = (__cpuid(1).ecx, __cpuid_count(7, 0).ebx);
    if on & AVX_512_ON == AVX_512_ON && seventh & AVX_512_KNOWN == AVX_512_KNOWN {
        AVX_512
    } else if on & AVX_ON == AVX_ON && first & AVX_KNOWN != 0 {
        AVX
    } else {
        SSE
    }
}

/// Gives all vector registers one value, and changes no other register but the flags. That is not zero: whether the processor takes registers that are all zero for used ones, and
/// tells (`xsavec`), depends on when the kernel has switched. Upper halves are zero nevertheless, as functions that know only SSE are slow on some processors with others.
#[unsafe(naked)]
pub unsafe extern "C" fn settle() {
    naked_asm!(
        ".cfi_startproc",
        "cmp dword ptr [rip + {local} + {kind}], {avx}",
        "jb 2f",
        "je 3f",
        // The lower quarters: whole ones slow some processors down.
        "vpternlogd xmm16, xmm16, xmm16, 255",
        "vpternlogd xmm17, xmm17, xmm17, 255",
        "vpternlogd xmm18, xmm18, xmm18, 255",
        "vpternlogd xmm19, xmm19, xmm19, 255",
        "vpternlogd xmm20, xmm20, xmm20, 255",
        "vpternlogd xmm21, xmm21, xmm21, 255",
        "vpternlogd xmm22, xmm22, xmm22, 255",
        "vpternlogd xmm23, xmm23, xmm23, 255",
        "vpternlogd xmm24, xmm24, xmm24, 255",
        "vpternlogd xmm25, xmm25, xmm25, 255",
        "vpternlogd xmm26, xmm26, xmm26, 255",
        "vpternlogd xmm27, xmm27, xmm27, 255",
        "vpternlogd xmm28, xmm28, xmm28, 255",
        "vpternlogd xmm29, xmm29, xmm29, 255",
        "vpternlogd xmm30, xmm30, xmm30, 255",
        "vpternlogd xmm31, xmm31, xmm31, 255",
        "kxnorq k0, k0, k0",
        "kxnorq k1, k1, k1",
        "kxnorq k2, k2, k2",
        "kxnorq k3, k3, k3",
        "kxnorq k4, k4, k4",
        "kxnorq k5, k5, k5",
        "kxnorq k6, k6, k6",
        "kxnorq k7, k7, k7",
        "3:",
        "vzeroupper",
        "2:",
        "pcmpeqd xmm0, xmm0",
        "pcmpeqd xmm1, xmm1",
        "pcmpeqd xmm2, xmm2",
        "pcmpeqd xmm3, xmm3",
        "pcmpeqd xmm4, xmm4",
        "pcmpeqd xmm5, xmm5",
        "pcmpeqd xmm6, xmm6",
        "pcmpeqd xmm7, xmm7",
        "pcmpeqd xmm8, xmm8",
        "pcmpeqd xmm9, xmm9",
        "pcmpeqd xmm10, xmm10",
        "pcmpeqd xmm11, xmm11",
        "pcmpeqd xmm12, xmm12",
        "pcmpeqd xmm13, xmm13",
        "pcmpeqd xmm14, xmm14",
        "pcmpeqd xmm15, xmm15",
        "ret",
        ".cfi_endproc",
        local = sym LOCAL,
        kind = const offset_of!(Local, vectors) + 16,
        avx = const AVX,
    )
}
