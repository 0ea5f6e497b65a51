//! Surroundings other than a developer's: an ordinary user, a machine that forbids namespaces, a disk that is full, a log
//! that is damaged.
//!
//! Most of these need root to make the surroundings; without it they say so and pass (`docs/limitations.md`).

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::preloaded::Preloaded;
use common::{Place, guest_server, runtime};
use nix::sys::signal::Signal;
use serde_json::Value;

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
        // In other groups, too, which it cannot give up.
        command.args(["--reuid=65534", "--regid=65534", "--groups=4,27,65534"]).arg(&skein);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", place.path("home")).env("SKEIN_RUN_DIR", place.path("run"));
        command.env("SKEIN_RUNTIME", &runtime).current_dir(place.path("home"));
        command
    };
    let mut run = as_user();
    run.args(["run", "--name", "t", "--"]).arg(&server).arg(port.to_string());
    let (ask, stop) = (as_user, as_user);
    let (mut status, mut stopping) = (ask(), stop());
    let said = fs::File::create(place.path("said")).unwrap();
    let mut run = run.stderr(said).spawn().unwrap();
    let what = || fs::read_to_string(place.path("said")).unwrap();
    common::cluster::wait_for_or("ready", what, || what().contains("ready at").then_some(()));
    assert!(place.path("home/.local/state/skein/t/cluster.json").exists(), "the default place");
    let answer = common::cluster::ask_once(("127.0.0.1", port), "x");
    assert_eq!(answer.as_deref(), Some("1 x"));
    let healthy = status.args(["status", "--name", "t", "--json"]).output().unwrap();
    assert_eq!(healthy.status.code(), Some(0));
    let told: serde_json::Value = serde_json::from_slice(&healthy.stdout).unwrap();
    for replica in told["replicas"].as_array().unwrap() {
        // This directory is root's: the node's own user cannot look into it.
        let node = format!("/proc/{}", replica["node_pid"]);
        assert_eq!(fs::metadata(format!("{node}/environ")).unwrap().uid(), 0, "{node}");
        assert_eq!(fs::metadata(node).unwrap().uid(), NOBODY);
    }
    // Its servers have images.
    let image = || {
        let words = ["checkpoint", "create", "--name", "t", "--replica", "1"];
        as_user().args(words).output().unwrap().status.success().then_some(())
    };
    common::cluster::wait_for_or("an image", what, image);
    assert_eq!(stopping.args(["stop"]).output().unwrap().status.code(), Some(0));
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let dir = place.dir.path().to_str().unwrap();
    assert!(common::processes_naming(dir).is_empty(), "{:?}", common::processes_naming(dir));
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
}

#[test]
fn an_ordinary_user_is_told_where_a_server_cannot_write() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (skein, runtime) = copies(&place);
    for dir in ["run", "home"] {
        fs::create_dir_all(place.path(dir)).unwrap();
        chown(place.path(dir), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // Its own directory below another user's, on a disk; it is neither the working directory nor below that.
    let others = tempfile::Builder::new().prefix("skein-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(others.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = others.path().join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let file = own.join("file").display().to_string();
    let server =
        format!("try: open('{file}', 'w')\nexcept OSError as e: raise SystemExit(e.errno)\n");
    let server = place.file("server.py", &server, 0o644);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&skein);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HOME", place.path("home")).env("SKEIN_RUN_DIR", place.path("run"));
    command.env("SKEIN_RUNTIME", &runtime).current_dir("/");
    command.args(["run", "--name", "t", "--", "/usr/bin/python3"]).arg(server);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(libc::EOVERFLOW), "{said}");
    let why = format!(
        "not writable: a directory above it belongs to another user (EOVERFLOW); \
         give the server one whose parents are yours, or run as root: {file}"
    );
    let log = |id| place.path(&format!("home/.local/state/skein/t/node-{id}/node.log"));
    let log: String = (1..=3).map(|id| fs::read_to_string(log(id)).unwrap_or_default()).collect();
    assert!(log.contains(&why), "{said}\n{log}");
}

