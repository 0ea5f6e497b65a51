//! Nodes of one cluster on this machine as on several hosts: each with a configuration, directories, addresses and a Skein of its own.
//!
//! Below one directory lie, for each node, `skein-ID.toml`, `data-ID`, `run-ID`, `node-ID.log` (its events) and `said-ID` (what it printed). Dropping
//! it ends the nodes, and with them their servers.

mod joined;
mod skein;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use joined::{Joined, Member};
pub use skein::Skein;

use crate::steps::Steps;
use crate::{Failure, Outcome, free_address};

/// The exit status of a node that was removed from its cluster.
pub const REMOVED: i32 = 4;
/// The port of the server, as it sees it.
const SERVER_PORT: u16 = 6379;
/// Pause before an ended node is started again: the default of systemd.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What all configurations say.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The cluster's name.
    pub name: String,
    /// Its id: 32 hexadecimal digits; none: the nodes make one of their configurations.
    pub cluster_id: Option<String>,
    /// `fsync` or `memory`.
    pub durability: &'static str,
    /// The server's program and its arguments; it listens on port 6379.
    pub server: Vec<String>,
    /// More lines of `[server]`, and further sections.
    pub server_lines: String,
    /// The lines of `[checkpoint]`.
    pub checkpoint: String,
    /// The Skein of hosts that have got no other.
    pub skein: Skein,
}

/// The nodes.
pub struct Nodes {
    dir: PathBuf,
    /// For configurations that are written from now on.
    pub setup: Setup,
    /// Kills nodes that are started from now on at their steps, when it is told to.
    pub steps: Option<Steps>,
    hosts: BTreeMap<u64, Host>,
}

/// A node's host.
struct Host {
    /// Where the node listens for others,
    peer: SocketAddr,
    /// and for clients.
    clients: SocketAddr,
    skein: Skein,
    node: Option<Child>,
    /// When a node that ended is started again.
    again: Option<Instant>,
}

/// The end of a node that nobody had asked for.
#[derive(Debug)]
pub struct Ended {
    /// The node.
    pub id: u64,
    /// How.
    pub status: ExitStatus,
}

impl Nodes {
    /// None runs; all that belongs to them comes below `dir`.
    ///
    /// # Errors
    /// The key cannot be written.
    pub fn new(dir: &Path, setup: Setup) -> Outcome<Self> {
        write(&dir.join("key"), &"5eed".repeat(16))?;
        Ok(Self { dir: dir.to_owned(), setup, steps: None, hosts: BTreeMap::new() })
    }

    /// Gives a node a host, with addresses that nobody else has.
    ///
    /// # Errors
    /// There are no free ports.
    pub fn add(&mut self, id: u64) -> Outcome {
        let free = || free_address().map_err(|error| Failure::of("no free port", error));
        let (peer, clients) = (free()?, free()?);
        let host = Host { peer, clients, skein: self.setup.skein.clone(), node: None, again: None };
        self.hosts.insert(id, host);
        Ok(())
    }

    /// Where a node listens for others.
    ///
    /// # Errors
    /// It has no host.
    pub fn peer(&self, id: u64) -> Outcome<SocketAddr> {
        self.host(id).map(|host| host.peer)
    }

    /// Where it listens for clients.
    ///
    /// # Errors
    /// It has no host.
    pub fn clients(&self, id: u64) -> Outcome<SocketAddr> {
        self.host(id).map(|host| host.clients)
    }

    /// Its data directory.
    #[must_use]
    pub fn data(&self, id: u64) -> PathBuf {
        self.file("data", id)
    }

    /// Its events.
    #[must_use]
    pub fn log(&self, id: u64) -> PathBuf {
        self.dir.join(format!("node-{id}.log"))
    }

    /// The last line that it has printed.
    #[must_use]
    pub fn said(&self, id: u64) -> String {
        let said = fs::read_to_string(self.file("said", id)).unwrap_or_default();
        said.lines().last().unwrap_or("it has said nothing").to_owned()
    }

    /// Installs another Skein on its host, for the next start.
    ///
    /// # Errors
    /// It has no host.
    pub fn install(&mut self, id: u64, skein: Skein) -> Outcome {
        self.host_mut(id).map(|host| host.skein = skein)
    }

