//! PostgreSQL with synchronous standbys, driven by pgbench.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::group::{self, Group, Running, await_so, copy, own, words};
use super::sample::Finding;
use super::{Contender, Peer, Scale};
use crate::bench::load::{Alone, Throughput};
use crate::bench::process;
use crate::bench::stats::percentile;
use crate::bench::target::free_address;
use crate::report::{Failure, Outcome};

/// See the module.
pub struct Postgres;

/// Debian's programs, which are not in PATH.
const BIN: &str = "/usr/lib/postgresql/15/bin";

/// Who runs it: it refuses to be root's.
const USER: &str = "postgres";

const STEP_MAX: Duration = Duration::from_secs(60);
const TRANSACTIONS_MAX: u32 = 4_000;
const ALONE_TRANSACTIONS: u32 = 500;
const CONNECTIONS: u32 = 16;

const CONTENDERS: [Contender; 3] = [
    Contender {
        id: "alone",
        name: "PostgreSQL alone",
        promise: "A committed transaction is on the disk of one machine. There is nobody to take over.",
    },
    Contender {
        id: "standby",
        name: "PostgreSQL, 2 standbys, ANY 1, on",
        promise: "A committed transaction is on the disks of the primary and of one of two standbys (synchronous_commit=on). A failover \
                  to the standby that has most loses none, but somebody else must decide it, pick the standby and \
                  keep the old primary away (two primaries are possible). Without a standby commits wait for ever. Reads at standbys \
                  may be old.",
    },
    Contender {
        id: "standby-apply",
        name: "PostgreSQL, 2 standbys, ANY 1, remote_apply",
        promise: "As above, and one standby has applied the transaction, so that it shows in reads there.",
    },
];

fn as_user(program: &str) -> Vec<String> {
    let mut command = group::as_user(USER);
    command.push(format!("{BIN}/{program}"));
    command
}

fn run(words: &[String]) -> Outcome<String> {
    process::output(Command::new(&words[0]).args(&words[1..]), STEP_MAX)
}

fn conf(port: u16, standby_of: Option<(u16, usize)>, commit: Option<&str>) -> String {
    let mut text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\nfsync = on\n\
         shared_buffers = 128MB\nwal_keep_size = 256MB\nautovacuum = off\n"
    );
    if let Some((primary, number)) = standby_of {
        text += &format!(
            "hot_standby = on\nprimary_conninfo = 'host=127.0.0.1 port={primary} user={USER} application_name=s{number}'\n"
        );
    } else if let Some(commit) = commit {
        text += &format!(
            "synchronous_standby_names = 'ANY 1 (s1, s2)'\nsynchronous_commit = {commit}\n"
        );
    }
    text
}

/// A primary, and two standbys if commits wait for one.
fn start(commit: Option<&str>) -> Outcome<Running> {
    // Killed, it would leave a System V segment behind.
    let mut group = Group::ended_by(Signal::SIGQUIT)?;
    let primary = free_address()?;
    let first = group.folder("0")?;
    own(&first, USER)?;
    let mut initdb = as_user("initdb");
    initdb.extend(words(&["--auth=trust", "--no-sync", "--username", USER, "--pgdata"]));
    initdb.push(first.join("data").display().to_string());
    run(&initdb)?;
    let standbys = if commit.is_some() { 2 } else { 0 };
    for number in 1..=standbys {
        let folder = group.folder(&number.to_string())?;
        own(&folder, USER)?;
        copy(&first.join("data"), &folder.join("data"))?;
    }
    for number in 0..=standbys {
        let data = group.folder(&number.to_string())?.join("data");
        let (port, of) = match number {
            0 => (primary.port(), None),
            _ => (free_address()?.port(), Some((primary.port(), number))),
        };
        let write = |name: &str, text: &str| {
            let path = data.join(name);
            std::fs::write(&path, text).map_err(|error| Failure::of(path.display(), error))
        };
        write("postgresql.conf", &conf(port, of, commit))?;
        if number > 0 {
            write("standby.signal", "")?;
            own(&data.join("standby.signal"), USER)?;
        }
        let mut command = as_user("postgres");
        command.extend(["-D".to_owned(), data.display().to_string()]);
        group.start(&command)?;
        if number == 0 {
            await_so("PostgreSQL to serve", || Ok(ask(primary, "SELECT 1").is_ok()))?;
        }
    }
    let query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    let wanted = standbys.to_string();
    await_so("the standbys", || Ok(ask(primary, query).is_ok_and(|text| text.trim() == wanted)))?;
    Ok(Running::Group(group, primary))
}

fn client(program: &str, service: SocketAddr) -> Command {
    let mut command = Command::new(format!("{BIN}/{program}"));
    command.args(["-h", "127.0.0.1", "-U", USER, "-p", &service.port().to_string()]);
    command
}

