//! What a server is given to continue from an image: the restore file when it is started, its files before it gets its first entry, its pages then.
//!
//! Runs on the thread of the server's keeper. The whole image is read and compared before anything of it is used; then its pages are unpacked while the server
//! takes up those that are there ([`Header::restore_pieces`](skein_arena::layout::Header::restore_pieces)).

use super::store::Store;
use nix::sys::memfd::{MFdFlags, memfd_create};
use skein_arena::layout::RESTORE_PIECE_BYTES;
use skein_arena::{Arena, MapError};
use skein_image::file::{Body, ImageError};
use skein_image::take::shared_at;
use skein_model::LogIndex;
use skein_sandbox::Layer;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A start from an image.
#[derive(Clone, Debug)]
pub struct Restart {
    /// Where it is.
    pub store: Store,
    /// Its entry.
    pub index: LogIndex,
}

/// Why a server cannot continue from an image.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// The file.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The server's files.
    #[error("{}: the server's files cannot be made again: {why}", path.display())]
    Files {
        /// The image.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// An unpacked image.
pub struct Unpacked {
    path: PathBuf,
    memory: File,
    body: Body,
    /// Whether the restore file is whole.
    is_whole: bool,
    /// Where what processes share begins in it.
    shared_at: u64,
    /// There are files only: the server begins.
    ended: bool,
}

impl Restart {
    /// Unpacks what the server needs at its start. The arena is its one.
    ///
    /// # Errors
    /// The image cannot be used, or there is no memory.
    pub fn unpack(&self, arena: BorrowedFd<'_>) -> Result<Unpacked, RestartError> {
        let path = self.store.any_path(self.index);
        let verified = self.store.verify(self.index)?;
        let ended = verified.head().processes == 0;
        let (_, mut body) = verified.unpack()?;
        let memory = memfd_create(c"skein-restore", MFdFlags::MFD_CLOEXEC);
        let mut memory = memory.map(File::from).map_err(|e| ImageError::io(&path)(e.into()))?;
        let is_whole = ended || !body.place_known(&memory)?;
        let mut shared = 0;
        if is_whole {
            body.memory(&mut memory)?;
        } else {
            shared = shared_at(&memory)
                .map_err(|error| ImageError::io(&path)(io::Error::other(error)))?;
            let pieces = Pieces::of(arena, &path)?;
            pieces.are(Counts::Shared, 0);
            pieces.are(Counts::All, 0);
        }
        Ok(Unpacked { path, memory, body, is_whole, shared_at: shared, ended })
    }
}

impl Unpacked {
    /// The restore file; none for a server that begins on the files of one that has ended.
    #[must_use]
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended).then(|| self.memory.as_fd())
    }

    /// Makes the server's files again, in the layer of one that was just started.
    ///
    /// # Errors
    /// They are damaged or cannot be made: that server is of no use.
    pub fn give_files(&mut self, layer: Option<&Layer>) -> Result<(), RestartError> {
        let made = self.body.layer(|from| match layer {
            Some(layer) => layer.unpack(from),
            // A server without a layer wrote into the host's files.
            None => std::io::copy(from, &mut std::io::sink()).map(drop),
        })?;
        let failed = |error: io::Error| RestartError::Files {
            path: self.path.clone(),
            why: error.to_string(),
        };
        made.map_err(failed)
    }

    /// Unpacks the pages of its memory while the server takes them up: first what its processes share, as it does.
    ///
    /// # Errors
    /// They are damaged, or there is no memory: that server is of no use.
    pub fn give_pages(mut self, arena: BorrowedFd<'_>) -> Result<(), RestartError> {
        if self.is_whole {
            return Ok(());
        }
        let pieces = Pieces::of(arena, &self.path)?;
        let filling =
            |counts, from| Filling { file: &self.memory, from, bytes: 0, pieces: &pieces, counts };
        let shared = &mut filling(Counts::Shared, self.shared_at);
        self.body.memory_from(self.shared_at, shared, &mut filling(Counts::All, 0))?;
        Ok(())
    }
}

/// Which word of the arena says how much of the restore file is there.
#[derive(Clone, Copy)]
enum Counts {
    /// From its beginning: all of it in the end.
    All,
    /// From what processes share.
    Shared,
}

/// Tells the server how much of the restore file is there.
struct Pieces(Arena);

impl Pieces {
    fn of(arena: BorrowedFd<'_>, path: &Path) -> Result<Self, ImageError> {
        let shared = Arena::share(arena.as_raw_fd());
        let failed = |error: MapError| ImageError::io(path)(io::Error::other(error.to_string()));
        shared.map(Self).map_err(failed)
    }

    fn are(&self, counts: Counts, pieces: u32) {
        let header = self.0.header();
        let word = match counts {
            Counts::All => &header.restore_pieces,
            Counts::Shared => &header.restore_shared,
        };
        word.store(pieces + 1, Ordering::Release);
        let at: *const AtomicU32 = word;
        // SAFETY: a futex wake reads no memory; the word lies in the arena, which is mapped.
        unsafe { libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// A part of the restore file while it is written.
struct Filling<'a> {
    file: &'a File,
    /// Where it begins.
    from: u64,
    bytes: u64,
    pieces: &'a Pieces,
    counts: Counts,
}

impl Write for Filling<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes == 0 {
            self.file.seek(SeekFrom::Start(self.from))?;
        }
        let n = self.file.write(bytes)?;
        let before = self.bytes / RESTORE_PIECE_BYTES;
        self.bytes += n as u64;
        let now = self.bytes / RESTORE_PIECE_BYTES;
        if now > before {
            // There is no file of petabytes in memory.
            self.pieces.are(self.counts, u32::try_from(now).unwrap_or(u32::MAX - 1));
        }
        Ok(n)
    }

    /// All of the part is there.
    fn flush(&mut self) -> io::Result<()> {
        self.pieces.are(self.counts, u32::MAX - 1);
        Ok(())
    }
}
