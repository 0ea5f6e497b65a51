//! The safety net.

/// Spreads the net.
pub fn install() {}
