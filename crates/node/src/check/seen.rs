//! Observations of a run.

use skein_arena::layout::{Header, state};
pub use skein_arena::uses::Use;
use skein_model::frame::split_refused;
use skein_model::{EntryRef, LogIndex, OutFrame, Record, SockAddr};
use skein_replica::server::Files;
use skein_replica::server::link::printable;
use skein_sandbox::Layer;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most kinds of refused calls: 256. A server that refuses more kinds is described well enough by them.
const MAX_REFUSED: usize = 256;
/// The most lines of the runtime: 64.
const MAX_NOTICES: usize = 64;

/// A refused call, and its calling place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The call's name and arguments.
    pub call: String,
    /// `libfoo.so+0x12ab`; empty when it is not known.
    pub from: String,
}

/// Observations of a run, so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Entries given to the server, and time bubbles and clock entries among them.
    pub entries: u64,
    /// See [`entries`](Self::entries).
    pub bubbles: u64,
    /// See [`entries`](Self::entries).
    pub clock_entries: u64,
    /// Clients' connections.
    pub connections: u64,
    /// Frames of output.
    pub frames: u64,
    /// Bytes sent to clients.
    pub sent_bytes: u64,
    /// The last entry that was admitted.
    pub admitted: LogIndex,
    /// The server's listening sockets, in the order of opening.
    pub listening: Vec<SockAddr>,
    /// The number of refusals of each call.
    pub refused: BTreeMap<Refused, u64>,
    /// Lines of the runtime.
    pub notices: Vec<String>,
    /// The reason why the runtime stopped.
    pub fatal: Option<String>,
    /// The exit status that the server announced.
    pub exit: Option<i32>,
    /// The server has executed all entries and waits for the next one.
    pub rests: bool,
    /// It rests, and no thread of it can run before an event.
    pub quiescent: bool,
    /// It is quiescent, and none of its timers will ever be due.
    pub asleep: bool,
    /// A thread runs.
    pub runs: bool,
    /// Operations done.
    pub operations: u64,
    /// Turns taken.
    pub clock: u64,
    /// System calls that came through the net.
    pub net_calls: u64,
    /// Calls through the net: number and count, as the arena has them; see [`crate::status::trapped_by_name`].
    pub trapped: Vec<(usize, u64)>,
    /// The same for calls from places that the runtime has patched.
    pub patched: Vec<(usize, u64)>,
    /// The server's private layer over the host's files; it outlives the server.
    pub layer: Option<Arc<Layer>>,
    /// Used features, in the order of [`Use::ALL`].
    pub uses: [u64; Use::ALL.len()],
}

impl Seen {
    /// How many of a kind were used.
    #[must_use]
    pub const fn used(&self, kind: Use) -> u64 {
        self.uses[kind as usize]
    }

    pub(super) fn launched(&mut self, files: Option<&Files>) {
        self.layer = files.map(crate::server::layer);
    }

    pub(super) fn entry(&mut self, entry: &[u8]) {
        self.entries += 1;
        // It is not known yet whether the server has executed this entry.
        (self.rests, self.quiescent, self.asleep) = (false, false, false);
        let Ok(entry) = EntryRef::parse(entry) else { return };
        let mut records = 0;
        for record in entry.records() {
            records += 1;
            match record {
                Record::Open { .. } => self.connections += 1,
                Record::Bubble { .. } => self.bubbles += 1,
                _ => {}
            }
        }
        self.clock_entries += u64::from(records == 0);
    }

    pub(super) fn frame(&mut self, frame: &OutFrame<'_>) {
        self.frames += u64::from(frame.is_output());
        match *frame {
            OutFrame::Admitted { index, .. } => self.admitted = index,
            OutFrame::Send { bytes, .. } => self.sent_bytes += bytes.len() as u64,
            OutFrame::Listen { addr } if !self.listening.contains(&addr) => {
                self.listening.push(addr);
            }
            OutFrame::Unlisten { addr } => self.listening.retain(|other| *other != addr),
            OutFrame::Exit { status } => self.exit = Some(status),
            OutFrame::Refused { call } => {
                let (call, from) = split_refused(call);
                let refused = Refused { call: printable(call), from: printable(from) };
                if self.refused.len() < MAX_REFUSED || self.refused.contains_key(&refused) {
                    *self.refused.entry(refused).or_default() += 1;
                }
            }
            OutFrame::Notice { text } if self.notices.len() < MAX_NOTICES => {
                self.notices.push(printable(text));
            }
            OutFrame::Fatal { text } | OutFrame::Differs { text } => {
                self.fatal = Some(printable(text))
            }
            _ => {}
        }
    }

    pub(super) fn drained(&mut self, header: &Header, rests: bool) {
        let now = header.server_state.load(Ordering::Acquire);
        self.runs = now == state::RUNNING;
        self.rests = rests;
        self.quiescent = rests && now == state::QUIESCENT;
        self.asleep = self.quiescent && header.deadline_ns.load(Ordering::Acquire) == u64::MAX;
        self.operations = header.operations.load(Ordering::Relaxed);
        self.clock = header.clock.load(Ordering::Relaxed);
        self.net_calls = header.net_calls.load(Ordering::Relaxed);
        self.trapped.clear();
        self.trapped.extend(header.trapped.counts());
        self.patched.clear();
        self.patched.extend(header.patched.counts());
        for (place, kind) in Use::ALL.into_iter().enumerate() {
            self.uses[place] = header.uses.count(kind);
        }
    }
}

/// `0.0.0.0:6379`, or `[::]:6379`.
#[must_use]
pub fn address(at: &SockAddr) -> String {
    let ip: std::net::IpAddr = match at.ipv4() {
        Some(ip) => std::net::Ipv4Addr::from(ip).into(),
        None => std::net::Ipv6Addr::from(at.ip).into(),
    };
    std::net::SocketAddr::new(ip, at.port).to_string()
}

/// Observations, shared between the thread that drives a run and the thread that waits for it.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Seen>>);

impl Shared {
    /// The observations so far.
    #[must_use]
    pub fn look(&self) -> Seen {
        self.lock().clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Seen> {
        // Plain counts: a thread that panicked left them valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_given_an_entry_rests_no_more() {
        let mut seen = Seen { rests: true, quiescent: true, asleep: true, ..Seen::default() };
        seen.entry(&[]);
        assert!(!seen.rests && !seen.quiescent && !seen.asleep);
    }
}
