//! A server's printed output, on its way to the file that operators read.
//!
//! A leader's server executes entries before they are committed, and a line that it prints for one must not be visible until the commit.
//! The same holds for a line that depends on a file of the host until that file is agreed on. So a server prints into memory (a file of its own that is
//! nowhere on disk), and its keeper's thread copies the output on when all entries that the server had been given before are committed, and all its questions
//! answered. A server that never blocks on its output also prints the same everywhere, independent of its host's disk.
//!
//! Invariant: copied output was printed for committed entries and agreed files only. [`Passage`] is written before the server can see an entry,
//! the number of a question before the server goes on, and both are read after the size of the output. A server that has ended asks no more: its
//! last output may depend on a file that will never be agreed on, and is let out.
//!
//! Threads: the reactor writes [`Passage`], the keeper's thread owns [`Printed`]. Crash: output that was not copied yet is lost with the node, and printed again
//! when the log is replayed.

use crate::rolling::{LogFiles, Rolling};
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use skein_arena::layout::Header;
use skein_model::LogIndex;
use skein_replica::server::Passage;
use std::fs::File;
use std::io::{self, Write};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a server's output is looked at while it prints: a line wakes no thread.
const LOOK: Duration = Duration::from_millis(50);
/// How often while a line waits for its entry: after an eighth of the time that it has waited, but not more often than this,
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const WAITED_PARTS: u32 = 8;
/// and at least this often, as an entry that nobody waits for is committed seconds later.
const LOOK_STILL: Duration = Duration::from_millis(250);
/// How often when it has printed nothing for long.
const LOOK_RARELY: Duration = Duration::from_secs(1);
/// A line may be late by this part of the silence before it.
const SILENCE_PARTS: u32 = 4;
/// The number of bytes per copy.
const PIECE_BYTES: u64 = 256 << 10;

/// The state at one look.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    end: u64,
    /// The last entry that the server had been given,
    given: LogIndex,
    /// and its last question.
    asked: u64,
}

/// The output of one generation of a server.
#[derive(Debug)]
pub struct Printed {
    memory: File,
    log: Rolling,
    path: PathBuf,
    copied: u64,
    /// The word with the server's question number; none once it has ended.
    arena: Option<File>,
    /// Of the last look.
    waiting: Option<Waiting>,
    /// When the last output was found.
    found: Instant,
    failed: bool,
}

impl Printed {
    /// No output yet of the server with this arena; later output is appended to the file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no memory.
    pub fn new(path: &Path, arena: File, bounds: LogFiles) -> io::Result<Self> {
        let log = Rolling::open(path, bounds)?;
        let memory = File::from(memfd_create(c"skein-printed", MFdFlags::MFD_CLOEXEC)?);
        fcntl(&memory, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
        let path = path.to_owned();
        let arena = Some(arena);
        let found = Instant::now();
        Ok(Self { memory, log, path, copied: 0, arena, waiting: None, found, failed: false })
    }

    /// The server has ended.
    pub fn ended(&mut self) {
        self.arena = None;
        self.waiting = self.waiting.map(|at| Waiting { asked: 0, ..at });
    }

    /// The server's standard output and error.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// When to look again, after a look at this time.
    #[must_use]
    pub fn next_look(&self, now: Instant) -> Duration {
        let silence = now.saturating_duration_since(self.found);
        if self.waiting.is_some() {
            return (silence / WAITED_PARTS).clamp(LOOK_AGAIN, LOOK_STILL);
        }
        (silence / SILENCE_PARTS).clamp(LOOK, LOOK_RARELY)
    }

    /// Copies output that may be read by now. True while some must wait.
    pub fn copy(&mut self, passage: &Passage) -> bool {
        loop {
            let Some(mut at) = self.waiting.or_else(|| self.look(passage)) else {
                return false;
            };
            // What was planned then, and was withdrawn, the server did not get.
            at.given = at.given.min(passage.given());
            if !passage.lets_out(at.given, at.asked) {
                self.waiting = Some(at);
                return true;
            }
            self.waiting = None;
            if let Err(error) = self.copy_to(at.end)
                && !std::mem::replace(&mut self.failed, true)
            {
                let path = self.path.display();
                tracing::error!(event = "output_lost", %path, %error, "the server's output is lost");
            }
        }
    }

    /// New output, with the latest entry and question that it may follow from.
    fn look(&mut self, passage: &Passage) -> Option<Waiting> {
        let end = self.memory.metadata().ok()?.len();
        // A server may cut the file short.
        self.copied = self.copied.min(end);
        if end <= self.copied {
            return None;
        }
        self.found = Instant::now();
        let given = passage.given();
        // Nothing is let out while that is unknown.
        let asked = self.arena.as_ref().map_or(0, |arena| newest_ask(arena).unwrap_or(u64::MAX));
        Some(Waiting { end, given, asked })
    }

    /// Output that cannot be written is dropped: it must not fill the memory.
    fn copy_to(&mut self, end: u64) -> io::Result<()> {
        let from = std::mem::replace(&mut self.copied, end);
        let copied = self.copy_piecewise(from, end);
        let whole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let length = i64::try_from(end).map_err(io::Error::other)?;
        copied.and(fallocate(&self.memory, whole, 0, length).map_err(io::Error::from))
    }

    fn copy_piecewise(&mut self, mut at: u64, end: u64) -> io::Result<()> {
        let mut piece = vec![0; (end - at).min(PIECE_BYTES) as usize];
        while at < end {
            let wanted = (end - at).min(PIECE_BYTES) as usize;
            let got = self.memory.read_at(&mut piece[..wanted], at)?;
            if got == 0 {
                break;
            }
            self.log.write_all(&piece[..got])?;
            at += got as u64;
        }
        Ok(())
    }
}

/// The last question that the server with this arena has begun; 0 when there is none.
fn newest_ask(arena: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    arena.read_exact_at(&mut word, offset_of!(Header, ask) as u64)?;
    Ok(u64::from_ne_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        _dir: tempfile::TempDir,
        path: PathBuf,
        arena: File,
        printed: Printed,
        passage: Passage,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("server.log");
            let arena = tempfile::tempfile().unwrap();
            arena.set_len(size_of::<Header>() as u64).unwrap();
            let printed =
                Printed::new(&path, arena.try_clone().unwrap(), LogFiles::default()).unwrap();
            Self { _dir: dir, path, arena, printed, passage: Passage::default() }
        }

        fn ask(&self, ask: u64) {
            self.arena.write_all_at(&ask.to_ne_bytes(), offset_of!(Header, ask) as u64).unwrap();
        }

        fn print(&self, text: &str) {
            let descriptor = self.printed.descriptor().try_clone_to_owned().unwrap();
            File::from(descriptor).write_all(text.as_bytes()).unwrap();
        }

        fn copy(&mut self) -> (bool, String) {
            let waits = self.printed.copy(&self.passage);
            (waits, std::fs::read_to_string(&self.path).unwrap())
        }
    }

