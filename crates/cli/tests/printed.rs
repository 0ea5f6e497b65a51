//! A server's output is readable when the entry that caused it is committed, and not before.

mod common;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::cluster::{Cluster, free_port, wait_for_or};
use common::{Place, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PYTHON: &str = "/usr/bin/python3";
/// Answers a line, and prints the text behind "say ", or the content of the file named behind "read "; then it computes for long.
const SERVER: &str = "
import os, socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            word, _, rest = line.decode().strip().partition(' ')
            if word == 'say':
                print(rest, flush=True)
            if word == 'read':
                descriptor = os.open(rest, os.O_RDONLY)
                os.write(1, os.read(descriptor, 100))
                for _ in range(30000000): pass
                os.write(1, b'counted\\n')
            self.wfile.write(b'ok\\n')
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

fn start() -> Cluster {
    start_with(&[])
}

fn start_with(options: &[&str]) -> Cluster {
    start_at(Place::new(), free_port(), options)
}

fn start_at(place: Place, port: u16, options: &[&str]) -> Cluster {
    place.file("server.py", SERVER, 0o644);
    // Python lists the directory of its program, at a different time on each replica: no file may be added later.
    place.file("file", "of the host\n", 0o644);
    start_again(place, port, options)
}

/// With the files that are there: what the server has used may not be pinned yet, and then may not change.
fn start_again(place: Place, port: u16, options: &[&str]) -> Cluster {
    let server = place.path("server.py");
    let server = [PYTHON, server.to_str().unwrap(), &port.to_string()];
    Cluster::start_in(place, port, options, &server)
}

fn printed(cluster: &Cluster, id: u64) -> String {
    fs::read_to_string(cluster.place.path(&format!("data/node-{id}/server.log")))
        .unwrap_or_default()
}

fn wait_printed(cluster: &Cluster, id: u64, line: &str) {
    wait_for_or(
        &format!("'{line}' in replica {id}'s output"),
        || cluster.evidence(),
        || printed(cluster, id).lines().any(|other| other == line).then_some(()),
    );
}

/// Stops processes until it is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn new(pids: Vec<Pid>) -> Self {
        let stopped = Self(pids);
        for pid in &stopped.0 {
            kill(*pid, Signal::SIGSTOP).unwrap();
            // A thread may not have received the signal yet.
            wait_for("all threads to stop", || {
                let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
                let stands = |task: fs::DirEntry| {
                    let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
                };
                tasks.flatten().all(stands).then_some(())
            });
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).unwrap_or_default());
    }
}

#[test]
fn a_line_waits_for_the_commit() {
    let cluster = start();
    let status = cluster.wait_ready();
    assert_eq!(cluster.ask("say first"), "ok");
    (1..=3).for_each(|id| wait_printed(&cluster, id, "first"));
    let (leader, _) = Cluster::leader(&status);
    let node = |id| Cluster::replica(&status, id)["node_pid"].as_i64().unwrap() as i32;
    let others = (1..=3).filter(|id| *id != leader).map(|id| Pid::from_raw(node(id))).collect();
    let mut client = TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
    {
        let _stopped = Stopped::new(others);
        client.write_all(b"say uncommitted\n").unwrap();
        // It is cut off now, and its server has executed the request long ago.
        wait_for("the leader to step down", || {
            let (status, _) = cluster.status();
            let row = Cluster::replica(&status, leader);
            (row["role"] != "leader").then_some(())
        });
        assert!(!printed(&cluster, leader).contains("uncommitted"), "{}", cluster.evidence());
    }
    cluster.wait_status(0);
    assert_eq!(cluster.ask("say last"), "ok");
    (1..=3).for_each(|id| wait_printed(&cluster, id, "last"));
    // Committed after all, or never: the same on all replicas.
    let heard = |id| printed(&cluster, id).lines().any(|line| line == "uncommitted");
    assert!((1..=3).all(|id| heard(id) == heard(1)), "{}", cluster.evidence());
}

