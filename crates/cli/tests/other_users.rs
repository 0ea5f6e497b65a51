//! Attacks of another user of the machine on a cluster of `skein run`, and of the server on it: none succeeds.
//!
//! Needs root to be another user; without it that test says so and passes (`docs/limitations.md`).

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::Place;
use common::cluster::{Cluster, ask_once, free_port, wait_for_or};
use common::own::compiled;

/// Connects, and sends a hello as another replica would; prints the errno (13 is `EACCES`) and the answer.
const FORGE: &str = "
import socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.settimeout(5)
try:
    stream.connect(sys.argv[1])
    stream.sendall(b'SKEIN' + bytes(200))
    print('heard', stream.recv(100))
except OSError as error:
    print(error.errno)
";

/// Runs a command as "nobody".
fn as_nobody(words: &[&str], run: &Path) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).args(words);
    command.env("SKEIN_RUN_DIR", run).current_dir("/").output().unwrap()
}

/// The ports at which a process listens.
fn listens(pid: i32) -> BTreeSet<u16> {
    let mut inodes = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let Ok(name) = fs::read_link(entry.path()) else { continue };
        let name = name.to_string_lossy().into_owned();
        inodes.extend(
            name.strip_prefix("socket:[").map(|rest| rest.trim_end_matches(']').to_owned()),
        );
    }
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            // Local address, state, inode.
            let (Some(local), Some(&"0A"), Some(inode)) =
                (fields.get(1), fields.get(3), fields.get(9))
            else {
                continue;
            };
            if inodes.contains(*inode) {
                let port = local.rsplit(':').next().unwrap();
                ports.insert(u16::from_str_radix(port, 16).unwrap());
            }
        }
    }
    ports
}

#[test]
fn another_user_reaches_neither_data_nor_nodes() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    assert_eq!(cluster.ask("secret"), "1 secret");
    let run = cluster.place.path("run");
    let denied = |words: &[&str]| {
        let output = as_nobody(words, &run);
        assert!(!output.status.success(), "{words:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("secret"), "{words:?}: {text}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for path in ["data/node-1/log", "data/node-1", "run/t", "data/cluster.json"] {
        let path = cluster.place.path(path);
        assert!(path.exists(), "{}", path.display());
        let said = denied(&["ls", path.to_str().unwrap()]);
        assert!(said.contains("Permission denied") || said.is_empty(), "{said}");
        denied(&["cat", path.to_str().unwrap()]);
    }
    for name in ["peer-1.sock", "node-1.sock", "publish.sock"] {
        assert!(run.join("t").join(name).exists(), "{name}");
        denied(&["test", "-e", run.join("t").join(name).to_str().unwrap()]);
    }
    for name in ["peer-1.sock", "peer-2.sock", "peer-3.sock", "node-1.sock", "publish.sock"] {
        let path = run.join("t").join(name);
        let output = as_nobody(&["/usr/bin/python3", "-c", FORGE, path.to_str().unwrap()], &run);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "13\n", "{name}: {output:?}");
    }
    for id in 1..=3 {
        let row = Cluster::replica(&status, id);
        let pid = row["node_pid"].as_i64().unwrap() as i32;
        // Only the published port, which is for clients.
        let ports: Vec<u16> = listens(pid).into_iter().collect();
        assert!(ports.iter().all(|port| *port == cluster.port), "node {id} listens at {ports:?}");
        for file in ["mem", "environ", "maps"] {
            denied(&["cat", &format!("/proc/{pid}/{file}")]);
        }
        denied(&["ls", &format!("/proc/{pid}/fd")]);
        denied(&["kill", "-KILL", &pid.to_string()]);
    }
    assert_eq!(cluster.ask("x"), "2 x");
    cluster.wait_status(0);
}

#[test]
fn a_server_reaches_neither_its_node_nor_the_cluster() {
    let place = Place::new();
    let port = free_port();
    let server = compiled(&place, "reach.c");
    let server = [server.to_str().unwrap().to_owned(), port.to_string()];
    let cluster = Cluster::start_in(place, port, &[], &[&server[0], &server[1]]);
    let status = cluster.wait_ready();
    let run = cluster.place.path("run/t");
    let node = Cluster::leader(&status).1;
    let mut tries = Vec::new();
    for name in ["peer-1.sock", "node-1.sock", "publish.sock"] {
        let path = run.join(name);
        assert!(path.exists(), "{name}");
        tries.push(format!("unix {}", path.display()));
    }
    for pid in [node, cluster.pid(), std::process::id() as i32] {
        tries.extend([format!("kill {pid}"), format!("trace {pid}")]);
    }
    tries.push("trace 1".into());
    for file in ["mem", "environ", "fd/0", "root/etc/passwd"] {
        tries.push(format!("read /proc/1/{file}"));
    }
    for file in ["sys/kernel/core_pattern", "sys/kernel/modprobe", "sysrq-trigger"] {
        tries.push(format!("write /proc/{file}"));
    }
    for fd in [900, 901] {
        tries.push(format!("shut {fd}"));
    }
    for line in tries {
        let asked = || ask_once(("127.0.0.1", port), &line);
        let answer = wait_for_or(&line, || cluster.evidence(), asked);
        assert!(answer.parse::<i32>().is_ok_and(|errno| errno > 0), "{line}: {answer}");
    }
    // All replicas are unchanged.
    let after = cluster.wait_status(0);
    for id in 1..=3 {
        let pid = |status| Cluster::replica(status, id)["node_pid"].clone();
        assert_eq!(pid(&after), pid(&status));
    }
}
