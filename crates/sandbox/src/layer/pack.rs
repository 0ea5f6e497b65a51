//! Writes a layer's content as a stream ([`super::stream`]): what the server has changed, in the view of its own mounts. So it can be unpacked where the host's
//! directories are overlays in other places.
//!
//! The server stands still. Memory: one directory's names, and the paths of files with several names.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Error};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::fcntl::readlinkat;
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

use super::attributes;
use super::parts;
use super::remembered::{Followed, Found, Looking};
use super::stat::{self, Place, Stat};
use super::stream::{Attributes, Content, Entry, Kind, Packer, Shown};

/// The note of overlayfs on a directory in which nothing of the host's shows.
const OPAQUE: &[u8] = b"user.overlay.opaque";

/// Packs directories.
pub(super) struct Walk<'a, 'b> {
    pub(super) out: &'a mut Packer<'b>,
    /// Files with several names: device and number, and the first of these.
    links: HashMap<(u64, u64), Vec<u8>>,
    /// What becomes of a file's attributes.
    shape: Box<dyn Fn(&mut Attributes)>,
    /// The server's root: by its mounts the server's runtime knows the files.
    shown: Option<BorrowedFd<'a>>,
    /// What was found out by an earlier walk, and is by this one.
    looking: Option<&'a mut Looking>,
    /// All that it has come to, changed or not; of regular files that were packed, how the server's mounts show them.
    seen: Vec<(PathBuf, Option<Shown>)>,
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(super) fn shaped(
        out: &'a mut Packer<'b>,
        shape: impl Fn(&mut Attributes) + 'static,
    ) -> Self {
        let (links, shape) = (HashMap::new(), Box::new(shape));
        Self { out, links, shape, shown: None, looking: None, seen: Vec::new() }
    }

    /// As the server's root shows them.
    pub(super) fn shown_by(self, root: Option<BorrowedFd<'a>>) -> Self {
        Self { shown: root, ..self }
    }

    /// Without finding out again what is remembered.
    pub(super) fn remembering(self, looking: &'a mut Looking) -> Self {
        Self { looking: Some(looking), ..self }
    }

    /// The paths in the server of all that it has come to; of regular files that were packed, how the server's mounts show them, if they do.
    pub(super) fn finish(self) -> Vec<(PathBuf, Option<Shown>)> {
        self.seen
    }

