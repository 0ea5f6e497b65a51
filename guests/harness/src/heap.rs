//! The final content of a guest's heap in the arena, without the bytes that belong to one replica.

use skein_arena::parts::{PARTS_BYTES, Parts};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGE_BYTES: u64 = 4096;

/// Pages that are not all zero: their positions in the heap, and their bytes. The heap begins at `begin` of the arena's file.
pub fn pages(arena: &File, begin: u64, parts_at: u64) -> io::Result<Vec<(u64, Vec<u8>)>> {
    let mut bytes = [0; PARTS_BYTES];
    arena.read_exact_at(&mut bytes, begin + parts_at)?;
    let parts = Parts::read(&bytes);
    let end = arena.metadata()?.len();
    let mut pages = Vec::new();
    let mut at = begin;
    while let Some(next) = seek(arena, at, libc::SEEK_DATA).filter(|next| *next < end) {
        let mut page = vec![0; PAGE_BYTES as usize];
        arena.read_exact_at(&mut page, next)?;
        for own in parts.owns() {
            own.clear(&mut page, next - begin);
        }
        if page.iter().any(|byte| *byte != 0) {
            pages.push((next - begin, page));
        }
        at = next + PAGE_BYTES;
    }
    Ok(pages)
}

fn seek(file: &File, from: u64, whence: i32) -> Option<u64> {
    // SAFETY: takes no pointers.
    u64::try_from(unsafe { libc::lseek(file.as_raw_fd(), from as i64, whence) }).ok()
}
