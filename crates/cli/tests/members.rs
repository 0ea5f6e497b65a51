//! Replicas of `skein node`s come, go and are replaced while clients write: no acknowledged write is lost, and all replicas are equal afterwards.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use common::cluster::{free_port, wait_for_or};
use common::load::Load;
use common::resp::{Redis, Reply};
use common::{PATIENCE, Place, assert_line};
use serde_json::Value;

const NAME: &str = "grows";
const CLUSTER_ID: &str = "4f1c29d0a8b35e6677889900aabbccdd";
/// So many replicas may be there in turn.
const MOST: usize = 6;
/// The exit code of a node that was removed.
const REMOVED: i32 = 4;

/// Nodes on this machine as on several: each with its own directories, and addresses of 127.0.0.1.
struct Nodes {
    place: Place,
    /// Where nodes listen for each other, by id.
    peers: Vec<u16>,
    /// Where clients connect.
    ports: Vec<u16>,
    running: Vec<Option<Child>>,
}

impl Nodes {
    fn new() -> Self {
        let place = Place::new();
        place.file("key", &"5eed".repeat(16), 0o600);
        let ports = |_| (0..MOST).map(|_| free_port()).collect();
        let (peers, ports) = (ports(0), ports(1));
        Self { place, peers, ports, running: (0..MOST).map(|_| None).collect() }
    }

    fn address(&self, id: u64) -> String {
        format!("127.0.0.1:{}", self.peers[id as usize - 1])
    }

    fn clients(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect()
    }

    /// Writes a node's configuration, which names these peers and itself; answers its file.
    fn config(&self, id: u64, peers: &[u64]) -> PathBuf {
        let all: Vec<u64> = peers.iter().copied().filter(|peer| *peer != id).chain([id]).collect();
        let line = |peer: &u64| format!("{{ id = {peer}, address = \"{}\" }}", self.address(*peer));
        let lines: Vec<String> = all.iter().map(line).collect();
        let dir = self.place.dir.path().display();
        let text = format!(
            "name = \"{NAME}\"\nid = {id}\ncluster_id = \"{CLUSTER_ID}\"\ndata_dir = \"{dir}/data-{id}\"\npeers = [{}]\n\
             key_file = \"{dir}/key\"\nlog_file = \"{dir}/node-{id}.log\"\n[server]\nprogram = \"/usr/bin/redis-server\"\n\
             args = [\"--port\", \"6379\", \"--save\", \"\", \"--bind\", \"127.0.0.1\"]\n[publisher.bind]\n\
             publish = [{{ address = \"127.0.0.1:{}\", server_port = 6379 }}]\n[checkpoint]\nlog_entries = 300\n",
            lines.join(", "),
            self.ports[id as usize - 1],
        );
        self.place.file(&format!("skein-{id}.toml"), &text, 0o600)
    }

    fn command(&self, id: u64, args: &[&str]) -> Command {
        let run = self.place.path(&format!("run-{id}"));
        fs::create_dir_all(&run).unwrap();
        let mut command = self.place.skein_with_runtime();
        command.args(args).env("SKEIN_RUN_DIR", run);
        command
    }

    fn skein(&self, id: u64, args: &[&str]) -> Output {
        self.command(id, args).output().unwrap()
    }

    /// A command that succeeds; answers what it prints.
    #[track_caller]
    fn does(&self, id: u64, args: &[&str]) -> String {
        let output = self.skein(id, args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}{errors}\n{}", self.evidence());
        said
    }

    /// Founds or joins, and starts the node.
    #[track_caller]
    fn begin(&mut self, id: u64, how: &str, peers: &[u64]) {
        let config = self.config(id, peers);
        self.does(id, &[how, "--config", config.to_str().unwrap()]);
        self.start(id);
    }

