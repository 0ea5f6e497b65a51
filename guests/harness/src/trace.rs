//! Memory for a guest's recorded operations, which vanishes with its run.

use crate::sys;
use skein_sched::trace::{EVENT_BYTES, Event, HEADER_BYTES, MAGIC, NEVER, word};
use std::fs::File;
use std::io::{self, Error};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Events that are kept: 1 Mi, 32 MiB. Guests do less.
pub const CAPACITY: u64 = 1 << 20;

/// A trace.
pub struct Trace(File);

impl Trace {
    /// One without events.
    pub fn new() -> io::Result<Self> {
        let file = sys::memfd(c"trace")?;
        file.set_len(HEADER_BYTES as u64 + CAPACITY * EVENT_BYTES as u64)?;
        for (which, to) in [(word::CAPACITY, CAPACITY), (word::AT, NEVER), (word::MAGIC, MAGIC)] {
            file.write_all_at(&to.to_le_bytes(), which as u64 * 8)?;
        }
        Ok(Self(file))
    }

    /// For the guest.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The recorded events.
    pub fn events(&self) -> io::Result<Vec<Event>> {
        let mut count = [0; 8];
        self.0.read_exact_at(&mut count, word::COUNT as u64 * 8)?;
        let mut bytes = vec![0; u64::from_le_bytes(count).min(CAPACITY) as usize * EVENT_BYTES];
        self.0.read_exact_at(&mut bytes, HEADER_BYTES as u64)?;
        let events = bytes.chunks_exact(EVENT_BYTES).map(|event| {
            let word =
                |n: usize| u64::from_le_bytes(event[8 * n..][..8].try_into().expect("8 bytes"));
            Event::parse([word(0), word(1), word(2), word(3)])
        });
        events.collect::<Option<_>>().ok_or_else(|| Error::other("the trace is damaged"))
    }
}
