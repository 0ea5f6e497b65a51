//! Addresses, sizes and descriptor numbers of the arena, and the header's fields.

use crate::gate::{Gate, News};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The arena's address in the server: far from everything that Linux places there itself with ASLR off.
pub const SERVER_BASE: usize = 0x2a00_0000_0000;
/// In each process of the server all memory of the runtime lies between [`SERVER_BASE`] and this address: arena, library, stacks, listings. Its
/// content may differ between replicas, except for the parts of the arena that a server can see.
pub const RUNTIME_END: usize = 0x3800_0000_0000;
/// Above these bits all addresses of the runtime's library and of its stacks are [`RUNTIME_PLACE`].
pub const RUNTIME_BITS: u32 = 40;
/// See [`RUNTIME_BITS`].
pub const RUNTIME_PLACE: usize = 0x2f;
/// The runtime's library is here.
pub const LIBRARY_AT: usize = RUNTIME_PLACE << RUNTIME_BITS;
/// In that range the runtime's stacks begin here; its library lies below.
pub const SLOTS_AT: usize = 0x2f80_0000_0000;
/// Bytes of the header; the rings start behind it.
pub const HEADER_BYTES: usize = 64 << 10;
/// `skein` and the version of the layout; the version rises when a field moves.
pub const MAGIC: u64 = u64::from_le_bytes(*b"skein\0\0\x04");
/// The descriptor under which the server finds the arena.
pub const ARENA_FD: i32 = 900;
/// The descriptor (an eventfd) with which the runtime wakes the node.
pub const WAKE_FD: i32 = 901;
/// Ends of the socket pair through which files of the kernel pass from one process of the server to another, each with a ticket of 8 bytes: into this end,
pub const PARK_IN_FD: i32 = 903;
/// and out of this one.
pub const PARK_OUT_FD: i32 = 904;
/// The descriptor of the trace file, if operations are recorded.
pub const TRACE_FD: i32 = 905;
/// The descriptor of an earlier run's trace, if operations are compared with one.
pub const FORMER_TRACE_FD: i32 = 906;
/// The descriptor by which the node sees which pages the process writes, if the kernel has that.
pub const WRITTEN_FD: i32 = 907;
/// The descriptor of the restore file ([`crate::restore`]), if a server continues from an image.
pub const RESTORE_FD: i32 = 908;
/// The descriptor at which a server that continues from an image asks for numbers of processes, if it may not choose them itself.
pub const NUMBERS_FD: i32 = 909;
/// The unit of [`Header::restore_pieces`].
pub const RESTORE_PIECE_BYTES: u64 = 256 << 10;
/// While a process is restored, its stack and the restore file's tables are here: [`RESTORE_SPAN`] bytes.
pub const RESTORE_AT: usize = 0x2d00_0000_0000;
/// See [`RESTORE_AT`].
pub const RESTORE_SPAN: usize = 0x80_0000_0000;
const _: () = assert!(RESTORE_AT > SERVER_BASE && RESTORE_AT + RESTORE_SPAN <= TRACE_AT);
/// The address of the trace in the server; the earlier run's trace is [`TRACE_SPAN`] behind it.
pub const TRACE_AT: usize = 0x2e00_0000_0000;
/// The largest trace.
pub const TRACE_SPAN: usize = 0x80_0000_0000;
const _: () = assert!(TRACE_AT > SERVER_BASE && TRACE_AT + 2 * TRACE_SPAN <= RUNTIME_END);

/// Sizes of the parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Input ring, a power of two.
    pub input: usize,
    /// Output ring, a power of two.
    pub output: usize,
    /// Heap: the server's objects, mostly bytes in flight.
    pub heap: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        // Rings small enough to stay in cache, and four of the largest entries long. The heap is only reserved; pages
        // that are never touched cost nothing.
        Self { input: 4 << 20, output: 4 << 20, heap: 1 << 30 }
    }
}

impl Sizes {
    /// The smallest heap with which a server can be started: the object tables and a few buffers.
    pub const MIN_HEAP: usize = 64 << 20;

