//! The node's side of a start: prepares init's data, starts it, and hears the result.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, send, setsockopt, socketpair, sockopt,
};

use skein_arena::layout::{NUMBERS_FD, RESTORE_FD};

use super::error::LaunchError;
use super::handover::Handover;
use super::ids::{namespaces, write_id_maps};
use super::job::{InitJob, MAX_INHERITED, ServerJob, Surroundings, gaps};
use super::layer::Layer;
use super::numbers::SpareNumbers;
use super::owner::{Owner, id_owner};
use super::plan::{self, Step};
use super::process::{
    Exit, Message, ServerProcess, own_pidfd, pidfd_open, reap, receive, signal_pidfd,
};
use super::report::{Record, Stage};
use super::spec::{Isolation, LaunchSpec};
use super::sys;

/// The longest time to set the sandbox up. Mounting takes some milliseconds; only a hanging file system takes longer.
const READY_S: u64 = 30;

/// How often a plan is made anew because the host's mounts changed meanwhile.
const PLAN_ATTEMPTS: u32 = 3;

/// Starts a server. Returns when the program is executing.
///
/// # Errors
/// The failed action in one line, with reason and remedy. A failed launch leaves nothing behind.
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
    if spec.restore.is_some() && spec.isolation == Isolation::None {
        let error = io::ErrorKind::Unsupported.into();
        return Err(LaunchError::Step { step: "continue from an image without a sandbox", error });
    }
    let (given, numbers) =
        Given::of(spec).map_err(|error| LaunchError::Step { step: "dup", error })?;
    let (spare, spares) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(step("socketpair"))?;
    let asked = numbers.as_ref().map(AsRawFd::as_raw_fd);
    let ends = [theirs.as_raw_fd(), node.as_raw_fd(), spares.as_raw_fd()];
    let job = prepare(spec, &given, owner, ends, asked)?;
    let handover = Handover::new(&job)
        .map_err(|error| LaunchError::Step { step: "write init's job", error })?;

    let init = fork_init(&job, &handover, spec.isolation)?;
    drop((theirs, spares, handover, given, numbers));
    let init_pid = init.pid.cast_unsigned();
    let mut guard = InitGuard(Some(init.pidfd));
    let wake = || send(ours.as_raw_fd(), b"g", MsgFlags::MSG_NOSIGNAL).map_err(step("wake init"));
    let map_ids =
        || write_id_maps(init.pid, owner).map_err(|(file, errno)| namespaces(file, errno));
    // root's init has its ids before its exec, which a program that only its owner may read needs. An ordinary user may write the maps only after it: until
    // then init has the memory of a node that hides its own.
    let (before, after) = match (spec.isolation, owner) {
        (Isolation::None, _) => (false, false),
        (Isolation::Full, Owner::Kept) => (true, false),
        (Isolation::Full, Owner::Single { .. }) => (false, true),
    };
    if before {
        map_ids()?;
    }
    wake()?;
    await_init(spec, &job, &ours, &mut guard)?;
    if after {
        map_ids()?;
    }
    wake()?;
    let (pid, server, layer) = await_start(spec, &job, &ours, &mut guard)?;
    let Some(init) = guard.0.take() else {
        return Err(LaunchError::Step { step: "keep init", error: Errno::ECHILD.into() });
    };
    // A server that has ended already is not asked for.
    let root = File::open(format!("/proc/{pid}/root")).ok();
    let layer = layer.map(|layer| Arc::new(layer.shown_by(root)));
    let isolation = spec.isolation;
    // Without a pid namespace the numbers are the host's.
    let spare = layer.is_some().then(|| Arc::new(SpareNumbers::new(spare)));
    let (socket, exit) = (ours, None);
    Ok(ServerProcess { init, init_pid, server, pid, socket, isolation, exit, layer, spare })
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

/// The server's descriptors, each with a number above the standard ones, which init uses itself.
struct Given {
    stdout: OwnedFd,
    stderr: OwnedFd,
    inherit: Vec<(OwnedFd, RawFd)>,
}

impl Given {
    /// And init's end, where a server that is restored asks for numbers.
    fn of(spec: &LaunchSpec<'_>) -> io::Result<(Self, Option<OwnedFd>)> {
        let files = spec.inherit.iter().copied();
        let mut inherit = files
            .chain(spec.restore.map(|file| (file, RESTORE_FD)))
            .map(|(fd, target)| Ok((fd.try_clone_to_owned()?, target)))
            .collect::<io::Result<Vec<_>>>()?;
        let numbers = match spec.restore {
            Some(_) => {
                let flags = SockFlag::SOCK_CLOEXEC;
                let (ours, theirs) =
                    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
                inherit.push((theirs, NUMBERS_FD));
                Some(ours)
            }
            None => None,
        };
        let (stdout, stderr) =
            (spec.stdout.try_clone_to_owned()?, spec.stderr.try_clone_to_owned()?);
        Ok((Self { stdout, stderr, inherit }, numbers))
    }
}

