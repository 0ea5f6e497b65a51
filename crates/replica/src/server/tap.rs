//! An observer of everything that passes between a node and one server; it changes nothing.

use crate::server::Files;
use skein_arena::layout::Header;
use skein_model::{LogIndex, OutFrame};

/// Receives the events. Called on the thread that drives the link, which it must not delay.
pub trait Tap: Send + std::fmt::Debug {
    /// The server's process was started; what it writes, if that is kept apart.
    fn launched(&mut self, files: Option<&Files>);
    /// An entry was given to the server.
    fn entry(&mut self, index: LogIndex, entry: &[u8]);
    /// The server wrote a frame; `raw` are its bytes with header and padding.
    fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>);
    /// All of the server's output was taken. `rests`: it has executed all entries and waits for the next one.
    fn drained(&mut self, header: &Header, rests: bool);
}