    /// Whether the sizes are usable: powers of two where the layout needs them, and not too small.
    #[must_use]
    pub const fn valid(&self) -> bool {
        self.input.is_power_of_two()
            && self.output.is_power_of_two()
            && self.input >= 4 * skein_model::entry::MAX_ENTRY_BYTES
            && self.output >= 16 * skein_model::frame::MAX_SEND_BYTES
            && self.heap >= Self::MIN_HEAP
            && self.heap.is_multiple_of(4096)
            && self.heap <= 1 << 40
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn file_bytes(&self) -> usize {
        HEADER_BYTES + self.input + self.output + self.heap
    }

    /// Bytes of the address range, mirrors included.
    #[must_use]
    pub const fn span_bytes(&self) -> usize {
        HEADER_BYTES + 2 * self.input + 2 * self.output + self.heap
    }
}

/// States of the server, in [`Header::server_state`].
pub mod state {
    /// The constructor has not run yet.
    pub const STARTING: u32 = 0;
    /// One of its threads runs.
    pub const RUNNING: u32 = 1;
    /// No thread can run: the next entry is admitted as soon as it comes.
    pub const QUIESCENT: u32 = 2;
    /// Threads could run, but the next entry must be admitted first: an input or a time bubble.
    pub const SLOT: u32 = 3;
    /// Waits for the node to empty the output ring.
    pub const OUTPUT_FULL: u32 = 4;
    /// Ended.
    pub const ENDED: u32 = 5;
    /// Waits for the next entry after it looked at files of the host that must be agreed on first.
    pub const ASKS: u32 = 6;
}

/// The positions of a ring, each on a cache line of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Positions {
    /// Bytes ever produced.
    pub head: Line,
    /// Bytes ever consumed.
    pub tail: Line,
}

/// A counter with a cache line of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Line(pub AtomicU64);

/// How the node and the runtime make stand-ins: copies of the server's processes that keep its private memory as it was for an image.
#[repr(C)]
#[derive(Debug)]
pub struct StandIns {
    /// The number of the request while the processes are to fork; 0: they are not. Written by the node.
    pub wanted: AtomicU32,
    /// Stand-ins of the request of this number stay; others end. The node wakes them.
    pub kept: AtomicU32,
    /// Stand-ins that are ready, which wake the node; written by them.
    pub made: AtomicU32,
    /// Processes that could not fork; written by these.
    pub failed: AtomicU32,
    /// The last request's number; written by the node.
    pub asked: AtomicU32,
}

/// The most ranges of [`Spared`].
pub const MAX_SPARED: usize = 256;

/// Memory that stand-ins do without, as nobody reads it there: a fork takes the longer the more pages it copies. Written by the node before it asks for stand-ins.
#[repr(C)]
#[derive(Debug)]
pub struct Spared {
    /// So many ranges.
    pub count: AtomicU32,
    _pad: u32,
    /// The first so many are valid.
    pub ranges: [SparedRange; MAX_SPARED],
}

/// A range of whole pages of private memory without a file, outside the runtime's.
#[repr(C)]
#[derive(Debug)]
pub struct SparedRange {
    /// The process's number in the server.
    pub pid: AtomicU64,
    /// Its first address.
    pub start: AtomicU64,
    /// The address behind its last.
    pub end: AtomicU64,
}

