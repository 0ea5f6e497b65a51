//! How much of its file system a base may take. What shares its bytes with the host's files takes nothing, and is not counted.

use std::fmt;
use std::io;
use std::path::Path;

/// A base takes this much wherever there is room: 1 GiB. A server and what belongs to it are nearly always less.
const ALWAYS_BYTES: u64 = 1 << 30;
/// Beyond that it takes at most one part in so many of what the file system would have free without it: the log, images and others need the rest.
const PARTS: u64 = 4;
/// And leaves so much free: 2 GiB.
const LEFT_BYTES: u64 = 2 << 30;

/// The room of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes that the file system has for this user.
    pub free: u64,
    /// Bytes that the base takes.
    pub held: u64,
}

impl Room {
    /// How much more the base may take.
    pub(super) fn more(self) -> u64 {
        let Self { free, held } = self;
        let always = ALWAYS_BYTES.saturating_sub(held).min(free);
        let part = (free.saturating_add(held) / PARTS).saturating_sub(held);
        always.max(part.min(free.saturating_sub(LEFT_BYTES)))
    }

    /// There is room for so many bytes more.
    ///
    /// # Errors
    /// There is not: [`io::ErrorKind::StorageFull`].
    pub(super) fn take(self, bytes: u64) -> io::Result<()> {
        if bytes <= self.more() {
            return Ok(());
        }
        let why = format!(
            "its {} do not fit: the data directory's file system has {} free, of which the base may take {} more",
            Bytes(bytes),
            Bytes(self.free),
            Bytes(self.more())
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, why))
    }
}

/// A large file that comes from another replica leaves the same beyond the first GiB: what is pinned is needed, so nothing else bounds it.
///
/// # Errors
/// It does not: [`io::ErrorKind::StorageFull`].
pub(super) fn leaves(Room { free, held }: Room) -> io::Result<()> {
    if held < ALWAYS_BYTES || free >= LEFT_BYTES {
        return Ok(());
    }
    let why = format!(
        "its file system has only {} free, and a large file is to leave {}",
        Bytes(free),
        Bytes(LEFT_BYTES)
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

/// Bytes that a file system has for this user.
///
/// # Errors
/// It cannot be asked.
pub(crate) fn free(dir: &Path) -> io::Result<u64> {
    let found = nix::sys::statvfs::statvfs(dir)?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// A number of bytes in words.
pub(super) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = if self.0 < 1 << 30 { (1 << 20, "MiB") } else { (1 << 30, "GiB") };
        write!(f, "{:.1} {name}", self.0 as f64 / f64::from(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_base_leaves_room_for_the_rest() {
        let more = |free: u64, held: u64| Room { free: free * GIB, held: held * GIB }.more() / GIB;
        // A quarter, however it is filled.
        assert_eq!((more(400, 0), more(340, 60), more(300, 100), more(200, 100)), (100, 40, 0, 0));
        // The first GiB counts only what is free.
        assert_eq!((more(3, 0), more(1, 0), more(0, 0), more(8, 1)), (1, 1, 0, 1));
        // Something stays free.
        assert_eq!(Room { free: 3 * GIB, held: 20 * GIB }.more(), 0);
        let small = Room { free: 6 * GIB, held: 0 };
        small.take(GIB * 3 / 2).unwrap();
        let refused = small.take(GIB * 3 / 2 + 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        for part in ["its 1.5 GiB", "6.0 GiB free", "take 1.5 GiB more"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
        // What comes from others has the first GiB, too, and no bound but what stays free.
        let comes = |free: u64, held| leaves(Room { free: free * GIB, held });
        comes(1, GIB - 1).unwrap();
        comes(2, 90 * GIB).unwrap();
        assert_eq!(comes(1, GIB).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(Bytes(1 << 19).to_string(), "0.5 MiB");
    }
}
