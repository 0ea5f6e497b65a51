//! A redis that CRIU dumps and restores, beside one that Skein takes a first image of and continues from it: in turn on one machine.
//!
//! A redis that was restored is no child of this process; it is ended behind its point, whatever comes of it.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::images::{ANSWER_MAX, STOOD, TOOK, fill, filled, take};
use super::{Figure, Recorder, Topic};
use crate::process::{self, Kept};
use crate::servers::redis;
use crate::stats::Spread;
use crate::target::{await_some, data_root};
use crate::wire::{Client, free_address};
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "criu",
    title: "Beside CRIU",
    x: "MiB of data",
    figures: &[STOOD, TOOK, BACK],
    measure,
    reading: "All of a redis, in turn, medians of three each. CRIU (`criu dump`, which ends the server, and `criu restore`, as root): a redis without Skein, which stands as long as the dump takes, and\n\
         continues when a client has its first answer behind the begin of the restore. Skein: the first image of a lone replica, and the first answer behind `kill -9` of its node.\n\
         CRIU 4.2 or newer has to be in `PATH`: on Linux 6.18, Debian 12's 3.17 does not start, and Debian 13's 4.1 dumps no sockets.",
};

const BACK: Figure =
    Figure { key: "back_ms", label: "ms until it answers again", digits: 0, plotted: true };

/// The names of curves,
pub const CRIU: &str = "redis alone, CRIU";
pub const SKEIN: &str = "redis, 1 replica, fsync";
const SERVER: redis::Redis = redis::Redis { more: &["--enable-debug-command", "yes"] };
const SERVER_NAME: &str = "redis-server";
const MIB: [u64; 2] = [16, 256];
const ROUNDS: usize = 3;
const CRIU_MAX: Duration = Duration::from_secs(60);

fn measure(recorder: &mut Recorder) -> Outcome {
    process::output(Command::new("criu").arg("check"), CRIU_MAX)?;
    for size in MIB {
        let (mut criu, mut skein) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            criu.push(by_criu(size)?);
            skein.push(by_skein(size)?);
        }
        for (name, all) in [(CRIU, criu), (SKEIN, skein)] {
            recorder.point(name, size as f64, || Ok(medians(&all)));
        }
    }
    Ok(())
}

/// How long it stood, took, and was away [ms].
type Times = [f64; 3];

fn medians(all: &[Times]) -> Vec<(&'static str, f64)> {
    let keys = [STOOD.key, TOOK.key, BACK.key];
    let median = |at: usize| Spread::of(all.iter().map(|times| times[at]).collect());
    let values = keys.iter().enumerate();
    values.filter_map(|(at, key)| Some((*key, median(at)?.median))).collect()
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// A restored redis, which is nobody's child here.
struct Restored(i32);

impl Drop for Restored {
    fn drop(&mut self) {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.0));
        if name.is_ok_and(|name| name.trim() == SERVER_NAME) {
            let _ = kill(Pid::from_raw(self.0), Signal::SIGKILL);
        }
    }
}

fn by_criu(size: u64) -> Outcome<Times> {
    let dir = tempfile::Builder::new()
        .prefix("skein-bench-")
        .tempdir_in(data_root())
        .map_err(|error| Failure::of("cannot make a temporary directory", error))?;
    let service = free_address()?;
    // CRIU wants the head of a session. What it restores would end with its parent, CRIU itself, as it did with this process.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "clear", "setsid", SERVER_NAME]);
    command.args(["--save", "", "--port", &service.port().to_string()]);
    let server = Kept::start(command.args(SERVER.more).current_dir(dir.path()))?;
    let pid = server.pid();
    drop(fill(service, &SERVER, size)?);
    // An open connection cannot be dumped; two sockets listen at most.
    await_some("redis to close its connections", || Ok((sockets(pid) <= 2).then_some(())))?;
    let criu = |what: [&str; 3]| {
        let mut command = Command::new("criu");
        command.args(what).arg("--images-dir").arg(dir.path());
        process::output(&mut command, CRIU_MAX)
    };
    let start = Instant::now();
    criu(["dump", "--tree", &pid.to_string()])?;
    let dumped_ms = ms(start);
    // Its number has to be free.
    drop(server);
    let start = Instant::now();
    let restored = Restored(pid);
    criu(["restore", "--restore-detached", "--log-file=restore.log"])?;
    let back_ms = answers_after(service, start)?;
    drop(restored);
    Ok([dumped_ms, dumped_ms, back_ms])
}

fn by_skein(size: u64) -> Outcome<Times> {
    let (cluster, mut client) = filled(&SERVER, 1, size)?;
    let taken = take(&cluster, 1, &mut client)?;
    drop(client);
    let node = cluster.whole()?.leader()?.pid()?;
    let start = Instant::now();
    kill(node, Signal::SIGKILL).map_err(|error| Failure::of("cannot kill a node", error))?;
    Ok([taken.stood_ms, taken.took_ms, answers_after(cluster.service, start)?])
}

/// Waits until a server answers; how long that was since `start` [ms].
fn answers_after(service: SocketAddr, start: Instant) -> Outcome<f64> {
    await_some("redis to answer again", || {
        let ask = redis::command(&["PING"], "+PONG");
        let asked =
            Client::connect(service, ANSWER_MAX).and_then(|mut client| client.exchange(&ask));
        Ok(asked.is_ok().then(|| ms(start)))
    })
}

/// How many sockets a process has.
fn sockets(pid: i32) -> usize {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}
