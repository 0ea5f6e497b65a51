//! Instructions that tell the time or give randomness without a call: `rdtsc` is trapped (or replaced, [`patch`]) and answers from virtual time, and `cpuid` hides
//! `rdrand`, `rdseed` and `rdpid`.
//!
//! Both raise SIGSEGV (`PR_SET_TSC`, CPUID faulting). The handler answers them and hands every other SIGSEGV on ([`crate::signal::fault`]). Where the processor cannot fault on `cpuid`, the node is told.

use crate::fatal::notice;
use crate::patch::{self, Kind};
use crate::sys::{self, Result, args};
use crate::{kernel, signal, turn};
use libc::{c_int, c_void};
use skein_arena::trapped;

// arch_prctl: whether the cpuid instruction may be used.
const ARCH_CPUID: usize = 0x1012;

// What `cpuid` hides, as (leaf, subleaf 0 only, register, bit).
const RDRAND_ECX_1: u32 = 1 << 30;
const RDSEED_EBX_7: u32 = 1 << 18;
const RDPID_ECX_7: u32 = 1 << 22;

/// Does not trap any more: the loader of a new program looks at the time stamp counter before there is a handler. The kernel allows `cpuid` itself.
pub fn allow() {
    // SAFETY: only allows an instruction.
    unsafe {
        sys::raw(
            libc::SYS_prctl,
            args([libc::PR_SET_TSC as usize, libc::PR_TSC_ENABLE as usize, 0, 0, 0]),
        );
    }
}

/// Begins to trap; tells the node what cannot be.
pub fn install() {
    let (tsc, cpuid) = forbid();
    if tsc.is_err() {
        notice(
            b"the kernel cannot trap rdtsc: a server that reads the time stamp counter may diverge",
        );
    }
    if cpuid.is_err() {
        notice(b"the processor cannot hide rdrand: a server that uses it may diverge");
    }
}

/// Makes the instructions fault: `rdtsc`, and `cpuid`.
pub fn forbid() -> (Result<usize>, Result<usize>) {
    // SAFETY: both calls only make instructions of this process fault.
    unsafe {
        (
            sys::call(
                libc::SYS_prctl,
                args([libc::PR_SET_TSC as usize, libc::PR_TSC_SIGSEGV as usize, 0, 0, 0]),
            ),
            sys::call(libc::SYS_arch_prctl, args([ARCH_CPUID, 0])),
        )
    }
}

/// The handler of SIGSEGV.
pub extern "C" fn on_segv(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    // SAFETY: as above.
    let code = unsafe { (*info).si_code };
    // A trapped instruction is a general protection fault: the kernel's own signal, with no address.
    const SI_KERNEL: c_int = 0x80;
    if code == SI_KERNEL {
        let at = registers[libc::REG_RIP as usize] as *const u8;
        // SAFETY: the processor has just fetched an instruction there; an instruction of two bytes is looked at whole, and a third byte only
        // behind the first two of `rdtscp`.
        let op = unsafe { [at.read(), at.add(1).read()] };
        // SAFETY: as above.
        let rdtscp = op == [0x0f, 0x01] && unsafe { at.add(2).read() } == 0xf9;
        if op == [0x0f, 0x31] || rdtscp {
            let kind = if rdtscp { Kind::Rdtscp } else { Kind::Rdtsc };
            kernel::header().trapped.note(trapped::RDTSC);
            let inside = match patch::trapped(at as usize, kind, trapped::RDTSC, true) {
                patch::Met::Answer(inside) => inside,
                patch::Met::Replaced(stub) => {
                    registers[libc::REG_RIP as usize] = stub as i64;
                    return;
                }
            };
            let now = time_stamp();
            registers[libc::REG_RAX as usize] = (now & 0xffff_ffff) as i64;
            registers[libc::REG_RDX as usize] = (now >> 32) as i64;
            if rdtscp {
                registers[libc::REG_RCX as usize] = 0;
            }
            let behind = at as usize + kind.bytes().len();
            registers[libc::REG_RIP as usize] = inside.moved().unwrap_or(behind) as i64;
            return;
        }
        if op == [0x0f, 0xa2] {
            kernel::header().trapped.note(trapped::CPUID);
            cpuid(registers);
            registers[libc::REG_RIP as usize] += 2;
            return;
        }
    }
    signal::fault::fault(number, info, context);
}

/// What the time stamp counter says: nanoseconds, as of a processor of 1 GHz.
pub fn time_stamp() -> u64 {
    crate::time::look()
}

fn cpuid(registers: &mut [libc::greg_t; 23]) {
    turn::operation();
    let (leaf, sub) =
        (registers[libc::REG_RAX as usize] as u32, registers[libc::REG_RCX as usize] as u32);
    // SAFETY: allows the instruction for the time of one use.
    unsafe { sys::raw(libc::SYS_arch_prctl, args([ARCH_CPUID, 1])) };
    let mut found = core::arch::x86_64::__cpuid_count(leaf, sub);
    // SAFETY: and forbids it again.
    unsafe { sys::raw(libc::SYS_arch_prctl, args([ARCH_CPUID, 0])) };
    match (leaf, sub) {
        (1, _) => {
            found.ecx &= !RDRAND_ECX_1;
            // The upper byte is the id of the processor that happens to run.
            found.ebx &= 0x00ff_ffff;
        }
        (7, 0) => {
            found.ebx &= !RDSEED_EBX_7;
            found.ecx &= !RDPID_ECX_7;
        }
        // Topology leaves name the processor that happens to run.
        (0xb | 0x1f, _) => found.edx = 0,
        (0x8000_001e, _) => {
            found.eax = 0;
            found.ebx &= !0xff;
        }
        _ => {}
    }
    registers[libc::REG_RAX as usize] = i64::from(found.eax);
    registers[libc::REG_RBX as usize] = i64::from(found.ebx);
    registers[libc::REG_RCX as usize] = i64::from(found.ecx);
    registers[libc::REG_RDX as usize] = i64::from(found.edx);
}
