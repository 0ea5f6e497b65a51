//! Servers that continue from images under load, again and again.
//!
//! A *cycle*: clients of a server of the zoo go on without a pause; at a random point a replica takes an image; when that counts, its node or its server alone is
//! killed; its server continues from the image and catches up; more requests follow. A request of which the server has one half is finished then. Requirements of each: the server continued from that image or a newer one, it
//! sends the same bytes as the others', has the same memory and has written the same files; nothing differed on the way. At the end of a cluster everything acknowledged is
//! there. Often two replicas do so at the same time, leaders as well as followers.
//!
//! Invariants: it stops at the first difference, and then keeps the data directories. Otherwise nothing is left.

mod round;

use std::time::{Duration, Instant};

use self::round::Round;
use crate::interrupt::Interrupt;
use crate::zoo::cage::Cage;
use crate::zoo::load::Load;
use crate::zoo::species::{self, Species};
use crate::zoo::{install, say};
use skein_testkit::cluster::{Cluster, Server};
use skein_testkit::{Failure, Outcome, Random};

/// The servers when none is named.
const USUAL: [&str; 5] = ["redis", "memcached", "nginx", "postgres", "mariadb"];
const REPLICAS: u64 = 3;
/// Clients at one time. Each starts processes of its own for a request, which take more than the servers.
const CLIENTS: u64 = 2;
/// How long a server may take to be ready or to come back, on a machine that does much else.
const READY_MAX: Duration = Duration::from_secs(180);

/// The servers, and how many cycles.
#[derive(clap::Args)]
pub struct Options {
    /// The servers' names in the zoo [default: redis memcached nginx postgres mariadb]
    names: Vec<String>,
    /// Cycles of all servers together
    #[arg(long, default_value_t = 1000)]
    cycles: u64,
    /// Cycles before the next server's turn, with a fresh cluster
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    cycles_a_cluster: u64,
    /// No cycle begins after this time
    #[arg(long, value_name = "SECONDS")]
    budget_s: Option<u64>,
    /// Where the random choices begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What happened to one server.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    /// Images from which a server continued, and was like the others.
    cycles: u64,
    /// Of these, of leaders.
    leaders: u64,
    /// Requests whose first part a server had while it was restored, and that were answered after the rest.
    halves: u64,
    clusters: u64,
    /// Acknowledged requests that were there at the end.
    requests: u64,
    differences: u64,
    /// The longest that a server stood for an image [us].
    stood_us: u64,
    spent: Duration,
}

/// Runs the cycles; fails at the first difference.
pub fn run(options: &Options) -> Outcome {
    let usual = USUAL.map(String::from);
    let names = if options.names.is_empty() { &usual[..] } else { &options.names };
    let chosen = species::named(species::all()?, names)?;
    install(&chosen)?;
    let interrupt = Interrupt::catch()?;
    let begun = Instant::now();
    let in_time = || options.budget_s.is_none_or(|most| begun.elapsed().as_secs() < most);
    let mut tallies = vec![Tally::default(); chosen.len()];
    let mut chance = Random::new(options.seed);
    let mut failed = None;
    let share = options.cycles.div_ceil(chosen.len() as u64);
    'turns: while in_time() && tallies.iter().any(|tally| tally.cycles < share) {
        for (species, tally) in chosen.iter().zip(&mut tallies) {
            let left = share.saturating_sub(tally.cycles).min(options.cycles_a_cluster);
            if left == 0 || !in_time() {
                continue;
            }
            let start = Instant::now();
            let done = one_cluster(species, &interrupt, left, &mut chance, tally, &in_time);
            tally.spent += start.elapsed();
            say(&species.name, &format!("{} cycles, {} s", tally.cycles, tally.spent.as_secs()));
            if let Err(failure) = done {
                // Ctrl-C is no difference.
                tally.differences += u64::from(interrupt.check().is_ok());
                failed = Some(Failure(format!("{}: {failure}", species.name)));
                break 'turns;
            }
        }
    }
    print!("{}", table(&chosen, &tallies));
    failed.map_or(Ok(()), Err)
}

/// Cycles on a fresh cluster.
fn one_cluster(
    species: &Species,
    interrupt: &Interrupt,
    cycles: u64,
    chance: &mut Random,
    tally: &mut Tally,
    in_time: &dyn Fn() -> bool,
) -> Outcome {
    let mut cage = Cage::new(species)?;
    let (options, command) = (cage.options(), cage.command());
    let server = Server { options: &options, command: &command };
    let mut cluster = Cluster::start("soak", REPLICAS, cage.dir(), &server)?;
    tally.clusters += 1;
    let load = Load::new(&cage);
    let done = std::thread::scope(|scope| {
        let mut story = || {
            interrupt.wait_at_most(READY_MAX, "the service to be ready", || cluster.healthy())?;
            interrupt.wait_at_most(READY_MAX, "the first answer", || {
                cluster.check()?;
                Ok(cage.request(0)?.then_some(()))
            })?;
            for _ in 0..CLIENTS {
                scope.spawn(|| load.client());
            }
            let last = tally.cycles + cycles;
            while tally.cycles < last && in_time() {
                let round = Round { interrupt, cluster: &mut cluster, cage: &cage, load: &load };
                round.run((last - tally.cycles) as usize, chance, tally)?;
            }
            Ok(())
        };
        let told = story();
        load.finish();
        told
    });
    let done = done.and_then(|()| {
        tally.requests += load.read_back()?;
        Ok(())
    });
    if let Err(failure) = done {
        if interrupt.check().is_ok() {
            println!("{}", cluster.tell().trim_end());
            if let Some(path) = cluster.keep_data() {
                let (path, server) = (path.display(), cage.keep().display());
                say(
                    &species.name,
                    &format!("its data directories stay in {path}, its own in {server}"),
                );
            }
        }
        // What went wrong first is told.
        let _ = cluster.stop();
        return Err(failure);
    }
    cluster.stop()
}

/// The outcome, one line a server.
fn table(chosen: &[Species], tallies: &[Tally]) -> String {
    let mut out = String::from(
        "| server | cycles | of a leader | half-read requests answered | clusters | acknowledged requests, all there | longest stand for an image | differences |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut total = Tally::default();
    for (species, tally) in chosen.iter().zip(tallies) {
        out.push_str(&row(&species.name, tally));
        total.cycles += tally.cycles;
        total.leaders += tally.leaders;
        total.halves += tally.halves;
        total.clusters += tally.clusters;
        total.requests += tally.requests;
        total.differences += tally.differences;
        total.stood_us = total.stood_us.max(tally.stood_us);
    }
    out + &row("all", &total)
}

fn row(name: &str, tally: &Tally) -> String {
    format!(
        "| {name} | {} | {} | {} | {} | {} | {} ms | {} |\n",
        tally.cycles,
        tally.leaders,
        tally.halves,
        tally.clusters,
        tally.requests,
        tally.stood_us.div_ceil(1000),
        tally.differences
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_servers_are_in_the_zoo() {
        let chosen = species::named(species::all().unwrap(), &USUAL.map(String::from)).unwrap();
        assert_eq!(chosen.len(), USUAL.len());
        let tallies = vec![Tally { cycles: 3, ..Tally::default() }; chosen.len()];
        assert!(table(&chosen, &tallies).ends_with("| all | 15 | 0 | 0 | 0 | 0 | 0 ms | 0 |\n"));
    }
}
