//! Surroundings other than a developer's: an ordinary user, a machine that forbids namespaces, a disk that is full, a log
//! that is damaged.
//!
//! Most of these need root to make the surroundings; without it they say so and pass (`docs/limitations.md`).

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use common::cluster::{Cluster, free_port};
use common::{Place, guest_server, runtime};
use nix::sys::signal::Signal;

/// The user "nobody" of most distributions.
const NOBODY: u32 = 65534;

fn root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can make these surroundings");
    }
    root
}

/// Copies of the command and the runtime that any user can reach.
fn copies(place: &Place) -> (PathBuf, PathBuf) {
    let copy = |from: &std::path::Path, name: &str| {
        let to = place.path(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let command = copy(env!("CARGO_BIN_EXE_skein").as_ref(), "skein");
    (command, copy(runtime(), "libskein.so"))
}

#[test]
fn an_ordinary_user() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (skein, runtime) = copies(&place);
    let port = free_port();
    let server = guest_server(&place, "echo_threads");
    for dir in ["run", "home"] {
        fs::create_dir_all(place.path(dir)).unwrap();
        chown(place.path(dir), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let as_user = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&skein);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", place.path("home")).env("SKEIN_RUN_DIR", place.path("run"));
        command.env("SKEIN_RUNTIME", &runtime).current_dir(place.path("home"));
        command
    };
    let mut run = as_user();
    run.args(["run", "--name", "t", "--"]).arg(&server).arg(port.to_string());
    let (ask, stop) = (as_user, as_user);
    let status_code = |command: &mut Command| command.args(["status", "--name", "t"]).output();
    let (mut status, mut stopping) = (ask(), stop());
    let said = fs::File::create(place.path("said")).unwrap();
    let mut run = run.stderr(said).spawn().unwrap();
    let what = || fs::read_to_string(place.path("said")).unwrap();
    common::cluster::wait_for_or("ready", what, || what().contains("ready at").then_some(()));
    assert!(place.path("home/.local/state/skein/t/cluster.json").exists(), "the default place");
    let answer = common::cluster::ask_once(("127.0.0.1", port), "x");
    assert_eq!(answer.as_deref(), Some("1 x"));
    assert_eq!(status_code(&mut status).unwrap().status.code(), Some(0));
    assert_eq!(stopping.args(["stop"]).output().unwrap().status.code(), Some(0));
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let dir = place.dir.path().to_str().unwrap();
    assert!(common::processes_naming(dir).is_empty(), "{:?}", common::processes_naming(dir));
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
}

#[test]
fn a_machine_that_forbids_namespaces() {
    if !root() {
        return;
    }
    let place = Place::new();
    let server = guest_server(&place, "echo_threads");
    // The limit counts what is made inside the new namespace, so it does not touch the machine.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_skein")).args(["run", "--data", &place.data(), "--"]);
    command.arg(&server).arg(free_port().to_string());
    command.env("SKEIN_RUN_DIR", place.path("run")).env("SKEIN_RUNTIME", runtime());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("cannot create namespaces for the server"), "{said}");
    assert!(last.contains("max_user_namespaces"), "{said}");
    let dir = place.dir.path().to_str().unwrap();
    assert!(common::processes_naming(dir).is_empty(), "{:?}", common::processes_naming(dir));
}

/// Starts a cluster, counts once, stops it; what remains is its data.
fn stopped_cluster() -> (Place, u16, [String; 2]) {
    let mut cluster = Cluster::start(&[]);
    cluster.wait_ready();
    assert_eq!(cluster.count(), 1);
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));
    let server = cluster.place.path("echo_threads").to_str().unwrap().to_string();
    let port = cluster.port;
    (std::mem::replace(&mut cluster.place, Place::new()), port, [server, port.to_string()])
}

#[test]
fn a_full_disk_stops_one_replica_and_the_others_go_on() {
    if !root() {
        return;
    }
    let (place, port, server) = stopped_cluster();
    // A small disk under the third replica, in a mount namespace of its own. A log's file is filled with zeros 1 MiB ahead.
    let script = "cp -a data/node-3 kept && mount -t tmpfs -o size=1280k none data/node-3 && \
                  cp -a kept/. data/node-3/ && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_skein")).args(["run", "--name", "t", "--restart", "no"]);
    command.args(["--data", &place.data(), "--"]).args(&server);
    command.env("SKEIN_RUN_DIR", place.path("run")).env("SKEIN_RUNTIME", runtime());
    let mut cluster = Cluster::spawn(place, port, &mut command);
    cluster.wait_said("ready");
    let line = "y".repeat(2000);
    let mut answers = 0;
    while !cluster.said().contains("node 3 failed") {
        cluster.ask(&line);
        answers += 1;
        assert!(answers < 2000, "the disk is never full\n{}", cluster.said());
    }
    assert!(cluster.said().contains("disk full; free space and restart the node"));
    let status = cluster.wait_status(1);
    assert_eq!(Cluster::replica(&status, 3)["state"], "down");
    assert!(cluster.count() > answers, "the others go on");
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn a_damaged_log_is_named_with_its_offset() {
    let (place, port, server) = stopped_cluster();
    let log = fs::read_dir(place.path("data/node-2/log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "wal"))
        .unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[used / 2] ^= 0x55;
    fs::write(&log, bytes).unwrap();
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let mut cluster = Cluster::start_in(place, port, &[], &server);
    cluster.wait_said("node 2 failed");
    let said = cluster.said();
    assert!(said.contains(&format!("{}: damaged at byte", log.display())), "{said}");
    assert_eq!(cluster.count(), 2, "the others go on");
    cluster.wait_said("ready at");
    assert_eq!(cluster.said().matches("node 2 failed").count(), 1, "said once, tried again");
    assert_eq!(cluster.status().1, Some(1));
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn a_diverged_replica_is_named_and_rebuilt() {
    let place = Place::new();
    let port = free_port();
    let server = guest_server(&place, "echo_threads");
    let mut command = place.skein_with_runtime();
    command.env("SKEIN_TEST_CORRUPT_DIGEST_AT", "3:4");
    command.args(["run", "--name", "t", "--data", &place.data(), "--"]);
    command.arg(&server).arg(port.to_string());
    let mut cluster = Cluster::spawn(place, port, &mut command);
    cluster.wait_said("ready");
    let mut answers = 0;
    while !cluster.said().contains("node 3 diverged: the server's output differed") {
        cluster.ask("x");
        answers += 1;
        assert!(answers < 20_000, "never noticed\n{}", cluster.said());
    }
    cluster.wait_status(0);
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}
