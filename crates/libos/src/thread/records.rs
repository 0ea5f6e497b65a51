//! The record of a thread ([`crate::thread`]).

use crate::state::file::{Held, Wait};
use crate::state::process::Process;
use crate::state::signal::ThreadSignals;
use crate::state::timers::Timer;
use core::cell::Cell;
use skein_arena::bytes::Chunk;
use skein_arena::pool::Link;

/// A thread's place in the run queue.
pub struct Queue;

/// A thread's place in a queue at an address.
pub struct Waiting;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Life {
    /// Being created.
    Unborn = 0,
    /// Has the turn.
    Running = 1,
    /// Could run; in the run queue.
    Runnable = 2,
    /// Waits to be resumed.
    Blocked = 3,
    /// Its kernel thread is gone.
    Ended = 4,
    /// Could run, but its process is stopped; kept aside.
    Stopped = 5,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Wake {
    /// The awaited event happened.
    Event = 0,
    /// The deadline passed.
    Timeout = 1,
    /// The thread is being cancelled, or a signal handler must run.
    Interrupted = 2,
}

/// A thread. All-zero bytes are an unborn one.
#[repr(C)]
pub struct Thread {
    /// Its state.
    pub life: Cell<Life>,
    /// The reason why its last wait ended.
    pub wake: Cell<Wake>,
    /// The kernel's id of it.
    pub tid: Cell<u32>,
    /// The wake-ups that it waits for.
    pub key_bits: Cell<u32>,
    /// The address that it waits at ([`crate::keys`]).
    pub key: Cell<u64>,
    /// The address of the robust mutex that it locked last ([`crate::sync::mutex`]).
    pub robust: Cell<usize>,
    /// The process that it belongs to.
    pub process: Link<Process>,
    /// Its deadline's place.
    pub timer: Link<Timer>,
    /// The waits of its call in progress.
    pub waits: Link<Wait>,
    /// The files of its calls in progress.
    pub held: Held,
    /// The addresses that it waits at, when they are several.
    pub several: Link<Chunk>,
    /// Cancellation: requested, disabled, asynchronous.
    pub cancel_asked: Cell<bool>,
    /// Cancellation is disabled (`pthread_setcancelstate`).
    pub cancel_off: Cell<bool>,
    /// Cancellation may strike anywhere (`pthread_setcanceltype`); noted, treated as deferred.
    pub cancel_async: Cell<bool>,
    /// The thread has begun to exit: it is no longer cancelled.
    pub exiting: Cell<bool>,
    /// Its wait is a cancellation point.
    pub at_cancel_point: Cell<bool>,
    /// Its signals.
    pub signals: ThreadSignals,
}

impl Thread {
    /// Whether it waits to be resumed.
    pub fn blocked(&self) -> bool {
        self.life.get() == Life::Blocked
    }

    /// Whether it must end at its next cancellation point.
    #[inline]
    pub fn cancel_pending(&self) -> bool {
        self.cancel_asked.get() && !self.cancel_off.get() && !self.exiting.get()
    }
}
