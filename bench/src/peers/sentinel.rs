//! Failover: redis with three sentinels beside Skein, when the serving process is killed, and when it is stopped for
//! longer than others wait for it and continues afterwards.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::faults::{self, Service};
use super::group::{Group, await_so, words};
use super::sample::{Fault, Finding, Kind};
use super::{Contender, Peer, SKEIN_FSYNC, Scale};
use crate::process;
use crate::servers::Server;
use crate::target::Cluster;
use crate::wire::free_address;
use skein_testkit::resp::{Redis, Reply};
use skein_testkit::{Failure, Outcome};

/// redis with sentinels as a contender.
pub struct Sentinel;

/// The sentinels' name for the service.
const NAME: &str = "service";

/// The longest that a sentinel may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// The silence after which sentinels declare a master dead [ms]; their default is 30,000.
const DOWN_AFTER_MS: u32 = 1_000;

const CONTENDERS: [Contender; 4] = [
    Contender {
        id: "sentinel",
        name: "redis, 3 sentinels",
        promise: "An acknowledged write is in the master's memory (append-only file each second). A failover loses what the new \
                  master had not received; a master that comes back goes on acknowledging writes until a sentinel makes it \
                  a replica, and all of those are lost.",
    },
    Contender {
        id: "sentinel-min-replicas",
        name: "the same, min-replicas-to-write 1",
        promise: "As above, but a master that has heard of no replica for 2 s (min-replicas-max-lag) refuses writes: what \
                  can be lost is bounded in time.",
    },
    Contender {
        id: "sentinel-wait",
        name: "the same, each write with WAIT 1",
        promise: "An acknowledged write has been received by a replica. Sentinel prefers the replica that has most, so it is \
                  mostly kept; redis' documentation promises no more.",
    },
    SKEIN_FSYNC,
];

/// Three servers and three sentinels.
struct Watched {
    group: Group,
    servers: [SocketAddr; 3],
    sentinels: [SocketAddr; 3],
    /// More lines of each server's configuration.
    more: &'static str,
}

fn server_conf(folder: &str, port: u16, more: &str, master: Option<u16>) -> String {
    let of = master.map_or(String::new(), |port| format!("replicaof 127.0.0.1 {port}\n"));
    format!(
        "bind 127.0.0.1\nport {port}\ndir {folder}\nsave \"\"\nappendonly yes\nappendfsync everysec\n\
         repl-diskless-sync-delay 0\n{more}{of}"
    )
}

fn sentinel_conf(folder: &str, port: u16, master: u16) -> String {
    format!(
        "bind 127.0.0.1\nport {port}\ndir {folder}\nsentinel monitor {NAME} 127.0.0.1 {master} 2\n\
         sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\nsentinel failover-timeout {NAME} 10000\n\
         sentinel parallel-syncs {NAME} 2\n"
    )
}

impl Watched {
    fn start(more: &'static str) -> Outcome<Self> {
        let address = |_| free_address();
        let [a, b, c] = [(); 3].map(address);
        let servers = [a?, b?, c?];
        let [a, b, c] = [(); 3].map(address);
        let sentinels = [a?, b?, c?];
        let mut watched = Self { group: Group::new()?, servers, sentinels, more };
        for number in 0..3 {
            let master = (number > 0).then_some(servers[0].port());
            let command = watched.server(number, master)?;
            watched.group.start(&command)?;
        }
        for (number, at) in sentinels.iter().enumerate() {
            let name = format!("sentinel-{number}");
            let folder = watched.group.folder(&name)?.display().to_string();
            let text = sentinel_conf(&folder, at.port(), servers[0].port());
            let file = watched.group.file(&format!("{name}/conf"), &text)?;
            let file = file.display().to_string();
            watched.group.start(&words(&["redis-server", &file, "--sentinel"]))?;
        }
        watched.await_whole()?;
        Ok(watched)
    }

    /// Writes server `number`'s configuration; the command that starts it.
    fn server(&self, number: usize, master: Option<u16>) -> Outcome<Vec<String>> {
        let name = format!("server-{number}");
        let folder = self.group.folder(&name)?.display().to_string();
        let text = server_conf(&folder, self.servers[number].port(), self.more, master);
        let file = self.group.file(&format!("{name}/conf"), &text)?;
        Ok(words(&["redis-server", &file.display().to_string()]))
    }

    /// Every sentinel knows the other two and sees two replicas in step.
    fn await_whole(&self) -> Outcome {
        await_so("the sentinels to see all servers", || {
            Ok(self.sentinels.iter().all(|at| sees_all(*at).unwrap_or(false)))
        })
    }

    /// The master that a majority of the sentinels names.
    fn locate(&self) -> Option<SocketAddr> {
        let named: Vec<SocketAddr> =
            self.sentinels.iter().filter_map(|at| master_by(*at)).collect();
        let by_two = |at: &&SocketAddr| named.iter().filter(|other| other == at).count() >= 2;
        named.iter().find(by_two).copied()
    }

    fn master(&self) -> Outcome<usize> {
        let at = self.locate().ok_or_else(|| Failure("the sentinels name no master".to_owned()))?;
        let known = self.servers.iter().position(|server| *server == at);
        known.ok_or_else(|| Failure(format!("the sentinels name {at}")))
    }

    fn fault(&mut self, kind: Kind, number: usize, wait: u8) -> Outcome<Fault> {
        self.await_whole()?;
        let master = self.master()?;
        let pid = self.group.pid(master)?;
        let locate = || self.locate();
        let service = Service { locate: &locate, wait };
        let fault = match kind {
            Kind::Kill => {
                faults::one(kind, number, &service, || send([pid], Signal::SIGKILL), || Ok(()))?
            }
            Kind::Pause => faults::one(
                kind,
                number,
                &service,
                || send([pid], Signal::SIGSTOP),
                || send([pid], Signal::SIGCONT),
            )?,
        };
        if kind == Kind::Kill {
            let command = self.server(master, Some(self.servers[self.master()?].port()))?;
            self.group.restart(master, &command)?;
        }
        Ok(fault)
    }
}

