//! Takes an image of a server that stands at an admission, as the file that its runtime continues from ([`skein_arena::restore`]).
//!
//! All threads are inside the runtime, their contexts in memory, and all processes sleep: so memory, descriptors and the arena's heap are everything.
//! What an image cannot hold is refused by name; the server stays as it is.

mod aside;
pub(crate) mod descriptors;
mod memory;
pub(crate) mod objects;
mod parked;
mod program;
mod renamed;
pub(crate) mod settings;
mod standing;

use self::aside::Aside;
use self::descriptors::Opened;
use self::memory::{Found, Mapped, Stand};
use self::objects::Shared;
use self::program::Given;
use self::renamed::{Names, Renamed};
use self::settings::Ids;
use self::standing::Heap;
pub use self::standing::Standing;
use crate::before::{Before, Lookup, Nowhere, Places};
use crate::contents::Rewritten;
use crate::copied::{self, Copied, Page, Room};
use crate::file_pages::Ahead;
use crate::inode_table::word;
use crate::layered::About;
use crate::maps::{FileId, Mapping};
use crate::pages::{PAGE_BYTES, is_zero};
use crate::processes::{self, Process};
use crate::shared::SharedAhead;
pub use crate::sparse::each_page;
use crate::stand_ins::{SpareNumbers, StandIns};
use crate::{MemoryError, Result};
use skein_arena::Sizes;
use skein_arena::layout::{HEADER_BYTES, Header};
use skein_arena::restore::{
    self, Credentials, Description, Descriptor, Head, Known, Lock, Object, Parked, Program, Run,
};
use skein_arena::uses::Use;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;
use xxhash_rust::xxh3::Xxh3;

/// The limit of open files, in the kernel's order.
const NOFILE: usize = libc::RLIMIT_NOFILE as usize;

/// Which of a mapping's pages were written is asked before it is known whether processes fork, if it is so large; of others when they have gone on.
const MUCH_BYTES: u64 = 4 << 20;

/// The size of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Processes.
    pub processes: usize,
    /// Mappings of all of them.
    pub mappings: usize,
    /// Pages.
    pub pages: u64,
    /// Of which its copies did without.
    pub spared: u64,
    /// Of the memory or the file without a path that has the most: these are read in any case.
    pub shared: usize,
    /// Pages of what processes share that were read while the server went on,
    pub shared_before: usize,
    /// and those that were written by then, and read again.
    pub shared_again: usize,
}

/// What there is already for what processes share.
#[derive(Debug, Default)]
pub struct Shares {
    /// Memory for it.
    pub room: Option<Room>,
    /// What was read of it while the server went on.
    pub read: Option<SharedAhead>,
}

/// Paths of files that a server may know, and, of regular files, what its mounts are known to show there.
pub type Paths = BTreeMap<PathBuf, Option<About>>;

/// The server to take an image of.
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
    /// The paths of files of the host that it may know: the log has facts about them (`skein_model::entry::host_files`), or the server is asking about them
    /// (`skein_model::fact::paths`).
    pub paths: &'a (dyn Fn() -> Paths + Sync),
    /// Where something is mounted in it.
    pub mounts: &'a [PathBuf],
    /// Whether the kernel is asked which pages were written. Otherwise all are read and compared.
    pub watches: bool,
    /// Where numbers of processes come from for stand-ins, if there may be some.
    pub numbers: Option<&'a dyn SpareNumbers>,
    /// When there are to be some.
    pub forks: Forks,
    /// What was read of its files while it went on.
    pub ahead: Option<&'a Ahead>,
}

/// When a server forks for an image, and what of.
#[derive(Clone, Copy, Debug)]
pub struct Forks {
    /// Whether it does where so many private pages are read, and a fork copies so many. Where nothing is known of any it does in any case.
    pub for_pages: fn(u64, u64) -> bool,
    /// A stand-in does without rows of unread pages of at least this length: 1 and more.
    pub spares: u64,
}

/// What was taken.
#[derive(Debug)]
pub struct Taken<'b> {
    /// The restore file.
    pub copied: Copied<'b>,
    /// Its size.
    pub figures: Figures,
    /// Where its pages are.
    pub places: Places,
    /// What was written to files, if nobody took it meanwhile.
    pub rewritten: Rewritten,
}

