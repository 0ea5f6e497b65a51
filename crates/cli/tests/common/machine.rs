//! Three `skein node`s with one configuration, each on a host of its own ([`super::hosts`]), and the work of a service manager for them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use skein_testkit::nodes::{Joined, Member};

use super::cluster::{ask_once, wait_for_or};
use super::hosts::Hosts;
use super::preloaded::Preloaded;
use super::{Place, runtime};

/// The cluster's name.
pub const NAME: &str = "three";
/// The clients' port on each host.
pub const PORT: u16 = 80;
/// The port that the server listens on.
pub const SERVER_PORT: u16 = 7000;
/// The directory of small disks, in the namespace that has them.
const DISKS: &str = "/mnt";
/// Pause before an ended node is started again.
const RESTART_AFTER: Duration = Duration::from_millis(100);

/// The machine with the three hosts.
pub struct Machine {
    /// The network.
    pub hosts: Hosts,
    /// Its directories.
    pub place: Place,
    /// Controls of the nodes' clocks and disks.
    pub preloaded: Option<Preloaded>,
    /// The mode, and the server's program and arguments, as the configuration names them.
    pub mode: &'static str,
    pub server: Vec<String>,
    /// A variable of its environment.
    pub variable: Option<(&'static str, &'static str)>,
    nodes: Vec<Option<Child>>,
    again: [Option<Instant>; 3],
    all: Option<Joined>,
    disks: Option<PathBuf>,
}

impl Machine {
    /// None of the nodes is founded or started; `server` is the program and its arguments.
    pub fn new(place: Place, server: &[String]) -> Self {
        place.file("key", &"5eed".repeat(16), 0o600);
        Self {
            hosts: Hosts::new(),
            place,
            preloaded: None,
            mode: "order",
            server: server.to_vec(),
            variable: None,
            nodes: vec![None, None, None],
            again: [None; 3],
            all: None,
            disks: None,
        }
    }

    /// Gives each replica's log a small disk of its own, in a mount namespace that only this thread and its children see. Not below the temporary
    /// directory: other tests make files there, and servers would see those come and go.
    pub fn give_disks(&mut self, size: &str) {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(&["--make-rprivate", "/"]);
        mount(&["-t", "tmpfs", "none", DISKS]);
        self.disks = Some(PathBuf::from(DISKS));
        for id in 1..=3 {
            let dir = self.data(id);
            fs::create_dir(&dir).unwrap();
            mount(&["-t", "tmpfs", "-o", size, "none", dir.to_str().unwrap()]);
        }
    }

    /// The directory of a replica's log.
    pub fn data(&self, id: u64) -> PathBuf {
        let name = format!("data-{id}");
        self.disks.as_ref().map_or_else(|| self.place.path(&name), |disks| disks.join(&name))
    }

    /// Writes the configuration, which differs between hosts only where it must; answers its file.
    fn config(&self, id: u64) -> PathBuf {
        let dir = self.place.dir.path().display();
        let (program, args) = self.server.split_first().unwrap();
        let env = self.variable.map(|(name, value)| [name, value]);
        let env: Vec<_> = env.iter().collect();
        let text = format!(
            "name = \"{NAME}\"\nid = {id}\nmode = \"{}\"\ndata_dir = {:?}\n\
             peers = [\n    {{ id = 1, address = \"10.77.0.1:7100\" }},\n    \
             {{ id = 2, address = \"10.77.0.2:7100\" }},\n    \
             {{ id = 3, address = \"10.77.0.3:7100\" }},\n]\nkey_file = \"{dir}/key\"\nlog_file = \"{dir}/node-{id}.log\"\n\
             [server]\nprogram = \"{program}\"\nargs = {args:?}\nenv = {env:?}\n[publisher.bind]\n\
             publish = [{{ address = \"0.0.0.0:{PORT}\", server_port = {SERVER_PORT} }}]\n",
            self.mode,
            self.data(id),
        );
        self.place.file(&format!("skein-{id}.toml"), &text, 0o644)
    }

    /// Begins the cluster: each replica's log.
    #[track_caller]
    pub fn found(&self) {
        for id in 1..=3 {
            let config = self.config(id);
            let founded = self.skein(id, &["found", "--config", config.to_str().unwrap()]);
            assert!(founded.status.success(), "{}", String::from_utf8_lossy(&founded.stderr));
        }
    }

    /// Takes away all that a replica has, and lets it come back.
    #[track_caller]
    pub fn lose(&self, id: u64) {
        fs::remove_dir_all(self.data(id)).unwrap();
        let config = self.config(id);
        let rejoins = self.skein(id, &["rejoin", "--config", config.to_str().unwrap()]);
        assert!(rejoins.status.success(), "{}", String::from_utf8_lossy(&rejoins.stderr));
    }

