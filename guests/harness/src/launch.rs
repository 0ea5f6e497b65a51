//! Starts a guest so that two starts are equal: fixed addresses, environment, descriptors, process ids and auxiliary
//! vector.
//!
//! ```text
//! harness --clone--> init, process 1 of new namespaces --fork--> guest, process 2
//! ```
//!
//! init traces the guest up to its exec, sets the random bytes that the kernel put on its stack and hides the vDSO, then
//! waits for it. It is a forked copy of a multithreaded process, so it makes system calls only; all else is prepared before.
//!
//! Crash: init dies with the thread that called [`Guest::start`], and its namespace with it.

use crate::sys;
use std::ffi::{CStr, CString, OsStr, c_char, c_long, c_ulong};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::Ordering;

use skein_arena::layout::{ARENA_FD, HEADER_BYTES, Header, RESTORE_FD, TRACE_FD, WAKE_FD};
use skein_model::limits;

/// The bytes that `AT_RANDOM` points to in every guest.
const RANDOM: [c_ulong; 2] = [0x7365_6564_206f_6620, 0x6120_6775_6573_7421];
/// Soft and hard limit of open files, and bytes of stack: the values of a login on Debian.
const LIMITS: [(libc::__rlimit_resource_t, u64, u64); 3] = [
    (libc::RLIMIT_STACK, 8 << 20, 8 << 20),
    (libc::RLIMIT_CORE, 0, 0),
    (libc::RLIMIT_NOFILE, 1024, 4096),
];

/// The parameters of a start.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments, without the program's name.
    pub args: &'a [String],
    /// Descriptor 1.
    pub stdout: BorrowedFd<'a>,
    /// Descriptor 2.
    pub stderr: BorrowedFd<'a>,
    /// `libskein.so`, the arena and the node's eventfd; `None` for a native run.
    pub skein: Option<(&'a Path, BorrowedFd<'a>, BorrowedFd<'a>)>,
    /// The file for its operations, if they are recorded.
    pub trace: Option<BorrowedFd<'a>>,
    /// The image that it continues from.
    pub restore: Option<BorrowedFd<'a>>,
    /// The directory that it works in, in the sandbox of servers; `None`: the harness's own surroundings.
    pub sandbox: Option<&'a Path>,
    /// As on a processor that cannot fault on `cpuid`.
    pub no_cpuid_faulting: bool,
}

/// A started guest; killed and reaped when dropped.
#[derive(Debug)]
pub struct Guest {
    init: libc::pid_t,
    status: std::fs::File,
    reaped: bool,
}

struct Job {
    program: CString,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    stdout: RawFd,
    stderr: RawFd,
    skein: Option<(RawFd, RawFd)>,
    trace: Option<RawFd>,
    restore: Option<RawFd>,
    status: RawFd,
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a zero byte in an argument"))
}

impl Guest {
    /// Starts a guest.
    ///
    /// # Errors
    /// No namespace, or no such program.
    pub fn start(launch: &Launch<'_>) -> io::Result<Self> {
        let (read, write): (OwnedFd, OwnedFd) = sys::pipe()?;
        let program = c_string(launch.program.as_os_str())?;
        let mut args = vec![program.clone()];
        for arg in launch.args {
            args.push(c_string(OsStr::new(arg))?);
        }
        let mut env = vec![c"PATH=/usr/bin:/bin".to_owned(), c"LC_ALL=C".to_owned()];
        if let Some((library, ..)) = launch.skein {
            let mut word = b"LD_PRELOAD=".to_vec();
            word.extend_from_slice(library.as_os_str().as_bytes());
            env.push(c_string(OsStr::from_bytes(&word))?);
        }
        if launch.no_cpuid_faulting {
            let name = limits::NO_CPUID_FAULTING.to_string_lossy();
            env.push(c_string(OsStr::new(&format!("{name}=1")))?);
        }
        let pointers = |words: &[CString]| -> Vec<*const c_char> {
            words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
        };
        let job = Job {
            program,
            argv: pointers(&args),
            env: pointers(&env),
            stdout: launch.stdout.as_raw_fd(),
            stderr: launch.stderr.as_raw_fd(),
            skein: launch.skein.map(|(_, arena, wake)| (arena.as_raw_fd(), wake.as_raw_fd())),
            trace: launch.trace.map(|trace| trace.as_raw_fd()),
            restore: launch.restore.map(|image| image.as_raw_fd()),
            status: write.as_raw_fd(),
        };
        // SAFETY: takes no pointers.
        let user = if unsafe { libc::geteuid() } == 0 { 0 } else { libc::CLONE_NEWUSER };
        let init = fork(libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | user)?;
        if init == 0 {
            become_init(&job);
        }
        Ok(Self { init, status: read.into(), reaped: false })
    }

    /// Readable when the guest has ended.
    #[must_use]
    pub fn ended_fd(&self) -> RawFd {
        self.status.as_raw_fd()
    }

