//! The ways of the server into the runtime, and the answers to its calls.
//!
//! - [`hooks`]: the interposed symbols. - [`net`]: caught system calls and faults. - [`calls`]: the answers to system calls, whichever way they came.
//! - [`instructions`]: caught instructions. - [`libc_calls`]: libc's own calls while it makes a thread. - [`init`]: the runtime's start. - [`world`]: the rooms that the turn calls.
//!
//! The change to the runtime's own stack is [`crate::frame`]'s. Lower rooms do not know this room: functions that they must call are given to them at the start ([`init`]).

pub mod calls;
mod hooks;
mod init;
mod instructions;
mod libc_calls;
mod net;
mod world;
