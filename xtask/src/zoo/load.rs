//! Clients of one server of the zoo, which continue while its leader dies.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::cage::Cage;
use skein_testkit::{Failure, Outcome};

/// Between two tries of a request, and between two looks whether clients may go on.
const PAUSE: Duration = Duration::from_millis(10);
/// How often at most what was acknowledged is asked for once more.
const READ_AGAIN: u32 = 100;

/// State shared by the clients.
pub struct Load<'a> {
    cage: &'a Cage<'a>,
    next: AtomicU64,
    stop: AtomicBool,
    rests: AtomicBool,
    acknowledged: Mutex<Vec<u64>>,
    broken: Mutex<Option<Failure>>,
}

impl<'a> Load<'a> {
    /// Nothing was asked yet.
    pub fn new(cage: &'a Cage<'a>) -> Self {
        Self::behind(cage, &[])
    }

    /// Requests with other numbers than these, which count as acknowledged.
    pub fn behind(cage: &'a Cage<'a>, acknowledged: &[u64]) -> Self {
        let next = acknowledged.iter().max().map_or(1, |last| last + 1);
        Self {
            cage,
            next: AtomicU64::new(next),
            stop: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            acknowledged: Mutex::new(acknowledged.to_vec()),
            broken: Mutex::default(),
        }
    }

    /// One client: requests one after the other until [`Load::finish`]. A request without an acknowledgement is repeated.
    pub fn client(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            if self.rests.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                continue;
            }
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            loop {
                match self.cage.request(n) {
                    Ok(true) => {
                        self.lock(&self.acknowledged).push(n);
                        break;
                    }
                    Ok(false) if self.stop.load(Ordering::Relaxed) => break,
                    Ok(false) => std::thread::sleep(PAUSE),
                    Err(failure) => {
                        *self.lock(&self.broken) = Some(failure);
                        return;
                    }
                }
            }
        }
    }

    /// The number of acknowledged requests.
    pub fn count(&self) -> Outcome<u64> {
        match self.lock(&self.broken).take() {
            Some(failure) => Err(failure),
            None => Ok(self.lock(&self.acknowledged).len() as u64),
        }
    }

    /// The numbers of the acknowledged requests.
    pub fn acknowledged(&self) -> Vec<u64> {
        self.lock(&self.acknowledged).clone()
    }

    /// Clients begin no request until they are told to go on.
    pub fn rest(&self, rests: bool) {
        self.rests.store(rests, Ordering::Relaxed);
    }

    /// Lets the clients end.
    pub fn finish(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Asks for everything acknowledged; answers the number. A change of leaders on a busy machine resets a connection: what is lost is not there later, either.
    pub fn read_back(&self) -> Outcome<u64> {
        let acknowledged = self.lock(&self.acknowledged).clone();
        for n in &acknowledged {
            let mut answer = self.cage.ask(*n)?;
            for _ in 0..READ_AGAIN {
                if answer.is_ok() {
                    break;
                }
                std::thread::sleep(PAUSE);
                answer = self.cage.ask(*n)?;
            }
            if let Err(said) = answer {
                let want = self.cage.answer(*n);
                return Err(Failure(format!(
                    "acknowledged request {n} is lost: '{want}' is not in the answer: {}",
                    said.trim()
                )));
            }
        }
        Ok(acknowledged.len() as u64)
    }

    fn lock<'b, T>(&self, what: &'b Mutex<T>) -> std::sync::MutexGuard<'b, T> {
        what.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
