//! Wall clocks and disks of nodes that a test changes while they run: a library that is preloaded into them (`preloaded.c`).

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::Place;

/// The position of each number in a node's file.
const OFF: u64 = 0;
const IN_ODD_SECONDS: u64 = 8;
const SYNC: u64 = 16;

/// The directory of the nodes' files.
pub struct Preloaded {
    dir: PathBuf,
    library: PathBuf,
}

impl Preloaded {
    /// Compiles the library.
    pub fn new(place: &Place) -> Self {
        let (dir, library) = (place.path("preloaded"), place.path("preloaded.so"));
        fs::create_dir(&dir).unwrap();
        skein_testkit::preload::compile(include_str!("preloaded.c"), &library).unwrap();
        Self { dir, library }
    }

    /// Makes a command's nodes use it.
    pub fn attach(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("SKEIN_TEST_HOSTS", &self.dir);
    }

    /// Sets the error of a node's clock, in seconds.
    pub fn set_clock(&self, pid: i32, seconds: i64) {
        self.write(pid, OFF, seconds * 1_000_000_000);
        self.write(pid, IN_ODD_SECONDS, 0);
    }

    /// Makes the clock step forward and back in turn, once a second.
    pub fn step_each_second(&self, pid: i32, by: Duration) {
        self.write(pid, OFF, 0);
        self.write(pid, IN_ODD_SECONDS, by.as_nanos() as i64);
    }

    /// Delays each sync of a file by this much; `None`: it hangs, until this is called again.
    pub fn set_disk(&self, pid: i32, delay: Option<Duration>) {
        self.write(pid, SYNC, delay.map_or(-1, |delay| delay.as_nanos() as i64));
    }

    #[track_caller]
    fn write(&self, pid: i32, at: u64, number: i64) {
        let file = fs::File::options().write(true).open(self.dir.join(pid.to_string()));
        let file = file.expect("the node has loaded the library");
        file.write_all_at(&number.to_ne_bytes(), at).unwrap();
    }
}
