//! An image whose pages are in packs: what its file holds instead of them.
//!
//! ```text
//! head      as that of a whole image (`super::file`), of format 2
//! packs     count u32, per pack its digest u128 and its length u64: readable without unpacking
//! body      zstd of what the replica knew of the server, the plan of the restore file, the plan of the files
//! trailer   as that of a whole image
//!
//! plan = count u64 | (bytes u64, paged u64)... | count u64 | (pack u32, place u32, count u32)... | count u64 | bytes
//! ```
//!
//! A plan says how a stream is made again: some bytes, some pages, and so on ([`crate::copied`]); and where the pages are, in rows.
//!
//! A new image refers to what earlier images' packs have, and writes one pack of the rest. A pack of which little is used is left behind: its pages that are used
//! are written again. So is the smaller half when there are more than [`MAX_PACKS`], which makes the cost of a page a small multiple of its size, however many
//! images there are.

use crate::copied::{Copied, Page, Piece, hash};
use crate::form::PAGE_BYTES;
use crate::form::{ImageError, MAX_STATE_BYTES, PIECE_BYTES};
use crate::pack::{Pack, PackId, PackWriter};
use crate::placed::{Placed, Row};
use crate::precopy::Precopied;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

/// An image's packs at most, so that a chain of images stays short.
pub const MAX_PACKS: usize = 8;
/// The most packs that a file may name.
pub(crate) const MAX_NAMED: usize = 64;
/// The most bytes of a plan.
const MAX_PLAN_BYTES: u64 = 1 << 32;
const PAGE: usize = PAGE_BYTES as usize;
/// What is unpacked and not yet written.
const PIECES: usize = 4;

/// How a stream is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pieces: Vec<Piece>,
    rows: Vec<Row>,
    bytes: Vec<u8>,
}

/// What earlier images have.
#[derive(Debug, Default)]
pub struct Earlier {
    packs: Vec<Pack>,
    /// Where the pages are: the number of a pack, and the place in it.
    places: HashMap<u128, (u32, u32)>,
}

impl Earlier {
    /// In these packs: a page that several have is the first one's. Those of the newest image come first, or what it wrote again is written again by each later one.
    #[must_use]
    pub fn new(packs: Vec<Pack>) -> Self {
        let mut places = HashMap::with_capacity(packs.iter().map(|p| p.hashes().len()).sum());
        for (number, pack) in packs.iter().enumerate() {
            for (place, hash) in pack.hashes().iter().enumerate() {
                places.entry(*hash).or_insert((number as u32, place as u32));
            }
        }
        Self { packs, places }
    }

    /// Whether one of them has a page with this hash.
    #[must_use]
    pub fn has(&self, hash: u128) -> bool {
        self.places.contains_key(&hash)
    }

    /// The packs' names.
    pub fn ids(&self) -> impl Iterator<Item = PackId> + '_ {
        self.packs.iter().map(Pack::id)
    }
}

/// What an image is made of, when its pages have been written.
#[derive(Debug)]
pub struct Planned {
    /// The packs that it needs. The last one is its own, unless nothing was new.
    pub packs: Vec<PackId>,
    /// Its own one.
    pub own: Option<PackId>,
    /// The hashes of the pages of its memory,
    pub hashes: Vec<u128>,
    /// and of its files.
    pub of_files: Vec<u128>,
    pub(crate) memory: Plan,
    pub(crate) layer: Plan,
}

