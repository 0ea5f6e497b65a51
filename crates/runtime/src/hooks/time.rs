//! Hooks: time.
