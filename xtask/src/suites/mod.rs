//! A server's own test suite, run against three replicas of it.
//!
//! A suite is one file here ([`postgres`]): the origin of its source, how it is built, and how it is run against a server that listens. Every run must fulfil: each test ends as
//! it does against the server alone, except for those that the suite's file names with the reason; afterwards all replicas are in step, have written the same files and have equal memory. A fresh cluster is started every few runs.
//!
//! Invariants: every command that is started has a deadline. Nothing is left, however it ends: the command runs itself below `scripts/guarded.sh`, which has the temporary directory
//! and ends the remains when this process is gone.

mod command;
mod outcome;
mod postgres;
mod source;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use self::outcome::Tests;
use self::postgres::{CROWD, Place, Postgres, Workers};
use crate::interrupt::Interrupt;
use skein_testkit::cluster::{Cluster, Server};
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// Set below `scripts/guarded.sh`.
const GUARDED: &str = "SKEIN_GUARD";

/// Options of `skein run`: no leader changes because the machine is busy. A change resets connections, which makes a suite's tests fail.
const SETTLED: [&str; 2] = ["--election-timeout-ms", "10000"];

/// The suite, and how often it runs.
#[derive(clap::Args)]
pub struct Options {
    /// The suite
    suite: Suite,
    /// Runs through three replicas
    #[arg(long, default_value_t = 20)]
    runs: u32,
    /// Runs before the next fresh cluster
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs_a_cluster: u32,
    /// When queries of the tests have parallel workers
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    workers: Choice,
    /// The longest that one run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    run_max_s: u64,
    /// No run begins after this time
    #[arg(long, value_name = "SECONDS")]
    budget_s: Option<u64>,
    /// When a run fails, leave the cluster as it is until Ctrl-C, to look at it
    #[arg(long)]
    hold: bool,
}

/// The known suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// PostgreSQL's regression tests
    Postgres,
}

/// Which runs have workers for every query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    /// When the server expects a gain, which is its default
    Usual,
    /// Whenever it can be
    Always,
    /// Every other run whenever it can be
    Both,
}

impl Choice {
    fn of(self, run: u32) -> Workers {
        match self {
            Self::Usual => Workers::Usual,
            Self::Always => Workers::Always,
            Self::Both if run % 2 == 1 => Workers::Usual,
            Self::Both => Workers::Always,
        }
    }
}

/// Runs the suite as often as asked; fails when one run did.
pub fn run(options: &Options) -> Outcome {
    if std::env::var_os(GUARDED).is_none() {
        return guarded();
    }
    let interrupt = Interrupt::catch()?;
    let Suite::Postgres = options.suite;
    let max = Duration::from_secs(options.run_max_s);
    let suite = Postgres::make(&interrupt)?;
    println!("suite | {}", suite.about());
    let mut expected = Expected::new();
    for run in 1..=options.runs.min(2) {
        let workers = options.workers.of(run);
        if !expected.contains_key(workers.about()) {
            let tests = natively(&suite, &interrupt, workers, max)?;
            expected.insert(workers.about(), tests);
        }
    }
    let rounds = Rounds { suite: &suite, interrupt: &interrupt, expected: &expected, options };
    let start = Instant::now();
    let in_time = || options.budget_s.is_none_or(|most| start.elapsed().as_secs() < most);
    let mut tally = Tally::default();
    while tally.begun < options.runs && in_time() {
        rounds.one_cluster(&mut tally, &in_time)?;
    }
    println!("{}", tally.summary(&expected));
    println!("{} passed, {} failed", tally.passed.len(), tally.failed.len());
    if tally.failed.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("runs that failed: {:?}", tally.failed)))
}

/// The results of the runs.
#[derive(Default)]
struct Tally {
    begun: u32,
    /// The duration of each run that passed [s].
    passed: Vec<f64>,
    /// Numbers of the failed runs.
    failed: Vec<u32>,
}

