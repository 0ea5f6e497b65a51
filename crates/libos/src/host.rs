//! The host: the services that the library needs from the process that runs the server's threads.

use crate::errno::Result;
use crate::state::Os;
use crate::state::net::Inode;
use crate::state::process::{Process, ProcessHandle};
use crate::state::signal::{Action, Info};
use crate::state::thread::{Queue, Thread, Waiting, Wake};
use core::ffi::CStr;
use core::fmt::Arguments;
use core::ops::Deref;
use skein_arena::list::In;
use skein_arena::pool::{ArenaObject, Handle};
use skein_arena::uses::Use;
use skein_model::{ConnId, OutFrame, SockAddr};

/// The host's record of a thread: the library's part, and the host's own.
pub trait HostThread: In<Queue> + In<Waiting> + Deref<Target = Thread> {}
impl<T: In<Queue> + In<Waiting> + Deref<Target = Thread>> HostThread for T {}

/// The host's record of a process: the library's part, and the host's own.
pub trait HostProcess: ArenaObject + Deref<Target = Process> {}
impl<P: ArenaObject + Deref<Target = Process>> HostProcess for P {}

/// A descriptor of the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Of a regular file or a directory.
    Regular,
    /// Of anything else.
    Other,
}

/// The host, on behalf of the turn's holder; it lends the state that calls change.
pub trait Host: Deref<Target = Os<Self::Thread, Self::Process>> + Sized {
    /// Threads.
    type Thread: HostThread;
    /// Processes.
    type Process: HostProcess;

    /// Blocks the turn's holder until [`Host::resume`] or the deadline (in virtual time); not at all when it has a signal to handle.
    /// The caller has registered the thread wherever it is to be resumed from, and removes it again afterwards.
    fn suspend(&self, deadline_ns: Option<u64>) -> Wake;

    /// Ends a thread's wait. Answers whether it was waiting.
    fn resume(&self, thread: Handle<Self::Thread>, why: Wake) -> bool;

    /// Lets others run although the turn's holder can continue.
    fn yield_now(&self);

    /// Runs the handlers of the signals that are for the turn's holder: [`crate::signal::deliver`], with what the host keeps over it.
    fn deliver_signals(&self);

    /// A call with nothing held was interrupted: runs handlers, and answers whether the call is to be done again. `restartable` says whether
    /// `SA_RESTART` counts. [`crate::signal::interrupted`], with what the host keeps over it.
    fn interrupted(&self, restartable: bool) -> bool;

    /// Makes the frame of a signal's handler, which says that `mask` comes back afterwards; does `meanwhile`, which may call handlers on top of it; and calls
    /// the handler. Answers the mask that comes back: a handler may change that.
    fn call_handler(
        &self,
        info: &Info,
        action: &Action,
        mask: u64,
        meanwhile: impl FnOnce(),
    ) -> u64;

    /// Ends the process of the turn's holder by a signal.
    fn end_by_signal(&self, signo: i32) -> !;

    /// Ends another process by SIGKILL; returns when it is gone.
    fn kill(&self, process: ProcessHandle);

    /// Gives the turn up because the process of its holder is stopped.
    fn stand_aside(&self);

    /// The user of the server's processes, as their signals say.
    fn real_user(&self) -> u32;

    /// Their group.
    fn real_group(&self) -> u32;

    /// Makes the thread of the turn's holder's process that calls timers' functions ([`crate::signal::timer::next_call`]).
    ///
    /// # Errors
    /// As a thread's birth.
    fn make_timer_caller(&self) -> Result<()>;

    /// A cancellation point: ends the turn's holder if it was cancelled. Nothing may be held.
    fn test_cancel(&self);

    /// The turn's holder's process, by its number in the arena.
    fn process(&self) -> u32;

    /// That process.
    #[inline]
    fn this_process(&self) -> &Self::Process {
        let process = Handle::from_raw(self.process()).expect("a process");
        self.processes.get(process)
    }

    /// The effective user and group of the turn's holder's process.
    fn user(&self) -> [u32; 2];

    /// Whether that process is in a group.
    fn in_group(&self, group: u32) -> bool;

    /// That process's `umask`.
    fn file_mask(&self) -> u32;

    /// The region and offset of an address of that process in shared memory, if it is in any.
    fn in_shared_memory(&self, address: usize) -> Option<(u32, usize)>;

    /// The time of day at which `clock` will read `at_ns`.
    ///
    /// # Errors
    /// `EINVAL` for a clock that there is not.
    fn deadline_of(&self, clock: i32, at_ns: u64) -> Result<u64>;

