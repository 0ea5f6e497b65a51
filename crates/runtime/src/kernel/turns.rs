//! What the turn keeps in the arena beside its schedule: threads that spin, how long the server is busy, where it may run.

use core::cell::Cell;

/// What all processes share of threads that spin. All-zero bytes are none.
#[repr(C)]
#[derive(Debug)]
pub struct Spins {
    /// Threads that wait so.
    pub waiting: Cell<u32>,
    /// How often in a row they were let go on without that anybody else did something.
    pub rounds: Cell<u32>,
    /// Turns in which a thread has looked and nothing had changed.
    pub idle: Cell<u64>,
    /// Turns of threads that were let go on although nothing had changed.
    pub tried: Cell<u64>,
    /// Turns of everybody else when `rounds` was counted.
    pub others: Cell<u64>,
}

/// How a thread spins. All-zero bytes are a thread that never spun.
#[repr(C)]
#[derive(Debug)]
pub struct Spinner {
    /// The order of states by which it stops.
    pub order: Cell<u32>,
    /// How often it has looked in vain.
    pub looks: Cell<u32>,
    /// Turns that had been taken when it looked last.
    pub looked: Cell<u64>,
    pub waiting: Cell<bool>,
    /// It is to go on although nothing has changed.
    pub go_on: Cell<bool>,
}

/// How long the server was busy at a time ([`crate::turn::cpu_burst`]).
#[derive(Debug)]
pub struct CpuBursts {
    pub begun: Cell<u32>,
    /// This one is being measured.
    pub measuring: Cell<bool>,
    /// CPU time of the carrier that has the turn, when it got it.
    pub since: Cell<u64>,
    /// What others have used in this one, and all in those before.
    pub used: Cell<u64>,
    pub measured: Cell<u32>,
}

/// Cores that a set has room for: 1,024.
pub const CORE_WORDS: usize = 16;
/// Cores as the kernel has them: a bit each.
pub type Cores = [u64; CORE_WORDS];
