//! `skein run`: a whole cluster on this machine, from one command.
//!
//! Owns the node processes ([`children`]), the published listening sockets ([`crate::publish`]), the cluster's name and
//! data directory ([`setup`]), and reports to the user ([`watch`] decides on events, [`voice`] prints them).
//!
//! Threads: the main thread starts and reaps nodes and decides everything; one thread for signals, one for publishing
//! (and one a connected node), one a node asking for its status. They only send events to the main thread.
//!
//! Crash: the kernel kills the nodes (see [`children`]), and their servers with them; logs and data directory are as
//! after a power failure, which they are made for. The lock on the name goes with the process.

mod children;
pub use children::STOP_LIMIT;
mod detach;
pub mod poll;
mod settings;
pub mod setup;
mod voice;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use skein_node::NodeStatus;
use skein_replica::majority;

use crate::args::{Durability, RunArgs, YesNo};
use crate::cluster::Found;
use crate::end::End;
use crate::failure::{EXIT_SKEIN, EXIT_USAGE, Failure};
use crate::publish::{self, Published, Sockets};
use children::{Children, Ended};
use poll::Pollers;
use setup::Setup;
use voice::Voice;
use watch::{Act, Pace, Watch};

/// How often silent nodes are looked for when nothing else happens.
const TICK: Duration = Duration::from_millis(200);
/// The longest time of a node to report its state before the cluster is given up.
const JUDGE_LIMIT: Duration = Duration::from_millis(500);
/// An event for the main thread.
enum Event {
    Signal(i32),
    Status(u64, Box<NodeStatus>),
    /// This node did not answer what it was asked then.
    Unanswered(u64, Instant),
    Published(Published),
}

/// Runs the cluster; answers the exit code. The first `named` of the `words` name this program and its task.
pub fn run(args: &RunArgs, words: &[OsString], named: usize) -> u8 {
    if args.detach && args.report_fd.is_none() {
        return detach::start(words, named).unwrap_or_else(|failure| {
            eprintln!("{failure}");
            EXIT_SKEIN
        });
    }
    let pipe = match args.report_fd.map(detach::report_pipe).transpose() {
        Ok(pipe) => pipe,
        Err(failure) => {
            eprintln!("{failure}");
            return EXIT_SKEIN;
        }
    };
    let mut voice = Voice::new(pipe);
    let code = match prepare(args, &mut voice).and_then(|run| run.go(&mut voice)) {
        Ok(code) => code,
        Err(failure) => {
            voice.say(&failure.to_string());
            failure.code.unwrap_or(EXIT_SKEIN)
        }
    };
    voice.release(code);
    code
}

struct Run {
    setup: Setup,
    restart: bool,
    /// The log is in memory only.
    memory: bool,
    children: Children,
    sockets: Arc<Sockets>,
    watch: Watch,
    pollers: Pollers,
    events: Receiver<Event>,
    since: Instant,
    ready: bool,
    /// Nodes that failed before the cluster was ready and have not been well since, with their lines.
    failed: BTreeMap<u64, (String, u8)>,
    /// The last failure of each node, so that a repeated failure is told once.
    told: BTreeMap<u64, String>,
}

/// The reason why the main loop ends.
enum Finish {
    /// A signal.
    Asked,
    /// The server ended.
    Server(u8),
    /// An error that ends the cluster.
    Failed(Failure),
}

fn internal(error: std::io::Error) -> Failure {
    Failure::new("start", error, "see 'ulimit -a' for limits of this user")
}

fn prepare(args: &RunArgs, voice: &mut Voice) -> Result<Run, Failure> {
    let since = Instant::now();
    let (tx, events) = mpsc::channel();
    // Installed before anything exists that a signal would leave behind.
    listen_to_signals(tx.clone()).map_err(internal)?;
    let sockets = Arc::new(Sockets::new(&args.publish)?);
    let setup = setup::prepare(args)?;
    voice.log_to(&setup.data.path.join("run.log")).map_err(|error| {
        Failure::new(format!("data directory {}", setup.data.path.display()), error, "make room")
    })?;
    announce(args, &setup, voice);
    let tell = tx.clone();
    publish::serve(&setup.publish, Arc::clone(&sockets), move |event| {
        // The main thread is gone only when the process ends.
        let _ = tell.send(Event::Published(event));
    })
    .map_err(internal)?;
    let nodes = setup.state.nodes.iter().map(|node| (node.id, node.admin.clone())).collect();
    let pollers = Pollers::start(nodes, move |id, answer| {
        let _ = tx.send(match answer {
            Ok(status) => Event::Status(id, Box::new(status)),
            Err(asked) => Event::Unanswered(id, asked),
        });
    })
    .map_err(internal)?;
    Ok(Run {
        restart: args.restart == YesNo::Yes,
        memory: args.durability == Durability::Memory,
        children: Children::new(setup.plans.clone()).map_err(internal)?,
        watch: Watch::new(setup.plans.iter().map(|plan| plan.id)),
        sockets,
        pollers,
        events,
        since,
        ready: false,
        failed: BTreeMap::new(),
        told: BTreeMap::new(),
        setup,
    })
}

