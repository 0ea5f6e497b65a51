//! The repository's own rules, as one command and as a unit test.
//!
//! Six families, one module each: `layers` (which crate may depend on which), `rooms` (no circles among the modules of a crate), `sources` (the form
//! of source files), `docs` (links, decision records), `errors` (the
//! catalogue of messages) and `planted` (defects that are put back). Each reports all its complaints, not only the first. A complaint names the file, the rule and what to do.

mod docs;
mod errors;
mod layers;
mod planted;
mod rooms;
mod sources;

use std::fmt;
use std::path::{Path, PathBuf};

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Check nothing: list the rooms (top modules) of the crate in this directory, each behind those that it uses
    #[arg(long, value_name = "DIR")]
    rooms: Option<PathBuf>,
}

/// One broken rule in one place.
#[derive(Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The file (relative to the root) or crate that breaks the rule.
    place: String,
    /// Line from 1, or 0 where the whole file is meant.
    line: usize,
    /// The defect and the remedy.
    text: String,
}

impl Complaint {
    fn of_file(path: &Path, line: usize, text: impl Into<String>) -> Self {
        Self { place: path.display().to_string(), line, text: text.into() }
    }

    fn of_crate(name: &str, text: impl Into<String>) -> Self {
        Self { place: name.to_owned(), line: 0, text: text.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.place, self.text),
            line => write!(out, "{}:{line}: {}", self.place, self.text),
        }
    }
}

/// The text files that the rules look at, read once.
pub struct Tree {
    /// Every file of the repository, also those that are not text.
    paths: Vec<PathBuf>,
    /// Path and text of those that are UTF-8.
    texts: Vec<(PathBuf, String)>,
}

impl Tree {
    fn read(root: &Path) -> Outcome<Self> {
        let paths = workspace::files(root)?;
        let mut texts = Vec::new();
        for path in &paths {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => {
                    if let Ok(text) = String::from_utf8(bytes) {
                        texts.push((path.clone(), text));
                    }
                }
                // A file that vanished since it was listed is an editor's, not the repository's.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::of(path.display(), error)),
            }
        }
        Ok(Self { paths, texts })
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.texts.iter().find(|(at, _)| at == Path::new(path)).map(|(_, text)| text.as_str())
    }

    fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&Path, &str)> {
        self.texts
            .iter()
            .filter(move |(path, _)| path.extension().is_some_and(|at| at == extension))
            .map(|(path, text)| (path.as_path(), text.as_str()))
    }
}

/// Every complaint about the repository at `root`, sorted.
fn complaints(root: &Path) -> Outcome<Vec<Complaint>> {
    let tree = Tree::read(root)?;
    let mut all = layers::check(root)?;
    all.extend(rooms::check(&tree));
    all.extend(sources::check(&tree));
    all.extend(docs::check(&tree));
    all.extend(errors::check(&tree));
    all.extend(planted::check(&tree));
    all.sort_by(|a, b| (&a.place, a.line).cmp(&(&b.place, b.line)));
    Ok(all)
}

/// Prints every complaint; fails when there is one.
pub fn run(options: &Options) -> Outcome {
    if let Some(of) = &options.rooms {
        let tree = Tree::read(workspace::root())?;
        let text = rooms::list(&tree, of)
            .ok_or_else(|| Failure(format!("no crate of this workspace is in {}", of.display())))?;
        print!("{text}");
        return Ok(());
    }
    let all = complaints(workspace::root())?;
    for complaint in &all {
        println!("{complaint}");
    }
    if all.is_empty() {
        println!("tidy: nothing to complain about");
        return Ok(());
    }
    Err(Failure(format!("tidy: {} broken rules, listed above", all.len())))
}

#[cfg(test)]
impl Tree {
    /// A tree of the given files, for the rules' own tests.
    fn of(files: &[(&str, &str)]) -> Self {
        Self {
            paths: files.iter().map(|(path, _)| PathBuf::from(path)).collect(),
            texts: files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_its_rules() {
        let all = complaints(workspace::root()).expect("the repository can be read");
        let lines: Vec<String> = all.iter().map(Complaint::to_string).collect();
        assert!(lines.is_empty(), "broken rules:\n{}", lines.join("\n"));
    }
}
