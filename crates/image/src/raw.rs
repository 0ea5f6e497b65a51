//! Pages of what a server's processes share, copied as they are while it stands: hashing and comparing follow when it has gone on.

use crate::copied::{Copied, Page, Room};
use crate::form::{PAGE_BYTES, is_zero};
use std::io;
use std::ops::Range;

const PAGE: usize = PAGE_BYTES as usize;

/// See the [module](self). What is not there is zero.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    pages: Copied<'static>,
    /// Positions of pages in a row, in order.
    rows: Vec<Range<u64>>,
    /// The number of pages before each row.
    before: Vec<usize>,
}

impl Raw {
    /// With memory for the first pages.
    pub(crate) fn with_room(room: Option<Room>) -> Self {
        Self { pages: Copied::new().with_room(room), ..Self::default() }
    }

    /// Its memory, for another one: all its pages are whole.
    pub(crate) fn into_room(self) -> Room {
        Room::of(self.pages)
    }

    /// The number of pages that are here.
    pub(crate) const fn len(&self) -> usize {
        self.pages.fresh()
    }

    /// Adds the page at a position behind all that are here.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn add(&mut self, at: u64, page: &[u8]) -> io::Result<()> {
        put(&mut self.rows, &mut self.before, self.pages.fresh(), at);
        self.pages.page(page)
    }

    /// Adds those pages from a position on, behind all that are here, that are not zero: `read` fills so many, or fewer, whose number is answered.
    ///
    /// # Errors
    /// There is no memory; or an error of `read`: then it is of no use.
    pub(crate) fn fill(
        &mut self,
        at: u64,
        pages: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let Self { pages: copied, rows, before } = self;
        let mut fresh = copied.fresh();
        copied.fill_unless_zero(pages, read, |number| {
            put(rows, before, fresh, at + number as u64 * PAGE_BYTES);
            fresh += 1;
        })
    }

    /// All pages, in order.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, &[u8; PAGE])> {
        let places = self.rows.iter().flat_map(|row| row.clone().step_by(PAGE));
        let pages = self.pages.each().map(|page| match page {
            Page::Here(page) => page,
            Page::Known(_) => unreachable!("all pages are here"),
        });
        places.zip(pages)
    }

    /// The bytes from one position to another.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = vec![0; to.saturating_sub(from) as usize];
        self.copy(from, &mut bytes);
        bytes
    }

    /// Copies the bytes from a position on over these zeros.
    pub(crate) fn copy(&self, from: u64, bytes: &mut [u8]) {
        let to = from + bytes.len() as u64;
        for part in self.there(from, to) {
            let row = self.rows.partition_point(|row| row.end <= part.start);
            let (row, first) = (&self.rows[row], self.before[row]);
            let mut at = part.start;
            while at < part.end {
                let page = self.pages.here(first + ((at - row.start) / PAGE_BYTES) as usize);
                let inside = (at % PAGE_BYTES) as usize;
                let len = (part.end - at).min((PAGE - inside) as u64) as usize;
                let to = (at - from) as usize;
                bytes[to..to + len].copy_from_slice(&page[inside..inside + len]);
                at += len as u64;
            }
        }
    }

    /// The parts between two positions that are there.
    pub(crate) fn there(&self, from: u64, to: u64) -> impl Iterator<Item = Range<u64>> {
        let first = self.rows.partition_point(|row| row.end <= from);
        let rows = self.rows[first..].iter().take_while(move |row| row.start < to);
        rows.map(move |row| row.start.max(from)..row.end.min(to))
    }
}

/// The pages of both that are not zero, in order; where both have one, that of `over`.
pub(crate) fn merged<'a>(
    under: &'a Raw,
    over: &'a Raw,
) -> impl Iterator<Item = (u64, &'a [u8; PAGE])> {
    let (mut under, mut over) = (under.each().peekable(), over.each().peekable());
    let next = move || match (under.peek(), over.peek()) {
        (Some((low, _)), Some((high, _))) if low < high => under.next(),
        (Some((low, _)), Some((high, _))) => {
            if low == high {
                under.next();
            }
            over.next()
        }
        (Some(_), None) => under.next(),
        (None, _) => over.next(),
    };
    std::iter::from_fn(next).filter(|(_, page)| !is_zero(*page))
}

/// The next page, behind so many others, is at this position.
fn put(rows: &mut Vec<Range<u64>>, before: &mut Vec<usize>, fresh: usize, at: u64) {
    match rows.last_mut() {
        Some(row) if row.end == at => row.end += PAGE_BYTES,
        _ => {
            rows.push(at..at + PAGE_BYTES);
            before.push(fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_zero() {
        let mut raw = Raw::default();
        for at in [0x1000, 0x2000, 0x5000] {
            raw.add(at, &[(at >> 12) as u8; PAGE]).unwrap();
        }
        let found: Vec<_> = raw.each().map(|(at, page)| (at, page[7])).collect();
        assert_eq!(found, [(0x1000, 1), (0x2000, 2), (0x5000, 5)]);
        let bytes = raw.bytes(0x0ff0, 0x5010);
        let at = |place: usize| bytes[place - 0x0ff0];
        assert_eq!([at(0xfff), at(0x1000), at(0x1fff), at(0x2000)], [0, 1, 1, 2]);
        assert_eq!([at(0x2fff), at(0x3000), at(0x4fff), at(0x500f)], [2, 0, 0, 5]);
        let there: Vec<_> = raw.there(0x1800, 0x5800).collect();
        assert_eq!(there, [0x1800..0x3000, 0x5000..0x5800]);
        assert_eq!(raw.there(0x3000, 0x5000).count(), 0);
    }

    #[test]
    fn what_came_later_counts() {
        let of = |pages: &[(u64, u8)]| {
            let mut raw = Raw::default();
            pages.iter().for_each(|(at, byte)| raw.add(*at << 12, &[*byte; PAGE]).unwrap());
            raw
        };
        let under = of(&[(1, 1), (2, 2), (4, 4), (7, 7)]);
        let over = of(&[(0, 10), (2, 12), (3, 13), (4, 0), (5, 0), (9, 19)]);
        let found = |under, over| {
            let all = merged(under, over).map(|(at, page)| (at >> 12, page[9]));
            all.collect::<Vec<_>>()
        };
        let all = [(0, 10), (1, 1), (2, 12), (3, 13), (7, 7), (9, 19)];
        assert_eq!(found(&under, &over), all);
        let none = Raw::default();
        assert_eq!(found(&under, &none), [(1, 1), (2, 2), (4, 4), (7, 7)]);
        assert_eq!(found(&none, &over), [(0, 10), (2, 12), (3, 13), (9, 19)]);
    }
}
