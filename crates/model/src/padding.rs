//! Everything of variable length in entries and frames ends at a multiple of 8 bytes.

/// Rounds `n` up to a multiple of 8.
#[must_use]
pub const fn pad8(n: usize) -> usize {
    (n + 7) & !7
}
