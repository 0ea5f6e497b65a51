//! Identity: a server learns the same about its machine on all replicas.
//!
//! Process ids, host name and addresses come from the supervisor's namespaces. The rest is faked here.

/// Processors that the server sees: one, as one of its threads runs at a time.
pub const CPUS: usize = 1;
/// Memory that the server sees: 8 GiB.
pub const MEMORY_BYTES: u64 = 8 << 30;
