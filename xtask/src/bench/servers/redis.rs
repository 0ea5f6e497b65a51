//! redis-server without saving, driven by redis-benchmark: 3 byte values.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Workload, value, words};
use crate::bench::load::{self, Alone, LOAD_MAX, Throughput};
use crate::bench::process;
use crate::bench::wire::Exchange;
use crate::report::{Failure, Outcome};

/// See the module.
pub struct Redis;

/// Sets the value that `key` always has.
pub fn set(key: u32) -> Exchange {
    let value = value(key);
    Exchange::exact(
        format!("*3\r\n$3\r\nSET\r\n$14\r\nbench:{key:08}\r\n${}\r\n{value}\r\n", value.len()),
        "+OK\r\n".to_owned(),
    )
}

impl Workload for Redis {
    fn heading(&self) -> &'static str {
        "redis-server"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["set", "get"]
    }
    fn has_goals(&self) -> bool {
        true
    }
    fn version(&self) -> &'static [&'static str] {
        &["redis-server", "--version"]
    }
    fn command(&self, _: &Path, port: u16) -> Vec<String> {
        let port = port.to_string();
        words(&["redis-server", "--bind", "127.0.0.1", "--save", "", "--port", &port])
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &set(0))
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        load::alone("redis", service, &load::exchanges(set), requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        let mut command = Command::new("redis-benchmark");
        command
            .args(["-h", &service.ip().to_string(), "-p", &service.port().to_string()])
            .args(["-t", "set,get", "-c", &clients.to_string(), "-n", &requests.to_string()])
            .arg("--csv");
        parse_csv(&process::output(&mut command, LOAD_MAX)?)
    }
}

/// Reads redis-benchmark's table: columns by name, latencies in milliseconds.
fn parse_csv(csv: &str) -> Outcome<Vec<Throughput>> {
    let row = |line: &str| -> Vec<String> {
        line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()
    };
    let mut lines = csv.lines().filter(|line| line.starts_with('"')).map(row);
    let head = lines.next().unwrap_or_default();
    let found: Option<Vec<Throughput>> = lines
        .map(|cells| {
            let cell = |name: &str| {
                let at = head.iter().position(|known| known == name)?;
                cells.get(at)?.parse::<f64>().ok()
            };
            Some(Throughput {
                operation: cells.first()?.to_lowercase(),
                per_second: cell("rps")?,
                p50_us: cell("p50_latency_ms")? * 1_000.0,
                p99_us: cell("p99_latency_ms")? * 1_000.0,
            })
        })
        .collect();
    found
        .filter(|rows| rows.len() == 2)
        .ok_or_else(|| Failure(format!("redis-benchmark said something else: {}", csv.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmarks_table_is_read_by_column_name() {
        let csv = "\"test\",\"rps\",\"p50_latency_ms\",\"p99_latency_ms\"\n\
                   \"SET\",\"51599.59\",\"0.607\",\"2.5\"\n\"GET\",\"52798.31\",\"0.575\",\"1\"\n";
        let rows = parse_csv(csv).expect("its form");
        assert_eq!(rows[0].operation, "set");
        assert_eq!(rows[1].per_second, 52_798.31);
        assert_eq!(rows[0].p99_us, 2_500.0);
        assert!(parse_csv("Could not connect").is_err());
    }

    #[test]
    fn lengths_in_requests_are_true() {
        let set = set(7).request;
        let parts: Vec<&str> = set.split("\r\n").collect();
        assert_eq!(parts[3], format!("${}", parts[4].len()));
        assert_eq!(parts[5], format!("${}", parts[6].len()));
    }
}
