//! Nodes of a redis on this machine, each with a configuration of its own, as on several hosts.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::cluster::{free_port, wait_for_or};
use super::load::Load;
use super::resp::{Redis, Reply};
use super::{PATIENCE, Place};

const NAME: &str = "grows";
/// The id of the cluster.
pub const CLUSTER_ID: &str = "4f1c29d0a8b35e6677889900aabbccdd";
/// So many replicas may be there in turn.
const MOST: usize = 8;
/// The exit code of a node that was removed.
const REMOVED: i32 = 4;

/// Nodes on this machine as on several: each with its own directories, and addresses of 127.0.0.1.
pub struct Nodes {
    /// Their directories.
    pub place: Place,
    /// Where nodes listen for each other, by id.
    peers: Vec<u16>,
    /// Where clients connect.
    pub ports: Vec<u16>,
    running: Vec<Option<Child>>,
    /// When they take images, as in their configuration.
    pub checkpoint: &'static str,
    /// The server's arguments behind its port and address.
    pub args: Vec<String>,
    /// The directory of each node's Skein, by id, unless it is the built one.
    pub installed: Vec<Option<PathBuf>>,
}

impl Nodes {
    /// None runs.
    pub fn new() -> Self {
        let place = Place::new();
        place.file("key", &"5eed".repeat(16), 0o600);
        let ports = |_| (0..MOST).map(|_| free_port()).collect();
        let (peers, ports) = (ports(0), ports(1));
        Self {
            place,
            peers,
            ports,
            running: (0..MOST).map(|_| None).collect(),
            checkpoint: "log_entries = 300",
            args: ["--save", ""].map(String::from).to_vec(),
            installed: vec![None; MOST],
        }
    }

    /// Where a node listens for others.
    pub fn address(&self, id: u64) -> String {
        format!("127.0.0.1:{}", self.peers[id as usize - 1])
    }

    /// Where clients connect, of all.
    pub fn clients(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect()
    }

    /// Writes a node's configuration, which names these peers and itself; answers its file.
    pub fn config(&self, id: u64, peers: &[u64]) -> PathBuf {
        let all: Vec<u64> = peers.iter().copied().filter(|peer| *peer != id).chain([id]).collect();
        let line = |peer: &u64| format!("{{ id = {peer}, address = \"{}\" }}", self.address(*peer));
        let lines: Vec<String> = all.iter().map(line).collect();
        let dir = self.place.dir.path().display();
        let given = ["--port", "6379", "--bind", "127.0.0.1"].map(String::from);
        let args: Vec<&String> = given.iter().chain(&self.args).collect();
        let text = format!(
            "name = \"{NAME}\"\nid = {id}\ncluster_id = \"{CLUSTER_ID}\"\ndata_dir = \"{dir}/data-{id}\"\npeers = [{}]\n\
             key_file = \"{dir}/key\"\nlog_file = \"{dir}/node-{id}.log\"\n[server]\nprogram = \"/usr/bin/redis-server\"\n\
             args = {args:?}\n[publisher.bind]\n\
             publish = [{{ address = \"127.0.0.1:{}\", server_port = 6379 }}]\n[checkpoint]\n{}\n",
            lines.join(", "),
            self.ports[id as usize - 1],
            self.checkpoint,
        );
        self.place.file(&format!("skein-{id}.toml"), &text, 0o600)
    }

    /// A command on a node's host.
    pub fn command(&self, id: u64, args: &[&str]) -> Command {
        let run = self.place.path(&format!("run-{id}"));
        fs::create_dir_all(&run).unwrap();
        let mut command = match &self.installed[id as usize - 1] {
            None => self.place.skein_with_runtime(),
            Some(dir) => {
                let mut command = self.place.skein_of(&dir.join("skein"));
                command.env("SKEIN_RUNTIME", dir.join("libskein.so"));
                command
            }
        };
        command.args(args).env("SKEIN_RUN_DIR", run);
        command
    }

    /// Runs one.
    pub fn skein(&self, id: u64, args: &[&str]) -> Output {
        self.command(id, args).output().unwrap()
    }

    /// A command that succeeds; answers what it prints.
    #[track_caller]
    pub fn does(&self, id: u64, args: &[&str]) -> String {
        let output = self.skein(id, args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}{errors}\n{}", self.evidence());
        said
    }

    /// A cluster of three, which answers.
    #[track_caller]
    pub fn three() -> Self {
        let mut nodes = Self::new();
        for id in 1..=3 {
            nodes.begin(id, "found", &[1, 2, 3]);
        }
        wait_redis(nodes.ports[0]);
        nodes
    }

    /// Founds or joins, and starts the node.
    #[track_caller]
    pub fn begin(&mut self, id: u64, how: &str, peers: &[u64]) {
        let config = self.config(id, peers);
        self.does(id, &[how, "--config", config.to_str().unwrap()]);
        self.start(id);
    }

