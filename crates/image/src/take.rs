//! Takes an image of a server that stands at an admission, as the file that its runtime continues from ([`skein_arena::restore`]).
//!
//! All threads are inside the runtime, their contexts in memory, and all processes sleep: so memory, descriptors and the arena's heap are everything.
//! What an image cannot hold is refused by name; the server stays as it is.

mod descriptors;
mod objects;
mod parked;
mod program;
mod settings;

use self::descriptors::Opened;
use self::objects::{Shared, each_page};
use self::program::Given;
use self::settings::Ids;
use crate::before::{Before, Lookup, Places};
use crate::contents::Rewritten;
use crate::copied::{self, Copied, Page};
use crate::files::Files;
use crate::maps::{self, Mapping};
use crate::pages::{PAGE_BYTES, Pages, is_zero};
use crate::processes::{self, Process};
use crate::written::Watch;
use crate::{MemoryError, Result};
use skein_arena::Sizes;
use skein_arena::layout::{
    HEADER_BYTES, Header, LIBRARY_AT, RUNTIME_BITS, RUNTIME_PLACE, SERVER_BASE,
};
use skein_arena::parts::{Own, PARTS_BYTES, Parts};
use skein_arena::restore::{
    self, Credentials, Description, Descriptor, Head, Known, Lock, Object, Parked, Program, Run,
    advice, kind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Error;
use std::mem::offset_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Instant;
use xxhash_rust::xxh3::Xxh3;

/// From the arena to the runtime's library: nothing there is the server's.
const OWN: std::ops::Range<u64> = SERVER_BASE as u64..LIBRARY_AT as u64;

/// The limit of open files, in the kernel's order.
const NOFILE: usize = libc::RLIMIT_NOFILE as usize;

/// The size of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Processes.
    pub processes: usize,
    /// Mappings of all of them.
    pub mappings: usize,
    /// Pages.
    pub pages: u64,
}

/// The server to take an image of.
#[derive(Debug)]
pub struct Source<'a> {
    /// The parent of all its processes.
    pub init: u32,
    /// The arena's file.
    pub arena: &'a File,
    /// The sizes of its parts.
    pub sizes: Sizes,
    /// What it was given for standard output and standard error.
    pub given: [BorrowedFd<'a>; 2],
    /// Its first root, as its mounts show it.
    pub root: BorrowedFd<'a>,
    /// The paths of files that it may know: all that are in its private layer, and those of the host that the log has facts about
    /// (`skein_model::entry::host_files`), or that the server is asking about (`skein_model::fact::paths`).
    pub paths: &'a BTreeSet<PathBuf>,
    /// Whether the kernel is asked which pages were written. Otherwise all are read and compared.
    pub watches: bool,
}

/// What was taken.
#[derive(Debug)]
pub struct Taken {
    /// The restore file.
    pub copied: Copied,
    /// Its size.
    pub figures: Figures,
    /// Where its pages are.
    pub places: Places,
    /// What was written to files.
    pub rewritten: Rewritten,
}

