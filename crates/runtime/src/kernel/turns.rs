//! The turn's data in the arena beside its schedule: spinning threads, the server's CPU bursts, its cores.

use core::cell::Cell;

/// State of spinning threads that all processes share. All-zero bytes are none.
#[repr(C)]
#[derive(Debug)]
pub struct Spins {
    /// The number of waiting spinners.
    pub waiting: Cell<u32>,
    /// The number of releases in a row without a change by any other thread.
    pub rounds: Cell<u32>,
    /// Turns in which a thread has looked and nothing had changed.
    pub idle: Cell<u64>,
    /// Turns of threads that were released although nothing had changed.
    pub tried: Cell<u64>,
    /// Turns of all other threads when `rounds` was counted.
    pub others: Cell<u64>,
}

/// A thread's state of spinning. All-zero bytes are a thread that never spun.
#[repr(C)]
#[derive(Debug)]
pub struct Spinner {
    /// The order of states by which it stops.
    pub order: Cell<u32>,
    /// The number of its looks in vain.
    pub looks: Cell<u32>,
    /// The number of turns at its last look.
    pub looked: Cell<u64>,
    pub waiting: Cell<bool>,
    /// It must run although nothing has changed.
    pub go_on: Cell<bool>,
}

/// The server's CPU bursts ([`crate::turn::cpu_burst`]).
#[derive(Debug)]
pub struct CpuBursts {
    pub begun: Cell<u32>,
    /// This one is being measured.
    pub measuring: Cell<bool>,
    /// CPU time of the carrier that has the turn, when it got it.
    pub since: Cell<u64>,
    /// CPU time of others in this burst, and of all in those before.
    pub used: Cell<u64>,
    pub measured: Cell<u32>,
}

/// Cores that a set has room for: 1,024.
pub const CORE_WORDS: usize = 16;
/// Cores as the kernel has them: a bit each.
pub type Cores = [u64; CORE_WORDS];
