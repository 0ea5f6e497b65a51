//! From when on an image counts: one that was received does, one that was taken here when the servers were found equal at its entry or behind, and its name is durable.

use crate::environment::{Environment, Image};
use crate::images::Checkpointed;
use crate::replica::Replica;
use skein_model::LogIndex;
use std::time::Duration;

impl<E: Environment> Replica<E> {
    /// An image was taken here.
    pub(super) fn image_kept(&mut self, image: Image) {
        self.images.no_room = None;
        let (index, bytes) = (image.index(), image.file.bytes);
        let Some(taking) = self.images.taking.take_if(|taking| taking.after == index) else {
            // It was given up meanwhile.
            return self.discard(index);
        };
        let took = self.now.saturating_sub(taking.since);
        let lives = self.server().is_some_and(|s| s.generation == taking.generation);
        let unwanted = image.state.ended.is_some() && !self.awaits_edition(index);
        if !lives || unwanted || self.slot.has_diverged() {
            // It may have ended, or been found wrong, while it was read.
            self.discard(index);
            return self.not_taken("its server has ended, or was repaired, meanwhile".into());
        }
        let told = taking.told(bytes, took);
        let Checkpointed { pages, stood_us, took_us, .. } = told;
        tracing::info!(event = "image_taken", index = index.0, bytes, pages, stood_us, took_us);
        self.images.answer(&Ok(told));
        self.images.refused = None;
        // A leader's clients wait from when its server is asked to stand.
        let cost = if self.lead.is_some() { taking.prepared + took } else { taking.cost(self.now) };
        self.images.schedule.came(index, cost, self.now);
        self.images.ended = Some(image.clone()).filter(|image| image.state.ended.is_some());
        // One of the same entry has its place on the disk.
        if let Some(other) = self.images.unconfirmed.replace(image)
            && other.index() != index
        {
            self.discard(other.index());
        }
        self.images.came = self.now;
        self.tell_image();
        self.confirm_image();
    }

    /// Removes an image that was taken here, and is not to count.
    pub(in crate::replica) fn discard(&mut self, index: LogIndex) {
        // One that was received has the same name.
        if !self.images.kept.iter().any(|image| image.index() == index) {
            self.env.remove_image(index, false);
        }
    }

    /// An image was received: it was found right elsewhere.
    pub(super) fn image_came(&mut self, image: Image) {
        self.images.no_room = None;
        let (index, bytes) = (image.index(), image.file.bytes);
        let fetched = self.images.fetch.take_if(|fetch| fetch.index() == index);
        let took = fetched.map_or(Duration::ZERO, |fetch| self.now.saturating_sub(fetch.since));
        let took_ms = took.as_millis() as u64;
        tracing::info!(event = "image_received", index = index.0, bytes, took_ms);
        self.images.refused = None;
        self.images.schedule.came(index, took, self.now);
        self.image_confirmed(image);
    }

    /// The servers may have been found equal since an image was taken: then it gets its name, and counts once that is durable.
    pub(in crate::replica) fn confirm_image(&mut self) {
        let Some(came) = self.images.unconfirmed.as_ref().map(|_| self.images.came) else { return };
        if self.images.naming.is_some() {
            return;
        }
        let (agreed, alone) = (self.compare.agreed, self.nobody_compares(came));
        // Files wait for their edition: what counts at a start has one.
        let is_of_use = |image: &Image| {
            image.state.ended.is_none() || self.upgrades.editions.begun_on(image.index()).is_some()
        };
        let confirmed = |image: &mut Image| (alone || image.index() <= agreed) && is_of_use(image);
        if let Some(image) = self.images.unconfirmed.take_if(confirmed) {
            self.env.confirm_image(image.index());
            self.images.naming = Some(image);
        }
    }

    /// An image has its name on the disk, unless it was removed meanwhile.
    pub(super) fn image_named(&mut self, index: LogIndex) {
        if let Some(image) = self.images.naming.take_if(|image| image.index() == index) {
            self.image_confirmed(image);
        }
    }

    fn image_confirmed(&mut self, image: Image) {
        let index = image.index();
        self.env.image_counts(&image);
        // A log that continues behind it may have no entry yet.
        self.pulse.observe(image.state.wall, &self.env);
        self.images.unusable.replaced(index);
        self.images.kept.retain(|kept| kept.index() != index);
        self.images.kept.push(image);
        self.images.kept.sort_by_key(Image::index);
        self.images.need.take_if(|need| index >= *need);
        self.images.fetch.take_if(|fetch| fetch.index() <= index);
        self.images.hurry_behind_files();
        self.forget_left_out();
        self.forget_old_images();
        self.hold_images();
        self.tell_image();
    }
}
