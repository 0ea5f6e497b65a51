//! Adjustments at a process's end: for each set of semaphores the sum of its operations with `SEM_UNDO`, negated.

use super::semaphore::{self, MOST, Set};
use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::process::ProcessHandle;
pub use crate::state::ipc::Undo;
use core::cell::Cell;
use skein_arena::bytes::Chunk;
use skein_arena::pool::Handle;

impl Undo {
    /// The adjustment of semaphore `at`.
    pub fn value<'a, H: Host>(&self, k: &'a H, at: usize) -> &'a Cell<i32> {
        const { assert!(MOST * size_of::<Cell<i32>>() <= size_of::<Chunk>()) };
        assert!(at < MOST, "a semaphore of the set");
        let page = core::ptr::from_ref(k.chunks.get(self.values.get().expect("an undo's values")));
        // SAFETY: a zeroed page that is this undo's own, with room for all; the arena is never unmapped.
        unsafe { &*page.cast::<Cell<i32>>().add(at) }
    }
}

fn all<H: Host>(k: &H) -> impl Iterator<Item = (Handle<Undo>, &Undo)> {
    (1..=k.ipc.undos.high())
        .filter_map(Handle::from_raw)
        .map(|handle| (handle, k.ipc.undos.get(handle)))
        .filter(|(_, undo)| undo.process.get().is_some())
}

/// The adjustments of a process to a set, made when there are none.
pub fn of<H: Host>(k: &H, process: ProcessHandle, set: Handle<Set>) -> Result<Handle<Undo>> {
    let known =
        all(k).find(|(_, undo)| undo.process.get() == Some(process) && undo.set.get() == Some(set));
    if let Some((handle, _)) = known {
        return Ok(handle);
    }
    let Some(undo) = k.ipc.undos.alloc() else { return Err(Errno(abi::ENOSPC)) };
    let Some(values) = k.chunks.alloc() else {
        k.ipc.undos.free(undo);
        return Err(Errno(abi::ENOMEM));
    };
    let u = k.ipc.undos.get(undo);
    u.process.set(Some(process));
    u.set.set(Some(set));
    u.values.set(Some(values));
    Ok(undo)
}

fn forget<H: Host>(k: &H, undo: Handle<Undo>) {
    let u = k.ipc.undos.get(undo);
    u.process.set(None);
    u.set.set(None);
    if let Some(values) = u.values.take() {
        k.chunks.free(values);
    }
    k.ipc.undos.free(undo);
}

/// Clears the adjustments of one semaphore of a set, or of all.
pub fn clear_values<H: Host>(k: &H, set: Handle<Set>, semaphore: Option<usize>) {
    for (_, u) in all(k).filter(|(_, u)| u.set.get() == Some(set)) {
        for at in 0..MOST {
            if semaphore.is_none_or(|one| one == at) {
                u.value(k, at).set(0);
            }
        }
    }
}

/// A set is gone.
pub fn forget_set<H: Host>(k: &H, set: Handle<Set>) {
    for (undo, _) in all(k).filter(|(_, u)| u.set.get() == Some(set)) {
        forget(k, undo);
    }
}

/// A process ends.
pub fn apply_all<H: Host>(k: &H, process: ProcessHandle) {
    if k.ipc.undos.used() == 0 {
        return;
    }
    for (undo, u) in all(k).filter(|(_, u)| u.process.get() == Some(process)) {
        let set = u.set.get().expect("an undo's set");
        semaphore::adjust(k, set, |at| u.value(k, at).get());
        forget(k, undo);
    }
}
