//! The ways to run a server: alone, behind a plain proxy, and under Skein; and bare replication instead of the server.
//!
//! A target is started fresh for every measurement and is gone after it: none runs beside another,
//! and no log or memory of an earlier round is carried over.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::bare;
use super::process::{self, Kept};
use super::servers::{Server, Workload};
use super::wire::free_address;
use nix::sys::signal::Signal;

use skein_testkit::cluster::find_command;
use skein_testkit::cluster::status::Status;
use skein_testkit::{Failure, Outcome};

/// How long a target may take to serve, and a cluster to answer or to stop.
const START_MAX: Duration = Duration::from_secs(30);

/// Pause between two looks.
const LOOK_AFTER: Duration = Duration::from_millis(5);

/// One way to run a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The server alone.
    Native,
    /// A plain TCP proxy in front of the server.
    Proxy,
    /// One replica, log in memory.
    #[serde(rename = "skein-1-memory")]
    OneMemory,
    /// Three replicas, log in memory.
    #[serde(rename = "skein-3-memory")]
    ThreeMemory,
    /// Three replicas, log on disk.
    #[serde(rename = "skein-3-fsync")]
    ThreeFsync,
    /// Replication without a server, on two disks: a baseline for servers with goals.
    #[serde(rename = "bare-3-fsync")]
    Bare,
}

impl Target {
    /// All, in the order of tables; the others are compared with the first.
    pub const ALL: [Self; 6] = [
        Self::Native,
        Self::Proxy,
        Self::OneMemory,
        Self::ThreeMemory,
        Self::ThreeFsync,
        Self::Bare,
    ];

    /// The ways in which a server is measured, in the order of tables.
    pub fn of(server: Server) -> impl Iterator<Item = Self> {
        let bare = server.workload().has_goals();
        Self::ALL.into_iter().filter(move |target| bare || *target != Self::Bare)
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Proxy => "plain TCP proxy",
            Self::OneMemory => "Skein, 1 replica, memory",
            Self::ThreeMemory => "Skein, 3 replicas, memory",
            Self::ThreeFsync => "Skein, 3 replicas, fsync",
            Self::Bare => "bare replication, fsync",
        }
    }

    /// The way of this name.
    fn way(self) -> Way {
        match self {
            Self::Native => Way::Native,
            Self::Proxy => Way::Proxy,
            Self::OneMemory => Way::Skein { replicas: 1, durability: "memory" },
            Self::ThreeMemory => Way::Skein { replicas: 3, durability: "memory" },
            Self::ThreeFsync => Way::Skein { replicas: 3, durability: "fsync" },
            Self::Bare => Way::Bare,
        }
    }

    /// Starts `server` this way and waits until it serves.
    pub fn start(self, server: Server) -> Outcome<Running> {
        self.way().start(server.workload())
    }

    /// The same with another build's `skein`.
    pub fn start_by(self, skein: &Path, server: Server) -> Outcome<Running> {
        self.way().start_by(Some(skein), server.workload())
    }
}

/// How processes are arranged.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// The server alone.
    Native,
    /// A plain TCP proxy in front of it.
    Proxy,
    /// Replicas with this durability.
    Skein {
        /// How many.
        replicas: u64,
        /// `memory` or `fsync`.
        durability: &'static str,
    },
    /// One active replica, a passive one and a witness, with this durability.
    Standby {
        /// `memory` or `fsync`.
        durability: &'static str,
    },
    /// No server: [`bare`].
    Bare,
}

impl Way {
    /// Starts a server this way and waits until it serves.
    pub fn start(self, server: &dyn Workload) -> Outcome<Running> {
        self.start_by(None, server)
    }

