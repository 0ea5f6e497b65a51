//! The trace of a server's operations: each thread's operations, their objects, the calling places in the server's code, and the results.
//!
//! A trace is a file that the runtime maps and a node reads: a header of one page, then [`Event`]s of 32 bytes in the order in which they happened.
//! The trace is not part of the server's memory: two traced runs have equal memory. Events that do not fit are not recorded.
//!
//! A trace can stop the server at an event for inspection: at the event with number `at`, or, beside the trace of an earlier run, at the
//! first event that differs ([`Tape::note`]). The inspector reads the running thread's frames and lets it go on.
//!
//! Each operation that begins ends before its thread begins another. A handler that runs inside an operation has operations of its own, one
//! level deeper. The trace keeps which operations are open, so that processes which fork and execute programs know it.
//!
//! All words are little-endian. A reader treats a trace as hostile input: it trusts nothing in it, and [`Event::parse`] rejects impossible events.

use crate::Op;
use crate::op::{Kind, Object};
use core::sync::atomic::{AtomicU64, Ordering};

/// `skeinop` and a version of the form.
pub const MAGIC: u64 = u64::from_le_bytes(*b"skeinop\x02");
/// Bytes in front of the first event: words, and a word for each thread, in whole pages.
pub const HEADER_BYTES: usize = (8 * (word::OPEN + MAX_THREAD as usize + 1)).next_multiple_of(4096);
/// The highest number of a thread: 4,096.
pub const MAX_THREAD: u32 = 4096;
/// The deepest level that is told apart: 63, as a word has a bit for each.
pub const MAX_DEPTH: u32 = u64::BITS - 1;
/// Bytes of an event.
pub const EVENT_BYTES: usize = 32;
/// Frames of a stopped thread that are kept: 64.
pub const MAX_FRAMES: usize = 64;
/// Stands for no event.
pub const NEVER: u64 = u64::MAX;

/// Positions of the words in the header.
pub mod word {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// The most events.
    pub const CAPACITY: usize = 1;
    /// The number of recorded events.
    pub const COUNT: usize = 2;
    /// The event at which the server is to stop, or [`super::NEVER`].
    pub const AT: usize = 3;
    /// Events that were not recorded because there was no room.
    pub const LOST: usize = 4;
    /// One more than the event at which the server has stopped; 0: nowhere.
    pub const STOPPED: usize = 5;
    /// The inspector writes 1: the server goes on.
    pub const GO_ON: usize = 6;
    /// The number of addresses behind [`FRAMES`].
    pub const FRAME_COUNT: usize = 7;
    /// Recording begins when this entry is admitted; 0: at the server's start.
    pub const FROM: usize = 8;
    /// Return addresses of the stopped thread, the innermost first.
    pub const FRAMES: usize = 16;
    /// By thread, a bit for each level at which it has an operation that has not ended.
    pub const OPEN: usize = 512;
}
const _: () = assert!(word::FRAMES + MAX_FRAMES <= word::OPEN);

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A thread begins an operation.
    Begin {
        /// Which.
        op: Op,
        /// Its process, by the number that the server knows.
        process: u32,
        /// The number of calls of the server's code (handlers, start routines) or of libraries' that it runs inside of.
        depth: u32,
        /// The address behind the call, or of the trapped instruction; 0 if unknown.
        from: u64,
    },
    /// The thread's operation of this depth ends.
    End {
        /// Whose.
        thread: u32,
        /// Its process.
        process: u32,
        /// As at its begin.
        depth: u32,
        /// What its call returns with it; `None`: the call goes on, or does not return.
        result: Option<i64>,
        /// `errno` where the result is -1, else 0.
        errno: i32,
    },
    /// An entry of the log was admitted.
    Admitted {
        /// Its index.
        index: u64,
    },
}

const BEGIN: u8 = 1;
const END: u8 = 2;
const ADMITTED: u8 = 3;
const LEFT: u8 = 4;

