//! When a leader proposes its clients' requests, and when it waits briefly for more of them (databases call this a commit delay).
//!
//! An entry costs every replica the same, whatever its content: messages, a write to disk, several wake-ups. Clients that were
//! answered together tend to ask again together, but the first asks before the last is answered. A leader that proposes at
//! once splits such a crowd into small entries. Two alternating half-batches work best: while one half's entry is in flight, the other half
//! sends requests. The leader therefore compares the clients that have sent a request with those that are *out*: their requests are in flight,
//! or they were answered a moment ago. It proposes when about half of all have sent one, or when a wait brought no client. One
//! or two clients never wait, and waits that bring nothing are tried less often. Where an entry costs no more than
//! the wake-ups of node and server, three tenths of all are enough; where it costs writes to disk, two thirds are needed.

use crate::config::DurabilityMode;
use skein_model::LogIndex;
use std::collections::VecDeque;
use std::time::Duration;

/// The shortest wait: shorter than the commit of an entry, longer than a client needs for its next request on the same machine.
const SHORTEST_WAIT: Duration = Duration::from_micros(50);
/// The longest wait while some clients should be on their way back.
const LONGEST_WAIT: Duration = Duration::from_micros(100);
/// The expected time for each missing client.
const EACH: Duration = Duration::from_micros(4);
/// An answered client comes back within this time after the one before, or is not waited for.
const PATIENCE: Duration = Duration::from_micros(100);
/// The least wait for clients whose requests are on their way, if twice an entry's time is less.
const ANSWERS: Duration = Duration::from_micros(400);
/// The longest wait, however slow disks and servers are.
const LONGEST_ANSWERS: Duration = Duration::from_millis(4);
/// The longest wait for clients that are coming, if answers are not waited for even longer.
const LONGEST: Duration = Duration::from_millis(1);
/// The most proposals without a wait after a wait that brought nothing.
const MAX_SKIP: u32 = 63;

/// The fixed cost of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// One replica, its log in memory: wake-ups.
    Low,
    /// Messages to others.
    #[default]
    High,
    /// Writes to disk.
    Highest,
}

impl Cost {
    /// Of an entry of a log that is kept like that, by one replica `alone` or several.
    #[must_use]
    pub const fn of(durability: DurabilityMode, alone: bool) -> Self {
        match durability {
            DurabilityMode::Fsync => Self::Highest,
            DurabilityMode::Memory if alone => Self::Low,
            DurabilityMode::Memory => Self::High,
        }
    }

    /// The sufficient number where `out` are out: three tenths of all, four ninths (halves need not be quite equal), two thirds.
    const fn enough(self, out: usize) -> usize {
        match self {
            Self::Low => out * 9 / 20,
            Self::High => out * 4 / 5,
            // Two clients do not wait for each other.
            Self::Highest => (out * 2).saturating_sub(1),
        }
    }
}

/// Decides when a leader proposes.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    cost: Cost,
    wait: Option<Wait>,
    skip: u32,
    backoff: u32,
    /// Entries that the server has not executed yet.
    under_way: VecDeque<Entry>,
    /// The number of clients that they are from.
    asking: usize,
    /// The recent time of an entry from its proposal until it was executed.
    takes: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    index: LogIndex,
    clients: usize,
    proposed: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Duration,
    /// The number of returned clients at its begin, and when the last one came.
    first: usize,
    ready: usize,
    asking: usize,
    /// When the last client came, or was answered.
    moved: Duration,
}

impl Gather {
    /// Nothing is under way.
    #[must_use]
    pub fn new(cost: Cost) -> Self {
        Self { cost, ..Self::default() }
    }

    /// From now on an entry costs this.
    pub const fn costs(&mut self, cost: Cost) {
        self.cost = cost;
    }