fn listen_to_signals(tx: Sender<Event>) -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let _ = tx.send(Event::Signal(signal));
        }
    })?;
    Ok(())
}

fn announce(args: &RunArgs, setup: &Setup, voice: &mut Voice) {
    let count = args.replicas;
    let durability = format!("{:?}", args.durability).to_lowercase();
    let found = match setup.found {
        Found::New => "",
        Found::Continued => ", continues from its log",
        Found::Emptied => ", starts empty: its log was in memory",
        Found::Discarded => ", starts anew: no client was answered from its log",
    };
    let replicas = if count == 1 { "1 replica".into() } else { format!("{count} replicas") };
    voice.say(&format!(
        "skein: {}: starting {replicas} of {} (mode {}, durability {durability}, data {}{found})",
        setup.name,
        setup.program,
        setup.state.mode,
        setup.data.path.display()
    ));
    if let Some((server, users)) = &setup.elsewhere {
        voice.say(&format!(
            "skein: {}: {} is {}; your shell's is {}: give that path, or --env PATH=..., to run it",
            setup.name,
            setup.program,
            server.display(),
            users.display()
        ));
    }
    if let Some(commands) = &setup.upgraded {
        voice.say(&format!(
            "skein: {}: its command is '{}'{}, whatever is named here",
            setup.name,
            commands.current.line(),
            commands.since()
        ));
    }
    if count.is_multiple_of(2) {
        let loss = count - majority(count as usize) as u64;
        voice.say(&format!(
            "skein: {}: {count} replicas survive the loss of {loss}, no more than {} would; odd numbers cost less",
            setup.name,
            count - 1
        ));
    }
    if skein_node::config::unsafe_admission(&args.env) {
        voice.say(&format!(
            "skein: {}: entries are admitted as they arrive: replicas will differ and nothing is compared; this is only for the experiment that shows the need for agreed points",
            setup.name
        ));
    }
}

