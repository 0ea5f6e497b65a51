//! The plan's view of the host, with pinned files in place of the host's.
//!
//! `/p` has pinned directories and absences. Each overlay of the server's root has that and the tree with pinned contents above the host's directory.
//!
//! The kernel refuses a layer that lies below another one, as the tree does in the overlay of the host's directory that has the node's data directory. There, files up to
//! [`COPIED_BYTES`] are copied to `/p`, and the others come through `/x`, which shows the tree as an overlay of its own. The kernel names a mapping of a file there
//! otherwise (`/proc/PID/maps`), so programs and libraries should not be among them.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::pins::{About, Pin, escaped};
use super::{Planner, SPLIT_ENTRIES, Step, under};

/// A larger file is not copied to memory: 64 MiB.
const COPIED_BYTES: u64 = 64 << 20;

/// The kind of a file.
pub(super) enum Kind {
    Directory,
    Link(PathBuf),
    File,
    /// What the server does not get.
    Other,
}

/// A file of the host, or a pinned one.
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) about: About,
    pub(super) accessed: (i64, i64),
    pub(super) size: u64,
    pub(super) is_pinned: bool,
}

fn under_old(path: &Path) -> PathBuf {
    Path::new("/old").join(path.strip_prefix("/").unwrap_or(path))
}

/// The paths of a file with several names.
fn one_of_several<'a>((path, pin): (&'a PathBuf, &'a Pin)) -> Vec<&'a Path> {
    match pin {
        Pin::File { same_as: Some(other), .. } => vec![path, other],
        _ => Vec::new(),
    }
}

/// The tops of overlays.
fn overlays(steps: &[Step]) -> Vec<PathBuf> {
    let target = |step: &Step| match step {
        Step::Overlay { target, .. } => {
            let below = Path::new(OsStr::from_bytes(target.as_bytes())).strip_prefix("/r").ok()?;
            Some(Path::new("/").join(below))
        }
        _ => None,
    };
    steps.iter().filter_map(target).collect()
}

/// The tops of overlays, and the plain directories above them: these are made for the server, whoever owns the host's.
fn own_tops(steps: &[Step]) -> BTreeSet<PathBuf> {
    let mut tops = BTreeSet::new();
    for step in steps {
        let (Step::Overlay { target: made, .. } | Step::Directory { path: made, .. }) = step else {
            continue;
        };
        let made = Path::new(OsStr::from_bytes(made.as_bytes()));
        tops.extend(made.strip_prefix("/r").ok().map(|below| Path::new("/").join(below)));
    }
    tops
}

/// The lower layers of an overlay.
pub(super) struct Lowers {
    /// The working directory for its mount.
    pub(super) from: CString,
    /// The value of the option.
    pub(super) option: Vec<u8>,
}

