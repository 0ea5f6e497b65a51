//! What has a content, but no path: memory that processes share, memory files, and files that were removed.
//!
//! The content of what a descriptor names is read through that; other objects are known by their mappings only.

use super::{FileId, Image, refused};
use crate::maps::Mapping;
use crate::pages::{PAGE_BYTES, Pages, in_time, is_zero};
use crate::processes::Process;
use crate::{MemoryError, Result};
use nix::fcntl::{FcntlArg, fcntl};
use nix::unistd::{Whence, lseek64};
use skein_arena::restore::{Object, object};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Instant;

/// The end of a removed file's name.
const DELETED: &str = " (deleted)";
/// The begin of a memory file's name.
const MEMFD: &str = "/memfd:";

/// An object.
pub(super) struct Shared {
    record: Object,
    content: Content,
}

enum Content {
    /// A file, which this process has open.
    File(File),
    /// Mappings, with the number of their process.
    Mapped(Vec<(u32, Mapping)>),
}

/// A file without a path.
pub(super) enum Removed<'a> {
    /// A memory file with this name.
    Memory(&'a str),
    /// A file that was here.
    At(&'a str),
    /// A file that never had a name, in this directory.
    In(&'a str),
}

impl<'a> Removed<'a> {
    /// The file of a descriptor that the kernel names so; `None`: it has a path.
    pub(super) fn of(name: &'a str, file: &fs::Metadata, flags: i32) -> Option<Self> {
        let path = name.strip_suffix(DELETED)?;
        if let Some(name) = path.strip_prefix(MEMFD) {
            return Some(Self::Memory(name));
        }
        let (directory, last) = path.rsplit_once('/')?;
        let number = last.strip_prefix('#');
        let is_nameless = flags & libc::O_TMPFILE == libc::O_TMPFILE
            || number.is_some_and(|number| number.parse() == Ok(file.ino()));
        Some(if is_nameless { Self::In(directory) } else { Self::At(path) })
    }
}

impl Image<'_> {
    /// The number of the object that a descriptor names.
    pub(super) fn removed(
        &mut self,
        process: &Process,
        path: &str,
        removed: Removed<'_>,
        about: &fs::Metadata,
    ) -> Result<u32> {
        let id = (about.dev(), about.ino());
        if let Some(number) = self.by_file.get(&id) {
            return Ok(*number);
        }
        let file = File::open(path).map_err(MemoryError::read(path))?;
        let (kind, name) = match removed {
            Removed::Memory(name) => (object::MEMORY_FILE, name),
            Removed::At(path) => (object::REMOVED, path),
            Removed::In(directory) => {
                (object::NAMELESS, if directory.is_empty() { "/" } else { directory })
            }
        };
        // Removed files on a tmpfs have seals, too, which nobody can set.
        let seals = match kind {
            object::MEMORY_FILE => fcntl(&file, FcntlArg::F_GET_SEALS).unwrap_or(0),
            _ => 0,
        };
        let seals = seals.cast_unsigned();
        if seals & libc::F_SEAL_FUTURE_WRITE.cast_unsigned() != 0 {
            return refused(
                process,
                format!("the memory file {name}, sealed against future writes"),
            );
        }
        let directory = match kind {
            object::REMOVED => name.rsplit_once('/').map(|(directory, _)| directory),
            object::NAMELESS => Some(name),
            _ => None,
        };
        // Names are paths from the server's first root.
        let here = |directory| format!("/proc/{}/root{directory}", self.init);
        if let Some(directory) = directory
            && !fs::metadata(here(directory)).is_ok_and(|file| file.is_dir())
        {
            return refused(
                process,
                format!("the removed file {name}, whose directory is removed, too"),
            );
        }
        let ids = self.ids(process)?;
        let owner = [ids.user(about.uid())?, ids.group(about.gid())?];
        let mapped = mapped_id(&file)?;
        let record = Object {
            bytes: about.len(),
            kind,
            mode: about.mode() & 0o7777,
            name: self.name(name),
            owner,
            file: [about.dev(), about.ino()],
            times: [[about.atime(), about.atime_nsec()], [about.mtime(), about.mtime_nsec()]],
            seals,
            ..Object::default()
        };
        let number = self.shared.len() as u32;
        self.shared.push(Shared { record, content: Content::File(file) });
        self.by_file.insert(id, number);
        self.by_file.insert(mapped, number);
        Ok(number)
    }

    /// The number of the memory that a shared mapping shows.
    pub(super) fn memory(&mut self, process: &Process, mapping: &Mapping) -> u32 {
        let fresh = self.shared.len() as u32;
        let number = *self.by_file.entry(mapping.file).or_insert(fresh);
        if number == fresh {
            let record = Object { kind: object::MEMORY, ..Object::default() };
            self.shared.push(Shared { record, content: Content::Mapped(Vec::new()) });
        }
        if let Content::Mapped(places) = &mut self.shared[number as usize].content {
            places.push((process.pid, mapping.clone()));
        }
        number
    }

    /// Writes the objects' contents.
    pub(super) fn objects(&mut self, processes: &[Process], deadline: Instant) -> Result<()> {
        for Shared { mut record, content } in std::mem::take(&mut self.shared) {
            let first = self.runs.len();
            match content {
                Content::File(file) => {
                    let failed =
                        |error| MemoryError::Read { what: "a file without a path".into(), error };
                    each_page(
                        &file,
                        0,
                        record.bytes,
                        |offset, page| {
                            in_time(deadline)?;
                            self.page(offset, page)
                        },
                        failed,
                    )?;
                }
                Content::Mapped(places) => {
                    record.bytes = self.mapped(processes, places, deadline)?
                }
            }
            record.runs = self.since(first);
            self.objects.push(record);
        }
        Ok(())
    }

    /// Writes the pages of memory through the mappings of it; answers its length.
    fn mapped(
        &mut self,
        processes: &[Process],
        places: Vec<(u32, Mapping)>,
        deadline: Instant,
    ) -> Result<u64> {
        let mut bytes = 0;
        let mut found: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (pid, mapping) in places {
            bytes = bytes.max(mapping.offset + (mapping.end - mapping.start));
            let Some(process) = processes.iter().find(|process| process.pid == pid) else {
                continue;
            };
            Pages::of(process)?.all(&mapping, deadline, |address, page| {
                let offset = mapping.offset + (address - mapping.start);
                if !is_zero(page) {
                    found.entry(offset).or_insert_with(|| page.to_vec());
                }
                Ok(())
            })?;
        }
        for (offset, page) in found {
            self.page(offset, &page)?;
        }
        Ok(bytes)
    }
}

/// Calls `each` for the pages of a file from `begin` to `end` that are not zero.
pub(super) fn each_page(
    file: &File,
    begin: u64,
    end: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    failed: impl Fn(io::Error) -> MemoryError,
) -> Result<()> {
    let seek = |at: u64, whence| match lseek64(file.as_fd(), at.cast_signed(), whence) {
        Ok(found) => Ok(Some(found.cast_unsigned())),
        Err(nix::Error::ENXIO) => Ok(None),
        Err(error) => Err(failed(error.into())),
    };
    let mut page = [0; PAGE_BYTES as usize];
    let mut at = begin;
    while at < end {
        let Some(data) = seek(at, Whence::SeekData)? else { return Ok(()) };
        let Some(hole) = seek(data, Whence::SeekHole)? else { return Ok(()) };
        let first = begin + (data - begin) / PAGE_BYTES * PAGE_BYTES;
        for offset in (first..hole.min(end)).step_by(page.len()) {
            let mut len = 0;
            // The last page of a file may be a part of one.
            while len < page.len() {
                match file.read_at(&mut page[len..], offset + len as u64).map_err(&failed)? {
                    0 => break,
                    n => len += n,
                }
            }
            page[len..].fill(0);
            if !is_zero(&page) {
                each(offset, &page)?;
            }
        }
        at = hole;
    }
    Ok(())
}

/// A file's device and inode number as mappings of it show them, which on an overlay are not those of `stat`.
fn mapped_id(file: &File) -> Result<FileId> {
    let failed = |error| MemoryError::Read { what: "a file without a path".into(), error };
    // SAFETY: a new mapping, whose memory is not used.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE_BYTES as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(failed(io::Error::last_os_error()));
    }
    let address = at.expose_provenance() as u64;
    let found = crate::maps::select(std::process::id(), |mapping| {
        (mapping.start..mapping.end).contains(&address)
    });
    // SAFETY: the mapping that was made above.
    unsafe { libc::munmap(at, PAGE_BYTES as usize) };
    found?
        .first()
        .map(|mapping| mapping.file)
        .ok_or_else(|| failed(io::Error::other("it is not mapped")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn pages_of_a_sparse_file_are_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 * PAGE_BYTES + 5).unwrap();
        file.write_all_at(b"one", 3 * PAGE_BYTES + 7).unwrap();
        file.write_all_at(b"end", 10 * PAGE_BYTES + 2).unwrap();
        let mut found = Vec::new();
        let each = |offset, page: &[u8]| {
            found.push((offset / PAGE_BYTES, page.iter().filter(|byte| **byte != 0).count()));
            Ok(())
        };
        let failed = |error| MemoryError::Read { what: "it".into(), error };
        each_page(&file, 0, 10 * PAGE_BYTES + 5, each, failed).unwrap();
        assert_eq!(found, [(3, 3), (10, 3)]);
    }

    #[test]
    fn a_mapping_shows_a_files_numbers() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(mapped_id(&file).unwrap().1, file.metadata().unwrap().ino());
    }

    #[test]
    fn names_tell_why_a_file_has_no_path() {
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        let number = file.ino();
        let of = |name: &str, flags| match Removed::of(name, &file, flags) {
            None => "a path".to_owned(),
            Some(Removed::Memory(name)) => format!("memory {name}"),
            Some(Removed::At(path)) => format!("at {path}"),
            Some(Removed::In(directory)) => format!("in {directory}"),
        };
        assert_eq!(of("/tmp/a", 0), "a path");
        assert_eq!(of("/memfd:a b (deleted)", 0), "memory a b");
        assert_eq!(of("/tmp/a (deleted)", 0), "at /tmp/a");
        assert_eq!(of("/tmp/#1 (deleted)", 0), if number == 1 { "in /tmp" } else { "at /tmp/#1" });
        assert_eq!(of(&format!("/tmp/#{number} (deleted)"), 0), "in /tmp");
        assert_eq!(of("/tmp/#1 (deleted)", libc::O_TMPFILE), "in /tmp");
    }
}
