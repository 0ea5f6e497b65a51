//! The clients' view when the serving process is killed or stopped under load: the outage, and the lost writes.
//!
//! Writers write keys that no other client writes, each once, and remember acknowledgements. *Movers* give up a reply
//! after half a second and look up the server anew, as a client with a time-out does. *Stayers* keep their connection until it
//! breaks, as a client without a time-out: a master that wakes up still serves them. Afterwards every
//! acknowledged key is read from the service's current address.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::sample::{Fault, Kind};
use skein_testkit::resp::{Redis, Reply};
use skein_testkit::{Failure, Outcome};

const MOVERS: usize = 6;
const STAYERS: usize = 2;

/// A mover gives up a reply after this long.
pub const MOVER_ANSWER_MAX: Duration = Duration::from_millis(500);

/// Longer than any fault lasts.
const STAYER_ANSWER_MAX: Duration = Duration::from_secs(60);

/// Pause of a stayer between two writes, so that its losses tell how long it was misled.
const STAYER_RESTS: Duration = Duration::from_millis(1);

/// Between two tries to connect.
const RETRY_AFTER: Duration = Duration::from_millis(2);

/// Acknowledged writes of each writer before the fault.
const WRITES_BEFORE: u64 = 200;

/// Every wait ends after this long at most.
const WAIT_MAX: Duration = Duration::from_secs(45);

/// Time limit of a WAIT [ms]: shorter than a mover's patience.
const WAIT_REPLICAS_MS: &str = "400";

/// The service under fault.
pub struct Service<'a> {
    /// The clients' current target, if any.
    pub locate: &'a (dyn Fn() -> Option<SocketAddr> + Sync),
    /// The number of replicas that a write waits for by WAIT; 0: it does not wait.
    pub wait: u8,
}

/// One fault: does `strike`, waits until the movers are served elsewhere, does `relieve`, waits until the stayers are.
///
/// `number` makes the keys of this fault different from those of others.
pub fn one(
    kind: Kind,
    number: usize,
    service: &Service,
    strike: impl FnOnce() -> Outcome,
    relieve: impl FnOnce() -> Outcome,
) -> Outcome<Fault> {
    let stop = AtomicBool::new(false);
    let struck = OnceLock::new();
    let writers: Vec<Writer> = (0..MOVERS + STAYERS)
        .map(|writer| Writer::new(format!("fault:{number}:{writer}"), writer >= MOVERS))
        .collect();
    let (movers, stayers) = writers.split_at(MOVERS);
    let acknowledged = std::thread::scope(|scope| -> Outcome<Vec<Vec<u64>>> {
        let started: Vec<_> = writers
            .iter()
            .map(|writer| scope.spawn(|| writer.run(service, &stop, &struck)))
            .collect();
        let story = || -> Outcome {
            let begun = |at: &Writer| at.count.load(Ordering::Relaxed) >= WRITES_BEFORE;
            await_all("writers to begin", &writers, begun)?;
            let _ = struck.set(Instant::now());
            strike()?;
            let moved = |at: &Writer| at.after.get().is_some();
            await_all("writers to be served again", movers, moved)?;
            relieve()?;
            await_all("the old connections to break", stayers, moved)
        };
        let outcome = story();
        stop.store(true, Ordering::Relaxed);
        let joined = started.into_iter().map(|one| one.join().unwrap_or_default()).collect();
        outcome.map(|()| joined)
    })?;
    let keys: Vec<String> = writers
        .iter()
        .zip(&acknowledged)
        .flat_map(|(writer, numbers)| numbers.iter().map(|at| format!("{}:{at}", writer.prefix)))
        .collect();
    let found = found(service, &keys)?;
    let outage = movers.iter().filter_map(Writer::outage).max().unwrap_or_default();
    Ok(Fault {
        kind,
        outage_ms: outage.as_secs_f64() * 1e3,
        acknowledged: keys.len() as u64,
        lost: keys.len() as u64 - found,
    })
}

/// One client that writes.
struct Writer {
    prefix: String,
    stays: bool,
    /// The number of acknowledged writes.
    count: AtomicU64,
    /// The last acknowledgement on a connection from before the fault, and the first on one from after it.
    after: OnceLock<(Instant, Instant)>,
}

impl Writer {
    fn new(prefix: String, stays: bool) -> Self {
        Self { prefix, stays, count: AtomicU64::new(0), after: OnceLock::new() }
    }

    fn outage(&self) -> Option<Duration> {
        self.after.get().map(|(before, after)| after.duration_since(*before))
    }

