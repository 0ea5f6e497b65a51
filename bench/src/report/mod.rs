//! Results as documents: `docs/performance.md`, those in `bench/reports`, the README's figures, and all other pages made from results.
//!
//! Everything is computed from the files in `bench/results`, so that the documents cannot contradict them;
//! `cargo xtask tidy` compares. A new document is a line in [`PAGES`].

mod checkpoints;
mod failover;
mod goals;
mod growth;
mod judged;
mod lasting;
mod life;
mod page;
mod papers;
pub mod peers;
mod plots;
mod profile;
mod readme;
mod room;
pub mod servers;
pub mod text;

pub use judged::check;

use super::about;
use super::results::{self, Results};
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// A file that is made from results.
pub struct Page {
    /// Path from the repository's root.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// Makers of pages.
const PAGES: &[fn() -> Outcome<Vec<Page>>] = &[
    page::pages,
    readme::pages,
    servers::plots,
    growth::pages,
    checkpoints::pages,
    life::pages,
    peers::pages,
];

/// Every file as it must be.
pub fn pages() -> Outcome<Vec<Page>> {
    let mut all = Vec::new();
    for make in PAGES {
        all.extend(make()?);
    }
    Ok(all)
}

/// Writes every file.
pub fn write() -> Outcome {
    for Page { path, text } in pages()? {
        let path = workspace::root().join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| Failure::of(folder.display(), error))?;
        }
        std::fs::write(&path, text).map_err(|error| Failure::of(path.display(), error))?;
    }
    Ok(())
}

/// The servers' tables and the goals, for the terminal.
pub fn tables(results: &Results) -> String {
    format!("{}## Goals\n\n{}", servers::tables(results), goals::goals(results))
}

/// The results that `cargo xtask bench` has stored.
pub fn latest() -> Outcome<Results> {
    let path = results::latest();
    about::read(&path)?
        .ok_or_else(|| Failure::of(path.display(), "not there: run `cargo xtask bench all` first"))
}
