//! Executing another program.
//!
//! The program is checked first: one that the runtime cannot be loaded into is refused by name, because the net, which stays, would kill it. Then the
//! kernel's exec runs with an environment that loads the runtime. In the new program [`join`] takes up the process where it was left.

use super::ProcessHandle;
use super::{become_process, handle, this, threads_of, vfork_key};
use crate::fatal::{line, refuse, refused};
use crate::files::inputs;
use crate::io::table;
use crate::kernel::process::LIBRARY_PATH_BYTES as PATH_BYTES;
use crate::kernel::thread::discard;
use crate::kernel::{Kernel, kernel};
use crate::local::header;
use crate::sys::{self, args};
use crate::turn::{self, trace};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use libc::{c_char, c_int, pid_t};
use skein_libos::errno::{Errno, Result};
use skein_sched::op::{Kind, Object};

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Takes the runtime out of `LD_PRELOAD`: the server sees only its own part of the environment. The first process notes the library's path.
///
/// # Safety
/// `environment` is null or ends in a null pointer, and nobody else uses it.
pub unsafe fn take_preload(k: &Kernel, environment: *mut *mut c_char) {
    let mut at = environment;
    // SAFETY: the caller's contract.
    while unsafe { !at.is_null() && !(*at).is_null() } {
        // SAFETY: a string of the environment.
        let text = unsafe { CStr::from_ptr(*at) }.to_bytes();
        if let Some(value) = text.strip_prefix(PRELOAD) {
            let end = value.iter().position(|b| *b == b':').unwrap_or(value.len());
            if k.library.len.get() == 0 && end < PATH_BYTES {
                let mut path = [0; PATH_BYTES];
                path[..end].copy_from_slice(&value[..end]);
                k.library.path.set(path);
                k.library.len.set(end as u32);
            }
            // SAFETY: within the string, or the array up to its null pointer. What is behind the runtime's path is the server's own.
            unsafe {
                if end < value.len() {
                    let to = (*at).add(PRELOAD.len());
                    core::ptr::copy(to.add(end + 1), to, value.len() - end);
                } else {
                    let mut next = at;
                    while !(*next).is_null() {
                        *next = *next.add(1);
                        next = next.add(1);
                    }
                }
            }
            return;
        }
        // SAFETY: not yet at the null pointer.
        at = unsafe { at.add(1) };
    }
}

/// `execve` (with `at` `AT_FDCWD` and no flags) and `execveat`. Returns only when it fails.
///
/// # Safety
/// The arguments are those of the call.
pub unsafe fn execute(
    at: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    flags: c_int,
) -> Result<usize> {
    let turn = turn::enter(Object::Processes, Kind::Execute);
    table::not_own(at)?;
    let k = &*turn;
    if path.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's contract.
    unsafe { look_at(at, path, flags, 0)? };
    // SAFETY: the caller's contract.
    let scratch = unsafe { Environment::make(k, env)? };
    let p = this();
    p.executing.set(true);
    turn::cores::roam(k);
    p.table.keep_over_exec(k, true);
    table::keep_spare_over_exec(true);
    sys::allow_instructions();
    // SAFETY: the caller's arguments; the new environment is null-terminated.
    let error = unsafe {
        sys::call(
            libc::SYS_execveat,
            [at as usize, path as usize, argv as usize, scratch.at, flags as usize, 0],
        )
    };
    let _ = sys::forbid_instructions(!k.cpuid_is_left.get());
    p.table.keep_over_exec(k, false);
    table::keep_spare_over_exec(false);
    p.executing.set(false);
    drop(scratch);
    error
}

/// The environment with the runtime in it, in pages of its own.
struct Environment {
    at: usize,
    bytes: usize,
}

