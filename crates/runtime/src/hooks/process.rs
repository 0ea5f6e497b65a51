//! Hooks: process.
