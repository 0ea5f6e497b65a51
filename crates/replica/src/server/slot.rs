//! The place of a replica's server: what stands in it, and what comes next.
//!
//! ```text
//! none --> starting --> restoring --> running
//!   ^         |             |            |
//!   +---------+-------------+------------+   it ended, or was ended
//! ```
//!
//! A server is *restoring* while it executes what the others' servers have executed already. When it ends, the slot is empty for a moment, and the next
//! server is built from the log. The link of one that ended stays until then: others ask for its digests.
//!
//! A slot can be empty without that: of a witness for good, of a passive replica until it leads. Such a replica votes and keeps the log, and executes nothing.
//!
//! Pure: the replica reads the clock and starts servers.

use super::Link;
use super::rebuilds::Rebuilds;
use skein_model::LogIndex;
use std::time::Duration;

/// A leader whose server ended alone hands leadership over after this.
const HAND_OVER_AFTER: Duration = Duration::from_millis(200);

/// What stands in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No server.
    None(Vacancy),
    /// Its process is being started.
    Starting,
    /// It executes entries that others have executed before it.
    Restoring {
        /// When its process was there.
        since: Duration,
        /// The entry after which it is in step, once that is known.
        goal: Option<LogIndex>,
    },
    /// It has executed all committed entries once.
    Running,
}

/// Why there is no server, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacancy {
    /// None belongs here, or none until it is called for.
    Rest,
    /// It ended or was ended; the next one is due at `again`, unless a majority's ended, too.
    Due {
        /// The time of its end.
        since: Duration,
        /// The time of the next start.
        again: Duration,
        /// Leadership was to be handed over because of that.
        handed_over: bool,
    },
}

/// The arena of the next generation.
#[derive(Debug, Default)]
enum Next {
    /// No thread makes one.
    #[default]
    None,
    /// A thread makes it, and reports it.
    Coming,
    Made(Box<Link>),
}

/// See the [module](self).
#[derive(Debug)]
pub struct Slot {
    state: State,
    /// The server, or the last one.
    link: Option<Link>,
    /// The generation of the last one.
    generation: u64,
    next: Next,
    rebuilds: Rebuilds,
    /// It differed from the others and its successor does not run yet.
    diverged: bool,
    /// It ended with this status after an entry that is not committed yet.
    ended_ahead: Option<i32>,
    /// Its last end with its status, until it has caught up again.
    ended: Option<(LogIndex, i32)>,
}

impl Slot {
    /// A slot for this server, which is being started; without one, a slot that is empty until one is called for.
    #[must_use]
    pub fn new(link: Option<Link>) -> Self {
        Self {
            state: if link.is_some() { State::Starting } else { State::None(Vacancy::Rest) },
            generation: link.as_ref().map_or(0, |link| link.generation),
            link,
            next: Next::None,
            rebuilds: Rebuilds::default(),
            diverged: false,
            ended_ahead: None,
            ended: None,
        }
    }

    /// An empty slot for this server, which is started when there is an image from which it can continue.
    #[must_use]
    pub fn awaiting(link: Link) -> Self {
        let zero = Duration::ZERO;
        let vacancy = Vacancy::Due { since: zero, again: zero, handed_over: true };
        Self { state: State::None(vacancy), ..Self::new(Some(link)) }
    }

    /// What stands in it.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The server's link, or that of the last one; `None` in a slot that rests.
    #[must_use]
    pub const fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// As [`link`](Self::link).
    #[must_use]
    pub const fn link_mut(&mut self) -> Option<&mut Link> {
        self.link.as_mut()
    }

    /// Whether no server belongs here now.
    #[must_use]
    pub const fn rests(&self) -> bool {
        matches!(self.state, State::None(Vacancy::Rest))
    }

    /// No server belongs here any more; answers the link of the last one. Its process must have been ended.
    pub fn rest(&mut self) -> Option<Link> {
        self.state = State::None(Vacancy::Rest);
        (self.diverged, self.ended_ahead, self.ended) = (false, None, None);
        self.link.take()
    }