    /// Writes its configuration, which names these peers and itself; answers the file.
    ///
    /// # Errors
    /// One of them has no host, or the file cannot be written.
    pub fn configure(&self, id: u64, peers: &[u64]) -> Outcome<PathBuf> {
        let all = peers.iter().copied().filter(|peer| *peer != id).chain([id]);
        let line = |peer| Ok(format!("{{ id = {peer}, address = \"{}\" }}", self.peer(peer)?));
        let lines: Vec<String> = all.map(line).collect::<Outcome<_>>()?;
        let Setup { name, cluster_id, durability, server, server_lines, checkpoint, .. } =
            &self.setup;
        let cluster_id = cluster_id.as_ref().map(|id| format!("cluster_id = \"{id}\"\n"));
        let cluster_id = cluster_id.unwrap_or_default();
        let (program, args) =
            server.split_first().ok_or_else(|| Failure("no server's program".to_owned()))?;
        let text = format!(
            "name = \"{name}\"\nid = {id}\n{cluster_id}durability = \"{durability}\"\ndata_dir = {:?}\npeers = [{}]\n\
             key_file = {:?}\nlog_file = {:?}\n[server]\nprogram = {program:?}\nargs = {args:?}\n{server_lines}\n[publisher.bind]\n\
             publish = [{{ address = \"{}\", server_port = {SERVER_PORT} }}]\n[checkpoint]\n{checkpoint}\n",
            self.data(id),
            lines.join(", "),
            self.dir.join("key"),
            self.log(id),
            self.clients(id)?,
        );
        let path = self.config(id);
        write(&path, &text)?;
        Ok(path)
    }

    /// `skein` on a node's host.
    ///
    /// # Errors
    /// It has no host, or there is no room for the runtime directory.
    pub fn command(&self, id: u64, args: &[&str]) -> Outcome<Command> {
        let run = self.file("run", id);
        fs::create_dir_all(&run).map_err(|error| Failure::of(run.display(), error))?;
        let mut command = self.host(id)?.skein.command();
        command.args(args).env("SKEIN_RUN_DIR", run).env("XDG_STATE_HOME", self.dir.join("state"));
        Ok(command)
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn skein(&self, id: u64, args: &[&str]) -> Outcome<Output> {
        let output = self.command(id, args)?.output();
        output.map_err(|error| Failure::of("cannot run skein", error))
    }

    /// Lets a node begin its log (`found`, `join` or `rejoin`), knowing these peers.
    ///
    /// # Errors
    /// It is refused.
    pub fn begin(&self, id: u64, how: &str, peers: &[u64]) -> Outcome {
        let config = self.configure(id, peers)?;
        let output = self.skein(id, &[how, "--config", &config.to_string_lossy()])?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::of(format!("skein {how} for node {id}"), said))
    }