    /// How long to wait before the requests of `ready` clients are proposed, if at all; `awaited` others were just answered.
    pub fn next_wait(&mut self, ready: usize, awaited: usize, now: Duration) -> Option<Duration> {
        let asking = self.asking;
        let enough = self.cost.enough(asking + awaited);
        if ready >= enough || self.skip > 0 {
            return None;
        }
        let begin = Wait { since: now, first: ready, ready, asking, moved: now };
        let wait = self.wait.get_or_insert(begin);
        if ready > wait.ready || asking < wait.asking {
            (wait.ready, wait.asking, wait.moved) = (ready, asking, now);
        }
        let waited = now - wait.since;
        let answers = (2 * self.takes).clamp(ANSWERS, LONGEST_ANSWERS);
        if awaited > 0 && now - wait.moved < PATIENCE && waited < LONGEST.max(answers) {
            return Some((EACH * (enough - ready) as u32).clamp(SHORTEST_WAIT, LONGEST_WAIT));
        }
        (asking > 0 && waited < answers).then(|| answers - waited)
    }

    /// An entry of `clients` is proposed as `index`.
    pub fn proposed(&mut self, index: LogIndex, clients: usize, now: Duration) {
        match self.wait.take() {
            None => self.skip = self.skip.saturating_sub(1),
            Some(wait) if wait.ready > wait.first || clients > wait.first => self.backoff = 0,
            Some(_) => {
                self.skip = self.backoff;
                self.backoff = (2 * self.backoff + 1).min(MAX_SKIP);
            }
        }
        self.under_way.push_back(Entry { index, clients, proposed: now });
        self.asking += clients;
    }

    /// The server has executed all before `next`, and its output has left.
    pub fn executed(&mut self, next: LogIndex, now: Duration) {
        while let Some(entry) = self.under_way.pop_front_if(|entry| entry.index < next) {
            self.asking -= entry.clients;
            self.takes = (7 * self.takes + (now - entry.proposed)) / 8;
        }
    }