/// Writes what earlier images have not into a new pack, and says how the image is made of all. `precopied`: pages that no image has may be there.
///
/// # Errors
/// The pack cannot be written; an earlier one is damaged, or lacks a page that is said to be there.
pub fn plan(
    memory: &Copied<'_>,
    layer: &Copied<'_>,
    precopied: Option<&Precopied>,
    mut earlier: Earlier,
    out: &mut dyn Write,
    path: &Path,
) -> Result<Planned, ImageError> {
    let failed = ImageError::io(path);
    let hashes = |copied: &Copied<'_>| -> Vec<u128> {
        let of = |page| match page {
            Page::Here(page) => hash(page),
            Page::Known(hash) => hash,
        };
        copied.each().map(of).collect()
    };
    let hashes = [hashes(memory), hashes(layer)];
    let is_left = left_behind(&earlier, hashes.iter().flatten());
    let mut writer = PackWriter::new(out).map_err(&failed)?;
    let mut fresh: HashMap<u128, u32> = HashMap::new();
    // The numbers of packs in this image; its own one is the last.
    let mut numbers = vec![None; earlier.packs.len()];
    let mut packs = Vec::new();
    let mut rows = [Vec::new(), Vec::new()];
    const OWN: u32 = u32::MAX;
    for ((copied, hashes), rows) in [memory, layer].into_iter().zip(&hashes).zip(&mut rows) {
        for (page, hash) in copied.each().zip(hashes) {
            let known = earlier.places.get(hash).copied();
            let (pack, place) = match known {
                Some((pack, place)) if !is_left[pack as usize] => {
                    let id = earlier.packs[pack as usize].id();
                    let number = *numbers[pack as usize].get_or_insert_with(|| {
                        packs.push(id);
                        packs.len() as u32 - 1
                    });
                    (number, place)
                }
                _ => {
                    let place = match (fresh.get(hash), page, known) {
                        (Some(place), ..) => *place,
                        (None, Page::Here(page), _) => writer.page(page, *hash).map_err(&failed)?,
                        (None, Page::Known(_), Some((pack, place))) => {
                            let page = earlier.packs[pack as usize].page(place)?;
                            writer.page(page, *hash).map_err(&failed)?
                        }
                        (None, Page::Known(_), None)
                            if let Some(page) = precopied.and_then(|all| all.get(*hash)) =>
                        {
                            writer.page(page, *hash).map_err(&failed)?
                        }
                        (None, Page::Known(_), None) => {
                            let why = "a page that did not change is in no earlier image any more";
                            return Err(ImageError::damaged(path, why));
                        }
                    };
                    fresh.insert(*hash, place);
                    (OWN, place)
                }
            };
            add(rows, pack, place);
        }
    }
    let own = if fresh.is_empty() { None } else { Some(writer.finish().map_err(&failed)?) };
    let number = packs.len() as u32;
    packs.extend(own);
    rows.iter_mut().flatten().filter(|row| row.pack == OWN).for_each(|row| row.pack = number);
    let [memory_rows, layer_rows] = rows;
    let plan = |copied: &Copied<'_>, rows| Plan {
        pieces: copied.pieces().to_vec(),
        rows,
        bytes: copied.bytes().to_vec(),
    };
    let (memory, layer) = (plan(memory, memory_rows), plan(layer, layer_rows));
    let [hashes, of_files] = hashes;
    Ok(Planned { packs, own, hashes, of_files, memory, layer })
}

fn add(rows: &mut Vec<Row>, pack: u32, place: u32) {
    match rows.last_mut() {
        Some(last) if last.pack == pack && place.checked_sub(last.count) == Some(last.place) => {
            last.count += 1;
        }
        _ => rows.push(Row { pack, place, count: 1 }),
    }
}

/// The packs that the next image does not use, whatever they have.
fn left_behind<'a>(earlier: &Earlier, hashes: impl Iterator<Item = &'a u128>) -> Vec<bool> {
    let mut used: Vec<Vec<bool>> =
        earlier.packs.iter().map(|pack| vec![false; pack.hashes().len()]).collect();
    for (pack, place) in hashes.filter_map(|hash| earlier.places.get(hash)) {
        used[*pack as usize][*place as usize] = true;
    }
    let count = |pages: &Vec<bool>| pages.iter().filter(|page| **page).count();
    let live: Vec<usize> = used.iter().map(count).collect();
    let mut is_left: Vec<bool> = earlier
        .packs
        .iter()
        .zip(&live)
        .map(|(pack, live)| live * 2 < pack.hashes().len())
        .collect();
    let mut kept: Vec<usize> = (0..live.len()).filter(|n| !is_left[*n] && live[*n] > 0).collect();
    if kept.len() >= MAX_PACKS {
        kept.sort_by_key(|n| live[*n]);
        kept[..kept.len() - MAX_PACKS / 2].iter().for_each(|n| is_left[*n] = true);
    }
    is_left
}