    fn start_by(self, skein: Option<&Path>, server: &dyn Workload) -> Outcome<Running> {
        let service = free_address()?;
        let running = match self {
            Self::Native => {
                let prepared = Prepared::of(server, service.port())?;
                let kept = vec![prepared.start()?];
                Running::Processes { service, kept, beside: Vec::new(), _prepared: prepared }
            }
            Self::Proxy => {
                let behind = free_address()?;
                let prepared = Prepared::of(server, behind.port())?;
                let served = prepared.start()?;
                await_service(server, behind)?;
                let ends = [service.to_string(), behind.to_string()];
                let proxy = Kept::start(own()?.arg("bench-proxy").args(ends))?;
                let kept = vec![proxy, served];
                Running::Processes { service, kept, beside: Vec::new(), _prepared: prepared }
            }
            Self::Bare => {
                let prepared = Prepared::nothing()?;
                let inside = free_address()?.to_string();
                let ends = [service.to_string(), inside.clone()];
                let leader = Kept::start(own()?.args(["bench-bare", "leader"]).args(ends))?;
                let copy = |n: usize| {
                    let file = prepared.files.path().join(format!("copy-{n}"));
                    Kept::start(own()?.args(["bench-bare", "copy", &inside]).arg(file))
                };
                let beside = (0..bare::COPIES).map(copy).collect::<Outcome<Vec<Kept>>>()?;
                Running::Processes { service, kept: vec![leader], beside, _prepared: prepared }
            }
            Self::Skein { replicas, durability } => {
                Running::Skein(Cluster::by(skein, server, service, replicas, durability)?)
            }
            Self::Standby { durability } => {
                let options = ["--mode", "standby", "--durability", durability];
                let cluster = Cluster::with(skein, server, service, 3, &options)?;
                // The passive one may have led first, and hands over.
                await_some("the active replica to lead", || {
                    Ok((cluster.whole()?.leader()?.id == 1).then_some(()))
                })?;
                Running::Skein(cluster)
            }
        };
        await_service(server, service)?;
        server.fill(service)?;
        Ok(running)
    }
}

/// A started target; dropping it stops it.
pub enum Running {
    /// The server, perhaps behind the proxy.
    Processes {
        /// Where clients connect.
        service: SocketAddr,
        /// All processes on a request's way, first the one that clients connect to.
        kept: Vec<Kept>,
        /// The processes that keep copies.
        beside: Vec<Kept>,
        /// Its configuration and data, and its helpers.
        _prepared: Prepared,
    },
    /// `skein run`, detached.
    Skein(Cluster),
}

/// A cluster's counters.
#[derive(Debug, Clone)]
pub struct Counts {
    /// The newest entry that the leader has executed.
    pub entries: u64,
    /// Calls of the leader's server that the net has caught, by name.
    pub traps: BTreeMap<String, u64>,
    /// Bytes between the nodes.
    pub wire_bytes: u64,
    /// Entries that the leader has proposed; time bubbles and entries for a timer among them.
    pub proposed: u64,
    /// See `proposed`.
    pub bubbles: u64,
    /// See `proposed`.
    pub clocks: u64,
}

impl Counts {
    /// Calls that the net has caught since `first`, by name.
    pub fn traps_since(&self, first: &Self) -> BTreeMap<String, u64> {
        let more = |(name, count): (&String, &u64)| {
            let before = first.traps.get(name).copied().unwrap_or_default();
            let more = count.saturating_sub(before);
            (more > 0).then(|| (name.clone(), more))
        };
        self.traps.iter().filter_map(more).collect()
    }
}

/// A detached cluster.
pub struct Cluster {
    /// Where clients connect.
    pub service: SocketAddr,
    command: PathBuf,
    name: String,
    replicas: u64,
    data: tempfile::TempDir,
    _prepared: Prepared,
}

impl Running {
    /// Where clients connect.
    pub fn service(&self) -> SocketAddr {
        match self {
            Self::Processes { service, .. } => *service,
            Self::Skein(cluster) => cluster.service,
        }
    }

    /// The processes on a request's way: the server with proxy, or the leader's node and server, each with its descendants.
    pub fn pids_on_the_way(&self) -> Outcome<Vec<i32>> {
        match self {
            Self::Processes { kept, .. } => Ok(process::trees(kept.iter().map(Kept::pid))),
            // A node's init, and below it the server's processes, are its children.
            Self::Skein(cluster) => Ok(process::trees([cluster.whole()?.leader()?.node_pid])),
        }
    }

