//! What is known of larger contents beside their digest: when they were read as a whole, and as which file; and whether their bytes are shared with the host's file.
//!
//! A start reads no more than [`START_BYTES`](super::START_BYTES) of contents. Of others it believes a note, as long as the file is the one that was read, by its number, length
//! and time. They are read again beside the server ([`super::slow`]); one that rots in between is found by the server itself, which compares files that it opens with the log: then
//! the note of that file does not count any more, and the next start reads it.
//!
//! A file of JSON beside the objects, written as a whole. Without it, or if it is damaged, all is read.

use super::store::Digest;
use serde::{Deserialize, Serialize};
use skein_log::disk::durable;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Its name.
pub(super) const FILE: &str = "notes";
/// Of smaller contents nothing is noted: 1 MiB.
pub(super) const NOTED_BYTES: u64 = 1 << 20;

/// A file as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl State {
    /// Of a file.
    pub(super) fn of(meta: &Metadata) -> Self {
        let modified = (meta.mtime(), meta.mtime_nsec());
        Self { inode: meta.ino(), size: meta.len(), modified }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// When it was last read and was whole, in seconds since 1970; 0: it is to be read.
    read_s: u64,
    state: State,
    /// Its bytes are the host's file's, too, or were.
    shared: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Notes {
    all: BTreeMap<Digest, Note>,
    is_changed: bool,
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

impl Notes {
    /// Those of a base.
    pub(super) fn read(dir: &Path) -> Self {
        let text = fs::read_to_string(dir.join(FILE)).unwrap_or_default();
        let all = serde_json::from_str(&text).unwrap_or_default();
        Self { all, is_changed: false }
    }

    /// Writes them if there are others than before, durably.
    pub(super) fn write(&mut self, dir: &Path) -> io::Result<()> {
        if self.is_changed {
            let text = serde_json::to_string(&self.all).expect("numbers have a JSON form");
            durable::write(&dir.join(FILE), &text)?;
            self.is_changed = false;
        }
        Ok(())
    }

    /// Contents were read as a whole. `shared`: whether their bytes are the host's; `None` if that is as it was.
    pub(super) fn was_read(&mut self, digest: Digest, state: State, shared: Option<bool>) {
        if state.size < NOTED_BYTES {
            return;
        }
        let shared = shared.unwrap_or_else(|| self.is_shared(digest));
        self.all.insert(digest, Note { read_s: now_s(), state, shared });
        self.is_changed = true;
    }

    /// Contents in this state were read, and whole.
    pub(super) fn vouches(&self, digest: Digest, state: State) -> bool {
        self.all.get(&digest).is_some_and(|note| note.read_s > 0 && note.state == state)
    }

    /// They were not read within this time.
    pub(super) fn is_due(&self, digest: Digest, every: Duration) -> bool {
        let age = |note: &Note| now_s().abs_diff(note.read_s);
        self.all.get(&digest).is_none_or(|note| age(note) >= every.as_secs())
    }

    /// Their time was set: the file is what it was.
    pub(super) fn has_time(&mut self, digest: Digest, state: State) {
        if let Some(note) = self.all.get_mut(&digest)
            && note.state != state
        {
            note.state = state;
            self.is_changed = true;
        }
    }

    /// Those with a note.
    pub(super) fn digests(&self) -> Vec<Digest> {
        self.all.keys().copied().collect()
    }

    /// Nothing is known of these contents any more, but whether they are shared.
    pub(super) fn doubt(&mut self, digest: Digest) {
        if let Some(note) = self.all.get_mut(&digest) {
            note.read_s = 0;
            self.is_changed = true;
        }
    }

    pub(super) fn is_shared(&self, digest: Digest) -> bool {
        self.all.get(&digest).is_some_and(|note| note.shared)
    }

    /// Others are gone.
    pub(super) fn keep(&mut self, named: &BTreeSet<Digest>) {
        let before = self.all.len();
        self.all.retain(|digest, _| named.contains(digest));
        self.is_changed |= before != self.all.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_for_the_file_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Digest([1; 32]), Digest([2; 32]));
        let state = State { inode: 1, size: NOTED_BYTES, modified: (5, 6) };
        let mut notes = Notes::read(dir.path());
        assert!(!notes.vouches(a, state) && notes.is_due(a, Duration::MAX));
        notes.was_read(a, state, Some(true));
        notes.was_read(b, State { size: NOTED_BYTES - 1, ..state }, Some(true));
        notes.write(dir.path()).unwrap();
        let mut notes = Notes::read(dir.path());
        assert!(notes.vouches(a, state) && notes.is_shared(a) && !notes.is_shared(b));
        assert!(!notes.is_due(a, Duration::from_secs(1 << 30)) && notes.is_due(a, Duration::ZERO));
        for other in [
            State { inode: 2, ..state },
            State { size: 1 << 30, ..state },
            State { modified: (5, 7), ..state },
        ] {
            assert!(!notes.vouches(a, other), "{other:?}");
        }
        notes.doubt(a);
        assert!(!notes.vouches(a, state) && notes.is_shared(a));
        notes.was_read(a, state, None);
        assert!(notes.vouches(a, state) && notes.is_shared(a));
        notes.keep(&[b].into());
        assert_eq!(notes.digests(), []);
        fs::write(dir.path().join(FILE), "nonsense").unwrap();
        assert_eq!(Notes::read(dir.path()).digests(), []);
    }

    #[test]
    fn what_could_not_be_written_is_written_with_the_next_try() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("later");
        let state = State { inode: 1, size: NOTED_BYTES, modified: (5, 6) };
        let mut notes = Notes::default();
        notes.was_read(Digest([1; 32]), state, None);
        assert!(notes.write(&dir).is_err());
        fs::create_dir(&dir).unwrap();
        notes.write(&dir).unwrap();
        assert!(Notes::read(&dir).vouches(Digest([1; 32]), state));
    }
}
