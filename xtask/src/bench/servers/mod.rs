//! What is measured: each server with its usual configuration and the client that asks it.
//!
//! A server is one file here: how it is configured and started, what its clients ask ([`Workload`]), and one
//! line in [`Server`] and [`Server::workload`]. What is common to all (rounds, targets, CPU time, tables)
//! is elsewhere.

mod clamd;
mod http;
mod mariadb;
mod memcached;
pub mod redis;

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::load::{Alone, Throughput};
use crate::report::Outcome;

/// Which server.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// redis-server, driven by redis-benchmark
    Redis,
    /// memcached with 4 threads, driven by an own closed loop
    Memcached,
    /// nginx with 2 worker processes and a static page, driven by an own closed loop
    Nginx,
    /// lighttpd with a static page, driven by an own closed loop
    Lighttpd,
    /// Apache httpd (event MPM) with a static page, driven by an own closed loop
    Apache,
    /// MariaDB (InnoDB), driven by sysbench OLTP read-write
    Mariadb,
    /// clamd with a small signature file, driven by an own client that streams files to it
    Clamd,
}

/// What a server's file says about it.
pub trait Workload {
    /// The title of its tables, behind the number of connections.
    fn heading(&self) -> &'static str;
    /// What its clients ask, in the order in which they do: names in results and tables.
    fn operations(&self) -> &'static [&'static str];
    /// What one client alone asks for.
    fn alone_operation(&self) -> &'static str {
        self.operations()[0]
    }
    /// Whether there are goals for it.
    fn has_goals(&self) -> bool {
        false
    }
    /// The command that says its version.
    fn version(&self) -> &'static [&'static str];
    /// Writes what it needs (configuration, data) into an empty directory, to serve at `port`.
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        let _ = (directory, port);
        Ok(())
    }
    /// The command that serves at `port`.
    fn command(&self, directory: &Path, port: u16) -> Vec<String>;
    /// One request, answered rightly.
    fn probe(&self, service: SocketAddr) -> io::Result<()>;
    /// What has to be done once when it serves, before it is measured.
    fn fill(&self, service: SocketAddr) -> Outcome {
        let _ = service;
        Ok(())
    }
    /// How long one client, alone, waits for a reply.
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone>;
    /// `requests` of each operation over `clients` connections.
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>>;
    /// Requests of each operation that are asked for, where the default is too many.
    fn requests(&self, wanted: u32) -> u32 {
        wanted
    }
    /// Connections of the crowd, where the default does not fit.
    fn clients(&self, wanted: u32) -> u32 {
        wanted
    }
}

impl Server {
    /// All, in the order of the document.
    pub const ALL: [Self; 7] = [
        Self::Redis,
        Self::Memcached,
        Self::Nginx,
        Self::Lighttpd,
        Self::Apache,
        Self::Mariadb,
        Self::Clamd,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
            Self::Nginx => "nginx",
            Self::Lighttpd => "lighttpd",
            Self::Apache => "apache",
            Self::Mariadb => "mariadb",
            Self::Clamd => "clamd",
        }
    }

    /// What its file says.
    pub fn workload(self) -> &'static dyn Workload {
        match self {
            Self::Redis => &redis::Redis,
            Self::Memcached => &memcached::Memcached,
            Self::Nginx => &http::Nginx,
            Self::Lighttpd => &http::Lighttpd,
            Self::Apache => &http::Apache,
            Self::Mariadb => &mariadb::MariaDb,
            Self::Clamd => &clamd::Clamd,
        }
    }
}

/// A command from its words.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// 32 bytes that name the key.
fn value(key: u32) -> String {
    format!("{key:032x}")
}
