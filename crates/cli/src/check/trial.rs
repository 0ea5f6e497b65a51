//! The two runs: starts the program, drives it, lets it come to rest, and runs it again from the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skein_node::check::first::{FirstEnd, FirstRun, alone};
use skein_node::check::otherwise::other_answers;
use skein_node::check::second::{Former, Replayed, replay};
use skein_node::check::seen::Use;
use skein_node::check::{Difference, Kind, Seen, files};
use skein_node::config::{
    CheckpointConfig, DurabilityMode, LogFiles, Mode as NodeMode, NodeConfig, OnExit, Publish,
    Publisher, ServerConfig, Tuning,
};
use skein_node::trace::{TraceFile, Watch};
use skein_node::{ExitReason, NodeError};
use skein_replica::ReplicaError;
use std::net::SocketAddr;

use super::capture::Capture;
use super::cpu;
use super::drive::{Drive, DriveEnd};
use crate::args::CheckArgs;
use crate::operations::{self, Operations};

/// How often a run is polled: 10 ms.
const LOOK: Duration = Duration::from_millis(10);
/// A server that is at rest this long, waits for no timer and has no listener will not listen: 500 ms.
const ASLEEP: Duration = Duration::from_millis(500);
/// Time for the effects of the client command's end: 200 ms.
const AFTERMATH: Duration = Duration::from_millis(200);
/// How long a server may take to come to rest at the end: 3 s.
const SETTLE: Duration = Duration::from_secs(3);
/// The longest time that a client command may outlive its server: 3 s.
const OUTLIVE: Duration = Duration::from_secs(3);

/// How long a program may take to its first call, which a busy machine makes late: 10 s.
const FIRST_CALL: Duration = Duration::from_secs(10);
/// The shortest time without a call that tells that a program computes, and not that the machine is busy: 5 s.
const COMPUTES: Duration = Duration::from_secs(5);

/// Operations a turn in the run that tells whether answers depend on the schedule: few, and no divisor of the usual number.
const OTHER_QUANTUM: u32 = 3;

/// The reason why the first run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// All work was done.
    Through,
    /// The program ended by itself.
    Ended,
    /// It did not listen, although there is a client command: on this port, if the user named one.
    Silent(Option<u16>),
    /// A thread computes without any operation: the node's message about it.
    Spinning(String),
}

/// Measurements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub took: Duration,
    pub operations: u64,
    pub server_cpu: Duration,
    /// CPU time of the node's own code.
    pub node_user: Duration,
    /// CPU time of the kernel for the node: mostly the clients' sockets.
    pub node_system: Duration,
}

/// Everything about the two runs.
pub struct Trial {
    pub came: Came,
    pub seen: Seen,
    /// The listening sockets, and where they were published.
    pub listened: Vec<(String, Option<SocketAddr>)>,
    pub status: Option<i32>,
    pub drive: Option<DriveEnd>,
    pub window: Window,
    pub notes: Vec<String>,
    pub printed: Capture,
    pub tuning: Tuning,
    /// The second run, if the first one was useful.
    pub second: Option<Replayed>,
    pub second_took: Duration,
    /// The number of compared files.
    pub files: Option<u64>,
    pub difference: Option<Difference>,
    /// The operations of both runs, if these were compared.
    pub operations: Option<Operations>,
    /// The number of connections with other answers on another schedule; `None` if not tried, or not comparable.
    pub other_answers: Option<u64>,
}

/// Other ends of a trial.
pub enum Fault {
    /// The program cannot be run, or it broke its arena.
    Program(String),
    /// A problem of this machine.
    Node(NodeError),
    /// Ctrl-C.
    Interrupted,
}

impl From<NodeError> for Fault {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Program(error) => Self::Program(error.to_string()),
            NodeError::Replica(ReplicaError::KeepsEnding { how, .. }) => Self::Program(format!(
                "it damaged the memory that it shares with its node, or {how}"
            )),
            error => Self::Node(error),
        }
    }
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Fault {
    move |error| Fault::Node(NodeError::System { what, error })
}

