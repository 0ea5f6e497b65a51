//! Bytes that tests change in a server's memory from outside, and what `skein verify` says about them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::unistd::{Whence, lseek64};
use object::{Object, ObjectSymbol};
use serde_json::Value;
use skein_testkit::memory::{self, places};

use super::cluster::Cluster;

/// `skein verify --json` and its exit code.
pub fn verify(cluster: &Cluster, options: &[&str]) -> (Value, Option<i32>) {
    let output = cluster.place.run(&[&["verify", "--name", "t", "--json"], options].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = serde_json::from_str(&text);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (report.unwrap_or_else(|_| panic!("no JSON: {text} {errors}")), output.status.code())
}

/// The first address of the mapping with this name in `maps`.
pub fn mapped(pid: i64, name: &str) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.ends_with(name)).expect("the mapping is there");
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

/// Changes a byte of a server's memory from outside while this lives; gives its old and its new value.
pub struct Planted {
    memory: fs::File,
    address: u64,
    /// The byte as it was,
    pub old: u8,
    /// and as it is.
    pub new: u8,
}

impl Planted {
    /// Changes it.
    pub fn at(pid: i64, address: u64) -> Self {
        let path = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        memory.read_exact_at(&mut byte, address).unwrap();
        let (old, new) = (byte[0], byte[0] ^ 0x5a);
        memory.write_all_at(&[new], address).unwrap();
        Self { memory, address, old, new }
    }

    /// The byte as it is now.
    pub fn now(&self) -> u8 {
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, self.address).unwrap();
        byte[0]
    }

    /// It was repaired: the server may write there again, and nothing is put back.
    #[track_caller]
    pub fn was_repaired(self) {
        assert_eq!(self.now(), self.old, "{:#x}", self.address);
        std::mem::forget(self);
    }

    /// The report about it, if there is any.
    pub fn told(&self, report: &Value) -> Option<Value> {
        let address: Value = format!("{:#x}", self.address).into();
        let all = report["differences"].as_array().unwrap();
        all.iter().find(|difference| difference["address"] == address).cloned()
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.memory.write_all_at(&[self.old], self.address);
    }
}

/// The address of a variable as linked.
pub fn variable(program: &Path, name: &str) -> u64 {
    let data = fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
    found.expect("the variable is in the symbol table").address()
}

/// Where these bytes are in a process's writable private memory, but for the runtime's.
pub fn found(pid: i64, bytes: &[u8]) -> Vec<u64> {
    memory::found(pid, bytes).unwrap()
}

/// The arena of a node's server as a file, and where these bytes are in it.
#[track_caller]
pub fn found_in_arena(node_pid: i64, bytes: &[u8]) -> (fs::File, Vec<u64>) {
    let arena = fs::read_dir(format!("/proc/{node_pid}/fd")).unwrap().flatten().find_map(|fd| {
        let name = fs::read_link(fd.path()).ok()?;
        let is_it = name.to_str()?.starts_with("/memfd:skein-arena");
        is_it.then(|| OpenOptions::new().read(true).write(true).open(fd.path()).unwrap())
    });
    let arena = arena.expect("a node has an arena");
    let (mut found, mut end) = (Vec::new(), 0);
    // Most of it are holes.
    while let Ok(data) = lseek64(&arena, end, Whence::SeekData) {
        end = lseek64(&arena, data, Whence::SeekHole).unwrap();
        let mut piece = vec![0; (end - data) as usize];
        arena.read_exact_at(&mut piece, data as u64).unwrap();
        found.extend(places(&piece, bytes).map(|at| data as u64 + at));
    }
    (arena, found)
}
