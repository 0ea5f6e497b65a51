//! splice, tee, vmsplice, sendfile: from one file to another, by copying.
//!
//! What is moved leaves its source only when the other side has taken it: nothing is read that cannot be written. So each step of a splice looks at
//! both sides, moves as much as both allow without blocking, and otherwise waits for the side that does not.

use super::buffers::{Buffers, single};
use super::pipe::{self, Pipe};
use super::wait::wait;
use super::{File, Hold, Kind, ops, ready, table};
use crate::abi::{self, iovec};
use crate::errno::{Errno, Result, fail};
use crate::host::Host;
use core::cell::Cell;

/// Bytes moved at a time, on the thread's stack.
const PIECE_BYTES: usize = 8 << 10;
const NONBLOCK: u32 = abi::SPLICE_F_NONBLOCK;
const KNOWN: u32 =
    abi::SPLICE_F_MOVE | abi::SPLICE_F_NONBLOCK | abi::SPLICE_F_MORE | abi::SPLICE_F_GIFT;

/// A position in a file that a call names and moves; none is the file's own.
pub type At<'a> = Option<&'a Cell<i64>>;

/// One side of a splice.
pub enum Side<'k, H: Host> {
    /// A virtual descriptor.
    Virtual(Hold<'k, H>),
    /// One of the kernel's, and where in it.
    Kernel(i32, At<'k>),
}

impl<'k, H: Host> Side<'k, H> {
    /// The side that a descriptor is.
    pub fn of(k: &'k H, fd: i32, at: At<'k>) -> Self {
        match table::file(k, fd) {
            Some(file) => Self::Virtual(Hold::new(k, file)),
            None => Self::Kernel(fd, at),
        }
    }

    fn file<'a>(&self, k: &'a H) -> Option<&'a File> {
        match self {
            Self::Virtual(hold) => Some(hold.file(k)),
            Self::Kernel(..) => None,
        }
    }

    fn pipe<'a>(&self, k: &'a H, end: fn(Kind) -> bool) -> Option<&'a Pipe> {
        self.file(k).filter(|f| end(f.kind.get())).and_then(|f| pipe::of(k, f))
    }

    fn nonblocking(&self, k: &H) -> bool {
        self.file(k).is_some_and(File::nonblocking)
    }

    fn wait(&self, k: &H, events: u32) -> Result<()> {
        match self {
            Self::Virtual(hold) => wait(k, hold.0, events, false, None),
            // The kernel's files are always ready.
            Self::Kernel(..) => Ok(()),
        }
    }
}

