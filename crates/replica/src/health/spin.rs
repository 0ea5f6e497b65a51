//! Does this replica's server make calls?
//!
//! A server that runs without calls while other threads, or entries, wait for it computes for long, or polls memory in a way that the runtime does not recognise.

use super::{Fault, seconds};
use std::time::Duration;

/// A server without an operation for this long is named.
const AFTER: Duration = Duration::from_secs(1);
/// And again.
const AGAIN: Duration = Duration::from_secs(10);

/// The number of the server's operations, and the time since when it has not changed.
#[derive(Debug, Default)]
pub struct Spin {
    operations: u64,
    since: Duration,
    again: Duration,
    at: Option<String>,
}

impl Spin {
    /// The server has done `operations`; `waited_for`: it runs, and other threads or entries wait for it. Answers the time without an operation, when its
    /// address should be asked for ([`Spin::is_at`]).
    pub fn look(&mut self, operations: u64, waited_for: bool, now: Duration) -> Option<Duration> {
        if operations != self.operations || !waited_for {
            *self = Self { operations, since: now, again: now + AFTER, at: None };
        }
        (now >= self.again).then(|| now.saturating_sub(self.since))
    }

    /// The thread's address.
    pub fn is_at(&mut self, place: String, now: Duration) {
        self.at = Some(place);
        self.again = now + AGAIN;
    }

    /// Whether it was found to spin, and still does.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.at.is_some()
    }

    /// The fault.
    #[must_use]
    pub fn fault(&self, now: Duration) -> Option<Fault> {
        let at = self.at.as_ref()?;
        let time = seconds(now.saturating_sub(self.since));
        let why =
            format!("its server has made no call for {time}, at {at}, while others wait for it");
        Some(Fault::new("server_spins", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_makes_no_call_is_named_now_and_then() {
        let at = Duration::from_millis;
        let mut spin = Spin::default();
        assert_eq!(spin.look(7, true, at(100)), None);
        assert_eq!(spin.look(7, true, at(1000)), None);
        assert_eq!(spin.look(7, true, at(1200)), Some(at(1100)));
        assert_eq!(spin.fault(at(1200)), None, "it is not known where");
        spin.is_at("a+0x1 (main)".into(), at(1200));
        assert_eq!(spin.look(7, true, at(1300)), None);
        let fault = spin.fault(at(3100)).unwrap();
        assert_eq!(fault.name, "server_spins");
        assert!(fault.why.contains("3.0 s, at a+0x1 (main)"), "{}", fault.why);
        assert!(spin.look(7, true, at(11_300)).is_some(), "again");
        assert_eq!(spin.look(8, true, at(11_400)), None);
        assert!(!spin.lasts() && spin.fault(at(11_400)).is_none());
        assert_eq!(spin.look(8, false, at(19_000)), None, "nobody waits");
        assert_eq!(spin.look(8, true, at(19_500)), None);
    }
}
