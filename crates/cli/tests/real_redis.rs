//! redis-server from Debian on three replicas: clients' operations work as natively, and the replicas stay identical.

mod common;

use std::collections::HashMap;

use common::real::{ANSWER, Random, Real, at_once};
use common::resp::{Redis, Reply};
use common::wait_for;

const CLIENTS: usize = 50;
const OPERATIONS: usize = 100_000;
const IDLE: usize = 1_000;

fn client(real: &Real) -> Redis {
    Redis::connect(real.port(), ANSWER).unwrap()
}

/// The expected content of a client's own keys: no other client touches them.
#[derive(Default)]
struct Model {
    strings: HashMap<String, Vec<u8>>,
    numbers: HashMap<String, i64>,
    lists: HashMap<String, Vec<Vec<u8>>>,
    hashes: HashMap<String, HashMap<String, Vec<u8>>>,
}

impl Model {
    /// A request and its expected reply; `None`: any number, as clients share the key.
    fn next(&mut self, me: usize, random: &mut Random) -> (Vec<Vec<u8>>, Option<Reply>) {
        let key = |kind: &str, n: u64| format!("{kind}:{me}:{n}");
        let n = random.below(40);
        let len = if random.below(50) == 0 { 20_000 } else { random.below(100) as usize };
        let value = random.bytes(len);
        let (s, c, l, h) = (key("s", n), key("c", n), key("l", n), key("h", n / 10));
        let number = |n: usize| Reply::Int(n as i64);
        let answer = |value: Option<Vec<u8>>| value.map_or(Reply::Nil, Reply::Bulk);
        let words = |all: &[&[u8]]| all.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let (request, reply) = match random.below(12) {
            0 | 1 => {
                self.strings.insert(s.clone(), value.clone());
                (words(&[b"SET", s.as_bytes(), &value]), Reply::ok())
            }
            2 | 3 => (words(&[b"GET", s.as_bytes()]), answer(self.strings.get(&s).cloned())),
            4 => {
                let had = self.strings.remove(&s).is_some();
                (words(&[b"DEL", s.as_bytes()]), Reply::Int(had.into()))
            }
            5 => {
                let all = self.strings.entry(s.clone()).or_default();
                all.extend_from_slice(&value);
                (words(&[b"APPEND", s.as_bytes(), &value]), number(all.len()))
            }
            6 => {
                let now = self.numbers.entry(c.clone()).or_default();
                *now += n as i64;
                let by = n.to_string();
                (words(&[b"INCRBY", c.as_bytes(), by.as_bytes()]), Reply::Int(*now))
            }
            7 => {
                let list = self.lists.entry(l.clone()).or_default();
                list.push(value.clone());
                (words(&[b"RPUSH", l.as_bytes(), &value]), number(list.len()))
            }
            8 => {
                let list = self.lists.entry(l.clone()).or_default();
                let first = (!list.is_empty()).then(|| list.remove(0));
                (words(&[b"LPOP", l.as_bytes()]), answer(first))
            }
            9 => {
                let field = format!("f{n}");
                let hash = self.hashes.entry(h.clone()).or_default();
                let new = hash.insert(field.clone(), value.clone()).is_none();
                let request = words(&[b"HSET", h.as_bytes(), field.as_bytes(), &value]);
                (request, Reply::Int(new.into()))
            }
            10 => {
                let field = format!("f{n}");
                let value = self.hashes.get(&h).and_then(|hash| hash.get(&field)).cloned();
                (words(&[b"HGET", h.as_bytes(), field.as_bytes()]), answer(value))
            }
            _ => return (words(&[b"INCR", b"all"]), None),
        };
        (request, Some(reply))
    }
}

