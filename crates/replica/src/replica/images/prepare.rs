//! Before a server stands for an image it is read as far as that is of use while it goes on: a leader's clients wait for the rest only.
//!
//! An image that followers take at the same entry begins there, prepared or not: nobody waits for them.

use crate::environment::Environment;
use crate::replica::Replica;
use std::time::Duration;

/// The server stands after this time, whatever was read.
const PREPARED_WITHIN: Duration = Duration::from_secs(2);

/// An image that begins when that was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preparing {
    since: Duration,
}

impl<E: Environment> Replica<E> {
    /// Begins an image that was asked for, when the server is in step.
    pub(super) fn begin_asked(&mut self) {
        let waits = |until: Duration| !self.slot.is_in_step() && self.now < until;
        let is_busy = self.images.taking.is_some() || self.images.preparing.is_some();
        if is_busy || self.images.asked_until.is_none_or(waits) {
            return;
        }
        self.images.asked_until = None;
        if let Err(why) = self.prepare_image() {
            self.images.answer(&Err(why));
        }
    }

    /// Lets the server stand, soon.
    pub(super) fn prepare_image(&mut self) -> Result<(), String> {
        if self.images.preparing.is_some() {
            return Ok(());
        }
        self.image_may_begin()?;
        let prepares = self.slot.link().is_some_and(|server| self.env.prepare_image(server));
        if prepares {
            self.images.preparing = Some(Preparing { since: self.now });
            return Ok(());
        }
        self.begin_image()
    }

    /// Begins what was prepared, for too long at the latest.
    pub(super) fn tend_preparing(&mut self) {
        let is_late =
            |preparing: Preparing| self.now >= preparing.since.saturating_add(PREPARED_WITHIN);
        if self.images.preparing.is_some_and(is_late) {
            self.image_prepared();
        }
    }

    /// All was read that could be.
    pub(super) fn image_prepared(&mut self) {
        let Some(Preparing { since }) = self.images.preparing.take() else { return };
        if self.images.taking.is_some() {
            // It has begun with others' images. Who has asked gets that one.
            return;
        }
        match self.begin_image() {
            Ok(()) => self.images.taking.iter_mut().for_each(|taking| taking.since = since),
            Err(why) => self.images.answer(&Err(why)),
        }
    }
}
