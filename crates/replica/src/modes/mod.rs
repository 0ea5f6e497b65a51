//! Modes: the rules by which replicas keep their servers equal.

pub mod order;
