//! Entries of timers that a server takes by itself when their time has come, while its node sleeps.
//!
//! A node that would wake for nothing but its idle server's next timer writes that timer's entry into the input ring beforehand, behind those that it has published, and says
//! here when the server may take it. When the node wakes it withdraws what the server has not taken, and proposes what it has. As with any entry that a leader's server executes ahead,
//! nothing of that leaves before the commit.
//!
//! One word decides who was first (model-checked in `tests/loom.rs`): from its plan until it withdraws that the node changes neither the ring nor the plan.

use crate::gate::Gate;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The most entries of a plan.
pub const MOST: usize = 3;

/// The plan's number is above these bits of its word;
const NUMBER: u32 = 16;
/// the number of its entries above these; below is how many of them were taken.
const COUNT: u32 = 8;
const LOW: u64 = 0xff;

/// When the server may take an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// If its next timer is due at this time or later,
    pub not_before_ns: u64,
    /// and at this or earlier, which is the entry's stamp;
    pub stamp_ns: u64,
    /// when `CLOCK_BOOTTIME` shows this.
    pub at_ns: u64,
    /// The length of its frame in the ring.
    pub bytes: u64,
}

#[repr(C)]
#[derive(Debug)]
struct Place {
    not_before_ns: AtomicU64,
    stamp_ns: AtomicU64,
    at_ns: AtomicU64,
    bytes: AtomicU64,
    /// When the timer was due for which it was taken; written by the runtime.
    due_ns: AtomicU64,
}

impl Place {
    fn new() -> Self {
        let [not_before_ns, stamp_ns, at_ns, bytes, due_ns] = each(|| AtomicU64::new(0));
        Self { not_before_ns, stamp_ns, at_ns, bytes, due_ns }
    }
}

fn each<T, const N: usize>(make: impl Fn() -> T) -> [T; N] {
    core::array::from_fn(|_| make())
}

/// See the [module](self). All its fields are valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Plan {
    /// The runtime looks at this: one from before does not.
    known: AtomicU32,
    _pad: u32,
    word: AtomicU64,
    /// The stamp of the entry for which the server sleeps, 0 if for none; written by the runtime.
    awaited_ns: AtomicU64,
    /// Behind the last entry is no other one, but from when on a timer's entry is made by the node.
    steps: [Place; MOST + 1],
}

impl Default for Plan {
    fn default() -> Self {
        let (known, word, awaited_ns) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { known, _pad: 0, word, awaited_ns, steps: each(Place::new) }
    }
}

/// The entry that the server may take next.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    word: u64,
    /// When, and which.
    pub step: Step,
}

impl Plan {
    /// Runtime: it takes entries, from its start on.
    pub fn know(&self) {
        self.known.store(1, Ordering::Relaxed);
    }

