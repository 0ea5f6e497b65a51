//! The purpose of agreed admission points (CRANE, section 7.2): a page is written and read at the same time, a hundred times. Three
//! replicas under Skein always come to the same answers; three servers beside each other do not, nor do three replicas that
//! execute the same log but admit its entries as they arrive. The serial schedule has a purpose, too: a server that uses its memory
//! without any lock answers the same on all replicas, thousands of times, and differently each time without Skein.

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::cluster::{free_port, wait_for_or};
use common::http::Http;
use common::own::{self, Lines, compiled};
use common::real::{ANSWER, Random, Real, at_once};
use common::{Place, guest_server, wait_for};

const ROUNDS: usize = 100;
const SERVERS: usize = 3;
/// The approximate time of a server for a page.
const PAGE_US: u64 = 2000;
const PAGE_BYTES: usize = 1024;

/// Both requests of all rounds, to one address.
fn drive(port: u16) {
    let mut writer = wait_for("a connection", || Http::connect(port, ANSWER).ok());
    let mut reader = Http::connect(port, ANSWER).unwrap();
    let mut random = Random::new(1);
    for round in 0..ROUNDS {
        let path = format!("/page?{round}");
        let page: Vec<u8> = random.bytes(PAGE_BYTES).iter().map(|byte| b'a' + byte % 26).collect();
        writer.send("PUT", &path, &page).unwrap();
        let until = Instant::now() + Duration::from_micros(random.below(PAGE_US));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        reader.send("GET", &path, &[]).unwrap();
        assert_eq!(reader.answer().unwrap().status, 200);
        assert_eq!(writer.answer().unwrap().status, 200);
    }
}

/// A server's answers to each GET, from its output.
fn answers(log: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let all: Vec<String> =
        text.lines().filter(|line| line.starts_with("GET")).map(str::to_string).collect();
    (all.len() == ROUNDS && text.ends_with('\n')).then_some(all)
}

/// The number of rounds in which all servers answered the same.
fn agreed(logs: &[PathBuf], evidence: impl Fn() -> String) -> usize {
    let all: Vec<Vec<String>> = logs
        .iter()
        .map(|log| wait_for_or("all answers to be printed", &evidence, || answers(log)))
        .collect();
    (0..ROUNDS).filter(|round| all.iter().all(|one| one[*round] == all[0][*round])).count()
}

/// A server without Skein, that ends with the test.
struct Native(Child);

impl Native {
    fn start(program: &Path, port: u16, log: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg(port.to_string()).stdin(Stdio::null()).stdout(File::create(log).unwrap());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn natively() -> usize {
    let place = Place::new();
    let program = compiled(&place, "page_threads.cc");
    let logs: Vec<PathBuf> = (0..SERVERS).map(|n| place.path(&format!("out{n}"))).collect();
    let ports: Vec<u16> = (0..SERVERS).map(|_| free_port()).collect();
    let servers: Vec<Native> =
        logs.iter().zip(&ports).map(|(log, port)| Native::start(&program, *port, log)).collect();
    at_once(SERVERS, |n| drive(ports[n]));
    let agreed = agreed(&logs, String::new);
    drop(servers);
    agreed
}

fn logs_of(real: &Real) -> Vec<PathBuf> {
    (1..=SERVERS).map(|id| real.cluster.place.path(&format!("data/node-{id}/server.log"))).collect()
}

fn under_skein(options: &[&str]) -> (Real, usize) {
    let real = own::start("page_threads.cc", options);
    drive(real.port());
    let agreed = agreed(&logs_of(&real), || real.cluster.evidence());
    (real, agreed)
}

#[test]
fn concurrent_put_and_get_of_one_page() {
    let native = natively();
    let (real, agreed) = under_skein(&[]);
    real.end();
    let (real, arrival) = under_skein(&["--env", "UNSAFE_ADMIT_ON_ARRIVAL=1"]);
    drop(real);
    println!("rounds in which all three answered the same, of {ROUNDS}:");
    println!("    three servers without Skein            {native:3}");
    println!("    three replicas                         {agreed:3}");
    println!("    three replicas, admitted on arrival    {arrival:3}");
    assert_eq!(agreed, ROUNDS, "replicas must always agree");
    assert!(native < ROUNDS, "without Skein they should differ, or this shows nothing");
    assert!(arrival < ROUNDS, "without agreed admission they should differ, or this shows nothing");
}

const MIXERS: usize = 8;
const MIXES: usize = 500;

/// The answers of the racy server to `MIXERS` clients at once, each client's one after the other.
fn mixes(port: u16) -> Vec<Vec<String>> {
    at_once(MIXERS, |me| {
        let mut lines = wait_for("a connection", || Lines::connect(port, ANSWER).ok());
        (0..MIXES).map(|n| lines.ask(&format!("client {me} asks {n}")).unwrap()).collect()
    })
}

#[test]
fn data_races_have_one_outcome_on_all_replicas() {
    // Without Skein two servers that are asked the same answer differently.
    let place = Place::new();
    let program = guest_server(&place, "racy_mix");
    let native: Vec<_> = (0..2)
        .map(|_| {
            let port = free_port();
            let _server = Native::start(&program, port, &place.path("out"));
            mixes(port)
        })
        .collect();
    assert_ne!(native[0], native[1], "the race should have had two outcomes");

    // On replicas every answer is in the digests, of the two that live on and of one that executes all from the log.
    let (place, port) = (Place::new(), free_port());
    let program = guest_server(&place, "racy_mix").to_str().unwrap().to_string();
    let mut real = Real::serve(place, port, &[], vec![program, port.to_string()]);
    let answers = mixes(port).concat();
    let (index, digest) = real.wait_agreed();
    println!("{} racy answers, digest {digest} at {index}", answers.len());
    common::story::kill_leader(&real);
    real.wait_agreed();
    real.kill_all_and_run_again();
    real.cluster.wait_ready();
    real.wait_agreed();
    real.end();
}
