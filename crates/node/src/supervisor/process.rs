//! The node's side of a server: preparing and forking init, and the handle to what runs.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixCredentials, recvmsg,
    send, setsockopt, socketpair, sockopt,
};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::error::LaunchError;
use super::init::{self, InitJob, Ranges, Surroundings};
use super::plan::{self, Owner, Step};
use super::report::{RECORD_BYTES, Record, Stage};
use super::server::{MAX_INHERITED, ServerJob, StringArray};
use super::spec::{Isolation, LaunchSpec};
use super::sys;

/// How long the sandbox may take to be ready. Mounting takes some milliseconds; only a hanging file system takes longer.
const READY_S: u64 = 30;

/// How often a plan is made anew because the host's mounts changed under it.
const PLAN_ATTEMPTS: u32 = 3;

/// How the server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    fn from_wait(status: i32) -> Self {
        match libc::WIFSIGNALED(status) {
            true => Self::Signal(libc::WTERMSIG(status)),
            false => Self::Code(libc::WEXITSTATUS(status)),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A server that runs, or has run. Dropping it kills the server and all that it started.
#[derive(Debug)]
pub struct ServerProcess {
    init: OwnedFd,
    server: OwnedFd,
    pid: u32,
    socket: OwnedFd,
    isolation: Isolation,
    exit: Option<Exit>,
}

impl ServerProcess {
    /// The server's pid as the node sees it (in its own namespace it is 2).
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Readable when the server has ended: then [`Self::try_wait`] gives the exit.
    pub fn exit_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// How the server ended, if it has. By then everything that it started is gone, too.
    ///
    /// # Errors
    /// Those of the system calls underneath; none is expected.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            let mut waiting = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, PollTimeout::ZERO) {
                Ok(0) | Err(Errno::EINTR) => return Ok(None),
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            return self.wait().map(Some);
        }
        Ok(self.exit)
    }

    /// Waits for the server's end.
    ///
    /// # Errors
    /// As [`Self::try_wait`].
    pub fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let reported = loop {
            match receive(&self.socket)? {
                Some((Record::Exited { status }, _)) => break Some(Exit::from_wait(status)),
                Some(_) => {}
                None => break None,
            }
        };
        let init = reap(self.init.as_fd())?;
        // Without a report init was killed, and with it the server.
        let exit = reported.unwrap_or(init);
        self.exit = Some(exit);
        Ok(exit)
    }

    /// Sends a signal to the server.
    ///
    /// # Errors
    /// `ESRCH` when it has ended, `EINVAL` for a signal that does not exist.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        signal_pidfd(self.server.as_fd(), signal)
    }

    /// Kills the server and everything that it started. [`Self::wait`] gives the exit.
    ///
    /// # Errors
    /// Those of the system calls underneath; a server that has ended is none.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.exit.is_some() {
            return Ok(());
        }
        let killed = match self.isolation {
            // With init ends its pid namespace and all that is in it.
            Isolation::Full => signal_pidfd(self.init.as_fd(), libc::SIGKILL),
            // init kills what the server leaves, and ends.
            Isolation::None => signal_pidfd(self.server.as_fd(), libc::SIGKILL),
        };
        match killed {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.exit.is_none() && self.kill().is_ok() {
            let _ = self.wait();
        }
    }
}

/// Starts a server. Returns when the program is executing.
///
/// # Errors
/// Says in one line what could not be done, why, and what to do. Nothing is left of a failed launch.
pub fn launch(spec: &LaunchSpec<'_>) -> Result<ServerProcess, LaunchError> {
    let mut again = PLAN_ATTEMPTS;
    loop {
        again -= 1;
        match launch_once(spec) {
            // A mount that was not there when the plan was made is in the way of an overlay.
            Err(LaunchError::Overlay { error, .. })
                if again > 0 && error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result,
        }
    }
}

