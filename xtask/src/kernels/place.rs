//! The directory of all that is not kept, and what runs on this host.
//!
//! It has the same path on all machines, as a restored server has its files where it had them. A shell removes it when the last holder of a pipe has ended: this process, and the one
//! that runs servers on the host. Neither has to be able to clean up.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use skein_testkit::{Failure, Outcome};

use crate::interrupt::Interrupt;

/// The directory.
pub const DIR: &str = "/tmp/skein-kernels";

/// How often a machine's time and Ctrl-C are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long the servers of this host may take to stop when they are told to.
const STOP_MAX: Duration = Duration::from_secs(60);

/// The directory, while this process uses it.
pub struct WorkPlace {
    keeper: Child,
    held: OwnedFd,
}

impl WorkPlace {
    /// Makes it, and starts what removes it.
    pub fn make() -> Outcome<Self> {
        fs::DirBuilder::new().mode(0o755).create(DIR).map_err(|error| {
            Failure(format!("{DIR}: {error}; wait for the end of another run, or remove it"))
        })?;
        let failed = |error| Failure::of("cannot run sh", error);
        let started = Command::new("sh")
            .args(["-c", "cat >/dev/null; rm -rf \"$0\"", DIR])
            .stdin(Stdio::piped())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn();
        let mut keeper = match started {
            Ok(keeper) => keeper,
            Err(error) => {
                let _ = fs::remove_dir(DIR);
                return Err(failed(error));
            }
        };
        let held = keeper.stdin.take().ok_or_else(|| Failure("sh has no pipe".to_owned()))?;
        let place = Self { keeper, held: held.into() };
        let tmp = Path::new(DIR).join("tmp");
        fs::create_dir(&tmp)
            .and_then(|()| fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)))
            .map_err(|error| Failure::of(tmp.display(), error))?;
        Ok(place)
    }

    /// Waits until it is gone.
    pub fn remove(self) -> Outcome {
        let Self { mut keeper, held } = self;
        drop(held);
        keeper.wait().map_err(|error| Failure::of("cannot wait for sh", error))?;
        if Path::new(DIR).exists() { Err(Failure(format!("{DIR} is still there"))) } else { Ok(()) }
    }

    /// A new directory for what a machine gives; it was there if the machine was visited before.
    pub fn out(&self, machine: &str) -> Outcome<PathBuf> {
        let dir = Path::new(DIR).join("given").join(machine);
        let mut dir = dir;
        while dir.exists() {
            dir.as_mut_os_string().push("-again");
        }
        fs::create_dir_all(&dir).map_err(|error| Failure::of(dir.display(), error))?;
        Ok(dir)
    }

    /// Runs the plan on this host, in a process of its own, which stops its servers when this one ends.
    pub fn on_host(
        &self,
        out: &Path,
        limit: Duration,
        interrupt: &Interrupt,
        tell: impl FnMut(&str),
    ) -> Outcome {
        let failed = |error| Failure::of("cannot run this program again", error);
        let program = std::env::current_exe().map_err(failed)?;
        let held = self.held.try_clone().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("kernels-inside").arg(out).stdin(Stdio::from(held));
        command.env("TMPDIR", Path::new(DIR).join("tmp"));
        let mut child = start(&mut command, Signal::SIGTERM)?;
        let followed = follow(&mut child, limit, interrupt, tell);
        if followed.is_err() {
            end_in_order(&mut child);
        }
        followed
    }
}

/// Starts a process that gets a signal when this one ends; its output is a pipe.
pub fn start(command: &mut Command, at_end: Signal) -> Outcome<Child> {
    let name = command.get_program().to_string_lossy().into_owned();
    // SAFETY: prctl is async-signal-safe and touches nothing of the parent's.
    unsafe {
        command.pre_exec(move || Ok(prctl::set_pdeathsig(at_end)?));
    }
    let spawned = command.stdout(Stdio::piped()).spawn();
    spawned.map_err(|error| Failure::of(format!("cannot run {name}"), error))
}

/// Passes a process' lines on until it ends. Fails at the deadline, at Ctrl-C, and when it ends with a failure; it may run then.
pub fn follow(
    child: &mut Child,
    limit: Duration,
    interrupt: &Interrupt,
    mut tell: impl FnMut(&str),
) -> Outcome {
    let from = child.stdout.take().ok_or_else(|| Failure("there is no output".to_owned()))?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            // To its end, whoever listens: it has to stop its servers when nobody does.
            let _ = sender.send(text);
        }
    });
    let begun = Instant::now();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(line) => tell(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        interrupt.check()?;
        if begun.elapsed() > limit {
            return Err(Failure(format!("it has not ended after {} s", limit.as_secs())));
        }
    }
    let status = child.wait().map_err(|error| Failure::of("cannot wait for it", error))?;
    if status.success() { Ok(()) } else { Err(Failure(format!("it ended with {status}"))) }
}

/// SIGTERM, and SIGKILL if that does not help.
fn end_in_order(child: &mut Child) {
    let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if begun.elapsed() > STOP_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(LOOK);
    }
}
