//! The clients of a cluster's life: some that write values, and one that counts and tells what was lost.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::cluster::{Cluster, await_some};
use crate::servers::redis;
use crate::wire::Client;
use skein_testkit::{Failure, Outcome};

const WRITERS: u64 = 16;
const KEYS: u32 = 20_000;
const VALUE_BYTES: usize = 1_024;
const ANSWER_MAX: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// The client that counts asks so often.
const COUNT_EVERY: Duration = Duration::from_millis(2);
/// A cluster that counts so far goes on: more than may have been on the way.
const GOES_ON: u64 = 50;

/// All clients. Each tries the hosts in turn.
pub struct Clients<'c> {
    /// The cluster that they ask.
    pub cluster: &'c Cluster,
    /// Requests a second of all of them; 0: no limit.
    per_second: u64,
    ended: AtomicBool,
    answered: AtomicU64,
    acknowledged: AtomicU64,
    attempted: AtomicU64,
    /// When the client that counts was answered last, and its longest wait since somebody asked.
    silence: Mutex<(Instant, Duration)>,
    failure: Mutex<Option<Failure>>,
}

impl<'c> Clients<'c> {
    /// None yet.
    pub fn new(cluster: &'c Cluster, per_second: u64) -> Self {
        Self {
            cluster,
            per_second,
            ended: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            attempted: AtomicU64::new(0),
            silence: Mutex::new((Instant::now(), Duration::ZERO)),
            failure: Mutex::new(None),
        }
    }

    /// Starts them.
    pub fn start<'a>(&'a self, scope: &'a Scope<'a, '_>) {
        for number in 0..WRITERS {
            scope.spawn(move || self.write(number));
        }
        scope.spawn(|| {
            if let Err(failure) = self.count() {
                *self.failure.lock().expect("no panic") = Some(failure);
            }
        });
    }

    /// Ends them.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether they were ended.
    pub fn have_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Requests that were answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Answers to all clients so far, those to the one that counts among them.
    pub fn answers(&self) -> u64 {
        self.answered() + self.acknowledged()
    }

    /// The highest count that was acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Fails unless the cluster, which serves, has counted this far, and no further than it was asked to.
    pub fn counted(&self, least: u64) -> Outcome {
        let look = redis::command(&["INCRBY", "count", "0"], ":");
        let found = await_some("an answer", || {
            let mut client = self.cluster.client()?;
            // It may reset its connections once more.
            Ok(client.exchange(&look).ok().and_then(|()| number(client.got()).ok()))
        })?;
        let most = self.attempted();
        if (least..=most).contains(&found) {
            return Ok(());
        }
        Err(Failure(format!(
            "the cluster has counted to {found}; {least} was acknowledged, of {most} attempts"
        )))
    }

    /// Waits until the cluster has counted on.
    pub fn go_on(&self) -> Outcome {
        let enough = self.acknowledged() + GOES_ON;
        await_some("the cluster to count on", || Ok((self.acknowledged() >= enough).then_some(())))
    }

    /// How often was asked to count.
    pub fn attempted(&self) -> u64 {
        self.attempted.load(Ordering::Relaxed)
    }

    /// What was lost, if anything was.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.lock().expect("no panic").take()
    }

    /// The longest time without an answer to the client that counts since this was asked last.
    pub fn silence(&self) -> Duration {
        let mut silence = self.silence.lock().expect("no panic");
        let longest = silence.1.max(silence.0.elapsed());
        silence.1 = Duration::ZERO;
        longest
    }

    fn heard(&self) {
        let mut silence = self.silence.lock().expect("no panic");
        *silence = (Instant::now(), silence.1.max(silence.0.elapsed()));
    }

    /// A connection to the host behind the one of the last try; none when the clients end.
    fn connected(&self, turn: &mut usize) -> Option<Client> {
        while !self.have_ended() {
            let hosts = self.cluster.addresses();
            *turn += 1;
            match Client::connect(hosts[*turn % hosts.len()], ANSWER_MAX) {
                Ok(client) => return Some(client),
                Err(_) => thread::sleep(RETRY_AFTER),
            }
        }
        None
    }

    fn write(&self, number: u64) {
        let pause = self.per_second.checked_div(WRITERS).filter(|each| *each > 0);
        let pause = pause.map(|each| Duration::from_secs_f64(1.0 / each as f64));
        let (mut key, mut next) = (KEYS / WRITERS as u32 * number as u32, Instant::now());
        let mut turn = number as usize;
        while let Some(mut client) = self.connected(&mut turn) {
            // Connections end at a failover; the values are the same at each try.
            while !self.have_ended() && client.exchange(&redis::sized(key, VALUE_BYTES)[0]).is_ok()
            {
                self.answered.fetch_add(1, Ordering::Relaxed);
                key = (key + 1) % KEYS;
                if let Some(pause) = pause {
                    next = (next + pause).max(Instant::now());
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            }
        }
    }

    /// Counts up; an attempt without an answer may have been counted, once.
    fn count(&self) -> Outcome {
        let (next, look) = (
            redis::command(&["INCR", "count"], ":"),
            redis::command(&["INCRBY", "count", "0"], ":"),
        );
        let mut unanswered = 0;
        let (mut last, mut turn) = (0, 0);
        while let Some(mut client) = self.connected(&mut turn) {
            let mut exchange = &look;
            while !self.have_ended() {
                let counts = u64::from(!std::ptr::eq(exchange, &raw const look));
                self.attempted.fetch_add(counts, Ordering::Relaxed);
                if client.exchange(exchange).is_err() {
                    unanswered += counts;
                    break;
                }
                self.heard();
                let now = number(client.got())?;
                let (least, most) = (last + counts, last + counts + unanswered);
                if now < least || now > most {
                    return Err(Failure(format!(
                        "the cluster has counted to {now}; right are {least} to {most}: {last} was acknowledged, {unanswered} more attempts had no answer"
                    )));
                }
                (last, unanswered, exchange) = (now, 0, &next);
                self.acknowledged.store(last, Ordering::Relaxed);
                thread::sleep(COUNT_EVERY);
            }
        }
        Ok(())
    }
}

/// A reply's number.
pub fn number(reply: &[u8]) -> Outcome<u64> {
    let text = String::from_utf8_lossy(reply);
    let digits = text.trim_end().strip_prefix(':').and_then(|digits| digits.parse().ok());
    digits.ok_or_else(|| Failure(format!("redis answered {text:?} to INCR")))
}
