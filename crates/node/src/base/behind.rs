//! A log that is replaced by what begins behind another replica's image: entries that said what the server uses of its host went by. Others have pinned that, and it is pinned here as
//! they have it; a server that is started waits a moment for that. At each start of a node the same is done, for pins that a crash has lost, and nobody waits.
//!
//! `behind`, an empty file, says that this is still to be done.

use super::store::Digest;
use super::{Base, fetch};
use skein_log::disk::durable;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

const FILE: &str = "behind";
/// A server's start waits so long at most.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// It is to be done, also in another life.
pub(super) fn note(main: &Base) {
    let noted =
        durable::create_dir(&main.dir).and_then(|()| durable::write(&main.dir.join(FILE), ""));
    if let Err(error) = noted {
        tracing::warn!(event = "base_behind_not_noted", %error);
    }
}

/// It is done, as was demanded so often.
pub(super) fn over(main: &Base, demanded: u64) {
    if let Some(node) = &main.node {
        node.caught_up.fetch_max(demanded, Ordering::Relaxed);
    }
    if let Err(error) = durable::remove(&main.dir.join(FILE)) {
        tracing::warn!(event = "base_behind_noted", %error);
    }
}

/// Pins in this base, which is that of this edition, what others have pinned. False: it is to be tried again.
pub(super) fn catch_up(base: &Base, edition: Option<Digest>) -> bool {
    let _all = base.objects.keep_all();
    let (grown, done) = fetch::missing(base, edition).unwrap_or_else(|error| {
        tracing::warn!(event = "base_not_compared", %error);
        (None, false)
    });
    let written = grown.map_or(Ok(()), |index| base.set(index));
    if let Err(error) = &written {
        tracing::warn!(event = "base_unwritten", %error);
    }
    done && written.is_ok()
}

impl Base {
    /// Whether that is to be done by what a former life has noted.
    pub(super) fn is_noted_behind(&self) -> bool {
        self.dir.join(FILE).exists()
    }

    /// From now on it is to be done once more; answers how often that was.
    pub(super) fn is_behind(&self) -> u64 {
        self.node.as_ref().map_or(0, |node| node.behind.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// How often it was demanded.
    pub(super) fn demanded(&self) -> u64 {
        self.node.as_ref().map_or(0, |node| node.behind.load(Ordering::Relaxed))
    }

    /// Waits until that is done as long as the caller is wanted, and not too long: others may be away.
    pub(crate) fn wait_until_caught_up(&self, is_wanted: &dyn Fn() -> bool) {
        let Some(node) = &self.node else { return };
        let (until, demanded) = (Instant::now() + PATIENCE, self.demanded());
        let lacks = || node.caught_up.load(Ordering::Relaxed) < demanded;
        while lacks() && Instant::now() < until && is_wanted() {
            sleep(PAUSE);
        }
    }
}
