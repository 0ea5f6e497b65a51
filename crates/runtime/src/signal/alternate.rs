//! Alternate stacks: where handlers with `SA_ONSTACK` run.

use crate::kernel::kernel;
use crate::kernel::thread::Thread;
use crate::stack;
use libc::{c_int, c_long};
use skein_libos::errno::{Errno, Result};

/// `sigaltstack` on a stack `(start, bytes, flags)`; answers what was set.
pub fn set_alternate(new: Option<(usize, usize, c_int)>) -> Result<(usize, usize, c_int)> {
    const MIN_BYTES: usize = 2048;
    const AUTODISARM: c_int = 1 << 31;
    let t = kernel().this();
    let (start, bytes, flags) = t.alternate.get();
    let on = t.on_alternate();
    let state = match (bytes, on) {
        (0, _) => libc::SS_DISABLE,
        (_, true) => libc::SS_ONSTACK,
        _ => 0,
    };
    if let Some((new_start, new_bytes, new_flags)) = new {
        if on {
            return Err(Errno(libc::EPERM));
        }
        match new_flags & !AUTODISARM {
            libc::SS_DISABLE => t.alternate.set((0, 0, 0)),
            0 | libc::SS_ONSTACK if new_bytes < MIN_BYTES => return Err(Errno(libc::ENOMEM)),
            0 | libc::SS_ONSTACK => {
                let kept = c_long::from(new_flags & AUTODISARM);
                t.alternate.set((new_start, new_bytes, kept));
            }
            _ => return Err(Errno(libc::EINVAL)),
        }
    }
    Ok((start, bytes, state | flags as c_int))
}

impl Thread {
    /// Whether the running thread is on its alternate stack.
    pub(super) fn on_alternate(&self) -> bool {
        let (start, end) = self.alternate_range();
        (start..end).contains(&stack::servers())
    }

    /// From where to where it is.
    pub(super) fn alternate_range(&self) -> (usize, usize) {
        let (start, bytes, _) = self.alternate.get();
        (start, start + bytes)
    }

    /// Where a handler runs that wants the alternate stack: its end, unless it is in use or there is none.
    pub(super) fn alternate_top(&self) -> Option<usize> {
        let (start, bytes, _) = self.alternate.get();
        (bytes != 0 && !self.on_alternate()).then(|| (start + bytes) & !15)
    }
}
