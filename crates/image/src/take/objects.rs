//! What has a content, but no path: memory that processes share, memory files, and files that were removed.
//!
//! The content of what a descriptor names is read through that; other objects are known by their mappings only.

use super::{FileId, Image, Shares, refused};
use crate::copied::Room;
use crate::extended;
use crate::maps::{self, MEMFD, MEMORY, Mapping, unnoticed};
use crate::pages::{PAGE_BYTES, Pages, in_time, is_zero};
use crate::processes::Process;
use crate::raw::{Raw, merged};
use crate::shared::{Counts, Protected, SharedAhead};
use crate::sparse::copy_pages;
use crate::{MemoryError, Result};
use nix::fcntl::{FcntlArg, fcntl};
use skein_arena::restore::{Object, SHARED_NAME, object};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::time::Instant;

/// The end of a removed file's name.
pub(crate) const DELETED: &str = " (deleted)";

/// An object.
pub(super) struct Shared {
    record: Object,
    content: Content,
}

enum Content {
    /// A file, which this process has open.
    File(File),
    /// What mappings show of it.
    Mapped(Vec<Shown>),
    /// It is copied.
    Held(Raw),
    /// It was copied before, but for what was written since.
    Ahead { pages: Raw, since: Raw },
}

/// What was done for objects before the server stood.
#[derive(Default)]
pub(super) struct Ahead {
    /// Memory for their pages.
    pub(super) room: Option<Room>,
    /// Those that were read.
    pub(super) read: Option<SharedAhead>,
    /// Taken off when the server need not stand any longer.
    pub(super) protected: Vec<Protected>,
    /// The number of their pages,
    pub(super) before: usize,
    /// and of those that were written since.
    pub(super) again: usize,
}

impl Ahead {
    /// For a server that stands, whose arena has this header.
    pub(super) fn of(Shares { room, read }: Shares, header: &[u8], watches: bool) -> Self {
        match read {
            Some(read) if !watches || !read.counts(header) => {
                let (its, protected) = read.give_up();
                Self { room: room.or(its), protected, ..Self::default() }
            }
            read => Self { room, read, ..Self::default() },
        }
    }

    /// What was read of the object that these mappings show, if that counts.
    fn counts(&mut self, processes: &[Process], places: &[Shown]) -> Option<Counts> {
        let host_pid =
            |one: &Shown| processes.iter().find(|p| p.pid == one.pid).map(|p| p.host_pid);
        let known = places.iter().map(|one| Some((host_pid(one)?, &one.mapping)));
        let known: Vec<_> = known.collect::<Option<_>>()?;
        let (read, id) = (self.read.as_mut()?, places.first()?.mapping.file);
        let mut counts = read.take(id, &known, &mut self.room)?;
        self.protected.append(&mut counts.protected);
        self.before += counts.pages.len();
        self.again += counts.since.len();
        Some(counts)
    }
}

/// A mapping of an object.
pub(super) struct Shown {
    /// Its process.
    pid: u32,
    pub(super) mapping: Mapping,
    /// The number of its record.
    pub(super) record: usize,
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

impl Image<'_, '_> {
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
        let file = unnoticed(path).map_err(MemoryError::read(path))?;
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
        let attributes = extended::of(path).map_err(MemoryError::read(path))?;
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
        if !attributes.is_empty() {
            self.attributes.push((number, extended::packed(&attributes)));
        }
        self.shared.push(Shared { record, content: Content::File(file) });
        self.by_file.insert(id, number);
        self.by_file.insert(mapped, number);
        Ok(number)
    }

    /// Gives objects their extended attributes.
    pub(super) fn note_attributes(&mut self) {
        for (number, packed) in std::mem::take(&mut self.attributes) {
            let place = self.bytes_name(&packed);
            self.shared[number as usize].record.attributes = place as u32 + 1;
        }
    }

