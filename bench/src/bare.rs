//! Bare replication as a baseline: a store that replicates its requests and does nothing else.
//!
//! The leader's one thread reads requests, sends them as entries to two
//! copies and executes them; each copy makes an entry durable, acknowledges it and executes it; when both have acknowledged, the
//! replies leave. There are no elections, no catching up, no other server's code, no checks and no recovery. It is
//! simple, not tuned: no lower bound, but close to the cost of replication itself. It speaks the parts of redis' and memcached's protocols that their workloads need.
//! An entry is made when four fifths of all clients are back, or no client came for [`CLIENT_WAIT`]. Ends when its parent dies or with a signal.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use skein_testkit::{Failure, Outcome};

/// Copies beside the leader.
pub const COPIES: usize = 2;
/// How long a leader waits for one more client.
const CLIENT_WAIT: Duration = Duration::from_micros(60);
/// How long a copy tries to reach its leader.
const JOIN_MAX: Duration = Duration::from_secs(10);
/// A copy's file is filled ahead, as Skein's log is, and reused from its start.
const FILE_BYTES: u64 = 64 << 20;
const READ_BYTES: usize = 64 << 10;
/// Head of an entry: its length and its number.
const HEAD_BYTES: usize = 8;
const LISTENER: Token = Token(0);
/// Copies' tokens; clients' follow.
const FIRST_COPY: usize = 1;
const FIRST_CLIENT: usize = FIRST_COPY + COPIES;

/// One of its processes.
#[derive(clap::Subcommand)]
pub enum Options {
    /// The address that clients ask
    Leader {
        /// Where clients connect
        listen: SocketAddr,
        /// The address that copies connect to
        copies: SocketAddr,
    },
    /// The role of a copy
    Copy {
        /// The leader's address
        leader: SocketAddr,
        /// The copy's file; removed at once, as no process reads it
        file: PathBuf,
    },
}

/// Runs until killed.
pub fn run(options: &Options) -> Outcome {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| Failure::of("prctl", error))?;
    match options {
        Options::Leader { listen, copies } => Leader::new(*listen, *copies)
            .and_then(Leader::serve)
            .map_err(|error| Failure::of(format!("bare replication at {listen}"), error)),
        Options::Copy { leader, file } => copy(*leader, file)
            .map_err(|error| Failure::of(format!("a copy of what {leader} has"), error)),
    }
}

/// The stored values.
#[derive(Default)]
struct Store(HashMap<Vec<u8>, Vec<u8>>);

impl Store {
    /// Executes a whole request; answers the reply.
    fn execute(&mut self, request: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(request);
        let lines: Vec<&str> = text.split("\r\n").collect();
        let resp = request.starts_with(b"*");
        let words: Vec<&str> = if resp {
            lines.iter().skip(2).step_by(2).copied().collect()
        } else {
            lines[0].split(' ').collect()
        };
        let key = words.get(1).map(|key| key.as_bytes().to_vec()).unwrap_or_default();
        match (words[0].to_ascii_lowercase().as_str(), resp) {
            ("set", true) => {
                self.0.insert(key, words.get(2).unwrap_or(&"").as_bytes().to_vec());
                b"+OK\r\n".to_vec()
            }
            ("set", false) => {
                self.0.insert(key, lines.get(1).unwrap_or(&"").as_bytes().to_vec());
                b"STORED\r\n".to_vec()
            }
            ("get", true) => match self.0.get(&key) {
                Some(value) => {
                    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
                }
                None => b"$-1\r\n".to_vec(),
            },
            ("get", false) => match self.0.get(&key) {
                Some(value) => {
                    let head = format!("VALUE {} 0 {}\r\n", words[1], value.len());
                    [head.as_bytes(), value, b"\r\nEND\r\n"].concat()
                }
                None => b"END\r\n".to_vec(),
            },
            _ => b"-ERR unknown command\r\n".to_vec(),
        }
    }
}

/// Whether a request is complete; values hold no line ends here.
fn is_whole(request: &[u8]) -> bool {
    let lines = memchr::memmem::find_iter(request, b"\r\n").count();
    let wanted = match request.first() {
        Some(b'*') => {
            let digits = request[1..].iter().take_while(|byte| byte.is_ascii_digit());
            1 + 2 * digits.fold(0, |n, digit| 10 * n + usize::from(digit - b'0'))
        }
        _ if request.starts_with(b"set ") => 2,
        _ => 1,
    };
    lines >= wanted
}

struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    /// The client was answered, and has not asked again.
    awaited: bool,
}

/// Replies that wait for the copies: client, reply, and the number of copies that have it.
struct Entry {
    replies: Vec<(usize, Vec<u8>)>,
    copies: usize,
}

