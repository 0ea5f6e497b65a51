//! A cluster on this machine, driven by the `skein` command alone, for the demonstration and the zoo.
//!
//! Owns the process of `skein run`, the data directory and the list of all processes ever seen in
//! `skein status`. Dropping it stops the cluster.

mod images;
pub mod status;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

pub use self::images::{Taken, difference};
use self::status::Status;
use crate::workspace;
use crate::{Failure, Outcome};

/// The longest time to stop before it counts as a failure.
const STOP_MAX: Duration = Duration::from_secs(20);

/// Exit status of `skein status` when there is no such cluster.
const NOT_RUNNING: i32 = 3;

/// Exit status of `skein files` and `skein verify` when they cannot tell.
const UNTOLD: i32 = 2;

/// How many events of the nodes are shown.
const EVENTS_TOLD: usize = 40;

/// The program of a cluster.
pub struct Server<'a> {
    /// Options of `skein run`.
    pub options: &'a [String],
    /// The program and its arguments.
    pub command: &'a [String],
}

/// The memory of a server that is that of the other replicas' servers, too.
#[derive(Debug, Deserialize)]
pub struct Equal {
    /// The number of its processes.
    pub processes: usize,
    /// Pages with something in them.
    pub pages: u64,
    /// Files that it has written.
    pub files: u64,
}

#[derive(Deserialize)]
struct Report {
    replicas: Vec<Equal>,
}

/// A running `skein run`.
pub struct Cluster {
    command: PathBuf,
    name: String,
    replicas: u64,
    run: Child,
    /// Processes, and when each began: their numbers come again.
    seen: BTreeSet<(i32, u64)>,
    data: Option<tempfile::TempDir>,
}

impl Cluster {
    /// Starts the server in `replicas` replicas, in the working directory `place`; its output is passed on, line by line.
    pub fn start(purpose: &str, replicas: u64, place: &Path, server: &Server<'_>) -> Outcome<Self> {
        let command = find_command()?;
        let data = tempfile::Builder::new()
            .prefix(&format!("skein-{purpose}-"))
            .tempdir()
            .map_err(|error| Failure::of("cannot make a temporary directory", error))?;
        let name = format!("{purpose}-{}", std::process::id());
        let mut run = Command::new(&command)
            .args(["run", "--name", &name, "--replicas", &replicas.to_string(), "--data"])
            .arg(data.path().join("cluster"))
            .args(server.options)
            .arg("--")
            .args(server.command)
            .current_dir(place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A process group of its own: Ctrl-C comes to this process first, and it stops the cluster itself.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::of(format!("cannot run {}", command.display()), error))?;
        pass_on(run.stdout.take());
        pass_on(run.stderr.take());
        Ok(Self { command, name, replicas, run, seen: BTreeSet::new(), data: Some(data) })
    }

    /// Fails when the cluster has ended for any reason: it has printed the reason itself.
    pub fn check(&mut self) -> Outcome {
        match self.ended()? {
            Some(ended) => Err(Failure(format!("skein run ended by itself: {ended}"))),
            None => Ok(()),
        }
    }

    /// The status, once all replicas run.
    pub fn healthy(&mut self) -> Outcome<Option<Status>> {
        let replicas = self.replicas;
        Ok(self.status()?.filter(|status| status.is_whole(replicas)))
    }

    /// The status, once another replica than `old` leads.
    pub fn led_by_other_than(&mut self, old: u64) -> Outcome<Option<Status>> {
        let led = |status: &Status| status.leader().is_ok_and(|leader| leader.id != old);
        Ok(self.status()?.filter(led))
    }

    /// The replicas' common digest, once they are level.
    pub fn equal_digests(&mut self) -> Outcome<Option<String>> {
        self.status()?.map_or(Ok(None), |status| status.equal_digests())
    }

