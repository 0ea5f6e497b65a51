//! Pipes.
//!
//! As on Linux up to `PIPE_BUF` bytes are written in one piece; more may be cut. Capacity is in bytes, not in pages of which each write
//! takes at least one, so small writes fill a pipe later than natively.
//!
//! Each end may have several open file descriptions: opening a FIFO by its path adds one.

use super::buffers::Buffers;
use super::ops::{self, FileOps, Queue};
use super::wait::wait_if_blocking;
use super::{File, Hold, Kind, fifo, handle, ready, table};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
pub use crate::state::file::{Pipe, Reading, Writing};
use skein_arena::pool::Handle;
use skein_arena::uses::Use;

/// The capacity of a pipe: 16 pages.
const CAPACITY_BYTES: u32 = 64 << 10;
/// The largest capacity for an unprivileged process, as in Linux: 1 MiB.
const MAX_CAPACITY_BYTES: usize = 1 << 20;

impl Pipe {
    /// The number of bytes that can be written.
    pub fn room(&self) -> usize {
        (self.capacity.get() as usize).saturating_sub(self.queue.len())
    }

    fn writable(&self) -> bool {
        self.room() >= abi::PIPE_BUF
    }

    /// The number of bytes that can be read.
    pub fn unread(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is no writer any more.
    pub fn ended(&self) -> bool {
        self.writers.is_empty()
    }

    /// Whether there is no reader any more.
    pub fn deserted(&self) -> bool {
        self.readers.is_empty()
    }

    /// Copies bytes from position `skip` on without taking them; answers how many.
    pub fn look<H: Host>(&self, k: &H, skip: usize, out: &mut [u8]) -> usize {
        self.queue.peek(&k.chunks, skip, out)
    }

    /// Takes the first `n` bytes.
    pub fn consume<H: Host>(&self, k: &H, n: usize) {
        let was_writable = self.writable();
        self.queue.discard(&k.chunks, n);
        if !was_writable && self.writable() {
            self.tell_writers(k, ready::OUT);
        }
    }

    /// Adds bytes for which there is room; answers how many.
    pub fn append<H: Host>(&self, k: &H, bytes: &[u8]) -> usize {
        let n = self.queue.push(&k.chunks, bytes);
        if n > 0 {
            self.tell_readers(k, ready::IN);
        }
        n
    }

    /// The most bytes that it holds.
    pub fn capacity(&self) -> usize {
        self.capacity.get() as usize
    }

    fn tell_readers<H: Host>(&self, k: &H, events: u32) {
        for (reader, _) in self.readers.iter(&k.fds.files) {
            super::notify(k, Some(reader), events);
        }
    }

    fn tell_writers<H: Host>(&self, k: &H, events: u32) {
        for (writer, _) in self.writers.iter(&k.fds.files) {
            super::notify(k, Some(writer), events);
        }
    }
}

/// Pipe `raw`.
pub fn get<H: Host>(k: &H, raw: u32) -> &Pipe {
    k.fds.pipes.get(handle(raw))
}

/// Whether such a file is a reading end.
pub const fn reads(kind: Kind) -> bool {
    matches!(kind, Kind::PipeReader | Kind::PipeBoth)
}

/// Whether such a file is a writing end.
pub const fn writes(kind: Kind) -> bool {
    matches!(kind, Kind::PipeWriter | Kind::PipeBoth)
}

/// The pipe of one of its ends.
pub fn of<'a, H: Host>(k: &'a H, f: &File) -> Option<&'a Pipe> {
    (reads(f.kind.get()) || writes(f.kind.get())).then(|| get(k, f.object.get()))
}

/// A pipe without ends.
pub fn make<H: Host>(k: &H) -> Result<Handle<Pipe>> {
    let Some(pipe) = k.fds.pipes.alloc() else { return fail(abi::ENFILE) };
    k.note(Use::Pipes);
    k.fds.pipes.get(pipe).capacity.set(CAPACITY_BYTES);
    Ok(pipe)
}

