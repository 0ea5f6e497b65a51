//! Servers of this repository, and how each is compiled.

use std::path::Path;
use std::process::Command;

use crate::workspace;
use crate::{Failure, Outcome};

/// The sources' directory.
pub const FOLDER: &str = "crates/cli/tests/servers";

/// Compiles one, in C, C++ or Rust by its file's end.
///
/// # Errors
/// There is no compiler, no library, or no room.
pub fn compile(source: &str, to: &Path) -> Outcome {
    let (name, kind) = source.rsplit_once('.').unwrap_or((source, ""));
    let (compiler, flags): (&str, &[&str]) = match kind {
        "c" => ("cc", &["-std=gnu11", "-O2", "-pthread"]),
        "cc" => ("c++", &["-std=c++20", "-O2", "-pthread"]),
        "rs" => ("rustc", &["--edition", "2024", "-O"]),
        _ => return Err(Failure(format!("{source} is neither C, C++ nor Rust"))),
    };
    let libraries: &[&str] =
        if name.ends_with("libevent") { &["-levent", "-levent_pthreads"] } else { &[] };
    let from = workspace::root().join(FOLDER).join(source);
    let mut command = Command::new(compiler);
    command.args(flags).arg("-o").arg(to).arg(from).args(libraries);
    let cannot =
        |why: String| Failure(format!("{compiler} {source}: {why}; run scripts/setup.sh test"));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(cannot(status.to_string())),
        Err(error) => Err(cannot(error.to_string())),
    }
}
