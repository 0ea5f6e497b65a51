//! Files of the host that the server has used for the first time: the leader proposes its own server's findings.
//!
//! The server waits for the agreement at an admission point, so its findings are still the answer when the entry comes: the leader proposes them only when its
//! server has executed all its entries, and got all proposals. Findings that an earlier leader proposed in vain are
//! proposed again by the next one, whose server waits at the same point. A replica whose files differ finds that out by itself, and ends.

use super::{Environment, Replica};
use crate::agreement::lead::Lead;
use crate::error::ReplicaError;
use crate::modes::{Due, Proposal};
use crate::server::{Broken, Link};
use skein_model::{EntryBuilder, Record};
use std::time::Duration;

/// After a question the next one is waited for this long, though the node has no other reason to look at its server.
const MORE_TO_COME: Duration = Duration::from_millis(20);

impl<E: Environment> Replica<E> {
    /// Whether the server's findings can be proposed.
    pub(super) fn has_findings(&self, lead: &Lead, server: &Link) -> bool {
        server.is_asking()
            && lead.has_announced()
            && server.feed.has_all(self.handed, lead.last_proposed())
    }

    /// Proposes the server's findings about its host's files.
    pub(super) fn propose_findings(&mut self) {
        let Some((ask, facts)) = self.server().and_then(Link::asks) else {
            self.server_broke(&Broken::new("the server asks about files, and not which"));
            return;
        };
        self.asked_at = Some(self.now);
        let mut entry = EntryBuilder::new(std::mem::take(&mut self.spare));
        entry.push(Record::Files { ask, facts: &facts });
        self.metrics.fact_entries.inc();
        self.mode.proposed(Proposal::Due(Due::Findings), self.now);
        self.propose(entry);
    }

    /// Whether the server is likely to ask again.
    pub(super) fn asks_more(&self) -> bool {
        self.asked_at.is_some_and(|at| self.now.saturating_sub(at) < MORE_TO_COME)
    }

    /// Ends the node when its server has found a changed file of the host; `words` is its report.
    pub(super) fn check_files(words: Option<String>) -> Result<(), ReplicaError> {
        words.map_or(Ok(()), |words| Err(ReplicaError::HostFile(words)))
    }
}
