//! Clients that push words onto lists of a redis-server without a pause, and remember acknowledgements and gaps between answers.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use super::resp::{Redis, Reply};
use super::story::Books;

/// A client tries the next address when one refuses it,
const CONNECT_WITHIN: Duration = Duration::from_millis(250);
/// or does not answer for this long.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Between an answer and the next request.
const PAUSE: Duration = Duration::from_millis(8);
/// Shorter pauses between answers are not noted.
const NOTED: Duration = Duration::from_millis(20);

struct Shared {
    addresses: Vec<SocketAddr>,
    ended: AtomicBool,
    paused: AtomicBool,
    answers: Mutex<Answers>,
}

/// Times of answers: the last one, and the long pauses.
struct Answers {
    last: Instant,
    gaps: Vec<(Instant, Instant)>,
}

/// Runs until [`Self::end`].
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Books>>,
}

impl Load {
    /// Starts so many clients, each of which tries the addresses in turn; each calls `enter` in its thread first.
    pub fn start(
        clients: usize,
        addresses: Vec<SocketAddr>,
        enter: impl Fn() + Clone + Send + 'static,
    ) -> Self {
        let answers = Mutex::new(Answers { last: Instant::now(), gaps: Vec::new() });
        let (ended, paused) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { addresses, ended, paused, answers });
        let client = |me| {
            let (shared, enter) = (Arc::clone(&shared), enter.clone());
            std::thread::spawn(move || {
                enter();
                shared.ask_on(me)
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { shared, clients }
    }

    /// The key of a client's list.
    pub fn key(client: usize) -> String {
        format!("list-{client}")
    }

    /// The time of the last answer to any client.
    pub fn last_answer(&self) -> Instant {
        self.shared.answers.lock().unwrap().last
    }

    /// The longest gap between answers since then.
    pub fn outage_since(&self, began: Instant) -> Duration {
        let answers = self.shared.answers.lock().unwrap();
        let open = (answers.last, Instant::now());
        let gaps = answers.gaps.iter().copied().chain([open]);
        let length = |(from, to): (Instant, Instant)| to.saturating_duration_since(from.max(began));
        gaps.map(length).max().unwrap_or_default()
    }

    /// The clients rest until [`Self::resume`], after their current answers.
    pub fn pause(&self) {
        self.shared.paused.store(true, Ordering::SeqCst);
    }

    /// They go on.
    pub fn resume(&self) {
        let mut answers = self.shared.answers.lock().unwrap();
        answers.gaps.clear();
        answers.last = Instant::now();
        drop(answers);
        self.shared.paused.store(false, Ordering::SeqCst);
    }

    /// Ends the clients; answers each one's memory.
    pub fn end(mut self) -> Vec<Books> {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.clients
            .drain(..)
            .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }
}

/// A client that sends much data until it is dropped.
pub struct Bulk {
    ended: Arc<AtomicBool>,
    client: Option<JoinHandle<()>>,
}

impl Bulk {
    /// Sets keys to values of this many bytes, in turn; tries the addresses as [`Load`] does.
    pub fn start(
        keys: usize,
        bytes: usize,
        addresses: Vec<SocketAddr>,
        enter: impl Fn() + Send + 'static,
    ) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let client = std::thread::spawn(move || {
            enter();
            let (mut turn, mut key) = (0, 0);
            let mut client: Option<Redis> = None;
            let value = vec![b'x'; bytes];
            while !end.load(Ordering::SeqCst) {
                let Some(connected) = &mut client else {
                    turn += 1;
                    client = connect(addresses[turn % addresses.len()]).ok();
                    continue;
                };
                let name = format!("bulk-{}", key % keys);
                match connected.ask(&[b"SET", name.as_bytes(), &value]) {
                    Ok(_) => key += 1,
                    Err(_) => client = None,
                }
                sleep(PAUSE);
            }
        });
        Self { ended, client: Some(client) }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(client) = self.client.take() {
            // The text of its panic, if any, is printed.
            let _ = client.join();
        }
    }
}

impl Shared {
    fn ask_on(&self, me: usize) -> Books {
        let mut books = Books::default();
        let mut client: Option<Redis> = None;
        let mut turn = me;
        let key = Load::key(me);
        while !self.ended.load(Ordering::SeqCst) {
            if self.paused.load(Ordering::SeqCst) {
                sleep(PAUSE);
                continue;
            }
            let Some(connected) = &mut client else {
                turn += 1;
                client = connect(self.addresses[turn % self.addresses.len()]).ok();
                if client.is_none() {
                    sleep(PAUSE);
                }
                continue;
            };
            let word = format!("{me}-{}", books.kept.len() + books.doubtful.len());
            match connected.ask(&["RPUSH", &key, &word]) {
                Ok(Reply::Int(_)) => {
                    books.kept.push(word);
                    self.answered();
                    sleep(PAUSE);
                }
                // An error of a server is no acknowledgement either.
                Ok(_) | Err(_) => {
                    books.doubtful.push(word);
                    client = None;
                }
            }
        }
        books
    }

    fn answered(&self) {
        let mut answers = self.answers.lock().unwrap();
        let now = Instant::now();
        let last = std::mem::replace(&mut answers.last, now);
        if now - last >= NOTED {
            answers.gaps.push((last, now));
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<Redis> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
    Redis::over(stream, ANSWER_WITHIN)
}
