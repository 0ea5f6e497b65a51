//! `skein replay --operations`: two runs of one stored log, or of two replicas' logs, are compared operation by operation.

mod common;

use std::path::Path;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::own::{Lines, compiled};
use common::{PATIENCE, Place, assert_line};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Runs `skein replay DIR --operations`; answers its exit code and output.
fn compare(place: &Place, dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = place.skein_with_runtime();
    let output = command.arg("replay").arg(dir).arg("--operations").args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// The number between `before` and the next character that is no digit.
#[track_caller]
fn number_behind(text: &str, before: &str) -> u64 {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no '{before}' in: {text}"));
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number behind '{before}' in: {text}"))
}

/// The data directories of three replicas whose server has answered these lines.
fn stopped(lines: &[&str]) -> Place {
    stopped_with_image(lines, &[]).0
}

/// The same; if there are later lines, of a single replica, which took an image before them: the entry of that.
fn stopped_with_image(lines: &[&str], later: &[&str]) -> (Place, u64) {
    let place = Place::new();
    let port = free_port();
    let server = compiled(&place, "dice.c");
    let server = [server.to_str().unwrap(), "2", &port.to_string()];
    let replicas = if later.is_empty() { "3" } else { "1" };
    let mut cluster = Cluster::start_in(place, port, &["--replicas", replicas], &server);
    cluster.wait_ready();
    let mut client = Lines::connect(port, PATIENCE).unwrap();
    for line in lines {
        assert_eq!(client.ask(line).unwrap(), "done");
    }
    let index = if later.is_empty() { 0 } else { image(&cluster) };
    for line in later {
        assert_eq!(client.ask(line).unwrap(), "done");
    }
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.said());
    (cluster.into_place(), index)
}

/// Has the replica take an image; answers its entry. A server that is behind does not stand at once.
fn image(cluster: &Cluster) -> u64 {
    let words = ["checkpoint", "create", "--name", "t", "--json"];
    let taken = || {
        let output = cluster.place.run(&words);
        let said = output.status.success().then_some(output.stdout)?;
        serde_json::from_slice::<Value>(&said).unwrap()["index"].as_u64()
    };
    wait_for_or("an image", || cluster.evidence(), taken)
}

#[test]
fn the_first_operation_that_differs_is_named_on_both_sides() {
    // That 64 numbers are the same in two runs happens once in 2^64 times.
    let place = stopped(&["0", "64", "0"]);
    let node = place.path("data/node-1");
    let (code, text) = compare(&place, &node, &[]);
    assert_eq!(code, Some(1), "{text}");
    let (first, second) = text.split_once("second run: ").unwrap_or_else(|| panic!("{text}"));
    let (_, first) = first.split_once("first run:  ").unwrap_or_else(|| panic!("{text}"));
    let what = "thread 2 of process 2: lock of memory at 0x";
    assert!(first.starts_with(what) && second.starts_with(what), "{text}");
    assert!(first.contains(" (take)\n"), "{text}");
    let taken = second.find(" (take)\n").unwrap_or_else(|| panic!("{text}"));
    assert!(second[taken..].contains(" (serve)\n"), "{text}");
    let entry = number_behind(&text, ", after entry ");
    assert!(text.contains(&format!("look    skein replay {} --at {entry} --gdb", node.display())));

    // Nothing before or after it differs.
    for args in [["--at", &entry.to_string()], ["--from", &(entry + 1).to_string()]] {
        let (code, text) = compare(&place, &node, &args);
        assert_eq!(code, Some(0), "{args:?}: {text}");
        assert!(number_behind(&text, "same    ") > 0, "{text}");
        assert!(text.contains(" compared, none differs\n"), "{text}");
    }
    let left = common::processes_naming(place.dir.path().to_str().unwrap());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_logs_of_two_replicas_are_compared_up_to_where_both_hold_the_same() {
    let place = stopped(&["0", "0"]);
    let (one, other) = (place.path("data/node-1"), place.path("data/node-3"));
    let with = ["--with", other.to_str().unwrap(), "--runs", "3"];
    let (code, text) = compare(&place, &one, &with);
    assert_eq!(code, Some(0), "{text}");
    let last = number_behind(&text, "hold the same up to entry ");
    for run in 1..=3 {
        let reached = number_behind(&text, &format!("run {run}   to entry "));
        assert!(0 < reached && reached <= last, "{text}");
    }
    assert!(number_behind(&text, "same    ") > 20, "{text}");
    let mut command = place.skein_with_runtime();
    let output = command.arg("replay").arg(&one).args(["--operations", "--from", "999999"]);
    assert_line(&output.output().unwrap(), 2, &["--from 999999", "the runs end before entry"]);
}

#[test]
fn a_run_from_an_image_is_compared_with_one_from_the_begin() {
    let (place, index) = stopped_with_image(&["0"], &["0", "0"]);
    let node = place.path("data/node-1");
    let image = index.to_string();
    let (code, text) = compare(&place, &node, &["--image", &image]);
    assert_eq!(code, Some(0), "{text}");
    // An admission, a read, a write and looks for more of them at least, each for two lines.
    assert!(number_behind(&text, "same    ") > 20, "{text}");

    // Alone it begins there, too.
    let replay = |args: &[&str]| {
        let mut command = place.skein_with_runtime();
        command.arg("replay").arg(&node).args(args).output().unwrap()
    };
    let output = replay(&["--image", &image]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("begins  as it was after entry {index}, from the image")));
    let other = (index + 1).to_string();
    let what = format!("--image {other}: ");
    let fits = format!("runs can begin with those of {index}");
    assert_line(&replay(&["--image", &other]), 2, &[&what, &fits]);
    assert_line(&replay(&["--operations", "--image", &other]), 2, &[&what, &fits]);
}

#[test]
fn what_differs_behind_an_image_is_named() {
    // That 64 numbers are the same in two runs happens once in 2^64 times.
    let (place, index) = stopped_with_image(&["0"], &["64", "0"]);
    let node = place.path("data/node-1");
    let (code, text) = compare(&place, &node, &["--image", &index.to_string()]);
    assert_eq!(code, Some(1), "{text}");
    assert!(number_behind(&text, ", after entry ") > index, "{text}");
    let (first, second) = text.split_once("second run: ").unwrap_or_else(|| panic!("{text}"));
    assert!(first.contains("first run:  thread 2 of process 2: lock of memory at 0x"), "{text}");
    assert!(second.starts_with("thread 2 of process 2: lock of memory at 0x"), "{text}");
    assert!(second.contains(" (serve)\n"), "{text}");
}
