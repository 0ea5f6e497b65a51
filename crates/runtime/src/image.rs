//! Data that the kernel gives a new program and that differ between replicas: random bytes, and the vDSO, through which libc reads clocks without a
//! system call. The starter of the server handles those of the first program, before its first instruction; those of programs that the server
//! executes are here, where the loader has already used the bytes.

use crate::fatal::refuse;
use crate::kernel::Kernel;
use crate::sys::{self, args};
use crate::{glibc, loader, vectors};
use core::arch::{asm, naked_asm};
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
    loader::renew_key(k, glibc::text());
}

/// Remakes the values that the loader has made of the kernel's bytes before this library was there: the stack protector and the pointer guard.
///
/// Only where nothing made with the old ones is in use. In the first constructor that holds: nothing of the kernel's and the
/// loader's on the stack is protected, and no jump is set. Traces of the old values lie below: see [`clear_leftovers`].
pub fn renew_guards() {
    // SAFETY: reads the auxiliary vector.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) };
    if random == 0 {
        return;
    }
    // SAFETY: 16 bytes that the kernel put on the stack.
    let [protector, mangler] = unsafe { (random as *const [u64; 2]).read_unaligned() };
    // As glibc does it: a string does not go on over the protector, whose first byte is zero.
    let protector = protector & !0xff;
    let old: u64;
    // SAFETY: two words of the running thread's descriptor, at places that compilers know.
    unsafe {
        asm!(
            "mov {old}, fs:[0x30]",
            "mov fs:[0x28], {protector}",
            "mov fs:[0x30], {mangler}",
            old = out(reg) old,
            protector = in(reg) protector,
            mangler = in(reg) mangler,
            options(nostack, preserves_flags)
        );
    }
    loader::renew_guard(old, mangler);
}

/// Clears the loader's traces below the stack pointer and in vector registers: the kernel's random bytes, and facts about libraries'
/// files. They would show wherever a program outputs memory that it has not written, or saves registers there.
pub fn clear_leftovers() {
    // SAFETY: the stack below has nothing in use.
    unsafe { clear_below() };
    // SAFETY: no vector register is in use, by the calling convention.
    unsafe { vectors::settle() };
}

const PAGE_BYTES: usize = 4096;
/// More than a loader needs of its stack, and less than what the kernel keeps free below every stack (128 MiB).
const LEFT_BYTES: usize = 1 << 20;

/// Clears the stack below the caller's frame.
///
/// # Safety
/// Nothing below the caller's frame is in use.
#[unsafe(naked)]
unsafe extern "C" fn clear_below() {
    naked_asm!(
        // Whole pages are given back to the kernel, as far as there are any; that not all are mapped is no matter. Nothing is pushed on the way.
        "mov rdi, rsp",
        "and rdi, -{page}",
        "sub rdi, {left}",
        "mov esi, {left}",
        "mov edx, {dontneed}",
        "mov eax, {madvise}",
        "syscall",
        // The rest of this one.
        "mov rdi, rsp",
        "and rdi, -{page}",
        "mov rcx, rsp",
        "sub rcx, rdi",
        "xor eax, eax",
        "rep stosb",
        "ret",
        page = const PAGE_BYTES,
        left = const LEFT_BYTES,
        dontneed = const libc::MADV_DONTNEED,
        madvise = const libc::SYS_madvise,
    )
}

/// `mov eax, number; syscall; ret`: the net sees the call.
const fn call(number: u32) -> [u8; 8] {
    let n = number.to_le_bytes();
    [0xb8, n[0], n[1], n[2], n[3], 0x0f, 0x05, 0xc3]
}

/// `mov rax, -ENOSYS; ret`.
const ABSENT: [u8; 8] = [0x48, 0xc7, 0xc0, -(libc::ENOSYS as i8) as u8, 0xff, 0xff, 0xff, 0xc3];

/// The replacement of a vDSO function.
fn replacement(name: &[u8]) -> Option<[u8; 8]> {
    Some(match name.strip_prefix(b"__vdso_")? {
        b"clock_gettime" => call(libc::SYS_clock_gettime as u32),
        b"gettimeofday" => call(libc::SYS_gettimeofday as u32),
        b"time" => call(libc::SYS_time as u32),
        b"clock_getres" => call(libc::SYS_clock_getres as u32),
        b"getcpu" => call(libc::SYS_getcpu as u32),
        // getrandom, and unknown functions: their callers must do without.
        _ => ABSENT,
    })
}

/// The size of the kernel's mapping of the vDSO. The file is mapped whole, and its section headers are its end; where its code has one page (before Linux 6.11) they are on another. The kernel gives no part of
/// the mapping another protection.
fn mapped_bytes(head: &Elf64_Ehdr, loaded: &Elf64_Phdr) -> usize {
    let headers = usize::from(head.e_shnum) * size_of::<Elf64_Shdr>();
    (loaded.p_memsz as usize).max(head.e_shoff as usize + headers).next_multiple_of(PAGE_BYTES)
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
        let len = mapped_bytes(head, loaded);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_is_changed_with_its_section_headers() {
        // SAFETY: numbers only, for which zero is a value.
        let (mut head, mut loaded): (Elf64_Ehdr, Elf64_Phdr) = unsafe { core::mem::zeroed() };
        // As Linux 6.1 has it: code on one page, headers on the next.
        (head.e_shoff, head.e_shnum, loaded.p_memsz) = (0x1240, 17, 0xe55);
        assert_eq!(mapped_bytes(&head, &loaded), 2 * PAGE_BYTES);
        (head.e_shoff, loaded.p_memsz) = (0x1b40, 0x1709);
        assert_eq!(mapped_bytes(&head, &loaded), 2 * PAGE_BYTES);
    }
}