    /// Packs the entries below `place`, which the server knows as `path`, that `changed` is true for.
    pub(super) fn below(
        &mut self,
        place: &Path,
        path: &Path,
        changed: &mut dyn FnMut(&Path, &Stat) -> bool,
    ) -> io::Result<()> {
        let directory = stat::directory(place)?;
        for name in names(place)? {
            let (below, path) = (place.join(&name), path.join(&name));
            let place = Place { directory: directory.as_fd(), name: &name };
            let about = place.stat()?;
            self.seen.push((path.clone(), None));
            if !changed(&path, &about) {
                // An unchanged directory that is closed is so to the server, too.
                if about.is_dir() && !Opened::is_needed(&about) {
                    self.below(&below, &path, changed)?;
                }
                continue;
            }
            let opened = Opened::new(place, &about)?;
            self.entry(place, &path, &about).map_err(|error| {
                Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
            if about.is_dir() {
                self.below(&below, &path, changed)?;
            }
            opened.close()?;
        }
        Ok(())
    }

    /// An entry that the server has removed.
    pub(super) fn removed(&mut self, path: &Path) -> io::Result<()> {
        self.put(Kind::Removed, path, Vec::new(), Attributes::default())
    }

    /// The directory that is an overlay's top.
    pub(super) fn top(&mut self, place: &Path, path: &Path) -> io::Result<()> {
        let directory = stat::directory(place)?;
        let place = Place { directory: directory.as_fd(), name: OsStr::new(".") };
        let about = place.stat()?;
        let mut attributes = attributes::of(&about, attributes::extended(&place.path())?);
        (self.shape)(&mut attributes);
        self.put(Kind::Directory, path, Vec::new(), attributes)
    }

    fn put(
        &mut self,
        kind: Kind,
        path: &Path,
        target: Vec<u8>,
        attributes: Attributes,
    ) -> io::Result<()> {
        self.out.entry(&Entry { kind, opaque: false, path: packed(path), target, attributes })
    }

    fn entry(&mut self, place: Place<'_>, path: &Path, about: &Stat) -> io::Result<()> {
        if about.is_whiteout() {
            return self.removed(path);
        }
        if !about.is_dir() && about.links > 1 {
            let first = self.links.entry(about.id);
            if let std::collections::hash_map::Entry::Occupied(first) = &first {
                let target = first.get().clone();
                return self.put(Kind::Same, path, target, Attributes::default());
            }
            first.or_insert_with(|| packed(path));
        }
        let known = self.looking.as_mut().and_then(|looking| looking.take(path));
        let mut found = match known {
            Some(found) if found.counts(about) => found,
            // Only where it has content can be derived from what was before.
            known => Found { parts: known.and_then(|found| found.parts), ..look(place, about)? },
        };
        let mut attributes = attributes::of(about, found.extended.clone());
        (self.shape)(&mut attributes);
        if about.is_dir() {
            let (opaque, path, target) = (found.is_opaque, packed(path), Vec::new());
            self.out.entry(&Entry { kind: Kind::Directory, opaque, path, target, attributes })?;
        } else if about.is_file() {
            self.put(Kind::File, path, Vec::new(), attributes)?;
            self.contents(place, path, about, &mut found)?;
        } else if about.is_symlink() {
            let target = readlinkat(place.directory, place.name)?.into_encoded_bytes();
            self.put(Kind::Link, path, target, attributes)?;
        } else if about.is_fifo() {
            self.put(Kind::Fifo, path, Vec::new(), attributes)?;
        } else if about.is_socket() {
            self.put(Kind::Socket, path, Vec::new(), attributes)?;
        } else {
            return Err(Error::other("it is a device, which a server cannot make"));
        }
        if let Some(looking) = &mut self.looking {
            looking.keep(path, found);
        }
        Ok(())
    }

    /// The extents of a file, without its holes.
    fn contents(
        &mut self,
        place: Place<'_>,
        path: &Path,
        about: &Stat,
        found: &mut Found,
    ) -> io::Result<()> {
        let size = about.size;
        let shown = match found.shown {
            Some(id) => Some(Shown { id, ..Shown::of(about) }),
            None => self.shown(path, about, found),
        };
        if let Some((_, seen)) = self.seen.last_mut() {
            *seen = shown;
        }
        let shown = shown.unwrap_or_else(|| Shown::of(about));
        let content = Content::new(place, about.id, shown);
        let followed = self.out.follows(&shown);
        let known = match (found.parts.take(), followed) {
            (Some(known), Some((number, _))) if known.number == number => {
                self.known(known, &content, about, found)?
            }
            _ => None,
        };
        let parts = match known {
            Some(parts) => parts,
            None if size == 0 => Vec::new(),
            None => parts::all(content.file()?, size)?,
        };
        self.out.number(size)?;
        for (start, end) in &parts {
            self.out.contents(&content, *start, *end)?;
        }
        self.out.number(size)?;
        self.out.number(0)?;
        let changed = about.changed;
        found.parts = followed.map(|(number, noted)| Followed { number, noted, changed, parts });
        Ok(())
    }

    /// Where a file has content, by where it had some.
    fn known(
        &self,
        known: Followed,
        content: &Content<'_>,
        about: &Stat,
        found: &Found,
    ) -> io::Result<Option<Vec<(u64, u64)>>> {
        if found.is_as_before {
            return Ok(Some(known.parts));
        }
        match self.out.written(known.number, known.noted) {
            // A change that is not noted may be one of the name, or one that is not the server's.
            Some(written) if !written.is_empty() || known.changed == about.changed => {
                parts::since(&known.parts, &written, content.file()?, about)
            }
            _ => Ok(None),
        }
    }

    /// How the server's mounts show a file, whose numbers are others there.
    fn shown(&self, path: &Path, about: &Stat, found: &mut Found) -> Option<Shown> {
        let shown = self.shown.and_then(|root| {
            Stat::at(root, below_root(path).as_os_str()).ok().filter(|shown| is_same(shown, about))
        });
        // A copy of a host's file has a note, and may get another number.
        found.shown =
            shown.map(|shown| shown.id).filter(|id| id.1 == about.id.1 && !found.is_noted);
        shown.as_ref().map(Shown::of)
    }
}

/// Finds out about a file what is remembered.
fn look(place: Place<'_>, about: &Stat) -> io::Result<Found> {
    let mut found = Found::new(*about);
    if !about.is_symlink() {
        let path = place.path();
        let names = attributes::names(&path)?;
        found.is_noted = !names.is_empty();
        found.extended = attributes::values(&path, &names)?;
        found.is_opaque = about.is_dir()
            && found.is_noted
            && attributes::value(&path, OPAQUE)?.is_some_and(|value| value == b"y");
    }
    Ok(found)
}

fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Whether a file in the layer is what the server's mounts show, whose numbers are others.
fn is_same(shown: &Stat, about: &Stat) -> bool {
    let told = |about: &Stat| (about.size, about.changed, about.mode);
    told(shown) == told(about)
}

/// The names in a directory, in order.
fn names(place: &Path) -> io::Result<Vec<OsString>> {
    let mut names =
        fs::read_dir(place)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// A path as the stream has it.
fn packed(path: &Path) -> Vec<u8> {
    below_root(path).as_os_str().as_bytes().to_vec()
}

/// A file that an ordinary user's server has closed even to its owner is opened for a moment. The server stands still, and its own mounts show the mode that they
/// know.
struct Opened<'a>(Option<(Place<'a>, u32)>);

impl<'a> Opened<'a> {
    fn new(place: Place<'a>, about: &Stat) -> io::Result<Self> {
        if !Self::is_needed(about) {
            return Ok(Self(None));
        }
        let mode = about.mode & 0o7777;
        set_mode(place, mode | 0o500)?;
        Ok(Self(Some((place, mode))))
    }

    fn is_needed(about: &Stat) -> bool {
        let own = nix::unistd::geteuid();
        let rights = if about.is_dir() { 0o500 } else { 0o400 };
        let may = own.is_root() || about.user != own.as_raw() || about.mode & rights == rights;
        !may && !about.is_symlink()
    }

    fn close(mut self) -> io::Result<()> {
        self.give_back()
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), |(place, mode)| set_mode(place, mode))
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // Packing has failed already, for a reason that is told.
        let _ = self.give_back();
    }
}

fn set_mode(place: Place<'_>, mode: u32) -> io::Result<()> {
    let mode = Mode::from_bits_truncate(mode);
    Ok(fchmodat(place.directory, place.name, mode, FchmodatFlags::FollowSymlink)?)
}
