//! Replication in use today, beside Skein: the same work, in the same run, on the same machine.
//!
//! A comparison is one file here (a [`Peer`]) and one line in [`ALL`]: it says which ways of running a service it
//! compares ([`Contender`]), names the promises of each, and measures one of them. The shared parts are
//! here: interleaved rounds, the budget of time, and results (`bench/results/peers.json`). The page made from them and from
//! the papers' figures (`bench/reports/comparison.md`) is a document ([`crate::report`]).
//!
//! A peer's processes are children that die with this process ([`group`]); a missing program leaves one comparison out.

mod etcd;
mod faults;
mod group;
mod mariadb;
mod postgres;
mod redis;
pub mod sample;
mod sentinel;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;

use self::sample::{Comparison, Finding, Peers, Sample};
use super::about::{self, About};
use super::process::interrupts;
use skein_testkit::{Failure, Outcome};

/// All comparisons, in the order of the page.
pub const ALL: &[&dyn Peer] =
    &[&redis::Redis, &sentinel::Sentinel, &etcd::Etcd, &mariadb::MariaDb, &postgres::Postgres];

/// One comparison.
pub trait Peer: Sync {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;
    /// Its title.
    fn heading(&self) -> &'static str;
    /// The workload and the set-up of each contender.
    fn work(&self) -> &'static str;
    /// Programs that it needs: in PATH, or with their whole path.
    fn programs(&self) -> &'static [&'static str];
    /// Commands that print the versions of the measured programs.
    fn versions(&self) -> &'static [&'static [&'static str]];
    /// The contenders; ratios are taken to the first one.
    fn contenders(&self) -> &'static [Contender];
    /// The timed operations, in their order; empty where only faults are measured.
    fn operations(&self) -> &'static [&'static str];
    /// Connections of the crowd, where the default does not fit.
    fn clients(&self, wanted: u32) -> u32 {
        wanted
    }
    /// Starts one contender afresh, measures it, and ends it.
    fn measure(&self, contender: &Contender, scale: &Scale) -> Outcome<Finding>;
}

/// One way of running a service.
#[derive(Debug)]
pub struct Contender {
    /// Its name in results.
    pub id: &'static str,
    /// Its name in tables.
    pub name: &'static str,
    /// Its promises: durability, losses at a failover, consistency.
    pub promise: &'static str,
}

/// Skein as in every comparison.
pub const SKEIN_MEMORY: Contender = Contender {
    id: "skein-3-memory",
    name: "Skein, 3 replicas, memory",
    promise: "As with fsync, but a request counts as written when it is in the memory of two of three: when two of them die \
              at once, acknowledged writes are gone.",
};

/// Skein as it is by default.
pub const SKEIN_FSYNC: Contender = Contender {
    id: "skein-3-fsync",
    name: "Skein, 3 replicas, fsync",
    promise: "A reply is sent when the request is on the disks of two of three. A failover loses no acknowledged write, and \
              needs nobody to decide it. Reads and writes are linearizable: all go through the log. Any of the server's \
              commands, unmodified. Connections break at a failover; a request without an answer may or may not have been \
              executed.",
};

/// The amount of work.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Requests an operation, all connections together; slower services take less.
    pub requests: u32,
    /// Connections of the crowd.
    pub clients: u32,
    /// How often the serving process is killed.
    pub kills: u32,
    /// How often it is stopped and continued.
    pub pauses: u32,
}

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Which comparisons [default: all]
    #[arg(value_parser = PossibleValuesParser::new(ALL.iter().map(|peer| peer.name())))]
    names: Vec<String>,
    /// Rounds; medians of them count
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Requests an operation and round, all connections together
    #[arg(long, default_value_t = 10_000)]
    requests: u32,
    /// Connections of the crowd
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// How many times what serves is killed, in each round
    #[arg(long, default_value_t = 3)]
    kills: u32,
    /// How many times it is stopped and continued, in each round
    #[arg(long, default_value_t = 1)]
    pauses: u32,
    /// No measurement begins after this many seconds
    #[arg(long, default_value_t = 540)]
    budget_s: u64,
    /// Where results go; other comparisons that are there stay [default: bench/results/peers.json]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Measures; `shown` makes a comparison's text for the terminal.
pub fn run(options: &Options, shown: fn(&Comparison) -> String) -> Outcome {
    if options.requests < options.clients || options.clients == 0 || options.rounds == 0 {
        return Err(Failure(
            "--requests below --clients, or none at all, measure nothing".to_owned(),
        ));
    }
    let output = options.output.clone().unwrap_or_else(sample::latest);
    let mut peers: Peers = about::read(&output)?.unwrap_or_default();
    let measured = measure(options)?;
    for comparison in &measured {
        println!("\n{}", shown(comparison));
    }
    let failures: Vec<String> = measured.iter().flat_map(|at| at.failures.clone()).collect();
    peers.replace(measured);
    about::write(&output, &peers)?;
    println!("all samples: {}", output.display());
    match failures.first() {
        Some(first) => Err(Failure::of("not everything could be measured", first)),
        None => Ok(()),
    }
}

