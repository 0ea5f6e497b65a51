//! `skein replay`: a stored log leads to the same end, a crash is found in it, and logs that cannot be replayed are refused by name.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::cluster::{Cluster, free_port};
use common::own::{Lines, compiled};
use common::real::{Real, at_once};
use common::resp::{Redis, Reply};
use common::{PATIENCE, Place, assert_line, wait_for};
use nix::sys::signal::Signal;

/// Exit code of `skein run` for a server that SIGSEGV ended.
const SEGV: i32 = 128 + 11;

fn replay(place: &Place, dir: &Path, args: &[&str]) -> Output {
    let mut command = place.skein_with_runtime();
    command.arg("replay").arg(dir).args(args).output().unwrap()
}

/// Asserts the exit code; answers the output.
#[track_caller]
fn said(output: &Output, code: i32) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    let text = String::from_utf8_lossy(out).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}\n{}", String::from_utf8_lossy(err));
    text
}

/// The text between two texts.
#[track_caller]
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no '{before}' in: {text}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no '{after}' in: {rest}")).0
}

/// All files below a directory.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        // Each start of a server lays its pinned files anew.
        if entry.file_name().as_encoded_bytes().starts_with(b"tree-") {
            continue;
        }
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    found
}

fn copy_all(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        let place = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, bytes).unwrap();
    }
}

/// The first segment of a copy's log, and the end of its records.
fn copy(from: &Path, to: &Path) -> (PathBuf, Vec<u8>, usize) {
    fs::create_dir_all(to.join("log")).unwrap();
    copy_all(from, to);
    let log = to.join("log/0000000000000001.wal");
    let bytes = fs::read(&log).unwrap();
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let end = (bytes.len() - zeros).next_multiple_of(8);
    (log, bytes, end)
}

/// A cluster whose server a request has crashed, and the entry after which it did.
fn crashed() -> (Place, u64) {
    let place = Place::new();
    let port = free_port();
    let server = compiled(&place, "frail.c");
    let words = place.file("words", "zero\none\ntwo", 0o644);
    let server = [server.to_str().unwrap(), words.to_str().unwrap(), &port.to_string()];
    let mut cluster = Cluster::start_in(place, port, &["--replicas", "1"], &server);
    cluster.wait_ready();
    let mut first = Lines::connect(port, PATIENCE).unwrap();
    let mut second = Lines::connect(port, PATIENCE).unwrap();
    for (n, word) in ["zero", "one", "two", "none"].iter().enumerate() {
        assert_eq!(first.ask(&n.to_string()).unwrap(), *word);
        assert_eq!(second.ask("1").unwrap(), "one");
    }
    let node = cluster.place.path("data/node-1");
    let before = files(&node.join("log"));
    assert_line(&replay(&cluster.place, &node, &[]), 2, &["in use by another node"]);
    assert_eq!(files(&node.join("log")).keys().len(), before.len());
    assert_eq!(first.ask("2").unwrap(), "two", "the node was disturbed");
    first.ask("99999").unwrap_err();
    assert_eq!(cluster.wait_end(), Some(SEGV), "{}", cluster.said());
    let entry = between(&cluster.said(), "killed by SIGSEGV after entry ", "\n").parse().unwrap();
    cluster.assert_nothing_left();
    (cluster.into_place(), entry)
}

