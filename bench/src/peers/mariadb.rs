//! MariaDB's own replication (semi-synchronous, and Galera) beside the same transactions under Skein.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::group::{Group, Running, as_user, await_so, copy, own, words};
use super::sample::Finding;
use super::{Contender, Peer, SKEIN_FSYNC, SKEIN_MEMORY, Scale};
use crate::process;
use crate::servers::Server;
use crate::wire::free_address;
use skein_testkit::{Failure, Outcome};

/// MariaDB's replication as a contender.
pub struct MariaDb;

/// Path of Debian's Galera library.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// The user of Galera's nodes.
const USER: &str = "mysql";

/// The longest that a statement or the making of a database may take.
const STEP_MAX: Duration = Duration::from_secs(30);

const CONTENDERS: [Contender; 6] = [
    Contender {
        id: "alone",
        name: "MariaDB alone",
        promise: "A committed transaction is on the disk of one machine (innodb_flush_log_at_trx_commit=1; no binary log). There \
                  is nobody to take over.",
    },
    Contender {
        id: "alone-binlog",
        name: "MariaDB alone, binary log",
        promise: "As above, with the binary log that replication needs, made durable at each commit (sync_binlog=1).",
    },
    Contender {
        id: "semi-sync",
        name: "MariaDB, 2 replicas, semi-sync",
        promise: "A committed transaction is on the primary's disk and at least one replica has received it (AFTER_SYNC: before \
                  others see it). When no replica answers within rpl_semi_sync_master_timeout (10 s) it goes on \
                  asynchronously. Somebody else must decide a failover and pick the replica that has most; reads at \
                  replicas may be old.",
    },
    Contender {
        id: "galera",
        name: "MariaDB, Galera, 3 nodes",
        promise: "A committed transaction was certified by all nodes of the majority and is applied at the others afterwards; the \
                  loss of a node loses none. Any node takes writes, and a transaction may fail at its commit because of \
                  another node's. Reads at other nodes may be old (wsrep_sync_wait=0). InnoDB only.",
    },
    SKEIN_MEMORY,
    SKEIN_FSYNC,
];

/// One server: its files and its address.
struct Node {
    folder: String,
    service: SocketAddr,
}

impl Node {
    /// `number` of the group, with the data of `like`, or a new database.
    fn make(group: &Group, number: usize, like: Option<&Self>) -> Outcome<Self> {
        let folder = group.folder(&number.to_string())?.display().to_string();
        let data = format!("{folder}/data");
        // A starting mariadbd removes every temporary table in its directory, including other servers' tables: each has its own.
        let temporary = format!("{folder}/tmp");
        fs::create_dir(&temporary).map_err(|error| Failure::of(&temporary, error))?;
        match like {
            Some(like) => copy(Path::new(&format!("{}/data", like.folder)), Path::new(&data))?,
            None => {
                let mut install = Command::new("mariadb-install-db");
                install
                    .args(["--no-defaults", "--user=root", "--skip-test-db"])
                    .arg("--auth-root-authentication-method=normal")
                    .arg(format!("--datadir={data}"))
                    .arg(format!("--tmpdir={temporary}"));
                process::output(&mut install, STEP_MAX)?;
            }
        }
        Ok(Self { folder, service: free_address()? })
    }

    /// The command that serves, durable at each commit.
    fn command(&self, more: &[String]) -> Vec<String> {
        let dir = &self.folder;
        let mut command = words(&[
            "mariadbd",
            "--no-defaults",
            "--bind-address=127.0.0.1",
            "--innodb-flush-log-at-trx-commit=1",
            &format!("--datadir={dir}/data"),
            &format!("--tmpdir={dir}/tmp"),
            &format!("--socket={dir}/socket"),
            &format!("--pid-file={dir}/pid"),
            &format!("--log-error={dir}/error.log"),
            &format!("--port={}", self.service.port()),
        ]);
        command.extend(more.iter().cloned());
        command
    }

