//! The level of what replicas say to each other ([`skein_log::Level`]): which one this replica says, and older and newer replicas.
//!
//! It goes with the state that replicas tell each other all the time, behind what those from before levels read; they say nothing, and know [`Level::FIRST`].
//! Once a level is agreed, a hello says it at once.

use super::{Environment, Replica};
use crate::error::ReplicaError;
use crate::status::LevelStatus;
use skein_log::frame::Levels;
use skein_log::{Level, TooNew, majority};
use skein_model::ReplicaId;
use std::collections::BTreeSet;

/// What is known of the others' levels, besides what consensus has been told.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// This is needed, and hellos say so.
    needed: Level,
    /// Those that need more than this program knows.
    newer: BTreeSet<ReplicaId>,
}

impl<E: Environment> Replica<E> {
    /// A hello with levels came. Behind it is a cluster that has agreed on one, which this replica may not know yet.
    ///
    /// # Errors
    /// It needs more than this program knows, and so do others. One alone may err.
    pub(super) fn hear_levels(
        &mut self,
        peer: ReplicaId,
        levels: Levels,
    ) -> Result<(), ReplicaError> {
        self.consensus.hear_level(peer, levels.known);
        if self.consensus.needed_level() == Level::FIRST {
            // The hello from here said nothing.
            self.tell_state(peer);
        }
        let (needed, known) = (levels.needed, self.consensus.known_level());
        if needed <= known {
            self.levels.newer.remove(&peer);
            return Ok(());
        }
        let error = TooNew { needed, known };
        self.distrust(peer, &error.to_string());
        self.levels.newer.insert(peer);
        let enough = majority(self.replicas).min(self.replicas.saturating_sub(1));
        if self.levels.newer.len() >= enough { Err(error.into()) } else { Ok(()) }
    }

    /// A peer said the newest level that it knows, if it is of a version that has levels.
    pub(super) fn peer_knows(&mut self, peer: ReplicaId, level: Option<Level>) {
        self.consensus.hear_level(peer, level.unwrap_or_default());
        self.refuse_older(peer);
    }

    /// Follows what the log needs of others.
    pub(super) fn follow_level(&mut self) {
        let needed = self.consensus.needed_level();
        if needed == self.levels.needed {
            return;
        }
        self.levels.needed = needed;
        let levels = Levels { known: self.consensus.known_level(), needed };
        self.env.say_levels((needed > Level::FIRST).then_some(levels));
        let connected: Vec<_> = self.env.connected().collect();
        // What the others have not said yet they will.
        let said = connected.into_iter().filter(|peer| self.consensus.level_of(*peer).is_some());
        said.collect::<Vec<_>>().into_iter().for_each(|peer| self.refuse_older(peer));
    }

    fn refuse_older(&mut self, peer: ReplicaId) {
        if self.consensus.is_new_enough(peer) {
            return;
        }
        let known = self.consensus.level_of(peer).unwrap_or_default();
        let needed = self.consensus.needed_level();
        self.distrust(
            peer,
            &format!(
                "it knows no more than level {known} of what nodes say and keep, and the members have agreed on level {needed}: install this version of Skein there, or a later one"
            ),
        );
    }

    /// A level that is not agreed, and why, on the leader.
    pub(super) fn report_level(&self) -> Option<LevelStatus> {
        let held = self.consensus.held_back().filter(|held| !held.by.is_empty())?;
        let waits_for = held.by.iter().map(|replica| replica.0).collect();
        Some(LevelStatus { agreed: held.agreed.0, newest: held.known.0, waits_for })
    }
}
