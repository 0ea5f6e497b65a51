//! Running clusters of this user: the holders of names, and the addresses of their nodes.
//!
//! Each running `skein run` (or `skein node`) owns a runtime directory and a lock on the file `lock` in it for as long as
//! it lives. The kernel drops the lock with the process, however it ends; files left in the directory then mean
//! nothing, and the next start under that name, or the next `skein stop`, removes them. Testing the lock
//! does not take it, so a test never gets in the way of a start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use serde::{Deserialize, Serialize};

use crate::failure::{EXIT_NOT_RUNNING, EXIT_USAGE, Failure};
use crate::paths;

/// The description of a running cluster in `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The cluster's name.
    pub name: String,
    /// The process that runs it.
    pub pid: i32,
    /// Its mode.
    pub mode: String,
    /// Its schedule.
    pub schedule: String,
    /// How many replicas the cluster has, here and elsewhere.
    pub replicas: usize,
    /// The replicas of this machine.
    pub nodes: Vec<NodeFiles>,
}

/// The addresses and files of one replica of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFiles {
    /// The replica.
    pub id: u64,
    /// Its address for the other replicas.
    pub address: String,
    /// The socket of its admin interface.
    pub admin: PathBuf,
    /// Its events.
    pub log: PathBuf,
    /// The server's output.
    pub output: PathBuf,
    /// Its data directory; empty where a version before this one runs the cluster.
    #[serde(default)]
    pub data: PathBuf,
}

/// A cluster that runs.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its runtime directory.
    pub dir: PathBuf,
    /// Its description; `None` while it starts.
    pub state: Option<State>,
    /// The process that runs it.
    pub pid: i32,
}

/// The right to a name, for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    /// The runtime directory.
    pub dir: PathBuf,
    _lock: File,
}

const LOCK: &str = "lock";
const STATE: &str = "state.json";

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes the lock of `file` if it is free.
fn try_lock(file: &File) -> io::Result<bool> {
    match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether any process holds the lock of `file`.
fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Locks a file for this process's life; `Err(pid)` names the holder.
pub fn lock_file(path: &Path) -> io::Result<Result<File, i32>> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path)?;
        if !try_lock(&file)? {
            return Ok(Err(read_pid(path)));
        }
        // A sweep may have removed the file between open and lock: then the lock is on nothing.
        let same = fs::metadata(path).is_ok_and(|there| {
            file.metadata().is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino()))
        });
        if same {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())?;
            return Ok(Ok(file));
        }
    }
}

fn read_pid(path: &Path) -> i32 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

impl Claim {
    /// Takes the name, or answers the holder.
    pub fn take(name: &str) -> Result<Self, Failure> {
        let dir = paths::create_runtime_dir(&paths::runtime_root(), name)?;
        let lock = match lock_file(&dir.join(LOCK)) {
            Ok(Ok(lock)) => lock,
            Ok(Err(pid)) => {
                return Err(Failure::new(
                    format!("cluster {name}"),
                    format!("it runs already, as process {pid}"),
                    format!("stop it with 'skein stop --name {name}' or choose another --name"),
                ));
            }
            Err(error) => {
                return Err(Failure::new(
                    format!("runtime directory {}", dir.display()),
                    error,
                    "",
                ));
            }
        };
        let claim = Self { dir, _lock: lock };
        claim.empty();
        Ok(claim)
    }

    /// Publishes the data for `status`, `logs` and `stop`.
    pub fn announce(&self, state: &State) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(state).expect("a plain struct is valid JSON");
        let path = self.dir.join(STATE);
        paths::write_whole(&path, &text)
            .map_err(|error| Failure::new(path.display().to_string(), error, ""))
    }

    /// Removes files of an earlier holder.
    fn empty(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name() != LOCK {
                // Files that cannot be removed are replaced by new ones of the same name.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.empty();
        // The lock is still held: no process can have claimed the name in between.
        let _ = fs::remove_file(self.dir.join(LOCK));
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Whether the cluster in `dir` runs, and its description.
pub fn look(dir: &Path) -> Option<Instance> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
    if !is_locked(&file).unwrap_or(false) {
        return None;
    }
    let state = fs::read_to_string(dir.join(STATE))
        .ok()
        .and_then(|text| serde_json::from_str::<State>(&text).ok());
    Some(Instance { dir: dir.into(), state, pid: read_pid(&path) })
}

/// Removes the files of a killed cluster from its runtime directory.
pub fn sweep(dir: &Path) {
    if dir.join(LOCK).exists()
        && let Ok(Ok(lock)) = lock_file(&dir.join(LOCK))
    {
        drop(Claim { dir: dir.into(), _lock: lock });
    }
}

/// The running cluster `name`, or the only one.
pub fn find(name: Option<&str>) -> Result<Instance, Failure> {
    find_in(&paths::runtime_root(), name)
}

fn find_in(root: &Path, name: Option<&str>) -> Result<Instance, Failure> {
    if let Some(name) = name {
        return look(&root.join(name)).ok_or_else(|| {
            Failure::new(
                format!("cluster {name}"),
                "it does not run, or another user runs it",
                "start it with 'skein run'",
            )
            .with_code(EXIT_NOT_RUNNING)
        });
    }
    let dirs = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut running: Vec<Instance> = dirs.filter_map(|dir| look(&dir)).collect();
    match running.len() {
        1 => Ok(running.remove(0)),
        0 => Err(Failure::new(
            "cluster",
            "none of this user runs",
            "start one with 'skein run -- PROGRAM'",
        )
        .with_code(EXIT_NOT_RUNNING)),
        _ => {
            let mut names: Vec<String> = running.iter().map(Instance::name).collect();
            names.sort();
            let why = format!("several run: {}", names.join(", "));
            Err(Failure::new("cluster", why, "say which with --name").with_code(EXIT_USAGE))
        }
    }
}

impl Instance {
    /// The cluster's name.
    pub fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        look(&self.dir).is_some_and(|now| now.pid == self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(root: &Path, name: &str) -> Claim {
        let dir = paths::create_runtime_dir(root, name).unwrap();
        let lock = lock_file(&dir.join(LOCK)).unwrap().unwrap();
        Claim { dir, _lock: lock }
    }

    #[test]
    fn a_name_is_held_once_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let held = claim(root.path(), "a");
        let again = lock_file(&held.dir.join(LOCK)).unwrap();
        assert_eq!(again.err(), Some(std::process::id() as i32));
        let found = find_in(root.path(), None).unwrap();
        assert_eq!((found.name(), found.pid), ("a".into(), std::process::id() as i32));
        drop(held);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        let code = find_in(root.path(), None).unwrap_err().code;
        assert_eq!(code, Some(EXIT_NOT_RUNNING));
    }

    #[test]
    fn several_need_a_name() {
        let root = tempfile::tempdir().unwrap();
        let _a = claim(root.path(), "a");
        let _b = claim(root.path(), "b");
        let failure = find_in(root.path(), None).unwrap_err();
        assert!(failure.to_string().contains("a, b"), "{failure}");
        assert_eq!(find_in(root.path(), Some("b")).unwrap().name(), "b");
    }

    #[test]
    fn what_a_killed_cluster_left_is_swept() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a");
        fs::create_dir(&dir).unwrap();
        for file in [LOCK, STATE, "node-1.sock"] {
            fs::write(dir.join(file), "1").unwrap();
        }
        assert!(find_in(root.path(), Some("a")).is_err());
        sweep(&dir);
        assert!(!dir.exists());
    }
}