impl Environment {
    /// # Safety
    /// `env` is null or an environment.
    unsafe fn make(k: &Kernel, env: *const *const c_char) -> Result<Self> {
        let library = k.library.path();
        if library.is_empty() {
            refused(b"exec: the path of libskein.so is too long to be passed on");
            return Err(Errno(libc::ENOEXEC));
        }
        let mut count = 0;
        let mut theirs: &[u8] = b"";
        // SAFETY: the caller's contract.
        let entry = |i: usize| unsafe { *env.add(i) };
        while !env.is_null() && !entry(count).is_null() {
            // SAFETY: a string of the environment.
            let text = unsafe { CStr::from_ptr(entry(count)) }.to_bytes();
            if let Some(value) = text.strip_prefix(PRELOAD) {
                theirs = value;
            }
            count += 1;
        }
        let array = (count + 2) * size_of::<usize>();
        let bytes =
            (array + PRELOAD.len() + library.len() + theirs.len() + 2).next_multiple_of(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let at = unsafe {
            sys::call(
                libc::SYS_mmap,
                [0, bytes, protection as usize, flags as usize, usize::MAX, 0],
            )?
        };
        let made = Self { at, bytes };
        let mut text = (at + array) as *mut u8;
        let preload = text as usize;
        for part in [PRELOAD, library, if theirs.is_empty() { b"" } else { b":" }, theirs] {
            // SAFETY: within the mapping, by its size; the rest of it is zero.
            unsafe {
                text.copy_from_nonoverlapping(part.as_ptr(), part.len());
                text = text.add(part.len());
            }
        }
        let words = at as *mut usize;
        let mut n = 0;
        let mut put = |word: usize| {
            // SAFETY: at most `count + 1` words and a null one.
            unsafe { words.add(n).write(word) };
            n += 1;
        };
        put(preload);
        for i in 0..count {
            // SAFETY: a string of the environment.
            let text = unsafe { CStr::from_ptr(entry(i)) }.to_bytes();
            if !text.starts_with(PRELOAD) {
                put(entry(i) as usize);
            }
        }
        Ok(made)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: the mapping that `make` made.
        unsafe { sys::raw(libc::SYS_munmap, args([self.at, self.bytes])) };
    }
}

/// Scripts may name scripts as their interpreters: as deep as Linux goes.
const MOST_INTERPRETERS: u32 = 5;
/// The part that is read of a program's start: as much as Linux reads for a script's first line, and all program headers of usual programs.
const HEAD_BYTES: usize = 4096;
/// The only loader that the net knows.
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2";

/// Refuses a program into which the runtime cannot be loaded.
///
/// # Safety
/// `path` is a string.
unsafe fn look_at(at: c_int, path: *const c_char, flags: c_int, depth: u32) -> Result<()> {
    if depth > MOST_INTERPRETERS {
        return Err(Errno(libc::ELOOP));
    }
    let mut head = [0; HEAD_BYTES];
    // SAFETY: the caller's contract.
    let (len, file) = unsafe { read_head(at, path, flags, &mut head)? };
    let head = &head[..len];
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let verdict = if let Some(rest) = head.strip_prefix(b"#!") {
        let line = rest.split(|b| *b == b'\n').next().unwrap_or(b"");
        let blank = |b: &u8| matches!(b, b' ' | b'\t');
        let mut interpreter = [0u8; 256];
        let words = line.split(blank).find(|word| !word.is_empty()).unwrap_or(b"");
        if words.is_empty() || words.len() >= interpreter.len() {
            Err(Errno(libc::ENOEXEC))
        } else {
            interpreter[..words.len()].copy_from_slice(words);
            // SAFETY: a string that ends in zero.
            unsafe { look_at(libc::AT_FDCWD, interpreter.as_ptr().cast(), 0, depth + 1) }
        }
    } else if head.starts_with(b"\x7fELF") {
        look_at_elf(head, name)
    } else {
        Err(Errno(libc::ENOEXEC))
    };
    let _ = sys::close(file);
    verdict
}

/// # Safety
/// `path` is a string.
unsafe fn read_head(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    head: &mut [u8],
) -> Result<(usize, c_int)> {
    // SAFETY: the caller's contract; the buffers are live.
    unsafe {
        let nofollow = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
        let open = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | nofollow;
        let by_number = flags & libc::AT_EMPTY_PATH != 0 && *path == 0;
        let file = if by_number {
            let name = line!("/proc/self/fd/{at}\0");
            sys::call(
                libc::SYS_openat,
                args([libc::AT_FDCWD as usize, name.bytes().as_ptr() as usize, open as usize, 0]),
            )?
        } else {
            sys::call(libc::SYS_openat, args([at as usize, path as usize, open as usize, 0]))?
        };
        let mut st: libc::stat = core::mem::zeroed();
        let known = sys::call(libc::SYS_fstat, args([file, &raw mut st as usize]));
        if known.is_ok() && !by_number {
            inputs::opened(kernel(), file as c_int, &st, at, path, libc::O_RDONLY | nofollow);
        }
        let read =
            sys::call(libc::SYS_pread64, args([file, head.as_mut_ptr() as usize, head.len(), 0]));
        let by_path = if by_number {
            Ok(0)
        } else {
            sys::call(libc::SYS_faccessat, args([at as usize, path as usize, libc::X_OK as usize]))
        };
        let regular =
            known.is_ok() && by_path.is_ok() && st.st_mode & libc::S_IFMT == libc::S_IFREG;
        match read {
            Ok(len) if regular => Ok((len, file as c_int)),
            _ => {
                let _ = sys::close(file as c_int);
                Err(Errno(libc::EACCES))
            }
        }
    }
}

fn look_at_elf(head: &[u8], name: &[u8]) -> Result<()> {
    let name = core::str::from_utf8(name).unwrap_or("?");
    let no = |why: &str| {
        refused(line!("exec of {name}, which {why}").bytes());
        Err(Errno(libc::ENOEXEC))
    };
    let half =
        |at: usize| head.get(at..at + 2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let word = |at: usize| {
        head.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")) as usize)
    };
    const CLASS_64: u8 = 2;
    const X86_64: usize = 62;
    if head.get(4) != Some(&CLASS_64) || half(18) != Some(X86_64) {
        return no("is not a program for 64-bit x86");
    }
    let (Some(table), Some(size), Some(count)) = (word(32), half(54), half(56)) else {
        return no("has no whole header");
    };
    for i in 0..count {
        let at = table + i * size;
        let Some(kind) = head.get(at..at + 4) else {
            return no("has its program headers far from its begin");
        };
        if kind != libc::PT_INTERP.to_le_bytes() {
            continue;
        }
        let (Some(offset), Some(len)) = (word(at + 8), word(at + 32)) else { break };
        return match head.get(offset..offset + len) {
            Some(path) if path.strip_suffix(b"\0") == Some(LOADER) => secure(name),
            _ => no("has another loader than glibc's"),
        };
    }
    no("is statically linked: the runtime cannot be loaded into it")
}

/// The loader ignores `LD_PRELOAD` when a process acts as another user than who it is.
fn secure(name: &str) -> Result<()> {
    // SAFETY: no arguments.
    let id = |nr| unsafe { sys::raw(nr, args([])) };
    if id(libc::SYS_getuid) != id(libc::SYS_geteuid)
        || id(libc::SYS_getgid) != id(libc::SYS_getegid)
    {
        refused(line!("exec of {name} by a process whose real and effective users differ").bytes());
        return Err(Errno(libc::EPERM));
    }
    Ok(())
}

/// In a new program: the process that executed it, which has the turn. Stops if it is another one.
pub fn find_executing(k: &Kernel) -> ProcessHandle {
    // SAFETY: no arguments.
    let pid = unsafe { sys::raw(libc::SYS_getpid, args([])) } as pid_t;
    match super::find(k, pid) {
        Some(process) if k.processes.get(process).executing.get() => process,
        _ => refuse!("process {pid} has the server's descriptors, but Skein does not know it"),
    }
}

/// The process goes on in a new program, with its main thread alone: [`crate::thread`] takes that up.
pub fn join(k: &Kernel, process: ProcessHandle) {
    become_process(k, process);
    let p = this();
    let main = k.current();
    for (other, t) in threads_of(k, handle()) {
        trace::leaves(other.raw(), 0);
        if other != main {
            // Its memory is gone, with the objects that it held there.
            t.robust.set(0);
            super::end::abandon(k, other, t);
            discard(k, other);
        }
    }
    skein_libos::signal::executed(k, process, k.threads.get(main));
    k.threads.get(main).alternate.set((0, 0, 0));
    header().uses.note(crate::uses::Use::Programs);
    p.threads.set(1);
    p.ended_around_libc.set(false);
    super::shared::forget_all(k, p);
    p.executing.set(false);
    p.executed.set(true);
    p.told.executed();
    p.table.close_on_exec(k);
    table::keep_spare_over_exec(false);
    header().turn_holder.store(main.raw(), Ordering::Relaxed);
    k.keys.wake(k, vfork_key(process), u32::MAX, u32::MAX);
}
