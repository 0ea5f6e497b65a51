//! haproxy with two threads, as a proxy in front of a lighttpd that runs natively beside every target and serves the page of 4 KiB.
//!
//! Under Skein the leader makes the connections to the backend, and its replies are agreed on as well.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{Workload, configure, http, words};
use crate::load::{self, Alone, Throughput};
use crate::process::Kept;
use crate::wire::free_address;
use skein_testkit::Outcome;

/// The workload that goes through haproxy.
pub struct Haproxy;

const CONFIG: &str = "global
    maxconn 2000
    nbthread 2
defaults
    mode http
    timeout connect 5s
    timeout client 50s
    timeout server 50s
listen pages
    bind 127.0.0.1:{port}
    http-reuse always
    server one 127.0.0.1:{backend}
";

impl Workload for Haproxy {
    fn heading(&self) -> &'static str {
        "haproxy with 2 threads in front of a native lighttpd, a page of 4 KiB"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["page"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["/usr/sbin/haproxy", "-v"]
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        let backend = free_address()?.port();
        http::LIGHTTPD.prepare(directory, backend)?;
        let text = CONFIG.replace("{backend}", &backend.to_string());
        configure(directory, port, &[], "haproxy.cfg", &text)
    }
    fn beside(&self, directory: &Path) -> Outcome<Vec<Kept>> {
        // Its configuration has its port.
        let command = http::LIGHTTPD.command(directory, 0);
        Ok(vec![Kept::start(Command::new(&command[0]).args(&command[1..]))?])
    }
    fn command(&self, directory: &Path, _: u16) -> Vec<String> {
        let config = directory.join("haproxy.cfg").display().to_string();
        words(&["/usr/sbin/haproxy", "-db", "-f", &config])
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        load::ask_once(service, &http::get())
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        http::alone("haproxy", service, requests)
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        http::crowd("haproxy", service, requests, clients)
    }
}