/// `splice`. `at` are the positions that the call names.
pub fn splice<H: Host>(
    k: &H,
    from: &Side<'_, H>,
    to: &Side<'_, H>,
    at: [At<'_>; 2],
    len: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return fail(abi::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    if from.file(k).is_some_and(|f| f.kind.get() == Kind::PipeWriter)
        || to.file(k).is_some_and(|f| f.kind.get() == Kind::PipeReader)
    {
        return fail(abi::EBADF);
    }
    let (source, sink) = (from.pipe(k, pipe::reads), to.pipe(k, pipe::writes));
    match (source, sink) {
        (None, None) => return fail(abi::EINVAL),
        (Some(a), Some(b)) if core::ptr::eq(a, b) => return fail(abi::EINVAL),
        _ => {}
    }
    for (side, at) in [(from, at[0]), (to, at[1])] {
        let Some(f) = side.file(k) else { continue };
        if at.is_some() {
            return fail(if pipe::of(k, f).is_some() { abi::ESPIPE } else { abi::EINVAL });
        }
        if pipe::of(k, f).is_none() && f.kind.get() != Kind::Socket {
            return fail(abi::EINVAL);
        }
    }
    let mut done = 0;
    while done < len {
        let most = (len - done).min(PIECE_BYTES);
        let step = match (source, sink) {
            (Some(source), Some(sink)) => between_pipes(k, source, sink, most),
            (Some(source), None) => out_of_pipe(k, source, to, most),
            (None, Some(sink)) => into_pipe(k, from, sink, most),
            (None, None) => fail(abi::EINVAL),
        };
        let (stuck, events) = match step {
            Ok(0) => return Ok(done),
            Ok(n) => {
                done += n;
                continue;
            }
            Err(e) if done > 0 && e != STUCK => return Ok(done),
            Err(e) if e != STUCK => return Err(e),
            _ if done > 0 => return Ok(done),
            // The side that has nothing or no room.
            _ if source.is_some_and(|p| p.unread() == 0) => (from, ready::IN),
            _ if sink.is_some_and(|p| p.room() == 0) => (to, ready::OUT),
            _ if source.is_some() => (to, ready::OUT),
            _ => (from, ready::IN),
        };
        // A pipe waits unless this call says otherwise; two pipes follow their files' modes, too, and a socket its own.
        let is_pipe = stuck.file(k).is_some_and(|f| pipe::of(k, f).is_some());
        let both = source.is_some() && sink.is_some();
        let by_mode = if both {
            from.nonblocking(k) || to.nonblocking(k)
        } else {
            !is_pipe && stuck.nonblocking(k)
        };
        if by_mode || is_pipe && flags & NONBLOCK != 0 {
            return fail(abi::EAGAIN);
        }
        stuck.wait(k, events)?;
    }
    Ok(done)
}

/// Nothing can be moved now.
const STUCK: Errno = Errno(abi::EAGAIN);

/// Whether a pipe has bytes (`Ok(true)`), has ended (`Ok(false)`), or may have some later.
fn filled(p: &Pipe) -> Result<bool> {
    match p.unread() {
        0 if p.ended() => Ok(false),
        0 => Err(STUCK),
        _ => Ok(true),
    }
}

fn check_reader<H: Host>(k: &H, p: &Pipe) -> Result<()> {
    if p.deserted() {
        k.raise_sigpipe();
        return fail(abi::EPIPE);
    }
    if p.room() == 0 { Err(STUCK) } else { Ok(()) }
}

fn between_pipes<H: Host>(k: &H, source: &Pipe, sink: &Pipe, most: usize) -> Result<usize> {
    if !filled(source)? {
        return Ok(0);
    }
    check_reader(k, sink)?;
    let mut piece = [0u8; PIECE_BYTES];
    let n = source.look(k, 0, &mut piece[..most.min(sink.room()).min(PIECE_BYTES)]);
    let n = sink.append(k, &piece[..n]);
    source.consume(k, n);
    if n == 0 { fail(abi::ENOMEM) } else { Ok(n) }
}

fn out_of_pipe<H: Host>(k: &H, source: &Pipe, to: &Side<'_, H>, most: usize) -> Result<usize> {
    if !filled(source)? {
        return Ok(0);
    }
    let mut piece = [0u8; PIECE_BYTES];
    let n = source.look(k, 0, &mut piece[..most]);
    let n = match to {
        Side::Virtual(hold) => {
            let part = [single(piece.as_mut_ptr().cast(), n)];
            let ops = ops::of::<H>(hold.file(k).kind.get());
            ops.write_at_once(k, hold, &mut Buffers::new(&part)?)?
        }
        Side::Kernel(fd, at) => {
            let n = k.write_kernels(*fd, at.map(Cell::get), &piece[..n])?;
            advance(*at, n);
            n
        }
    };
    source.consume(k, n);
    Ok(n)
}

fn advance(at: At<'_>, n: usize) {
    if let Some(at) = at {
        at.set(at.get() + n as i64);
    }
}

fn into_pipe<H: Host>(k: &H, from: &Side<'_, H>, sink: &Pipe, most: usize) -> Result<usize> {
    check_reader(k, sink)?;
    let mut piece = [0u8; PIECE_BYTES];
    let most = most.min(sink.room());
    let n = match from {
        Side::Virtual(hold) => {
            let part = [single(piece.as_mut_ptr().cast(), most)];
            let ops = ops::of::<H>(hold.file(k).kind.get());
            ops.read_at_once(k, hold, &mut Buffers::new(&part)?)?
        }
        Side::Kernel(fd, at) => {
            let n = k.read_kernels(*fd, at.map(Cell::get), &mut piece[..most])?;
            advance(*at, n);
            n
        }
    };
    if sink.append(k, &piece[..n]) < n {
        k.fatal(format_args!("no memory for bytes spliced into a pipe"));
    }
    Ok(n)
}

/// `tee`: as a splice between pipes, but the source keeps its bytes. The copy is the content at its begin.
pub fn tee<H: Host>(
    k: &H,
    from: &Side<'_, H>,
    to: &Side<'_, H>,
    len: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return fail(abi::EINVAL);
    }
    let (Some(source), Some(sink)) = (from.pipe(k, pipe::reads), to.pipe(k, pipe::writes)) else {
        return fail(abi::EINVAL);
    };
    if core::ptr::eq(source, sink) {
        return fail(abi::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let nonblocking = flags & NONBLOCK != 0 || from.nonblocking(k) || to.nonblocking(k);
    loop {
        let possible = filled(source)
            .and_then(|some| if some { check_reader(k, sink).map(|()| true) } else { Ok(false) });
        match possible {
            Ok(true) => break,
            Ok(false) => return Ok(0),
            Err(STUCK) if !nonblocking => {}
            Err(e) => return Err(e),
        }
        if source.unread() == 0 { from.wait(k, ready::IN)? } else { to.wait(k, ready::OUT)? }
    }
    let whole = len.min(source.unread()).min(sink.room());
    let mut piece = [0u8; PIECE_BYTES];
    let mut done = 0;
    while done < whole {
        let n = source.look(k, done, &mut piece[..(whole - done).min(PIECE_BYTES)]);
        let n = sink.append(k, &piece[..n]);
        if n == 0 {
            break;
        }
        done += n;
    }
    if done == 0 { fail(abi::ENOMEM) } else { Ok(done) }
}

/// `vmsplice`: writes to a pipe or reads from it.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn vmsplice<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    list: *const iovec,
    count: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return fail(abi::EINVAL);
    }
    let f = hold.file(k);
    let Some(p) = pipe::of(k, f) else { return fail(abi::EBADF) };
    // SAFETY: the caller's contract.
    let mut buffers = unsafe { Buffers::from_raw(list, count, abi::EINVAL) }?;
    let reads = f.kind.get() == Kind::PipeReader;
    let stuck = if reads { p.unread() == 0 && !p.ended() } else { p.room() == 0 && !p.deserted() };
    if flags & NONBLOCK != 0 && stuck && buffers.left() > 0 {
        return fail(abi::EAGAIN);
    }
    if reads {
        return pipe::read(k, hold, &mut buffers);
    }
    // A call that may not block takes as much as fits.
    if flags & NONBLOCK != 0 && buffers.left() > p.room() {
        buffers.limit(p.room());
    }
    pipe::write(k, hold, &mut buffers)
}

/// `sendfile`: from a file of the kernel's to a virtual descriptor.
pub fn sendfile<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    in_fd: i32,
    at: At<'_>,
    count: usize,
) -> Result<usize> {
    let mut piece = [0u8; PIECE_BYTES];
    let mut done = 0;
    while done < count {
        let most = (count - done).min(PIECE_BYTES);
        let n = match k.read_kernels(in_fd, at.map(Cell::get), &mut piece[..most]) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) => return if done > 0 { Ok(done) } else { Err(e) },
        };
        let part = [single(piece.as_mut_ptr().cast(), n)];
        let sent = ops::write(k, hold, &mut Buffers::new(&part)?);
        let taken = *sent.as_ref().unwrap_or(&0);
        advance(at, taken);
        if at.is_none() && taken < n {
            // Bytes that were read but not sent go back.
            k.move_kernels(in_fd, -((n - taken) as i64))?;
        }
        done += taken;
        match sent {
            Ok(sent) if sent == n => {}
            Ok(_) => break,
            Err(e) => return if done > 0 { Ok(done) } else { Err(e) },
        }
    }
    Ok(done)
}