impl Event {
    /// As words.
    #[must_use]
    pub const fn words(&self) -> [u64; 4] {
        match *self {
            Self::Begin { op, process, depth, from } => {
                let (variant, value) = op.object.numbers();
                let first = BEGIN as u64
                    | (variant as u64) << 8
                    | (op.kind as u64) << 16
                    | (op.thread as u64) << 32;
                [first, value, from, process as u64 | (depth as u64) << 32]
            }
            Self::End { thread, process, depth, result, errno } => {
                let (kind, value) = match result {
                    Some(value) => (END, value),
                    None => (LEFT, 0),
                };
                let last = process as u64 | (errno as u32 as u64) << 32;
                [kind as u64 | (thread as u64) << 32, value as u64, depth as u64, last]
            }
            Self::Admitted { index } => [ADMITTED as u64, index, 0, 0],
        }
    }

    /// The event of these words; `None` if no runtime can have written them.
    #[must_use]
    pub fn parse(words: [u64; 4]) -> Option<Self> {
        let [first, value, from, last] = words;
        let (thread, process) = ((first >> 32) as u32, last as u32);
        let event = match first as u8 {
            BEGIN => {
                let object = Object::from_numbers((first >> 8) as u8, value)?;
                let kind = Kind::from_number((first >> 16) as u16)?;
                let depth = (last >> 32) as u32;
                Self::Begin { op: Op { thread, object, kind }, process, depth, from }
            }
            kind @ (END | LEFT) => Self::End {
                thread,
                process,
                depth: from as u32,
                result: (kind == END).then_some(value as i64),
                errno: (last >> 32) as i32,
            },
            ADMITTED => Self::Admitted { index: value },
            _ => return None,
        };
        // Bits that have no meaning are zero.
        (event.words() == words).then_some(event)
    }

    /// The thread and its process; none of an admission.
    #[must_use]
    pub const fn whose(&self) -> Option<(u32, u32)> {
        match *self {
            Self::Begin { op, process, .. } => Some((op.thread, process)),
            Self::End { thread, process, .. } => Some((thread, process)),
            Self::Admitted { .. } => None,
        }
    }
}

/// The bit of a depth.
#[must_use]
pub const fn bit(depth: u32) -> u64 {
    1 << if depth < MAX_DEPTH { depth } else { MAX_DEPTH }
}

/// Checks that each thread's operations nest: one ends before the next begins, but for those of a handler that runs inside of it.
#[derive(Debug)]
pub struct Nesting {
    /// By thread, as at [`word::OPEN`].
    open: [u64; MAX_THREAD as usize + 1],
}

impl Nesting {
    /// Of a trace's first event.
    #[must_use]
    pub const fn new() -> Self {
        Self { open: [0; MAX_THREAD as usize + 1] }
    }

    /// Whether an event, the next one of its trace, may be there.
    pub fn allows(&mut self, event: &Event) -> bool {
        let (thread, depth, begins) = match *event {
            Event::Begin { op, depth, .. } => (op.thread, depth, true),
            Event::End { thread, depth, .. } => (thread, depth, false),
            Event::Admitted { .. } => return true,
        };
        let Some(open) = self.open.get_mut(thread as usize) else { return false };
        let from_here = *open & !(bit(depth) - 1);
        *open ^= bit(depth);
        // None at this depth or deeper, or the one that ends.
        from_here == if begins { 0 } else { bit(depth) }
    }

    /// A thread with an operation that has not ended.
    #[must_use]
    pub fn open(&self) -> Option<u32> {
        self.open.iter().position(|open| *open != 0).map(|thread| thread as u32)
    }
}

impl Default for Nesting {
    fn default() -> Self {
        Self::new()
    }
}

/// The reason why memory is no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It does not begin with this version's magic number.
    Magic,
    /// It claims more events than its bytes can hold.
    Length,
}

