//! Looks for rot in images that lie there: from time to time each is read and compared with its digests. One that is damaged is set aside while another one can be taken or fetched,
//! and not found when it is needed.

use super::Replica;
use crate::environment::Environment;
use std::time::Duration;

/// When all images are read again.
#[derive(Clone, Copy, Debug)]
pub struct Scrub {
    every: Option<Duration>,
    next: Duration,
}

impl Scrub {
    /// So often; 0: never. They were read at the start.
    pub fn new(every_s: u64) -> Self {
        let every = Some(Duration::from_secs(every_s)).filter(|every| !every.is_zero());
        Self { every, next: every.unwrap_or_default() }
    }

    /// Whether they are to be read now.
    fn is_due(&mut self, now: Duration) -> bool {
        let Some(every) = self.every.filter(|_| now >= self.next) else { return false };
        self.next = now + every;
        true
    }
}

impl<E: Environment> Replica<E> {
    /// Has all images read when that is due, beside the replica.
    pub(super) fn scrub_images(&mut self) {
        if !self.images.scrub.is_due(self.now) {
            return;
        }
        for index in self.images.indices() {
            self.env.check_image(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_read_at_intervals_or_never() {
        let at = Duration::from_secs;
        let mut scrub = Scrub::new(10);
        let due: Vec<u64> = (0..35).filter(|second| scrub.is_due(at(*second))).collect();
        assert_eq!(due, [10, 20, 30]);
        let mut never = Scrub::new(0);
        assert!(!never.is_due(at(1_000_000)));
    }
}
