//! The time that goes into entries. Pure: the caller reads the clocks.
//!
//! * [`virtual_time`]: the clock that stamps are read from.
//! * [`clocks`]: the replicas' wall clocks, which it is corrected by.

pub mod clocks;
pub mod virtual_time;