#[test]
fn a_hundred_thousand_operations_of_fifty_clients_among_a_thousand_idle() {
    let real = Real::redis(&[], &["--save", ""]);
    let mut idle: Vec<Redis> = (0..IDLE).map(|_| client(&real)).collect();
    assert_eq!(client(&real).say("PING"), Reply::Status("PONG".into()));

    let mut queue: Vec<i64> = at_once(CLIENTS, |me| {
        let mut random = Random::new(me as u64);
        let mut model = Model::default();
        let mut redis = client(&real);
        let mut places = Vec::new();
        let mut done = 0;
        while done < OPERATIONS / CLIENTS {
            // From one request at a time to sixteen in one segment.
            let batch = 1 + random.below(16) as usize;
            let expected: Vec<_> = (0..batch)
                .map(|_| {
                    let (request, reply) = model.next(me, &mut random);
                    redis.push(&request);
                    (request, reply)
                })
                .collect();
            redis.flush().unwrap();
            for (request, expected) in expected {
                let got = redis.receive().unwrap();
                match (expected, got) {
                    (None, Reply::Int(place)) => places.push(place),
                    (Some(expected), got) => {
                        let verb = String::from_utf8_lossy(&request[0]).into_owned();
                        assert_eq!(got, expected, "client {me}, operation {done}: {verb}");
                    }
                    (None, got) => panic!("INCR answers {got:?}"),
                }
            }
            done += batch;
        }
        places
    })
    .concat();

    // Each INCR of the shared counter was executed once, in some order.
    queue.sort_unstable();
    assert_eq!(queue, (1..=queue.len() as i64).collect::<Vec<_>>());
    for (number, redis) in idle.iter_mut().enumerate() {
        let number = number.to_string();
        assert_eq!(redis.ask(&["ECHO", &number]).unwrap(), Reply::bulk(&number));
    }
    let clients = client(&real).say("INFO clients").text();
    assert!(clients.contains(&format!("connected_clients:{}", IDLE + 1)), "{clients}");
    real.end();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let real = Real::redis(&[], &["--save", ""]);
    let mut redis = client(&real);
    const REQUESTS: usize = 10_000;
    for number in 0..REQUESTS {
        redis.push(&["SET".to_string(), format!("k{}", number % 100), number.to_string()]);
        redis.push(&["GET".to_string(), format!("k{}", number % 100)]);
    }
    redis.flush().unwrap();
    for number in 0..REQUESTS {
        assert_eq!(redis.receive().unwrap(), Reply::ok());
        assert_eq!(redis.receive().unwrap(), Reply::bulk(number.to_string()));
    }
    real.end();
}

#[test]
fn values_of_fifty_megabytes() {
    let real = Real::redis(&[], &["--save", ""]);
    let value = Random::new(50).bytes(50_000_000);
    let mut redis = client(&real);
    assert_eq!(redis.ask(&[b"SET", b"big".as_slice(), &value]).unwrap(), Reply::ok());
    let mut other = client(&real);
    assert_eq!(other.say("STRLEN big"), Reply::Int(50_000_000));
    // The receiver reads slowly; the other client is answered meanwhile.
    redis.push(&["GET", "big"]);
    redis.flush().unwrap();
    assert_eq!(other.say("PING"), Reply::Status("PONG".into()));
    let Reply::Bulk(got) = redis.receive().unwrap() else { panic!("no value") };
    assert!(got == value, "another value of {} bytes", got.len());
    assert_eq!(other.say("DEL big"), Reply::Int(1));
    real.end();
}

