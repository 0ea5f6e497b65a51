//! Files of the host that the server has used for the first time: the leader proposes what its own server found.
//!
//! The server waits for it at a point of admission, so what it found is still the answer when the entry comes: the leader proposes it only when its
//! server has executed all that it was given, and got all that was proposed. What an earlier leader proposed and did not bring through is
//! proposed again by the next one, whose server waits at the same point. A replica whose files differ finds that out by itself, and ends.

use super::{Environment, Replica};
use crate::error::NodeError;
use crate::order::lead::Lead;
use crate::server::Broken;
use skein_model::{EntryBuilder, Record};
use std::time::Duration;

/// For so long after a question the next one is waited for, though the node has no other reason to hear of its server.
const MORE_TO_COME: Duration = Duration::from_millis(20);

impl<E: Environment> Replica<E> {
    /// Whether what the server found can be proposed.
    pub(super) fn may_propose_facts(&self) -> bool {
        let proposed = self.lead.as_ref().filter(|l| l.has_announced()).map(Lead::last_proposed);
        self.hearing.is_none()
            && self.unsent.is_none()
            && self.server.is_asking()
            && proposed.is_some_and(|last| self.server.feed.has_all(self.handed, last))
    }

    /// Proposes what the server found of its host's files.
    pub(super) fn propose_facts(&mut self) {
        if !self.may_propose_facts() {
            return;
        }
        let Some((ask, facts)) = self.server.asks() else {
            self.server_broke(&Broken::new("the server asks about files, and not which"));
            return;
        };
        self.asked_at = Some(self.now);
        let mut entry = EntryBuilder::new(std::mem::take(&mut self.spare));
        entry.push(Record::Files { ask, facts: &facts });
        self.metrics.fact_entries.inc();
        self.propose(entry);
    }

    /// Whether the server is likely to ask again.
    pub(super) fn asks_more(&self) -> bool {
        self.asked_at.is_some_and(|at| self.now.saturating_sub(at) < MORE_TO_COME)
    }

    /// Ends the node when its server has found a file of the host that is not what it was; `words` is what it said.
    pub(super) fn check_files(words: Option<String>) -> Result<(), NodeError> {
        words.map_or(Ok(()), |words| Err(NodeError::HostFile(words)))
    }
}
