//! FIFOs: pipes that are opened by a path.
//!
//! The path, who may open it and its permissions are the kernel's; the pipe is the library's, found by the kernel's name of the file. A FIFO
//! is known here while it is open: its content goes with the last end, as on Linux. An open that waits for the other end is a
//! wait like any other; the kernel's FIFO is never waited for.

use super::pipe::{self};
use super::{File, Hold, Kind, table, wait};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::keys::Key;
pub use crate::state::file::{Fifo, Name};
use core::cell::Cell;
use skein_arena::pool::Handle;

/// The name of no file.
const NOBODY: Name = Name { device: u64::MAX, inode: u64::MAX };
/// Flags that stay with an open end.
const KEPT: i32 = abi::O_ACCMODE | abi::O_NONBLOCK | abi::O_APPEND | abi::O_ASYNC;
/// Set for every file by a kernel of 64 bits (`O_LARGEFILE`).
const LARGE: i32 = 0o100_000;

fn find<H: Host>(k: &H, name: Name) -> Option<Handle<Fifo>> {
    let mut same = k.fds.open_fifos.iter(&k.fds.fifos).filter(|(_, f)| f.name.get() == name);
    same.next().map(|(fifo, _)| fifo)
}

/// Whether it is open.
pub fn is_open<H: Host>(k: &H, name: Name) -> bool {
    find(k, name).is_some()
}

/// A FIFO has just been made: an open one that had this name of the kernel's before is another one.
pub fn made<H: Host>(k: &H, name: Name) {
    if let Some(old) = find(k, name) {
        k.fds.fifos.get(old).name.set(NOBODY);
    }
}

/// The host has numbered all files anew: `now` knows how it calls a file, if that exists.
pub fn renew<H: Host>(k: &H, now: impl Fn(Name) -> Option<Name>) {
    for (_, fifo) in k.fds.open_fifos.iter(&k.fds.fifos) {
        fifo.name.set(now(fifo.name.get()).unwrap_or(NOBODY));
    }
}

/// Its pipe is gone.
pub(super) fn forget<H: Host>(k: &H, raw: u32) {
    let fifo = Handle::from_raw(raw).expect("a FIFO");
    k.fds.open_fifos.remove(&k.fds.fifos, fifo);
    k.fds.fifos.free(fifo);
}

/// The answer of `fstat` about an end of a FIFO.
pub(super) fn stat<H: Host>(k: &H, f: &File) -> Option<abi::stat> {
    let fifo = Handle::from_raw(pipe::of(k, f)?.fifo.get())?;
    Some(k.fds.fifos.get(fifo).stat.get())
}

/// Opens the FIFO that the kernel calls `name` and of which `stat` is said.
pub fn open<H: Host>(k: &H, name: Name, stat: &abi::stat, flags: i32) -> Result<usize> {
    let raw = match find(k, name) {
        Some(fifo) => k.fds.fifos.get(fifo).pipe.get().expect("an open FIFO's pipe").raw(),
        None => begin(k, name, stat)?,
    };
    enter(k, raw, flags, true)
}

/// Opens an end of a virtual pipe, or a FIFO, by the name of its descriptor (`/dev/fd`).
pub fn reopen<H: Host>(k: &H, fd: i32, flags: i32) -> Result<usize> {
    let Some(file) = table::file(k, fd) else { return fail(abi::ENOENT) };
    let f = k.fds.files.get(file);
    match pipe::of(k, f) {
        Some(p) => enter(k, f.object.get(), flags, p.fifo.get() != 0),
        None => fail(abi::ENXIO),
    }
}

/// A FIFO that is not open: with a pipe without ends so far.
fn begin<H: Host>(k: &H, name: Name, stat: &abi::stat) -> Result<u32> {
    let Some(fifo) = k.fds.fifos.alloc() else { return fail(abi::ENFILE) };
    let pipe = pipe::make(k).inspect_err(|_| k.fds.fifos.free(fifo))?;
    let f = k.fds.fifos.get(fifo);
    f.name.set(name);
    f.stat.set(*stat);
    f.pipe.set(Some(pipe));
    k.fds.open_fifos.push_back(&k.fds.fifos, fifo);
    k.fds.pipes.get(pipe).fifo.set(fifo.raw());
    Ok(pipe.raw())
}

/// One more end of pipe `raw`. With `waits` it waits for the other end, as flags and Linux say.
fn enter<H: Host>(k: &H, raw: u32, flags: i32, waits: bool) -> Result<usize> {
    let p = pipe::get(k, raw);
    let kind = match flags & abi::O_ACCMODE {
        abi::O_RDONLY => Kind::PipeReader,
        abi::O_WRONLY => Kind::PipeWriter,
        _ => Kind::PipeBoth,
    };
    let nonblocking = flags & abi::O_NONBLOCK != 0;
    let file = if waits && nonblocking && kind == Kind::PipeWriter && p.deserted() {
        fail(abi::ENXIO)
    } else {
        super::create(k, kind, raw, flags & KEPT | LARGE)
    };
    let file = file.inspect_err(|_| {
        if p.ended() && p.deserted() {
            pipe::free(k, raw);
        }
    })?;
    pipe::join(k, file, raw);
    // From here on the end goes with its last reference.
    let hold = Hold::new(k, file);
    k.keys.wake(k, partners(raw), u32::MAX, u32::MAX);
    if waits {
        match kind {
            Kind::PipeReader if p.ended() && nonblocking => {
                k.fds.files.get(file).writers_before.set(p.writer_opens.get());
            }
            Kind::PipeReader if p.ended() => await_other(k, raw, &p.writer_opens)?,
            Kind::PipeWriter if p.deserted() => await_other(k, raw, &p.reader_opens)?,
            _ => {}
        }
    }
    let cloexec = flags & abi::O_CLOEXEC != 0;
    table::of(k).install(k, hold.0, 0, cloexec).map(|fd| fd as usize)
}

/// Where opens of an end wait for the other one.
fn partners(raw: u32) -> Key {
    Key::of_runtime(5, raw)
}

fn await_other<H: Host>(k: &H, raw: u32, opens: &Cell<u32>) -> Result<()> {
    let before = opens.get();
    while opens.get() == before {
        wait::wait_at(k, partners(raw), None)?;
    }
    Ok(())
}
