//! A process's own machine words, on pages of their own; other processes have copies of them or none.
//!
//! Everything that decides the server's view is in the arena, which all processes share. Here are the words that the runtime needs to get there, and its knowledge of the
//! memory, the kernel threads and the libraries of this process.
//!
//! - **fork**: the child begins with a copy of all words. Those that are marked `fork:` are set anew in the child.
//! - **exec**: the words are gone. The new program begins with the initial values, as the first process of the server did.
//!
//! One thread of the process runs at a time, the turn's holder, and only it comes here. Words that are also touched by a kernel thread beside it or a signal's handler are atomic, and say so.
//!
//! These statics are elsewhere, on purpose: libc's functions, one word for each symbol where it is called ([`crate::original`]); structures and buffers that one module
//! fills and no other knows (the ends of the two rings, tables of descriptors, of patched places and of threads that spin, paths, stacks);
//! what assembly finds by a symbol of its own (`dlsym`'s word, the stack for a new thread's signals, the registers of a single step).

use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use libc::c_char;
use skein_arena::layout::Header;

/// Threads of all processes at one time: 4,096.
pub const MAX_THREADS: u32 = 4096;
/// A bit for each slot of a stack.
pub type SlotBits = [AtomicU64; MAX_THREADS as usize / 64];

/// The words.
#[repr(C, align(4096))]
pub struct Local {
    /// Where the running thread's next entry begins, and its nesting ([`crate::stack::Level`]). First, as each entry reads it here.
    pub level: Level,
    /// The size of the area for vector registers, and which of them are saved; no bytes: the processor cannot. Stubs read it. Then which there are ([`crate::vectors`]).
    pub vectors: [AtomicU64; 3],
    /// The function that answers caught calls and replaced instructions: given by [`crate::entry::net`], called by the code that saves the registers.
    pub met: AtomicUsize,
    /// The function that tells the node ([`crate::fatal`]): given when the output ring is there.
    pub teller: AtomicUsize,
    /// The loader's `_dl_fixup`, which lazy binding calls; 0: it was not found.
    pub fixup: AtomicUsize,

    /// How far the runtime has begun ([`state`]).
    pub state: AtomicU32,
    /// The number of this process in the arena. fork: the child's.
    pub process_number: AtomicU32,
    /// The state of the library operating system, in the arena.
    pub kernel: AtomicPtr<()>,
    /// The arena's header.
    pub header: AtomicPtr<Header>,
    /// This process in the arena. fork: the child's.
    pub process: AtomicPtr<()>,

    /// The environment as the kernel gave it: libc does not know it yet when the runtime begins.
    pub environment: AtomicPtr<*mut c_char>,
    /// libc's text, first and last address.
    pub libc_text: [AtomicUsize; 2],
    /// The loader's text, first and last address.
    pub loader_text: [AtomicUsize; 2],
    /// How many objects the loader had when the server's program began.
    pub own_objects: Cell<usize>,
    /// The loader's list when it was last looked at.
    pub last_objects: Cell<(usize, usize)>,
    /// Where the kernel's id is in a thread's descriptor; 0 until the first thread is made.
    pub tid_offset: AtomicUsize,

    /// The carrier's context while it sleeps at the gate: stack pointer, FS base and GS base.
    pub resume: [AtomicU64; 3],
    /// The main thread's TLS, which the carrier uses on its idle stack. fork: that of the thread that forked.
    pub main_fs: AtomicU64,
    /// The main thread's stack of the runtime's, which the carrier's signals belong to. fork: that of the thread that forked.
    pub main_stack: AtomicUsize,
    /// The main thread's stack pointer where it ended.
    pub main_ended_at: AtomicU64,
    /// libc is creating a thread that the runtime has asked for. Its kernel thread reads it.
    pub creates_thread: AtomicBool,
    /// This process has had a shared mapping. fork: whether it has one.
    pub shares_memory: AtomicBool,
    /// The last request of the node for a stand-in that this process has met.
    pub stands_in: AtomicU32,
    /// The core that the carrier is bound to, from 1; 0: none. A forked child's is bound as its parent's was.
    pub core: AtomicU32,

    /// Vector registers can be saved, so places can be replaced.
    pub patches: AtomicBool,
    /// The server has executed the program of this process.
    pub was_executed: Cell<bool>,
    /// As many of the arena's places were to be replaced when this process last replaced them.
    pub places_replaced: Cell<u32>,

    /// Signals from outside that came, a bit each. A kernel's handler sets it.
    pub signals_came: AtomicU64,
    /// Those that were reported to the node.
    pub signals_told: AtomicU64,

