//! Processor time of a server with all its processes, as the host's kernel counts it.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// The fields of `/proc/PID/stat` for one process.
struct Stat {
    parent: u32,
    /// CPU time of the process and of its reaped children, in clock ticks.
    ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: number(1)? as u32,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
    })
}

/// CPU time so far of the sandbox of a server's process.
pub fn of_sandbox(server: u32) -> Option<Duration> {
    let init = stat(server)?.parent;
    let mut all: BTreeMap<u32, Stat> = BTreeMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(found) = stat(pid)
        {
            all.insert(pid, found);
        }
    }
    let below = |mut pid: u32| {
        // Bounded: a list that is read while processes come and go may hold a cycle.
        for _ in 0..64 {
            match all.get(&pid) {
                Some(stat) if stat.parent == init => return true,
                Some(stat) => pid = stat.parent,
                None => return false,
            }
        }
        false
    };
    let ticks: u64 = all.iter().filter(|(pid, _)| below(**pid)).map(|(_, stat)| stat.ticks).sum();
    // SAFETY: takes no pointers.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Some(Duration::from_millis(ticks * 1000 / hertz))
}

/// The processor time so far of this process, all threads: its own code's, and the kernel's for it.
pub fn own() -> (Duration, Duration) {
    use nix::sys::time::{TimeVal, TimeValLike};
    let duration = |time: TimeVal| Duration::from_micros(time.num_microseconds().max(0) as u64);
    nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).map_or_else(
        |_| Default::default(),
        |u| (duration(u.user_time()), duration(u.system_time())),
    )
}
