//! A process's mappings, from `/proc/PID/smaps`; or from `/proc/PID/maps`, which does not count all pages, when nothing else is to be known.

use crate::proc;
use crate::processes::Process;
use crate::{MemoryError, Result};
use skein_arena::layout::{RUNTIME_END, SERVER_BASE};
use skein_arena::restore::{SHARED_SHOWN, SHARED_WAS};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most mappings of one process; Linux allows 65,530 by default.
const MAX_MAPPINGS: usize = 256 << 10;
/// Mappings of huge pages begin and end at multiples of this.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// The begins of names of memory that processes share, and that was never a file's with a path.
pub(crate) const MEMORY: [&str; 4] = [MEMFD, "/dev/zero", "/SYSV", "[anon_shmem:"];
/// The begin of a memory file's name.
pub(crate) const MEMFD: &str = "/memfd:";
/// The kernel's name for the memory that `brk` gives.
pub(crate) const HEAP: &str = "[heap]";
/// The name of the kernel's code in a process.
pub(crate) const VDSO: &str = "[vdso]";
/// The name of memory that the kernel gives none.
const ANONYMOUS: &str = "anonymous";
/// The most bytes of a line.
const MAX_LINE_BYTES: u64 = 16 << 10;

/// Device and inode number.
pub(crate) type FileId = (u64, u64);

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// As in the file: `rw-p`.
    pub permissions: String,
    /// Its offset in the file.
    pub offset: u64,
    /// The file's device and inode number; zeros for anonymous memory.
    pub file: (u64, u64),
    /// The file's path, or the kernel's name; `anonymous` where there is none.
    pub name: String,
    /// Whether the process has pages of it, in memory or swapped out: servers reserve terabytes that they never use.
    pub is_used: bool,
    /// The kernel's flags: words of two letters.
    pub flags: String,
    /// Its protection key.
    pub key: u32,
}

impl Mapping {
    /// Whether processes may have it in common.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.permissions.as_bytes().get(3) == Some(&b's')
    }

    /// Whether the kernel has set this flag.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|word| word == flag)
    }

    /// Whether a fork does not copy it.
    #[must_use]
    pub fn is_unforked(&self) -> bool {
        self.has("dc") || self.has("wf")
    }

    /// Whether it may have huge pages, if its file has.
    pub(crate) const fn may_be_huge(&self) -> bool {
        (self.start | self.end).is_multiple_of(HUGE_PAGE_BYTES)
    }

    /// Whether it maps a file that has a path: unwritten pages of it are the file's.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        self.file.1 != 0
    }

    /// Whether it is memory that never was a file's, whose only descriptors are the kernel's.
    pub(crate) fn is_of_nobody(&self) -> bool {
        self.name == SHARED_WAS || self.name.starts_with("[anon_shmem:")
    }

    /// Whether its content is compared: not the kernel's own pages, nor shared read-only memory, which is a file's.
    #[must_use]
    pub fn counts(&self) -> bool {
        let kernels = [VDSO, "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]"];
        let reads_a_file = self.is_shared()
            && !self.permissions.contains('w')
            && !["/memfd:", "/dev/zero", "/SYSV", "/dev/shm/"]
                .iter()
                .any(|start| self.name.starts_with(start));
        !kernels.contains(&self.name.as_str()) && !reads_a_file
    }
}

/// The mappings of a process, by address, without those of the runtime.
///
/// # Errors
/// They cannot be read.
pub fn of(host_pid: u32, arena: &File) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{host_pid}/smaps");
    let failed = |error| MemoryError::Read { what: path.clone(), error };
    let arena = arena.metadata().map_err(failed)?;
    let arena = (arena.dev(), arena.ino());
    select(host_pid, |mapping| {
        let own = mapping.start >= SERVER_BASE as u64 && mapping.end <= RUNTIME_END as u64;
        !own && mapping.file != arena
    })
}

/// The mappings of a process that are `wanted`, by address.
///
/// # Errors
/// They cannot be read.
pub fn select(host_pid: u32, wanted: impl Fn(&Mapping) -> bool) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{host_pid}/smaps");
    let failed = |error| MemoryError::Read { what: path.clone(), error };
    let mut reader = BufReader::new(File::open(&path).map_err(failed)?);
    let mut found: Vec<Mapping> = Vec::new();
    let mut line = Vec::new();
    let mut counts = false;
    loop {
        line.clear();
        reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(failed)?;
        if line.is_empty() {
            return Ok(found);
        }
        let text = String::from_utf8_lossy(&line);
        let wrong =
            || std::io::Error::other(format!("a line is not understood: {}", text.trim_end()));
        if let Some((name, value)) = detail(&text) {
            if let Some(last) = found.last_mut().filter(|_| counts) {
                let value = value.trim_end();
                match name {
                    "Rss" | "Swap" => last.is_used |= !value.starts_with("0 "),
                    "VmFlags" => value.clone_into(&mut last.flags),
                    "ProtectionKey" => last.key = value.parse().unwrap_or(0),
                    _ => {}
                }
            }
            continue;
        }
        let mapping = parse(text.trim_end_matches('\n')).ok_or_else(wrong).map_err(failed)?;
        counts = wanted(&mapping);
        if counts {
            found.push(mapping);
        }
        if found.len() > MAX_MAPPINGS {
            return Err(MemoryError::TooMuch("262,144 mappings in a process"));
        }
    }
}

