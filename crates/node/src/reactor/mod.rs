//! A node's event loop: one latency-critical thread that drives a [`Replica`] on this machine.
//!
//! It waits for sockets, timers and other threads, reports events to the replica, and lets it take its turn. The replica's environment
//! is [`system::System`].
//!
//! Invariants: the loop never waits for a process or a peer, nor for a disk for long (`relief.rs`).
//!
//! Threads: other threads speak to it through [`Inbox`] and a waker.

mod claims;
mod clients;
mod datagrams;
mod forwarding;
mod images;
mod link;
mod old;
mod peers;
mod ports;
mod precopying;
mod publish;
mod relief;
mod sources;
mod system;
mod taking;

use crate::base::work::BaseWork;
use crate::begin::Answered;
use crate::config::{Kind, NodeConfig, unsafe_admission};
use crate::error::{ExitReason, NodeError};
use crate::forward::Forward;
use crate::images::Store;
use crate::key;
use crate::members;
use crate::relay::Asked;
use crate::server::Launcher;
use crate::server::cores::Cores;
use crate::timer::Timer;
use crate::transport;
use datagrams::Datagrams;
use forwarding::Forwarding;
use images::ImageWork;
use mio::{Token, Waker};
use old::OldReader;
use peers::Peers;
use ports::Ports;
use relief::Relief;
use skein_log::frame::Hello;
use skein_log::identity::Identity;
use skein_log::wal::thread::{Claim, WalThread};
use skein_log::wal::{WalError, WalReader};
use skein_log::{Consensus, Persist, Ticket};
use skein_model::LogIndex;
use skein_replica::config::Noted;
use skein_replica::metrics::Metrics;
use skein_replica::modes::Order;
use skein_replica::server::Link;
use skein_replica::{Inbox, Replica, ReplicaConfig, ReplicaError, replica};
use sources::{Happened, Sources};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use system::System;
use tokio::sync::mpsc::UnboundedSender;

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
/// The eventfd of the server's `n`th generation is `SERVER + n`.
const SERVER: usize = 1 << 33;
const PORTS: usize = 1 << 34;
const DATAGRAMS: usize = 1 << 35;
const PEERS: usize = 1 << 40;
/// Client tokens are the connection's number in its term: 32 bits, from 2 on by this offset.
const CLIENTS: usize = 2;

/// The end of a node.
type Outcome = Result<ExitReason, NodeError>;

/// The reason of the loop's pause.
enum Pause {
    /// This must be written before it continues.
    Write(Vec<Persist>, Claim),
    End(ExitReason),
}

/// The way for other threads to reach the reactor.
#[derive(Clone, Debug)]
pub struct Mailbox {
    sender: mpsc::Sender<Inbox>,
    waker: Arc<Waker>,
}

impl Mailbox {
    /// Sends a message; false when the reactor is gone.
    pub fn tell(&self, what: Inbox) -> bool {
        self.sender.send(what).is_ok() && self.waker.wake().is_ok()
    }
}

/// The parts of a node.
pub struct Parts {
    /// The configuration, checked.
    pub config: NodeConfig,
    /// Consensus, with what was recovered.
    pub consensus: Consensus,
    /// This node's hello.
    pub hello: Hello,
    /// The cluster.
    pub cluster: skein_log::ClusterId,
    /// Starts servers.
    pub launcher: Arc<dyn Launcher>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The directory of images; a run without one takes none.
    pub images: Option<Store>,
    /// The log on disk, and the reader of old entries for others.
    pub log: Option<Log>,
    /// What is on disk of a log in memory; it keeps the data directory's lock.
    pub identity: Option<Identity>,
    /// What a former life has noted of the members.
    pub noted: Noted,
}

/// A log on disk, of which the loop's thread has no part yet.
pub struct Log {
    /// The writer.
    pub wal: skein_log::wal::Wal,
    /// The reader of old entries for others.
    pub old: WalReader,
}

/// See the [module](self).
pub struct Reactor {
    replica: Replica<System>,
    timer: Timer,
    inbox: Receiver<Inbox>,
    /// The result of this thread's own write.
    written: Option<Result<Ticket, WalError>>,
}