/// A trace that is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Tape<'a> {
    header: &'a [AtomicU64],
    events: &'a [AtomicU64],
}

/// The outcome of recording an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The server goes on.
    GoOn,
    /// The server must stop at this event, with this number, until it was inspected.
    Stop(u64),
}

impl<'a> Tape<'a> {
    /// The trace in `words`.
    ///
    /// # Errors
    /// There is none.
    pub fn new(words: &'a [AtomicU64]) -> Result<Self, Damage> {
        let (header, events) = words.split_at_checked(HEADER_BYTES / 8).ok_or(Damage::Length)?;
        if header[word::MAGIC].load(Ordering::Acquire) != MAGIC {
            return Err(Damage::Magic);
        }
        let capacity = usize::try_from(header[word::CAPACITY].load(Ordering::Relaxed));
        let bytes = capacity.ok().and_then(|n| n.checked_mul(EVENT_BYTES / 8));
        let events = bytes.and_then(|n| events.get(..n)).ok_or(Damage::Length)?;
        Ok(Self { header, events })
    }

    /// A word of the header ([`word`]).
    #[must_use]
    pub fn word(&self, which: usize) -> u64 {
        self.header[which].load(Ordering::Acquire)
    }

    /// Changes a word of the header. A reader that sees the new value also sees all earlier writes.
    pub fn set_word(&self, which: usize, to: u64) {
        self.header[which].store(to, Ordering::Release);
    }

    /// Appends an event; only the thread with the turn calls this. `former` is the trace of an earlier run: the server must stop, once, where this event
    /// differs, or where it is the wanted event.
    pub fn note(&self, event: Event, former: Option<&Tape<'_>>) -> Noted {
        let number = self.word(word::COUNT);
        let from = self.word(word::FROM);
        let is_late = matches!(event, Event::Admitted { index } if index >= from);
        if number == 0 && from != 0 && !is_late {
            return Noted::GoOn;
        }
        let words = event.words();
        let Some(slot) = self.slot(number) else {
            self.set_word(word::LOST, self.word(word::LOST) + 1);
            return Noted::GoOn;
        };
        for (to, from) in slot.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        self.set_word(word::COUNT, number + 1);
        match event {
            Event::Begin { op, depth, .. } => self.mark(op.thread, |open| open | bit(depth)),
            Event::End { thread, depth, .. } => self.mark(thread, |open| open & !bit(depth)),
            Event::Admitted { .. } => {}
        }
        let looked_for = number == self.word(word::AT);
        if !looked_for && former.is_none_or(|former| former.is(number, words)) {
            return Noted::GoOn;
        }
        if self.word(word::STOPPED) == 0 { Noted::Stop(number) } else { Noted::GoOn }
    }

    /// The thread's recorded operations that have not ended, a bit for each depth.
    #[must_use]
    pub fn open(&self, thread: u32) -> u64 {
        self.word(word::OPEN + thread.min(MAX_THREAD) as usize)
    }

    fn mark(&self, thread: u32, change: impl FnOnce(u64) -> u64) {
        self.set_word(word::OPEN + thread.min(MAX_THREAD) as usize, change(self.open(thread)));
    }

    fn slot(&self, number: u64) -> Option<&[AtomicU64]> {
        const WORDS: usize = EVENT_BYTES / 8;
        let at = usize::try_from(number).ok()?.checked_mul(WORDS)?;
        self.events.get(at..at.checked_add(WORDS)?)
    }