/// The constants of a check.
pub struct Bench<'a> {
    pub args: &'a CheckArgs,
    pub server: ServerConfig,
    pub interrupted: Arc<AtomicBool>,
}

impl Bench<'_> {
    fn config(&self, output: &Path) -> NodeConfig {
        alone(NodeConfig {
            mode: NodeMode::Order,
            name: "check".into(),
            id: 1,
            peers: Vec::new(),
            listen: None,
            key_file: None,
            trust_network: false,
            cluster_id: None,
            data_dir: "/".into(),
            durability: DurabilityMode::Memory,
            publisher: self.publisher(),
            outgoing: crate::run::setup::outgoing(&self.args.outgoing),
            server: ServerConfig { output: Some(output.into()), ..self.server.clone() },
            on_exit: OnExit::Stop,
            admin_socket: None,
            metrics: None,
            log_file: None,
            checkpoint: CheckpointConfig::default(),
            logs: LogFiles::default(),
            tuning: Tuning::default(),
            corrupt_digest_at: None,
        })
    }

    /// The address for clients: the user's choice, or any free port.
    fn publisher(&self) -> Publisher {
        let publish: Vec<Publish> = self.args.publish.iter().map(|one| (*one).into()).collect();
        if publish.is_empty() { Publisher::Anywhere } else { Publisher::Bind { publish } }
    }

    fn go_on(&self) -> Result<(), Fault> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Fault::Interrupted),
            false => Ok(()),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.args.timeout)
    }

    /// Both runs.
    pub fn run(&self) -> Result<Trial, Fault> {
        let mut printed = Capture::new(self.args.verbose).map_err(io("make a memory file"))?;
        let config = self.config(&printed.path());
        let trace = self.args.operations.then(operations::room).transpose()?;
        let watch = trace.as_ref().map(|trace| Watch::new(trace, None));
        let launcher = operations::launcher(&config, watch.as_ref())?;
        let first = FirstRun::start(config.clone(), launcher)?;
        let mut attempt = Attempt::new(self, first, &mut printed);
        let came = attempt.come_up()?;
        let came = match came {
            Came::Through => attempt.work()?,
            other => other,
        };
        let Attempt { first, listened, drive, window, notes, .. } = attempt;
        let FirstEnd { reason, seen, recording } = first.finish()?;
        printed.pump();
        let status = match reason {
            ExitReason::ServerEnded { status, .. } => Some(status),
            ExitReason::Stopped | ExitReason::Removed => None,
        };
        let mut trial = Trial {
            came,
            seen,
            listened,
            status,
            drive,
            window,
            notes,
            printed,
            tuning: config.tuning,
            second: None,
            second_took: Duration::ZERO,
            files: None,
            difference: None,
            operations: None,
            other_answers: None,
        };
        if !matches!(trial.came, Came::Spinning(_)) && trial.seen.fatal.is_none() {
            self.again(&mut trial, &recording, trace.as_ref())?;
        }
        Ok(trial)
    }

    fn again(
        &self,
        trial: &mut Trial,
        recording: &skein_node::check::Recording,
        first_trace: Option<&TraceFile>,
    ) -> Result<(), Fault> {
        let mut printed = Capture::new(false).map_err(io("make a memory file"))?;
        let config = self.config(&printed.path());
        let second_trace = first_trace.map(|_| operations::room()).transpose()?;
        let mut watch = second_trace.as_ref().map(|trace| Watch::new(trace, first_trace));
        let launcher = operations::launcher(&config, watch.as_ref())?;
        let complete = trial.seen.rests || trial.status.is_some();
        let former = Former { complete, status: trial.status };
        let began = Instant::now();
        let mut last = (0, Instant::now());
        let pinned = Pinned::to_last_processor();
        let second = replay(&config, launcher, recording, former, |seen| {
            printed.pump();
            // Unreadable files are reported after all others were read.
            let _ = watch.as_mut().map(Watch::look);
            let progress = seen.operations + seen.admitted.0;
            if progress != last.0 {
                last = (progress, Instant::now());
            }
            let stuck = last.1.elapsed() > self.timeout();
            let too_long = began.elapsed() > 10 * self.timeout();
            !stuck && !too_long && !self.interrupted.load(Ordering::Relaxed)
        });
        drop(pinned);
        self.go_on()?;
        let second = second?;
        printed.pump();
        trial.second_took = began.elapsed();
        trial.difference = second.difference.clone();
        let whole = complete && second.whole;
        if trial.difference.is_none()
            && let Some((first, second)) = trial.printed.difference(&printed, whole)
        {
            let index = skein_node::check::NOWHERE;
            trial.difference =
                Some(Difference { kind: Kind::Printed, index, connection: None, first, second });
        }
        if trial.difference.is_none()
            && whole
            && let Some((count, difference)) = files::compare(&trial.seen, &second.seen)?
        {
            trial.files = Some(count);
            trial.difference = difference;
        }
        if let (Some(first), Some(watch)) = (first_trace, &watch) {
            let whole = complete && second.whole;
            let runs = operations::Runs { first, watch, whole, complete };
            let found = runs.compare(|watch, number| -> Result<_, Fault> {
                let launcher = operations::launcher(&config, Some(&*watch))?;
                let began = Instant::now();
                let run = replay(&config, launcher, recording, former, |_| {
                    printed.pump();
                    let looked = watch.look().unwrap_or(true);
                    let in_time = began.elapsed() < trial.second_took + self.timeout();
                    !looked && in_time && !self.interrupted.load(Ordering::Relaxed)
                });
                self.go_on()?;
                // A failure of this run tells nothing about the two that are compared.
                let seen = run.is_ok().then(|| watch.seen.take()).flatten();
                Ok(seen.filter(|seen| seen.number == number))
            })?;
            trial.difference = trial.difference.take().or_else(|| found.as_difference());
            trial.operations = Some(found);
        }
        let used = |kind| trial.seen.used(kind) > 0;
        let concurrent = used(Use::Threads) || used(Use::Processes);
        if trial.difference.is_none() && second.whole && trial.drive.is_some() && concurrent {
            let began = Instant::now();
            let launcher = operations::launcher(&config, None)?;
            trial.other_answers =
                other_answers(&config, launcher, recording, OTHER_QUANTUM, || {
                    printed.pump();
                    began.elapsed() < self.timeout() && !self.interrupted.load(Ordering::Relaxed)
                })?;
            self.go_on()?;
        }
        trial.second = Some(second);
        Ok(())
    }
}

