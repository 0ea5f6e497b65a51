//! Images that come from other replicas, part by part.

use super::FETCH;
use crate::environment::{Environment, Image, ImageFile};
use crate::images::Fetch;
use crate::replica::Replica;
use skein_model::{LogIndex, ReplicaId};

impl<E: Environment> Replica<E> {
    pub(super) fn part_came(&mut self, peer: ReplicaId, index: LogIndex, from: u64, bytes: &[u8]) {
        let is_it = |fetch: &&mut Fetch| fetch.from == peer && fetch.index() == index;
        let Some(fetch) = self.images.fetch.as_mut().filter(is_it) else { return };
        if bytes.is_empty() {
            self.images.held.remove(&peer);
            self.images.fetch = None;
        } else if fetch.takes(from, bytes.len() as u64, self.now) {
            let file = fetch.file;
            self.env.receive_image(file, from, bytes.to_vec());
            self.ask_for_parts();
        }
    }

    pub(super) fn ask_for_parts(&mut self) {
        while let Some(fetch) = &mut self.images.fetch
            && let Some(from) = fetch.ask(self.now)
        {
            let (to, index) = (fetch.from, fetch.index());
            let bytes = [index.0.to_le_bytes(), from.to_le_bytes()].concat();
            if !self.env.send(to, FETCH, &bytes) {
                self.images.fetch = None;
            }
        }
    }

    pub(super) fn tend_fetch(&mut self) {
        if let Some(fetch) = self.images.fetch.take_if(|fetch| fetch.is_over(self.now)) {
            tracing::warn!(
                event = "image_not_received",
                index = fetch.index().0,
                why = "its sender is silent"
            );
            self.images.held.remove(&fetch.from);
        }
        self.ask_for_parts();
        if self.images.fetch.is_none()
            && let Some(need) = self.images.need
        {
            self.fetch(need, true);
            self.ask_for_need(need);
        }
    }

    /// Fetches the newest image that a peer has, if it is of this entry or a later one, and newer than any here. `any`: one that is not confirmed will do, if it is
    /// the leader's: clients have seen its answers.
    pub(super) fn fetch(&mut self, least: LogIndex, any: bool) {
        let newest = self.images.newest().map(Image::index).unwrap_or_default();
        let least = if any { least } else { least.max(self.images.doubted) };
        let leader = self.consensus.leader().filter(|_| any);
        let held = self.images.held.iter();
        let of_all = held.filter_map(|(peer, files)| Some((*peer, files[0]?)));
        let of_leader = leader.and_then(|id| Some((id, self.images.held.get(&id)?[1]?)));
        let taking = self.images.taking.as_ref().map(|taking| taking.after);
        let fits = |file: &ImageFile| {
            let is_new = file.index >= least && file.index > newest;
            let is_known = self.images.unusable.is_known(file.digest);
            is_new && taking != Some(file.index) && !is_known
        };
        let confirmed = of_all.filter(|(_, file)| fits(file)).max_by_key(|(_, file)| file.index);
        let other = of_leader.filter(|(_, file)| fits(file));
        let Some((peer, file)) = confirmed.or(other) else { return };
        tracing::info!(
            event = "fetching_image",
            from = peer.0,
            index = file.index.0,
            bytes = file.bytes
        );
        self.images.fetch = Some(Fetch::new(peer, file, E::PART_BYTES, self.images.rate, self.now));
        self.env.receive_image(file, 0, Vec::new());
    }
}
