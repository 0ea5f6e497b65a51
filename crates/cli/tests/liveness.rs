//! The liveness rule: each single fault, at the leader and at a follower, on three hosts under load with a real server. The service goes on, `skein
//! status` names the fault and its end, nothing acknowledged is lost, and the replicas are equal afterwards. One cluster meets all of them,
//! one after the other: faults that were mended never add up.
//!
//! The table in `docs/testing.md` holds one run's measurements: `SKEIN_WRITE_TABLE=1 cargo test ... --test liveness` writes it.
//!
//! Only root can make network namespaces; without it the test says so and passes (`docs/limitations.md`).

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::faults::Fault;
use common::hosts::join;
use common::load::{Bulk, Load};
use common::machine::{Machine, PORT, SERVER_PORT};
use common::preloaded::Preloaded;
use common::real::installed;
use common::resp::{Redis, Reply};
use common::{PATIENCE, Place};
use serde_json::Value;

/// The least duration of a lasting fault.
const LASTS: Duration = Duration::from_millis(2500);
/// The longest time for a reaction, on any machine; the table has the real times.
const BOUND: Duration = Duration::from_secs(20);
/// The disk under each log: enough for everything that one run writes, and spare.
const DISK: &str = "size=512m";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Leader,
    Follower,
}

/// Measurements of one fault at one replica.
#[derive(Debug)]
struct Row {
    fault: Fault,
    whom: Whom,
    outage: Duration,
    says: String,
    named: Duration,
    well: Duration,
}

struct Matrix {
    machine: Machine,
    load: Load,
    addresses: Vec<SocketAddr>,
    /// Pages that differ before the first fault: notes of the dynamic loader (docs/limitations.md).
    loaders: Option<BTreeSet<u64>>,
}

impl Matrix {
    fn start() -> Self {
        let place = Place::new();
        installed("/usr/bin/redis-server");
        let port = SERVER_PORT.to_string();
        let redis = ["/usr/bin/redis-server", "--port", &port, "--protected-mode", "no"];
        let files = ["--save", "", "--appendonly", "yes"];
        let server: Vec<String> = redis.iter().chain(&files).map(ToString::to_string).collect();
        let mut machine = Machine::new(place, &server);
        machine.preloaded = Some(Preloaded::new(&machine.place));
        machine.give_disks(DISK);
        machine.found();
        (1..=3).for_each(|id| machine.start(id));
        machine.join_all();
        let addresses: Vec<SocketAddr> =
            (1..=3).map(|id| SocketAddr::from(([10, 77, 0, id], PORT))).collect();
        let middle = machine.hosts.middle.path();
        let load = Load::start(4, addresses.clone(), move || join(&middle));
        Self { machine, load, addresses, loaders: None }
    }

