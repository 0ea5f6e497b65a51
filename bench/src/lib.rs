//! The figures: a server alone, behind a plain proxy, beside bare replication, and under Skein, in one interleaved run.
//!
//! Each round starts every target afresh, measures it and stops it; ratios are taken within a
//! round, so that a change of the machine's speed affects all targets. Results go to a JSON file
//! with every sample, and from there to the terminal and the documents.
//! Bounded: no measurement begins after `--budget-s`, and every wait has a deadline. Processes are
//! stopped when their owner is dropped; native ones also die with this process. A benchmark that is killed
//! leaves a cluster: `skein stop --name bench-...` ends it, or, of `life`, `skein stop` with each `run-*` below `hosts` of its directory as `SKEIN_RUN_DIR`.

mod about;
pub mod bare;
mod builds;
mod failover;
mod growth;
mod life;
mod load;
mod measure;
mod outage;
pub mod peers;
mod process;
mod profile;
pub mod proxy;
pub mod report;
mod results;
mod servers;
mod stats;
mod target;
mod wire;

use skein_testkit::Outcome;

/// The selection: servers by name, or one of the parts with a name of its own.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    servers: measure::Options,
    /// Measure nothing: write the documents and the README's figures from the results
    #[arg(long)]
    report: bool,
    /// Measure nothing: fail if the results miss a goal that is not noted as missed, with its reason, in bench/src/report/judged.rs
    #[arg(long, conflicts_with = "report")]
    check: bool,
}

/// Measurements apart from the servers' own tables: a module each, with results of its own.
#[derive(clap::Subcommand)]
enum Part {
    /// Replication in use today, beside Skein: the same work in the same run
    Peers(peers::Options),
    /// How figures grow: connections, replicas, size of values, memory, length of the log, threads
    Growth(growth::Options),
    /// This build beside another one, in one interleaved run
    Builds(builds::Options),
    /// The outage when the leader of a busy server is killed
    Failover(failover::Options),
    /// A cluster under load that loses, replaces and repairs replicas: answers, disk and memory, each second
    Life(life::Options),
    /// Where the leader's CPU time goes, by sampling
    Profile(profile::Options),
}

/// Measures, or reports earlier results.
pub fn run(options: &Options) -> Outcome {
    match &options.part {
        Some(Part::Peers(options)) => peers::run(options, report::peers::comparison),
        Some(Part::Growth(options)) => growth::run(options),
        Some(Part::Builds(options)) => builds::run(options),
        Some(Part::Failover(options)) => failover::run(options),
        Some(Part::Life(options)) => life::run(options),
        Some(Part::Profile(options)) => profile::run(options),
        None if options.report => report::write(),
        None if options.check => report::check(),
        None => measure::run(&options.servers),
    }
}
