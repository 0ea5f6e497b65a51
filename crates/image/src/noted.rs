//! What a server has noted in its record of writes ([`skein_arena::writes`]): only the rows that count are read, as the server may stand meanwhile.

use skein_arena::writes::{WRITE_BYTES, WRITES, Write, looked_at, since, words};
use std::io;

/// How often something was noted, and what was since it was `noted` (as [`since`] tells). `read` fills bytes from a position of the record on.
///
/// # Errors
/// Those of `read`.
pub(crate) fn noted_since(
    noted: u64,
    mut read: impl FnMut(usize, &mut [u8]) -> io::Result<()>,
) -> io::Result<(u64, Option<Vec<Write>>)> {
    let mut head = [0; WRITE_BYTES];
    read(0, &mut head)?;
    let head = words(&head);
    let Some(notes) = looked_at(head[0], noted) else { return Ok((head[0], None)) };
    // They lie in a circle.
    let first = (notes.start % WRITES as u64) as usize;
    let mut bytes = vec![0; (notes.end - notes.start) as usize * WRITE_BYTES];
    let to_the_end = bytes.len().min((WRITES - first) * WRITE_BYTES);
    let (front, back) = bytes.split_at_mut(to_the_end);
    read((1 + first) * WRITE_BYTES, front)?;
    read(WRITE_BYTES, back)?;
    let rows = bytes.as_chunks::<WRITE_BYTES>().0;
    let row = |row: usize| match row.checked_sub(1) {
        None => head,
        Some(at) => words(&rows[(at + WRITES - first) % WRITES]),
    };
    let (count, told) = since(row, noted);
    Ok((count, told.map(Iterator::collect)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_arena::writes::{GROWING, RECORD_BYTES};

    const KEPT: u64 = WRITES as u64;

    /// Each note names its own number as a file.
    fn record(count: u64) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES];
        let mut put = |row: usize, [a, b]: [u64; 2]| {
            record[row * WRITE_BYTES..][..8].copy_from_slice(&a.to_ne_bytes());
            record[row * WRITE_BYTES + 8..][..8].copy_from_slice(&b.to_ne_bytes());
        };
        put(0, [count, 0]);
        for number in count.saturating_sub(KEPT)..count {
            let write = Write { number, from: 1, to: 2 };
            put(1 + (number % KEPT) as usize, write.words());
        }
        record
    }

    /// The first and the last note that is told, their number, and the bytes that were read.
    fn told(record: &[u8], noted: u64) -> Option<([u64; 2], usize, usize)> {
        let mut read = 0;
        let (_, told) = noted_since(noted, |at, bytes| {
            bytes.copy_from_slice(&record[at..at + bytes.len()]);
            read += bytes.len();
            Ok(())
        })
        .unwrap();
        let numbers: Vec<u64> = told?.iter().map(|write| write.number).collect();
        let ends = [*numbers.first()?, *numbers.last()?];
        assert!(numbers.is_sorted());
        Some((ends, numbers.len(), read))
    }

    #[test]
    fn rows_are_read_that_count_and_no_others() {
        let bytes = |notes: usize| (1 + notes) * WRITE_BYTES;
        assert_eq!(told(&record(100), 90), Some(([86, 99], 14, bytes(14))));
        // Around the end, all that there are, and more.
        let record = record(KEPT + 3);
        assert_eq!(told(&record, KEPT), Some(([KEPT - GROWING, KEPT + 2], 7, bytes(7))));
        let oldest = 3 + GROWING;
        assert_eq!(told(&record, oldest), Some(([3, KEPT + 2], WRITES, bytes(WRITES))));
        assert_eq!(told(&record, oldest - 1), None);
        assert_eq!(told(&record, KEPT + 4), None, "another one's");
    }

    #[test]
    fn of_any_count_all_is_told_that_is_kept_or_nothing() {
        let is_told = |count: u64, noted| {
            let mut record = record(0);
            record[..8].copy_from_slice(&count.to_ne_bytes());
            let read = |at: usize, bytes: &mut [u8]| {
                bytes.copy_from_slice(&record[at..at + bytes.len()]);
                Ok(())
            };
            let (told, writes) = noted_since(noted, read).unwrap();
            assert_eq!(told, count);
            writes.is_some()
        };
        let each = |count| [0, 1, u64::MAX].map(|noted| is_told(count, noted));
        assert_eq!(each(0), [true, false, false]);
        assert_eq!(each(1), [true, true, false]);
        assert_eq!(each(u64::MAX), [false, false, true]);
    }
}
