//! The files that a server leaves when it ends for an upgrade: an image without processes, on which the next edition's begins.
//!
//! They are kept when the end was meant, or the log says so; they count when the log says that an edition begins on them.

use super::images::Images;
use super::{Environment, Replica};
use crate::environment::Image;
use crate::images::Taking;
use crate::server::{Link, ServerState};
use crate::verdicts::digest::DigestState;
use crate::verdicts::exits::End;
use skein_model::{EntryRef, LogIndex};
use std::time::Duration;

impl Images {
    /// Whether an image is being taken, or fetched that is of this entry.
    pub(super) fn is_busy_at(&self, index: LogIndex) -> bool {
        self.taking.is_some() || self.fetch.as_ref().is_some_and(|fetch| fetch.index() == index)
    }

    /// The files of a server that has ended become an image.
    pub(super) fn keeps_files(&mut self, after: LogIndex, generation: u64, now: Duration) {
        let mut taking = Taking::begin(after, generation, now);
        (taking.stood, taking.copied) = (Some(now), Some(Duration::ZERO));
        self.taking = Some(taking);
    }

    pub(super) fn newest_is_files(&self) -> bool {
        self.newest().is_some_and(|image| image.state.ended.is_some())
    }

    /// The end at which a server left the files that are the newest image, when a log from `first` on has nothing else where a server can begin.
    pub(super) fn only_files(&self, first: LogIndex) -> Option<End> {
        let newest = self.newest().filter(|_| first > LogIndex(1))?;
        let end = (newest.index(), newest.state.ended?);
        let reaches = |image: &&Image| image.index().next() >= first;
        (self.kept.iter().filter(reaches).count() == 1).then_some(end)
    }

    /// Whether those of that entry are kept.
    pub(super) fn has_ended_at(&self, index: LogIndex) -> bool {
        let mut all = self.kept.iter().chain(&self.ended);
        all.any(|image| image.index() == index && image.state.ended.is_some())
    }

    /// They are of no use: answers their entry, at which nothing else refers to them.
    pub(super) fn forget_ended(&mut self) -> Option<LogIndex> {
        let index = self.ended.take()?.index();
        let is_it = |image: &mut Image| image.index() == index;
        let forgotten = self.unconfirmed.take_if(is_it).or_else(|| self.naming.take_if(is_it));
        forgotten.map(|_| index)
    }
}

impl<E: Environment> Replica<E> {
    /// The end on whose files this replica waits for an edition, when it can begin nowhere else.
    pub(super) fn waits_on_files(&self) -> Option<End> {
        let end = self.images.only_files(self.consensus.first_index())?;
        let begun = self.upgrades.editions.begun_on(end.0).is_some();
        (!begun && !self.slot.can_be_fed()).then_some(end)
    }

    /// It counts as an end here, until a server is seen to live on there: then the files are of no use.
    pub(super) fn adopt_files(&mut self) {
        let Some(end) = self.waits_on_files() else { return };
        self.adopt_end(end);
        if self.members.voters.contains(&self.own) && self.end_of(self.own) != Some(end) {
            self.give_up_image(end.0, false);
        }
    }

    /// What its server has left becomes an image.
    pub(super) fn keep_files(&mut self) {
        let Some(ended) = self.upgrades.ended.as_ref() else { return };
        if self.slot.can_be_fed() {
            // The next one is there.
            self.upgrades.ended = None;
            return;
        }
        let begun = self.upgrades.editions.begun_on(ended.end.0).is_some();
        // Another replica's server may have lived on.
        let votes = self.members.voters.contains(&self.own);
        let explained = votes && !self.has_ended(self.own);
        if !begun && (explained || self.now >= ended.until) {
            return self.end_was_another();
        }
        let wanted = begun || self.is_meant(ended.end);
        let (images, index) = (&self.images, ended.end.0);
        if ended.keeps || !wanted || images.is_busy_at(index) || images.has_ended_at(index) {
            return;
        }
        let ((index, status), Some(link)) = (ended.end, self.slot.link()) else { return };
        match self.state_at_end(link, index, status) {
            Ok(state) => {
                let generation = link.generation;
                self.images.keeps_files(index, generation, self.now);
                self.env.take_image(link, state);
                if let Some(ended) = &mut self.upgrades.ended {
                    ended.keeps = true;
                }
            }
            Err(why) => {
                self.note_rarely("upgrade_files", &why);
                self.end_was_another();
            }
        }
    }

    /// Whether what its server has left is on its way to the disk, or waits for an image that is: the next edition begins on it, and no other server before that.
    pub(super) fn leaves_files(&self) -> bool {
        self.upgrades.ended.is_some() && self.images.taking.is_some()
    }

    /// Whether its server has ended there for an upgrade, and the next one has not begun.
    pub(super) fn awaits_edition(&self, index: LogIndex) -> bool {
        self.upgrades.ended.as_ref().is_some_and(|ended| ended.end.0 == index)
    }

    fn state_at_end(
        &self,
        link: &Link,
        index: LogIndex,
        status: i32,
    ) -> Result<ServerState, String> {
        let gone =
            || format!("entry {index}, after which the server ended, is not in the log any more");
        let chunk = self.consensus.entries(index, 1).map_err(|error| error.to_string())?;
        let entry = chunk.entries.first().filter(|entry| entry.index == index).ok_or_else(gone)?;
        let base = self.consensus.base_at(index).ok_or_else(gone)?;
        let wall = EntryRef::parsed(&entry.payload).wall();
        let mut state = link.server_state(base.term, base.to_bytes());
        // Connections ended with the server, and nothing of its memory goes on.
        state.digest = DigestState { value: state.digest.value, connections: Vec::new() };
        Ok(ServerState {
            index,
            wall,
            start: Vec::new(),
            listening: Default::default(),
            receiving: Default::default(),
            paths: Default::default(),
            ended: Some(status),
            ..state
        })
    }

    /// The server did not end as the others' did: it is built again from the log.
    pub(super) fn end_was_another(&mut self) {
        self.upgrades.ended = None;
        if let Some(index) = self.images.forget_ended() {
            self.env.remove_image(index, false);
        }
        self.slot.forgive();
        self.slot.hasten(self.now);
    }
}
