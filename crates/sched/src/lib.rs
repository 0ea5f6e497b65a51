//! Ordering policies: who has the turn, and where in a server's execution the next log entry is admitted.
//!
//! Pure state machines without I/O; the runtime keeps one in the arena and follows its answers. [`Policy`] is the interface to the runtime;
//! [`Serial`] is CRANE's scheduler (sections 3 and 4) reduced to one running thread.
#![no_std]

pub mod op;
mod serial;
pub mod trace;

pub use op::Op;
pub use serial::Serial;

/// The runtime's next step after an operation or a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    Continue,
    /// The turn is over: if another thread can run, it does.
    EndTurn,
    /// No thread runs on before the next entry, an input or a time bubble, is admitted.
    Admit,
}

/// The order of a server's operations.
pub trait Policy {
    /// The thread that has the turn is about to do an operation.
    fn operation(&self, op: Op) -> Next;
    /// The turn is over because its quantum is used up or its thread blocked.
    fn end_turn(&self) -> Next;
    /// An entry with this many inputs was admitted; `bubble` is the number of turns that a time bubble grants.
    fn admitted(&self, inputs: u32, bubble: Option<u32>);
    /// The logical clock: turns taken.
    fn clock(&self) -> u64;
    /// Operations done.
    fn operations(&self) -> u64;
}
