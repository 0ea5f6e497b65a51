//! The gateway against a model: for all actions of clients, kernel and server, bytes arrive whole and in order, windows hold, and
//! every count is exact.

use super::tests::{Fake, NOW};
use super::{Gateway, Limits, WindowExceeded};
use proptest::prelude::*;
use skein_model::limits::{CONSUMED_STEP_BYTES, RECV_WINDOW_BYTES, SEND_WINDOW_BYTES};
use skein_model::{ConnId, EntryBuilder, EntryRef, OutFrame, Record, SockAddr, Term, WallNs};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Act {
    Open,
    /// A client sends so many bytes.
    Say(usize, usize),
    /// A client shuts its sending side.
    End(usize),
    /// A client's connection breaks.
    Break(usize),
    /// A client takes so many bytes.
    Take(usize, usize),
    /// The server writes so many bytes, as far as its window allows, in pieces.
    Write(usize, usize),
    /// The server consumes all its input.
    Consume(usize),
    /// The server closes.
    Close(usize),
    Abort(usize),
    Turn,
}

fn act() -> impl Strategy<Value = Act> {
    let conn = 0usize..4;
    let bytes = prop_oneof![1usize..100, 1usize..300_000, Just(RECV_WINDOW_BYTES)];
    prop_oneof![
        2 => Just(Act::Open),
        6 => (conn.clone(), bytes.clone()).prop_map(|(c, n)| Act::Say(c, n)),
        1 => conn.clone().prop_map(Act::End),
        1 => conn.clone().prop_map(Act::Break),
        6 => (conn.clone(), bytes.clone()).prop_map(|(c, n)| Act::Take(c, n)),
        6 => (conn.clone(), bytes).prop_map(|(c, n)| Act::Write(c, n)),
        4 => conn.clone().prop_map(Act::Consume),
        1 => conn.clone().prop_map(Act::Close),
        1 => conn.prop_map(Act::Abort),
        6 => Just(Act::Turn),
    ]
}

/// One connection as the server and the client know it.
#[derive(Default)]
struct Side {
    fake: Fake,
    said: u64,
    heard: u64,
    unconsumed: usize,
    wrote: u64,
    drained: u64,
    client_ended: bool,
    fin_seen: bool,
    broken: bool,
    /// No record of it may follow.
    over: bool,
}

struct World {
    gateway: Gateway<Fake>,
    sides: BTreeMap<ConnId, Side>,
}

fn pattern(at: u64) -> u8 {
    (at % 251) as u8
}

impl World {
    fn pick(&self, n: usize) -> Option<ConnId> {
        let live: Vec<_> = self.sides.iter().filter(|(_, s)| !s.over).map(|(id, _)| *id).collect();
        (!live.is_empty()).then(|| live[n % live.len()])
    }

