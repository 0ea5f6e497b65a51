//! What the kinds of files do that the library has not: signalfds, pidfds.

use crate::io::call::Hold;
use crate::io::signalfd;
use crate::kernel::Kernel;
use crate::process::pidfd;
use skein_arena::pool::Handle;
use skein_libos::errno::Result;
use skein_libos::file::buffers::Buffers;
use skein_libos::file::ops::FileOps;
use skein_libos::file::{File, Kind, handle};

/// The functions of a kind that the library does not have.
#[inline(always)]
pub fn of<'s>(kind: Kind) -> &'s dyn FileOps<Kernel> {
    match kind {
        Kind::SignalFd => &SignalFd,
        Kind::PidFd => &PidFd,
        _ => unreachable!("the library has the others"),
    }
}

/// The readiness of a file of such a kind, without a call through a table.
#[inline(always)]
pub fn mask(k: &Kernel, f: &File) -> u32 {
    match f.kind.get() {
        Kind::SignalFd => SignalFd.mask(k, f),
        Kind::PidFd => PidFd.mask(k, f),
        _ => unreachable!("the library has the others"),
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