fn measure(options: &Options) -> Outcome<Vec<Comparison>> {
    let interrupt = interrupts()?;
    let until = Instant::now() + Duration::from_secs(options.budget_s);
    let scale = Scale {
        requests: options.requests,
        clients: options.clients,
        kills: options.kills,
        pauses: options.pauses,
    };
    let mut started = Vec::new();
    for peer in ALL.iter().filter(|peer| wanted(options, peer.name())) {
        match missing(*peer) {
            Some(program) => println!(
                "{}: left out, since there is no {program}: scripts/setup.sh bench installs it",
                peer.name()
            ),
            None => started.push((*peer, begun(*peer, options)?)),
        }
    }
    for round in 0..options.rounds {
        for (peer, comparison) in &mut started {
            let contenders = peer.contenders();
            for turn in 0..contenders.len() {
                if interrupt.load(Ordering::Relaxed) {
                    return Err(Failure("interrupted".to_owned()));
                }
                // Another order each round, so that the order has no effect on the median.
                let contender = &contenders[(turn + round as usize) % contenders.len()];
                if Instant::now() > until {
                    let say = format!(
                        "{}, round {}: out of time: --budget-s {}",
                        contender.name,
                        round + 1,
                        options.budget_s
                    );
                    println!("{}: {say}", peer.name());
                    comparison.failures.push(say);
                    continue;
                }
                measure_one(*peer, contender, round, &scale, comparison)?;
            }
        }
    }
    let finished = started.into_iter().map(|(_, mut comparison)| {
        comparison.about.unix_time_s = about::unix_time_s();
        comparison
    });
    Ok(finished.collect())
}

fn wanted(options: &Options, name: &str) -> bool {
    options.names.is_empty() || options.names.iter().any(|wanted| wanted == name)
}

/// A missing program that the comparison needs.
fn missing(peer: &dyn Peer) -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&&str| {
        program.starts_with('/') && std::path::Path::new(program).exists()
            || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    peer.programs().iter().find(|program| !is_there(program)).copied()
}

/// A comparison without samples.
fn begun(peer: &dyn Peer, options: &Options) -> Outcome<Comparison> {
    let command = format!(
        "cargo xtask bench peers {} --rounds {} --requests {} --clients {} --kills {} --pauses {}",
        peer.name(),
        options.rounds,
        options.requests,
        options.clients,
        options.kills,
        options.pauses
    );
    let mut about = About::look(command, peer.versions().iter().copied())?;
    about.machine.sync_us.push(about::sync_us()?);
    let name = peer.name().to_owned();
    Ok(Comparison {
        name,
        about,
        clients: peer.clients(options.clients),
        samples: Vec::new(),
        failures: Vec::new(),
    })
}

fn measure_one(
    peer: &dyn Peer,
    contender: &Contender,
    round: u32,
    scale: &Scale,
    comparison: &mut Comparison,
) -> Outcome {
    let load_average = about::load_average()?;
    let began = Instant::now();
    match peer.measure(contender, scale) {
        Ok(found) => {
            println!(
                "round {} {:<9} {:<42} {} ({:.0} s)",
                round + 1,
                peer.name(),
                contender.name,
                found.summary(),
                began.elapsed().as_secs_f64()
            );
            let contender = contender.id.to_owned();
            comparison.samples.push(Sample { contender, round, load_average, found });
        }
        Err(failure) => {
            let say = format!("{}, round {}: {failure}", contender.name, round + 1);
            eprintln!("{}: {say}", peer.name());
            comparison.failures.push(say);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_told_apart() {
        let names: BTreeSet<&str> = ALL.iter().map(|peer| peer.name()).collect();
        assert_eq!(names.len(), ALL.len());
        for peer in ALL {
            let ids: BTreeSet<&str> = peer.contenders().iter().map(|at| at.id).collect();
            assert_eq!(ids.len(), peer.contenders().len(), "{}", peer.name());
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        struct Nobody;
        impl Peer for Nobody {
            fn name(&self) -> &'static str {
                "nobody"
            }
            fn heading(&self) -> &'static str {
                ""
            }
            fn work(&self) -> &'static str {
                ""
            }
            fn programs(&self) -> &'static [&'static str] {
                &["sh", "/bin/sh", "/no/such/program"]
            }
            fn versions(&self) -> &'static [&'static [&'static str]] {
                &[]
            }
            fn contenders(&self) -> &'static [Contender] {
                &[]
            }
            fn operations(&self) -> &'static [&'static str] {
                &[]
            }
            fn measure(&self, _: &Contender, _: &Scale) -> Outcome<Finding> {
                Ok(Finding::default())
            }
        }
        assert_eq!(missing(&Nobody), Some("/no/such/program"));
    }
}
