//! Entries of timers that the server takes by itself while its node sleeps; see [`skein_arena::planned`].

use super::{Broken, Link};
use bytes::Bytes;
use skein_arena::planned::Step;
use skein_model::LogIndex;
use skein_model::frame::{entry_frame_bytes, put_entry_frame};
use std::collections::VecDeque;
use std::time::Duration;

/// A server's clock is read so much earlier at most.
const PRECISION: Duration = Duration::from_millis(1);

/// Such an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its place in the log.
    pub index: LogIndex,
    /// Itself.
    pub entry: Bytes,
    /// It is for a timer that is due at this time or later.
    pub not_before_ns: u64,
    /// Its stamp.
    pub stamp_ns: u64,
    /// The server may take it from then on, by the steady clock.
    pub at: Duration,
}

/// Those of a server.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// It may take these,
    planned: VecDeque<Planned>,
    /// or has taken them, and they are to be proposed.
    taken: VecDeque<Planned>,
}

impl Link {
    /// Lets the server take these entries, its next, by itself; when it has, it needs not wake the node for a timer that is due at `not_before_ns` or later. Nothing is planned when the
    /// ring has no room, or the runtime is one from before plans.
    ///
    /// To be called last before the node sleeps: from then until [`take_back`](Self::take_back) it puts nothing into the ring.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn plan(&mut self, planned: Vec<Planned>, not_before_ns: u64) -> Result<bool, Broken> {
        let Some(last) = planned.last().map(|one| one.index) else { return Ok(false) };
        if !self.header().plan.is_known() || self.restoring.is_some() || self.awaits_launch.get() {
            return Ok(false);
        }
        let whole = planned.iter().map(|one| entry_frame_bytes(&one.entry)).sum();
        let Some(mut space) = self.input.reserve(whole).map_err(Broken::new)? else {
            return Ok(false);
        };
        let mut steps = Vec::with_capacity(planned.len());
        for Planned { index, entry, not_before_ns, stamp_ns, at } in &planned {
            let (frame, rest) = space.split_at_mut(entry_frame_bytes(entry));
            put_entry_frame(frame, *index, entry);
            let (not_before_ns, stamp_ns) = (*not_before_ns, *stamp_ns);
            let at_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
            let bytes = frame.len() as u64;
            steps.push(Step { not_before_ns, stamp_ns, at_ns, bytes });
            space = rest;
        }
        self.passage.gives(last);
        let header = self.header();
        header.plan.make(&steps, not_before_ns);
        let missed = header.plan.is_missed(&header.server_gate, steps[0].stamp_ns);
        self.plans.planned = planned.into();
        if missed {
            self.unseen = true;
            self.wake_server();
        }
        Ok(true)
    }

    /// The node is awake: the server takes no more. `clock` is the steady one. Answers those that it has taken, each with the time when its timer was due; they are to be proposed, in this order.
    ///
    /// # Errors
    /// It took one before its time, which is not noticed any more when that has come, or for another timer; or the arena is damaged.
    pub fn take_back(
        &mut self,
        clock: impl FnOnce() -> Duration,
    ) -> Result<Vec<(Planned, u64)>, Broken> {
        let mut planned = std::mem::take(&mut self.plans.planned);
        if planned.is_empty() {
            return Ok(Vec::new());
        }
        let plan = &self.arena.header().plan;
        let taken = plan.withdraw(planned.len());
        let taken = taken.ok_or_else(|| Broken::new("more entries were taken than planned"))?;
        planned.truncate(taken);
        // After that: its clock may have shown as much.
        let now = clock();
        let due: Vec<_> = (0..taken).map(|n| plan.due_ns(n)).collect();
        for (one, due_ns) in planned.iter().zip(&due) {
            if now + PRECISION < one.at {
                return Err(Broken(format!("entry {} was taken before its time", one.index)));
            }
            if !(one.not_before_ns..=one.stamp_ns).contains(due_ns) {
                return Err(Broken(format!("entry {} was taken for another timer", one.index)));
            }
        }
        self.passage.gives(planned.back().map_or(self.feed.given(), |one| one.index));
        let with_due = planned.iter().cloned().zip(due).collect();
        self.plans.taken = planned;
        Ok(with_due)
    }

    /// Whether the server has taken the entry at `index` by itself, which was proposed now. Each counts once.
    pub fn has_taken(&mut self, index: LogIndex) -> bool {
        let taken = self.plans.taken.pop_front_if(|one| one.index == index);
        let Some(Planned { entry, .. }) = taken else { return false };
        self.input.publish(entry_frame_bytes(&entry));
        self.feed.skip_to(index);
        self.feed.gave(index);
        self.note(index, &entry);
        if let Some(tap) = &mut self.tap {
            tap.entry(index, &entry);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Link;
    use skein_arena::layout::Sizes;
    use skein_arena::ring::Consumer;
    use skein_model::{EntryBuilder, Term, WallNs};

    const MS: u64 = 1_000_000;
    const AT: Duration = Duration::from_secs(100);

    /// A server that was given entry 1, and its end of the input ring, from which it has taken that.
    fn server() -> (Link, Consumer) {
        let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
        let mut link = Link::new(sizes, 1, None).unwrap();
        link.header().plan.know();
        assert!(link.push(LogIndex(1), &entry(1)).unwrap());
        // SAFETY: the only server end in use on this arena, which outlives it.
        let (mut input, _) = unsafe { link.arena.server_ends() };
        let given = input.readable().unwrap().len();
        input.release(given);
        (link, input)
    }

    fn entry(stamp_ns: u64) -> Bytes {
        EntryBuilder::new(Vec::new()).finish(WallNs(stamp_ns), Term(1)).into()
    }

    /// Entries 2 and 3, for a timer that is due each 50 ms.
    fn planned() -> Vec<Planned> {
        let one = |n: u64| {
            let (index, stamp_ns) = (LogIndex(1 + n), n * 50 * MS);
            let at = AT + Duration::from_millis(n * 50);
            Planned { index, entry: entry(stamp_ns), not_before_ns: stamp_ns - MS, stamp_ns, at }
        };
        vec![one(1), one(2)]
    }

    /// The server takes its next entry, and reads it.
    fn take(link: &Link, input: &mut Consumer, due_ns: u64) -> Vec<u8> {
        let next = link.header().plan.next(due_ns).unwrap();
        assert!(link.header().plan.take(&next, due_ns));
        let frame = input.planned(next.step.bytes).unwrap().to_vec();
        input.release(frame.len());
        frame
    }

    #[test]
    fn what_the_server_took_is_what_the_log_gets_and_the_rest_is_not_there() {
        let (mut link, mut input) = server();
        assert_eq!(link.plan(planned(), 149 * MS), Ok(true));
        assert!(input.is_empty().unwrap(), "planned is not published");
        let frame = take(&link, &mut input, 50 * MS);
        assert_eq!(frame[16..][..entry(50 * MS).len()], entry(50 * MS));
        let taken = link.take_back(|| AT + Duration::from_millis(60)).unwrap();
        let [(one, due_ns)] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!((one.index, *due_ns), (LogIndex(2), 50 * MS));
        assert!(!link.has_taken(LogIndex(3)) && link.has_taken(LogIndex(2)));
        assert!(!link.has_taken(LogIndex(2)), "once");
        assert_eq!(link.feed.given(), LogIndex(2));
        // In the place of the other one comes what it is given otherwise.
        assert!(input.is_empty().unwrap());
        let other = entry(77);
        assert!(link.push(LogIndex(3), &other).unwrap());
        let ready = input.readable().unwrap();
        assert_eq!(ready.len(), entry_frame_bytes(&other));
        assert_eq!(ready[16..][..other.len()], other);
        assert_eq!(link.take_back(|| AT), Ok(Vec::new()));
    }

    #[test]
    fn a_server_that_takes_too_early_or_too_much_is_broken() {
        let (mut link, mut input) = server();
        link.plan(planned(), 149 * MS).unwrap();
        take(&link, &mut input, 50 * MS);
        let broken = link.take_back(|| AT + Duration::from_millis(48)).unwrap_err();
        assert_eq!(broken, Broken("entry 2 was taken before its time".into()));

        let (mut link, _input) = server();
        link.plan(planned(), 149 * MS).unwrap();
        let next = link.header().plan.next(50 * MS).unwrap();
        assert!(link.header().plan.take(&next, u64::MAX));
        let broken = link.take_back(|| AT * 2).unwrap_err();
        assert_eq!(broken, Broken("entry 2 was taken for another timer".into()));

        let (mut link, _input) = server();
        let one = planned().into_iter().take(1).collect();
        link.plan(one, 99 * MS).unwrap();
        let next = link.header().plan.next(50 * MS).unwrap();
        assert!(link.header().plan.take(&next, 0));
        link.header().plan.make(&[next.step; 2], 0);
        assert!(link.take_back(|| AT * 2).is_err(), "another plan than was made");
    }

    #[test]
    fn a_runtime_from_before_plans_gets_none() {
        let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
        let mut link = Link::new(sizes, 1, None).unwrap();
        link.push(LogIndex(1), &entry(1)).unwrap();
        assert_eq!(link.plan(planned(), 149 * MS), Ok(false));
    }
}
