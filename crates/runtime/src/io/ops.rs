//! What the kinds of files do that the library has not: sockets, signalfds, pidfds.

use crate::io::call::Hold;
use crate::io::socket::exchange::{self, Incoming, Outgoing};
use crate::io::{signalfd, socket};
use crate::kernel::Kernel;
use crate::process::pidfd;
use skein_arena::pool::Handle;
use skein_libos::abi;
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::Buffers;
use skein_libos::file::ops::{self, FileOps, Queue};
use skein_libos::file::{File, Kind, handle};

/// The functions of a kind that the library does not have.
#[inline(always)]
pub fn of<'s>(kind: Kind) -> &'s dyn FileOps<Kernel> {
    match kind {
        Kind::Socket => &Socket,
        Kind::SignalFd => &SignalFd,
        Kind::PidFd => &PidFd,
        _ => unreachable!("the library has the others"),
    }
}

/// The readiness of a file of such a kind, without a call through a table.
#[inline(always)]
pub fn mask(k: &Kernel, f: &File) -> u32 {
    match f.kind.get() {
        Kind::Socket => Socket.mask(k, f),
        Kind::SignalFd => SignalFd.mask(k, f),
        Kind::PidFd => PidFd.mask(k, f),
        _ => unreachable!("the library has the others"),
    }
}

struct Socket;

impl FileOps<Kernel> for Socket {
    fn mask(&self, k: &Kernel, file: &File) -> u32 {
        socket::mask(k, handle(file.object.get()))
    }

    fn release(&self, k: &Kernel, file: Handle<File>) {
        socket::close::release(k, handle(k.fds.files.get(file).object.get()));
    }

    fn read(&self, k: &Kernel, hold: &Hold<'_>, buffers: &mut Buffers<'_>) -> Result<usize> {
        // As in Linux a read of nothing does not look at the socket.
        if buffers.left() == 0 {
            return Ok(0);
        }
        let socket = handle(hold.file(k).object.get());
        exchange::receive(k, hold, socket, buffers, &mut Incoming::plain(0))
    }

    fn write(&self, k: &Kernel, hold: &Hold<'_>, buffers: &mut Buffers<'_>) -> Result<usize> {
        let socket = handle(hold.file(k).object.get());
        exchange::send(k, hold, socket, buffers, &Outgoing::plain(0))
    }

    fn read_at_once(
        &self,
        k: &Kernel,
        hold: &Hold<'_>,
        buffers: &mut Buffers<'_>,
    ) -> Result<usize> {
        let socket = handle(hold.file(k).object.get());
        exchange::receive(k, hold, socket, buffers, &mut Incoming::plain(libc::MSG_DONTWAIT))
    }

    fn write_at_once(
        &self,
        k: &Kernel,
        hold: &Hold<'_>,
        buffers: &mut Buffers<'_>,
    ) -> Result<usize> {
        let socket = handle(hold.file(k).object.get());
        exchange::send(k, hold, socket, buffers, &Outgoing::plain(libc::MSG_DONTWAIT))
    }

    fn queued(&self, k: &Kernel, file: &File, queue: Queue) -> Result<usize> {
        socket::queued(k, handle(file.object.get()), queue == Queue::Sent)
    }

    unsafe fn ioctl(&self, _: &Kernel, _: &File, request: usize, arg: usize) -> Result<usize> {
        if request >> 8 != 0x89 {
            return fail(libc::ENOTTY);
        }
        // SAFETY: the caller's contract.
        unsafe { socket::interface::ioctl(request, arg) }
    }

    fn stat(&self, _: &Kernel, file: Handle<File>) -> abi::stat {
        ops::anonymous(libc::S_IFSOCK | 0o777, ops::numbered(file))
    }

    fn change_mode(&self, k: &Kernel, file: &File, mode: u32) {
        socket::unix::bind::set_mode(k, handle(file.object.get()), mode);
    }
}

struct SignalFd;

impl FileOps<Kernel> for SignalFd {
    fn mask(&self, k: &Kernel, file: &File) -> u32 {
        signalfd::mask(k, handle(file.object.get()))
    }

    fn release(&self, k: &Kernel, file: Handle<File>) {
        signalfd::release(k, handle(k.fds.files.get(file).object.get()));
    }

    fn read(&self, k: &Kernel, hold: &Hold<'_>, buffers: &mut Buffers<'_>) -> Result<usize> {
        signalfd::read(k, hold, handle(hold.file(k).object.get()), buffers)
    }

    fn stays(&self) -> bool {
        true
    }
}

struct PidFd;

impl FileOps<Kernel> for PidFd {
    fn mask(&self, k: &Kernel, file: &File) -> u32 {
        pidfd::mask(k, handle(file.object.get()))
    }

    fn release(&self, k: &Kernel, file: Handle<File>) {
        pidfd::release(k, handle(k.fds.files.get(file).object.get()));
    }
}
