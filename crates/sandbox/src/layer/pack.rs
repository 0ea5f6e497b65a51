//! Writes a layer's content as a stream ([`super::stream`]): what the server has changed, in the view of its own mounts. So it can be unpacked where the host's
//! directories are overlays in other places.
//!
//! The server stands still. Memory: one directory's names, and the paths of files with several names.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Error};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Whence, lseek64};

use super::attributes;
use super::stream::{Attributes, Entry, Kind, Packer};

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
    shown: Option<PathBuf>,
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(super) fn new(out: &'a mut Packer<'b>) -> Self {
        Self::shaped(out, |_| ())
    }

    pub(super) fn shaped(
        out: &'a mut Packer<'b>,
        shape: impl Fn(&mut Attributes) + 'static,
    ) -> Self {
        Self { out, links: HashMap::new(), shape: Box::new(shape), shown: None }
    }

    /// As the server's root shows them.
    pub(super) fn shown_by(self, root: PathBuf) -> Self {
        Self { shown: Some(root), ..self }
    }

    /// Packs the entries below `place`, which the server knows as `path`, that `changed` is true for.
    pub(super) fn below(
        &mut self,
        place: &Path,
        path: &Path,
        changed: &mut dyn FnMut(&Path, &Metadata) -> bool,
    ) -> io::Result<()> {
        for name in names(place)? {
            let (place, path) = (place.join(&name), path.join(&name));
            let meta = fs::symlink_metadata(&place)?;
            if !changed(&path, &meta) {
                // An unchanged directory that is closed is so to the server, too.
                if meta.is_dir() && !Opened::is_needed(&meta) {
                    self.below(&place, &path, changed)?;
                }
                continue;
            }
            let opened = Opened::new(&place, &meta)?;
            self.entry(&place, &path, &meta).map_err(|error| {
                Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
            if meta.is_dir() {
                self.below(&place, &path, changed)?;
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
        let meta = fs::metadata(place)?;
        let mut attributes = attributes::of(&place.join("."), &meta)?;
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

    fn entry(&mut self, place: &Path, path: &Path, meta: &Metadata) -> io::Result<()> {
        let kind = meta.file_type();
        if kind.is_char_device() && meta.rdev() == 0 {
            return self.removed(path);
        }
        if !kind.is_dir() && meta.nlink() > 1 {
            let first = self.links.entry((meta.dev(), meta.ino()));
            if let std::collections::hash_map::Entry::Occupied(first) = &first {
                let target = first.get().clone();
                return self.put(Kind::Same, path, target, Attributes::default());
            }
            first.or_insert_with(|| packed(path));
        }
        let mut attributes = attributes::of(place, meta)?;
        (self.shape)(&mut attributes);
        if kind.is_dir() {
            let opaque = attributes::value(place, OPAQUE)?.is_some_and(|value| value == b"y");
            let path = packed(path);
            let target = Vec::new();
            self.out.entry(&Entry { kind: Kind::Directory, opaque, path, target, attributes })
        } else if kind.is_file() {
            self.put(Kind::File, path, Vec::new(), attributes)?;
            let shown = self.shown.as_ref().map(|root| root.join(below_root(path)));
            let shown = shown.and_then(|path| fs::symlink_metadata(path).ok());
            self.contents(
                place,
                shown.as_ref().filter(|shown| is_same(shown, meta)).unwrap_or(meta),
            )
        } else if kind.is_symlink() {
            let target = fs::read_link(place)?.into_os_string().as_bytes().to_vec();
            self.put(Kind::Link, path, target, attributes)
        } else if kind.is_fifo() {
            self.put(Kind::Fifo, path, Vec::new(), attributes)
        } else if kind.is_socket() {
            self.put(Kind::Socket, path, Vec::new(), attributes)
        } else {
            Err(Error::other("it is a device, which a server cannot make"))
        }
    }

    /// The extents of a file, without its holes.
    fn contents(&mut self, place: &Path, meta: &Metadata) -> io::Result<()> {
        let file = super::open(place)?;
        let size = meta.len();
        self.out.number(size)?;
        let mut at = 0;
        while let Some((start, end)) = extent(&file, at)? {
            let (start, end) = (start.min(size), end.min(size));
            at = start;
            if at < end {
                self.out.contents(&file, meta, at, end)?;
                at = end;
            }
            if at >= size {
                break;
            }
            at = end;
        }
        self.out.number(size)?;
        self.out.number(0)
    }
}

fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Whether a file in the layer is what the server's mounts show, whose numbers are others.
fn is_same(shown: &Metadata, meta: &Metadata) -> bool {
    let about = |meta: &Metadata| (meta.len(), meta.ctime(), meta.ctime_nsec(), meta.mode());
    about(shown) == about(meta)
}

/// The first extent from `at` on.
fn extent(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |at: u64, whence| match lseek64(file.as_fd(), at.cast_signed(), whence) {
        Ok(found) => Ok(Some(found.cast_unsigned())),
        Err(nix::Error::ENXIO) => Ok(None),
        Err(error) => Err(Error::from(error)),
    };
    let Some(start) = seek(at, Whence::SeekData)? else { return Ok(None) };
    Ok(seek(start, Whence::SeekHole)?.map(|end| (start, end)))
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
struct Opened(Option<(PathBuf, u32)>);

impl Opened {
    fn new(place: &Path, meta: &Metadata) -> io::Result<Self> {
        if !Self::is_needed(meta) {
            return Ok(Self(None));
        }
        let mode = meta.mode() & 0o7777;
        fs::set_permissions(place, Permissions::from_mode(mode | 0o500))?;
        Ok(Self(Some((place.to_owned(), mode))))
    }

    fn is_needed(meta: &Metadata) -> bool {
        let own = nix::unistd::geteuid();
        let rights = if meta.is_dir() { 0o500 } else { 0o400 };
        let may = own.is_root() || meta.uid() != own.as_raw() || meta.mode() & rights == rights;
        !may && !meta.is_symlink()
    }

    fn close(mut self) -> io::Result<()> {
        self.give_back()
    }

    fn give_back(&mut self) -> io::Result<()> {
        match self.0.take() {
            Some((place, mode)) => fs::set_permissions(place, Permissions::from_mode(mode)),
            None => Ok(()),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Packing has failed already, for a reason that is told.
        let _ = self.give_back();
    }
}
