//! Where the CPU time of a request goes: samples of the leader's node and of its server, sorted by part.
//!
//! `perf record -e cpu-clock`, which needs no counters of the processor, takes 499 samples per second of CPU time of each process, while a
//! crowd asks. A sample in the kernel belongs to its system call; other samples belong to the library or the module of the
//! innermost function. Programs have no frame pointers, so the caller of a libc function is not known.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::about::{self, About};
use super::load;
use super::process;
use super::servers::{Server, memcached, redis};
use super::target::Target;
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// How long each process is sampled.
const TIME: Duration = Duration::from_secs(3);
const PERF_MAX: Duration = Duration::from_secs(60);
const HERTZ: &str = "499";
const CLIENTS: u32 = 50;

const TARGETS: [Target; 4] =
    [Target::Native, Target::OneMemory, Target::ThreeMemory, Target::ThreeFsync];

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Where results go [default: bench/results/profile.json]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Results.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Profiles {
    /// Time, machine and programs.
    #[serde(flatten)]
    pub about: About,
    /// Each server in each way.
    pub profiles: Vec<Profile>,
}

/// One server, one way.
#[derive(Debug, Serialize, Deserialize)]
pub struct Profile {
    /// The server.
    pub server: Server,
    /// The way it ran.
    pub target: Target,
    /// CPU time of a request in the processes on its way [us].
    pub cpu_us: f64,
    /// The number of samples of each part.
    pub parts: BTreeMap<String, u64>,
}

impl Profile {
    /// The cost of a request in `part` [us].
    pub fn part_us(&self, part: &str) -> f64 {
        let all: u64 = self.parts.values().sum();
        let own = self.parts.get(part).copied().unwrap_or(0);
        self.cpu_us * own as f64 / all.max(1) as f64
    }
}

/// Path of the results that the documents show.
pub fn stored() -> PathBuf {
    workspace::root().join("bench/results/profile.json")
}

/// Samples and stores.
pub fn run(options: &Options) -> Outcome {
    let servers = [Server::Redis, Server::Memcached];
    let programs: [&[&str]; 1] = [&["perf", "--version"]];
    let programs = programs.into_iter().chain(servers.iter().map(|at| at.workload().version()));
    let about = About::look("cargo xtask bench profile".to_owned(), programs)?;
    let mut profiles = Profiles { about, profiles: Vec::new() };
    for server in servers {
        for target in TARGETS {
            let profile = one(server, target)?;
            println!(
                "{:<10} {:<26} {:>5.1} us a request",
                server.name(),
                target.name(),
                profile.cpu_us
            );
            for part in profile.parts.keys() {
                println!("    {part:<28} {:>6.2} us", profile.part_us(part));
            }
            profiles.profiles.push(profile);
        }
    }
    profiles.about.unix_time_s = about::unix_time_s();
    about::write(&options.output.clone().unwrap_or_else(stored), &profiles)
}

fn one(server: Server, target: Target) -> Outcome<Profile> {
    let running = target.start(server)?;
    let service = running.service();
    let asked = match server {
        Server::Memcached => load::exchanges(memcached::set),
        _ => load::exchanges(redis::set),
    };
    let crowd = |time| load::crowd_for(server.name(), "set", service, &asked, time, CLIENTS);
    crowd(TIME / 6)?;
    let pids = running.pids_on_the_way()?;
    let node = if target == Target::Native { None } else { pids.first().copied() };
    let file = tempfile::NamedTempFile::new().map_err(|error| Failure::of("perf's file", error))?;
    let list: Vec<String> = pids.iter().map(i32::to_string).collect();
    let seconds = TIME.as_secs_f64();
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-F", HERTZ, "-g", "-p", &list.join(",")])
        .arg("-o")
        .arg(file.path())
        .args(["--", "sleep", &seconds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| Failure::of("cannot run perf (Debian: linux-perf)", error))?;
    let before = process::cpu_used(&pids)?;
    let start = Instant::now();
    let found = crowd(TIME);
    let lasted = start.elapsed().as_secs_f64();
    let used = process::cpu_used(&pids)?.saturating_sub(before);
    perf.wait().map_err(|error| Failure::of("perf", error))?;
    let requests = found?.per_second * lasted;
    let mut script = Command::new("perf");
    script.args(["script", "--no-inline", "-F", "pid,ip,sym,dso", "-i"]).arg(file.path());
    let text = process::output(&mut script, PERF_MAX)?;
    Ok(Profile {
        server,
        target,
        cpu_us: used.as_secs_f64() * 1e6 / requests,
        parts: sorted(&text, node),
    })
}

/// The number of samples of each part; `node` is the node's pid, every other one the server's.
fn sorted(script: &str, node: Option<i32>) -> BTreeMap<String, u64> {
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    for sample in script.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some(pid) = lines.next().and_then(|head| head.trim().parse::<i32>().ok()) else {
            continue;
        };
        let frames: Vec<(&str, &str)> = lines.filter_map(frame).collect();
        if let Some(part) = part(&frames, node == Some(pid)) {
            *parts.entry(part).or_default() += 1;
        }
    }
    parts
}

