//! A replica whose log is damaged or gone says so, the others serve, and `skein rejoin` brings it back; a first start that failed binds
//! nobody; a data directory is its user's alone.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::cluster::{Cluster, free_port, wait_for_or};
use common::{Place, assert_line, guest_server};
use nix::sys::signal::Signal;

fn stop(cluster: &mut Cluster) {
    cluster.signal(Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.evidence());
}

/// Starts it again with the same command in the same place.
fn again(cluster: Cluster) -> Cluster {
    let port = cluster.port;
    let place = cluster.into_place();
    let server = guest_server(&place, "echo_threads");
    Cluster::start_in(place, port, &[], &[server.to_str().unwrap(), &port.to_string()])
}

fn node(cluster: &Cluster, id: u64) -> PathBuf {
    cluster.place.path(&format!("data/node-{id}"))
}

/// Changes one bit of a replica's log, in the first record of its newest segment: those behind it show that it was written.
fn damage(dir: &Path) {
    const BEHIND_ITS_HEADER: usize = 100;
    let logs = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let segment = logs.filter(|path| path.extension().is_some_and(|e| e == "wal")).max().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[BEHIND_ITS_HEADER] ^= 1;
    fs::write(segment, bytes).unwrap();
}

#[track_caller]
fn rejoin(cluster: &Cluster, id: u64) {
    let number = id.to_string();
    let output = cluster.place.run(&["rejoin", "--name", "t", "--replica", &number]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!("replica {id}: at its next start it is filled")), "{said}");
    cluster.wait_status(0);
}

#[test]
fn a_damaged_and_a_lost_log_are_named_and_rejoin() {
    let mut cluster = Cluster::start(&[]);
    cluster.wait_ready();
    let before = cluster.count();
    stop(&mut cluster);
    damage(&node(&cluster, 2));
    cluster = again(cluster);
    cluster.wait_said("node 2 failed: ");
    cluster.wait_said(": damaged at byte ");
    cluster.wait_said("'skein rejoin' fills this one anew");
    assert!(cluster.count() > before, "two of three serve, and have what was counted");
    rejoin(&cluster, 2);
    assert!(node(&cluster, 2).join("log.lost-1").exists(), "what was left is kept");

    // A disk that is gone altogether.
    let before = cluster.count();
    stop(&mut cluster);
    fs::remove_dir_all(node(&cluster, 3)).unwrap();
    cluster = again(cluster);
    cluster.wait_said("node 3 failed: ");
    cluster.wait_said("holds no log; 'skein rejoin' brings a replica back");
    assert!(cluster.count() > before);
    rejoin(&cluster, 3);

    // A disk that goes while the cluster runs.
    let before = cluster.count();
    let pid = Cluster::replica(&cluster.wait_status(0), 2)["node_pid"].as_i64().unwrap();
    fs::rename(node(&cluster, 2), cluster.place.path("lost")).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    cluster.wait_said("node 2 failed: ");
    assert!(cluster.count() > before);
    rejoin(&cluster, 2);

    // A running node must not be emptied.
    let output = cluster.place.run(&["rejoin", "--name", "t", "--replica", "1"]);
    assert_line(&output, 2, &["replica 1", "is in use by another node"]);
    // Both count again: without replica 1 they serve, and have all data.
    let before = cluster.count();
    let pid = Cluster::replica(&cluster.wait_status(0), 1)["node_pid"].as_i64().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    assert!(cluster.count() > before);
    cluster.wait_status(0);
    cluster.wait_memory_agreed();
    stop(&mut cluster);
    cluster.assert_nothing_left();
}

#[test]
fn a_first_start_that_failed_does_not_pin_its_directory() {
    let place = Place::new();
    let port = free_port();
    let server = guest_server(&place, "echo_threads");
    let mut failed = Cluster::start_in(place, port, &[], &["/bin/false"]);
    assert_eq!(failed.wait_end(), Some(1));
    let arguments = [server.to_str().unwrap(), &port.to_string()];
    let mut cluster = Cluster::start_in(failed.into_place(), port, &[], &arguments);
    cluster.wait_said("starts anew: no client was answered from its log");
    cluster.wait_ready();
    assert_eq!(cluster.count(), 1);
    stop(&mut cluster);
    // Now a client was answered.
    let mut other = Cluster::start_in(cluster.into_place(), port, &[], &["/bin/false"]);
    assert_eq!(other.wait_end(), Some(125));
    assert!(other.said().contains("its log was made by"), "{}", other.said());
    let place = other.into_place();
    let mut cluster = Cluster::start_in(place, port, &[], &arguments);
    cluster.wait_said("continues from its log");
    assert_eq!(cluster.count(), 2);
    cluster.wait_memory_agreed();
    stop(&mut cluster);
}

/// Files and directories that users other than their owner may reach.
fn open_to_others(dir: &Path, found: &mut Vec<String>) {
    let entries = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    for path in entries.chain([dir.to_owned()]) {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.permissions().mode() & 0o077 != 0 {
            found.push(format!("{} {:o}", path.display(), meta.permissions().mode()));
        }
        // Pinned files have their own permissions, in a directory that is closed to others.
        if meta.is_dir() && path != dir && !path.ends_with("base") {
            open_to_others(&path, found);
        }
    }
}

#[test]
fn a_data_directory_is_its_users_alone() {
    let mut cluster = Cluster::start(&[]);
    cluster.wait_ready();
    cluster.count();
    let data = cluster.place.path("data");
    let mut found = Vec::new();
    open_to_others(&data, &mut found);
    assert_eq!(found, [""; 0]);
    stop(&mut cluster);
    // An older version, or a user, left it open.
    let open = |path: &Path| {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in ["", "node-1", "node-1/log", "node-1/node.log", "node-1/server.log", "run.log"] {
        open(&data.join(path));
    }
    let segment = data.join("node-1/log/0000000000000001.wal");
    open(&segment);
    let mut cluster = again(cluster);
    cluster.wait_ready();
    wait_for_or(
        "everything to be private again",
        || cluster.evidence(),
        || {
            let mut found = Vec::new();
            open_to_others(&data, &mut found);
            found.is_empty().then_some(())
        },
    );
    cluster.wait_memory_agreed();
    stop(&mut cluster);
}
