//! Images that could not be had, or not yet: what this replica says of it, and whom it tells.

use super::DAMAGED;
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
