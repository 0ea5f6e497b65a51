//! Three `skein node`s with one configuration form a cluster on three hosts (network namespaces): one is killed, one is
//! cut off, clients are served on, and all replicas end up the same.
//!
//! Only root can make network namespaces; without it the test says so and passes (`docs/limitations.md`).

mod common;

use std::path::PathBuf;
use std::process::{Child, Stdio};

use common::cluster::{ask_once, wait_for_or};
use common::hosts::Hosts;
use common::{Place, guest_server, processes_naming, runtime};
use serde_json::Value;

struct Machine {
    hosts: Hosts,
    place: Place,
    server: PathBuf,
    nodes: Vec<Option<Child>>,
}

impl Machine {
    fn new() -> Self {
        let place = Place::new();
        let server = guest_server(&place, "echo_threads");
        Self { hosts: Hosts::new(), place, server, nodes: vec![None, None, None] }
    }

    /// Writes the configuration that differs between hosts only where it must, and starts the node.
    fn start(&mut self, id: u64) {
        let dir = self.place.dir.path().display();
        let text = format!(
            "name = \"three\"\nid = {id}\ndata_dir = \"{dir}/data-{id}\"\n\
             peers = [\n    {{ id = 1, address = \"10.77.0.1:7100\" }},\n    \
             {{ id = 2, address = \"10.77.0.2:7100\" }},\n    \
             {{ id = 3, address = \"10.77.0.3:7100\" }},\n]\nlog_file = \"{dir}/node-{id}.log\"\n\
             [server]\nprogram = \"{}\"\nargs = [\"7000\"]\n[publisher.bind]\n\
             publish = [{{ address = \"0.0.0.0:80\", server_port = 7000 }}]\n",
            self.server.display()
        );
        let config = self.place.file(&format!("skein-{id}.toml"), &text, 0o644);
        let said = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.place.path(&format!("said-{id}")))
            .unwrap();
        let mut command = self.hosts.host(id).command(env!("CARGO_BIN_EXE_skein"));
        command.args(["node", "--config"]).arg(config).env("SKEIN_RUNTIME", runtime());
        command.env("SKEIN_RUN_DIR", self.run_dir(id)).stdout(Stdio::null()).stderr(said);
        self.nodes[id as usize - 1] = Some(command.spawn().unwrap());
    }

    fn run_dir(&self, id: u64) -> PathBuf {
        self.place.path(&format!("run-{id}"))
    }

    fn skein(&self, id: u64, args: &[&str]) -> std::process::Output {
        self.place.skein().env("SKEIN_RUN_DIR", self.run_dir(id)).args(args).output().unwrap()
    }

    fn status(&self, id: u64) -> Value {
        let output = self.skein(id, &["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn evidence(&self) -> String {
        let mut text = String::new();
        for id in 1..=3 {
            for file in [format!("said-{id}"), format!("node-{id}.log")] {
                let all = std::fs::read_to_string(self.place.path(&file)).unwrap_or_default();
                let tail: Vec<&str> = all.lines().rev().take(15).collect();
                text.push_str(&format!("--- {file}\n"));
                tail.iter().rev().for_each(|line| text.push_str(&format!("{line}\n")));
            }
        }
        text
    }

    #[track_caller]
    fn wait<T>(&self, what: &str, probe: impl FnMut() -> Option<T>) -> T {
        wait_for_or(what, || self.evidence(), probe)
    }

    /// The leader that the given hosts agree on.
    #[track_caller]
    fn leader(&self, ids: &[u64]) -> u64 {
        self.wait("a leader that all know", || {
            let known: Vec<u64> =
                ids.iter().filter_map(|id| self.status(*id)["leader"].as_u64()).collect();
            let all = known.len() == ids.len() && known.windows(2).all(|two| two[0] == two[1]);
            (all && ids.contains(&known[0])).then(|| known[0])
        })
    }

    /// Asks at one host, from the network, until there is an answer; the count in it.
    #[track_caller]
    fn count(&self, id: u64) -> u64 {
        let answer = self.wait(&format!("an answer of host {id}"), || {
            self.hosts.middle.enter(|| ask_once((format!("10.77.0.{id}").as_str(), 80), "x"))
        });
        answer.split(' ').next().unwrap().parse().unwrap()
    }

    #[track_caller]
    fn wait_running(&self, id: u64) {
        self.wait(&format!("host {id} to run"), || {
            (self.status(id)["replicas"][0]["state"] == "running").then_some(())
        });
    }

    fn others(id: u64) -> Vec<u64> {
        (1..=3).filter(|other| *other != id).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            // Ended already when the test passed.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

#[test]
fn three_hosts() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make network namespaces");
        return;
    }
    let mut machine = Machine::new();
    (1..=3).for_each(|id| machine.start(id));
    (1..=3).for_each(|id| machine.wait_running(id));
    let leader = machine.leader(&[1, 2, 3]);
    assert_eq!(machine.count(leader), 1);
    let follower = Machine::others(leader)[0];
    assert_eq!(
        machine.count(follower),
        2,
        "a follower passes its clients on\n{}",
        machine.evidence()
    );

    // The leader's host dies.
    let node = machine.nodes[leader as usize - 1].take();
    let mut node = node.unwrap();
    node.kill().unwrap();
    node.wait().unwrap();
    let others = Machine::others(leader);
    assert!(machine.count(others[0]) > 2 && machine.count(others[1]) > 3);
    let second = machine.leader(&others);
    machine.start(leader);
    machine.wait_running(leader);

    // The new leader's cable is pulled: it must not answer, the others must.
    machine.hosts.cable(second, "down");
    let others = Machine::others(second);
    let third = machine.leader(&others);
    assert_ne!(third, second);
    let before = machine.count(third);
    let alone = machine.hosts.host(second).enter(|| ask_once(("127.0.0.1", 80), "x"));
    assert_eq!(alone, None, "cut off it can commit nothing");
    machine.hosts.cable(second, "up");
    machine.wait("the cut off host to follow", || {
        (machine.leader(&[1, 2, 3]) != second).then_some(())
    });
    machine.wait_running(second);
    assert!(machine.count(second) > before);

    machine.wait("all replicas to be the same", || {
        let rows: Vec<Value> =
            (1..=3).map(|id| machine.status(id)["replicas"][0].clone()).collect();
        let same = |key: &str| rows.iter().all(|row| row[key] == rows[0][key]);
        (same("digest_index") && same("digest") && same("applied_index")).then_some(())
    });
    let table = String::from_utf8(machine.skein(1, &["status"]).stdout).unwrap();
    assert!(table.contains("2 more replicas are on other machines"), "{table}");
    let logs = String::from_utf8(machine.skein(1, &["logs"]).stdout).unwrap();
    assert!(logs.contains("node 1 | "), "{logs}");

    for id in 1..=3 {
        let stopped = machine.skein(id, &["stop", "--name", "three"]);
        assert_eq!(stopped.status.code(), Some(0), "{}", String::from_utf8_lossy(&stopped.stderr));
        let node = machine.nodes[id as usize - 1].as_mut().unwrap();
        assert_eq!(node.wait().unwrap().code(), Some(0));
    }
    let dir = machine.place.dir.path().to_str().unwrap().to_string();
    assert!(processes_naming(&dir).is_empty(), "{:?}", processes_naming(&dir));
}
