//! redis' own replication, with and without waiting for it, beside the same SETs under Skein.
//!
//! SET and WAIT go in one write, as a pipelining client sends them: waiting costs no further exchange.

use std::net::SocketAddr;
use std::time::Duration;

use super::group::{Group, Running, await_so, words};
use super::sample::Finding;
use super::{Contender, Peer, SKEIN_FSYNC, SKEIN_MEMORY, Scale};
use crate::load;
use crate::servers::{Server, redis};
use crate::wire::{Exchange, free_address};
use skein_testkit::{Outcome, resp};

/// redis' replication as a contender.
pub struct Redis;

/// How long a WAIT may take before it gives up, which fails the measurement [ms].
const WAIT_MAX_MS: u32 = 10_000;

/// The longest time of redis to answer a question about its state.
const ANSWER_MAX: Duration = Duration::from_secs(2);

const CONTENDERS: [Contender; 7] = [
    Contender {
        id: "alone",
        name: "redis alone, nothing on disk",
        promise: "Nothing: what it holds is gone with the process.",
    },
    Contender {
        id: "alone-durable",
        name: "redis alone, appendfsync always",
        promise: "An acknowledged write is on the disk of one machine. There is nobody to take over.",
    },
    Contender {
        id: "asynchronous",
        name: "redis, 2 replicas, asynchronous",
        promise: "An acknowledged write is on the master's disk (appendfsync always); replicas get it afterwards. A failover \
                  loses what had not arrived. Reads at replicas may be old.",
    },
    Contender {
        id: "wait-1",
        name: "redis, 2 replicas, WAIT 1",
        promise: "As above, and the client knows that at least one replica has received the write. redis' own documentation: \
                  WAIT does not make it a strongly consistent store; an acknowledged write can still be lost at a failover, \
                  because another replica may be promoted. Whoever reads meanwhile sees the write before it is replicated.",
    },
    Contender {
        id: "wait-2",
        name: "redis, 2 replicas, WAIT 2",
        promise: "As above, with all replicas: a write that all have is not lost when one of them is promoted. No write is \
                  confirmed while any of the three is away.",
    },
    SKEIN_MEMORY,
    SKEIN_FSYNC,
];

/// The command behind each SET, and the right replies.
fn set(key: u32, wait: usize) -> Exchange {
    let plain = redis::set(key);
    if wait == 0 {
        return plain;
    }
    let wait_words = format!(
        "*3\r\n$4\r\nWAIT\r\n$1\r\n{wait}\r\n${}\r\n{WAIT_MAX_MS}\r\n",
        WAIT_MAX_MS.to_string().len()
    );
    let replies = (wait..=2).map(|count| format!("+OK\r\n:{count}\r\n")).collect();
    Exchange::one_of(plain.request + &wait_words, replies)
}

/// The number of replicas of a contender's own replication, and the number that a write waits for.
fn replication(id: &str) -> (usize, usize) {
    match id {
        "asynchronous" => (2, 0),
        "wait-1" => (2, 1),
        "wait-2" => (2, 2),
        _ => (0, 0),
    }
}

fn start(replicas: usize) -> Outcome<Running> {
    let mut group = Group::new()?;
    let master = free_address()?;
    for number in 0..=replicas {
        let address = if number == 0 { master } else { free_address()? };
        let folder = group.folder(&number.to_string())?.display().to_string();
        let port = address.port().to_string();
        let mut command = words(&["redis-server", "--bind", "127.0.0.1", "--port", &port]);
        command.extend(words(&["--dir", &folder, "--save", ""]));
        command.extend(words(&["--appendonly", "yes", "--appendfsync", "always"]));
        if number > 0 {
            command.extend(words(&["--replicaof", "127.0.0.1", &master.port().to_string()]));
            command.extend(words(&["--repl-diskless-sync-delay", "0"]));
        }
        group.start(&command)?;
    }
    await_so("redis and its replicas", || Ok(online(master) == Some(replicas)))?;
    Ok(Running::Group(group, master))
}

/// The number of replicas in step, as the master at `service` reports it.
pub fn online(service: SocketAddr) -> Option<usize> {
    let mut connection = resp::Redis::connect_to(service, ANSWER_MAX).ok()?;
    let text = connection.ask(&["INFO", "replication"]).ok()?.text();
    Some(online_in(&text))
}

fn online_in(info: &str) -> usize {
    info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count()
}

impl Peer for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }
    fn heading(&self) -> &'static str {
        "redis: replication and WAIT"
    }
    fn work(&self) -> &'static str {
        "SET and GET of 1,000 keys with values of 32 bytes, by an own client of one thread that compares every reply. With WAIT, \
         SET and WAIT go in one write and count as one request; GET never waits at a redis of its own, and is in the log under \
         Skein."
    }
    fn programs(&self) -> &'static [&'static str] {
        &["redis-server"]
    }
    fn versions(&self) -> &'static [&'static [&'static str]] {
        &[&["redis-server", "--version"]]
    }
    fn contenders(&self) -> &'static [Contender] {
        &CONTENDERS
    }
    fn operations(&self) -> &'static [&'static str] {
        &["set", "get"]
    }
    fn measure(&self, contender: &Contender, scale: &Scale) -> Outcome<Finding> {
        let (replicas, wait) = replication(contender.id);
        let running = match Running::known(contender.id, Server::Redis) {
            Some(known) => known?,
            None => start(replicas)?,
        };
        let (sets, gets) = (load::exchanges(|key| set(key, wait)), load::exchanges(redis::get));
        running.measure(
            scale.requests,
            |service| load::alone("redis", service, &sets, scale.requests),
            |service| {
                let operations = [("set", &sets[..]), ("get", &gets)];
                load::crowd("redis", &operations, service, scale.requests, scale.clients)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_in_step_are_counted() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=127.0.0.1,port=6401,state=online,offset=14,lag=0\r\n\
                    slave1:ip=127.0.0.1,port=6402,state=wait_bgsave,offset=0,lag=0\r\n";
        assert_eq!(online_in(info), 1);
        assert_eq!(online_in("role:slave\r\n"), 0);
    }

    #[test]
    fn a_wait_is_right_with_enough_replicas_only() {
        let wait_1 = set(3, 1);
        assert!(wait_1.request.ends_with("WAIT\r\n$1\r\n1\r\n$5\r\n10000\r\n"));
        assert!(wait_1.complete(b"+OK\r\n:1\r\n").expect("enough"));
        assert!(wait_1.complete(b"+OK\r\n:2\r\n").expect("more"));
        assert!(!wait_1.complete(b"+OK\r\n").expect("not yet"));
        assert!(wait_1.complete(b"+OK\r\n:0\r\n").is_err());
        assert!(set(3, 2).complete(b"+OK\r\n:1\r\n").is_err());
    }
}
