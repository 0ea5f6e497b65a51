//! Detects whether a thread loops: its whole state equals an earlier one.
//!
//! A thread with equal registers at two points of its execution, and equal memory everywhere that it has touched in between, does the same again
//! and again until another thread changes that memory: it waits. Its states in between are a cycle, which has no start. So that all
//! replicas stop at the same state, whenever each of them has looked, the least one in a total order is taken ([`Order`]).
//!
//! Brent's way: what is looked for is a state that comes again; the state that is remembered is replaced after 1, 2, 4, ... times as many instructions.

use super::machine::{RSP, Registers};

/// The code that is executed.
pub trait Thread {
    type Stop;
    fn registers(&self) -> Registers;
    /// Touched memory is compared with its content of now, from now on.
    fn begin(&mut self);
    /// Executes one instruction.
    fn step(&mut self) -> Result<(), Self::Stop>;
    /// Whether the memory touched since the begin, and the rest of the state, is unchanged.
    fn as_at_first(&self) -> bool;
    /// Of all memory that was touched since the begin.
    fn digest(&self) -> u64;
}

/// The instructions after which the first state is remembered: as many as a thread needs to get into most cycles.
const FIRST: u64 = 16;

/// In which order states are put. There are several: one state of a cycle may hold a lock that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order(pub u32);

impl Order {
    /// The compared state: first the depth of the stack, as a called function may hold a lock; later all of it.
    fn key(self, registers: &Registers, digest: u64) -> (u64, Registers, u64) {
        let first = if self.0 == 0 {
            !registers.general[RSP]
        } else {
            let words = registers.general.iter().chain([&registers.rip, &registers.flags, &digest]);
            words.fold(self.0.into(), |hash: u64, word| {
                let mixed = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
                mixed ^ mixed >> 32
            })
        };
        (first, *registers, digest)
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<S> {
    /// The thread goes round in a cycle of so many instructions, and is at the agreed state of it.
    Cycle(u64),
    /// Not within that many instructions.
    NotYet,
    /// It came to an instruction that ends the look.
    Stopped(S),
}

/// Executes up to `budget` instructions to find out; if there is a cycle, goes on to its agreed state.
pub fn look<T: Thread>(thread: &mut T, order: Order, budget: u64) -> Found<T::Stop> {
    match find(thread, budget).and_then(|len| {
        settle(thread, len, order)?;
        Ok(len)
    }) {
        Ok(len) => Found::Cycle(len),
        Err(Some(stop)) => Found::Stopped(stop),
        Err(None) => Found::NotYet,
    }
}

fn find<T: Thread>(thread: &mut T, mut budget: u64) -> Result<u64, Option<T::Stop>> {
    let mut until = FIRST;
    loop {
        let remembered = thread.registers();
        thread.begin();
        for n in 1..=until {
            budget = budget.checked_sub(1).ok_or(None)?;
            thread.step().map_err(Some)?;
            if thread.registers() == remembered && thread.as_at_first() {
                return Ok(n);
            }
        }
        until *= 2;
    }
}

/// Goes to the least state of a cycle of `len` instructions.
fn settle<T: Thread>(thread: &mut T, len: u64, order: Order) -> Result<(), Option<T::Stop>> {
    let key = |thread: &T| order.key(&thread.registers(), thread.digest());
    let mut least = key(thread);
    let mut alike = 0u64;
    for _ in 0..len {
        let here = key(thread);
        alike = if here < least { 0 } else { alike } + u64::from(here <= least);
        least = least.min(here);
        thread.step().map_err(Some)?;
    }
    // Several that differ in vector registers alone: nobody could tell which one another replica takes.
    if alike > 1 {
        return Err(None);
    }
    // It is one of them.
    for _ in 0..len {
        if key(thread) == least {
            return Ok(());
        }
        thread.step().map_err(Some)?;
    }
    Err(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that counts to `from`, and then from there to `to` again and again, in a register and in memory.
    struct Counter {
        from: u64,
        to: u64,
        at: u64,
        first: u64,
        in_memory: bool,
    }

    impl Thread for Counter {
        type Stop = ();
        fn registers(&self) -> Registers {
            let mut registers = Registers { rip: 7, ..Registers::default() };
            registers.general[0] = if self.in_memory { 0 } else { self.at };
            registers
        }
        fn begin(&mut self) {
            self.first = self.at;
        }
        fn step(&mut self) -> Result<(), ()> {
            self.at = if self.at + 1 == self.to { self.from } else { self.at + 1 };
            Ok(())
        }
        fn as_at_first(&self) -> bool {
            !self.in_memory || self.at == self.first
        }
        fn digest(&self) -> u64 {
            if self.in_memory { self.at.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { 0 }
        }
    }

    #[test]
    fn wherever_it_is_looked_at_it_ends_at_the_same_state() {
        for in_memory in [false, true] {
            for order in [Order(0), Order(1), Order(2)] {
                let mut ends = Vec::new();
                for at in 0..300 {
                    let mut counter = Counter { from: 100, to: 177, at, first: 0, in_memory };
                    if at < 177 {
                        assert_eq!(look(&mut counter, order, 2000), Found::Cycle(77));
                        ends.push(counter.at);
                    }
                }
                assert!(ends.iter().all(|end| *end == ends[0]), "{order:?} {ends:?}");
            }
        }
    }

    #[test]
    fn orders_differ() {
        let ends: std::collections::BTreeSet<u64> = (0..20)
            .map(|order| {
                let mut counter =
                    Counter { from: 100, to: 177, at: 0, first: 0, in_memory: order % 2 == 0 };
                look(&mut counter, Order(order), 2000);
                counter.at
            })
            .collect();
        assert!(ends.len() > 10, "{ends:?}");
    }

    #[test]
    fn a_thread_that_gets_on_is_let_go_on() {
        let mut counter = Counter { from: 0, to: u64::MAX, at: 0, first: 0, in_memory: false };
        assert_eq!(look(&mut counter, Order(0), 1000), Found::NotYet);
        assert_eq!(counter.at, 1000);
    }
}
