//! `skein replay`: a replica's server runs again from the log, without a cluster, to where it went wrong.
//!
//! Reads a node's data directory, runs the server in its sandbox from the entries there ([`skein_node::replay`]), compares its output with the
//! digests in the log, and stops where it is told. There [`gdb`] can be attached. [`operations`] runs it twice and compares the runs.
//!
//! Crash: the server ends with this process; its files and the pipe for gdb are in places that vanish with them or are empty.

mod gdb;
mod operations;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use skein_model::LogIndex;
use skein_node::check::second::how;
use skein_node::config::{DurabilityMode, NodeConfig};
use skein_node::memory;
use skein_node::replay::stored::{Origin, Stored};
use skein_node::replay::watch::Mismatch;
use skein_node::replay::{Came, Place, Replay};
use skein_node::server::Launcher;
use skein_node::server::program::ProgramLauncher;

use crate::args::ReplayArgs;
use crate::check::capture::Capture;
use crate::config;
use crate::failure::{EXIT_USAGE, Failure};

/// Exit code: the run differs from the log.
const EXIT_DIFFERS: u8 = 1;
/// Exit code when a signal ended it: as a shell says Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;
/// The most threads in the list of a standing server.
const LISTED: usize = 32;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new("replay", error, "").with_code(EXIT_USAGE)
}

/// The destination of the server's output.
enum Output {
    /// To standard error, as it comes.
    Shown(Capture),
    /// Into a file.
    Kept(PathBuf),
}

impl Output {
    fn new(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else {
            return Capture::new(true).map(Self::Shown).map_err(failed);
        };
        let path = std::path::absolute(file).and_then(|path| fs::write(&path, "").map(|()| path));
        path.map(Self::Kept).map_err(|error| {
            Failure::new(format!("--output {}", file.display()), error, "choose another place")
        })
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Shown(capture) => capture.path(),
            Self::Kept(path) => path.clone(),
        }
    }

    fn pump(&mut self) {
        if let Self::Shown(capture) = self {
            capture.pump();
        }
    }
}

/// Resources of a run.
struct Session<'a> {
    args: &'a ReplayArgs,
    cluster: u128,
    stored: Stored,
    output: Output,
    interrupted: Arc<AtomicBool>,
}

/// Replays; answers the exit code.
pub fn replay(args: &ReplayArgs) -> Result<u8, Failure> {
    if args.gdb {
        gdb::find()?;
    }
    let mut config = configuration(&args.dir, args.config.as_deref())?;
    let output = Output::new(args.output.as_deref())?;
    config.server.output = Some(output.path());
    config.corrupt_digest_at = crate::node::corruption(config.id);
    let launcher = Arc::new(ProgramLauncher::new(&config).map_err(failed)?);
    let mut stored = Stored::open(&config, &args.dir, launcher.program_hash()).map_err(failed)?;
    if let Some(index) = args.image.filter(|_| !args.operations) {
        stored.origin = Origin::Image(LogIndex(index));
    }
    if let Some(at) = args.at.filter(|at| *at > stored.last.0) {
        let why = format!("the log ends at entry {}", stored.last);
        return Err(Failure::new(format!("--at {at}"), why, "name an entry that it has"));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(failed)?;
    }
    let mut session = Session { args, cluster: config.cluster(), stored, output, interrupted };
    session.introduce(&config);
    if args.operations {
        return operations::compare(&mut session, &config);
    }
    let until = args.at.map(LogIndex);
    let mut run = Replay::start(&config, launcher, &session.stored, until).map_err(failed)?;
    for why in &run.unusable {
        println!("image   {why}");
    }
    if run.after > LogIndex(0) {
        println!("begins  as it was after entry {}, from the image there", run.after);
    }
    let code = session.go(&mut run);
    run.end();
    session.output.pump();
    code
}

/// The replica's configuration.
fn configuration(dir: &Path, named: Option<&Path>) -> Result<NodeConfig, Failure> {
    let file = named.map_or_else(|| dir.join("node.toml"), Path::to_owned);
    if named.is_none() && !file.exists() {
        let what = format!("data directory {}", dir.display());
        return Err(if dir.join("cluster.json").exists() {
            let fix = format!("name one of its replicas: {}", dir.join("node-1").display());
            Failure::new(what, "it is a cluster's, and holds one directory for each replica", fix)
        } else {
            Failure::new(
                what,
                "it has no node.toml, as 'skein run' leaves one there",
                "name the node's data directory, and the configuration of a 'skein node' with --config FILE",
            )
        });
    }
    let mut config = config::read(&file)?;
    // It may be a copy, and the node run where it was copied from.
    config.data_dir = std::path::absolute(dir).map_err(failed)?;
    if config.durability == DurabilityMode::Memory {
        let what = format!("data directory {}", dir.display());
        let why = "its log was kept in memory only, and is gone with its node";
        return Err(Failure::new(what, why, "run with --durability fsync to be able to replay"));
    }
    Ok(config)
}