    /// Waits for the guest's end; its wait status.
    ///
    /// # Errors
    /// It never ran: the reason is on its standard error.
    pub fn wait(&mut self) -> io::Result<i32> {
        let mut bytes = [0; 4];
        let result = self.status.read_exact(&mut bytes);
        self.reap();
        result.map(|()| i32::from_le_bytes(bytes))
    }

    /// Sends a signal to the thread that has this number in the guest's pid namespace; false when there is none.
    #[must_use]
    pub fn signal_thread(&self, tid: u32, signal: i32) -> bool {
        signal_thread(self.init(), tid, signal)
    }

    /// The parent of the guest's processes.
    #[must_use]
    pub fn init(&self) -> u32 {
        self.init.cast_unsigned()
    }

    fn reap(&mut self) {
        if !self.reaped {
            self.reaped = true;
            // SAFETY: our own child, not reaped yet; a null status is allowed.
            unsafe {
                libc::kill(self.init, libc::SIGKILL);
                libc::waitpid(self.init, ptr::null_mut(), libc::__WALL);
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Sends a signal to the thread of this number in the first process below `init`, which is not reaped; false when there is none.
pub(crate) fn signal_thread(init: u32, tid: u32, signal: i32) -> bool {
    let Some((process, thread)) = host_thread(init, tid) else { return false };
    // SAFETY: takes no pointers; the process is not reaped, so the numbers are its own.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) == 0 }
}

/// The first process and one of its threads, as the host numbers them.
fn host_thread(init: u32, tid: u32) -> Option<(i32, i32)> {
    let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).ok()?;
    let process: i32 = children.split_whitespace().next()?.parse().ok()?;
    for entry in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        if numbers.split_whitespace().last()?.parse() == Ok(tid) {
            return Some((process, entry.file_name().to_str()?.parse().ok()?));
        }
    }
    None
}

/// A copy of this process, which then has one thread and may only make system calls.
fn fork(flags: i32) -> io::Result<libc::pid_t> {
    let flags = c_long::from(flags | libc::SIGCHLD);
    // SAFETY: no stack and no pointers: the child goes on here, on its own copy of this stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as libc::pid_t) }
}

fn leave(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Writes the failed step to the guest's standard error, without allocating.
fn give_up(job: &Job, what: &[u8]) -> ! {
    // SAFETY: the buffers are live.
    unsafe {
        libc::write(job.stderr, what.as_ptr().cast(), what.len());
        libc::write(job.stderr, b"\n".as_ptr().cast(), 1);
    }
    leave(127)
}

fn become_init(job: &Job) -> ! {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if surround().is_none() {
        give_up(job, b"harness: cannot mount a file system for the guest");
    }
    let guest = match fork(0) {
        Ok(0) => become_guest(job),
        Ok(guest) => guest,
        Err(_) => give_up(job, b"harness: cannot fork"),
    };
    let header = map_header(job);
    let (mut traced, mut gone, mut ended) = (true, 0, None);
    loop {
        let mut status = 0;
        // SAFETY: the status is a live int.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if pid < 0 {
            match ended {
                // All its processes are gone.
                Some(status) => report(job, status),
                None => give_up(job, b"harness: the guest is lost"),
            }
        }
        if libc::WIFSTOPPED(status) {
            if pid == guest && traced {
                traced = false;
                if prepare_stack(guest).is_none() {
                    give_up(job, b"harness: cannot prepare the guest's stack");
                }
            }
            continue;
        }
        gone += 1;
        if pid == guest {
            ended = Some(status);
        }
        // A process that ended without the runtime's knowledge takes the others with it.
        if header.is_some_and(|header| gone > header.deaths.load(Ordering::Acquire)) {
            report(job, status);
        }
    }
}

/// Ends init, and with it everything that is left of the guest.
fn report(job: &Job, status: i32) -> ! {
    let bytes = status.to_le_bytes();
    // SAFETY: the buffer is live.
    unsafe { libc::write(job.status, bytes.as_ptr().cast(), bytes.len()) };
    leave(0)
}

/// The arena's header, in a run under Skein.
fn map_header(job: &Job) -> Option<&'static Header> {
    let (arena, _) = job.skein?;
    // SAFETY: a new mapping of the header, which is all atomics, for as long as init lives.
    unsafe {
        let at =
            libc::mmap(ptr::null_mut(), HEADER_BYTES, libc::PROT_READ, libc::MAP_SHARED, arena, 0);
        if at == libc::MAP_FAILED {
            give_up(job, b"harness: cannot map the arena's header");
        }
        Some(&*at.cast::<Header>())
    }
}

/// Empty directories of the guest's own, its working directory and that of shared memory, and the namespace's own /proc.
fn surround() -> Option<()> {
    let mount = |what: &CStr, at: &CStr, flags| {
        let (source, target) = (what.as_ptr(), at.as_ptr());
        // SAFETY: the strings are terminated; no data.
        let done = unsafe { libc::mount(source, target, source, flags, ptr::null()) };
        (done == 0).then_some(())
    };
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"proc", c"/proc", libc::MS_NOSUID | libc::MS_NODEV)?;
    mount(c"tmpfs", c"/mnt", libc::MS_NOSUID | libc::MS_NODEV)?;
    mount(c"tmpfs", c"/dev/shm", libc::MS_NOSUID | libc::MS_NODEV)?;
    let old = [libc::timespec { tv_sec: 0, tv_nsec: 0 }; 2];
    // SAFETY: the path is terminated, the times are live.
    unsafe {
        libc::utimensat(libc::AT_FDCWD, c"/mnt".as_ptr(), old.as_ptr(), 0);
        (libc::chdir(c"/mnt".as_ptr()) == 0).then_some(())
    }
}

