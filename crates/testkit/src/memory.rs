//! The memory of a server, seen from outside.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// The runtime's addresses, the arena among them.
const RUNTIME: std::ops::Range<u64> = 0x2a00_0000_0000..0x3800_0000_0000;
/// Bytes of a mapping in which is looked.
const MOST: u64 = 256 << 20;

/// Where these bytes are in a process's writable private memory, but for the runtime's.
///
/// # Errors
/// The process is gone, or another user's.
pub fn found(pid: i64, bytes: &[u8]) -> io::Result<Vec<u64>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let number = |text| u64::from_str_radix(text, 16).ok();
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let Some((Some(start), Some(end))) = range.map(|(a, b)| (number(a), number(b))) else {
            return Err(io::Error::other(format!("no range of addresses: {line}")));
        };
        let mut piece = vec![0; (end - start).min(MOST) as usize];
        if !RUNTIME.contains(&start) && memory.read_exact_at(&mut piece, start).is_ok() {
            found.extend(places(&piece, bytes).map(|at| start + at));
        }
    }
    Ok(found)
}

/// Where these bytes are in others.
pub fn places(piece: &[u8], bytes: &[u8]) -> impl Iterator<Item = u64> {
    let at = piece.windows(bytes.len()).enumerate().filter(move |(_, w)| *w == bytes);
    at.map(|(at, _)| at as u64)
}
