//! Hooks: sync.