    /// The output of the statements, without headings.
    fn ask(&self, statements: &str) -> Outcome<String> {
        let mut client = Command::new("mariadb");
        client
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}/socket", self.folder))
            .args(["--execute", statements]);
        process::output(&mut client, STEP_MAX)
    }

    fn await_up(&self) -> Outcome {
        await_so("MariaDB to serve", || Ok(self.ask("SELECT 1").is_ok()))
    }

    /// A status variable's value, if it has one.
    fn status(&self, variable: &str) -> Option<String> {
        value_of(&self.ask(&format!("SHOW STATUS LIKE '{variable}'")).ok()?, variable)
    }

    /// The connection of sysbench.
    fn let_in(&self) -> Outcome {
        self.ask(
            "CREATE DATABASE sbtest; CREATE USER bench@localhost IDENTIFIED BY ''; \
             GRANT ALL ON sbtest.* TO bench@localhost",
        )
        .map(drop)
    }
}

/// The value of a line `variable<tab>value`.
fn value_of(printed: &str, variable: &str) -> Option<String> {
    let row = |line: &str| {
        let (name, value) = line.split_once('\t')?;
        name.eq_ignore_ascii_case(variable).then(|| value.trim().to_owned())
    };
    printed.lines().find_map(row)
}

fn replicated(number: usize) -> Vec<String> {
    let mut more = words(&["--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW"]);
    more.push(format!("--server-id={}", number + 1));
    more
}

/// A primary and `replicas` that acknowledge received transactions.
fn semi_sync(replicas: usize) -> Outcome<(Running, Vec<Node>)> {
    let mut group = Group::new()?;
    let mut nodes = vec![Node::make(&group, 0, None)?];
    for number in 1..=replicas {
        nodes.push(Node::make(&group, number, nodes.first())?);
    }
    for (number, node) in nodes.iter().enumerate() {
        let mut more = replicated(number);
        if replicas > 0 {
            more.extend(words(if number == 0 {
                &[
                    "--rpl-semi-sync-master-enabled=ON",
                    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
                ]
            } else {
                &["--rpl-semi-sync-slave-enabled=ON", "--log-slave-updates"]
            }));
        }
        more.push("--user=root".to_owned());
        group.start(&node.command(&more))?;
    }
    for node in &nodes {
        node.await_up()?;
    }
    let primary = &nodes[0];
    primary.ask("CREATE USER replica@localhost IDENTIFIED BY ''; GRANT REPLICATION SLAVE ON *.* TO replica@localhost")?;
    for replica in &nodes[1..] {
        replica.ask(&format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='replica', MASTER_PASSWORD='', \
             MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos; START SLAVE",
            primary.service.port()
        ))?;
    }
    let wanted = replicas.to_string();
    if replicas > 0 {
        await_so("the replicas", || {
            Ok(primary.status("Rpl_semi_sync_master_clients").as_ref() == Some(&wanted))
        })?;
    }
    primary.let_in()?;
    Ok((Running::Group(group, primary.service), nodes))
}

/// Three nodes: a new database, and two that copy it by rsync.
fn galera() -> Outcome<(Running, Vec<Node>)> {
    let mut group = Group::new()?;
    let mut nodes = vec![Node::make(&group, 0, None)?];
    for number in 1..3 {
        let folder = group.folder(&number.to_string())?.display().to_string();
        for below in ["data", "tmp"] {
            group.folder(&format!("{number}/{below}"))?;
        }
        nodes.push(Node { folder, service: free_address()? });
    }
    for node in &nodes {
        // rsync's daemon, which a joining node starts, does nothing as root.
        own(Path::new(&node.folder), USER)?;
    }
    let mut peers = Vec::new();
    for _ in 0..3 {
        peers.push([free_address()?, free_address()?, free_address()?]);
    }
    let all: Vec<String> = peers.iter().map(|[group, ..]| group.to_string()).collect();
    for (number, (node, [group_at, transfer, whole])) in nodes.iter().zip(&peers).enumerate() {
        let mut more = words(&[
            "--wsrep-on=ON",
            &format!("--wsrep-provider={PROVIDER}"),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-node-address=127.0.0.1",
            &format!("--wsrep-node-name=n{number}"),
            "--wsrep-sst-method=rsync",
            &format!("--wsrep-sst-receive-address={whole}"),
            &format!("--wsrep-cluster-address=gcomm://{}", all.join(",")),
            &format!(
                "--wsrep-provider-options=base_host=127.0.0.1;base_port={};gmcast.listen_addr=tcp://{group_at};\
                 ist.recv_addr={transfer}",
                group_at.port()
            ),
        ]);
        if number == 0 {
            more.push("--wsrep-new-cluster".to_owned());
        }
        let mut command = as_user(USER);
        command.extend(node.command(&more));
        group.start(&command)?;
        await_so("Galera to take the node in", || {
            Ok(node.status("wsrep_local_state_comment").as_deref() == Some("Synced"))
        })?;
    }
    let size = nodes[0].status("wsrep_cluster_size");
    if size.as_deref() != Some("3") {
        return Err(Failure(format!("Galera's cluster has {} nodes", size.unwrap_or_default())));
    }
    nodes[0].let_in()?;
    Ok((Running::Group(group, nodes[0].service), nodes))
}

