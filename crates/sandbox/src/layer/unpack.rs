//! Makes the files of a stream ([`super::stream`]) in the root of a server that was just launched, through its own mounts: so overlays stay what they are.
//!
//! The stream is not trusted. Each entry's directory is looked up below the root without following a symbolic link, and no file that is there already is written
//! to: it is removed first. What goes wrong leaves a root that no server may use.
//!
//! Directories that are closed even to their owner are closed when all is there: another name of a file in one comes later, and an ordinary user could not look it up.

use std::fs::{self, File};
use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, SFlag, mknodat};
use nix::unistd::linkat;

use super::attributes;
use super::stream::{Attributes, Entry, Kind, Reader, damaged};

const PIECE_BYTES: usize = 256 << 10;

/// A directory whose entries are being made, and its attributes when they are there.
struct Open {
    path: Vec<u8>,
    directory: OwnedFd,
    attributes: Attributes,
}

/// Unpacks all entries below `root`.
pub(super) fn all(root: BorrowedFd<'_>, from: &mut dyn io::Read) -> io::Result<()> {
    some(&mut Unpack::new(root, None), from, &mut |_| Ok(true))
}

/// Unpacks the entries that `choose` is true for, as it leaves them, below a root in which nothing else is. Answers the directories that lead to them and are no entries themselves.
pub(super) fn chosen(
    root: BorrowedFd<'_>,
    from: &mut dyn io::Read,
    choose: &mut dyn FnMut(&mut Entry) -> io::Result<bool>,
) -> io::Result<Vec<Vec<u8>>> {
    let mut unpack = Unpack::new(root, Some(Vec::new()));
    some(&mut unpack, from, choose)?;
    Ok(unpack.made.unwrap_or_default())
}

fn some(
    unpack: &mut Unpack<'_>,
    from: &mut dyn io::Read,
    choose: &mut dyn FnMut(&mut Entry) -> io::Result<bool>,
) -> io::Result<()> {
    let mut reader = Reader::new(from)?;
    while let Some(mut entry) = reader.entry()? {
        unpack.leave(&entry.path)?;
        if !choose(&mut entry)? {
            if entry.kind == Kind::File {
                unpack.content(&mut reader, |_, _| Ok(()), |_| Ok(()))?;
            }
            continue;
        }
        unpack.entry(&entry, &mut reader).map_err(|error| at(&entry.path, &error))?;
    }
    unpack.leave(b"")?;
    unpack.close()
}

/// Tells `see` of all entries, and makes nothing.
pub(super) fn look(from: &mut dyn io::Read, see: &mut dyn FnMut(&Entry)) -> io::Result<()> {
    let nowhere = File::open("/")?;
    some(&mut Unpack::new(nowhere.as_fd(), None), from, &mut |entry| {
        see(entry);
        Ok(false)
    })
}

/// The error with the path that it is about.
fn at(path: &[u8], error: &Error) -> Error {
    Error::new(error.kind(), format!("/{}: {error}", String::from_utf8_lossy(path)))
}

struct Unpack<'a> {
    root: BorrowedFd<'a>,
    /// The way to the last directory.
    open: Vec<Open>,
    piece: Vec<u8>,
    /// The directories that were made because they were missing; none: a missing one is an error.
    made: Option<Vec<Vec<u8>>>,
    /// The directories that are to be closed to their owner, each before the one that it is in, and their modes.
    closed: Vec<(Vec<u8>, u32)>,
}

/// What an owner needs to make and to look up entries.
const OWNERS: u32 = 0o700;

impl<'a> Unpack<'a> {
    fn new(root: BorrowedFd<'a>, made: Option<Vec<Vec<u8>>>) -> Self {
        Self { root, open: Vec::new(), piece: vec![0; PIECE_BYTES], made, closed: Vec::new() }
    }
}

