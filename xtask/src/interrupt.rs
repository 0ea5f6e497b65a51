//! Waiting for a condition, with a deadline, until Ctrl-C or SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use skein_testkit::{Failure, Outcome};

/// The longest wait for anything: the first service, a new leader, a killed replica's return.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Set by Ctrl-C or SIGTERM: every wait looks at it.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches both signals from now on.
    pub fn catch() -> Outcome<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))
                .map_err(|error| Failure::of("cannot catch signals", error))?;
        }
        Ok(interrupt)
    }

    /// Fails once a signal has come.
    pub fn check(&self) -> Outcome {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure("interrupted".to_owned()));
        }
        Ok(())
    }

    /// Asks `probe` every few milliseconds until it has something, for `WAIT_MAX` at most.
    pub fn wait<T>(&self, what: &str, probe: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
        self.wait_at_most(WAIT_MAX, what, probe)
    }

    /// The same for `max` at most.
    pub fn wait_at_most<T>(
        &self,
        max: Duration,
        what: &str,
        mut probe: impl FnMut() -> Outcome<Option<T>>,
    ) -> Outcome<T> {
        let start = Instant::now();
        loop {
            self.check()?;
            if let Some(found) = probe()? {
                return Ok(found);
            }
            if start.elapsed() > max {
                let seconds = max.as_secs();
                return Err(Failure(format!("waited {seconds} s in vain for {what}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
