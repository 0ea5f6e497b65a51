//! An image that another replica sends, in parts.
//!
//! It is written into a file of its own, whose name has its digest: so a later try, also in another life of the node, goes on behind what is there, and
//! never behind another image's bytes. Only the whole file is believed, after all of it was read and compared.

use super::store::Store;
use skein_image::file::ImageError;
use skein_log::disk::durable;
use skein_replica::environment::{Image, ImageFile};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const INCOMING: &str = "incoming";

/// See the [module](self).
#[derive(Debug)]
pub struct Incoming {
    store: Store,
    expected: ImageFile,
    path: PathBuf,
    out: File,
    come: u64,
}

/// The state after bytes have come.
#[derive(Debug)]
pub enum Progress {
    /// So many are there.
    Has(u64),
    /// All of it, durable and whole.
    Whole(Image),
}

impl Incoming {
    /// Begins to receive this file, or goes on. Files of other images that were not received to their end are removed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(store: &Store, expected: ImageFile) -> Result<Self, ImageError> {
        let name = format!("image-{}-{:032x}.{INCOMING}", expected.index, expected.digest);
        let path = store.dir().join(name);
        let failed = ImageError::io(store.dir());
        store.make_dir()?;
        for entry in fs::read_dir(store.dir()).map_err(&failed)? {
            let other = entry.map_err(&failed)?.path();
            if other != path && other.extension().is_some_and(|ending| ending == INCOMING) {
                durable::remove(&other).map_err(ImageError::io(&other))?;
            }
        }
        let failed = ImageError::io(&path);
        let out = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let out = out.map_err(&failed)?;
        let come = out.metadata().map_err(&failed)?.len();
        Ok(Self { store: store.clone(), expected, path, out, come })
    }

    /// The file that is received.
    #[must_use]
    pub const fn expected(&self) -> ImageFile {
        self.expected
    }

    /// Takes bytes from a position on; those that are not the next ones are left out. None: looks at what is there.
    ///
    /// # Errors
    /// They cannot be written, or the whole file is not the expected one: then nothing of it stays.
    pub fn take(&mut self, from: u64, bytes: &[u8]) -> Result<Progress, ImageError> {
        if from == self.come && !bytes.is_empty() {
            let written = self.out.write_all(bytes);
            if let Err(error) = written {
                // What was written of them is not counted.
                let _ = self.out.set_len(self.come);
                return Err(ImageError::io(&self.path)(error));
            }
            self.come += bytes.len() as u64;
        }
        if self.come < self.expected.bytes {
            return Ok(Progress::Has(self.come));
        }
        let whole = self.finish();
        if whole.is_err() {
            let _ = durable::remove(&self.path);
        }
        whole.map(Progress::Whole)
    }

    fn finish(&self) -> Result<Image, ImageError> {
        let failed = ImageError::io(&self.path);
        self.out.sync_all().map_err(&failed)?;
        let index = self.expected.index;
        let image = Store::image_of(&self.path, index, self.store.owner())?;
        if image.file != self.expected {
            let why = "it is not the one that the other replica named".into();
            return Err(ImageError::Damaged { path: self.path.clone(), why });
        }
        durable::rename(&self.path, &self.store.path(index)).map_err(&failed)?;
        Ok(image)
    }
}

/// Reads a part of a file to be sent; less at its end.
///
/// # Errors
/// It cannot be read.
pub fn read_part(path: &Path, from: u64, bytes: usize) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    let mut part = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match file.read_at(&mut part[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    part.truncate(filled);
    Ok(part)
}
