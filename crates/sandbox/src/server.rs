//! Process 2 of the sandbox, from the fork to the program's first instruction: its own part before exec ([`run`]), and
//! init's work at its exec ([`trace_exec`]).
//!
//! It has user and mount namespaces of its own inside init's: init's mounts are locked for it. Even with all the rights that it gives up, it
//! could not unmount anything, nor write where init has mounted read-only.
//!
//! At exec the kernel puts an auxiliary vector on the new stack. Two of its entries would make replicas differ: 16 random
//! bytes (`AT_RANDOM`), and the vDSO (`AT_SYSINFO_EHDR`), through which the C library reads clocks past everything that the
//! runtime can see. init stops the server there with ptrace, sets the bytes, hides the vDSO, and detaches. ptrace works by
//! thread, so the tracer has to be the parent's only thread: init.

use std::ffi::{CString, c_char, c_long, c_ulong};
use std::os::fd::RawFd;
use std::ptr;

use super::confine;
use super::ids::write_id_maps;
use super::job::{Failure, InitJob, MAX_INHERITED, ServerJob, await_node};
use super::report::{Record, Stage};
use super::spec::Limits;
use super::sys::{self, Errno, check, check_int};

/// The null-terminated array of pointers to strings that exec reads.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Becomes the program. Called in the child of init's fork only.
pub(super) fn run(job: &InitJob, init: libc::pid_t) -> ! {
    let (socket, Failure(stage, index, errno)) = become_program(job, init);
    sys::send(socket, &Record::Failed { stage, index, errno }.encode());
    sys::exit(127)
}

/// Returns only on failure, with the socket's number by then.
fn become_program(job: &InitJob, init: libc::pid_t) -> (RawFd, Failure) {
    if let Err(failure) = meet_tracer(job.socket).and_then(|()| start_session(&job.server, init)) {
        return (job.socket, failure);
    }
    match place_descriptors(&job.server, job.socket) {
        Ok(socket) => (socket, execute(&job.server, job.surroundings.is_some())),
        Err((stage, errno)) => (job.socket, Failure(stage, 0, errno)),
    }
}

/// Stops until init traces this process, the node has its pid, and it has its ids.
fn meet_tracer(socket: RawFd) -> Result<(), Failure> {
    sys::send(socket, &Record::Hello.encode());
    ptrace(libc::PTRACE_TRACEME, 0, 0, 0).map_err(|errno| Failure(Stage::TraceMe, 0, errno))?;
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_kill, libc::getpid(), libc::SIGSTOP) };
    Ok(())
}

fn start_session(job: &ServerJob, init: libc::pid_t) -> Result<(), Failure> {
    let at = |stage| move |errno| Failure(stage, 0, errno);
    // SAFETY: these calls take no pointers.
    unsafe {
        check_int(libc::setsid()).map_err(at(Stage::Session))?;
        check_int(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))
            .map_err(at(Stage::Session))?;
        if libc::getppid() != init {
            sys::exit(127); // init died before the line above.
        }
    }
    // SAFETY: the path is terminated.
    check_int(unsafe { libc::chdir(job.cwd.as_ptr()) })
        .map(drop)
        .map_err(at(Stage::WorkingDirectory))
}

fn execute(job: &ServerJob, confined: bool) -> Failure {
    if let Err((stage, errno)) = set_limits(&job.limits).and_then(|()| set_manners()) {
        return Failure(stage, 0, errno);
    }
    let (argv, env) = (pointers(&job.argv), pointers(&job.env));
    if confined {
        if let Err(errno) = confine::drop_capabilities() {
            return Failure(Stage::Capabilities, 0, errno);
        }
        if let Err(errno) = confine::install(&confine::filter()) {
            return Failure(Stage::Filter, 0, errno);
        }
    }
    sys::set_signal_mask(0);
    // SAFETY: the path is terminated, both arrays end in a null pointer, and all of it is alive.
    let result = unsafe { libc::execve(job.program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    Failure(Stage::Exec, 0, check_int(result).err().unwrap_or(libc::EINVAL))
}

/// Settings that exec keeps: the file mode mask, fixed addresses, and no new privileges (so that an ordinary user's server may
/// install a system call filter).
fn set_manners() -> Result<(), (Stage, Errno)> {
    // SAFETY: these calls take no pointers.
    unsafe {
        libc::umask(0o022);
        check_int(libc::personality(libc::ADDR_NO_RANDOMIZE as c_ulong))
            .map_err(|errno| (Stage::Personality, errno))?;
        check_int(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
            .map_err(|errno| (Stage::NoNewPrivileges, errno))?;
    }
    Ok(())
}

/// Puts every descriptor at its number, and marks the others to be closed at exec. Gives the socket's new number.
fn place_descriptors(job: &ServerJob, socket: RawFd) -> Result<RawFd, (Stage, Errno)> {
    let failed = |errno| (Stage::Descriptors, errno);
    let beyond = job.inherit.iter().map(|(_, target)| *target).max().unwrap_or(2) + 1;
    // SAFETY: descriptor numbers only, of this process' own table.
    let away = |fd| check_int(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, beyond) });
    // SAFETY: as above.
    let place = |fd, at| check_int(unsafe { libc::dup2(fd, at) });
    let socket = away(socket).map_err(failed)?;
    let stdout = away(job.stdout).map_err(failed)?;
    let stderr = away(job.stderr).map_err(failed)?;
    // All sources first, then all targets: the numbers may overlap.
    let mut moved = [-1; MAX_INHERITED];
    for (slot, (source, _)) in moved.iter_mut().zip(&job.inherit) {
        *slot = away(*source).map_err(failed)?;
    }
    // SAFETY: the path is terminated.
    let null =
        check_int(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })
            .map_err(|errno| (Stage::Stdin, errno))?;
    let null = away(null).map_err(failed)?;
    place(null, 0).map_err(failed)?;
    place(stdout, 1).map_err(failed)?;
    place(stderr, 2).map_err(failed)?;
    for (source, (_, target)) in moved.iter().zip(&job.inherit) {
        place(*source, *target).map_err(failed)?;
    }
    for (first, last) in &job.not_inherited {
        sys::close_range(*first, *last, libc::CLOSE_RANGE_CLOEXEC).map_err(failed)?;
    }
    Ok(socket)
}