    /// The number of the memory that a shared mapping shows, whose record is the next one.
    pub(super) fn memory(&mut self, process: &Process, mapping: &Mapping) -> u32 {
        let fresh = self.shared.len() as u32;
        let number = *self.by_file.entry(mapping.file).or_insert(fresh);
        if number == fresh {
            // A memory file that is closed keeps its name among the mappings.
            let file = mapping.name.strip_prefix(MEMFD).and_then(|name| name.strip_suffix(DELETED));
            let name = match file {
                Some(file) => self.name(file),
                None => self.bytes_name(SHARED_NAME.to_bytes()),
            };
            let record = Object { kind: object::MEMORY, name, ..Object::default() };
            self.shared.push(Shared { record, content: Content::Mapped(Vec::new()) });
        }
        if let Content::Mapped(places) = &mut self.shared[number as usize].content {
            let record = self.mappings.len();
            places.push(Shown { pid: process.pid, mapping: mapping.clone(), record });
        }
        number
    }

    /// Copies the contents of objects, which are no process's own: of those that `may` be copied now.
    pub(super) fn hold_objects(
        &mut self,
        processes: &[Process],
        deadline: Instant,
        may: impl Fn(&Shared) -> bool,
    ) -> Result<()> {
        let ahead = &mut self.ahead;
        self.shared
            .iter_mut()
            .filter(|one| may(one))
            .try_for_each(|one| one.hold(processes, ahead, deadline))
    }

    /// The pages of the object that has the most.
    pub(super) fn most_shared(&self) -> usize {
        let pages = self.shared.iter().map(|one| match &one.content {
            Content::Held(pages) | Content::Ahead { pages, .. } => pages.len(),
            Content::File(_) | Content::Mapped(_) => 0,
        });
        pages.max().unwrap_or_default()
    }

    /// Writes them.
    pub(super) fn objects(&mut self) -> Result<()> {
        let images = self.before;
        for (number, Shared { mut record, content }) in
            std::mem::take(&mut self.shared).into_iter().enumerate()
        {
            let mut before = images.map(|before| before.object(number));
            let first = self.runs.len();
            let (pages, since) = match content {
                Content::Held(pages) => (pages, Raw::default()),
                Content::Ahead { pages, since } => (pages, since),
                Content::File(_) | Content::Mapped(_) => {
                    unreachable!("all objects are copied while the server stands")
                }
            };
            for (offset, page) in merged(&pages, &since) {
                self.compared(offset, page, before.as_mut())?;
            }
            record.runs = self.since(first);
            self.objects.push(record);
        }
        Ok(())
    }
}

/// Where a mapping ends in its object.
const fn end(mapping: &Mapping) -> u64 {
    mapping.offset + (mapping.end - mapping.start)
}

fn no_memory(error: io::Error) -> MemoryError {
    MemoryError::Read { what: "memory for an image".into(), error }
}

/// The pages of a file.
fn pages_of(file: &File, bytes: u64, room: &mut Option<Room>, deadline: Instant) -> Result<Raw> {
    let failed = |error| MemoryError::Read { what: "a file without a path".into(), error };
    let mut pages = Raw::with_room(room.take_if(|room| room.is_used_by(bytes)));
    copy_pages(&mut pages, file, [0, 0, bytes], || in_time(deadline), failed)?;
    Ok(pages)
}

/// The pages of memory that these mappings show, and its length.
fn mapped(
    processes: &[Process],
    places: Vec<Shown>,
    room: &mut Option<Room>,
    deadline: Instant,
) -> Result<(u64, Raw)> {
    let process_of = |pid| processes.iter().find(|process| process.pid == pid);
    let bytes = places.iter().map(|one| end(&one.mapping)).max().unwrap_or_default();
    let file = places.first().and_then(|first| {
        process_of(first.pid).and_then(|process| maps::open_memory(process, &first.mapping))
    });
    if let Some(file) = file {
        return Ok((bytes, pages_of(&file, bytes, room, deadline)?));
    }
    let mut parts = Vec::new();
    let mut read = Read::default();
    for Shown { pid, mapping, .. } in places {
        if let Some(process) = process_of(pid) {
            parts.extend(read.rest_of(&mapping).into_iter().map(|part| (process, part)));
        }
    }
    parts.sort_by_key(|(_, part)| part.offset);
    let mut pages = Raw::with_room(room.take_if(|room| room.is_used_by(bytes)));
    for (process, part) in parts {
        Pages::of(process)?.all(&part, deadline, |address, page| match is_zero(page) {
            true => Ok(()),
            false => pages.add(part.offset + (address - part.start), page).map_err(no_memory),
        })?;
    }
    Ok((bytes, pages))
}