impl Source<'_> {
    /// Copies what the restore file of an image is made of; of pages that have not changed since the image `before`, their hashes. After an error the one before does
    /// not count any more: some of what was written since is not noted any longer.
    ///
    /// # Errors
    /// The server has what an image cannot hold; it does not stand; or a file cannot be read, or not until `deadline`.
    pub fn take(&self, before: Option<&Before>, deadline: Instant) -> Result<Taken> {
        let processes = processes::below(self.init)?;
        for process in &processes {
            await_sleep(process, deadline)?;
        }
        let mut image = Image::new(self.init, self.given, before, self.watches);
        self.heap(&mut image)?;
        image.head.heap_runs = image.runs.len() as u32;
        let arena = self.arena.metadata().map_err(MemoryError::read("the arena"))?;
        let Some(first) = processes.first() else {
            return Err(MemoryError::CannotHold("it has no process".into()));
        };
        // What has no path is known by its descriptors, before mappings of it are met.
        for process in &processes {
            image.begin(process, first)?;
        }
        image.parked(first)?;
        for (n, process) in processes.iter().enumerate() {
            image.memory_of(n, process, (arena.dev(), arena.ino()), deadline)?;
        }
        image.objects(&processes, deadline)?;
        let rewritten = self.files(&mut image, deadline)?;
        let mut header = vec![0; HEADER_BYTES];
        self.arena.read_exact_at(&mut header, 0).map_err(MemoryError::read("the arena"))?;
        image.finish(&header, &processes, rewritten)
    }

    /// The files that the arena knows by the kernel's numbers.
    fn files(&self, image: &mut Image<'_>, deadline: Instant) -> Result<Rewritten> {
        let heap = (self.sizes.file_bytes() - self.sizes.heap) as u64;
        let mut files = Files::new(self.root, self.arena, heap, image.before, deadline)?;
        for path in image.names.split(|byte| *byte == 0) {
            files.note_used(path)?;
        }
        for path in self.paths {
            files.note(path.as_os_str().as_bytes())?;
        }
        // Those that were sought in directories need not be again.
        for path in image.before.iter().flat_map(|before| &before.places.files) {
            files.note(path)?;
        }
        let (found, nowhere, rewritten) = files.finish()?;
        image.places.nowhere = nowhere;
        image.places.files = found.values().cloned().collect();
        for ((device, inode), path) in found {
            let path = image.bytes_name(&path);
            image.known.push(Known { was: [device, inode], path, is: [0; 2] });
        }
        Ok(rewritten)
    }

    /// The pages of the arena's heap.
    fn heap(&self, image: &mut Image<'_>) -> Result<()> {
        let failed = |error: std::io::Error| MemoryError::Read { what: "the arena".into(), error };
        let begin = (self.sizes.file_bytes() - self.sizes.heap) as u64;
        let address = (SERVER_BASE + self.sizes.span_bytes() - self.sizes.heap) as u64;
        let mut before = image.before.map(Before::heap);
        let owns = self.owns().map_err(failed)?;
        let mut root = Xxh3::new();
        let mut shared = [0; PAGE_BYTES as usize];
        let page = |offset: u64, page: &[u8]| {
            shared.copy_from_slice(page);
            owns.iter().for_each(|own| own.clear(&mut shared, offset - begin));
            if !is_zero(&shared) {
                root.update(&(offset - begin).to_le_bytes());
                root.update(&shared);
            }
            image.compared(address + (offset - begin), page, before.as_mut())
        };
        each_page(self.arena, begin, self.sizes.file_bytes() as u64, page, failed)?;
        image.places.heap_root = root.digest();
        Ok(())
    }

    /// The bytes of the heap that belong to one replica.
    fn owns(&self) -> std::io::Result<Vec<Own>> {
        let mut word = [0; 8];
        self.arena.read_exact_at(&mut word, offset_of!(Header, parts_at) as u64)?;
        let mut table = [0; PARTS_BYTES];
        let (at, heap) = (u64::from_ne_bytes(word), self.sizes.heap as u64);
        if at != 0 && at.checked_add(PARTS_BYTES as u64).is_some_and(|end| end <= heap) {
            let begin = self.sizes.file_bytes() as u64 - heap;
            self.arena.read_exact_at(&mut table, begin + at)?;
        }
        Ok(Parts::read(&table).owns().collect())
    }
}

/// The paths of files that a server knows which continues from this image: a part of [`Source::paths`] of its next one, whatever the log still has by then.
///
/// # Errors
/// It is no image of this version, or cannot be read.
pub fn paths(image: &File) -> Result<BTreeSet<PathBuf>> {
    let failed = |error: Error| MemoryError::Read { what: "the image".into(), error };
    let damaged = || failed(Error::other("it is no image of this version, or damaged"));
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
    };
    let mut head = [0; size_of::<Head>()];
    image.read_exact_at(&mut head, 0).map_err(failed)?;
    let magic = word(&head, offset_of!(Head, magic));
    let at = word(&head, offset_of!(Head, tables_at)).ok_or_else(damaged)?;
    let bytes = word(&head, offset_of!(Head, tables_bytes)).ok_or_else(damaged)?;
    let whole = image.metadata().map_err(failed)?.len();
    if magic != Some(restore::MAGIC) || at > whole || bytes > whole - at {
        return Err(damaged());
    }
    let mut tables = vec![0; bytes as usize];
    image.read_exact_at(&mut tables, at).map_err(failed)?;
    let count = word(&head, offset_of!(Head, files)).ok_or_else(damaged)? as u32 as usize;
    let names = word(&head, offset_of!(Head, names_at)).ok_or_else(damaged)?;
    let mut paths = BTreeSet::new();
    for n in 0..count {
        let at = word(&tables, n * size_of::<Known>() + offset_of!(Known, path));
        let name = at.and_then(|at| tables.get(at.checked_add(names)? as usize..));
        let end = name.and_then(|name| name.iter().position(|byte| *byte == 0));
        let (Some(name), Some(end)) = (name, end) else { return Err(damaged()) };
        paths.insert(PathBuf::from(OsStr::from_bytes(&name[..end])));
    }
    Ok(paths)
}

