//! The pages of an image by their places in its restore file, for several threads at once.

use crate::copied::Piece;
use crate::form::{ImageError, PAGE_BYTES};
use crate::pack::Pack;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the [module](self).
pub struct Placed {
    places: Arc<Places>,
    packs: Vec<Pack>,
}

struct Places {
    path: PathBuf,
    pieces: Vec<Paged>,
    rows: Vec<Row>,
    /// The number of pages before each row.
    before: Vec<u64>,
}

/// Pages in a row in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) pack: u32,
    pub(crate) place: u32,
    pub(crate) count: u32,
}

/// Pages in a row in the file.
struct Paged {
    at: u64,
    /// The number of pages before them.
    before: u64,
    count: u64,
}

impl Placed {
    /// Of an image with this path, whose restore file is made of these pieces, with pages in these rows of these packs.
    pub(crate) fn new<'a>(
        path: &Path,
        pieces: impl Iterator<Item = &'a Piece>,
        rows: Vec<Row>,
        packs: &[Pack],
    ) -> Result<Self, ImageError> {
        let (mut at, mut pages) = (0, 0);
        let pieces = pieces.map(|piece| {
            at += piece.bytes;
            let paged = Paged { at, before: pages, count: piece.pages() };
            (at, pages) = (at + piece.paged, pages + paged.count);
            paged
        });
        let pieces = pieces.collect();
        let mut count = 0;
        let before = rows.iter().map(|row| {
            count += u64::from(row.count);
            count - u64::from(row.count)
        });
        let before = before.collect();
        let places = Places { path: path.to_owned(), pieces, rows, before };
        let packs = packs.iter().map(Pack::again).collect::<Result<_, _>>()?;
        Ok(Self { places: Arc::new(places), packs })
    }

    /// The same for another thread.
    ///
    /// # Errors
    /// There is no memory.
    pub fn again(&self) -> Result<Self, ImageError> {
        let packs = self.packs.iter().map(Pack::again).collect::<Result<_, _>>()?;
        Ok(Self { places: self.places.clone(), packs })
    }

    /// The pages at a place of the file: `most` bytes, or fewer if they are not kept together, and not none.
    ///
    /// # Errors
    /// No pages are there, or they are damaged.
    pub fn read(&mut self, at: u64, most: u64) -> Result<&[u8], ImageError> {
        let wanted = u32::try_from(most.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX);
        let (row, inside) = self.places.row(at)?;
        let count = (row.count - inside).min(wanted);
        self.packs[row.pack as usize].pages(row.place.wrapping_add(inside), count)
    }

    /// The end of a part that begins at `at`: `least` bytes or more from there, where pages begin that are not kept together with those before; `end` at most.
    ///
    /// # Errors
    /// No pages are there.
    pub fn end_of_part(&self, at: u64, least: u64, end: u64) -> Result<u64, ImageError> {
        let cut = at.saturating_add(least);
        if cut >= end {
            return Ok(end);
        }
        let (row, inside) = self.places.row(cut)?;
        let place = row.place.wrapping_add(inside);
        if inside == 0 || Pack::next_block(place - 1) == place {
            return Ok(cut);
        }
        let more = (Pack::next_block(place) - place).min(row.count - inside);
        Ok(end.min(cut + u64::from(more) * PAGE_BYTES))
    }
}

impl Places {
    /// The row that has the page at a place of the file, and the number of pages before it there.
    fn row(&self, at: u64) -> Result<(Row, u32), ImageError> {
        let found = || {
            let piece = self.pieces.partition_point(|piece| piece.at <= at).checked_sub(1)?;
            let piece = &self.pieces[piece];
            let inside = at - piece.at;
            let page = inside / PAGE_BYTES;
            let is_there = inside.is_multiple_of(PAGE_BYTES) && page < piece.count;
            let page = is_there.then_some(piece.before + page)?;
            let row = self.before.partition_point(|before| *before <= page) - 1;
            let inside = u32::try_from(page - self.before[row]).ok()?;
            Some((self.rows[row], inside))
        };
        found().ok_or_else(|| ImageError::damaged(&self.path, "no page is where its tables say"))
    }
}
