//! Followers take their images in turn: while one's server stands, the others' go on, and clients wait for nobody.

use crate::environment::{Environment, Image};
use crate::replica::Replica;
use skein_model::ReplicaId;

impl<E: Environment> Replica<E> {
    /// Whether this follower takes the image that is due now.
    pub(super) fn is_its_turn(&mut self) -> bool {
        let own = self.images.newest().into_iter().chain(self.images.not_counting());
        let newest = own.map(Image::index).max().unwrap_or_default();
        let leader = self.consensus.leader();
        let newest_of = |id: ReplicaId| {
            let held = self.images.held.get(&id).into_iter().flatten().flatten();
            held.map(|file| file.index).max().unwrap_or_default()
        };
        let others = self.others_with_servers().filter(|id| Some(*id) != leader);
        let before = others.filter(|id| (newest_of(*id), *id) < (newest, self.own)).count();
        self.images.turn.has_come(before, self.now)
    }
}
