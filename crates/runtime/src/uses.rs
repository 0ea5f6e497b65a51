//! Counts what the server uses, for whoever asks (`skein check`): one line where something is made,
//! `crate::uses::note(crate::uses::Use::Pipes)`.

use crate::local;
pub use skein_arena::uses::Use;

/// One more.
#[inline]
pub fn note(kind: Use) {
    if local::ready() {
        local::header().uses.note(kind);
    }
}
