//! Processes that have executed another program than the first one: they execute it again, and go on in it ([`super::go_on`]).
//!
//! So the kernel makes the stack, the data segment and the auxiliary vector, and knows the program. The environment loads the runtime; its begin finds out that the process
//! is being restored.

use super::{RESTORE_AT, RESTORE_SPAN, Tables, fail, must};
use crate::io::table;
use crate::kernel::Kernel;
use crate::local::LOCAL;
use crate::sys::{self, args};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use skein_arena::restore::{FIRST_PROGRAM, Process, Program};

/// The kernel leaves room for stacks of this size, and of as much again, in any case: 64 MiB.
const NO_MATTER_BYTES: u64 = 64 << 20;
const WORD: usize = size_of::<usize>();

impl Tables {
    /// The program that a process must execute, if any. The first process's own was executed if `first_executed` says so; others may have been forked from it since.
    pub(super) fn program_of(&self, process: &Process, first_executed: bool) -> Option<&Program> {
        let first = self.processes.first()?;
        let is_first = process.pid == first.pid;
        match process.program {
            FIRST_PROGRAM if !first_executed => None,
            _ if is_first && !first_executed => None,
            FIRST_PROGRAM => Some(self.program(first.program)),
            number => Some(self.program(number)),
        }
    }

    fn program(&self, number: u32) -> &Program {
        match (number as usize).checked_sub(1).and_then(|n| self.programs.get(n)) {
            Some(program) => program,
            None => fail(54),
        }
    }
}

/// Whether the first process has executed another program since its start, in the server that the image is of.
pub(super) fn first_executed(k: &Kernel, t: &Tables) -> bool {
    let first =
        t.processes.first().and_then(|first| crate::process::find(k, first.pid as libc::pid_t));
    if first.is_some_and(|first| k.processes.get(first).executed.get()) {
        return true;
    }
    // The one that the server began with may have ended, and the first one now be a child that it made with another program.
    let Some(program) = t
        .processes
        .first()
        .and_then(|first| t.programs.get((first.program as usize).checked_sub(1)?))
    else {
        return false;
    };
    let mut own = [0u8; libc::PATH_MAX as usize];
    let link = c"/proc/self/exe".as_ptr() as usize;
    // SAFETY: a constant; a local; a name of the tables.
    unsafe {
        let len = must(60, libc::SYS_readlink, args([link, own.as_mut_ptr() as usize, own.len()]));
        CStr::from_ptr(t.name(program.exe) as *const libc::c_char).to_bytes() != &own[..len]
    }
}

/// Whether the kernel has put what this program was given where it was in the server that the image is of. Kernels give auxiliary vectors of different lengths: what is before the vector may lie
/// elsewhere, its end and all behind it do not.
///
/// # Safety
/// The stack is as the kernel has made it.
pub(super) unsafe fn has_its_place(t: &Tables, program: &Program) -> bool {
    let begin = LOCAL.environment.load(Ordering::Relaxed) as usize;
    // The environment is behind the arguments and their number.
    let was = program.stack as usize + WORD * (program.counts[0] as usize + 2);
    if t.head.vector_bytes == 0 {
        return begin == was;
    }
    // The vector is behind the environment, and ends with a pair whose key is zero.
    let mut vector = begin + WORD * (program.counts[1] as usize + 1);
    // SAFETY: the caller's contract; it was executed with so many variables.
    unsafe {
        while (vector as *const u64).read() != libc::AT_NULL {
            vector += 2 * WORD;
        }
    }
    let end = was + WORD * (program.counts[1] as usize + 1) + t.head.vector_bytes as usize;
    vector + 2 * WORD == end
}

/// Executes a program.
pub(super) unsafe fn execute(t: &Tables, process: &Process, program: &Program) -> ! {
    let words = program.counts[0] as usize + program.counts[1] as usize + 2;
    let at = RESTORE_AT + RESTORE_SPAN / 2;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as usize;
    // SAFETY: new memory behind the tables, for as many words; strings of the tables, which end with zeros; numbers.
    unsafe {
        must(55, libc::SYS_mmap, [at, words * WORD, protection, flags, usize::MAX, 0]);
        let arguments = list(t.name(program.arguments), program.counts[0], at);
        list(t.name(program.environment), program.counts[1], arguments);
        await_library(t.name(program.environment));
        // Where the kernel places mappings depends on the stack's limit, if it is more than this. A lower one may have come when the stack was larger.
        let [soft, hard] = process.limits[libc::RLIMIT_STACK as usize];
        let mut stack = [0u64; 2];
        let ask = [0, libc::RLIMIT_STACK as usize, 0, &raw mut stack as usize, 0, 0];
        must(39, libc::SYS_prlimit64, ask);
        stack[1] = stack[1].max(hard);
        stack[0] = soft.max(stack[1].min(NO_MATTER_BYTES));
        let set = args([0, libc::RLIMIT_STACK as usize, stack.as_ptr() as usize]);
        must(39, libc::SYS_prlimit64, set);
        for fd in t.file()..t.lent() + t.head.lent() as usize {
            // Numbers are not asked for by all.
            sys::raw(libc::SYS_fcntl, args([fd, libc::F_SETFD as usize, 0]));
        }
        table::keep_spare_over_exec(true);
        sys::allow_instructions();
        must(56, libc::SYS_execve, args([t.name(program.path), at, arguments]));
        fail(56)
    }
}

/// Writes the addresses of strings in a row and a zero; answers where that ends.
unsafe fn list(strings: usize, count: u32, to: usize) -> usize {
    let (mut string, mut at) = (strings, to as *mut usize);
    // SAFETY: the caller's contract.
    unsafe {
        for _ in 0..count {
            at.write(string);
            at = at.add(1);
            string += CStr::from_ptr(string as *const libc::c_char).count_bytes() + 1;
        }
        at.write(0);
        at.add(1) as usize
    }
}

/// Without its library the program would run outside of Skein.
unsafe fn await_library(variable: usize) {
    let mut path = [0u8; crate::kernel::process::LIBRARY_PATH_BYTES];
    // SAFETY: a string of the tables; a local.
    unsafe {
        let text = CStr::from_ptr(variable as *const libc::c_char).to_bytes();
        let Some(value) = text.strip_prefix(b"LD_PRELOAD=") else { fail(57) };
        let len = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
        if len == 0 || len >= path.len() {
            fail(57);
        }
        path[..len].copy_from_slice(&value[..len]);
        must(57, libc::SYS_access, args([path.as_ptr() as usize, libc::R_OK as usize]));
    }
}