    /// A slot that rests needs a server now: no failure of the last one.
    pub fn call(&mut self, now: Duration) {
        if self.rests() {
            self.rebuilds.forgive();
            let vacancy = Vacancy::Due { since: now, again: now, handed_over: true };
            self.state = State::None(vacancy);
        }
    }

    /// Whether entries may be put into the ring: there is a server, or it is being started.
    #[must_use]
    pub const fn can_be_fed(&self) -> bool {
        !matches!(self.state, State::None(_))
    }

    /// Whether its process is there.
    #[must_use]
    pub const fn has_process(&self) -> bool {
        matches!(self.state, State::Restoring { .. } | State::Running)
    }

    /// Whether it may be given uncommitted entries.
    #[must_use]
    pub const fn can_go_ahead(&self) -> bool {
        self.has_process() && self.ended_ahead.is_none()
    }

    /// Whether it has executed all committed entries once.
    #[must_use]
    pub fn is_in_step(&self) -> bool {
        self.state == State::Running
    }

    /// Whether it differed from the others and its successor does not run yet.
    #[must_use]
    pub const fn has_diverged(&self) -> bool {
        self.diverged
    }

    /// The entry after which it ended the last time, and its status, until it has caught up again.
    #[must_use]
    pub const fn last_end(&self) -> Option<(LogIndex, i32)> {
        self.ended
    }

    /// The number of rebuilds in a row.
    #[must_use]
    pub const fn rebuilds_in_a_row(&self) -> u32 {
        self.rebuilds.count()
    }

    /// The next rebuild does not count.
    pub const fn forgive(&mut self) {
        self.rebuilds.forgive();
    }

    /// Its process is there; false for one that was ended meanwhile.
    pub fn launched(&mut self, now: Duration) -> bool {
        let expected = self.state == State::Starting;
        if expected {
            self.state = State::Restoring { since: now, goal: None };
            self.diverged = false;
        }
        expected
    }

    /// Its process ended with this status, perhaps after an entry that is not committed yet.
    pub const fn process_ended(&mut self, status: i32) {
        if self.can_be_fed() {
            self.ended_ahead = Some(status);
        }
    }

    /// The status with which it ended, once all entries that it had are committed.
    #[must_use]
    pub fn take_end(&mut self) -> Option<i32> {
        let committed = self.link.as_ref().is_some_and(|link| link.ahead.is_empty());
        committed.then(|| self.ended_ahead.take()).flatten()
    }

    /// It ended by itself after `index`, with this status.
    pub const fn note_end(&mut self, index: LogIndex, status: i32) {
        self.ended = Some((index, status));
    }

    /// It is to be rebuilt because it differs from the others.
    pub const fn note_divergence(&mut self) {
        self.diverged = true;
    }

    /// There is no server any more; the next one is due after `wait` at the earliest.
    pub fn vacate(&mut self, wait: Duration, now: Duration) {
        if self.rests() {
            return;
        }
        let again = now + wait.max(self.rebuilds.ended(now));
        self.state = State::None(Vacancy::Due { since: now, again, handed_over: false });
        self.ended_ahead = None;
        if let Some(link) = &mut self.link {
            link.pid = 0;
        }
    }

    /// The next one follows at this time, as soon as it can: no failure, and nothing for another leader.
    pub const fn hasten(&mut self, now: Duration) {
        if let State::None(Vacancy::Due { again, handed_over, .. }) = &mut self.state {
            (*again, *handed_over) = (now, true);
        }
    }

    /// Another leader would have no server, either.
    pub const fn keeps_leadership(&mut self) {
        if let State::None(Vacancy::Due { handed_over, .. }) = &mut self.state {
            *handed_over = true;
        }
    }

