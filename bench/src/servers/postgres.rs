//! PostgreSQL: pgbench's TPC-B with prepared statements, scale 10, 16 connections.
//!
//! The data directory is made by `initdb` for every start. As root it runs as the package's user, since it refuses to be root. A request is
//! one transaction (7 statements). It is asked to end: killed, it would leave a System V segment and files in `/dev/shm`.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use super::{Workload, words};
use crate::load::{Alone, LOAD_MAX, Throughput};
use crate::process;
use skein_testkit::{Failure, Outcome};

/// The workload of PostgreSQL.
pub struct Postgres;

const TRANSACTIONS_MAX: u32 = 2_400;
const ALONE_TRANSACTIONS: u32 = 300;
const CONNECTIONS: u32 = 16;
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The package's user.
const IDS: [&str; 4] = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];

/// A command of the server's own user.
fn own(words: &[&str]) -> Vec<String> {
    let ids = if geteuid().is_root() { &IDS[..] } else { &[] };
    ids.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

fn pgbench(service: SocketAddr, more: &[String]) -> Outcome<String> {
    let mut command = Command::new(format!("{PROGRAMS}/pgbench"));
    command
        .arg(format!("--host={}", service.ip()))
        .arg(format!("--port={}", service.port()))
        .arg("--username=postgres")
        .args(more)
        .arg("postgres");
    process::output(&mut command, LOAD_MAX)
}

/// pgbench's figures of `each` transactions of every client, and its own log of them.
fn run(service: SocketAddr, clients: u32, each: u32) -> Outcome<Throughput> {
    let logs = tempfile::tempdir().map_err(|error| Failure::of("a directory for logs", error))?;
    let text = pgbench(
        service,
        &[
            "--no-vacuum".to_owned(),
            "--random-seed=7".to_owned(),
            "--protocol=prepared".to_owned(),
            format!("--client={clients}"),
            format!("--transactions={each}"),
            "--log".to_owned(),
            format!("--log-prefix={}", logs.path().join("log").display()),
        ],
    )?;
    let mut lines = String::new();
    let files = std::fs::read_dir(logs.path()).into_iter().flatten().flatten();
    for path in files.map(|file| file.path()) {
        lines += &std::fs::read_to_string(&path).map_err(|e| Failure::of(path.display(), e))?;
    }
    parse(&text, &lines).ok_or_else(|| Failure(format!("pgbench said something else: {text}")))
}

fn parse(text: &str, log: &str) -> Option<Throughput> {
    let per_second = text.lines().find_map(|line| line.strip_prefix("tps = "))?;
    let per_second: f64 = per_second.split_whitespace().next()?.parse().ok()?;
    // Client, number, microseconds, and more.
    let latency = |line: &str| line.split_whitespace().nth(2)?.parse::<f64>().ok();
    let latencies_us: Vec<f64> = log.lines().map(latency).collect::<Option<_>>()?;
    let seconds = latencies_us.len() as f64 / per_second;
    (!latencies_us.is_empty()).then(|| Throughput::of("transaction", latencies_us, seconds))
}

/// Makes pgbench's tables: 15 MiB for each of `scale`.
pub fn initialize(service: SocketAddr, scale: u64) -> Outcome {
    let scale = format!("--scale={scale}");
    pgbench(service, &words(&["--initialize", &scale, "--quiet"])).map(drop)
}

/// Executes a statement.
pub fn statement(service: SocketAddr, text: &str) -> Outcome {
    let mut command = Command::new(format!("{PROGRAMS}/psql"));
    command.arg(format!("--host={}", service.ip())).arg(format!("--port={}", service.port()));
    command.args(["--username=postgres", "--quiet", "--command", text, "postgres"]);
    process::output(&mut command, LOAD_MAX).map(drop)
}

impl Workload for Postgres {
    fn heading(&self) -> &'static str {
        "PostgreSQL, pgbench TPC-B with prepared statements; a request is a transaction"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["transaction"]
    }
    fn version(&self) -> &'static [&'static str] {
        &["/usr/lib/postgresql/15/bin/postgres", "--version"]
    }
    fn prepare(&self, directory: &Path, _: u16) -> Outcome {
        use std::os::unix::fs::PermissionsExt;
        let data = data(directory);
        let mode = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(directory, mode)
            .map_err(|error| Failure::of(directory.display(), error))?;
        let mut make = Command::new("install");
        make.args(["-d", "-m", "700"]);
        if geteuid().is_root() {
            make.args(["-o", "postgres", "-g", "postgres"]);
        }
        process::output(make.arg(&data), LOAD_MAX)?;
        let initdb = own(&[&format!("{PROGRAMS}/initdb")]);
        let mut install = Command::new(&initdb[0]);
        install.args(&initdb[1..]).arg("-D").arg(&data);
        install.args(["--username=postgres", "--auth=trust", "--no-sync"]);
        process::output(&mut install, LOAD_MAX).map(drop)
    }
    fn farewell(&self) -> Option<Signal> {
        Some(Signal::SIGQUIT)
    }
    fn command(&self, directory: &Path, port: u16) -> Vec<String> {
        let data = data(directory);
        let server = own(&[&format!("{PROGRAMS}/postgres"), "-D", &data.to_string_lossy()]);
        let more = words(&[
            "-k",
            &data.to_string_lossy(),
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            // Files that a killed server leaves vanish with its directory.
            "-c",
            "dynamic_shared_memory_type=mmap",
        ]);
        [server, more].concat()
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        use std::io::{Read, Write};
        let mut stream = TcpStream::connect_timeout(&service, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let login = b"user\0postgres\0database\0postgres\0\0";
        let length = (8 + login.len() as u32).to_be_bytes();
        stream.write_all(&[&length, &[0, 3, 0, 0], &login[..]].concat())?;
        // Authentication, and not an error that it is still starting.
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        if kind == *b"R" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
    fn fill(&self, service: SocketAddr) -> Outcome {
        initialize(service, 10)
    }
    fn alone(&self, service: SocketAddr, _: u32) -> Outcome<Alone> {
        let found = run(service, 1, ALONE_TRANSACTIONS)?;
        Ok(Alone {
            p50_us: found.p50_us,
            p99_us: found.p99_us,
            p999_us: found.p999_us,
            requests: ALONE_TRANSACTIONS as usize,
        })
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        Ok(vec![run(service, clients, requests / clients)?])
    }
    fn requests(&self, wanted: u32) -> u32 {
        wanted.min(TRANSACTIONS_MAX)
    }
    fn clients(&self, wanted: u32) -> u32 {
        wanted.min(CONNECTIONS)
    }
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let text = "scaling factor: 10\nnumber of failed transactions: 0 (0.000%)\n\
                    tps = 500.0 (without initial connection time)\n";
        let log = "0 0 1000 0 1795297748 53513\n1 0 3000 0 1795297748 54513\n0 1 2000 0 1795297748 55513\n";
        let found = parse(text, log).unwrap();
        assert_eq!((found.per_second, found.p50_us), (500.0, 2000.0));
        assert!(parse(text, "").is_none() && parse("", log).is_none());
    }
}