    fn turn(&mut self) {
        let mut entry = EntryBuilder::new(Vec::new());
        self.gateway.collect(&mut entry);
        let bytes = entry.finish(WallNs(1), Term(1));
        for record in EntryRef::parse(&bytes).expect("an entry").records() {
            match record {
                Record::Data { conn, bytes } => {
                    let side = self.sides.get_mut(&conn).expect("known");
                    assert!(!side.over && !side.fin_seen);
                    assert!(bytes.iter().zip(side.heard..).all(|(b, at)| *b == pattern(at)));
                    side.heard += bytes.len() as u64;
                    side.unconsumed += bytes.len();
                    assert!(side.unconsumed <= RECV_WINDOW_BYTES, "the receive window");
                }
                Record::Fin { conn } => {
                    let side = self.sides.get_mut(&conn).expect("known");
                    assert!(!side.over && side.client_ended && !side.fin_seen);
                    assert_eq!(side.heard, side.said, "an end comes after all data");
                    side.fin_seen = true;
                }
                Record::Reset { conn } => {
                    let side = self.sides.get_mut(&conn).expect("known");
                    // The server may have closed it meanwhile.
                    assert!(side.broken, "only who broke is reset");
                    side.over = true;
                }
                Record::Drained { conn, bytes } => {
                    let side = self.sides.get_mut(&conn).expect("known");
                    assert!(!side.over);
                    side.drained += bytes;
                    assert!(side.drained <= side.fake.0.borrow().to_client.len() as u64);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn act(&mut self, act: &Act) -> Result<(), WindowExceeded> {
        let number = |n: &usize| *n;
        match act {
            Act::Open => {
                let fake = Fake::default();
                let mut entry = EntryBuilder::new(Vec::new());
                let at = SockAddr::v4([127, 0, 0, 1], 1);
                if let Ok(id) = self.gateway.open(fake.clone(), at, at, &mut entry) {
                    self.sides.insert(id, Side { fake, ..Side::default() });
                }
            }
            Act::Turn => {
                self.turn();
            }
            Act::Say(n, bytes) => {
                let Some(id) = self.pick(*n) else { return Ok(()) };
                let side = self.sides.get_mut(&id).expect("picked");
                if side.client_ended || side.broken {
                    return Ok(());
                }
                let new = side.said..side.said + number(bytes) as u64;
                side.said = new.end;
                side.fake.0.borrow_mut().to_server.extend(new.map(pattern));
                self.gateway.readable(id, false, NOW);
            }
            Act::End(n) => {
                let Some(id) = self.pick(*n) else { return Ok(()) };
                let side = self.sides.get_mut(&id).expect("picked");
                side.client_ended = true;
                side.fake.0.borrow_mut().closed = true;
                self.gateway.readable(id, true, NOW);
            }
            Act::Break(n) => {
                let Some(id) = self.pick(*n) else { return Ok(()) };
                let side = self.sides.get_mut(&id).expect("picked");
                side.broken = true;
                side.fake.0.borrow_mut().broken = true;
                self.gateway.readable(id, true, NOW);
            }
            Act::Take(n, bytes) => {
                let Some(id) = self.pick(*n) else { return Ok(()) };
                self.sides[&id].fake.0.borrow_mut().room += bytes;
                self.gateway.writable(id, NOW);
            }
            Act::Write(n, bytes) => {
                let Some(id) = self.pick(*n) else { return Ok(()) };
                let side = self.sides.get_mut(&id).expect("picked");
                let window = SEND_WINDOW_BYTES as u64 - (side.wrote - side.drained);
                let n = (*bytes as u64).min(window);
                let new = side.wrote..side.wrote + n;
                side.wrote = new.end;
                let mut ring = Vec::new();
                for piece in new.map(pattern).collect::<Vec<_>>().chunks(64 << 10) {
                    ring.extend_from_slice(&[0; 16]);
                    let at = ring.len();
                    ring.extend_from_slice(piece);
                    self.gateway.frame(&OutFrame::Send { conn: id, bytes: piece }, at)?;
                }
                self.gateway.flush(&ring, NOW)?;
            }
            Act::Consume(n) => {
                let Some(id) = self.pick(*n) else { return Ok(()) };
                let side = self.sides.get_mut(&id).expect("picked");
                if side.unconsumed >= CONSUMED_STEP_BYTES {
                    let bytes = std::mem::take(&mut side.unconsumed) as u64;
                    self.gateway.frame(&OutFrame::Consumed { conn: id, bytes }, 0)?;
                }
            }
            Act::Close(n) | Act::Abort(n) => {
                let Some(id) = self.pick(*n) else { return Ok(()) };
                self.sides.get_mut(&id).expect("picked").over = true;
                let frame = match act {
                    Act::Close(_) => OutFrame::Close { conn: id },
                    _ => OutFrame::Abort { conn: id },
                };
                self.gateway.frame(&frame, 0)?;
                self.gateway.flush(&[], NOW)?;
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn bytes_arrive_whole_and_windows_hold(acts in proptest::collection::vec(act(), 1..120)) {
        let mut gateway = Gateway::new(Limits { connections: 8, memory_bytes: usize::MAX });
        gateway.begin_term(Term(1));
        let mut world = World { gateway, sides: BTreeMap::new() };
        for act in &acts {
            world.act(act).expect("a server that keeps the rules is never blamed");
            let gateway = &world.gateway;
            let awaited = gateway.conns.values().filter(|c| gateway.crowd.awaits(c.turn)).count();
            prop_assert_eq!(gateway.awaited(), awaited);
        }
        // Let everything flow: all sent bytes are received on both sides.
        for _ in 0..64 {
            let ids: Vec<_> = world.sides.keys().copied().collect();
            for id in &ids {
                world.sides[id].fake.0.borrow_mut().room = usize::MAX;
                world.gateway.writable(*id, NOW);
                if !world.sides[id].over {
                    let unconsumed = std::mem::take(&mut world.sides.get_mut(id).expect("known").unconsumed) as u64;
                    if unconsumed > 0 {
                        world.gateway.frame(&OutFrame::Consumed { conn: *id, bytes: unconsumed }, 0).expect("the rules");
                    }
                }
            }
            world.turn();
        }
        for side in world.sides.values() {
            let wire = side.fake.0.borrow();
            let got = &wire.to_client;
            prop_assert!(got.iter().zip(0..).all(|(b, at)| *b == pattern(at)));
            if !side.over && !side.broken {
                prop_assert_eq!(side.heard, side.said);
                prop_assert_eq!(side.fin_seen, side.client_ended);
                prop_assert_eq!(got.len() as u64, side.wrote);
            }
        }
        prop_assert!(!world.gateway.has_input());
        world.gateway.reset_all();
        prop_assert_eq!(world.gateway.held_bytes(), 0);
    }
}
