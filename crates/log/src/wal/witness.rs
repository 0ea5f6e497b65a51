//! The witness: a small file beside the segments that names the last durable record.
//!
//! A record's `synced_seq` vouches for the records before it, so nothing in the segments vouches for the last group, and a damaged
//! group would look like a torn one. The witness has a file of its own, so that neither a bad
//! sector nor a segment that was cut short destroys the group and its witness at once. It is written lazily ([`Watch`]): half a second after
//! the first sync of an idle log, twice a second under load, and then no more until the next sync. No thread waits for it.
//!
//! ```text
//! slot: magic[8] version:u32 crc:u32 cluster:u128 incarnation:u64 number:u64 seq:u64 zero[8]
//! ```
//!
//! There are two slots, a sector each, written in turn: a torn write leaves the one before.

use super::{
    WalError,
    format::{SECTOR_BYTES, VERSION},
};
use crate::{
    cursor::Cursor,
    disk::{Disk, File, read_range},
    types::ClusterId,
};
use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

/// The file's name.
pub(crate) const FILE: &str = "witness";
/// The delay of the witness after a sync.
const DELAY: Duration = Duration::from_millis(500);

const MAGIC: [u8; 8] = *b"SKEINWIT";
const SLOTS: u64 = 2;
const BYTES: usize = 64;

/// The log's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub cluster: ClusterId,
    pub incarnation: u64,
}

/// The open file.
pub(crate) struct Witness {
    file: Box<dyn File>,
    path: String,
    owner: Owner,
    /// The number of writes.
    number: u64,
    /// The newest record that it vouches for.
    seq: u64,
}

impl Witness {
    /// Creates a witness of nothing, durably.
    pub(crate) fn create(disk: &dyn Disk, owner: Owner) -> Result<Self, WalError> {
        let path = path(disk);
        let file = disk.open(FILE, true).map_err(WalError::io(&path, "create"))?;
        let mut witness = Self { file, path, owner, number: 0, seq: 0 };
        for _ in 0..SLOTS {
            witness.say(0)?;
        }
        disk.sync_dir().map_err(WalError::io(&disk.location(), "sync"))?;
        Ok(witness)
    }

    /// Opens the witness; `None` if no slot is whole.
    pub(crate) fn open(disk: &dyn Disk, owner: Owner) -> Result<Option<Self>, WalError> {
        let path = path(disk);
        let file = disk.open(FILE, false).map_err(WalError::io(&path, "open"))?;
        let newest = (0..SLOTS)
            // A slot that cannot be read counts as torn.
            .filter_map(|slot| {
                let bytes = read_range(&*file, slot * SECTOR_BYTES, BYTES).ok()?;
                decode(&bytes, slot, owner)
            })
            .max();
        Ok(newest.map(|(number, seq)| Self { file, path, owner, number, seq }))
    }

    /// The newest record that it vouches for.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Vouches for all records up to `seq`, durably.
    pub(crate) fn say(&mut self, seq: u64) -> Result<(), WalError> {
        let number = self.number + 1;
        let slot = number % SLOTS;
        let bytes = encode(slot, self.owner, number, seq);
        let offset = slot * SECTOR_BYTES;
        self.file.write_at(&bytes, offset).map_err(WalError::io(&self.path, "write"))?;
        self.file.sync().map_err(WalError::io(&self.path, "sync"))?;
        (self.number, self.seq) = (number, seq);
        Ok(())
    }
}

pub(crate) fn path(disk: &dyn Disk) -> String {
    format!("{}/{FILE}", disk.location())
}

fn encode(slot: u64, owner: Owner, number: u64, seq: u64) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[16..32].copy_from_slice(&owner.cluster.0.to_le_bytes());
    out[32..40].copy_from_slice(&owner.incarnation.to_le_bytes());
    out[40..48].copy_from_slice(&number.to_le_bytes());
    out[48..56].copy_from_slice(&seq.to_le_bytes());
    let crc = checksum(slot, &out);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Number and `seq` of a whole slot of this log.
fn decode(bytes: &[u8], slot: u64, owner: Owner) -> Option<(u64, u64)> {
    let bytes = bytes.first_chunk::<BYTES>()?;
    let mut cursor = Cursor::new(bytes);
    let head = (cursor.array::<8>()?, cursor.u32()?);
    let crc = cursor.u32()?;
    let found = Owner { cluster: ClusterId(cursor.u128()?), incarnation: cursor.u64()? };
    let whole = head == (MAGIC, VERSION) && crc == checksum(slot, bytes) && found == owner;
    whole.then_some((cursor.u64()?, cursor.u64()?))
}

fn checksum(slot: u64, bytes: &[u8; BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&slot.to_le_bytes());
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

/// Shared by a syncing log and the thread that writes its witness.
#[derive(Default)]
pub(crate) struct Synced {
    seq: AtomicU64,
    /// There was a sync since the thread last looked.
    fresh: AtomicBool,
    end: Mutex<bool>,
    changed: Condvar,
}

impl Synced {
    /// All records up to `seq` are durable. Costs a call of the kernel at most once in [`DELAY`].
    pub(crate) fn note(&self, seq: u64) {
        self.seq.store(seq, Ordering::Release);
        if !self.fresh.swap(true, Ordering::AcqRel) {
            let _end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_one();
        }
    }
}

/// The thread that writes the witness of a running node. When dropped, it writes once more if needed, and ends.
pub(crate) struct Watch {
    synced: Arc<Synced>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts it; `failed` is called at most once.
    pub(crate) fn spawn(
        witness: Witness,
        synced: Arc<Synced>,
        failed: impl FnOnce(WalError) + Send + 'static,
    ) -> io::Result<Self> {
        let own = synced.clone();
        let work = move || {
            if let Err(error) = run(witness, &own) {
                failed(error);
            }
        };
        let thread = Builder::new().name("skein-witness".to_owned()).spawn(work)?;
        Ok(Self { synced, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.synced.end.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.synced.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut witness: Witness, synced: &Synced) -> Result<(), WalError> {
    loop {
        let end = synced.end.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || synced.fresh.load(Ordering::Acquire);
        let end = synced.changed.wait_while(end, |end| !*end && !fresh());
        let end = end.unwrap_or_else(PoisonError::into_inner);
        let waited = synced.changed.wait_timeout_while(end, DELAY, |end| !*end);
        let end = *waited.unwrap_or_else(PoisonError::into_inner).0;
        // Cleared before the number is read: a later sync is seen in the next round.
        if synced.fresh.swap(false, Ordering::AcqRel) {
            match witness.say(synced.seq.load(Ordering::Acquire)) {
                // The room module reports the full disk: the same slot is written again.
                Err(WalError::DiskFull { .. }) => synced.fresh.store(true, Ordering::Release),
                result => result?,
            }
        }
        if end {
            return Ok(());
        }
    }
}
