//! Directories on disk for the server's private layer, `DATA_DIR/layer/N`: a new one for each start.
//!
//! No state is in a layer that image and log do not have. So it is never synced, and is removed when its server has ended. What a killed node left is
//! removed by the next start, beside it: that may take a while.

use crate::config::{LayerPlace, NodeConfig};
use crate::error::NodeError;
use skein_log::disk::durable;
use skein_sandbox::{file_system, make_layer, remove_layer, unfit_for_layer};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

const NAME: &str = "layer";
/// A server's end waits so long for the removal of its layer, which otherwise goes on beside.
const WAITS: Duration = Duration::from_secs(2);

/// The layers of one data directory.
#[derive(Debug)]
pub(super) struct Layers {
    dir: PathBuf,
    place: LayerPlace,
    /// The kind of its file system, of a place on disk.
    file_system: Option<i64>,
}

/// The directory of one server. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct LayerDir(PathBuf);

/// Refuses a data directory, which need not exist yet, that cannot have a server's layer.
///
/// # Errors
/// Its file system is unfit, or cannot be asked.
pub fn check(data_dir: &Path) -> Result<(), NodeError> {
    let failed = |error| NodeError::DataDir { path: data_dir.to_owned(), error };
    match unfit_for_layer(existing(data_dir)).map_err(failed)? {
        Some(why) => Err(unfit(data_dir, &format!("it is on {why}"))),
        None => Ok(()),
    }
}

fn unfit(data_dir: &Path, why: &str) -> NodeError {
    NodeError::Layer { path: data_dir.to_owned(), why: why.to_owned() }
}

/// The directory itself, or the closest one above it that exists.
fn existing(dir: &Path) -> &Path {
    dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."))
}

impl Layers {
    pub(super) fn new(config: &NodeConfig) -> Result<Self, NodeError> {
        let (data_dir, place) = (&config.data_dir, config.server.layer);
        let mut file_system = None;
        if place == LayerPlace::Disk {
            check(data_dir)?;
            let asked = self::file_system(existing(data_dir));
            file_system =
                Some(asked.map_err(|error| NodeError::DataDir { path: data_dir.clone(), error })?);
        }
        Ok(Self { dir: data_dir.join(NAME), place, file_system })
    }

    /// Where layers are on disk, the kind of file system: some of its limits show.
    pub(super) const fn file_system(&self) -> Option<i64> {
        self.file_system
    }

    /// A new one, if layers are on disk; those of earlier starts are removed beside, since their servers have ended.
    pub(super) fn next(&self) -> Result<Option<LayerDir>, NodeError> {
        let failed = |error| NodeError::DataDir { path: self.dir.clone(), error };
        let old = self.all().map_err(failed)?;
        let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u64>().ok();
        let last = old.iter().filter_map(number).max().unwrap_or(0);
        if !old.is_empty() {
            let begun = Builder::new().name("skein-layer".into()).spawn(move || {
                old.iter().for_each(|dir| remove(dir));
            });
            begun.map_err(NodeError::system("start a thread to remove old layers"))?;
        }
        if self.place == LayerPlace::Memory {
            return Ok(None);
        }
        durable::create_dir(&self.dir).map_err(failed)?;
        let dir = self.dir.join((last + 1).to_string());
        make_layer(&dir).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                unfit(&self.dir, "its file system has no extended attributes")
            }
            _ => failed(error),
        })?;
        Ok(Some(LayerDir(dir)))
    }

    fn all(&self) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(&self.dir) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

fn remove(dir: &Path) {
    if let Err(error) = remove_layer(dir) {
        tracing::warn!(event = "layer_not_removed", dir = %dir.display(), %error);
    }
}

impl LayerDir {
    pub(super) fn path(&self) -> PathBuf {
        self.0.clone()
    }
}

impl Drop for LayerDir {
    fn drop(&mut self) {
        let (dir, (done, ended)) = (self.0.clone(), channel());
        let begun = Builder::new().name("skein-layer".into()).spawn(move || {
            remove(&dir);
            // Nobody waits any more for one that takes long.
            let _ = done.send(());
        });
        match begun {
            Ok(_) => drop(ended.recv_timeout(WAITS)),
            // The next start removes it.
            Err(error) => tracing::warn!(event = "layer_not_removed", %error),
        }
    }
}