impl Planned {
    /// The length of what is written of it.
    pub(crate) fn plan_bytes(&self) -> u64 {
        self.memory.written_bytes() + self.layer.written_bytes()
    }
}

/// Nothing is written that [`contained`] would not read.
pub(crate) fn check_lengths(state: u64, plans: u64, path: &Path) -> Result<(), ImageError> {
    let parts = [("state", state, MAX_STATE_BYTES), ("plans", plans, MAX_PLAN_BYTES)];
    match parts.into_iter().find(|(_, bytes, most)| bytes > most) {
        Some((what, bytes, most)) => {
            Err(ImageError::TooLong { path: path.to_owned(), what, bytes, most })
        }
        None => Ok(()),
    }
}

impl Plan {
    /// The length of what [`write`](Self::write) writes.
    fn written_bytes(&self) -> u64 {
        let (pieces, rows) = (self.pieces.len() as u64 * 16, self.rows.len() as u64 * 12);
        3 * 8 + pieces + rows + self.bytes.len() as u64
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut number = |number: u64| out.write_all(&number.to_le_bytes());
        number(self.pieces.len() as u64)?;
        for piece in &self.pieces {
            number(piece.bytes)?;
            number(piece.paged)?;
        }
        number(self.rows.len() as u64)?;
        for row in &self.rows {
            for word in [row.pack, row.place, row.count] {
                out.write_all(&word.to_le_bytes())?;
            }
        }
        out.write_all(&(self.bytes.len() as u64).to_le_bytes())?;
        out.write_all(&self.bytes)
    }

    /// Reads one that makes a stream of this length from so many packs; `None`: it is none.
    fn read(from: &mut &[u8], len: u64, packs: usize) -> Option<Self> {
        let count = number(from)?;
        let mut pieces = Vec::new();
        for _ in 0..count {
            pieces.push(Piece { bytes: number(from)?, paged: number(from)? });
        }
        let count = number(from)?;
        let mut rows = Vec::new();
        for _ in 0..count {
            rows.push(Row { pack: word(from)?, place: word(from)?, count: word(from)? });
        }
        let count = number(from)?;
        let (bytes, rest) = from.split_at_checked(usize::try_from(count).ok()?)?;
        *from = rest;
        let sum = |of: &dyn Fn(&Piece) -> u64| {
            pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(of(piece)))
        };
        let paged = sum(&|piece| piece.paged)?;
        let is_whole = sum(&|piece| piece.bytes)? == bytes.len() as u64
            && (bytes.len() as u64).checked_add(paged)? == len
            && sum(&Piece::pages)? == rows.iter().map(|row| u64::from(row.count)).sum()
            && rows.iter().all(|row| {
                let end = row.place.checked_add(row.count);
                (row.pack as usize) < packs && row.count > 0 && end.is_some()
            });
        is_whole.then(|| Self { pieces, rows, bytes: bytes.to_vec() })
    }
}

fn array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*first)
}

fn number(from: &mut &[u8]) -> Option<u64> {
    array(from).map(u64::from_le_bytes)
}

fn word(from: &mut &[u8]) -> Option<u32> {
    array(from).map(u32::from_le_bytes)
}

/// The names of packs, as a file has them.
pub(crate) fn names(packs: &[PackId]) -> Vec<u8> {
    let mut out = (packs.len() as u32).to_le_bytes().to_vec();
    for PackId { digest, bytes } in packs {
        out.extend(digest.to_le_bytes());
        out.extend(bytes.to_le_bytes());
    }
    out
}

/// The names of packs, and the length of what says them; `None`: they are not all there.
pub(crate) fn named(mut from: &[u8]) -> Option<(Vec<PackId>, usize)> {
    let whole = from.len();
    let count = word(&mut from)?;
    let mut packs = Vec::new();
    for _ in 0..count {
        let digest = u128::from_le_bytes(array(&mut from)?);
        packs.push(PackId { digest, bytes: number(&mut from)? });
    }
    Some((packs, whole - from.len()))
}

