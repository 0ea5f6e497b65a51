//! What packing a layer has found out about its files, for the next time: a PostgreSQL has more than a thousand files, of which few change between two images.
//!
//! What was found counts for a file at the same path of which the kernel says the same, but for the time of last access. Each change of a file's contents, attributes or names gives
//! it a new time of change, by a clock that may be as coarse as a second (ext4 with small inodes). So nothing is remembered of a file that changed in the [`SETTLED`] before it was
//! looked at: a later change may have the same time. Nor does anything count that was found before the clock was set back.
//!
//! Two things need more than that. Where a file has holes also depends on what was written through mappings: so that is remembered only of files of which the taker of the stream knows
//! each write ([`super::Packs::follows`]). Of these it is of use even when they have changed ([`super::parts`]). And by which numbers the server sees a file is overlayfs' matter: it is remembered only of files that overlayfs shows with their own inode number, as it
//! does with those that are no copies of the host's.
//!
//! Bounded: about [`MOST_BYTES`] of memory, in the order of packing. The rest is looked at each time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::attributes::Extended;
use super::parts::Parts;
use super::stat::Stat;

/// A file that changed less than this ago may change again without another time of change.
const SETTLED: Duration = Duration::from_secs(2);
/// When the clock lags by more than this behind the time that has passed, it was set back. With what file systems may round off, a second, it is not above [`SETTLED`].
const SET_BACK: Duration = Duration::from_secs(1);
/// The most memory for what is remembered: 32 MiB.
const MOST_BYTES: usize = 32 << 20;
/// Counted for each file beside its path, extended attributes and extents.
const FILE_BYTES: usize = 512;

/// Where a file has content that the taker of the stream follows.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    /// The number that it follows it by.
    pub(super) number: u64,
    /// How much it had noted by then.
    pub(super) noted: u64,
    /// When the file had been changed last.
    pub(super) changed: (i64, i64),
    pub(super) parts: Parts,
}

/// What was found out about a file.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) stat: Stat,
    /// All of this is remembered, and counts. Otherwise it is about to be, or counts no more, but for `parts`.
    pub(super) is_as_before: bool,
    /// Extended attributes that are packed.
    pub(super) extended: Extended,
    /// It has extended attributes of any kind.
    pub(super) is_noted: bool,
    /// Of a directory: nothing of the host's shows in it.
    pub(super) is_opaque: bool,
    /// The device and inode number by which the server sees it, if it has these for good.
    pub(super) shown: Option<(u64, u64)>,
    pub(super) parts: Option<Followed>,
}

impl Found {
    /// Nothing yet.
    pub(super) const fn new(stat: Stat) -> Self {
        Self {
            stat,
            is_as_before: false,
            extended: Vec::new(),
            is_noted: false,
            is_opaque: false,
            shown: None,
            parts: None,
        }
    }

    /// Whether it counts for a file of which the kernel says this.
    pub(super) fn counts(&self, about: &Stat) -> bool {
        self.is_as_before && about.is_unchanged(&self.stat)
    }

    fn bytes(&self, path: &Path) -> usize {
        let extended: usize =
            self.extended.iter().map(|(name, value)| name.len() + value.len()).sum();
        let parts = self.parts.as_ref().map_or(0, |known| size_of_val(&known.parts[..]));
        FILE_BYTES + path.as_os_str().len() + extended + parts
    }
}

/// A moment by two clocks: the one of files' times, and one that is never set.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    real: Duration,
    passed: Duration,
}

impl Moment {
    fn now() -> nix::Result<Self> {
        let read = |clock| clock_gettime(clock).map(Duration::from);
        Ok(Self { real: read(ClockId::CLOCK_REALTIME)?, passed: read(ClockId::CLOCK_BOOTTIME)? })
    }

    /// Whether files that change now get later times than those that changed then.
    fn follows(self, then: Self) -> bool {
        let passed = self.passed.saturating_sub(then.passed);
        self.real + SET_BACK >= then.real + passed
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Remembered {
    files: HashMap<PathBuf, Found>,
    /// When these were begun to be looked at.
    at: Moment,
}

impl Remembered {
    /// Without anything, if the clock was set back.
    fn forget_unless_in_order(&mut self) {
        if !Moment::now().is_ok_and(|now| now.follows(self.at)) {
            self.files.clear();
        }
    }
}

/// What is remembered while files are looked at again.
#[derive(Debug, Default)]
pub(super) struct Looking {
    before: Remembered,
    now: Remembered,
    /// About how much memory that takes.
    bytes: usize,
}

impl Looking {
    /// Begins: the server stands from now on, until all were looked at.
    pub(super) fn new(mut before: Remembered) -> Self {
        before.forget_unless_in_order();
        // Without a clock no file has settled.
        let at = Moment::now().unwrap_or_default();
        let now = Remembered { files: HashMap::with_capacity(before.files.len()), at };
        Self { before, now, bytes: 0 }
    }

    /// What is remembered of the file at this path.
    pub(super) fn take(&mut self, path: &Path) -> Option<Found> {
        self.before.files.remove(path)
    }

    /// Remembers it, as far as it can count next time.
    pub(super) fn keep(&mut self, path: &Path, mut found: Found) {
        let (s, ns) = found.stat.changed;
        let changed = u64::try_from(s).map(|s| Duration::new(s, ns as u32));
        found.is_as_before = changed.is_ok_and(|changed| changed + SETTLED < self.now.at.real);
        let bytes = self.bytes + found.bytes(path);
        if (found.is_as_before || found.parts.is_some()) && bytes <= MOST_BYTES {
            self.bytes = bytes;
            self.now.files.insert(path.to_owned(), found);
        }
    }

    /// What is remembered for the next time.
    pub(super) fn finish(self) -> Remembered {
        self.now
    }
}

#[cfg(test)]
#[path = "remembered_tests.rs"]
mod tests;
