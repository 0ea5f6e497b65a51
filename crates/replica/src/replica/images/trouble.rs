//! Images that could not be had, or not yet: what this replica says of it, and whom it tells or asks.

use super::{DAMAGED, FETCH, TELL_EVERY};
use crate::environment::{Environment, Trouble};
use crate::health::Fault;
use crate::images::Taking;
use crate::images::schedule::After;
use crate::replica::Replica;
use skein_model::LogIndex;

impl<E: Environment> Replica<E> {
    /// No image is taken now.
    pub(super) fn not_taken(&mut self, why: String) {
        self.images.taking = None;
        self.images.schedule.failed(self.now);
        if self.images.refused.as_ref() != Some(&why) {
            tracing::warn!(event = "no_image", why);
        }
        self.images.answer(&Err(why.clone()));
        self.images.refused = Some(why);
    }

    /// The server's files were read while it went on: now it stands for the rest.
    pub(super) fn files_were_read(&mut self, index: LogIndex) {
        let is_it = |taking: &mut Taking| taking.after == index && taking.copied.is_some();
        let Some(before) = self.images.taking.take_if(is_it) else { return };
        let is_overdue = self.images.schedule.is_due(self.survived(), After::Others, self.now);
        let is_others = self.image_after() == After::Others && !is_overdue;
        if is_others && self.images.asked.is_empty() {
            return self.not_taken("another replica takes it, as this one leads by now".into());
        }
        if let Err(why) = self.begin_image() {
            return self.not_taken(why);
        }
        self.images.taking = self.images.taking.take().map(|again| again.behind(&before));
    }

    /// Another try begins when its sender speaks of its images again.
    pub(super) fn not_received(&mut self, index: LogIndex, trouble: &Trouble) {
        let Some(fetch) = self.images.fetch.take_if(|fetch| fetch.index() == index) else { return };
        let why =
            format!("the image of replica {} was not received: {}", fetch.from, trouble.why());
        if self.images.refused.as_ref() != Some(&why) {
            tracing::warn!(event = "image_not_received", index = index.0, why);
        }
        self.images.refused = Some(why);
        self.no_room_for_image(trouble);
        self.images.held.remove(&fetch.from);
        self.images.schedule.failed(self.now);
        if matches!(trouble, Trouble::Damage(_)) {
            self.env.send(fetch.from, DAMAGED, &index.0.to_le_bytes());
        }
    }

    /// It counts nowhere: the next one is soon to be had.
    pub(super) fn not_named(&mut self, index: LogIndex, trouble: &Trouble) {
        if self.images.naming.take_if(|image| image.index() == index).is_none() {
            return;
        }
        let why = format!("an image got no name on the disk: {}", trouble.why());
        tracing::warn!(event = "image_not_named", index = index.0, why);
        self.images.ended.take_if(|ended| ended.index() == index);
        self.discard(index);
        self.an_uncounted_went();
        self.no_room_for_image(trouble);
        self.images.schedule.failed(self.now);
        self.images.refused = Some(why);
    }

    /// A server that can begin nowhere needs an image.
    pub(super) fn look_for_need(&mut self) {
        if let Some(index) = self.own_need() {
            self.need_image(index);
        }
    }

    /// The least image of which a server that can begin nowhere could go on.
    fn own_need(&self) -> Option<LogIndex> {
        let needs = self.members.kind.can_serve() && self.begins_nowhere();
        needs.then(|| LogIndex(self.consensus.first_index().0 - 1))
    }

    /// The leader's log begins behind this entry, and what is here of the log ends before it. An earlier leader's may have begun later, behind an image that nobody has any more.
    pub(in crate::replica) fn leader_begins_behind(&mut self, index: LogIndex) {
        let index = self.own_need().map_or(index, |own| own.max(index));
        if self.images.need.is_some_and(|need| need > index) {
            self.images.need = None;
        }
        self.need_image(index);
    }

    /// This replica cannot continue without an image of this entry or a later one.
    fn need_image(&mut self, index: LogIndex) {
        if self.images.need.is_none_or(|need| need < index) {
            tracing::info!(event = "needs_image", index = index.0);
            self.images.need = Some(index);
            self.images.next = self.now;
        }
    }

    /// No other replica has an image that would do: whoever can is asked to take one. An earlier version answers that there is no such image.
    pub(super) fn ask_for_need(&mut self, least: LogIndex) {
        if self.images.fetch.is_some() || self.now < self.images.need_told + TELL_EVERY {
            return;
        }
        self.images.need_told = self.now;
        self.tell_all(FETCH, &[0, least.0].map(u64::to_le_bytes).concat());
    }

    /// Another replica can begin nowhere without an image of this entry or a later one.
    pub(super) fn another_needs(&mut self, least: LogIndex) {
        let newest = self.images.not_counting().or(self.images.newest());
        // One that is taken now would be too early for a later entry.
        if newest.is_none_or(|image| image.index() < least) && least <= self.survived() {
            self.images.schedule.hurry();
        }
    }

    pub(super) fn no_room_for_image(&mut self, trouble: &Trouble) {
        if let Trouble::NoRoom(why) = trouble {
            self.images.no_room = Some(why.clone());
        }
    }

    /// The fault that there is no room for an image, until there is one.
    pub(in crate::replica) fn images_fault(&self) -> Option<Fault> {
        self.images.no_room.as_ref().map(|why| Fault::new("image_no_room", why.clone()))
    }
}
