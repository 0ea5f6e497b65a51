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
    /// Since when this replica's image is due, and others go before.
    since: Option<Duration>,
}

impl Turn {
    /// Whether an image that is due begins now, when the images of so many replicas come before it.
    pub fn has_come(&mut self, before: usize, now: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        let has_come = now >= since + PATIENCE * before as u32;
        if has_come {
            self.since = None;
        }
        has_come
    }

    /// Whether an image waits for others.
    #[must_use]
    pub const fn is_awaited(&self) -> bool {
        self.since.is_some()
    }

    /// None is due any more.
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
        assert!(turn.has_come(0, at(1)) && !turn.is_awaited());
        assert!(!turn.has_come(2, at(2)) && turn.is_awaited());
        assert!(!turn.has_come(2, at(11)));
        // One of them has taken its image.
        assert!(turn.has_come(1, at(11)) && !turn.is_awaited());
        assert!(!turn.has_come(2, at(12)) && !turn.has_come(2, at(21)) && turn.has_come(2, at(22)));
        assert!(!turn.has_come(1, at(30)));
        turn.is_over();
        assert!(!turn.is_awaited() && !turn.has_come(1, at(40)));
    }
}