    /// State of the timer that finds spinning threads. Its handler uses it, on the carrier.
    pub watch: Watch,
    /// The registers that its handler is to give back, and 1.
    pub restores: AtomicUsize,

    /// The unwinder is at work for the trace of operations: its calls are no operations of the server's.
    pub unwinds: Cell<bool>,
    /// Slots of the runtime's stacks that are in use. fork: that of the thread that forked.
    pub stacks_used: SlotBits,
    /// Slots that are mapped.
    pub stacks_mapped: SlotBits,
}

/// See [`Local::level`].
#[repr(C)]
pub struct Level {
    pub entry: AtomicUsize,
    pub own: AtomicUsize,
    pub out: AtomicUsize,
}

/// The timer's handler's memory of this process.
pub struct Watch {
    /// Operations of the server when it last looked. fork: none.
    pub operations: AtomicU64,
    /// Ticks of processor time since then.
    pub ticks: AtomicU64,
    /// The tick at which it next examines the thread.
    pub next_look: AtomicU64,
    /// The kernel's timer for the next look at a thread that spins. fork: one of the child's.
    pub again: AtomicI32,
    /// The kernel's timer that ticks. fork: one of the child's.
    pub tick: AtomicI32,
    /// This library's text, first and last address.
    pub text: [AtomicUsize; 2],
}

// SAFETY: cells are the turn's holder's, and one thread of a process has the turn.
unsafe impl Sync for Local {}

/// This process's.
pub static LOCAL: Local = Local {
    level: Level { entry: AtomicUsize::new(0), own: AtomicUsize::new(0), out: AtomicUsize::new(0) },
    vectors: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
    met: AtomicUsize::new(0),
    teller: AtomicUsize::new(0),
    fixup: AtomicUsize::new(0),
    state: AtomicU32::new(0),
    process_number: AtomicU32::new(0),
    kernel: AtomicPtr::new(core::ptr::null_mut()),
    header: AtomicPtr::new(core::ptr::null_mut()),
    process: AtomicPtr::new(core::ptr::null_mut()),
    environment: AtomicPtr::new(core::ptr::null_mut()),
    libc_text: [AtomicUsize::new(0), AtomicUsize::new(0)],
    loader_text: [AtomicUsize::new(0), AtomicUsize::new(0)],
    own_objects: Cell::new(0),
    last_objects: Cell::new((0, 0)),
    tid_offset: AtomicUsize::new(0),
    resume: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
    main_fs: AtomicU64::new(0),
    main_stack: AtomicUsize::new(0),
    main_ended_at: AtomicU64::new(0),
    creates_thread: AtomicBool::new(false),
    shares_memory: AtomicBool::new(false),
    stands_in: AtomicU32::new(0),
    core: AtomicU32::new(0),
    patches: AtomicBool::new(false),
    was_executed: Cell::new(false),
    places_replaced: Cell::new(0),
    signals_came: AtomicU64::new(0),
    signals_told: AtomicU64::new(0),
    watch: Watch {
        operations: AtomicU64::new(u64::MAX),
        ticks: AtomicU64::new(0),
        next_look: AtomicU64::new(0),
        again: AtomicI32::new(-1),
        tick: AtomicI32::new(-1),
        text: [AtomicUsize::new(0), AtomicUsize::new(0)],
    },
    restores: AtomicUsize::new(0),
    unwinds: Cell::new(false),
    stacks_used: [const { AtomicU64::new(0) }; MAX_THREADS as usize / 64],
    stacks_mapped: [const { AtomicU64::new(0) }; MAX_THREADS as usize / 64],
};

// Assembly finds the running thread's level by the symbol alone.
const _: () = assert!(offset_of!(Local, level) == 0 && offset_of!(Level, entry) == 0);

/// How far the runtime has begun: not yet.
pub const UNSET: u32 = 0;
/// It is beginning.
pub const SETTING_UP: u32 = 1;
/// This process is a replicated server.
pub const READY: u32 = 2;
/// This process is not replicated: every hook passes through.
pub const OFF: u32 = 3;

/// Where initialisation stands.
#[inline]
pub fn state() -> u32 {
    LOCAL.state.load(Ordering::Relaxed)
}

/// Notes where initialisation stands.
pub fn set_state(state: u32) {
    LOCAL.state.store(state, Ordering::Relaxed);
}

/// Whether there is a kernel to ask.
#[inline]
pub fn ready() -> bool {
    state() == READY
}

/// The arena's header.
#[inline]
pub fn header() -> &'static Header {
    // SAFETY: set once, before the state becomes READY; it lives in the arena, which is never unmapped; all fields are atomics.
    unsafe { &*LOCAL.header.load(Ordering::Relaxed) }
}
