//! The image that a new cluster begins with: one that another cluster exported.

use super::store::{PART, Store, state_of};
use skein_image::file::{Head, ImageError, Opened, Owner, Verified};
use skein_log::Base;
use skein_replica::server::ServerState;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// An exported image of this program, which may be another cluster's.
#[derive(Debug)]
pub struct Adopted {
    path: PathBuf,
    state: ServerState,
    head: Head,
}

/// The image in a file, whose bytes are those that were written.
fn verified(path: &Path, program: [u8; 32]) -> Result<Verified, ImageError> {
    let head = Head::read(path)?;
    let verified = Opened::open(path, &Owner { program, ..head.owner })?.verify()?;
    // What an upgrade left awaits an entry that a new cluster's log has not got.
    if verified.head().processes == 0 {
        return Err(ImageError::NoServer { path: path.to_owned() });
    }
    Ok(verified)
}

/// Reads all of a file, which may be any program's.
///
/// # Errors
/// It is no image that a server can go on from, or damaged.
pub fn check(path: &Path) -> Result<(), ImageError> {
    verified(path, Head::read(path)?.owner.program).map(drop)
}

impl Adopted {
    /// Reads all of a file.
    ///
    /// # Errors
    /// It is no image, one of another program, or damaged.
    pub fn read(path: &Path, program: [u8; 32]) -> Result<Self, ImageError> {
        let verified = verified(path, program)?;
        let head = *verified.head();
        let (state, _) = verified.unpack()?;
        let state = state_of(&state, path, head.index)?;
        Ok(Self { path: path.to_owned(), state, head })
    }

    /// Which edition of the server it is of.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.state.edition.about
    }

    /// Where the new cluster's log begins: its founders are its own.
    #[must_use]
    pub fn base(&self) -> Base {
        Base { index: self.state.index, term: self.state.term, ..Base::default() }
    }

    /// Puts it into a store, as an image that counts.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn give(&self, store: &Store) -> Result<(), ImageError> {
        store.make_dir()?;
        let path = store.path(self.head.index);
        let part = path.with_extension(PART);
        let failed = ImageError::io(&part);
        let mut new = OpenOptions::new();
        let out = new.write(true).create(true).truncate(true).mode(0o600).open(&part);
        let mut out = out.map_err(&failed)?;
        let whole = verified(&self.path, store.owner().program)?;
        whole.write_whole(store.owner(), &mut out, &part)?;
        out.sync_all().map_err(&failed)?;
        store.give_name(&part, &path, &[])
    }
}
