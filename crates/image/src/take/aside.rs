//! What is read beside the processes' memory, on a thread of its own: the arena's heap, the server's files, and where those of its host are.

use super::{Heap, Paths, Source};
use crate::before::{Before, Nowhere};
use crate::contents::Rewritten;
use crate::file_pages::Ahead;
use crate::files::{self, Files};
use crate::inode_table::{InodeTable, TABLE_BYTES, inside, word};
use crate::maps::{self, FileId, Mapping};
use crate::pages::in_time;
use crate::processes;
use crate::raw::Raw;
use crate::sparse::copy_pages;
use crate::{MemoryError, Result};
use skein_arena::Sizes;
use skein_arena::layout::{HEADER_BYTES, Header, SERVER_BASE};
use skein_arena::parts::{PARTS_BYTES, Parts};
use skein_arena::writes::RECORD_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// What is read beside the processes' memory.
pub(super) struct Aside<'a> {
    pub(super) arena: &'a File,
    pub(super) sizes: Sizes,
    pub(super) root: BorrowedFd<'a>,
    pub(super) paths: &'a (dyn Fn() -> Paths + Sync),
    pub(super) mounts: &'a [PathBuf],
    pub(super) before: Option<&'a Before>,
    pub(super) ahead: Option<&'a Ahead>,
    pub(super) deadline: Instant,
}

/// What [`Aside::read`] has read.
pub(super) struct ReadAside {
    pub(super) heap: Heap,
    pub(super) found: BTreeMap<FileId, Vec<u8>>,
    pub(super) nowhere: Nowhere,
    /// The files that may be written to through a mapping.
    pub(super) mapped: BTreeSet<FileId>,
    pub(super) rewritten: Rewritten,
}

impl Aside<'_> {
    /// The arena's heap, the files, and what `meanwhile` reads. The names of files in use come by the channel, before the image may be given up.
    pub(super) fn read(
        &self,
        header: &[u8],
        names: &Receiver<Vec<u8>>,
        is_given_up: &AtomicBool,
        meanwhile: impl FnOnce(&mut Rewritten) -> Result<Paths>,
    ) -> Result<ReadAside> {
        let heap = self.heap(header)?;
        let (files, mut rewritten) = self.begin_files(header, &heap.pages)?;
        // Whoever gives up says why.
        let given_up = || MemoryError::CannotHold("memory that could not be read".into());
        let names = names.recv().map_err(|_| given_up())?;
        if is_given_up.load(Ordering::Relaxed) {
            return Err(given_up());
        }
        let mapped = rewritten.mapped();
        let in_layer = meanwhile(&mut rewritten)?;
        let (found, nowhere) = self.files(files, &names, in_layer)?;
        Ok(ReadAside { heap, found, nowhere, mapped, rewritten })
    }

    /// The files that the arena knows by the kernel's numbers, which are to be found, and what was written.
    fn begin_files(&self, header: &[u8], heap: &Raw) -> Result<(Files<'_>, Rewritten)> {
        let place = |name, bytes| inside(word(header, name), bytes, self.sizes);
        let table =
            InodeTable::new(heap, place(offset_of!(Header, inodes_at), TABLE_BYTES as usize));
        let record = place(offset_of!(Header, writes_at), RECORD_BYTES);
        let contents = self.before.map(|before| before.contents().0);
        let rewritten = Rewritten::read(self.arena, &table, record, contents, self.ahead)
            .map_err(MemoryError::read("the arena"))?;
        Ok((Files::new(self.root, &table, self.before, self.deadline), rewritten))
    }

    /// Finds them.
    fn files(&self, mut files: Files<'_>, names: &[u8], in_layer: Paths) -> Result<files::Found> {
        for path in names.split(|byte| *byte == 0) {
            files.note_used(path)?;
        }
        note_all(&mut files, (self.paths)())?;
        // Before what is in the layer: that has their directories, too.
        for mount in self.mounts {
            files.note_mount(mount.as_os_str().as_bytes())?;
        }
        note_all(&mut files, in_layer)?;
        // Those that were sought in directories need not be again.
        for path in self.before.iter().flat_map(|before| &before.places.files) {
            files.note(path)?;
        }
        files.finish()
    }

    /// A copy of the arena's heap.
    fn heap(&self, header: &[u8]) -> Result<Heap> {
        let failed = |error: std::io::Error| MemoryError::Read { what: "the arena".into(), error };
        let begin = (self.sizes.file_bytes() - self.sizes.heap) as u64;
        let address = (SERVER_BASE + self.sizes.span_bytes() - self.sizes.heap) as u64;
        let mut pages = Raw::default();
        let places = [begin, begin, self.sizes.file_bytes() as u64];
        copy_pages(&mut pages, self.arena, places, || Ok(()), failed)?;
        let (at, heap) = (word(header, offset_of!(Header, parts_at)), self.sizes.heap as u64);
        let end = at.checked_add(PARTS_BYTES as u64).filter(|end| at != 0 && *end <= heap);
        let table = end.map_or_else(|| vec![0; PARTS_BYTES], |end| pages.bytes(at, end));
        let table = table.first_chunk().expect("as many bytes as the table has");
        let owns = Parts::read(table).owns().collect();
        Ok(Heap { pages, address, owns })
    }
}