/// What a statement prints; one that hangs for want of a standby fails.
fn ask(service: SocketAddr, statement: &str) -> Outcome<String> {
    let mut psql = client("psql", service);
    process::output(psql.args(["-A", "-t", "-c", statement, USER]), STEP_MAX)
}

fn fill(service: SocketAddr) -> Outcome {
    let mut pgbench = client("pgbench", service);
    process::output(pgbench.args(["-i", "-q", "-s", "10", USER]), STEP_MAX).map(drop)
}

/// `transactions` over `clients` connections.
fn pgbench(service: SocketAddr, clients: u32, transactions: u32) -> Outcome<Throughput> {
    let files =
        tempfile::tempdir().map_err(|error| Failure::of("cannot make a directory", error))?;
    let log = files.path().join("log");
    let mut command = client("pgbench", service);
    command
        .args(["-M", "prepared", "-n", "-l", "--random-seed=7"])
        .arg(format!("--log-prefix={}", log.display()))
        .args(["-c", &clients.to_string(), "-t", &(transactions / clients).to_string(), USER]);
    let text = process::output(&mut command, STEP_MAX)?;
    let per_second = tps(&text)
        .ok_or_else(|| Failure(format!("pgbench said something else: {}", text.trim())))?;
    let mut latencies_us = Vec::new();
    let failed = |error: std::io::Error| Failure::of(files.path().display(), error);
    for entry in std::fs::read_dir(files.path()).map_err(failed)? {
        let text = std::fs::read_to_string(entry.map_err(failed)?.path()).map_err(failed)?;
        latencies_us.extend(text.lines().filter_map(latency_us));
    }
    Ok(Throughput {
        operation: "transaction".to_owned(),
        per_second,
        p50_us: percentile(&mut latencies_us, 50.0),
        p99_us: percentile(&mut latencies_us, 99.0),
        p999_us: Some(percentile(&mut latencies_us, 99.9)),
    })
}

/// Transactions a second, without what connecting took.
fn tps(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The third field of a line of pgbench's log.
fn latency_us(line: &str) -> Option<f64> {
    line.split(' ').nth(2)?.parse().ok()
}

impl Peer for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }
    fn heading(&self) -> &'static str {
        "PostgreSQL: synchronous standbys"
    }
    fn work(&self) -> &'static str {
        "pgbench, its TPC-B-like transactions (prepared statements), scale 10, 16 connections to the primary; fsync=on, full_page_writes=on."
    }
    fn programs(&self) -> &'static [&'static str] {
        &["/usr/lib/postgresql/15/bin/postgres", "/usr/lib/postgresql/15/bin/pgbench", "setpriv"]
    }
    fn versions(&self) -> &'static [&'static [&'static str]] {
        &[&["/usr/lib/postgresql/15/bin/postgres", "--version"]]
    }
    fn contenders(&self) -> &'static [Contender] {
        &CONTENDERS
    }
    fn operations(&self) -> &'static [&'static str] {
        &["transaction"]
    }
    fn clients(&self, wanted: u32) -> u32 {
        wanted.min(CONNECTIONS)
    }
    fn measure(&self, contender: &Contender, scale: &Scale) -> Outcome<Finding> {
        let running = start(match contender.id {
            "standby" => Some("on"),
            "standby-apply" => Some("remote_apply"),
            _ => None,
        })?;
        fill(running.service())?;
        let clients = self.clients(scale.clients);
        let requests = scale.requests.min(TRANSACTIONS_MAX) / clients * clients;
        running.measure(
            requests,
            |service| {
                let one = pgbench(service, 1, ALONE_TRANSACTIONS)?;
                Ok(Alone {
                    p50_us: one.p50_us,
                    p99_us: one.p99_us,
                    p999_us: one.p999_us,
                    requests: ALONE_TRANSACTIONS as usize,
                })
            },
            |service| Ok(vec![pgbench(service, clients, requests)?]),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let text = "transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 10\n\
                    number of transactions actually processed: 4000/4000\nlatency average = 9.4 ms\n\
                    initial connection time = 25.4 ms\ntps = 1702.127660 (without initial connection time)\n";
        assert_eq!(tps(text), Some(1_702.127_66));
        assert_eq!(tps("pgbench: error: connection failed"), None);
        assert_eq!(latency_us("3 17 4127 0 1795257681 120000"), Some(4_127.0));
        assert_eq!(latency_us(""), None);
    }

    #[test]
    fn only_a_primary_waits_for_standbys() {
        let primary = conf(5_432, None, Some("remote_apply"));
        assert!(primary.contains("synchronous_commit = remote_apply\n"));
        let standby = conf(5_433, Some((5_432, 2)), Some("remote_apply"));
        assert!(standby.contains("application_name=s2") && !standby.contains("ANY 1"));
        assert!(!conf(5_432, None, None).contains("synchronous"));
    }
}
