//! Liveness: one replica is broken for good, each way at a leader and at a follower, and the others serve on. And followers that are slower than the leader
//! do not fall behind.
//!
//! What is asserted is simulated time, of a cluster whose messages take up to 40 ms and whose syncs up to 30 ms, with election timeouts of 150 or 300 ms and
//! patience of an election timeout to a second. A server that does nothing is noticed when another one's has got further for that long.

use skein_sim::options::{Asks, Brokenness, Scenario, Whose};
use skein_sim::{Options, Report, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const SEEDS: u64 = 20;

/// The longest wait of clients when a replica breaks in this way, in ms.
const fn bound_ms(how: Brokenness, whose: Whose) -> u64 {
    match (how, whose) {
        // No client waits for a follower, except one that had connected to it.
        (_, Whose::Follower) => 300,
        // An election at once, or after a timeout of silence.
        (Brokenness::Dead, _) => 1200,
        (Brokenness::Gone | Brokenness::Stopped | Brokenness::CutOff, _) => 2500,
        (Brokenness::Deaf | Brokenness::Mute, _) => 2500,
        // Commits do not wait for a leader's disk.
        (Brokenness::DiskHangs | Brokenness::DiskSlow, _) => 700,
        (Brokenness::DiskFull, _) => 900,
        // Given up after its patience; dead ones are repaired in vain first.
        (Brokenness::ServerHangs, _) => 3500,
        (Brokenness::ServerEnds | Brokenness::ServerRaves, _) => 1500,
        // Virtual time does not follow it.
        (Brokenness::ClockAhead, _) => 300,
    }
}

/// Whether a leader that is broken in this way must have handed over.
const fn is_unfit(how: Brokenness) -> bool {
    !matches!(how, Brokenness::DiskSlow | Brokenness::ClockAhead)
}

/// The fault of one kind of run, and the longest time without an answer, in ms.
fn look_at(how: Brokenness, whose: Whose) -> (u64, Vec<String>) {
    let bound_ms = bound_ms(how, whose);
    let (mut longest_ms, mut failures) = (0, Vec::new());
    for seed in 0..SEEDS {
        let scenario = Scenario::Broken(how, whose);
        let report = match run(seed, &Options { scenario, ..Options::default() }) {
            Ok(report) => report,
            Err(failure) => {
                failures.push(format!("{how:?} {whose:?}: {failure}"));
                continue;
            }
        };
        let silence_ms = report.silence_us / 1000;
        longest_ms = longest_ms.max(silence_ms);
        if silence_ms > bound_ms {
            failures.push(format!(
                "{how:?} {whose:?}: seed {seed}: {silence_ms} ms without an answer, at most {bound_ms} wanted"
            ));
        }
        if whose == Whose::Leader && is_unfit(how) && report.leader == report.broken {
            failures.push(format!("{how:?}: seed {seed}: the broken replica leads"));
        }
    }
    (longest_ms, failures)
}

/// A leader admits nothing more while its followers are behind by more than 100 ms. It looks now and then, and some entries are under way.
const LAG_MS: u64 = 150;

#[test]
fn followers_that_are_slow_do_not_fall_behind() {
    let options = Options { scenario: Scenario::SlowFollowers, ..Options::default() };
    for seed in 0..SEEDS {
        let report = run(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        let lag_ms = report.lag_us / 1000;
        println!("seed {seed}: {lag_ms} ms behind, {} entries", report.entries);
        assert!(lag_ms < LAG_MS, "seed {seed}: followers are {lag_ms} ms behind");
        assert!(report.entries > 700, "seed {seed}: {} entries", report.entries);
    }
}

/// The log says what most servers answered, and leads to something else on all machines. Each server is rebuilt a few times, until the replicas know of each other that they come
/// to the same.
#[test]
fn servers_that_the_log_leads_elsewhere_than_most_answered_serve_again() {
    let options = Options { scenario: Scenario::Refuted, ..Options::default() };
    for seed in 0..SEEDS {
        let report = run(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(report.faults, 1, "seed {seed}: the one that was right was not found to differ");
        assert!(report.rebuilds > 3, "seed {seed}: {} servers were rebuilt", report.rebuilds);
    }
}

/// The longest wait of clients: the nodes are away, one leads for an election timeout and is heard of for as long, and leadership goes.
const BEHIND_MS: u64 = 2000;

#[test]
fn a_leader_that_has_long_to_go_leaves_to_one_that_could_serve() {
    let options = Options { scenario: Scenario::Behind, ..Options::default() };
    for seed in 0..SEEDS {
        let report = run(seed, &options).unwrap_or_else(|failure| panic!("{failure}"));
        let silence_ms = report.silence_us / 1000;
        println!("seed {seed}: {silence_ms} ms without an answer, {} terms", report.terms);
        assert!(silence_ms < BEHIND_MS, "seed {seed}: {silence_ms} ms without an answer");
        assert_ne!(report.leader, report.broken, "seed {seed}: the one that is slow leads");
        // One for the begin, one for the slow one, one for the other; one more where votes were split.
        assert!(
            report.terms <= 4,
            "seed {seed}: leadership goes to and fro: {} terms",
            report.terms
        );
    }
}

fn asks(seed: u64, asks: Asks) -> Report {
    let options = Options { scenario: Scenario::Asks(asks), ..Options::default() };
    let report = run(seed, &options).unwrap_or_else(|failure| panic!("{asks:?}: {failure}"));
    let silence_ms = report.silence_us / 1000;
    let Report { terms, leader, changes, .. } = report;
    println!(
        "{asks:?}, seed {seed}: {silence_ms} ms without an answer, {terms} terms, {leader} leads, {changes} done"
    );
    report
}

#[test]
fn a_passive_replica_is_not_made_to_lead_where_it_would_not_stay_so() {
    for seed in 0..SEEDS {
        let report = asks(seed, Asks::PassiveToLead);
        assert_eq!((report.changes, report.leader), (0, 1), "seed {seed}: it is refused");
    }
}

#[test]
fn leadership_goes_to_one_that_lost_its_disk_when_it_has_its_vote_again() {
    for seed in 0..SEEDS {
        let report = asks(seed, Asks::ForgetfulToLead);
        assert_eq!(report.changes, 1, "seed {seed}: it leads in the end");
    }
}

/// The first leader, one that completes the change, and the new one; and one more where votes were split.
#[test]
fn leadership_does_not_go_to_and_fro_while_the_leader_is_replaced() {
    for how in [Asks::LeaderReplaced, Asks::ReplacedByWitness] {
        for seed in 0..SEEDS {
            let report = asks(seed, how);
            assert_eq!(report.changes, 1, "{how:?}, seed {seed}");
            assert!(report.terms <= 4, "{how:?}, seed {seed}: {} terms", report.terms);
        }
    }
}

/// It is withdrawn in the end, and the one that was to go leads again.
#[test]
fn leadership_does_not_go_to_and_fro_while_nobody_reaches_who_replaces_the_leader() {
    for seed in 0..SEEDS {
        let report = asks(seed, Asks::ReplacedOutOfReach);
        assert!(report.terms <= 4, "seed {seed}: {} terms", report.terms);
        assert_eq!(report.leader, 1, "seed {seed}");
    }
}

#[test]
fn the_others_serve_on_whatever_one_does() {
    let kinds: Vec<(Brokenness, Whose)> =
        Brokenness::ALL.into_iter().flat_map(|how| Whose::BOTH.map(|whose| (how, whose))).collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(&(how, whose)) = kinds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (longest_ms, mut found) = look_at(how, whose);
                    let bound_ms = bound_ms(how, whose);
                    println!("{how:?} {whose:?}: {longest_ms} ms without an answer, of {bound_ms}");
                    failures.lock().expect("no thread panics").append(&mut found);
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panics");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