    /// Stops everything and checks that nothing is left.
    pub fn stop(&mut self) -> Outcome {
        let asked = self.skein(&["stop", "--name", &self.name])?;
        if !asked.status.success() {
            let said = String::from_utf8_lossy(&asked.stderr).trim().to_owned();
            return Err(Failure::of(format!("skein stop: {}", asked.status), said));
        }
        let start = Instant::now();
        while self.ended()?.is_none() || self.left().next().is_some() {
            if start.elapsed() > STOP_MAX {
                let left: Vec<i32> = self.left().collect();
                return Err(Failure(format!("skein stop left processes: {left:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let after = self.skein(&["status", "--name", &self.name])?;
        if after.status.code() != Some(NOT_RUNNING) {
            return Err(Failure("skein status still knows the stopped cluster".to_owned()));
        }
        let Some(data) = self.data.take() else { return Ok(()) };
        data.close().map_err(|error| Failure::of("cannot remove the data directory", error))
    }

    /// The output of `skein status`; nothing while the cluster is not running yet.
    fn status(&mut self) -> Outcome<Option<Status>> {
        self.check()?;
        let output = self.skein(&["status", "--name", &self.name, "--json"])?;
        // Before the first replica is up there is no status.
        if output.status.code() == Some(NOT_RUNNING) || output.stdout.is_empty() {
            return Ok(None);
        }
        let status = Status::parse(&output.stdout)?;
        self.seen.extend(status.pids().filter_map(|pid| Some((pid, began(pid)?))));
        Ok(Some(status))
    }

    /// Whether the replicas' servers have written the same files; nothing while that is unknown.
    pub fn equal_files(&self) -> Outcome<Option<()>> {
        self.equal("files")
    }

    /// Whether the replicas' servers have the same memory; nothing while that is unknown.
    pub fn equal_memory(&self) -> Outcome<Option<()>> {
        self.equal("verify")
    }

    /// How much of their memory is compared, and is the same; nothing while that is unknown.
    pub fn equal_pages(&self) -> Outcome<Option<Equal>> {
        let compared = self.skein(&["verify", "--name", &self.name, "--json"])?;
        if Self::compared("verify", &compared)?.is_none() {
            return Ok(None);
        }
        let report: Report = serde_json::from_slice(&compared.stdout)
            .map_err(|error| Failure::of("what skein verify says", error))?;
        Ok(report.replicas.into_iter().next())
    }

    fn equal(&self, what: &str) -> Outcome<Option<()>> {
        Self::compared(what, &self.skein(&[what, "--name", &self.name])?)
    }

    fn compared(what: &str, compared: &Output) -> Outcome<Option<()>> {
        match compared.status.code() {
            Some(0) => Ok(Some(())),
            Some(UNTOLD) => Ok(None),
            _ => {
                let said = String::from_utf8_lossy(&compared.stdout).into_owned()
                    + &String::from_utf8_lossy(&compared.stderr);
                Err(Failure::of(format!("skein {what}: {}", compared.status), said.trim()))
            }
        }
    }

    /// The data directory of a replica's node.
    fn node_dir(&self, replica: u64) -> Option<PathBuf> {
        let data = self.data.as_ref()?.path();
        Some(data.join("cluster").join(format!("node-{replica}")))
    }

    /// The data directories stay when the cluster has ended; answers where they are.
    pub fn keep_data(&mut self) -> Option<PathBuf> {
        self.data.take().map(tempfile::TempDir::keep)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The output of `skein status` and the end of `skein logs`, for people.
    pub fn tell(&self) -> String {
        let text = |arguments: &[&str]| match self.skein(arguments) {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(failure) => failure.to_string(),
        };
        let events = text(&["logs", "--name", &self.name]);
        let lines: Vec<&str> = events.lines().collect();
        let last = lines[lines.len().saturating_sub(EVENTS_TOLD)..].join("\n");
        format!("{}\n{last}", text(&["status", "--name", &self.name]))
    }

    fn skein(&self, arguments: &[&str]) -> Outcome<Output> {
        Command::new(&self.command)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::of(format!("cannot run skein {}", arguments[0]), error))
    }

    fn ended(&mut self) -> Outcome<Option<std::process::ExitStatus>> {
        self.run.try_wait().map_err(|error| Failure::of("cannot wait for skein run", error))
    }

    /// Processes of the cluster that still exist.
    fn left(&self) -> impl Iterator<Item = i32> {
        let runs = |(pid, begun): &&(i32, u64)| began(*pid) == Some(*begun);
        self.seen.iter().filter(runs).map(|(pid, _)| *pid)
    }
}

/// When a process began, in ticks since the machine did; `None`: there is no such process.
fn began(pid: i32) -> Option<u64> {
    /// Words from the one behind the command's name to this one.
    const WORDS: usize = 19;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(WORDS)?.parse().ok()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // After `stop` there is nothing to do. Otherwise the command gets the signal that Ctrl-C sends,
        // and is killed when it does not obey: its nodes then die with it or by their next run.
        if !matches!(self.run.try_wait(), Ok(None)) {
            return;
        }
        let pid = Pid::from_raw(self.run.id().cast_signed());
        let _ = kill(pid, Signal::SIGINT);
        let start = Instant::now();
        while matches!(self.run.try_wait(), Ok(None)) {
            if start.elapsed() > STOP_MAX {
                let _ = self.run.kill();
                let _ = self.run.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The command beside this program, or the one that the environment names.
pub fn find_command() -> Outcome<PathBuf> {
    let release = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace::root().join("target"), PathBuf::from)
        .join("release/skein");
    let command = std::env::var_os("SKEIN_BIN").map_or(release, PathBuf::from);
    if command.is_file() {
        return Ok(command);
    }
    let say = format!("{} does not exist; build it: cargo build --release", command.display());
    Err(Failure(say))
}

/// Prints every line of `from` behind a prefix, in a thread that ends with the pipe.
fn pass_on(from: Option<impl Read + Send + 'static>) {
    let Some(from) = from else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // A caller whose output nobody reads any more has a cluster to stop all the same.
            let _ = writeln!(std::io::stdout(), "skein  | {line}");
        }
    });
}
