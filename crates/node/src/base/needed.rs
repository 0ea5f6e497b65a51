//! Which editions of the server this replica may start again: those whose entries its log has, and those of its images.
//!
//! A server begins with the log's first entry, or continues from an image; so the edition in which the log begins counts, and all that it names since. Pure.

use super::store::Digest;
use std::collections::{BTreeMap, BTreeSet};

/// See the [module](self). The founders' edition, whose index is never removed, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needed {
    /// By the entry with which they begin.
    begun: BTreeMap<u64, Option<Digest>>,
    /// By the entry that asks for them: they may begin.
    asked: BTreeMap<u64, Digest>,
    /// Of images, by their entry.
    images: BTreeMap<u64, Digest>,
}

impl Needed {
    /// A server can begin behind this entry, in this edition, and nowhere before.
    pub(super) fn follow(&mut self, entry: u64, edition: Option<Digest>) {
        self.begun = self.begun.split_off(&entry);
        self.begun.entry(entry).or_insert(edition);
    }

    /// One begins with this entry.
    pub(super) fn begins(&mut self, entry: u64, edition: Option<Digest>) {
        self.begun.insert(entry, edition);
    }

    /// This entry asks for one.
    pub(super) fn is_asked(&mut self, entry: u64, edition: Digest) {
        self.asked.insert(entry, edition);
    }

    /// There is an image of this entry.
    pub(super) fn has_image(&mut self, entry: u64, edition: Digest) {
        self.images.insert(entry, edition);
    }

    /// The log has forgotten all up to this entry. True: it says in which edition it begins.
    pub(super) fn log_forgot(&mut self, entry: u64) -> bool {
        let first = self.begun.range(..=entry).next_back().map(|(at, _)| *at);
        if let Some(first) = first {
            self.begun = self.begun.split_off(&first);
            // One that was asked for since then may begin yet.
            self.asked = self.asked.split_off(&first);
        }
        self.images = self.images.split_off(&entry);
        first.is_some_and(|first| first > 0)
    }

    /// Those that may be started, but for the founders'.
    pub(super) fn editions(&self) -> BTreeSet<Digest> {
        let begun = self.begun.values().flatten();
        begun.chain(self.asked.values()).chain(self.images.values()).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn edition(n: u8) -> Digest {
        Digest([n; 32])
    }

    #[test]
    fn editions_of_forgotten_entries_are_not_needed() {
        let mut needed = Needed::default();
        for n in [1, 2, 3] {
            needed.is_asked(u64::from(n) * 10, edition(n));
            needed.begins(u64::from(n) * 10 + 5, Some(edition(n)));
        }
        let all = |needed: &Needed| needed.editions().iter().map(|d| d.0[0]).collect::<Vec<_>>();
        assert_eq!(all(&needed), [1, 2, 3]);
        // The log begins in the founders' edition.
        assert!(!needed.log_forgot(14));
        assert_eq!(all(&needed), [1, 2, 3]);
        assert!(needed.log_forgot(15));
        assert_eq!(all(&needed), [1, 2, 3]);
        needed.log_forgot(24);
        assert_eq!(all(&needed), [1, 2, 3]);
        needed.log_forgot(25);
        assert_eq!(all(&needed), [2, 3]);
        needed.log_forgot(100);
        assert_eq!(all(&needed), [3]);
        // An upgrade on the way.
        needed.is_asked(110, edition(4));
        needed.log_forgot(112);
        assert_eq!(all(&needed), [3, 4]);
        // It was undone.
        needed.begins(120, Some(edition(4)));
        needed.begins(130, Some(edition(3)));
        needed.log_forgot(140);
        assert_eq!(all(&needed), [3]);
    }

    #[test]
    fn the_edition_in_which_a_log_begins_anew_is_needed() {
        let mut needed = Needed::default();
        needed.begins(50, Some(edition(2)));
        // The log was replaced behind an image of the next one.
        needed.has_image(200, edition(4));
        needed.follow(200, Some(edition(4)));
        for forgotten in [200, 250] {
            assert!(needed.log_forgot(forgotten));
            assert_eq!(needed.editions(), [edition(4)].into(), "{forgotten}");
        }
    }

    #[test]
    fn editions_of_images_are_needed_as_long_as_the_log_reaches_back() {
        let mut needed = Needed::default();
        needed.follow(20, Some(edition(1)));
        needed.has_image(20, edition(1));
        needed.has_image(40, edition(2));
        needed.begins(30, Some(edition(2)));
        assert_eq!(needed.editions(), [edition(1), edition(2)].into());
        assert!(needed.log_forgot(20));
        assert_eq!(needed.editions(), [edition(1), edition(2)].into());
        assert!(needed.log_forgot(40));
        assert_eq!(needed.editions(), [edition(2)].into());
        needed.begins(50, None);
        needed.log_forgot(60);
        assert_eq!(needed.editions(), [].into());
    }
}
