//! `skein files --export DIR`: the files that the server has written, as they were at one entry.
//!
//! They come from an image that a replica of this machine takes now ([`images::fresh`]).
//!
//! Exit codes: 0 done; 2 it cannot be done; 3 no such cluster.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use skein_node::durable;
use skein_node::images::export::export_files;
use skein_sandbox::Amount;

use crate::args::FilesArgs;
use crate::failure::Failure;
use crate::images::{self, failure, follower};
use crate::instance::{self, NodeFiles};
use crate::status::state_of;
use crate::words::{bytes, number};

/// Exports; answers the exit code.
pub fn export(args: &FilesArgs, dir: &Path) -> Result<u8, Failure> {
    let state = state_of(&instance::find(args.name.as_deref())?)?;
    if let Some(relative) = args.paths.iter().find(|path| path.is_relative()) {
        let what = relative.display().to_string();
        return Err(Failure::new(what, "it does not begin with a slash", "name the server's path"));
    }
    check_free(dir)?;
    let nodes: Vec<&NodeFiles> = state.nodes.iter().collect();
    let node = follower(&nodes)
        .ok_or_else(|| failure(&state, "no replica here answers", "see 'skein status'"))?;
    let (index, image) = images::fresh(&state, node, |_| true)?;
    let amount = write(&image, dir, &args.paths)?;
    println!(
        "skein: {}: {}: {} files of replica {} as of entry {}: {}",
        state.name,
        dir.display(),
        number(amount.files),
        node.id,
        number(index),
        bytes(amount.bytes)
    );
    Ok(0)
}

fn unusable(dir: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("--export {}", dir.display()), error, "nothing was written")
}

/// The directory is new, or empty.
fn check_free(dir: &Path) -> Result<(), Failure> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(dir, error)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(unusable(dir, "the directory is not empty")),
        },
    }
}

/// Writes the files of an image to `dir`, which has its name when it is whole.
fn write(image: &Path, dir: &Path, paths: &[PathBuf]) -> Result<Amount, Failure> {
    let failed = |error: io::Error| unusable(dir, error);
    let name = dir.file_name().ok_or_else(|| unusable(dir, "it has no name"))?;
    let mut part_name = std::ffi::OsString::from(".");
    part_name.push(name);
    part_name.push(".part");
    let part = dir.with_file_name(part_name);
    // By this name it is ours: an export that was killed has left it.
    match fs::remove_dir_all(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(unusable(&part, error));
        }
        _ => {}
    }
    let made = fs::DirBuilder::new().mode(0o700).create(&part);
    made.map_err(|error| unusable(&part, error))?;
    let exported = export_files(image, &part, paths).map_err(|error| unusable(dir, error));
    let written = exported.and_then(|amount| {
        fs::rename(&part, dir).map_err(failed)?;
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        durable::sync_above(above.unwrap_or(Path::new("."))).map_err(failed)?;
        Ok(amount)
    });
    if written.is_err() {
        // The error of the export is the one that matters.
        let _ = fs::remove_dir_all(&part);
    }
    written
}
