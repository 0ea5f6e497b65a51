//! The pages of files with holes: only what is there is read.

use crate::pages::{PAGE_BYTES, is_zero};
use crate::raw::Raw;
use crate::{MemoryError, Result};
use nix::unistd::{Whence, lseek64};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

const PAGE: usize = PAGE_BYTES as usize;
/// Read at a time: 256 KiB.
const PIECE_PAGES: usize = 64;

/// Calls `each` for the pages of a file from `begin` to `end` that are not zero.
///
/// # Errors
/// It cannot be read; or an error of `each`.
pub fn each_page(
    file: &File,
    begin: u64,
    end: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    failed: impl Fn(io::Error) -> MemoryError,
) -> Result<()> {
    let mut piece = vec![0; PIECE_PAGES * PAGE];
    each_part(file, begin, end, &failed, |mut offset, last| {
        while offset < last {
            let pages = ((last - offset).div_ceil(PAGE_BYTES) as usize).min(PIECE_PAGES);
            let piece = &mut piece[..pages * PAGE];
            read_there(file, offset, piece).map_err(&failed)?;
            for page in piece.chunks_exact(PAGE) {
                if !is_zero(page) {
                    each(offset, page)?;
                }
                offset += PAGE_BYTES;
            }
        }
        Ok(())
    })
}

/// Copies those of the pages of a file from `begin` to `end` that are not zero, by their positions behind `origin`.
///
/// # Errors
/// It cannot be read; there is no memory; or an error of `goes_on`.
pub(crate) fn copy_pages(
    pages: &mut Raw,
    file: &File,
    [origin, begin, end]: [u64; 3],
    mut goes_on: impl FnMut() -> Result<()>,
    failed: impl Fn(io::Error) -> MemoryError,
) -> Result<()> {
    each_part(file, begin, end, &failed, |mut offset, last| {
        while offset < last {
            goes_on()?;
            let most = ((last - offset).div_ceil(PAGE_BYTES) as usize).min(PIECE_PAGES);
            let read = |room: &mut [u8]| read_there(file, offset, room);
            let read = pages.fill(offset - origin, most, read).map_err(&failed)?;
            offset += read as u64 * PAGE_BYTES;
        }
        Ok(())
    })
}

/// Calls `each` with the parts of a file from `begin` to `end` where something is: the first page of each, and the byte behind its last one.
fn each_part(
    file: &File,
    begin: u64,
    end: u64,
    failed: &impl Fn(io::Error) -> MemoryError,
    mut each: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let seek = |at: u64, whence| match lseek64(file.as_fd(), at.cast_signed(), whence) {
        Ok(found) => Ok(Some(found.cast_unsigned())),
        Err(nix::Error::ENXIO) => Ok(None),
        Err(error) => Err(failed(error.into())),
    };
    let mut at = begin;
    while at < end {
        let Some(data) = seek(at, Whence::SeekData)? else { return Ok(()) };
        let Some(hole) = seek(data, Whence::SeekHole)? else { return Ok(()) };
        each(begin + (data - begin) / PAGE_BYTES * PAGE_BYTES, hole.min(end))?;
        at = hole;
    }
    Ok(())
}

/// Reads from a position on. The last page of a file may be a part of one, and zeros follow.
pub(crate) fn read_there(file: &File, at: u64, room: &mut [u8]) -> io::Result<()> {
    let mut len = 0;
    while len < room.len() {
        match file.read_at(&mut room[len..], at + len as u64)? {
            0 => break,
            n => len += n,
        }
    }
    room[len..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_sparse_file_are_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 * PAGE_BYTES + 5).unwrap();
        file.write_all_at(b"one", 3 * PAGE_BYTES + 7).unwrap();
        file.write_all_at(b"end", 10 * PAGE_BYTES + 2).unwrap();
        let mut found = Vec::new();
        let each = |offset, page: &[u8]| {
            found.push((offset / PAGE_BYTES, page.iter().filter(|byte| **byte != 0).count()));
            Ok(())
        };
        let failed = |error| MemoryError::Read { what: "it".into(), error };
        each_page(&file, 0, 10 * PAGE_BYTES + 5, each, failed).unwrap();
        assert_eq!(found, [(3, 3), (10, 3)]);
    }
}