    fn start(&mut self, id: u64) {
        let config = self.place.path(&format!("skein-{id}.toml"));
        let said = fs::File::create(self.place.path(&format!("said-{id}"))).unwrap();
        let mut command = self.command(id, &["node", "--config", config.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(said);
        self.running[id as usize - 1] = Some(command.spawn().unwrap());
    }

    fn kill(&mut self, id: u64) {
        let mut node = self.running[id as usize - 1].take().unwrap();
        node.kill().unwrap();
        node.wait().unwrap();
    }

    /// The end of a node that was removed.
    #[track_caller]
    fn wait_removed(&mut self, id: u64) {
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

    fn status(&self, id: u64) -> Value {
        let output = self.skein(id, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// The members that a node knows: ids with a vote.
    fn members(&self, id: u64) -> Vec<u64> {
        let output = self.skein(id, &["members", "--json"]);
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(listed.is_null() || listed["cluster_id"] == CLUSTER_ID, "{listed}");
        let members = listed["members"].as_array().cloned().unwrap_or_default();
        let votes = members.iter().filter(|member| member["votes"] == true);
        votes.filter_map(|member| member["id"].as_u64()).collect()
    }

    #[track_caller]
    fn wait_members(&self, ids: &[u64]) {
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
    fn leader(&self, ids: &[u64]) -> u64 {
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
    fn wait_equal(&self, ids: &[u64]) {
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

    fn evidence(&self) -> String {
        let files = |id| [format!("node-{id}.log"), format!("said-{id}")];
        self.place.last_lines((1..=MOST as u64).flat_map(files))
    }

    /// What the clients wrote is there, once each.
    #[track_caller]
    fn check(&self, load: Load, at: u64) {
        let books = load.end();
        let mut redis = wait_redis(self.ports[at as usize - 1]);
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

#[track_caller]
fn wait_redis(port: u16) -> Redis {
    common::wait_for("redis to answer", || {
        let mut redis = Redis::connect(port, PATIENCE).ok()?;
        (redis.ask(&[b"PING"]).ok()? == Reply::Status("PONG".into())).then_some(redis)
    })
}

#[test]
fn one_grows_to_three_all_are_replaced_and_it_shrinks_under_load() {
    let mut nodes = Nodes::new();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]);
    let load = Load::start(3, nodes.clients(), || {});
    let args = |words: [&str; 2], place: String| [words[0].to_owned(), words[1].to_owned(), place];
    let add = |nodes: &Nodes, id: u64| {
        let place = format!("{id}={}", nodes.address(id));
        let said = nodes.does(1, &args(["members", "add"], place).each_ref().map(String::as_str));
        assert!(
            said.contains(&format!("replica {id} at")) && said.contains("is a member and votes"),
            "{said}"
        );
    };
    for id in 2..=3 {
        nodes.begin(id, "join", &[1]);
        add(&nodes, id);
    }
    nodes.wait_members(&[1, 2, 3]);
    let three = wait_redis(nodes.ports[0]).ask(&[b"PING"]);
    assert!(three.is_ok(), "clients are served meanwhile");

    // A host is lost: another one takes its place, with an empty directory and another address.
    nodes.kill(2);
    nodes.begin(4, "join", &[1, 3]);
    let place = format!("4={}", nodes.address(4));
    let said = nodes.does(3, &["members", "replace", "2", &place]);
    assert!(said.contains("votes instead of replica 2"), "{said}");
    nodes.wait_members(&[1, 3, 4]);
    // The replaced one comes back and learns that it is no member.
    nodes.start(2);
    nodes.wait_removed(2);

    // The leader goes, by a command on another host, or its own.
    let leader = nodes.leader(&[1, 3, 4]);
    nodes.begin(5, "join", &[1, 3, 4]);
    let place = format!("5={}", nodes.address(5));
    nodes.does(leader, &["members", "replace", &leader.to_string(), &place]);
    nodes.wait_removed(leader);
    let rest: Vec<u64> = [1, 3, 4, 5].into_iter().filter(|id| *id != leader).collect();
    nodes.wait_members(&rest);
    // Restarted, with a configuration that is out of date, they know each other.
    nodes.kill(5);
    nodes.start(5);
    load.pause();
    nodes.wait_equal(&rest);
    load.resume();
    let leader = nodes.leader(&rest);
    let heir = rest.iter().copied().find(|id| *id != leader).unwrap();
    nodes.does(leader, &["members", "transfer", &heir.to_string()]);
    assert_eq!(nodes.leader(&rest), heir);
    // Down to one: the leader is removed last but one.
    let last = rest.iter().copied().find(|id| *id != heir && *id != 1).unwrap();
    let other = rest.iter().copied().find(|id| ![heir, last].contains(id)).unwrap();
    nodes.does(last, &["members", "remove", &other.to_string()]);
    nodes.wait_removed(other);
    let mut both = [last, heir];
    both.sort_unstable();
    nodes.wait_members(&both);
    load.pause();
    nodes.wait_equal(&both);
    load.resume();
    nodes.does(last, &["members", "remove", &heir.to_string()]);
    nodes.wait_removed(heir);
    nodes.wait_members(&[last]);
    nodes.check(load, last);
    let refused = nodes.skein(last, &["members", "remove", &last.to_string()]);
    assert_line(&refused, 2, &[&format!("replica {last} is the last one")]);
}

#[test]
fn what_would_do_harm_is_refused_and_one_that_does_not_come_is_withdrawn() {
    let mut nodes = Nodes::new();
    for id in 1..=3 {
        nodes.begin(id, "found", &[1, 2, 3]);
    }
    wait_redis(nodes.ports[0]);
    nodes.wait_members(&[1, 2, 3]);
    let leader = nodes.leader(&[1, 2, 3]);
    // By a follower: it asks the leader.
    let asked = leader % 3 + 1;
    let (second, fourth) = (nodes.address(2), nodes.address(4));
    let refuse = |nodes: &Nodes, args: &[&str], why: &str| {
        let args: Vec<&str> = ["members"].iter().chain(args).copied().collect();
        assert_line(&nodes.skein(asked, &args), 2, &["cluster grows", why]);
    };
    refuse(&nodes, &["add", &format!("2={fourth}")], "replica 2 is a member already");
    refuse(&nodes, &["add", &format!("4={second}")], "replica 2 is at this address already");
    refuse(&nodes, &["remove", "9"], "replica 9 is not a member");
    refuse(&nodes, &["replace", "9", &format!("4={fourth}")], "replica 9 is not a member");
    refuse(&nodes, &["replace", "2", &format!("3={fourth}")], "replica 3 is a member already");
    refuse(&nodes, &["transfer", "9"], "replica 9 is not a member with a vote");
    assert_line(&nodes.skein(asked, &["members", "add", "4"]), 2, &["ID=ADDRESS"]);
    // Nobody is at that address.
    refuse(
        &nodes,
        &["add", &format!("4={fourth}"), "--timeout", "1"],
        "not done within 1 s: the leader has not heard of replica 4 yet",
    );
    nodes.wait_members(&[1, 2, 3]);
    // What joins must know the cluster, and a member.
    let config = nodes.config(4, &[]);
    let join = ["join", "--config", config.to_str().unwrap()];
    assert_line(&nodes.skein(4, &join), 2, &["`peers` names this replica only"]);
    let config = nodes.config(4, &[1]);
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(&format!("cluster_id = \"{CLUSTER_ID}\"\n"), "")).unwrap();
    assert_line(&nodes.skein(4, &join), 2, &["must know the id of the cluster"]);
    let used = nodes.place.path("skein-1.toml");
    let output = nodes.skein(1, &["join", "--config", used.to_str().unwrap()]);
    assert_line(&output, 2, &["holds a log already"]);
    // With one of three down, no other may go.
    let down = asked % 3 + 1;
    let down = if down == leader { down % 3 + 1 } else { down };
    nodes.kill(down);
    wait_for_or(
        "the leader to miss it",
        || nodes.evidence(),
        || {
            let faults = nodes.status(leader)["replicas"][0]["faults"].to_string();
            faults.contains(&format!("silent_{down}")).then_some(())
        },
    );
    for id in [leader, asked] {
        refuse(&nodes, &["remove", &id.to_string()], "only 1 of 2 replicas would be connected");
    }
    nodes.does(asked, &["members", "remove", &down.to_string()]);
    let mut rest = [leader, asked];
    rest.sort_unstable();
    nodes.wait_members(&rest);
    nodes.wait_equal(&rest);
}

/// The nodes of `skein run` stay as many as they are.
#[test]
fn skein_run_keeps_its_replicas() {
    let mut cluster = common::cluster::Cluster::start(&[]);
    cluster.wait_ready();
    cluster.wait_status(0);
    let output = cluster.place.run(&["members", "add", "4=127.0.0.1:7100", "--name", "t"]);
    assert_line(&output, 2, &["cluster t", "'skein run' keeps the number of its replicas"]);
    let listed = cluster.place.run(&["members", "--name", "t"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.lines().filter(|line| line.ends_with(" yes")).count(), 3, "{listed}");
    cluster.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.evidence());
}