impl Shared {
    /// A mapping of it, if no descriptor tells of it, and it may be a file that has another name.
    pub(super) fn perhaps_renamed(&self) -> Option<&Mapping> {
        let Content::Mapped(shown) = &self.content else { return None };
        let mapping = &shown.first()?.mapping;
        let is = |start: &&str| mapping.name.starts_with(*start);
        let is_memory = MEMORY.iter().any(is) || is(&"[");
        (mapping.is_of_file() && !is_memory).then_some(mapping)
    }

    /// Copies its content.
    fn hold(&mut self, processes: &[Process], ahead: &mut Ahead, deadline: Instant) -> Result<()> {
        let pages = match &mut self.content {
            Content::File(file) => pages_of(file, self.record.bytes, &mut ahead.room, deadline)?,
            Content::Mapped(places) => {
                if let Some(counts) = ahead.counts(processes, places) {
                    let ends = places.iter().map(|one| end(&one.mapping));
                    self.record.bytes = ends.max().unwrap_or_default();
                    let (pages, since) = (counts.pages, counts.since);
                    self.content = Content::Ahead { pages, since };
                    return Ok(());
                }
                let room = &mut ahead.room;
                let (bytes, pages) = mapped(processes, std::mem::take(places), room, deadline)?;
                self.record.bytes = bytes;
                pages
            }
            Content::Held(_) | Content::Ahead { .. } => return Ok(()),
        };
        self.content = Content::Held(pages);
        Ok(())
    }

    /// It is not this object that the mappings show.
    pub(super) fn take_shown(&mut self) -> Vec<Shown> {
        match &mut self.content {
            Content::Mapped(shown) => std::mem::take(shown),
            Content::File(_) | Content::Held(_) | Content::Ahead { .. } => Vec::new(),
        }
    }
}

/// The parts of an object that were read: the first byte of each, and the one behind its last.
#[derive(Debug, Default)]
struct Read(BTreeMap<u64, u64>);

impl Read {
    /// The parts of a mapping whose part of the object was not read yet; from now on it was.
    fn rest_of(&mut self, mapping: &Mapping) -> Vec<Mapping> {
        let (first, end) = (mapping.offset, mapping.offset + (mapping.end - mapping.start));
        let mut rest = Vec::new();
        let mut add = |from: u64, to: u64| {
            if from < to {
                let start = mapping.start + (from - first);
                let end = start + (to - from);
                rest.push(Mapping { start, end, offset: from, ..mapping.clone() });
            }
        };
        let mut at = first;
        for (from, to) in &self.0 {
            if *from >= end {
                break;
            }
            add(at, *from);
            at = at.max(*to);
        }
        add(at, end);
        let last = self.0.get(&first).copied().unwrap_or(end);
        self.0.insert(first, last.max(end));
        rest
    }
}

/// A file's device and inode number as mappings of it show them, which on an overlay are not those of `stat`.
pub(super) fn mapped_id(file: &File) -> Result<FileId> {
    let failed = || MemoryError::Read {
        what: "a file without a path".into(),
        error: io::ErrorKind::Unsupported.into(),
    };
    mapped_ids(std::slice::from_ref(file))?[0].ok_or_else(failed)
}

/// The same of several; `None`: one cannot be mapped.
pub(super) fn mapped_ids(files: &[File]) -> Result<Vec<Option<FileId>>> {
    let failed = |error| MemoryError::Read { what: "a file that is mapped".into(), error };
    let map = |file| match Mapped::new(file) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        mapped => mapped.map(Some),
    };
    let mapped: Vec<Option<Mapped>> =
        files.iter().map(map).collect::<io::Result<_>>().map_err(failed)?;
    let found = maps::numbers(std::process::id())?;
    let id = |one: &Mapped| {
        let found = found.get(&(one.0.as_ptr().expose_provenance() as u64)).copied();
        found.ok_or_else(|| failed(io::Error::other("it is not mapped")))
    };
    mapped.iter().map(|one| one.as_ref().map(id).transpose()).collect()
}

