//! Bounds that the gateway and the runtime must agree on. Changing one changes what a server observes, so all replicas
//! of a cluster must run the same Skein.

/// The most bytes in the receive buffer of a connection in the server: 1 MiB. The gateway reads no more from a client than
/// the server has room for.
pub const RECV_WINDOW_BYTES: usize = 1 << 20;

/// The runtime gives credit back ([`crate::OutFrame::Consumed`]) when the server has read this much from a receive buffer:
/// a quarter of the window, 256 KiB. Up to one step less one byte is never reported, so 768 KiB of the window always work.
pub const CONSUMED_STEP_BYTES: usize = RECV_WINDOW_BYTES / 4;

/// The most bytes in a connection's virtual send buffer: 512 KiB that the server wrote and no `Drained` record
/// ([`crate::Record::Drained`]) has covered yet. A write beyond it blocks, or answers `EAGAIN`.
pub const SEND_WINDOW_BYTES: usize = 512 << 10;

/// The gateway proposes a `Drained` record when a client's socket took this much: a quarter of the window, 128 KiB. Up to
/// one step less one byte is never reported, so 384 KiB of the window always work.
pub const DRAINED_STEP_BYTES: usize = SEND_WINDOW_BYTES / 4;

/// The largest datagram: the limit of UDP over IPv4, 65,535 bytes without the headers of IP (20) and UDP (8).
pub const MAX_DATAGRAM_BYTES: usize = 65_535 - 20 - 8;

/// The signal by which the node asks a server that computes without a call for its address: `SIGRTMAX - 1` of
/// glibc, 63. The runtime's handler writes `spin_address` and sets `spin_seen` in the arena's header.
pub const SPIN_SIGNAL: i32 = 63;

/// A variable of the server's environment for one experiment: when it is set, entries are admitted as they arrive instead of at
/// agreed points, and digests are not compared. Replicas then differ; the experiment shows that.
pub const UNSAFE_ADMIT_ON_ARRIVAL: &core::ffi::CStr = c"UNSAFE_ADMIT_ON_ARRIVAL";

/// A variable of the server's environment: when it is set, `cpuid` is not trapped, as on a processor that cannot fault on it. For tests, and for a
/// cluster in which some processors can and others cannot.
pub const NO_CPUID_FAULTING: &core::ffi::CStr = c"NO_CPUID_FAULTING";

/// A variable of the server's environment, set by Skein's own options: the server's interface beside the loopback one
/// ([`crate::Interface::parse`]). The environment is the same on all replicas and at every start.
pub const INTERFACE: &core::ffi::CStr = c"SKEIN_INTERFACE";

const _: () =
    assert!(DRAINED_STEP_BYTES < SEND_WINDOW_BYTES && CONSUMED_STEP_BYTES < RECV_WINDOW_BYTES);
