//! How the server comes into the runtime, and what answers it there.
//!
//! - [`hooks`]: the interposed symbols. - [`net`]: system calls and faults that are caught. - [`calls`]: what answers a system call, whichever way it came.
//! - [`instructions`]: instructions that are caught. - [`libc_calls`]: what libc asks for while it makes a thread. - [`init`]: how the runtime begins. - [`world`]: what the turn asks of the rooms above it.
//!
//! The change to the runtime's own stack is [`crate::frame`]'s. Nothing below knows this room: what must be called from below is given at the start ([`init`]).

pub mod calls;
mod hooks;
mod init;
mod instructions;
mod libc_calls;
mod net;
mod world;