/// The running first run.
struct Attempt<'a> {
    bench: &'a Bench<'a>,
    first: FirstRun,
    printed: &'a mut Capture,
    began: Instant,
    /// The time of its first call.
    calls_since: Instant,
    places: Vec<(u16, SocketAddr)>,
    listened: Vec<(String, Option<SocketAddr>)>,
    drive: Option<DriveEnd>,
    window: Window,
    notes: Vec<String>,
    /// The time of its last operation.
    moved: (u64, Instant),
}

impl<'a> Attempt<'a> {
    fn new(bench: &'a Bench<'a>, first: FirstRun, printed: &'a mut Capture) -> Self {
        Self {
            bench,
            first,
            printed,
            began: Instant::now(),
            calls_since: Instant::now(),
            places: Vec::new(),
            listened: Vec::new(),
            drive: None,
            window: Window::default(),
            notes: Vec::new(),
            moved: (0, Instant::now()),
        }
    }

    /// Polls it once; `Some` when there is nothing more to wait for.
    fn look(&mut self) -> Result<(Seen, Option<Came>), Fault> {
        std::thread::sleep(LOOK);
        self.bench.go_on()?;
        self.printed.pump();
        let ended = self.first.ended();
        let seen = self.first.seen();
        if ended {
            return Ok((seen, Some(Came::Ended)));
        }
        if seen.operations != self.moved.0 || !seen.runs {
            self.moved = (seen.operations, Instant::now());
        }
        // The node looks for threads that spin while others wait. A thread that computes alone may be working.
        let still = self.moved.1.elapsed();
        if still > Duration::from_millis(1500) {
            let notes = self.first.status().map(|status| status.notes).unwrap_or_default();
            if let Some(note) = notes.into_iter().find(|note| note.contains(" spins at ")) {
                return Ok((seen, Some(Came::Spinning(note))));
            }
            if still > self.bench.timeout().max(COMPUTES) {
                return Ok((seen, Some(self.still())));
            }
        }
        Ok((seen, None))
    }