/// The mappings of a process that are `wanted`, by address, as [`select`] answers them, but for those that it does not use: it may use any of these. Only for a process
/// that has told the kernel nothing about its memory that the kernel shows in `smaps` alone. `None`: one of them may have huge pages.
///
/// # Errors
/// They cannot be read.
pub(crate) fn plain(
    host_pid: u32,
    wanted: impl Fn(&Mapping) -> bool,
) -> Result<Option<Vec<Mapping>>> {
    let path = format!("/proc/{host_pid}/maps");
    let failed = |error| MemoryError::Read { what: path.clone(), error };
    let text = proc::read(&path).map_err(failed)?;
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let wrong = || std::io::Error::other(format!("a line is not understood: {line}"));
        let mut mapping = parse(line).ok_or_else(wrong).map_err(failed)?;
        if !wanted(&mapping) {
            continue;
        }
        if mapping.is_of_file() && mapping.may_be_huge() {
            return Ok(None);
        }
        mapping.is_used = true;
        if mapping.name == "[stack]" {
            mapping.flags = "gd".to_owned();
        } else if mapping.is_shared() && may_be_written(host_pid, &mapping) {
            mapping.flags = "mw".to_owned();
        }
        found.push(mapping);
        if found.len() > MAX_MAPPINGS {
            return Err(MemoryError::TooMuch("262,144 mappings in a process"));
        }
    }
    Ok(Some(found))
}

/// Device and inode numbers by the first address of each mapping of a file.
pub(crate) fn numbers(host_pid: u32) -> Result<HashMap<u64, (u64, u64)>> {
    let path = format!("/proc/{host_pid}/maps");
    let text = proc::read(&path).map_err(MemoryError::read(path))?;
    let all = String::from_utf8_lossy(&text);
    let mappings = all.lines().filter_map(parse).filter(Mapping::is_of_file);
    Ok(mappings.map(|mapping| (mapping.start, mapping.file)).collect())
}

/// The memory behind a shared mapping as a file, which tells what of it was ever written: what is read through a mapping is there from then on. The kernel gives that to root only. `None`,
/// too, where it is a file with a path.
#[must_use]
pub fn open_memory(process: &Process, mapping: &Mapping) -> Option<File> {
    let is_memory = MEMORY.iter().any(|start| mapping.name.starts_with(start));
    if !is_memory {
        return None;
    }
    let Mapping { start, end, .. } = mapping;
    let all = PathBuf::from(format!("/proc/{}/map_files", process.host_pid));
    let exact = all.join(format!("{start:x}-{end:x}"));
    if fs::symlink_metadata(&exact).is_ok() {
        return unnoticed(&exact).ok();
    }
    // Mappings that are looked at together have no such name: the first of them has.
    let begin = format!("{start:x}-");
    let mut names = fs::read_dir(all).ok()?.flatten().map(|entry| entry.path());
    let is_first = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.as_bytes().starts_with(begin.as_bytes()))
    };
    unnoticed(names.find(is_first)?).ok()
}

/// Opens a file whose time of access stays as it is when it is read, where that is allowed.
pub(crate) fn unnoticed(path: impl AsRef<Path>) -> std::io::Result<File> {
    let quiet = File::options().read(true).custom_flags(libc::O_NOATIME).open(&path);
    quiet.or_else(|_| File::open(path))
}

/// Whether a shared mapping is of a file that is open for writing: the process may allow itself to write.
fn may_be_written(host_pid: u32, mapping: &Mapping) -> bool {
    let Mapping { start, end, .. } = mapping;
    let file = || fs::symlink_metadata(format!("/proc/{host_pid}/map_files/{start:x}-{end:x}"));
    mapping.permissions.contains('w') || file().is_ok_and(|file| file.mode() & 0o200 != 0)
}

/// `Name:   value`: one of the lines that follow a mapping's own.
fn detail(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    (!name.contains(' ')).then(|| (name, value.trim_start()))
}

/// `start-end permissions offset major:minor inode   path`
pub(crate) fn parse(line: &str) -> Option<Mapping> {
    let (head, name) = {
        let mut spaces = line.char_indices().filter(|(_, c)| *c == ' ');
        match spaces.nth(4) {
            Some((at, _)) => (&line[..at], line[at..].trim_start_matches(' ')),
            None => (line, ""),
        }
    };
    let mut words = head.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?.to_owned();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = nix::sys::stat::makedev(hex(major)?, hex(minor)?);
    let inode = words.next()?.parse().ok()?;
    let (start, end) = (hex(start)?, hex(end)?);
    let name = match name {
        "" => ANONYMOUS,
        SHARED_SHOWN => SHARED_WAS,
        name => name,
    };
    (start < end && permissions.len() == 4).then(|| Mapping {
        start,
        end,
        permissions,
        offset,
        file: (device, inode),
        name: name.to_owned(),
        is_used: false,
        flags: String::new(),
        key: 0,
    })
}

