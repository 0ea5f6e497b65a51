//! Runs a server again from the log of its replica, without a cluster: `skein replay`.
//!
//! * [`stored`]: the log in a node's data directory: entries for the server, and the digests that the replicas agreed on.
//! * [`watch`]: the digests of this run against those.
//!
//! The server gets entries as on a follower that is behind, and its process is started as by a node; but nothing is proposed or
//! sent, and no output leaves. Its files go into a layer of their own, which vanishes with it. The data directory is only read.
//!
//! Crash: the server dies with this process, and nothing stays.

pub mod stored;
pub mod watch;

use crate::check::second::how;
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::images::Restart;
use crate::memory::ServerMemory;
use crate::server::{Backlog, Launcher, Offline};
use skein_arena::layout::state;
use skein_model::{LogIndex, Record};
use skein_replica::environment::Image;
use skein_replica::server::Link;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stored::{Begin, Given, Round, Stored};
use watch::{Mismatch, Watch};

/// A server that runs from a stored log.
#[derive(Debug)]
pub struct Replay {
    server: Offline,
    backlog: Backlog<Given>,
    watch: Watch,
    /// The entry of the image that it continues from; 0: it began with the log.
    pub after: LogIndex,
    /// Newer images that cannot be used, and why.
    pub unusable: Vec<String>,
}

/// The reason why a run stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// The server has executed all its entries, and waits.
    Stands,
    /// The server ended by itself, with this status as `waitpid` has it.
    Ended(i32),
    /// Its output differs from the log's digests.
    Differs(Mismatch),
    /// A file of the host differs from the log: which, and how.
    HostFile(String),
    /// The caller stopped it.
    Stopped,
}

/// The position of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The last entry that it has taken.
    pub entry: LogIndex,
    /// Turns taken.
    pub clock: u64,
    /// Operations done.
    pub operations: u64,
    /// Its time of day, ns since the epoch.
    pub now_ns: u64,
    /// The number of equal digests.
    pub equal: usize,
    /// Its process on the host; 0 when there is none.
    pub pid: u32,
    /// The number in the server of the process that has the turn.
    pub carrier: u32,
    /// The number of its threads that compute, or could.
    pub runs: bool,
}

impl Replay {
    /// Starts the server; it gets the entries before `until`, or all: from the log's first one on, or from the newest image before that place.
    ///
    /// # Errors
    /// The system lacks a resource, or the log begins later and there is no image.
    pub fn start(
        config: &NodeConfig,
        launcher: Arc<dyn Launcher>,
        stored: &Stored,
        until: Option<LogIndex>,
    ) -> Result<Self, NodeError> {
        let corrupt_at = config.corrupt_digest_at.map(LogIndex);
        let mut link = Link::new(config.tuning.sizes(), 1, None)?;
        let Begin { image, unusable } = stored.begin(until)?;
        let after = image.as_ref().map_or(LogIndex(0), Image::index);
        let rounds = stored.rounds().iter().filter(|round| round.index > after).cloned();
        let watch = Watch::new(rounds.collect(), config.peers.len(), corrupt_at);
        let from = image.map(|image| {
            link.continue_from(&image.state);
            watch.continue_from(&image.state);
            Restart { store: stored.images.clone(), index: image.index() }
        });
        link.tap = Some(watch.tap());
        let server = Offline::start(link, launcher, from)?;
        let backlog = Backlog::new(stored.entries(after, until));
        Ok(Self { server, backlog, watch, after, unusable })
    }

    /// The server gets the entries before `until`, or all, from the next [`go`](Self::go) on.
    pub fn go_on_until(&mut self, until: Option<LogIndex>) {
        self.backlog.source.until(until);
        self.backlog.go_on();
    }