fn launch_once(spec: &LaunchSpec<'_>) -> Result<ServerProcess, LaunchError> {
    let step = |step| move |errno: Errno| LaunchError::Step { step, error: errno.into() };
    let owner = match spec.isolation {
        Isolation::Full => id_owner(),
        Isolation::None => Owner::Kept,
    };
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(step("socketpair"))?;
    setsockopt(&ours, sockopt::PassCred, &true).map_err(step("socket option"))?;
    let node = own_pidfd().map_err(|error| LaunchError::Step { step: "pidfd_open", error })?;
    let job = prepare(spec, owner, theirs.as_raw_fd(), node.as_raw_fd())?;

    let init = fork_init(&job, spec.isolation)?;
    drop(theirs);
    let mut guard = InitGuard(Some(init.pidfd));
    if spec.isolation == Isolation::Full {
        write_id_maps(init.pid, owner)?;
    }
    send(ours.as_raw_fd(), b"g", MsgFlags::MSG_NOSIGNAL).map_err(step("wake init"))?;
    let (pid, server) = await_start(spec, &job, &ours, &mut guard)?;
    let Some(init) = guard.0.take() else {
        return Err(LaunchError::Step { step: "keep init", error: Errno::ECHILD.into() });
    };
    Ok(ServerProcess { init, server, pid, socket: ours, isolation: spec.isolation, exit: None })
}

/// Kills and reaps init unless the launch succeeded.
struct InitGuard(Option<OwnedFd>);

impl InitGuard {
    fn end(&mut self) -> io::Result<Exit> {
        let Some(init) = self.0.take() else { return Ok(Exit::Code(0)) };
        reap(init.as_fd())
    }
}

impl Drop for InitGuard {
    fn drop(&mut self) {
        if let Some(init) = self.0.take()
            && signal_pidfd(init.as_fd(), libc::SIGKILL).is_ok()
        {
            let _ = reap(init.as_fd());
        }
    }
}

fn prepare(
    spec: &LaunchSpec<'_>,
    owner: Owner,
    socket: RawFd,
    node: RawFd,
) -> Result<InitJob, LaunchError> {
    let file_system = |what: &str| {
        let what = what.to_owned();
        move |error| LaunchError::FileSystem { what, error }
    };
    let surroundings = match spec.isolation {
        Isolation::None => None,
        Isolation::Full => {
            let mut writable = spec.writable.clone();
            writable.extend([spec.cwd.to_owned(), PathBuf::from("/var/tmp")]);
            let steps = plan::make(spec.layer_bytes, owner, &writable)
                .map_err(file_system("list the host's directories and mounts"))?;
            Some(Surroundings { hostname: string("the host name", spec.hostname)?, steps })
        }
    };
    let inherit: Vec<(RawFd, RawFd)> =
        spec.inherit.iter().map(|(fd, target)| (fd.as_raw_fd(), *target)).collect();
    let targets = targets(&inherit)?;
    let (stdout, stderr) = (spec.stdout.as_raw_fd(), spec.stderr.as_raw_fd());
    let mut needed = vec![socket, node, stdout, stderr];
    needed.extend(inherit.iter().map(|(source, _)| *source));
    let argv = spec.argv.iter().map(|text| string("an argument", text));
    let env = spec.env.iter().map(|(name, value)| {
        let text = [name.as_bytes(), value.as_bytes()].join(&b'=');
        string("the environment", OsStr::from_bytes(&text))
    });
    let random: u128 = u128::from_le_bytes(spec.random);
    Ok(InitJob {
        socket,
        node,
        foreign: gaps(needed, 0),
        not_mine: gaps(vec![socket, node], 0),
        surroundings,
        server: ServerJob {
            program: string("the program's path", spec.program.as_os_str())?,
            argv: StringArray::new(argv.collect::<Result<_, _>>()?),
            env: StringArray::new(env.collect::<Result<_, _>>()?),
            cwd: string("the working directory", spec.cwd.as_os_str())?,
            stdout,
            stderr,
            inherit,
            not_inherited: gaps(targets, 3),
            limits: spec.limits,
            random: [random as u64, (random >> 64) as u64],
        },
    })
}

