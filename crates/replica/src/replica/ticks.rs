//! The passing of time: the clock of a turn, and the ticks that consensus counts by it.

use super::{Environment, Replica, TICK};
use std::collections::BTreeSet;
use std::time::Duration;

/// A turn that begins late counts no more ticks than this and one: the others' silence is known only while this thread runs. Otherwise a thread that waited for a busy
/// machine's processor would take its own pause for theirs.
const MAX_TICKS: u32 = 2;
/// A rest lasts no longer than this and one: two heartbeats, so a follower that hears its leader is woken by nothing else. All of them count if it ends in time.
const REST_TICKS: u32 = 5;
impl<E: Environment> Replica<E> {
    /// Begins a turn's time.
    pub(super) fn read_clock(&mut self) {
        let before = self.now;
        self.now = self.env.elapsed();
        // Stopped and continued: this node's view of its leadership may be outdated.
        let until = std::mem::replace(&mut self.rested_until, self.now);
        let gap = self.now.saturating_sub(before.max(until));
        if gap > Duration::from_millis(self.config.tuning.election_timeout_ms) && self.replicas > 1
        {
            tracing::warn!(
                event = "gap",
                gap_ms = gap.as_millis() as u64,
                why = "the node did not run"
            );
            self.hearing = Some(BTreeSet::new());
            self.next_tick = self.now + TICK;
        }
    }

    /// Counts the ticks that passed during the rest, up to the one that may have an effect: what peers said meanwhile was said later.
    pub(super) fn count_ticks(&mut self) {
        self.ticked = !self.members.alone && self.next_tick <= self.now;
        if !self.ticked {
            return;
        }
        let tick = self.tick_length();
        let late = self.now >= self.ticks_until + tick;
        let most = if late { MAX_TICKS } else { REST_TICKS };
        self.next_tick = self.next_tick.max(self.now.saturating_sub(most * tick));
        for _ in 1..self.consensus.ticks_left() {
            if self.next_tick > self.now {
                break;
            }
            self.next_tick += tick;
            self.consensus.tick();
        }
    }

    /// Does what is done at a tick.
    pub(super) fn tick(&mut self) {
        if !self.ticked {
            if self.members.alone {
                self.consensus.raise_level();
            }
            return;
        }
        self.tend_health();
        self.tell_target();
        self.beat();
        self.answer_states();
        while self.next_tick <= self.now {
            self.next_tick += self.tick_length();
            self.consensus.tick();
        }
    }

    /// When the next tick that may have an effect is due, or the first of as many as one turn counts.
    pub(super) fn tick_wake(&self) -> Duration {
        self.next_tick + (self.consensus.ticks_left() - 1).min(REST_TICKS) * self.tick_length()
    }
}