impl Tally {
    fn summary(&self, expected: &Expected) -> String {
        let mut passed = self.passed.clone();
        passed.sort_by(f64::total_cmp);
        let all = match passed.as_slice() {
            [] => "none".to_owned(),
            [one] => format!("{one:.0} s"),
            [least, .., most] => {
                format!("median {:.0} s ({least:.0} to {most:.0})", passed[passed.len() / 2])
            }
        };
        let alone =
            |(workers, tests): (&&str, &Tests)| format!("{:.0} s ({workers})", tests.seconds);
        let alone: Vec<String> = expected.iter().map(alone).collect();
        format!("suite | a run takes {} alone; through three replicas: {all}", alone.join(", "))
    }
}

/// This command again, guarded.
fn guarded() -> Outcome {
    let own = std::env::current_exe().map_err(|e| Failure::of("cannot find this program", e))?;
    let guard = workspace::root().join("scripts/guarded.sh");
    let error = Command::new(&guard).arg(own).args(std::env::args_os().skip(1)).exec();
    Err(Failure::of(format!("cannot run {}", guard.display()), error))
}

/// The results of the tests against the server alone, for each kind of run ([`Workers::about`]).
type Expected = BTreeMap<&'static str, Tests>;

fn natively(
    suite: &Postgres,
    interrupt: &Interrupt,
    workers: Workers,
    max: Duration,
) -> Outcome<Tests> {
    let place = suite.place()?;
    let _server = place.start(interrupt)?;
    let tests = place.regress(interrupt, workers, max)?;
    println!("alone | {}: {}", workers.about(), tests.about());
    Ok(tests)
}

/// Runs through three replicas.
struct Rounds<'a> {
    suite: &'a Postgres,
    interrupt: &'a Interrupt,
    expected: &'a Expected,
    options: &'a Options,
}

impl Rounds<'_> {
    /// Some runs on a fresh cluster. The first that fails is its last.
    fn one_cluster(&self, tally: &mut Tally, in_time: &dyn Fn() -> bool) -> Outcome {
        let place = self.suite.place()?;
        let (command, options) = (place.command(), SETTLED.map(String::from));
        let server = Server { options: &options, command: &command };
        let mut cluster = Cluster::start("suite", 3, place.dir(), &server)?;
        self.interrupt.wait("the service to be ready", || cluster.healthy())?;
        place.await_service(self.interrupt)?;
        let last = self.options.runs.min(tally.begun + self.options.runs_a_cluster);
        while tally.begun < last && in_time() {
            tally.begun += 1;
            match self.one(tally.begun, &place, &mut cluster) {
                Ok(seconds) => tally.passed.push(seconds),
                Err(failure) => {
                    self.interrupt.check()?;
                    println!("{}", cluster.tell().trim_end());
                    println!("run {:>2} | FAILED: {failure}", tally.begun);
                    tally.failed.push(tally.begun);
                    if self.options.hold {
                        hold(&cluster, self.interrupt);
                    }
                    break;
                }
            }
        }
        cluster.stop()
    }

    /// One run; answers its duration in seconds.
    fn one(&self, number: u32, place: &Place<'_>, cluster: &mut Cluster) -> Outcome<f64> {
        let max = Duration::from_secs(self.options.run_max_s);
        let workers = self.options.workers.of(number);
        let tests = place.regress(self.interrupt, workers, max)?;
        let tests = tests
            .compared(&self.expected[workers.about()], &postgres::APART)
            .inspect_err(|_| println!("{}", place.differences()))?;
        let crowd = place.crowd(self.interrupt, max)?;
        let start = Instant::now();
        let digest = self.interrupt.wait("equal digests", || cluster.equal_digests())?;
        self.interrupt.wait("files that can be compared", || cluster.equal_files())?;
        self.interrupt.wait("memory that can be compared", || cluster.equal_memory())?;
        println!(
            "run {number:>2} | {}: {}; {CROWD} connections: {crowd:.1} s; digest {digest}, files and memory are the same ({:.1} s)",
            workers.about(),
            tests.about(),
            start.elapsed().as_secs_f64()
        );
        Ok(tests.seconds)
    }
}

/// Leaves everything as it is until Ctrl-C.
fn hold(cluster: &Cluster, interrupt: &Interrupt) {
    println!("suite | cluster {} is left as it is until Ctrl-C", cluster.name());
    while interrupt.check().is_ok() {
        std::thread::sleep(Duration::from_millis(100));
    }
}