impl Unpack<'_> {
    /// Gives the directories that do not lead to `path` their attributes, but for modes that close them: nothing more comes in them.
    fn leave(&mut self, path: &[u8]) -> io::Result<()> {
        let leads =
            |open: &Open| path.strip_prefix(&*open.path).is_some_and(|rest| rest.starts_with(b"/"));
        while let Some(mut last) = self.open.pop_if(|last| !leads(last)) {
            let mode = last.attributes.mode;
            last.attributes.mode |= OWNERS;
            attributes::set(&itself(&last.directory), false, &last.attributes)
                .map_err(|error| at(&last.path, &error))?;
            if mode & OWNERS != OWNERS {
                self.closed.push((last.path, mode));
            }
        }
        Ok(())
    }

    /// Closes the directories that are to be closed.
    fn close(&mut self) -> io::Result<()> {
        for (path, mode) in std::mem::take(&mut self.closed) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            let directory = self.directory(&path)?;
            fs::set_permissions(itself(&directory), mode).map_err(|error| at(&path, &error))?;
        }
        Ok(())
    }

    /// A directory below the root.
    fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        let path = if path.is_empty() { b".".as_slice() } else { path };
        openat2(self.root, path, how).map_err(|errno| {
            let (error, path) = (Error::from(errno), String::from_utf8_lossy(path));
            Error::new(error.kind(), format!("its directory /{path}: {error}"))
        })
    }

    /// Makes the missing directories on the way to `path`, and it.
    fn make_way(&mut self, path: &[u8]) -> io::Result<()> {
        if path.is_empty() || self.made.is_none() || self.directory(path).is_ok() {
            return Ok(());
        }
        let (parent, name) = split(path);
        self.make_way(parent)?;
        fs::create_dir(below(&self.directory(parent)?, name))?;
        self.made.iter_mut().for_each(|made| made.push(path.to_owned()));
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, reader: &mut Reader<'_>) -> io::Result<()> {
        let Entry { kind, path, attributes, .. } = entry;
        let (parent, name) = split(path);
        self.make_way(parent)?;
        let known = self.open.last().filter(|open| open.path == parent);
        let other;
        let directory = match known {
            Some(open) => &open.directory,
            None => {
                other = self.directory(parent)?;
                &other
            }
        };
        let place = below(directory, name);
        match kind {
            Kind::Directory => return self.make_directory(entry, &place),
            Kind::End | Kind::Removed => return remove(&place),
            _ => remove(&place)?,
        }
        match kind {
            Kind::File => self.file(&place, reader)?,
            Kind::Link => {
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&entry.target), &place)?;
            }
            Kind::Same => {
                let (parent, name) = split(&entry.target);
                let from = self.directory(parent)?;
                return Ok(linkat(
                    &from,
                    name,
                    directory,
                    split(path).1,
                    nix::fcntl::AtFlags::empty(),
                )?);
            }
            Kind::Fifo => mknodat(directory, name, SFlag::S_IFIFO, Mode::S_IRUSR, 0)?,
            Kind::Socket => mknodat(directory, name, SFlag::S_IFSOCK, Mode::S_IRUSR, 0)?,
            Kind::End | Kind::Removed | Kind::Directory => {}
        }
        attributes::set(&place, *kind == Kind::Link, attributes)
    }

    fn make_directory(&mut self, entry: &Entry, place: &Path) -> io::Result<()> {
        let is_there = fs::symlink_metadata(place).is_ok_and(|meta| meta.is_dir());
        if !is_there || entry.opaque {
            remove(place)?;
            fs::create_dir(place)?;
        }
        let directory = self.directory(&entry.path)?;
        // What comes in it can be made whatever its mode will be.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(entry.attributes.mode | OWNERS);
        fs::set_permissions(itself(&directory), mode)?;
        let (path, attributes) = (entry.path.clone(), entry.attributes.clone());
        self.open.push(Open { path, directory, attributes });
        Ok(())
    }

    fn file(&mut self, place: &Path, reader: &mut Reader<'_>) -> io::Result<()> {
        let file = File::create_new(place)?;
        self.content(reader, |at, piece| file.write_all_at(piece, at), |size| file.set_len(size))
    }

    /// Reads a file's content: first its size, then its pieces.
    fn content(
        &mut self,
        reader: &mut Reader<'_>,
        mut piece: impl FnMut(u64, &[u8]) -> io::Result<()>,
        size: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = reader.number()?;
        if i64::try_from(end).is_err() {
            return Err(damaged("a file is too long"));
        }
        size(end)?;
        let mut at = 0;
        loop {
            let (offset, len) = (reader.number()?, reader.number()?);
            if offset < at || offset > end || len > end - offset {
                return Err(damaged("a part of a file lies elsewhere"));
            }
            if len == 0 {
                return Ok(());
            }
            at = offset;
            while at < offset + len {
                let n = (offset + len - at).min(PIECE_BYTES as u64) as usize;
                reader.contents(&mut self.piece[..n])?;
                piece(at, &self.piece[..n])?;
                at += n as u64;
            }
        }
    }
}

/// Removes what is there, if anything is.
fn remove(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(place),
        Ok(_) => fs::remove_file(place),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The path of a directory and the last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn below(directory: &OwnedFd, name: &[u8]) -> PathBuf {
    let place = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    place.join(std::ffi::OsStr::from_bytes(name))
}

/// The directory itself, and not the link to it.
fn itself(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/.", directory.as_raw_fd()))
}
