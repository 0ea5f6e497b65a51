//! The processes of one contender: started, measured and ended together.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use super::sample::{Finding, Lone};
use crate::load::{self, Alone, Throughput};
use crate::process::{self, Kept};
use crate::servers::Server;
use crate::target::{self, Target, data_root};
use skein_testkit::{Failure, Outcome};

/// How long a group may take to be complete.
const START_MAX: Duration = Duration::from_secs(40);

/// Pause between two looks.
const LOOK_AFTER: Duration = Duration::from_millis(10);

/// Processes with a directory of their own.
pub struct Group {
    // Before the directory: they must be gone when it is removed.
    kept: Vec<Option<Kept>>,
    files: tempfile::TempDir,
    /// The signal that asks its processes to end before they are killed.
    farewell: Option<Signal>,
}

impl Group {
    /// No process yet, and an empty directory on the disk that Skein's logs would use.
    pub fn new() -> Outcome<Self> {
        let files = tempfile::Builder::new()
            .prefix("skein-bench-peer-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir_in(data_root())
            .map_err(|error| Failure::of("cannot make a temporary directory", error))?;
        Ok(Self { kept: Vec::new(), files, farewell: None })
    }

    /// The same, whose processes are asked to end by a signal first.
    pub fn ended_by(farewell: Signal) -> Outcome<Self> {
        let mut group = Self::new()?;
        group.farewell = Some(farewell);
        Ok(group)
    }

    /// Its directory's part `name`, made if it is not there.
    pub fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.files.path().join(name);
        std::fs::create_dir_all(&path).map_err(|error| Failure::of(path.display(), error))?;
        Ok(path)
    }

    /// A file in its directory.
    pub fn file(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        let path = self.files.path().join(name);
        std::fs::write(&path, text).map_err(|error| Failure::of(path.display(), error))?;
        Ok(path)
    }

    /// Starts one more process; its number.
    pub fn start(&mut self, words: &[String]) -> Outcome<usize> {
        self.kept.push(Some(self.begin(words)?));
        Ok(self.kept.len() - 1)
    }

    /// Kills process `number` and starts another in its place.
    pub fn restart(&mut self, number: usize, words: &[String]) -> Outcome {
        self.kept[number] = None;
        self.kept[number] = Some(self.begin(words)?);
        Ok(())
    }

    fn begin(&self, words: &[String]) -> Outcome<Kept> {
        let kept = Kept::start(Command::new(&words[0]).args(&words[1..]))?;
        Ok(kept.ended_by(self.farewell))
    }

    /// The pid of process `number`.
    pub fn pid(&self, number: usize) -> Outcome<i32> {
        let kept = self.kept.get(number).and_then(Option::as_ref);
        kept.map(Kept::pid).ok_or_else(|| Failure(format!("process {number} does not run")))
    }

    /// All its processes and what they started.
    fn pids(&self) -> Vec<i32> {
        process::trees(self.kept.iter().flatten().map(Kept::pid))
    }
}

/// A contender that serves.
pub enum Running {
    /// A peer; clients connect to the address.
    Group(Group, SocketAddr),
    /// The server alone or under Skein, as everywhere else.
    Target(target::Running),
}

impl Running {
    /// Starts a contender that another module measures, too; nothing when `id` is none.
    pub fn known(id: &str, server: Server) -> Option<Outcome<Self>> {
        let target = match id {
            "alone" => Target::Native,
            "skein-3-memory" => Target::ThreeMemory,
            "skein-3-fsync" => Target::ThreeFsync,
            _ => return None,
        };
        Some(target.start(server).map(Self::Target))
    }

    /// Where clients connect.
    pub fn service(&self) -> SocketAddr {
        match self {
            Self::Group(_, service) => *service,
            Self::Target(running) => running.service(),
        }
    }

    /// All processes: every replica, everywhere.
    fn pids(&self) -> Outcome<Vec<i32>> {
        match self {
            Self::Group(group, _) => Ok(group.pids()),
            Self::Target(running) => running.pids(),
        }
    }