fn note_all(files: &mut Files<'_>, paths: Paths) -> Result<()> {
    for (path, about) in paths {
        let path = path.as_os_str().as_bytes();
        match about {
            Some(about) => files.note_shown(path, &about)?,
            None => files.note(path)?,
        }
    }
    Ok(())
}

impl Source<'_> {
    /// Seeks the host's files that a server knows while it goes on, so that it need not stand for that: what is found out is known to `first`, which is to be before its first image. `in_layer`: paths in its
    /// private layer.
    ///
    /// # Errors
    /// The arena cannot be read; or there is no time left.
    pub fn seek(&self, first: &mut Before, in_layer: Paths, deadline: Instant) -> Result<()> {
        let Self { init, arena, sizes, root, paths, mounts, .. } = *self;
        let (before, ahead) = (None, None);
        let aside = Aside { arena, sizes, root, paths, mounts, before, ahead, deadline };
        let mut header = vec![0; HEADER_BYTES];
        arena.read_exact_at(&mut header, 0).map_err(MemoryError::read("the arena"))?;
        let heap = aside.heap(&header)?;
        let (files, _) = aside.begin_files(&header, &heap.pages)?;
        let (found, nowhere) = aside.files(files, &names_in_use(init, deadline)?, in_layer)?;
        first.places.files.extend(found.into_values());
        first.places.nowhere = nowhere;
        Ok(())
    }
}

/// The names of files that the processes below `init` use now, each with a zero behind it. They go on, so what cannot be read may be gone, and is sought when they stand.
fn names_in_use(init: u32, deadline: Instant) -> Result<Vec<u8>> {
    let mut names = Vec::new();
    for process in processes::below(init)? {
        in_time(deadline)?;
        let place = format!("/proc/{}", process.host_pid);
        let fds = std::fs::read_dir(format!("{place}/fd")).into_iter().flatten().flatten();
        let links = ["cwd", "root", "exe"].map(|link| PathBuf::from(format!("{place}/{link}")));
        for link in links.into_iter().chain(fds.map(|fd| fd.path())) {
            let name = std::fs::read_link(link).unwrap_or_default();
            names.extend_from_slice(name.as_os_str().as_bytes());
            names.push(0);
        }
        let is_file = |mapping: &Mapping| mapping.name.starts_with('/');
        for mapping in maps::plain(process.host_pid, is_file).ok().flatten().unwrap_or_default() {
            names.extend_from_slice(mapping.name.as_bytes());
            names.push(0);
        }
    }
    Ok(names)
}
