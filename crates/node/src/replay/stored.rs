//! The log in a node's data directory.

use super::describe;
use crate::begin::has_log;
use crate::config::{IMAGES, NodeConfig};
use crate::error::NodeError;
use crate::images::Store;
use crate::server::Source;
use skein_image::file::Owner;
use skein_log::disk::StoredDir;
use skein_log::wal::{Repair, Wal, WalError, WalOptions, WalReader};
use skein_log::{ClusterId, LogEntry, ProgramHash};
use skein_model::{EntryRef, LogIndex, Record};
use skein_replica::ReplicaError;
use skein_replica::environment::Image;
use skein_replica::server::feed::is_for_server;
use skein_replica::verdicts::rounds::Answer;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The number of bytes per read.
const CHUNK_BYTES: usize = 1 << 20;

/// The answers of one round of comparing digests, from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The round's entry.
    pub index: LogIndex,
    /// Each replica's digest there.
    pub answers: Vec<Answer>,
}

/// Where a run begins.
#[derive(Debug, Default)]
pub struct Begin {
    /// The image that the server continues from; none: it begins with the log.
    pub image: Option<Image>,
    /// Newer ones that cannot be used, and why.
    pub unusable: Vec<String>,
}

/// A stored log.
pub struct Stored {
    reader: WalReader,
    rounds: Vec<Round>,
    /// The images beside it.
    pub(super) images: Store,
    /// The first entry that it can hold; later than 1 where an image has the ones before.
    pub first: LogIndex,
    /// The last whole entry.
    pub last: LogIndex,
    /// The last entry for a server.
    pub last_given: LogIndex,
    /// The last entry known to be committed.
    pub commit: LogIndex,
    /// The torn end of the newest file, if there is one.
    pub torn: Option<Repair>,
    /// Where runs begin.
    pub origin: Origin,
}

/// Where runs begin if there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// With the log's first entry, or with the newest image if the log begins later.
    #[default]
    Usual,
    /// As usual, but not with this image or a newer one.
    Before(LogIndex),
    /// With the image of this entry.
    Image(LogIndex),
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Stored {
    /// Reads the log below `data_dir` and changes nothing there; `program` is the cluster's program.
    ///
    /// # Errors
    /// A node uses it, it is another program's or cluster's, it is damaged, or an entry of it is of another version.
    pub fn open(
        config: &NodeConfig,
        data_dir: &Path,
        program: [u8; 32],
    ) -> Result<Self, NodeError> {
        let dir = data_dir.join("log");
        if !has_log(data_dir) {
            return Err(WalError::NoLog { dir: data_dir.display().to_string() }.into());
        }
        let owner = Owner { cluster: config.cluster(), program };
        let images = Store::new(data_dir.join(IMAGES), owner);
        let options = WalOptions::new(ClusterId(config.cluster()), ProgramHash(program));
        // The newest entries are read again with the others.
        let options = WalOptions { tail_bytes: 0, ..options };
        let found = Wal::look(Arc::new(StoredDir::new(dir)), options)?;
        // In a log of a single replica all durable entries are committed.
        let commit = if config.peers.len() == 1 { found.last } else { found.commit };
        let mut stored = Self {
            reader: found.reader,
            rounds: Vec::new(),
            images,
            first: found.first,
            last: found.last,
            last_given: LogIndex(0),
            commit,
            torn: found.torn,
            origin: Origin::default(),
        };
        stored.survey()?;
        Ok(stored)
    }

    /// Finds the digests, and checks that all entries can be read.
    fn survey(&mut self) -> Result<(), NodeError> {
        let mut entries = self.from(self.first);
        while let Some(entry) = entries.next()? {
            let parsed = parse(&entry)?;
            let answers: Vec<Answer> = parsed.records().filter_map(answer).collect();
            if let Some(first) = answers.first() {
                self.rounds.push(Round { index: first.index, answers });
            }
            if is_for_server(&parsed) {
                self.last_given = entry.index;
            }
        }
        // Successive leaders may have asked about the same entries.
        self.rounds.sort_by_key(|round| round.index);
        Ok(())
    }

    /// The log's digests of the servers' output, in the order of the entries.
    #[must_use]
    pub fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// Where a run begins that gets the entries before `until`: with the log, or with the newest usable image before that place.
    ///
    /// # Errors
    /// The log begins later, and there is no image.
    pub fn begin(&self, until: Option<LogIndex>) -> Result<Begin, NodeError> {
        let mut begin = Begin::default();
        let named = match self.origin {
            Origin::Image(this) => Some(this),
            Origin::Usual | Origin::Before(_) => None,
        };
        if self.first <= LogIndex(1) && named.is_none() {
            return Ok(begin);
        }
        let mut until = until.unwrap_or(self.last.next());
        if let Origin::Before(other) = self.origin {
            until = until.min(other);
        }
        let reaches = |index: &LogIndex| *index < until && index.next() >= self.first;
        let fits = |index: &LogIndex| reaches(index) && named.is_none_or(|this| this == *index);
        for index in self.images.indices()?.into_iter().rev().filter(fits) {
            match self.images.image(index) {
                Ok(image) if !image.state.edition.is_first() || image.state.ended.is_some() => {
                    let number = image.state.edition.number;
                    begin.unusable.push(format!(
                        "the image of entry {index} is of edition {number} of the server, or of one that was upgraded there: runs begin with the first edition"
                    ));
                }
                Ok(image) => {
                    begin.image = Some(image);
                    return Ok(begin);
                }
                Err(error) => begin.unusable.push(error.to_string()),
            }
        }
        let dir = self.images.dir().to_owned();
        if let Some(index) = named {
            let why = begin.unusable.pop().unwrap_or_else(|| {
                let fits = self.images.indices().unwrap_or_default().into_iter().filter(reaches);
                let fits: Vec<String> = fits.map(|index| index.to_string()).collect();
                match fits.is_empty() {
                    true => "no image here fits the log and the end of the run".into(),
                    false => format!("runs can begin with those of {}", fits.join(", ")),
                }
            });
            return Err(NodeError::NamedImage { index, dir, why });
        }
        Err(NodeError::NoImage { first: self.first, until, dir })
    }

    /// An entry in words.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn describe(&self, index: LogIndex) -> Result<String, NodeError> {
        let entries = self.reader.read(index, index, CHUNK_BYTES)?;
        let Some(entry) = entries.first().filter(|entry| entry.is_payload()) else {
            return Ok("nothing for the server".into());
        };
        Ok(describe(parse(entry)?.records()))
    }

    /// The number of a server's entries from `from` on.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn count_from(&self, from: LogIndex) -> Result<u64, NodeError> {
        let mut entries = self.from(from);
        let mut count = 0;
        while let Some(entry) = entries.next()? {
            count += u64::from(is_for_server(&parse(&entry)?));
        }
        Ok(count)
    }

    /// The last entry up to which another stored log is equal.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn agrees_to(&self, other: &Self) -> Result<LogIndex, NodeError> {
        let first = self.first.max(other.first);
        let (mut ours, mut theirs) = (self.from(first), other.from(first));
        let mut last = self.last.min(other.last);
        loop {
            match (ours.next()?, theirs.next()?) {
                (Some(a), Some(b)) if a.index == b.index && a.payload == b.payload => {}
                (a, b) => {
                    for entry in a.into_iter().chain(b) {
                        last = last.min(LogIndex(entry.index.0 - 1));
                    }
                    return Ok(last);
                }
            }
        }
    }

    /// All entries with a payload from this one on, as far as they are there.
    fn from(&self, first: LogIndex) -> Entries {
        Entries::new(self.reader.clone(), first.max(self.first), self.last)
    }

    /// What a server gets that has executed all up to `after`.
    pub(super) fn entries(&self, after: LogIndex, until: Option<LogIndex>) -> Given {
        let entries = self.from(after.next());
        Given { entries, until, ahead: None }
    }
}

