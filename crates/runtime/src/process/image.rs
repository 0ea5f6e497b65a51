//! What the kernel gives a new program that differs between replicas: random bytes, and the vDSO, through which libc reads clocks without a
//! system call. The first program's are seen to by whoever starts the server; those of programs that the server executes are here.

use crate::fatal::refuse;
use crate::kernel::Kernel;
use crate::sys::{self, args};
use core::ffi::CStr;
use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr, Elf64_Sym};

/// Makes a new program's surroundings the same on all replicas.
pub fn make_equal(k: &Kernel) {
    // SAFETY: reads the auxiliary vector.
    let (random, vdso) =
        unsafe { (libc::getauxval(libc::AT_RANDOM), libc::getauxval(libc::AT_SYSINFO_EHDR)) };
    if random != 0 {
        let mut bytes = [0; 16];
        k.random.fill(&mut bytes);
        // SAFETY: the kernel put 16 bytes there, on the stack.
        unsafe { (random as *mut [u8; 16]).write(bytes) };
    }
    if vdso != 0 {
        // SAFETY: the kernel's vDSO; no other thread runs.
        unsafe { disarm(vdso as usize) };
    }
}

/// `mov eax, number; syscall; ret`: the net sees the call.
const fn call(number: u32) -> [u8; 8] {
    let n = number.to_le_bytes();
    [0xb8, n[0], n[1], n[2], n[3], 0x0f, 0x05, 0xc3]
}

/// `mov rax, -ENOSYS; ret`.
const ABSENT: [u8; 8] = [0x48, 0xc7, 0xc0, -(libc::ENOSYS as i8) as u8, 0xff, 0xff, 0xff, 0xc3];

/// What a function of the vDSO is replaced by.
fn replacement(name: &[u8]) -> Option<[u8; 8]> {
    Some(match name.strip_prefix(b"__vdso_")? {
        b"clock_gettime" => call(libc::SYS_clock_gettime as u32),
        b"gettimeofday" => call(libc::SYS_gettimeofday as u32),
        b"time" => call(libc::SYS_time as u32),
        b"clock_getres" => call(libc::SYS_clock_getres as u32),
        b"getcpu" => call(libc::SYS_getcpu as u32),
        // getrandom, and what is not known yet: its callers must do without.
        _ => ABSENT,
    })
}

/// Replaces the functions of the vDSO at `base`.
///
/// # Safety
/// `base` is where the kernel has mapped it.
unsafe fn disarm(base: usize) {
    // SAFETY: an ELF image, mapped whole, section headers included.
    unsafe {
        let head = &*(base as *const Elf64_Ehdr);
        let sections = core::slice::from_raw_parts(
            (base + head.e_shoff as usize) as *const Elf64_Shdr,
            usize::from(head.e_shnum),
        );
        let programs = core::slice::from_raw_parts(
            (base + head.e_phoff as usize) as *const Elf64_Phdr,
            usize::from(head.e_phnum),
        );
        let loaded = programs.iter().find(|p| p.p_type == libc::PT_LOAD);
        const DYNSYM: u32 = 11;
        let symbols = sections.iter().find(|s| s.sh_type == DYNSYM);
        let (Some(loaded), Some(symbols)) = (loaded, symbols) else {
            refuse!("the kernel's vDSO has no symbols: clocks read through it cannot be hidden");
        };
        let len = (loaded.p_memsz as usize).next_multiple_of(4096);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        if sys::call(libc::SYS_mprotect, args([base, len, all as usize])).is_err() {
            refuse!("the kernel's vDSO cannot be changed: clocks read through it cannot be hidden");
        }
        let names = base + sections[symbols.sh_link as usize].sh_offset as usize;
        let table = core::slice::from_raw_parts(
            (base + symbols.sh_offset as usize) as *const Elf64_Sym,
            symbols.sh_size as usize / size_of::<Elf64_Sym>(),
        );
        for symbol in table {
            const FUNCTION: u8 = 2;
            if symbol.st_info & 0xf != FUNCTION || symbol.st_value == 0 {
                continue;
            }
            let name = CStr::from_ptr((names + symbol.st_name as usize) as *const _);
            if let Some(code) = replacement(name.to_bytes()) {
                ((base + symbol.st_value as usize) as *mut [u8; 8]).write_unaligned(code);
            }
        }
        let code = libc::PROT_READ | libc::PROT_EXEC;
        sys::raw(libc::SYS_mprotect, args([base, len, code as usize]));
    }
}
