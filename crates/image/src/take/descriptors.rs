//! Descriptors of the kernel's, the open files that they name, and the locks of these.

use super::objects::{Removed, mapped_id};
use super::renamed::Renamed;
use super::{FileId, Image, field, refused};
use crate::maps::{MEMFD, unnoticed};
use crate::proc;
use crate::processes::Process;
use crate::{MemoryError, Result};
use nix::unistd::geteuid;
use skein_arena::layout::{ARENA_FD, RESTORE_FD};
use skein_arena::restore::{Description, Descriptor, ERRORS, Lock, OUTPUT, PLACEHOLDER, lock};
use std::cmp::Ordering;
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::LazyLock;

/// `kcmp`: whether two descriptors share an open file.
const KCMP_FILE: libc::c_int = 0;

/// A descriptor of an open file.
pub(super) struct Opened {
    host_pid: u32,
    fd: i32,
    description: u32,
}

/// A descriptor, and what the kernel tells about it.
pub(crate) struct Found<'a> {
    process: &'a Process,
    pub(crate) fd: i32,
    /// Its file's name.
    pub(crate) name: String,
    /// `fdinfo`.
    info: String,
    pub(crate) flags: i32,
}

impl<'a> Found<'a> {
    pub(crate) fn of(process: &'a Process, fd: i32) -> Result<Self> {
        let path = format!("/proc/{}/fd/{fd}", process.host_pid);
        let name = fs::read_link(&path).map_err(MemoryError::read(&*path))?;
        let name = name.to_string_lossy().into_owned();
        let path = format!("/proc/{}/fdinfo/{fd}", process.host_pid);
        let info = proc::text(&path).map_err(MemoryError::read(&*path))?;
        let flags = i32::from_str_radix(field(&info, "flags:"), 8).unwrap_or(0);
        Ok(Self { process, fd, name, info, flags })
    }

    /// As which the kernel knows it.
    pub(crate) const fn number(&self) -> Number {
        (self.process.host_pid, self.fd)
    }

    /// Whether it only keeps a number for a descriptor of the runtime's.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.flags & libc::O_PATH != 0 && self.name == "/dev/null"
    }

    /// The one of these whose open file it shares.
    pub(crate) fn given(&self, given: &[BorrowedFd<'_>]) -> Option<usize> {
        let is_given = |given: &BorrowedFd<'_>| {
            same_open_file(self.number(), (std::process::id(), given.as_raw_fd())) == Some(true)
        };
        let again = || {
            // By `/dev/stdout`, for example: what is written there is printed, too.
            let own = fs::metadata(self.path()).ok().filter(|_| self.name.starts_with(MEMFD))?;
            let is_it = |given: &BorrowedFd<'_>| {
                fs::metadata(format!("/proc/self/fd/{}", given.as_raw_fd()))
                    .is_ok_and(|file| (file.dev(), file.ino()) == (own.dev(), own.ino()))
            };
            given.iter().position(is_it)
        };
        given.iter().position(is_given).or_else(again)
    }

    pub(crate) fn position(&self) -> u64 {
        field(&self.info, "pos:").parse().unwrap_or(0)
    }

    /// The locks that the kernel shows, in its words.
    pub(crate) fn locks(&self) -> impl Iterator<Item = &str> {
        self.info.lines().filter_map(|line| line.strip_prefix("lock:"))
    }

    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", self.process.host_pid, self.fd)
    }
}

/// The numbers of a process's descriptors, but for the runtime's own.
pub(crate) fn numbers(process: &Process) -> Result<Vec<i32>> {
    let path = format!("/proc/{}/fd", process.host_pid);
    let mut fds: Vec<i32> = fs::read_dir(&path)
        .map_err(MemoryError::read(&*path))?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| !(ARENA_FD..RESTORE_FD).contains(fd))
        .collect();
    fds.sort_unstable();
    Ok(fds)
}

