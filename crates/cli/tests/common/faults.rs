//! The single faults that a cluster on three hosts must survive: how each is made and mended, and its name in `skein status`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use skein_model::limits::SPIN_SIGNAL;

use super::limits::{Group, limit_address_space};
use super::machine::Machine;

/// The error of a wrong clock.
const HOUR_S: i64 = 3600;
/// The delay of a slow disk.
const SLOW_SYNC: Duration = Duration::from_millis(50);
/// Memory left to a server that reaches its limit.
const LEFT_BYTES: u64 = 4 << 20;

/// inc %rax; jmp to it.
const LOOP: i64 = i64::from_le_bytes([0x48, 0xff, 0xc0, 0xeb, 0xfb, 0, 0, 0]);

/// A fault of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    NodeKilled,
    NodeStopped,
    ServerKilled,
    ServerStopped,
    ServerLoops,
    DiskHangs,
    DiskFull,
    DiskSlow,
    ClockAhead,
    ClockBack,
    LinkCut,
    CannotSend,
    CannotHear,
    LinkSlow,
    MemoryLimit,
}

/// The data that mending needs.
pub enum Made {
    Nothing,
    File(PathBuf),
    Group(Group),
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::NodeKilled,
        Self::NodeStopped,
        Self::ServerKilled,
        Self::ServerStopped,
        Self::ServerLoops,
        Self::DiskHangs,
        Self::DiskFull,
        Self::DiskSlow,
        Self::ClockAhead,
        Self::ClockBack,
        Self::LinkCut,
        Self::CannotSend,
        Self::CannotHear,
        Self::LinkSlow,
        Self::MemoryLimit,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeKilled => "node killed",
            Self::NodeStopped => "node stopped",
            Self::ServerKilled => "server killed",
            Self::ServerStopped => "server stopped",
            Self::ServerLoops => "server in an endless loop",
            Self::DiskHangs => "disk hangs",
            Self::DiskFull => "disk full",
            Self::DiskSlow => "disk slow: 50 ms a sync",
            Self::ClockAhead => "clock an hour ahead",
            Self::ClockBack => "clock an hour back",
            Self::LinkCut => "link cut",
            Self::CannotSend => "link cut one way: it is not heard",
            Self::CannotHear => "link cut one way: it does not hear",
            Self::LinkSlow => "link slow",
            Self::MemoryLimit => "memory limit reached",
        }
    }

    /// Whether the fault needs much data to show.
    pub const fn needs_data(self) -> bool {
        matches!(self, Self::DiskFull | Self::MemoryLimit)
    }

    /// Whether the replica mends itself.
    pub const fn passes(self) -> bool {
        matches!(self, Self::NodeKilled | Self::ServerKilled | Self::MemoryLimit)
    }

    /// Makes the fault, unless this machine cannot; `server` is the server's process.
    pub fn make(self, machine: &Machine, id: u64, server: i32) -> Option<Made> {
        let node = machine.node_pid(id);
        let preloaded = machine.preloaded.as_ref().expect("the nodes have it");
        match self {
            Self::NodeKilled => send(node, Signal::SIGKILL),
            Self::NodeStopped => send(node, Signal::SIGSTOP),
            Self::ServerKilled => send(server, Signal::SIGKILL),
            Self::ServerStopped => send(server, Signal::SIGSTOP),
            Self::ServerLoops => make_loop(Pid::from_raw(server)),
            Self::DiskHangs => preloaded.set_disk(node, None),
            Self::DiskFull => return Some(Made::File(fill(machine.data(id).join("filler")))),
            Self::DiskSlow => preloaded.set_disk(node, Some(SLOW_SYNC)),
            Self::ClockAhead => preloaded.set_clock(node, HOUR_S),
            Self::ClockBack => preloaded.set_clock(node, -HOUR_S),
            Self::LinkCut => machine.hosts.cable(id, "down"),
            Self::CannotSend => lose(machine, id, "add"),
            Self::CannotHear => others(id).for_each(|other| machine.hosts.lose(other, id, "add")),
            Self::LinkSlow if !machine.hosts.slow(id, "add") => return None,
            Self::LinkSlow => {}
            Self::MemoryLimit => return Some(limit(server)),
        }
        Some(Made::Nothing)
    }

    /// Mends it.
    pub fn mend(self, machine: &Machine, id: u64, server: i32, made: Made) {
        let preloaded = machine.preloaded.as_ref().expect("the nodes have it");
        match self {
            Self::NodeStopped => send(machine.node_pid(id), Signal::SIGCONT),
            Self::ServerStopped => send(server, Signal::SIGCONT),
            Self::ServerLoops => send(server, Signal::SIGKILL),
            Self::DiskHangs | Self::DiskSlow => {
                preloaded.set_disk(machine.node_pid(id), Some(Duration::ZERO));
            }
            Self::ClockAhead | Self::ClockBack => preloaded.set_clock(machine.node_pid(id), 0),
            Self::LinkCut => machine.hosts.cable(id, "up"),
            Self::CannotSend => lose(machine, id, "del"),
            Self::CannotHear => others(id).for_each(|other| machine.hosts.lose(other, id, "del")),
            Self::LinkSlow => assert!(machine.hosts.slow(id, "del"), "tc"),
            _ => {}
        }
        match made {
            Made::Nothing => {}
            Made::File(path) => fs::remove_file(path).unwrap(),
            Made::Group(group) => drop(group),
        }
    }

    /// The fault's name in the status, if it has one.
    pub fn named(self, status: &Value, id: u64) -> Option<String> {
        let rows = status["replicas"].as_array()?;
        let own = rows.iter().find(|row| row["id"] == id)?;
        let at = |row: &Value, name: &str| {
            let faults = row["faults"].as_array()?;
            let fault = faults.iter().find(|fault| fault["name"] == name)?;
            Some(format!("replica {}: {}", row["id"], fault["why"].as_str()?))
        };
        let of_own = |name: &str| at(own, name);
        let link = |kind: &str| {
            let others = rows.iter().filter(|row| row["id"] != id);
            let said = others.clone().find_map(|row| at(row, &format!("{kind}_{id}")));
            let by_own = || others.clone().find_map(|row| of_own(&format!("{kind}_{}", row["id"])));
            said.or_else(by_own)
        };
        match self {
            Self::NodeKilled => (own["state"] == "down").then(|| format!("replica {id} is down")),
            Self::NodeStopped | Self::LinkCut | Self::CannotSend | Self::CannotHear => {
                link("silent")
            }
            Self::ServerKilled | Self::MemoryLimit => of_own("server_ended"),
            Self::ServerStopped | Self::ServerLoops => {
                of_own("server_stuck").or_else(|| of_own("server_spins"))
            }
            Self::DiskHangs => of_own("disk_hangs"),
            Self::DiskFull => of_own("disk_full"),
            Self::DiskSlow => of_own("disk_slow"),
            Self::ClockAhead | Self::ClockBack => of_own("clock_is_off"),
            // A replica that is too slow for anything counts as missing.
            Self::LinkSlow => link("slow_link").or_else(|| link("silent")),
        }
    }
}

