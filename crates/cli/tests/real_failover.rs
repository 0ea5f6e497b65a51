//! No acknowledged write is lost, and none appears from nowhere, whatever happens to the nodes of a busy redis: clients
//! remember their answers and compare after each fault.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::real::{ANSWER, Real};
use common::resp::{Redis, Reply};
use common::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const WRITERS: usize = 6;
/// A writer leaves a connection that does not answer for this long: the outcome of its request is unknown.
const PATIENCE_OF_A_WRITER: Duration = Duration::from_millis(500);
/// Acknowledgements before and after each fault.
const ACKNOWLEDGED: u64 = 1_000;

/// One writer's memory.
#[derive(Default)]
struct Book {
    /// Acknowledged keys and values, in order.
    kept: Vec<(String, String)>,
    /// Unacknowledged ones: they may be there.
    doubtful: HashMap<String, String>,
    own: Counter,
    shared: Counter,
    /// Answers of the shared counter.
    places: Vec<i64>,
}

/// Attempted and acknowledged increments of a counter.
#[derive(Default)]
struct Counter {
    tried: i64,
    done: i64,
    last: i64,
}

/// Shared observations of the writers.
struct Pulse {
    ended: AtomicBool,
    acknowledged: AtomicU64,
    /// The last acknowledgement, and the longest time between two.
    outage: Mutex<(Instant, Duration)>,
}

impl Pulse {
    fn new() -> Self {
        Self {
            ended: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            outage: Mutex::new((Instant::now(), Duration::ZERO)),
        }
    }

    fn beat(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut outage = self.outage.lock().unwrap();
        outage.1 = outage.1.max(now.saturating_duration_since(outage.0));
        outage.0 = outage.0.max(now);
    }

    #[track_caller]
    fn wait_more(&self) {
        let wanted = self.acknowledged.load(Ordering::Relaxed) + ACKNOWLEDGED;
        wait_for("writes to be acknowledged", || {
            (self.acknowledged.load(Ordering::Relaxed) >= wanted).then_some(())
        });
    }
}

impl Counter {
    fn increment(&mut self, redis: &mut Redis, key: &str) -> std::io::Result<i64> {
        self.tried += 1;
        match redis.ask(&["INCR", key])? {
            Reply::Int(now) => {
                assert!(now > self.last, "{key} went from {} back to {now}", self.last);
                self.done += 1;
                self.last = now;
                Ok(now)
            }
            other => panic!("INCR answers {other:?}"),
        }
    }
}

impl Book {
    /// One request of each kind; fails when the connection does.
    fn write(&mut self, me: usize, redis: &mut Redis, pulse: &Pulse) -> std::io::Result<()> {
        let key = format!("w:{me}:{}", self.kept.len() + self.doubtful.len());
        let value = format!("{key} = {:?}", Instant::now());
        self.doubtful.insert(key.clone(), value.clone());
        let answer = redis.ask(&["SET", &key, &value])?;
        assert_eq!(answer, Reply::ok());
        self.doubtful.remove(&key);
        self.kept.push((key, value));
        pulse.beat();
        self.own.increment(redis, &format!("own:{me}"))?;
        pulse.beat();
        self.places.push(self.shared.increment(redis, "shared")?);
        pulse.beat();
        // A reader sees an acknowledged write at once.
        let (key, value) = &self.kept[self.kept.len() / 2];
        assert_eq!(redis.ask(&["GET", key])?, Reply::bulk(value), "{key}");
        let (key, value) = self.kept.last().unwrap();
        assert_eq!(redis.ask(&["GET", key])?, Reply::bulk(value), "{key}");
        Ok(())
    }

    fn write_on(&mut self, me: usize, port: u16, pulse: &Pulse) {
        let mut redis = None;
        while !pulse.ended.load(Ordering::Relaxed) {
            let Some(connected) = &mut redis else {
                redis = Redis::connect(port, PATIENCE_OF_A_WRITER).ok();
                if redis.is_none() {
                    // Refused: as a client does, not at once again.
                    std::thread::sleep(Duration::from_millis(2));
                }
                continue;
            };
            if self.write(me, connected, pulse).is_err() {
                redis = None;
            }
        }
    }
}

/// A connection and an answer, however long it takes.
#[track_caller]
fn served(real: &Real) -> Redis {
    wait_for("an answer", || {
        let mut redis = Redis::connect(real.port(), PATIENCE_OF_A_WRITER).ok()?;
        redis.ask(&["PING"]).ok()?;
        Redis::connect(real.port(), ANSWER).ok()
    })
}

fn number(redis: &mut Redis, key: &str) -> i64 {
    match redis.say(&format!("GET {key}")) {
        Reply::Nil => 0,
        other => other.text().parse().unwrap(),
    }
}

