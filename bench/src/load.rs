//! The clients: a closed loop over many connections, and one client alone.
//!
//! Every reply is compared with the right one. The loop is one thread with one epoll, as redis-benchmark is;
//! where a request is more than one exchange ([`crowd_by`]), a thread a client. All are bounded in time.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use serde::{Deserialize, Serialize};

use super::stats::percentile;
use super::wire::{Client, Exchange};
use skein_testkit::{Failure, Outcome};

/// Different keys.
const KEYS: u32 = 1_000;

/// The longest time of a load before it counts as stuck.
pub const LOAD_MAX: Duration = Duration::from_secs(60);

/// The longest that one reply may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// One client's latency is measured for this long at most, after this many warming requests.
const ALONE_MAX: Duration = Duration::from_millis(1_000);
const ALONE_WARM: u32 = 100;

/// The largest read.
const READ_BYTES: usize = 64 << 10;

/// The figures of one operation.
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
    /// 99.9th percentile of the same, if the client reports it [us].
    #[serde(default)]
    pub p999_us: Option<f64>,
}

impl Throughput {
    /// `latencies_us` of all requests, done in `seconds`.
    pub fn of(operation: &str, mut latencies_us: Vec<f64>, seconds: f64) -> Self {
        Self {
            operation: operation.to_owned(),
            per_second: latencies_us.len() as f64 / seconds,
            p50_us: percentile(&mut latencies_us, 50.0),
            p99_us: percentile(&mut latencies_us, 99.0),
            p999_us: Some(percentile(&mut latencies_us, 99.9)),
        }
    }
}

/// The latency of a single client [us].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Alone {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    #[serde(default)]
    pub p999_us: Option<f64>,
    /// How many requests were timed.
    pub requests: usize,
}

/// `requests` of each of some operations over `clients` connections that stay open, through what the operation asks in turn.
pub fn crowd(
    server: &str,
    operations: &[(&str, &[Exchange])],
    service: SocketAddr,
    requests: u32,
    clients: u32,
) -> Outcome<Vec<Throughput>> {
    let one = |&(operation, asked): &(&str, &[Exchange])| {
        closed_loop(operation, service, asked, requests as usize, clients, LOAD_MAX)
            .map_err(|error| Failure::of(format!("{server} clients: {operation}"), error))
    };
    operations.iter().map(one).collect()
}

/// As [`crowd`] for one operation, for `time` instead of a number of requests.
pub fn crowd_for(
    server: &str,
    operation: &str,
    service: SocketAddr,
    asked: &[Exchange],
    time: Duration,
    clients: u32,
) -> Outcome<Throughput> {
    closed_loop(operation, service, asked, usize::MAX, clients, time)
        .map_err(|error| Failure::of(format!("{server} clients: {operation}"), error))
}

/// As [`crowd`] for one operation, where the function `ask` makes a request from its number: a thread a client.
pub fn crowd_by(
    server: &str,
    operation: &str,
    requests: u32,
    clients: u32,
    ask: impl Fn(usize) -> std::io::Result<()> + Sync,
) -> Outcome<Throughput> {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let one_client = || -> std::io::Result<Vec<f64>> {
        let mut latencies_us = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= requests as usize {
                return Ok(latencies_us);
            }
            if start.elapsed() > LOAD_MAX {
                return Err(std::io::Error::other("no end after 60 s"));
            }
            let asked = Instant::now();
            ask(number)?;
            latencies_us.push(asked.elapsed().as_secs_f64() * 1e6);
        }
    };
    let outcomes: Vec<std::io::Result<Vec<f64>>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..clients).map(|_| scope.spawn(one_client)).collect();
        all.into_iter()
            .map(|one| {
                one.join().unwrap_or_else(|_| Err(std::io::Error::other("a client panicked")))
            })
            .collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut latencies_us = Vec::new();
    for outcome in outcomes {
        let own = outcome
            .map_err(|error| Failure::of(format!("{server} clients: {operation}"), error))?;
        latencies_us.extend(own);
    }
    Ok(Throughput::of(operation, latencies_us, seconds))
}

/// The same exchange for each of the keys.
pub fn exchanges(of: impl Fn(u32) -> Exchange) -> Vec<Exchange> {
    (0..KEYS).map(of).collect()
}

/// One exchange over a new connection.
pub fn ask_once(service: SocketAddr, asked: &Exchange) -> std::io::Result<()> {
    Client::connect(service, Duration::from_secs(1))?.exchange(asked)
}

/// CPU time of this process and its ended children: the load generator's.
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

/// One connection of the closed loop: it asks for `key`, has sent `sent` bytes of the request, and holds `got` of the reply.
struct Caller {
    stream: TcpStream,
    key: usize,
    sent: usize,
    got: Vec<u8>,
    asked: Instant,
}

