//! redis-server without saving, driven by redis-benchmark: 3 byte values.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Workload, value, words};
use crate::load::{self, Alone, LOAD_MAX, Throughput};
use crate::process;
use crate::wire::Exchange;
use skein_testkit::{Failure, Outcome};

/// The workload of redis-server.
pub struct Redis {
    /// Further arguments.
    pub more: &'static [&'static str],
}

impl Redis {
    /// Redis with its defaults.
    pub const PLAIN: Self = Self { more: &[] };
}

/// Sets the value that `key` always has.
pub fn set(key: u32) -> Exchange {
    let value = value(key);
    Exchange::exact(
        format!("*3\r\n$3\r\nSET\r\n$14\r\nbench:{key:08}\r\n${}\r\n{value}\r\n", value.len()),
        "+OK\r\n".to_owned(),
    )
}

/// Reads it.
pub fn get(key: u32) -> Exchange {
    let value = value(key);
    Exchange::exact(
        format!("*2\r\n$3\r\nGET\r\n$14\r\nbench:{key:08}\r\n"),
        format!("${}\r\n{value}\r\n", value.len()),
    )
}

/// Sets, or gets, a value of `bytes` bytes that is the same for every key.
pub fn sized(key: u32, bytes: usize) -> [Exchange; 2] {
    let value = "v".repeat(bytes);
    let name = format!("sized:{key:08}");
    let reply = format!("${bytes}\r\n{value}\r\n");
    let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${bytes}\r\n{value}\r\n", name.len());
    [
        Exchange::exact(set, "+OK\r\n".to_owned()),
        Exchange::exact(format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len()), reply),
    ]
}

/// A command whose arguments are single words, and the start of its reply.
pub fn command(words: &[&str], reply: &str) -> Exchange {
    let parts: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    Exchange::line(format!("*{}\r\n{parts}", words.len()), reply)
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
    fn command(&self, directory: &Path, port: u16) -> Vec<String> {
        let port = port.to_string();
        let directory = directory.display().to_string();
        let mut own = vec!["redis-server", "--bind", "127.0.0.1", "--save", "", "--port", &port];
        // Its saved file goes into a directory that no test reads.
        own.extend(["--dir", &directory]);
        words(&[&own[..], self.more].concat())
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &set(0))
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        load::alone("redis", service, &load::exchanges(set), requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", &service.ip().to_string(), "-p", &service.port().to_string()]).args([
            "-t",
            "set,get",
            "-c",
            &clients.to_string(),
            "-n",
            &requests.to_string(),
        ]);
        parse(&process::output(&mut command, LOAD_MAX)?)
    }
}

/// Reads redis-benchmark's report: for each operation a heading, latencies by percentile and a summary, in milliseconds.
fn parse(report: &str) -> Outcome<Vec<Throughput>> {
    let mut found = Vec::new();
    // It writes its progress into the same line, behind carriage returns.
    let (mut operation, mut p999_us, mut per_second) = (String::new(), None, None);
    let mut lines = report.split(['\n', '\r']).map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("====== ") {
            (operation, p999_us) = (name.trim_end_matches([' ', '=']).to_lowercase(), None);
        } else if let Some((percent, rest)) = line.split_once("% <= ")
            && rest.contains("(cumulative count ")
        {
            let reached = percent.parse::<f64>().is_ok_and(|percent| percent >= 99.9);
            if reached && p999_us.is_none() {
                p999_us = first_number(rest).map(|ms| ms * 1e3);
            }
        } else if let Some(rest) = line.strip_prefix("throughput summary: ") {
            per_second = first_number(rest);
        } else if line.starts_with("avg ") {
            // avg min p50 p95 p99 max, and their values in the next line.
            let names: Vec<&str> = line.split_whitespace().collect();
            let values: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
            let value_us = |name| {
                let at = names.iter().position(|known| *known == name)?;
                Some(values.get(at)?.parse::<f64>().ok()? * 1e3)
            };
            if let (Some(per_second), Some(p50_us), Some(p99_us)) =
                (per_second.take(), value_us("p50"), value_us("p99"))
            {
                let operation = operation.clone();
                found.push(Throughput { operation, per_second, p50_us, p99_us, p999_us });
            }
        }
    }
    let asked = found.iter().map(|at| at.operation.as_str()).eq(["set", "get"]);
    if asked {
        return Ok(found);
    }
    Err(Failure(format!("redis-benchmark said something else: {}", report.trim())))
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_benchmark_prints_is_read() {
        let one = |name: &str| {
            format!(
                "SET: rps=0.0 (overall: nan) avg_msec=nan\r====== {name} ======\n  1000 requests completed in 0.02 seconds\n\n\
                 Latency by percentile distribution:\n0.000% <= 0.055 milliseconds (cumulative count 1)\n\
                 99.902% <= 1.175 milliseconds (cumulative count 1000)\n100.000% <= 1.2 milliseconds (cumulative count 1000)\n\n\
                 Cumulative distribution of latencies:\n100.000% <= 2.007 milliseconds (cumulative count 1000)\n\n\
                 Summary:\n  throughput summary: 51599.59 requests per second\n  latency summary (msec):\n\
                 \u{20}         avg       min       p50       p95       p99       max\n\
                 \u{20}       0.566     0.048     0.607     1.071     2.500     1.183\n"
            )
        };
        let rows = parse(&(one("SET") + &one("GET"))).expect("its form");
        assert_eq!((rows[0].operation.as_str(), rows[1].operation.as_str()), ("set", "get"));
        assert_eq!(rows[1].per_second, 51_599.59);
        assert_eq!((rows[0].p50_us, rows[0].p99_us), (607.0, 2_500.0));
        assert_eq!(rows[0].p999_us, Some(1_175.0));
        assert!(parse(&one("SET")).is_err());
        assert!(parse("Could not connect").is_err());
    }

    #[test]
    fn lengths_in_requests_are_true() {
        let set = set(7).request;
        let parts: Vec<&str> = set.split("\r\n").collect();
        assert_eq!(parts[3], format!("${}", parts[4].len()));
        assert_eq!(parts[5], format!("${}", parts[6].len()));
    }
}
