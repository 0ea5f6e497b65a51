//! The same log gives the same outputs: replicas are killed again and again, and each fresh server that executes the
//! whole log reaches the digest of the leader that executed it live.

mod common;

use common::cluster::Cluster;
use common::real::{ANSWER, Random, Real, at_once};
use common::resp::{Redis, Reply};
use common::text::Memcached;
use common::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Fresh replicas of each server: followers that are killed while the leader, which executed the log when it came, lives on; and
/// all three at once. 2 + 6 * 3 = 20.
const FOLLOWERS: u64 = 2;
const CLUSTERS: u64 = 6;
const CLIENTS: usize = 16;
const OPERATIONS: usize = 1_000;

/// All replies of redis that depend on chance, time or its internals.
const REVEALING: [&str; 11] = [
    "TIME",
    "INFO everything",
    "CLIENT LIST",
    "RANDOMKEY",
    "SRANDMEMBER set",
    "SPOP set",
    "MEMORY USAGE hash",
    "MEMORY STATS",
    "SCAN 0",
    "SLOWLOG GET",
    "OBJECT ENCODING hash",
];

fn load_redis(real: &Real) {
    at_once(CLIENTS, |me| {
        let mut random = Random::new(me as u64);
        let mut redis = Redis::connect(real.port(), ANSWER).unwrap();
        let mut done = 0;
        while done < OPERATIONS {
            let batch = 1 + random.below(8) as usize;
            for _ in 0..batch {
                let n = random.below(1000);
                let line = match random.below(10) {
                    0..=2 => format!("SET k{n} {}", "x".repeat(n as usize)),
                    3 | 4 => format!("GET k{n}"),
                    5 => format!("SET e{n} {n} PX {}", n + 1),
                    6 => format!("SADD set {n}"),
                    7 => format!("HSET hash {n} {me}"),
                    8 => format!("BLPOP nothing{n} 0.0{}", n % 10 + 1),
                    _ => REVEALING[n as usize % REVEALING.len()].to_string(),
                };
                redis.push(&line.split(' ').collect::<Vec<_>>());
            }
            redis.flush().unwrap();
            for _ in 0..batch {
                let answer = redis.receive().unwrap();
                assert!(!matches!(answer, Reply::Error(_)), "{answer:?}");
            }
            done += batch;
        }
    });
}

fn load_memcached(real: &Real) {
    at_once(CLIENTS, |me| {
        let mut random = Random::new(me as u64);
        let mut memcached = Memcached::connect(real.port(), ANSWER).unwrap();
        for _ in 0..OPERATIONS {
            let n = random.below(300);
            let key = format!("k{n}");
            match random.below(10) {
                0..=2 => {
                    let value = random.bytes(10 * n as usize);
                    memcached.store("set", &key, &value, (n % 3) as u32, None).unwrap();
                }
                // The versions reveal the order of all threads' writes.
                3..=6 => drop(memcached.get(&key).unwrap()),
                7 => drop(memcached.ask(&format!("delete {key}")).unwrap()),
                8 => drop(memcached.store("append", &key, b"more", 0, None).unwrap()),
                _ => drop(memcached.stats().unwrap()),
            }
        }
    });
}

/// Kills a follower's node.
fn kill_follower(real: &Real, round: u64) {
    let status = real.cluster.wait_status(0);
    let leader = Cluster::leader(&status).0;
    let follower = (leader + round % 2) % 3 + 1;
    let pid = |status: &serde_json::Value| {
        Cluster::replica(status, follower)["node_pid"].as_i64().unwrap_or_default() as i32
    };
    let before = pid(&status);
    kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
    wait_for("a fresh replica", || {
        let (status, code) = real.cluster.status();
        (code == Some(0) && ![0, before].contains(&pid(&status))).then_some(())
    });
}

#[track_caller]
fn twenty_fresh_replicas_agree(mut real: Real) {
    let (index, digest) = real.wait_agreed();
    println!("live: {digest} at {index}");
    for round in 0..FOLLOWERS {
        kill_follower(&real, round);
        let (at, digest) = real.wait_agreed();
        assert!(at >= index);
        println!("one fresh replica: {digest} at {at}");
    }
    for _ in 0..CLUSTERS {
        real.kill_all_and_run_again();
        real.cluster.wait_ready();
        let (at, digest) = real.wait_agreed();
        assert!(at >= index);
        println!("three fresh replicas: {digest} at {at}");
    }
    real.end();
}

#[test]
fn redis_does_the_same_again() {
    let real = Real::redis(&[], &["--save", ""]);
    load_redis(&real);
    twenty_fresh_replicas_agree(real);
}

#[test]
fn memcached_with_four_threads_does_the_same_again() {
    let real = Real::memcached(&[]);
    load_memcached(&real);
    twenty_fresh_replicas_agree(real);
}
