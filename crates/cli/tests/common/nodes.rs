//! Nodes of a redis on this machine, each with a configuration of its own, as on several hosts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use skein_testkit::nodes::{REMOVED, Setup, Skein};

use super::cluster::{wait_for_or, wait_verified};
use super::load::Load;
use super::resp::{Redis, Reply};
use super::{PATIENCE, Place, runtime};

const NAME: &str = "grows";
/// The id of the cluster.
pub const CLUSTER_ID: &str = "4f1c29d0a8b35e6677889900aabbccdd";
/// So many replicas may be there in turn.
const MOST: u64 = 12;

/// Nodes on this machine as on several: each with its own directories, and addresses of 127.0.0.1.
pub struct Nodes {
    /// The nodes, which end before their directories go.
    pub hosts: skein_testkit::nodes::Nodes,
    /// Their directories.
    pub place: Place,
    /// Where clients connect.
    pub ports: Vec<u16>,
}

impl Nodes {
    /// None runs.
    pub fn new() -> Self {
        let place = Place::new();
        let (program, runtime) = (place.skein().get_program().into(), runtime().to_owned());
        let server = ["/usr/bin/redis-server", "--port", "6379", "--bind", "127.0.0.1"];
        let setup = Setup {
            name: NAME.into(),
            cluster_id: Some(CLUSTER_ID.into()),
            durability: "fsync",
            server: server.iter().chain(&["--save", ""]).map(|word| (*word).into()).collect(),
            server_lines: String::new(),
            checkpoint: "log_entries = 300".into(),
            skein: Skein { program, runtime },
        };
        let mut hosts = skein_testkit::nodes::Nodes::new(place.dir.path(), setup).unwrap();
        (1..=MOST).for_each(|id| hosts.add(id).unwrap());
        let ports = (1..=MOST).map(|id| hosts.clients(id).unwrap().port()).collect();
        Self { hosts, place, ports }
    }

    /// From now on the server has its data in a file when it ends.
    pub fn keep_data(&mut self) {
        let dir = self.place.path("redis");
        std::fs::create_dir(&dir).unwrap();
        let server = &mut self.hosts.setup.server;
        server.truncate(server.len() - 2);
        let args = ["--save", "3600", "1", "--dir", dir.to_str().unwrap()];
        server.extend(args.map(String::from));
    }

    /// Where a node listens for others.
    pub fn address(&self, id: u64) -> String {
        self.hosts.peer(id).unwrap().to_string()
    }

    /// Where clients connect, of all.
    pub fn clients(&self) -> Vec<SocketAddr> {
        (1..=MOST).map(|id| self.hosts.clients(id).unwrap()).collect()
    }

    /// Writes a node's configuration, which names these peers and itself; answers its file.
    pub fn config(&self, id: u64, peers: &[u64]) -> PathBuf {
        self.hosts.configure(id, peers).unwrap()
    }

    /// A command on a node's host.
    pub fn command(&self, id: u64, args: &[&str]) -> Command {
        self.hosts.command(id, args).unwrap()
    }

    /// Runs one.
    pub fn skein(&self, id: u64, args: &[&str]) -> Output {
        self.hosts.skein(id, args).unwrap()
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
        self.hosts.begin(id, how, peers).unwrap();
        self.start(id);
    }

    /// Starts the node.
    pub fn start(&mut self, id: u64) {
        self.hosts.start(id).unwrap();
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self, id: u64) {
        self.does(id, &["stop"]);
        let mut node = self.hosts.take(id).unwrap();
        let ended = || node.try_wait().unwrap();
        let status = wait_for_or(&format!("node {id} to end"), || self.evidence(), ended);
        assert!(status.success(), "{status}: {}", self.evidence());
    }

    /// Kills it.
    pub fn kill(&mut self, id: u64) {
        self.hosts.kill(id).unwrap();
    }

    /// The end of a node that was removed.
    #[track_caller]
    pub fn wait_removed(&mut self, id: u64) {
        let mut node = self.hosts.take(id).unwrap();
        let ended = || node.try_wait().unwrap();
        let status = wait_for_or(&format!("node {id} to end"), || self.evidence(), ended);
        let said = std::fs::read_to_string(self.place.path(&format!("said-{id}"))).unwrap();
        assert_eq!(status.code(), Some(REMOVED), "{said}");
        assert!(said.contains("an operator removed this replica from the cluster"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    /// What `skein status` says there.
    pub fn status(&self, id: u64) -> Value {
        self.hosts.status(id).unwrap()
    }

    /// A number that a node's status has of itself.
    pub fn own(&self, id: u64, key: &str) -> u64 {
        self.status(id)["replicas"][0][key].as_u64().unwrap_or_default()
    }

    /// Writes at the first node until these have forgotten all that a replica lacks whose log ends with this entry.
    #[track_caller]
    pub fn write_until_forgotten(&self, ids: &[u64], last: u64) {
        let mut written = 0;
        let mut client = wait_redis(self.ports[0]);
        let forgotten = || {
            written += 1;
            let set = client.set(&format!("key:{written}"), "value");
            if set.is_err() {
                client = wait_redis(self.ports[0]);
            }
            let forgotten = || ids.iter().all(|id| self.own(*id, "first_entry") > last + 1);
            (written % 50 == 0 && forgotten()).then_some(())
        };
        wait_for_or("the others to forget what it lacks", || self.evidence(), forgotten);
    }

    /// The members that a node knows: ids with a vote.
    pub fn members(&self, id: u64) -> Vec<u64> {
        let listed = self.hosts.members(id).unwrap();
        let known = self.hosts.setup.cluster_id.as_deref();
        let is_ours = known.is_none_or(|id| listed["cluster_id"] == id);
        assert!(listed.is_null() || is_ours, "{listed}");
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

    /// The command on this host compares the servers of these replicas, which are all that have one: their memory and files are equal.
    #[track_caller]
    pub fn compare_all(&self, at: u64, ids: &[u64]) {
        let verify = || self.skein(at, &["verify", "--json"]);
        let report = wait_verified(|| self.evidence(), verify);
        let report: Value = serde_json::from_str(&report).unwrap();
        let compared = report["replicas"].as_array().unwrap();
        let compared: Vec<_> = compared.iter().filter_map(|row| row["id"].as_u64()).collect();
        assert_eq!(compared, ids, "{report:#}\n{}", self.evidence());
    }

    /// The last lines of all logs.
    pub fn evidence(&self) -> String {
        let files = |id| [format!("node-{id}.log"), format!("said-{id}")];
        self.place.last_lines((1..=MOST).flat_map(files))
    }

    /// What the clients wrote is there, once each.
    #[track_caller]
    pub fn check(&self, load: Load, at: u64) {
        let books = load.end();
        let port = self.ports[at as usize - 1];
        let states = || (1..=MOST).map(|id| format!("{id}: {}\n", self.status(id)));
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

/// A connection to a redis that answers.
#[track_caller]
pub fn wait_redis(port: u16) -> Redis {
    super::wait_for("redis to answer", || answering(port))
}

fn answering(port: u16) -> Option<Redis> {
    let mut redis = Redis::connect(port, PATIENCE).ok()?;
    (redis.ask(&[b"PING"]).ok()? == Reply::Status("PONG".into())).then_some(redis)
}
