//! Fetches an image from another replica: asks for its bytes, a few parts ahead, not faster than is configured.

use crate::environment::ImageFile;
use skein_model::{LogIndex, ReplicaId};
use std::time::Duration;

/// Parts on their way at a time, at most: at first one, and where others were there already, as those behind it may be there, too.
const AHEAD: u64 = 4;
/// What does not come within this time is asked for again: messages may be lost.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A peer that sends nothing for this long is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the [module](self).
#[derive(Debug)]
pub struct Fetch {
    /// The replica that has it.
    pub from: ReplicaId,
    /// The file.
    pub file: ImageFile,
    /// When it began.
    pub since: Duration,
    /// Where it began, once that is known: an earlier try may have left some.
    begun: Option<u64>,
    /// All before this was asked for,
    asked: u64,
    /// has come,
    come: u64,
    /// and is stored.
    stored: u64,
    /// Parts on their way at a time now.
    ahead: u64,
    /// When something came last.
    heard: Duration,
    /// When something was asked for last.
    asked_at: Duration,
    /// Bytes a second.
    rate: u64,
    /// Bytes of a part.
    part: u64,
}

impl Fetch {
    /// From a replica that has this file, in parts of so many bytes; not faster than `rate` bytes a second.
    #[must_use]
    pub const fn new(
        from: ReplicaId,
        file: ImageFile,
        part: u64,
        rate: u64,
        now: Duration,
    ) -> Self {
        let (begun, asked, come, stored) = (None, 0, 0, 0);
        Self {
            from,
            file,
            since: now,
            begun,
            asked,
            come,
            stored,
            ahead: 1,
            heard: now,
            asked_at: now,
            rate,
            part,
        }
    }

    /// So much of it is stored; more than has come is what an earlier try has left.
    pub fn is_stored(&mut self, bytes: u64, now: Duration) {
        if self.begun.is_none() || bytes > self.come {
            self.begun = Some(bytes);
            (self.asked, self.come, self.since, self.ahead) = (bytes, bytes, now, 1);
        } else {
            self.ahead = AHEAD.min(2 * self.ahead);
        }
        self.stored = self.stored.max(bytes);
        self.heard = now;
    }

    /// Whether bytes at this position are the next ones, and not too many; they are to be stored then.
    #[must_use]
    pub fn takes(&mut self, from: u64, bytes: u64, now: Duration) -> bool {
        let fits = self.begun.is_some() && from == self.come && bytes <= self.part;
        let fits = fits && bytes > 0 && from + bytes <= self.file.bytes;
        if fits {
            self.come += bytes;
            // The answer to an earlier question may come after it was asked again.
            self.asked = self.asked.max(self.come);
            self.heard = now;
        }
        fits
    }

    /// The position of the next part to be asked for now, if there is one.
    #[must_use]
    pub fn ask(&mut self, now: Duration) -> Option<u64> {
        let begun = self.begun?;
        let silent = self.come == self.stored && self.asked > self.come;
        if silent && now >= self.heard.max(self.asked_at) + ASK_AGAIN {
            self.asked = self.come;
        }
        let allowed = u128::from(self.rate) * now.saturating_sub(self.since).as_millis() / 1000;
        let sent = u128::from(self.asked - begun);
        let ahead = self.asked - self.stored;
        if self.asked >= self.file.bytes || ahead >= self.ahead * self.part || sent > allowed {
            return None;
        }
        let from = self.asked;
        self.asked = (from + self.part).min(self.file.bytes);
        self.asked_at = now;
        Some(from)
    }

    /// Whether it is to be given up.
    #[must_use]
    pub fn is_over(&self, now: Duration) -> bool {
        // What has come and is being stored, or checked, is no fault of the peer's.
        self.come == self.stored
            && self.stored < self.file.bytes
            && now.saturating_sub(self.heard) >= PATIENCE
    }

    /// The part of it that is stored, in percent.
    #[must_use]
    pub const fn percent(&self) -> u64 {
        match (self.stored * 100).checked_div(self.file.bytes) {
            Some(percent) => percent,
            None => 100,
        }
    }

