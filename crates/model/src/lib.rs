//! Ids, clocks, log entries and ring frames that every part of Skein shares.
