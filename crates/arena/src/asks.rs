//! A server's question about files of its host, as a node reads it from the heap ([`skein_model::fact`]).

use crate::layout::{Header, Sizes, state};
use crate::sync::Ordering;
use skein_model::fact::MAX_FACTS_BYTES;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its number, from 1.
    pub ask: u64,
    /// Offset of the facts in the arena's file.
    pub at: u64,
    /// Length of the facts in bytes.
    pub len: usize,
}

/// The server's pending question. `None` when it asks nothing, or when the header's values are impossible.
#[must_use]
pub fn asked(header: &Header, sizes: &Sizes) -> Option<Asked> {
    if header.server_state.load(Ordering::Acquire) != state::ASKS {
        return None;
    }
    let word = |word: &crate::sync::AtomicU64| usize::try_from(word.load(Ordering::Relaxed)).ok();
    let (at, len) = (word(&header.facts_at)?, word(&header.facts_bytes)?);
    let possible = (1..=MAX_FACTS_BYTES).contains(&len) && at.checked_add(len)? <= sizes.heap;
    let heap_at = sizes.file_bytes() - sizes.heap;
    possible.then(|| Asked {
        ask: header.ask.load(Ordering::Relaxed),
        at: (heap_at + at) as u64,
        len,
    })
}
