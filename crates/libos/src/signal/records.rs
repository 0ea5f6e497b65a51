//! Records of signals: those of processes and threads, the pending ones, timers and signalfds ([`crate::signal`]).

use crate::room::Room;
use crate::state::file::{File, MAX_SMALL};
use crate::state::process::Process;
use crate::state::timers::Timer;
use core::cell::Cell;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Link, Pool};

/// Signals are numbered from 1 to this.
pub const LAST: i32 = 64;

/// Signals that are queued at one time: 16,384.
pub(in crate::signal) const MAX_QUEUED: u32 = 16 << 10;

/// A process's signals. All-zero: everything as by default.
#[repr(C)]
pub struct ProcessSignals {
    pub(in crate::signal) actions: [Cell<Action>; LAST as usize],
    /// Sent to the process as a whole.
    pub(in crate::signal) pending: Pending,
    /// Signals of `siginterrupt`: `signal` gives them no `SA_RESTART`.
    pub(in crate::signal) interrupting: Cell<u64>,
    /// `setitimer`'s three timers.
    pub(in crate::signal) interval_timers: [Link<SignalTimer>; 3],
    /// Timers that call functions.
    pub(in crate::signal) callers: Callers,
}

/// A thread's signals. All-zero: nothing blocked, nothing pending.
#[repr(C)]
pub struct ThreadSignals {
    /// The blocked signals.
    pub mask: Cell<u64>,
    /// The mask that comes back after the next handler (`sigsuspend`, `ppoll`), when there is one.
    pub(in crate::signal) saved: Cell<u64>,
    pub(in crate::signal) has_saved: Cell<bool>,
    /// Sent to this thread.
    pub(in crate::signal) pending: Pending,
    /// The set that it waits for (`sigwait`).
    pub(in crate::signal) waiting: Cell<u64>,
}

/// State that all processes share. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Signals {
    /// The number of pending sets that are not empty, and of stopped processes.
    pub any: Cell<u32>,
    pub(in crate::signal) _pad: Cell<u32>,
    pub(in crate::signal) queued: Pool<Queued>,
    pub(in crate::signal) timers: Pool<SignalTimer>,
    pub(in crate::signal) fds: Pool<SignalFd>,
}

impl Signals {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.queued, MAX_QUEUED);
        room.pool(&self.timers, MAX_TIMERS);
        room.pool(&self.fds, MAX_SMALL);
    }
}

/// The data of a signal: the used part of the kernel's `siginfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// Its number.
    pub signo: i32,
    /// Always 0.
    pub errno: i32,
    /// Its origin: `SI_USER`, `SI_TIMER`, ...
    pub code: i32,
    /// Unused.
    pub pad: i32,
    /// The sender's pid, or a timer's id.
    pub pid: i32,
    /// The sender's user, or a timer's overrun.
    pub uid: i32,
    /// The value sent along; for a child the status.
    pub value: u64,
    /// Used by few signals.
    pub rest: [u64; 2],
}

const _: () = assert!(size_of::<Info>() == 48 && core::mem::offset_of!(Info, pid) == 16);

/// A process's action for a signal: the kernel's `sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or a function.
    pub handler: usize,
    /// `SA_` flags.
    pub flags: u64,
    /// The restorer, kept for `sigaction`'s answer.
    pub restorer: usize,
    /// Additional mask during the handler.
    pub mask: u64,
}

/// A signal in a queue.
#[repr(C)]
pub struct Queued {
    pub(in crate::signal) node: Node<Queued>,
    pub(in crate::signal) info: Cell<Info>,
    /// The timer that sent it.
    pub(in crate::signal) timer: Link<SignalTimer>,
}

/// A queue of pending signals.
pub struct OnQueue;

// SAFETY: cells and links; all-zero is valid.
unsafe impl ArenaObject for Queued {}

impl In<OnQueue> for Queued {
    fn node(&self) -> &Node<Queued> {
        &self.node
    }
}

/// Signals that wait for delivery. All-zero: none.
#[repr(C)]
pub struct Pending {
    pub(in crate::signal) bits: Cell<u64>,
    pub(in crate::signal) queue: List<Queued, OnQueue>,
    pub(in crate::signal) _pad: Cell<u32>,
}

/// Timers that send signals at one time: 4096.
pub const MAX_TIMERS: u32 = 4096;

/// The notification of a timer's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(in crate::signal) enum Notify {
    /// Not in use.
    Free = 0,
    /// None: it is polled.
    Silent,
    /// By a signal to the process.
    Process,
    /// By a signal to a thread.
    Thread,
    /// By calling a function.
    Call,
    /// One of `setitimer`'s.
    Interval,
}

/// A timer that sends signals.
#[repr(C)]
pub struct SignalTimer {
    pub(in crate::signal) clock: Cell<i32>,
    pub(in crate::signal) notify: Cell<Notify>,
    pub(in crate::signal) signo: Cell<i32>,
    pub(in crate::signal) process: Link<Process>,
    /// The thread to notify, by its number in the arena and its id.
    pub(in crate::signal) target: Cell<u32>,
    pub(in crate::signal) target_tid: Cell<u32>,
    /// The pending deadline.
    pub(in crate::signal) timer: Link<Timer>,
    /// In the server's time of day; of the last expiry once it has fired.
    pub(in crate::signal) deadline_ns: Cell<u64>,
    pub(in crate::signal) interval_ns: Cell<u64>,
    /// It is set, and will expire.
    pub(in crate::signal) armed: Cell<bool>,
    /// It has fired, and its signal was not taken yet.
    pub(in crate::signal) waits: Cell<bool>,
    /// Overruns: since the last signal was sent, and at the last that was taken.
    pub(in crate::signal) missed: Cell<u64>,
    pub(in crate::signal) overrun: Cell<u64>,
    /// `sigev_value`, and for calls the function, its stack's size and the place in the order of calls.
    pub(in crate::signal) value: Cell<u64>,
    pub(in crate::signal) function: Cell<usize>,
    pub(in crate::signal) stack_bytes: Cell<usize>,
    pub(in crate::signal) call_order: Cell<u64>,
}

// SAFETY: cells and links; all-zero is a free timer.
unsafe impl ArenaObject for SignalTimer {}

/// The helper thread that makes threads for timers. All-zero: not there.
#[repr(C)]
pub struct Callers {
    pub(in crate::signal) started: Cell<bool>,
    pub(in crate::signal) calls: Cell<u64>,
}

/// A signalfd.
#[repr(C)]
pub struct SignalFd {
    /// The signals that it takes.
    pub(in crate::signal) set: Cell<u64>,
    pub(in crate::signal) file: Link<File>,
    pub(in crate::signal) used: Cell<bool>,
}

// SAFETY: cells and a link.
unsafe impl ArenaObject for SignalFd {}
