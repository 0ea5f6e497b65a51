//! Alternate stacks: where handlers with `SA_ONSTACK` run. The rules, and the three words of a thread, are those of Linux.

use crate::kernel::thread::Thread;
use crate::{stack, turn};
use libc::{c_int, c_long};
use skein_libos::errno::{Errno, Result};
use skein_sched::op::{Kind, Object};

/// A flag: the stack is no thread's while a handler runs on it.
const AUTODISARM: c_int = 1 << 31;
/// No stack.
pub const NONE: (usize, usize, c_long) = (0, 0, libc::SS_DISABLE as c_long);

/// `sigaltstack` on a stack `(start, bytes, flags)`; answers what was set.
pub fn set_alternate(new: Option<(usize, usize, c_int)>) -> Result<(usize, usize, c_int)> {
    let kind = if new.is_some() { Kind::Set } else { Kind::Ask };
    let turn = turn::enter(Object::Signals, kind);
    let t = turn.this();
    let (start, bytes, flags) = t.alternate.get();
    let sp = stack::servers();
    let state = t.alternate_state(sp) | flags as c_int & AUTODISARM;
    if let Some(new) = new {
        t.change_alternate(new, sp)?;
    }
    Ok((start, bytes, state))
}

impl Thread {
    /// Whether a stack pointer is on the alternate stack (`SS_ONSTACK`), not (0), or there is none (`SS_DISABLE`).
    pub(super) fn alternate_state(&self, sp: usize) -> c_int {
        let (start, bytes, flags) = self.alternate.get();
        let on = flags as c_int & AUTODISARM == 0 && sp > start && sp - start <= bytes;
        match (bytes, on) {
            (0, _) => libc::SS_DISABLE,
            (_, true) => libc::SS_ONSTACK,
            _ => 0,
        }
    }

    /// Sets another one while the stack pointer is `sp`.
    pub(super) fn change_alternate(
        &self,
        (start, bytes, flags): (usize, usize, c_int),
        sp: usize,
    ) -> Result<()> {
        const MIN_BYTES: usize = 2048;
        if self.alternate_state(sp) == libc::SS_ONSTACK {
            return Err(Errno(libc::EPERM));
        }
        let kept = c_long::from(flags);
        match flags & !AUTODISARM {
            _ if self.alternate.get() == (start, bytes, kept) => {}
            libc::SS_DISABLE => self.alternate.set((0, 0, kept)),
            0 | libc::SS_ONSTACK if bytes < MIN_BYTES => return Err(Errno(libc::ENOMEM)),
            0 | libc::SS_ONSTACK => self.alternate.set((start, bytes, kept)),
            _ => return Err(Errno(libc::EINVAL)),
        }
        Ok(())
    }

    /// From where to where it is.
    pub(super) fn alternate_range(&self) -> (usize, usize) {
        let (start, bytes, _) = self.alternate.get();
        (start, start + bytes)
    }

    /// A frame has been made that tells of it.
    pub(super) fn frame_made(&self) {
        let (_, _, flags) = self.alternate.get();
        if flags as c_int & AUTODISARM != 0 {
            self.alternate.set(NONE);
        }
    }
}
