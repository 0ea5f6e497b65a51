//! Names a server's thread that makes no call while others wait for it ([`crate::health::spin`]).

use super::{Environment, Replica};
use skein_arena::layout::state;
use std::sync::atomic::Ordering;

impl<E: Environment> Replica<E> {
    pub(super) fn watch_spin(&mut self) {
        let Some(server) = self.slot.link() else { return };
        let (header, pid) = (server.header(), server.pid);
        let operations = header.operations.load(Ordering::Relaxed);
        let others = header.runnable.load(Ordering::Relaxed) > 0;
        let entries = server.admitted != server.feed.given();
        let waited_for = server.state() == state::RUNNING && (others || entries);
        let Some(time) = self.health.spin.look(operations, waited_for, self.now) else { return };
        // The runtime reports its address while that lasts.
        if pid == 0 || header.spin_seen.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        let address = header.spin_address.load(Ordering::Relaxed);
        let thread = header.turn_holder.load(Ordering::Relaxed);
        let carrier = header.carrier_tid.load(Ordering::Relaxed);
        let (process, at) = self.env.describe(pid, carrier, address);
        let ms = time.as_millis() as u64;
        tracing::warn!(
            event = "spinning",
            thread,
            process,
            address = at,
            ms,
            why = "a thread runs without any operation while others wait"
        );
        self.metrics.spins.inc();
        self.note(format!("thread {thread} spins at {at} for {ms} ms while others wait"));
        self.health.spin.is_at(at, self.now);
    }
}
