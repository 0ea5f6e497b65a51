//! Connections and datagrams whose other end is outside the server.

use super::*;
use crate::file::ready;
use crate::net::{datagram, inbound, outbound, outside};
use skein_model::limits::{CONSUMED_STEP_BYTES, SEND_WINDOW_BYTES};
use skein_model::{ConnId, SockAddr, Term};

/// A client's address.
fn peer() -> SockAddr {
    SockAddr::v4([10, 0, 0, 9], 4321)
}

fn frames(k: &Fake<'_>) -> Vec<String> {
    k.frames.take()
}

/// A client's connection: its id and the server's descriptor.
fn client(k: &Fake<'_>) -> (ConnId, i32) {
    let listener = socket(k, abi::AF_INET, abi::SOCK_STREAM);
    bind(k, listener, &v4(6000)).unwrap();
    listen(k, listener, 5).unwrap();
    let conn = ConnId::new(Term(1), 7);
    inbound::open(k, conn, peer(), SockAddr::v4([127, 0, 0, 1], 6000));
    let fd = accept(k, listener).unwrap();
    k.close(listener);
    frames(k);
    (conn, fd)
}

#[test]
fn a_listener_is_told_of_and_gets_clients() {
    let k = Fake::new(1);
    let listener = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    bind(&k, listener, &v4(6000)).unwrap();
    assert!(frames(&k).is_empty(), "a port is published when it is listened at");
    listen(&k, listener, 5).unwrap();
    assert!(frames(&k)[0].starts_with("Listen {"));
    let conn = ConnId::new(Term(1), 1);
    inbound::open(&k, conn, peer(), SockAddr::v4([127, 0, 0, 1], 6001));
    assert_eq!(frames(&k), [format!("Abort {{ conn: {conn:?} }}")], "nobody listens there");
    inbound::open(&k, conn, peer(), SockAddr::v4([127, 0, 0, 1], 6000));
    assert_eq!(mask(&k, listener), ready::IN);
    let fd = accept(&k, listener).unwrap();
    let (own, peers) = names(&k, fd);
    assert_eq!((port_of(&own), port_of(&peers.clone().unwrap())), (6000, 4321));
    assert_eq!(peers.unwrap()[4..8], [10, 0, 0, 9]);
    k.close(listener);
    assert!(frames(&k)[0].starts_with("Unlisten {"));
    k.close(fd);
    assert_eq!(frames(&k), [format!("Close {{ conn: {conn:?} }}")]);
    assert_nothing_left(&k);
}

/// As `sockaddr_in6` has it.
fn v6(ip: [u8; 16], port: u16) -> Vec<u8> {
    let family = (abi::AF_INET6 as u16).to_ne_bytes();
    [&family[..], &port.to_be_bytes(), &[0; 4], &ip, &[0; 4]].concat()
}

#[test]
fn a_client_reaches_the_listener_of_its_ip_version() {
    let (any, loopback) = (SockAddr::v6([0; 16], 6000), SockAddr::loopback_v6(6000));
    let mut every = v4(6000);
    every[4..8].fill(0);
    let pairs = [(v4(6000), any), (v4(6000), loopback), (every.clone(), any), (every, loopback)];
    for (at, other) in pairs {
        for first in [abi::AF_INET, abi::AF_INET6] {
            let k = Fake::new(1);
            let made = [first, abi::AF_INET + abi::AF_INET6 - first].map(|family| {
                let fd = socket(&k, family, abi::SOCK_STREAM);
                if family == abi::AF_INET {
                    bind(&k, fd, &at).unwrap();
                } else {
                    let only = (abi::IPPROTO_IPV6, abi::IPV6_V6ONLY);
                    set_option(&k, fd, only, &1i32.to_ne_bytes()).unwrap();
                    bind(&k, fd, &v6(other.ip, 6000)).unwrap();
                }
                listen(&k, fd, 5).unwrap();
                (family, fd)
            });
            inbound::open(&k, ConnId::new(Term(1), 1), peer(), SockAddr::v4([127, 0, 0, 1], 6000));
            for (family, fd) in made {
                let has_it = mask(&k, fd) == ready::IN;
                assert_eq!(
                    has_it,
                    family == abi::AF_INET,
                    "{at:?} beside {other:?}, first {first}"
                );
            }
        }
    }
}

#[test]
fn bytes_of_a_client_are_read_and_give_credit() {
    let k = Fake::new(1);
    let (conn, fd) = client(&k);
    let half = vec![5; CONSUMED_STEP_BYTES / 2];
    for _ in 0..2 {
        assert!(frames(&k).is_empty());
        inbound::data(&k, conn, &half);
        assert_eq!(mask(&k, fd), ready::IN | ready::OUT);
        let most = half.len() - 1;
        assert_eq!(recv(&k, fd, most).map(|bytes| bytes.len()), Ok(most));
    }
    assert_eq!(recv(&k, fd, 1), Ok(vec![5]));
    assert!(frames(&k).is_empty(), "one byte is missing");
    inbound::data(&k, conn, b"ab");
    assert_eq!(recv(&k, fd, 9), Ok(b"\x05ab".to_vec()));
    let credit = format!("Consumed {{ conn: {conn:?}, bytes: {} }}", CONSUMED_STEP_BYTES + 2);
    assert_eq!(frames(&k), [credit]);
    inbound::data(&k, conn, b"c");
    assert_eq!(recv(&k, fd, 9), Ok(b"c".to_vec()));
    assert!(frames(&k).is_empty(), "it was given once");
    inbound::fin(&k, conn);
    assert_eq!(mask(&k, fd), ready::IN | ready::OUT | ready::RDHUP);
    assert_eq!(recv(&k, fd, 9), Ok(Vec::new()));
    assert_eq!(send(&k, fd, b"more"), Ok(4));
    assert_eq!(shutdown(&k, fd, abi::SHUT_WR), Ok(0));
    let sent = frames(&k);
    assert!(sent[0].starts_with("Send {") && sent[1] == format!("Fin {{ conn: {conn:?} }}"));
}

