//! The images of servers on a machine's disk.
//!
//! A file's bytes are not there, only how many: its digest names what it holds.

use crate::server::RegisterServer;
use skein_model::LogIndex;
use skein_replica::environment::{Image, ImageFile};
use skein_replica::server::ServerState;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an image holds.
#[derive(Clone, Debug)]
pub struct Imaged {
    /// The replica's part.
    pub state: Arc<ServerState>,
    /// The server.
    pub program: RegisterServer,
    /// The server's output differed from the others'.
    pub differs: bool,
}

/// An image.
#[derive(Clone, Debug)]
pub struct Shelved {
    /// As replicas name it.
    pub file: ImageFile,
    /// Its content.
    pub holds: Imaged,
    /// It counts at the next start.
    pub confirmed: bool,
    /// It is not what was written.
    pub rotten: bool,
}

/// What has come of one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Come {
    /// So many bytes,
    pub bytes: u64,
    /// and some are not those that were written.
    pub rotten: bool,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    /// Those that are whole.
    pub images: BTreeMap<LogIndex, Shelved>,
    /// Those that have come in part.
    pub parts: BTreeMap<(LogIndex, u128), Come>,
}

impl Shelf {
    /// A node starts: what is not confirmed, or rotten, goes.
    pub fn restart(&mut self) {
        self.images.retain(|_, image| image.confirmed && !image.rotten);
    }

    /// What it finds then.
    pub fn at_start(&self) -> (Vec<Image>, BTreeMap<LogIndex, RegisterServer>) {
        let images = self.images.values().map(Shelved::image).collect();
        let programs =
            self.images.iter().map(|(index, image)| (*index, image.holds.program.clone()));
        (images, programs.collect())
    }
}

impl Shelved {
    /// As a replica knows it.
    pub fn image(&self) -> Image {
        Image { state: self.holds.state.clone(), file: self.file }
    }
}
