//! Takes an image of a server that stands at an admission, as the file that its runtime continues from ([`skein_arena::restore`]).
//!
//! All threads are inside the runtime, their contexts in memory, and all processes sleep: so memory, descriptors and the arena's heap are everything.
//! What an image cannot hold is refused by name; the server stays as it is.

use crate::files::Files;
use crate::maps::{self, Mapping};
use crate::pages::{PAGE_BYTES, Pages, is_zero};
use crate::processes::{self, Process};
use crate::{MemoryError, Result};
use nix::unistd::{Whence, lseek64};
use skein_arena::Sizes;
use skein_arena::layout::{
    ARENA_FD, HEADER_BYTES, LIBRARY_AT, RESTORE_FD, RUNTIME_BITS, RUNTIME_PLACE, SERVER_BASE,
};
use skein_arena::restore::{
    self, Description, Descriptor, ERRORS, Head, Known, OUTPUT, Object, PLACEHOLDER, Run, kind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Error;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Instant;

/// From the arena to the runtime's library: nothing there is the server's.
const OWN: std::ops::Range<u64> = SERVER_BASE as u64..LIBRARY_AT as u64;
/// `kcmp`: whether two descriptors share an open file.
const KCMP_FILE: libc::c_int = 0;

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
}

impl Source<'_> {
    /// Writes an image into an empty file.
    ///
    /// # Errors
    /// The server has what an image cannot hold; it does not stand; or a file cannot be read or written, or not until `deadline`.
    pub fn take(&self, file: &File, deadline: Instant) -> Result<Figures> {
        let processes = processes::below(self.init)?;
        for process in &processes {
            await_sleep(process, deadline)?;
        }
        let mut image = Image::new(file, self.given);
        self.heap(&mut image)?;
        image.head.heap_runs = image.runs.len() as u32;
        let arena = self.arena.metadata().map_err(MemoryError::read("the arena"))?;
        for process in &processes {
            image.process(process, &processes[0], (arena.dev(), arena.ino()), deadline)?;
        }
        image.objects(&processes, deadline)?;
        self.files(&mut image, deadline)?;
        let mut header = vec![0; HEADER_BYTES];
        self.arena.read_exact_at(&mut header, 0).map_err(MemoryError::read("the arena"))?;
        image.finish(&header)
    }

    /// The files that the arena knows by the kernel's numbers.
    fn files(&self, image: &mut Image<'_>, deadline: Instant) -> Result<()> {
        let heap = (self.sizes.file_bytes() - self.sizes.heap) as u64;
        let mut files = Files::new(self.root, self.arena, heap, deadline)?;
        for path in image.names.split(|byte| *byte == 0) {
            files.note_used(path)?;
        }
        for path in self.paths {
            files.note(path.as_os_str().as_bytes())?;
        }
        for ((device, inode), path) in files.finish()? {
            let path = image.bytes_name(&path);
            image.known.push(Known { was: [device, inode], path, is: [0; 2] });
        }
        Ok(())
    }

    /// The pages of the arena's heap.
    fn heap(&self, image: &mut Image<'_>) -> Result<()> {
        let failed = |error: std::io::Error| MemoryError::Read { what: "the arena".into(), error };
        let begin = (self.sizes.file_bytes() - self.sizes.heap) as u64;
        let address = (SERVER_BASE + self.sizes.span_bytes() - self.sizes.heap) as u64;
        let mut page = [0; PAGE_BYTES as usize];
        let mut at = begin;
        loop {
            let seek = |at: u64, whence| match lseek64(self.arena.as_fd(), at.cast_signed(), whence)
            {
                Ok(found) => Ok(Some(found.cast_unsigned())),
                Err(nix::Error::ENXIO) => Ok(None),
                Err(error) => Err(failed(error.into())),
            };
            let Some(data) = seek(at, Whence::SeekData)? else { return Ok(()) };
            let Some(end) = seek(data, Whence::SeekHole)? else { return Ok(()) };
            for offset in (data..end).step_by(page.len()) {
                self.arena.read_exact_at(&mut page, offset).map_err(failed)?;
                if !is_zero(&page) {
                    image.page(address + (offset - begin), &page)?;
                }
            }
            at = end;
        }
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

/// Memory that processes share.
struct Shared {
    /// Its number here.
    number: usize,
    /// Its mappings, with the number of their process.
    places: Vec<(u32, Mapping)>,
}

/// A descriptor of an open file.
struct Opened {
    host_pid: u32,
    fd: i32,
    description: u32,
}

/// An image that is being written.
struct Image<'a> {
    file: &'a File,
    given: [BorrowedFd<'a>; 2],
    /// Where the next page goes.
    at: u64,
    head: Head,
    processes: Vec<restore::Process>,
    objects: Vec<Object>,
    descriptions: Vec<Description>,
    mappings: Vec<restore::Mapping>,
    runs: Vec<Run>,
    descriptors: Vec<Descriptor>,
    names: Vec<u8>,
    known: Vec<Known>,
    shared: BTreeMap<FileId, Shared>,
    /// Of each open file a descriptor.
    open: BTreeMap<FileId, Vec<Opened>>,
}

impl<'a> Image<'a> {
    fn new(file: &'a File, given: [BorrowedFd<'a>; 2]) -> Self {
        Self {
            file,
            given,
            at: PAGE_BYTES,
            head: Head { magic: restore::MAGIC, ..Head::default() },
            processes: Vec::new(),
            objects: Vec::new(),
            descriptions: Vec::new(),
            mappings: Vec::new(),
            runs: Vec::new(),
            descriptors: Vec::new(),
            names: Vec::new(),
            known: Vec::new(),
            shared: BTreeMap::new(),
            open: BTreeMap::new(),
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

    fn write(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.at;
        self.file.write_all_at(bytes, at).map_err(MemoryError::read("the image"))?;
        self.at += bytes.len() as u64;
        Ok(at)
    }

    fn page(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let at = self.write(bytes)?;
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

    fn process(
        &mut self,
        process: &Process,
        root: &Process,
        arena: (u64, u64),
        deadline: Instant,
    ) -> Result<()> {
        let of = |process: &Process, name: &str| format!("/proc/{}/{name}", process.host_pid);
        let link = |path: String| fs::read_link(&path).map_err(MemoryError::read(path));
        if link(of(process, "exe"))? != link(of(root, "exe"))? {
            return refused(process, "executed another program");
        }
        let path = of(process, "status");
        let status = fs::read_to_string(&path).map_err(MemoryError::read(path))?;
        let path = of(root, "status");
        let roots = fs::read_to_string(&path).map_err(MemoryError::read(path))?;
        for name in ["Uid:", "Gid:", "Groups:"] {
            if field(&status, name) != field(&roots, name) {
                return refused(process, "another user or group than the first process");
            }
        }
        let directory = link(of(process, "cwd"))?.to_string_lossy().into_owned();
        let umask = u32::from_str_radix(field(&status, "Umask:"), 8).unwrap_or(0o22);
        let directory = self.name(&directory);
        let mut found =
            restore::Process { pid: process.pid, umask, directory, ..restore::Process::default() };
        let (first_mapping, first_run) = (self.mappings.len(), self.runs.len());
        let pages = Pages::of(process)?;
        let mappings = maps::select(process.host_pid, |m| {
            !OWN.contains(&m.start) && m.file != arena && m.name != "[vsyscall]"
        })?;
        for mapping in mappings {
            let kind = self.kind(process, &mapping)?;
            if kind == kind::HEAP {
                found.brk = mapping.end;
            }
            let of = match kind {
                kind::SHARED => {
                    let number = self.shared.len();
                    let shared = self.shared.entry(mapping.file);
                    let shared = shared.or_insert(Shared { number, places: Vec::new() });
                    shared.places.push((process.pid, mapping.clone()));
                    shared.number as u64
                }
                _ => self.name(&mapping.name),
            };
            if !matches!(kind, kind::SHARED | kind::SHARED_FILE) && !mapping.name.starts_with("[v")
            {
                pages.private(&mapping, deadline, |address, page| self.page(address, page))?;
            }
            let Mapping { start, end, offset, .. } = mapping;
            let protection = protection(&mapping.permissions);
            self.mappings.push(restore::Mapping { start, end, offset, of, kind, protection });
        }
        found.mappings = [first_mapping as u32, (self.mappings.len() - first_mapping) as u32];
        found.runs = self.since(first_run);
        let first = self.descriptors.len();
        self.descriptors(process)?;
        found.descriptors = [first as u32, (self.descriptors.len() - first) as u32];
        self.processes.push(found);
        Ok(())
    }

    fn kind(&self, process: &Process, mapping: &Mapping) -> Result<u32> {
        let name = mapping.name.as_str();
        Ok(match name {
            "[stack]" => kind::STACK,
            "[heap]" => kind::HEAP,
            "[vdso]" | "[vvar]" | "[vvar_vclock]" => kind::STAYS,
            _ if mapping.start >> RUNTIME_BITS == RUNTIME_PLACE as u64 && mapping.is_of_file() => {
                kind::STAYS
            }
            _ if !mapping.is_shared() && mapping.is_of_file() && name.ends_with(" (deleted)") => {
                return refused(process, format!("a mapping of the removed file {name}"));
            }
            _ if !mapping.is_shared() && mapping.is_of_file() => kind::FILE,
            _ if !mapping.is_shared() => kind::ANONYMOUS,
            _ if name.starts_with("/dev/zero") || name.starts_with("/memfd:") => kind::SHARED,
            _ if mapping.counts() => {
                return refused(process, format!("a shared mapping of {name}"));
            }
            _ => kind::SHARED_FILE,
        })
    }

    fn descriptors(&mut self, process: &Process) -> Result<()> {
        let path = format!("/proc/{}/fd", process.host_pid);
        let mut fds: Vec<i32> = fs::read_dir(&path)
            .map_err(MemoryError::read(&*path))?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|fd| !(ARENA_FD..RESTORE_FD).contains(fd))
            .collect();
        fds.sort_unstable();
        // There the runtime keeps what it restores from.
        if let Some(fd) = fds.last().filter(|fd| **fd >= RESTORE_FD) {
            return refused(process, format!("descriptor {fd}, which is above {}", RESTORE_FD - 1));
        }
        for fd in fds {
            let path = format!("/proc/{}/fd/{fd}", process.host_pid);
            let name = fs::read_link(&path).map_err(MemoryError::read(&*path))?;
            let name = name.to_string_lossy().into_owned();
            let path = format!("/proc/{}/fdinfo/{fd}", process.host_pid);
            let info = fs::read_to_string(&path).map_err(MemoryError::read(&*path))?;
            let flags = i32::from_str_radix(field(&info, "flags:"), 8).unwrap_or(0);
            let own = flags & libc::O_CLOEXEC;
            if flags & libc::O_PATH != 0 && name == "/dev/null" {
                self.descriptors.push(Descriptor { fd, description: PLACEHOLDER, flags: own });
                continue;
            }
            let own_file = |given: &BorrowedFd<'_>| (std::process::id(), given.as_raw_fd());
            let is_given = |given: &BorrowedFd<'_>| {
                same_open_file((process.host_pid, fd), own_file(given)) == Some(true)
            };
            if let Some(n) = self.given.iter().position(is_given) {
                let description = [OUTPUT, ERRORS][n];
                self.descriptors.push(Descriptor { fd, description, flags: own });
                continue;
            }
            if info.contains("lock:") {
                return refused(process, format!("a lock of the file {name}"));
            }
            if !name.starts_with('/') || name.ends_with(" (deleted)") || name.starts_with("/memfd:")
            {
                return refused(process, format!("descriptor {fd}, which is {name}"));
            }
            let description =
                self.description(process, fd, &name, flags & !libc::O_CLOEXEC, &info)?;
            self.descriptors.push(Descriptor { fd, description, flags: own });
        }
        Ok(())
    }

    /// The number of a descriptor's open file.
    fn description(
        &mut self,
        process: &Process,
        fd: i32,
        name: &str,
        flags: i32,
        info: &str,
    ) -> Result<u32> {
        let path = format!("/proc/{}/fd/{fd}", process.host_pid);
        let file = fs::metadata(&path).map_err(MemoryError::read(path))?;
        let others = self.open.entry((file.dev(), file.ino())).or_default();
        for other in others.iter() {
            match same_open_file((process.host_pid, fd), (other.host_pid, other.fd)) {
                Some(true) => return Ok(other.description),
                Some(false) => {}
                None => {
                    return refused(process, format!("{name} open twice, and there is no kcmp"));
                }
            }
        }
        let description = self.descriptions.len() as u32;
        others.push(Opened { host_pid: process.host_pid, fd, description });
        let position = field(info, "pos:").parse().unwrap_or(0);
        let name = self.name(name);
        self.descriptions.push(Description { name, position, flags, unused: 0 });
        Ok(description)
    }

    /// The pages of shared memory, through the mappings of it.
    fn objects(&mut self, processes: &[Process], deadline: Instant) -> Result<()> {
        let mut shared: Vec<_> = std::mem::take(&mut self.shared).into_values().collect();
        shared.sort_by_key(|shared| shared.number);
        for Shared { places, .. } in shared {
            let first = self.runs.len();
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
            let runs = self.since(first);
            self.objects.push(Object { bytes, runs });
        }
        Ok(())
    }

    fn finish(mut self, header: &[u8]) -> Result<Figures> {
        let pages = (self.at - PAGE_BYTES) / PAGE_BYTES;
        self.head.header_at = self.write(header)?;
        self.head.tables_at = self.at;
        self.head.processes = self.processes.len() as u32;
        self.head.objects = self.objects.len() as u32;
        self.head.descriptions = self.descriptions.len() as u32;
        self.head.mappings = self.mappings.len() as u32;
        self.head.runs = self.runs.len() as u32;
        self.head.descriptors = self.descriptors.len() as u32;
        self.head.files = self.known.len() as u32;
        let tables = [
            bytes(&self.known),
            bytes(&self.processes),
            bytes(&self.objects),
            bytes(&self.descriptions),
            bytes(&self.mappings),
            bytes(&self.runs),
            bytes(&self.descriptors),
            &self.names,
        ]
        .concat();
        self.head.tables_bytes = tables.len() as u64;
        self.head.names_at = (tables.len() - self.names.len()) as u64;
        self.write(&tables)?;
        self.file
            .write_all_at(bytes(std::slice::from_ref(&self.head)), 0)
            .map_err(MemoryError::read("the image"))?;
        let (processes, mappings) = (self.processes.len(), self.mappings.len());
        Ok(Figures { processes, mappings, pages })
    }
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

/// Whether two descriptors share an open file; `None` when the kernel cannot tell.
fn same_open_file(one: (u32, i32), other: (u32, i32)) -> Option<bool> {
    // SAFETY: numbers only.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            one.0,
            other.0,
            KCMP_FILE,
            i64::from(one.1),
            i64::from(other.1),
        )
    };
    (order >= 0).then_some(order == 0)
}

fn bytes<T: Copy>(of: &[T]) -> &[u8] {
    // SAFETY: the tables' records are words without padding between or behind them.
    unsafe { std::slice::from_raw_parts(of.as_ptr().cast(), size_of_val(of)) }
}
