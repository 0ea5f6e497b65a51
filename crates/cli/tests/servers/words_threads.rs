//! Words that clients add and take, kept by the standard library alone: a thread a connection, a map with its random hashes under
//! a read-write lock, a channel to a thread that counts, times.
//!
//!     add WORD      ok COUNT
//!     has WORD      yes AGE_US | no
//!     any           a word that the map's order gives, with a number of the hasher's
//!     all           the words, sorted, in one line
//!
//!     words_threads PORT

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::io::{BufRead, BufReader, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Shared {
    words: RwLock<HashMap<String, Instant>>,
    count: Mutex<u64>,
    counted: Condvar,
}

fn answer(shared: &Shared, counter: &Sender<u64>, line: &str) -> String {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("add", word) => {
            let new = shared.words.write().unwrap().insert(word.into(), Instant::now()).is_none();
            let before = *shared.count.lock().unwrap();
            counter.send(u64::from(new)).unwrap();
            let waited = Duration::from_secs(60);
            let count = shared.count.lock().unwrap();
            let stays = |count: &mut u64| new && *count <= before;
            let (count, _) = shared.counted.wait_timeout_while(count, waited, stays).unwrap();
            format!("ok {}", *count)
        }
        ("has", word) => match shared.words.read().unwrap().get(word) {
            Some(added) => format!("yes {}", added.elapsed().as_micros()),
            None => "no".into(),
        },
        ("any", _) => {
            let words = shared.words.read().unwrap();
            let first = words.keys().next().cloned().unwrap_or_default();
            format!("{} {first}", words.hasher().hash_one(&first))
        }
        ("all", _) => {
            let words = shared.words.read().unwrap();
            let mut all: Vec<&str> = words.keys().map(String::as_str).collect();
            all.sort_unstable();
            all.join(" ")
        }
        _ => "what?".into(),
    }
}

fn serve(stream: TcpStream, shared: &Shared, counter: &Sender<u64>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut to = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        to.write_all(format!("{}\n", answer(shared, counter, &line?)).as_bytes())?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("a port");
    let shared = Arc::new(Shared::default());
    let (counter, to_count) = channel();
    let counting = shared.clone();
    thread::spawn(move || {
        for number in to_count {
            *counting.count.lock().unwrap() += number;
            counting.counted.notify_all();
        }
    });
    for stream in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let (stream, shared, counter) = (stream?, shared.clone(), counter.clone());
        // A client that goes away in the middle ends its thread only.
        thread::spawn(move || serve(stream, &shared, &counter).ok());
    }
    Ok(())
}
