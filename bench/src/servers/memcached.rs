//! memcached with 4 threads, 1,000 keys, 32 byte values.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::{Workload, value, words};
use crate::load::{self, Alone, Throughput};
use crate::wire::Exchange;
use skein_testkit::Outcome;

/// The workload of memcached.
pub struct Memcached {
    /// Threads that serve.
    pub threads: u32,
    /// The most connections that it takes.
    pub connections: u32,
}

impl Memcached {
    /// Memcached with its defaults.
    pub const PLAIN: Self = Self { threads: 4, connections: 1024 };
}

/// Sets the value that `key` always has.
pub fn set(key: u32) -> Exchange {
    let value = value(key);
    Exchange::exact(
        format!("set bench:{key:08} 0 0 {}\r\n{value}\r\n", value.len()),
        "STORED\r\n".to_owned(),
    )
}

/// Reads it.
pub fn get(key: u32) -> Exchange {
    let value = value(key);
    Exchange::exact(
        format!("get bench:{key:08}\r\n"),
        format!("VALUE bench:{key:08} 0 {}\r\n{value}\r\nEND\r\n", value.len()),
    )
}

impl Workload for Memcached {
    fn heading(&self) -> &'static str {
        "memcached -t 4"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["set", "get"]
    }
    fn has_goals(&self) -> bool {
        true
    }
    fn version(&self) -> &'static [&'static str] {
        &["memcached", "--version"]
    }
    fn command(&self, _: &Path, port: u16) -> Vec<String> {
        let [port, threads, connections] =
            [u32::from(port), self.threads, self.connections].map(|number| number.to_string());
        let own = ["memcached", "-u", "root", "-U", "0", "-l", "127.0.0.1", "-p", &port];
        words(&[&own[..], &["-t", &threads, "-c", &connections]].concat())
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &set(0))
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        load::alone("memcached", service, &load::exchanges(set), requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        let (sets, gets) = (load::exchanges(set), load::exchanges(get));
        let operations = [("set", &sets[..]), ("get", &gets)];
        load::crowd("memcached", &operations, service, requests, clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_in_a_request_is_true() {
        let set = set(7).request;
        let (line, value) = set.split_once("\r\n").expect("two lines");
        let told: usize = line.rsplit(' ').next().expect("a length").parse().expect("a number");
        assert_eq!(told, value.trim_end().len());
    }
}