    /// Node: whether the runtime does.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed) != 0
    }

    /// Node: the server may take these entries, [`MOST`] at most, one after the other, which are in the ring. When it has, it needs not be told of a timer from `not_before_ns` on.
    pub fn make(&self, steps: &[Step], not_before_ns: u64) {
        debug_assert!(steps.len() <= MOST);
        let last = Step { not_before_ns, ..Step::default() };
        for (place, step) in self.steps.iter().zip(steps.iter().chain([&last])) {
            place.not_before_ns.store(step.not_before_ns, Ordering::Relaxed);
            place.stamp_ns.store(step.stamp_ns, Ordering::Relaxed);
            place.at_ns.store(step.at_ns, Ordering::Relaxed);
            place.bytes.store(step.bytes, Ordering::Relaxed);
        }
        let number = (self.word.load(Ordering::Relaxed) >> NUMBER).wrapping_add(1);
        let word = number << NUMBER | (steps.len() as u64) << COUNT;
        self.word.store(word, Ordering::Release);
    }

    /// Node: the server takes no more. Answers how many of `made` it has taken; `None` for an impossible number.
    #[must_use]
    pub fn withdraw(&self, made: usize) -> Option<usize> {
        let word = self.word.load(Ordering::Relaxed);
        let word = self.word.swap(word >> NUMBER << NUMBER, Ordering::AcqRel);
        let (count, taken) = ((word >> COUNT & LOW) as usize, (word & LOW) as usize);
        (count == made && taken <= made).then_some(taken)
    }

    /// Node: when the timer was due for which the server took that entry.
    #[must_use]
    pub fn due_ns(&self, taken: usize) -> u64 {
        self.steps[taken].due_ns.load(Ordering::Relaxed)
    }

    /// Node, after it has made a plan whose first entry has this stamp: whether the server sleeps at its gate, perhaps without having seen it, and is to be woken.
    #[must_use]
    pub fn is_missed(&self, gate: &Gate, stamp_ns: u64) -> bool {
        // The server looks at the plan after it has closed its gate.
        fence(Ordering::SeqCst);
        gate.is_closed() && self.awaited_ns.load(Ordering::Relaxed) != stamp_ns
    }

    /// Runtime, when it waits and its next timer is due then: whether the node expects that, while there is a plan: it may take an entry for it by itself, or the node wakes by then.
    #[must_use]
    pub fn is_expected(&self, due_ns: u64) -> Option<bool> {
        let word = self.word.load(Ordering::Acquire);
        let (count, taken) = (word >> COUNT & LOW, word & LOW);
        let last = self.steps.get(count as usize).filter(|_| count > 0)?;
        let by_node = due_ns >= last.not_before_ns.load(Ordering::Relaxed);
        Some(by_node || taken < count && self.next(due_ns).is_some())
    }

    /// Runtime, when it waits and its next timer is due then: the entry that it may take when the time has come.
    #[must_use]
    pub fn next(&self, due_ns: u64) -> Option<Next> {
        let word = self.word.load(Ordering::Acquire);
        let (count, taken) = (word >> COUNT & LOW, word & LOW);
        let place = self.steps.get(taken as usize).filter(|_| taken < count)?;
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let step = Step {
            not_before_ns: read(&place.not_before_ns),
            stamp_ns: read(&place.stamp_ns),
            at_ns: read(&place.at_ns),
            bytes: read(&place.bytes),
        };
        let fits = (step.not_before_ns..=step.stamp_ns).contains(&due_ns);
        fits.then_some(Next { word, step })
    }

    /// Runtime, before it sleeps and after its gate was closed, each time: as [`next`](Self::next) for the timer that it waits for, if it may take an entry; it wakes for that.
    pub fn look(&self, due_ns: Option<u64>) -> Option<Next> {
        // The node makes a plan and then looks at this: one of the two sees the other.
        self.awaited_ns.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let next = self.next(due_ns?)?;
        self.awaited_ns.store(next.step.stamp_ns, Ordering::Relaxed);
        Some(next)
    }

    /// Runtime: takes it for the timer that is due then. False if the node has withdrawn it.
    #[must_use]
    pub fn take(&self, next: &Next, due_ns: u64) -> bool {
        if let Some(place) = self.steps.get((next.word & LOW) as usize) {
            place.due_ns.store(due_ns, Ordering::Relaxed);
        }
        let (from, to) = (next.word, next.word + 1);
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn steps() -> [Step; 2] {
        let first = Step { not_before_ns: 10, stamp_ns: 20, at_ns: 5, bytes: 40 };
        [first, Step { not_before_ns: 30, stamp_ns: 45, at_ns: 9, bytes: 48 }]
    }

    #[test]
    fn entries_are_taken_in_order_for_timers_that_were_expected() {
        let plan = Plan::default();
        assert!(plan.next(15).is_none() && plan.is_expected(15).is_none());
        plan.make(&steps(), 50);
        assert!(plan.next(9).is_none() && plan.next(21).is_none(), "other timers");
        let expected =
            |plan: &Plan, all: [u64; 4]| all.map(|due| plan.is_expected(due) == Some(true));
        // Between two entries: it would be late for the first, and early for the second.
        assert_eq!(expected(&plan, [9, 15, 21, 31]), [false, true, false, false]);
        assert_eq!(expected(&plan, [46, 49, 50, 999]), [false, false, true, true]);
        let first = plan.next(15).unwrap();
        assert_eq!(first.step, steps()[0]);
        assert!(plan.take(&first, 15) && !plan.take(&first, 15), "once");
        assert_eq!(expected(&plan, [15, 29, 31, 46]), [false, false, true, false]);
        let second = plan.next(45).unwrap();
        assert_eq!(second.step, steps()[1]);
        assert!(plan.take(&second, 45) && plan.next(60).is_none());
        // The node wakes by itself then.
        assert_eq!(expected(&plan, [31, 49, 50, 51]), [false, false, true, true]);
        assert_eq!(plan.withdraw(2), Some(2));
        assert_eq!([0, 1].map(|n| plan.due_ns(n)), [15, 45]);
        assert_eq!(plan.is_expected(15), None);
    }

    #[test]
    fn what_was_withdrawn_is_not_taken_even_if_it_is_planned_again() {
        let plan = Plan::default();
        plan.make(&steps(), 50);
        let first = plan.next(15).unwrap();
        assert_eq!(plan.withdraw(2), Some(0));
        assert!(!plan.take(&first, 15));
        plan.make(&steps(), 50);
        assert!(!plan.take(&first, 15), "it is of another plan");
        assert!(plan.take(&plan.next(15).unwrap(), 15));
        assert_eq!(plan.withdraw(2), Some(1));
    }

    #[test]
    fn impossible_numbers_are_noticed() {
        let plan = Plan::default();
        plan.make(&steps(), 50);
        plan.word.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(plan.withdraw(2), None);
        assert!(plan.next(15).is_none());
        plan.make(&steps()[..1], 50);
        plan.word.fetch_add(2, Ordering::Relaxed);
        assert_eq!(plan.withdraw(1), None, "two of one");
    }
}