/// `file`, whose object is pipe `raw`, becomes one of its ends.
pub fn join<H: Host>(k: &H, file: Handle<File>, raw: u32) {
    let (p, kind) = (get(k, raw), k.fds.files.get(file).kind.get());
    if reads(kind) {
        p.readers.push_back(&k.fds.files, file);
        p.reader_opens.set(p.reader_opens.get().wrapping_add(1));
    }
    if writes(kind) {
        p.writers.push_back(&k.fds.files, file);
        p.writer_opens.set(p.writer_opens.get().wrapping_add(1));
    }
}

/// `pipe2`.
pub fn create<H: Host>(k: &H, flags: i32) -> Result<[i32; 2]> {
    if flags & !(abi::O_CLOEXEC | abi::O_NONBLOCK | abi::O_DIRECT) != 0 {
        return fail(abi::EINVAL);
    }
    if flags & abi::O_DIRECT != 0 {
        k.refused(format_args!("pipe2 with O_DIRECT"));
        return fail(abi::EINVAL);
    }
    let pipe = make(k)?;
    ends(k, pipe.raw(), flags)
}

fn ends<H: Host>(k: &H, raw: u32, flags: i32) -> Result<[i32; 2]> {
    let cloexec = flags & abi::O_CLOEXEC != 0;
    let nonblock = flags & abi::O_NONBLOCK;
    let end = |kind, flags| {
        let (file, fd) = super::open(k, kind, raw, flags, cloexec)?;
        join(k, file, raw);
        Ok(fd)
    };
    let read_fd = end(Kind::PipeReader, nonblock).inspect_err(|_| free(k, raw))?;
    match end(Kind::PipeWriter, nonblock | abi::O_WRONLY) {
        Ok(write_fd) => Ok([read_fd, write_fd]),
        Err(e) => {
            // Closing the only end frees the pipe.
            let _ = table::close(k, read_fd);
            Err(e)
        }
    }
}

/// The functions of the reading end.
pub struct ReadEnd;
/// The functions of the writing end.
pub struct WriteEnd;
/// The functions of an end that is both.
pub struct BothEnds;

impl<H: Host> FileOps<H> for ReadEnd {
    fn mask(&self, k: &H, file: &File) -> u32 {
        reader_mask(k, file)
    }

    fn release(&self, k: &H, file: Handle<File>) {
        release(k, file);
    }

    fn read(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        read(k, hold, buffers)
    }
    fn queued(&self, k: &H, file: &File, queue: Queue) -> Result<usize> {
        queued(k, file, queue)
    }

    fn stat(&self, k: &H, file: Handle<File>) -> abi::stat {
        stat(k, file)
    }
}

impl<H: Host> FileOps<H> for WriteEnd {
    fn mask(&self, k: &H, file: &File) -> u32 {
        writer_mask(k, file)
    }

    fn release(&self, k: &H, file: Handle<File>) {
        release(k, file);
    }

    fn write(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        write(k, hold, buffers)
    }
    fn queued(&self, k: &H, file: &File, queue: Queue) -> Result<usize> {
        queued(k, file, queue)
    }

    fn stat(&self, k: &H, file: Handle<File>) -> abi::stat {
        stat(k, file)
    }
}

impl<H: Host> FileOps<H> for BothEnds {
    fn mask(&self, k: &H, file: &File) -> u32 {
        reader_mask(k, file) | writer_mask(k, file)
    }

    fn release(&self, k: &H, file: Handle<File>) {
        release(k, file);
    }

    fn read(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        read(k, hold, buffers)
    }

    fn write(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        write(k, hold, buffers)
    }
    fn queued(&self, k: &H, file: &File, queue: Queue) -> Result<usize> {
        queued(k, file, queue)
    }

    fn stat(&self, k: &H, file: Handle<File>) -> abi::stat {
        stat(k, file)
    }
}

fn queued<H: Host>(k: &H, file: &File, queue: Queue) -> Result<usize> {
    if queue == Queue::Unread { Ok(get(k, file.object.get()).unread()) } else { fail(abi::ENOTTY) }
}