/// After the descriptors: one above the limit of open files stays open, but could not be made.
fn set_limits(limits: &Limits) -> Result<(), (Stage, Errno)> {
    let set = |resource, soft, hard| {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: the new limit is a live rlimit; a null pointer means that the old one is not wanted.
        check_int(unsafe { libc::prlimit(0, resource, &raw const limit, ptr::null_mut()) })
    };
    let Limits { open_files, open_files_max, stack_bytes } = *limits;
    set(libc::RLIMIT_STACK, stack_bytes, stack_bytes).map_err(|e| (Stage::LimitStack, e))?;
    set(libc::RLIMIT_CORE, 0, 0).map_err(|e| (Stage::LimitCore, e))?;
    set(libc::RLIMIT_NOFILE, open_files, open_files_max).map_err(|e| (Stage::LimitFiles, e))?;
    Ok(())
}

/// Runs the server up to its exec, sets its auxiliary vector, and lets go of it. Gives its wait status if it ended before.
pub(super) fn trace_exec(server: libc::pid_t, job: &InitJob) -> Result<Option<i32>, Failure> {
    let at = |stage| move |errno| Failure(stage, 0, errno);
    let mut seen_stop = false;
    loop {
        let mut status = 0;
        // SAFETY: the status is a live int.
        match check_int(unsafe { libc::waitpid(server, &raw mut status, libc::__WALL) }) {
            Ok(_) => {}
            Err(libc::EINTR) => continue,
            Err(errno) => return Err(Failure(Stage::TraceStop, 0, errno)),
        }
        if !libc::WIFSTOPPED(status) {
            return Ok(Some(status));
        }
        let forward = match libc::WSTOPSIG(status) {
            libc::SIGTRAP => break,
            libc::SIGSTOP if !seen_stop => {
                seen_stop = true;
                if !await_node(job.socket) {
                    sys::exit(1);
                }
                if let Some(around) = &job.surroundings {
                    write_id_maps(server, around.owner)
                        .map_err(|(_, errno)| Failure(Stage::IdMaps, 0, errno as i32))?;
                }
                0
            }
            signal => signal,
        };
        ptrace(libc::PTRACE_CONT, server, 0, forward as usize).map_err(at(Stage::TraceStop))?;
    }
    // SAFETY: all zeroes is a valid set of registers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, server, 0, (&raw mut registers).expose_provenance())
        .map_err(at(Stage::TraceRegisters))?;
    rewrite_auxiliary_vector(server, registers.rsp as usize, job.server.random)
        .map_err(at(Stage::TraceStack))?;
    // Not sooner: the files by which it and the server get their ids would be root's. From here on the server runs.
    confine::hide_memory();
    ptrace(libc::PTRACE_DETACH, server, 0, 0).map_err(at(Stage::TraceDetach))?;
    Ok(None)
}

/// The stack at exec: argc, argv, 0, environment, 0, then (type, value) pairs up to type 0.
fn rewrite_auxiliary_vector(
    server: libc::pid_t,
    stack: usize,
    random: [c_ulong; 2],
) -> Result<(), Errno> {
    const WORD: usize = size_of::<usize>();
    let mut at = stack + (peek(server, stack)? as usize + 2) * WORD;
    while peek(server, at)? != 0 {
        at += WORD;
    }
    at += WORD;
    let mut randomness = None;
    loop {
        let (kind, value) = (peek(server, at)?, peek(server, at + WORD)?);
        match kind {
            libc::AT_NULL => break,
            libc::AT_RANDOM => randomness = Some(value as usize),
            libc::AT_SYSINFO_EHDR => poke(server, at, libc::AT_IGNORE)?,
            _ => {}
        }
        at += 2 * WORD;
    }
    let randomness = randomness.ok_or(libc::ENOENT)?;
    poke(server, randomness, random[0])?;
    poke(server, randomness + WORD, random[1])
}

fn peek(server: libc::pid_t, at: usize) -> Result<c_ulong, Errno> {
    let mut word: c_ulong = 0;
    ptrace(libc::PTRACE_PEEKDATA, server, at, (&raw mut word).expose_provenance())?;
    Ok(word)
}

fn poke(server: libc::pid_t, at: usize, word: c_ulong) -> Result<(), Errno> {
    ptrace(libc::PTRACE_POKEDATA, server, at, word as usize)
}

/// The system call itself: unlike libc's function, PEEKDATA stores its word at `data`.
fn ptrace(request: u32, pid: libc::pid_t, address: usize, data: usize) -> Result<(), Errno> {
    // SAFETY: `address` is in the traced process, where the kernel checks it; `data` is a value, or the address of a live
    // object of the size that the request writes (see the callers).
    let result =
        unsafe { libc::syscall(libc::SYS_ptrace, c_long::from(request), pid, address, data) };
    check(result).map(drop)
}