/// Asks until `requests` are asked or `time` is over; running out of time is a failure when requests are counted.
fn closed_loop(
    operation: &str,
    service: SocketAddr,
    exchanges: &[Exchange],
    requests: usize,
    clients: u32,
    time: Duration,
) -> std::io::Result<Throughput> {
    let counted = requests != usize::MAX;
    let mut poll = Poll::new()?;
    let mut callers = Vec::new();
    for number in 0..clients as usize {
        let stream = std::net::TcpStream::connect_timeout(&service, ANSWER_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(number), both)?;
        let key = number * exchanges.len() / clients as usize;
        callers.push(Caller { stream, key, sent: 0, got: Vec::new(), asked: Instant::now() });
    }
    let mut latencies_us = Vec::with_capacity(if counted { requests } else { 0 });
    let mut asked = 0;
    let start = Instant::now();
    for caller in callers.iter_mut().take(requests) {
        caller.ask(&exchanges[caller.key])?;
        asked += 1;
    }
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; READ_BYTES];
    let mut over = false;
    while latencies_us.len() < asked {
        if !over && start.elapsed() > time {
            if counted {
                return Err(std::io::Error::other("no end after 60 s"));
            }
            over = true;
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
            caller.send(&exchanges[caller.key])?;
            if !caller.hear(&exchanges[caller.key], &mut buffer)? {
                continue;
            }
            latencies_us.push(caller.asked.elapsed().as_secs_f64() * 1e6);
            if asked < requests && !over {
                asked += 1;
                caller.key = (caller.key + 1) % exchanges.len();
                caller.ask(&exchanges[caller.key])?;
            }
        }
    }
    Ok(Throughput::of(operation, latencies_us, start.elapsed().as_secs_f64()))
}

/// Raises the limit of descriptors to the machine's maximum, for this process and its children.
pub fn raise_open_files() -> Outcome<u64> {
    let failed = |error| Failure::of("the limit of open files", error);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(failed)?;
    Ok(hard)
}

impl Caller {
    /// Begins a request: the previous reply is complete.
    fn ask(&mut self, exchange: &Exchange) -> std::io::Result<()> {
        self.got.clear();
        self.sent = 0;
        self.asked = Instant::now();
        self.send(exchange)
    }

    /// Sends as much of the request as fits; the rest is sent at the next event.
    fn send(&mut self, exchange: &Exchange) -> std::io::Result<()> {
        let request = exchange.request.as_bytes();
        while self.sent < request.len() {
            match self.stream.write(&request[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads available bytes; true when the reply is complete and right.
    fn hear(&mut self, exchange: &Exchange, buffer: &mut [u8]) -> std::io::Result<bool> {
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            };
            let right = self.got.len();
            self.got.extend_from_slice(&buffer[..read]);
            if exchange.complete_from(&self.got, right)? {
                return Ok(true);
            }
            // A short read has emptied the socket: later bytes are another event.
            if read < buffer.len() {
                return Ok(false);
            }
        }
    }
}

/// How long a single client waits for replies to the `asked` in turn.
pub fn alone(
    server: &str,
    service: SocketAddr,
    asked: &[Exchange],
    requests: u32,
) -> Outcome<Alone> {
    let failed = |error| Failure::of(format!("one {server} client"), error);
    let mut client = Client::connect(service, ANSWER_MAX).map_err(failed)?;
    time_alone(requests, |number| client.exchange(&asked[number % asked.len()])).map_err(failed)
}

/// As [`alone`], where the function `ask` makes a request from its number.
pub fn alone_by(
    server: &str,
    requests: u32,
    ask: impl FnMut(usize) -> std::io::Result<()>,
) -> Outcome<Alone> {
    time_alone(requests, ask).map_err(|error| Failure::of(format!("one {server} client"), error))
}

fn time_alone(
    requests: u32,
    mut ask: impl FnMut(usize) -> std::io::Result<()>,
) -> std::io::Result<Alone> {
    // The values that GETs read later are written here, too.
    for number in 0..KEYS.max(ALONE_WARM).min(requests) as usize {
        ask(number)?;
    }
    let start = Instant::now();
    let mut latencies_us = Vec::new();
    for number in 0..requests as usize {
        let asked = Instant::now();
        ask(number)?;
        latencies_us.push(asked.elapsed().as_secs_f64() * 1e6);
        if start.elapsed() > ALONE_MAX {
            break;
        }
    }
    Ok(Alone {
        p50_us: percentile(&mut latencies_us, 50.0),
        p99_us: percentile(&mut latencies_us, 99.0),
        p999_us: Some(percentile(&mut latencies_us, 99.9)),
        requests: latencies_us.len(),
    })
}
