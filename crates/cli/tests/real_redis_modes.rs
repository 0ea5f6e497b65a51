//! redis-server from Debian on three replicas in common modes: an append-only file that is synced, scripts,
//! MONITOR; each while the leader dies.

mod common;

use std::io;

use common::Place;
use common::cluster::free_port;
use common::real::{ANSWER, Real};
use common::resp::{Redis, Reply};
use common::story::{Books, PATIENCE_OF_A_CLIENT, leader_dies_under_load, tool};
use common::wait_for;

const CLIENTS: usize = 16;
/// Requests before and after the leader's death.
const WRITES: u64 = 2_000;

fn start(args: &[&str]) -> Real {
    let place = Place::new();
    let port = free_port();
    std::fs::create_dir(place.path("redis")).unwrap();
    let mut server: Vec<String> = vec!["/usr/bin/redis-server".into()];
    let (port_text, dir) = (port.to_string(), place.path("redis"));
    for word in ["--port", &port_text, "--save", "", "--dir", dir.to_str().unwrap()] {
        server.push(word.into());
    }
    server.extend(args.iter().map(ToString::to_string));
    Real::serve(place, port, &[], server)
}

/// A connection, however long it takes.
#[track_caller]
fn client(real: &Real) -> Redis {
    wait_for("an answer", || {
        let mut redis = Redis::connect(real.port(), PATIENCE_OF_A_CLIENT).ok()?;
        redis.ask(&["PING"]).ok()?;
        Redis::connect(real.port(), ANSWER).ok()
    })
}

/// Asserts that every acknowledged write is there.
#[track_caller]
fn check(real: &Real, books: &Books) {
    let Reply::Array(found) = client(real).say("KEYS w:*") else { panic!("no keys") };
    let found: Vec<String> = found.iter().map(|key| key.text()[2..].to_string()).collect();
    books.assert_found(&found);
}

fn set(redis: &mut Redis, word: &str) -> io::Result<()> {
    let answer = redis.ask(&["SET", &format!("w:{word}"), word])?;
    assert_eq!(answer, Reply::ok());
    Ok(())
}

/// Writes while the leader dies and the file is rewritten; afterwards the file of the new leader has all writes.
fn append_only(fsync: &str) {
    let real =
        start(&["--appendonly", "yes", "--appendfsync", fsync, "--enable-debug-command", "yes"]);
    let connect = || Redis::connect(real.port(), PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, CLIENTS, WRITES, connect, set);
    check(&real, &books);
    let mut redis = client(&real);
    let before = redis.say("DBSIZE");
    assert!(redis.say("BGREWRITEAOF").text().contains("rewriting started"));
    wait_for("the file to be rewritten", || {
        let info = redis.say("INFO persistence").text();
        assert!(info.contains("aof_last_write_status:ok"), "{info}");
        assert!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
        info.contains("aof_rewrite_in_progress:0").then_some(())
    });
    // Reads the file back into an empty memory.
    assert_eq!(redis.say("DEBUG LOADAOF"), Reply::ok());
    assert_eq!(redis.say("DBSIZE"), before);
    check(&real, &books);
    real.end();
}

#[test]
fn an_append_only_file_that_is_synced_at_each_write() {
    append_only("always");
}

#[test]
fn an_append_only_file_that_is_synced_each_second() {
    append_only("everysec");
}

/// Moves a random amount between random accounts, notes the request, answers the time and a random number.
const SCRIPT: &str = "local from, to, some = math.random(7), math.random(7), math.random(50)
redis.call('HINCRBY', KEYS[1], from, -some)
redis.call('HINCRBY', KEYS[1], to, some)
redis.call('SET', 'w:' .. ARGV[1], math.random())
return {redis.call('TIME')[2], math.random(1000000), redis.sha1hex(ARGV[1])}";

#[test]
fn scripts_run_as_one_and_the_same_everywhere() {
    let real = start(&[]);
    let mut redis = client(&real);
    let sha = redis.ask(&["SCRIPT", "LOAD", SCRIPT]).unwrap().text();
    let eval = |redis: &mut Redis, word: &str| {
        let mut answer = redis.ask(&["EVALSHA", &sha, "1", "accounts", word])?;
        // A new leader has it, too: loading was in the log.
        if word.ends_with('5') {
            answer = redis.ask(&["EVAL", SCRIPT, "1", "accounts", word])?;
        }
        assert!(matches!(answer, Reply::Array(_)), "{answer:?}");
        Ok(())
    };
    let connect = || Redis::connect(real.port(), PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, CLIENTS, WRITES / 2, connect, eval);
    check(&real, &books);
    let Reply::Array(accounts) = client(&real).say("HVALS accounts") else { panic!("no hash") };
    let sum: i64 = accounts.iter().map(|one| one.text().parse::<i64>().unwrap()).sum();
    assert_eq!(sum, 0, "money was made or lost: {accounts:?}");
    real.end();
}

#[test]
fn monitors_see_every_command_until_the_leader_dies() {
    let real = start(&[]);
    let port = real.port().to_string();
    // The usual client with the usual benchmark.
    let mut monitor = client(&real);
    assert_eq!(monitor.say("MONITOR"), Reply::ok());
    let args = ["-p", &port, "-n", "2000", "-c", "20", "-q", "-t", "set,get,incr,lpush,sadd"];
    let report = tool("redis-benchmark", &args);
    assert_eq!(report.matches("requests per second").count(), 5, "{report}");
    let mut seen = 0;
    while seen < 5 * 2000 {
        let Reply::Status(line) = monitor.receive().unwrap() else { panic!("not a line") };
        seen += usize::from(!line.contains("\"CONFIG\""));
    }
    let connect = || Redis::connect(real.port(), PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, CLIENTS, WRITES, connect, set);
    while monitor.receive().is_ok() {}
    check(&real, &books);
    real.end();
}
