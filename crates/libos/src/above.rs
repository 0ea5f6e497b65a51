//! The functions of higher rooms that lower ones call: one row for each, for every host, chosen when the host is compiled.

use crate::file::ops::{FileOps, Kinds};
use crate::file::wait::Signalled;
use crate::file::{File, Kind, epoll, eventfd, inotify, pipe, random, timerfd};
use crate::host::Host;
use crate::ipc::mq;
use crate::net;
use crate::process::pidfd;
use crate::signal::{self, signalfd};
use crate::timers::Owners;
use skein_arena::pool::Handle;

impl<H: Host> Kinds for H {
    // Inlined, with its match: one look into a table then, when the kind is known.
    #[inline(always)]
    fn ops<'s>(kind: Kind) -> &'s dyn FileOps<H>
    where
        H: 's,
    {
        match kind {
            Kind::PipeReader => &pipe::ReadEnd,
            Kind::PipeWriter => &pipe::WriteEnd,
            Kind::PipeBoth => &pipe::BothEnds,
            Kind::Epoll => &epoll::Ops,
            Kind::EventFd => &eventfd::Ops,
            Kind::TimerFd => &timerfd::Ops,
            Kind::Inotify => &inotify::Ops,
            Kind::Free => &Nothing,
            Kind::MessageQueue => &mq::Ops,
            Kind::Random => &random::Ops,
            Kind::Socket => &net::ops::Ops,
            Kind::SignalFd => &signalfd::Ops,
            Kind::PidFd => &pidfd::Ops,
        }
    }

    #[inline]
    fn mask_of(&self, f: &File) -> u32 {
        let k = self;
        match f.kind.get() {
            Kind::PipeReader => pipe::ReadEnd.mask(k, f),
            Kind::PipeWriter => pipe::WriteEnd.mask(k, f),
            Kind::PipeBoth => pipe::BothEnds.mask(k, f),
            Kind::Epoll => epoll::Ops.mask(k, f),
            Kind::EventFd => eventfd::Ops.mask(k, f),
            Kind::TimerFd => timerfd::Ops.mask(k, f),
            Kind::Inotify => inotify::Ops.mask(k, f),
            Kind::Free => Nothing.mask(k, f),
            Kind::MessageQueue => mq::Ops.mask(k, f),
            Kind::Random => random::Ops.mask(k, f),
            Kind::Socket => net::ops::Ops.mask(k, f),
            Kind::SignalFd => signalfd::Ops.mask(k, f),
            Kind::PidFd => pidfd::Ops.mask(k, f),
        }
    }
}

/// No file.
struct Nothing;

impl<H: Host> FileOps<H> for Nothing {
    fn mask(&self, _: &H, _: &File) -> u32 {
        0
    }

    fn release(&self, _: &H, _: Handle<File>) {}
}

impl<H: Host> Owners for H {
    fn timerfd_is_due(&self, raw: u32) {
        timerfd::fired(self, raw);
    }
}

impl<H: Host> Signalled for H {
    #[inline]
    fn signal_is_due(&self) -> bool {
        signal::is_due(self)
    }
}