    /// Whether the arena of the next generation is to be made now, and its number. It counts as being made then.
    pub fn wants_arena(&mut self) -> Option<u64> {
        if !matches!(self.next, Next::None) {
            return None;
        }
        self.next = Next::Coming;
        Some(self.generation + 1)
    }

    /// The next generation's arena is made.
    pub fn arena_made(&mut self, link: Box<Link>) {
        self.next = Next::Made(link);
    }

    /// Whether leadership is to be handed over now, because its server has been away for a while; once for each end.
    pub fn hands_over(&mut self, now: Duration) -> bool {
        let State::None(Vacancy::Due { since, handed_over, .. }) = &mut self.state else {
            return false;
        };
        !*handed_over && now >= *since + HAND_OVER_AFTER && {
            *handed_over = true;
            true
        }
    }

    /// Whether the next server is to be started now.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        matches!(self.state, State::None(Vacancy::Due { again, .. }) if now >= again)
    }

    /// The link of the next server, once it is made.
    #[must_use]
    pub fn take_next(&mut self) -> Option<Link> {
        match std::mem::take(&mut self.next) {
            Next::Made(link) => Some(*link),
            other => {
                self.next = other;
                None
            }
        }
    }

    /// Counts a rebuild; answers how many there were in a row.
    pub fn count_rebuild(&mut self) -> u32 {
        self.rebuilds.begin()
    }

    /// Puts the next server into the slot, to be started; answers the last one's link.
    pub fn refill(&mut self, link: Link) -> Option<Link> {
        assert_eq!(link.generation, self.generation + 1, "an arena for another generation");
        self.generation = link.generation;
        self.state = State::Starting;
        self.link.replace(link)
    }

    /// Looks whether it is in step by now: `goal` answers the entry after which it is, if that is known. Answers how long it took since its process
    /// was there, once.
    pub fn look(
        &mut self,
        now: Duration,
        goal: impl FnOnce(&Link) -> Option<LogIndex>,
    ) -> Option<Duration> {
        let (State::Restoring { since, goal: known }, Some(link)) = (&mut self.state, &self.link)
        else {
            return None;
        };
        *known = known.or_else(|| goal(link));
        if link.is_restoring() || known.is_none_or(|goal| link.admitted < goal) {
            return None;
        }
        let took = now.saturating_sub(*since);
        self.state = State::Running;
        self.rebuilds.in_step(now);
        self.ended = None;
        Some(took)
    }

    /// When to look again, if ever.
    #[must_use]
    pub fn wake(&self) -> Option<Duration> {
        let State::None(Vacancy::Due { since, again, handed_over }) = self.state else {
            return None;
        };
        let hand_over = (!handed_over).then_some(since + HAND_OVER_AFTER);
        let rebuild = (!matches!(self.next, Next::Coming)).then_some(again);
        hand_over.into_iter().chain(rebuild).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_arena::Sizes;
    use skein_model::{EntryBuilder, Record, Term, WallNs};

    const MS: Duration = Duration::from_millis(1);

    fn link(generation: u64) -> Link {
        Link::sparse(Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() }, generation).unwrap()
    }

    fn is_none(slot: &Slot) -> bool {
        matches!(slot.state(), State::None(Vacancy::Due { .. }))
    }

    #[test]
    fn a_server_comes_catches_up_and_goes() {
        let mut slot = Slot::new(Some(link(1)));
        assert_eq!(slot.state(), State::Starting);
        assert!(slot.can_be_fed() && !slot.has_process() && !slot.can_go_ahead());
        assert!(slot.launched(5 * MS) && slot.can_go_ahead() && !slot.is_in_step());
        assert_eq!(slot.look(6 * MS, |_| None), None, "nobody knows how far it must come");
        assert_eq!(slot.look(7 * MS, |_| Some(LogIndex(3))), None);
        slot.link_mut().unwrap().admitted = LogIndex(3);
        let later = |_: &Link| panic!("it is known");
        assert_eq!(slot.look(9 * MS, later), Some(4 * MS));
        assert_eq!((slot.state(), slot.look(9 * MS, later)), (State::Running, None));
        slot.vacate(Duration::ZERO, 10 * MS);
        assert!(is_none(&slot) && !slot.can_be_fed());
        assert_eq!((slot.wants_arena(), slot.wants_arena()), (Some(2), None));
        assert_eq!(slot.wake(), Some(210 * MS), "it waits for the arena, and to hand over");
        slot.arena_made(Box::new(link(2)));
        assert_eq!(slot.wake(), Some(110 * MS));
        assert!(!slot.is_due(109 * MS) && slot.is_due(110 * MS));
        assert!(!slot.hands_over(209 * MS) && slot.hands_over(210 * MS));
        assert!(!slot.hands_over(300 * MS), "once");
        let next = slot.take_next().unwrap();
        assert_eq!(slot.count_rebuild(), 1);
        assert_eq!(slot.refill(next).map(|former| former.generation), Some(1));
        assert_eq!((slot.state(), slot.wake()), (State::Starting, None));
    }

    #[test]
    fn one_that_was_ended_while_it_was_started_does_not_come_back() {
        let mut slot = Slot::new(Some(link(1)));
        slot.note_divergence();
        slot.vacate(Duration::ZERO, MS);
        assert!(!slot.launched(2 * MS) && is_none(&slot) && slot.has_diverged());
        slot.process_ended(9);
        assert_eq!(slot.take_end(), None, "and its end is no news");
        slot.wants_arena();
        slot.arena_made(Box::new(link(2)));
        let next = slot.take_next().unwrap();
        slot.refill(next);
        assert!(slot.has_diverged() && slot.launched(3 * MS) && !slot.has_diverged());
    }

    #[test]
    fn an_end_counts_when_all_that_it_executed_is_committed() {
        let mut slot = Slot::new(Some(link(1)));
        slot.launched(MS);
        let link = slot.link_mut().unwrap();
        let mut entry = EntryBuilder::new(Vec::new());
        entry.push(Record::TermStart);
        assert!(link.push(LogIndex(1), &entry.finish(WallNs(1), Term(1))).unwrap());
        link.ahead.went(LogIndex(1), Term(1), LogIndex(0));
        slot.process_ended(9);
        assert!(!slot.can_go_ahead());
        assert_eq!(slot.take_end(), None);
        let link = slot.link_mut().unwrap();
        assert_eq!(link.ahead.committed(LogIndex(1), Term(1)), Ok(true));
        assert_eq!((slot.take_end(), slot.take_end()), (Some(9), None));
    }

    #[test]
    fn a_slot_that_rests_stays_empty_until_a_server_is_called_for() {
        let mut slot = Slot::new(None);
        assert!(slot.rests() && slot.link().is_none() && !slot.can_be_fed());
        slot.vacate(Duration::ZERO, MS);
        slot.process_ended(9);
        assert!(slot.rests() && !slot.launched(MS) && !slot.is_due(1000 * MS));
        assert_eq!((slot.wake(), slot.take_end()), (None, None));
        assert!(!slot.hands_over(1000 * MS));
        assert_eq!(slot.wants_arena(), Some(1), "one is made in advance");
        slot.arena_made(Box::new(link(1)));
        slot.call(2 * MS);
        assert!(slot.is_due(2 * MS) && !slot.hands_over(1000 * MS) && slot.wake() == Some(2 * MS));
        let next = slot.take_next().unwrap();
        assert_eq!(slot.count_rebuild(), 0, "it is no failure");
        assert!(slot.refill(next).is_none() && slot.launched(3 * MS) && slot.can_be_fed());
        slot.note_divergence();
        assert_eq!(slot.rest().map(|link| link.generation), Some(1));
        assert!(slot.rests() && slot.link().is_none() && !slot.has_diverged());
        assert_eq!(slot.wants_arena(), Some(2));
    }
}