impl Reactor {
    /// Makes a reactor and starts its server.
    ///
    /// # Errors
    /// A system resource is missing.
    pub fn new(parts: Parts) -> Result<Self, NodeError> {
        let Parts { config, consensus, hello, cluster, launcher, metrics, images, log, .. } = parts;
        let sources = Sources::new().map_err(NodeError::system("make an event loop"))?;
        let waker =
            Waker::new(sources.urgent(), WAKER).map_err(NodeError::system("make a waker"))?;
        let (sender, inbox) = mpsc::channel();
        let mailbox = Mailbox { sender, waker: Arc::new(waker) };
        let timer = Timer::new(sources.urgent(), TIMER)?;
        let address = config.listen_address().expect("a checked configuration lists this replica");
        let key = key::configured(&config)?;
        let listen = |error| NodeError::Listen { address: address.clone(), error };
        let listener = transport::listen(&address).map_err(listen)?;
        let base = launcher.base().filter(|_| images.is_some());
        let own = hello.replica;
        let mut peers = Peers::new(
            cluster,
            hello,
            key,
            config
                .peers
                .iter()
                .map(|peer| (skein_model::ReplicaId(peer.id), peer.address.clone()))
                .collect(),
            listener,
            PEERS,
            Duration::from_millis(config.tuning.election_timeout_ms),
        );
        peers.base = base.as_ref().map(|(base, _)| base.clone());
        peers.register(sources.urgent()).map_err(listen)?;
        let base = base.map(|(base, program)| BaseWork::start(base, program)).transpose();
        let base = base.map_err(NodeError::system("start a thread for the base"))?;
        let images = images.map(|store| ImageWork::new(store, mailbox.clone()));
        let mut env = System {
            sources,
            start: Instant::now(),
            mailbox,
            peers,
            heard: Vec::new(),
            ports: Ports::new(config.publisher.clone(), PORTS),
            datagrams: Datagrams::new(config.publisher.clone(), DATAGRAMS),
            forwarding: Forwarding::new(None),
            wal: None,
            old: None,
            data_dir: config.data_dir.clone(),
            images,
            base,
            forgetting: None,
            launcher,
            keeper: None,
            former: Vec::new(),
            answered: Answered::default(),
            identity: parts.identity,
            unmet: None,
            members: members::Notes::of(&config.data_dir),
            cores: Cores::default(),
        };
        if let Some(Log { wal, old }) = log {
            let mailbox = env.mailbox.clone();
            let durable = move |result| {
                // The reactor is gone when the node ends; written data stay written.
                let _ = mailbox.tell(Inbox::Durable(result));
            };
            let thread = WalThread::spawn(wal, durable)
                .map_err(NodeError::system("start the log's thread"))?;
            (env.wal, env.old) = (Some(thread), Some(OldReader::new(old)));
            env.answered = Answered::of(&config.data_dir);
        }
        let corrupt_at = config.corrupt_digest_at.map(LogIndex);
        // The others begin without one.
        let is_active = consensus.kind_of(own) == Kind::Active;
        let first = is_active.then(|| Link::new(config.tuning.sizes(), 1, corrupt_at));
        let server = first.transpose()?;
        let mode = Box::new(Order::new(&config.tuning, unsafe_admission(&config.server.env)));
        let config = ReplicaConfig { noted: parts.noted, ..config.replica() };
        let parts = replica::Parts { config, mode, consensus, env, server, metrics };
        let replica = Replica::new(parts)?;
        if let Some(base) = &replica.env.base {
            base.log_is_read();
        }
        Ok(Self { replica, timer, inbox, written: None })
    }

    /// The way for other threads to reach this reactor.
    #[must_use]
    pub fn mailbox(&self) -> Mailbox {
        self.replica.env.mailbox.clone()
    }

    /// Sets the channel to the thread that answers what other members ask the admin interface.
    pub fn attach_admin(&mut self, requests: UnboundedSender<Asked>) {
        self.replica.env.peers.admin = Some(requests);
    }

    /// Sets the channel to the thread that forwards clients to the leader.
    pub fn attach_forwarder(&mut self, forwarder: UnboundedSender<Forward>) {
        self.replica.env.forwarding = Forwarding::new(Some(forwarder));
    }

    /// Sets an observer of everything that passes between the node and its first server.
    pub fn attach_tap(&mut self, tap: Box<dyn skein_replica::server::tap::Tap>) {
        self.replica.attach_tap(tap);
    }

    /// Runs until the node ends. The server is gone afterwards.
    ///
    /// # Errors
    /// The error that ends the node.
    pub fn run(mut self) -> Outcome {
        // The time before was no pause.
        self.replica.env.start = Instant::now();
        self.replica.begin();
        let relief = Relief::default();
        let writes = self.replica.env.wal.is_some();
        std::thread::scope(|scope| {
            let other = writes.then(|| {
                let other = std::thread::Builder::new().name("skein-relief".into());
                other.spawn_scoped(scope, || Self::take_part(&relief, None))
            });
            match other {
                Some(Err(error)) => {
                    relief.end(Some(Err(NodeError::system("start a thread")(error))))
                }
                _ => Self::take_part(&relief, Some(Box::new(self))),
            }
        });
        relief.into_end().expect("the loop comes to an end")
    }