impl Source<'_> {
    /// Begins a copy of what the restore file of an image is made of; of pages that have not changed since the image `before`, their hashes. [`Standing::finish`] ends it. After an error
    /// the one before does not count any more: some of what was written since is not noted any longer.
    /// `meanwhile` reads the server's files, of which it is told what was written, and tells the paths of all that are in its private layer; it does so beside the reading of the processes'
    /// memory, on a thread of its own if there may be one.
    ///
    /// # Errors
    /// The server has what an image cannot hold; it does not stand; or a file cannot be read, or not until `deadline`.
    pub fn stand<'s, 'b>(
        &'s self,
        before: Option<&'b Before>,
        shares: Shares,
        deadline: Instant,
        meanwhile: impl FnOnce(&mut Rewritten) -> Result<Paths> + Send,
    ) -> Result<Standing<'s, 'b>> {
        let (processes, header) = self.asleep(deadline)?;
        let (tell, names) = channel();
        let aside = Aside {
            arena: self.arena,
            sizes: self.sizes,
            root: self.root,
            paths: self.paths,
            mounts: self.mounts,
            before,
            ahead: self.ahead,
            deadline,
        };
        let work = Mutex::new(Some((names, meanwhile)));
        let is_given_up = AtomicBool::new(false);
        let read_aside = || {
            let (names, meanwhile) = work.lock().expect("no holder panics").take().expect("once");
            aside.read(&header, &names, &is_given_up, meanwhile)
        };
        let (mut memory, aside) = thread::scope(|scope| {
            // A new thread is queued behind the one that made it, and one that is woken where a core is idle.
            let (ready, is_ready) = channel();
            let (go, goes) = channel();
            let read = &read_aside;
            let begun = thread::Builder::new().spawn_scoped(scope, move || {
                let _ = ready.send(()).map(|()| goes.recv());
                read()
            });
            if begun.is_ok() {
                let _ = is_ready.recv().map(|()| go.send(()));
            }
            let memory = self.memory(&header, &processes, (before, shares), tell, deadline);
            is_given_up.store(memory.is_err(), Ordering::Relaxed);
            let memory = memory?;
            let aside = match begun {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // There may be no more threads.
                Err(_) => read_aside(),
            };
            Ok((memory, aside?))
        })?;
        let (found, mapped) = (&aside.found, &aside.mapped);
        memory.image.name_renamed(&Names { root: self.root, found, mapped, deadline })?;
        memory.image.note_files(aside.found, aside.nowhere);
        let Memory { image, asked, private, mut stand } = memory;
        let (stand_ins, stood_because) = match asked {
            None => (None, None),
            Some(Ok(asked)) => (Some(asked), None),
            Some(Err(why)) => (None, Some(why)),
        };
        let mut standing = Standing {
            image,
            processes,
            header,
            heap: aside.heap,
            private: Vec::new(),
            rewritten: aside.rewritten,
            stand_ins,
            stood_because,
        };
        standing.await_fork(&mut stand)?;
        // Most are copied by now.
        standing.image.hold_objects(&standing.processes, deadline, |_| true)?;
        if let Some(private) = private {
            standing.hold_private(private, &stand)?;
        }
        // The server may close the last descriptor of such a file, and is to have done so.
        standing.image.on_their_way.clear();
        Ok(standing)
    }

    /// Whether an image can hold what its processes have, as far as that is known without reading their memory.
    ///
    /// # Errors
    /// As [`stand`](Self::stand).
    pub fn check(&self, deadline: Instant) -> Result<()> {
        let (processes, header) = self.asleep(deadline)?;
        self.mapped(&header, &processes, None, deadline).map(drop)
    }

    /// All processes, when they sleep, and the arena's header.
    fn asleep(&self, deadline: Instant) -> Result<(Vec<Process>, Vec<u8>)> {
        let processes = processes::below(self.init)?;
        for process in &processes {
            processes::await_sleep(process, deadline)?;
        }
        let mut header = vec![0; HEADER_BYTES];
        self.arena.read_exact_at(&mut header, 0).map_err(MemoryError::read("the arena"))?;
        Ok((processes, header))
    }

    /// What the processes have beside their memory, and where that is.
    fn mapped<'s, 'b>(
        &'s self,
        header: &[u8],
        processes: &[Process],
        before: Option<&'b Before>,
        deadline: Instant,
    ) -> Result<(Image<'s, 'b>, Stand, Vec<Mapped>)> {
        let Some(first) = processes.first() else {
            return Err(MemoryError::CannotHold("it has no process".into()));
        };
        let mut image = Image::new(self.init, self.given, before, self.watches);
        let about = self.arena.metadata().map_err(MemoryError::read("the arena"))?;
        let arena = (about.dev(), about.ino());
        let advised = has_done(header, Use::MemoryAdvice);
        image.may_have_set = has_done(header, Use::OwnSettings);
        let stand = Stand { arena, advised, forked: false, deadline };
        // What has no path is known by its descriptors, before mappings of it are met.
        for process in processes {
            image.begin(process, first)?;
        }
        image.parked(first)?;
        let mut mappings = Vec::new();
        for (n, process) in processes.iter().enumerate() {
            mappings.push(image.mappings_of(n, process, &stand)?);
        }
        Ok((image, stand, mappings))
    }

    /// What only the processes have, and what they share. `tell` gets the names of the files that they use.
    fn memory<'s, 'b>(
        &'s self,
        header: &[u8],
        processes: &[Process],
        (before, shares): (Option<&'b Before>, Shares),
        tell: Sender<Vec<u8>>,
        deadline: Instant,
    ) -> Result<Memory<'s, 'b>> {
        let (mut image, mut stand, mappings) = self.mapped(header, processes, before, deadline)?;
        image.ahead = objects::Ahead::of(shares, header, self.watches);
        // Who waits for them is there until they are told.
        let _ = tell.send(image.names.clone());
        // These are not names.
        image.note_attributes();
        // Where no image is before, all is read: then it is not asked first what that is.
        let (private, spared) = match self.numbers.filter(|_| before.is_none()) {
            Some(_) => (Found::Not(mappings), Some(Vec::new())),
            None => {
                // What is much decides nearly always.
                let is_much = |mapping: &Mapping| mapping.end - mapping.start >= MUCH_BYTES;
                let mut found = image.all_private(processes, mappings, &stand, is_much)?;
                let mut spared = image.spared(processes, &found, self.forks);
                if spared.is_none() {
                    found = image.ask_all(processes, found, &stand)?;
                    spared = image.spared(processes, &found, self.forks);
                }
                (Found::Is(found), spared)
            }
        };
        // They fork while what they share is read; what the kernel tells about a process's memory waits for that.
        let pages = spared.iter().flatten().map(|one| one.pages).sum();
        let asked = self.numbers.zip(spared);
        let asked =
            asked.map(|(numbers, spared)| StandIns::ask(self.arena, numbers, processes, &spared));
        stand.forked = matches!(asked, Some(Ok(_)));
        if stand.forked {
            image.spared = pages;
        }
        let private = match private {
            Found::Is(found) if !stand.forked => {
                let found = image.ask_all(processes, found, &stand)?;
                image.all_pages(processes, None, found, deadline)?;
                None
            }
            private => Some(private),
        };
        let is_certain = |object: &Shared| object.perhaps_renamed().is_none();
        image.hold_objects(processes, deadline, is_certain)?;
        Ok(Memory { image, asked, private, stand })
    }
}

