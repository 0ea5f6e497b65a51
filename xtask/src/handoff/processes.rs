//! The turn's way from one process of a server to another, under the runtime: two processes that pass a token, run by the harness.
//!
//! The cost of the program's start and end is subtracted by a second run that passes no token.

use std::path::{Path, PathBuf};
use std::process::Command;

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// How tokens are passed.
#[derive(Clone, Copy)]
pub enum By {
    /// A byte through a pipe.
    Pipe,
    /// A word of shared memory and a futex.
    Futex,
}

/// The program and what it runs under.
pub struct Tokens {
    harness: PathBuf,
    program: tempfile::TempPath,
}

impl Tokens {
    /// Compiles the program; `None` when the harness and the runtime have not been built, or not lately.
    pub fn prepare() -> Outcome<Option<Self>> {
        let root = workspace::root();
        let harness = root.join("target/release/skein-harness");
        if !harness.exists() || !root.join("target/release/libskein.so").exists() {
            return Ok(None);
        }
        let failed = |error| Failure::of("cannot compile xtask/src/handoff/tokens.c", error);
        let program = tempfile::NamedTempFile::new().map_err(failed)?.into_temp_path();
        let source = root.join("xtask/src/handoff/tokens.c");
        let status = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(source)
            .status()
            .map_err(failed)?;
        if !status.success() {
            return Err(Failure("cc refuses xtask/src/handoff/tokens.c".to_owned()));
        }
        let tokens = Self { harness, program };
        // An old harness may not know the option.
        if let Err(why) = tokens.run_ns(By::Pipe, 0) {
            eprintln!(
                "no hand-overs between processes: {why}; build skein-harness and skein-runtime (--release)"
            );
            return Ok(None);
        }
        Ok(Some(tokens))
    }

    /// Nanoseconds of a hand-over of the turn: each token's way takes one.
    pub fn handover_ns(&self, by: By, handovers: u32) -> Outcome<f64> {
        let took = self.run_ns(by, handovers / 2)? - self.run_ns(by, 0)?;
        Ok(took / f64::from(handovers))
    }

    fn run_ns(&self, by: By, count: u32) -> Outcome<f64> {
        let how = match by {
            By::Pipe => "pipe",
            By::Futex => "futex",
        };
        let output = Command::new(&self.harness)
            .arg("--time")
            .arg::<&Path>(&self.program)
            .args([how, &count.to_string()])
            .env("SKEIN_RUNTIME", workspace::root().join("target/release/libskein.so"))
            .output()
            .map_err(|error| Failure::of(self.harness.display(), error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            Failure(format!("{}: {}", self.harness.display(), said.trim()))
        })
    }
}