    /// Skein's counters so far; nothing where there is no Skein.
    pub fn counts(&self) -> Outcome<Option<Counts>> {
        match self {
            Self::Processes { .. } => Ok(None),
            Self::Skein(cluster) => {
                let status = cluster.whole()?;
                let leader = status.leader()?;
                Ok(Some(Counts {
                    entries: leader.applied_index,
                    traps: leader.trapped_calls.clone(),
                    wire_bytes: status.replicas().iter().map(|at| at.counts.peer_out_bytes).sum(),
                    proposed: leader.counts.proposed_entries,
                    bubbles: leader.counts.bubbles,
                    clocks: leader.counts.clock_entries,
                }))
            }
        }
    }

    /// Memory of the leader's node and of the server with its descendants [bytes]; `None` where there is no node.
    pub fn resident(&self) -> Outcome<(Option<u64>, u64)> {
        match self {
            Self::Processes { .. } => Ok((None, process::resident(&self.pids_on_the_way()?))),
            Self::Skein(cluster) => {
                let node = cluster.whole()?.leader()?.node_pid;
                let server: Vec<i32> =
                    process::trees([node]).into_iter().filter(|pid| *pid != node).collect();
                Ok((Some(process::resident(&[node])), process::resident(&server)))
            }
        }
    }

    /// All its processes.
    pub fn pids(&self) -> Outcome<Vec<i32>> {
        match self {
            Self::Processes { kept, beside, .. } => {
                Ok(process::trees(kept.iter().chain(beside).map(Kept::pid)))
            }
            Self::Skein(cluster) => Ok(process::trees(cluster.whole()?.pids())),
        }
    }
}

impl Cluster {
    /// Starts `replicas` of `server` and waits until all run.
    pub fn start(
        server: Server,
        service: SocketAddr,
        replicas: u64,
        durability: &str,
    ) -> Outcome<Self> {
        Self::of(server.workload(), service, replicas, durability)
    }

    /// As [`Self::start`], for a server outside the table.
    pub fn of(
        server: &dyn Workload,
        service: SocketAddr,
        replicas: u64,
        durability: &str,
    ) -> Outcome<Self> {
        Self::by(None, server, service, replicas, durability)
    }

    /// The same with another build's `skein`, and the runtime beside it.
    pub fn by(
        skein: Option<&Path>,
        server: &dyn Workload,
        service: SocketAddr,
        replicas: u64,
        durability: &str,
    ) -> Outcome<Self> {
        Self::with(skein, server, service, replicas, &["--durability", durability])
    }

    /// The same with these options of `skein run`.
    pub fn with(
        skein: Option<&Path>,
        server: &dyn Workload,
        service: SocketAddr,
        replicas: u64,
        options: &[&str],
    ) -> Outcome<Self> {
        let command = skein.map_or_else(find_command, |path| Ok(path.to_owned()))?;
        let data = tempfile::Builder::new()
            .prefix("skein-bench-")
            .tempdir_in(data_root())
            .map_err(|error| Failure::of("cannot make a temporary directory", error))?;
        let name = format!("bench-{}-{}", std::process::id(), service.port());
        let prepared = Prepared::of(server, service.port())?;
        let words = prepared.command.clone();
        let cluster = Self { service, command, name, replicas, data, _prepared: prepared };
        let mut run = Command::new(&cluster.command);
        if skein.is_some() {
            run.env_remove("SKEIN_RUNTIME");
        }
        run.args(["run", "--detach", "--name", &cluster.name])
            .args(options)
            .args(["--replicas", &replicas.to_string(), "--data"])
            .arg(cluster.data())
            .arg("--")
            .args(words);
        process::output(&mut run, START_MAX)?;
        cluster.whole()?;
        Ok(cluster)
    }

    /// The status, as soon as all replicas do all that they are to do.
    pub fn whole(&self) -> Outcome<Status> {
        await_some("all replicas to run", || {
            Ok(self.status().filter(|status| status.is_whole(self.replicas)))
        })
    }

