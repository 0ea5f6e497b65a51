//! Developer commands, as `cargo xtask COMMAND`.
//!
//! Owns the commands of a developer or of CI that are not a test of one crate: the repository's own rules
//! (`tidy`), the demonstration (`demo`), servers as Debian has them (`zoo`), images of them again and again (`soak`) and on other kernels (`kernels`), servers' own test suites (`suites`), the figures (`bench`) and the
//! measurements of a decision record (`handoff`). A new command is one module with an `Options` struct
//! (clap arguments) and a `run` function, and one line in `Command` and in `main`.
//! Nothing here is shipped, and no crate may depend on it.

mod counts;
mod demo;
mod handoff;
mod interposition;
mod interrupt;
mod kernels;
mod planted;
mod sequences;
mod soak;
mod suites;
mod tidy;
mod zoo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The command line.
#[derive(Parser)]
#[command(name = "cargo xtask", about = "Skein's developer commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// One developer command a variant.
#[derive(Subcommand)]
enum Command {
    /// Check the repository's own rules: layering, links, sizes, decision records
    Tidy(tidy::Options),
    /// Show a leader's death: three replicas of redis-server, no acknowledged write lost
    Demo(demo::Options),
    /// Print docs/interposition.md from the table of interposed calls
    Interposition(interposition::Options),
    /// Measure the cost of letting another thread run: futex against context switch
    Handoff(handoff::Options),
    /// Measure redis and memcached: alone, behind a proxy, and under Skein
    Bench(skein_bench::Options),
    /// Count the instructions of the hot path, and compare with the stored counts
    Counts(counts::Options),
    /// Put known defects back one by one, and check that each is found
    Planted(planted::Options),
    /// Make random sequences of calls on Linux and on Skein, and show the shortest one that differs
    Sequences(sequences::Options),
    /// Run servers as Debian has them: checked, and on three replicas while the leader dies
    Zoo(zoo::Options),
    /// Take images of servers under load and continue from them, again and again
    Soak(soak::Options),
    /// Boot other kernels, and carry images of servers between them and this host
    Kernels(kernels::Options),
    /// The part of `kernels` that runs on each machine
    #[command(hide = true)]
    KernelsInside(kernels::InsideOptions),
    /// Run a server's own test suite through three replicas, again and again
    Suites(suites::Options),
    /// The plain TCP proxy that `bench` compares with
    #[command(hide = true)]
    BenchProxy(skein_bench::proxy::Options),
    /// The bare replication that `bench` compares with
    #[command(hide = true, subcommand)]
    BenchBare(skein_bench::bare::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Tidy(options) => tidy::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Interposition(options) => interposition::run(&options),
        Command::Handoff(options) => handoff::run(&options),
        Command::Bench(options) => skein_bench::run(&options),
        Command::Counts(options) => counts::run(&options),
        Command::Planted(options) => planted::run(&options),
        Command::Sequences(options) => sequences::run(&options),
        Command::Zoo(options) => zoo::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Kernels(options) => kernels::run(&options),
        Command::KernelsInside(options) => kernels::run_inside(&options),
        Command::Suites(options) => suites::run(&options),
        Command::BenchProxy(options) => skein_bench::proxy::run(&options),
        Command::BenchBare(options) => skein_bench::bare::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_line_can_be_read() {
        super::Arguments::command().debug_assert();
    }
}
