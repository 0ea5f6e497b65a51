//! splice, tee, vmsplice: between a pipe and something else, by copying.
//!
//! What is moved leaves its source only when the other side has taken it: nothing is read that cannot be written. So each step looks at
//! both sides, moves what both allow without blocking, and otherwise waits for the one that does not.

use crate::fatal::refuse;
use crate::files::change;
use crate::io::Answer;
use crate::io::call;
use crate::io::call::Hold;
use crate::io::socket::exchange::{self, Incoming, Outgoing};
use crate::io::socket::raise_sigpipe;
use crate::io::table;
use crate::kernel::{Kernel, kernel};
use crate::sys;
use crate::{signal, thread, turn};
use skein_libos::abi::iovec;
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::file::buffers::{Buffers, single};
use skein_libos::file::pipe::{self, Pipe};
use skein_libos::file::wait::wait;
use skein_libos::file::{File, Kind, ready};
use skein_sched::op::{Kind as Op, Object};

/// Bytes moved at a time, on the thread's stack.
const PIECE_BYTES: usize = 8 << 10;
const NONBLOCK: u32 = libc::SPLICE_F_NONBLOCK;
const KNOWN: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// One side of a splice.
enum Side<'k> {
    /// A virtual descriptor.
    Virtual(Hold<'k>),
    /// One of the kernel's, and where in it; null for its own position.
    Kernel(i32, *mut i64),
}

impl<'k> Side<'k> {
    fn of(k: &'k Kernel, fd: i32, offset: *mut i64) -> Self {
        match k.table().get(fd) {
            Some(file) => Self::Virtual(Hold::new(k, file)),
            None => Self::Kernel(fd, offset),
        }
    }

    fn file<'a>(&self, k: &'a Kernel) -> Option<&'a File> {
        match self {
            Self::Virtual(hold) => Some(hold.file(k)),
            Self::Kernel(..) => None,
        }
    }

    fn pipe<'a>(&self, k: &'a Kernel, end: fn(Kind) -> bool) -> Option<&'a Pipe> {
        self.file(k).filter(|f| end(f.kind.get())).and_then(|f| pipe::of(k, f))
    }

    fn nonblocking(&self, k: &Kernel) -> bool {
        self.file(k).is_some_and(File::nonblocking)
    }

    fn wait(&self, k: &Kernel, events: u32) -> Result<()> {
        match self {
            Self::Virtual(hold) => wait(k, hold.0, events, false, None),
            // The kernel's files are always ready.
            Self::Kernel(..) => Ok(()),
        }
    }
}

/// `splice`; passes through when neither descriptor is virtual.
///
/// # Safety
/// Offsets are null or valid.
pub unsafe fn splice(
    in_fd: i32,
    in_at: *mut i64,
    out_fd: i32,
    out_at: *mut i64,
    len: usize,
    flags: u32,
) -> Answer {
    let k = kernel();
    if k.table().get(in_fd).is_none() && k.table().get(out_fd).is_none() {
        return None;
    }
    let offsets = [in_at, out_at];
    Some(restarted(k, [in_fd, out_fd], offsets, |from, to| begin(k, from, to, offsets, len, flags)))
}

/// A call on two descriptors: a cancellation point, done again when a signal handler says so.
fn restarted(
    k: &Kernel,
    fds: [i32; 2],
    offsets: [*mut i64; 2],
    call: impl Fn(&Side, &Side) -> Result<usize>,
) -> Result<usize> {
    fds.iter().try_for_each(|fd| table::not_own(*fd))?;
    loop {
        thread::test_cancel();
        let _turn = turn::enter(Object::Several, Op::Move);
        let result = {
            let (from, to) = (Side::of(k, fds[0], offsets[0]), Side::of(k, fds[1], offsets[1]));
            call(&from, &to)
        };
        if let Some(result) = signal::deliver::settle(call::interruptible(result)) {
            return result;
        }
    }
}

