//! Writes down the server's operations when its node asks for it: [`skein_sched::trace`] says in which form, and what it is for.
//!
//! The node asks by a descriptor ([`TRACE_FD`]) that is a trace without events. While operations are traced each of them leaves the fast path of
//! [`crate::turn::enter`], and each hook's end that of [`crate::signal::boundary_of`], because the words that these look at anyway say so: a server that
//! is not traced pays nothing. The few calls that deliver no signals at their end ask ([`returns`]).
//!
//! Each operation has an end, before its thread begins another one. Most end with their call, and its result. A call with several operations ends the earlier
//! ones itself ([`crate::turn::end`]); a thread that ends, jumps out of a handler, executes a program, or is gone with its process [`leaves`] all that it is inside of.
//! An operation stays open while a handler runs inside of it, or a library's function that the runtime calls: theirs are a level deeper
//! ([`stack::depth`]). The guests' harness checks this in the trace of each guest ([`skein_sched::trace::Nesting`]).
//!
//! The trace is mapped where all that is the runtime's own is, and what else is kept for it lies in this library: in the
//! server's memory, and in what can be seen of the library operating system, nothing differs between two runs that are traced.
//!
//! Invariant: only the turn's holder gets here. A crash loses nothing that was noted: the file's pages are shared.

use crate::fatal::refuse;
use crate::frame::Registers;
use crate::kernel::kernel;
use crate::kernel::process;
use crate::local::{LOCAL, MAX_THREADS};
use crate::sys::{self, args};
use crate::{origin, stack};
use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use skein_arena::layout::{FORMER_TRACE_FD, TRACE_AT, TRACE_FD, TRACE_SPAN};
use skein_model::LogIndex;
use skein_sched::Op;
use skein_sched::trace::{Event, MAX_DEPTH, MAX_FRAMES, MAX_THREAD, Noted, Tape, bit, word};

const _: () = assert!(MAX_THREADS == MAX_THREAD);

/// This process' views of the traces.
struct Traces {
    own: Cell<Option<Tape<'static>>>,
    former: Cell<Option<Tape<'static>>>,
}

// SAFETY: only the turn's holder gets here; turns are handed over with acquire and release.
unsafe impl Sync for Traces {}

static TRACES: Traces = Traces { own: Cell::new(None), former: Cell::new(None) };

/// How long a stopped server sleeps before it looks whether it may go on: 1 ms.
static LOOK: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Maps the traces that the node gave, if it did. `first`: in the first process of the server, which begins to trace.
pub fn attach(first: bool) {
    let Some(own) = map(TRACE_FD, TRACE_AT, libc::PROT_READ | libc::PROT_WRITE) else { return };
    TRACES.own.set(Some(own));
    TRACES.former.set(map(FORMER_TRACE_FD, TRACE_AT + TRACE_SPAN, libc::PROT_READ));
    if first {
        begin();
    }
}

/// The server begins to trace if the node gave a trace: its kernel is new, or an image's, of which no server was traced.
pub fn begin() {
    let k = kernel();
    if TRACES.own.get().is_some() && !k.sched.is_traced() {
        k.sched.trace();
        // Hooks look for signals at their ends while this is not 0.
        k.signals.any.set(k.signals.any.get() + 1);
    }
}

/// In a process that is restored: maps the traces again, as this library's variables are the image's.
pub fn attach_again() {
    // SAFETY: what the process had mapped there when it began; nothing refers to it any more.
    unsafe { sys::raw(libc::SYS_munmap, args([TRACE_AT, 2 * TRACE_SPAN])) };
    attach(false);
}

fn map(fd: i32, at: usize, protection: i32) -> Option<Tape<'static>> {
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a live structure, which the call fills.
    unsafe { sys::call(libc::SYS_fstat, args([fd as usize, &raw mut st as usize])) }.ok()?;
    let len = st.st_size as usize;
    if len > TRACE_SPAN {
        refuse!("the trace of operations has {len} bytes, more than {TRACE_SPAN}");
    }
    let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: new memory where there is none.
    let got = unsafe {
        let given = [at, len, protection as usize, flags as usize, fd as usize, 0];
        sys::call(libc::SYS_mmap, given)
    };
    if got != Ok(at) {
        refuse!("cannot map the trace of operations at {at:#x}: {got:?}");
    }
    // SAFETY: just mapped, for as long as the process lives; the node and other processes of the server change it by atomics only.
    let words = unsafe { core::slice::from_raw_parts(at as *const AtomicU64, len / 8) };
    match Tape::new(words) {
        Ok(tape) => Some(tape),
        Err(damage) => refuse!("descriptor {fd} is no trace of operations: {damage:?}"),
    }
}

