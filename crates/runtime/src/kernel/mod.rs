//! The server's state in the arena: one structure at the start of the heap, with the pools behind it.

pub mod memory;
pub mod name;
pub mod park;
pub mod process;
pub mod random;
pub mod thread;
pub mod turns;

use crate::local::{LOCAL, MAX_THREADS};
use core::cell::Cell;
use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use process::Process;
use skein_arena::layout::Header;
use skein_arena::parts::Parts;
use skein_arena::pool::{Handle, Link};
use skein_libos::Os;
use skein_libos::file::{File, table};
use skein_libos::process::MAX_PROCESSES;
use skein_libos::room::Room;
use skein_sched::Serial;
use thread::Thread;

/// The library operating system. All-zero bytes, then [`Kernel::lay_out`].
#[repr(C)]
pub struct Kernel {
    /// The schedule: turns, and admission points.
    pub sched: Serial,
    /// The library's state: threads, and the objects that they wait at.
    os: Os<Thread, Process>,
    /// Threads that spin.
    pub spins: turns::Spins,
    /// The pace of virtual time.
    pub pace: skein_libos::pace::Pace,
    /// The time of day at the start of the server: the origin of its monotonic clock.
    pub boot_ns: Cell<u64>,
    /// Agreed admission points are switched off, for the experiment that shows their purpose ([`crate::turn::admit::arrived`]).
    pub unsafe_admission: Cell<bool>,
    /// `cpuid` is not trapped, though the processor might be able to.
    pub cpuid_is_left: Cell<bool>,
    /// Randomness.
    pub random: random::Random,
    /// Shared memory of processes.
    pub shared: memory::Shared,
    /// A process that is really ending: the next process with the turn waits until it is gone.
    pub gone: Cell<i32>,
    /// The number that the kernel gave last to a process or a thread of the server; 0: to none but the first.
    pub last_number: Cell<u32>,
    /// The thread that is ending another process.
    pub killer: Link<Thread>,
    /// How programs that the server executes are made to load the runtime.
    pub library: process::Library,
    /// The core on which processes hand the turn to each other, from 1; 0: any.
    pub core: Cell<u32>,
    /// The node's wish for the server's core at the last look; as above.
    pub told: Cell<u32>,
    /// The number of its waits for the node there.
    pub sleeps: Cell<u32>,
    /// The length of the server's CPU bursts.
    pub cpu_bursts: turns::CpuBursts,
    /// The cores that the server may use.
    pub cores: Cell<turns::Cores>,
    /// Files of the kernel on their way.
    pub park: park::Park,
    /// The state about files, which their room lays out and knows.
    pub files_at: Cell<usize>,
}

impl Deref for Kernel {
    type Target = Os<Thread, Process>;

    #[inline]
    fn deref(&self) -> &Os<Thread, Process> {
        &self.os
    }
}

/// The kernel state. Only to be called when the runtime is ready ([`crate::local::ready`]).
///
/// An operation gets it from the guard of its turn ([`crate::turn::Turn`]), and hands it on. This function is for code without a guard: the turn itself, the entries, which
/// come before it, handlers of the kernel's signals, and functions of the resources that are called from places without it.
#[inline]
pub fn kernel() -> &'static Kernel {
    // SAFETY: set once by `install` before the state becomes READY; it lives in the arena, which is never unmapped. It is not `Sync`:
    // only the turn's holder gets here, and turns are handed over with acquire and release.
    unsafe { &*LOCAL.kernel.load(Ordering::Relaxed).cast::<Kernel>() }
}

/// Lays out the state of a room above, and notes where it is.
pub type LayOut = fn(&Kernel, &mut Room);

/// Makes the kernel in the arena's heap, and behind it what rooms above have there.
///
/// # Safety
/// `heap` is `len` zero bytes at the arena's fixed place, used by nothing else.
pub unsafe fn install(header: &'static Header, heap: *mut u8, len: usize, above: &[LayOut]) {
    LOCAL.header.store(core::ptr::from_ref(header).cast_mut(), Ordering::Relaxed);
    let kernel = heap.cast::<Kernel>();
    LOCAL.kernel.store(kernel.cast(), Ordering::Relaxed);
    let parts_at = size_of::<Kernel>().next_multiple_of(4096);
    // SAFETY: zero bytes are a valid `Kernel` and valid `Parts`; the heap is larger than both (checked sizes).
    let (kernel, parts) = unsafe { (&*kernel, &*heap.add(parts_at).cast::<Parts>()) };
    parts.note(core::any::type_name::<Kernel>(), 0, size_of::<Kernel>(), 1);
    // SAFETY: as above; the kernel and the parts are in front.
    let mut room = unsafe {
        Room::new(heap, parts_at + size_of::<Parts>().next_multiple_of(4096), len, parts)
    };
    kernel.lay_out(&mut room, above);
    header.parts_at.store(parts_at as u64, Ordering::Relaxed);
}

/// Finds the kernel that another process of the server has made.
pub fn attach(header: &'static Header, heap: *mut u8) {
    LOCAL.header.store(core::ptr::from_ref(header).cast_mut(), Ordering::Relaxed);
    LOCAL.kernel.store(heap.cast(), Ordering::Relaxed);
}

impl Kernel {
    fn lay_out(&self, room: &mut Room, above: &[LayOut]) {
        // Where the server runs, and for how long at a time, is each replica's own.
        let places = (offset_of!(Self, core), offset_of!(Self, park));
        room.own::<Self>(core::ptr::from_ref(self).cast(), 1, places.0, places.1 - places.0);
        let threads = room.pool(&self.threads, MAX_THREADS);
        Thread::note_own(room, threads, MAX_THREADS);
        let processes = self.processes.lay_out(room);
        Process::note_own(room, processes, MAX_PROCESSES);
        Thread::note_places(room, threads, processes);
        self.shared.lay_out(room);
        self.timers.lay_out(room);
        self.fds.lay_out(room);
        self.signals.lay_out(room);
        self.net.lay_out(room);
        self.ipc.lay_out(room, MAX_THREADS);
        for lay_out in above {
            lay_out(self, room);
        }
        // The rest of the heap holds bytes in flight.
        let chunks = (room.left() / 4096).min(u32::MAX as usize) as u32;
        room.pool(&self.chunks, chunks);
    }

    /// The file behind a virtual descriptor of the process that this code runs in.
    #[inline]
    pub fn file(&self, fd: i32) -> Option<Handle<File>> {
        table::file(self, fd)
    }
}