    /// Reports a call, or a part of one, as unsupported.
    fn refused(&self, what: Arguments<'_>);

    /// A line for the log of the server's node.
    fn notice(&self, what: Arguments<'_>);

    /// Tells the node what the server did.
    fn emit(&self, frame: OutFrame<'_>);

    /// Tells it of `len` bytes for a client, at most `MAX_SEND_BYTES`, which `fill` writes.
    fn emit_send(&self, conn: ConnId, len: usize, fill: impl FnOnce(&mut [u8]));

    /// Tells it of a datagram of `len` bytes, which `fill` writes.
    fn emit_datagram(&self, from: SockAddr, to: SockAddr, len: usize, fill: impl FnOnce(&mut [u8]));

    /// Ends the server, which cannot be kept deterministic.
    fn fatal(&self, why: Arguments<'_>) -> !;

    /// Counts a use of a feature by the server, for reports.
    fn note(&self, what: Use);

    /// Fills in bytes of the server's randomness.
    fn random(&self, out: &mut [u8]);

    /// Reserves the lowest free number of a descriptor of the turn's holder's process, from `least` on.
    ///
    /// # Errors
    /// `EMFILE`; `EINVAL` when no number can be that high.
    fn reserve(&self, least: i32) -> Result<i32>;

    /// Reserves this number; a descriptor of the kernel's there is closed.
    ///
    /// # Errors
    /// `EBADF` when no number can be that high.
    fn reserve_at(&self, fd: i32) -> Result<()>;

    /// Gives a reserved number back.
    fn release(&self, fd: i32);

    /// Whether a reserved number stays reserved when the process executes a program.
    fn keep_over_exec(&self, fd: i32, keep: bool);

    /// Whether a number is one of the host's own, which the server may not touch.
    fn is_own(&self, fd: i32) -> bool;

    /// Closes the numbers from `first` to `last`, reserved ones included and the host's own excepted; `flags` are those of `close_range`.
    ///
    /// # Errors
    /// Those of `close_range`.
    fn close_kernels(&self, first: u32, last: u32, flags: u32) -> Result<()>;

    /// Gives one of the kernel's descriptors a second number, which may be reserved: `dup3`, or `dup2` when `flags` is `None`.
    ///
    /// # Errors
    /// Those of the call.
    fn duplicate_kernels(&self, old: i32, new: i32, flags: Option<i32>) -> Result<()>;

    /// Reads from one of the kernel's descriptors, at its own position or at `at`.
    ///
    /// # Errors
    /// Those of `read` and `pread`.
    fn read_kernels(&self, fd: i32, at: Option<i64>, to: &mut [u8]) -> Result<usize>;

    /// Writes to one of the kernel's descriptors, at its own position or at `at`.
    ///
    /// # Errors
    /// Those of `write` and `pwrite`.
    fn write_kernels(&self, fd: i32, at: Option<i64>, bytes: &[u8]) -> Result<usize>;

    /// Moves the position of one of the kernel's descriptors by so many bytes.
    ///
    /// # Errors
    /// Those of `lseek`.
    fn move_kernels(&self, fd: i32, by: i64) -> Result<()>;

    /// The kind of a descriptor that is not virtual; `None` when it is not open.
    fn of_kernel(&self, fd: i32) -> Option<Kernels>;

    /// Keeps one of the kernel's files for a process that will take it, by the ticket that is answered; the descriptor stays open.
    ///
    /// # Errors
    /// `EBADF`; `ETOOMANYREFS` when too many are kept.
    fn park(&self, fd: i32) -> Result<u64>;

    /// A second ticket for a file that is kept.
    ///
    /// # Errors
    /// `ETOOMANYREFS`, `EMFILE`; the first ticket still counts.
    fn park_again(&self, ticket: u64) -> Result<u64>;

    /// Takes a file that was kept: its new descriptor, the lowest free one.
    ///
    /// # Errors
    /// `EMFILE`; the file is still kept.
    fn take_parked(&self, ticket: u64, cloexec: bool) -> Result<i32>;

    /// Closes a file that was kept.
    fn discard_parked(&self, ticket: u64);

    /// Makes the file of a UNIX socket, with this mode less the process's `umask`.
    ///
    /// # Errors
    /// `EEXIST`; those of the path.
    fn make_socket_file(&self, path: &CStr, mode: u32) -> Result<Inode>;

    /// Takes back what [`make_socket_file`](Self::make_socket_file) made.
    fn remove_socket_file(&self, path: &CStr);

    /// Finds the file of a UNIX socket, to which the process must be allowed to write.
    ///
    /// # Errors
    /// `ECONNREFUSED` when it is another file; those of the path.
    fn find_socket_file(&self, path: &CStr) -> Result<Inode>;

    /// A deadline of a timer that sends signals has passed: [`crate::signal::timer::fired`].
    fn signal_timer_fired(&self, raw: u32);

    /// Sends SIGIO to a process, if there is one of this id: [`crate::signal::send::sigio`].
    fn send_sigio(&self, pid: i32);

    /// Sends SIGPIPE to the turn's holder: [`crate::signal::send::raise_here`].
    fn raise_sigpipe(&self);
}
