//! Limits of a process's memory that are set from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group of one process, and those that it starts then; removed when this is dropped, if they have ended.
pub struct Group(PathBuf);

impl Group {
    /// Takes a process into one that may have so many bytes more than before; none where the machine's control groups cannot be written.
    pub fn of_memory(pid: i32, bytes: u64) -> Option<Self> {
        let files = [("memory", "memory.limit_in_bytes"), ("", "memory.max")];
        files.into_iter().find_map(|(root, file)| Self::with(root, file, pid, bytes))
    }

    /// Takes a process into one that may have so many processes and threads.
    pub fn of_processes(pid: i32, count: u64) -> Option<Self> {
        ["pids", ""].into_iter().find_map(|root| Self::with(root, "pids.max", pid, count))
    }

    /// Takes another process into it.
    pub fn add(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// From now on they may have this much more than they have.
    pub fn raise_memory(&self, bytes: u64) {
        let files =
            [("memory.usage_in_bytes", "memory.limit_in_bytes"), ("memory.current", "memory.max")];
        let file = files.into_iter().find(|(_, limit)| self.0.join(limit).exists());
        let (used, limit) =
            file.map(|(used, limit)| (self.0.join(used), self.0.join(limit))).unwrap();
        let used: u64 = fs::read_to_string(used).unwrap().trim().parse().unwrap();
        fs::write(limit, (used + bytes).to_string()).unwrap();
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn with(root: &str, file: &str, pid: i32, limit: u64) -> Option<Self> {
        let path = PathBuf::from("/sys/fs/cgroup").join(root).join(format!("skein-test-{pid}"));
        if std::env::var_os("SKEIN_TEST_NO_GROUPS").is_some() || fs::create_dir(&path).is_err() {
            return None;
        }
        let group = Self(path);
        let set = |file: &str, value: u64| {
            let file = group.0.join(file);
            file.exists() && fs::write(file, value.to_string()).is_ok()
        };
        (set(file, limit) && set("cgroup.procs", pid as u64)).then_some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its process may still be ending; the group ends with the machine then.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Limits a process's address space to so many bytes more than it has; `None` ends the limit.
pub fn limit_address_space(pid: i32, bytes: Option<u64>) {
    let limit = bytes.map_or("unlimited".to_owned(), |bytes| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        (kib * 1024 + bytes).to_string()
    });
    let mut command = Command::new("prlimit");
    command.args(["--pid", &pid.to_string(), &format!("--as={limit}:unlimited")]);
    assert!(command.status().unwrap().success(), "prlimit");
}
