//! What the kinds of files do that the library has not: sockets, signalfds, pidfds, random bytes.

use crate::io::call::Hold;
use crate::io::socket::exchange::{self, Incoming, Outgoing};
use crate::io::{random, signalfd, socket};
use crate::kernel::Kernel;
use crate::process::pidfd;
use skein_arena::pool::Handle;
use skein_libos::errno::Result;
use skein_libos::file::buffers::Buffers;
use skein_libos::file::ops::FileOps;
use skein_libos::file::{File, Kind, handle, ready};

/// The functions of a kind that the library has not.
#[inline(always)]
pub fn of<'s>(kind: Kind) -> &'s dyn FileOps<Kernel> {
    match kind {
        Kind::Socket => &Socket,
        Kind::SignalFd => &SignalFd,
        Kind::PidFd => &PidFd,
        Kind::Random => &Random,
        _ => unreachable!("the library has the others"),
    }
}

/// What a file of such a kind is ready for, without a call through a table.
#[inline(always)]
pub fn mask(k: &Kernel, f: &File) -> u32 {
    match f.kind.get() {
        Kind::Socket => Socket.mask(k, f),
        Kind::SignalFd => SignalFd.mask(k, f),
        Kind::PidFd => PidFd.mask(k, f),
        Kind::Random => Random.mask(k, f),
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

struct Random;

impl FileOps<Kernel> for Random {
    fn mask(&self, _: &Kernel, _: &File) -> u32 {
        ready::IN | ready::OUT
    }

    fn release(&self, _: &Kernel, _: Handle<File>) {}

    fn read(&self, k: &Kernel, _: &Hold<'_>, buffers: &mut Buffers<'_>) -> Result<usize> {
        Ok(random::read(k, buffers))
    }

    fn write(&self, _: &Kernel, _: &Hold<'_>, buffers: &mut Buffers<'_>) -> Result<usize> {
        Ok(random::write(buffers))
    }
}