struct Leader {
    poll: Poll,
    listener: TcpListener,
    copies: Vec<TcpStream>,
    /// The last entry that each copy acknowledged.
    acknowledged: Vec<u32>,
    clients: Vec<Option<Client>>,
    store: Store,
    /// Requests without a reply that are not in an entry yet.
    ready: Vec<usize>,
    entries: std::collections::VecDeque<Entry>,
    /// The number of the first waiting reply.
    first: u32,
    asking: usize,
    awaited: usize,
}

impl Leader {
    fn new(listen: SocketAddr, copies: SocketAddr) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waiting = std::net::TcpListener::bind(copies)?;
        let mut joined = Vec::new();
        for n in 0..COPIES {
            let (stream, _) = waiting.accept()?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(FIRST_COPY + n), Interest::READABLE)?;
            joined.push(stream);
        }
        let mut listener = TcpListener::bind(listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        // Short waits are exact.
        prctl::set_timerslack(1_000)?;
        Ok(Self {
            poll,
            listener,
            copies: joined,
            acknowledged: vec![0; COPIES],
            clients: Vec::new(),
            store: Store::default(),
            ready: Vec::new(),
            entries: std::collections::VecDeque::new(),
            first: 1,
            asking: 0,
            awaited: 0,
        })
    }

    fn serve(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let gathers = !self.ready.is_empty();
            let mut came = true;
            if gathers {
                // SAFETY: the descriptor is open as long as `self`.
                let fd = unsafe { BorrowedFd::borrow_raw(self.poll.as_raw_fd()) };
                let mut look = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                came = ppoll(&mut look, Some(CLIENT_WAIT.into()), None)? > 0;
            }
            match self.poll.poll(&mut events, gathers.then_some(Duration::ZERO)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                match event.token().0 {
                    0 => self.accept()?,
                    n if n < FIRST_CLIENT => self.hear(n - FIRST_COPY)?,
                    n => self.read(n - FIRST_CLIENT)?,
                }
            }
            self.answer()?;
            let all = self.ready.len() + self.asking + self.awaited;
            if !self.ready.is_empty() && (!came || 5 * self.ready.len() >= 4 * all) {
                self.propose()?;
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((mut stream, _)) = self.listener.accept() {
            stream.set_nodelay(true)?;
            let token = Token(FIRST_CLIENT + self.clients.len());
            self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
            self.clients.push(Some(Client { stream, request: Vec::new(), awaited: false }));
        }
        Ok(())
    }

    fn read(&mut self, n: usize) -> io::Result<()> {
        let Some(client) = &mut self.clients[n] else { return Ok(()) };
        let mut buffer = [0; READ_BYTES];
        let end = match client.stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(got) => {
                client.request.extend_from_slice(&buffer[..got]);
                if is_whole(&client.request) {
                    self.awaited -= usize::from(std::mem::take(&mut client.awaited));
                    self.ready.push(n);
                }
                false
            }
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        if end {
            self.awaited -= usize::from(client.awaited);
            self.clients[n] = None;
            self.ready.retain(|at| *at != n);
        }
        Ok(())
    }

    fn propose(&mut self) -> io::Result<()> {
        let mut entry = vec![0; HEAD_BYTES];
        let mut replies = Vec::new();
        for n in self.ready.drain(..) {
            let Some(client) = &mut self.clients[n] else { continue };
            let request = std::mem::take(&mut client.request);
            entry.extend_from_slice(&(request.len() as u32).to_le_bytes());
            entry.extend_from_slice(&request);
            replies.push((n, request));
        }
        let length = (entry.len() - HEAD_BYTES) as u32;
        let number = self.first + self.entries.len() as u32;
        entry[..4].copy_from_slice(&length.to_le_bytes());
        entry[4..HEAD_BYTES].copy_from_slice(&number.to_le_bytes());
        for copy in &mut self.copies {
            // Less than a socket's buffer: a message that does not fit ends the measurement.
            copy.write_all(&entry)?;
        }
        for (_, words) in &mut replies {
            *words = self.store.execute(words);
        }
        self.asking += replies.len();
        self.entries.push_back(Entry { replies, copies: 0 });
        Ok(())
    }

    fn hear(&mut self, copy: usize) -> io::Result<()> {
        let mut buffer = [0; 256];
        let got = match self.copies[copy].read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(last) = buffer[..got].last_chunk() else { return Ok(()) };
        let last = u32::from_le_bytes(*last);
        for number in self.acknowledged[copy] + 1..=last {
            self.entries[(number - self.first) as usize].copies += 1;
        }
        self.acknowledged[copy] = last;
        Ok(())
    }

    fn answer(&mut self) -> io::Result<()> {
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.copies == COPIES) {
            self.first += 1;
            self.asking -= entry.replies.len();
            for (n, reply) in entry.replies {
                let Some(client) = &mut self.clients[n] else { continue };
                client.stream.write_all(&reply)?;
                client.awaited = true;
                self.awaited += 1;
            }
        }
        Ok(())
    }
}

