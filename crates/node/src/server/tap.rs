//! Somebody who looks on: sees everything that passes between a node and one server, and changes nothing.

use crate::supervisor::Layer;
use skein_arena::layout::Header;
use skein_model::{LogIndex, OutFrame};
use std::sync::Arc;

/// Sees what passes. Called on the thread that drives the link, which it must not hold up.
pub trait Tap: Send + std::fmt::Debug {
    /// The server's process was started; its private layer over the host's files, if it has one.
    fn launched(&mut self, layer: Option<&Arc<Layer>>);
    /// An entry was given to the server.
    fn entry(&mut self, index: LogIndex, entry: &[u8]);
    /// The server wrote a frame; `raw` are its bytes with header and padding.
    fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>);
    /// All that the server had written was taken. `rests`: it has executed all entries and waits for the next one.
    fn drained(&mut self, header: &Header, rests: bool);
}
