//! Libraries that tests preload into processes.

use std::path::Path;
use std::process::Command;

use crate::{Failure, Outcome};

/// Compiles a library of this text in C; the text stays beside it.
///
/// # Errors
/// There is no compiler, no room, or the text is wrong.
pub fn compile(text: &str, library: &Path) -> Outcome {
    let source = library.with_extension("c");
    std::fs::write(&source, text).map_err(|error| Failure::of(source.display(), error))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(library);
    match compiler.arg(&source).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure(format!("cc {}: {status}", source.display()))),
        Err(error) => Err(Failure::of("cc; run scripts/setup.sh test", error)),
    }
}
