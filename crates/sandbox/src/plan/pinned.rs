//! The plan's view of the host, with pinned files in place of the host's.
//!
//! `/p` has pinned directories and absences. `/x` shows the tree with pinned contents, as an overlay of its own: the kernel refuses a layer that lies in a directory below
//! another layer, as a node's data directory does. Each overlay of the server's root has both above the host's directory.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::pins::{About, Pin, escaped};
use super::{Planner, SPLIT_ENTRIES, Step, under};

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
        self.steps.push(Step::Overlay {
            lower: under("/old", &fs::canonicalize(&self.pins.tree)?)?,
            target: c"/x".to_owned(),
            // An overlay that nobody writes to needs two lower layers.
            data: c"userxattr,lowerdir=.:/e".to_owned(),
            or_read_only: false,
        });
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

    /// The layers below the server's own.
    pub(super) fn lowers(&self, path: &Path) -> Lowers {
        // The host's directory is named relative to the working directory, so its path needs no escaping.
        let host = under("/old", path).unwrap_or_default();
        if !matches!(self.pins.at(path), Some(Pin::Directory { .. })) {
            return Lowers { from: host, option: b".".to_vec() };
        }
        let mut option = Vec::new();
        for top in [b"/p".as_slice(), b":/x"] {
            option.extend_from_slice(top);
            option.extend(escaped(path));
        }
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
            option.extend_from_slice(b":.");
            return Lowers { from: host, option };
        }
        Lowers { from: c"/".to_owned(), option }
    }
}
