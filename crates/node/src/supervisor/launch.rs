//! The node's side of a start: prepares all that init needs, forks it, and hears how it went.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, send, setsockopt, socketpair, sockopt,
};

use super::error::LaunchError;
use super::ids::{id_owner, namespaces, write_id_maps};
use super::init::{self, InitJob, Ranges, Surroundings};
use super::layer::Layer;
use super::plan::{self, Owner, Step};
use super::process::{Exit, ServerProcess, own_pidfd, pidfd_open, reap, receive, signal_pidfd};
use super::report::{Record, Stage};
use super::server::{MAX_INHERITED, ServerJob, StringArray};
use super::spec::{Isolation, LaunchSpec};
use super::sys;

/// How long the sandbox may take to be ready. Mounting takes some milliseconds; only a hanging file system takes longer.
const READY_S: u64 = 30;

/// How often a plan is made anew because the host's mounts changed under it.
const PLAN_ATTEMPTS: u32 = 3;

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
    let (pid, server, top) = await_start(spec, &job, &ours, &mut guard)?;
    let Some(init) = guard.0.take() else {
        return Err(LaunchError::Step { step: "keep init", error: Errno::ECHILD.into() });
    };
    let steps = job.surroundings.as_ref().map(|around| &around.steps[..]);
    // Of a server that has ended already nobody asks.
    let root = File::open(format!("/proc/{pid}/root")).ok();
    let layer = top.zip(steps);
    let layer = layer.map(|((top, begun), steps)| Arc::new(Layer::new(top, root, begun, steps)));
    let isolation = spec.isolation;
    Ok(ServerProcess { init, server, pid, socket: ours, isolation, exit: None, layer })
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

/// The server's pid, a pidfd of it, and its layer with the time when that was laid out.
type Start = (u32, OwnedFd, Option<(OwnedFd, SystemTime)>);

/// Waits for the records of a start: the server's pid, then that it runs.
fn await_start(
    spec: &LaunchSpec<'_>,
    job: &InitJob,
    socket: &OwnedFd,
    guard: &mut InitGuard,
) -> Result<Start, LaunchError> {
    let io_error = |error| LaunchError::Step { step: "hear from init", error };
    let timeout = PollTimeout::try_from(READY_S * 1000).unwrap_or(PollTimeout::MAX);
    let (mut server, mut layer) = (None, None);
    loop {
        let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, timeout) {
            Ok(0) => return Err(LaunchError::Timeout { timeout_s: READY_S }),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(io_error(errno.into())),
        }
        match receive(socket).map_err(io_error)? {
            Some((Record::Layer, _, top)) => layer = top.map(|top| (top, SystemTime::now())),
            Some((Record::Hello, sender, _)) => {
                let pid = sender.pid();
                let pidfd = pidfd_open(pid).map_err(io_error)?;
                server = Some((pid.cast_unsigned(), pidfd));
                // The server is stopped until now, so that the pid is surely its own.
                send(socket.as_raw_fd(), b"g", MsgFlags::MSG_NOSIGNAL)
                    .map_err(|errno| io_error(errno.into()))?;
            }
            Some((Record::Started, ..)) => {
                let (pid, process) = server.ok_or_else(|| io_error(Errno::ESRCH.into()))?;
                return Ok((pid, process, layer));
            }
            Some((Record::Failed { stage, index, errno }, ..)) => {
                return Err(failure(spec, job, stage, index, Errno::from_raw(errno)));
            }
            Some((Record::Exited { status }, ..)) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_leave_out_what_is_kept() {
        assert_eq!(gaps(vec![], 3), [(3, u32::MAX)]);
        assert_eq!(gaps(vec![901, 900], 3), [(3, 899), (902, u32::MAX)]);
        assert_eq!(gaps(vec![0, 1, 5, 5], 0), [(2, 4), (6, u32::MAX)]);
    }
}
