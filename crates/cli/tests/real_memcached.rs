//! memcached from Debian with four worker threads on three replicas: clients' operations work as natively, and the
//! replicas stay identical, although their threads share one table.

mod common;

use std::collections::HashMap;

use common::real::{ANSWER, Random, Real, at_once};
use common::text::Memcached;
use common::wait_for;

const CLIENTS: usize = 32;
const OPERATIONS: usize = 1_500;

fn client(real: &Real) -> Memcached {
    Memcached::connect(real.port(), ANSWER).unwrap()
}

/// Adds one to a number that all clients share, by `cas`, however often another client is faster.
fn add_by_cas(memcached: &mut Memcached, key: &str) {
    loop {
        let item = memcached.get(key).unwrap().expect("the number");
        let number: u64 = String::from_utf8(item.value).unwrap().parse().unwrap();
        let next = (number + 1).to_string();
        let answer = memcached.store("cas", key, next.as_bytes(), 0, Some(item.version)).unwrap();
        match answer.as_str() {
            "STORED" => return,
            "EXISTS" => {}
            _ => panic!("cas answers {answer}"),
        }
    }
}

#[test]
fn mixed_operations_of_thirty_two_clients() {
    let real = Real::memcached(&[]);
    let mut first = client(&real);
    for key in ["all", "agreed"] {
        assert_eq!(first.store("set", key, b"0", 0, None).unwrap(), "STORED");
    }
    let results = at_once(CLIENTS, |me| {
        let mut random = Random::new(me as u64);
        let mut memcached = client(&real);
        let mut model: HashMap<String, Vec<u8>> = HashMap::new();
        let (mut places, mut agreed) = (Vec::new(), 0);
        for number in 0..OPERATIONS {
            let key = format!("{me}:{}", random.below(40));
            let len = if random.below(50) == 0 { 30_000 } else { random.below(200) as usize };
            let value = random.bytes(len);
            let had = model.get(&key).cloned();
            match random.below(40) {
                0..=11 => {
                    assert_eq!(memcached.store("set", &key, &value, 0, None).unwrap(), "STORED");
                    model.insert(key, value);
                }
                12..=23 => {
                    let got = memcached.get(&key).unwrap().map(|item| item.value);
                    assert!(got == had, "client {me}, operation {number}: {key} differs");
                }
                24..=29 => {
                    let answer = memcached.ask(&format!("delete {key}")).unwrap();
                    assert_eq!(answer, if had.is_some() { "DELETED" } else { "NOT_FOUND" });
                    model.remove(&key);
                }
                30..=35 => {
                    let answer = memcached.store("add", &key, &value, 0, None).unwrap();
                    assert_eq!(answer, if had.is_some() { "NOT_STORED" } else { "STORED" });
                    model.entry(key).or_insert(value);
                }
                36..=38 => {
                    places.push(memcached.ask("incr all 1").unwrap().parse::<u64>().unwrap())
                }
                _ => {
                    add_by_cas(&mut memcached, "agreed");
                    agreed += 1;
                }
            }
        }
        (places, agreed)
    });
    let mut places: Vec<u64> = results.iter().flat_map(|(places, _)| places.clone()).collect();
    places.sort_unstable();
    assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>(), "each incr counts once");
    let agreed: u64 = results.iter().map(|(_, agreed)| agreed).sum();
    let item = first.get("agreed").unwrap().unwrap();
    assert_eq!(String::from_utf8(item.value).unwrap(), agreed.to_string());
    assert_eq!(first.ask("decr all 1").unwrap(), (places.len() - 1).to_string());
    real.end();
}

#[test]
fn values_of_a_megabyte() {
    let real = Real::memcached(&[]);
    // The largest item of memcached includes its key and its header.
    const BYTES: usize = (1 << 20) - 1024;
    at_once(4, |me| {
        let mut memcached = client(&real);
        let mut random = Random::new(me as u64);
        for number in 0..5 {
            let key = format!("{me}:{number}");
            let value = random.bytes(BYTES);
            assert_eq!(memcached.store("set", &key, &value, 0, None).unwrap(), "STORED");
            let item = memcached.get(&key).unwrap().expect("what was stored");
            assert_eq!(item.flags, 7);
            assert!(item.value == value, "{key}: another value of {} bytes", item.value.len());
        }
    });
    let mut memcached = client(&real);
    let answer = memcached.store("set", "huge", &vec![b'x'; 2 << 20], 0, None).unwrap();
    assert_eq!(answer, "SERVER_ERROR object too large for cache");
    assert_eq!(memcached.get("huge").unwrap(), None);
    real.continue_a_follower_from_an_image(|| {
        assert_eq!(memcached.store("set", "0:1", b"new", 0, None).unwrap(), "STORED");
    });
    assert_eq!(memcached.get("0:1").unwrap().expect("what was stored").value, b"new");
    real.end();
}

#[test]
fn items_expire() {
    let real = Real::memcached(&[]);
    let mut memcached = client(&real);
    assert_eq!(memcached.store("set", "short", b"x", 1, None).unwrap(), "STORED");
    assert_eq!(memcached.store("set", "long", b"y", 3600, None).unwrap(), "STORED");
    assert_eq!(memcached.ask("touch long 1800").unwrap(), "TOUCHED");
    wait_for("the item to expire", || memcached.get("short").unwrap().is_none().then_some(()));
    assert_eq!(memcached.get("long").unwrap().unwrap().value, b"y");
    assert_eq!(memcached.ask("flush_all").unwrap(), "OK");
    wait_for("all to be gone", || memcached.get("long").unwrap().is_none().then_some(()));
    real.end();
}