fn string<T: AsRef<OsStr> + ?Sized>(what: &str, text: &T) -> Result<CString, LaunchError> {
    CString::new(text.as_ref().as_bytes())
        .map_err(|_| LaunchError::ZeroByte { what: what.to_owned() })
}

fn targets(inherit: &[(RawFd, RawFd)]) -> Result<Vec<RawFd>, LaunchError> {
    let mut targets = Vec::new();
    for (_, target) in inherit {
        if *target < 3 || targets.contains(target) || targets.len() == MAX_INHERITED {
            return Err(LaunchError::Target { target: *target });
        }
        targets.push(*target);
    }
    Ok(targets)
}

/// The ranges of descriptors from `first` that leave out `kept`.
fn gaps(mut kept: Vec<RawFd>, first: u32) -> Ranges {
    kept.sort_unstable();
    kept.dedup();
    let mut ranges = Vec::new();
    let mut next = first;
    for fd in kept.into_iter().filter_map(|fd| u32::try_from(fd).ok()) {
        if fd > next {
            ranges.push((next, fd - 1));
        }
        next = next.max(fd + 1);
    }
    ranges.push((next, u32::MAX));
    ranges
}

struct Init {
    pidfd: OwnedFd,
    pid: libc::pid_t,
}

fn fork_init(job: &InitJob, isolation: Isolation) -> Result<Init, LaunchError> {
    let flags = match isolation {
        Isolation::None => 0,
        Isolation::Full => {
            libc::CLONE_NEWUSER
                | libc::CLONE_NEWNS
                | libc::CLONE_NEWPID
                | libc::CLONE_NEWNET
                | libc::CLONE_NEWUTS
                | libc::CLONE_NEWIPC
        }
    };
    let mut pidfd: RawFd = -1;
    // No handler of the node may run in init before init has reset them.
    let mask = sys::block_signals();
    // SAFETY: the child only runs `init::run`, which makes system calls and reads `job`, which no other thread has, and
    // ends in exit.
    let forked = unsafe { sys::fork(flags.cast_unsigned().into(), Some(&mut pidfd)) };
    match forked {
        Ok(0) => init::run(job),
        Ok(pid) => {
            sys::set_signal_mask(mask);
            // SAFETY: clone3 succeeded and has made this descriptor; nothing else owns it.
            Ok(Init { pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, pid })
        }
        Err(errno) => {
            sys::set_signal_mask(mask);
            Err(namespaces("clone3", Errno::from_raw(errno)))
        }
    }
}

fn namespaces(step: &'static str, errno: Errno) -> LaunchError {
    LaunchError::Namespaces { step, error: errno.into(), hint: namespace_hint(errno) }
}

/// What the user can look at, with the values that this host has.
fn namespace_hint(errno: Errno) -> String {
    let value = |name: &str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    if matches!(errno, Errno::ENOSPC | Errno::EUSERS) {
        let now = value("user.max_user_namespaces").unwrap_or_else(|| "unknown".to_owned());
        return format!(
            "raise the sysctl user.max_user_namespaces (now {now}) or the other user.max_*_namespaces"
        );
    }
    for (name, bad, good) in [
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ] {
        if value(name).as_deref() == Some(bad) {
            return format!("set the sysctl {name} to {good} (now {bad}), or run the node as root");
        }
    }
    "see the sysctls kernel.unprivileged_userns_clone and user.max_user_namespaces; in a container, its seccomp profile; \
     a chroot does not work"
        .to_owned()
}

