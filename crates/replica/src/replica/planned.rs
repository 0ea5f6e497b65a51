//! Timers of an idle leader's server whose entries it takes by itself while its node sleeps ([`skein_arena::planned`]): planned when the node comes to rest, proposed when it wakes.
//!
//! So a node wakes for every second timer, or fewer, and proposes the entries of several at once. Nobody waits for them, and what the server says ends the rest as ever.

use super::agree::LATE;
use super::rhythm::Awaited;
use super::{Environment, Replica};
use crate::agreement::lead::Lead;
use crate::agreement::regular::{Expected, SPAN_NS};
use crate::agreement::unhurried;
use crate::modes::{Due, Proposal};
use crate::server::ahead::Lost;
use crate::server::link::Planned;
use bytes::Bytes;
use skein_arena::planned::MOST;
use skein_model::{EntryBuilder, LogIndex, WallNs};
use std::time::Duration;

impl<E: Environment> Replica<E> {
    /// Plans the timers from this one on. Answers until when this node rests for the first that the server does not take by itself. To be called last in a rest.
    pub(super) fn plan_timers(&mut self, first: Awaited) -> Duration {
        let (planned, next) = self.timers_to_plan(first);
        let not_before_ns = next.expected.not_before_ns;
        match self.slot.link_mut().map(|server| server.plan(planned, not_before_ns)) {
            Some(Ok(true)) => next.by,
            Some(Ok(false)) | None => first.by,
            Some(Err(broken)) => {
                self.server_broke(&broken);
                self.now
            }
        }
    }

    /// The entries that the server may take by itself from that timer on, and the timer after those.
    fn timers_to_plan(&mut self, first: Awaited) -> (Vec<Planned>, Awaited) {
        let (mut planned, mut next) = (Vec::new(), first);
        if !self.may_plan() {
            return (planned, next);
        }
        let (steady, now_ns) = (self.env.steady(), self.pulse.now(&self.env).0);
        let horizon_ns = now_ns.saturating_add(LATE.as_nanos() as u64);
        let mut regular = self.regular.clone();
        while planned.len() < MOST {
            let Expected { not_before_ns, by_ns: stamp_ns } = next.expected;
            regular.comes(stamp_ns);
            let Some(mut expected) = regular.expected() else { break };
            // What peers say is heard by then.
            expected.by_ns = expected.by_ns.min(horizon_ns);
            let soonest_ns = expected.not_before_ns.saturating_add(SPAN_NS);
            if expected.not_before_ns <= stamp_ns || soonest_ns > expected.by_ns {
                break;
            }
            let by = self.now + Duration::from_nanos(expected.by_ns - now_ns);
            let index = LogIndex(self.consensus.last_index().0 + 1 + planned.len() as u64);
            let entry =
                EntryBuilder::new(Vec::new()).finish(WallNs(stamp_ns), self.consensus.term());
            let (entry, at) = (Bytes::from(entry), steady + (next.by - self.now));
            planned.push(Planned { index, entry, not_before_ns, stamp_ns, at });
            next = Awaited { expected, by };
        }
        (planned, next)
    }

    /// Whether the next entries would be such that the server executes ahead, and consensus would take a few.
    fn may_plan(&self) -> bool {
        let (next, last) =
            (self.consensus.last_index().next(), self.lead.as_ref().map(Lead::last_proposed));
        let few =
            |lead: &Lead| lead.unawaited().is_none_or(|(count, ..)| count + MOST < unhurried::MOST);
        self.unsent.is_none()
            && !self.pulse.holds()
            && !self.is_handing_over()
            && !self.is_held_before(LogIndex(next.0 + MOST as u64))
            && self.lead.as_ref().is_some_and(few)
            && self.may_go_ahead(next, last)
    }

    /// This node is awake: proposes what the server has taken by itself meanwhile.
    pub(super) fn settle_plan(&mut self) {
        let Some(server) = self.slot.link_mut() else { return };
        let taken = match server.take_back(|| self.env.steady()) {
            Ok(taken) => taken,
            Err(broken) => return self.server_broke(&broken),
        };
        let steady = self.env.steady();
        for (Planned { index, entry, stamp_ns, at, .. }, due_ns) in taken {
            self.pulse.time.took(WallNs(stamp_ns));
            let taken_at = self.now.saturating_sub(steady.saturating_sub(at));
            self.mode.proposed(Proposal::Due(Due::Clock), taken_at);
            self.metrics.clock_entries.inc();
            self.metrics.planned_entries.inc();
            if self.offer(entry) != Some(index) {
                // It does not lead any more, or consensus takes nothing.
                self.unsent = None;
                return self.went_astray(Lost(index));
            }
            self.regular.fired(due_ns, stamp_ns);
        }
    }
}
