//! Servers of this repository (`crates/cli/tests/servers`): C++ `std::thread`s, Rust's standard library, libevent.
//!
//! Compiled once a run, beside this program.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{Workload, words};
use crate::load::{self, Alone, Throughput};
use crate::wire::Exchange;
use skein_testkit::servers;
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// Threads that share one page under a lock and compute for each.
pub struct CppThreads;
/// Threads that share a map under a read-write lock and a channel.
pub struct RustThreads;
/// One loop.
pub struct Libevent;

const PAGES_MAX: u32 = 10_000;

fn program(source: &str) -> Outcome<PathBuf> {
    let own = std::env::current_exe().map_err(|error| Failure::of("this program", error))?;
    let name = source.split('.').next().unwrap_or(source);
    Ok(own.with_file_name("bench-servers").join(name))
}

/// Compiles a server if its source is newer.
fn compile(source: &str) -> Outcome {
    let from = workspace::root().join(servers::FOLDER).join(source);
    let to = program(source)?;
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if time(&to).is_some_and(|built| time(&from).is_some_and(|written| built > written)) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::of(folder.display(), error))?;
    }
    servers::compile(source, &to)
}

/// The server is one of its users' shared files, so every user may run it.
fn command(source: &str, port: u16) -> Vec<String> {
    let program = program(source).map(|path| path.display().to_string()).unwrap_or_default();
    words(&[&program, &port.to_string()])
}

const CPP: &str = "page_threads.cc";

/// The page before the first write: 64 pieces of one byte.
fn page() -> Exchange {
    Exchange::http("GET /page HTTP/1.1\r\nHost: bench\r\n\r\n".to_owned(), "-".repeat(64))
}

impl Workload for CppThreads {
    fn heading(&self) -> &'static str {
        "C++, a `std::thread` a connection, a page that takes some computing"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["page"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["c++", "--version"]
    }
    fn prepare(&self, _: &Path, _: u16) -> Outcome {
        compile(CPP)
    }
    fn command(&self, _: &Path, port: u16) -> Vec<String> {
        command(CPP, port)
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &page())
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        load::alone("cpp-threads", service, &[page()], requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        load::crowd("cpp-threads", &[("page", &[page()])], service, requests, clients)
    }
    fn requests(&self, wanted: u32) -> u32 {
        wanted.min(PAGES_MAX)
    }
}

const RUST: &str = "words_threads.rs";

fn add(key: u32) -> Exchange {
    Exchange::line(format!("add word-{key}\n"), "ok ")
}

fn has(key: u32) -> Exchange {
    Exchange::line(format!("has word-{key}\n"), "yes ")
}

impl Workload for RustThreads {
    fn heading(&self) -> &'static str {
        "Rust's standard library, a thread a connection, a map under a read-write lock"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["add", "has"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["rustc", "--version"]
    }
    fn prepare(&self, _: &Path, _: u16) -> Outcome {
        compile(RUST)
    }
    fn command(&self, _: &Path, port: u16) -> Vec<String> {
        command(RUST, port)
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &add(0))
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        load::alone("rust-threads", service, &load::exchanges(add), requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        let (adds, looks) = (load::exchanges(add), load::exchanges(has));
        let operations = [("add", &adds[..]), ("has", &looks)];
        load::crowd("rust-threads", &operations, service, requests, clients)
    }
}

const LIBEVENT: &str = "words_libevent.c";

impl Workload for Libevent {
    fn heading(&self) -> &'static str {
        "libevent, one loop with buffered events"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["add"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["cc", "--version"]
    }
    fn prepare(&self, _: &Path, _: u16) -> Outcome {
        compile(LIBEVENT)
    }
    fn command(&self, _: &Path, port: u16) -> Vec<String> {
        command(LIBEVENT, port)
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &add(0))
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        load::alone("libevent", service, &load::exchanges(add), requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        load::crowd("libevent", &[("add", &load::exchanges(add))], service, requests, clients)
    }
}