    #[test]
    fn a_line_is_read_when_its_entry_is_committed() {
        let mut place = Place::new();
        place.print("begins\n");
        assert_eq!(place.copy(), (false, "begins\n".into()), "what precedes all entries");
        place.passage.gives(LogIndex(3));
        place.print("three\n");
        assert_eq!(place.copy(), (true, "begins\n".into()));
        place.passage.gives(LogIndex(4));
        place.print("four\n");
        place.passage.committed(LogIndex(3));
        assert_eq!(place.copy(), (true, "begins\nthree\n".into()));
        place.passage.committed(LogIndex(4));
        assert_eq!(place.copy(), (false, "begins\nthree\nfour\n".into()));
        place.print(&"x".repeat(1 << 20));
        assert_eq!(place.copy().1.len(), "begins\nthree\nfour\n".len() + (1 << 20));
        let blocks = std::os::unix::fs::MetadataExt::blocks;
        let held = blocks(&place.printed.memory.metadata().unwrap());
        assert!(held <= 8, "what is copied takes no memory but a page: {held} blocks of 512 bytes");
    }

    #[test]
    fn a_line_for_what_was_never_committed_is_dropped() {
        let mut place = Place::new();
        place.passage.gives(LogIndex(3));
        place.print("never\n");
        assert_eq!(place.copy(), (true, String::new()));
        place.passage.condemn();
        place.passage.committed(LogIndex(9));
        assert_eq!(place.copy(), (true, String::new()));
    }

    #[test]
    fn a_line_that_follows_from_a_file_waits_until_that_is_agreed_on() {
        let mut place = Place::new();
        place.passage.gives(LogIndex(3));
        place.passage.committed(LogIndex(3));
        place.ask(1);
        place.print("one\n");
        assert_eq!(place.copy(), (true, String::new()));
        place.ask(2);
        place.print("two\n");
        place.passage.answered(1);
        assert_eq!(place.copy(), (true, "one\n".into()));
        // No replica agrees on the question of a server that has ended.
        place.printed.ended();
        assert_eq!(place.copy(), (false, "one\ntwo\n".into()));
    }

    #[test]
    fn a_server_that_prints_nothing_is_looked_at_rarely() {
        let mut place = Place::new();
        place.passage.gives(LogIndex(3));
        place.print("three\n");
        place.copy();
        let at = |place: &Place, ms| place.printed.found + Duration::from_millis(ms);
        let look = |place: &Place, ms| place.printed.next_look(at(place, ms)).as_millis();
        let looks = [0, 80, 1_000, 3_600_000].map(|ms| look(&place, ms));
        assert_eq!(looks, [10, 10, 125, 250], "the line waits for its entry");
        place.passage.committed(LogIndex(3));
        place.copy();
        let looks = [0, 200, 2_000, 4_000, 3_600_000].map(|ms| look(&place, ms));
        assert_eq!(looks, [50, 50, 500, 1_000, 1_000]);
        let before = place.printed.found;
        place.passage.gives(LogIndex(4));
        place.passage.committed(LogIndex(4));
        place.print("four\n");
        place.copy();
        assert!(place.printed.found > before, "a line ends the silence");
    }

    #[test]
    fn a_server_may_cut_its_output_short_and_a_full_disk_does_not_fill_the_memory() {
        let mut place = Place::new();
        place.print("abc");
        assert_eq!(place.copy(), (false, "abc".into()));
        place.printed.memory.set_len(0).unwrap();
        assert_eq!(place.copy(), (false, "abc".into()));
        place.print("d");
        assert_eq!(place.copy(), (false, "abcd".into()));
        place.printed.log = Rolling::open(Path::new("/dev/full"), LogFiles::default()).unwrap();
        place.print("e");
        assert_eq!(place.copy(), (false, "abcd".into()));
        assert!(place.printed.failed && place.printed.copied == 2);
    }
}
