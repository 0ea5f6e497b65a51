//! A register: one key in etcd, put and read through its HTTP/JSON gateway, beside one key of redis under Skein.

use std::net::SocketAddr;
use std::time::Duration;

use super::group::{Group, Running, await_so, words};
use super::sample::Finding;
use super::{Contender, Peer, SKEIN_FSYNC, SKEIN_MEMORY, Scale};
use crate::load;
use crate::servers::{Server, redis};
use crate::wire::{Client, Exchange, free_address};
use skein_testkit::{Failure, Outcome};

/// etcd as a contender.
pub struct Etcd;

/// More would take too long through the gateway.
const REQUESTS_MAX: u32 = 8_000;

/// `register` and 32 digits, in base64.
const KEY: &str = "cmVnaXN0ZXI=";
const VALUE: &str = "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=";

const CONTENDERS: [Contender; 5] = [
    Contender {
        id: "alone",
        name: "redis alone, nothing on disk",
        promise: "Nothing: what it holds is gone with the process.",
    },
    Contender {
        id: "etcd-1",
        name: "etcd, 1 member",
        promise: "An acknowledged write is on the disk of one machine.",
    },
    Contender {
        id: "etcd-3",
        name: "etcd, 3 members",
        promise: "An acknowledged write is on the disks of two of three; a failover loses none. Reads and writes are \
                  linearizable, reads without an entry in the log. Made for small amounts of configuration: keys and \
                  values of etcd's own interface, at most some GiB.",
    },
    SKEIN_MEMORY,
    SKEIN_FSYNC,
];

fn post(path: &str, body: &str, holding: &str) -> Exchange {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Exchange::http_holding(request, holding.to_owned())
}

fn put() -> Exchange {
    post("/v3/kv/put", &format!("{{\"key\":\"{KEY}\",\"value\":\"{VALUE}\"}}"), "\"revision\":")
}

fn get() -> Exchange {
    post("/v3/kv/range", &format!("{{\"key\":\"{KEY}\"}}"), &format!("\"value\":\"{VALUE}\""))
}

fn start(members: usize) -> Outcome<Running> {
    let mut group = Group::new()?;
    let mut all = Vec::new();
    for _ in 0..members {
        all.push((free_address()?, free_address()?));
    }
    let cluster: Vec<String> =
        all.iter().enumerate().map(|(at, (_, peer))| format!("m{at}=http://{peer}")).collect();
    let cluster = cluster.join(",");
    for (number, (client, peer)) in all.iter().enumerate() {
        let folder = group.folder(&number.to_string())?.display().to_string();
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let mut command = words(&["etcd", "--name", &format!("m{number}"), "--data-dir", &folder]);
        command.extend(words(&["--listen-client-urls", &client]));
        command.extend(words(&["--advertise-client-urls", &client]));
        command.extend(words(&["--listen-peer-urls", &peer]));
        command.extend(words(&["--initial-advertise-peer-urls", &peer]));
        command.extend(words(&["--initial-cluster", &cluster, "--logger", "zap"]));
        group.start(&command)?;
    }
    // The leader: no client is redirected.
    let mut leader = None;
    await_so("etcd to elect a leader", || {
        leader = all.iter().map(|(client, _)| *client).find(|client| leads(*client));
        Ok(leader.is_some())
    })?;
    let leader = leader.ok_or_else(|| Failure("etcd has no leader".to_owned()))?;
    Ok(Running::Group(group, leader))
}

/// Whether the member is the leader and has answered a write.
fn leads(member: SocketAddr) -> bool {
    let text = Client::connect(member, Duration::from_secs(2)).and_then(|mut client| {
        let asked = post("/v3/maintenance/status", "{}", "\"leader\":");
        client.exchange(&asked)?;
        Ok(String::from_utf8_lossy(client.got()).into_owned())
    });
    text.is_ok_and(|text| is_leader(&text)) && load::ask_once(member, &put()).is_ok()
}

fn is_leader(status: &str) -> bool {
    let value = |key: &str| {
        let rest = status.split_once(&format!("\"{key}\":\""))?.1;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    value("leader").is_some_and(|leader| leader != "0" && Some(leader) == value("member_id"))
}

impl Peer for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }
    fn heading(&self) -> &'static str {
        "etcd: one register"
    }
    fn work(&self) -> &'static str {
        "One key with a value of 32 bytes is written and read by all clients. etcd is asked at its leader through its HTTP/JSON \
         gateway, over connections that stay open; the gateway turns each request into a gRPC call inside etcd, which costs CPU \
         time that a gRPC client would not cause. redis is asked in its own protocol."
    }
    fn programs(&self) -> &'static [&'static str] {
        &["etcd", "redis-server"]
    }
    fn versions(&self) -> &'static [&'static [&'static str]] {
        &[&["etcd", "--version"], &["redis-server", "--version"]]
    }
    fn contenders(&self) -> &'static [Contender] {
        &CONTENDERS
    }
    fn operations(&self) -> &'static [&'static str] {
        &["put", "get"]
    }
    fn measure(&self, contender: &Contender, scale: &Scale) -> Outcome<Finding> {
        let requests = scale.requests.min(REQUESTS_MAX);
        let (running, put, get) = match Running::known(contender.id, Server::Redis) {
            Some(known) => (known?, redis::set(0), redis::get(0)),
            None => (start(if contender.id == "etcd-3" { 3 } else { 1 })?, put(), get()),
        };
        let (put, get) = ([put], [get]);
        running.measure(
            requests,
            |service| load::alone("register", service, &put, requests),
            |service| {
                let operations = [("put", &put[..]), ("get", &get)];
                load::crowd("register", &operations, service, requests, scale.clients)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_says_so_itself() {
        let status = "{\"header\":{\"cluster_id\":\"7\",\"member_id\":\"12\",\"raft_term\":\"2\"},\
                      \"version\":\"3.4.23\",\"leader\":\"12\",\"raftIndex\":\"8\"}";
        assert!(is_leader(status));
        assert!(!is_leader(&status.replace("\"leader\":\"12\"", "\"leader\":\"13\"")));
        assert!(!is_leader("{}"));
    }

    #[test]
    fn a_read_is_right_when_it_holds_the_value() {
        let body = format!("{{\"kvs\":[{{\"key\":\"{KEY}\",\"value\":\"{VALUE}\"}}]}}");
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert!(get().complete(reply.as_bytes()).expect("right"));
        assert!(!get().complete(&reply.as_bytes()[..60]).expect("so far"));
        assert!(
            get()
                .complete(reply.replace(VALUE, &VALUE.replace("MDAw", "MTEx")).as_bytes())
                .is_err()
        );
    }
}