    /// Whether the event with this number equals these words; true if it was not recorded for lack of room.
    fn is(&self, number: u64, words: [u64; 4]) -> bool {
        let Some(slot) = self.slot(number) else { return true };
        if number >= self.word(word::COUNT) {
            return false;
        }
        slot.iter().zip(words).all(|(a, b)| a.load(Ordering::Relaxed) == b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn begin(thread: u32) -> Event {
        let op = Op { thread, object: Object::Memory(0x1234), kind: Kind::Lock };
        Event::Begin { op, process: 7, depth: 2, from: 0xabc }
    }

    fn memory(capacity: u64) -> Vec<AtomicU64> {
        let words = HEADER_BYTES / 8 + capacity as usize * EVENT_BYTES / 8;
        let memory: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        memory[word::MAGIC].store(MAGIC, Ordering::Relaxed);
        memory[word::CAPACITY].store(capacity, Ordering::Relaxed);
        memory[word::AT].store(NEVER, Ordering::Relaxed);
        memory
    }

    #[test]
    fn events_survive_the_way_through_words() {
        let end = Event::End { thread: 3, process: 9, depth: 1, result: Some(-1), errno: 11 };
        let left = Event::End { thread: 3, process: 9, depth: 1, result: None, errno: 0 };
        for event in [begin(5), end, left, Event::Admitted { index: u64::MAX }] {
            assert_eq!(Event::parse(event.words()), Some(event));
            for bit in 0..256 {
                let mut words = event.words();
                words[bit / 64] ^= 1 << (bit % 64);
                assert_ne!(Event::parse(words), Some(event), "bit {bit} counts");
            }
        }
    }

    #[test]
    fn words_that_no_runtime_writes_are_no_event() {
        assert_eq!(Event::parse([0; 4]), None);
        assert_eq!(Event::parse([u64::MAX; 4]), None);
        assert_eq!(Event::parse([u64::from(BEGIN) | 99 << 8, 0, 0, 0]), None, "no such object");
        assert_eq!(Event::parse([u64::from(BEGIN) | 99 << 16, 0, 0, 0]), None, "no such kind");
        assert_eq!(Event::parse([u64::from(ADMITTED), 1, 0, 1]), None, "a bit without a meaning");
    }

    #[test]
    fn a_tape_needs_its_magic_and_its_length() {
        let words = memory(4);
        assert!(Tape::new(&words).is_ok());
        assert_eq!(Tape::new(&words[..words.len() - 1]).unwrap_err(), Damage::Length);
        assert_eq!(Tape::new(&words[..10]).unwrap_err(), Damage::Length);
        words[word::CAPACITY].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(Tape::new(&words).unwrap_err(), Damage::Length);
        words[word::MAGIC].store(0, Ordering::Relaxed);
        assert_eq!(Tape::new(&words).unwrap_err(), Damage::Magic);
    }

    #[test]
    fn a_trace_knows_which_operations_are_open() {
        let words = memory(8);
        let tape = Tape::new(&words).unwrap();
        let op = Op { thread: MAX_THREAD, object: Object::Clock, kind: Kind::Ask };
        let begin = |depth| Event::Begin { op, process: 2, depth, from: 0 };
        let end =
            |depth| Event::End { thread: op.thread, process: 2, depth, result: None, errno: 0 };
        let after = [(begin(0), 0b1), (begin(2), 0b101), (end(2), 0b1), (end(0), 0)];
        for (event, open) in after {
            tape.note(event, None);
            assert_eq!((tape.open(op.thread), tape.open(1)), (open, 0), "after {event:?}");
        }
    }

    #[test]
    fn operations_of_a_thread_nest_in_handlers_only() {
        let begin = |thread, depth| {
            let op = Op { thread, object: Object::Clock, kind: Kind::Ask };
            Event::Begin { op, process: 2, depth, from: 0 }
        };
        let end = |thread, depth| Event::End { thread, process: 2, depth, result: None, errno: 0 };
        let refused = |events: &[Event]| {
            let mut nesting = Nesting::new();
            events.iter().position(|event| !nesting.allows(event))
        };
        let open = |events: &[Event]| {
            let mut nesting = Nesting::new();
            assert!(events.iter().all(|event| nesting.allows(event)));
            nesting.open()
        };
        assert_eq!(open(&[begin(3, 0), begin(3, 1), end(3, 1)]), Some(3));
        assert_eq!(open(&[begin(3, 0), end(3, 0)]), None);
        let good = [begin(1, 0), begin(2, 0), begin(1, 1), end(1, 1), begin(1, 2), end(2, 0)];
        assert_eq!(refused(&good), None);
        assert_eq!(refused(&[&good[..], &[end(1, 2), end(1, 0), begin(1, 0)]].concat()), None);
        assert_eq!(refused(&[begin(1, 0), begin(1, 0)]), Some(1), "the first has not ended");
        assert_eq!(refused(&[begin(1, 1), begin(1, 0)]), Some(1), "its handler's has not ended");
        assert_eq!(refused(&[begin(1, 0), begin(1, 1), end(1, 0)]), Some(2), "nor here");
        assert_eq!(refused(&[end(1, 0)]), Some(0), "none has begun");
        assert_eq!(refused(&[begin(1, 0), end(1, 0), end(1, 0)]), Some(2), "it has ended");
        assert_eq!(refused(&[begin(MAX_THREAD + 1, 0)]), Some(0), "there is no such thread");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let words = memory(2);
        let tape = Tape::new(&words).unwrap();
        for thread in 0..5 {
            assert_eq!(tape.note(begin(thread), None), Noted::GoOn);
        }
        assert_eq!((tape.word(word::COUNT), tape.word(word::LOST)), (2, 3));
    }

    #[test]
    fn nothing_is_recorded_before_the_entry_that_is_named() {
        let words = memory(8);
        let tape = Tape::new(&words).unwrap();
        tape.set_word(word::FROM, 5);
        tape.set_word(word::AT, 1);
        for event in [Event::Admitted { index: 4 }, begin(1), Event::Admitted { index: 6 }] {
            assert_eq!(tape.note(event, None), Noted::GoOn);
        }
        assert_eq!(tape.word(word::COUNT), 1);
        assert_eq!(tape.note(begin(1), None), Noted::Stop(1), "numbers count what is recorded");
        assert_eq!((tape.word(word::COUNT), tape.word(word::LOST)), (2, 0));
    }

    #[test]
    fn the_first_event_that_differs_stops_the_server_once() {
        let (former, words) = (memory(8), memory(8));
        let (former, tape) = (Tape::new(&former).unwrap(), Tape::new(&words).unwrap());
        for thread in [1, 2, 3] {
            former.note(begin(thread), None);
        }
        assert_eq!(tape.note(begin(1), Some(&former)), Noted::GoOn);
        assert_eq!(tape.note(begin(9), Some(&former)), Noted::Stop(1));
        tape.set_word(word::STOPPED, 2);
        assert_eq!(tape.note(begin(9), Some(&former)), Noted::GoOn, "it was stopped before");
    }

    #[test]
    fn an_event_more_than_before_differs() {
        let (former, words) = (memory(8), memory(8));
        let (former, tape) = (Tape::new(&former).unwrap(), Tape::new(&words).unwrap());
        former.note(begin(1), None);
        tape.note(begin(1), Some(&former));
        assert_eq!(tape.note(begin(2), Some(&former)), Noted::Stop(1));
    }

    #[test]
    fn behind_the_end_of_a_full_trace_nothing_differs() {
        let (former, words) = (memory(1), memory(8));
        let (former, tape) = (Tape::new(&former).unwrap(), Tape::new(&words).unwrap());
        former.note(begin(1), None);
        former.note(begin(2), None);
        tape.note(begin(1), Some(&former));
        assert_eq!(tape.note(begin(3), Some(&former)), Noted::GoOn);
    }

    #[test]
    fn the_event_that_is_looked_for_stops_the_server() {
        let words = memory(8);
        let tape = Tape::new(&words).unwrap();
        tape.set_word(word::AT, 1);
        assert_eq!(tape.note(begin(1), None), Noted::GoOn);
        assert_eq!(tape.note(begin(1), None), Noted::Stop(1));
    }
}