    /// Starts the node.
    pub fn start(&mut self, id: u64) {
        let config = self.config(id);
        let said = fs::File::options()
            .create(true)
            .append(true)
            .open(self.place.path(&format!("said-{id}")))
            .unwrap();
        let skein = self.place.skein().get_program().to_owned();
        let mut command = self.hosts.host(id).command(skein.to_str().unwrap());
        command.args(["node", "--config"]).arg(config).env("SKEIN_RUNTIME", runtime());
        command.env("SKEIN_RUN_DIR", self.run_dir(id)).stdout(Stdio::null()).stderr(said);
        if let Some(preloaded) = &self.preloaded {
            preloaded.attach(&mut command);
        }
        self.again[id as usize - 1] = None;
        self.nodes[id as usize - 1] = Some(command.spawn().unwrap());
    }

    /// Restarts ended nodes, as a service manager would. To be called often.
    pub fn tend(&mut self) {
        for id in 1..=3 {
            let at = id as usize - 1;
            let ended = |node: &mut Child| node.try_wait().unwrap().is_some();
            if self.nodes[at].as_mut().is_some_and(ended) {
                self.nodes[at] = None;
                self.again[at] = Some(Instant::now() + RESTART_AFTER);
            }
            if self.again[at].is_some_and(|again| again <= Instant::now()) {
                self.start(id);
            }
        }
    }

    /// Kills a node and its server.
    pub fn kill(&mut self, id: u64) {
        let mut node = self.nodes[id as usize - 1].take().unwrap();
        node.kill().unwrap();
        node.wait().unwrap();
    }

    /// The process of a node.
    pub fn node_pid(&self, id: u64) -> i32 {
        self.nodes[id as usize - 1].as_ref().expect("it runs").id() as i32
    }

    fn run_dir(&self, id: u64) -> PathBuf {
        self.place.path(&format!("run-{id}"))
    }

    /// Runs the command on a host.
    pub fn skein(&self, id: u64, args: &[&str]) -> Output {
        self.command_in(self.run_dir(id)).args(args).output().unwrap()
    }

    fn command_in(&self, run_dir: PathBuf) -> Command {
        let mut command = self.place.skein();
        command.env("SKEIN_RUN_DIR", run_dir);
        command
    }

    /// A host's status of its replica.
    pub fn status(&self, id: u64) -> Value {
        let output = self.skein(id, &["status", "--here", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Lets [`Self::skein_all`] find all three nodes, as if they were on one host.
    pub fn join_all(&mut self) {
        let all = Joined::new(&self.place.path("run-all"), NAME).unwrap();
        let member = |id: u64| Member {
            id,
            address: format!("10.77.0.{id}:7100"),
            data: self.data(id),
            log: self.place.path(&format!("node-{id}.log")),
        };
        all.name("order", &[1, 2, 3].map(member)).unwrap();
        self.all = Some(all);
    }

    /// Runs the command where it finds all three nodes.
    pub fn skein_all(&self, args: &[&str]) -> Output {
        self.command_in(self.place.path("run-all")).args(args).output().unwrap()
    }

    /// The last lines of the nodes.
    pub fn evidence(&self) -> String {
        let files = |id| [format!("said-{id}"), format!("node-{id}.log")];
        self.place.last_lines((1..=3).flat_map(files))
    }

    /// Waits, and shows the evidence on failure.
    #[track_caller]
    pub fn wait<T>(&self, what: &str, probe: impl FnMut() -> Option<T>) -> T {
        wait_for_or(what, || self.evidence(), probe)
    }

    /// Waits until a host's replica runs.
    #[track_caller]
    pub fn wait_running(&self, id: u64) {
        self.wait(&format!("host {id} to run"), || {
            (self.status(id)["replicas"][0]["state"] == "running").then_some(())
        });
    }

    /// Asks a server that counts at one host, from the network, until there is an answer; the count in it.
    #[track_caller]
    pub fn count(&self, id: u64) -> u64 {
        let address = format!("10.77.0.{id}");
        let answer = self.wait(&format!("an answer of host {id}"), || {
            self.hosts.middle.enter(|| ask_once((address.as_str(), PORT), "x"))
        });
        answer.split(' ').next().unwrap().parse().unwrap()
    }

    /// Stops all nodes in order; each must end well.
    #[track_caller]
    pub fn stop(&mut self) {
        for id in 1..=3 {
            let stopped = self.skein(id, &["stop", "--name", NAME]);
            let text = String::from_utf8_lossy(&stopped.stderr);
            assert_eq!(stopped.status.code(), Some(0), "{text}\n{}", self.evidence());
            let node = self.nodes[id as usize - 1].as_mut().unwrap();
            assert_eq!(node.wait().unwrap().code(), Some(0));
        }
        let dir = self.place.dir.path().to_str().unwrap();
        let left = super::processes_naming(dir);
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            // It has ended already when the test passed.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn mount(args: &[&str]) {
    assert!(Command::new("mount").args(args).status().unwrap().success(), "mount {args:?}");
}
