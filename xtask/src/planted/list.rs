//! The lists of defects: `xtask/planted/*.toml`, a file for each part of Skein.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The lists' folder.
pub const LISTS: &str = "xtask/planted";

/// Whether a file of the repository is a list.
pub fn is_list(path: &Path) -> bool {
    path.starts_with(LISTS) && path.extension().is_some_and(|at| at == "toml")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    defect: Vec<Defect>,
}

/// A defect.
#[derive(Deserialize)]
pub struct Defect {
    /// Its name.
    pub name: String,
    /// The broken promise.
    pub what: String,
    /// The file.
    pub file: PathBuf,
    /// The original text, which occurs once,
    find: String,
    /// and its replacement.
    put: String,
    /// Its finder.
    #[serde(flatten)]
    pub finder: Finder,
    /// Put back by the tests.
    #[serde(default)]
    pub in_tests: bool,
}

/// The finder of a defect.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Finder {
    /// The simulation, within this many seeds.
    Seeds(u64),
    /// A test: the arguments of `cargo test`.
    Test(Vec<String>),
    /// A guest of this name.
    Guest(String),
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeds(seeds) => write!(f, "the simulation, {seeds} seeds"),
            Self::Test(arguments) => write!(f, "cargo test {}", arguments.join(" ")),
            Self::Guest(name) => write!(f, "the guest {name}"),
        }
    }
}

/// The defects of one list.
///
/// # Errors
/// It is no list.
pub fn parse(text: &str) -> Result<Vec<Defect>, String> {
    toml::from_str(text).map(|List { defect }| defect).map_err(|error| error.to_string())
}

impl Defect {
    /// The text with the defect in it.
    ///
    /// # Errors
    /// What it looks for is not there once.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 if self.find == self.put => Err(format!("{}: changes nothing", self.name)),
            1 => Ok(text.replacen(&self.find, &self.put, 1)),
            count => Err(format!(
                "{}: what it looks for stands {count} times in {}, not once",
                self.name,
                self.file.display()
            )),
        }
    }
}
