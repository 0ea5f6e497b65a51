//! Queues of bytes in chunks of one page: bytes in flight in sockets and pipes.

use crate::pool::{ArenaObject, Handle, Link, Pool};
use core::cell::{Cell, UnsafeCell};

/// Payload bytes of a chunk: a page less the link.
pub const CHUNK_BYTES: usize = 4096 - 8;

/// A page of bytes.
#[repr(C)]
pub struct Chunk {
    next: Link<Chunk>,
    _pad: Cell<u32>,
    data: UnsafeCell<[u8; CHUNK_BYTES]>,
}

// SAFETY: links and bytes; all-zero is an unlinked chunk.
unsafe impl ArenaObject for Chunk {}
const _: () = assert!(core::mem::size_of::<Chunk>() == 4096);

/// The chunks of all queues.
pub type Chunks = Pool<Chunk>;

/// Bytes in order. All-zero bytes are an empty queue, which holds no chunk.
#[repr(C)]
#[derive(Default)]
pub struct ByteQueue {
    head: Link<Chunk>,
    tail: Link<Chunk>,
    /// Bytes of the first chunk that are consumed.
    start: Cell<u32>,
    /// Bytes of the last chunk that are used.
    end: Cell<u32>,
    len: Cell<u64>,
}

impl ByteQueue {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Adds as much of `bytes` as free chunks can hold; answers how many bytes that was.
    pub fn push(&self, chunks: &Chunks, mut bytes: &[u8]) -> usize {
        let whole = bytes.len();
        while !bytes.is_empty() {
            let (tail, end) = match self.tail.get() {
                Some(tail) if (self.end.get() as usize) < CHUNK_BYTES => {
                    (tail, self.end.get() as usize)
                }
                last => {
                    // Clearing a page for each short request would cost more than the request.
                    let head = core::mem::offset_of!(Chunk, data);
                    // SAFETY: only the written part of a chunk's data is read.
                    let Some(fresh) = (unsafe { chunks.alloc_partly(head) }) else { break };
                    match last {
                        Some(last) => chunks.get(last).next.set(Some(fresh)),
                        None => {
                            self.head.set(Some(fresh));
                            self.start.set(0);
                        }
                    }
                    self.tail.set(Some(fresh));
                    (fresh, 0)
                }
            };
            let n = bytes.len().min(CHUNK_BYTES - end);
            // SAFETY: `end + n <= CHUNK_BYTES`; these bytes of the chunk are unused, so no slice of them exists.
            unsafe {
                let to = chunks.get(tail).data.get().cast::<u8>().add(end);
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, n);
            }
            self.end.set((end + n) as u32);
            self.len.set(self.len.get() + n as u64);
            bytes = &bytes[n..];
        }
        whole - bytes.len()
    }

    /// Copies up to `out.len()` bytes from position `skip` on without consuming them; answers how many.
    pub fn peek(&self, chunks: &Chunks, mut skip: usize, out: &mut [u8]) -> usize {
        let mut done = 0;
        let mut at = self.head.get();
        let mut start = self.start.get() as usize;
        while let Some(handle) = at {
            let chunk = chunks.get(handle);
            let end = self.used_of(handle);
            let here = end - start;
            if skip < here {
                let n = (here - skip).min(out.len() - done);
                // SAFETY: `start + skip + n <= end <= CHUNK_BYTES`: initialised bytes of this chunk, not written while we read.
                unsafe {
                    let from = chunk.data.get().cast::<u8>().add(start + skip);
                    core::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(done), n);
                }
                done += n;
                skip = 0;
                if done == out.len() {
                    break;
                }
            } else {
                skip -= here;
            }
            start = 0;
            at = chunk.next.get();
        }
        done
    }

    /// Drops the first `n` bytes.
    pub fn discard(&self, chunks: &Chunks, n: usize) {
        let mut n = n.min(self.len());
        self.len.set(self.len.get() - n as u64);
        while let Some(handle) = self.head.get() {
            let end = self.used_of(handle);
            let here = end - self.start.get() as usize;
            if n < here {
                self.start.set(self.start.get() + n as u32);
                return;
            }
            n -= here;
            let next = chunks.get(handle).next.get();
            chunks.free(handle);
            self.head.set(next);
            self.start.set(0);
            if next.is_none() {
                self.tail.set(None);
                self.end.set(0);
            }
            if n == 0 && self.len.get() != 0 {
                return;
            }
        }
    }

    /// Moves up to `out.len()` bytes out; answers how many.
    pub fn pop(&self, chunks: &Chunks, out: &mut [u8]) -> usize {
        let n = self.peek(chunks, 0, out);
        self.discard(chunks, n);
        n
    }

    /// Drops everything.
    pub fn clear(&self, chunks: &Chunks) {
        self.discard(chunks, self.len());
    }

    /// The first contiguous bytes, to be consumed without a copy; empty only when the queue is.
    pub fn front<'a>(&self, chunks: &'a Chunks) -> &'a [u8] {
        let Some(handle) = self.head.get() else { return &[] };
        let (start, end) = (self.start.get() as usize, self.used_of(handle));
        // SAFETY: `start <= end <= CHUNK_BYTES`, initialised bytes; the caller consumes them before it pushes or discards.
        unsafe {
            let data = chunks.get(handle).data.get().cast::<u8>();
            core::slice::from_raw_parts(data.add(start), end - start)
        }
    }

    fn used_of(&self, handle: Handle<Chunk>) -> usize {
        if self.tail.get() == Some(handle) { self.end.get() as usize } else { CHUNK_BYTES }
    }
}