impl Planner<'_> {
    /// Makes pinned directories and absences, and shows pinned contents, for the overlays of the steps `above`.
    pub(super) fn lay_pins(&mut self, above: &[Step]) -> io::Result<()> {
        if self.pins.all.is_empty() {
            return Ok(());
        }
        for path in ["/p", "/x", "/e"] {
            self.plain_directory(path, 0o755)?;
        }
        let tree = fs::canonicalize(&self.pins.tree)?;
        let above_tree = overlays(above).into_iter().find(|top| tree.starts_with(top));
        if above_tree.is_some() {
            self.steps.push(Step::Overlay {
                lower: under("/old", &tree)?,
                target: c"/x".to_owned(),
                // An overlay that nobody writes to needs two lower layers.
                data: c"userxattr,lowerdir=.:/e".to_owned(),
                or_read_only: false,
            });
        }
        let linked: BTreeSet<&Path> = self.pins.all.iter().flat_map(one_of_several).collect();
        let own = own_tops(above);
        let mut stuck = BTreeSet::new();
        let mut times = Vec::new();
        for (path, pin) in &self.pins.all {
            match pin {
                Pin::Absent => self.steps.push(Step::Absent(under("/p", path)?)),
                Pin::Directory { about, listing } => {
                    let (mode, owner) = (about.mode(self.owner), about.owner(self.owner));
                    self.steps.push(Step::Directory { path: under("/p", path)?, mode, owner });
                    // Below the top of an overlay, the kernel copies a directory with its owner, and needs that of all above.
                    let is_stuck = !own.contains(path)
                        && (about.is_others(self.owner)
                            || path.parent().is_some_and(|parent| stuck.contains(parent)));
                    if is_stuck {
                        stuck.insert(path.clone());
                    }
                    let accessed = about.accessed(self.owner, is_stuck);
                    let modified = (about.modified.0, i64::from(about.modified.1));
                    times.push(Step::Times { path: under("/p", path)?, accessed, modified });
                    if listing.is_some() {
                        self.hide_new(path)?;
                    }
                }
                Pin::File { about, size, from, .. }
                    if above_tree.as_ref().is_some_and(|top| path.starts_with(top))
                        && *size <= COPIED_BYTES
                        && !linked.contains(path.as_path()) =>
                {
                    let (mode, owner) = (about.mode(self.owner), about.owner(self.owner));
                    let from = Some(under("/old", &fs::canonicalize(from)?)?);
                    let place = under("/p", path)?;
                    self.steps.push(Step::File { path: place.clone(), from, mode, owner });
                    let accessed = about.accessed(self.owner, false);
                    let modified = (about.modified.0, i64::from(about.modified.1));
                    times.push(Step::Times { path: place, accessed, modified });
                }
                Pin::Link { .. } | Pin::File { .. } => {}
            }
        }
        self.steps.extend(times);
        Ok(())
    }

    /// Hides what the host has by now in a directory whose listing is pinned.
    fn hide_new(&mut self, path: &Path) -> io::Result<()> {
        // A host without the directory has nothing to hide.
        for entry in fs::read_dir(path).into_iter().flatten() {
            let entry = path.join(entry?.file_name());
            if self.pins.is_hidden(&entry) {
                self.steps.push(Step::Absent(under("/p", &entry)?));
            }
        }
        Ok(())
    }

    /// What the server is to see at a path.
    pub(super) fn look(&self, path: &Path) -> Option<Found> {
        let (about, kind, size) = match self.pins.at(path) {
            Some(Pin::Absent) => return None,
            Some(Pin::Directory { about, .. }) => (about, Kind::Directory, 0),
            Some(Pin::Link { about, to }) => (about, Kind::Link(to.clone()), 0),
            Some(Pin::File { about, size, .. }) => (about, Kind::File, *size),
            None if self.pins.is_hidden(path) => return None,
            None => return Self::look_at_host(path),
        };
        let accessed = (about.modified.0, i64::from(about.modified.1));
        Some(Found { kind, about: *about, accessed, size, is_pinned: true })
    }

    fn look_at_host(path: &Path) -> Option<Found> {
        let meta = fs::symlink_metadata(path).ok()?;
        let kind = if meta.is_dir() {
            Kind::Directory
        } else if meta.is_symlink() {
            Kind::Link(fs::read_link(path).ok()?)
        } else if meta.is_file() {
            Kind::File
        } else {
            Kind::Other
        };
        let accessed = (meta.atime(), meta.atime_nsec());
        let about = About::of(path, &meta);
        Some(Found { kind, about, accessed, size: meta.len(), is_pinned: false })
    }

    /// The names of a directory, in order; `None` when they are too many.
    pub(super) fn names(&self, path: &Path) -> io::Result<Option<BTreeSet<OsString>>> {
        let mut names: BTreeSet<_> = self.pins.inside(path).collect();
        match fs::read_dir(path) {
            Ok(entries) => {
                for entry in entries {
                    names.insert(entry?.file_name());
                    if names.len() > SPLIT_ENTRIES {
                        return Ok(None);
                    }
                }
            }
            // The pinned ones are all that there is.
            Err(_) if self.pins.at(path).is_some() => {}
            Err(error) => return Err(error),
        }
        Ok(Some(names))
    }

    /// Where a directory or file of the tree is, for the overlay of `path` and for what is copied from there.
    pub(super) fn tree_at(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/").unwrap_or(path);
        // It was made by this process.
        let tree = fs::canonicalize(&self.pins.tree).unwrap_or_else(|_| self.pins.tree.clone());
        let top = if tree.starts_with(path) { PathBuf::from("/x") } else { under_old(&tree) };
        top.join(below)
    }

    /// The layers below the server's own.
    pub(super) fn lowers(&self, path: &Path) -> Lowers {
        // The host's directory is named relative to the working directory, so its path needs no escaping.
        let host = under("/old", path).unwrap_or_default();
        if !matches!(self.pins.at(path), Some(Pin::Directory { .. })) {
            return Lowers { from: host, option: b".".to_vec() };
        }
        let tree = self.tree_at(path);
        let option = [b"/p".as_slice(), &escaped(path), b":", &escaped(&tree)];
        let mut option = option.concat();
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
            option.extend_from_slice(b":.");
            return Lowers { from: host, option };
        }
        Lowers { from: c"/".to_owned(), option }
    }
}