/// Whether this process may map every id: it needs both capabilities in its own user namespace, and ids to speak of there.
fn id_owner() -> Owner {
    const CAP_SETGID: u64 = 1 << 6;
    const CAP_SETUID: u64 = 1 << 7;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0);
    let all_ids = ["uid_map", "gid_map"].iter().all(|file| {
        fs::read_to_string(format!("/proc/self/{file}")).is_ok_and(|map| covers_overflow(&map))
    });
    if effective & CAP_SETGID != 0 && effective & CAP_SETUID != 0 && all_ids {
        return Owner::Kept;
    }
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    Owner::Single { uid, gid }
}

/// Whether a map has the id that files of unmapped owners show: then every owner that is seen can be given.
fn covers_overflow(map: &str) -> bool {
    const OVERFLOW_ID: u64 = 65_534;
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>());
        let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.nth(1)) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&OVERFLOW_ID)
    })
}

fn write_id_maps(pid: libc::pid_t, owner: Owner) -> Result<(), LaunchError> {
    let write = |file: &'static str, text: &str| {
        fs::write(format!("/proc/{pid}/{file}"), text).map_err(|error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            namespaces(file, errno)
        })
    };
    match owner {
        Owner::Kept => {
            for file in ["uid_map", "gid_map"] {
                let own = fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
                write(file, &identity(&own))?;
            }
        }
        Owner::Single { uid, gid } => {
            write("setgroups", "deny")?;
            write("uid_map", &format!("{uid} {uid} 1\n"))?;
            write("gid_map", &format!("{gid} {gid} 1\n"))?;
        }
    }
    Ok(())
}

/// Maps to itself every id that `map` (as in /proc/self/uid_map) has inside.
fn identity(map: &str) -> String {
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (inside, count) = (fields.next()?, fields.nth(1)?);
        Some(format!("{inside} {inside} {count}\n"))
    };
    map.lines().filter_map(line).collect()
}

/// Waits for the records of a start: the server's pid, then that it runs.
fn await_start(
    spec: &LaunchSpec<'_>,
    job: &InitJob,
    socket: &OwnedFd,
    guard: &mut InitGuard,
) -> Result<(u32, OwnedFd), LaunchError> {
    let io_error = |error| LaunchError::Step { step: "hear from init", error };
    let timeout = PollTimeout::try_from(READY_S * 1000).unwrap_or(PollTimeout::MAX);
    let mut server = None;
    loop {
        let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, timeout) {
            Ok(0) => return Err(LaunchError::Timeout { timeout_s: READY_S }),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(io_error(errno.into())),
        }
        match receive(socket).map_err(io_error)? {
            Some((Record::Hello, sender)) => {
                let pid = sender.pid();
                let pidfd = pidfd_open(pid).map_err(io_error)?;
                server = Some((pid.cast_unsigned(), pidfd));
                // The server is stopped until now, so that the pid is surely its own.
                send(socket.as_raw_fd(), b"g", MsgFlags::MSG_NOSIGNAL)
                    .map_err(|errno| io_error(errno.into()))?;
            }
            Some((Record::Started, _)) => {
                return server.ok_or_else(|| io_error(Errno::ESRCH.into()));
            }
            Some((Record::Failed { stage, index, errno }, _)) => {
                return Err(failure(spec, job, stage, index, Errno::from_raw(errno)));
            }
            Some((Record::Exited { status }, _)) => {
                return Err(LaunchError::Ended { exit: Exit::from_wait(status) });
            }
            None => {
                let exit = guard.end().map_err(io_error)?;
                return Err(LaunchError::Ended { exit });
            }
        }
    }
}

