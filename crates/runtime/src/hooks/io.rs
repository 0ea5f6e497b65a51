//! Hooks: io.