fn send(pid: i32, signal: Signal) {
    // A server that was rebuilt meanwhile has another process.
    let _ = kill(Pid::from_raw(pid), signal);
}

fn others(id: u64) -> impl Iterator<Item = u64> {
    (1..=3).filter(move |other| *other != id)
}

fn lose(machine: &Machine, id: u64, what: &str) {
    others(id).for_each(|other| machine.hosts.lose(id, other, what));
}

/// Takes all space of a file system.
fn fill(path: PathBuf) -> PathBuf {
    let file = fs::File::create(&path).unwrap();
    let mut len: i64 = 1 << 30;
    let mut at = 0;
    while len >= 4096 {
        match fallocate(&file, FallocateFlags::empty(), at, len) {
            Ok(()) => at += len,
            Err(_) => len /= 2,
        }
    }
    path
}

/// Makes a server's thread count for ever inside its own program. It overwrites the thread's state, so the server can only be ended.
fn make_loop(pid: Pid) {
    let (begin, end) = text(pid);
    ptrace::attach(pid).unwrap();
    let mut signal = stopped(pid, libc::SIGSTOP);
    loop {
        let at = ptrace::getregs(pid).unwrap().rip;
        if (begin..end).contains(&at) {
            let old = ptrace::read(pid, at as ptrace::AddressType).unwrap();
            let word = (old & !0xff_ffff_ffff) | LOOP;
            ptrace::write(pid, at as ptrace::AddressType, word).unwrap();
            return go_on(pid, libc::PTRACE_DETACH, signal);
        }
        go_on(pid, libc::PTRACE_SINGLESTEP, signal);
        // By single steps the runtime's handler of that takes longer than until the next one.
        signal = match stopped(pid, libc::SIGTRAP) {
            SPIN_SIGNAL => 0,
            other => other,
        };
    }
}

/// Waits until it is stopped; answers the signal to pass on: 0 if `expected` stopped it.
fn stopped(pid: Pid, expected: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is a live int. By hand, as the server's signals are not all known to `nix`.
    let got = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::__WALL) };
    assert!(got == pid.as_raw() && libc::WIFSTOPPED(status), "a traced server: {got} {status:#x}");
    let signal = libc::WSTOPSIG(status);
    if signal == expected { 0 } else { signal }
}

fn go_on(pid: Pid, how: libc::c_uint, signal: i32) {
    // SAFETY: neither request takes a pointer.
    let done = unsafe { libc::ptrace(how, pid.as_raw(), 0, signal) };
    assert_eq!(done, 0, "ptrace {how}: {}", std::io::Error::last_os_error());
}

/// Where the program's own instructions are.
fn text(pid: Pid) -> (u64, u64) {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let name = program.file_name().unwrap().to_str().unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.contains("r-xp") && line.ends_with(name)).unwrap();
    let mut range = line.split([' ', '-']).map(|word| u64::from_str_radix(word, 16));
    (range.next().unwrap().unwrap(), range.next().unwrap().unwrap())
}

/// Limits a process's memory: the kernel kills it beyond that. Where the machine's control groups cannot be written, its address
/// space ends here, and it ends itself.
fn limit(pid: i32) -> Made {
    if let Some(group) = Group::of_memory(pid, LEFT_BYTES) {
        return Made::Group(group);
    }
    println!("control groups cannot be written: its address space is limited");
    limit_address_space(pid, Some(LEFT_BYTES));
    Made::Nothing
}
