//! Ordering policies: who has the turn, and where in a server's execution the next log entry is admitted.
//!
//! Pure state machines without I/O; the runtime keeps one in the arena and does what it says. [`Policy`] is what the runtime sees;
//! [`Serial`] is CRANE's scheduler (sections 3 and 4) reduced to one running thread.
#![no_std]

pub mod op;
mod serial;
pub mod trace;

pub use op::Op;
pub use serial::Serial;

/// What the runtime must do after an operation or a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    Continue,
    /// The turn is over: if another thread can run, it does.
    EndTurn,
    /// Nobody runs on before the next entry is admitted: it is awaited, be it an input or a time bubble.
    Admit,
}

/// The order of a server's operations.
pub trait Policy {
    /// The thread that has the turn is about to do an operation.
    fn operation(&self, op: Op) -> Next;
    /// The turn is over, because its quantum is or because its thread blocked.
    fn end_turn(&self) -> Next;
    /// An entry with so many inputs was admitted; `bubble` is how many turns it grants when it is a time bubble.
    fn admitted(&self, inputs: u32, bubble: Option<u32>);
    /// The logical clock: turns taken.
    fn clock(&self) -> u64;
    /// Operations done.
    fn operations(&self) -> u64;
}
