//! Which guests there are and what is expected of each.

use crate::node::{FINEST, Schedule};
use crate::script::{Script, Step};
use std::io;
use std::path::{Path, PathBuf};

/// What a run under Skein must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The same as natively.
    Same,
    /// The same as natively, and the node is told that a call with each of these in its name was refused.
    SameAndRefused(&'static [&'static str]),
    /// The same as natively, or the runtime refuses to go on with a line that has one of these words in it. Never unseen.
    SameOrFatal(&'static [&'static str]),
    /// A thread that keeps the turn is named.
    Spin,
}

/// One guest.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its name: the binary's path below the guests' directory.
    pub name: String,
    /// The binary.
    pub program: PathBuf,
    /// What is expected.
    pub expect: Expect,
    /// The second schedule that it is run with.
    pub finest: Schedule,
    /// Its clients, for a server; it is then not run natively.
    pub script: Option<Script>,
    /// How much of what the net catches must come to it how often; nothing for most.
    pub net: Option<Net>,
}

/// What a guest's calls and instructions around the interposed functions must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// At most so many are trapped.
    pub most_trapped: u64,
    /// At least so many are not, because their place was replaced.
    pub least_patched: u64,
    /// As many as those are trapped for good.
    pub least_trapped: u64,
}

impl Net {
    /// With so many programs that are executed, each of which may begin with a trap.
    const fn of_programs(self, programs: u64) -> Self {
        Self { most_trapped: self.most_trapped + programs, ..self }
    }
}

/// Executions of a place that are trapped before it is replaced, as the runtime has it: in a guest's text and in libc's.
const PATIENCE: u64 = 4 + 1;
const PATIENCE_IN_LIBC: u64 = 4 + 10 + 1;
/// Calls of a program's start and end.
const AROUND: u64 = 24;

fn net(name: &str) -> Option<Net> {
    // So many places are executed so often in all.
    let replaced = |places: u64, executions: u64| {
        let most_trapped = places * PATIENCE + AROUND;
        Net { most_trapped, least_patched: executions - places * PATIENCE, least_trapped: 0 }
    };
    // And so many of libc's besides.
    let with_libcs = |places: u64, net: Net| Net {
        most_trapped: net.most_trapped + places * PATIENCE_IN_LIBC,
        least_patched: net.least_patched - places * PATIENCE_IN_LIBC,
        ..net
    };
    Some(match name {
        "patch_rdtsc" => replaced(2, 2 * 3000),
        // Two or four more where the processor has AVX and AVX-512.
        "patch_registers" => replaced(6, 4 * 300),
        "patch_signals" => replaced(4, 300 * (2 + 2 + 3)),
        // Six threads' births and ends besides.
        "patch_threads" => with_libcs(3, replaced(2, 300 * 5)),
        // Places in the parent, in two children of it, and in an executed program: what one has met is known to the others.
        "patch_fork" => replaced(2 + 2, 300 * (2 + 2 + 2 + 2)),
        // Directories and streams nine calls, and the births and ends of threads five.
        "patch_libc" => with_libcs(9 + 5, replaced(0, 300 * (9 + 5))),
        // 60 threads, 120 forks, 60 programs, 60 that are not there, 60 shells; programs begin with nothing replaced.
        "patch_births" => with_libcs(17, replaced(0, 60 * (4 + 2 + 3 * 8))).of_programs(120),
        // Four of five places; the other is entered at the instruction itself, too.
        "patch_front" => {
            let net = replaced(4, 300 * 3 + 600);
            Net { most_trapped: net.most_trapped + 600, ..net }
        }
        "patch_stays" => {
            Net { most_trapped: 4 * 300 + AROUND, least_patched: 0, least_trapped: 4 * 300 }
        }
        _ => return None,
    })
}

fn expect(name: &str) -> Expect {
    match name {
        "exec_static" => Expect::SameAndRefused(&["statically linked"]),
        "net_leases" => {
            Expect::SameAndRefused(&["F_SETLEASE", "F_NOTIFY", "inotify_add_watch", "mq_notify"])
        }
        "net_terminals" => Expect::SameAndRefused(&["pseudo-terminal"]),
        "net_io_uring" => Expect::SameAndRefused(&["io_uring"]),
        "net_helper_threads" => Expect::SameAndRefused(&["aio_read"]),
        "net_unknown" => Expect::SameAndRefused(&["system call 999"]),
        "net_x32" => Expect::SameAndRefused(&["system call 1073741863"]),
        "net_int80" => Expect::SameAndRefused(&["32-bit system call 20"]),
        "net_machine" => Expect::SameAndRefused(&["mount"]),
        "net_raw_socket" => Expect::SameOrFatal(&["socket"]),
        "net_raw_futex" => Expect::SameOrFatal(&["futex"]),
        "net_raw_clock" => Expect::SameOrFatal(&["clock_gettime", "gettimeofday", "time"]),
        "net_raw_getrandom" => Expect::SameOrFatal(&["getrandom"]),
        "net_raw_clone" => Expect::SameOrFatal(&["clone"]),
        "net_raw_epoll" => Expect::SameOrFatal(&["read", "epoll", "eventfd"]),
        "net_rdtsc" => Expect::SameOrFatal(&["rdtsc", "time stamp"]),
        "spin_watch" => Expect::Spin,
        _ => Expect::Same,
    }
}

