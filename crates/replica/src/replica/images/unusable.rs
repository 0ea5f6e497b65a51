//! Images from which a server could not continue.
//!
//! One that is damaged is set aside. Any other is only left out: the cause may be want of memory, or a full disk, and it may be all that there is of the server. It counts again once a server
//! is in step, and is tried again when there has been no other for a while. It goes when there is a later one.

use crate::environment::{Environment, Image};
use crate::health::Fault;
use crate::replica::Replica;
use skein_model::LogIndex;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a server may fail to continue from an image before that is given up, or left out.
const MAX_TRIES: u32 = 2;
/// How long an image is left out when there is no other.
const LEFT_OUT_FOR: Duration = Duration::from_secs(10);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Unusable {
    /// Failures in a row, by the image's digest: others may have images of the same entry.
    tries: BTreeMap<u128, u32>,
    left_out: Vec<Image>,
    /// When they are tried again at the earliest.
    again: Duration,
    /// The last failure.
    why: String,
}

impl Unusable {
    /// Whether servers have failed to continue from it, here or from another's.
    pub(super) fn is_known(&self, digest: u128) -> bool {
        self.tries.get(&digest).is_some_and(|tries| *tries >= MAX_TRIES)
    }

    /// Those that are on the disk, and not used.
    pub(super) fn left_out(&self) -> impl Iterator<Item = &Image> {
        self.left_out.iter()
    }

    /// Another of that entry has its place on the disk.
    pub(super) fn replaced(&mut self, index: LogIndex) {
        self.left_out.retain(|image| image.index() != index);
    }
}

impl<E: Environment> Replica<E> {
    /// A server could not be restored from an image. `damaged`: its file is not what was written.
    pub(in crate::replica) fn not_restored(&mut self, index: LogIndex, why: &str, damaged: bool) {
        let mut all = self.images.kept.iter().chain(&self.images.ended);
        let image = all.find(|image| image.index() == index).cloned();
        let unusable = &mut self.images.unusable;
        why.clone_into(&mut unusable.why);
        let tries = image.as_ref().map(|image| {
            let tries = unusable.tries.entry(image.file.digest).or_default();
            *tries += 1;
            *tries
        });
        tracing::warn!(event = "not_restored", index = index.0, why, tries, damaged);
        let Some(image) = image.filter(|_| tries >= Some(MAX_TRIES)) else { return };
        if !damaged && !self.images.indices().contains(&index) {
            // What a server has left, which no edition begins on yet: it does not count without that.
            return;
        }
        let goes = if damaged { "is set aside" } else { "is left out for now" };
        self.note(format!(
            "its server cannot continue from the image of entry {index} ({why}): that {goes}"
        ));
        if damaged {
            return self.give_up_image(index, true);
        }
        self.images.kept.retain(|kept| kept.index() != index);
        self.images.unusable.left_out.push(image);
        self.images.unusable.again = self.now + LEFT_OUT_FOR;
        self.an_image_went();
    }

    /// Its server is in step: whatever it began from, what was left out may do again, and a new one is to be had soon.
    pub(in crate::replica) fn restored_well(&mut self) {
        self.images.unusable.tries.clear();
        if !self.images.unusable.left_out.is_empty() {
            self.images.schedule.hurry();
            self.count_left_out();
        }
    }

    /// An image is of no use any more. `damaged`: an operator may look at it.
    pub(in crate::replica) fn give_up_image(&mut self, index: LogIndex, damaged: bool) {
        self.env.remove_image(index, damaged);
        self.images.ended.take_if(|image| image.index() == index);
        self.images.unusable.replaced(index);
        let tries = &mut self.images.unusable.tries;
        self.images.kept.retain(|kept| {
            let goes = kept.index() == index;
            if goes {
                tries.remove(&kept.file.digest);
            }
            !goes
        });
        if damaged && self.images.kept.is_empty() {
            // Nothing is left to begin from: others' images and the log may not reach back.
            self.images.schedule.hurry();
        }
        self.an_image_went();
    }

    fn an_image_went(&mut self) {
        let newest = self.images.newest().map(Image::index).unwrap_or_default();
        self.images.schedule.is_left(newest);
        self.hold_images();
        self.tell_image();
    }

    /// With nothing else to begin from, what was left out is tried again: the cause may have passed.
    pub(super) fn try_left_out(&mut self) {
        let unusable = &mut self.images.unusable;
        if unusable.left_out.is_empty() || self.now < unusable.again {
            return;
        }
        if self.images.fetch.is_some() || !self.begins_nowhere() {
            return;
        }
        self.images.unusable.tries.clear();
        self.images.need = None;
        self.count_left_out();
    }

    fn count_left_out(&mut self) {
        self.images.kept.append(&mut self.images.unusable.left_out);
        self.images.kept.sort_by_key(Image::index);
        self.hold_images();
        self.tell_image();
    }

    /// There is a later one, which counts.
    pub(super) fn forget_left_out(&mut self) {
        let Some(newest) = self.images.newest().map(Image::index) else { return };
        let left_out = &mut self.images.unusable.left_out;
        for image in left_out.extract_if(.., |image| image.index() < newest) {
            self.env.remove_image(image.index(), false);
        }
    }

    /// Why its server could not continue from an image the last time, while one is left out.
    pub(in crate::replica) fn left_out(&self) -> Option<String> {
        let Unusable { left_out, why, .. } = &self.images.unusable;
        let index = left_out.last()?.index();
        Some(format!("its server cannot continue from the image of entry {index}: {why}"))
    }

    /// The fault that an image is left out.
    pub(in crate::replica) fn left_out_fault(&self) -> Option<Fault> {
        self.left_out().map(|why| Fault::new("image_left_out", why))
    }
}