fn ask(sentinel: SocketAddr, words: &[&str]) -> Option<Reply> {
    Redis::connect_to(sentinel, ANSWER_MAX).ok()?.ask(words).ok()
}

fn master_by(sentinel: SocketAddr) -> Option<SocketAddr> {
    address(&ask(sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?)
}

/// `[host, port]` as an address.
fn address(reply: &Reply) -> Option<SocketAddr> {
    let Reply::Array(parts) = reply else { return None };
    let [host, port] = parts.as_slice() else { return None };
    let host: Ipv4Addr = host.text().parse().ok()?;
    Some((host, port.text().parse().ok()?).into())
}

fn sees_all(sentinel: SocketAddr) -> Option<bool> {
    let others = ask(sentinel, &["SENTINEL", "SENTINELS", NAME])?;
    let replicas = ask(sentinel, &["SENTINEL", "REPLICAS", NAME])?;
    let right = |fields: &[(String, String)]| {
        let has = |key: &str, value: &str| fields.iter().any(|at| at.0 == key && at.1 == value);
        has("flags", "slave") && has("master-link-status", "ok")
    };
    let replicas = rows(&replicas);
    Some(rows(&others).len() == 2 && replicas.len() == 2 && replicas.iter().all(|at| right(at)))
}

/// An array of arrays of names and values.
fn rows(reply: &Reply) -> Vec<Vec<(String, String)>> {
    let Reply::Array(rows) = reply else { return Vec::new() };
    let pairs = |row: &Reply| match row {
        Reply::Array(fields) => {
            fields.chunks_exact(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
        }
        _ => Vec::new(),
    };
    rows.iter().map(pairs).collect()
}

fn send(pids: impl IntoIterator<Item = i32>, signal: Signal) -> Outcome {
    for pid in pids {
        kill(Pid::from_raw(pid), signal)
            .map_err(|error| Failure::of(format!("cannot send {signal} to {pid}"), error))?;
    }
    Ok(())
}

/// The same with the leader of three replicas: its node and all processes of it.
fn skein_fault(cluster: &Cluster, kind: Kind, number: usize) -> Outcome<Fault> {
    let leader = cluster.whole()?.leader()?.pid()?.as_raw();
    let all = process::trees([leader]);
    let locate = || Some(cluster.service);
    let service = Service { locate: &locate, wait: 0 };
    match kind {
        Kind::Kill => {
            faults::one(kind, number, &service, || send([leader], Signal::SIGKILL), || Ok(()))
        }
        Kind::Pause => faults::one(
            kind,
            number,
            &service,
            || send(all.clone(), Signal::SIGSTOP),
            || send(all.clone(), Signal::SIGCONT),
        ),
    }
}

impl Peer for Sentinel {
    fn name(&self) -> &'static str {
        "sentinel"
    }
    fn heading(&self) -> &'static str {
        "redis with Sentinel: failover"
    }
    fn work(&self) -> &'static str {
        "Six clients write without a pause, give up a reply after 500 ms and ask again who serves; two more write each \
         millisecond and keep their connection until it breaks. What serves is killed (`kill -9`), or stopped (`kill -STOP`) until \
         the six are served by another one, and continued. The outage is that of the client that waits longest, from its last \
         acknowledgement before to the first on a new connection. Afterwards every acknowledged key is read; \
         lost is what is not there. Sentinel's down-after-milliseconds is 1,000 (default 30,000) and its quorum 2 of 3; a \
         stopped leader of Skein is its node with its server, and the election timeout is the default (150 to 300 ms), so that what is left of \
         its outage is the clients' own patience."
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
        &[]
    }
    fn measure(&self, contender: &Contender, scale: &Scale) -> Outcome<Finding> {
        let kinds = (0..scale.kills)
            .map(|_| Kind::Kill)
            .chain((0..scale.pauses).map(|_| Kind::Pause))
            .enumerate();
        let mut found = Finding::default();
        if contender.id == SKEIN_FSYNC.id {
            let cluster = Cluster::start(Server::Redis, free_address()?, 3, "fsync")?;
            for (number, kind) in kinds {
                found.faults.push(skein_fault(&cluster, kind, number)?);
            }
            return Ok(found);
        }
        let (more, wait) = match contender.id {
            "sentinel-min-replicas" => ("min-replicas-to-write 1\nmin-replicas-max-lag 2\n", 0),
            "sentinel-wait" => ("", 1),
            _ => ("", 0),
        };
        let mut watched = Watched::start(more)?;
        for (number, kind) in kinds {
            found.faults.push(watched.fault(kind, number, wait)?);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sentinel_says_is_read() {
        let named = Reply::Array(vec![Reply::bulk("127.0.0.1"), Reply::bulk("10007")]);
        assert_eq!(address(&named), Some(SocketAddr::from(([127, 0, 0, 1], 10_007))));
        assert_eq!(address(&Reply::Array(Vec::new())), None);
        assert_eq!(address(&Reply::Nil), None);
        let row = Reply::Array(vec![
            Reply::bulk("name"),
            Reply::bulk("x"),
            Reply::bulk("flags"),
            Reply::bulk("slave"),
        ]);
        let read = rows(&Reply::Array(vec![row]));
        assert_eq!(read, [[("name".into(), "x".into()), ("flags".into(), "slave".into())]]);
    }
}
