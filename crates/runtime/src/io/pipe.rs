//! Pipes.
//!
//! As on Linux up to `PIPE_BUF` bytes are written in one piece; more may be cut. Capacity is in bytes, not in pages of which each write
//! takes at least one, so small writes fill a pipe later than natively.

use crate::fatal;
use crate::io::file::{self, File, Hold, Kind, ready};
use crate::io::iov::Buffers;
use crate::io::wait::wait;
use crate::io::{fail, socket};
use crate::kernel::{Kernel, kernel};
use crate::sys::Result;
use crate::turn;
use core::cell::Cell;
use skein_arena::bytes::ByteQueue;
use skein_arena::pool::{ArenaObject, Handle, Link};

/// What a pipe holds: 16 pages.
const CAPACITY_BYTES: u32 = 64 << 10;
/// What an unprivileged process may ask for, as Linux has it: 1 MiB.
const MAX_CAPACITY_BYTES: usize = 1 << 20;

/// A pipe. Ends that are closed have no file.
#[repr(C)]
pub struct Pipe {
    queue: ByteQueue,
    capacity: Cell<u32>,
    reader: Link<File>,
    writer: Link<File>,
}

// SAFETY: cells and links; all-zero is an empty pipe without ends.
unsafe impl ArenaObject for Pipe {}

impl Pipe {
    /// Bytes that can be written.
    pub fn room(&self) -> usize {
        (self.capacity.get() as usize).saturating_sub(self.queue.len())
    }

    fn writable(&self) -> bool {
        self.room() >= libc::PIPE_BUF
    }

    /// Bytes that can be read.
    pub fn unread(&self) -> usize {
        self.queue.len()
    }

    /// Whether nobody writes any more.
    pub fn ended(&self) -> bool {
        self.writer.get().is_none()
    }

    /// Whether nobody reads any more.
    pub fn deserted(&self) -> bool {
        self.reader.get().is_none()
    }

    /// Copies bytes from position `skip` on without taking them; answers how many.
    pub fn look(&self, k: &Kernel, skip: usize, out: &mut [u8]) -> usize {
        self.queue.peek(&k.chunks, skip, out)
    }

    /// Takes the first `n` bytes.
    pub fn consume(&self, k: &Kernel, n: usize) {
        let was_writable = self.writable();
        self.queue.discard(&k.chunks, n);
        if !was_writable && self.writable() {
            file::notify(k, self.writer.get(), ready::OUT);
        }
    }

    /// Adds bytes, which there is room for; answers how many.
    pub fn append(&self, k: &Kernel, bytes: &[u8]) -> usize {
        let n = self.queue.push(&k.chunks, bytes);
        if n > 0 {
            file::notify(k, self.reader.get(), ready::IN);
        }
        n
    }

    /// Bytes that it holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity.get() as usize
    }
}

fn get(k: &Kernel, raw: u32) -> &Pipe {
    k.io.pipes.get(Handle::from_raw(raw).expect("a pipe"))
}

/// The pipe of one of its ends.
pub fn of<'a>(k: &'a Kernel, f: &File) -> Option<&'a Pipe> {
    matches!(f.kind.get(), Kind::PipeReader | Kind::PipeWriter).then(|| get(k, f.object.get()))
}

/// `pipe2`.
pub fn create(flags: i32) -> Result<[i32; 2]> {
    turn::operation();
    if flags & !(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_DIRECT) != 0 {
        return fail(libc::EINVAL);
    }
    if flags & libc::O_DIRECT != 0 {
        fatal::refused(b"pipe2 with O_DIRECT");
        return fail(libc::EINVAL);
    }
    let k = kernel();
    let Some(pipe) = k.io.pipes.alloc() else { return fail(libc::ENFILE) };
    crate::uses::note(crate::uses::Use::Pipes);
    let p = k.io.pipes.get(pipe);
    p.capacity.set(CAPACITY_BYTES);
    let made = ends(k, p, pipe.raw(), flags);
    if made.is_err() && p.reader.get().is_none() && p.writer.get().is_none() {
        k.io.pipes.free(pipe);
    }
    made
}

fn ends(k: &Kernel, p: &Pipe, raw: u32, flags: i32) -> Result<[i32; 2]> {
    let cloexec = flags & libc::O_CLOEXEC != 0;
    let nonblock = flags & libc::O_NONBLOCK;
    let reader = file::create(k, Kind::PipeReader, raw, nonblock)?;
    let read_fd = file::install(k, reader, cloexec)?;
    let write_end = file::create(k, Kind::PipeWriter, raw, nonblock | libc::O_WRONLY)
        .and_then(|writer| Ok((writer, file::install(k, writer, cloexec)?)));
    match write_end {
        Ok((writer, write_fd)) => {
            p.reader.set(Some(reader));
            p.writer.set(Some(writer));
            Ok([read_fd, write_fd])
        }
        Err(e) => {
            // Closing the only end frees the pipe.
            p.reader.set(Some(reader));
            let _ = crate::io::descriptor::close_virtual(k, read_fd);
            p.reader.set(None);
            Err(e)
        }
    }
}