/// The first bytes of the arena. All fields are valid when zero but `magic` and the sizes.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`]; written by the node, last.
    pub magic: AtomicU64,
    /// Size of the input ring; written by the node.
    pub input_bytes: AtomicU64,
    /// Size of the output ring; written by the node.
    pub output_bytes: AtomicU64,
    /// Size of the heap; written by the node.
    pub heap_bytes: AtomicU64,

    /// Input ring; the node produces.
    pub input: Positions,
    /// Output ring; the runtime produces.
    pub output: Positions,

    /// The runtime sleeps here (a futex shared between processes) until the node has produced input or made room.
    pub server_gate: Gate,
    _pad0: [u32; 31],
    /// The node sleeps in its event loop; the runtime wakes it by [`WAKE_FD`].
    pub node_gate: Gate,
    _pad1: [u32; 31],
    /// The core on which the server should run, from 1; 0: any. Written by the node.
    pub core: AtomicU32,
    /// How much of the restore file is there while the server continues from it already: so many times [`RESTORE_PIECE_BYTES`] from its beginning, and 1; 0: all of it.
    /// A futex shared between processes; written by the node.
    pub restore_pieces: AtomicU32,
    /// Copies of the server's processes for an image.
    pub stand_ins: StandIns,
    /// The same of what processes share, which is needed first and comes last in the file ([`crate::restore`]): counted from where that begins; 0:
    /// [`restore_pieces`](Self::restore_pieces) counts for it, too.
    pub restore_shared: AtomicU32,
    /// Whether the node writes the pages of processes into their memory, and which process asks for its own ([`crate::restore::placing`]). A futex shared between processes.
    pub restore_asks: AtomicU32,
    _pad2: [u32; 23],

    /// What the server is doing ([`state`]); written by the runtime.
    pub server_state: AtomicU32,
    /// The thread that has the turn, from 1; written by the runtime.
    pub turn_holder: AtomicU32,
    /// Threads that could run but do not have the turn; written by the runtime at each operation that changes it.
    pub runnable: AtomicU32,
    /// Set by the runtime when it has written `spin_address`; the reader clears it.
    pub spin_seen: AtomicU32,
    /// The address of a thread that has computed for a second without an operation.
    pub spin_address: AtomicU64,
    /// Operations done by all threads; written by the runtime.
    pub operations: AtomicU64,
    /// Turns taken; written by the runtime.
    pub clock: AtomicU64,
    /// The last admitted entry; written by the runtime.
    pub applied: AtomicU64,
    /// The server's time of day, ns since the epoch; written by the runtime.
    pub now_ns: AtomicU64,
    /// Deadline of the earliest timer in virtual time; `u64::MAX` when there is none. Valid while quiescent
    /// or at a slot; written by the runtime.
    pub deadline_ns: AtomicU64,
    /// Host thread id of the carrier, in the server's pid namespace; written by the runtime.
    pub carrier_tid: AtomicU32,
    /// Processes of the server that announced their end to the runtime. A process that ends without announcing it (killed from outside, out of
    /// memory) takes the server with it.
    pub deaths: AtomicU32,
    /// Processes of the server that are still being restored from an image; written by the runtime.
    pub restoring: AtomicU32,
    /// Taken by the process that is about to get a number from the kernel while it is restored.
    pub numbers: AtomicU32,
    /// The descriptor of the file from which they are; written by the runtime.
    pub restored_from: AtomicU32,
    /// Changes to what processes map of shared memory, and holes that were made in it, from 1; 0: they are not counted. Written by the runtime.
    pub shared_changes: AtomicU32,
    /// System calls that went around the interposed functions, trapped or from patched places; written by the runtime.
    pub net_calls: AtomicU64,
    /// Time bubbles admitted; written by the runtime.
    pub bubbles: AtomicU64,
    /// CPU time of the server between two waits for its node, ns; 0 when it is not known yet. Written by the runtime.
    pub burst_ns: AtomicU64,
    /// Offset of the table of files in the heap ([`crate::inodes`]), 0 when there is none yet; written by the runtime.
    pub inodes_at: AtomicU64,
    /// Offset of the record of writes to files in the heap ([`crate::writes`]), 0 when there is none yet; written by the runtime.
    pub writes_at: AtomicU64,
    /// While the server asks ([`state::ASKS`]): offset of its facts in the heap ([`skein_model::fact`]); written by the runtime.
    pub facts_at: AtomicU64,
    /// Length of these facts in bytes.
    pub facts_bytes: AtomicU64,
    /// The question's number.
    pub ask: AtomicU64,
    /// Set when the node wants no questions: the server's files are as they are. Written before the server starts.
    pub asks_nothing: AtomicU64,
    /// Offset of the table of the heap's parts ([`crate::parts`]), 0 when there is none yet; written by the runtime.
    pub parts_at: AtomicU64,
    /// Uses of features by the server; written by the runtime.
    pub uses: crate::uses::Uses,
    /// Calls that came through the net, by number; written by the runtime.
    pub trapped: crate::trapped::Trapped,
    /// Calls answered at replaced places, which trap no more, by number; written by the runtime.
    pub patched: crate::trapped::Trapped,
    /// The places where these calls came from; written by the runtime.
    pub places: crate::places::Places,
    /// What stand-ins do without.
    pub spared: Spared,
    /// What wakes a node that has closed its gate for news only.
    pub news: News,
    /// Entries that the server may take by itself.
    pub plan: crate::planned::Plan,
}

impl Header {
    /// Runtime: when the timer is due that the server waits for, if it waits for nothing else.
    pub fn awaited_timer(&self) -> Option<u64> {
        let waits = self.server_state.load(Ordering::Relaxed) == state::QUIESCENT;
        waits.then(|| self.deadline_ns.load(Ordering::Relaxed))
    }

    /// Runtime, when the server is about to wait: whether a node that has closed its gate for news only is to be woken, as it is for all but waiting for the next timer.
    pub fn has_news(&self) -> bool {
        self.awaited_timer()
            .is_none_or(|due_ns| self.news.has_any(due_ns, self.plan.is_expected(due_ns)))
    }
}

const _: () = assert!(core::mem::size_of::<Header>() <= HEADER_BYTES);
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(Header, server_gate) % 128 == 0);
