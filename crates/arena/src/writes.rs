//! The record of which pages of which files a server has written to, as a node reads it: an image reads only those again.
//!
//! The runtime keeps it (`crates/runtime/src/files/writes.rs`) and puts its position into the header: a word that counts what was ever noted, [`LONG_ONES_STAY`] (0 from a runtime of before), and the last
//! [`WRITES`] notes in a circle. A node reads it while the server stands still, and while it goes on: a note is written before it is counted. It takes every word of it as a plain number.

use core::ops::Range;

/// The notes that are kept: 65,536.
pub const WRITES: usize = 64 << 10;
/// Bytes of one note.
pub const WRITE_BYTES: usize = 16;
/// Bytes of the record: the counter and the notes.
pub const RECORD_BYTES: usize = (WRITES + 1) * WRITE_BYTES;
/// So many of the newest notes may still grow: who reads the record again begins so far before its end.
pub const GROWING: u64 = 4;
/// A note grows up to so many pages, which bounds what is told twice.
pub const GROWN: u32 = 16;
/// The second word of the record: a longer note never grows, nor stands for what is written there later, so it is told once.
pub const LONG_ONES_STAY: u64 = 1;
/// In place of a last page: all up to the end of the file, wherever that will be. Whatever may make a hole in a file is noted so.
pub const TO_THE_END: u32 = u32::MAX;

/// Pages of a file that were written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file's number, which the server sees ([`crate::inodes`]).
    pub number: u64,
    /// The first page of 4 KiB.
    pub from: u32,
    /// The page behind the last one, or [`TO_THE_END`].
    pub to: u32,
}

impl Write {
    /// As the record has it.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        [self.number, (self.from as u64) << 32 | self.to as u64]
    }

    /// Whether it may grow, or stand for what is written there later, while it is among the newest.
    #[must_use]
    pub const fn is_short(self) -> bool {
        self.to.saturating_sub(self.from) <= GROWN
    }

    /// Back from the record.
    #[must_use]
    pub const fn from_words([number, pages]: [u64; 2]) -> Self {
        // Lossless: halves.
        Self { number, from: (pages >> 32) as u32, to: pages as u32 }
    }
}

/// The words of a row of 16 bytes.
#[must_use]
pub fn words(row: &[u8; WRITE_BYTES]) -> [u64; 2] {
    let half = |at: usize| u64::from_ne_bytes(*row[at..].first_chunk().expect("a half"));
    [half(0), half(8)]
}

/// The numbers of the notes that [`since`] looks at, by the count of a record: the note `n` is in the row 1 + `n` % [`WRITES`]. `None`: there were more than the record keeps, or the
/// record is another one's.
#[must_use]
pub fn looked_at(count: u64, since: u64) -> Option<Range<u64>> {
    let first = since.saturating_sub(GROWING);
    (since <= count && count - first <= WRITES as u64).then_some(first..count)
}

/// How often something was noted, and the notes since it was `since`, those among them that may have grown. `None` of these: as of [`looked_at`]. `row` answers the
/// words of the record's rows, of which it is asked for the first one and these.
#[must_use]
pub fn since(
    row: impl Fn(usize) -> [u64; 2],
    since: u64,
) -> (u64, Option<impl Iterator<Item = Write>>) {
    let [count, kind] = row(0);
    let places = looked_at(count, since);
    let told = move |n: u64| {
        let write = Write::from_words(row(1 + (n % WRITES as u64) as usize));
        let may_be_new = n >= since || kind != LONG_ONES_STAY || write.is_short();
        may_be_new.then_some(write)
    };
    (count, places.map(|places| places.filter_map(told)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(count: u64) -> Vec<[u64; 2]> {
        let mut record = vec![[0; 2]; WRITES + 1];
        record[0][0] = count;
        for n in count.saturating_sub(WRITES as u64)..count {
            let write = Write { number: n, from: 7, to: TO_THE_END };
            record[1 + (n % WRITES as u64) as usize] = write.words();
        }
        record
    }

    #[test]
    fn what_was_noted_since_is_told_with_what_may_have_grown() {
        let record = record(100_000);
        let (count, found) = since(|n| record[n], 99_000);
        let found: Vec<_> = found.expect("they are kept").collect();
        assert_eq!((count, found.len()), (100_000, 1004));
        assert_eq!(found[0], Write { number: 98_996, from: 7, to: TO_THE_END });
        assert_eq!(found[1003].number, 99_999);
        let kept = 100_000 - WRITES as u64 + GROWING;
        let is_kept = |noted| since(|n| record[n], noted).1.is_some();
        assert!(is_kept(kept) && !is_kept(kept - 1));
    }

    #[test]
    fn long_notes_are_told_once_where_they_stay() {
        let mut record = record(100);
        let long =
            |n: u64| n.is_multiple_of(2).then_some(Write { number: n, from: 0, to: GROWN + 1 });
        for n in 0..100 {
            let write = long(n).unwrap_or(Write { number: n, from: 0, to: GROWN });
            record[1 + n as usize][1] = write.words()[1];
        }
        let told = |record: &[[u64; 2]]| {
            let (_, told) = since(|n| record[n], 96);
            told.expect("they are kept").map(|write| write.number).collect::<Vec<_>>()
        };
        assert_eq!(told(&record), (92..100).collect::<Vec<_>>(), "of a runtime of before");
        record[0][1] = LONG_ONES_STAY;
        assert_eq!(told(&record), [93, 95, 96, 97, 98, 99]);
    }

    #[test]
    fn a_record_that_is_shorter_than_before_is_another_ones() {
        let record = record(3);
        let told = |noted| since(|n| record[n], noted).1.map(Iterator::count);
        assert_eq!([told(4), told(3), told(0)], [None, Some(3), Some(3)]);
        assert_eq!(words(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]), [1, 256]);
    }
}