impl Session<'_> {
    fn introduce(&self, config: &NodeConfig) {
        let (stored, dir) = (&self.stored, self.args.dir.display());
        println!(
            "{dir}: {}, replica {} of {}, entries {} to {}, digests at {} of them",
            config.server.program,
            config.id,
            config.peers.len(),
            stored.first,
            stored.last,
            stored.rounds().len()
        );
        if let Some(torn) = &stored.torn {
            println!(
                "{}: torn at byte {}: later bytes were never acknowledged and are left out; entry {} is the last whole one",
                torn.file, torn.offset, stored.last
            );
        }
        if stored.commit < stored.last {
            let (from, to) = (stored.commit.next(), stored.last);
            let which =
                if from == to { format!("entry {to}") } else { format!("entries {from} to {to}") };
            println!("{which}: this log does not say that it was committed");
        }
    }

    /// Runs to the stopping place; answers the exit code.
    fn go(&mut self, run: &mut Replay) -> Result<u8, Failure> {
        let came = self.proceed(run)?;
        match came {
            Came::Stands if self.args.at.is_some() => self.stands(run),
            other => self.conclude(run, other),
        }
    }

    fn proceed(&mut self, run: &mut Replay) -> Result<Came, Failure> {
        let (output, interrupted) = (&mut self.output, &self.interrupted);
        let came = run.go(|_| {
            output.pump();
            !interrupted.load(Ordering::Relaxed)
        });
        output.pump();
        came.map_err(failed)
    }

    /// It stands before the named entry.
    fn stands(&mut self, run: &mut Replay) -> Result<u8, Failure> {
        let place = run.place();
        let next = run.next_entry().map_err(failed)?;
        describe(&place, &self.stored);
        let next = match next {
            Some((index, what)) => format!("entry {index}: {what}"),
            None => "nothing: the log ends here".into(),
        };
        println!("next    {next}");
        let Some(memory) = run.memory() else { return Err(failed("the server has no memory")) };
        for process in memory::below(memory.init).map_err(failed)? {
            let turn = if process.pid == place.carrier { ", the next entry is for it" } else { "" };
            println!(
                "process {} (here {}{turn}): {}",
                process.pid, process.host_pid, process.command
            );
        }
        let threads = memory::threads::list(&memory).map_err(failed)?;
        for thread in threads.iter().take(LISTED) {
            let memory::threads::Thread { number, pid, name, state, .. } = thread;
            println!("thread  {number} of process {pid} ({name}): {state}");
        }
        if threads.len() > LISTED {
            println!("thread  and {} more", threads.len() - LISTED);
        }
        if self.args.gdb {
            return gdb::attach(self, run, &memory);
        }
        Ok(0)
    }

    fn conclude(&self, run: &Replay, came: Came) -> Result<u8, Failure> {
        let place = run.place();
        let after_start = self.stored.rounds().iter().filter(|round| round.index > run.after);
        let (entry, all) = (place.entry, after_start.count());
        let digests = format!("{} of {all} digests compared, all equal", place.equal);
        match came {
            Came::Stands if place.equal < all => {
                let why =
                    format!("{} of the log's {all} digests cannot be compared", all - place.equal);
                Err(failed(why))
            }
            Came::Stands => {
                println!("end     entry {entry}, the last one: {digests}");
                Ok(0)
            }
            Came::Ended(status) => self.ended(run, status, &digests),
            Came::Differs(mismatch) => {
                println!("differs {}", difference(&mismatch));
                Ok(EXIT_DIFFERS)
            }
            Came::HostFile(text) => Err(failed(text)),
            Came::Stopped => {
                let doing = if place.runs { "it computes" } else { "it waits" };
                let why = format!("interrupted after entry {entry}, where {doing}");
                Err(Failure::new("replay", why, "").with_code(EXIT_INTERRUPTED))
            }
        }
    }

    /// The server ended by itself.
    fn ended(&self, run: &Replay, status: i32, digests: &str) -> Result<u8, Failure> {
        let entry = run.place().entry;
        let what = self.stored.describe(entry).map_err(failed)?;
        println!("ended   in entry {entry} ({what}): the server {}", how(status));
        if let Some(text) = run.fatal() {
            println!("ended   the runtime says: {text}");
        }
        println!("look    skein replay {} --at {entry} --gdb", self.args.dir.display());
        if let Some(round) = run.others_went_on() {
            println!(
                "differs the replicas' servers lived on: the log has their digest at entry {}",
                round.index
            );
            return Ok(EXIT_DIFFERS);
        }
        let more = self.stored.count_from(entry.next()).map_err(failed)?;
        let rest = match more {
            0 => "the last entry".to_owned(),
            1 => "1 more entry follows, that no replica is known to have executed".to_owned(),
            n => format!("{n} more entries follow, that no replica is known to have executed"),
        };
        println!("end     {rest}: {digests}");
        Ok(0)
    }
}

/// The state of a standing server.
fn describe(place: &Place, stored: &Stored) {
    let Place { entry, clock, operations, now_ns, equal, .. } = place;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(*now_ns);
    println!(
        "stands  after entry {entry} of {}: {clock} turns, {operations} operations, its time {}, {equal} digests equal",
        stored.last,
        humantime::format_rfc3339_micros(time)
    );
}

fn difference(mismatch: &Mismatch) -> String {
    let Mismatch { round, own } = mismatch;
    let answers: Vec<String> = round
        .answers
        .iter()
        .map(|answer| format!("{:016x} on replica {}", answer.digest, answer.replica))
        .collect();
    format!(
        "after entry {}: this run's digest is {own:016x}, the log has {}",
        round.index,
        answers.join(", ")
    )
}