#[test]
fn a_request_that_crashes_the_server_is_found_with_its_frames() {
    let (place, entry) = crashed();
    let node = place.path("data/node-1");
    let before = files(&node);

    let text = said(&replay(&place, &node, &[]), 0);
    let ended = between(&text, "\nended   ", "\n");
    assert!(ended.starts_with(&format!("in entry {entry} (6 bytes on connection ")), "{ended}");
    assert!(ended.ends_with("the server was killed by SIGSEGV"), "{ended}");

    let text = said(&replay(&place, &node, &["--at", &entry.to_string()]), 0);
    assert!(text.contains(&format!("stands  after entry {} of {entry}: ", entry - 1)), "{text}");
    assert!(text.contains(&format!("next    entry {entry}: 6 bytes on connection ")), "{text}");
    assert_eq!(text.matches("thread  ").count(), 3, "{text}");

    let output = place.path("printed");
    let gdb = ["--", "-batch", "-ex", "skein threads", "-ex", "skein bt all", "-ex", "skein next"];
    let entry = entry.to_string();
    let mut args = vec!["--at", &entry, "--output", output.to_str().unwrap(), "--gdb"];
    args.extend(gdb.iter().chain(&["-ex", "bt", "-ex", "skein bt"]));
    let text = said(&replay(&place, &node, &args), 0);
    let (parked, crashed) = text.split_once(" hit Catchpoint ").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(parked.matches(" serve ").count(), 2, "each connection's thread: {text}");
    assert!(parked.contains(" main ") && !parked.contains("look_up"), "{text}");
    let frames = crashed.matches("look_up ").count();
    assert!(frames >= 2 && crashed.contains(" serve "), "{text}");
    assert_eq!(fs::read_to_string(&output).unwrap(), "ready\n");

    assert!(files(&node) == before, "the node's directory was changed");
    let left = common::processes_naming(place.dir.path().to_str().unwrap());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn each_process_of_a_server_can_be_looked_at() {
    let place = Place::new();
    let port = free_port();
    let server = compiled(&place, "workers.c");
    let server = [server.to_str().unwrap(), &port.to_string()];
    let mut cluster = Cluster::start_in(place, port, &["--replicas", "1"], &server);
    cluster.wait_ready();
    for word in ["one", "two", "three"] {
        assert_eq!(cluster.ask(word), word);
    }
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.said());
    let place = cluster.into_place();
    let node = place.path("data/node-1");
    let text = said(&replay(&place, &node, &[]), 0);
    let last = between(&text, "\nend     entry ", ",").to_owned();
    for pid in ["2", "3"] {
        let gdb = ["-ex", "skein threads", "-ex", "skein bt", "-ex", "skein next all", "-ex", "bt"];
        let mut args = vec!["--at", &last, "--gdb", "--pid", pid, "--", "-batch"];
        args.extend(gdb);
        let text = said(&replay(&place, &node, &args), 0);
        assert_eq!(text.matches("\nprocess ").count(), 2, "{text}");
        assert_eq!(text.matches(": waits in work\n").count(), 1, "that process's alone: {text}");
        assert!(text.contains(&format!(" of process {pid} (workers): waits in work\n")), "{text}");
        let (_, stands) =
            text.split_once(" received signal SIG50").unwrap_or_else(|| panic!("{text}"));
        assert!(stands.contains(" work (") || stands.contains(" in work "), "{text}");
    }
}

#[test]
fn what_cannot_be_replayed_is_refused_by_name() {
    let (place, entry) = crashed();
    let node = place.path("data/node-1");
    let refused = |dir: &Path, args: &[&str], words: &[&str]| {
        assert_line(&replay(&place, dir, args), 2, words);
    };
    refused(&place.path("data"), &[], &["it is a cluster's", "data/node-1"]);
    refused(&place.path("run"), &[], &["it has no node.toml"]);
    let behind = (entry + 1).to_string();
    refused(&node, &["--at", &behind], &["--at", &format!("ends at entry {entry}")]);
    refused(&node, &["--at", "1", "--gdb", "--pid", "77"], &["--pid 77", "it has 2"]);
    let mut without = place.skein_with_runtime();
    without.env("PATH", place.path("run")).arg("replay").arg(&node);
    let output = without.args(["--at", "1", "--gdb"]).output().unwrap();
    assert_line(&output, 2, &["gdb", "install gdb"]);

    let (log, mut bytes, end) = copy(&node, &place.path("torn"));
    bytes.resize(bytes.len().max(end + 24), 0);
    bytes[end..end + 24].fill(0xa5);
    fs::write(&log, &bytes).unwrap();
    let text = said(&replay(&place, &place.path("torn"), &[]), 0);
    assert!(text.contains(&format!("{}: torn at byte {end}: ", log.display())), "{text}");
    assert!(text.contains(&format!("ended   in entry {entry} ")), "{text}");
    assert!(fs::read(&log).unwrap() == bytes, "the torn end was cut off");
    // As for a `skein node`: its configuration is elsewhere.
    let config = place.path("own.toml");
    fs::rename(place.path("torn/node.toml"), &config).unwrap();
    let at = entry.to_string();
    let config = ["--config", config.to_str().unwrap(), "--at", &at];
    let text = said(&replay(&place, &place.path("torn"), &config), 0);
    assert!(text.contains(&format!("stands  after entry {} of ", entry - 1)), "{text}");

    let (log, mut bytes, end) = copy(&node, &place.path("damaged"));
    bytes[end / 2] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let name = format!("{}: damaged at byte ", log.display());
    refused(&place.path("damaged"), &[], &[&name]);

    // The host's file differs from the log's: where it is pinned that changes nothing.
    let words = place.path("words");
    fs::write(&words, "zero\nun\ntwo").unwrap();
    said(&replay(&place, &node, &[]), 0);
    fs::rename(node.join("base"), place.path("aside")).unwrap();
    let output = replay(&place, &node, &[]);
    said(&output, 2);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains(&format!("skein: replay: the host's file {}", words.display())),
        "{text}"
    );

    let server = place.path("frail");
    let mut program = fs::read(&server).unwrap();
    program.push(0);
    fs::write(&server, program).unwrap();
    refused(&node, &[], &["was made for a program with hash"]);
}