    /// The output of `skein` with these words for this cluster.
    pub fn skein(&self, words: &[&str]) -> Outcome<String> {
        let mut command = Command::new(&self.command);
        process::output(command.args(words).args(["--name", &self.name]), START_MAX)
    }

    /// Where its replicas have their data: `node-1` and so on.
    fn data(&self) -> PathBuf {
        self.data.path().join("cluster")
    }

    /// The output of `skein status`; nothing while it fails.
    fn status(&self) -> Option<Status> {
        let output = Command::new(&self.command)
            .args(["status", "--json", "--name", &self.name])
            .output()
            .ok()?;
        Status::parse(&output.stdout).ok()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = Command::new(&self.command);
        stop.args(["stop", "--name", &self.name]);
        if let Err(failure) = process::output(&mut stop, START_MAX) {
            eprintln!("xtask: {failure}; its data are in {}", self.data.path().display());
        }
    }
}

/// The directory of logs: on a disk, which the temporary directory is not everywhere.
pub fn data_root() -> PathBuf {
    let temporary = std::env::temp_dir();
    let in_memory = nix::sys::statfs::statfs(&temporary)
        .is_ok_and(|at| at.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC);
    if in_memory { Path::new("/var/tmp").to_path_buf() } else { temporary }
}

/// This program.
fn own() -> Outcome<Command> {
    let own = std::env::current_exe();
    own.map(Command::new).map_err(|error| Failure::of("cannot find this program", error))
}

/// A server's helpers and files; ended and removed when dropped.
pub struct Prepared {
    command: Vec<String>,
    farewell: Option<Signal>,
    _beside: Vec<Kept>,
    /// Readable by the user that the server becomes.
    files: tempfile::TempDir,
}

impl Prepared {
    fn of(workload: &dyn Workload, port: u16) -> Outcome<Self> {
        let mut prepared = Self::nothing()?;
        let files = prepared.files.path();
        workload.prepare(files, port)?;
        prepared._beside = workload.beside(files)?;
        prepared.command = workload.command(files, port);
        prepared.farewell = workload.farewell();
        Ok(prepared)
    }

    /// An empty directory.
    fn nothing() -> Outcome<Self> {
        let files = tempfile::Builder::new()
            .prefix("skein-bench-files-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir_in(data_root())
            .map_err(|error| Failure::of("cannot make a temporary directory", error))?;
        Ok(Self { command: Vec::new(), farewell: None, _beside: Vec::new(), files })
    }

    fn start(&self) -> Outcome<Kept> {
        let kept = Kept::start(Command::new(&self.command[0]).args(&self.command[1..]))?;
        Ok(kept.ended_by(self.farewell))
    }
}

fn await_service(server: &dyn Workload, service: SocketAddr) -> Outcome {
    await_some(&format!("{} to serve at {service}", server.heading()), || {
        Ok(server.probe(service).ok())
    })
}

/// Looks until `probe` finds something, for a bounded time.
pub fn await_some<T>(what: &str, probe: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    await_within(START_MAX, what, probe)
}

/// The same for another time.
pub fn await_within<T>(
    longest: Duration,
    what: &str,
    mut probe: impl FnMut() -> Outcome<Option<T>>,
) -> Outcome<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe()? {
            return Ok(found);
        }
        if start.elapsed() > longest {
            return Err(Failure(format!("waited {} s in vain for {what}", longest.as_secs())));
        }
        std::thread::sleep(LOOK_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_were_caught_meanwhile_are_named() {
        let counts = |traps: &[(&str, u64)]| Counts {
            entries: 0,
            traps: traps.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            wire_bytes: 0,
            proposed: 0,
            bubbles: 0,
            clocks: 0,
        };
        let first = counts(&[("clone", 9), ("read", 22)]);
        let last = counts(&[("clone", 12), ("read", 22), ("rdtsc", 5)]);
        let found: Vec<(String, u64)> = last.traps_since(&first).into_iter().collect();
        assert_eq!(found, [("clone".to_owned(), 3), ("rdtsc".to_owned(), 5)]);
    }
}