fn begin(
    k: &Kernel,
    from: &Side,
    to: &Side,
    offsets: [*mut i64; 2],
    len: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return fail(libc::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    if from.file(k).is_some_and(|f| f.kind.get() == Kind::PipeWriter)
        || to.file(k).is_some_and(|f| f.kind.get() == Kind::PipeReader)
    {
        return fail(libc::EBADF);
    }
    let (source, sink) = (from.pipe(k, pipe::reads), to.pipe(k, pipe::writes));
    match (source, sink) {
        (None, None) => return fail(libc::EINVAL),
        (Some(a), Some(b)) if core::ptr::eq(a, b) => return fail(libc::EINVAL),
        _ => {}
    }
    for (side, at) in [(from, offsets[0]), (to, offsets[1])] {
        let Some(f) = side.file(k) else { continue };
        if !at.is_null() {
            return fail(if pipe::of(k, f).is_some() { libc::ESPIPE } else { libc::EINVAL });
        }
        if pipe::of(k, f).is_none() && f.kind.get() != Kind::Socket {
            return fail(libc::EINVAL);
        }
    }
    let mut done = 0;
    while done < len {
        let most = (len - done).min(PIECE_BYTES);
        let step = match (source, sink) {
            (Some(source), Some(sink)) => between_pipes(k, source, sink, most, true),
            (Some(source), None) => out_of_pipe(k, source, to, most),
            (None, Some(sink)) => into_pipe(k, from, sink, most),
            (None, None) => fail(libc::EINVAL),
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
            // Which side it is that has nothing or no room.
            _ if source.is_some_and(|p| p.unread() == 0) => (from, ready::IN),
            _ if sink.is_some_and(|p| p.room() == 0) => (to, ready::OUT),
            _ if source.is_some() => (to, ready::OUT),
            _ => (from, ready::IN),
        };
        // A pipe waits unless this call says not to; two of them heed their files' modes, too, and a socket its own.
        let is_pipe = stuck.file(k).is_some_and(|f| pipe::of(k, f).is_some());
        let both = source.is_some() && sink.is_some();
        let by_mode = if both {
            from.nonblocking(k) || to.nonblocking(k)
        } else {
            !is_pipe && stuck.nonblocking(k)
        };
        if by_mode || is_pipe && flags & NONBLOCK != 0 {
            return fail(libc::EAGAIN);
        }
        stuck.wait(k, events)?;
    }
    Ok(done)
}

/// Nothing can be moved now.
const STUCK: Errno = Errno(libc::EAGAIN);

/// Whether a pipe has bytes (`Ok(true)`), has ended (`Ok(false)`), or may have some later.
fn filled(p: &Pipe) -> Result<bool> {
    match p.unread() {
        0 if p.ended() => Ok(false),
        0 => Err(STUCK),
        _ => Ok(true),
    }
}

fn check_reader(k: &Kernel, p: &Pipe) -> Result<()> {
    if p.deserted() {
        raise_sigpipe(k);
        return fail(libc::EPIPE);
    }
    if p.room() == 0 { Err(STUCK) } else { Ok(()) }
}

fn between_pipes(
    k: &Kernel,
    source: &Pipe,
    sink: &Pipe,
    most: usize,
    taking: bool,
) -> Result<usize> {
    if !filled(source)? {
        return Ok(0);
    }
    check_reader(k, sink)?;
    let mut piece = [0u8; PIECE_BYTES];
    let n = source.look(k, 0, &mut piece[..most.min(sink.room()).min(PIECE_BYTES)]);
    let n = sink.append(k, &piece[..n]);
    if taking {
        source.consume(k, n);
    }
    if n == 0 { fail(libc::ENOMEM) } else { Ok(n) }
}

fn out_of_pipe(k: &Kernel, source: &Pipe, to: &Side, most: usize) -> Result<usize> {
    if !filled(source)? {
        return Ok(0);
    }
    let mut piece = [0u8; PIECE_BYTES];
    let n = source.look(k, 0, &mut piece[..most]);
    let part = [single(piece.as_mut_ptr().cast(), n)];
    let n = match to {
        Side::Virtual(hold) => {
            let Some(socket) = hold.file(k).as_kind(Kind::Socket) else {
                return fail(libc::EINVAL);
            };
            let outgoing = Outgoing::plain(libc::MSG_DONTWAIT);
            exchange::send(k, hold, socket, &mut Buffers::new(&part)?, &outgoing)?
        }
        Side::Kernel(fd, at) => write_kernel(*fd, *at, &piece[..n])?,
    };
    source.consume(k, n);
    Ok(n)
}

fn write_kernel(fd: i32, at: *mut i64, bytes: &[u8]) -> Result<usize> {
    let (address, len) = (bytes.as_ptr() as usize, bytes.len());
    // SAFETY: null or the server's own number; the bytes are a local's.
    let result = unsafe {
        match at.as_ref() {
            None => sys::call(libc::SYS_write, sys::args([fd as usize, address, len])),
            Some(at) => {
                sys::call(libc::SYS_pwrite64, sys::args([fd as usize, address, len, *at as usize]))
            }
        }
    };
    let n = change::after_write(kernel(), fd, result)?;
    advance(at, n);
    Ok(n)
}

fn advance(at: *mut i64, n: usize) {
    if !at.is_null() {
        // SAFETY: the server's own number, not null.
        unsafe { *at += n as i64 };
    }
}

fn into_pipe(k: &Kernel, from: &Side, sink: &Pipe, most: usize) -> Result<usize> {
    check_reader(k, sink)?;
    let mut piece = [0u8; PIECE_BYTES];
    let most = most.min(sink.room());
    let n = match from {
        Side::Virtual(hold) => {
            let Some(socket) = hold.file(k).as_kind(Kind::Socket) else {
                return fail(libc::EINVAL);
            };
            let part = [single(piece.as_mut_ptr().cast(), most)];
            let mut incoming = Incoming::plain(libc::MSG_DONTWAIT);
            exchange::receive(k, hold, socket, &mut Buffers::new(&part)?, &mut incoming)?
        }
        Side::Kernel(fd, at) => {
            let address = piece.as_mut_ptr() as usize;
            // SAFETY: null or the server's own number; the room is a local's.
            let n = unsafe {
                match at.as_ref() {
                    None => sys::call(libc::SYS_read, sys::args([*fd as usize, address, most])),
                    Some(at) => sys::call(
                        libc::SYS_pread64,
                        sys::args([*fd as usize, address, most, *at as usize]),
                    ),
                }
            }?;
            advance(*at, n);
            n
        }
    };
    if sink.append(k, &piece[..n]) < n {
        refuse!("no memory for what is spliced into a pipe");
    }
    Ok(n)
}

/// `tee`: as a splice between pipes, but the source keeps what it has. The copy is what there is when it begins.
pub fn tee(in_fd: i32, out_fd: i32, len: usize, flags: u32) -> Answer {
    let k = kernel();
    if k.table().get(in_fd).is_none() && k.table().get(out_fd).is_none() {
        return None;
    }
    let nowhere = [core::ptr::null_mut(); 2];
    Some(restarted(k, [in_fd, out_fd], nowhere, |from, to| copy(k, from, to, len, flags)))
}

fn copy(k: &Kernel, from: &Side, to: &Side, len: usize, flags: u32) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return fail(libc::EINVAL);
    }
    let (Some(source), Some(sink)) = (from.pipe(k, pipe::reads), to.pipe(k, pipe::writes)) else {
        return fail(libc::EINVAL);
    };
    if core::ptr::eq(source, sink) {
        return fail(libc::EINVAL);
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
    if done == 0 { fail(libc::ENOMEM) } else { Ok(done) }
}

/// `vmsplice`: writes to a pipe or reads from it.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn vmsplice(fd: i32, list: *const iovec, count: usize, flags: u32) -> Answer {
    call::with_cancel(fd, Op::Move, |k, hold| {
        if flags & !KNOWN != 0 {
            return fail(libc::EINVAL);
        }
        let f = hold.file(k);
        let Some(p) = pipe::of(k, f) else { return fail(libc::EBADF) };
        // SAFETY: the caller's contract.
        let mut buffers = unsafe { Buffers::from_raw(list, count, libc::EINVAL) }?;
        let reads = f.kind.get() == Kind::PipeReader;
        let stuck =
            if reads { p.unread() == 0 && !p.ended() } else { p.room() == 0 && !p.deserted() };
        if flags & NONBLOCK != 0 && stuck && buffers.left() > 0 {
            return fail(libc::EAGAIN);
        }
        if reads {
            return pipe::read(k, hold, &mut buffers);
        }
        // One that may not block takes what there is room for.
        if flags & NONBLOCK != 0 && buffers.left() > p.room() {
            buffers.limit(p.room());
        }
        pipe::write(k, hold, &mut buffers)
    })
}
