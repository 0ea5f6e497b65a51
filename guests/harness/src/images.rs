//! Builds the programs: the guests and `libskein.so`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths.
#[derive(Debug, Clone)]
pub struct Images {
    /// The guests' sources, in the folders of their families.
    pub sources: PathBuf,
    /// The programs built from them, in folders of the same names.
    pub guests: PathBuf,
    /// The runtime.
    pub library: PathBuf,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("guests/harness is in it")
}

fn run(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{:?}: {status}", command.get_program())))
    }
}

impl Images {
    /// Builds programs that are older than their sources. The runtime is `SKEIN_RUNTIME`, or built beside this program.
    ///
    /// # Errors
    /// A compiler is missing or refuses.
    pub fn build() -> io::Result<Self> {
        let guests = profile()?.join("guests");
        run(Command::new(repository().join("guests/build.sh")).arg(&guests))?;
        let library = library()?;
        Ok(Self { sources: repository().join("guests"), guests, library })
    }
}

/// The directory of this program's profile: `target/<profile>/[deps/]<program>`.
fn profile() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().ok_or_else(|| io::Error::other("no directory"))?;
    let outer = if directory.ends_with("deps") { directory.parent() } else { Some(directory) };
    Ok(outer.ok_or_else(|| io::Error::other("no directory"))?.to_path_buf())
}

/// The runtime: `SKEIN_RUNTIME`, or built beside this program.
///
/// # Errors
/// It cannot be built, or is not there.
pub fn library() -> io::Result<PathBuf> {
    let profile = profile()?;
    let library = match std::env::var_os("SKEIN_RUNTIME") {
        Some(path) => PathBuf::from(path),
        None => {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            cargo.current_dir(repository()).args(["build", "--quiet", "-p", "skein-runtime"]);
            let name = profile.file_name().filter(|name| *name != "debug");
            cargo.arg("--profile").arg(name.unwrap_or(OsStr::new("dev")));
            if let Some(target) = profile.parent() {
                cargo.arg("--target-dir").arg(target);
            }
            run(&mut cargo)?;
            profile.join("libskein.so")
        }
    };
    let library = library.canonicalize().map_err(|e| {
        io::Error::new(e.kind(), format!("{}: {e}: build skein-runtime", library.display()))
    })?;
    Ok(library)
}
