//! Counts what the server uses, for whoever asks (`skein check`): one line where something is made,
//! `crate::uses::note(crate::uses::Use::Pipes)`.

use crate::kernel;
pub use skein_arena::uses::Use;

/// One more.
#[inline]
pub fn note(kind: Use) {
    if kernel::ready() {
        kernel::header().uses.note(kind);
    }
}
