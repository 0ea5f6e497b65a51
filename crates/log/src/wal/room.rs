//! A running node's log on a full disk: it waits until there is room.
//!
//! A write that found no room has promised nothing, so it is repeated, at the same place, until it fits. To the node that is a disk that hangs,
//! and [`Room::is_missing`] tells why. A sync that fails for lack of room is different: the state of the pages is unknown, and the log stops.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The pause between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Whether the disk has room, and the wait for it.
#[derive(Debug, Default)]
pub(super) struct Room {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    missing: bool,
    ended: bool,
}

impl Room {
    /// Whether a write waits for room.
    pub(super) fn is_missing(&self) -> bool {
        self.lock().missing
    }

    /// Waits for a moment; false when waiting has been cancelled.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.lock();
        state.missing = true;
        let wait = self.changed.wait_timeout_while(state, AGAIN_AFTER, |state| !state.ended);
        !wait.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// There is room again.
    pub(super) fn found(&self) {
        self.lock().missing = false;
    }

    /// Cancels all waiting from now on.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
