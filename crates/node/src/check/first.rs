//! The first run: an ordinary node, the only replica, its log in memory; clients reach it as its configuration says.

use super::recording::{Recorder, Recording};
use super::seen::{Seen, Shared};
use crate::config::{Address, Kind, Mode, NodeConfig, Peer};
use crate::error::{ExitReason, NodeError};
use crate::reactor::{Mailbox, Parts, Reactor};
use crate::server::Launcher;
use crate::status::NodeStatus;
use oneshot::{Receiver, TryRecvError};
use skein_log::frame::Hello;
use skein_log::{ClusterId, Config, Consensus, Durability, ProgramHash, Recovered};
use skein_model::{LogIndex, ReplicaId};
use skein_replica::config::Noted;
use skein_replica::metrics::Metrics;
use skein_replica::replica::{Command, Inbox, Standing};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

/// A running first run. When dropped, it ends, and its server with it.
#[derive(Debug)]
pub struct FirstRun {
    mailbox: Mailbox,
    seen: Shared,
    recording: mpsc::Receiver<std::io::Result<Recording>>,
    /// The server is to stand still.
    standing: Option<Receiver<Standing>>,
    thread: Option<JoinHandle<Result<ExitReason, NodeError>>>,
}

/// The end of a run, its observations, and its recording.
#[derive(Debug)]
pub struct FirstEnd {
    /// The reason of its end.
    pub reason: ExitReason,
    /// The observations.
    pub seen: Seen,
    /// Log and output.
    pub recording: Recording,
}

/// Makes a configuration one for a check: one replica, no directory.
#[must_use]
pub fn alone(mut config: NodeConfig) -> NodeConfig {
    config.id = 1;
    config.mode = Mode::Order;
    config.peers = vec![Peer {
        id: 1,
        address: Address::Tcp((Ipv4Addr::LOCALHOST, 0).into()),
        kind: Kind::Active,
    }];
    config.listen = None;
    config.checkpoint.enabled = false;
    config.tuning.max_rebuilds = 0;
    config
}

impl FirstRun {
    /// Starts the server that `launcher` starts; `config` as [`alone`] makes it.
    ///
    /// # Errors
    /// The system lacks a resource.
    pub fn start(config: NodeConfig, launcher: Arc<dyn Launcher>) -> Result<Self, NodeError> {
        config.check()?;
        crate::node::raise_file_limit();
        let id = ReplicaId(config.id);
        let program = ProgramHash(launcher.program_hash());
        let durability = Durability::Memory;
        let log = Config { durability, ..Config::new(id, vec![id]) };
        let consensus = Consensus::new(log, Recovered::default(), None)?;
        let membership = consensus.membership();
        let hello =
            Hello { replica: id, incarnation: 0, durability, program, membership, levels: None };
        let cluster = ClusterId(config.cluster());
        let metrics = Arc::new(Metrics::default());
        let parts = Parts {
            config,
            consensus,
            hello,
            cluster,
            launcher,
            metrics,
            images: None,
            log: None,
            identity: None,
            noted: Noted::default(),
        };
        let (results, recording) = mpsc::channel();
        let seen = Shared::default();
        let recorder = Recorder::new(seen.clone(), results)
            .map_err(NodeError::system("make a file for temporary data"))?;
        let mut reactor = Reactor::new(parts)?;
        reactor.attach_tap(Box::new(recorder));
        let mailbox = reactor.mailbox();
        let thread = Builder::new()
            .name("skein-first".into())
            .spawn(move || reactor.run())
            .map_err(NodeError::system("start a thread"))?;
        Ok(Self { mailbox, seen, recording, standing: None, thread: Some(thread) })
    }

    /// The observations so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.look()
    }

    /// The node's status, unless it has ended.
    #[must_use]
    pub fn status(&self) -> Option<NodeStatus> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.tell(Inbox::Command(Command::Status(reply)));
        answer.recv().ok()
    }

    /// The address of each port of the server.
    #[must_use]
    pub fn places(&self) -> Vec<(u16, SocketAddr)> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.tell(Inbox::Command(Command::Places(reply)));
        answer.recv().unwrap_or_default()
    }

    /// Gives the server nothing more, and answers whether it has executed all its entries; asked again until it has.
    pub fn stands(&mut self) -> bool {
        let Some(standing) = self.standing.take().or_else(|| self.stand()) else {
            return false;
        };
        match standing.try_recv() {
            Ok(Ok(_)) if self.seen().rests => true,
            Err(TryRecvError::Empty) => {
                self.standing = Some(standing);
                false
            }
            // It waits for an answer of its node, or no longer.
            _ => {
                let (reply, _) = oneshot::channel();
                self.mailbox.tell(Inbox::Command(Command::GoOn(reply)));
                false
            }
        }
    }

    fn stand(&self) -> Option<Receiver<Standing>> {
        let (reply, held) = oneshot::channel();
        self.mailbox.tell(Inbox::Command(Command::Hold(reply)));
        let last = held.recv().ok()?.ok()?;
        let (reply, standing) = oneshot::channel();
        self.mailbox.tell(Inbox::Command(Command::StandAt(LogIndex(last), reply)));
        Some(standing)
    }

    /// Whether it has ended by itself.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it, and its server.
    ///
    /// # Errors
    /// The reason why it could not continue, if it had to end before; or it could not be recorded.
    pub fn finish(mut self) -> Result<FirstEnd, NodeError> {
        self.mailbox.stop();
        let thread = self.thread.take().expect("taken here and in drop only");
        let reason = thread.join().map_err(|_| NodeError::System {
            what: "run a node",
            error: std::io::Error::other("it panicked"),
        })??;
        let recording = self
            .recording
            .recv()
            .unwrap_or_else(|_| Err(std::io::Error::other("the recorder is gone without a word")));
        let recording = recording.map_err(NodeError::system("record a run"))?;
        Ok(FirstEnd { reason, seen: self.seen.look(), recording })
    }
}

impl Drop for FirstRun {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.mailbox.stop();
            let _ = thread.join();
        }
    }
}