    /// Starts the node.
    pub fn start(&mut self, id: u64) {
        let config = self.place.path(&format!("skein-{id}.toml"));
        let said = fs::File::create(self.place.path(&format!("said-{id}"))).unwrap();
        let mut command = self.command(id, &["node", "--config", config.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(said);
        self.running[id as usize - 1] = Some(command.spawn().unwrap());
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self, id: u64) {
        self.does(id, &["stop"]);
        let mut node = self.running[id as usize - 1].take().unwrap();
        let ended = || node.try_wait().unwrap();
        let status = wait_for_or(&format!("node {id} to end"), || self.evidence(), ended);
        assert!(status.success(), "{status}: {}", self.evidence());
    }

    /// Kills it.
    pub fn kill(&mut self, id: u64) {
        let mut node = self.running[id as usize - 1].take().unwrap();
        node.kill().unwrap();
        node.wait().unwrap();
    }

    /// The end of a node that was removed.
    #[track_caller]
    pub fn wait_removed(&mut self, id: u64) {
        let mut node = self.running[id as usize - 1].take().unwrap();
        let mut status = None;
        wait_for_or(
            &format!("node {id} to end"),
            || self.evidence(),
            || {
                status = node.try_wait().unwrap();
                status.map(drop)
            },
        );
        let said = fs::read_to_string(self.place.path(&format!("said-{id}"))).unwrap();
        assert_eq!(status.unwrap().code(), Some(REMOVED), "{said}");
        assert!(said.contains("an operator removed this replica from the cluster"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    /// What `skein status` says there.
    pub fn status(&self, id: u64) -> Value {
        let output = self.skein(id, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// The members that a node knows: ids with a vote.
    pub fn members(&self, id: u64) -> Vec<u64> {
        let output = self.skein(id, &["members", "--json"]);
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(listed.is_null() || listed["cluster_id"] == CLUSTER_ID, "{listed}");
        let members = listed["members"].as_array().cloned().unwrap_or_default();
        let votes = members.iter().filter(|member| member["votes"] == true);
        votes.filter_map(|member| member["id"].as_u64()).collect()
    }

    /// All these know that they are the members.
    #[track_caller]
    pub fn wait_members(&self, ids: &[u64]) {
        for id in ids {
            wait_for_or(
                &format!("replica {id} to know the members {ids:?}"),
                || self.evidence(),
                || (self.members(*id) == ids).then_some(()),
            );
        }
    }

    /// The leader that all of these know.
    #[track_caller]
    pub fn leader(&self, ids: &[u64]) -> u64 {
        let mut found = None;
        wait_for_or(
            "a leader that all know",
            || self.evidence(),
            || {
                let known: Vec<_> =
                    ids.iter().map(|id| self.status(*id)["leader"].as_u64()).collect();
                found = known[0].filter(|leader| known.iter().all(|other| *other == Some(*leader)));
                found.filter(|leader| ids.contains(leader)).map(drop)
            },
        );
        found.unwrap()
    }

    /// All servers have executed the same, and said the same.
    #[track_caller]
    pub fn wait_equal(&self, ids: &[u64]) {
        wait_for_or(
            &format!("replicas {ids:?} to be equal"),
            || self.evidence(),
            || {
                let own = |id: &u64| {
                    let replica = self.status(*id)["replicas"][0].clone();
                    let running = replica["state"] == "running" && replica["role"] != "learner";
                    running.then(|| (replica["digest_index"].clone(), replica["digest"].clone()))
                };
                let all: Vec<_> = ids.iter().map(own).collect();
                (all[0].is_some() && all.iter().all(|one| *one == all[0])).then_some(())
            },
        );
    }

    /// The last lines of all logs.
    pub fn evidence(&self) -> String {
        let files = |id| [format!("node-{id}.log"), format!("said-{id}")];
        self.place.last_lines((1..=MOST as u64).flat_map(files))
    }

    /// What the clients wrote is there, once each.
    #[track_caller]
    pub fn check(&self, load: Load, at: u64) {
        let books = load.end();
        let port = self.ports[at as usize - 1];
        let states = || (1..=MOST as u64).map(|id| format!("{id}: {}\n", self.status(id)));
        let evidence = || states().collect::<String>() + &self.evidence();
        let mut redis = wait_for_or("redis to answer", evidence, || answering(port));
        for (client, books) in books.iter().enumerate() {
            let Ok(Reply::Array(found)) =
                redis.ask(&[b"LRANGE", Load::key(client).as_bytes(), b"0", b"-1"])
            else {
                panic!("no list of client {client}: {}", self.evidence());
            };
            let found: Vec<String> = found.iter().map(Reply::text).collect();
            assert!(!found.is_empty());
            books.assert_found(&found);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in self.running.iter_mut().flatten() {
            // It may have ended.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// A connection to a redis that answers.
#[track_caller]
pub fn wait_redis(port: u16) -> Redis {
    super::wait_for("redis to answer", || answering(port))
}

fn answering(port: u16) -> Option<Redis> {
    let mut redis = Redis::connect(port, PATIENCE).ok()?;
    (redis.ask(&[b"PING"]).ok()? == Reply::Status("PONG".into())).then_some(redis)
}