fn become_guest(job: &Job) -> ! {
    if place_descriptors(job).is_none() {
        give_up(job, b"harness: cannot place the descriptors");
    }
    // SAFETY: live objects only; the strings and arrays are terminated; this process has one thread.
    unsafe {
        libc::setsid();
        libc::umask(0o022);
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let none: u64 = 0;
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, 0, 8);
        libc::personality(libc::ADDR_NO_RANDOMIZE as c_ulong);
        for (resource, soft, hard) in LIMITS {
            let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
            libc::setrlimit(resource, &raw const limit);
        }
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        libc::execve(job.program.as_ptr(), job.argv.as_ptr(), job.env.as_ptr());
    }
    give_up(job, b"harness: cannot execute the guest")
}

/// Descriptors 0, 1, 2 and the arena's; everything else is closed at exec.
fn place_descriptors(job: &Job) -> Option<()> {
    let ok = |fd: i32| (fd >= 0).then_some(fd);
    // SAFETY: numbers of this process' own descriptors; the path is terminated.
    unsafe {
        // Moved out of the way first: a source may have the number of another's target.
        let away = |fd| ok(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, RESTORE_FD + 1));
        let null = away(ok(libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY))?)?;
        let (stdout, stderr) = (away(job.stdout)?, away(job.stderr)?);
        let skein = match job.skein {
            Some((arena, wake)) => Some((away(arena)?, away(wake)?)),
            None => None,
        };
        let trace = match job.trace {
            Some(trace) => Some(away(trace)?),
            None => None,
        };
        let restore = match job.restore {
            Some(image) => Some(away(image)?),
            None => None,
        };
        ok(libc::dup2(null, 0))?;
        ok(libc::dup2(stdout, 1))?;
        ok(libc::dup2(stderr, 2))?;
        let cloexec = libc::CLOSE_RANGE_CLOEXEC as i32;
        ok(libc::close_range(3, u32::MAX, cloexec))?;
        if let Some((arena, wake)) = skein {
            ok(libc::dup2(arena, ARENA_FD))?;
            ok(libc::dup2(wake, WAKE_FD))?;
        }
        if let Some(trace) = trace {
            ok(libc::dup2(trace, TRACE_FD))?;
        }
        if let Some(image) = restore {
            ok(libc::dup2(image, RESTORE_FD))?;
        }
    }
    Some(())
}

/// At the guest's exec: sets the bytes of `AT_RANDOM`, hides the vDSO, lets go.
fn prepare_stack(guest: libc::pid_t) -> Option<()> {
    const WORD: usize = size_of::<c_ulong>();
    let peek = |at: usize| -> Option<c_ulong> {
        let mut word: c_ulong = 0;
        trace(libc::PTRACE_PEEKDATA, guest, at, (&raw mut word).expose_provenance())?;
        Some(word)
    };
    let poke = |at: usize, word: c_ulong| trace(libc::PTRACE_POKEDATA, guest, at, word as usize);
    // SAFETY: all zeroes is a valid set of registers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    trace(libc::PTRACE_GETREGS, guest, 0, (&raw mut registers).expose_provenance())?;
    // argc, argv, 0, environment, 0, then (kind, value) pairs.
    let stack = registers.rsp as usize;
    let mut at = stack + (peek(stack)? as usize + 2) * WORD;
    while peek(at)? != 0 {
        at += WORD;
    }
    at += WORD;
    loop {
        match peek(at)? {
            libc::AT_NULL => break,
            libc::AT_RANDOM => {
                let bytes = peek(at + WORD)? as usize;
                poke(bytes, RANDOM[0])?;
                poke(bytes + WORD, RANDOM[1])?;
            }
            libc::AT_SYSINFO_EHDR => poke(at, libc::AT_IGNORE)?,
            _ => {}
        }
        at += 2 * WORD;
    }
    trace(libc::PTRACE_DETACH, guest, 0, 0)
}

/// The system call itself: unlike libc's function, PEEKDATA stores its word at `data`.
fn trace(request: libc::c_uint, pid: libc::pid_t, address: usize, data: usize) -> Option<()> {
    let request = c_long::from(request);
    // SAFETY: `address` is the guest's, where the kernel checks it; `data` is a value or the address of a live object of
    // the size that the request writes.
    (unsafe { libc::syscall(libc::SYS_ptrace, request, pid, address, data) } == 0).then_some(())
}
