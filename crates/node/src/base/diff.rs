//! What a base has, and what the host has by now instead, for `skein base`.

use super::Base;
use super::index::{Index, Kept, Text};
use super::store::Digest;
use serde::Serialize;
use skein_sandbox::About;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A pinned path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The path.
    pub path: String,
    /// `file`, `directory`, `listing` (a directory whose entries are pinned), `link` or `absent`.
    pub kind: &'static str,
    /// Bytes of a file.
    pub size: u64,
    /// The SHA-256 of a file's contents; the target of a link.
    pub digest: String,
}

/// A pinned path at which the host has something else by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The path.
    pub path: String,
    /// What is pinned.
    pub was: String,
    /// What the host has.
    pub is: String,
}

impl Base {
    /// All that is pinned, by path.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let listed = |(path, kept): (&std::path::PathBuf, &Kept)| {
            let (size, digest) = match kept {
                Kept::File { size, digest, .. } => (*size, digest.to_string()),
                Kept::Link { to, .. } => (0, to.0.to_string_lossy().into_owned()),
                Kept::Absent | Kept::Directory { .. } => (0, String::new()),
            };
            Listed { path: path.to_string_lossy().into_owned(), kind: kept.kind(), size, digest }
        };
        self.index().files.iter().map(listed).collect()
    }

    /// The pinned paths at which this host has something else, by path.
    ///
    /// # Errors
    /// A file of the host cannot be read.
    pub fn differences(&self) -> io::Result<Vec<Difference>> {
        let mut found = Vec::new();
        for (path, kept) in &self.index().files {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            if let Some((was, is)) = compare(path, kept).map_err(named)? {
                found.push(Difference { path: path.to_string_lossy().into_owned(), was, is });
            }
        }
        Ok(found)
    }
}

/// The paths at which this host has something else than is pinned.
///
/// # Errors
/// A file of the host cannot be read.
pub(super) fn changed(index: &Index) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (path, kept) in &index.files {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if compare(path, kept).map_err(named)?.is_some() {
            found.push(path.clone());
        }
    }
    Ok(found)
}

type Words = Option<(String, String)>;

fn compare(path: &Path, kept: &Kept) -> io::Result<Words> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => None,
        meta => Some(meta?),
    };
    let Some(meta) = meta else {
        let is_absent = *kept == Kept::Absent;
        return Ok((!is_absent).then(|| (words(kept), "nothing".into())));
    };
    let is = kind(&meta);
    Ok(match kept {
        Kept::Absent => Some(("nothing".into(), is.into())),
        Kept::Directory { about, listing } => match is {
            "directory" => attributes(about, &meta).or(match listing {
                Some(listing) => entries(path, listing)?,
                None => None,
            }),
            _ => Some((words(kept), is.into())),
        },
        Kept::Link { to, .. } if is == "link" => {
            let now = fs::read_link(path)?;
            (now.as_os_str() != to.0).then(|| (words(kept), format!("link to {}", now.display())))
        }
        Kept::File { about, size, digest, .. } if is == "file" => {
            file(path, &meta, (about, *size, *digest))?
        }
        Kept::Link { .. } | Kept::File { .. } => Some((words(kept), is.into())),
    })
}

fn words(kept: &Kept) -> String {
    match kept {
        Kept::Absent => "nothing".into(),
        Kept::Directory { .. } => "directory".into(),
        Kept::Link { to, .. } => format!("link to {}", to.0.to_string_lossy()),
        Kept::File { size, digest, .. } => contents(*size, *digest),
    }
}

fn contents(size: u64, digest: Digest) -> String {
    format!("{size} bytes {:.12}", digest.to_string())
}

fn kind(meta: &Metadata) -> &'static str {
    match meta {
        meta if meta.is_dir() => "directory",
        meta if meta.is_symlink() => "link",
        meta if meta.is_file() => "file",
        _ => "special file",
    }
}

fn attributes(about: &About, meta: &Metadata) -> Words {
    let (was, is) =
        ((about.mode, about.user, about.group), (meta.mode() & 0o7777, meta.uid(), meta.gid()));
    let words =
        |(mode, user, group): (u32, u32, u32)| format!("mode {mode:o} owner {user}:{group}");
    (was != is).then(|| (words(was), words(is)))
}

fn file(path: &Path, meta: &Metadata, pinned: (&About, u64, Digest)) -> io::Result<Words> {
    let (about, size, digest) = pinned;
    let now = super::store::digest_of(path, None)?;
    if now != (digest, size) {
        return Ok(Some((contents(size, digest), contents(now.1, now.0))));
    }
    let modified = (meta.mtime(), meta.mtime_nsec() as u32);
    Ok(attributes(about, meta).or_else(|| {
        let words = |(s, ns): (i64, u32)| format!("modified {s}.{ns:09}");
        (about.modified != modified).then(|| (words(about.modified), words(modified)))
    }))
}

fn entries(path: &Path, listing: &BTreeSet<Text>) -> io::Result<Words> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if !listing.contains(&Text::of(&name)) {
            return Ok(Some(("no such entry".into(), format!("entry {}", name.to_string_lossy()))));
        }
    }
    Ok(None)
}