/// A process that was just forked may still be on its way to where it sleeps.
fn await_sleep(process: &Process, deadline: Instant) -> Result<()> {
    let path = format!("/proc/{}/syscall", process.host_pid);
    let sleeps = format!("{} ", libc::SYS_futex);
    while !fs::read_to_string(&path).map_err(MemoryError::read(&*path))?.starts_with(&sleeps) {
        crate::pages::in_time(deadline)?;
        std::thread::yield_now();
    }
    Ok(())
}

fn refused<T>(process: &Process, what: impl std::fmt::Display) -> Result<T> {
    Err(MemoryError::CannotHold(format!(
        "process {} ({}) has {what}",
        process.pid, process.command
    )))
}

/// Device and inode number.
type FileId = (u64, u64);

/// An image that is being written.
struct Image<'a> {
    copied: Copied,
    /// The image before.
    before: Option<&'a Before>,
    places: Places,
    watches: bool,
    /// The parent of all processes, whose root is the server's first one.
    init: u32,
    given: [BorrowedFd<'a>; 2],
    head: Head,
    processes: Vec<restore::Process>,
    objects: Vec<Object>,
    descriptions: Vec<Description>,
    mappings: Vec<restore::Mapping>,
    runs: Vec<Run>,
    descriptors: Vec<Descriptor>,
    names: Vec<u8>,
    known: Vec<Known>,
    locks: Vec<Lock>,
    credentials: Vec<Credentials>,
    groups: Vec<u32>,
    parked: Vec<Parked>,
    programs: Vec<Program>,
    first_given: Option<Given>,
    /// The variable that loads the runtime into programs.
    preload: Option<Vec<u8>>,
    /// Descriptors of those, which keep their open files apart from others.
    on_their_way: Vec<OwnedFd>,
    shared: Vec<Shared>,
    /// The numbers of objects.
    by_file: BTreeMap<FileId, u32>,
    /// Of each open file a descriptor.
    open: BTreeMap<FileId, Vec<Opened>>,
    /// The locks before are other processes'.
    first_lock: usize,
    ids: Option<Ids>,
}

impl<'a> Image<'a> {
    fn new(
        init: u32,
        given: [BorrowedFd<'a>; 2],
        before: Option<&'a Before>,
        watches: bool,
    ) -> Self {
        let mut copied = Copied::new();
        // The head's place: what it says is known at the end.
        copied.put(&[0; PAGE_BYTES as usize]);
        Self {
            copied,
            before,
            places: Places::default(),
            watches,
            init,
            given,
            head: Head { magic: restore::MAGIC, ..Head::default() },
            processes: Vec::new(),
            objects: Vec::new(),
            descriptions: Vec::new(),
            mappings: Vec::new(),
            runs: Vec::new(),
            descriptors: Vec::new(),
            names: Vec::new(),
            known: Vec::new(),
            locks: Vec::new(),
            credentials: Vec::new(),
            groups: Vec::new(),
            parked: Vec::new(),
            programs: Vec::new(),
            first_given: None,
            preload: None,
            on_their_way: Vec::new(),
            shared: Vec::new(),
            by_file: BTreeMap::new(),
            open: BTreeMap::new(),
            first_lock: 0,
            ids: None,
        }
    }

    fn name(&mut self, name: &str) -> u64 {
        self.bytes_name(name.as_bytes())
    }

    fn bytes_name(&mut self, name: &[u8]) -> u64 {
        let at = self.names.len() as u64;
        self.names.extend_from_slice(name);
        self.names.push(0);
        at
    }

    /// Adds bytes; answers their position.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.copied.len();
        self.copied.put(bytes);
        at
    }

    fn page(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        self.add(address, Page::Here(bytes.try_into().expect("memory is read in pages")))
    }

    /// A page that was read, and may be as it was before.
    fn compared(
        &mut self,
        address: u64,
        bytes: &[u8],
        before: Option<&mut Lookup<'_>>,
    ) -> Result<()> {
        match before.and_then(|before| before.find(address)) {
            Some(known) if copied::hash(bytes) == known => self.add(address, Page::Known(known)),
            _ => self.page(address, bytes),
        }
    }

