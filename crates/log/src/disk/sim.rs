//! A disk in memory that forgets, tears and fails on request, always in the same way for the same seed.
//!
//! Each file is its durable content plus the list of operations since its last sync. Reads see all of them, as through a
//! page cache. [`SimDisk::crash`] decides for each pending operation whether it became durable: not, wholly, or each
//! 512-byte sector on its own, one of them torn at any byte. A sync that fails may drop pending operations, as ext4 and xfs do: they can still be read,
//! and no later sync writes them. Names are durable once the directory was synced; before that each change of one may be lost by itself.
//! Sectors can be made unreadable until they are written again.

use super::{Disk, File};
pub use crate::rng::Rng as SimRng;
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
enum Op {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Op {
    fn apply(&self, data: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => apply_write(data, *offset, bytes),
            Self::SetLen(len) => data.resize(*len, 0),
        }
    }
}

#[derive(Clone, Default)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Op>,
    /// Sectors that cannot be read.
    bad: BTreeSet<usize>,
}

fn apply_write(data: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[offset..end].copy_from_slice(bytes);
}

impl Content {
    fn apply(&mut self, op: Op) {
        if let Op::Write { offset, bytes } = &op {
            let written = offset / SECTOR_BYTES..(offset + bytes.len()).div_ceil(SECTOR_BYTES);
            self.bad.retain(|sector| !written.contains(sector));
        }
        op.apply(&mut self.current);
        self.pending.push(op);
    }

    fn sync(&mut self) {
        self.pending.drain(..).for_each(|op| op.apply(&mut self.durable));
    }

    /// The content after a crash, with each pending operation lost, done, or torn.
    fn crash(&mut self, rng: &mut SimRng) {
        let mut data = std::mem::take(&mut self.durable);
        for op in self.pending.drain(..) {
            match op {
                Op::SetLen(len) => {
                    if rng.chance(50) {
                        data.resize(len, 0);
                    }
                }
                Op::Write { offset, bytes } => match rng.below(4) {
                    0 => {}
                    1 => apply_write(&mut data, offset, &bytes),
                    // A prefix, cut at any byte.
                    2 => apply_write(
                        &mut data,
                        offset,
                        &bytes[..rng.below(bytes.len() as u64 + 1) as usize],
                    ),
                    _ => {
                        for (n, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                            if rng.chance(50) {
                                apply_write(&mut data, offset + n * SECTOR_BYTES, sector);
                            }
                        }
                    }
                },
            }
        }
        self.current.clone_from(&data);
        self.durable = data;
    }
}

type Inode = Arc<Mutex<Content>>;
type Names = BTreeMap<String, Inode>;

#[derive(Clone)]
enum NameOp {
    Add(String, Inode),
    Remove(String),
    Rename(String, String, Inode),
}

impl NameOp {
    fn apply(self, names: &mut Names) {
        match self {
            Self::Add(name, inode) => {
                names.insert(name, inode);
            }
            Self::Remove(name) => {
                names.remove(&name);
            }
            Self::Rename(from, to, inode) => {
                names.remove(&from);
                names.insert(to, inode);
            }
        }
    }
}

#[derive(Default)]
struct State {
    names: Names,
    durable_names: Names,
    pending_names: Vec<NameOp>,
    drawn: u64,
    faults: Faults,
    /// The number of changing operations since the start.
    operations: u64,
    /// Grows at each crash: files opened before are dead.
    life: u64,
}

/// The faults to make.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// While set, each sync fails and makes nothing durable.
    pub fail_sync: bool,
    /// A sync that fails drops its pending bytes: they stay in the page cache only.
    pub drop_dirty: bool,
    /// Each sync reports success and makes nothing durable: a disk that lies. No log is safe on it; a test that
    /// sets this proves that the checks would notice.
    pub lie_about_sync: bool,
    /// Bytes that may still be written before the disk is full.
    pub space_bytes: Option<u64>,
    /// The power fails after this many operations: that one and all later ones fail.
    pub stop_after: Option<u64>,
}

/// A simulated disk. Clones share the disk, as a machine keeps its disk over restarts.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    locked: Arc<AtomicBool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn power_failed() -> io::Error {
    io::Error::other("simulated power failure")
}