/// Joins equal neighbours: whether the kernel keeps them apart depends on its history. So does whether a program's zeroed data, which end where the heap begins, are named as
/// the heap: they are, if both are one mapping.
#[must_use]
pub fn join(mappings: &[Mapping]) -> Vec<Mapping> {
    let mut joined: Vec<Mapping> = Vec::new();
    for next in mappings {
        match joined.last_mut() {
            Some(last)
                if last.end == next.start
                    && last.permissions == next.permissions
                    && last.file == next.file
                    && (last.name == next.name || may_be_heap(last) && may_be_heap(next))
                    && (!next.is_of_file()
                        || last.offset + (last.end - last.start) == next.offset) =>
            {
                last.end = next.end;
                last.is_used |= next.is_used;
                if next.name == HEAP {
                    HEAP.clone_into(&mut last.name);
                }
            }
            _ => joined.push(next.clone()),
        }
    }
    joined
}

fn may_be_heap(mapping: &Mapping) -> bool {
    mapping.name == HEAP || mapping.name == ANONYMOUS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "7f0000000000-7f0000021000 rw-p 00003000 fd:01 1234                       /a path/with  spaces (deleted)";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f00_0000_0000, 0x7f00_0002_1000));
        assert_eq!((mapping.offset, mapping.file.1), (0x3000, 1234));
        assert_eq!(mapping.name, "/a path/with  spaces (deleted)");
        assert!(!mapping.is_shared() && mapping.is_of_file());
        let plain = parse("1000-2000 rw-s 00000000 00:00 0 ").unwrap();
        assert!(plain.is_shared() && !plain.is_of_file() && plain.name == "anonymous");
        assert_eq!(parse("1000-2000 rw-s 00000000 00:00 0").unwrap().name, "anonymous");
        let restored = "1000-2000 rw-s 00000000 00:01 9    /memfd:skein-shared (deleted)";
        assert_eq!(parse(restored).unwrap().name, "/dev/zero (deleted)");
        for wrong in
            ["", "1000", "2000-1000 rw-p 0 0:0 0", "1000-2000 rw-p 0 0:0", "x-y rw-p 0 0:0 0"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn neighbours_that_are_alike_are_one() {
        let lines = [
            "1000-2000 rw-p 00000000 00:00 0 ",
            "2000-3000 rw-p 00000000 00:00 0 ",
            "3000-4000 r--p 00000000 00:00 0 ",
            "4000-5000 r--p 00001000 08:01 7 /f",
            "5000-6000 r--p 00002000 08:01 7 /f",
            "6000-7000 r--p 00001000 08:01 7 /f",
        ];
        let mappings: Vec<_> = lines.iter().map(|line| parse(line).unwrap()).collect();
        let joined: Vec<_> = join(&mappings).iter().map(|m| (m.start, m.end)).collect();
        assert_eq!(
            joined,
            [(0x1000, 0x3000), (0x3000, 0x4000), (0x4000, 0x6000), (0x6000, 0x7000)]
        );
    }

    #[test]
    fn zeroed_data_below_the_heap_are_the_heap_whether_the_kernel_joined_them_or_not() {
        let read = |lines: &[&str]| -> Vec<_> {
            join(&lines.iter().map(|line| parse(line).unwrap()).collect::<Vec<_>>())
        };
        let one = read(&["1000-9000 rw-p 00000000 00:00 0    [heap]"]);
        let apart =
            ["1000-3000 rw-p 00000000 00:00 0 ", "3000-9000 rw-p 00000000 00:00 0    [heap]"];
        assert_eq!(read(&apart), one);
        let not_below =
            ["1000-2000 rw-p 00000000 00:00 0 ", "3000-9000 rw-p 00000000 00:00 0    [heap]"];
        assert_eq!(read(&not_below).len(), 2);
    }

    #[test]
    fn the_kernels_pages_and_shared_files_that_are_only_read_do_not_count() {
        let counts = |line: &str| parse(line).unwrap().counts();
        assert!(!counts("1000-2000 r--p 00000000 00:00 0 [vvar]"));
        assert!(!counts("1000-2000 r--s 00000000 08:01 7 /usr/lib/gconv.cache"));
        assert!(counts("1000-2000 rw-s 00000000 08:01 7 /data"));
        assert!(counts("1000-2000 r--s 00000000 00:01 7 /memfd:x (deleted)"));
        assert!(counts("1000-2000 r--p 00000000 08:01 7 /usr/lib/libc.so.6"));
    }
}