/// Whether a trace is mapped at an address: servers do not see it among their mappings.
pub const fn is_at(address: usize) -> bool {
    address >= TRACE_AT && address < TRACE_AT + 2 * TRACE_SPAN
}

/// The turn's holder begins an operation.
pub fn begins(op: Op) {
    if LOCAL.unwinds.get() {
        return;
    }
    let depth = stack::depth();
    if depth > MAX_DEPTH {
        // Deeper ones are not told apart from it.
        leaves(op.thread, MAX_DEPTH);
    }
    let depth = depth.min(MAX_DEPTH);
    note(Event::Begin { op, process: process_number(), depth, from: caller() });
}

/// The operation of the turn's holder ends, and its call returns. Nothing happens if it has ended already.
#[cold]
#[inline(never)]
pub fn ends(result: i64, errno: i32) {
    // SAFETY: this thread's errno.
    let own = unsafe { *libc::__errno_location() };
    let errno = if result == -1 && errno == 0 { own } else { errno };
    end(kernel().current.get(), stack::depth(), Some(result), errno);
}

/// The operation of the turn's holder ends, and its call goes on.
#[cold]
#[inline(never)]
pub fn passes() {
    end(kernel().current.get(), stack::depth(), None, 0);
}

/// A thread leaves all its calls from this depth on: their operations end, the innermost first.
pub fn leaves(thread: u32, depth: u32) {
    let Some(own) = TRACES.own.get() else { return };
    for depth in (depth..=MAX_DEPTH).rev() {
        if own.open(thread) & bit(depth) != 0 {
            end(thread, depth, None, 0);
        }
    }
}

fn end(thread: u32, depth: u32, result: Option<i64>, errno: i32) {
    let Some(own) = TRACES.own.get() else { return };
    let depth = depth.min(MAX_DEPTH);
    if !LOCAL.unwinds.get() && own.open(thread) & bit(depth) != 0 {
        note(Event::End { thread, process: process_number(), depth, result, errno });
    }
}

/// As [`ends`], for a call that delivers no signals at its end.
#[inline]
pub fn returns(result: i64) {
    if kernel().sched.is_traced() {
        ends(result, 0);
    }
}

/// An entry of the log is admitted.
pub fn admitted(index: LogIndex) {
    if !LOCAL.unwinds.get() {
        note(Event::Admitted { index: index.0 });
    }
}

/// What a hook returns, as a number: 0 for nothing.
#[inline]
pub fn value_of<T>(result: &T) -> i64 {
    let mut bytes = [0; 8];
    let len = size_of::<T>();
    if len <= bytes.len() {
        let from = core::ptr::from_ref(result).cast::<u8>();
        // SAFETY: hooks return numbers and pointers, of which all bytes are written.
        unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
    }
    let value = i64::from_le_bytes(bytes);
    if len == size_of::<i32>() { i64::from(value as i32) } else { value }
}

fn process_number() -> u32 {
    process::this().pid.get().cast_unsigned()
}

/// The address behind the server's call, or behind its instruction that was caught.
fn caller() -> u64 {
    if stack::own_level() == 0 {
        return 0;
    }
    if Registers::are_at(stack::below_servers()) {
        // SAFETY: it came in by a stub or a trap, which has left its registers there.
        return unsafe { (*Registers::of_entry()).at };
    }
    let sp = stack::servers();
    if sp == 0 {
        return 0;
    }
    // SAFETY: it came in by a hook: its return address is where the server's stack pointer is.
    unsafe { *(sp as *const u64) }
}

fn note(event: Event) {
    let Some(own) = TRACES.own.get() else { return };
    if let Noted::Stop(number) = own.note(event, TRACES.former.get().as_ref()) {
        stop(&own, number);
    }
}

/// Says where the thread is, and waits until the node has looked.
#[cold]
fn stop(own: &Tape<'_>, number: u64) {
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    LOCAL.unwinds.set(true);
    let mut count = 0;
    origin::each_frame(|at| {
        own.set_word(word::FRAMES + count, at as u64);
        count += 1;
        count < MAX_FRAMES
    });
    own.set_word(word::FRAME_COUNT, count as u64);
    own.set_word(word::STOPPED, number + 1);
    while own.word(word::GO_ON) == 0 {
        // SAFETY: a live time.
        unsafe { sys::raw(libc::SYS_nanosleep, args([&raw const LOOK as usize, 0])) };
    }
    LOCAL.unwinds.set(false);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
