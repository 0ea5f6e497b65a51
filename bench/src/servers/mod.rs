//! The measured servers: each with its usual configuration and its client.
//!
//! A server is one file here: its configuration and command, its clients' requests ([`Workload`]), and one
//! line in the table below. The shared parts (rounds, targets, CPU time, tables)
//! are elsewhere.

mod apache_cgi;
mod clamd;
mod haproxy;
pub mod http;
mod mariadb;
pub mod memcached;
mod own;
pub mod postgres;
pub mod redis;

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::load::{Alone, Throughput};
use super::process::Kept;
use nix::sys::signal::Signal;

use skein_testkit::{Failure, Outcome};

/// Makes [`Server`] and the functions that lead from it to its file.
macro_rules! servers {
    ($($(#[$about:meta])* $server:ident, $name:literal, $workload:expr;)*) => {
        /// A server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
        pub enum Server {
            $($(#[$about])* #[serde(rename = $name)] #[value(name = $name)] $server,)*
        }

        impl Server {
            /// All, in the order of the document.
            pub const ALL: &[Self] = &[$(Self::$server),*];

            /// Its name on the command line, in results and in tables.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$server => $name,)*
                }
            }

            /// The workload in its file.
            pub fn workload(self) -> &'static dyn Workload {
                match self {
                    $(Self::$server => &$workload,)*
                }
            }
        }

        const CHOICES: &[Choice] = &[Choice::All, $(Choice::One(Server::$server)),*];
    };
}

// A new server is its file and a line here.
servers! {
    /// redis-server, driven by redis-benchmark
    Redis, "redis", redis::Redis::PLAIN;
    /// memcached with 4 threads, driven by an own closed loop
    Memcached, "memcached", memcached::Memcached::PLAIN;
    /// nginx with 2 worker processes and a static page, driven by an own closed loop
    Nginx, "nginx", http::NGINX;
    /// lighttpd with a static page, driven by an own closed loop
    Lighttpd, "lighttpd", http::LIGHTTPD;
    /// Apache httpd (event MPM) with a static page, driven by an own closed loop
    Apache, "apache", http::APACHE;
    /// Apache httpd with a CGI program that computes, driven by ApacheBench
    ApacheCgi, "apache-cgi", apache_cgi::ApacheCgi;
    /// haproxy with 2 threads in front of a lighttpd, driven by an own closed loop
    Haproxy, "haproxy", haproxy::Haproxy;
    /// MariaDB (InnoDB), driven by sysbench OLTP read-write
    Mariadb, "mariadb", mariadb::OLTP;
    /// MariaDB (InnoDB), driven by sysbench with selects alone
    MariadbSelect, "mariadb-select", mariadb::SELECTS;
    /// PostgreSQL, driven by pgbench (TPC-B, prepared statements)
    Postgres, "postgres", postgres::Postgres;
    /// clamd with a small signature file, driven by an own client that streams files to it
    Clamd, "clamd", clamd::Clamd;
    /// clamd, driven by clamdscan --multiscan, which names a tree of files
    ClamdMultiscan, "clamd-multiscan", clamd::Multiscan;
    /// a server of this repository: C++, a std::thread a connection, computes for each page
    CppThreads, "cpp-threads", own::CppThreads;
    /// a server of this repository: Rust's standard library, a thread a connection
    RustThreads, "rust-threads", own::RustThreads;
    /// a server of this repository: libevent, one loop
    Libevent, "libevent", own::Libevent;
}

/// A name on the command line.
#[derive(Debug, Clone, Copy)]
pub enum Choice {
    /// Every server.
    All,
    /// This one.
    One(Server),
}

impl Choice {
    /// The selected servers, each once, in the order of the document.
    pub fn servers(chosen: &[Self]) -> Vec<Server> {
        let meant = |server: &&Server| {
            chosen.iter().any(|choice| match choice {
                Self::All => true,
                Self::One(one) => one == *server,
            })
        };
        Server::ALL.iter().filter(meant).copied().collect()
    }
}

impl ValueEnum for Choice {
    fn value_variants<'a>() -> &'a [Self] {
        CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::All => Some(PossibleValue::new("all").help("every one of them")),
            Self::One(server) => server.to_possible_value(),
        }
    }
}

/// So many times as many rounds where there are goals.
const MORE: u32 = 3;

/// The interface of a server's file.
pub trait Workload {
    /// The title of its tables, behind the number of connections.
    fn heading(&self) -> &'static str;
    /// Its clients' operations, in their order: names in results and tables.
    fn operations(&self) -> &'static [&'static str];
    /// The operations of a single client.
    fn alone_operation(&self) -> &'static str {
        self.operations()[0]
    }
    /// Whether there are goals for it.
    fn has_goals(&self) -> bool {
        false
    }
    /// The command that says its version.
    fn version(&self) -> &'static [&'static str];
    /// Writes its files (configuration, data) into an empty directory, to serve at `port`.
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        let _ = (directory, port);
        Ok(())
    }
    /// Starts helpers that are not measured: the backend of a proxy.
    fn beside(&self, directory: &Path) -> Outcome<Vec<Kept>> {
        let _ = directory;
        Ok(Vec::new())
    }
    /// The command that serves at `port`.
    fn command(&self, directory: &Path, port: u16) -> Vec<String>;
    /// The signal that asks it to end before it is killed, where a killed one leaves something.
    fn farewell(&self) -> Option<Signal> {
        None
    }
    /// One request, answered rightly.
    fn probe(&self, service: SocketAddr) -> io::Result<()>;
    /// Preparation after it serves and before it is measured.
    fn fill(&self, service: SocketAddr) -> Outcome {
        let _ = service;
        Ok(())
    }
    /// How long a single client waits for a reply.
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone>;
    /// `requests` of each operation over `clients` connections.
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>>;
    /// Rounds in the time of one of the others: more where there are goals, as this machine's speed changes from one second to the next, and
    /// a median of many short ones is more reliable than one of few long ones.
    fn rounds(&self) -> u32 {
        if self.has_goals() { MORE } else { 1 }
    }
    /// Requests of each operation, where the default is too many.
    fn requests(&self, wanted: u32) -> u32 {
        wanted
    }
    /// Connections of the crowd, where the default does not fit.
    fn clients(&self, wanted: u32) -> u32 {
        wanted
    }
}

/// Makes `folders` in `directory`, and a configuration file with `{dir}` and `{port}` filled in.
fn configure(directory: &Path, port: u16, folders: &[&str], name: &str, text: &str) -> Outcome {
    let failed = |error| Failure::of(directory.display(), error);
    for folder in folders {
        std::fs::create_dir_all(directory.join(folder)).map_err(failed)?;
    }
    let dir = directory.display().to_string();
    let text = text.replace("{dir}", &dir).replace("{port}", &port.to_string());
    std::fs::write(directory.join(name), text).map_err(failed)
}

/// A command from its words.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// 32 bytes that name the key.
fn value(key: u32) -> String {
    format!("{key:032x}")
}