fn prepare(
    spec: &LaunchSpec<'_>,
    given: &Given,
    owner: Owner,
    [socket, node, spare]: [RawFd; 3],
    numbers: Option<RawFd>,
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
            let steps = plan::make(
                spec.layer_bytes,
                spec.layer_dir.as_deref(),
                owner,
                &writable,
                &spec.pins,
            )
            .map_err(file_system("list the host's directories and mounts"))?;
            Some(Surroundings { owner, hostname: string("the host name", spec.hostname)?, steps })
        }
    };
    let inherit: Vec<(RawFd, RawFd)> =
        given.inherit.iter().map(|(fd, target)| (fd.as_raw_fd(), *target)).collect();
    let targets = targets(&inherit)?;
    let argv = spec.argv.iter().map(|text| string("an argument", text));
    let env = spec.env.iter().map(|(name, value)| {
        let text = [name.as_bytes(), value.as_bytes()].join(&b'=');
        string("the environment", OsStr::from_bytes(&text))
    });
    let random: u128 = u128::from_le_bytes(spec.random);
    Ok(InitJob {
        socket,
        node,
        numbers,
        spare,
        surroundings,
        server: ServerJob {
            program: string("the program's path", spec.program.as_os_str())?,
            argv: argv.collect::<Result<_, _>>()?,
            env: env.collect::<Result<_, _>>()?,
            cwd: string("the working directory", spec.cwd.as_os_str())?,
            stdout: given.stdout.as_raw_fd(),
            stderr: given.stderr.as_raw_fd(),
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

struct Init {
    pidfd: OwnedFd,
    pid: libc::pid_t,
}

fn fork_init(
    job: &InitJob,
    handover: &Handover,
    isolation: Isolation,
) -> Result<Init, LaunchError> {
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
    // No handler of the node may run in init before its exec.
    let mask = sys::block_signals();
    // SAFETY: the child only runs `Handover::execute`, which makes system calls and reads data that no other thread has, and ends in exec or exit.
    let forked = unsafe { sys::fork(flags.cast_unsigned().into(), Some(&mut pidfd)) };
    match forked {
        Ok(0) => handover.execute(job),
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

fn hear_error(error: io::Error) -> LaunchError {
    LaunchError::Step { step: "hear from init", error }
}

/// Waits for the next record.
fn hear(socket: &OwnedFd) -> Result<Option<Message>, LaunchError> {
    let timeout = PollTimeout::try_from(READY_S * 1000).unwrap_or(PollTimeout::MAX);
    loop {
        let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, timeout) {
            Ok(0) => return Err(LaunchError::Timeout { timeout_s: READY_S }),
            Ok(_) => return receive(socket).map_err(hear_error),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(hear_error(errno.into())),
        }
    }
}

/// Waits until init is a program of its own.
fn await_init(
    spec: &LaunchSpec<'_>,
    job: &InitJob,
    socket: &OwnedFd,
    guard: &mut InitGuard,
) -> Result<(), LaunchError> {
    match hear(socket)? {
        Some((Record::Init, ..)) => Ok(()),
        Some((Record::Failed { stage, index, errno }, ..)) => {
            Err(failure(spec, job, stage, index, Errno::from_raw(errno)))
        }
        Some(_) => Err(hear_error(Errno::EPROTO.into())),
        None => Err(LaunchError::Ended { exit: guard.end().map_err(hear_error)? }),
    }
}

/// The server's pid, a pidfd of it, and its layer.
type Start = (u32, OwnedFd, Option<Layer>);

/// Waits for the records of a start: the server's pid, then that it runs.
fn await_start(
    spec: &LaunchSpec<'_>,
    job: &InitJob,
    socket: &OwnedFd,
    guard: &mut InitGuard,
) -> Result<Start, LaunchError> {
    let (mut server, mut tops, mut layer) = (None, Vec::new(), None);
    loop {
        match hear(socket)? {
            Some((Record::Init, ..)) => return Err(hear_error(Errno::EPROTO.into())),
            Some((Record::Layer, _, descriptor)) => tops.extend(descriptor),
            Some((Record::Hello, sender, _)) => {
                let pid = sender.pid();
                let pidfd = pidfd_open(pid).map_err(hear_error)?;
                server = Some((pid.cast_unsigned(), pidfd));
                let steps = job.surroundings.as_ref().map(|around| &around.steps[..]);
                let tops = <[OwnedFd; 2]>::try_from(std::mem::take(&mut tops)).ok();
                let laid = tops.zip(steps).map(|(tops, steps)| Layer::new(tops, steps));
                layer = laid
                    .transpose()
                    .map_err(|error| LaunchError::Step { step: "look at the layer", error })?;
                // The server is stopped until now, so that the pid is surely its own, and the layer is as it was laid out.
                send(socket.as_raw_fd(), b"g", MsgFlags::MSG_NOSIGNAL)
                    .map_err(|errno| hear_error(errno.into()))?;
            }
            Some((Record::Started, ..)) => {
                let (pid, process) = server.ok_or_else(|| hear_error(Errno::ESRCH.into()))?;
                return Ok((pid, process, layer));
            }
            Some((Record::Failed { stage, index, errno }, ..)) => {
                return Err(failure(spec, job, stage, index, Errno::from_raw(errno)));
            }
            Some((Record::Exited { status }, ..)) => {
                return Err(LaunchError::Ended { exit: Exit::from_wait(status) });
            }
            None => {
                let exit = guard.end().map_err(hear_error)?;
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
        Stage::Fork | Stage::IdMaps if spec.isolation == Isolation::Full => {
            namespaces(stage.name(), errno)
        }
        _ => LaunchError::Step { step: stage.name(), error },
    }
}
