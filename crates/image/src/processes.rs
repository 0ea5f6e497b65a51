//! The server's processes: all below init, by their numbers in the server.

use crate::proc;
use crate::{MemoryError, Result};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The most processes; the runtime allows a server fewer.
const MAX_PROCESSES: usize = 4096;
/// The most characters of a command line.
const COMMAND_CHARS: usize = 200;

/// How often a process is looked for that is not there yet.
const TRIES: usize = 3;
/// How often all are looked for at most while some of them end.
const TRIES_OF_ALL: usize = 100;

/// Numbers of stand-ins ([`crate::stand_ins`]): the largest of the kernel's.
const NUMBERS: u32 = 8192;

/// A process of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number in the server.
    pub pid: u32,
    /// Its number on the host.
    pub host_pid: u32,
    /// Its command line, or its name.
    pub command: String,
}

/// The fields of `/proc/PID/status` for one process.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    name: String,
    parent: u32,
    pid: u32,
    has_memory: bool,
}

/// All processes below `init`, in the order of their numbers.
///
/// # Errors
/// `/proc` cannot be read, or there are too many.
pub fn below(init: u32) -> Result<Vec<Process>> {
    // A look at all processes of a busy host takes longer than a small server may stand.
    let mut all = if lists_children() { None } else { Some(by_parent()?) };
    let mut found = Vec::new();
    let mut parents = vec![init];
    while let Some(parent) = parents.pop() {
        let children = match &mut all {
            Some(all) => all.remove(&parent).unwrap_or_default(),
            None => children(parent),
        };
        for (host_pid, status) in children {
            parents.push(host_pid);
            if status.has_memory && origin(&status.name, status.pid).is_none() {
                let command = command(host_pid).unwrap_or(status.name);
                found.push(Process { pid: status.pid, host_pid, command });
            }
        }
        if found.len() > MAX_PROCESSES {
            return Err(MemoryError::TooMuch("4,096 processes"));
        }
    }
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

/// Opens the memory of processes by their numbers in the server, to write to it while they are restored.
#[derive(Debug)]
pub struct Memories {
    init: u32,
    /// The processes' numbers on the host.
    known: BTreeMap<u32, u32>,
}

impl Memories {
    /// Of the processes whose parent is `init`.
    #[must_use]
    pub const fn new(init: u32) -> Self {
        Self { init, known: BTreeMap::new() }
    }

    /// That of the process with this number, for as long as that has it.
    ///
    /// # Errors
    /// There is none, or it may not be written.
    pub fn open(&mut self, pid: u32) -> io::Result<File> {
        let mut found = self.open_known(pid);
        // The kernel's list may lack one while another one ends.
        for _ in 0..TRIES {
            if found.is_err() {
                self.look_again().map_err(io::Error::other)?;
                found = self.open_known(pid);
            }
        }
        found
    }

    fn look_again(&mut self) -> Result<()> {
        let is_new = |host: &u32| !self.known.values().any(|known| known == host);
        let all = match lists_children() {
            true => statuses(child_pids(self.init).into_iter().filter(is_new)),
            false => children_of(self.init)?,
        };
        self.known.extend(all.into_iter().map(|(host, status)| (status.pid, host)));
        Ok(())
    }

    fn open_known(&self, pid: u32) -> io::Result<File> {
        let host = self.known.get(&pid).ok_or(io::ErrorKind::NotFound)?;
        // Whatever gets the number next, this stays the same process's.
        let process = format!("/proc/{host}");
        let process = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(process)?;
        let place = format!("/proc/self/fd/{}", process.as_raw_fd());
        let status = proc::read(format!("{place}/status"))?;
        let status = parse(&String::from_utf8_lossy(&status));
        if status.is_none_or(|status| (status.parent, status.pid) != (self.init, pid)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        File::options().write(true).open(format!("{place}/mem"))
    }
}

/// A process that was just forked may still be on its way to where it sleeps.
pub(crate) fn await_sleep(process: &Process, deadline: Instant) -> Result<()> {
    let path = format!("/proc/{}/syscall", process.host_pid);
    let sleeps = format!("{} ", libc::SYS_futex);
    while !proc::text(&path).map_err(MemoryError::read(&*path))?.starts_with(&sleeps) {
        if Instant::now() >= deadline {
            return Err(MemoryError::TooLong);
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// From here on numbers are those of stand-ins.
pub(crate) fn first_number() -> Option<u32> {
    let most = proc::text("/proc/sys/kernel/pid_max").ok()?;
    most.trim_ascii().parse::<u32>().ok()?.checked_sub(NUMBERS)
}

/// Whether a process of this name and number in the server is a stand-in: its origin's number.
fn origin(name: &str, pid: u32) -> Option<u32> {
    let origin = name.strip_prefix("skein-")?.parse().ok()?;
    (origin != pid && pid >= first_number()?).then_some(origin)
}

/// The numbers on the host of the stand-ins below `init` with numbers from `first` on, by the numbers of their origins in the server.
pub(crate) fn stand_ins(init: u32, first: u32) -> Result<BTreeMap<u32, u32>> {
    let stands = children_of(init)?
        .into_iter()
        .filter(|(_, status)| status.has_memory && status.pid >= first);
    let by_origin =
        stands.filter_map(|(pid, status)| Some((origin(&status.name, status.pid)?, pid)));
    Ok(by_origin.collect())
}

/// Whether the kernel lists the children of a process.
fn lists_children() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// The children of a process, whatever the kernel lists.
fn children_of(parent: u32) -> Result<Vec<(u32, Status)>> {
    Ok(match lists_children() {
        true => children(parent),
        false => by_parent()?.remove(&parent).unwrap_or_default(),
    })
}

/// The children of a process, of all its threads.
fn children(parent: u32) -> Vec<(u32, Status)> {
    lists(parent).flat_map(|list| listed(&list)).collect()
}

/// The children in a list of the kernel's.
///
/// What ends meanwhile is not the server's, which stands still: a copy for the image before, or a process that is over for the server and not yet for the kernel. But where the child that it
/// named last is gone by then, the kernel goes on by counting, and leaves out another one.
fn listed(list: &Path) -> Vec<(u32, Status)> {
    let mut tries = 0;
    loop {
        let pids = pids_in(list);
        let named = pids.len();
        let found = statuses(pids.into_iter());
        tries += 1;
        if found.len() == named || tries == TRIES_OF_ALL {
            return found;
        }
    }
}

fn statuses(pids: impl Iterator<Item = u32>) -> Vec<(u32, Status)> {
    pids.filter_map(|pid| Some((pid, status(pid)?))).collect()
}

fn child_pids(parent: u32) -> Vec<u32> {
    lists(parent).flat_map(|list| pids_in(&list)).collect()
}

/// The kernel's lists of the children of a process, one for each of its threads.
fn lists(parent: u32) -> impl Iterator<Item = PathBuf> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    threads.into_iter().flatten().flatten().map(|thread| thread.path().join("children"))
}

fn pids_in(list: &Path) -> Vec<u32> {
    let pids = proc::text(list).unwrap_or_default();
    pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// All processes by their parents, for a kernel that does not list children.
fn by_parent() -> Result<BTreeMap<u32, Vec<(u32, Status)>>> {
    let mut children: BTreeMap<u32, Vec<(u32, Status)>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").map_err(MemoryError::read("/proc"))?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        if let Some(status) = status(pid) {
            children.entry(status.parent).or_default().push((pid, status));
        }
    }
    Ok(children)
}

fn status(pid: u32) -> Option<Status> {
    parse(&String::from_utf8_lossy(&proc::read(format!("/proc/{pid}/status")).ok()?))
}

fn parse(status: &str) -> Option<Status> {
    let field = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
        lines.find_map(|rest| rest.strip_prefix(':')).map(str::trim)
    };
    let last = |text: &str| text.split_whitespace().last().and_then(|pid| pid.parse().ok());
    Some(Status {
        name: field("Name")?.to_owned(),
        parent: field("PPid")?.parse().ok()?,
        pid: field("NSpid").and_then(last).or_else(|| field("Pid")?.parse().ok())?,
        // Zombies and threads of the kernel have none.
        has_memory: field("VmSize").is_some(),
    })
}

fn command(host_pid: u32) -> Option<String> {
    let line = proc::read(format!("/proc/{host_pid}/cmdline")).ok()?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let line = words.join(" ");
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    (!line.is_empty()).then(|| line.chars().take(COMMAND_CHARS).map(printable).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_stand_in_is_told_by_its_name_and_its_number() {
        let first = first_number().unwrap();
        assert_eq!(origin("skein-2", first), Some(2));
        assert_eq!(origin("skein-2", first - 1), None, "a server may have any name");
        for name in ["skein-", "skein", "redis", "skein-init"] {
            assert_eq!(origin(name, first), None, "{name}");
        }
    }

    #[test]
    fn a_status_is_read() {
        let text = "Name:\tredis-server\nState:\tS (sleeping)\nPid:\t4242\nPPid:\t4241\nNSpid:\t4242\t2\nVmSize:\t 100 kB\n";
        let status = parse(text).unwrap();
        assert_eq!(status.name, "redis-server");
        assert_eq!((status.parent, status.pid, status.has_memory), (4241, 2, true));
        let zombie = parse("Name:\tx\nPid:\t7\nPPid:\t1\n").unwrap();
        assert_eq!((zombie.pid, zombie.has_memory), (7, false));
        assert_eq!(parse("Name:\tx\nPid:\tx\nPPid:\tx\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn who_ends_hides_nobody_else() {
        const ROUNDS: usize = 200;
        let list = Path::new("/proc/thread-self/children");
        if !lists_children() {
            // This kernel is asked otherwise.
            return;
        }
        let run = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for _ in 0..ROUNDS {
            // Listed in the order of their births.
            let (mut ends, mut stays) = (run(), run());
            ends.kill().unwrap();
            let reaped = std::thread::spawn(move || ends.wait().unwrap());
            let mut found = true;
            while found && !reaped.is_finished() {
                found = listed(list).iter().any(|(pid, _)| *pid == stays.id());
            }
            reaped.join().unwrap();
            stays.kill().unwrap();
            stays.wait().unwrap();
            assert!(found);
        }
    }

    #[test]
    fn children_are_found_with_their_commands() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // The parent may continue before the kernel has set its child's command line, the words one by one; and threads of other tests come and go, so the kernel's list of threads may lack some.
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_it =
            |process: &Process| process.host_pid == child.id() && process.command == "sleep 60";
        let mut found = below(std::process::id());
        while !found.as_ref().is_ok_and(|found| found.iter().any(is_it))
            && Instant::now() < deadline
        {
            std::thread::yield_now();
            found = below(std::process::id());
        }
        let scanned = by_parent().unwrap().remove(&std::process::id()).unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        let sleeps = found.iter().find(|process| process.host_pid == child.id()).unwrap();
        assert_eq!(sleeps.command, "sleep 60");
        assert!(scanned.iter().any(|(pid, _)| *pid == child.id()));
    }
}
