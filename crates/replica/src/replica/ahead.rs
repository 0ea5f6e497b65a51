//! The leader's server executes entries that are being agreed on; see [`crate::server::ahead`].
//!
//! Its output stays in the output ring meanwhile ([`Link::drain`](crate::server::Link::drain)).

use super::{Environment, Replica};
use crate::modes::Stage;
use crate::server::ahead::Lost;
use crate::server::feed::{Step, is_for_server};
use bytes::Bytes;
use skein_log::{LogEntry, majority};
use skein_model::{EntryRef, LogIndex};

impl<E: Environment> Replica<E> {
    /// Gives the server the newest proposal, if it has got all before it; see [`crate::server::ahead`]. Answers whether it did.
    pub(super) fn go_ahead(
        &mut self,
        index: LogIndex,
        before: Option<LogIndex>,
        payload: &Bytes,
    ) -> bool {
        let may = self.may_go_ahead(index, before);
        let Some(server) = self.slot.link_mut() else { return false };
        let behind = server.feed.given();
        let past = if server.has_taken(index) {
            self.handed_in(index);
            true
        } else {
            may && self.hand_in_next(index, payload)
        };
        if past && let Some(server) = self.slot.link_mut() {
            server.ahead.went(index, self.consensus.term(), behind);
            self.metrics.entries_ahead.inc();
        }
        past
    }

    /// Gives it the entry at `index`, which it gets next if it is for servers.
    fn hand_in_next(&mut self, index: LogIndex, payload: &Bytes) -> bool {
        let entry = EntryRef::parsed(payload);
        let Some(server) = self.slot.link_mut() else { return false };
        server.feed.skip_to(index);
        match server.feed.step(index, Some(&entry)) {
            Step::Give => self.hand_in(index, payload),
            Step::Skip => {
                self.pass_digests(index, &entry);
                true
            }
            Step::NotNow => false,
        }
    }

    /// Whether the server may get the next proposal, which follows the one at `before`.
    pub(super) fn may_go_ahead(&self, index: LogIndex, before: Option<LogIndex>) -> bool {
        let has_all_before = before.is_some_and(|before| {
            self.server().is_some_and(|server| server.feed.has_all(self.handed, before))
        });
        has_all_before
            && self.mode.execution(true).from != Stage::Committed
            && !self.agrees_alone
            && self.serves()
            && self.members.connected + 1 >= majority(self.replicas)
            && self.slot.can_go_ahead()
            && !self.is_held_before(index)
    }

    /// Whether the server was past a committed entry before its commit.
    pub(super) fn has_gone_past(&mut self, entry: &LogEntry, parsed: &EntryRef<'_>) -> bool {
        let Some(server) = self.slot.link_mut() else { return false };
        match server.ahead.committed(entry.index, entry.term) {
            Ok(past) => {
                if past && !is_for_server(parsed) {
                    self.digests_committed(entry.index, parsed);
                }
                past
            }
            Err(lost) => {
                self.went_astray(lost);
                false
            }
        }
    }

    /// All up to `index` is committed, including entries without a payload.
    pub(super) fn has_reached(&mut self, index: LogIndex) {
        let Some(server) = self.server() else { return };
        match server.ahead.all_committed(index) {
            Ok(()) => server.released(self.mode.released(index)),
            Err(lost) => self.went_astray(lost),
        }
    }

    /// The server executed entries that were not committed, when this replica led: it is rebuilt from the log.
    pub(super) fn went_astray(&mut self, lost: Lost) {
        tracing::warn!(
            event = "went_astray",
            index = lost.0.0,
            why = "the server executed an entry that was then not committed; it is rebuilt from the log"
        );
        self.metrics.rebuilds_ahead.inc();
        self.note(format!(
            "the server had executed entry {}, which another leader replaced: it is rebuilt from the log",
            lost.0
        ));
        if let Some(server) = self.slot.link_mut() {
            server.condemn();
            server.ahead.forget();
        }
        self.compare.held.clear();
        self.slot.forgive();
        self.kill_server();
    }
}