/// Whether packs can have the lengths that a file says. The sum of such lengths and that of a file does not overflow.
pub(crate) fn is_possible(packs: &[PackId]) -> bool {
    // Longer files than the kernel has.
    const MAX_BYTES: u64 = i64::MAX as u64;
    let sum = packs.iter().try_fold(0_u64, |sum, pack| sum.checked_add(pack.bytes));
    sum.is_some_and(|sum| sum <= MAX_BYTES) && packs.iter().all(|pack| pack.bytes > 0)
}

/// The body of an image, unpacked.
pub(crate) struct Contained {
    pub(crate) state: Vec<u8>,
    pub(crate) memory: Plan,
    pub(crate) layer: Plan,
}

/// Unpacks the body of an image with streams of these lengths.
pub(crate) fn contained(
    from: &mut dyn Read,
    [state_bytes, memory_bytes, layer_bytes]: [u64; 3],
    packs: usize,
) -> io::Result<Contained> {
    let wrong = || io::Error::other("its plan does not fit its head");
    if state_bytes > MAX_STATE_BYTES {
        return Err(io::Error::other("its state is impossibly long"));
    }
    let mut body = Vec::new();
    from.take(state_bytes + MAX_PLAN_BYTES).read_to_end(&mut body)?;
    let (state, mut plans) = body.split_at_checked(state_bytes as usize).ok_or_else(wrong)?;
    let memory = Plan::read(&mut plans, memory_bytes, packs).ok_or_else(wrong)?;
    let layer = Plan::read(&mut plans, layer_bytes, packs).ok_or_else(wrong)?;
    if !plans.is_empty() {
        return Err(wrong());
    }
    Ok(Contained { state: state.to_vec(), memory, layer })
}

/// A stream that is made again.
pub(crate) struct Stream {
    pieces: VecDeque<Piece>,
    rows: VecDeque<Row>,
    bytes: Vec<u8>,
    at: usize,
    packs: Rc<RefCell<Vec<Pack>>>,
    page: [u8; PAGE],
    /// What was not yet read of it.
    left: std::ops::Range<usize>,
}

impl Stream {
    pub(crate) fn new(plan: Plan, packs: Rc<RefCell<Vec<Pack>>>) -> Self {
        let Plan { pieces, rows, bytes } = plan;
        let (pieces, rows) = (pieces.into(), rows.into());
        Self { pieces, rows, bytes, at: 0, packs, page: [0; PAGE], left: 0..0 }
    }

    /// The same stream from here on.
    pub(crate) fn again(&self) -> Self {
        Self {
            pieces: self.pieces.clone(),
            rows: self.rows.clone(),
            bytes: self.bytes.clone(),
            at: self.at,
            packs: self.packs.clone(),
            page: self.page,
            left: self.left.clone(),
        }
    }

    /// Its pages by their places, of a stream of which nothing was read.
    pub(crate) fn placed(&self, path: &Path) -> Result<Placed, ImageError> {
        let rows = self.rows.iter().copied().collect();
        Placed::new(path, self.pieces.iter(), rows, &self.packs.borrow())
    }

    /// Leaves out the next bytes, as many whole pages and other bytes as there are among `count`; answers how many that were.
    pub(crate) fn skip(&mut self, count: u64) -> u64 {
        let mut left = count;
        while let Some(piece) = self.pieces.front_mut().filter(|_| left > 0) {
            let bytes = piece.bytes.min(left);
            (piece.bytes, self.at) = (piece.bytes - bytes, self.at + bytes as usize);
            left -= bytes;
            if piece.bytes > 0 {
                break;
            }
            let paged = if piece.paged <= left { piece.paged } else { left - left % PAGE_BYTES };
            piece.paged -= paged;
            let is_over = piece.paged == 0;
            left -= paged;
            self.skip_pages(paged.div_ceil(PAGE_BYTES));
            if !is_over {
                break;
            }
            self.pieces.pop_front();
        }
        count - left
    }

    fn skip_pages(&mut self, mut count: u64) {
        while count > 0 {
            let row = self.rows.front_mut().expect("a plan has places for all its pages");
            let now = u64::from(row.count).min(count) as u32;
            (row.place, row.count) = (row.place.wrapping_add(now), row.count - now);
            count -= u64::from(now);
            if row.count == 0 {
                self.rows.pop_front();
            }
        }
    }