/// A mapping of a file, whose memory is not used.
struct Mapped(NonNull<libc::c_void>);

impl Mapped {
    fn new(file: &File) -> io::Result<Self> {
        let (kind, fd) = (libc::MAP_PRIVATE, file.as_raw_fd());
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), PAGE_BYTES as usize, libc::PROT_NONE, kind, fd, 0)
        };
        match at == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self(NonNull::new(at).expect("no mapping is at 0"))),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`.
        unsafe { libc::munmap(self.0.as_ptr(), PAGE_BYTES as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_an_object_is_read_twice() {
        let mut read = Read::default();
        let mut rest = |offset: u64, pages: u64| -> Vec<(u64, u64, u64)> {
            let line =
                format!("10000-{:x} rw-s {offset:08x} 00:01 9", 0x10000 + pages * PAGE_BYTES);
            let mapping = crate::maps::parse(&line).unwrap();
            let parts = read.rest_of(&mapping);
            parts.iter().map(|m| (m.start, m.end, m.offset)).collect()
        };
        assert_eq!(rest(0x2000, 2), [(0x10000, 0x12000, 0x2000)]);
        assert_eq!(rest(0x2000, 2), []);
        assert_eq!(rest(0x8000, 1), [(0x10000, 0x11000, 0x8000)]);
        assert_eq!(
            rest(0, 16),
            [(0x10000, 0x12000, 0), (0x14000, 0x18000, 0x4000), (0x19000, 0x20000, 0x9000)]
        );
        assert_eq!(rest(0x3000, 4), []);
        assert_eq!(rest(0xf000, 2), [(0x11000, 0x12000, 0x10000)]);
    }

    /// A server may have much more shared memory than it uses.
    #[test]
    fn shared_memory_that_was_never_used_is_not_made() {
        const BYTES: usize = 64 << 20;
        const PAGES: usize = BYTES / PAGE_BYTES as usize;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        for page in [3, PAGES / 2] {
            // SAFETY: a byte of this memory.
            unsafe { at.cast::<u8>().add(page * PAGE_BYTES as usize).write(7) };
        }
        let pid = std::process::id();
        let process = Process { pid, host_pid: pid, command: String::new() };
        let is_it = |m: &Mapping| m.start == at as u64;
        let mapping = maps::select(pid, is_it).unwrap().pop().unwrap();
        let is_file = maps::open_memory(&process, &mapping).is_some();
        let shown = vec![Shown { pid, mapping, record: 0 }];
        let used = || {
            let mut there = vec![0; PAGES];
            // SAFETY: that memory, and a byte for each of its pages.
            assert_eq!(unsafe { libc::mincore(at, BYTES, there.as_mut_ptr()) }, 0);
            there.iter().filter(|page| **page & 1 == 1).count()
        };
        let before = used();
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        let (bytes, pages) =
            mapped(std::slice::from_ref(&process), shown, &mut None, deadline).unwrap();
        let found: Vec<_> = pages.each().map(|(offset, page)| (offset, page[0])).collect();
        let of = |page: usize| (page as u64 * PAGE_BYTES, 7);
        assert_eq!((bytes, found), (BYTES as u64, vec![of(3), of(PAGES / 2)]));
        // The kernel gives it as a file to root only.
        assert!(used() == before || !is_file, "{before} pages, then {}", used());
        // SAFETY: as above; nothing refers to it.
        unsafe { libc::munmap(at, BYTES) };
    }

    #[test]
    fn a_mapping_shows_a_files_numbers() {
        let file = tempfile::tempfile().unwrap();
        let number = |file: &File| file.metadata().unwrap().ino();
        assert_eq!(mapped_id(&file).unwrap().1, number(&file));
        // One of them twice, as by two names.
        let files = [file.try_clone().unwrap(), tempfile::tempfile().unwrap(), file];
        let ids = mapped_ids(&files).unwrap();
        let ids: Vec<_> = ids.into_iter().map(|id| id.unwrap().1).collect();
        assert_eq!(ids, files.each_ref().map(number));
        // A file of the kernel's.
        let file = File::open("/proc/self/stat").unwrap();
        assert_eq!(mapped_ids(&[file]).unwrap(), [None]);
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