    /// Nothing is under way any more.
    pub fn forget(&mut self) {
        *self = Self::new(self.cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn asks(gather: &mut Gather, index: u64, clients: usize, now: Duration) {
        gather.proposed(LogIndex(index), clients, now);
    }

    #[test]
    fn who_is_alone_or_half_of_all_never_waits() {
        let mut gather = Gather::default();
        for (ready, awaited) in [(1, 0), (50, 0), (1, 1), (20, 25), (0, 0)] {
            assert_eq!(
                gather.next_wait(ready, awaited, US),
                None,
                "{ready} are back, {awaited} are not"
            );
        }
        asks(&mut gather, 7, 1, US);
        assert_eq!(gather.next_wait(1, 0, US), None, "one is under way, one is back");
    }

    #[test]
    fn a_crowd_is_proposed_in_two_halves() {
        let mut gather = Gather::default();
        let mut now = Duration::ZERO;
        for round in 0..100 {
            // All were answered. They come back one by one until half are there.
            let mut ready = 1;
            while let Some(wait) = gather.next_wait(ready, 50 - ready, now) {
                assert!((SHORTEST_WAIT..=LONGEST_WAIT).contains(&wait));
                now += 10 * US;
                ready += 1;
            }
            assert_eq!(ready, 22, "as good as half");
            asks(&mut gather, 2 * round, ready, now);
            // The others come back while these are under way; the last of them are waited for.
            assert!(gather.next_wait(10, 18, now).is_some());
            assert!(gather.next_wait(20, 8, now + 50 * US).is_some());
            assert_eq!(gather.next_wait(28, 0, now + 100 * US), None);
            asks(&mut gather, 2 * round + 1, 28, now);
            gather.executed(LogIndex(2 * round + 2), now);
        }
    }

    #[test]
    fn where_entries_are_cheap_three_tenths_are_enough() {
        let mut gather = Gather::new(Cost::Low);
        for (ready, awaited) in [(1, 0), (1, 1), (1, 4), (15, 35), (30, 20)] {
            assert_eq!(
                gather.next_wait(ready, awaited, US),
                None,
                "{ready} are back, {awaited} are not"
            );
        }
        assert!(gather.next_wait(14, 36, US).is_some());
        gather.forget();
        assert_eq!(gather.next_wait(15, 35, US), None, "entries have not become dearer");
    }

    #[test]
    fn where_entries_are_written_to_disk_it_is_two_thirds() {
        let mut gather = Gather::new(Cost::Highest);
        for (ready, awaited) in [(1, 0), (1, 1), (2, 1), (3, 2), (33, 17), (50, 0)] {
            assert_eq!(
                gather.next_wait(ready, awaited, US),
                None,
                "{ready} are back, {awaited} are not"
            );
        }
        assert!(gather.next_wait(32, 18, US).is_some());
        gather.forget();
        assert!(gather.next_wait(1, 2, US).is_some());
    }

    #[test]
    fn who_comes_back_while_most_are_under_way_waits_for_their_answers_but_not_for_ever() {
        let mut gather = Gather::default();
        let start = 1000 * US;
        asks(&mut gather, 7, 40, start);
        assert_eq!(gather.next_wait(3, 0, start), Some(ANSWERS), "only answers are waited for");
        assert_eq!(gather.next_wait(3, 0, start + 300 * US), Some(100 * US));
        assert_eq!(gather.next_wait(3, 0, start + ANSWERS), None);
        gather.forget();
        asks(&mut gather, 7, 40, start);
        assert_eq!(gather.next_wait(3, 0, start), Some(ANSWERS));
        gather.executed(LogIndex(7), start + 300 * US);
        assert_eq!(gather.next_wait(3, 0, start + 300 * US), Some(100 * US), "7 is not before 7");
        gather.executed(LogIndex(8), start + 300 * US);
        assert!(gather.next_wait(3, 40, start + 350 * US).is_some(), "they were answered just now");
        assert!(
            gather.next_wait(3, 40, start + 440 * US).is_some(),
            "and have some time to come back"
        );
        assert_eq!(gather.next_wait(3, 40, start + 460 * US), None);
    }

    #[test]
    fn answers_are_waited_for_as_long_as_entries_take() {
        let mut gather = Gather::default();
        let longest = |gather: &mut Gather, now| {
            asks(gather, 1000, 40, now);
            let wait = gather.next_wait(3, 0, now);
            gather.executed(LogIndex(1001), now);
            gather.wait = None;
            wait
        };
        for (entry_us, waits) in [(1, ANSWERS), (1500, 3000 * US), (50_000, LONGEST_ANSWERS)] {
            let mut gather = Gather::default();
            for index in 0..100 {
                asks(&mut gather, index, 1, Duration::ZERO);
                gather.executed(LogIndex(index + 1), entry_us * US);
            }
            let wait = longest(&mut gather, entry_us * US).expect("most are on their way");
            assert!(waits - wait < 10 * US, "entries take {entry_us} us: {wait:?}");
        }
        assert_eq!(longest(&mut gather, US), Some(ANSWERS), "nothing is known yet");
    }

    #[test]
    fn waits_end_when_nobody_comes_and_are_bounded_when_somebody_always_does() {
        let mut gather = Gather::default();
        assert!(gather.next_wait(1, 49, Duration::ZERO).is_some());
        assert!(gather.next_wait(2, 48, 90 * US).is_some());
        assert!(gather.next_wait(2, 48, 180 * US).is_some());
        assert_eq!(gather.next_wait(2, 48, 190 * US), None, "nobody came for long");
        asks(&mut gather, 7, 2, 190 * US);
        gather.executed(LogIndex(8), 190 * US);
        let waits = |n: &u32| gather.next_wait(1 + *n as usize, 1000, 10 * US * *n).is_some();
        assert_eq!((0..1000).take_while(waits).count(), 100, "a millisecond");
    }

    #[test]
    fn where_it_does_not_pay_it_is_tried_less_and_less_often_until_it_pays() {
        let mut gather = Gather::default();
        let mut now = Duration::ZERO;
        let mut tried = Vec::new();
        for proposal in 0..400 {
            if gather.next_wait(1, 49, now).is_some() {
                tried.push(proposal);
                now += PATIENCE;
                assert_eq!(gather.next_wait(1, 49, now), None);
            }
            asks(&mut gather, proposal, 1, now);
            gather.executed(LogIndex(proposal + 1), now);
        }
        let gaps: Vec<_> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps[..8], [1, 2, 4, 8, 16, 32, 64, 64]);
        while gather.next_wait(1, 49, now).is_none() {
            asks(&mut gather, 1000, 1, now);
            gather.executed(LogIndex(1001), now);
        }
        assert!(gather.next_wait(20, 30, now + 50 * US).is_some());
        asks(&mut gather, 1001, 20, now);
        gather.executed(LogIndex(1002), now);
        assert!(gather.next_wait(1, 49, now).is_some(), "somebody came, so it pays again");
    }
}
