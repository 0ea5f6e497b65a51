//! A process in the arena.

use super::memory::Mappings;
use crate::kernel::thread::Thread;
use crate::local::LOCAL;
use crate::sys;
use core::cell::Cell;
use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::c_int;
use skein_arena::bytes::ByteQueue;
use skein_arena::pool::{ArenaObject, Handle};
use skein_libos::process::ProcessHandle;
use skein_libos::room::Room;

/// More than glibc's `struct posix_spawn_args` has; behind it is its parent's stack, which the child does not change either.
pub const LEFT_WORDS: usize = 32;
/// The longest path of the library: longer ones cannot be passed on.
pub const LIBRARY_PATH_BYTES: usize = 512;

/// A process: the library's part, and the runtime's own.
#[repr(C)]
pub struct Process {
    /// The pool's.
    pub _free: Cell<u32>,
    pub os: skein_libos::Process,
    /// One of its threads has ended by the system call `exit`, unseen by libc ([`crate::thread`]).
    pub ended_around_libc: Cell<bool>,
    /// It is executing another program: the next thing that is heard of it comes from the new program.
    pub executing: Cell<bool>,
    /// Its data for the parent whose memory it would share.
    pub left: Left,
    /// How unimportant it has made itself: remembered, without effect.
    pub nice: Cell<c_int>,
    /// Resource limits that it has set itself, a bit each.
    pub limits_set: Cell<u32>,
    /// The limit of its address space that it has set, soft and hard.
    pub space_limit: Cell<(u64, u64)>,
    /// What it has told the kernel and nobody can ask another process for.
    pub told: Told,
    /// Where its carrier sleeps while another process has the turn.
    pub go: AtomicU32,
    /// Its carrier's order when it wakes: 0, or to end.
    pub order: Cell<u32>,
    /// Its shared memory.
    pub mappings: Mappings,
    /// Its root directory.
    pub root: Root,
}

// SAFETY: cells and links; all-zero is a free process without descriptors.
unsafe impl ArenaObject for Process {}
impl Deref for Process {
    type Target = skein_libos::Process;

    #[inline]
    fn deref(&self) -> &skein_libos::Process {
        &self.os
    }
}

/// Where the id is in a process.
pub const PID_AT: usize = offset_of!(Process, os.pid);

impl Process {
    /// The part of processes that belongs to one replica: the words by which their carriers wake each other.
    pub fn note_own(room: &Room, processes: *const u8, count: u32) {
        room.own::<Self>(processes, count, offset_of!(Self, go), size_of::<AtomicU32>());
        room.own::<Self>(processes, count, offset_of!(Self, order), size_of::<Cell<u32>>());
    }
}

/// The current process.
#[inline]
pub fn this() -> &'static Process {
    // SAFETY: set when the process began, before there is a kernel to ask; the arena is never unmapped.
    unsafe { &*LOCAL.process.load(Ordering::Relaxed).cast::<Process>() }
}

/// The current process.
#[inline]
pub fn handle() -> ProcessHandle {
    Handle::from_raw(raw()).expect("a process")
}

/// Its number in the arena.
#[inline]
pub fn raw() -> u32 {
    LOCAL.process_number.load(Ordering::Relaxed)
}

/// Whether a thread belongs to this process.
#[inline]
pub fn is_here(thread: &Thread) -> bool {
    thread.process.get().map_or(0, Handle::raw) == LOCAL.process_number.load(Ordering::Relaxed)
}

/// A child's data for its parent.
#[repr(C)]
pub struct Left {
    /// Its argument; 0 when nothing is brought over.
    pub at: Cell<usize>,
    pub before: Cell<[u32; LEFT_WORDS]>,
    pub after: Cell<[u32; LEFT_WORDS]>,
}

/// A process's root. All-zero bytes are the first one.
#[repr(C)]
pub struct Root {
    /// The directory's number; 0 for the first root.
    pub number: Cell<u64>,
    /// Its path from the first root, without a slash at its end.
    pub path: ByteQueue,
}

