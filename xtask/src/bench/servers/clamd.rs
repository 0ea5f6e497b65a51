//! clamd with a signature file of two lines: clients stream 16 KiB files to it, every second one infected.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::{Workload, configure, words};
use crate::bench::load::{self, Alone, Throughput};
use crate::bench::wire::connect;
use crate::report::{Failure, Outcome};

/// See the module.
pub struct Clamd;

const FILE_BYTES: usize = 16 << 10;
const REQUESTS_MAX: u32 = 4_000;
const CLIENTS: u32 = 16;
const MARK: &str = "skein-bench-virus-signature-0123456789";
const WAIT_MAX: Duration = Duration::from_secs(20);

const CONFIG: &str = "Foreground yes
User root
DatabaseDirectory {dir}/db
TCPSocket {port}
TCPAddr 127.0.0.1
LogFile {dir}/clamd.log
MaxThreads 8
SelfCheck 0
";

/// A file's bytes; the odd ones are infected.
fn file(number: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..FILE_BYTES).map(|at| b'a' + ((at * 7 + number * 13) % 23) as u8).collect();
    if number % 2 == 1 {
        bytes[5_000..5_000 + MARK.len()].copy_from_slice(MARK.as_bytes());
    }
    bytes
}

/// Streams one file over a new connection and compares the verdict.
fn scan(service: SocketAddr, number: usize) -> io::Result<()> {
    let mut stream = connect(service, WAIT_MAX)?;
    let bytes = file(number);
    let mut request = b"zINSTREAM\0".to_vec();
    request.extend((bytes.len() as u32).to_be_bytes());
    request.extend(&bytes);
    request.extend([0; 4]);
    stream.write_all(&request)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let right =
        if number % 2 == 1 { "stream: Skein.Bench.UNOFFICIAL FOUND\0" } else { "stream: OK\0" };
    if reply == right {
        return Ok(());
    }
    let got = reply.escape_debug().to_string();
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("wrong reply: {got}")))
}

impl Workload for Clamd {
    fn heading(&self) -> &'static str {
        "clamd, streamed files of 16 KiB, a connection each"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["scan"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["clamd", "--version"]
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        configure(directory, port, &["db"], "clamd.conf", CONFIG)?;
        let hex: String = MARK.bytes().map(|byte| format!("{byte:02x}")).collect();
        let path = directory.join("db/own.ndb");
        std::fs::write(&path, format!("Skein.Bench:0:*:{hex}\n"))
            .map_err(|error| Failure::of(path.display(), error))
    }
    fn command(&self, directory: &Path, _: u16) -> Vec<String> {
        words(&["clamd", &format!("--config-file={}/clamd.conf", directory.display())])
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        scan(service, 1)
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        load::alone_by("clamd", requests, |number| scan(service, number))
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        let done = load::crowd_by("clamd", "scan", requests, clients, |n| scan(service, n))?;
        Ok(vec![done])
    }
    fn requests(&self, wanted: u32) -> u32 {
        wanted.min(REQUESTS_MAX)
    }
    fn clients(&self, wanted: u32) -> u32 {
        wanted.min(CLIENTS)
    }
}
