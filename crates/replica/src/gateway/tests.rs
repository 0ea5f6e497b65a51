//! The gateway's rules, with sockets made of two byte queues.

use super::*;
use skein_model::limits::{CONSUMED_STEP_BYTES, DRAINED_STEP_BYTES, RECV_WINDOW_BYTES};
use skein_model::{EntryRef, WallNs};
use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;

#[derive(Debug, Default)]
pub(super) struct Wire {
    pub to_server: VecDeque<u8>,
    pub closed: bool,
    pub broken: bool,
    pub to_client: Vec<u8>,
    pub room: usize,
    /// Not connected yet, or the reason why it cannot be.
    pub connecting: Option<i32>,
    pub shut: bool,
    pub reset: bool,
    writes: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Fake(pub Rc<RefCell<Wire>>);

impl Socket for Fake {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut w = self.0.borrow_mut();
        if w.broken {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if w.to_server.is_empty() {
            return if w.closed { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let n = buffer.len().min(w.to_server.len());
        for byte in &mut buffer[..n] {
            *byte = w.to_server.pop_front().unwrap();
        }
        Ok(n)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut w = self.0.borrow_mut();
        w.writes += 1;
        if w.broken {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let mut done = 0;
        for slice in slices {
            let n = slice.len().min(w.room);
            w.room -= n;
            w.to_client.extend_from_slice(&slice[..n]);
            done += n;
        }
        if done == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(done) }
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        match self.0.borrow().connecting {
            None => Some(Ok(())),
            Some(0) => None,
            Some(errno) => Some(Err(io::Error::from_raw_os_error(errno))),
        }
    }

    fn shutdown_write(&mut self) {
        self.0.borrow_mut().shut = true;
    }

    fn reset(&mut self) {
        self.0.borrow_mut().reset = true;
    }
}

pub(super) const NOW: Duration = Duration::from_secs(1);

pub(super) struct Bench {
    pub gateway: Gateway<Fake>,
}

impl Bench {
    pub fn new(connections: usize, memory_bytes: usize) -> Self {
        let mut gateway = Gateway::new(Limits { connections, memory_bytes });
        gateway.begin_term(Term(3));
        Self { gateway }
    }

    pub fn open(&mut self) -> (ConnId, Fake) {
        let fake = Fake::default();
        fake.0.borrow_mut().room = usize::MAX;
        let addr = SockAddr::v4([127, 0, 0, 1], 9);
        let mut entry = EntryBuilder::new(Vec::new());
        let id = self.gateway.open(fake.clone(), addr, addr, &mut entry).unwrap();
        (id, fake)
    }

    pub fn say(&mut self, id: ConnId, fake: &Fake, bytes: &[u8]) {
        fake.0.borrow_mut().to_server.extend(bytes);
        self.gateway.readable(id, false, NOW);
    }

    pub fn turn(&mut self) -> Vec<String> {
        let mut entry = EntryBuilder::new(Vec::new());
        self.gateway.collect(&mut entry);
        let bytes = entry.finish(WallNs(1), Term(3));
        let parsed = EntryRef::parse(&bytes).unwrap();
        parsed
            .records()
            .map(|r| match r {
                Record::Data { conn, bytes } => {
                    format!("data {} {}", conn.0 as u32 & !ConnId::OUTGOING, bytes.len())
                }
                Record::Connected { conn } => {
                    format!("connected {}", conn.0 as u32 & !ConnId::OUTGOING)
                }
                Record::ConnectFailed { conn, errno } => {
                    format!("failed {} {errno}", conn.0 as u32 & !ConnId::OUTGOING)
                }
                Record::Fin { conn } => format!("fin {}", conn.0 as u32 & !ConnId::OUTGOING),
                Record::Reset { conn } => format!("reset {}", conn.0 as u32 & !ConnId::OUTGOING),
                Record::Drained { conn, bytes } => format!("drained {} {bytes}", conn.0 as u32),
                other => format!("{other:?}"),
            })
            .collect()
    }

    pub fn send(&mut self, id: ConnId, pieces: &[&[u8]]) -> Result<(), WindowExceeded> {
        let mut ring = Vec::new();
        for bytes in pieces {
            ring.extend_from_slice(&[0; 16]);
            let at = ring.len();
            ring.extend_from_slice(bytes);
            self.gateway.frame(&OutFrame::Send { conn: id, bytes }, at)?;
        }
        self.gateway.flush(&ring, NOW)
    }

    pub fn server(&mut self, frame: OutFrame<'_>) {
        self.gateway.frame(&frame, 0).unwrap();
        self.gateway.flush(&[], NOW).unwrap();
    }
}

#[test]
fn what_clients_say_becomes_one_entry_and_the_start_rotates() {
    let mut b = Bench::new(10, 1 << 30);
    let clients: Vec<_> = (0..3).map(|_| b.open()).collect();
    for (id, fake) in &clients {
        b.say(*id, fake, b"hello");
    }
    assert_eq!(b.turn(), ["data 1 5", "data 2 5", "data 3 5"]);
    assert!(!b.gateway.has_input());
    // Three clients with a megabyte each: an entry takes a fair share of each, and those that did not fit come first next time.
    for (id, fake) in &clients {
        b.say(*id, fake, &vec![7; 900_000]);
    }
    let mut got = [0; 4];
    let mut turns = 0;
    while b.gateway.has_input() {
        turns += 1;
        let mut here = [0; 4];
        for line in b.turn() {
            let mut words = line.split(' ').skip(1).map(|w| w.parse::<usize>().unwrap());
            let (client, bytes) = (words.next().unwrap(), words.next().unwrap());
            here[client] += bytes;
        }
        (0..4).for_each(|i| got[i] += here[i]);
        assert!(
            here.iter().all(|n| *n <= 256 << 10),
            "nobody gets more than a fair share: {here:?}"
        );
    }
    assert_eq!(got[1..], [900_000; 3]);
    assert!(turns >= 3, "{turns}");
}

#[test]
fn nothing_is_read_beyond_the_window_and_credit_comes_back() {
    let mut b = Bench::new(10, 1 << 30);
    let (id, fake) = b.open();
    b.say(id, &fake, &vec![1; RECV_WINDOW_BYTES + 100]);
    while b.gateway.has_input() {
        b.turn();
    }
    assert_eq!(fake.0.borrow().to_server.len(), 100, "the rest stays in the kernel");
    b.server(OutFrame::Consumed { conn: id, bytes: CONSUMED_STEP_BYTES as u64 });
    assert_eq!(b.turn(), ["data 1 100"]);
    let too_much = OutFrame::Consumed { conn: id, bytes: RECV_WINDOW_BYTES as u64 };
    assert_eq!(b.gateway.frame(&too_much, 0), Err(WindowExceeded(id)), "credit from nowhere");
}

#[test]
fn an_end_follows_its_data_and_a_break_is_a_reset() {
    let mut b = Bench::new(10, 1 << 30);
    let (one, first) = b.open();
    let (two, second) = b.open();
    first.0.borrow_mut().closed = true;
    first.0.borrow_mut().to_server.extend(b"bye");
    b.gateway.readable(one, true, NOW);
    second.0.borrow_mut().broken = true;
    b.gateway.readable(two, true, NOW);
    assert_eq!(b.turn(), ["data 1 3", "fin 1", "reset 2"]);
    // Half closed: the server still answers.
    b.send(one, &[b"answer"]).unwrap();
    assert_eq!(first.0.borrow().to_client, b"answer");
    b.server(OutFrame::Close { conn: one });
    assert!(first.0.borrow().shut);
    assert_eq!(b.gateway.connections(), 0);
    // Frames for connections that are gone are normal.
    b.send(two, &[b"late"]).unwrap();
    assert!(second.0.borrow().to_client.is_empty());
}

#[test]
fn pieces_of_a_pass_are_one_write_and_a_slow_reader_queues() {
    let mut b = Bench::new(10, 1 << 30);
    let (id, fake) = b.open();
    b.send(id, &[b"one ", b"two ", b"three"]).unwrap();
    assert_eq!(
        (fake.0.borrow().writes, fake.0.borrow().to_client.clone()),
        (1, b"one two three".to_vec())
    );
    fake.0.borrow_mut().room = 6;
    b.send(id, &[b"abcd", b"efgh", b"ijkl"]).unwrap();
    b.send(id, &[b"mnop"]).unwrap();
    assert_eq!(fake.0.borrow().to_client, b"one two threeabcdef");
    b.server(OutFrame::Fin { conn: id });
    assert!(!fake.0.borrow().shut, "the queue goes first");
    fake.0.borrow_mut().room = usize::MAX;
    b.gateway.writable(id, NOW);
    assert_eq!(fake.0.borrow().to_client, b"one two threeabcdefghijklmnop");
    assert!(fake.0.borrow().shut);
    assert_eq!(b.gateway.held_bytes(), 0);
}

#[test]
fn drained_bytes_are_proposed_in_steps() {
    let mut b = Bench::new(10, 1 << 30);
    let (id, _fake) = b.open();
    let piece = vec![3; 60 << 10];
    b.send(id, &[&piece, &piece]).unwrap();
    assert_eq!(b.turn(), Vec::<String>::new());
    b.send(id, &[&piece]).unwrap();
    assert_eq!(b.turn(), [format!("drained 1 {}", 3 * piece.len())]);
    assert!(3 * piece.len() >= DRAINED_STEP_BYTES);
    assert!(!b.gateway.has_input());
}

#[test]
fn a_server_that_overruns_its_send_buffer_is_caught() {
    let mut b = Bench::new(10, 1 << 30);
    let (id, fake) = b.open();
    fake.0.borrow_mut().room = 0;
    let piece = vec![0; 64 << 10];
    let results: Vec<_> = (0..20).map(|_| b.send(id, &[&piece])).collect();
    assert!(results[..8].iter().all(Result::is_ok), "the window is 512 KiB");
    assert_eq!(results[19], Err(WindowExceeded(id)));
}

#[test]
fn a_closed_connection_delivers_then_waits_for_the_client_within_bounds() {
    let mut b = Bench::new(10, 1 << 30);
    let (id, fake) = b.open();
    fake.0.borrow_mut().room = 2;
    b.send(id, &[b"data"]).unwrap();
    b.server(OutFrame::Close { conn: id });
    assert_eq!((b.gateway.connections(), fake.0.borrow().shut), (1, false));
    fake.0.borrow_mut().room = 100;
    b.gateway.writable(id, NOW);
    assert_eq!((fake.0.borrow().to_client.clone(), fake.0.borrow().shut), (b"data".to_vec(), true));
    // The client keeps sending: dropped, not proposed.
    b.say(id, &fake, b"more");
    assert_eq!(b.turn(), Vec::<String>::new());
    assert!(fake.0.borrow().to_server.is_empty());
    let next = b.gateway.expire(NOW).expect("a deadline");
    assert_eq!(b.gateway.connections(), 1);
    assert_eq!(b.gateway.expire(next), None);
    assert_eq!(b.gateway.connections(), 0);
}

#[test]
fn limits_turn_clients_away() {
    let mut b = Bench::new(1, 600 << 10);
    let (id, fake) = b.open();
    let late = Fake::default();
    let addr = SockAddr::v4([1, 2, 3, 4], 5);
    let mut entry = EntryBuilder::new(Vec::new());
    let refused = b.gateway.open(late.clone(), addr, addr, &mut entry);
    assert_eq!(
        (refused, entry.records(), late.0.borrow().reset),
        (Err(Refusal::Connections(1)), 0, true)
    );
    // A client that sends far more than the server takes is cut when too much is held in all.
    b.say(id, &fake, &vec![0; RECV_WINDOW_BYTES]);
    let mut lines = Vec::new();
    while b.gateway.has_input() {
        lines.extend(b.turn());
    }
    assert_eq!(lines.last().map(String::as_str), Some("reset 1"));
    assert!(fake.0.borrow().reset);
    assert_eq!(
        (b.gateway.cut_connections(), b.gateway.held_bytes(), b.gateway.connections()),
        (1, 0, 0)
    );
}

#[test]
fn stepping_down_resets_everybody_and_proposes_nothing() {
    let mut b = Bench::new(10, 1 << 30);
    let (id, fake) = b.open();
    b.say(id, &fake, b"x");
    b.gateway.reset_all();
    assert!(fake.0.borrow().reset && !b.gateway.has_input());
    b.gateway.begin_term(Term(4));
    assert_eq!(b.open().0, ConnId::new(Term(4), 1));
}

#[test]
fn an_aborted_connection_is_reset_at_once() {
    let mut b = Bench::new(10, 1 << 30);
    let (id, fake) = b.open();
    fake.0.borrow_mut().room = 0;
    b.send(id, &[b"never seen"]).unwrap();
    b.server(OutFrame::Abort { conn: id });
    assert!(fake.0.borrow().reset);
    assert_eq!((b.gateway.connections(), b.gateway.held_bytes()), (0, 0));
}

#[test]
fn who_was_answered_is_awaited_until_it_says_more_or_is_gone() {
    let mut b = Bench::new(10, 1 << 30);
    let clients: Vec<_> = (0..5).map(|_| b.open()).collect();
    assert_eq!(b.gateway.awaited(), 0, "nobody was answered");
    for (id, _) in &clients {
        b.send(*id, &[b"two ", b"pieces"]).unwrap();
        b.send(*id, &[b"and a third"]).unwrap();
    }
    assert_eq!((b.gateway.awaited(), b.gateway.ready()), (5, 0));
    let [(first, fake), (second, _), (third, _), ..] = &clients[..] else { unreachable!() };
    b.say(*first, fake, b"more");
    b.say(*first, fake, b"and more");
    assert_eq!((b.gateway.awaited(), b.gateway.ready()), (4, 1));
    b.send(*first, &[b"pipelined"]).unwrap();
    assert_eq!(b.gateway.awaited(), 4, "it has said more already");
    b.server(OutFrame::Close { conn: *second });
    b.server(OutFrame::Abort { conn: *third });
    assert_eq!(b.gateway.awaited(), 2);
    b.turn();
    b.send(*first, &[b"answered"]).unwrap();
    assert_eq!((b.gateway.awaited(), b.gateway.ready()), (3, 0), "two are of the round before");
    b.say(clients[3].0, &clients[3].1, b"late");
    assert_eq!((b.gateway.awaited(), b.gateway.ready()), (2, 1));
    b.turn();
    b.turn();
    assert_eq!(b.gateway.awaited(), 0, "they have had their time");
    b.gateway.reset_all();
    assert_eq!(b.gateway.awaited(), 0);
}

#[test]
fn the_slowest_reader_is_cut_when_too_much_waits() {
    let mut b = Bench::new(10, 100 << 10);
    let clients: Vec<_> = (0..3).map(|_| b.open()).collect();
    clients.iter().for_each(|(_, fake)| fake.0.borrow_mut().room = 0);
    for ((id, _), kib) in clients.iter().zip([40, 50, 20]) {
        b.send(*id, &[&vec![0; kib << 10]]).unwrap();
    }
    let reset: Vec<bool> = clients.iter().map(|(_, fake)| fake.0.borrow().reset).collect();
    assert_eq!(reset, [false, true, false]);
    assert_eq!(b.gateway.held_bytes(), 60 << 10);
    assert_eq!((b.gateway.take_cut().len(), b.gateway.cut_connections()), (1, 1));
    assert_eq!(b.turn(), ["reset 2"]);
}

#[test]
fn a_connection_that_the_server_closed_gives_way_to_a_new_one() {
    let mut b = Bench::new(1, 1 << 30);
    for _ in 0..3 {
        let (id, fake) = b.open();
        b.send(id, &[b"bye"]).unwrap();
        b.server(OutFrame::Close { conn: id });
        assert!(fake.0.borrow().shut);
        assert_eq!(b.gateway.connections(), 1, "its client has not closed yet");
    }
    let _live = b.open();
    let late = Fake::default();
    let addr = SockAddr::v4([1, 2, 3, 4], 5);
    let mut entry = EntryBuilder::new(Vec::new());
    assert!(b.gateway.open(late, addr, addr, &mut entry).is_err());
    assert_eq!(b.gateway.expire(NOW + Duration::from_secs(60)), None, "nothing is left to look at");
}
