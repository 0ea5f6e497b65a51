//! Reading and copying contents: holes stay holes, and nothing is in memory but a piece.

use super::store::{Added, Digest};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use xxhash_rust::xxh3::Xxh3;

/// Read at a time.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// A copy is written back at least this often, so that a sync of another file need not wait for all of it: 64 MiB.
const SYNC_BYTES: u64 = 64 << 20;

/// Digest, hash and length of what a file has now. `ends`: give up once that is set.
///
/// # Errors
/// It cannot be read, or was given up: [`io::ErrorKind::Interrupted`].
pub(super) fn read(from: &File, ends: Option<&AtomicBool>) -> io::Result<Added> {
    run(from, None, ends)
}

/// The same, while that is copied to an empty file.
///
/// # Errors
/// As [`read`]; or there is no room.
pub(super) fn copy(from: &File, to: &File, ends: Option<&AtomicBool>) -> io::Result<Added> {
    run(from, Some(to), ends)
}

/// The XXH3 of what a file has now, 128 bits, and its length.
///
/// # Errors
/// As [`read`].
pub(super) fn sum(from: &File, ends: Option<&AtomicBool>) -> io::Result<(u128, u64)> {
    let mut hash = Xxh3::new();
    let size = pieces(from, ends, &mut |piece, _| {
        hash.update(piece);
        Ok(())
    })?;
    Ok((hash.digest128(), size))
}

/// Bytes of a file that are in no hole.
///
/// # Errors
/// It cannot be asked.
pub(super) fn data_bytes(from: &File) -> io::Result<u64> {
    let (len, mut at, mut bytes) = (from.metadata()?.len(), 0, 0);
    while at < len {
        let (data, end) = next_data(from, at, len)?;
        bytes += end - data;
        at = end;
    }
    Ok(bytes)
}

fn run(from: &File, to: Option<&File>, ends: Option<&AtomicBool>) -> io::Result<Added> {
    let (mut digest, mut hash) = (Sha256::new(), Xxh3::new());
    let mut written = 0;
    let size = pieces(from, ends, &mut |piece, at| {
        digest.update(piece);
        hash.update(piece);
        if let (Some(to), Some(at)) = (to, at) {
            to.write_all_at(piece, at)?;
            written += piece.len() as u64;
            if written >= SYNC_BYTES {
                written = 0;
                to.sync_data()?;
            }
        }
        Ok(())
    })?;
    if let Some(to) = to {
        to.set_len(size)?;
    }
    let digest = Digest(digest.finalize().into());
    Ok(Added { digest, size, hash: hash.digest128().to_be_bytes() })
}

/// Gets a piece, and its place if it is data.
type Take<'a> = dyn FnMut(&[u8], Option<u64>) -> io::Result<()> + 'a;

/// Hands out all pieces in order, each with its place if it is data and no hole; answers the length.
fn pieces(from: &File, ends: Option<&AtomicBool>, take: &mut Take<'_>) -> io::Result<u64> {
    let mut piece = vec![0; PIECE_BYTES];
    let zeros = [0; PIECE_BYTES];
    let len = from.metadata()?.len();
    let (mut at, mut data, mut hole) = (0, 0, 0);
    loop {
        if ends.is_some_and(|ends| ends.load(Ordering::Relaxed)) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the node ends"));
        }
        if at == hole && at < len {
            (data, hole) = next_data(from, at, len)?;
        }
        if at < data {
            let n = (data - at).min(PIECE_BYTES as u64);
            take(&zeros[..n as usize], None)?;
            at += n;
            continue;
        }
        // What the file has beyond its length shows that it grows.
        let most = if at < hole { (hole - at).min(PIECE_BYTES as u64) } else { PIECE_BYTES as u64 };
        match from.read_at(&mut piece[..most as usize], at) {
            Ok(0) => return Ok(at),
            Ok(n) => {
                take(&piece[..n], Some(at))?;
                at += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        hole = hole.max(at);
    }
}

/// Where data begin and end, from `at` on; a hole at the end leads to the end of the file, which is at `len`.
///
/// # Errors
/// It cannot be asked.
pub(super) fn next_data(from: &File, at: u64, len: u64) -> io::Result<(u64, u64)> {
    let seek = |at: u64, what| lseek(from.as_fd(), at.cast_signed(), what);
    let data = match seek(at, Whence::SeekData) {
        Ok(data) => data.cast_unsigned().clamp(at, len),
        Err(Errno::ENXIO) => return Ok((len, len)),
        // It is not known here.
        Err(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ESPIPE) => return Ok((at, len)),
        Err(error) => return Err(error.into()),
    };
    match seek(data, Whence::SeekHole) {
        Ok(hole) if hole.cast_unsigned() > data => Ok((data, hole.cast_unsigned().min(len))),
        _ => Ok((data, len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn file(dir: &tempfile::TempDir, name: &str) -> File {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(dir.path().join(name))
            .unwrap()
    }

    #[test]
    fn holes_stay_holes_and_count_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let from = file(&dir, "from");
        // A hole, data over more than a piece, a hole, data, a hole at the end.
        let all = 64 << 20;
        let long = vec![7; PIECE_BYTES + 5];
        from.write_all_at(&long, 1 << 20).unwrap();
        from.write_all_at(b"end", 40 << 20).unwrap();
        from.set_len(all).unwrap();
        let to = file(&dir, "to");
        let copied = copy(&from, &to, None).unwrap();
        assert_eq!((copied.size, to.metadata().unwrap().len()), (all, all));
        let plain = std::fs::read(dir.path().join("from")).unwrap();
        assert_eq!(copied.digest, Digest(Sha256::digest(&plain).into()));
        assert_eq!(sum(&to, None).unwrap(), (xxhash_rust::xxh3::xxh3_128(&plain), all));
        assert!(std::fs::read(dir.path().join("to")).unwrap() == plain);
        let takes = |file: &File| file.metadata().unwrap().blocks() * 512;
        assert!(takes(&to) < 4 << 20, "{}", takes(&to));
        assert!(data_bytes(&from).unwrap() < 4 << 20);
        // Nothing at all, and nothing but a hole.
        assert_eq!(copy(&file(&dir, "none"), &file(&dir, "copy"), None).unwrap().size, 0);
        let hole = file(&dir, "hole");
        hole.set_len(3 << 20).unwrap();
        let zeros = Digest(Sha256::digest(vec![0; 3 << 20]).into());
        assert_eq!(read(&hole, None).unwrap().digest, zeros);
        assert_eq!(data_bytes(&hole).unwrap(), 0);
    }

    #[test]
    fn it_ends_when_the_node_does() {
        let dir = tempfile::tempdir().unwrap();
        let from = file(&dir, "from");
        from.set_len(1 << 40).unwrap();
        let ends = AtomicBool::new(true);
        let kind = |result: io::Result<Added>| result.unwrap_err().kind();
        assert_eq!(kind(read(&from, Some(&ends))), io::ErrorKind::Interrupted);
        assert_eq!(kind(copy(&from, &file(&dir, "to"), Some(&ends))), io::ErrorKind::Interrupted);
    }
}
