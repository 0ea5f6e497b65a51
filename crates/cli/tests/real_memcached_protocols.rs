//! memcached from Debian with four worker threads on three replicas: both of its protocols at once while the leader dies.

mod common;

use common::binary::{Binary, Verb};
use common::real::{ANSWER, Real, at_once};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load};
use common::text::Memcached;
use common::wait_for;

const CLIENTS: usize = 16;
/// Writes before and after the leader's death.
const WRITES: u64 = 2_000;

/// A connection of either protocol.
enum Client {
    Text(Memcached),
    Binary(Binary),
}

#[test]
fn both_protocols_write_while_the_leader_dies() {
    let real = Real::memcached(&[]);
    let port = real.port();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let connect = || {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(match number % 2 {
            0 => Client::Text(Memcached::connect(port, PATIENCE_OF_A_CLIENT)?),
            _ => Client::Binary(Binary::connect(port, PATIENCE_OF_A_CLIENT)?),
        })
    };
    let ask = |client: &mut Client, word: &str| {
        match client {
            Client::Text(text) => {
                assert_eq!(text.store("set", word, word.as_bytes(), 0, None)?, "STORED");
                assert_eq!(text.get(word)?.map(|item| item.value), Some(word.into()));
            }
            Client::Binary(binary) => {
                assert_eq!(binary.ask(Verb::Set, word, word.as_bytes(), 0)?.status, 0);
                let answer = binary.ask(Verb::Get, word, &[], 0)?;
                assert_eq!(answer.value, word.as_bytes());
            }
        }
        Ok(())
    };
    let books = leader_dies_under_load(&real, CLIENTS, WRITES, connect, ask);
    let mut text = wait_for("a connection", || Memcached::connect(port, ANSWER).ok());
    for word in &books.kept {
        let found = text.get(word).unwrap().map(|item| item.value);
        assert_eq!(found, Some(word.clone().into()), "{word} was acknowledged");
    }
    real.end();
}

#[test]
fn the_binary_protocol_counts_and_compares() {
    let real = Real::memcached(&[]);
    let rounds = 200;
    let mut places = at_once(CLIENTS, |me| {
        let mut binary = Binary::connect(real.port(), ANSWER).unwrap();
        let mut places = Vec::new();
        let own = format!("own{me}");
        assert_eq!(binary.ask(Verb::Get, &own, &[], 0).unwrap().status, 1);
        assert_eq!(binary.ask(Verb::Append, &own, b"x", 0).unwrap().status, 5);
        assert_eq!(binary.ask(Verb::Add, &own, b"", 0).unwrap().status, 0);
        assert_eq!(binary.ask(Verb::Add, &own, b"", 0).unwrap().status, 2);
        for round in 0..rounds {
            let count = binary.ask(Verb::Increment, "all", &[], 0).unwrap();
            places.push(u64::from_be_bytes(count.value[..8].try_into().unwrap()));
            let version = binary.ask(Verb::Get, &own, &[], 0).unwrap().cas;
            let value = format!("{round}");
            assert_eq!(binary.ask(Verb::Set, &own, value.as_bytes(), version).unwrap().status, 0);
            // The outdated version.
            assert_eq!(binary.ask(Verb::Set, &own, b"never", version).unwrap().status, 2);
        }
        assert_eq!(binary.ask(Verb::Delete, &own, &[], 0).unwrap().status, 0);
        assert_eq!(binary.ask(Verb::Version, "", &[], 0).unwrap().status, 0);
        places
    })
    .concat();
    places.sort_unstable();
    assert_eq!(places, (1..=(CLIENTS * rounds) as u64).collect::<Vec<_>>(), "each counts once");
    real.end();
}
