//! A server cannot continue from the only image that there is, as the disk of its private layer is full: the image stays, that is said, and it goes on by itself when there is room.
//!
//! The directory of the layer is a file system of its own, in a mount namespace that only the cluster sees. Root only.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::real::{ANSWER, Random, Real};
use common::resp::{Redis, Reply};
use common::{Place, runtime, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What redis has written to its file: it does not become smaller.
const VALUES: usize = 64;
const VALUE_BYTES: usize = 64 << 10;
/// The fault's name.
const LEFT_OUT: &str = "image_left_out";

/// The file system is mounted here, in the cluster's place; the layer is one directory of it, and what takes its room lies beside.
const MOUNT: &str = "set -e; mount -t tmpfs -o mode=700,size=32m layer \"$0\"; mkdir -m 700 \"$0/in\"; \
    mount --bind \"$0/in\" \"$1\"; shift; exec \"$@\"";

/// As the cluster's processes see it.
fn seen(cluster: &Cluster, path: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root", cluster.pid())).join(path.strip_prefix("/").unwrap())
}

fn node_of(cluster: &Cluster) -> Pid {
    let (status, _) = cluster.status();
    let pid = Cluster::replica(&status, 1)["node_pid"].as_i64().unwrap();
    Pid::from_raw(i32::try_from(pid).unwrap())
}

#[test]
fn an_image_stays_that_a_server_cannot_continue_from_for_want_of_room() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a small file system");
        return;
    }
    let (place, port) = (Place::new(), free_port());
    let [small, layer, home] = ["small", "data/node-1/layer", "home"].map(|dir| place.path(dir));
    for dir in [&small, &layer, &home] {
        fs::create_dir_all(dir).unwrap();
    }
    for part in ["data", "data/node-1", "data/node-1/layer"] {
        fs::set_permissions(place.path(part), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let images = place.path("data/node-1/images");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", MOUNT]).args([&small, &layer]);
    command.arg(place.skein().get_program()).args(["run", "--name", "t", "--replicas", "1"]);
    command.args(["--layer", "disk", "--data", &place.data(), "--", "/usr/bin/redis-server"]);
    command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "yes"]);
    // A directory with others mounted below it is in memory.
    command.arg("--dir").arg(&home);
    // Nothing of it stays in the server.
    command.args(["--appendfsync", "always"]);
    command.env("SKEIN_RUN_DIR", place.path("run")).env("SKEIN_RUNTIME", runtime());
    let real = Real::around(Cluster::spawn(place, port, &mut command));
    real.cluster.wait_ready();
    let mut random = Random::new(5);
    let mut redis = Redis::connect(port, ANSWER).unwrap();
    for key in 0..VALUES {
        let value = random.bytes(VALUE_BYTES);
        redis.ask(&[b"SET", format!("key-{key}").as_bytes(), &value]).unwrap();
    }
    redis.ask(&["SET", "last", "one"]).unwrap();
    // Behind two images nothing is in the log from which it could begin instead.
    let log = real.cluster.place.path("data/node-1/node.log");
    let forgets = || {
        redis.ask(&["INCR", "images"]).unwrap();
        let words = ["checkpoint", "create", "--name", "t", "--replica", "1"];
        real.cluster.place.run(&words);
        fs::read_to_string(&log).unwrap().contains("log_forgot").then_some(())
    };
    wait_for_or("images, and a log that begins behind one", || real.cluster.evidence(), forgets);
    let newest = || {
        let names = fs::read_dir(&images).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        let index = |name: String| name.strip_prefix("image-")?.parse::<u64>().ok();
        names.filter_map(index).max()
    };
    let newest_is = wait_for("an image that counts", newest);

    // The node is killed; nothing starts it again before its layer is gone, and its room is taken.
    let (run, node) = (Pid::from_raw(real.cluster.pid()), node_of(&real.cluster));
    kill(run, Signal::SIGSTOP).unwrap();
    kill(node, Signal::SIGKILL).unwrap();
    let layer = seen(&real.cluster, &layer);
    let emptied = || {
        for entry in fs::read_dir(&layer).unwrap().flatten() {
            // Its server's processes end meanwhile.
            let _ = fs::remove_dir_all(entry.path());
        }
        // What they have open takes room until they have ended.
        let about = nix::sys::statvfs::statvfs(&layer).unwrap();
        (about.blocks_free() == about.blocks()).then_some(about)
    };
    let free = wait_for("the killed server's layer to be empty", emptied);
    let free = (free.blocks_available() * free.fragment_size()) as usize;
    let left = VALUES * VALUE_BYTES / 2;
    let ballast = seen(&real.cluster, &small).join("ballast");
    fs::write(&ballast, vec![1; free - left]).unwrap();
    kill(run, Signal::SIGCONT).unwrap();

    let told = || {
        let (status, _) = real.cluster.status();
        let faults = Cluster::replica(&status, 1)["faults"].as_array()?.clone();
        faults.into_iter().find(|fault| fault["name"] == LEFT_OUT)
    };
    let fault = wait_for_or(&format!("the fault {LEFT_OUT}"), || real.cluster.evidence(), told);
    let why = fault["why"].as_str().unwrap();
    assert!(why.contains("cannot continue from the image") && why.contains("space"), "{why}");
    assert_eq!(newest(), Some(newest_is), "it stays");

    fs::remove_file(&ballast).unwrap();
    real.cluster.wait_ready();
    let answers = || {
        let mut redis = Redis::connect(port, ANSWER).ok()?;
        (redis.ask(&["GET", "last"]).ok()? == Reply::Bulk(b"one".to_vec())).then_some(())
    };
    wait_for_or("what was written", || real.cluster.evidence(), answers);
    assert!(told().is_none());
    real.end();
}
