//! clamd with a signature file of one line and files of 16 KiB, every second one infected.
//!
//! Clients stream the files to it ([`Clamd`]), or clamdscan, CRANE's client, names a tree that it walks and reads itself
//! ([`Multiscan`]).

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Workload, configure, words};
use crate::load::{self, Alone, LOAD_MAX, Throughput};
use skein_testkit::client::connect;
use skein_testkit::{Failure, Outcome};

/// A file a request, streamed over a connection of its own.
pub struct Clamd;

/// A tree a connection, by `clamdscan --multiscan` without `--stream`: a request is one of the tree's files.
///
/// clamd gives the files to all its threads; under Skein each replica reads its own. The tree is written once, beside
/// this program: clients do not know a target's directory.
pub struct Multiscan;

const FILE_BYTES: usize = 16 << 10;
const REQUESTS_MAX: u32 = 4_000;
const CLIENTS: u32 = 16;
const MARK: &str = "skein-bench-virus-signature-0123456789";
const VERDICT: &str = "Skein.Bench.UNOFFICIAL FOUND";
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Files of the tree, and of one of its folders.
const TREE_FILES: usize = 200;
const FOLDER_FILES: usize = 20;
/// Concurrent clamdscans: enough that clamd has work while one of them starts or ends.
const SCANNERS: u32 = 4;
/// Trees that one client alone asks for at most.
const ALONE_TREES: u32 = 10;
/// Exit status of clamdscan for infected files.
const FOUND: i32 = 1;

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
    let right = format!("stream: {}\0", if number % 2 == 1 { VERDICT } else { "OK" });
    if reply == right {
        return Ok(());
    }
    let got = reply.escape_debug().to_string();
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("wrong reply: {got}")))
}

/// Path of the tree.
fn tree() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("bench-clamd-tree"))
}

/// The path of one of the tree's files.
fn path(tree: &Path, number: usize) -> PathBuf {
    tree.join((number / FOLDER_FILES).to_string()).join(format!("{number:04}"))
}

/// Writes the missing or different files of the tree.
fn write_tree(tree: &Path) -> io::Result<()> {
    for number in 0..TREE_FILES {
        let (path, bytes) = (path(tree, number), file(number));
        if std::fs::read(&path).is_ok_and(|found| found == bytes) {
            continue;
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, bytes)?;
    }
    Ok(())
}

/// clamdscan's configuration: clamd's address.
fn client_of(service: SocketAddr) -> io::Result<tempfile::NamedTempFile> {
    let mut config = tempfile::NamedTempFile::new()?;
    writeln!(config, "TCPAddr {}\nTCPSocket {}", service.ip(), service.port())?;
    Ok(config)
}

/// Has the tree scanned and compares the result; clamdscan itself waits for ever.
fn scan_tree(client: &Path, tree: &Path) -> io::Result<()> {
    let output = Command::new("timeout")
        .arg(LOAD_MAX.as_secs().to_string())
        .args(["clamdscan", "--no-summary", "--multiscan"])
        .arg(format!("--config-file={}", client.display()))
        .arg(tree)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(FOUND) && finds_all(&said, tree) {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    let last = error.lines().chain(said.lines()).last().unwrap_or("nothing").to_owned();
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("clamdscan ended with {} and said last: {last}", output.status),
    ))
}

/// Whether these are the infected files, each once and in any order, and nothing else.
fn finds_all(said: &str, tree: &Path) -> bool {
    let verdict = |number| format!("{}: {VERDICT}", path(tree, number).display());
    let right: BTreeSet<String> = (1..TREE_FILES).step_by(2).map(verdict).collect();
    said.lines().count() == right.len() && said.lines().all(|line| right.contains(line))
}

/// How many trees have so many files at least.
fn trees(requests: u32) -> u32 {
    requests.div_ceil(TREE_FILES as u32)
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

impl Workload for Multiscan {
    fn heading(&self) -> &'static str {
        "clamd, `clamdscan --multiscan` of a tree of 200 files of 16 KiB (a request is a file, latencies are of trees)"
    }
    fn operations(&self) -> &'static [&'static str] {
        &["file"]
    }
    fn alone_operation(&self) -> &'static str {
        "tree"
    }
    fn version(&self) -> &'static [&'static str] {
        Clamd.version()
    }
    fn prepare(&self, directory: &Path, port: u16) -> Outcome {
        let written = tree().and_then(|tree| write_tree(&tree));
        written.map_err(|error| Failure::of("cannot write the tree that clamd scans", error))?;
        Clamd.prepare(directory, port)
    }
    fn command(&self, directory: &Path, port: u16) -> Vec<String> {
        Clamd.command(directory, port)
    }
    fn probe(&self, service: SocketAddr) -> io::Result<()> {
        Clamd.probe(service)
    }
    fn alone(&self, service: SocketAddr, requests: u32) -> Outcome<Alone> {
        let failed = |error| Failure::of("clamdscan", error);
        let (client, tree) = (client_of(service).map_err(failed)?, tree().map_err(failed)?);
        let found = load::alone_by("clamd", trees(requests).min(ALONE_TREES), |_| {
            scan_tree(client.path(), &tree)
        })?;
        Ok(Alone { p999_us: None, ..found })
    }
    fn crowd(&self, service: SocketAddr, requests: u32, clients: u32) -> Outcome<Vec<Throughput>> {
        let failed = |error| Failure::of("clamdscan", error);
        let (client, tree) = (client_of(service).map_err(failed)?, tree().map_err(failed)?);
        let done = load::crowd_by("clamd", "file", trees(requests), clients, |_| {
            scan_tree(client.path(), &tree)
        })?;
        let per_second = done.per_second * TREE_FILES as f64;
        // With so few trees it would be the maximum.
        Ok(vec![Throughput { per_second, p999_us: None, ..done }])
    }
    fn requests(&self, wanted: u32) -> u32 {
        // Whole trees: the number asked for is the number done.
        trees(wanted.min(REQUESTS_MAX)) * TREE_FILES as u32
    }
    fn clients(&self, wanted: u32) -> u32 {
        wanted.min(SCANNERS)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn what_clamdscan_finds_must_be_what_is_infected() {
        let tree = Path::new("/tree");
        let mut said = String::new();
        for number in (1..TREE_FILES).step_by(2).rev() {
            let _ = writeln!(said, "/tree/{}/{number:04}: {VERDICT}", number / FOLDER_FILES);
        }
        assert!(finds_all(&said, tree));
        let (_, without_first) = said.split_once('\n').expect("many lines");
        assert!(!finds_all(without_first, tree));
        assert!(!finds_all(&format!("{without_first}/tree/0/0000: {VERDICT}\n"), tree));
        assert!(!finds_all(&format!("{said}/tree/0/0000: OK\n"), tree));
    }

    #[test]
    fn whole_trees_are_asked_for() {
        assert_eq!(Multiscan.requests(1), 200);
        assert_eq!(Multiscan.requests(1_001), 1_200);
        assert_eq!(Multiscan.requests(30_000), 4_000);
    }
}
