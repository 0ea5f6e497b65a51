//! What a server asks about files of its host, as a node finds it in the heap ([`skein_model::fact`]).

use crate::layout::{Header, Sizes, state};
use crate::sync::Ordering;
use skein_model::fact::MAX_FACTS_BYTES;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its number, from 1.
    pub ask: u64,
    /// Where in the arena's file the facts are.
    pub at: u64,
    /// How many bytes.
    pub len: usize,
}

/// What the server waits to have agreed on; `None` when it does not, or says nothing possible.
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
