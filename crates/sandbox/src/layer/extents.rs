//! Pieces of one of the server's files: what they hold, in short or whole, and written again.
//!
//! For a file that differs from another replica's: only differing pieces cross. The server stands still. A file is looked up in the view of the server's mounts without
//! following a symbolic link, so nothing outside of its root is touched.

use std::fs::{self, File};
use std::io::{self, Error};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::Layer;

/// Bytes of a piece: 64 KiB.
pub const EXTENT_BYTES: u64 = 64 << 10;

/// A file in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extents {
    /// Its length in bytes.
    pub size: u64,
    /// XXH3 of each of its pieces, 128 bits, in hexadecimal.
    pub hashes: Vec<String>,
}

/// A piece of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Its number.
    pub number: u64,
    /// Its content.
    pub contents: Vec<u8>,
}

impl Layer {
    /// The pieces of a file in short.
    ///
    /// # Errors
    /// It is no regular file, or cannot be read.
    pub fn extents(&self, path: &Path) -> io::Result<Extents> {
        let file = self.open(path, OFlag::O_RDONLY)?;
        let size = file.metadata()?.len();
        let hash = |number| Ok(format!("{:032x}", xxh3_128(&piece(&file, size, number)?)));
        let hashes = (0..size.div_ceil(EXTENT_BYTES)).map(hash).collect::<io::Result<_>>()?;
        Ok(Extents { size, hashes })
    }

    /// Some of its pieces.
    ///
    /// # Errors
    /// As [`extents`](Self::extents).
    pub fn read_extents(&self, path: &Path, numbers: &[u64]) -> io::Result<Vec<Extent>> {
        let file = self.open(path, OFlag::O_RDONLY)?;
        let size = file.metadata()?.len();
        let read =
            |number: &u64| Ok(Extent { number: *number, contents: piece(&file, size, *number)? });
        numbers.iter().map(read).collect()
    }

    /// Gives a file this length, and these pieces of it their contents.
    ///
    /// # Errors
    /// As [`extents`](Self::extents), or it cannot be written: a program that runs cannot.
    pub fn write_extents(&self, path: &Path, size: u64, pieces: &[Extent]) -> io::Result<()> {
        let file = self.open(path, OFlag::O_RDWR)?;
        if file.metadata()?.len() != size {
            file.set_len(size)?;
        }
        for Extent { number, contents } in pieces {
            let at = number.checked_mul(EXTENT_BYTES);
            let fits = at.and_then(|at| at.checked_add(contents.len() as u64));
            let (Some(at), Some(..)) = (at, fits.filter(|end| *end <= size)) else {
                return Err(Error::other("a piece is outside of the file"));
            };
            file.write_all_at(contents, at)?;
        }
        Ok(())
    }

    fn open(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        let root = self.root().ok_or_else(|| Error::other("the server's root was not seen"))?;
        // As a path first: the opening of a FIFO or a device may wait, or do something.
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC);
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let place = openat2(root, path.as_os_str().as_bytes(), how.resolve(resolve))?;
        let place = format!("/proc/self/fd/{}", place.as_raw_fd());
        if !fs::metadata(&place)?.is_file() {
            return Err(Error::other("it is no regular file"));
        }
        let mut options = File::options();
        options.read(true).write(flags.contains(OFlag::O_RDWR)).open(place)
    }
}

/// The content of a piece of a file of this length.
fn piece(file: &File, size: u64, number: u64) -> io::Result<Vec<u8>> {
    let at = number.checked_mul(EXTENT_BYTES).filter(|at| *at < size);
    let at = at.ok_or_else(|| Error::other("a piece is outside of the file"))?;
    let mut contents = vec![0; (size - at).min(EXTENT_BYTES) as usize];
    file.read_exact_at(&mut contents, at)?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;
    use std::sync::Mutex;

    fn layer(root: &Path) -> Layer {
        let open = || File::open(root).unwrap();
        let (overlays, made, remembered) = (Vec::new(), BTreeMap::new(), Mutex::default());
        let [uppers, top] = [open().into(), open().into()];
        Layer { uppers, top, root: Some(open()), overlays, made, remembered }
    }

    #[test]
    fn pieces_that_differ_are_read_from_one_file_and_written_into_another() {
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [right, wrong] = [&places[0], &places[1]].map(|place| layer(place.path()));
        let path = Path::new("/data");
        let mut contents = vec![7; 3 * EXTENT_BYTES as usize + 5];
        fs::write(places[0].path().join("data"), &contents).unwrap();
        contents[EXTENT_BYTES as usize + 9] = 8;
        contents.push(1);
        fs::write(places[1].path().join("data"), &contents).unwrap();
        let (here, there) = (right.extents(path).unwrap(), wrong.extents(path).unwrap());
        assert_eq!((here.size + 1, here.hashes.len()), (there.size, 4));
        let differ: Vec<u64> =
            (0..4).filter(|n| here.hashes[*n as usize] != there.hashes[*n as usize]).collect();
        assert_eq!(differ, [1, 3]);
        let pieces = right.read_extents(path, &differ).unwrap();
        assert_eq!(pieces[1].contents, [7; 5]);
        wrong.write_extents(path, here.size, &pieces).unwrap();
        assert_eq!(wrong.extents(path).unwrap(), here);
        assert!(wrong.write_extents(path, 4, &pieces).is_err(), "beyond its end");
    }

    #[test]
    fn nothing_but_regular_files_in_the_root_is_touched() {
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink(outside.path(), place.path().join("link")).unwrap();
        fs::create_dir(place.path().join("directory")).unwrap();
        nix::unistd::mkfifo(&place.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let layer = layer(place.path());
        for path in ["/link", "/directory", "/fifo", "/missing"] {
            assert!(layer.write_extents(Path::new(path), 1, &[]).is_err(), "{path}");
            assert!(layer.extents(Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(outside.as_file().metadata().unwrap().len(), 0);
    }
}