/// The function and the library of a line `  ADDRESS FUNCTION (LIBRARY)`.
fn frame(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (function, library) = rest.rsplit_once(" (")?;
    Some((function.trim(), library.trim_end_matches(')')))
}

/// Prefixes of kernel functions on the way of a system call; its name follows.
const ENTRIES: [&str; 5] = ["__x64_sys_", "___sys_", "__sys_", "ksys_", "do_"];

fn is_kernel(library: &str) -> bool {
    library.starts_with("[kernel") || library.starts_with("[unknown") || library.ends_with(".ko")
}

/// The part that a sample belongs to; frames are from the innermost one outwards.
fn part(frames: &[(&str, &str)], in_node: bool) -> Option<String> {
    let (function, library) = frames.first()?;
    let whose = if in_node { "node" } else { "server" };
    if is_kernel(library) {
        let inside = frames.iter().take_while(|(_, library)| is_kernel(library));
        let call = inside
            .filter_map(|(function, _)| ENTRIES.iter().find_map(|at| function.strip_prefix(at)))
            .map(family)
            .find(|family| *family != "other");
        return Some(format!("{whose}: kernel, {}", call.unwrap_or("other")));
    }
    if !in_node {
        let own = library.ends_with("libskein.so");
        return Some(if own { "runtime" } else { "server's own code" }.to_owned());
    }
    let of = |start: &str| function.contains(start);
    let part = if of("skein_replica::gateway") {
        "gateway"
    } else if of("skein_log") || of("raft") {
        "log and raft"
    } else if of("skein_arena") || of("skein_replica::server") || of("skein_replica::order") {
        "rings and order"
    } else if of("skein_") {
        "reactor"
    } else {
        "libraries"
    };
    Some(format!("node: {part}"))
}

/// System calls that do the same thing.
fn family(call: &str) -> &'static str {
    match call {
        "sendto" | "sendmsg" | "write" | "writev" => "send",
        "recvfrom" | "recvmsg" | "read" | "readv" => "receive",
        "futex" => "futex",
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "poll" | "epoll_ctl" | "ppoll" => "epoll",
        "fdatasync" | "fsync" | "pwrite64" => "disk",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_sorted_by_what_they_are_in() {
        let script = "  7 \n\tffffffff81 tcp_sendmsg ([kernel.kallsyms])\n\tffffffff82 __x64_sys_sendto ([kernel.kallsyms])\n\t\
                      7f01 __send (/usr/lib/libc.so.6)\n\n  7 \n\t5501 <skein_replica::gateway::Gateway<S>>::collect (/x/skein)\n\n  9 \n\t\
                      7f02 pthread_mutex_lock (/x/libskein.so)\n\n  9 \n\t5502 dictFind (/usr/bin/redis-server)\n\n";
        let parts = sorted(script, Some(7));
        let names: Vec<&str> = parts.keys().map(String::as_str).collect();
        assert_eq!(names, ["node: gateway", "node: kernel, send", "runtime", "server's own code"]);
        assert!(parts.values().all(|samples| *samples == 1));
    }

    #[test]
    fn a_parts_time_is_its_share() {
        let profile = Profile {
            server: Server::Redis,
            target: Target::Native,
            cpu_us: 8.0,
            parts: [("a".to_owned(), 3), ("b".to_owned(), 1)].into(),
        };
        assert_eq!((profile.part_us("a"), profile.part_us("c")), (6.0, 0.0));
    }
}
