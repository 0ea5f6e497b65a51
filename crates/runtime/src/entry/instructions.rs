//! Instructions that reveal the time or randomness without a call: `rdtsc` is trapped (or replaced, [`crate::patch`]) and answers from virtual time, and `cpuid` hides
//! `rdrand`, `rdseed` and `rdpid`.
//!
//! Both raise SIGSEGV (`PR_SET_TSC`, CPUID faulting). They are answered here; every other SIGSEGV is a fault ([`crate::signal::fault`]). Where the processor cannot fault on `cpuid`, the node is told.

use crate::fatal::notice;
use crate::frame::{Registers, Trap};
use crate::kernel;
use crate::local;
use crate::patch::{self, Kind};
use crate::sys::{self, ARCH_CPUID, args};
use crate::thread::birth;
use crate::turn::{self, trace};
use libc::c_int;
use skein_arena::trapped;
use skein_libos::errno::Result;
use skein_sched::op::{Kind as Op, Object};

// The features that `cpuid` hides, as (leaf, subleaf 0 only, register, bit).
const RDRAND_ECX_1: u32 = 1 << 30;
const RDSEED_EBX_7: u32 = 1 << 18;
const RDPID_ECX_7: u32 = 1 << 22;

/// Begins to trap; tells the node of instructions that cannot be trapped.
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

/// Makes the instructions fault: `rdtsc`, and `cpuid` unless that is not wanted.
pub fn forbid() -> (Result<usize>, Result<usize>) {
    sys::forbid_instructions(!kernel::kernel().cpuid_is_left.get())
}

/// Whether it was an instruction that traps; then it is answered.
pub fn answer(registers: &mut Registers, trap: &Trap) -> bool {
    // A trapped instruction is a general protection fault: the kernel's own signal, with no address.
    const SI_KERNEL: c_int = 0x80;
    if trap.signo != libc::SIGSEGV || trap.code() != SI_KERNEL {
        return false;
    }
    let at = registers.rip as *const u8;
    // SAFETY: the processor has just fetched an instruction there; an instruction of two bytes is looked at whole, and a third byte only
    // behind the first two of `rdtscp`.
    let op = unsafe { [at.read(), at.add(1).read()] };
    // SAFETY: as above.
    let rdtscp = op == [0x0f, 0x01] && unsafe { at.add(2).read() } == 0xf9;
    if op == [0x0f, 0x31] || rdtscp {
        let kind = if rdtscp { Kind::Rdtscp } else { Kind::Rdtsc };
        local::header().trapped.note(trapped::RDTSC);
        let inside = match patch::trapped(at as usize, kind, trapped::RDTSC, true, birth::newborn())
        {
            patch::Met::Answer(inside) => inside,
            patch::Met::Replaced(stub) => {
                registers.rip = stub as u64;
                return true;
            }
        };
        let now = time_stamp();
        registers.rax = now & 0xffff_ffff;
        registers.rdx = now >> 32;
        if rdtscp {
            registers.rcx = 0;
        }
        let behind = at as usize + kind.bytes().len();
        registers.rip = inside.moved().unwrap_or(behind) as u64;
        return true;
    }
    if op == [0x0f, 0xa2] {
        local::header().trapped.note(trapped::CPUID);
        cpuid(registers);
        registers.rip += 2;
        return true;
    }
    false
}

/// The time stamp counter's value: nanoseconds, as of a processor of 1 GHz.
pub fn time_stamp() -> u64 {
    let now = crate::time::look();
    trace::returns(now as i64);
    now
}

fn cpuid(registers: &mut Registers) {
    let _turn = turn::enter(Object::Machine, Op::Ask);
    let (leaf, sub) = (registers.rax as u32, registers.rcx as u32);
    // SAFETY: allows the instruction for the time of one use.
    unsafe { sys::raw(libc::SYS_arch_prctl, args([ARCH_CPUID, 1])) };
    let mut found = core::arch::x86_64::__cpuid_count(leaf, sub);
    // SAFETY: and forbids it again.
    unsafe { sys::raw(libc::SYS_arch_prctl, args([ARCH_CPUID, 0])) };
    match (leaf, sub) {
        (1, _) => {
            found.ecx &= !RDRAND_ECX_1;
            // The upper byte is the id of the current processor.
            found.ebx &= 0x00ff_ffff;
        }
        (7, 0) => {
            found.ebx &= !RDSEED_EBX_7;
            found.ecx &= !RDPID_ECX_7;
        }
        // Topology leaves name the current processor.
        (0xb | 0x1f, _) => found.edx = 0,
        (0x8000_001e, _) => {
            found.eax = 0;
            found.ebx &= !0xff;
        }
        _ => {}
    }
    registers.rax = u64::from(found.eax);
    registers.rbx = u64::from(found.ebx);
    registers.rcx = u64::from(found.ecx);
    registers.rdx = u64::from(found.edx);
    trace::returns(i64::from(found.eax));
}
