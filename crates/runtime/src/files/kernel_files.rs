//! The content of /proc and /sys. Three treatments, by name:
//!
//! - files that are equal on all replicas pass (command lines, names of open files, limits, ...);
//! - files that are often read and differ (counts of memory, time, processors, mounts) are small files in memory with fixed or filtered contents
//!   ([`fake`](super::fake));
//! - all others do not exist for the server: `ENOENT`, and the node is told the name.
//!
//! /sys describes the machine: a server's is empty except for faked files.

use crate::fatal::{self, Line, line};
use crate::files::fake::Text;
use crate::files::{console, stat};
use crate::io::table;
use crate::kernel::Kernel;
use crate::sys;
use libc::c_int;
use skein_libos::errno::{Errno, Result};
use skein_libos::file::Kind;

/// The treatment of a kernel file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// As it is.
    Pass,
    /// Another text. The number of the process for the text about one, 0 for the server itself.
    Fake(Text, u32),
    /// Not there.
    Hidden,
}

/// The treatment of the file at this path; `None` when it is no file of the kernel's.
pub fn treatment(path: &[u8]) -> Option<Treatment> {
    if let Some(rest) = below(path, b"/sys") {
        return Some(in_sys(rest));
    }
    if let Some(name) = below(path, b"/dev/fd")
        && number(name).is_some_and(|fd| table::is_own(fd as i32))
    {
        return Some(Treatment::Hidden);
    }
    let rest = below(path, b"/proc")?;
    let (first, more) = split(rest);
    Some(match first {
        b"self" | b"thread-self" => of_process(more, 0),
        _ => match number(first) {
            Some(pid) => of_process(more, pid),
            None => global(rest),
        },
    })
}

/// What is behind `top` in a path below it.
fn below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(top)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => Some(rest.trim_ascii_end().trim_prefix_slashes()),
        Some(_) => None,
    }
}

trait Slashes {
    fn trim_prefix_slashes(&self) -> &[u8];
}

impl Slashes for [u8] {
    fn trim_prefix_slashes(&self) -> &[u8] {
        let start = self.iter().position(|byte| *byte != b'/').unwrap_or(self.len());
        &self[start..]
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|byte| *byte == b'/') {
        Some(at) => (&path[..at], path[at..].trim_prefix_slashes()),
        None => (path, b""),
    }
}

fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

fn of_process(file: &[u8], pid: u32) -> Treatment {
    let (first, more) = split(file);
    if first == b"task" {
        let (tid, rest) = split(more);
        return match number(tid) {
            Some(tid) if !rest.is_empty() && rest != b"task" => of_process(rest, tid),
            _ => Treatment::Pass,
        };
    }
    if first == b"fd" && number(more).is_some_and(|fd| table::is_own(fd as i32)) {
        return Treatment::Hidden;
    }
    let text = match file {
        b"stat" => Text::Stat,
        b"statm" => Text::Statm,
        b"smaps" | b"smaps_rollup" => Text::Empty,
        b"status" => Text::Status,
        b"maps" => Text::Maps,
        b"limits" => Text::Limits,
        b"io" => Text::Io,
        b"schedstat" => Text::SchedStat,
        b"oom_score" | b"wchan" => Text::Zero,
        b"timerslack_ns" => Text::TimerSlack,
        b"loginuid" | b"sessionid" => Text::NoId,
        b"cgroup" => Text::Cgroup,
        b"mounts" => Text::Mounts,
        b"mountinfo" => Text::MountInfo,
        b"" | b"exe" | b"cwd" | b"root" | b"cmdline" | b"environ" | b"comm" | b"auxv" | b"mem"
        | b"oom_adj" | b"oom_score_adj" | b"coredump_filter" | b"personality" | b"children"
        | b"uid_map" | b"gid_map" | b"setgroups" => return Treatment::Pass,
        _ => {
            return match first {
                b"fd" | b"map_files" => Treatment::Pass,
                b"net" => network(more),
                _ => Treatment::Hidden,
            };
        }
    };
    Treatment::Fake(text, pid)
}

/// These are always empty, as all sockets of the server are virtual; only its interfaces are listed.
fn network(file: &[u8]) -> Treatment {
    let text = match file {
        b"" => return Treatment::Pass,
        b"tcp" | b"tcp6" | b"udp" | b"udp6" | b"raw" | b"raw6" => Text::Word(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        ),
        b"unix" => Text::Word("Num       RefCount Protocol Flags    Type St Inode Path"),
        b"route" => Text::NetRoutes,
        b"arp" => Text::Word(
            "IP address       HW type     Flags       HW address            Mask     Device",
        ),
        b"if_inet6" => Text::Word("00000000000000000000000000000001 01 80 10 80       lo"),
        b"dev" => Text::NetDevices,
        b"ipv6_route" => Text::Empty,
        _ => return Treatment::Hidden,
    };
    Treatment::Fake(text, 0)
}

