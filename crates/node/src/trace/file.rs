//! A trace in a file, and its events one after the other.

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use skein_sched::trace::{EVENT_BYTES, Event, HEADER_BYTES, MAGIC, MAX_FRAMES, NEVER, word};
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// The number of events per read: 128 KiB.
const EVENTS_AT_A_TIME: u64 = 4096;

/// A file without a name in the directory for temporary files, or in memory where the file system there has none.
pub(crate) fn nameless(name: &CStr) -> io::Result<File> {
    let on_disk = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir());
    on_disk
        .or_else(|_| Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC).map_err(io::Error::from)?.into()))
}

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Damaged {
    /// It is something else, or of another version.
    #[error("it is no trace of operations, or one of another version of Skein")]
    NotATrace,
    /// Its end is missing.
    #[error("it is cut off: it says that it has {says} operations, and has {has}")]
    CutOff {
        /// The number that it claims.
        says: u64,
        /// The number that its bytes can hold.
        has: u64,
    },
    /// An event is impossible.
    #[error("its event {number} is damaged")]
    Event {
        /// Counted from 0.
        number: u64,
    },
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Damaged> for io::Error {
    fn from(damaged: Damaged) -> Self {
        match damaged {
            Damaged::Io(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}

/// A trace.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
}

/// The place where a server has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Its event.
    pub number: u64,
    /// The return addresses of its thread, the innermost first.
    pub frames: Vec<u64>,
}

impl TraceFile {
    /// A trace without events and without a name, with room for this many.
    ///
    /// # Errors
    /// There is no room on the disk.
    pub fn new(capacity: u64) -> io::Result<Self> {
        Self::in_file(nameless(c"skein-trace")?, capacity)
    }

    /// A trace without events in an empty file.
    ///
    /// # Errors
    /// There is no room on the disk.
    pub fn in_file(file: File, capacity: u64) -> io::Result<Self> {
        let len = HEADER_BYTES as u64 + capacity * EVENT_BYTES as u64;
        file.set_len(len)?;
        // A full disk would kill the process that writes a mapped file.
        match fallocate(&file, FallocateFlags::empty(), 0, len as i64) {
            Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
        let trace = Self { file };
        trace.set_word(word::CAPACITY, capacity)?;
        trace.set_word(word::AT, NEVER)?;
        trace.set_word(word::MAGIC, MAGIC)?;
        Ok(trace)
    }

    /// The trace in a file.
    ///
    /// # Errors
    /// There is none, or it is incomplete.
    pub fn open(file: File) -> Result<Self, Damaged> {
        let trace = Self { file };
        trace.events()?;
        Ok(trace)
    }

    /// The same file once more, for a server.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    fn word(&self, which: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, which as u64 * 8)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn set_word(&self, which: usize, to: u64) -> io::Result<()> {
        self.file.write_all_at(&to.to_le_bytes(), which as u64 * 8)
    }

    /// The server must stop at the event with this number.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn stop_at(&self, number: u64) -> io::Result<()> {
        self.set_word(word::AT, number)
    }

    /// The entry from whose admission on events are recorded; 0: from the server's start.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn record_from(&self) -> io::Result<u64> {
        self.word(word::FROM)
    }

    /// Sets the entry from whose admission on events are recorded.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_record_from(&self, index: u64) -> io::Result<()> {
        self.set_word(word::FROM, index)
    }

    /// The place where the server has stopped for inspection, if it has.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn stopped(&self) -> io::Result<Option<Stop>> {
        let Some(number) = self.word(word::STOPPED)?.checked_sub(1) else { return Ok(None) };
        let count = self.word(word::FRAME_COUNT)?.min(MAX_FRAMES as u64) as usize;
        let frames = (0..count).map(|n| self.word(word::FRAMES + n)).collect::<io::Result<_>>()?;
        Ok(Some(Stop { number, frames }))
    }

    /// The server was inspected.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn go_on(&self) -> io::Result<()> {
        self.set_word(word::GO_ON, 1)
    }

    /// The number of recorded events, and of those that did not fit.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn counts(&self) -> io::Result<(u64, u64)> {
        Ok((self.word(word::COUNT)?, self.word(word::LOST)?))
    }

    /// Its events from the first one on.
    ///
    /// # Errors
    /// It is no trace, or its end is missing.
    pub fn events(&self) -> Result<Events<'_>, Damaged> {
        let len = self.file.metadata()?.len();
        if len < HEADER_BYTES as u64 || self.word(word::MAGIC)? != MAGIC {
            return Err(Damaged::NotATrace);
        }
        let (says, has) =
            (self.word(word::COUNT)?, (len - HEADER_BYTES as u64) / EVENT_BYTES as u64);
        if says > has {
            return Err(Damaged::CutOff { says, has });
        }
        Ok(Events { file: &self.file, next: 0, count: says, read: Vec::new(), at: 0 })
    }

    /// The event with this number, if there is one.
    ///
    /// # Errors
    /// As for [`events`](Self::events).
    pub fn event(&self, number: u64) -> Result<Option<Event>, Damaged> {
        let mut events = self.events()?;
        events.next = number;
        events.next().transpose()
    }
}