/// The last reference to the reading end is gone.
pub fn release_reader(k: &Kernel, raw: u32) {
    let p = get(k, raw);
    p.reader.set(None);
    match p.writer.get() {
        Some(writer) => {
            file::notify(k, Some(writer), ready::ALL);
        }
        None => free(k, raw),
    }
}

/// The last reference to the writing end is gone.
pub fn release_writer(k: &Kernel, raw: u32) {
    let p = get(k, raw);
    p.writer.set(None);
    match p.reader.get() {
        Some(reader) => {
            file::notify(k, Some(reader), ready::ALL);
        }
        None => free(k, raw),
    }
}

fn free(k: &Kernel, raw: u32) {
    get(k, raw).queue.clear(&k.chunks);
    k.io.pipes.free(Handle::from_raw(raw).expect("a pipe"));
}

/// Readiness of the reading end.
pub fn reader_mask(k: &Kernel, raw: u32) -> u32 {
    let p = get(k, raw);
    let data = if p.queue.is_empty() { 0 } else { ready::IN };
    let ended = if p.writer.get().is_none() { ready::HUP } else { 0 };
    data | ended
}

/// Readiness of the writing end.
pub fn writer_mask(k: &Kernel, raw: u32) -> u32 {
    let p = get(k, raw);
    let space = if p.writable() { ready::OUT } else { 0 };
    let ended = if p.reader.get().is_none() { ready::ERR } else { 0 };
    space | ended
}

/// Reads from a pipe.
pub fn read(k: &Kernel, hold: &Hold, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    let p = get(k, f.object.get());
    if buffers.left() == 0 {
        return Ok(0);
    }
    while p.queue.is_empty() {
        if p.writer.get().is_none() {
            return Ok(0);
        }
        if f.nonblocking() {
            return fail(libc::EAGAIN);
        }
        wait(k, hold.0, ready::IN, false, None)?;
    }
    let was_writable = p.writable();
    let mut done = 0;
    while !p.queue.is_empty() {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_mut(usize::MAX) };
        if piece.is_empty() {
            break;
        }
        let n = p.queue.pop(&k.chunks, piece);
        buffers.advance(n);
        done += n;
    }
    if !was_writable && p.writable() {
        file::notify(k, p.writer.get(), ready::OUT);
    }
    Ok(done)
}

/// Writes to a pipe.
pub fn write(k: &Kernel, hold: &Hold, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    let p = get(k, f.object.get());
    if buffers.left() == 0 {
        return Ok(0);
    }
    let whole = buffers.left();
    let mut done = 0;
    loop {
        if p.reader.get().is_none() {
            if done > 0 {
                return Ok(done);
            }
            socket::raise_sigpipe(k);
            return fail(libc::EPIPE);
        }
        let atomic = whole <= libc::PIPE_BUF;
        let room = p.room();
        if if atomic { room >= whole } else { room > 0 } {
            let pushed = push(k, p, buffers, room);
            done += pushed;
            if pushed > 0 {
                file::notify(k, p.reader.get(), ready::IN);
            }
            if done == whole {
                return Ok(done);
            }
            if pushed == 0 {
                // No chunk is left in the arena.
                return if done > 0 { Ok(done) } else { fail(libc::ENOMEM) };
            }
        }
        if f.nonblocking() {
            return if done > 0 { Ok(done) } else { fail(libc::EAGAIN) };
        }
        if let Err(e) = wait(k, hold.0, ready::OUT, false, None) {
            return if done > 0 { Ok(done) } else { Err(e) };
        }
    }
}

fn push(k: &Kernel, p: &Pipe, buffers: &mut Buffers<'_>, room: usize) -> usize {
    let mut done = 0;
    while done < room {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_ref(room - done) };
        let n = p.queue.push(&k.chunks, piece);
        buffers.advance(n);
        done += n;
        if n == 0 {
            break;
        }
    }
    done
}

/// `F_SETPIPE_SZ`: answers the new capacity.
pub fn resize(k: &Kernel, p: &Pipe, asked: usize) -> Result<usize> {
    if asked > MAX_CAPACITY_BYTES {
        return fail(libc::EPERM);
    }
    let size = asked.max(4096).next_power_of_two();
    if size < p.queue.len() {
        return fail(libc::EBUSY);
    }
    let was_writable = p.writable();
    p.capacity.set(size as u32);
    if !was_writable && p.writable() {
        file::notify(k, p.writer.get(), ready::OUT);
    }
    Ok(size)
}