/// What a process has set by options of `prctl`, which the kernel tells only the process itself, and by `membarrier`. All-zero bytes are nothing.
#[repr(C)]
#[derive(Default)]
pub struct Told {
    /// Those of [`Told::OPTIONS`], a bit each.
    which: Cell<u32>,
    /// The commands by which it has registered for barriers ([`crate::machine::barrier`]).
    pub barriers: Cell<c_int>,
    values: [Cell<usize>; Self::OPTIONS.len()],
}

/// `SECURE_KEEP_CAPS`.
const KEEPS_BIT: usize = 4;

impl Told {
    /// The first is also changed by `PR_SET_KEEPCAPS`.
    const OPTIONS: [c_int; 4] = [
        libc::PR_SET_SECUREBITS,
        libc::PR_SET_DUMPABLE,
        libc::PR_SET_THP_DISABLE,
        libc::PR_SET_TIMERSLACK,
    ];

    /// The process has set an option.
    pub fn note(&self, option: c_int, value: usize) {
        if option == libc::PR_SET_KEEPCAPS {
            return self.note_securebits();
        }
        if let Some(at) = Self::OPTIONS.iter().position(|known| *known == option) {
            self.which.set(self.which.get() | 1 << at);
            self.values[at].set(value);
        }
    }

    fn note_securebits(&self) {
        // SAFETY: no memory.
        let bits =
            unsafe { sys::raw(libc::SYS_prctl, sys::args([libc::PR_GET_SECUREBITS as usize])) };
        self.note(libc::PR_SET_SECUREBITS, bits as usize);
    }

    /// The process has executed another program: the kernel has changed some.
    pub fn executed(&self) {
        if self.which.get() & 1 != 0 {
            self.note_securebits();
        }
        self.note_dumpable();
        self.barriers.set(0);
    }

    /// The process has executed another program, or has other rights: the kernel has decided anew whether its memory may be dumped, and whose its files in `/proc` are.
    pub fn note_dumpable(&self) {
        self.note(libc::PR_SET_DUMPABLE, dumpable());
    }

    /// A child begins with its parent's.
    pub fn copy_from(&self, other: &Self) {
        self.which.set(other.which.get());
        self.barriers.set(other.barriers.get());
        for (to, from) in self.values.iter().zip(&other.values) {
            to.set(from.get());
        }
    }

    /// Tells the kernel again how users and capabilities depend on each other.
    pub fn tell_securebits(&self) {
        self.tell(0);
    }

    /// Tells it the rest again. The kernel has changed some when it was told of other rights.
    pub fn tell_others(&self) {
        for at in 1..Self::OPTIONS.len() {
            self.tell(at);
        }
    }

    fn tell(&self, at: usize) {
        if self.which.get() & 1 << at != 0 {
            let told = sys::args([Self::OPTIONS[at] as usize, self.values[at].get()]);
            // SAFETY: options that take a number, which the kernel has taken before.
            let done = unsafe { sys::raw(libc::SYS_prctl, told) };
            if done < 0 && Self::OPTIONS[at] == libc::PR_SET_SECUREBITS {
                // Who may not set all bits may set the one that everybody can.
                let keeps = self.values[at].get() >> KEEPS_BIT & 1;
                let told = sys::args([libc::PR_SET_KEEPCAPS as usize, keeps]);
                // SAFETY: an option that takes a number.
                unsafe { sys::raw(libc::SYS_prctl, told) };
            }
        }
    }
}

/// Whether the memory of the running process may be dumped: 0 or 1. The kernel has a third answer, for root, which depends on the host's settings.
pub fn dumpable() -> usize {
    let ask = sys::args([libc::PR_GET_DUMPABLE as usize]);
    // SAFETY: no memory.
    usize::from(unsafe { sys::raw(libc::SYS_prctl, ask) } == 1)
}

/// How the runtime is loaded into programs: the library's path, as the first process was given it.
#[repr(C)]
pub struct Library {
    pub path: Cell<[u8; LIBRARY_PATH_BYTES]>,
    pub len: Cell<u32>,
}

impl Library {
    /// The path.
    pub fn path(&self) -> &[u8] {
        // SAFETY: written once, at the server's start.
        unsafe { &(&*self.path.as_ptr())[..self.len.get() as usize] }
    }
}