impl SimDisk {
    /// An empty disk that works.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.state).faults = faults;
    }

    /// The number of changing operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        lock(&self.state).operations
    }

    /// The machine loses power: unsynced operations survive as `rng` decides, open files are dead, faults end.
    pub fn crash(&self, rng: &mut SimRng) {
        let mut state = lock(&self.state);
        let mut names = state.durable_names.clone();
        for op in std::mem::take(&mut state.pending_names) {
            if rng.chance(50) {
                op.apply(&mut names);
            }
        }
        for inode in names.values() {
            lock(inode).crash(rng);
        }
        state.durable_names.clone_from(&names);
        state.names = names;
        state.faults = Faults::default();
        state.life += 1;
        self.locked.store(false, Ordering::SeqCst);
    }

    /// The node's process dies, the machine does not: all written bytes are kept, open files are dead.
    pub fn kill_process(&self) {
        lock(&self.state).life += 1;
        self.locked.store(false, Ordering::SeqCst);
    }

    /// An independent copy, all of it durable.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = lock(&self.state);
        let copy = |inode: &Inode| {
            let Content { current, bad, .. } = lock(inode).clone();
            let pending = Vec::new();
            Arc::new(Mutex::new(Content { durable: current.clone(), current, pending, bad }))
        };
        let names: BTreeMap<_, _> =
            state.names.iter().map(|(name, inode)| (name.clone(), copy(inode))).collect();
        let state = State { durable_names: names.clone(), names, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), locked: Arc::default() }
    }

    /// The current bytes of a file.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        lock(&self.state).names.get(name).map(|inode| lock(inode).current.clone())
    }

    /// Replaces a file's bytes, durably: bit rot, a misdirected write, a restored copy.
    pub fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        let content = Content { durable: bytes.clone(), current: bytes, ..Content::default() };
        let inode = Arc::new(Mutex::new(content));
        state.names.insert(name.to_owned(), inode.clone());
        state.durable_names.insert(name.to_owned(), inode);
    }

    /// The sector at `offset` of a file cannot be read until it is written.
    pub fn break_sector(&self, name: &str, offset: usize) {
        if let Some(inode) = lock(&self.state).names.get(name) {
            lock(inode).bad.insert(offset / SECTOR_BYTES);
        }
    }
}

impl State {
    fn change(&mut self, op: NameOp) {
        op.clone().apply(&mut self.names);
        self.pending_names.push(op);
    }

    /// Counts a changing operation.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.faults.stop_after {
            Some(limit) if self.operations > limit => Err(power_failed()),
            _ => Ok(()),
        }
    }
}

impl Disk for SimDisk {
    fn location(&self) -> String {
        "(simulated disk)".to_owned()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.state).names.keys().cloned().collect())
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Box<dyn File>> {
        let mut state = lock(&self.state);
        let inode = match (state.names.get(name), create) {
            (Some(_), true) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, false) => return Err(io::ErrorKind::NotFound.into()),
            (Some(inode), false) => inode.clone(),
            (None, true) => {
                state.operate()?;
                let inode = Inode::default();
                state.change(NameOp::Add(name.to_owned(), inode.clone()));
                inode
            }
        };
        Ok(Box::new(SimFile { state: self.state.clone(), inode, life: state.life }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.operate()?;
        let inode = state.names.get(from).ok_or(io::ErrorKind::NotFound)?.clone();
        state.change(NameOp::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.operate()?;
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(NameOp::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.operate()?;
        if state.faults.fail_sync {
            return Err(io::Error::other("simulated failure of sync"));
        }
        if !state.faults.lie_about_sync {
            state.durable_names = state.names.clone();
            state.pending_names.clear();
        }
        Ok(())
    }

    fn random(&self) -> io::Result<u64> {
        let mut state = lock(&self.state);
        state.drawn += 1;
        Ok(SimRng::new(state.drawn).next_u64())
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        struct Guard(SimDisk, u64);
        impl Drop for Guard {
            fn drop(&mut self) {
                if lock(&self.0.state).life == self.1 {
                    self.0.locked.store(false, Ordering::SeqCst);
                }
            }
        }
        if self.locked.swap(true, Ordering::SeqCst) {
            return Ok(None);
        }
        let life = lock(&self.state).life;
        Ok(Some(Box::new(Guard(self.clone(), life))))
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    inode: Inode,
    life: u64,
}

impl SimFile {
    fn operate(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        if state.life != self.life {
            return Err(power_failed());
        }
        state.operate()?;
        Ok(state)
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = lock(&self.inode);
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let rest = content.current.get(offset..).unwrap_or_default();
        let count = rest.len().min(buf.len());
        let mut read = offset / SECTOR_BYTES..(offset + count).div_ceil(SECTOR_BYTES);
        if count > 0 && read.any(|sector| content.bad.contains(&sector)) {
            // EIO
            return Err(io::Error::from_raw_os_error(5));
        }
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.operate()?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let mut bytes = bytes;
        let mut full = false;
        if let Some(space) = &mut state.faults.space_bytes {
            let fits = bytes.len().min(usize::try_from(*space).unwrap_or(usize::MAX));
            full = fits < bytes.len();
            bytes = &bytes[..fits];
            *space -= fits as u64;
        }
        lock(&self.inode).apply(Op::Write { offset, bytes: bytes.to_vec() });
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.inode).current.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _state = self.operate()?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        lock(&self.inode).apply(Op::SetLen(len));
        Ok(())
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        let state = self.operate()?;
        let more = len.saturating_sub(lock(&self.inode).current.len() as u64);
        match state.faults.space_bytes {
            Some(space) if space < more => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn zero(&self, from: u64, to: u64) -> io::Result<()> {
        let len = usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?;
        self.write_at(&vec![0; len], from)
    }

    fn sync(&self) -> io::Result<()> {
        let state = self.operate()?;
        if state.faults.fail_sync {
            if state.faults.drop_dirty {
                lock(&self.inode).pending.clear();
            }
            return Err(io::Error::other("simulated failure of sync"));
        }
        if !state.faults.lie_about_sync {
            lock(&self.inode).sync();
        }
        Ok(())
    }
}
