//! Whose turn it is to take an image.
//!
//! The follower goes first whose newest image is the oldest, of several the one with the lowest number: each knows all others' newest images, so no two begin together. One that
//! takes none (its server is busy, it pauses after a long image) is waited for only so long.

use std::time::Duration;

/// How long each replica that goes before is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Turn {
    /// Since when so many others go before this replica's image, which is due.
    since: Option<(Duration, usize)>,
}

impl Turn {
    /// Whether an image that is due begins now, when the images of so many replicas come before it.
    pub fn has_come(&mut self, before: usize, now: Duration) -> bool {
        let (since, of) = self.since.get_or_insert((now, before));
        if before < *of {
            // The next of them has its time.
            (*since, *of) = (now, before);
        }
        now >= *since + PATIENCE * before as u32
    }

    /// Whether an image waits for others.
    #[must_use]
    pub const fn is_awaited(&self) -> bool {
        self.since.is_some()
    }

    /// It begins, or none is due any more.
    pub const fn is_over(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_waited_for_but_not_for_ever() {
        let mut turn = Turn::default();
        let at = Duration::from_secs;
        assert!(turn.has_come(0, at(1)));
        turn.is_over();
        assert!(!turn.has_come(2, at(2)) && turn.is_awaited());
        assert!(!turn.has_come(2, at(11)));
        // One of them has taken its image, and the other one has its time for that.
        assert!(!turn.has_come(1, at(11)) && !turn.has_come(1, at(15)) && turn.has_come(1, at(16)));
        assert!(turn.has_come(1, at(17)), "until it begins");
        turn.is_over();
        assert!(!turn.is_awaited());
        assert!(!turn.has_come(2, at(20)) && !turn.has_come(2, at(29)) && turn.has_come(2, at(30)));
        assert!(turn.has_come(0, at(30)));
    }
}