fn global(file: &[u8]) -> Treatment {
    let text = match file {
        b"" => return Treatment::Pass,
        b"meminfo" => Text::MemInfo,
        b"stat" => Text::GlobalStat,
        b"uptime" => Text::Uptime,
        b"loadavg" => Text::LoadAverage,
        b"cpuinfo" => Text::CpuInfo,
        b"vmstat" => Text::VmStat,
        b"version" => Text::Version,
        b"mounts" => Text::Mounts,
        b"swaps" => Text::Swaps,
        b"filesystems" => Text::FileSystems,
        b"sys/kernel/ostype" => Text::Word("Linux"),
        b"sys/kernel/osrelease" => Text::Release,
        b"sys/kernel/hostname" => Text::HostName,
        b"sys/kernel/pid_max" => Text::Word("32768"),
        b"sys/kernel/threads-max" => Text::Word("63000"),
        b"sys/kernel/ngroups_max" => Text::Word("65536"),
        b"sys/kernel/cap_last_cap" => Text::Word("40"),
        b"sys/kernel/randomize_va_space" => Text::Zero,
        b"sys/kernel/shmmax" => Text::Word("18446744073692774399"),
        b"sys/kernel/shmall" => Text::Word("18446744073692774399"),
        b"sys/kernel/shmmni" => Text::Word("4096"),
        b"sys/kernel/sem" => Text::Word("32000\t1024000000\t500\t32000"),
        b"sys/kernel/random/uuid" => Text::RandomUuid,
        b"sys/kernel/random/boot_id" => Text::Word("5ce11000-0000-4000-8000-000000000001"),
        b"sys/kernel/random/entropy_avail" | b"sys/kernel/random/poolsize" => Text::Word("256"),
        b"sys/vm/overcommit_memory" => Text::Word("1"),
        b"sys/vm/max_map_count" => Text::Word("65530"),
        b"sys/vm/swappiness" => Text::Word("60"),
        b"sys/fs/file-max" => Text::Word("1048576"),
        b"sys/fs/nr_open" => Text::Word("1048576"),
        b"sys/fs/pipe-max-size" => Text::Word("1048576"),
        b"sys/fs/aio-max-nr" => Text::Word("65536"),
        b"sys/fs/aio-nr" => Text::Zero,
        b"sys/fs/inotify/max_user_watches" => Text::Zero,
        b"sys/fs/inotify/max_user_instances" => Text::Word("128"),
        b"sys/fs/inotify/max_queued_events" => Text::Word("16384"),
        b"sys/net/core/somaxconn" => Text::Word("4096"),
        b"sys/net/core/rmem_max" | b"sys/net/core/wmem_max" => Text::Word("212992"),
        b"sys/net/core/rmem_default" | b"sys/net/core/wmem_default" => Text::Word("212992"),
        b"sys/net/ipv4/ip_local_port_range" => Text::Word("32768\t60999"),
        b"sys/net/ipv4/tcp_max_syn_backlog" => Text::Word("4096"),
        b"sys/net/ipv4/tcp_fastopen" => Text::Zero,
        b"sys/net/ipv6/conf/all/disable_ipv6" => Text::Zero,
        b"sys/crypto/fips_enabled" => Text::Zero,
        _ => {
            return match split(file) {
                (b"net", rest) => network(rest),
                _ => Treatment::Hidden,
            };
        }
    };
    Treatment::Fake(text, 0)
}

fn in_sys(file: &[u8]) -> Treatment {
    let text = match file {
        b"" => return Treatment::Pass,
        b"devices/system/cpu/online"
        | b"devices/system/cpu/possible"
        | b"devices/system/cpu/present"
        | b"devices/system/node/online"
        | b"devices/system/node/possible" => Text::Zero,
        b"kernel/mm/transparent_hugepage/enabled" => Text::Word("always madvise [never]"),
        b"kernel/mm/transparent_hugepage/hpage_pmd_size" => Text::Word("2097152"),
        _ => return Treatment::Hidden,
    };
    Treatment::Fake(text, 0)
}

/// Whether the server does not see this path.
pub fn hidden(path: &[u8]) -> bool {
    path.first() == Some(&b'/') && treatment(path) == Some(Treatment::Hidden)
}