/// What [`Source::memory`] has read.
struct Memory<'a, 'b> {
    image: Image<'a, 'b>,
    /// The processes were asked to fork, or why not.
    asked: Option<std::result::Result<StandIns<'a>, String>>,
    /// What is to be read yet.
    private: Option<Found>,
    stand: Stand,
}

/// Whether a process has done this. Of memory advice: it may have told the kernel something about its memory that only the list shows which counts pages.
fn has_done(header: &[u8], what: Use) -> bool {
    word(header, offset_of!(Header, uses) + what as usize * size_of::<u64>()) != 0
}

fn refused<T>(process: &Process, what: impl std::fmt::Display) -> Result<T> {
    Err(refused_as(format!("process {} ({}) has {what}", process.pid, process.command)))
}

const fn refused_as(why: String) -> MemoryError {
    MemoryError::CannotHold(why)
}

/// An image that is being written.
struct Image<'a, 'b> {
    copied: Copied<'b>,
    /// The image before.
    before: Option<&'b Before>,
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
    /// So many runs are whole: the next page does not belong to the last of them.
    whole_runs: usize,
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
    /// Open files whose name is removed, though they have another one.
    renamed: Vec<Renamed>,
    /// The locks before are other processes'.
    first_lock: usize,
    ids: Option<Ids>,
    /// Whether processes may have told the kernel something by files of `/proc`,
    may_have_set: bool,
    /// and what it then has of each.
    own_settings: Vec<restore::Settings>,
    /// Names of files that an ordinary user's server can open.
    reached: BTreeSet<String>,
    /// Extended attributes of objects.
    attributes: Vec<(u32, Vec<u8>)>,
    /// Pages that stand-ins did without.
    spared: u64,
    /// What was done before for what processes share.
    ahead: objects::Ahead,
    /// Of the object with the most.
    most_shared: usize,
}

