//! The clients: redis-benchmark, an own closed loop for memcached, and one client alone.
//!
//! Every reply of the own clients is compared with the right one. The own loop is one thread with
//! one epoll, as redis-benchmark is. All are bounded in time.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use super::process;
use super::wire::{Client, Exchange, Server};
use crate::report::{Failure, Outcome};

/// Different keys that memcached and the one client use.
const KEYS: u32 = 1_000;

/// The longest that a load may take before it counts as stuck.
const LOAD_MAX: Duration = Duration::from_secs(60);

/// The longest that one reply may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// One client's latency is measured for this long at most, after this many warming requests.
const ALONE_MAX: Duration = Duration::from_millis(1_000);
const ALONE_WARM: u32 = 100;

/// What one operation reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Throughput {
    /// `set` or `get`.
    pub operation: String,
    /// Requests a second, all connections together.
    pub per_second: f64,
    /// Median latency of a request among the others [us].
    pub p50_us: f64,
    /// 99th percentile of the same [us].
    pub p99_us: f64,
}

/// What one client alone sees [us].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Alone {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// How many requests were timed.
    pub requests: usize,
}

/// Sets and gets `requests` times each over `clients` connections.
pub fn crowd(
    server: Server,
    service: SocketAddr,
    requests: u32,
    clients: u32,
) -> Outcome<Vec<Throughput>> {
    match server {
        Server::Redis => redis_benchmark(service, requests, clients),
        Server::Memcached => {
            let set: Vec<Exchange> = (0..KEYS).map(|key| server.set(key)).collect();
            let get: Vec<Exchange> = (0..KEYS).map(|key| server.get(key)).collect();
            let all = [("set", set), ("get", get)];
            all.iter()
                .map(|(operation, exchanges)| {
                    closed_loop(operation, service, exchanges, requests, clients).map_err(|error| {
                        Failure::of(format!("{} clients that {operation}", server.name()), error)
                    })
                })
                .collect()
        }
    }
}

/// CPU time that this process and its ended children have used: the load generator's.
pub fn cpu_used() -> Outcome<Duration> {
    let mut sum = Duration::ZERO;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who).map_err(|error| Failure::of("getrusage", error))?;
        for time in [usage.user_time(), usage.system_time()] {
            let us = time.tv_sec().cast_unsigned() * 1_000_000 + time.tv_usec().cast_unsigned();
            sum += Duration::from_micros(us);
        }
    }
    Ok(sum)
}

fn redis_benchmark(service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", &service.ip().to_string(), "-p", &service.port().to_string()]).args([
        "-t",
        "set,get",
        "-c",
        &clients.to_string(),
        "-n",
        &requests.to_string(),
        "--csv",
    ]);
    parse_csv(&process::output(&mut command, LOAD_MAX)?)
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

/// One connection of the closed loop: it has asked for `key` and got `got` bytes of the reply.
struct Caller {
    stream: TcpStream,
    key: usize,
    got: usize,
    asked: Instant,
}

fn closed_loop(
    operation: &str,
    service: SocketAddr,
    exchanges: &[Exchange],
    requests: u32,
    clients: u32,
) -> std::io::Result<Throughput> {
    let mut poll = Poll::new()?;
    let mut callers = Vec::new();
    for number in 0..clients as usize {
        let stream = std::net::TcpStream::connect_timeout(&service, ANSWER_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
        let key = number * exchanges.len() / clients as usize;
        callers.push(Caller { stream, key, got: 0, asked: Instant::now() });
    }
    let mut latencies_us = Vec::with_capacity(requests as usize);
    let mut asked = 0;
    let start = Instant::now();
    for caller in callers.iter_mut().take(requests as usize) {
        caller.ask(&exchanges[caller.key])?;
        asked += 1;
    }
    let mut events = Events::with_capacity(1024);
    while latencies_us.len() < requests as usize {
        if start.elapsed() > LOAD_MAX {
            return Err(std::io::Error::other("no end after 60 s"));
        }
        match poll.poll(&mut events, Some(ANSWER_MAX)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        if events.is_empty() {
            return Err(std::io::Error::other("no reply for 10 s"));
        }
        for event in &events {
            let caller = &mut callers[event.token().0];
            if !caller.hear(&exchanges[caller.key])? {
                continue;
            }
            latencies_us.push(caller.asked.elapsed().as_secs_f64() * 1e6);
            if asked < requests {
                asked += 1;
                caller.key = (caller.key + 1) % exchanges.len();
                caller.ask(&exchanges[caller.key])?;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Throughput {
        operation: operation.to_owned(),
        per_second: f64::from(requests) / seconds,
        p50_us: percentile(&mut latencies_us, 50.0),
        p99_us: percentile(&mut latencies_us, 99.0),
    })
}

impl Caller {
    /// Sends a request: small, and the reply to the one before is there, so that it fits.
    fn ask(&mut self, exchange: &Exchange) -> std::io::Result<()> {
        self.got = 0;
        self.asked = Instant::now();
        let request = exchange.request.as_bytes();
        let written = self.stream.write(request)?;
        if written == request.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Reads what is there; true when the reply is complete and right.
    fn hear(&mut self, exchange: &Exchange) -> std::io::Result<bool> {
        let mut buffer = [0; 1024];
        let read = match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let rest = &exchange.reply.as_bytes()[self.got..];
        if !rest.starts_with(&buffer[..read]) {
            let got = String::from_utf8_lossy(&buffer[..read]).escape_debug().to_string();
            return Err(std::io::Error::other(format!("wrong reply: {got}")));
        }
        self.got += read;
        Ok(self.got == exchange.reply.len())
    }
}

/// How long one client, alone, waits for the reply to a SET.
pub fn alone(server: Server, service: SocketAddr, requests: u32) -> Outcome<Alone> {
    time_alone(server, service, requests)
        .map_err(|error| Failure::of(format!("one {} client", server.name()), error))
}

fn time_alone(server: Server, service: SocketAddr, requests: u32) -> std::io::Result<Alone> {
    let mut client = Client::connect(service, ANSWER_MAX)?;
    for key in 0..ALONE_WARM {
        client.exchange(&server.set(key))?;
    }
    let exchanges: Vec<Exchange> = (0..KEYS).map(|key| server.set(key)).collect();
    let start = Instant::now();
    let mut latencies_us = Vec::new();
    for exchange in exchanges.iter().cycle().take(requests as usize) {
        let asked = Instant::now();
        client.exchange(exchange)?;
        latencies_us.push(asked.elapsed().as_secs_f64() * 1e6);
        if start.elapsed() > ALONE_MAX {
            break;
        }
    }
    Ok(Alone {
        p50_us: percentile(&mut latencies_us, 50.0),
        p99_us: percentile(&mut latencies_us, 99.0),
        requests: latencies_us.len(),
    })
}

/// The value that `percent` of `values` do not exceed; 0 of none.
pub fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 50.0), 50.0);
        assert_eq!(percentile(&mut values, 99.0), 99.0);
        assert_eq!(percentile(&mut [7.0], 99.0), 7.0);
        assert_eq!(percentile(&mut [], 50.0), 0.0);
    }

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
}