    /// Starts the node.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&mut self, id: u64) -> Outcome {
        let said = self.file("said", id);
        let failed = |error| Failure::of(said.display(), error);
        // A node that is started again and again says each time why.
        let said = OpenOptions::new().create(true).append(true).open(&said).map_err(failed)?;
        let config = self.config(id);
        let mut command = self.command(id, &["node", "--config", &config.to_string_lossy()])?;
        if let Some(steps) = &self.steps {
            steps.attach(&mut command, "node");
        }
        // A process group of its own: Ctrl-C comes to this process first.
        let node = command.process_group(0).stdout(Stdio::null()).stderr(said).spawn();
        let node = node.map_err(|error| Failure::of(format!("node {id}"), error))?;
        let host = self.host_mut(id)?;
        (host.node, host.again) = (Some(node), None);
        Ok(())
    }

    /// Kills it, and its server with it.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self, id: u64) -> Outcome {
        let mut node = self.take(id)?;
        let ended = node.kill().and_then(|()| node.wait());
        ended.map(drop).map_err(|error| Failure::of(format!("node {id}"), error))
    }

    /// Kills all at once, and their servers with them; nobody starts them again.
    ///
    /// # Errors
    /// One cannot be killed.
    pub fn kill_all(&mut self) -> Outcome {
        for (id, host) in &mut self.hosts {
            host.again = None;
            let killed = host.node.as_mut().map_or(Ok(()), Child::kill);
            killed.map_err(|error| Failure::of(format!("node {id}"), error))?;
        }
        self.hosts.values_mut().for_each(Host::end);
        Ok(())
    }

    /// Hands out the node's process: from now on nobody starts it again.
    ///
    /// # Errors
    /// It does not run.
    pub fn take(&mut self, id: u64) -> Outcome<Child> {
        let host = self.host_mut(id)?;
        host.again = None;
        host.node.take().ok_or_else(|| Failure(format!("node {id} does not run")))
    }

    /// Whether the node runs, or will again.
    #[must_use]
    pub fn runs(&self, id: u64) -> bool {
        self.hosts.get(&id).is_some_and(|host| host.node.is_some() || host.again.is_some())
    }

    /// Starts again the nodes that have ended, as a service manager would, but for those that ended in order or were removed; answers all that have
    /// ended. To be called often.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn tend(&mut self) -> Outcome<Vec<Ended>> {
        let mut all = Vec::new();
        let mut due = Vec::new();
        for (id, host) in &mut self.hosts {
            let ended = host.node.as_mut().map(Child::try_wait).transpose();
            let ended = ended.map_err(|error| Failure::of(format!("node {id}"), error))?;
            if let Some(status) = ended.flatten() {
                host.node = None;
                let is_over = status.success() || status.code() == Some(REMOVED);
                host.again = (!is_over).then(|| Instant::now() + AGAIN_AFTER);
                all.push(Ended { id: *id, status });
            }
            if host.again.is_some_and(|again| again <= Instant::now()) {
                due.push(*id);
            }
        }
        due.into_iter().try_for_each(|id| self.start(id))?;
        Ok(all)
    }

    /// Loses a host for good, with all that is on it; its node has ended.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn lose(&mut self, id: u64) -> Outcome {
        if let Some(mut host) = self.hosts.remove(&id) {
            host.end();
        }
        for path in [self.data(id), self.file("run", id)] {
            remove(&path, |path| fs::remove_dir_all(path))?;
        }
        for path in [self.config(id), self.log(id), self.file("said", id)] {
            remove(&path, |path| fs::remove_file(path))?;
        }
        Ok(())
    }

    /// What `skein status --json` says there of its own replica; null while it does not run.
    ///
    /// # Errors
    /// It has no host.
    pub fn status(&self, id: u64) -> Outcome<Value> {
        self.told(id, &["status", "--here", "--json"])
    }

    /// The same of `skein members --json`.
    ///
    /// # Errors
    /// It has no host.
    pub fn members(&self, id: u64) -> Outcome<Value> {
        self.told(id, &["members", "--json"])
    }

    fn told(&self, id: u64, args: &[&str]) -> Outcome<Value> {
        let output = self.skein(id, args)?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// What [`Joined`] wants to know of a node.
    ///
    /// # Errors
    /// It has no host.
    pub fn member(&self, id: u64) -> Outcome<Member> {
        let address = self.peer(id)?.to_string();
        Ok(Member { id, address, data: self.data(id), log: self.log(id) })
    }

    fn config(&self, id: u64) -> PathBuf {
        self.dir.join(format!("skein-{id}.toml"))
    }

    fn file(&self, name: &str, id: u64) -> PathBuf {
        self.dir.join(format!("{name}-{id}"))
    }

    fn host(&self, id: u64) -> Outcome<&Host> {
        self.hosts.get(&id).ok_or_else(|| Failure(format!("node {id} has no host")))
    }

    fn host_mut(&mut self, id: u64) -> Outcome<&mut Host> {
        self.hosts.get_mut(&id).ok_or_else(|| Failure(format!("node {id} has no host")))
    }
}

impl Host {
    fn end(&mut self) {
        if let Some(mut node) = self.node.take() {
            // It may have ended.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.hosts.values_mut().for_each(Host::end);
    }
}

/// Writes a file for this user only.
fn write(path: &Path, text: &str) -> Outcome {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::of(path.display(), error))
}

/// Removes what may be there.
fn remove(path: &Path, how: impl Fn(&Path) -> std::io::Result<()>) -> Outcome {
    match how(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::of(path.display(), error))
        }
        _ => Ok(()),
    }
}
