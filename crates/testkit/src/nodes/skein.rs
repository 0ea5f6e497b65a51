//! A Skein that is installed somewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Failure, Outcome};

/// The command and its runtime.
#[derive(Debug, Clone)]
pub struct Skein {
    /// `skein`.
    pub program: PathBuf,
    /// `libskein.so`.
    pub runtime: PathBuf,
}

impl Skein {
    /// The one in a directory.
    #[must_use]
    pub fn within(dir: &Path) -> Self {
        Self { program: dir.join("skein"), runtime: dir.join("libskein.so") }
    }

    /// Copies it into a new directory, and lets `change` make another runtime of its own.
    ///
    /// # Errors
    /// It is not there, the directory is, or there is no room.
    pub fn copy(&self, dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Outcome<Self> {
        let copy = Self::within(dir);
        let copied = || {
            fs::create_dir(dir)?;
            fs::copy(&self.program, &copy.program)?;
            let mut runtime = fs::read(&self.runtime)?;
            change(&mut runtime);
            fs::write(&copy.runtime, runtime)
        };
        copied().map_err(|error| Failure::of(format!("a Skein in {}", dir.display()), error))?;
        Ok(copy)
    }

    /// The command, to get arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("SKEIN_RUNTIME", &self.runtime).stdin(Stdio::null());
        command
    }
}