#[test]
fn transactions_blocking_publishing_and_expiry() {
    let real = Real::redis(&[], &["--save", ""]);
    let (mut one, mut two) = (client(&real), client(&real));

    // MULTI: visible as a whole, or not at all when a watched key changed.
    assert_eq!(one.say("MULTI"), Reply::ok());
    assert_eq!(one.say("SET a 1"), Reply::Status("QUEUED".into()));
    assert_eq!(two.say("GET a"), Reply::Nil);
    assert_eq!(one.say("INCRBY a 9"), Reply::Status("QUEUED".into()));
    assert_eq!(one.say("EXEC"), Reply::Array(vec![Reply::ok(), Reply::Int(10)]));
    assert_eq!(two.say("GET a"), Reply::bulk("10"));
    assert_eq!(one.say("WATCH a"), Reply::ok());
    assert_eq!(two.say("INCR a"), Reply::Int(11));
    assert_eq!(one.say("MULTI"), Reply::ok());
    assert_eq!(one.say("SET a 0"), Reply::Status("QUEUED".into()));
    assert_eq!(one.say("EXEC"), Reply::Nil);
    assert_eq!(two.say("GET a"), Reply::bulk("11"));

    // BLPOP: woken by another client, and by time.
    one.push(&["BLPOP", "queue", "0"]);
    one.flush().unwrap();
    wait_for("a blocked client", || {
        two.say("INFO clients").text().contains("blocked_clients:1").then_some(())
    });
    assert_eq!(two.say("RPUSH queue x"), Reply::Int(1));
    let popped = Reply::Array(vec![Reply::bulk("queue"), Reply::bulk("x")]);
    assert_eq!(one.receive().unwrap(), popped);
    assert_eq!(two.say("LLEN queue"), Reply::Int(0));
    assert_eq!(one.say("BLPOP queue 0.2"), Reply::Nil);
    assert_eq!(one.say("BLPOP queue 1"), Reply::Nil);

    // Publishing.
    let subscribed = ["subscribe", "news"].map(Reply::bulk);
    let [verb, channel] = subscribed;
    assert_eq!(one.say("SUBSCRIBE news"), Reply::Array(vec![verb, channel, Reply::Int(1)]));
    for number in 0..100 {
        assert_eq!(two.say(&format!("PUBLISH news {number}")), Reply::Int(1));
    }
    for number in 0..100 {
        let message = ["message", "news", &number.to_string()].map(Reply::bulk);
        assert_eq!(one.receive().unwrap(), Reply::Array(message.to_vec()));
    }
    drop(one);
    wait_for("a gone reader", || (two.say("PUBLISH news x") == Reply::Int(0)).then_some(()));

    // Expiry: by a reader that finds the key too old, and by the server itself.
    assert_eq!(two.say("SET long x PX 600000"), Reply::ok());
    let Reply::Int(left) = two.say("PTTL long") else { panic!("no time to live") };
    assert!((1..=600_000).contains(&left), "{left}");
    assert_eq!(two.say("SET short x PX 300"), Reply::ok());
    wait_for("the key to expire", || (two.say("GET short") == Reply::Nil).then_some(()));
    for number in 0..50 {
        assert_eq!(two.say(&format!("SET gone{number} x PX 50")), Reply::ok());
    }
    wait_for("the keys to be removed", || (two.say("DBSIZE") == Reply::Int(2)).then_some(()));
    let expired = two.say("INFO stats").text();
    assert!(expired.contains("expired_keys:51"), "{expired}");
    real.end();
}

#[test]
fn saves_in_the_background() {
    // No `--save`: with redis' default rules.
    let real = Real::redis(&[], &[]);
    let mut redis = client(&real);
    let started = redis.say("LASTSAVE");
    for number in 0..10_000 {
        redis.push(&["SET".to_string(), format!("k{number}"), "x".repeat(100)]);
    }
    redis.flush().unwrap();
    for _ in 0..10_000 {
        assert_eq!(redis.receive().unwrap(), Reply::ok());
    }
    let saved = |redis: &mut Redis| {
        let info = redis.say("INFO persistence").text();
        assert!(!info.contains("rdb_last_bgsave_status:err"), "{info}");
        info.contains("rdb_changes_since_last_save:0").then_some(())
    };
    assert_eq!(redis.say("BGSAVE").text(), "Background saving started");
    wait_for("the save", || saved(&mut redis));
    assert_eq!(redis.say("INCR more"), Reply::Int(1));
    assert_eq!(redis.say("BGSAVE").text(), "Background saving started");
    wait_for("the next save", || saved(&mut redis));
    let Reply::Int(first) = started else { panic!("LASTSAVE answers {started:?}") };
    let Reply::Int(last) = redis.say("LASTSAVE") else { panic!("no LASTSAVE") };
    assert!(last >= first);
    let info = redis.say("INFO persistence").text();
    assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
    assert!(info.contains("rdb_saves:2"), "{info}");

    assert_eq!(redis.say("DBSIZE"), Reply::Int(10_001));
    real.end();
}

#[test]
fn clients_that_leave_in_the_middle_disturb_nobody() {
    let real = Real::redis(&[], &["--save", ""]);
    let mut steady = client(&real);
    for round in 0..50 {
        let mut leaving: Vec<Redis> = (0..20).map(|_| client(&real)).collect();
        for (number, redis) in leaving.iter_mut().enumerate() {
            match number % 4 {
                0 => redis.push(&["BLPOP", "nothing", "0"]),
                1 => redis.push(&["SUBSCRIBE", "news"]),
                2 => redis.push(&["MULTI"]),
                _ => redis.push(&["INCR", "n"]),
            }
            redis.flush().unwrap();
        }
        drop(leaving);
        assert_eq!(steady.say("INCR steady"), Reply::Int(round + 1));
    }
    wait_for("them to be gone", || {
        steady.say("INFO clients").text().contains("connected_clients:1\r").then_some(())
    });
    real.end();
}
