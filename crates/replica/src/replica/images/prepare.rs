//! Before a server stands for an image it is read as far as that is of use while it goes on: a leader's clients wait for the rest only.
//!
//! An image that followers take at the same entry begins there, prepared or not: nobody waits for them.

use crate::environment::Environment;
use crate::images::schedule::After;
use crate::replica::Replica;
use std::time::Duration;

/// So long a server is read before,
const PREPARED_WITHIN: Duration = Duration::from_secs(2);
/// and then it stands after this time, whatever was read.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// An image that begins when that was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preparing {
    since: Duration,
    /// Whom this replica let take one first.
    after: After,
}

impl<E: Environment> Replica<E> {
    /// Begins an image that was asked for, when the server is in step.
    pub(super) fn begin_asked(&mut self) {
        let waits = |until: Duration| !self.slot.is_in_step() && self.now < until;
        let is_busy = self.images.taking.is_some() || self.images.preparing.is_some();
        if is_busy || self.images.asked_until.is_none_or(waits) {
            return;
        }
        if let Err(why) = self.prepare_image() {
            self.images.answer(&Err(why));
        }
    }

    /// What its server found out about its host is agreed on before it can stand. Who has asked for an image waits for that.
    pub(super) fn asks_first(&mut self) {
        if self.images.asked_until.is_some_and(|until| self.now < until) {
            self.images.taking = None;
            return;
        }
        self.not_taken("its server asks about files of its host; try again".into());
    }

    /// Lets the server stand, soon.
    pub(super) fn prepare_image(&mut self) -> Result<(), String> {
        if self.images.preparing.is_some() {
            return Ok(());
        }
        self.image_may_begin()?;
        let prepares = self.slot.link().is_some_and(|server| self.env.prepare_image(server));
        if prepares {
            let after = self.image_after();
            self.images.preparing = Some(Preparing { since: self.now, after });
            return Ok(());
        }
        self.begin_image()
    }

    /// Begins what was prepared for too long.
    pub(super) fn tend_preparing(&mut self) {
        let Some(Preparing { since, .. }) = self.images.preparing else { return };
        let waited = self.now.saturating_sub(since);
        if waited >= PREPARED_WITHIN + ENDS_WITHIN {
            self.image_prepared();
        } else if waited >= PREPARED_WITHIN {
            self.env.hurry_image();
        }
    }

    /// The server is to stand now.
    pub(super) fn end_preparing(&mut self) {
        if self.images.preparing.is_some() {
            self.env.hurry_image();
        }
    }

    /// All was read that could be.
    pub(super) fn image_prepared(&mut self) {
        let Some(Preparing { since, after }) = self.images.preparing.take() else { return };
        let is_asked = !self.images.asked.is_empty();
        let is_taken = !is_asked && self.images.came >= since;
        // It has begun with others' images: who has asked gets that one. Or this replica leads since, and another one takes it.
        let leads_since = after != After::Others && self.image_after() == After::Others;
        let is_others = !is_asked && leads_since;
        if self.images.taking.is_some() || is_taken || is_others {
            return;
        }
        match self.begin_image() {
            Ok(()) => {
                let prepared = self.now.saturating_sub(since);
                self.images.taking.iter_mut().for_each(|taking| taking.prepared = prepared);
            }
            // Who has asked since may wait for a server that is not in step.
            Err(why) if self.images.asked_until.is_none() => self.images.answer(&Err(why)),
            Err(_) => {}
        }
    }
}
