//! Rounds of a node's and a server's real work, for counting instructions: `cargo xtask counts`.
//!
//! `node_rounds gateway N`: a turn of the gateway: eight clients have sent a request of 40 bytes, which become one entry; the server's eight
//! replies, in the output ring's form, go to the sockets.
//! `node_rounds admission N`: an entry of eight such requests goes through the input ring: written by the node, taken, checked and read record
//! by record as the runtime does, and admitted by the schedule.
//! `node_rounds schedule N`: the schedule's work for a turn of 64 operations.

use std::cell::RefCell;
use std::hint::black_box;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use skein_arena::{Arena, Sizes};
use skein_model::frame::{FRAME_HEADER_BYTES, entry_frame_bytes, put_entry_frame};
use skein_model::pad8;
use skein_model::{ConnId, EntryBuilder, EntryRef, OutFrame, Record, SockAddr, Term, WallNs};
use skein_replica::gateway::{Gateway, Limits, Socket};
use skein_replica::server::feed::{Feed, Step};
use skein_sched::op::{Kind, Object};
use skein_sched::{Next, Op, Policy, Serial};

const CLIENTS: usize = 8;
const REQUEST: [u8; 40] = [7; 40];
const REPLY: [u8; 5] = *b"+OK\r\n";
const NOW: Duration = Duration::from_secs(1);

/// A socket without a kernel: the number of waiting request bytes and of taken reply bytes.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<(usize, usize)>>);

impl Socket for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        if wire.0 == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let n = wire.0.min(buffer.len());
        buffer[..n].copy_from_slice(&REQUEST[..n]);
        wire.0 -= n;
        Ok(n)
    }
    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let n = slices.iter().map(|slice| slice.len()).sum();
        self.0.borrow_mut().1 += n;
        Ok(n)
    }
    fn shutdown_write(&mut self) {}
    fn reset(&mut self) {}
}

fn gateway(rounds: u32) {
    let mut gateway = Gateway::new(Limits { connections: 100, memory_bytes: 1 << 30 });
    gateway.begin_term(Term(1));
    let at = SockAddr::v4([127, 0, 0, 1], 9);
    let mut entry = EntryBuilder::new(Vec::new());
    let clients: Vec<(ConnId, Wire)> = (0..CLIENTS)
        .map(|_| {
            let wire = Wire::default();
            let id = gateway.open(wire.clone(), at, at, &mut entry).expect("room for it");
            gateway.writable(id, NOW);
            (id, wire)
        })
        .collect();
    let ring = REPLY.repeat(CLIENTS);
    for _ in 0..rounds {
        for (id, wire) in &clients {
            wire.0.borrow_mut().0 = REQUEST.len();
            gateway.readable(*id, false, NOW);
        }
        let mut entry = EntryBuilder::new(Vec::new());
        gateway.collect(&mut entry);
        black_box(entry.finish(WallNs(1), Term(1)));
        for (number, (id, _)) in clients.iter().enumerate() {
            let consumed = OutFrame::Consumed { conn: *id, bytes: REQUEST.len() as u64 };
            gateway.frame(&consumed, 0).expect("within its window");
            let sent = OutFrame::Send { conn: *id, bytes: &REPLY };
            gateway.frame(&sent, number * REPLY.len()).expect("within its window");
        }
        gateway.flush(&ring, NOW).expect("within the windows");
    }
    for (_, wire) in &clients {
        assert_eq!(wire.0.borrow().1, rounds as usize * REPLY.len(), "every reply was written");
    }
}

fn admission(rounds: u32) {
    let fd = memfd_create(c"arena", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
        .expect("a file in memory");
    let arena = Arena::create(fd.as_raw_fd(), Sizes::default()).expect("an arena");
    // SAFETY: no other code uses this arena, and it outlives both ends.
    let ((mut producer, _), (mut consumer, _)) =
        unsafe { (arena.node_ends(), arena.server_ends()) };
    let schedule = Serial::default();
    schedule.start(64, 1_000);
    let mut feed = Feed::default();
    let mut builder = EntryBuilder::new(Vec::new());
    for client in 0..CLIENTS as u32 {
        let conn = ConnId::new(Term(1), client + 1);
        builder.push(Record::Data { conn, bytes: &REQUEST });
    }
    let bytes = builder.finish(WallNs(1), Term(1));
    let framed = entry_frame_bytes(&bytes);
    let mut read = 0;
    for _ in 0..rounds {
        let parsed = EntryRef::parse(&bytes).expect("whole");
        let index = feed.next();
        assert_eq!(feed.step(index, Some(&parsed)), Step::Give);
        let room = producer.reserve(framed).expect("undamaged").expect("room");
        put_entry_frame(room, index, &bytes);
        producer.publish(framed);
        black_box(arena.header().server_gate.open());
        feed.gave(index);

        let ready = consumer.readable().expect("undamaged");
        let len = u32::from_le_bytes(ready[..4].try_into().expect("4 bytes")) as usize;
        let entry = EntryRef::parse(&ready[FRAME_HEADER_BYTES..][..len]).expect("whole");
        for record in entry.records() {
            if let Record::Data { conn, bytes } = record {
                read += black_box((conn, bytes)).1.len();
            }
        }
        schedule.admitted(1, None);
        consumer.release(pad8(FRAME_HEADER_BYTES + len));
    }
    assert_eq!(read, rounds as usize * CLIENTS * REQUEST.len(), "every byte was read");
}

fn schedule(rounds: u32) {
    let schedule = Serial::default();
    schedule.start(64, 1_000);
    let op = Op { thread: 1, object: Object::Clock, kind: Kind::Ask };
    for _ in 0..rounds {
        while black_box(&schedule).operation(op) == Next::Continue {}
        if schedule.end_turn() == Next::Admit {
            schedule.admitted(1, None);
        }
    }
    assert_eq!(schedule.clock(), u64::from(rounds));
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match (words.first().map(String::as_str), words.get(1).and_then(|n| n.parse().ok())) {
        (Some("gateway"), Some(rounds)) => gateway(rounds),
        (Some("admission"), Some(rounds)) => admission(rounds),
        (Some("schedule"), Some(rounds)) => schedule(rounds),
        _ => {
            eprintln!("node_rounds gateway|admission|schedule N");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