/// Replicas have applied everything.
fn await_level(nodes: &[Node]) -> Outcome {
    let Some((primary, replicas)) = nodes.split_first() else { return Ok(()) };
    let position = primary.ask("SELECT @@gtid_binlog_pos")?;
    for replica in replicas {
        replica.ask(&format!("SELECT MASTER_GTID_WAIT('{}', 20)", position.trim()))?;
    }
    Ok(())
}

/// The number of commits that did not wait for a replica.
fn committed_alone(primary: &Node) -> Outcome<u64> {
    let count = primary.status("Rpl_semi_sync_master_no_tx");
    count
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| Failure("MariaDB has no Rpl_semi_sync_master_no_tx".to_owned()))
}

impl Peer for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }
    fn heading(&self) -> &'static str {
        "MariaDB: semi-synchronous replication and Galera"
    }
    fn work(&self) -> &'static str {
        "sysbench OLTP read-write (20 statements a transaction), one table of 10,000 rows, 16 connections, as in the servers' own \
         figures. All clients ask one node; innodb_flush_log_at_trx_commit=1 everywhere, sync_binlog=1 where there is a \
         binary log. Under Skein the server's own files are in memory: what makes a transaction durable is the log."
    }
    fn programs(&self) -> &'static [&'static str] {
        &["mariadbd", "mariadb", "mariadb-install-db", "sysbench", "rsync", PROVIDER]
    }
    fn versions(&self) -> &'static [&'static [&'static str]] {
        &[&["mariadbd", "--version"], &["sysbench", "--version"]]
    }
    fn contenders(&self) -> &'static [Contender] {
        &CONTENDERS
    }
    fn operations(&self) -> &'static [&'static str] {
        &["transaction"]
    }
    fn clients(&self, wanted: u32) -> u32 {
        Server::Mariadb.workload().clients(wanted)
    }
    fn measure(&self, contender: &Contender, scale: &Scale) -> Outcome<Finding> {
        let workload = Server::Mariadb.workload();
        let requests = workload.requests(scale.requests);
        let (running, nodes) = match Running::known(contender.id, Server::Mariadb) {
            Some(known) => (known?, Vec::new()),
            None => match contender.id {
                "galera" => galera()?,
                "semi-sync" => semi_sync(2)?,
                _ => semi_sync(0)?,
            },
        };
        if !nodes.is_empty() {
            workload.fill(running.service())?;
        }
        let semi_sync = nodes.first().filter(|_| contender.id == "semi-sync");
        let alone_before = semi_sync.map(committed_alone).transpose()?;
        if semi_sync.is_some() {
            await_level(&nodes)?;
        }
        let found = running.measure(
            requests,
            |service| workload.alone(service, requests),
            |service| workload.crowd(service, requests, workload.clients(scale.clients)),
        )?;
        let alone_after = semi_sync.map(committed_alone).transpose()?;
        if alone_before != alone_after {
            return Err(Failure(
                "transactions were committed without a replica's answer".to_owned(),
            ));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_variable_is_read() {
        let printed = "Rpl_semi_sync_master_clients\t2\nwsrep_cluster_size\t3\n";
        assert_eq!(value_of(printed, "rpl_semi_sync_master_clients").as_deref(), Some("2"));
        assert_eq!(value_of(printed, "wsrep_cluster_size").as_deref(), Some("3"));
        assert_eq!(value_of("", "wsrep_cluster_size"), None);
    }
}
