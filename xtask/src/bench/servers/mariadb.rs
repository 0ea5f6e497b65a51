//! MariaDB with InnoDB: sysbench's OLTP read-write mix, one table of 10,000 rows, 16 connections.
//!
//! The data directory is made once by `mariadb-install-db`, as the package does; the server sees it through a
//! private layer, so every target starts from the same files. A request is one transaction (20 statements).

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Workload, words};
use crate::bench::load::{Alone, LOAD_MAX, Throughput};
use crate::bench::process;
use crate::report::{Failure, Outcome};

/// See the module.
pub struct MariaDb;

const TRANSACTIONS_MAX: u32 = 1_500;
const ALONE_TRANSACTIONS: u32 = 150;
const CONNECTIONS: u32 = 16;
/// One statement a line, as `--init-file` wants it.
const INIT: &str = "CREATE DATABASE sbtest;\n\
                    CREATE USER bench@localhost IDENTIFIED BY '';\n\
                    GRANT ALL ON sbtest.* TO bench@localhost;\n";

fn sysbench(service: SocketAddr, more: &[String]) -> Outcome<String> {
    let mut command = Command::new("sysbench");
    command
        .args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=bench", "--mysql-ssl=off"])
        .arg(format!("--mysql-host={}", service.ip()))
        .arg(format!("--mysql-port={}", service.port()))
        .args(["--tables=1", "--table-size=10000", "--rand-seed=7"])
        .args(more);
    process::output(&mut command, LOAD_MAX)
}

/// Transactions a second, and the latency in us at `percentile`.
fn run(service: SocketAddr, threads: u32, events: u32, percentile: u32) -> Outcome<(f64, f64)> {
    let text = sysbench(
        service,
        &[
            format!("--threads={threads}"),
            format!("--events={events}"),
            "--time=50".to_owned(),
            format!("--percentile={percentile}"),
            "run".to_owned(),
        ],
    )?;
    parse(&text, percentile).ok_or_else(|| Failure(format!("sysbench said something else: {text}")))
}

fn parse(text: &str, percentile: u32) -> Option<(f64, f64)> {
    let value = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key));
    let transactions = value("transactions:")?;
    let per_second = transactions.split_once('(')?.1.split_whitespace().next()?.parse().ok()?;
    let latency_ms: f64 = value(&format!("{percentile}th percentile:"))?.trim().parse().ok()?;
    Some((per_second, latency_ms * 1e3))
}

impl Workload for MariaDb {
    fn heading(&self) -> &'static str {
        "MariaDB, InnoDB, sysbench OLTP read-write; a request is a transaction"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["transaction"]
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
        sysbench(service, &["prepare".to_owned()]).map(drop)
    }
    fn alone(&self, service: SocketAddr, _: u32) -> Outcome<Alone> {
        let p50_us = run(service, 1, ALONE_TRANSACTIONS, 50)?.1;
        let p99_us = run(service, 1, ALONE_TRANSACTIONS, 99)?.1;
        Ok(Alone { p50_us, p99_us, requests: ALONE_TRANSACTIONS as usize })
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        let (first, p50_us) = run(service, clients, requests / 2, 50)?;
        let (second, p99_us) = run(service, clients, requests - requests / 2, 99)?;
        let per_second = (first + second) / 2.0;
        Ok(vec![Throughput { operation: "transaction".to_owned(), per_second, p50_us, p99_us }])
    }
    fn requests(&self, wanted: u32) -> u32 {
        wanted.min(TRANSACTIONS_MAX)
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
        let text = "SQL statistics:\n    transactions:                        1500   (412.11 per sec.)\n\
                    Latency (ms):\n         avg:   9.1\n         50th percentile:                       36.89\n";
        assert_eq!(parse(text, 50), Some((412.11, 36_890.0)));
        assert_eq!(parse(text, 99), None);
    }
}
