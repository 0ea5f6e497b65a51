//! The replicated log: consensus and write-ahead log.
