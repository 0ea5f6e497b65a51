//! What the library needs done by whoever runs the server's threads.

use crate::errno::Result;
use crate::file::ops::FileOps;
use crate::file::{File, Kind};
use crate::os::Os;
use crate::process::Process;
use crate::thread::{Queue, Thread, Waiting, Wake};
use core::fmt::Arguments;
use core::ops::Deref;
use skein_arena::list::In;
use skein_arena::pool::{ArenaObject, Handle};
use skein_arena::uses::Use;

/// A thread as the host has it: the library's part, and what the host needs to run it.
pub trait HostThread: In<Queue> + In<Waiting> + Deref<Target = Thread> {}
impl<T: In<Queue> + In<Waiting> + Deref<Target = Thread>> HostThread for T {}

/// A process as the host has it: the library's part, and what the host needs to run it.
pub trait HostProcess: ArenaObject + Deref<Target = Process> {}
impl<P: ArenaObject + Deref<Target = Process>> HostProcess for P {}

/// A descriptor that is the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Of a regular file or a directory.
    Regular,
    /// Of anything else.
    Other,
}

/// The holder of a turn, on behalf of whom a call is carried out; it lends the state that calls change.
pub trait Host: Deref<Target = Os<Self::Thread, Self::Process>> + Sized {
    /// Threads.
    type Thread: HostThread;
    /// Processes.
    type Process: HostProcess;

    /// Blocks the turn's holder until [`Host::resume`] or the deadline (in the server's time of day); not at all when it has a signal to handle.
    /// The caller has registered the thread wherever it is to be resumed from, and removes it again afterwards.
    fn suspend(&self, deadline_ns: Option<u64>) -> Wake;

    /// Ends a thread's wait. Answers whether it was waiting.
    fn resume(&self, thread: Handle<Self::Thread>, why: Wake) -> bool;

    /// Lets others run although the turn's holder can go on.
    fn yield_now(&self);

    /// Runs the handlers of the signals that are for the turn's holder.
    fn deliver_signals(&self);

    /// A call with nothing held was interrupted: runs handlers, and answers whether the call is to be done again. `restartable` says whether
    /// `SA_RESTART` counts.
    fn interrupted(&self, restartable: bool) -> bool;

    /// A cancellation point: ends the turn's holder if it was cancelled. Nothing may be held.
    fn test_cancel(&self);

    /// The turn's holder's process, by its number in the arena.
    fn process(&self) -> u32;

    /// The user and the group that the turn's holder's process acts as.
    fn user(&self) -> [u32; 2];

    /// Whether that process is in a group.
    fn in_group(&self, group: u32) -> bool;

    /// The permissions that it takes off what it makes (`umask`).
    fn file_mask(&self) -> u32;

    /// What an address of that process is in shared memory, if it is: the region and the offset in it.
    fn in_shared_memory(&self, address: usize) -> Option<(u32, usize)>;

    /// The time of day at which `clock` will read `at_ns`.
    ///
    /// # Errors
    /// `EINVAL` for a clock that there is not.
    fn deadline_of(&self, clock: i32, at_ns: u64) -> Result<u64>;

    /// Reports a call, or a part of one, that is not supported.
    fn refused(&self, what: Arguments<'_>);

    /// Ends the server, which cannot be kept deterministic.
    fn fatal(&self, why: Arguments<'_>) -> !;

    /// Counts what the server uses, for whoever asks.
    fn note(&self, what: Use);

    /// The file behind a virtual descriptor of the turn's holder.
    fn file_of(&self, fd: i32) -> Option<Handle<File>>;

    /// Gives `file` the lowest free number from `least` on; it has one more reference.
    ///
    /// # Errors
    /// `EMFILE` and `ENOMEM`.
    fn install(&self, file: Handle<File>, least: i32, cloexec: bool) -> Result<i32>;

    /// Closes a virtual descriptor.
    fn close(&self, fd: i32);

    /// What a descriptor that is not virtual is of; `None` when it is not open.
    fn of_kernel(&self, fd: i32) -> Option<Kernels>;

    /// What the kinds of files do that the library has not.
    fn ops<'s>(kind: Kind) -> &'s dyn FileOps<Self>
    where
        Self: 's;

    /// What a file of such a kind is ready for: as [`ops`](Self::ops) says.
    #[inline(always)]
    fn mask(&self, file: &File) -> u32
    where
        Self: Sized,
    {
        Self::ops(file.kind.get()).mask(self, file)
    }

    /// The name of a FIFO, by the host's number, has lost its pipe.
    fn forget_fifo(&self, name: u32);

    /// A deadline of a timer that sends signals has passed.
    fn signal_timer_fired(&self, raw: u32);

    /// Sends SIGIO to a process, if there is one of this id.
    fn send_sigio(&self, pid: i32);

    /// Sends SIGPIPE to the turn's holder.
    fn raise_sigpipe(&self);
}
