//! The root of the repository and the list of its files.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use crate::{Failure, Outcome};

/// The repository's root, known from the place where this crate was compiled.
#[must_use]
pub fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("this crate lies two directories below the root")
}

/// All files below `root` that git does not ignore, as paths relative to it, sorted.
pub fn files(root: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    let walk = WalkBuilder::new(root)
        .hidden(false)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| Failure::of("cannot list the repository", error))?;
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            let path = entry.path();
            found.push(path.strip_prefix(root).unwrap_or(path).to_path_buf());
        }
    }
    found.sort();
    Ok(found)
}
