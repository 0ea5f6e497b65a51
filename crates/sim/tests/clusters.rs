//! Thousands of simulated clusters, and the proof that the checks can fail.
//!
//! `SKEIN_SIM_SEEDS=n` runs n seeds, from `SKEIN_SIM_FROM=x` on, with `SKEIN_SIM_FIRST=1` up to the first that fails; `SKEIN_SIM_SEED=x` replays one and prints its events.

use skein_sim::options::{Scenario, Timer};
use skein_sim::{Break, Failure, Options, Report, run};
use std::ops::Range;
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Runs a seed; a panic is a failure of it, like any other.
fn run_whole(seed: u64, options: &Options) -> Result<Report, Failure> {
    std::panic::catch_unwind(|| run(seed, options)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let why = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of an unknown kind");
        Err(Failure { seed, at_us: 0, what: format!("a panic: {why}") })
    })
}

/// Runs seeds on all cores, or up to the first that fails, which is told; what failed is in order.
fn run_seeds(
    seeds: Range<u64>,
    options: &Options,
    first: bool,
    found: impl Fn(&Failure) + Sync,
) -> (Vec<Report>, Vec<Failure>) {
    let Range { start, end } = seeds;
    let next = AtomicU64::new(start);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let result = run_whole(seed, options);
                    if first && let Err(failure) = &result {
                        next.store(end, Ordering::Relaxed);
                        found(failure);
                    }
                    results.lock().expect("no thread panics").push((seed, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no thread panics");
    results.sort_by_key(|(seed, _)| *seed);
    let (mut reports, mut failures) = (Vec::new(), Vec::new());
    for (_, result) in results {
        match result {
            Ok(report) => reports.push(report),
            Err(failure) => failures.push(failure),
        }
    }
    (reports, failures)
}

#[test]
fn no_seed_breaks_a_promise() {
    if let Some(seed) = number("SKEIN_SIM_SEED") {
        match run(seed, &Options { trace: true, ..Options::default() }) {
            Ok(report) => println!("{report:?}"),
            Err(failure) => panic!("{failure}"),
        }
        return;
    }
    let count = number("SKEIN_SIM_SEEDS").unwrap_or(3000);
    let from = number("SKEIN_SIM_FROM").unwrap_or_default();
    let first = number("SKEIN_SIM_FIRST").is_some();
    let (reports, failures) =
        run_seeds(from..from + count, &Options::default(), first, |failure| {
            println!("{failure}");
            // A defect may make other seeds last for ever.
            std::process::exit(1);
        });
    for failure in failures.iter().take(5) {
        println!("{failure}\n");
    }
    assert!(failures.is_empty(), "{} of {count} seeds failed", failures.len());
    let sum = |of: fn(&Report) -> usize| reports.iter().map(of).sum::<usize>();
    let (answered, operations) = (sum(|r| r.answered), sum(|r| r.operations));
    let (entries, terms, faults) = (sum(|r| r.entries), sum(|r| r.terms), sum(|r| r.faults));
    let planned = sum(|r| r.planned);
    let (rebuilds, effects) = (sum(|r| r.rebuilds), sum(|r| r.effects));
    let (images, fetched) = (sum(|r| r.images), sum(|r| r.fetched));
    let (restores, forgot) = (sum(|r| r.restores), sum(|r| r.forgot));
    let (changes, flips, mended) = (sum(|r| r.changes), sum(|r| r.flips), sum(|r| r.mended));
    let undone = sum(|r| r.undone);
    let not_restored = sum(|r| r.not_restored);
    let in_turn = sum(|r| r.in_turn);
    let small = reports.iter().filter(|r| r.founders < 3);
    let grown = small.clone().filter(|r| r.members > 2).count();
    let small = small.count();
    let slowest = reports.iter().map(|r| r.served_after_us).max().unwrap_or_default() / 1000;
    let hours = reports.iter().map(|r| r.took_us).sum::<u64>() as f64 / 3.6e9;
    println!(
        "{count} seeds: {entries} entries, {answered} of {operations} operations answered, {terms} terms, {faults} faults, {rebuilds} servers rebuilt, {effects} effects outside, {images} images, {in_turn} of them in turn, {fetched} fetched, {restores} servers restored, {not_restored} not, {forgot} logs shortened, {changes} changes of members, {grown} of {small} clusters of one or two grew, {mended} of {flips} servers that differed in memory alone were found, {planned} entries taken by servers themselves, {undone} upgrades to programs that do not start undone, {hours:.2} simulated hours, served again after {slowest} ms at most"
    );
    // The run was meaningful: faults happened, leaders changed, and clients were served all the same.
    assert!(answered * 2 > operations && answered > 20 * reports.len());
    assert!(terms > 2 * reports.len() && faults > 3 * reports.len());
    assert!(rebuilds * 4 > reports.len(), "servers end, and go astray");
    assert!(planned > reports.len(), "servers take entries by themselves: {planned}");
    // One in a hundred clusters is upgraded to such a program.
    assert!(reports.len() < 1000 || undone * 300 > reports.len(), "undone upgrades: {undone}");
    assert!(effects > 100 * reports.len(), "servers print, connect and send datagrams");
    assert!(
        images > 5 * reports.len() && restores * 10 > reports.len(),
        "images are taken and used"
    );
    assert!(not_restored * 50 > reports.len(), "images that cannot be used: {not_restored}");
    // As users have it, and in most clusters here.
    assert!(in_turn > 2 * reports.len(), "images are taken in turn: {in_turn}");
    // One in twelve clusters begins with one replica or two, and one in five of these has more than two in the end.
    assert!(reports.len() < 1000 || grown * 300 > reports.len(), "clusters grow: {grown}");
    // Digests, and so images that can be compared, are rare in runs that short.
    assert!(flips < 80 || mended * 100 > flips, "memory that differs is found");
    assert!(changes * 4 > reports.len(), "members come and go");
    assert!(fetched * 20 > reports.len() && forgot * 2 > reports.len(), "fetched, and logs forget");
}

#[test]
fn a_seed_is_a_whole_history() {
    for seed in 0..10 {
        assert_eq!(run(seed, &Options::default()), run(seed, &Options::default()), "seed {seed}");
    }
}

/// Simulated time: messages take up to a millisecond each, and so do syncs.
#[test]
fn an_idle_cluster_rests_and_a_timer_that_says_something_is_heard_at_once() {
    let timer = |every_ms, speaks| Some(Timer { every_ms, speaks });
    let timers = [0, 1, 10].map(|speaks| [timer(100, speaks), timer(50, speaks)]);
    let timers = || [None].into_iter().chain(timers.into_iter().flatten());
    for (seed, timer) in (0..40).flat_map(|seed| timers().map(move |timer| (seed, timer))) {
        let options = Options { scenario: Scenario::Idle(timer), ..Options::default() };
        let Timer { every_ms, speaks } = timer.unwrap_or(Timer::TENTH);
        let report = run(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        let (syncs, seconds) = (report.idle_syncs, report.idle_us / 1_000_000);
        assert!(seconds >= 10, "seed {seed}: {report:?}");
        let due = 1000 / every_ms;
        // One more where the time ends.
        let most = match speaks {
            1 => due * 12 / 10 * seconds,
            0 => seconds + 1,
            _ => due.div_ceil(speaks) * (seconds + 1),
        };
        assert!(syncs <= most, "seed {seed}, {timer:?}: {syncs} syncs in {seconds} s");
        // The timer is due that long after its last entry. Silent ones have slack. Digests come, too.
        let entries = report.idle_entries;
        let (least, most) = match (timer, speaks) {
            (None, _) => (0, 2),
            (_, 0) => (1000 / (every_ms + 45) * seconds, due * 9 / 10 * seconds - 1),
            (_, _) => (due * 9 / 10 * seconds, due * 12 / 10 * seconds),
        };
        let timers = format!("seed {seed}, {timer:?}: {entries} entries in {seconds} s");
        assert!((least..=most).contains(&entries), "{timers}");
        // Timers and few heartbeats wake them, and little else.
        let wakes = report.idle_wakes / seconds;
        assert!(speaks > 0 || wakes <= 30, "seed {seed}: a node wakes {wakes} times a second");
        // Of the shorter ones, every second one is the server's own.
        let planned = report.planned as u64 / seconds;
        let least = if every_ms > 50 || speaks > 0 { 0 } else { 5 };
        assert!(planned >= least, "{timers}, {planned} a second planned");
        assert_eq!(report.idle_leaders, 0, "seed {seed}, {timer:?}");
        let heard_ms = report.idle_heard_us / 1000;
        assert!(heard_ms <= 155, "seed {seed}, {timer:?}: heard after {heard_ms} ms");
        assert_eq!(report.said_after_us > 0, speaks > 0, "seed {seed}, {timer:?}");
        assert!(report.said_after_us < 20_000, "seed {seed}, {timer:?}: {report:?}");
    }
}

#[test]
fn followers_take_their_images_in_turn() {
    let (mut images, mut largest) = (0, 0);
    for seed in 0..100 {
        let options = Options { scenario: Scenario::Turns, ..Options::default() };
        let report = run(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(report.stood_together, 0, "seed {seed}: {report:?}");
        assert!(report.images > 1, "seed {seed}: {report:?}");
        images += report.images;
        largest = largest.max(report.images);
    }
    assert!(images > 500, "{images} images, {largest} of one cluster");
}

/// As above. What others have committed waits for no sync that comes a second later, nor for a heartbeat.
#[test]
fn a_node_that_returns_to_an_idle_cluster_is_in_step_at_once() {
    for seed in 0..60 {
        let options = Options { scenario: Scenario::Returns, ..Options::default() };
        let report = run(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        let ms = report.in_step_after_us / 1000;
        assert!((1..500).contains(&ms), "seed {seed}: in step after {ms} ms");
    }
}

/// A rule that is broken on purpose is noticed within this many seeds.
fn is_noticed(broken: Break, within: u64) {
    let options = Options { broken: Some(broken), ..Options::default() };
    let Failure { seed, what, .. } = run_seeds(0..within, &options, true, |_| {})
        .1
        .into_iter()
        .next()
        .unwrap_or_else(|| panic!("{broken:?} was not noticed in {within} seeds"));
    println!("{broken:?} was noticed with seed {seed}: {what}");
}

#[test]
fn acknowledging_before_the_sync_is_noticed() {
    is_noticed(Break::AckBeforeSync, 200);
}

#[test]
fn a_disk_that_lies_is_noticed() {
    is_noticed(Break::LyingDisk, 100);
}

#[test]
fn a_vote_of_one_who_forgot_is_noticed() {
    is_noticed(Break::ForgetIncarnation, 200);
}

#[test]
fn output_that_leaves_before_the_commit_is_noticed() {
    is_noticed(Break::EarlyOutput, 100);
}

#[test]
fn a_server_that_answers_otherwise_is_noticed() {
    is_noticed(Break::WrongServer, 50);
}

#[test]
fn a_server_whose_end_nobody_tells_is_noticed() {
    is_noticed(Break::SilentEnd, 200);
}
