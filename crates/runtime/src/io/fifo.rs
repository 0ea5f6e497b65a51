//! FIFOs: pipes that are opened by a path.
//!
//! The path, who may open it and its permissions are the kernel's; the pipe is the runtime's, found by the kernel's name of the file. A FIFO
//! is known here while somebody has it open: what is in it goes with the last end, as on Linux. That an open waits for the other end is a
//! wait like any other; the kernel's FIFO is never waited for.

use crate::files::inode::Id;
use crate::io::call;
use crate::io::call::Hold;
use crate::kernel::{Kernel, kernel};
use crate::{signal, thread, turn};
use core::cell::Cell;
use core::mem::offset_of;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Result, fail};
use skein_libos::file::pipe::{self, Pipe};
use skein_libos::file::wait;
use skein_libos::file::{self, File, Kind};
use skein_libos::keys::Key;
use skein_libos::room::Room;
use skein_sched::op::{Kind as Op, Object};

/// A FIFO that somebody has open.
#[repr(C)]
pub struct Fifo {
    node: Node<Fifo>,
    pipe: Link<Pipe>,
    /// The kernel's name for it; changed when another file has that.
    id: Cell<Id>,
    /// What `fstat` says of it.
    stat: Cell<libc::stat>,
}

impl Fifo {
    /// What of all FIFOs is a replica's own: the kernel's numbers.
    pub fn note_own(room: &Room, fifos: *const u8, count: u32) {
        room.own::<Self>(fifos, count, offset_of!(Self, id), size_of::<Id>());
    }
}

/// All FIFOs that are open.
pub struct Opened;

// SAFETY: cells and links of numbers; all-zero is a FIFO without a pipe.
unsafe impl ArenaObject for Fifo {}
impl In<Opened> for Fifo {
    fn node(&self) -> &Node<Fifo> {
        &self.node
    }
}

/// All FIFOs that are open.
pub type Fifos = List<Fifo, Opened>;

/// The name of no file.
const NOBODY: Id = Id { dev: u64::MAX, ino: u64::MAX };
/// Flags that stay with an open end.
const KEPT: i32 = libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_APPEND | libc::O_ASYNC;
/// Set for every file by a kernel of 64 bits (`O_LARGEFILE`).
const LARGE: i32 = 0o100_000;

fn find(k: &Kernel, id: Id) -> Option<Handle<Fifo>> {
    let mut same = k.io.open_fifos.iter(&k.io.fifos).filter(|(_, f)| f.id.get() == id);
    same.next().map(|(fifo, _)| fifo)
}

/// Whether somebody has it open.
pub fn is_open(k: &Kernel, id: Id) -> bool {
    find(k, id).is_some()
}

/// A FIFO has just been made: one that is still open and had this name of the kernel's before is another one.
pub fn made(k: &Kernel, id: Id) {
    if let Some(old) = find(k, id) {
        k.io.fifos.get(old).id.set(NOBODY);
    }
}

/// Its pipe is gone.
pub fn forget(k: &Kernel, raw: u32) {
    let fifo = Handle::from_raw(raw).expect("a FIFO");
    k.io.open_fifos.remove(&k.io.fifos, fifo);
    k.io.fifos.free(fifo);
}

/// What `fstat` says of an end of a FIFO.
pub fn stat(k: &Kernel, f: &File) -> Option<libc::stat> {
    let fifo = Handle::from_raw(pipe::of(k, f)?.fifo.get())?;
    Some(k.io.fifos.get(fifo).stat.get())
}

/// Opens the FIFO that the kernel calls `id` and of which `stat` is said.
pub fn open(id: Id, stat: &libc::stat, flags: i32) -> Result<usize> {
    again(|k| {
        let raw = match find(k, id) {
            Some(fifo) => k.io.fifos.get(fifo).pipe.get().expect("an open FIFO's pipe").raw(),
            None => begin(k, id, stat)?,
        };
        enter(k, raw, flags, true)
    })
}

/// Opens an end of a virtual pipe, or a FIFO, by the name of its descriptor (`/dev/fd`).
pub fn reopen(fd: i32, flags: i32) -> Result<usize> {
    again(|k| {
        let Some(file) = k.table().get(fd) else { return fail(libc::ENOENT) };
        let f = k.fds.files.get(file);
        match pipe::of(k, f) {
            Some(p) => enter(k, f.object.get(), flags, p.fifo.get() != 0),
            None => fail(libc::ENXIO),
        }
    })
}

/// Does a call that is a cancellation point, once more when a signal handler says so.
fn again(mut call: impl FnMut(&Kernel) -> Result<usize>) -> Result<usize> {
    loop {
        thread::test_cancel();
        let _turn = turn::enter(Object::Descriptors, Op::Open);
        let result = call(kernel());
        if let Some(result) = signal::deliver::settle(call::interruptible(result)) {
            return result;
        }
    }
}

/// A FIFO that nobody has open: with a pipe, as yet without ends.
fn begin(k: &Kernel, id: Id, stat: &libc::stat) -> Result<u32> {
    let Some(fifo) = k.io.fifos.alloc() else { return fail(libc::ENFILE) };
    let pipe = pipe::make(k).inspect_err(|_| k.io.fifos.free(fifo))?;
    let f = k.io.fifos.get(fifo);
    f.id.set(id);
    f.stat.set(*stat);
    f.pipe.set(Some(pipe));
    k.io.open_fifos.push_back(&k.io.fifos, fifo);
    k.fds.pipes.get(pipe).fifo.set(fifo.raw());
    Ok(pipe.raw())
}

/// One more end of pipe `raw`. With `waits` it waits for the other end, as flags and Linux say.
fn enter(k: &Kernel, raw: u32, flags: i32, waits: bool) -> Result<usize> {
    let p = pipe::get(k, raw);
    let kind = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Kind::PipeReader,
        libc::O_WRONLY => Kind::PipeWriter,
        _ => Kind::PipeBoth,
    };
    let nonblocking = flags & libc::O_NONBLOCK != 0;
    let file = if waits && nonblocking && kind == Kind::PipeWriter && p.deserted() {
        fail(libc::ENXIO)
    } else {
        file::create(k, kind, raw, flags & KEPT | LARGE)
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
    k.table().install(k, hold.0, 0, flags & libc::O_CLOEXEC != 0).map(|fd| fd as usize)
}

/// Where those wait who open an end and need the other one.
fn partners(raw: u32) -> Key {
    Key::of_runtime(5, raw)
}

fn await_other(k: &Kernel, raw: u32, opens: &Cell<u32>) -> Result<()> {
    let before = opens.get();
    while opens.get() == before {
        wait::wait_at(k, partners(raw), None)?;
    }
    Ok(())
}