    /// The bytes of it that are stored.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// The entry of the image.
    #[must_use]
    pub const fn index(&self) -> LogIndex {
        self.file.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PART_BYTES: u64 = 1000;

    fn fetch(bytes: u64, rate: u64) -> Fetch {
        let file = ImageFile { index: LogIndex(9), bytes, digest: 1 };
        Fetch::new(ReplicaId(2), file, PART_BYTES, rate, Duration::ZERO)
    }

    #[test]
    fn parts_are_asked_for_a_few_ahead_and_taken_in_order() {
        let mut f = fetch(10 * PART_BYTES + 5, u64::MAX);
        assert_eq!(f.ask(SECOND), None, "what is there is not known yet");
        f.is_stored(2 * PART_BYTES, SECOND);
        let asked = |f: &mut Fetch| {
            std::iter::from_fn(|| f.ask(2 * SECOND)).map(|at| at / PART_BYTES).collect::<Vec<_>>()
        };
        assert_eq!(asked(&mut f), [2]);
        assert!(!f.takes(3 * PART_BYTES, PART_BYTES, SECOND), "not in order");
        assert!(
            !f.takes(2 * PART_BYTES, PART_BYTES + 1, SECOND) && !f.takes(2 * PART_BYTES, 0, SECOND)
        );
        assert!(f.takes(2 * PART_BYTES, PART_BYTES, SECOND));
        assert!(!f.takes(2 * PART_BYTES, PART_BYTES, SECOND), "it has come");
        assert_eq!(f.ask(2 * SECOND), None, "it is not stored yet");
        f.is_stored(3 * PART_BYTES, SECOND);
        assert_eq!(asked(&mut f), [3, 4]);
        assert_eq!(f.percent(), 29);
        for (n, next) in [(3, vec![5, 6, 7]), (4, vec![8])] {
            assert!(f.takes(n * PART_BYTES, PART_BYTES, SECOND));
            f.is_stored((n + 1) * PART_BYTES, SECOND);
            assert_eq!(asked(&mut f), next);
        }
        // What comes now is there already, with what follows.
        f.is_stored(9 * PART_BYTES, SECOND);
        assert_eq!(asked(&mut f), [9]);
    }

    #[test]
    fn the_last_part_is_short_and_nothing_is_asked_for_behind_it() {
        let mut f = fetch(PART_BYTES + 5, u64::MAX);
        f.is_stored(0, SECOND);
        assert_eq!([f.ask(SECOND * 2), f.ask(SECOND * 2)], [Some(0), None]);
        assert!(f.takes(0, PART_BYTES, SECOND));
        f.is_stored(PART_BYTES, SECOND);
        assert_eq!([f.ask(SECOND * 2), f.ask(SECOND * 2)], [Some(PART_BYTES), None]);
        assert!(!f.takes(PART_BYTES, 6, SECOND));
        assert!(f.takes(PART_BYTES, 5, SECOND));
    }

    #[test]
    fn it_is_no_faster_than_allowed_and_given_up_when_nothing_comes() {
        let mut f = fetch(100 * PART_BYTES, PART_BYTES);
        f.is_stored(0, Duration::ZERO);
        assert_eq!((f.ask(Duration::ZERO), f.ask(SECOND / 4)), (Some(0), None));
        assert!(!f.is_over(4 * SECOND) && f.is_over(5 * SECOND));
        assert_eq!(f.ask(SECOND / 2), Some(0), "again");
        assert!(f.takes(0, PART_BYTES, SECOND / 2));
        f.is_stored(PART_BYTES, SECOND / 2);
        assert_eq!((f.ask(SECOND), f.ask(SECOND)), (Some(PART_BYTES), None));
        assert!(f.takes(PART_BYTES, PART_BYTES, SECOND));
        assert!(!f.is_over(60 * SECOND), "the disk is slow, not the peer");
        f.is_stored(2 * PART_BYTES, 60 * SECOND);
        assert!(!f.is_over(64 * SECOND) && f.is_over(65 * SECOND));
    }

    #[test]
    fn an_answer_may_come_after_it_was_asked_for_again() {
        let mut f = fetch(3 * PART_BYTES, u64::MAX);
        f.is_stored(0, Duration::ZERO);
        while f.ask(Duration::ZERO).is_some() {}
        assert_eq!(f.ask(SECOND), Some(0), "again");
        for n in 0..3 {
            assert!(f.takes(n * PART_BYTES, PART_BYTES, SECOND));
            f.is_stored((n + 1) * PART_BYTES, SECOND);
        }
        assert_eq!((f.ask(2 * SECOND), f.percent()), (None, 100));
    }
}
