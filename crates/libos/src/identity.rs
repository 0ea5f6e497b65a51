//! Identity: what a server may learn about the machine is the same on all replicas.
//!
//! Process ids, host name and addresses come from the namespaces that the supervisor makes. What those cannot fake is faked here.

/// Processors that the server sees: one, as one of its threads runs at a time.
pub const CPUS: usize = 1;
/// Memory that the server sees: 8 GiB.
pub const MEMORY_BYTES: u64 = 8 << 30;