/// What a replayed server is given, and what it leaves, is the copy's.
#[test]
fn a_copy_is_replayed_while_its_cluster_runs() {
    let (place, port) = (Place::new(), free_port());
    let server = compiled(&place, "frail.c");
    let words = place.file("words", "zero\none\ntwo", 0o644);
    let server = [server.to_str().unwrap(), words.to_str().unwrap(), &port.to_string()];
    let options = ["--replicas", "1", "--layer", "disk"];
    let cluster = Cluster::start_in(place, port, &options, &server);
    cluster.wait_ready();
    let mut client = Lines::connect(port, PATIENCE).unwrap();
    assert_eq!(client.ask("1").unwrap(), "one");
    let node = cluster.place.path("data/node-1");
    let of_server = || {
        let all = ["base", "layer"].map(|dir| {
            let names = fs::read_dir(node.join(dir)).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        });
        assert!(all.iter().all(|names| !names.is_empty()), "{all:?}");
        all
    };
    let before = of_server();
    let there = cluster.place.path("copy");
    for part in ["log", "base"] {
        copy_all(&node.join(part), &there.join(part));
    }
    fs::copy(node.join("node.toml"), there.join("node.toml")).unwrap();
    said(&replay(&cluster.place, &there, &[]), 0);
    assert_eq!(of_server(), before, "the running server's were touched");
    assert_eq!(client.ask("2").unwrap(), "two");
    assert!(there.join("layer").exists(), "the replayed server's");
}

#[test]
fn a_busy_redis_is_replayed_with_the_digests_of_all_replicas() {
    const CLIENTS: usize = 4;
    const REQUESTS: usize = 400;
    let mut real = Real::redis(&[], &["--save", ""]);
    let port = real.port();
    at_once(CLIENTS, |me| {
        let mut redis = Redis::connect(port, PATIENCE).unwrap();
        for n in 0..REQUESTS {
            let (key, value) = (format!("k:{me}:{}", n % 50), format!("{n}"));
            assert_eq!(redis.ask(&["SET", &key, &value]).unwrap(), Reply::ok());
            assert!(matches!(redis.ask(&["INCR", "all"]).unwrap(), Reply::Int(_)));
        }
    });
    real.wait_agreed();
    // The digests of all replicas are in the log.
    wait_for("a comparison", || {
        let (status, _) = real.cluster.status();
        let rows = status["replicas"].as_array()?.iter();
        rows.into_iter().all(|row| row["compared_index"].as_u64() > Some(0)).then_some(())
    });
    let mut redis = Redis::connect(port, PATIENCE).unwrap();
    let image = real.image_that_counts(1, || drop(redis.ask(&["INCR", "all"]).unwrap()));
    real.cluster.signal(Signal::SIGTERM);
    real.cluster.wait_end();
    let place = &real.cluster.place;
    for id in 1..=3 {
        let text = said(&replay(place, &place.path(&format!("data/node-{id}")), &[]), 0);
        let end = between(&text, "\nend     ", "\n");
        let digests = between(end, "the last one: ", " digests compared, all equal");
        let (equal, all) = digests.split_once(" of ").unwrap();
        assert!(equal == all && equal.parse::<u32>().unwrap() > 0, "{text}");
    }
    // A run from the image does the same, though fewer digests are behind its begin.
    let image = image.to_string();
    let args = ["--operations", "--image", &image];
    let text = said(&replay(place, &place.path("data/node-1"), &args), 0);
    let equal = |run| -> u32 {
        let ran = between(&text, run, " digests equal\n");
        ran.rsplit_once(", ").unwrap().1.parse().unwrap()
    };
    assert!(0 < equal("run 2   to entry ") && equal("run 2   ") < equal("run 1   "), "{text}");
    assert!(between(&text, "\nsame    ", " events compared, none differs").len() > 2, "{text}");
    // One digest of the run is wrong.
    let node = place.path("data/node-2");
    let mut spoilt = place.skein_with_runtime();
    spoilt.env("SKEIN_TEST_CORRUPT_DIGEST_AT", "2:3").arg("replay").arg(&node);
    let text = said(&spoilt.output().unwrap(), 1);
    let differs = between(&text, "\ndiffers after entry ", "\n");
    assert!(differs.contains("on replica 1") && differs.contains("on replica 3"), "{differs}");
}
