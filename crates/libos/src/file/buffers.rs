//! The server's buffers, scattered or not.

use crate::abi::{self, c_void, iovec};
use crate::errno::{Result, fail};

/// The most bytes that Linux reads or writes in one call.
pub const MAX_RW_BYTES: usize = 0x7fff_f000;
/// `UIO_MAXIOV`.
const MAX_IOV: usize = 1024;

/// A cursor over the server's buffers.
pub struct Buffers<'a> {
    list: &'a [iovec],
    offset: usize,
    left: usize,
}

impl<'a> Buffers<'a> {
    /// All of `list`.
    #[inline]
    pub fn new(list: &'a [iovec]) -> Result<Self> {
        let mut left = 0usize;
        for part in list {
            if part.iov_len > isize::MAX as usize {
                return fail(abi::EINVAL);
            }
            left = left.saturating_add(part.iov_len);
        }
        Ok(Self { list, offset: 0, left: left.min(MAX_RW_BYTES) })
    }

    /// The array that a call was given.
    ///
    /// # Safety
    /// `list` points to `count` valid parts.
    pub unsafe fn from_raw(list: *const iovec, count: usize, too_many: i32) -> Result<Self> {
        if count > MAX_IOV {
            return fail(too_many);
        }
        if count == 0 {
            return Self::new(&[]);
        }
        // SAFETY: the caller's contract.
        Self::new(unsafe { core::slice::from_raw_parts(list, count) })
    }

    /// The same buffers, from their start.
    pub const fn again(&self) -> Self {
        Self { list: self.list, offset: self.offset, left: self.left }
    }

    /// Bytes left.
    pub const fn left(&self) -> usize {
        self.left
    }

    /// The next contiguous bytes, at most `most`: address and length. Zero when nothing is left.
    #[inline]
    pub fn piece(&mut self, most: usize) -> (*mut u8, usize) {
        while let Some(part) = self.list.first() {
            let here = (part.iov_len - self.offset).min(self.left).min(most);
            if here == 0 && part.iov_len > self.offset {
                break;
            }
            if here > 0 {
                return (part.iov_base.cast::<u8>().wrapping_add(self.offset), here);
            }
            self.list = &self.list[1..];
            self.offset = 0;
        }
        (core::ptr::null_mut(), 0)
    }

    /// The next piece, to be written into.
    ///
    /// # Safety
    /// The buffers are the caller's own, writable, and nothing else uses them during the call.
    #[inline]
    pub unsafe fn piece_mut(&mut self, most: usize) -> &'a mut [u8] {
        match self.piece(most) {
            (_, 0) => &mut [],
            // SAFETY: the caller's contract.
            (at, len) => unsafe { core::slice::from_raw_parts_mut(at, len) },
        }
    }

    /// The next piece, to be read.
    ///
    /// # Safety
    /// The buffers are readable and not written during the call.
    #[inline]
    pub unsafe fn piece_ref(&mut self, most: usize) -> &'a [u8] {
        match self.piece(most) {
            (_, 0) => &[],
            // SAFETY: the caller's contract.
            (at, len) => unsafe { core::slice::from_raw_parts(at, len) },
        }
    }

    /// `n` bytes, no more than the last piece had, are done.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        self.offset += n;
        self.left -= n;
    }

    /// Forgets all but the next `n` bytes.
    #[inline]
    pub fn limit(&mut self, n: usize) {
        self.left = self.left.min(n);
    }

    /// Skips `n` bytes.
    #[inline]
    pub fn skip(&mut self, mut n: usize) {
        while n > 0 {
            let (_, here) = self.piece(n);
            if here == 0 {
                return;
            }
            self.advance(here);
            n -= here;
        }
    }

    /// Fills `out`, which is no longer than what is left.
    ///
    /// # Safety
    /// As for [`piece_ref`](Self::piece_ref).
    pub unsafe fn gather(&mut self, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            // SAFETY: the caller's contract.
            let piece = unsafe { self.piece_ref(out.len() - done) };
            if piece.is_empty() {
                out[done..].fill(0);
                return;
            }
            out[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
            self.advance(piece.len());
        }
    }

    /// Copies `bytes` in; answers how many fitted.
    ///
    /// # Safety
    /// As for [`piece_mut`](Self::piece_mut).
    pub unsafe fn scatter(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            // SAFETY: the caller's contract.
            let piece = unsafe { self.piece_mut(bytes.len() - done) };
            if piece.is_empty() {
                break;
            }
            piece.copy_from_slice(&bytes[done..done + piece.len()]);
            done += piece.len();
            self.advance(piece.len());
        }
        done
    }
}

/// One buffer as a part.
pub const fn single(at: *mut c_void, len: usize) -> iovec {
    iovec { iov_base: at, iov_len: if len > MAX_RW_BYTES { MAX_RW_BYTES } else { len } }
}