fn failure(
    spec: &LaunchSpec<'_>,
    job: &InitJob,
    stage: Stage,
    index: u32,
    errno: Errno,
) -> LaunchError {
    let error = io::Error::from(errno);
    match stage {
        Stage::Plan => {
            let steps = job.surroundings.as_ref().map_or(&[][..], |around| &around.steps[..]);
            let index = index as usize;
            // Namespaces without their rights: a security module lets users create, but not use them.
            if index == 0 && matches!(errno, Errno::EPERM | Errno::EACCES) {
                return namespaces("mount", errno);
            }
            match steps.get(index) {
                Some(step @ Step::Overlay { .. }) => {
                    LaunchError::Overlay { path: step.describe().1, error }
                }
                Some(step) => {
                    let (what, path) = step.describe();
                    LaunchError::FileSystem { what: format!("{what} {}", path.display()), error }
                }
                None => LaunchError::Step { step: stage.name(), error },
            }
        }
        Stage::WorkingDirectory => {
            LaunchError::WorkingDirectory { path: spec.cwd.to_owned(), error }
        }
        Stage::LimitFiles => {
            LaunchError::Limit { name: "open files", wanted: spec.limits.open_files_max, error }
        }
        Stage::LimitStack => {
            LaunchError::Limit { name: "stack size", wanted: spec.limits.stack_bytes, error }
        }
        Stage::Exec if matches!(errno, Errno::ENOENT | Errno::ENOTDIR) => {
            LaunchError::Vanished { path: spec.program.to_owned() }
        }
        Stage::Exec => LaunchError::Exec { path: spec.program.to_owned(), error },
        Stage::TraceMe
        | Stage::TraceStop
        | Stage::TraceRegisters
        | Stage::TraceStack
        | Stage::TraceDetach => LaunchError::Trace { step: stage.name(), error },
        _ => LaunchError::Step { step: stage.name(), error },
    }
}

/// Receives a record with its sender's credentials; `None` when init is gone.
fn receive(socket: &OwnedFd) -> io::Result<Option<(Record, UnixCredentials)>> {
    let mut bytes = [0; RECORD_BYTES];
    let mut control = nix::cmsg_space!(UnixCredentials);
    let (len, sender) = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags) {
            Ok(message) => {
                let sender = message.cmsgs()?.find_map(|control| match control {
                    ControlMessageOwned::ScmCredentials(sender) => Some(sender),
                    _ => None,
                });
                break (message.bytes, sender);
            }
            // init was killed with our byte unread.
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    if len == 0 {
        return Ok(None);
    }
    match (Record::decode(&bytes[..len]), sender) {
        (Some(record), Some(sender)) => Ok(Some((record, sender))),
        _ => Err(io::Error::other("an unknown record from init")),
    }
}

fn reap(init: BorrowedFd<'_>) -> io::Result<Exit> {
    loop {
        match waitid(Id::PIDFd(init), WaitPidFlag::WEXITED | WaitPidFlag::__WALL) {
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(Exit::Signal(signal as i32)),
            Ok(WaitStatus::Exited(_, code)) => return Ok(Exit::Code(code)),
            Ok(_) | Err(Errno::EINTR) => {}
            // Someone else in this process waited for all children.
            Err(Errno::ECHILD) => return Ok(Exit::Signal(libc::SIGKILL)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn own_pidfd() -> io::Result<OwnedFd> {
    pidfd_open(nix::unistd::getpid().as_raw())
}

fn pidfd_open(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the call has made this descriptor (close-on-exec); nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn signal_pidfd(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let info: *const u8 = std::ptr::null();
    // SAFETY: a null siginfo makes the kernel fill in what kill(2) would.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, info, 0)
    })
    .map(drop)
    .map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_leave_out_what_is_kept() {
        assert_eq!(gaps(vec![], 3), [(3, u32::MAX)]);
        assert_eq!(gaps(vec![901, 900], 3), [(3, 899), (902, u32::MAX)]);
        assert_eq!(gaps(vec![0, 1, 5, 5], 0), [(2, 4), (6, u32::MAX)]);
    }

    #[test]
    fn the_identity_map_covers_what_is_inside() {
        assert!(covers_overflow("0 0 4294967295\n"));
        assert!(covers_overflow(" 0 1000 1\n 1 100000 65536\n"));
        assert!(
            !covers_overflow("0 1000 1\n") && !covers_overflow("") && !covers_overflow("x y z")
        );
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity(" 0 1000 1\n 1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}