    /// How long it has had to listen: since its first call, or since it should have made one.
    fn age(&mut self, seen: &Seen) -> Duration {
        if seen.operations == 0 && self.began.elapsed() < FIRST_CALL {
            self.calls_since = Instant::now();
        }
        self.calls_since.elapsed()
    }

    /// It runs and does no operation.
    fn still(&self) -> Came {
        let seconds = self.moved.1.elapsed().as_secs();
        Came::Spinning(format!(
            "it computes, or waits in the kernel, for {seconds} s without a call"
        ))
    }

    /// Waits until it listens, or until it cannot any more.
    fn come_up(&mut self) -> Result<Came, Fault> {
        let observe = Duration::from_secs(self.bench.args.observe);
        let driven = self.bench.args.drive.is_some();
        let mut asleep_since = None;
        let mut listens_since = None;
        loop {
            let (seen, came) = self.look()?;
            if let Some(came) = came {
                return Ok(came);
            }
            // A program that is never at rest is used all the same, a little later.
            let awaited = awaited(self.bench.args, &seen);
            let listens_since = matches!(awaited, Awaited::Nothing)
                .then(|| *listens_since.get_or_insert_with(Instant::now));
            if listens_since.is_some_and(|since| seen.rests || since.elapsed() > 2 * ASLEEP) {
                self.note_places(&seen);
                if !self.places.is_empty() {
                    self.first_named_first();
                    return Ok(Came::Through);
                }
            }
            asleep_since = seen.asleep.then(|| asleep_since.unwrap_or_else(Instant::now));
            let asleep = asleep_since.is_some_and(|since| since.elapsed() > ASLEEP);
            let age = self.age(&seen);
            let still = self.moved.1.elapsed();
            if age > self.bench.timeout() && seen.runs && still > age / 2 {
                if still > COMPUTES {
                    return Ok(self.still());
                }
                continue;
            }
            match driven {
                true if asleep || age > self.bench.timeout() => {
                    self.note_places(&seen);
                    return Ok(Came::Silent(match awaited {
                        Awaited::Port(port) => Some(port),
                        Awaited::AnyPort | Awaited::Nothing => None,
                    }));
                }
                // Without a client it is only watched; a program that is still starting gets more time.
                false if age > observe && (seen.rests || age > self.bench.timeout()) => {
                    return Ok(Came::Through);
                }
                _ => {}
            }
        }
    }

    fn note_places(&mut self, seen: &Seen) {
        let published = self.first.places();
        for addr in &seen.listening {
            let at = published.iter().find(|(port, _)| *port == addr.port).map(|(_, at)| *at);
            let text = skein_node::check::seen::address(addr);
            match self.listened.iter_mut().find(|(other, _)| *other == text) {
                Some((_, place)) => *place = place.or(at),
                None => self.listened.push((text, at)),
            }
            if let Some(at) = at
                && self.places.iter().all(|(port, _)| *port != addr.port)
            {
                self.places.push((addr.port, at));
            }
        }
    }

    /// Puts the named places into the user's order.
    fn first_named_first(&mut self) {
        let named = &self.bench.args.publish;
        self.places.sort_by_key(|(port, _)| named.iter().position(|one| one.names_tcp(*port)));
    }