/// Opens a file of the kernel's that is not simply passed; `None` for all others.
pub fn open(k: &Kernel, path: &[u8], flags: c_int) -> Option<Result<usize>> {
    if path.first() != Some(&b'/') {
        return None;
    }
    match treatment(path)? {
        Treatment::Pass => None,
        Treatment::Fake(text, pid) => {
            if flags & libc::O_ACCMODE != libc::O_RDONLY {
                return Some(refuse(path, libc::EACCES));
            }
            Some(text.open(k, pid, flags))
        }
        Treatment::Hidden => Some(refuse(path, libc::ENOENT)),
    }
}

fn refuse(path: &[u8], errno: c_int) -> Result<usize> {
    // The runtime's own descriptors do not exist for the server; that is not worth a line either.
    if descriptor(path).is_some_and(table::is_own) {
        return Err(Errno(errno));
    }
    // An empty /sys is usual in containers: a search there is not worth a line.
    if path.starts_with(b"/proc") {
        let text = core::str::from_utf8(path).unwrap_or("/proc/?");
        fatal::refused(line!("open {text}").bytes());
    }
    Err(Errno(errno))
}

/// A file of the kernel's that was opened by another name than its own, which is found out now: answers the file to open instead.
pub fn reopen(k: &Kernel, fd: i32, flags: c_int) -> Option<Result<usize>> {
    let mut name = [0u8; 256];
    open(k, stat::real_name(fd, &mut name).ok()?, flags)
}

/// The descriptor of this process that a path names.
pub fn descriptor(path: &[u8]) -> Option<i32> {
    let name = match path {
        b"/dev/stdin" => b"0",
        b"/dev/stdout" => b"1",
        b"/dev/stderr" => b"2",
        _ if path.starts_with(b"/dev/fd/") => below(path, b"/dev/fd")?,
        _ => {
            let (who, rest) = split(below(path, b"/proc")?);
            // SAFETY: no memory is involved.
            let pid = unsafe { sys::raw(libc::SYS_getpid, sys::args([])) } as u32;
            if who != b"self" && who != b"thread-self" && number(who) != Some(pid) {
                return None;
            }
            let (b"fd", name) = split(rest) else { return None };
            name
        }
    };
    Some(number(name)? as i32)
}

/// The target of a link in /proc/self/fd whose descriptor is virtual or the runtime's; `None` when the kernel answers.
pub fn link(k: &Kernel, path: &[u8]) -> Option<Result<Line>> {
    let fd = descriptor(path).filter(|_| !path.starts_with(b"/dev/std"))?;
    if table::is_own(fd) {
        return Some(Err(Errno(libc::ENOENT)));
    }
    // The name of the server's own output file differs between replicas.
    let Some(file) = k.file(fd) else {
        return console::of(k, fd).map(|_| Ok(line!("pipe:[3]")));
    };
    let f = k.fds.files.get(file);
    let object = f.object.get();
    Some(Ok(match f.kind.get() {
        Kind::Socket => line!("socket:[{}]", u64::from(file.raw()) + (2 << 20)),
        Kind::PipeReader | Kind::PipeWriter | Kind::PipeBoth => {
            line!("pipe:[{}]", u64::from(object) + (1 << 20))
        }
        Kind::Epoll => line!("anon_inode:[eventpoll]"),
        Kind::EventFd => line!("anon_inode:[eventfd]"),
        Kind::TimerFd => line!("anon_inode:[timerfd]"),
        Kind::Inotify => line!("anon_inode:inotify"),
        Kind::Random => line!("/dev/urandom"),
        _ => line!("anon_inode:[skein]"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_replicas_does_not_pass() {
        let fake = |path: &str, text, pid| {
            assert_eq!(treatment(path.as_bytes()), Some(Treatment::Fake(text, pid)), "{path}");
        };
        fake("/proc/self/stat", Text::Stat, 0);
        fake("/proc/7/statm", Text::Statm, 7);
        fake("/proc/self/task/9/status", Text::Status, 9);
        fake("/proc//stat", Text::GlobalStat, 0);
        fake("/sys/devices/system/cpu/online", Text::Zero, 0);
        for path in ["/proc/self/ns/net", "/proc/diskstats", "/proc/1/pagemap", "/sys/class"] {
            assert_eq!(treatment(path.as_bytes()), Some(Treatment::Hidden), "{path}");
        }
        for path in ["/proc/self/fd/3", "/proc/7/cmdline", "/proc/net", "/proc", "/proc/"] {
            assert_eq!(treatment(path.as_bytes()), Some(Treatment::Pass), "{path}");
        }
        for path in ["/processes", "proc/stat", "/etc/passwd", "/system", ""] {
            assert_eq!(treatment(path.as_bytes()), None, "{path}");
        }
    }
}