/// The server asks for agreement when it waits, not when it opens the file.
#[test]
fn a_line_that_follows_from_a_file_waits_until_that_is_agreed_on() {
    let cluster = start();
    let status = cluster.wait_ready();
    let (leader, _) = Cluster::leader(&status);
    assert_eq!(cluster.ask("say first"), "ok");
    wait_printed(&cluster, leader, "first");
    let file = cluster.place.path("file");
    let pid = Cluster::replica(&status, leader)["server_pid"].as_i64().unwrap();
    let memory = format!("/proc/{pid}/fd/1");
    let holds = |path: &str, line: &str| {
        let bytes = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(line)
    };
    let mut client = TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
    client.write_all(format!("read {}\n", file.display()).as_bytes()).unwrap();
    let mut seen = None;
    let waited = wait_for("the line", || {
        if seen.is_none() && holds(&memory, "of the host") {
            seen = Some(Instant::now());
        }
        let heard = printed(&cluster, leader);
        let counted = heard.contains("counted") || holds(&memory, "counted");
        assert!(counted || !heard.contains("of the host"), "read before it is agreed on");
        heard.contains("counted").then(|| seen.expect("it was printed").elapsed())
    });
    // The test can see a wrong result: lines are checked every 50 ms.
    assert!(waited > Duration::from_millis(200), "{waited:?}");
    (1..=3).for_each(|id| wait_printed(&cluster, id, "of the host"));
}

#[test]
fn what_a_server_says_last_is_kept() {
    let place = Place::new();
    let port = free_port();
    let server = place.file("server.py", "import sys\nprint('out')\nsys.exit('no luck')\n", 0o644);
    let server = [PYTHON, server.to_str().unwrap()];
    let mut cluster = Cluster::start_in(place, port, &[], &server);
    assert_eq!(cluster.wait_end(), Some(1));
    let mut whole = 0;
    for id in 1..=3 {
        let text = printed(&cluster, id);
        whole += usize::from(text.contains("out\n") && text.contains("no luck\n"));
        assert!(Path::new(&cluster.place.path(&format!("data/node-{id}"))).exists());
    }
    // A replica that ended together with the others may not have reached it.
    assert!(whole >= 2, "{}", cluster.evidence());
}

/// What the former server asked about its host's files was answered then.
#[test]
fn a_server_that_continues_from_an_image_prints_on() {
    let mut cluster = start_with(&["--replicas", "1"]);
    cluster.wait_ready();
    let say = |cluster: &Cluster, line: &str| {
        let mut client = TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
        client.write_all(format!("say {line}\n").as_bytes()).unwrap();
        wait_printed(cluster, 1, line);
    };
    say(&cluster, "before");
    let create = ["checkpoint", "create", "--replica", "1", "--name", "t"];
    let created = cluster.place.run(&create);
    assert!(created.status.success(), "{created:?}");
    cluster.kill_all();
    let port = cluster.port;
    let cluster = start_again(cluster.into_place(), port, &["--replicas", "1"]);
    cluster.wait_ready();
    let log = fs::read_to_string(cluster.place.path("data/node-1/node.log")).unwrap();
    assert!(log.contains("\"restoring\""), "{log}");
    say(&cluster, "behind");
}

#[test]
fn logs_begin_new_files_and_the_oldest_go() {
    const BYTES: u64 = 4096;
    let options = ["--set", "logs.file_bytes=4096", "--set", "logs.old_files=2"];
    let cluster = start_with(&options);
    cluster.wait_ready();
    let file = |id: u64, name: &str, old: &str| {
        let path = cluster.place.path(&format!("data/node-{id}/{name}.log{old}"));
        fs::metadata(path).ok().map(|file| file.len())
    };
    let line = "x".repeat(400);
    let mut lines = 0;
    wait_for_or(
        "old files of all logs",
        || cluster.evidence(),
        || {
            lines += 1;
            assert_eq!(cluster.ask(&format!("say {line} {lines}")), "ok");
            // Each node logs who leads.
            let next = (lines % 3 + 1).to_string();
            let moved = cluster.place.run(&["members", "transfer", &next, "--name", "t"]);
            assert_ne!(moved.status.code(), None);
            let all = (1..=3).flat_map(|id| ["server", "node"].map(|name| (id, name)));
            let old = all.map(|(id, name)| file(id, name, ".2"));
            old.into_iter().all(|len| len.is_some()).then_some(())
        },
    );
    let last = format!("{line} {lines}");
    for id in 1..=3 {
        wait_printed(&cluster, id, &last);
        for name in ["server", "node"] {
            assert_eq!(file(id, name, ".3"), None, "{id} {name}");
            for old in ["", ".1", ".2"] {
                // The line that filled it is whole.
                let len = file(id, name, old).unwrap_or_default();
                assert!(len <= 2 * BYTES, "{id} {name}.log{old}: {len} bytes");
            }
        }
    }
}
