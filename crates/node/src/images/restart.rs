//! What a server is given to continue from an image: the restore file when it is started, its files before it gets its first entry, its pages then.
//!
//! Runs on the thread of the server's keeper. The whole image is read and compared before anything of it is used; then its pages are unpacked: what processes share into the restore file,
//! from which the server takes up what is there ([`Header::restore_pieces`](skein_arena::layout::Header::restore_pieces)), the others into the processes ([`placing`](super::placing)).

use super::placing::{self, Came};
use super::store::Store;
use nix::sys::memfd::{MFdFlags, memfd_create};
use skein_arena::layout::RESTORE_PIECE_BYTES;
use skein_arena::{Arena, MapError};
use skein_image::file::{Body, ImageError};
use skein_image::futex;
use skein_image::restore_file::{self, PagesOf};
use skein_model::LogIndex;
use skein_sandbox::Layer;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

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
    /// The server has a setting that cannot be changed while servers continue from images.
    #[error("{}: an image of a server with {key} = {was}, and it is {is} now; start it with {key} = {was}", path.display())]
    Setting {
        /// The image.
        path: PathBuf,
        /// The setting.
        key: &'static str,
        /// Its value then.
        was: usize,
        /// And now.
        is: usize,
    },
}

/// An unpacked image.
pub struct Unpacked {
    path: PathBuf,
    memory: File,
    body: Body,
    /// Whether the restore file is whole.
    is_whole: bool,
    /// Where the others are in it.
    pages: PagesOf,
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
        let mut pages = PagesOf::default();
        if is_whole {
            body.memory(&mut memory)?;
        }
        if !ended {
            check_sizes(arena, &memory, &path)?;
        }
        if !is_whole {
            pages = restore_file::pages(&memory)
                .map_err(|error| ImageError::io(&path)(io::Error::other(error)))?;
            let pieces = Pieces::of(arena, &path)?;
            pieces.are(Counts::Shared, 0);
            pieces.are(Counts::All, 0);
            if pages.has_heap {
                placing::offer(pieces.0.header());
            }
        }
        Ok(Unpacked { path, memory, body, is_whole, pages, ended })
    }
}

/// Memory lies at the addresses where it lay, and no less of it.
fn check_sizes(arena: BorrowedFd<'_>, memory: &File, path: &Path) -> Result<(), RestartError> {
    let failed = |error: String| ImageError::io(path)(io::Error::other(error));
    let was = restore_file::sizes(memory).map_err(|error| failed(error.to_string()))?;
    let arena = Arena::share(arena.as_raw_fd()).map_err(|error| failed(error.to_string()))?;
    let is = arena.sizes();
    let settings = [
        ("tuning.input_ring_bytes", was.input, is.input, was.input == is.input),
        ("tuning.output_ring_bytes", was.output, is.output, was.output == is.output),
        ("tuning.arena_heap_bytes", was.heap, is.heap, was.heap <= is.heap),
    ];
    match settings.into_iter().find(|(.., fits)| !fits) {
        Some((key, was, is, _)) => {
            Err(RestartError::Setting { path: path.to_owned(), key, was, is })
        }
        None => Ok(()),
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

    /// Unpacks the pages of its memory while the server with this init takes them up, as long as it is wanted: first what its processes share, as it does.
    ///
    /// # Errors
    /// They are damaged, or there is no memory: that server is of no use.
    pub fn give_pages(
        mut self,
        arena: BorrowedFd<'_>,
        init: u32,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), RestartError> {
        let placed = if self.is_whole { None } else { self.body.placed()? };
        let Some(placed) = placed else { return Ok(()) };
        let (pieces, begin) = (Pieces::of(arena, &self.path)?, Instant::now());
        let PagesOf { shared_at, processes, .. } = &self.pages;
        let filling =
            |counts, from| Filling { file: &self.memory, from, bytes: 0, pieces: &pieces, counts };
        self.body.memory_behind(*shared_at, &mut filling(Counts::Shared, *shared_at))?;
        let into = match placing::place(pieces.0.header(), init, processes, placed, is_wanted)? {
            Came::Nowhere => return Ok(()),
            Came::Placed => "memory",
            Came::InFile => {
                self.body.memory_before(*shared_at, &mut filling(Counts::All, 0))?;
                "file"
            }
        };
        let ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(event = "unpacked", into, ms);
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
        futex::wake(word);
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