    /// One client alone, then a crowd with what it costs: CPU time and bytes to disk of all processes, by request.
    pub fn measure(
        &self,
        requests: u32,
        alone: impl FnOnce(SocketAddr) -> Outcome<Alone>,
        crowd: impl FnOnce(SocketAddr) -> Outcome<Vec<Throughput>>,
    ) -> Outcome<Finding> {
        let service = self.service();
        let alone = alone(service)?;
        let pids = self.pids()?;
        let before = (process::cpu_used(&pids)?, load::cpu_used()?, process::disk_written(&pids));
        let done = crowd(service)?;
        let after = (process::cpu_used(&pids)?, load::cpu_used()?, process::disk_written(&pids));
        let requests = f64::from(requests) * done.len() as f64;
        let us = |used: Duration| used.as_secs_f64() * 1e6 / requests;
        Ok(Finding {
            operations: done,
            cpu_us: Some(us(after.0.saturating_sub(before.0))),
            cpu_load_us: Some(us(after.1.saturating_sub(before.1))),
            disk_bytes: Some(after.2.saturating_sub(before.2) as f64 / requests),
            alone: Some(Lone::of(&alone)),
            faults: Vec::new(),
        })
    }
}

/// Tries until `probe` succeeds; `what` names the condition in the error.
pub fn await_so(what: &str, mut is_so: impl FnMut() -> Outcome<bool>) -> Outcome {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > START_MAX {
            return Err(Failure(format!("waited {} s in vain for {what}", START_MAX.as_secs())));
        }
        std::thread::sleep(LOOK_AFTER);
    }
    Ok(())
}

/// Copies a folder with its owners.
pub fn copy(from: &Path, to: &Path) -> Outcome {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"]).args([from, to]);
    process::output(&mut copy, START_MAX).map(drop)
}

/// The prefix of a command that must not run as root; empty where this process is not root.
pub fn as_user(user: &str) -> Vec<String> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    // The request to die with this process is lost when the user changes: it is repeated.
    let mut all = words(&["setpriv", "--pdeathsig", "KILL", "--clear-groups"]);
    all.extend([format!("--reuid={user}"), format!("--regid={user}")]);
    all
}

/// Gives a file or a folder with all in it to that user.
pub fn own(path: &Path, user: &str) -> Outcome {
    if !geteuid().is_root() {
        return Ok(());
    }
    let mut chown = Command::new("chown");
    chown.args(["-R", &format!("{user}:{user}")]).arg(path);
    process::output(&mut chown, START_MAX).map(drop)
}

/// A command from its words.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the process exists and has not ended; an unreaped process counts as ended.
    fn runs(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    #[test]
    fn processes_of_a_group_are_gone_with_it() {
        let mut group = Group::new().expect("a directory");
        let number = group.start(&words(&["sleep", "60"])).expect("sleep");
        let first = group.pid(number).expect("runs");
        group.restart(number, &words(&["sleep", "60"])).expect("sleep");
        let second = group.pid(number).expect("runs");
        assert!(!runs(first) && runs(second));
        drop(group);
        assert!(!runs(second));
    }

    #[test]
    fn processes_are_asked_to_end_before_they_are_killed() {
        let mut group = Group::ended_by(Signal::SIGQUIT).expect("a directory");
        let told = tempfile::NamedTempFile::new().expect("a file");
        let path = told.path().display();
        let script = format!(
            "trap 'echo asked > {path}; exit' QUIT; echo up > {path}; while :; do sleep 0.01; done"
        );
        group.start(&words(&["sh", "-c", &script])).expect("sh");
        let said = || std::fs::read_to_string(told.path()).unwrap_or_default();
        await_so("the script", || Ok(said() == "up\n")).expect("it starts");
        drop(group);
        assert_eq!(said(), "asked\n");
    }
}
