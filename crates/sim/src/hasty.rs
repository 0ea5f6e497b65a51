//! A mode that breaks one rule on purpose: output leaves before the entries that caused it are committed.

use skein_model::{LogIndex, WallNs};
use skein_replica::modes::{Due, Execution, Mode, Order, Proposal, Recorded, Waiting};
use std::time::Duration;

/// Mode `order` without output commit.
#[derive(Debug)]
pub struct Hasty(pub Order);

impl Mode for Hasty {
    fn due(&mut self, waiting: Waiting, now: Duration, wall: WallNs) -> Due {
        self.0.due(waiting, now, wall)
    }

    fn proposed(&mut self, proposal: Proposal, now: Duration) {
        self.0.proposed(proposal, now);
    }

    fn execution(&self, leads: bool) -> Execution {
        self.0.execution(leads)
    }

    fn recorded(&self) -> Recorded {
        self.0.recorded()
    }

    fn released(&self, _: LogIndex) -> LogIndex {
        LogIndex(u64::MAX)
    }
}