impl Image<'_, '_> {
    /// The descriptors of a process, and its locks.
    pub(super) fn descriptors(&mut self, process: &Process) -> Result<()> {
        let fds = numbers(process)?;
        self.head.last_fd = self.head.last_fd.max(fds.last().copied().unwrap_or(0));
        for fd in fds {
            let (description, flags) = self.open_file(process, fd)?;
            self.descriptors.push(Descriptor { fd, description, flags: flags & libc::O_CLOEXEC });
        }
        Ok(())
    }

    /// The number of a descriptor's open file, whose locks are noted, and its flags.
    pub(super) fn open_file(&mut self, process: &Process, fd: i32) -> Result<(u32, i32)> {
        let found = Found::of(process, fd)?;
        let flags = found.flags;
        let description = self.of_descriptor(&found)?;
        self.locks(&found, description)?;
        Ok((description, flags))
    }

    /// The number of a descriptor's open file.
    fn of_descriptor(&mut self, found: &Found<'_>) -> Result<u32> {
        let own = found.number();
        if found.is_placeholder() {
            return Ok(PLACEHOLDER);
        }
        if let Some(n) = found.given(&self.given) {
            return Ok([OUTPUT, ERRORS][n]);
        }
        let Found { process, fd, name, .. } = found;
        // The processes are not there when their files would be opened again.
        let is_about_process = name
            .strip_prefix("/proc/")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if !name.starts_with('/') || is_about_process {
            return refused(process, format!("descriptor {fd}, which is {name}"));
        }
        let path = found.path();
        let file = fs::metadata(&path).map_err(MemoryError::read(path))?;
        let id = (file.dev(), file.ino());
        let others = self.open.get(&id).map_or(&[][..], |others| others);
        match place_among(others, own, |other| (other.host_pid, other.fd)) {
            Some(Ok(n)) => Ok(others[n].description),
            Some(Err(place)) => self.description(found, (id, place), &file),
            None => refused(process, format!("{name} open twice, and there is no kcmp")),
        }
    }

    /// Whether a file cannot be opened by its name any more: a directory of an ordinary user's server is closed to that.
    pub(super) fn is_closed(&mut self, name: &str) -> bool {
        static IS_ROOT: LazyLock<bool> = LazyLock::new(|| geteuid().is_root());
        if *IS_ROOT || self.reached.contains(name) {
            return false;
        }
        let leads_to = |name: &str| fs::symlink_metadata(format!("/proc/{}/root{name}", self.init));
        let is_denied = |error: Error| error.kind() == ErrorKind::PermissionDenied;
        let is_closed = leads_to(name).is_err_and(is_denied) && leads_to("/").is_ok();
        if !is_closed {
            self.reached.insert(name.to_owned());
        }
        is_closed
    }

    /// An open file that was not met before.
    fn description(
        &mut self,
        found: &Found<'_>,
        (id, place): (FileId, usize),
        file: &fs::Metadata,
    ) -> Result<u32> {
        let Found { process, fd, name, flags, .. } = found;
        let removed = Removed::of(name, file, *flags);
        let object = match removed {
            None if self.is_closed(name) => {
                let what = format!("descriptor {fd}, {name}, in a directory that it has closed");
                return refused(process, what);
            }
            None => 0,
            Some(_)
                if file.is_dir() || file.file_type().is_socket() || file.file_type().is_fifo() =>
            {
                return refused(process, format!("descriptor {fd}, which is {name}"));
            }
            Some(_) if file.nlink() > 0 => {
                let path = found.path();
                let mapped = mapped_id(&unnoticed(&path).map_err(MemoryError::read(path))?)?;
                let (description, pid) = (self.descriptions.len(), process.pid);
                self.renamed.push(Renamed { description, id, mapped, pid, fd: *fd });
                0
            }
            Some(removed) => self.removed(process, &found.path(), removed, file)? + 1,
        };
        let description = self.descriptions.len() as u32;
        let opened = Opened { host_pid: process.host_pid, fd: *fd, description };
        self.open.entry(id).or_default().insert(place, opened);
        let position = found.position();
        let name = self.name(name);
        let flags = flags & !libc::O_CLOEXEC;
        self.descriptions.push(Description { name, position, flags, object });
        Ok(description)
    }

