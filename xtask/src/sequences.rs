//! Random sequences of calls on Linux and on Skein: runs the guests that `make test` runs, with any numbers of sequences.

use std::process::Command;

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Only guests with this in their names, or of this family: `tcp/`
    #[arg(long)]
    family: Option<String>,
    /// How many sequences of each
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// The first sequence's number
    #[arg(long, default_value_t = 100_000)]
    seed: u64,
}

/// Builds the runtime and the harness; the harness does the rest.
pub fn run(options: &Options) -> Outcome {
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(workspace::root());
        cargo
    };
    let profile = ["--quiet", "--profile", "checked"];
    let mut build = cargo();
    build.arg("build").args(profile).args(["-p", "skein-runtime", "-p", "skein-harness"]);
    succeed(build)?;
    let target = workspace::root().join("target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(target, Into::into);
    let mut harness = Command::new(target.join("checked/skein-harness"));
    harness
        .arg("--sequences")
        .args([options.seed.to_string(), options.count.to_string()])
        .args(&options.family)
        .env("SKEIN_RUNTIME", target.join("checked/libskein.so"));
    succeed(harness)
}

fn succeed(mut command: Command) -> Outcome {
    let status = command
        .status()
        .map_err(|e| Failure(format!("{}: {e}", command.get_program().display())))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure(format!("{}: {status}", command.get_program().display())))
    }
}
