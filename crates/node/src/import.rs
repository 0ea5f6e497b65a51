//! Files that a cluster begins with: a directory that was given when it was made, packed in each replica's data directory. Or an image of a server that goes on, until the log was begun
//! behind it.
//!
//! A server finds them in its private layer, over its host's files, before its first entry. So they are a part of what the log is executed on: their hash is a part of the
//! program's, and nodes with other ones refuse each other. They stay for as long as the log may begin at its first entry again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use skein_log::disk::durable;
use skein_sandbox::{Amount, Layer, own_directories, pack_tree};

use crate::base::Base;
use crate::begin;
use crate::config::{LAYER_BYTES, LayerPlace, NodeConfig};
use crate::error::NodeError;

/// Their file in a data directory.
pub(crate) const FILE: &str = "import";
const PART: &str = "import.part";
/// The hash at the end of a packed layer.
const HASH_BYTES: usize = 16;

/// The image of a data directory whose log is to begin behind it.
pub(crate) const IMAGE: &str = "import.image";

/// The image behind which a log in this data directory is to begin.
#[must_use]
pub fn image(data_dir: &Path) -> Option<PathBuf> {
    Some(data_dir.join(IMAGE)).filter(|path| path.exists())
}

/// The log was begun.
///
/// # Errors
/// The file of [`image`] cannot be removed.
pub fn image_taken(data_dir: &Path) -> Result<(), NodeError> {
    let path = data_dir.join(IMAGE);
    durable::remove(&path).map_err(failed(&path))
}

/// The packed files of a data directory.
#[derive(Clone, Debug)]
pub struct Import {
    path: PathBuf,
    hash: [u8; HASH_BYTES],
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> NodeError {
    let path = path.to_owned();
    move |error| NodeError::Import { path: path.clone(), error }
}

/// Packs the files below `dir`, which stands for the server's root, into a data directory, durably.
///
/// # Errors
/// They cannot be read, or there is no room for them.
pub fn pack(dir: &Path, data_dir: &Path) -> Result<Amount, NodeError> {
    if !fs::metadata(dir).map_err(failed(dir))?.is_dir() {
        return Err(failed(dir)(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    durable::create_dir(data_dir).map_err(failed(data_dir))?;
    let part = data_dir.join(PART);
    let packed = pack_part(dir, &part).and_then(|amount| {
        durable::rename(&part, &path(data_dir)).map_err(failed(&part))?;
        Ok(amount)
    });
    if packed.is_err() {
        // The error of the packing is the one that matters.
        let _ = fs::remove_file(&part);
    }
    packed
}

fn pack_part(dir: &Path, part: &Path) -> Result<Amount, NodeError> {
    let mut new = OpenOptions::new();
    let file = new.write(true).create(true).truncate(true).mode(0o600).open(part);
    let mut out = BufWriter::with_capacity(1 << 20, file.map_err(failed(part))?);
    let amount = pack_tree(dir, &mut out).map_err(failed(dir))?;
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed(part))?;
    Ok(amount)
}

/// Gives another data directory of this machine the files, or the image with its base, of this one, if it has them. That one's log is not begun yet: a base that it has goes.
///
/// # Errors
/// There is a log, or no room for them.
pub fn share(from: &Path, to: &Path) -> Result<(), NodeError> {
    refuse_log(to)?;
    if image(from).is_some() {
        Base::copy(from, to)?;
    }
    for name in [FILE, IMAGE] {
        let from = from.join(name);
        if from.exists() {
            share_file(&from, to, name)?;
        }
    }
    Ok(())
}

fn share_file(from: &Path, to: &Path, name: &str) -> Result<(), NodeError> {
    durable::create_dir(to).map_err(failed(to))?;
    let part = to.join(PART);
    durable::remove(&part).map_err(failed(&part))?;
    // Nobody ever writes to it, so one file serves both; but not across file systems.
    if fs::hard_link(from, &part).is_err() {
        let copied = fs::copy(from, &part).and_then(|_| File::open(&part)?.sync_all());
        copied.map_err(failed(&part))?;
    }
    durable::rename(&part, &to.join(name)).map_err(failed(&part))
}

/// Removes what a log that is not begun yet was to begin with, or a part of it.
///
/// # Errors
/// There is a log, or it cannot be removed.
pub fn forget(data_dir: &Path) -> Result<(), NodeError> {
    refuse_log(data_dir)?;
    if !data_dir.exists() {
        return Ok(());
    }
    for name in [FILE, IMAGE, PART] {
        let path = data_dir.join(name);
        durable::remove(&path).map_err(failed(&path))?;
    }
    Base::forget(data_dir)
}

fn refuse_log(data_dir: &Path) -> Result<(), NodeError> {
    if begin::has_begun(data_dir) {
        return Err(NodeError::HasLog { path: data_dir.to_owned() });
    }
    Ok(())
}

/// Whether a data directory has imported files, or an image.
#[must_use]
pub fn is_there(data_dir: &Path) -> bool {
    path(data_dir).exists() || image(data_dir).is_some()
}

impl Import {
    /// Those for a node's server, if there are some.
    ///
    /// # Errors
    /// They cannot be read, or are more than the server's layer holds.
    pub fn for_server(config: &NodeConfig) -> Result<Option<Self>, NodeError> {
        let import = Self::of(&config.data_dir)?;
        if let Some(Self { path, .. }) = &import
            && config.server.layer == LayerPlace::Memory
            && fs::metadata(path).map_err(failed(path))?.len() > LAYER_BYTES
        {
            let most = LAYER_BYTES >> 30;
            return Err(failed(path)(io::Error::other(format!(
                "they are more than the {most} GiB that a server's files may have in memory: give '--layer disk', or `layer` under [server]"
            ))));
        }
        Ok(import)
    }

    /// Those of a data directory, if it has some.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of(data_dir: &Path) -> Result<Option<Self>, NodeError> {
        let path = path(data_dir);
        let read = || -> io::Result<[u8; HASH_BYTES]> {
            let mut file = File::open(&path)?;
            let mut hash = [0; HASH_BYTES];
            file.seek(SeekFrom::End(-(HASH_BYTES as i64)))?;
            file.read_exact(&mut hash)?;
            Ok(hash)
        };
        match read() {
            Ok(hash) => Ok(Some(Self { path, hash })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path)(error)),
        }
    }

    /// Their hash; equal for equal files.
    #[must_use]
    pub const fn hash(&self) -> &[u8; HASH_BYTES] {
        &self.hash
    }

    fn open(&self) -> Result<BufReader<File>, NodeError> {
        let file = File::open(&self.path).map_err(failed(&self.path))?;
        Ok(BufReader::with_capacity(1 << 20, file))
    }

    /// Directories of the user's own inside of others' that a server must be able to write to.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn own_directories(&self) -> Result<Vec<PathBuf>, NodeError> {
        own_directories(&mut self.open()?).map_err(failed(&self.path))
    }