    fn add(&mut self, address: u64, page: Page<'_>) -> Result<()> {
        let at = self.copied.len();
        match page {
            Page::Known(hash) => self.copied.known(hash, PAGE_BYTES as usize),
            Page::Here(bytes) => {
                self.copied.page(bytes).map_err(MemoryError::read("memory for an image"))?;
            }
        }
        match self.runs.last_mut() {
            Some(run) if run.address + run.bytes == address && run.at + run.bytes == at => {
                run.bytes += PAGE_BYTES;
            }
            _ => self.runs.push(Run { address, bytes: PAGE_BYTES, at }),
        }
        Ok(())
    }

    /// The end of a list of runs: the next page begins a new one.
    fn since(&mut self, first: usize) -> [u32; 2] {
        [first as u32, (self.runs.len() - first) as u32]
    }

    /// A process without its memory.
    fn begin(&mut self, process: &Process, first: &Process) -> Result<()> {
        let mut found = restore::Process { pid: process.pid, ..restore::Process::default() };
        self.note_program(process, &mut found)?;
        self.settings(process, first, &mut found)?;
        let descriptors = self.descriptors.len();
        self.first_lock = self.locks.len();
        self.descriptors(process)?;
        found.descriptors = part(descriptors, self.descriptors.len());
        found.locks = part(self.first_lock, self.locks.len());
        self.processes.push(found);
        Ok(())
    }

    /// The memory of process number `n`.
    fn memory_of(
        &mut self,
        n: usize,
        process: &Process,
        arena: FileId,
        deadline: Instant,
    ) -> Result<()> {
        let (first_mapping, first_run) = (self.mappings.len(), self.runs.len());
        let pages = Pages::of(process)?;
        let watch = Watch::of(process).filter(|_| self.watches);
        let before = self.before;
        let mut before = before.map_or_else(Lookup::default, |b| b.process(process.host_pid));
        let mappings = maps::select(process.host_pid, |m| {
            !OWN.contains(&m.start) && m.file != arena && m.name != "[vsyscall]"
        })?;
        for mapping in mappings {
            let kind = self.kind(process, &mapping)?;
            if kind == kind::HEAP {
                self.processes[n].brk = mapping.end;
            }
            let of = match kind {
                kind::SHARED => self.memory(process, &mapping).into(),
                kind::PRIVATE => self.by_file[&mapping.file].into(),
                _ => self.name(&mapping.name),
            };
            let is_stored = !matches!(kind, kind::SHARED | kind::SHARED_FILE | kind::WRITTEN_FILE);
            let mut compare =
                |address, page: &[u8]| self.compared(address, page, Some(&mut before));
            if kind == kind::ANONYMOUS && mapping.is_of_file() {
                // The file is gone: what it held is the process's own from now on.
                pages.all(&mapping, deadline, compare)?;
            } else if is_stored && !mapping.name.starts_with("[v") {
                match &watch {
                    None => pages.private(&mapping, deadline, &mut compare)?,
                    Some(watch) => {
                        let each = |address, page: Page<'_>| self.add(address, page);
                        pages.changed(&mapping, watch, &mut before, deadline, each)?;
                    }
                }
            }
            let Mapping { start, end, offset, .. } = mapping;
            self.mappings.push(restore::Mapping {
                start,
                end,
                offset,
                of,
                kind,
                protection: protection(&mapping.permissions),
                advice: advice(&mapping),
                unused: 0,
            });
        }
        self.processes[n].mappings = part(first_mapping, self.mappings.len());
        self.processes[n].runs = self.since(first_run);
        Ok(())
    }

    fn kind(&self, process: &Process, mapping: &Mapping) -> Result<u32> {
        let name = mapping.name.as_str();
        let is_memory = name.starts_with("/dev/zero") || name.starts_with("[anon_shmem:");
        let is_removed = mapping.is_of_file() && name.ends_with(" (deleted)");
        Ok(match name {
            "[stack]" => kind::STACK,
            "[heap]" => kind::HEAP,
            "[vdso]" | "[vvar]" | "[vvar_vclock]" => kind::STAYS,
            _ if mapping.start >> RUNTIME_BITS == RUNTIME_PLACE as u64 && mapping.is_of_file() => {
                kind::STAYS
            }
            _ if mapping.has("ht") => return refused(process, format!("huge pages of {name}")),
            _ if mapping.key != 0 => {
                return refused(process, format!("protection key {} at {name}", mapping.key));
            }
            _ if mapping.is_shared() && (is_removed || is_memory) => kind::SHARED,
            _ if mapping.is_shared() && mapping.has("mw") => kind::WRITTEN_FILE,
            _ if mapping.is_shared() => kind::SHARED_FILE,
            _ if self.by_file.contains_key(&mapping.file) => kind::PRIVATE,
            _ if mapping.is_of_file() && !is_removed => kind::FILE,
            _ => kind::ANONYMOUS,
        })
    }