fn answer(record: Record<'_>) -> Option<Answer> {
    match record {
        Record::Digest { replica, index, digest } => Some(Answer { replica, index, digest }),
        _ => None,
    }
}

fn parse(entry: &LogEntry) -> Result<EntryRef<'_>, NodeError> {
    EntryRef::parse(&entry.payload).map_err(|why| {
        let index = entry.index;
        ReplicaError::Entry { index, why }.into()
    })
}

/// Entries with a payload, in order.
struct Entries {
    reader: WalReader,
    chunk: VecDeque<LogEntry>,
    next: LogIndex,
    last: LogIndex,
}

impl Entries {
    const fn new(reader: WalReader, next: LogIndex, last: LogIndex) -> Self {
        Self { reader, chunk: VecDeque::new(), next, last }
    }

    fn next(&mut self) -> Result<Option<LogEntry>, NodeError> {
        loop {
            if let Some(entry) = self.chunk.pop_front() {
                if entry.is_payload() {
                    return Ok(Some(entry));
                }
                continue;
            }
            if self.next > self.last {
                return Ok(None);
            }
            self.chunk = self.reader.read(self.next, self.last, CHUNK_BYTES)?.into();
            self.next = self.chunk.back().map_or(self.last, |entry| entry.index).next();
        }
    }
}

/// The entries for a server, up to its stopping place.
pub(super) struct Given {
    entries: Entries,
    until: Option<LogIndex>,
    ahead: Option<LogEntry>,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("until", &self.until).finish_non_exhaustive()
    }
}

impl Given {
    /// The entry to stop before, or none.
    pub(super) const fn until(&mut self, until: Option<LogIndex>) {
        self.until = until;
    }

    fn look_ahead(&mut self) -> Result<Option<&LogEntry>, NodeError> {
        while self.ahead.is_none() {
            let Some(entry) = self.entries.next()? else { return Ok(None) };
            if is_for_server(&parse(&entry)?) {
                self.ahead = Some(entry);
            }
        }
        Ok(self.ahead.as_ref())
    }

    /// The next entry, and its content.
    pub(super) fn peek(&mut self) -> Result<Option<(LogIndex, String)>, NodeError> {
        let Some(entry) = self.look_ahead()? else { return Ok(None) };
        Ok(Some((entry.index, describe(parse(entry)?.records()))))
    }
}

impl Source for Given {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<LogIndex>, NodeError> {
        let until = self.until;
        let Some(entry) = self.look_ahead()? else { return Ok(None) };
        if until.is_some_and(|until| entry.index >= until) {
            return Ok(None);
        }
        bytes.clear();
        bytes.extend_from_slice(&entry.payload);
        let index = entry.index;
        self.ahead = None;
        Ok(Some(index))
    }
}