    /// The next bytes; none at the end.
    pub(crate) fn next(&mut self, out: &mut [u8]) -> Result<usize, ImageError> {
        if self.left.is_empty() {
            while self.pieces.front().is_some_and(|piece| *piece == Piece::default()) {
                self.pieces.pop_front();
            }
            let Some(piece) = self.pieces.front_mut() else { return Ok(0) };
            if piece.bytes > 0 {
                let n = out.len().min(usize::try_from(piece.bytes).unwrap_or(usize::MAX));
                out[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
                self.at += n;
                piece.bytes -= n as u64;
                return Ok(n);
            }
            let row = self.rows.front_mut().expect("a plan has places for all its pages");
            let mut packs = self.packs.borrow_mut();
            let page = packs[row.pack as usize].page(row.place)?;
            // A page that is not in the pack was an error.
            (row.place, row.count) = (row.place.wrapping_add(1), row.count - 1);
            if row.count == 0 {
                self.rows.pop_front();
            }
            let len = piece.paged.min(PAGE_BYTES) as usize;
            piece.paged -= len as u64;
            if let Some(out) = out.get_mut(..len) {
                out.copy_from_slice(&page[..len]);
                return Ok(len);
            }
            (self.page, self.left) = (*page, 0..len);
        }
        let n = out.len().min(self.left.len());
        out[..n].copy_from_slice(&self.page[self.left.start..self.left.start + n]);
        self.left.start += n;
        Ok(n)
    }

    /// Writes what is not in pages where it belongs in a file.
    pub(crate) fn place_bytes(&self, file: &File) -> io::Result<()> {
        let (mut at, mut from) = (0, self.at);
        for piece in &self.pieces {
            let bytes = &self.bytes[from..from + piece.bytes as usize];
            file.write_all_at(bytes, at)?;
            (at, from) = (at + piece.bytes + piece.paged, from + bytes.len());
        }
        Ok(())
    }

    /// Writes the next bytes, all that are left at most, on a thread beside the one that unpacks them.
    pub(crate) fn copy(
        &mut self,
        count: u64,
        out: &mut (dyn Write + Send),
        path: &Path,
    ) -> Result<(), ImageError> {
        thread::scope(|scope| {
            // As few pieces as keep both busy: those that were written come back.
            let (full, to_write) = mpsc::sync_channel::<Vec<u8>>(PIECES);
            let (written, empty) = mpsc::sync_channel(PIECES);
            let out = &mut *out;
            let writer = scope.spawn(move || {
                to_write.iter().try_for_each(|piece| {
                    out.write_all(&piece)?;
                    // Nobody wants it any more at the end.
                    let _ = written.try_send(piece);
                    Ok(())
                })
            });
            let read = self.pieces(count, &full, &empty);
            drop(full);
            let wrote: io::Result<()> = writer.join().unwrap_or_else(|panic| resume_unwind(panic));
            wrote.map_err(ImageError::io(path)).and(read)
        })?;
        out.flush().map_err(ImageError::io(path))
    }

    /// Hands over the next bytes, in pieces, until nobody takes them.
    fn pieces(
        &mut self,
        mut count: u64,
        full: &SyncSender<Vec<u8>>,
        empty: &Receiver<Vec<u8>>,
    ) -> Result<(), ImageError> {
        while count > 0 {
            let mut piece = empty.try_recv().unwrap_or_default();
            piece.resize(usize::try_from(count).unwrap_or(PIECE_BYTES).min(PIECE_BYTES), 0);
            let mut len = 0;
            while len < piece.len() {
                match self.next(&mut piece[len..])? {
                    0 => break,
                    n => len += n,
                }
            }
            piece.truncate(len);
            count -= len as u64;
            if len == 0 || full.send(piece).is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.next(out).map_err(io::Error::other)
    }
}

/// Writes the file of an image whose pages are written.
pub(crate) fn write_body(sink: &mut impl Write, state: &[u8], planned: &Planned) -> io::Result<()> {
    sink.write_all(&names(&planned.packs))?;
    let mut body = zstd::Encoder::new(sink, crate::pack::LEVEL)?;
    body.write_all(state)?;
    planned.memory.write(&mut body)?;
    planned.layer.write(&mut body)?;
    body.finish().map(drop)
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
