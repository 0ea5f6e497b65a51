//! Entries that nobody waits for, and whose syncs are therefore deferred.
//!
//! An idle server has timers, often ten a second and more. The entry of a timer is sent to the followers at once, and the leader's server
//! executes it; but as long as nothing of it can be seen from outside, nobody waits for its commit. So no replica syncs its disk for it alone. It is made durable together
//! with the next entry that somebody waits for, or when the leader *hurries*: because the server has said something, because a command needs the commit,
//! or because the oldest such entry is four seconds old. While heartbeats are slow, age alone makes nobody wait: the followers are asked with a heartbeat.
//!
//! The promise does not change: a follower acknowledges what is on its disk, and nothing leaves before the commit.
//!
//! A server whose timers all say something would wait longer for each commit, by its own execution. When the first deferred entry is such a one, the next ones are
//! not deferred, twice as many each time.

use skein_model::EntryRef;
use std::time::Duration;

/// Nobody is asked to make an entry durable for this long.
pub const LONGEST: Duration = Duration::from_secs(4);
/// A follower syncs by itself when its leader has not asked for it by then.
pub const LONGEST_UNASKED: Duration = Duration::from_millis(4500);
/// A leader whose heartbeats are slow hurries when the commit has not come so much later,
pub const PATIENCE: Duration = Duration::from_secs(1);
/// and asks for it when so many wait.
pub const MANY: usize = 40;
/// A leader hurries when so many wait: the library sends a follower no more than 64 messages that it has not acknowledged.
pub const MOST: usize = 48;
/// The most entries that are not deferred after one whose execution said something.
const MAX_PROMPT: u32 = 63;

/// Whether an entry has nothing in it that anybody outside has said or asked for: it has a stamp, or digests of what was executed.
#[must_use]
pub fn is_unhurried(entry: &EntryRef<'_>) -> bool {
    entry.records().all(|record| record.is_for_nodes())
}

/// Decides whether a leader defers the next such entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unhurried {
    /// The number of next ones that are not deferred.
    prompt: u32,
    /// The last number of such entries: it doubles each time.
    backoff: u32,
}

impl Unhurried {
    /// Decides about the next one: true if it is deferred. Each call counts as one.
    pub const fn defer_next(&mut self) -> bool {
        let deferred = self.prompt == 0;
        self.prompt = self.prompt.saturating_sub(1);
        deferred
    }

    /// The server said something for the last of so many deferred entries.
    pub const fn spoke(&mut self, deferred: usize) {
        self.backoff = if deferred > 1 { 0 } else { 2 * self.backoff + 1 };
        if self.backoff > MAX_PROMPT {
            self.backoff = MAX_PROMPT;
        }
        self.prompt = self.backoff;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::{EntryBuilder, LogIndex, Record, ReplicaId, Term, WallNs};

    #[test]
    fn nobody_waits_for_stamps_and_digests() {
        let digest = Record::Digest { replica: ReplicaId(1), index: LogIndex(1), digest: 7 };
        for (records, unhurried) in [
            (&[][..], true),
            (&[digest, digest], true),
            (&[Record::TermStart], false),
            (&[Record::Bubble { turns: 16 }], false),
            (&[digest, Record::Signal { number: 15 }], false),
        ] {
            let mut entry = EntryBuilder::new(Vec::new());
            records.iter().for_each(|record| entry.push(*record));
            let bytes = entry.finish(WallNs(1), Term(1));
            assert_eq!(is_unhurried(&EntryRef::parse(&bytes).unwrap()), unhurried, "{records:?}");
        }
    }

    #[test]
    fn timers_that_say_something_are_deferred_less_and_less_often() {
        let mut unhurried = Unhurried::default();
        let mut prompt = Vec::new();
        for _ in 0..8 {
            assert!(unhurried.defer_next());
            unhurried.spoke(1);
            let mut count = 0;
            while !unhurried.defer_next() {
                count += 1;
            }
            prompt.push(count);
            unhurried.prompt = 0;
        }
        assert_eq!(prompt, [1, 3, 7, 15, 31, 63, 63, 63]);
        unhurried.spoke(10);
        assert_eq!(unhurried.prompt, 0, "most are silent");
        unhurried.spoke(1);
        assert_eq!(unhurried.prompt, 1);
    }
}
