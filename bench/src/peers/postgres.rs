//! PostgreSQL with synchronous standbys, driven by pgbench.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::group::{self, Group, Running, await_so, copy, own, words};
use super::sample::Finding;
use super::{Contender, Peer, SKEIN_FSYNC, SKEIN_MEMORY, Scale};
use crate::process;
use crate::servers::Server;
use crate::wire::free_address;
use skein_testkit::{Failure, Outcome};

/// PostgreSQL's synchronous replication as a contender.
pub struct Postgres;

/// Debian's programs, which are not in PATH.
const BIN: &str = "/usr/lib/postgresql/15/bin";

/// The user that runs it: it refuses root.
const USER: &str = "postgres";

const STANDBYS: usize = 2;
const STEP_MAX: Duration = Duration::from_secs(60);

const CONTENDERS: [Contender; 5] = [
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
    SKEIN_MEMORY,
    SKEIN_FSYNC,
];

fn as_user(program: &str) -> Vec<String> {
    let mut command = group::as_user(USER);
    command.push(format!("{BIN}/{program}"));
    command
}

fn run(words: &[String]) -> Outcome<String> {
    process::output(Command::new(&words[0]).args(&words[1..]), STEP_MAX)
}

fn conf(port: u16, standby_of: Option<(u16, usize)>, commit: &str) -> String {
    let mut text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\nfsync = on\n\
         shared_buffers = 128MB\nwal_keep_size = 256MB\n"
    );
    if let Some((primary, number)) = standby_of {
        text += &format!(
            "hot_standby = on\nprimary_conninfo = 'host=127.0.0.1 port={primary} user={USER} application_name=s{number}'\n"
        );
    } else {
        text += &format!(
            "synchronous_standby_names = 'ANY 1 (s1, s2)'\nsynchronous_commit = {commit}\n"
        );
    }
    text
}

/// A primary and two standbys, one of which commits wait for.
fn start(commit: &str) -> Outcome<Running> {
    // A killed server would leave a System V segment behind.
    let mut group = Group::ended_by(Signal::SIGQUIT)?;
    let primary = free_address()?;
    let first = group.folder("0")?;
    own(&first, USER)?;
    let mut initdb = as_user("initdb");
    initdb.extend(words(&["--auth=trust", "--no-sync", "--username", USER, "--pgdata"]));
    initdb.push(first.join("data").display().to_string());
    run(&initdb)?;
    for number in 1..=STANDBYS {
        let folder = group.folder(&number.to_string())?;
        own(&folder, USER)?;
        copy(&first.join("data"), &folder.join("data"))?;
    }
    for number in 0..=STANDBYS {
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
    let wanted = STANDBYS.to_string();
    await_so("the standbys", || Ok(ask(primary, query).is_ok_and(|text| text.trim() == wanted)))?;
    Ok(Running::Group(group, primary))
}

fn client(program: &str, service: SocketAddr) -> Command {
    let mut command = Command::new(format!("{BIN}/{program}"));
    command.args(["-h", "127.0.0.1", "-U", USER, "-p", &service.port().to_string()]);
    command
}

/// The output of a statement; a statement that hangs for want of a standby fails.
fn ask(service: SocketAddr, statement: &str) -> Outcome<String> {
    let mut psql = client("psql", service);
    process::output(psql.args(["-A", "-t", "-c", statement, USER]), STEP_MAX)
}

impl Peer for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }
    fn heading(&self) -> &'static str {
        "PostgreSQL: synchronous standbys"
    }
    fn work(&self) -> &'static str {
        "pgbench, its TPC-B-like transactions (prepared statements), scale 10, 16 connections to the primary, as in the servers' own figures; fsync=on, full_page_writes=on. Under Skein the \
         server's own files are in memory: what makes a transaction durable is the log."
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
        Server::Postgres.workload().clients(wanted)
    }
    fn measure(&self, contender: &Contender, scale: &Scale) -> Outcome<Finding> {
        let workload = Server::Postgres.workload();
        let running = match Running::known(contender.id, Server::Postgres) {
            Some(known) => known?,
            None => {
                let commit = if contender.id == "standby" { "on" } else { "remote_apply" };
                let running = start(commit)?;
                workload.fill(running.service())?;
                running
            }
        };
        let clients = self.clients(scale.clients);
        let requests = workload.requests(scale.requests) / clients * clients;
        running.measure(
            requests,
            |service| workload.alone(service, requests),
            |service| workload.crowd(service, requests, clients),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_primary_waits_for_standbys() {
        let primary = conf(5_432, None, "remote_apply");
        assert!(primary.contains("synchronous_commit = remote_apply\n"));
        let standby = conf(5_433, Some((5_432, 2)), "remote_apply");
        assert!(standby.contains("application_name=s2") && !standby.contains("ANY 1"));
    }
}