impl Run {
    fn say(&self, voice: &mut Voice, text: &str) {
        voice.say(&format!("skein: {}: {text}", self.setup.name));
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    fn go(mut self, voice: &mut Voice) -> Result<u8, Failure> {
        let finish = loop {
            if let Some(finish) = self.step(voice) {
                break finish;
            }
        };
        if matches!(finish, Finish::Asked) {
            self.say(voice, "stopping");
        }
        self.sockets.close();
        let Self { events, children, watch, .. } = &mut self;
        let late = children.stop(watch.leader(), || {
            // Another Ctrl-C while stopping: the user does not want to wait.
            events.try_iter().any(|event| matches!(event, Event::Signal(SIGINT | SIGTERM)))
        });
        for id in late {
            self.say(voice, &format!("node {id} had not stopped yet and was killed"));
        }
        match finish {
            Finish::Asked => {
                self.say(voice, "stopped");
                Ok(0)
            }
            Finish::Server(code) => Ok(code),
            Finish::Failed(failure) => Err(failure),
        }
    }

    /// Waits for an event and handles it.
    fn step(&mut self, voice: &mut Voice) -> Option<Finish> {
        if let Some(finish) = self.start_nodes(voice) {
            return Some(finish);
        }
        let due = self.children.next_due().map(|at| at.saturating_duration_since(Instant::now()));
        let event = self.events.recv_timeout(due.unwrap_or(TICK).min(TICK));
        let acts = match event {
            Ok(Event::Signal(SIGCHLD)) => return self.reap(voice),
            Ok(Event::Signal(_)) => return Some(Finish::Asked),
            Ok(Event::Status(id, status)) => {
                if status.replica.state.is_well() && self.children.running().contains(&id) {
                    self.failed.remove(&id);
                }
                self.watch.answered(self.now(), id, *status)
            }
            Ok(Event::Unanswered(id, asked)) => {
                self.watch.unanswered(asked.saturating_duration_since(self.since), id);
                Vec::new()
            }
            Ok(Event::Published(event)) => return self.published(voice, event),
            Err(_) => Vec::new(),
        };
        let failed = self.act(voice, acts);
        let acts = self.watch.tick(self.now(), self.restart);
        let failed = failed.or(self.act(voice, acts));
        self.pollers.set_pace(self.watch.pace());
        failed
    }

    fn start_nodes(&mut self, voice: &mut Voice) -> Option<Finish> {
        for (id, result) in self.children.start_due(Instant::now()) {
            match result {
                Ok(()) => {
                    let now = self.now();
                    self.watch.started(now, id);
                }
                Err(error) if self.ready => {
                    self.say(voice, &format!("node {id} cannot be started: {error}"));
                }
                Err(error) => {
                    let fix = "see 'ulimit -u' and free memory";
                    return Some(Finish::Failed(Failure::new(format!("node {id}"), error, fix)));
                }
            }
        }
        None
    }

    fn act(&mut self, voice: &mut Voice, acts: Vec<Act>) -> Option<Finish> {
        for act in acts {
            match act {
                Act::Say(text) => self.say(voice, &text),
                Act::Kill(id) => self.children.signal(id, Signal::SIGKILL),
                Act::Ready(how) => {
                    self.ready = true;
                    let time = self.now().as_secs_f64();
                    self.say(voice, &format!("{how} ({time:.1} s)"));
                    voice.release(0);
                }
                Act::Fail(what, why, fix) => {
                    let failure = Failure::new(what, why, fix).with_code(EXIT_USAGE);
                    return Some(Finish::Failed(failure));
                }
            }
        }
        None
    }

    fn published(&mut self, voice: &mut Voice, event: Published) -> Option<Finish> {
        match event {
            Published::New { address, server_port, udp } => {
                let kind = if udp { "UDP port" } else { "port" };
                self.say(
                    voice,
                    &format!("the server's {kind} {server_port} is published at {address}"),
                );
                None
            }
            Published::Unnamed { server_port, fix } => {
                self.watch.unnamed(server_port, fix);
                None
            }
            Published::Failed(failure) if self.ready => {
                voice.say(&failure.to_string());
                None
            }
            Published::Failed(failure) => Some(Finish::Failed(failure)),
        }
    }

    /// Whether a majority's memory is lost according to the living nodes: a node that has caught up since the last question counts.
    fn still_lost(&mut self, voice: &mut Voice) -> bool {
        for id in self.watch.not_in_step() {
            let files = self.setup.state.nodes.iter().find(|node| node.id == id);
            let status = files.and_then(|node| poll::status(&node.admin, JUDGE_LIMIT));
            if let Some(status) = status {
                let now = self.now();
                let acts = self.watch.answered(now, id, status);
                // It was ready before.
                let _ = self.act(voice, acts);
            }
        }
        self.watch.lost_majority()
    }

    fn reap(&mut self, voice: &mut Voice) -> Option<Finish> {
        for Ended { id, end, how } in self.children.reap() {
            let now = self.now();
            self.watch.died(now, id);
            self.pollers.set_pace(Pace::Hurry);
            match end {
                Some(End::Server { code, how }) => {
                    self.say(voice, &format!("{} ended: {how}", self.setup.program));
                    if code != 0 {
                        let output = self.setup.data.node(id).join("server.log");
                        self.say(voice, &format!("its output is in {}", output.display()));
                    }
                    if !self.ready && self.setup.found == Found::Continued {
                        self.say(
                            voice,
                            "its log, from which it went on, leads there; remove the data directory or \
                             choose another --data DIR to start anew",
                        );
                    }
                    return Some(Finish::Server(code));
                }
                Some(End::Failed { line, code }) => {
                    if let Some(finish) = self.node_failed(voice, id, line, code) {
                        return Some(finish);
                    }
                }
                Some(End::Stopped) => self.say(voice, &format!("node {id} was stopped")),
                // Its members do not change: another cluster has its place.
                Some(End::Removed { .. }) => {
                    self.say(voice, &format!("node {id} is no member of its cluster any more"));
                }
                None => self.say(voice, &format!("node {id} died ({how})")),
            }
            if self.memory && self.watch.lost_majority() && self.still_lost(voice) {
                if self.setup.plans.len() > 1 || !self.restart {
                    return Some(Finish::Failed(Failure::new(
                        "replicas",
                        "a majority died, and the data in their memory are lost",
                        "start it again, empty, or use --durability fsync",
                    )));
                }
                self.say(voice, "the data in its memory are lost: it starts empty");
            }
            if self.restart {
                self.children.again(id, Instant::now());
            } else if self.children.running().is_empty() {
                let fix = "see 'skein logs', or run it with --restart yes";
                return Some(Finish::Failed(Failure::new("nodes", "all have ended", fix)));
            }
        }
        None
    }

    /// A node ended with an error of its own. Before the cluster is ready a majority that fails ends it all.
    fn node_failed(
        &mut self,
        voice: &mut Voice,
        id: u64,
        line: String,
        code: u8,
    ) -> Option<Finish> {
        if !self.ready {
            self.failed.insert(id, (line.clone(), code));
            if self.failed.len() >= majority(self.setup.plans.len()) {
                let fix = format!("see {}", self.setup.data.node(id).join("node.log").display());
                return Some(Finish::Failed(
                    Failure::new(format!("node {id}"), line, fix).with_code(code),
                ));
            }
        }
        if self.told.get(&id) != Some(&line) {
            self.say(voice, &format!("node {id} failed: {line}"));
            self.told.insert(id, line);
        }
        None
    }
}