    /// Loops whenever it is this thread's turn; see [`relief`].
    fn take_part(relief: &Relief<Box<Self>, Outcome>, mut mine: Option<Box<Self>>) {
        /// However this thread ends, the other one does not wait for it.
        struct Leave<'a>(&'a Relief<Box<Reactor>, Outcome>);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.end(None);
            }
        }
        let _leave = Leave(relief);
        // Precise waits. Without this call they are only longer.
        let _ = nix::sys::prctl::set_timerslack(1_000);
        let mut happened = Happened::new();
        loop {
            let mut reactor = match mine.take() {
                Some(reactor) => reactor,
                None => {
                    let Some(mut reactor) = relief.take_up() else { return };
                    reactor.replica.disk_was_slow();
                    reactor
                }
            };
            match reactor.go_round(&mut happened) {
                Ok(Pause::Write(writes, claim)) => {
                    let (mailbox, since) = (reactor.mailbox(), Instant::now());
                    let (kept, result) = relief.aside(reactor, || claim.write(&writes));
                    if let Some(mut reactor) = kept {
                        reactor.replica.wrote(since.elapsed());
                        reactor.written = Some(result);
                        mine = Some(reactor);
                    } else {
                        // The reactor is gone when the node has ended; written data stay written.
                        let _ = mailbox.tell(Inbox::Durable(result));
                    }
                }
                Ok(Pause::End(reason)) => return relief.end(Some(reactor.finish(Ok(reason)))),
                Err(error) => return relief.end(Some(reactor.finish(Err(error)))),
            }
        }
    }

    /// Final steps; the server is gone afterwards.
    fn finish(mut self, result: Outcome) -> Outcome {
        if let Err(error) = &result {
            tracing::error!(event = "node_failed", %error);
            if let NodeError::Replica(ReplicaError::HostFile(report)) = error
                && let Some(base) = &self.replica.env.peers.base
            {
                base.doubt(report);
            }
        }
        self.replica.finish();
        result
    }

    /// Loops until the node ends, or this thread must write something.
    fn go_round(&mut self, happened: &mut Happened) -> Result<Pause, NodeError> {
        if let Some(result) = self.written.take() {
            let ticket = result?;
            self.replica.env.wrote(ticket);
            self.replica.persisted(ticket);
        }
        loop {
            self.replica.turn()?;
            if let Some(reason) = self.replica.ending() {
                return Ok(Pause::End(reason));
            }
            if let Some((writes, claim)) = self.claim() {
                // Another thread may take over.
                self.replica.leave_core();
                return Ok(Pause::Write(writes, claim));
            }
            self.sleep(happened)?;
            self.replica.awake();
            if self.dispatch(happened) {
                while let Ok(message) = self.inbox.try_recv() {
                    if let Inbox::Durable(Ok(ticket)) = &message {
                        self.replica.env.wrote(*ticket);
                    }
                    self.replica.hear(message)?;
                }
            }
        }
    }

    /// This thread's pending write, with the right to make it; writes without the right are handed over.
    fn claim(&mut self) -> Option<(Vec<Persist>, Claim)> {
        if !self.replica.has_own_writes() {
            return None;
        }
        let claim = self.replica.env.wal.as_ref().and_then(WalThread::claim);
        if claim.is_none() {
            self.replica.hand_over_own_writes();
        }
        let (writes, claim) = (self.replica.take_own_writes(), claim?);
        writes.iter().for_each(|persist| self.replica.env.writes(persist));
        Some((writes, claim))
    }

    /// Waits until an event, or a deadline.
    fn sleep(&mut self, happened: &mut Happened) -> Result<(), NodeError> {
        let now = self.replica.now();
        let mut dials = None;
        if !self.replica.is_alone() {
            let System { peers, sources, .. } = &mut self.replica.env;
            dials = peers.tend(sources.urgent(), now);
        }
        let rest = self.replica.rest();
        let mut timeout = match rest {
            None => Some(Duration::ZERO),
            Some(rest) => {
                if let Some(when) = rest.precise {
                    self.timer.set(when, now);
                }
                let until = [rest.until, dials].into_iter().flatten().min();
                until.map(|until| until.saturating_sub(now))
            }
        };
        let wait = self.replica.take_wait();
        if let Some(rest) = rest {
            let System { peers, sources, heard, .. } = &mut self.replica.env;
            peers.listen(!rest.peers_wait || wait.is_some(), sources.urgent(), now, heard);
        }
        let sources = &mut self.replica.env.sources;
        if let Some(wait) = wait
            && timeout != Some(Duration::ZERO)
        {
            sources.wait_urgent(wait);
            timeout = Some(Duration::ZERO);
        }
        sources.wait(happened, timeout).map_err(NodeError::system("wait for events"))
    }

    /// Reports events to the replica. Answers whether other threads have sent any.
    fn dispatch(&mut self, happened: &Happened) -> bool {
        let now = self.replica.now();
        let replica = &mut self.replica;
        let mut told = false;
        replica.env.peers.hear(now, &mut replica.env.heard);
        for event in happened.iter() {
            let token = event.token();
            let System { peers, sources, heard, ports, datagrams, .. } = &mut replica.env;
            match token.0 {
                n if peers.owns(token) => {
                    debug_assert!(n >= PEERS);
                    peers.ready(event, sources.urgent(), now, heard);
                }
                n if n >= DATAGRAMS => datagrams.ready(token),
                n if n >= PORTS => ports.ready(token),
                n if n >= SERVER => {}
                0 => told = true,
                1 => {}
                n => {
                    let number = (n - CLIENTS) as u32;
                    if event.is_readable() || event.is_error() {
                        let more = event.is_read_closed() || event.is_priority();
                        replica.readable(number, more || event.is_error());
                    }
                    if event.is_writable() {
                        replica.writable(number);
                    }
                }
            }
        }
        told
    }
}
