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

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    /// Those that are whole.
    pub images: BTreeMap<LogIndex, Shelved>,
    /// Those that have come in part: their bytes so far.
    pub parts: BTreeMap<(LogIndex, u128), u64>,
}

impl Shelf {
    /// What a node finds when it starts: what is not confirmed, or rotten, is gone.
    pub fn at_start(&self) -> (Vec<Image>, BTreeMap<LogIndex, RegisterServer>) {
        let sound = || self.images.values().filter(|image| image.confirmed && !image.rotten);
        let images = sound().map(Shelved::image).collect();
        (images, sound().map(|image| (image.file.index, image.holds.program.clone())).collect())
    }
}

impl Shelved {
    /// As a replica knows it.
    pub fn image(&self) -> Image {
        Image { state: self.holds.state.clone(), file: self.file }
    }
}
