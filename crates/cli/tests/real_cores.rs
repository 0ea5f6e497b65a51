//! The cores of a leader and its server: one shared core while the server is busy only briefly, any cores otherwise.

mod common;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use common::cluster::Cluster;
use common::real::{ANSWER, Real, at_once};
use common::resp::{Redis, Reply};
use common::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// More hand-overs than are needed until a server's CPU bursts are known and the node has looked at them.
const WHILE: u32 = 1_500;

fn redis(options: &[&str]) -> Real {
    let always = ["--durability", "memory"];
    Real::redis(&[&always, options].concat(), &["--save", ""])
}

/// The cores on which each thread of a process may run. One that has just ended has none.
fn cores(pid: i32) -> Vec<String> {
    let of = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_string())
    };
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks.flatten().filter_map(of).collect()
}

/// All cores that the test may use, as the kernel writes them.
fn all() -> String {
    cores(std::process::id() as i32).swap_remove(0)
}

/// The leader's node and the process of its server, if all is well.
fn leader_now(real: &Real) -> Option<(i32, i32)> {
    let (status, code) = real.cluster.status();
    let (id, node) = (code == Some(0)).then(|| Cluster::leader(&status))?;
    Some((node, server_of(&status, id)?))
}

#[track_caller]
fn leader(real: &Real) -> (i32, i32) {
    wait_for("a leader", || leader_now(real))
}

/// Nothing while there is none.
fn server_of(status: &serde_json::Value, id: u64) -> Option<i32> {
    let rows = status["replicas"].as_array()?;
    let pid = rows.iter().find(|row| row["id"] == id)?["server_pid"].as_i64()?;
    (pid != 0).then_some(pid as i32)
}

/// The process of a node's server, when all is well.
fn server_below(real: &Real, node: i32) -> Option<i32> {
    let status = real.cluster.wait_status(0);
    let rows = status["replicas"].as_array()?;
    let row = rows.iter().find(|row| row["node_pid"].as_i64() == Some(i64::from(node)))?;
    server_of(&status, row["id"].as_u64()?)
}

/// The core of a node's thread and its server, if it is one core.
fn shared(node: i32, server: i32) -> Option<String> {
    let (of_node, of_server) = (cores(node), cores(server));
    let one = of_server.first().filter(|list| list.parse::<u32>().is_ok())?;
    of_node.contains(one).then(|| one.clone())
}

fn is_free(pid: i32) -> bool {
    let found = cores(pid);
    !found.is_empty() && found.iter().all(|list| *list == all())
}

/// Waits until a node and its `wanted` server are both free; answers the server. The server gets work ten times a second.
#[track_caller]
fn wait_free(real: &Real, node: i32, wanted: impl Fn(i32) -> bool) -> i32 {
    wait_for("both to be free", || {
        let server = server_below(real, node)?;
        (wanted(server) && is_free(node) && is_free(server)).then_some(server)
    })
}

/// Makes small requests until `done`.
fn load_until(real: &Real, done: impl Fn() -> bool + Sync) {
    let over = AtomicBool::new(false);
    at_once(2, |who| {
        if who == 0 {
            while !over.load(Ordering::Relaxed) {
                // A leader that is replaced resets it.
                let Ok(mut redis) = Redis::connect(real.port(), ANSWER) else { continue };
                let mut goes_on = true;
                while goes_on && !over.load(Ordering::Relaxed) {
                    goes_on = redis.ask(&["SET", "a", "b"]).is_ok();
                }
            }
            return;
        }
        // Also after a failure.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&over);
        wait_for("the load to do it", || done().then_some(()));
    });
}

#[test]
fn a_light_server_shares_its_leaders_core_and_a_heavy_one_does_not() {
    let real = redis(&["--replicas", "1"]);
    let (node, server) = leader(&real);
    assert!(is_free(node) && is_free(server), "{:?} {:?}", cores(node), cores(server));
    load_until(&real, || shared(node, server).is_some());
    let mut redis = Redis::connect(real.port(), ANSWER).unwrap();
    // About a millisecond each.
    let heavy = ["EVAL", "local n = 0 for i = 1, 100000 do n = n + i end return n", "0"];
    for _ in 0..WHILE {
        assert_eq!(redis.ask(&heavy).unwrap(), Reply::Int(5_000_050_000));
    }
    for i in 0..WHILE / 10 {
        redis.ask(&heavy).unwrap();
        let (of_node, of_server) = (cores(node), cores(server));
        assert!(is_free(node) && is_free(server), "request {i}: {of_node:?} {of_server:?}");
    }
    load_until(&real, || shared(node, server).is_some());
    real.end();
}

#[test]
fn a_server_that_is_rebuilt_may_run_anywhere() {
    let real = redis(&["--replicas", "1", "--on-exit", "restart"]);
    let (node, first) = leader(&real);
    load_until(&real, || shared(node, first).is_some());
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    let second = wait_for("another server", || {
        let (status, code) = real.cluster.status();
        let pid = server_of(&status, 1).filter(|_| code == Some(0))?;
        (pid != first).then_some(pid)
    });
    // It may share the core again while it executes the log.
    wait_for("both to be free", || (is_free(node) && is_free(second)).then_some(()));
    load_until(&real, || shared(node, second).is_some());
    real.end();
}

#[test]
fn a_server_that_ends_alone_leaves_its_core_to_nobody() {
    let real = redis(&["--replicas", "3"]);
    let (node, first) = leader(&real);
    load_until(&real, || shared(node, first).is_some());
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    wait_free(&real, node, |server| server != first);
    real.end();
}

#[test]
fn who_leads_no_more_and_its_server_may_run_anywhere() {
    let real = redis(&["--replicas", "3"]);
    let (node, server) = leader(&real);
    load_until(&real, || shared(node, server).is_some());
    // Hangs until another one leads.
    kill(Pid::from_raw(node), Signal::SIGSTOP).unwrap();
    wait_for("another leader", || {
        let (status, _) = real.cluster.status();
        status["leader"].as_u64().filter(|&id| {
            Cluster::replica(&status, id)["node_pid"].as_i64() != Some(i64::from(node))
        })
    });
    kill(Pid::from_raw(node), Signal::SIGCONT).unwrap();
    // Its server may have executed entries that were never committed: then it has been replaced.
    wait_free(&real, node, |_| true);
    load_until(&real, || {
        leader_now(&real).is_some_and(|(heir, its)| heir != node && shared(heir, its).is_some())
    });
    // A server that is rebuilt meanwhile is another process, and a node that leads again shares a core again.
    let (of_node, of_server) = wait_for("the cores of a node that follows", || {
        let before = leader_now(&real).filter(|(heir, _)| *heir != node)?;
        let found = (cores(node), cores(server_below(&real, node)?));
        let same = leader_now(&real)? == before;
        (same && !found.1.is_empty()).then_some(found)
    });
    let free = |found: &[String]| found.iter().all(|list| *list == all());
    assert!(free(&of_node) && free(&of_server), "{of_node:?} {of_server:?}");
    real.end();
}