/// Reads a trace's events.
#[derive(Debug)]
pub struct Events<'a> {
    file: &'a File,
    next: u64,
    count: u64,
    read: Vec<u8>,
    at: usize,
}

impl Iterator for Events<'_> {
    type Item = Result<Event, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.count {
            return None;
        }
        if self.at == self.read.len() {
            let events = (self.count - self.next).min(EVENTS_AT_A_TIME);
            self.read.resize((events * EVENT_BYTES as u64) as usize, 0);
            self.at = 0;
            let from = HEADER_BYTES as u64 + self.next * EVENT_BYTES as u64;
            if let Err(error) = self.file.read_exact_at(&mut self.read, from) {
                self.next = self.count;
                return Some(Err(error.into()));
            }
        }
        let bytes = &self.read[self.at..self.at + EVENT_BYTES];
        let word = |n: usize| u64::from_le_bytes(bytes[8 * n..][..8].try_into().expect("8 bytes"));
        let number = self.next;
        let event = Event::parse([word(0), word(1), word(2), word(3)]);
        self.next += 1;
        self.at += EVENT_BYTES;
        Some(event.ok_or(Damaged::Event { number }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(events: &[Event]) -> TraceFile {
        let trace = TraceFile::new(10_000).unwrap();
        add(&trace, events);
        trace
    }

    fn add(trace: &TraceFile, events: &[Event]) {
        let from = trace.word(word::COUNT).unwrap();
        for (event, number) in events.iter().zip(from..) {
            let bytes: Vec<u8> = event.words().into_iter().flat_map(u64::to_le_bytes).collect();
            let at = HEADER_BYTES as u64 + number * EVENT_BYTES as u64;
            trace.file.write_all_at(&bytes, at).unwrap();
        }
        trace.set_word(word::COUNT, from + events.len() as u64).unwrap();
    }

    fn admissions(count: u64) -> Vec<Event> {
        (0..count).map(|index| Event::Admitted { index }).collect()
    }

    #[test]
    fn events_are_read_as_they_were_written() {
        let written = admissions(2 * EVENTS_AT_A_TIME + 1);
        let trace = trace(&written);
        let read: Vec<Event> = trace.events().unwrap().map(Result::unwrap).collect();
        assert_eq!(read, written);
        assert_eq!(trace.event(5000).unwrap(), Some(written[5000]));
        assert_eq!(trace.event(written.len() as u64).unwrap(), None);
    }

    #[track_caller]
    fn refused(file: File, says: &str) {
        assert_eq!(TraceFile::open(file).unwrap_err().to_string(), says);
    }

    #[test]
    fn what_is_no_trace_is_refused_in_one_line() {
        const NONE: &str = "it is no trace of operations, or one of another version of Skein";
        let file = || nameless(c"test").unwrap();
        refused(file(), NONE);
        let garbage = file();
        garbage.write_all_at(&[0x5a; 10_000], 0).unwrap();
        refused(garbage, NONE);
        let short = trace(&admissions(3)).file;
        short.set_len(100).unwrap();
        refused(short, NONE);
    }

    #[test]
    fn a_trace_that_is_cut_off_says_so() {
        let file = trace(&admissions(3)).file;
        file.set_len(HEADER_BYTES as u64 + 2 * EVENT_BYTES as u64 + 5).unwrap();
        refused(file, "it is cut off: it says that it has 3 operations, and has 2");
    }

    #[test]
    fn a_damaged_event_is_named() {
        let trace = trace(&admissions(3));
        trace.file.write_all_at(&[0xff], (HEADER_BYTES + EVENT_BYTES) as u64).unwrap();
        let read: Vec<_> = trace.events().unwrap().collect();
        assert_eq!(read[1].as_ref().unwrap_err().to_string(), "its event 1 is damaged");
        assert!(read[0].is_ok() && read[2].is_ok());
    }

    #[test]
    fn nobody_is_asked_for_more_frames_than_there_are() {
        let trace = trace(&[]);
        assert_eq!(trace.stopped().unwrap(), None);
        trace.set_word(word::STOPPED, 8).unwrap();
        trace.set_word(word::FRAME_COUNT, u64::MAX).unwrap();
        let stop = trace.stopped().unwrap().unwrap();
        assert_eq!((stop.number, stop.frames.len()), (7, MAX_FRAMES));
    }
}