/// Compares the data with the acknowledged and attempted writes.
#[track_caller]
fn check(real: &Real, books: &[Book]) {
    let mut redis = served(real);
    for book in books {
        for chunk in book.kept.chunks(500) {
            let words = std::iter::once("MGET").chain(chunk.iter().map(|(key, _)| key.as_str()));
            let Reply::Array(values) = redis.ask(&words.collect::<Vec<_>>()).unwrap() else {
                panic!("MGET answers something else")
            };
            for ((key, value), got) in chunk.iter().zip(values) {
                assert_eq!(got, Reply::bulk(value), "{key} was acknowledged");
            }
        }
        for (key, value) in &book.doubtful {
            let got = redis.ask(&["GET", key]).unwrap();
            assert!(got == Reply::Nil || got == Reply::bulk(value), "{key} has {}", got.text());
        }
    }
    let known: HashSet<&str> = books
        .iter()
        .flat_map(|book| book.kept.iter().map(|(key, _)| key).chain(book.doubtful.keys()))
        .map(String::as_str)
        .collect();
    let Reply::Array(there) = redis.say("KEYS w:*") else { panic!("no keys") };
    for key in there {
        assert!(known.contains(key.text().as_str()), "nobody wrote {}", key.text());
    }
    for (me, book) in books.iter().enumerate() {
        let own = number(&mut redis, &format!("own:{me}"));
        let Counter { tried, done, .. } = book.own;
        assert!((done..=tried).contains(&own), "own:{me} is {own}, {done} of {tried} acknowledged");
    }
    let shared = number(&mut redis, "shared");
    let done: i64 = books.iter().map(|book| book.shared.done).sum();
    let tried: i64 = books.iter().map(|book| book.shared.tried).sum();
    assert!((done..=tried).contains(&shared), "shared is {shared}, {done} of {tried} acknowledged");
    let mut places: Vec<i64> = books.iter().flat_map(|book| book.places.iter().copied()).collect();
    places.sort_unstable();
    let twice = places.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "two increments got the same answer");
}

/// One round: writers write, the fault happens, they write on, everything is compared, the replicas agree.
#[track_caller]
fn round(real: &mut Real, books: &mut [Book], name: &str, blow: impl FnOnce(&mut Real)) {
    let pulse = Pulse::new();
    let port = real.port();
    let before: usize = books.iter().map(|book| book.doubtful.len()).sum();
    std::thread::scope(|scope| {
        for (me, book) in books.iter_mut().enumerate() {
            let pulse = &pulse;
            scope.spawn(move || book.write_on(me, port, pulse));
        }
        // Also ends the writers when this fails.
        let end = End(&pulse.ended);
        pulse.wait_more();
        blow(real);
        pulse.wait_more();
        drop(end);
    });
    let outage = pulse.outage.lock().unwrap().1;
    let doubtful = books.iter().map(|book| book.doubtful.len()).sum::<usize>() - before;
    println!(
        "{name}: {} writes acknowledged, {doubtful} in doubt, outage {:.0} ms",
        pulse.acknowledged.load(Ordering::Relaxed),
        outage.as_secs_f64() * 1e3
    );
    check(real, books);
    real.wait_agreed();
    check(real, books);
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn kill_leader(real: &mut Real) {
    let (status, _) = real.cluster.status();
    signal(Cluster::leader(&status).1, Signal::SIGKILL);
}

fn kill_follower(real: &mut Real) {
    let (status, _) = real.cluster.status();
    let follower = Cluster::leader(&status).0 % 3 + 1;
    let pid = Cluster::replica(&status, follower)["node_pid"].as_i64().unwrap();
    signal(pid as i32, Signal::SIGKILL);
}

/// Stops the leader until another one serves, then continues it: it must not answer from its old state.
fn stop_leader(real: &mut Real) {
    let mut old = served(real);
    assert_eq!(old.say("SET changed before"), Reply::ok());
    let (status, _) = real.cluster.status();
    let (_, pid) = Cluster::leader(&status);
    signal(pid, Signal::SIGSTOP);
    old.push(&["GET", "changed"]);
    old.flush().unwrap();
    wait_for("another leader to serve", || {
        let mut new = Redis::connect(real.port(), PATIENCE_OF_A_WRITER).ok()?;
        new.ask(&["SET", "changed", "after"]).ok()
    });
    // `skein run` kills a node that is silent for long.
    let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
    match old.receive() {
        Ok(answer) => assert_eq!(answer, Reply::bulk("after"), "a stale answer"),
        Err(error) => {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the old leader says nothing");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    let mut real = Real::redis(&[], &["--save", ""]);
    let mut books: Vec<Book> = (0..WRITERS).map(|_| Book::default()).collect();
    for number in 1..=2 {
        round(&mut real, &mut books, &format!("{number}: leader killed"), kill_leader);
        round(&mut real, &mut books, &format!("{number}: follower killed"), kill_follower);
        round(&mut real, &mut books, &format!("{number}: leader stopped"), stop_leader);
        round(&mut real, &mut books, &format!("{number}: all killed"), |real| {
            real.kill_all_and_run_again();
        });
    }
    real.end();
}
