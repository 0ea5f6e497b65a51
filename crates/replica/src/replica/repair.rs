//! What follows from a comparison of the replicas' memory and files (`skein verify`).
//!
//! Servers that stand at one entry are compared and repaired from outside, by the node. A replica learns three things:
//!
//! * all were *equal* at an entry: images up to there can be trusted in a later comparison;
//! * something *was repaired*: images from before may have what differed, so new ones are taken soon, and then the older ones go. The repaired replica gives
//!   its own up at once: the others have some;
//! * its server *is to be rebuilt*, because what differs is not in memory or files: from an image of before the last equal comparison, another replica's, or the log.

use super::{Environment, Replica};
use skein_model::LogIndex;

impl<E: Environment> Replica<E> {
    /// All servers were found equal at this entry.
    pub(super) fn found_equal(&mut self, index: LogIndex) {
        self.compare.verified = self.compare.verified.max(index);
    }

    /// Servers were repaired at this entry; `here`: what in this replica's.
    pub(super) fn was_repaired(&mut self, index: LogIndex, here: Option<String>) {
        self.renew_images(index);
        if let Some(what) = here {
            self.metrics.repairs.inc();
            tracing::error!(event = "repaired", index = index.0, what);
            self.note(format!(
                "the server's memory or files differed from the others' at entry {index}: {what} were repaired from another replica's"
            ));
            self.distrust_images(self.compare.verified, false);
        }
    }

    /// This replica's server differs from the others' in what cannot be repaired in it.
    pub(super) fn rebuild_differing(&mut self, why: &str) -> Result<(), String> {
        if !self.slot.has_process() {
            return Err("its server does not run".into());
        }
        self.metrics.divergences.inc();
        let index = self.applied();
        tracing::error!(event = "differs", index = index.0, why);
        self.note(format!(
            "the server differed from the others' at entry {index} ({why}); it is rebuilt"
        ));
        self.standstill = None;
        self.renew_images(index);
        self.give_up_server(self.compare.verified, None);
        Ok(())
    }
}
