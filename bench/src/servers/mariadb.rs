//! MariaDB with InnoDB: sysbench's OLTP read-write mix or its selects, one table of 10,000 rows, 16 connections.
//!
//! The data directory is made once by `mariadb-install-db`, as the package does; the server sees it through a
//! private layer, so every target starts from the same files. A request is one transaction (20 statements), or one
//! select by a random key.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Workload, words};
use crate::load::{Alone, LOAD_MAX, Throughput};
use crate::process;
use skein_testkit::{Failure, Outcome};

/// sysbench's workload.
pub struct MariaDb {
    script: &'static str,
    heading: &'static str,
    operations: &'static [&'static str],
    /// The most requests of a crowd.
    most: u32,
    /// The requests of a single client.
    alone: u32,
}

/// Reads and writes in transactions.
pub const OLTP: MariaDb = MariaDb {
    script: "oltp_read_write",
    heading: "MariaDB, InnoDB, sysbench OLTP read-write; a request is a transaction",
    operations: &["transaction"],
    most: 1_500,
    alone: 150,
};

/// CRANE's workload for MySQL.
pub const SELECTS: MariaDb = MariaDb {
    script: "oltp_point_select",
    heading: "MariaDB, InnoDB, sysbench selects by a random key; a request is a select",
    operations: &["select"],
    most: 20_000,
    alone: 2_000,
};

const CONNECTIONS: u32 = 16;
/// One statement a line, as `--init-file` wants it.
const INIT: &str = "CREATE DATABASE sbtest;\n\
                    CREATE USER bench@localhost IDENTIFIED BY '';\n\
                    GRANT ALL ON sbtest.* TO bench@localhost;\n";

fn sysbench(script: &str, service: SocketAddr, more: &[String]) -> Outcome<String> {
    let mut command = Command::new("sysbench");
    command
        .args([script, "--db-driver=mysql", "--mysql-user=bench", "--mysql-ssl=off"])
        .arg(format!("--mysql-host={}", service.ip()))
        .arg(format!("--mysql-port={}", service.port()))
        .args(["--tables=1", "--table-size=10000", "--rand-seed=7"])
        .args(more);
    process::output(&mut command, LOAD_MAX)
}

/// sysbench's own histogram of `events`.
fn run(what: &MariaDb, service: SocketAddr, threads: u32, events: u32) -> Outcome<Throughput> {
    let text = sysbench(
        what.script,
        service,
        &[
            format!("--threads={threads}"),
            format!("--events={events}"),
            "--time=50".to_owned(),
            "--histogram=on".to_owned(),
            "run".to_owned(),
        ],
    )?;
    parse(&text, what.operations[0])
        .ok_or_else(|| Failure(format!("sysbench said something else: {text}")))
}

fn parse(text: &str, operation: &str) -> Option<Throughput> {
    let transactions = text.lines().find_map(|line| line.trim().strip_prefix("transactions:"))?;
    let per_second: f64 =
        transactions.split_once('(')?.1.split_whitespace().next()?.parse().ok()?;
    let mut latencies_us = Vec::new();
    // `VALUE |***** COUNT`, values in milliseconds.
    for (value, bar) in text.lines().filter_map(|line| line.split_once('|')) {
        let value_ms: f64 = value.trim().parse().ok()?;
        let count = bar.trim_start_matches('*').trim().parse().ok()?;
        latencies_us.extend(std::iter::repeat_n(value_ms * 1e3, count));
    }
    let seconds = latencies_us.len() as f64 / per_second;
    (!latencies_us.is_empty()).then(|| Throughput::of(operation, latencies_us, seconds))
}

impl Workload for MariaDb {
    fn heading(&self) -> &'static str {
        self.heading
    }
    fn operations(&self) -> &'static [&'static str] {
        self.operations
    }
    fn version(&self) -> &'static [&'static str] {
        &["mariadbd", "--version"]
    }
    fn prepare(&self, directory: &Path, _: u16) -> Outcome {
        let data = directory.join("data");
        let mut install = Command::new("mariadb-install-db");
        install
            .args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"])
            .arg("--skip-test-db")
            .arg(format!("--datadir={}", data.display()));
        process::output(&mut install, LOAD_MAX)?;
        let init = directory.join("init.sql");
        std::fs::write(&init, INIT).map_err(|error| Failure::of(init.display(), error))
    }
    fn command(&self, directory: &Path, port: u16) -> Vec<String> {
        let dir = directory.display();
        words(&[
            "mariadbd",
            "--no-defaults",
            "--user=root",
            "--bind-address=127.0.0.1",
            &format!("--datadir={dir}/data"),
            &format!("--init-file={dir}/init.sql"),
            &format!("--socket={dir}/mysqld.sock"),
            &format!("--pid-file={dir}/mysqld.pid"),
            &format!("--port={port}"),
        ])
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        use std::io::Read;
        let mut stream = TcpStream::connect_timeout(&service, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        // A greeting begins with its length and the protocol's number, 10.
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        if head[4] == 10 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
    fn fill(&self, service: SocketAddr) -> Outcome {
        sysbench(self.script, service, &["prepare".to_owned()]).map(drop)
    }
    fn alone(&self, service: SocketAddr, _: u32) -> Outcome<Alone> {
        let found = run(self, service, 1, self.alone)?;
        Ok(Alone {
            p50_us: found.p50_us,
            p99_us: found.p99_us,
            p999_us: found.p999_us,
            requests: self.alone as usize,
        })
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        Ok(vec![run(self, service, clients, requests)?])
    }
    fn requests(&self, wanted: u32) -> u32 {
        wanted.min(self.most)
    }
    fn clients(&self, wanted: u32) -> u32 {
        wanted.min(CONNECTIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysbench_prints_is_read() {
        let text = "Latency histogram (values are in milliseconds)\n       value  ------------- distribution ------------- count\n\
                    \u{20}      2.662 |****************************************  98\n      15.545 |**  2\n\
                    SQL statistics:\n    transactions:                        100   (412.11 per sec.)\n\
                    Latency (ms):\n         avg:   9.1\n";
        let found = parse(text, "transaction").expect("its form");
        assert!((found.per_second - 412.11).abs() < 1e-6, "{found:?}");
        assert_eq!((found.p50_us, found.p99_us), (2_662.0, 15_545.0));
        assert!(parse("transactions: 7", "transaction").is_none());
    }
}
