//! A disk that can stall: what is to be made durable waits until it goes on.

use super::LIMIT;
use skein_log::disk::{DirDisk, Disk, File};
use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// Whether disks stall, and how many threads wait for them.
#[derive(Default)]
pub struct Stall {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Stall {
    pub fn begin(&self) {
        self.state.lock().unwrap().0 = true;
    }

    pub fn end(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }

    pub fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
    }

    /// Not for ever: a test whose node hangs here must fail, not hang.
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        state = self.changed.wait_timeout_while(state, LIMIT, |state| state.0).unwrap().0;
        state.1 -= 1;
    }
}

pub struct StallDisk {
    disk: DirDisk,
    stall: Arc<Stall>,
}

impl StallDisk {
    pub fn open(path: &Path, stall: Arc<Stall>) -> io::Result<Self> {
        Ok(Self { disk: DirDisk::open(path)?, stall })
    }
}

impl Disk for StallDisk {
    fn location(&self) -> String {
        self.disk.location()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Box<dyn File>> {
        let file = self.disk.open(name, create)?;
        Ok(Box::new(StallFile { file, stall: self.stall.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.disk.lock()
    }
}

struct StallFile {
    file: Box<dyn File>,
    stall: Arc<Stall>,
}

impl File for StallFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.file.reserve(len)
    }

    fn zero(&self, from: u64, to: u64) -> io::Result<()> {
        self.file.zero(from, to)
    }

    fn sync(&self) -> io::Result<()> {
        self.stall.pass();
        self.file.sync()
    }
}