fn finest(name: &str) -> Schedule {
    match name {
        // Two threads lock two mutexes in opposite orders by trying and backing off. With a turn an operation they do
        // it in lockstep for ever: a schedule's right, but no end.
        "cpp_mutex" => Schedule { quantum: 2, ..FINEST },
        _ => FINEST,
    }
}

/// All guests below `directory`, by name.
///
/// # Errors
/// The directory cannot be read.
pub fn all(directory: &Path) -> io::Result<Vec<Guest>> {
    let mut guests = Vec::new();
    for family in ["", "rust", "servers"] {
        for entry in std::fs::read_dir(directory.join(family))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !entry.file_type()?.is_file() || name.ends_with(".new") {
                continue;
            }
            let name = if family.is_empty() { name } else { format!("{family}/{name}") };
            let script = match family {
                "servers" => server_script(&name),
                // Their other end is this harness.
                _ if name.starts_with("out_") => Some(Script::default()),
                _ => None,
            };
            if family == "servers" && script.is_none() {
                return Err(io::Error::other(format!("{name} has no scripted clients")));
            }
            let (expect, finest, net) = (expect(&name), finest(&name), net(&name));
            guests.push(Guest { expect, finest, program: entry.path(), name, script, net });
        }
    }
    guests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(guests)
}

/// A client that sends `lines` one by one, each after an answer of so many bytes to the one before, and closes.
fn asking(
    lines: usize,
    answer: impl Fn(usize) -> usize,
    line: impl Fn(usize) -> String,
) -> Vec<Step> {
    let mut steps = vec![Step::Open];
    let mut total = 0;
    for n in 0..lines {
        steps.push(Step::Send(line(n).into_bytes()));
        total += answer(n);
        steps.push(Step::Receive(total));
    }
    steps.push(Step::Fin);
    steps.push(Step::Closed);
    steps
}

/// Adds a client that ends the server when all others are done.
fn then_quit(mut clients: Vec<Vec<Step>>) -> Script {
    let mut last: Vec<Step> = (0..clients.len()).map(Step::Await).collect();
    last.push(Step::Open);
    last.push(Step::Send(b"quit\n".to_vec()));
    clients.push(last);
    Script::new(clients)
}

fn server_script(name: &str) -> Option<Script> {
    let clients = match name {
        "servers/echo_epoll" => {
            let mut clients: Vec<_> = (0..20)
                .map(|c| asking(10, |n| n + 8, move |n| format!("{c:04}{}\n", "x".repeat(n + 3))))
                .collect();
            // Large enough that buffers fill and drain both ways.
            let large = vec![b'z'; 3 << 20];
            let mut steps = vec![Step::Open];
            for _ in 0..2 {
                steps.push(Step::Send(large.clone()));
            }
            steps.extend([Step::Receive(2 * large.len()), Step::Fin, Step::Closed]);
            clients.push(steps);
            // One that goes without a word.
            clients.push(vec![
                Step::Open,
                Step::Send(b"hi".to_vec()),
                Step::Receive(2),
                Step::Reset,
            ]);
            clients
        }
        // An answer is the request's number and the request: at least 2 + 6 bytes.
        "servers/echo_threads" => {
            (0..10).map(|c| asking(8, |_| 8, move |n| format!("{c}.{n}..\n"))).collect()
        }
        // SIGHUP and SIGUSR1, before and between requests.
        "servers/signal_count" => {
            let ask = |answer: usize| [Step::Send(b"?\n".to_vec()), Step::Receive(answer)];
            let mut steps = vec![Step::Signal(10), Step::Open];
            steps.extend(ask(4));
            steps.extend([Step::Signal(1), Step::Signal(10)]);
            steps.extend(ask(8));
            for n in 1..=10 {
                steps.push(Step::Signal(10));
                // From 10 on a count has two digits.
                steps.extend(ask(8 + 4 * n + usize::saturating_sub(n, 7)));
            }
            steps.extend([Step::Fin, Step::Closed]);
            vec![steps]
        }
        "servers/racy_mix" => {
            (0..8).map(|c| asking(12, |_| 17, move |n| format!("client {c} says {n}"))).collect()
        }
        "servers/busy_poller" => {
            vec![asking(9, |_| 2, |n| format!("line {n}\n"))]
        }
        "servers/idle" => {
            let idle = |n: usize| {
                vec![
                    Step::Open,
                    Step::Send(format!("says {n}\n").into_bytes()),
                    Step::Fin,
                    Step::Closed,
                ]
            };
            (0..5).map(idle).collect()
        }
        _ => return None,
    };
    Some(then_quit(clients))
}
