//! Hooks: thread.