    /// The next entry for the server, and its content; `None` behind the last one.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn next_entry(&mut self) -> Result<Option<(LogIndex, String)>, NodeError> {
        self.backlog.source.peek()
    }

    /// Lets it execute its entries; `go_on` is asked every few milliseconds and stops the run by answering false.
    ///
    /// # Errors
    /// The server cannot be started, or the log cannot be read.
    pub fn go(&mut self, mut go_on: impl FnMut(&Place) -> bool) -> Result<Came, NodeError> {
        loop {
            self.backlog.feed(&mut self.server.link)?;
            self.server.step()?;
            if let Some(mismatch) = self.watch.mismatch() {
                return Ok(Came::Differs(mismatch));
            }
            let link = &mut self.server.link;
            if let Some(text) = link.differs.take() {
                return Ok(Came::HostFile(text));
            }
            if let Some(status) = self.server.status {
                if link.is_restoring() {
                    let why = link.fatal.take().unwrap_or_else(|| how(status));
                    let image = format!("the image of entry {}", self.after);
                    return Err(NodeError::NotRestored {
                        why: format!("{image}: the server {why}"),
                    });
                }
                return Ok(link.last_words().map_or(Came::Ended(status), Came::HostFile));
            }
            if self.backlog.is_empty() && stands(link) {
                return Ok(Came::Stands);
            }
            if !go_on(&self.place()) {
                return Ok(Came::Stopped);
            }
            self.server.sleep()?;
        }
    }

    /// Takes the server's output although it gets no entry: a debugger may let it run. Answers its end, if it ended.
    ///
    /// # Errors
    /// As for [`go`](Self::go).
    pub fn attend(&mut self) -> Result<Option<i32>, NodeError> {
        self.server.step()?;
        self.server.sleep()?;
        Ok(self.server.status)
    }

    /// Its position.
    #[must_use]
    pub fn place(&self) -> Place {
        let link = &self.server.link;
        let header = link.header();
        Place {
            entry: link.admitted,
            clock: header.clock.load(Ordering::Relaxed),
            operations: header.operations.load(Ordering::Relaxed),
            now_ns: header.now_ns.load(Ordering::Relaxed),
            equal: self.watch.equal(),
            pid: link.pid,
            carrier: header.carrier_tid.load(Ordering::Relaxed),
            runs: header.server_state.load(Ordering::Relaxed) == state::RUNNING,
        }
    }

    /// The first round of digests that shows that the replicas' servers executed more than this one, which has ended.
    #[must_use]
    pub fn others_went_on(&self) -> Option<Round> {
        self.watch.next_round().filter(|round| round.index >= self.server.link.admitted)
    }

    /// The sources of the server's memory; `None` while it has none.
    #[must_use]
    pub fn memory(&self) -> Option<ServerMemory> {
        self.server.link.memory().map(crate::server::memory)
    }

    /// The runtime's last words before it ended the server.
    #[must_use]
    pub fn fatal(&self) -> Option<&str> {
        self.server.link.fatal.as_deref()
    }

    /// Ends the server and waits until it is gone.
    pub fn end(&mut self) {
        self.server.end();
    }
}

/// Whether it waits for the next entry: also when it asks about a file whose answer the log lacks. A quick server does so before its keeper
/// has reported its process.
fn stands(link: &Link) -> bool {
    link.pid != 0 && (link.waits().is_some() || link.is_asking())
}

/// An entry's records in words.
#[must_use]
pub fn describe<'a>(records: impl Iterator<Item = Record<'a>>) -> String {
    let mut words = Vec::new();
    for record in records {
        let word = match record {
            Record::Open { conn, .. } => format!("opens connection {}", conn.0 as u32),
            Record::Data { conn, bytes } => {
                format!("{} bytes on connection {}", bytes.len(), conn.0 as u32)
            }
            Record::Fin { conn } => format!("the end of connection {}'s input", conn.0 as u32),
            Record::Reset { conn } => format!("reset of connection {}", conn.0 as u32),
            Record::Drained { .. } => continue,
            Record::Bubble { turns } => format!("a time bubble of {turns} turns"),
            Record::TermStart => "a new leader".into(),
            Record::Start(_) => "the start of the server".into(),
            Record::Files { .. } => "facts about files of the host".into(),
            Record::Signal { number } => format!("signal {number}"),
            Record::Datagram { bytes, .. } => format!("a datagram of {} bytes", bytes.len()),
            Record::DatagramFailed { .. } => "a datagram that did not arrive".into(),
            Record::Connected { conn } => {
                format!("the server's connection {} is there", conn.0 as u32)
            }
            Record::ConnectFailed { conn, .. } => {
                format!("the server's connection {} failed", conn.0 as u32)
            }
            Record::Upgrade { edition, .. } => {
                format!("a step of the upgrade to edition {edition}")
            }
            Record::Digest { .. } | Record::Root { .. } => continue,
        };
        words.push(word);
    }
    match words.len() {
        0 => "the time".into(),
        1..=4 => words.join(", "),
        n => format!("{}, and {} more", words[..4].join(", "), n - 4),
    }
}