/// Both ends of a pipe are one inode; an end of a FIFO is its path's.
fn stat<H: Host>(k: &H, file: Handle<File>) -> abi::stat {
    let f = k.fds.files.get(file);
    let inode = u64::from(f.object.get()) + (1 << 20);
    fifo::stat(k, f).unwrap_or_else(|| ops::anonymous(abi::S_IFIFO | 0o600, inode))
}

/// The last reference to an end is gone.
fn release<H: Host>(k: &H, file: Handle<File>) {
    let f = k.fds.files.get(file);
    let (raw, kind) = (f.object.get(), f.kind.get());
    let p = get(k, raw);
    if reads(kind) {
        p.readers.remove(&k.fds.files, file);
    }
    if writes(kind) {
        p.writers.remove(&k.fds.files, file);
    }
    if p.readers.is_empty() && p.writers.is_empty() {
        free(k, raw);
    } else if p.readers.is_empty() {
        p.tell_writers(k, ready::ALL);
    } else if p.writers.is_empty() {
        p.tell_readers(k, ready::ALL);
    }
}

/// Frees a pipe without ends.
pub fn free<H: Host>(k: &H, raw: u32) {
    let p = get(k, raw);
    p.queue.clear(&k.chunks);
    if let name @ 1.. = p.fifo.take() {
        fifo::forget(k, name);
    }
    k.fds.pipes.free(handle(raw));
}

/// Readiness of the reading end.
fn reader_mask<H: Host>(k: &H, f: &File) -> u32 {
    let p = get(k, f.object.get());
    let data = if p.queue.is_empty() { 0 } else { ready::IN };
    // A reader of a FIFO is not told of an end before the FIFO has had a writer since it was opened.
    let none_yet = f.writers_before.get() == p.writer_opens.get();
    let ended = if p.ended() && !none_yet { ready::HUP } else { 0 };
    data | ended
}

/// Readiness of the writing end.
fn writer_mask<H: Host>(k: &H, f: &File) -> u32 {
    let p = get(k, f.object.get());
    let space = if p.writable() { ready::OUT } else { 0 };
    let ended = if p.deserted() { ready::ERR } else { 0 };
    space | ended
}

/// Reads from a pipe.
pub fn read<H: Host>(k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    let p = get(k, f.object.get());
    if buffers.left() == 0 {
        return Ok(0);
    }
    while p.queue.is_empty() {
        if p.ended() {
            return Ok(0);
        }
        wait_if_blocking(k, hold, ready::IN)?;
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
        p.tell_writers(k, ready::OUT);
    }
    Ok(done)
}

/// Writes to a pipe.
pub fn write<H: Host>(k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    let p = get(k, f.object.get());
    if buffers.left() == 0 {
        return Ok(0);
    }
    let whole = buffers.left();
    let mut done = 0;
    loop {
        if p.deserted() {
            if done > 0 {
                return Ok(done);
            }
            k.raise_sigpipe();
            return fail(abi::EPIPE);
        }
        let atomic = whole <= abi::PIPE_BUF;
        let room = p.room();
        if if atomic { room >= whole } else { room > 0 } {
            let pushed = push(k, p, buffers, room);
            done += pushed;
            if pushed > 0 {
                p.tell_readers(k, ready::IN);
            }
            if done == whole {
                return Ok(done);
            }
            if pushed == 0 {
                // No chunk is left in the arena.
                return if done > 0 { Ok(done) } else { fail(abi::ENOMEM) };
            }
        }
        if let Err(e) = wait_if_blocking(k, hold, ready::OUT) {
            return if done > 0 { Ok(done) } else { Err(e) };
        }
    }
}

fn push<H: Host>(k: &H, p: &Pipe, buffers: &mut Buffers<'_>, room: usize) -> usize {
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
pub fn resize<H: Host>(k: &H, p: &Pipe, asked: usize) -> Result<usize> {
    if asked > MAX_CAPACITY_BYTES {
        return fail(abi::EPERM);
    }
    let size = asked.max(4096).next_power_of_two();
    if size < p.queue.len() {
        return fail(abi::EBUSY);
    }
    let was_writable = p.writable();
    p.capacity.set(size as u32);
    if !was_writable && p.writable() {
        p.tell_writers(k, ready::OUT);
    }
    Ok(size)
}
