//! Processes that are killed at a step of their work on files: a library that is preloaded into them (`steps.c`, which says what a step is).

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::preload::compile;
use crate::{Failure, Outcome};

/// The length of a process's file: a number and a text.
const FILE_BYTES: usize = 512;
/// The position of the text.
const TEXT_AT: u64 = 8;

/// The library, and the directory of the processes' files.
pub struct Steps {
    dir: PathBuf,
    library: PathBuf,
}

impl Steps {
    /// Compiles the library in a directory.
    ///
    /// # Errors
    /// There is no compiler, or no room.
    pub fn new(dir: &Path) -> Outcome<Self> {
        let (library, dir) = (dir.join("steps.so"), dir.join("steps"));
        fs::create_dir(&dir).map_err(|error| Failure::of(dir.display(), error))?;
        compile(include_str!("steps.c"), &library)?;
        Ok(Self { dir, library })
    }

    /// Makes a command's processes load it: those with this word on their command line.
    pub fn attach(&self, command: &mut Command, word: &str) {
        command.env("LD_PRELOAD", &self.library).env("SKEIN_TEST_STEPS", &self.dir);
        command.env("SKEIN_TEST_STEPS_IN", word);
    }

    /// Kills a process that runs when it comes to this step for the `count`th time.
    ///
    /// # Errors
    /// The process has not loaded the library.
    pub fn kill_at(&self, pid: i32, step: &str, count: u64) -> Outcome {
        let path = self.dir.join(pid.to_string());
        let failed = |error| Failure::of(path.display(), error);
        let file = fs::File::options().write(true).open(&path).map_err(failed)?;
        let bytes = bytes(step, count);
        // The number is what makes it count.
        file.write_all_at(&bytes[TEXT_AT as usize..], TEXT_AT).map_err(failed)?;
        file.write_all_at(&bytes[..TEXT_AT as usize], 0).map_err(failed)
    }

    /// The same for the next process that starts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn kill_next_at(&self, step: &str, count: u64) -> Outcome {
        let (fresh, path) = (self.dir.join("fresh"), self.dir.join("next"));
        fs::write(&fresh, bytes(step, count))
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|error| Failure::of(path.display(), error))
    }

    /// The steps that a process has, or had, left before the one at which it was to be killed.
    ///
    /// # Errors
    /// The process had not loaded the library.
    pub fn left(&self, pid: i32) -> Outcome<u64> {
        let path = self.dir.join(pid.to_string());
        let mut number = [0; TEXT_AT as usize];
        fs::File::open(&path)
            .and_then(|file| file.read_exact_at(&mut number, 0))
            .map_err(|error| Failure::of(path.display(), error))?;
        Ok(u64::from_ne_bytes(number))
    }
}

fn bytes(step: &str, count: u64) -> Vec<u8> {
    let mut bytes = count.to_ne_bytes().to_vec();
    bytes.extend_from_slice(step.as_bytes());
    assert!(bytes.len() < FILE_BYTES, "a step is short");
    bytes.resize(FILE_BYTES, 0);
    bytes
}