    /// The restore keeps descriptors of its own above the server's.
    fn check_room(&self) -> Result<()> {
        let end = u64::from(self.head.lent()) + u64::from(self.head.file_fd().unsigned_abs()) + 2;
        let hard = self.processes.first().map_or(0, |first| first.limits[NOFILE][1]);
        if end > hard {
            return Err(MemoryError::CannotHold(format!(
                "its descriptors reach {}, and {} more are needed below the limit of {hard}",
                self.head.last_fd,
                self.head.lent() + 2
            )));
        }
        Ok(())
    }

    fn finish(
        mut self,
        header: &[u8],
        processes: &[Process],
        rewritten: Rewritten,
    ) -> Result<Taken> {
        let pages = (self.copied.len() - PAGE_BYTES) / PAGE_BYTES;
        self.head.header_at = self.put(header);
        self.head.tables_at = self.copied.len();
        self.head.processes = self.processes.len() as u32;
        self.head.objects = self.objects.len() as u32;
        self.head.descriptions = self.descriptions.len() as u32;
        self.head.mappings = self.mappings.len() as u32;
        self.head.runs = self.runs.len() as u32;
        self.head.descriptors = self.descriptors.len() as u32;
        self.head.files = self.known.len() as u32;
        self.head.locks = self.locks.len() as u32;
        self.head.credentials = self.credentials.len() as u32;
        self.head.parked = self.parked.len() as u32;
        self.head.programs = self.programs.len() as u32;
        self.head.groups = self.groups.len() as u32;
        self.check_room()?;
        let tables = [
            bytes(&self.known),
            bytes(&self.processes),
            bytes(&self.objects),
            bytes(&self.descriptions),
            bytes(&self.mappings),
            bytes(&self.runs),
            bytes(&self.locks),
            bytes(&self.credentials),
            bytes(&self.parked),
            bytes(&self.programs),
            bytes(&self.descriptors),
            bytes(&self.groups),
            &self.names,
        ]
        .concat();
        self.head.tables_bytes = tables.len() as u64;
        self.head.names_at = (tables.len() - self.names.len()) as u64;
        self.copied.put(&tables);
        self.copied.put_first(bytes(std::slice::from_ref(&self.head)));
        let runs =
            |[first, count]: [u32; 2]| self.runs[first as usize..(first + count) as usize].to_vec();
        let of_process =
            |(process, found): (&Process, &restore::Process)| (process.host_pid, runs(found.runs));
        let Places { files, nowhere, heap_root, .. } = std::mem::take(&mut self.places);
        let places = Places {
            files,
            nowhere,
            heap_root,
            pids: processes.iter().map(|process| (process.pid, process.host_pid)).collect(),
            heap: runs([0, self.head.heap_runs]),
            processes: processes.iter().zip(&self.processes).map(of_process).collect(),
            objects: self.objects.iter().map(|object| runs(object.runs)).collect(),
        };
        let (processes, mappings) = (self.processes.len(), self.mappings.len());
        let figures = Figures { processes, mappings, pages };
        Ok(Taken { copied: self.copied, figures, places, rewritten })
    }
}

/// The part of a table from `first` to `end`.
fn part(first: usize, end: usize) -> [u32; 2] {
    [first as u32, (end - first) as u32]
}

/// The rest of the line that begins so.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
}

fn protection(permissions: &str) -> u32 {
    let letters = permissions.bytes().zip(*b"rwx");
    let bits = [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC];
    letters
        .zip(bits)
        .filter(|((is, letter), _)| is == letter)
        .fold(0, |all, (_, bit)| all | bit as u32)
}

/// What the server has told the kernel about a mapping.
fn advice(mapping: &Mapping) -> u32 {
    let words = [
        ("dc", advice::NOT_FORKED),
        ("wf", advice::WIPED),
        ("hg", advice::HUGE),
        ("nh", advice::SMALL),
        ("sl", advice::SEALED),
        ("gd", advice::GROWS),
    ];
    words.iter().filter(|(word, _)| mapping.has(word)).fold(0, |all, (_, bit)| all | bit)
}

fn bytes<T: Copy>(of: &[T]) -> &[u8] {
    // SAFETY: the tables' records are words without padding between or behind them.
    unsafe { std::slice::from_raw_parts(of.as_ptr().cast(), size_of_val(of)) }
}
