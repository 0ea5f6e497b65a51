//! What a machine shall do, and what it has done: files between this process and the one on the machine.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use skein_testkit::{Failure, Outcome};

const PLAN: &str = "plan.json";
const GIVEN: &str = "given.json";

/// What a machine shall do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Its name.
    pub machine: String,
    /// Servers to begin, and to take images of.
    pub begin: Vec<String>,
    /// Images to continue from.
    pub carried: Vec<Carried>,
    /// Ask for more than there is.
    pub spoil: bool,
}

/// An image of another machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Carried {
    /// The server's name in the zoo.
    pub species: String,
    /// The exported file.
    pub file: PathBuf,
    /// The machine's name.
    pub from: String,
    /// What that machine's processor can do, by the kernel's names.
    pub extensions: Vec<String>,
    /// The requests that must be there.
    pub acknowledged: Vec<u64>,
}

/// What a machine has done.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Given {
    /// What its processor can do.
    pub extensions: Vec<String>,
    /// Its exported images.
    pub taken: Vec<Taken>,
    /// Steps that failed.
    pub failed: u64,
}

/// An exported image.
#[derive(Debug, Serialize, Deserialize)]
pub struct Taken {
    /// The server's name in the zoo.
    pub species: String,
    /// The file's name.
    pub file: String,
    /// What the server had acknowledged before.
    pub acknowledged: Vec<u64>,
}

impl Plan {
    /// Puts it into a directory.
    pub fn write(&self, dir: &Path) -> Outcome {
        write(&dir.join(PLAN), self)
    }

    /// Reads it again.
    pub fn read(dir: &Path) -> Outcome<Self> {
        read(&dir.join(PLAN))
    }
}

impl Given {
    /// Puts it into a directory.
    pub fn write(&self, dir: &Path) -> Outcome {
        write(&dir.join(GIVEN), self)
    }

    /// Reads it again; a machine that did not come to its end has none.
    pub fn read(dir: &Path) -> Outcome<Self> {
        read(&dir.join(GIVEN))
    }
}

fn write(path: &Path, value: &impl Serialize) -> Outcome {
    let text = serde_json::to_vec(value).map_err(|error| Failure::of(path.display(), error))?;
    super::write(path, text)
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Outcome<T> {
    let failed = |error: &dyn std::fmt::Display| Failure::of(path.display(), error);
    let text = fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&error))
}