#[test]
fn a_client_that_takes_nothing_stops_the_sender() {
    let k = Fake::new(2);
    let (conn, fd) = client(&k);
    let long = vec![1; SEND_WINDOW_BYTES + 10];
    assert_eq!(try_send(&k, fd, &long), Ok(SEND_WINDOW_BYTES));
    assert_eq!((try_send(&k, fd, b"x"), mask(&k, fd)), (err(abi::EAGAIN), 0));
    inbound::drained(&k, conn, 10);
    assert_eq!(mask(&k, fd), 0, "a third must be free");
    assert_eq!(try_send(&k, fd, &[2; 20]), Ok(10));
    inbound::drained(&k, conn, SEND_WINDOW_BYTES as u64 / 2);
    assert_eq!(mask(&k, fd), ready::OUT);
    // A blocking send is not cut.
    k.then(2, move |k| inbound::drained(k, conn, SEND_WINDOW_BYTES as u64 / 2));
    k.then(2, move |k| inbound::drained(k, conn, SEND_WINDOW_BYTES as u64 / 2));
    assert_eq!(send(&k, fd, &long), Ok(long.len()));
    assert!(k.is_over());
}

#[test]
fn a_client_that_is_gone_is_an_error_once() {
    let k = Fake::new(1);
    let (conn, fd) = client(&k);
    inbound::data(&k, conn, b"last");
    inbound::reset(&k, conn);
    assert_eq!(mask(&k, fd) & (ready::HUP | ready::ERR), ready::HUP | ready::ERR);
    assert_eq!(recv(&k, fd, 9), Ok(b"last".to_vec()));
    assert_eq!(recv(&k, fd, 9), err(abi::ECONNRESET));
    assert_eq!(send(&k, fd, b"x"), err(abi::EPIPE));
    inbound::data(&k, conn, b"of a connection that is not known any more");
    k.close(fd);
    assert!(frames(&k).is_empty(), "the node knows it");
    assert_nothing_left(&k);
}

#[test]
fn a_new_term_ends_connections_of_older_ones() {
    let k = Fake::new(1);
    let (_, fd) = client(&k);
    inbound::term_start(&k, Term(1));
    assert_eq!(recv(&k, fd, 1), err(abi::EAGAIN));
    inbound::term_start(&k, Term(2));
    assert_eq!(recv(&k, fd, 1), err(abi::ECONNRESET));
}

#[test]
fn closing_with_unread_bytes_aborts() {
    let k = Fake::new(1);
    let (conn, fd) = client(&k);
    inbound::data(&k, conn, b"unread");
    k.close(fd);
    assert_eq!(frames(&k), [format!("Abort {{ conn: {conn:?} }}")]);
}

#[test]
fn a_connection_to_another_host_is_asked_for() {
    let k = Fake::new(2);
    let mut addr = v4(80);
    addr[4..8].copy_from_slice(&[192, 0, 2, 1]);
    for refused in [false, true] {
        inbound::term_start(&k, Term(3 + u64::from(refused)));
        frames(&k);
        let fd = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
        let answer = move |k: &Fake<'_>| {
            let asked = frames(k);
            assert!(asked[0].starts_with("Connect {"), "{asked:?}");
            let conn = k.net.external.iter(k).last().expect("a connection").1.conn.get();
            if refused {
                outbound::failed(k, conn, abi::ECONNREFUSED as u16);
            } else {
                outbound::connected(k, conn);
            }
        };
        k.then(2, answer);
        let wanted = if refused { err(abi::ECONNREFUSED) } else { Ok(0) };
        assert_eq!(connect(&k, fd, &addr), wanted);
        assert_eq!(names(&k, fd).1.is_ok(), !refused);
    }
}

#[test]
fn datagrams_leave_and_arrive() {
    let k = Fake::new(1);
    let fd = socket(&k, abi::AF_INET, abi::SOCK_DGRAM);
    bind(&k, fd, &v4(6000)).unwrap();
    assert!(frames(&k)[0].starts_with("ListenDatagram {"));
    outside::arrived(&k, SockAddr::v4([127, 0, 0, 1], 6000), peer(), b"ask");
    let got = receive(&k, fd, [9, 0], 0).unwrap();
    assert_eq!((&got.bytes[..], port_of(&got.from)), (&b"ask"[..], 4321));
    assert_eq!(send_to(&k, fd, b"answer", &got.from), Ok(6));
    assert!(frames(&k)[0].starts_with("Datagram {"));
    // An error that comes back is told to a connected socket alone.
    let local = SockAddr::v4([127, 0, 0, 1], 6000);
    outside::failed(&k, local, peer(), abi::ECONNREFUSED as u16);
    assert_eq!(error(&k, fd), 0);
    connect(&k, fd, &got.from).unwrap();
    outside::failed(&k, local, peer(), abi::ECONNREFUSED as u16);
    assert_eq!(mask(&k, fd), ready::OUT | ready::ERR);
    assert_eq!((send(&k, fd, b"x"), send(&k, fd, b"x")), (err(abi::ECONNREFUSED), Ok(1)));
    assert!(datagram::find(&k, local, peer()).is_some());
    let other = SockAddr { port: 1, ..peer() };
    assert!(datagram::find(&k, local, other).is_none(), "it is connected to another");
    k.close(fd);
    assert!(frames(&k).last().unwrap().starts_with("UnlistenDatagram {"));
}
