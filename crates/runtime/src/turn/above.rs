//! The functions of higher rooms that the turn calls: given once, at the start.

use crate::kernel::Kernel;
use crate::kernel::thread::Thread;
use core::cell::Cell;
use skein_arena::pool::Handle;
use skein_model::Term;
use skein_model::entry::Record;

/// The resources of the server, as the turn knows them.
pub trait Above: Sync {
    /// The entry behind `applied` is about to be awaited.
    fn before_entry(&self, k: &Kernel, applied: u64);

    /// Whether facts must be agreed on before the server continues. Then the node is told.
    fn asks(&self, k: &Kernel) -> bool;

    /// A record of an entry of this term enters.
    fn enter(&self, k: &Kernel, term: Term, record: &Record<'_>);

    /// Bytes are sent to the outside.
    fn sent(&self, bytes: usize);

    /// The server is about to sleep: the node is told of signals from outside.
    fn tell_of_signals(&self);

    /// The kernel thread of a thread is gone.
    fn gone(&self, k: &Kernel, thread: Handle<Thread>);

    /// The running process is a copy of the one that forked it.
    fn forked(&self);

    /// The carrier sleeps no more at the gate of the process that an image is of, but in one that was made from that.
    fn restored(&self, k: &Kernel);

    /// The carrier is about to sleep, at the gate or not, and the node wants a copy of this process's memory.
    fn copy_memory(&self, k: &Kernel, at_gate: bool);

    /// A kernel thread was made again in a process that is restored.
    fn revived(&self);

    /// This process has the turn again: it ends now, if another has ordered that.
    fn obey(&self, k: &Kernel);

    /// The server is about to be told of a fault with this signal and code.
    fn before_fault(&self, signo: i32, code: i32);
}

/// Nothing is above yet.
struct Nobody;

impl Above for Nobody {
    fn before_entry(&self, _: &Kernel, _: u64) {}
    fn asks(&self, _: &Kernel) -> bool {
        false
    }
    fn enter(&self, _: &Kernel, _: Term, _: &Record<'_>) {}
    fn sent(&self, _: usize) {}
    fn tell_of_signals(&self) {}
    fn gone(&self, _: &Kernel, _: Handle<Thread>) {}
    fn forked(&self) {}
    fn restored(&self, _: &Kernel) {}
    fn copy_memory(&self, _: &Kernel, _: bool) {}
    fn revived(&self) {}
    fn obey(&self, _: &Kernel) {}
    fn before_fault(&self, _: i32, _: i32) {}
}

struct Given(Cell<&'static dyn Above>);

// SAFETY: written once, by the only thread of a program that begins, before the turn calls.
unsafe impl Sync for Given {}

static GIVEN: Given = Given(Cell::new(&Nobody));

/// From now on the turn calls these.
pub fn give(above: &'static dyn Above) {
    GIVEN.0.set(above);
}

/// The rooms above.
pub fn above() -> &'static dyn Above {
    GIVEN.0.get()
}
