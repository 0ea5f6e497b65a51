//! A disk that can stall, or be slow: writes wait until it continues, or for a while.

use super::LIMIT;
use skein_log::disk::{DirDisk, Disk, File};
use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Whether disks stall, and how many threads wait for them.
#[derive(Default)]
pub struct Stall {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
    /// The additional milliseconds of each sync.
    pub delay_ms: AtomicU64,
    /// Only reads wait for as long as this is set.
    reads: AtomicBool,
}

impl Stall {
    pub fn begin(&self) {
        self.state.lock().unwrap().0 = true;
    }

    pub fn end(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }

    pub fn begin_reads(&self) {
        self.reads.store(true, Ordering::SeqCst);
    }

    pub fn end_reads(&self) {
        let state = self.state.lock().unwrap();
        self.reads.store(false, Ordering::SeqCst);
        drop(state);
        self.changed.notify_all();
    }

    fn pass_read(&self) {
        if self.reads.load(Ordering::SeqCst) {
            self.wait(|_| self.reads.load(Ordering::SeqCst));
        }
    }

    /// Not for ever: a test whose node hangs here must fail, not hang.
    fn wait(&self, mut stalls: impl FnMut(&(bool, usize)) -> bool) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        state = self.changed.wait_timeout_while(state, LIMIT, |state| stalls(state)).unwrap().0;
        state.1 -= 1;
    }

    pub fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
    }

    fn pass(&self) {
        self.wait(|state| state.0);
        let delay = self.delay_ms.load(Ordering::SeqCst);
        if delay > 0 {
            std::thread::sleep(Duration::from_millis(delay));
        }
    }
}

pub struct StallDisk {
    disk: DirDisk,
    stalls: Vec<Arc<Stall>>,
}

impl StallDisk {
    /// One that stalls with each of these.
    pub fn open(path: &Path, stalls: Vec<Arc<Stall>>) -> io::Result<Self> {
        Ok(Self { disk: DirDisk::open(path)?, stalls })
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
        Ok(Box::new(StallFile { file, stalls: self.stalls.clone() }))
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
    stalls: Vec<Arc<Stall>>,
}

impl File for StallFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.stalls.iter().for_each(|stall| stall.pass_read());
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
        self.stalls.iter().for_each(|stall| stall.pass());
        self.file.sync()
    }
}
