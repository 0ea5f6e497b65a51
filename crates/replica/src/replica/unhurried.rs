//! Entries that nobody waits for ([`crate::agreement::unhurried`]): when a leader defers them, and what ends that.
//!
//! ```text
//! leader:   append (clock entry, with the next heartbeat at the latest) --> followers keep it in memory; its own server executes it
//!           ... more of them ...
//!           sync (index)         --> followers sync and acknowledge; the commit follows
//! ```
//!
//! While the rhythm is slow ([`super::rhythm`]) that is told with a heartbeat, and the answers are heard when the leader wakes for something else.

use super::agree::LATE;
use super::{Environment, Replica};
use crate::agreement::lead::Lead;
use crate::agreement::unhurried::{LONGEST, LONGEST_UNASKED, MANY, MOST, PATIENCE, is_unhurried};
use crate::server::link::Beyond;
use bytes::Bytes;
use skein_log::frame::KIND_APP;
use skein_log::{LogEntry, Persist};
use skein_model::{EntryRef, LogIndex, ReplicaId};
use std::time::Duration;

/// "Make your log durable at once, up to this entry": index u64.
pub(super) const SYNC: u8 = KIND_APP + 12;

/// A follower that has not answered by then is asked again: the message may be lost, or the follower may have connected since.
const ASK_AGAIN: Duration = Duration::from_millis(100);

impl<E: Environment> Replica<E> {
    /// Whether this leader defers its newest proposal; `past`: its server is past it already.
    pub(super) fn defers(&mut self, index: LogIndex, payload: &Bytes, past: bool) -> bool {
        let unhurried = self.env.has_log() && is_unhurried(&EntryRef::parsed(payload));
        let deferred = unhurried && past && self.unhurried.defer_next();
        if unhurried && !deferred {
            // Followers would.
            self.tell_all(SYNC, &index.0.to_le_bytes());
        }
        self.consensus.unhurried_up_to(if deferred { index } else { LogIndex(0) });
        deferred
    }

    /// Until when a write may wait, if nobody waits for it.
    pub(super) fn may_wait_until(&self, persist: &Persist) -> Option<Duration> {
        let first = persist.entries.first()?.index;
        if let Some(lead) = &self.lead {
            let (_, from, since) = lead.unasked()?;
            return (first >= from).then_some(since + LONGEST);
        }
        // A server that catches up needs them: it is in step when it has executed what was committed before it began.
        if !self.slot.rests() && !self.slot.is_in_step() {
            return None;
        }
        let unhurried = |entry: &LogEntry| {
            // Peers' entries were parsed when they came.
            entry.is_payload() && is_unhurried(&EntryRef::parsed(&entry.payload))
        };
        let waits = first > self.sync_asked && persist.entries.iter().all(unhurried);
        waits.then_some(self.now + LONGEST_UNASKED)
    }

    /// The leader waits for the commit of all up to `index`.
    pub(super) fn sync_was_asked(&mut self, index: LogIndex) {
        self.sync_asked = self.sync_asked.max(index);
        self.write_held();
    }

    /// Somebody waits for the commit of everything that this leader has proposed.
    pub(super) fn hurry(&mut self) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.unawaited().is_some()) else {
            return;
        };
        lead.hurry(self.now);
        let last = lead.last_proposed();
        self.consensus.unhurried_up_to(LogIndex(0));
        self.tell_all(SYNC, &last.0.to_le_bytes());
    }

    /// What the server did with entries that are not committed, if nobody waits for their commit.
    pub(super) fn beyond(&self) -> Option<Beyond> {
        self.lead.as_ref().and_then(Lead::unawaited)?;
        self.server().map(|server| server.beyond(self.released()))
    }

    /// Whether the server has said something for entries for which nobody waits yet.
    pub(super) fn speaks_unheard(&self) -> bool {
        // What is waited for before them may have said it.
        let settled = self.lead.as_ref().is_some_and(Lead::is_settled);
        settled && self.beyond().is_some_and(|beyond| beyond.speaks)
    }

    /// Whether the server executes such entries, and may say something.
    pub(super) fn server_is_beyond(&self) -> bool {
        self.beyond().is_some_and(|beyond| beyond.waits.is_none())
    }

    /// Ends the delay of entries for which somebody waits by now.
    pub(super) fn tend_unhurried(&mut self) {
        let Some(lead) = &self.lead else { return };
        if lead.oldest_awaited().is_some_and(|at| self.now >= at.max(self.sync_told) + ASK_AGAIN) {
            let last = lead.last_proposed();
            self.sync_told = self.now;
            self.tell_all(SYNC, &last.0.to_le_bytes());
        }
        let Some(lead) = &self.lead else { return };
        let Some((count, from, since)) = lead.unawaited() else { return };
        let unasked = lead.unasked();
        let speaks = self.speaks_unheard();
        let ended = !self.slot.can_go_ahead() || self.standstill.is_some();
        let waited_for = !self.is_slow() || lead.is_asked(from);
        let old = waited_for && self.oldest_waits_until(from, since) <= self.now;
        if speaks {
            self.unhurried.spoke(count);
            self.is_waited_for();
        }
        if speaks || ended || old || count >= MOST {
            self.hurry();
        } else if let Some((count, _, since)) = unasked
            && self.is_slow()
            && (count >= MANY || since + LONGEST <= self.now + LATE)
        {
            self.ask_for_syncs();
        }
    }

    /// While the rhythm is slow: all are made durable soon, and their commit is heard of when this node wakes for something else.
    fn ask_for_syncs(&mut self) {
        let Some(lead) = &mut self.lead else { return };
        lead.asked();
        let last = lead.last_proposed();
        self.tell_all_routinely(SYNC, &last.0.to_le_bytes());
        self.write_held();
    }

    /// Until when the commit of the oldest entry, of this time, is not waited for at all.
    fn oldest_waits_until(&self, from: LogIndex, since: Duration) -> Duration {
        let asked = self.lead.as_ref().is_some_and(|lead| lead.is_asked(from));
        since + LONGEST + if asked { PATIENCE } else { Duration::ZERO }
    }

    /// When to do that at the latest, if ever.
    pub(super) fn unhurried_wake(&self) -> Option<Duration> {
        let (_, from, since) = self.lead.as_ref().and_then(Lead::unawaited)?;
        Some(self.oldest_waits_until(from, since))
    }

    /// Hands leadership over: the other one must have all entries. False if this replica does not lead or `to` has no vote, in its present
    /// incarnation: an earlier one hears nothing.
    pub(super) fn hand_leadership_to(&mut self, to: ReplicaId) -> bool {
        self.hurry();
        self.stirred = self.now;
        self.has_its_vote(to) && self.consensus.transfer_leadership(to)
    }
}