    /// The locks that the kernel shows at a descriptor.
    fn locks(&mut self, found: &Found<'_>, description: u32) -> Result<()> {
        for line in found.locks() {
            let Some(lock) = parse_lock(line, found.fd, description) else {
                let what =
                    format!("a lock of the file {} that is not understood: {line}", found.name);
                return refused(found.process, what);
            };
            // It is shown at each descriptor of the file: of this process, and of all processes where the open file has it.
            let same = |other: &Lock| {
                let owner = other.kind == lock.kind && other.description == description;
                owner && (other.start, other.last) == (lock.start, lock.last)
            };
            let first = if lock.kind == lock::PROCESS { self.first_lock } else { 0 };
            if !self.locks[first..].iter().any(same) {
                self.locks.push(lock);
            }
        }
        Ok(())
    }
}

/// `1: POSIX  ADVISORY  WRITE 77 fd:01:1234 0 EOF`
fn parse_lock(line: &str, fd: i32, description: u32) -> Option<Lock> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[_, kind, "ADVISORY", access, _, _, start, last] = &*words else { return None };
    let kind = match kind {
        "FLOCK" => lock::WHOLE,
        "POSIX" => lock::PROCESS,
        "OFDLCK" => lock::OPEN_FILE,
        _ => return None,
    };
    let is_exclusive = match access {
        "WRITE" => 1,
        "READ" => 0,
        _ => return None,
    };
    let start = start.parse().ok()?;
    let last = if last == "EOF" { u64::MAX } else { last.parse().ok()? };
    Some(Lock { start, last, fd, description, kind, is_exclusive })
}

/// A process's number on the host, and a descriptor.
pub(crate) type Number = (u32, i32);

/// Whether two descriptors share an open file; `None` when the kernel cannot tell.
pub(crate) fn same_open_file(one: Number, other: Number) -> Option<bool> {
    order(one, other).map(Ordering::is_eq)
}

/// Where a descriptor's open file is among these, which are in the kernel's order, or belongs; `None`: the kernel does not tell.
pub(crate) fn place_among<T>(
    others: &[T],
    own: Number,
    number: impl Fn(&T) -> Number,
) -> Option<std::result::Result<usize, usize>> {
    let (mut low, mut high) = (0, others.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match order(own, number(&others[middle]))? {
            Ordering::Equal => return Some(Ok(middle)),
            Ordering::Less => high = middle,
            Ordering::Greater => low = middle + 1,
        }
    }
    Some(Err(low))
}

/// The kernel's order of two descriptors' open files; `None`: it does not tell.
fn order(one: Number, other: Number) -> Option<Ordering> {
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
    match order {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read() {
        let whole = parse_lock("\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF", 4, 2).unwrap();
        assert_eq!((whole.kind, whole.is_exclusive, whole.fd), (lock::WHOLE, 1, 4));
        assert_eq!((whole.start, whole.last), (0, u64::MAX));
        let part = parse_lock("\t2: POSIX  ADVISORY  READ 0 fd:01:7 2 3", 5, 0).unwrap();
        assert_eq!((part.kind, part.is_exclusive), (lock::PROCESS, 0));
        assert_eq!((part.start, part.last), (2, 3));
        for wrong in [
            "",
            "1: LEASE  ACTIVE    READ 1 0:1:2 0 EOF",
            "1: POSIX  ADVISORY  WRITE 1 0:1:2 x EOF",
        ] {
            assert_eq!(parse_lock(wrong, 3, 0), None, "{wrong}");
        }
    }
}