    /// Puts them into the layer of a server that was just started.
    ///
    /// # Errors
    /// They are damaged, or cannot be made: that server is of no use.
    pub fn give(&self, layer: Option<&Layer>) -> Result<(), NodeError> {
        let layer = layer.ok_or_else(|| {
            failed(&self.path)(io::Error::other(
                "a server without isolation has no layer for imported files",
            ))
        })?;
        layer.unpack(&mut self.open()?).map_err(failed(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_files_have_equal_hashes_and_are_shared() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for dir in ["a", "b", "c"] {
            fs::create_dir_all(path(dir).join("var/x")).unwrap();
            fs::write(path(dir).join("var/x/file"), "text").unwrap();
            for name in ["var/x/file", "var/x", "var"] {
                let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
                File::open(path(dir).join(name)).unwrap().set_modified(at).unwrap();
            }
        }
        fs::write(path("c/var/x/file"), "other").unwrap();
        let packed = |dir: &str| {
            let data = path("data").join(dir);
            let amount = pack(&path(dir), &data).unwrap();
            assert_eq!(amount.files, 1);
            *Import::of(&data).unwrap().unwrap().hash()
        };
        assert_eq!(packed("a"), packed("b"));
        assert_ne!(packed("a"), packed("c"));
        share(&path("data/a"), &path("data/d")).unwrap();
        assert_eq!(*Import::of(&path("data/d")).unwrap().unwrap().hash(), packed("a"));
        share(&path("data/none"), &path("data/e")).unwrap();
        assert!(Import::of(&path("data/e")).unwrap().is_none() && !is_there(&path("data/e")));
        let error = pack(&path("missing"), &path("data/f")).unwrap_err().to_string();
        assert!(error.contains("missing") && !is_there(&path("data/f")), "{error}");
        let error = pack(&path("a/var/x/file"), &path("data/f")).unwrap_err().to_string();
        assert!(error.contains("ot a directory"), "{error}");
    }

    #[test]
    fn files_that_memory_does_not_hold_are_for_a_layer_on_disk() {
        let root = tempfile::tempdir().unwrap();
        let config = |layer: &str| -> NodeConfig {
            let server = serde_json::json!({ "program": "redis-server", "layer": layer });
            let peers = serde_json::json!([{ "id": 1, "address": "/tmp/x" }]);
            let config = serde_json::json!({
                "name": "x", "id": 1, "peers": peers, "data_dir": root.path(), "server": server
            });
            serde_json::from_value(config).unwrap()
        };
        // It has holes only.
        let packed = File::create(path(root.path())).unwrap();
        let taken = |layer: &str| Import::for_server(&config(layer));
        for (bytes, memory_holds) in [(LAYER_BYTES, true), (LAYER_BYTES + 1, false)] {
            packed.set_len(bytes).unwrap();
            match taken("memory") {
                Ok(import) => assert!(memory_holds && import.is_some(), "{bytes} bytes"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!memory_holds, "{bytes} bytes: {error}");
                    let name = path(root.path()).display().to_string();
                    for part in [&name, "more than the 4 GiB", "in memory", "'--layer disk'"] {
                        assert!(error.contains(part), "{error}");
                    }
                }
            }
            assert!(taken("disk").unwrap().is_some(), "{bytes} bytes");
        }
    }
}
