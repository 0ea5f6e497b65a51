//! Mode `order`: agree on inputs, execute them everywhere in the same order, compare the outputs (CRANE sections 2 to 5).

pub mod admission;

use super::{Due, Execution, Mode, Proposal, Recorded, Stage, Waiting};
use crate::config::Tuning;
use admission::Admission;
use skein_model::{LogIndex, WallNs};
use std::time::Duration;

/// A follower does not wake its server for each entry, because no client waits for it.
const FOLLOWER_WAKE_INTERVAL: Duration = Duration::from_millis(3);

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Order {
    admission: Admission,
    execute_ahead: bool,
    unsafe_admission: bool,
}

impl Order {
    /// With `unsafe_admission`, entries enter the server as they come, against all rules: for experiments.
    #[must_use]
    pub fn new(tuning: &Tuning, unsafe_admission: bool) -> Self {
        if unsafe_admission {
            let why = "replicas differ and nothing is compared";
            tracing::warn!(event = "unsafe_admission", why);
        }
        Self {
            admission: Admission::new(Duration::from_micros(tuning.wtimeout_us), tuning.nclock),
            execute_ahead: tuning.execute_ahead,
            unsafe_admission,
        }
    }
}

impl Mode for Order {
    fn due(&mut self, waiting: Waiting, now: Duration, wall: WallNs) -> Due {
        self.admission.due(waiting, now, wall)
    }

    fn proposed(&mut self, proposal: Proposal, now: Duration) {
        self.admission.proposed(proposal, now);
    }

    fn execution(&self, leads: bool) -> Execution {
        match leads {
            true if self.execute_ahead => {
                Execution { from: Stage::Proposed, within: Duration::ZERO }
            }
            true => Execution { from: Stage::Committed, within: Duration::ZERO },
            false => Execution { from: Stage::Committed, within: FOLLOWER_WAKE_INTERVAL },
        }
    }

    fn recorded(&self) -> Recorded {
        if self.unsafe_admission { Recorded::Nothing } else { Recorded::Digests }
    }

    fn released(&self, committed: LogIndex) -> LogIndex {
        committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaders_server_executes_ahead_if_it_may_and_output_waits_for_the_commit() {
        let tuning = Tuning::default();
        let order = Order::new(&tuning, false);
        assert_eq!(order.execution(true).from, Stage::Proposed);
        assert_eq!(order.execution(true).within, Duration::ZERO, "clients wait for it");
        assert_eq!(order.execution(false).from, Stage::Committed);
        assert!(order.execution(false).within > Duration::ZERO);
        assert_eq!(order.released(LogIndex(7)), LogIndex(7));
        let order = Order::new(&Tuning { execute_ahead: false, ..tuning }, false);
        assert_eq!(order.execution(true).from, Stage::Committed);
    }

    #[test]
    fn outputs_that_may_differ_are_not_compared() {
        let recorded =
            |unsafe_admission| Order::new(&Tuning::default(), unsafe_admission).recorded();
        assert_eq!((recorded(false), recorded(true)), (Recorded::Digests, Recorded::Nothing));
    }
}