impl<'a, 'b> Image<'a, 'b> {
    fn new(
        init: u32,
        given: [BorrowedFd<'a>; 2],
        before: Option<&'b Before>,
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
            whole_runs: 0,
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
            renamed: Vec::new(),
            first_lock: 0,
            ids: None,
            may_have_set: false,
            own_settings: Vec::new(),
            reached: BTreeSet::new(),
            attributes: Vec::new(),
            spared: 0,
            ahead: objects::Ahead::default(),
            most_shared: 0,
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

    /// Pages in a row that are as they were before.
    fn known_pages(&mut self, address: u64, hashes: &'b [u128]) -> Result<()> {
        let at = self.copied.len();
        self.copied.all_known(hashes);
        self.ran(address, at);
        Ok(())
    }

    fn add(&mut self, address: u64, page: Page<'_>) -> Result<()> {
        let at = self.copied.len();
        match page {
            Page::Known(hash) => self.copied.known(hash, PAGE_BYTES as usize),
            Page::Here(bytes) => {
                self.copied.page(bytes).map_err(MemoryError::read("memory for an image"))?;
            }
        }
        self.ran(address, at);
        Ok(())
    }

    /// What was added since `at` belongs to this address.
    fn ran(&mut self, address: u64, at: u64) {
        let bytes = self.copied.len() - at;
        match self.runs[self.whole_runs..].last_mut() {
            Some(run) if run.address + run.bytes == address && run.at + run.bytes == at => {
                run.bytes += bytes;
            }
            _ => self.runs.push(Run { address, bytes, at }),
        }
    }

    /// The files that the arena knows by the kernel's numbers.
    fn note_files(&mut self, found: BTreeMap<FileId, Vec<u8>>, nowhere: Nowhere) {
        self.places.nowhere = nowhere;
        self.places.files = found.values().cloned().collect();
        for ((device, inode), path) in found {
            let path = self.bytes_name(&path);
            self.known.push(Known { was: [device, inode], path, is: [0; 2] });
        }
    }

    /// The pages of the arena's heap, whose runs come first.
    fn heap(&mut self, heap: &Heap) -> Result<()> {
        let others = std::mem::take(&mut self.runs);
        self.whole_runs = 0;
        let mut before = self.before.map(Before::heap);
        let mut root = Xxh3::new();
        let mut shared = [0; PAGE_BYTES as usize];
        for (at, page) in heap.pages.each() {
            shared.copy_from_slice(page);
            heap.owns.iter().for_each(|own| own.clear(&mut shared, at));
            if !is_zero(&shared) {
                root.update(&at.to_le_bytes());
                root.update(&shared);
            }
            self.compared(heap.address + at, page, before.as_mut())?;
        }
        self.places.heap_root = root.digest();
        [_, self.head.heap_runs] = self.since(0);
        for process in &mut self.processes {
            process.runs[0] += self.head.heap_runs;
        }
        self.runs.extend(others);
        self.whole_runs = self.runs.len();
        Ok(())
    }

    /// The end of a list of runs: the next page begins a new one.
    fn since(&mut self, first: usize) -> [u32; 2] {
        self.whole_runs = self.runs.len();
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
    ) -> Result<Taken<'b>> {
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
        if !self.own_settings.is_empty() {
            let own = std::mem::take(&mut self.own_settings);
            self.head.settings_at = self.bytes_name(bytes(&own)) + 1;
        }
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
        let Places { files, nowhere, heap_root, doubtful, kernels, .. } =
            std::mem::take(&mut self.places);
        let places = Places {
            files,
            nowhere,
            heap_root,
            doubtful,
            kernels,
            pids: processes.iter().map(|process| (process.pid, process.host_pid)).collect(),
            heap: runs([0, self.head.heap_runs]),
            processes: processes.iter().zip(&self.processes).map(of_process).collect(),
            objects: self.objects.iter().map(|object| runs(object.runs)).collect(),
        };
        let (processes, mappings) = (self.processes.len(), self.mappings.len());
        let (spared, shared) = (self.spared, self.most_shared);
        let (shared_before, shared_again) = (self.ahead.before, self.ahead.again);
        let figures =
            Figures { processes, mappings, pages, spared, shared, shared_before, shared_again };
        Ok(Taken { copied: self.copied, figures, places, rewritten })
    }
}

/// The part of a table from `first` to `end`.
fn part(first: usize, end: usize) -> [u32; 2] {
    [first as u32, (end - first) as u32]
}

/// The rest of the line that begins so.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
}

fn bytes<T: Copy>(of: &[T]) -> &[u8] {
    // SAFETY: the tables' records are words without padding between or behind them.
    unsafe { std::slice::from_raw_parts(of.as_ptr().cast(), size_of_val(of)) }
}