#[test]
fn a_machine_that_forbids_namespaces() {
    if !root() {
        return;
    }
    let place = Place::new();
    let server = guest_server(&place, "echo_threads");
    // The limit counts objects inside the new namespace, so it does not touch the machine.
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

/// Starts a cluster, counts once, stops it; only its data remain.
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
fn a_full_disk_is_named_and_its_replica_goes_on_when_there_is_room() {
    if !root() {
        return;
    }
    let (place, port, server) = stopped_cluster();
    // A small disk under the third replica, in a mount namespace of its own, with 256 KiB left.
    let script = "cp -a data/node-3 kept && used=$(du -sk kept | cut -f1) && \
                  mount -t tmpfs -o size=$((used + 256))k none data/node-3 && \
                  cp -a kept/. data/node-3/ && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_skein")).args(["run", "--name", "t", "--restart", "no"]);
    command.args(["--data", &place.data(), "--"]).args(&server);
    command.env("SKEIN_RUN_DIR", place.path("run")).env("SKEIN_RUNTIME", runtime());
    let mut cluster = Cluster::spawn(place, port, &mut command);
    cluster.wait_said("ready");
    let node = |status: &Value| Cluster::replica(status, 3)["node_pid"].clone();
    let before = node(&cluster.wait_status(0));
    let line = "y".repeat(2000);
    let mut answers = 0;
    while !cluster.said().contains("is full: its log waits until there is room") {
        cluster.ask(&line);
        answers += 1;
        assert!(answers < 5000, "the disk is never full\n{}", cluster.said());
    }
    let status = cluster.wait_status(1);
    let fault = &Cluster::replica(&status, 3)["faults"][0];
    assert_eq!(fault["name"], "disk_full", "{status:#}");
    assert!(cluster.count() > answers, "the others go on");
    let room = Command::new("nsenter")
        .args(["--mount", "--target", &cluster.pid().to_string(), "mount"])
        .args(["-o", "remount,size=64m"])
        .arg(cluster.place.path("data/node-3"))
        .status();
    assert!(room.unwrap().success());
    assert_eq!(node(&cluster.wait_status(0)), before, "it never ended");
    cluster.wait_said("node 3 is well again");
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn a_disk_that_hangs_at_the_first_client_stops_nobody() {
    let place = Place::new();
    let (preloaded, server) = (Preloaded::new(&place), guest_server(&place, "echo_threads"));
    let port = free_port();
    let mut command = place.skein_with_runtime();
    preloaded.attach(&mut command);
    command.args(["run", "--name", "t", "--data", &place.data(), "--"]);
    command.arg(server).arg(port.to_string());
    let mut cluster = Cluster::spawn(place, port, &mut command);
    let (leader, node) = Cluster::leader(&cluster.wait_ready());
    let unanswered = |cluster: &Cluster, id: u64| {
        fs::exists(cluster.place.path(&format!("data/node-{id}/unanswered"))).unwrap()
    };
    assert!(unanswered(&cluster, leader), "nobody was answered yet");
    preloaded.set_disk(node, None);
    cluster.ask("x");
    let evidence = || cluster.evidence();
    let (status, next) = wait_for_or("another leader", evidence, || {
        let status = cluster.status().0;
        let next = status["leader"].as_u64().filter(|id| *id != leader)?;
        Some((status, next))
    });
    let faults = &Cluster::replica(&status, leader)["faults"];
    assert_eq!(faults[0]["name"], "disk_hangs", "{status:#}");
    assert!(!unanswered(&cluster, next), "who serves has noted it");
    preloaded.set_disk(node, Some(std::time::Duration::ZERO));
    let status = cluster.wait_status(0);
    let after = &Cluster::replica(&status, leader)["node_pid"];
    assert_eq!(after.as_i64(), Some(node.into()), "it never ended\n{}", cluster.said());
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
