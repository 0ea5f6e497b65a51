//! Files that processes have open or mapped by a name that is removed, while they have another one: made without a name and given one later, or linked and then removed.
//!
//! The kernel shows them as it shows removed files. The other name is among the paths of files that the arena knows. A mapping shows a file's number, which on an overlay may not be that of
//! `stat`: files that may be the one are mapped to see theirs.

use super::objects::mapped_ids;
use super::{FileId, Image, refused_as};
use crate::Result;
use crate::pages::in_time;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use skein_arena::restore::kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// File systems that number files of several ones keep those numbers in the lower bits.
const NUMBER: u64 = u32::MAX as u64;

/// An open file whose name is removed, though it has another one.
pub(super) struct Renamed {
    /// The number of its record.
    pub(super) description: usize,
    pub(super) id: FileId,
    /// As mappings show it.
    pub(super) mapped: FileId,
    /// A process that has it open.
    pub(super) pid: u32,
    pub(super) fd: i32,
}

/// The files of a server that stands.
pub(super) struct Names<'a> {
    pub(super) root: BorrowedFd<'a>,
    /// The paths of those that the arena knows.
    pub(super) found: &'a BTreeMap<FileId, Vec<u8>>,
    /// Those that the server may have written to through a mapping.
    pub(super) mapped: &'a BTreeSet<FileId>,
    pub(super) deadline: Instant,
}

impl Image<'_, '_> {
    /// Gives files whose name is removed the one that they have, if they have one.
    pub(super) fn name_renamed(&mut self, names: &Names<'_>) -> Result<()> {
        let mut known = BTreeMap::new();
        for Renamed { description, id, mapped, pid, fd } in std::mem::take(&mut self.renamed) {
            let path = names.found.get(&id).ok_or_else(|| {
                refused_as(format!(
                    "process {pid} has descriptor {fd}, of a file whose name is removed, and whose other name is not known"
                ))
            })?;
            known.insert(mapped, path.as_slice());
            let name = self.bytes_name(path);
            let record = &mut self.descriptions[description];
            record.name = name;
            // It is not without a name any more.
            if record.flags & libc::O_TMPFILE == libc::O_TMPFILE {
                record.flags &= !libc::O_TMPFILE;
            }
        }
        let mut unknown = BTreeMap::new();
        for number in 0..self.shared.len() {
            let Some(mapping) = self.shared[number].perhaps_renamed() else { continue };
            match known.get(&mapping.file) {
                Some(path) => self.show_file(number, path),
                None => drop(unknown.insert(mapping.file, number)),
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        for (path, id) in names.that_may_be(&unknown)? {
            if let Some(number) = id.and_then(|id| unknown.remove(&id)) {
                self.show_file(number, path);
            }
        }
        Ok(())
    }

    /// The mappings of an object are of the file at `path`.
    fn show_file(&mut self, object: usize, path: &[u8]) {
        let name = self.bytes_name(path);
        for shown in self.shared[object].take_shown() {
            let record = &mut self.mappings[shown.record];
            record.of = name;
            record.kind = match shown.mapping.has("mw") {
                true => kind::WRITTEN_FILE,
                false => kind::SHARED_FILE,
            };
        }
        let is_private = |record: &&mut skein_arena::restore::Mapping| {
            record.kind == kind::PRIVATE && record.of == object as u64
        };
        for record in self.mappings.iter_mut().filter(is_private) {
            (record.of, record.kind) = (name, kind::FILE);
        }
    }
}

impl<'a> Names<'a> {
    /// Files that may be those, and how mappings show them.
    fn that_may_be(
        &self,
        unknown: &BTreeMap<FileId, usize>,
    ) -> Result<Vec<(&'a [u8], Option<FileId>)>> {
        let numbers: BTreeSet<u64> = unknown.keys().map(|id| id.1 & NUMBER).collect();
        let may_be = |id: &FileId| numbers.contains(&(id.1 & NUMBER)) || self.mapped.contains(id);
        let (mut paths, mut files) = (Vec::new(), Vec::new());
        for (_, path) in self.found.iter().filter(|(id, _)| may_be(id)) {
            in_time(self.deadline)?;
            let Some(file) = self.open(path)? else { continue };
            paths.push(path.as_slice());
            files.push(file);
        }
        Ok(paths.into_iter().zip(mapped_ids(&files)?).collect())
    }

    /// `None`: it is not there, or no regular file.
    fn open(&self, path: &[u8]) -> Result<Option<File>> {
        let open = |flags: OFlag| {
            let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
            openat2(self.root, path, how.resolve(ResolveFlag::RESOLVE_IN_ROOT)).map(File::from)
        };
        let Ok(plain) = open(OFlag::O_PATH | OFlag::O_NOFOLLOW) else { return Ok(None) };
        if !plain.metadata().is_ok_and(|about| about.is_file()) {
            return Ok(None);
        }
        let read = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let opened = open(read | OFlag::O_NOATIME).or_else(|_| open(read));
        opened.map(Some).map_err(|error| {
            let path = String::from_utf8_lossy(path);
            refused_as(format!(
                "it has a file mapped whose name is removed, and that may be {path}, which cannot be opened ({error})"
            ))
        })
    }
}
