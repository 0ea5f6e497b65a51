//! The host of the library operating system: what [`skein_libos`] asks of the process that it runs in.

use crate::kernel::Kernel;
use crate::process::shared;
use crate::thread::{self, Thread};
use crate::{fatal, process, signal, time, turn};
use core::fmt::{Arguments, Write as _};
use skein_arena::pool::Handle;
use skein_libos::Host;
use skein_libos::errno::Result;
use skein_libos::thread::Wake;

impl Host for Kernel {
    type Thread = Thread;

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

    #[inline]
    fn in_shared_memory(&self, address: usize) -> Option<(u32, usize)> {
        if shared::any() { shared::find(address) } else { None }
    }

    fn deadline_of(&self, clock: i32, at_ns: u64) -> Result<u64> {
        time::deadline_of(clock, at_ns)
    }

    fn refused(&self, what: Arguments<'_>) {
        let mut line = fatal::Line::new();
        // A line that is too long is cut.
        let _ = line.write_fmt(what);
        fatal::refused(line.bytes());
    }
}
