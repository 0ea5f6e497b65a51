//! Images that others are fetching from this replica: they stay until their receivers are silent, or a receiver that is slower than new images come would never have one.

use skein_model::{LogIndex, ReplicaId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A receiver that has asked for nothing for so long is gone.
const SILENT: Duration = Duration::from_secs(10);

/// Who asked for which last, and when.
#[derive(Debug, Default)]
pub struct Sent(BTreeMap<ReplicaId, (LogIndex, Duration)>);

impl Sent {
    /// A replica asks for a part of an image.
    pub fn asked(&mut self, by: ReplicaId, index: LogIndex, now: Duration) {
        self.0.insert(by, (index, now));
    }

    /// Whether the image at this entry is on its way to somebody.
    #[must_use]
    pub fn is_wanted(&self, index: LogIndex, now: Duration) -> bool {
        self.0.values().any(|(at, asked)| *at == index && now.saturating_sub(*asked) < SILENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_wanted_until_its_receiver_is_silent_or_asks_for_another() {
        let at = Duration::from_secs;
        let mut sent = Sent::default();
        assert!(!sent.is_wanted(LogIndex(5), at(0)));
        sent.asked(ReplicaId(2), LogIndex(5), at(1));
        sent.asked(ReplicaId(3), LogIndex(5), at(2));
        assert!(sent.is_wanted(LogIndex(5), at(11)) && !sent.is_wanted(LogIndex(5), at(12)));
        sent.asked(ReplicaId(3), LogIndex(9), at(3));
        assert!(!sent.is_wanted(LogIndex(5), at(11)) && sent.is_wanted(LogIndex(9), at(11)));
    }
}