    /// Lets clients work on it, or watches it; measures meanwhile.
    fn work(&mut self) -> Result<Came, Fault> {
        let before = self.measure();
        let began = Instant::now();
        let came = match &self.bench.args.drive {
            Some(command) => self.drive(command)?,
            None => self.watch()?,
        };
        let after = self.measure();
        self.window = Window {
            took: began.elapsed(),
            operations: after.0.saturating_sub(before.0),
            server_cpu: after.1.saturating_sub(before.1),
            node_user: after.2.0.saturating_sub(before.2.0),
            node_system: after.2.1.saturating_sub(before.2.1),
        };
        if came != Came::Through {
            return Ok(came);
        }
        self.settle(began)
    }

    fn measure(&self) -> (u64, Duration, (Duration, Duration)) {
        let pid = self.first.status().map_or(0, |status| status.replica.server_pid);
        let server = if pid == 0 { None } else { cpu::of_sandbox(pid) };
        (self.first.seen().operations, server.unwrap_or_default(), cpu::own())
    }

    fn watch(&mut self) -> Result<Came, Fault> {
        let until = Instant::now() + Duration::from_secs(self.bench.args.observe);
        while Instant::now() < until {
            if let (_, Some(came)) = self.look()? {
                return Ok(came);
            }
        }
        Ok(Came::Through)
    }

    fn drive(&mut self, command: &str) -> Result<Came, Fault> {
        let mut drive = Drive::start(command, &self.places, self.bench.args.verbose)
            .map_err(io("start the client command"))?;
        let mut came = Came::Through;
        let mut server_ended = None;
        while !drive.ended() && drive.age() < self.bench.timeout() {
            if let (_, Some(how)) = self.look()? {
                came = how;
                let since: Instant = *server_ended.get_or_insert_with(Instant::now);
                if since.elapsed() > OUTLIVE {
                    break;
                }
            }
        }
        self.drive = Some(drive.finish());
        Ok(came)
    }

    /// Waits for the effects of the last input, then until the server has executed all its entries.
    fn settle(&mut self, began: Instant) -> Result<Came, Fault> {
        let ready = Instant::now() + AFTERMATH;
        let limit = Instant::now() + SETTLE;
        loop {
            let (seen, came) = self.look()?;
            if let Some(came) = came {
                return Ok(came);
            }
            let now = Instant::now();
            if (now > ready && self.first.stands()) || now > limit {
                self.note_places(&seen);
                self.notes = self.first.status().map(|status| status.notes).unwrap_or_default();
                debug_assert!(began <= now);
                return Ok(Came::Through);
            }
        }
    }
}

/// The ports that a program must still listen on before a client is started: the named one, if the user named one.
enum Awaited {
    Nothing,
    AnyPort,
    Port(u16),
}

fn awaited(args: &CheckArgs, seen: &Seen) -> Awaited {
    let listens = |port: u16| seen.listening.iter().any(|addr| addr.port == port);
    let named = || args.publish.iter().filter(|one| !one.udp).map(|one| one.server_port);
    match named().find(|port| !listens(*port)) {
        Some(port) => Awaited::Port(port),
        None if seen.listening.is_empty() => Awaited::AnyPort,
        None => Awaited::Nothing,
    }
}

/// Lets processes started from this thread run on one processor only, until it is dropped.
struct Pinned(libc::cpu_set_t);

impl Pinned {
    /// The last processor that this process may use: the first run was seldom there.
    fn to_last_processor() -> Option<Self> {
        // SAFETY: all-zero is an empty set; the kernel writes within its size.
        unsafe {
            let mut all: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of_val(&all), &raw mut all) != 0 {
                return None;
            }
            let last =
                (0..libc::CPU_SETSIZE as usize).rev().find(|cpu| libc::CPU_ISSET(*cpu, &all))?;
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(last, &mut one);
            (libc::sched_setaffinity(0, size_of_val(&one), &raw const one) == 0)
                .then_some(Self(all))
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the set that this thread had before.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) };
    }
}