fn copy(leader: SocketAddr, path: &PathBuf) -> io::Result<()> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    std::fs::remove_file(path)?;
    // Block by block: the kernel counts one large write as one large write again when part of it is rewritten.
    let zeros = [0; 4096];
    for at in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    // The leader was started a moment ago.
    let start = Instant::now();
    let mut stream = loop {
        match std::net::TcpStream::connect(leader) {
            Err(_) if start.elapsed() < JOIN_MAX => std::thread::sleep(Duration::from_millis(1)),
            outcome => break outcome?,
        }
    };
    stream.set_nodelay(true)?;
    let (mut store, mut at) = (Store::default(), 0);
    let mut got = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => got.extend_from_slice(&buffer[..read]),
        }
        let (mut whole, mut last) = (0, None);
        while let Some((number, entry)) = first_entry(&got[whole..]) {
            whole += HEAD_BYTES + entry.len();
            last = Some(number);
        }
        let Some(last) = last else { continue };
        if at + whole as u64 > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(&got[..whole], at)?;
        file.sync_data()?;
        at += whole as u64;
        stream.write_all(&last.to_le_bytes())?;
        let mut rest = &got[..whole];
        while let Some((_, entry)) = first_entry(rest) {
            rest = &rest[HEAD_BYTES + entry.len()..];
            let mut requests = entry;
            while let Some((length, more)) = requests.split_first_chunk() {
                let (request, next) = more.split_at(u32::from_le_bytes(*length) as usize);
                store.execute(request);
                requests = next;
            }
        }
        got.drain(..whole);
    }
}

/// The number and the content of the first entry, if it is complete.
fn first_entry(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let entry = rest.get(..u32::from_le_bytes(*length) as usize)?;
    Some((u32::from_le_bytes(*number), entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::{memcached, redis};
    use crate::wire::{Client, free_address};

    #[test]
    fn it_answers_what_the_workloads_ask() {
        let mut store = Store::default();
        for exchange in [redis::set(7), redis::get(7), memcached::set(8), memcached::get(8)] {
            let request = exchange.request.as_bytes();
            assert!(is_whole(request) && !is_whole(&request[..request.len() - 2]));
            let reply = store.execute(request);
            assert!(exchange.complete(&reply).expect("the right one"), "{}", exchange.request);
        }
        assert_eq!(store.execute(b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n"), b"$-1\r\n");
        assert_eq!(store.execute(b"get x\r\n"), b"END\r\n");
        assert!(store.execute(b"*1\r\n$4\r\nQUIT\r\n").starts_with(b"-ERR"));
    }

    #[test]
    fn replies_leave_when_both_copies_have_it() {
        let (listen, copies) = (free_address().expect("a port"), free_address().expect("another"));
        let leader = std::thread::spawn(move || Leader::new(listen, copies)?.serve());
        let files = tempfile::tempdir().expect("a directory");
        let mut stream = std::net::TcpStream::connect(copies);
        let start = Instant::now();
        while stream.is_err() && start.elapsed() < JOIN_MAX {
            std::thread::sleep(Duration::from_millis(1));
            stream = std::net::TcpStream::connect(copies);
        }
        let mut slow = stream.expect("the leader waits for copies");
        let file = files.path().join("copy");
        let other = std::thread::spawn(move || copy(copies, &file));
        let client = || Client::connect(listen, Duration::from_secs(10));
        let mut client = loop {
            match client() {
                Err(_) if start.elapsed() < JOIN_MAX => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                outcome => break outcome.expect("it serves when it has its copies"),
            }
        };
        let set = memcached::set(7);
        let asked = std::thread::spawn(move || client.exchange(&set).map(|()| client));
        let mut head = [0; HEAD_BYTES];
        slow.read_exact(&mut head).expect("an entry");
        let mut entry = vec![0; u32::from_le_bytes(*head.first_chunk().expect("4")) as usize];
        slow.read_exact(&mut entry).expect("all of it");
        assert!(entry.ends_with(memcached::set(7).request.as_bytes()));
        assert!(!asked.is_finished(), "one of two copies has not said that it has it");
        slow.write_all(&head[4..]).expect("the leader listens");
        let mut client = asked.join().expect("no panic").expect("the right reply");
        // The loss of a copy ends the measurement.
        drop(slow);
        assert!(leader.join().expect("no panic").is_err());
        assert!(client.exchange(&memcached::get(7)).is_err());
        other.join().expect("no panic").expect("it ends with its leader");
    }

    #[test]
    fn entries_are_found_one_after_the_other() {
        let bytes = [&[2, 0, 0, 0, 9, 0, 0, 0][..], b"ab", &[1, 0, 0]].concat();
        assert_eq!(first_entry(&bytes), Some((9, &b"ab"[..])));
        assert_eq!(first_entry(&bytes[..9]), None);
        assert_eq!(first_entry(&bytes[10..]), None);
    }
}