    /// Writes until told to stop; answers the acknowledged numbers.
    fn run(&self, service: &Service, stop: &AtomicBool, struck: &OnceLock<Instant>) -> Vec<u64> {
        let mut acknowledged = Vec::new();
        let mut connection: Option<(Redis, bool)> = None;
        let mut last_before = Instant::now();
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if connection.is_none() {
                let is_new = struck.get().is_some();
                connection = self.connect(service).map(|opened| (opened, is_new));
            }
            let Some((open, is_new)) = &mut connection else {
                std::thread::sleep(RETRY_AFTER);
                continue;
            };
            match write(open, &format!("{}:{number}", self.prefix), service.wait) {
                Ok(true) => {
                    acknowledged.push(number);
                    self.count.fetch_add(1, Ordering::Relaxed);
                    if *is_new {
                        let _ = self.after.set((last_before, Instant::now()));
                    } else {
                        last_before = Instant::now();
                    }
                }
                // Refused, but the connection lives: a stayer stays.
                Ok(false) if self.stays => {}
                Ok(false) | Err(_) => connection = None,
            }
            if self.stays || connection.is_none() {
                std::thread::sleep(STAYER_RESTS);
            }
        }
        acknowledged
    }

    fn connect(&self, service: &Service) -> Option<Redis> {
        let answer_max = if self.stays { STAYER_ANSWER_MAX } else { MOVER_ANSWER_MAX };
        Redis::connect_to((service.locate)()?, answer_max).ok()
    }
}

/// Whether the write was acknowledged; an error when the connection is broken.
fn write(connection: &mut Redis, key: &str, wait: u8) -> io::Result<bool> {
    connection.push(&["SET", key, key]);
    if wait > 0 {
        connection.push(&["WAIT", &wait.to_string(), WAIT_REPLICAS_MS]);
    }
    connection.flush()?;
    let set = connection.receive()?;
    let waited = if wait > 0 { connection.receive()? } else { Reply::Int(0) };
    match (set, waited) {
        (Reply::Status(_), Reply::Int(count)) => Ok(count >= i64::from(wait)),
        (Reply::Error(why), _) if why.starts_with("READONLY") => {
            Err(io::Error::other("no master any more"))
        }
        _ => Ok(false),
    }
}

/// How many of the keys hold their value at the service's current address.
fn found(service: &Service, keys: &[String]) -> Outcome<u64> {
    let failed = |error: io::Error| Failure::of("cannot read what was written", error);
    let at = (service.locate)().ok_or_else(|| Failure("nobody serves any more".to_owned()))?;
    let mut connection = Redis::connect_to(at, Duration::from_secs(20)).map_err(failed)?;
    let mut count = 0;
    for keys in keys.chunks(500) {
        let words: Vec<&str> =
            ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        let Reply::Array(values) = connection.ask(&words).map_err(failed)? else {
            return Err(Failure("MGET was refused".to_owned()));
        };
        let right = |(key, value): &(&String, &Reply)| value.text() == **key;
        count += keys.iter().zip(&values).filter(right).count() as u64;
    }
    Ok(count)
}

fn await_all(what: &str, writers: &[Writer], is_so: impl Fn(&Writer) -> bool) -> Outcome {
    let start = Instant::now();
    while !writers.iter().all(&is_so) {
        if start.elapsed() > WAIT_MAX {
            return Err(Failure(format!("waited {} s in vain for {what}", WAIT_MAX.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};

    use super::*;

    type Keys = Arc<Mutex<BTreeSet<String>>>;

    /// Answers SET and MGET; refuses all when `up` is false, by closing.
    fn serve(stream: TcpStream, keys: &Keys, up: &AtomicBool) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut from = BufReader::new(stream);
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let mut words = Vec::new();
            for _ in 0..line.trim()[1..].parse::<usize>().ok()? {
                let mut length = String::new();
                from.read_line(&mut length).ok()?;
                let mut bytes = vec![0; length.trim()[1..].parse::<usize>().ok()? + 2];
                from.read_exact(&mut bytes).ok()?;
                words.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
            }
            if !up.load(Ordering::Relaxed) {
                return None;
            }
            let mut keys = keys.lock().ok()?;
            if words[0] == "SET" {
                keys.insert(words[1].clone());
                out.write_all(b"+OK\r\n").ok()?;
                continue;
            }
            let mut text = format!("*{}\r\n", words.len() - 1);
            for key in &words[1..] {
                let bulk = format!("${}\r\n{key}\r\n", key.len());
                text += if keys.contains(key) { &bulk } else { "$-1\r\n" };
            }
            out.write_all(text.as_bytes()).ok()?;
        }
    }

    /// A service with one thread per connection and incarnation; answers its address.
    fn service(keys: &Keys, up: &Arc<AtomicBool>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let (keys, up) = (Arc::clone(keys), Arc::clone(up));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (keys, up) = (Arc::clone(&keys), Arc::clone(&up));
                std::thread::spawn(move || serve(stream, &keys, &up));
            }
        });
        at
    }

    #[test]
    fn what_a_failover_forgets_is_counted() {
        let (old_keys, new_keys) = (Keys::default(), Keys::default());
        let (old_up, new_up) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let (old, new) = (service(&old_keys, &old_up), service(&new_keys, &new_up));
        let locate = || Some(if old_up.load(Ordering::Relaxed) { old } else { new });
        let strike = || {
            // All but five writes had been replicated.
            old_up.store(false, Ordering::Relaxed);
            let old = old_keys.lock().expect("no panic").clone();
            new_keys.lock().expect("no panic").extend(old.into_iter().skip(5));
            Ok(())
        };
        let fault = one(Kind::Kill, 0, &Service { locate: &locate, wait: 0 }, strike, || Ok(()))
            .expect("both serve");
        assert!(fault.lost >= 5, "{fault:?}");
        assert!(fault.acknowledged >= 8 * WRITES_BEFORE, "{fault:?}");
    }
}
