//! /dev/urandom and /dev/random: the server's randomness as files.

use super::buffers::Buffers;
use super::ops::{self, FileOps};
use super::{File, Hold, Kind, ready};
use crate::abi;
use crate::errno::Result;
use crate::host::Host;
use skein_arena::pool::Handle;
use skein_arena::uses::Use;

/// Whether a path is one of the two devices.
pub fn is_device(path: &[u8]) -> bool {
    matches!(path, b"/dev/urandom" | b"/dev/random")
}

/// Opens a device.
pub fn open<H: Host>(k: &H, flags: i32) -> Result<usize> {
    k.note(Use::Randomness);
    let status = flags & (abi::O_ACCMODE | abi::O_NONBLOCK | abi::O_APPEND);
    super::open(k, Kind::Random, 0, status, flags & abi::O_CLOEXEC != 0).map(|(_, fd)| fd as usize)
}

/// What such a device does.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    fn mask(&self, _: &H, _: &File) -> u32 {
        ready::IN | ready::OUT
    }

    fn release(&self, _: &H, _: Handle<File>) {}

    fn read(&self, k: &H, _: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        let mut done = 0;
        loop {
            // SAFETY: the server's buffers; one thread runs at a time.
            let piece = unsafe { buffers.piece_mut(usize::MAX) };
            if piece.is_empty() {
                return Ok(done);
            }
            k.random(piece);
            buffers.advance(piece.len());
            done += piece.len();
        }
    }

    /// Writes to the pool have no effect.
    fn write(&self, _: &H, _: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        Ok(buffers.left())
    }

    fn stays(&self) -> bool {
        true
    }

    fn stat(&self, _: &H, _: Handle<File>) -> abi::stat {
        ops::anonymous(abi::S_IFCHR | 0o666, 9)
    }
}
