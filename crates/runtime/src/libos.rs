//! The host of the library operating system: what [`skein_libos`] asks of the process that it runs in.

use crate::io::{descriptor, fifo, table};
use crate::kernel::Kernel;
use crate::process::shared;
use crate::thread::{self, Thread};
use crate::{fatal, ipc, process, signal, time, turn, uses};
use core::fmt::{Arguments, Write as _};
use skein_arena::pool::Handle;
use skein_arena::uses::Use;
use skein_libos::Host;
use skein_libos::errno::Result;
use skein_libos::file::ops::FileOps;
use skein_libos::file::{File, Kind};
use skein_libos::host::Kernels;
use skein_libos::thread::Wake;

impl Host for Kernel {
    type Thread = Thread;
    type Process = process::Process;

    #[inline]
    fn suspend(&self, deadline_ns: Option<u64>) -> Wake {
        turn::suspend(deadline_ns)
    }

    #[inline]
    fn resume(&self, thread: Handle<Thread>, why: Wake) -> bool {
        turn::resume(thread, why)
    }

    fn yield_now(&self) {
        turn::yield_now();
    }

    fn deliver_signals(&self) {
        signal::deliver(self);
    }

    fn interrupted(&self, restartable: bool) -> bool {
        signal::interrupted(restartable)
    }

    #[inline]
    fn test_cancel(&self) {
        thread::test_cancel();
    }

    #[inline]
    fn process(&self) -> u32 {
        process::raw()
    }

    fn user(&self) -> [u32; 2] {
        ipc::user()
    }

    fn in_group(&self, group: u32) -> bool {
        ipc::in_group(group)
    }

    fn file_mask(&self) -> u32 {
        ipc::file_mask()
    }

    #[inline]
    fn in_shared_memory(&self, address: usize) -> Option<(u32, usize)> {
        if shared::any() { shared::find(address) } else { None }
    }

    fn deadline_of(&self, clock: i32, at_ns: u64) -> Result<u64> {
        time::deadline_of(clock, at_ns)
    }

    #[cold]
    fn refused(&self, what: Arguments<'_>) {
        fatal::refused(line(what).bytes());
    }

    #[cold]
    fn fatal(&self, why: Arguments<'_>) -> ! {
        fatal::fatal(line(why).bytes())
    }

    #[inline]
    fn note(&self, what: Use) {
        uses::note(what);
    }

    #[inline]
    fn file_of(&self, fd: i32) -> Option<Handle<File>> {
        self.table().get(fd)
    }

    fn install(&self, file: Handle<File>, least: i32, cloexec: bool) -> Result<i32> {
        self.table().install(self, file, least, cloexec)
    }

    fn close(&self, fd: i32) {
        // It is open.
        let _ = descriptor::close_virtual(self, fd);
    }

    fn of_kernel(&self, fd: i32) -> Option<Kernels> {
        table::of_kernel(fd)
    }

    #[inline(always)]
    fn ops<'s>(kind: Kind) -> &'s dyn FileOps<Self> {
        crate::io::ops::of(kind)
    }

    #[inline(always)]
    fn mask(&self, file: &File) -> u32 {
        crate::io::ops::mask(self, file)
    }

    #[cold]
    fn forget_fifo(&self, name: u32) {
        fifo::forget(self, name);
    }

    fn signal_timer_fired(&self, raw: u32) {
        signal::timer::fired(self, raw);
    }

    #[cold]
    fn send_sigio(&self, pid: i32) {
        if let Some(owner) = process::find(self, pid) {
            let info = signal::Info::of_kernel(libc::SIGIO);
            // A process that has as many signals pending as can be has this one, too.
            let _ = signal::post(self, signal::Target::Process(owner), info);
        }
    }

    #[cold]
    fn raise_sigpipe(&self) {
        signal::raise_here(self, libc::SIGPIPE);
    }
}

/// A text without allocation; one that is too long is cut.
fn line(text: Arguments<'_>) -> fatal::Line {
    let mut line = fatal::Line::new();
    let _ = line.write_fmt(text);
    line
}
