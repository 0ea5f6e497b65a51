//! `skein files`: the files that the replicas' servers have written, and whether they are equal.

mod common;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::Place;
use common::cluster::{Cluster, free_port};
use common::real::{ANSWER, Real};
use common::resp::{Redis, Reply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const WRITES: usize = 150;

/// redis with an append-only file in a directory of its own.
fn start() -> (Real, std::path::PathBuf) {
    let place = Place::new();
    let port = free_port();
    let dir = place.path("redis");
    fs::create_dir(&dir).unwrap();
    let words = [
        "/usr/bin/redis-server",
        "--port",
        &port.to_string(),
        "--dir",
        dir.to_str().unwrap(),
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--save",
        "",
    ];
    let server = words.iter().map(ToString::to_string).collect();
    (Real::serve(place, port, &[], server), dir)
}

fn write(real: &Real, key: &str) {
    let mut redis = common::wait_for("a connection", || {
        let mut redis = Redis::connect(real.port(), ANSWER).ok()?;
        redis.ask(&["PING"]).ok().map(|_| redis)
    });
    for n in 0..WRITES {
        assert_eq!(redis.say(&format!("SET {key}{n} {n}")), Reply::ok());
    }
}

#[test]
fn replicas_write_the_same_files_and_one_that_does_not_is_found() {
    let (real, dir) = start();
    write(&real, "before");
    let status = real.cluster.wait_status(0);
    let leader = Cluster::leader(&status).0;
    let node = Cluster::replica(&status, leader)["node_pid"].as_i64().unwrap();
    kill(Pid::from_raw(node as i32), Signal::SIGKILL).unwrap();
    write(&real, "after");
    let status = real.cluster.wait_status(0);

    let report = real.wait_files_agreed();
    let replicas = report["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3);
    for replica in replicas {
        let files = replica["files"].as_array().unwrap();
        let log = files.iter().find(|file| file["path"].as_str().unwrap().ends_with(".incr.aof"));
        let size = log.expect("the append-only file is listed")["size"].as_u64().unwrap();
        assert!(size > 2 * WRITES as u64 * 20, "{size}");
    }

    // A byte is changed behind the server's back.
    let pid = Cluster::replica(&status, 1)["server_pid"].as_i64().unwrap();
    let extra = format!("{}/extra", dir.display());
    fs::write(format!("/proc/{pid}/root{extra}"), "x").unwrap();
    let output = real.cluster.place.run(&["files", "--name", "t"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the replicas' files differ") && text.contains(&extra), "{text}");
    fs::remove_file(format!("/proc/{pid}/root{extra}")).unwrap();
    real.end();
}

#[test]
fn when_files_were_modified_is_compared_as_the_server_sees_it() {
    let (real, dir) = start();
    write(&real, "one");
    let modified = |report: &serde_json::Value, end: &str| {
        let replicas = report["replicas"].as_array().unwrap().clone();
        let mut times = replicas.iter().map(|replica| {
            let files = replica["files"].as_array().unwrap();
            let file = files.iter().find(|file| file["path"].as_str().unwrap().ends_with(end));
            file.expect("the file is listed")["modified"].as_str().expect("a time").to_owned()
        });
        let first = times.next().unwrap();
        assert!(times.all(|time| time == first), "{report}");
        first
    };
    let before = modified(&real.wait_files_agreed(), ".incr.aof");
    write(&real, "two");
    let after = modified(&real.wait_files_agreed(), ".incr.aof");
    // Seconds of ten digits, so they are in order as texts.
    assert!(before < after, "{before} {after}");

    // A copy in a file's place has the same contents, but the server did not write it.
    let status = real.cluster.wait_status(0);
    let pid = Cluster::replica(&status, 1)["server_pid"].as_i64().unwrap();
    let manifest = format!("{}/appendonlydir/appendonly.aof.manifest", dir.display());
    let place = format!("/proc/{pid}/root{manifest}");
    let aside = real.cluster.place.path("aside");
    let aside = format!("/proc/{pid}/root{}", aside.display());
    let copy = fs::read(&place).unwrap();
    let mode = fs::metadata(&place).unwrap().permissions();
    fs::rename(&place, &aside).unwrap();
    fs::write(&place, copy).unwrap();
    fs::set_permissions(&place, mode).unwrap();
    let output = real.cluster.place.run(&["files", "--name", "t", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report["differing"].as_array().unwrap().contains(&manifest.into()), "{report}");
    fs::rename(&aside, &place).unwrap();
    modified(&real.wait_files_agreed(), ".manifest");
    real.end();
}

/// Tells clients to end.
struct EndOfWork<'a>(&'a AtomicBool);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_server_that_never_rests_is_compared_while_it_is_asked() {
    let (real, _) = start();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if a comparison fails: the clients' threads end, or the test never would.
        let end = EndOfWork(&ended);
        let work = || {
            let mut redis = Redis::connect(real.port(), ANSWER).unwrap();
            let mut n = 0;
            while !ended.load(Ordering::Relaxed) {
                n += 1;
                assert_eq!(redis.say(&format!("SET key{n} {n}")), Reply::ok());
            }
            n
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        // Each time at another entry, with all files written up to it.
        // A busy machine may start all clients late: so repeat until they have written, but at most eight times.
        let deadline = Instant::now() + ANSWER;
        let mut compared: Vec<(u64, u64)> = Vec::new();
        while compared.len() < 8
            || (compared[0].1 == compared.last().unwrap().1 && Instant::now() < deadline)
        {
            let report = real.wait_files_agreed();
            let first = &report["replicas"][0];
            compared.push((first["index"].as_u64().unwrap(), first["bytes"].as_u64().unwrap()));
        }
        drop(end);
        assert!(compared.is_sorted(), "{compared:?}");
        assert!(compared.last().unwrap().1 > compared[0].1, "{compared:?}");
        let written: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        println!("{written} writes meanwhile: {compared:?}");
    });
    real.end();
}

#[test]
fn without_a_cluster_it_says_so() {
    let output = Place::new().run(&["files", "--name", "t"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("skein: cluster t: "));
}
