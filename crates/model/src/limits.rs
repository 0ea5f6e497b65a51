//! Bounds that the gateway and the runtime must agree on. Changing one changes what a server observes, so all replicas
//! of a cluster must run the same Skein.

/// What a connection's receive buffer in the server holds at most: 1 MiB. The gateway reads no more from a client than
/// the server has room for.
pub const RECV_WINDOW_BYTES: usize = 1 << 20;

/// The runtime gives credit back ([`crate::OutFrame::Consumed`]) when the server has taken this much out of a receive buffer:
/// a quarter of the window, 256 KiB. Up to one step less one byte is never reported, so 768 KiB of the window always work.
pub const CONSUMED_STEP_BYTES: usize = RECV_WINDOW_BYTES / 4;

/// What a connection's virtual send buffer holds at most: 512 KiB that the server wrote and no `Drained` record
/// ([`crate::Record::Drained`]) has covered yet. A write beyond it blocks, or answers `EAGAIN`.
pub const SEND_WINDOW_BYTES: usize = 512 << 10;

/// The gateway proposes a `Drained` record when a client's socket took this much: a quarter of the window, 128 KiB. Up to
/// one step less one byte is never reported, so 384 KiB of the window always work.
pub const DRAINED_STEP_BYTES: usize = SEND_WINDOW_BYTES / 4;

/// The signal by which the node asks a server that does not come back to the runtime where it is: `SIGRTMAX - 1` of
/// glibc, 63. The runtime's handler writes `spin_address` and sets `spin_seen` in the arena's header.
pub const SPIN_SIGNAL: i32 = 63;

const _: () =
    assert!(DRAINED_STEP_BYTES < SEND_WINDOW_BYTES && CONSUMED_STEP_BYTES < RECV_WINDOW_BYTES);
const _: () = assert!(SEND_WINDOW_BYTES.is_multiple_of(crate::frame::MAX_SEND_BYTES));
