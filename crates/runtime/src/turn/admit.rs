//! Admission: the only place where inputs enter (CRANE, section 4).
//!
//! An entry is admitted when no thread can run (quiescence) or at a slot of the schedule. At either point the next entry of the log is
//! awaited, never "taken if it is there": that makes the points a function of the log alone.

use crate::fatal::refuse;
use crate::kernel::Kernel;
use crate::local::header;
use crate::stack::Level;
use crate::sys;
use crate::turn::above::above;
use crate::turn::{self, carrier, output, trace};
use core::cell::RefCell;
use core::sync::atomic::Ordering;
use skein_arena::layout::state;
use skein_arena::planned::Next;
use skein_arena::pool::Handle;
use skein_arena::ring::Consumer;
use skein_model::entry::{EntryRef, Record};
use skein_model::frame::FRAME_HEADER_BYTES;
use skein_model::pad8;
use skein_model::{Clock, LogIndex, OutFrame};
use skein_sched::Policy;

/// A planned entry is not taken any more so long after its time: the machine slept, or this server, and its node is to decide: 100 ms.
const IN_TIME_NS: u64 = 100_000_000;

/// The reason why the next entry is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No thread can run.
    Quiescent,
    /// The schedule says so, though threads can run.
    Slot,
}

struct Input(RefCell<Option<Consumer>>);

// SAFETY: only the turn's holder gets here; turns are handed over with acquire and release.
unsafe impl Sync for Input {}

static INPUT: Input = Input(RefCell::new(None));

/// Installs the ring's end.
pub fn install(consumer: Consumer) {
    *INPUT.0.borrow_mut() = Some(consumer);
}

/// Continues where another process of the server has left off.
pub fn catch_up() {
    if let Some(input) = INPUT.0.borrow_mut().as_mut() {
        input.catch_up();
    }
}

/// Awaits the next entry and admits it; the carrier does so for a thread that is pinned.
pub fn wait(k: &Kernel, why: Wait) {
    let current = Handle::from_raw(k.current.get()).map(|current| k.threads.get(current));
    match current.filter(|current| carrier::is_on_own(current)) {
        Some(current) => {
            let level = Level::current();
            carrier::have_entry_awaited(current);
            level.set();
        }
        None => wait_here(k, why),
    }
}

/// The same in the running kernel thread, a carrier.
pub fn wait_here(k: &Kernel, why: Wait) {
    if k.sched.started() {
        above().before_entry(k, header().applied.load(Ordering::Relaxed));
    }
    let mut input = INPUT.0.borrow_mut();
    let input = input.as_mut().expect("the input ring is installed");
    let mut planned = None;
    if empty(input) {
        let h = header();
        h.deadline_ns.store(k.timers.next_deadline(), Ordering::Relaxed);
        let state = if above().asks(k) {
            state::ASKS
        } else if why == Wait::Slot {
            state::SLOT
        } else {
            state::QUIESCENT
        };
        h.server_state.store(state, Ordering::Release);
        while empty(input) && planned.is_none() {
            if carrier::hold(sleep, core::ptr::from_ref(input) as usize) {
                input.catch_up();
                output::catch_up();
                above().restored(k);
            } else if empty(input) {
                planned = take_planned();
            }
        }
        h.server_state.store(state::RUNNING, Ordering::Release);
    }
    let ready = match planned {
        Some(bytes) => input.planned(bytes),
        None => input.readable(),
    };
    let used = match ready {
        Ok(ready) => admit_first(k, ready),
        Err(damaged) => refuse!("{damaged}"),
    };
    input.release(used);
    // The node may wait for room. It checks for room whenever it has something to write, so a wake-up is needed only when it sleeps with a backlog.
}

/// Sleeps at the gate unless there is input.
extern "C" fn sleep(input: usize) {
    // SAFETY: `wait`'s, which waits for this.
    let input = unsafe { &*(input as *const Consumer) };
    turn::sleep_at_gate(|| empty(input), || header().plan.look(header().awaited_timer()));
}

/// Until that entry may be taken, ns; `None` if its time is long past.
pub fn time_left(next: &Next) -> Option<u64> {
    let now_ns = sys::boot_time_ns();
    let in_time = now_ns < next.step.at_ns.saturating_add(IN_TIME_NS);
    in_time.then(|| next.step.at_ns.saturating_sub(now_ns))
}

/// Takes the entry that the server may take by itself by now; answers its length in the ring.
fn take_planned() -> Option<u64> {
    let due_ns = header().awaited_timer()?;
    let plan = &header().plan;
    let next = plan.next(due_ns).filter(|next| time_left(next) == Some(0))?;
    plan.take(&next, due_ns).then_some(next.step.bytes)
}

fn empty(input: &Consumer) -> bool {
    match input.is_empty() {
        Ok(empty) => empty,
        Err(damaged) => refuse!("{damaged}"),
    }
}

/// Agreed points switched off: admits all entries that have arrived by now, wherever the server is. Only for the experiment that shows their purpose
/// (CRANE, section 7.2).
#[cold]
pub fn arrived(k: &Kernel) {
    let there = || match INPUT.0.borrow().as_ref().map(Consumer::is_empty) {
        Some(Ok(empty)) => !empty,
        Some(Err(damaged)) => refuse!("{damaged}"),
        None => false,
    };
    while there() {
        wait(k, Wait::Slot);
    }
}

/// Admits the entry in the first frame of `ready`; answers its length in bytes.
fn admit_first(k: &Kernel, ready: &[u8]) -> usize {
    let Some(head) = ready.get(..FRAME_HEADER_BYTES) else {
        refuse!("the input ring holds {} bytes, less than a frame", ready.len())
    };
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let index = LogIndex(u64::from_le_bytes(head[8..16].try_into().expect("8 bytes")));
    let Some(bytes) = ready.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + len) else {
        refuse!("the input ring holds part of an entry")
    };
    let entry = match EntryRef::parse(bytes) {
        Ok(entry) => entry,
        Err(e) => refuse!("entry {index}: {e}"),
    };
    apply(k, index, &entry);
    pad8(FRAME_HEADER_BYTES + len)
}

fn apply(k: &Kernel, index: LogIndex, entry: &EntryRef<'_>) {
    if k.sched.is_traced() {
        trace::admitted(index);
    }
    let clock = Clock(k.sched.clock());
    output::emit(OutFrame::Admitted { index, clock, ops: k.sched.operations() });
    k.now_ns.set(k.now_ns.get().max(entry.wall().0));
    k.pace.admitted(entry.wall().0);
    header().now_ns.store(k.now_ns.get(), Ordering::Relaxed);
    let mut bubble = None;
    // The start record comes before the timers: it makes the clock.
    for record in entry.records() {
        if let Record::Start(start) = record {
            k.sched.start(start.quantum, start.nclock);
            k.random.seed(&start.seed);
            k.boot_ns.set(k.now_ns.get());
        }
    }
    if !k.sched.started() {
        refuse!("entry {index} comes before the server's start");
    }
    k.timers.fire_due(k);
    let mut inputs = 0;
    for record in entry.records() {
        inputs += u32::from(record.is_input());
        match record {
            Record::Start(_)
            | Record::Digest { .. }
            | Record::Root { .. }
            | Record::Upgrade { .. } => {}
            Record::Bubble { turns } => {
                bubble = Some(turns);
                header().bubbles.fetch_add(1, Ordering::Relaxed);
            }
            record => above().enter(k, entry.term(), &record),
        }
    }
    k.sched.admitted(inputs, bubble);
    header().applied.store(index.0, Ordering::Release);
}