    fn status(&mut self) -> (Value, Option<i32>) {
        self.machine.tend();
        let output = self.machine.skein_all(&["status", "--json"]);
        (serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), output.status.code())
    }

    /// Looks at the status until `wanted` finds something.
    fn watch<T>(
        &mut self,
        what: &str,
        bound: Duration,
        mut wanted: impl FnMut(&Self, &Value, Option<i32>) -> Option<T>,
    ) -> Result<T, String> {
        let limit = Instant::now() + bound;
        let mut seen = String::new();
        let mut last = String::new();
        loop {
            let asked = Instant::now();
            let (status, code) = self.status();
            if let Some(found) = wanted(self, &status, code) {
                return Ok(found);
            }
            let now = brief(&status, code);
            if now != last {
                let _ = writeln!(seen, "  {:?} before the end: {now}", limit - asked);
                last = now;
            }
            if asked > limit {
                let evidence = self.machine.evidence();
                return Err(format!("waited for {bound:?}: {what}\n{seen}{evidence}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_well(&mut self, bound: Duration) -> Result<Value, String> {
        self.watch("all to be well", bound, |_, status, code| {
            (code == Some(0)).then(|| status.clone())
        })
    }

    /// Nothing where the fault cannot be made.
    fn cell(&mut self, fault: Fault, whom: Whom) -> Result<Option<Row>, String> {
        let status = self.wait_well(PATIENCE)?;
        let leader = status["leader"].as_u64().unwrap();
        let id = if whom == Whom::Leader { leader } else { leader % 3 + 1 };
        let server = server_pid(&status, id);
        let bulk = fault.needs_data().then(|| {
            let middle = self.machine.hosts.middle.path();
            Bulk::start(64, 512 << 10, self.addresses.clone(), move || join(&middle))
        });
        let began = Instant::now();
        let Some(made) = fault.make(&self.machine, id, server) else { return Ok(None) };
        let named = self.watch("the fault to be named", BOUND, |_, status, _| {
            fault.named(status, id).map(|says| (says, began.elapsed()))
        });
        // The fault has shown; more load would only fill the others' disks.
        drop(bulk);
        let serves = self.watch("answers", BOUND, |matrix, _, _| {
            let answered = matrix.load.last_answer().elapsed() < Duration::from_millis(100);
            let lasted = fault.passes() || began.elapsed() >= LASTS;
            (answered && lasted).then_some(())
        });
        let mended = if fault.passes() { began } else { Instant::now() };
        fault.mend(&self.machine, id, server, made);
        let well = self.wait_well(PATIENCE);
        let well_after = mended.elapsed();
        let outage = self.load.outage_since(began);
        let equal = self.is_equal();
        let ((says, named), ()) = (named?, serves?);
        let dir = self.machine.data(id);
        let says = says.replace(dir.to_str().unwrap(), "DIR");
        well?;
        equal?;
        Ok(Some(Row { fault, whom, outage, says, named, well: well_after }))
    }

    /// No client asks while one server after the other is killed and comes back, each after the same entry: no node ends.
    fn ends_do_not_add_up(&mut self) -> Result<(), String> {
        self.load.pause();
        let nodes = |status: &Value| {
            let rows = status["replicas"].as_array().unwrap().iter();
            rows.map(|row| row["node_pid"].clone()).collect::<Vec<_>>()
        };
        let before = nodes(&self.wait_well(PATIENCE)?);
        for id in 1..=3 {
            let status = self.wait_well(PATIENCE)?;
            let _ = Fault::ServerKilled.make(&self.machine, id, server_pid(&status, id));
            self.watch("an end to be named", BOUND, |_, status, _| {
                Fault::ServerKilled.named(status, id)
            })?;
            let after = nodes(&self.wait_well(PATIENCE)?);
            (before == after).then_some(()).ok_or(format!("nodes: {before:?}, {after:?}"))?;
        }
        self.is_equal()
    }

    /// Digests, memory and files are the same on all replicas; the clients rest meanwhile.
    fn is_equal(&mut self) -> Result<(), String> {
        self.load.pause();
        let equal = self.watch("one digest", PATIENCE, |_, status, code| {
            let rows = status["replicas"].as_array()?;
            let same = |key: &str| rows.iter().all(|row| row[key] == rows[0][key]);
            let executed = rows[0]["digest_index"] == rows[0]["applied_index"];
            let all = same("digest") && same("digest_index") && same("applied_index") && executed;
            (all && code == Some(0)).then_some(())
        });
        let equal = equal.and_then(|()| self.compare_memory()).and_then(|()| self.compare_files());
        self.load.resume();
        equal
    }

    fn compare_memory(&mut self) -> Result<(), String> {
        let report = self.told(&["verify", "--json"])?;
        let report: Value = serde_json::from_str(&report).map_err(|error| error.to_string())?;
        let differences = report["differences"].as_array().into_iter().flatten();
        let page = |difference: &Value| {
            let address = difference["address"].as_str()?.strip_prefix("0x")?;
            Some(u64::from_str_radix(address, 16).ok()? >> 12)
        };
        let found: BTreeSet<u64> = differences.map(|one| page(one).unwrap_or_default()).collect();
        let known = self.loaders.get_or_insert_with(|| found.clone());
        match found.is_subset(known) {
            true => Ok(()),
            false => Err(format!("the memory differs: {report:#}")),
        }
    }

    fn compare_files(&mut self) -> Result<(), String> {
        let report = self.told(&["files"])?;
        let same = report.contains("all replicas have written the same");
        same.then_some(()).ok_or(format!("skein files: {report}"))
    }

    /// The result of a comparison, once it is known.
    fn told(&mut self, args: &[&str]) -> Result<String, String> {
        let limit = Instant::now() + PATIENCE;
        loop {
            self.machine.tend();
            let output = self.machine.skein_all(args);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if matches!(output.status.code(), Some(0 | 1)) {
                return Ok(text);
            }
            if Instant::now() > limit {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(format!("skein {args:?}: {text}{said}"));
            }
        }
    }

    /// Every acknowledged word is there, once.
    fn assert_nothing_lost(self) -> Machine {
        let Self { mut machine, load, addresses, .. } = self;
        for (client, books) in load.end().iter().enumerate() {
            let found = machine.hosts.middle.enter(|| {
                common::wait_for("the words", || {
                    let stream = std::net::TcpStream::connect(addresses[0]).ok()?;
                    let mut redis = Redis::over(stream, PATIENCE).ok()?;
                    match redis.ask(&["LRANGE", &Load::key(client), "0", "-1"]).ok()? {
                        Reply::Array(words) => Some(words.iter().map(Reply::text).collect()),
                        _ => None,
                    }
                })
            });
            let found: Vec<String> = found;
            println!("{} kept, {} doubtful", books.kept.len(), books.doubtful.len());
            books.assert_found(&found);
        }
        machine.tend();
        machine
    }
}

fn server_pid(status: &Value, id: u64) -> i32 {
    Cluster::replica(status, id)["server_pid"].as_i64().unwrap() as i32
}

fn brief(status: &Value, code: Option<i32>) -> String {
    let mut text = format!("{code:?} leader {}", status["leader"]);
    for row in status["replicas"].as_array().into_iter().flatten() {
        let faults = row["faults"].as_array().into_iter().flatten();
        let faults: Vec<_> = faults.map(|fault| fault["name"].as_str().unwrap()).collect();
        let _ = write!(text, "; {} {} {faults:?}", row["id"], row["state"].as_str().unwrap());
    }
    text
}

/// The document that has the table as its last part.
fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/testing.md")
}

const HEAD: &str = "| fault | at the | longest time without an answer | `skein status` says | after | it is well after | same digests, memory, files |\n\
                    |---|---|---|---|---|---|---|\n";

/// The document's part before the table, and the table's faults and replicas.
fn split_page() -> (String, Vec<String>) {
    let text = fs::read_to_string(page()).unwrap();
    let at = text.find(HEAD).expect("docs/testing.md has the table");
    let rows = text[at + HEAD.len()..].lines();
    let first_two = |row: &str| row.split('|').take(3).collect::<Vec<_>>().join("|");
    (text[..at].to_string(), rows.map(first_two).collect())
}

fn first_two(fault: Fault, whom: Whom) -> String {
    format!("| {} | {} ", fault.name(), if whom == Whom::Leader { "leader" } else { "follower" })
}

fn cells() -> impl Iterator<Item = (Fault, Whom)> {
    Fault::ALL.into_iter().flat_map(|fault| [(fault, Whom::Leader), (fault, Whom::Follower)])
}

impl Row {
    fn line(&self) -> String {
        let ms = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        let (outage, named, well) = (ms(self.outage), ms(self.named), ms(self.well));
        let begin = first_two(self.fault, self.whom);
        format!("{begin}| {outage} | {} | {named} | {well} | yes |\n", self.says)
    }
}

#[test]
fn the_table_has_every_fault() {
    let wanted: Vec<String> = cells().map(|(fault, whom)| first_two(fault, whom)).collect();
    assert_eq!(split_page().1, wanted, "write it: SKEIN_WRITE_TABLE=1, see docs/testing.md");
}

#[test]
fn every_single_fault() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make network namespaces");
        return;
    }
    let mut matrix = Matrix::start();
    matrix.wait_well(PATIENCE).and_then(|_| matrix.is_equal()).unwrap();
    let only = std::env::var("SKEIN_TEST_FAULT").unwrap_or_default();
    let (mut lines, mut failed) = (String::new(), String::new());
    for (fault, whom) in cells().filter(|(fault, _)| fault.name().contains(&only)) {
        let began = Instant::now();
        match matrix.cell(fault, whom) {
            Ok(None) => println!("{}: this machine cannot make it", fault.name()),
            Ok(Some(row)) => {
                print!("{:.1} s: {}", began.elapsed().as_secs_f64(), row.line());
                lines.push_str(&row.line());
            }
            Err(why) => {
                println!("FAILED: {} at the {whom:?}: {why}", fault.name());
                failed.push_str(&first_two(fault, whom));
                // The later measurements would not tell about their own fault.
                if matrix.wait_well(PATIENCE).is_err() {
                    break;
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed}");
    matrix.ends_do_not_add_up().unwrap_or_else(|why| panic!("{why}"));
    matrix.assert_nothing_lost().stop();
    if only.is_empty() && std::env::var_os("SKEIN_WRITE_TABLE").is_some() {
        fs::write(page(), split_page().0 + HEAD + &lines).unwrap();
    }
}
