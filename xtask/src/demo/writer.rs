//! A client that never stops writing, and remembers its acknowledgements and their times.
//!
//! Key `n` is written again after a broken connection until it is acknowledged: the outcome of the first
//! try is unknown, and the same value twice is the same state.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skein_testkit::resp::Redis;
use skein_testkit::{Failure, Outcome};

/// How long an answer may take before the connection counts as dead.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Pause between two tries to connect: short against the measured outage.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// A client's thread gives up after this long without an acknowledgement.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The key and the value of write `number`.
pub fn pair(number: u64) -> (String, String) {
    (format!("demo:{number}"), format!("value-{}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Acknowledgements: write `n` at the `n`th instant.
pub struct Acknowledged(Vec<Instant>);

impl Acknowledged {
    /// The number of writes: 0 to this, without a gap.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The longest time without an acknowledgement that ended after `from`.
    pub fn longest_gap_after(&self, from: Instant) -> Duration {
        let gaps = self.0.windows(2).filter(|pair| pair[1] > from);
        gaps.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// The writing thread's handle.
pub struct Writer {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Outcome<Acknowledged>>>,
}

impl Writer {
    /// Begins to write to `service`.
    pub fn start(service: SocketAddr) -> Self {
        let count = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (count, stop) = (Arc::clone(&count), Arc::clone(&stop));
            move || write_until(service, &count, &stop)
        });
        Self { count, stop, thread: Some(thread) }
    }

    /// The number of acknowledged writes.
    pub fn acknowledged(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Fails when the thread has given up; `finish` then says why.
    pub fn check(&self) -> Outcome {
        match &self.thread {
            Some(thread) if !thread.is_finished() => Ok(()),
            _ => Err(Failure("the writing client gave up: no answer from the service".to_owned())),
        }
    }

    /// Stops after the current write.
    pub fn finish(&mut self) -> Outcome<Acknowledged> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(acknowledged)) => acknowledged,
            _ => Err(Failure("the writing client broke".to_owned())),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A demonstration that ended early: the thread sees the flag at its next try.
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn write_until(service: SocketAddr, count: &AtomicU64, stop: &AtomicBool) -> Outcome<Acknowledged> {
    let mut instants = Vec::new();
    let mut client: Option<Redis> = None;
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let (key, value) = pair(instants.len() as u64);
        let connected = match client.as_mut() {
            Some(connected) => Ok(connected),
            None => Redis::connect_to(service, ANSWER_MAX).map(|new| client.insert(new)),
        };
        match connected.and_then(|connected| connected.set(&key, &value)) {
            Ok(()) => {
                last = Instant::now();
                instants.push(last);
                count.store(instants.len() as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(Failure::of("the service refused a write", error));
            }
            Err(error) if last.elapsed() > SILENCE_MAX => {
                return Err(Failure::of("the service does not answer", error));
            }
            Err(_) => {
                client = None;
                std::thread::sleep(RETRY_AFTER);
            }
        }
    }
    Ok(Acknowledged(instants))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outage_is_the_longest_gap_that_ended_after_the_kill() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let acknowledged = Acknowledged(vec![at(0), at(500), at(510), at(640), at(650)]);
        assert_eq!(acknowledged.longest_gap_after(at(512)), Duration::from_millis(130));
        assert_eq!(acknowledged.longest_gap_after(at(700)), Duration::ZERO);
    }

    #[test]
    fn values_differ_from_key_to_key() {
        assert_ne!(pair(1), pair(2));
        assert_eq!(pair(7), pair(7));
    }
}
