//! The rules of connections that the server begins.

use super::tests::{Bench, Fake, NOW};
use super::{CONNECT_FOR, ConnId, OutFrame, SockAddr, Term};

const TERM: Term = Term(3);

fn own(n: u32) -> ConnId {
    ConnId::outgoing(TERM, n)
}

fn there() -> SockAddr {
    SockAddr::v4([10, 0, 0, 9], 80)
}

impl Bench {
    /// The server begins its `n`th connection; the reactor begins whatever is asked for.
    fn connect(&mut self, n: u32) -> Option<Fake> {
        self.server(OutFrame::Connect { conn: own(n), addr: there() });
        let [(id, to)] = self.gateway.take_wanted()[..] else { return None };
        assert_eq!((id, to), (own(n), there()));
        let fake = Fake::default();
        fake.0.borrow_mut().connecting = Some(0);
        fake.0.borrow_mut().room = usize::MAX;
        self.gateway.begin(id, fake.clone(), NOW);
        Some(fake)
    }

    fn end(&mut self, n: u32, fake: &Fake, errno: Option<i32>) {
        fake.0.borrow_mut().connecting = errno;
        self.gateway.writable(own(n), NOW);
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_connection_is_told_before_its_data_and_then_like_any_other() {
    let mut b = Bench::new(10, 1 << 30);
    let fake = b.connect(1).expect("begun");
    // Neither an empty wake-up nor early data are reported.
    b.end(1, &fake, Some(0));
    b.say(own(1), &fake, b"banner");
    assert_eq!(b.turn(), nothing());
    b.end(1, &fake, None);
    b.end(1, &fake, None);
    assert!(b.gateway.has_input());
    assert_eq!(b.turn(), ["connected 1", "data 1 6"]);
    b.send(own(1), &[b"request"]).unwrap();
    assert_eq!(fake.0.borrow().to_client, b"request");
    b.server(OutFrame::Fin { conn: own(1) });
    assert!(fake.0.borrow().shut, "half closed");
    b.say(own(1), &fake, b"answer");
    fake.0.borrow_mut().closed = true;
    b.gateway.readable(own(1), true, NOW);
    assert_eq!(b.turn(), ["data 1 6", "fin 1"]);
    b.server(OutFrame::Close { conn: own(1) });
    assert_eq!((b.gateway.connections(), b.gateway.held_bytes()), (0, 0));
}

#[test]
fn a_failure_is_told_with_its_reason() {
    let mut b = Bench::new(10, 1 << 30);
    let fake = b.connect(1).expect("begun");
    b.end(1, &fake, Some(libc::ECONNREFUSED));
    b.server(OutFrame::Connect { conn: own(2), addr: there() });
    assert_eq!(b.gateway.take_wanted().len(), 1);
    b.gateway.fail(own(2), libc::ENETUNREACH);
    assert_eq!(b.turn(), ["failed 1 111", "failed 2 101"]);
    assert_eq!((b.turn(), b.gateway.connections()), (nothing(), 0));
}

#[test]
fn one_that_takes_too_long_has_timed_out() {
    let mut b = Bench::new(10, 1 << 30);
    let (one, _two) = (b.connect(1).expect("begun"), b.connect(2).expect("begun"));
    assert_eq!(b.gateway.expire(NOW), Some(NOW + CONNECT_FOR));
    b.end(1, &one, None);
    // The first is there and has no deadline any more.
    assert_eq!(b.gateway.expire(NOW + CONNECT_FOR), None);
    assert_eq!(b.turn(), ["connected 1", "failed 2 110"]);
}

#[test]
fn each_is_begun_once_in_its_own_term_and_by_a_leader() {
    let mut b = Bench::new(10, 1 << 30);
    assert!(b.connect(1).is_some());
    // The server was rebuilt from the log and begins them again.
    b.gateway.reset_all_in_order();
    assert_eq!(b.turn(), ["reset 1"]);
    assert!(b.connect(1).is_none(), "begun before");
    assert!(b.connect(2).is_some(), "what the former server had not come to");
    for term in [TERM.0 - 1, TERM.0 + 1] {
        let conn = ConnId::outgoing(Term(term), 9);
        b.server(OutFrame::Connect { conn, addr: there() });
        assert!(b.gateway.take_wanted().is_empty(), "of term {term}");
    }
    // No longer a leader: connections that it still executes of its own term belonged to its time as a leader.
    b.gateway.reset_all();
    assert!(b.connect(3).is_none());
    b.gateway.begin_term(Term(4));
    assert!(b.connect(4).is_none(), "of term 3");
    b.server(OutFrame::Connect { conn: ConnId::outgoing(Term(4), 1), addr: there() });
    assert_eq!(b.gateway.take_wanted().len(), 1);
}

#[test]
fn what_the_server_gives_up_is_not_told() {
    let mut b = Bench::new(10, 1 << 30);
    // While it is being made, when it is established but not reported, and when it has failed but that is not reported.
    let fakes: Vec<_> = (1..=3).map(|n| b.connect(n).expect("begun")).collect();
    b.end(2, &fakes[1], None);
    b.end(3, &fakes[2], Some(libc::ECONNREFUSED));
    for n in 1..=3 {
        b.server(OutFrame::Close { conn: own(n) });
    }
    // Before the reactor came to it.
    b.server(OutFrame::Connect { conn: own(4), addr: there() });
    b.server(OutFrame::Abort { conn: own(4) });
    assert!(b.gateway.take_wanted().is_empty());
    assert_eq!((b.turn(), b.gateway.connections()), (nothing(), 0));
    assert!(fakes[0].0.borrow().reset && fakes[1].0.borrow().reset);
}

#[test]
fn a_server_that_sends_before_it_is_connected_is_caught() {
    let mut b = Bench::new(10, 1 << 30);
    b.connect(1).expect("begun");
    assert!(b.send(own(1), &[b"x"]).is_err());
    assert!(b.gateway.frame(&OutFrame::Fin { conn: own(1) }, 0).is_err());
}

#[test]
fn connections_are_bounded_together_with_the_clients() {
    let mut b = Bench::new(1, 1 << 30);
    let (_client, _fake) = b.open();
    b.connect(1).expect("asked for");
    assert_eq!(b.turn(), [format!("failed 1 {}", libc::EADDRNOTAVAIL)]);
}

#[test]
fn a_leader_that_steps_down_tells_nothing() {
    let mut b = Bench::new(10, 1 << 30);
    let fake = b.connect(1).expect("begun");
    b.end(1, &fake, None);
    b.connect(2).expect("begun");
    b.gateway.reset_all();
    assert!(fake.0.borrow().reset && !b.gateway.has_input());
    assert_eq!(b.gateway.expire(NOW + CONNECT_FOR), None);
}
