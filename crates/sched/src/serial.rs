//! One thread runs at a time and keeps the turn until it blocks or has done `quantum` operations (now and then one more).

use crate::{Next, Op, Policy};
use core::cell::Cell;

/// The `serial` schedule. All-zero bytes are a schedule that was not started.
///
/// Invariant: `clock` never passes `slot_at` without an admission.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Serial {
    quantum: Cell<u32>,
    nclock: Cell<u32>,
    /// Operations left in this turn.
    left: Cell<u32>,
    /// The remaining operations while operations are traced: then `left` is 1, so that each operation leaves the fast path. 0: no trace.
    left_traced: Cell<u32>,
    operations: Cell<u64>,
    clock: Cell<u64>,
    /// The clock at which the next entry must be admitted, whatever else can run.
    slot_at: Cell<u64>,
}

impl Serial {
    /// Starts the schedule. Both numbers are at least 1 and the same on all replicas.
    pub fn start(&self, quantum: u32, nclock: u32) {
        assert!(quantum > 0 && nclock > 0, "a schedule needs a quantum and slots");
        self.quantum.set(quantum);
        self.nclock.set(nclock);
        self.refill(quantum);
        self.slot_at.set(self.clock.get() + u64::from(nclock));
    }

    /// Ends the turn at the next operation, and admits the next entry then.
    pub fn press(&self) {
        self.refill(1);
        self.slot_at.set(self.clock.get());
    }

    fn refill(&self, operations: u32) {
        if self.is_traced() {
            self.left_traced.set(operations);
        } else {
            self.left.set(operations);
        }
    }

    /// From now on [`operation`](Policy::operation) always answers [`Next::EndTurn`], and the code that records the operation asks
    /// [`traced`](Self::traced) for the real next step. The order of operations does not change.
    pub fn trace(&self) {
        self.left_traced.set(self.left.replace(1).max(1));
    }

    /// Whether operations are to be written down.
    pub fn is_traced(&self) -> bool {
        self.left_traced.get() > 0
    }

    /// The answer that an operation would have had without a trace.
    pub fn traced(&self) -> Next {
        match self.left_traced.get() {
            left @ 2.. => {
                self.left_traced.set(left - 1);
                Next::Continue
            }
            _ => Next::EndTurn,
        }
    }

    /// Whether the schedule was started.
    pub fn started(&self) -> bool {
        self.quantum.get() > 0
    }
}

/// Every so many turns one turn is an operation longer. Threads with turns of equal length can miss each other for ever: two threads that
/// take two locks in opposite order by trying and backing off, or one that holds a lock at the end of each of its turns beside one
/// that only tries it. A prime, so that it falls on each thread in its turn.
const STUMBLE_TURNS: u64 = 61;

impl Policy for Serial {
    fn operation(&self, _: Op) -> Next {
        self.operations.set(self.operations.get() + 1);
        let left = self.left.get();
        if left > 1 {
            self.left.set(left - 1);
            Next::Continue
        } else {
            Next::EndTurn
        }
    }

    fn end_turn(&self) -> Next {
        self.clock.set(self.clock.get() + 1);
        let stumble = u32::from(self.clock.get().is_multiple_of(STUMBLE_TURNS));
        self.refill(self.quantum.get().saturating_add(stumble));
        if self.clock.get() >= self.slot_at.get() { Next::Admit } else { Next::Continue }
    }

    /// Each input has its own `nclock` turns: requests that arrived together are not delayed until the next ones arrive.
    fn admitted(&self, inputs: u32, bubble: Option<u32>) {
        let own = self.nclock.get().saturating_mul(inputs.max(1));
        let turns = bubble.unwrap_or(0).max(own);
        self.slot_at.set(self.clock.get() + u64::from(turns));
    }

    fn clock(&self) -> u64 {
        self.clock.get()
    }

    fn operations(&self) -> u64 {
        self.operations.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Kind, Object};

    const OP: Op = Op { thread: 1, object: Object::Clock, kind: Kind::Ask };

    fn run_to_slot(s: &Serial) -> u64 {
        let from = s.clock();
        loop {
            while s.operation(OP) == Next::Continue {}
            if s.end_turn() == Next::Admit {
                return s.clock() - from;
            }
        }
    }

    #[test]
    fn a_turn_has_quantum_operations() {
        let s = Serial::default();
        s.start(3, 10);
        assert_eq!([s.operation(OP), s.operation(OP)], [Next::Continue; 2]);
        assert_eq!(s.operation(OP), Next::EndTurn);
        assert_eq!(s.end_turn(), Next::Continue);
        assert_eq!((s.clock(), s.operations()), (1, 3));
        assert_eq!(s.operation(OP), Next::Continue);
    }

    #[test]
    fn turns_that_are_all_alike_stumble_now_and_then() {
        let s = Serial::default();
        s.start(1, 1000);
        let mut lengths = [0; 122];
        for length in &mut lengths {
            *length = 1;
            while s.operation(OP) == Next::Continue {
                *length += 1;
            }
            s.end_turn();
        }
        assert_eq!(lengths.iter().filter(|n| **n == 2).count(), 1);
        assert_eq!(lengths[61], 2);
    }

    #[test]
    fn slots_come_every_nclock_turns() {
        let s = Serial::default();
        s.start(2, 5);
        assert_eq!(run_to_slot(&s), 5);
        s.admitted(0, None);
        assert_eq!(run_to_slot(&s), 5);
    }

    #[test]
    fn a_bubble_grants_its_turns_but_never_less_than_nclock() {
        let s = Serial::default();
        s.start(2, 5);
        run_to_slot(&s);
        s.admitted(0, Some(12));
        assert_eq!(run_to_slot(&s), 12);
        s.admitted(0, Some(1));
        assert_eq!(run_to_slot(&s), 5);
    }

    #[test]
    fn each_input_grants_turns_of_its_own() {
        let s = Serial::default();
        s.start(2, 5);
        run_to_slot(&s);
        s.admitted(1, None);
        assert_eq!(run_to_slot(&s), 5);
        s.admitted(4, None);
        assert_eq!(run_to_slot(&s), 20);
        s.admitted(2, Some(30));
        assert_eq!(run_to_slot(&s), 30);
        s.admitted(u32::MAX, None);
        assert!(s.slot_at.get() - s.clock() == u64::from(u32::MAX), "it is a large number");
    }

    #[test]
    fn a_trace_changes_nothing_of_the_order() {
        let (plain, traced) = (Serial::default(), Serial::default());
        traced.trace();
        for s in [&plain, &traced] {
            s.start(7, 5);
        }
        for n in 0..2000 {
            let next = plain.operation(OP);
            assert_eq!(traced.operation(OP), Next::EndTurn, "each one leaves the fast path");
            assert_eq!(traced.traced(), next, "operation {n}");
            if n % 97 == 0 {
                plain.press();
                traced.press();
            }
            if next == Next::EndTurn {
                let ended = plain.end_turn();
                assert_eq!(traced.end_turn(), ended);
                if ended == Next::Admit {
                    plain.admitted(1, None);
                    traced.admitted(1, None);
                }
            }
            assert_eq!((traced.clock(), traced.operations()), (plain.clock(), plain.operations()));
        }
    }

    #[test]
    fn a_blocked_thread_ends_its_turn_with_a_fresh_quantum() {
        let s = Serial::default();
        s.start(4, 100);
        s.operation(OP);
        assert_eq!(s.end_turn(), Next::Continue);
        for _ in 0..3 {
            assert_eq!(s.operation(OP), Next::Continue);
        }
        assert_eq!(s.operation(OP), Next::EndTurn);
    }
}
