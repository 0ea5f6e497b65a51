//! The durable data of a replica whose log is in memory only.
//!
//! One small file: the directory's cluster and replica, and the *incarnation*: how often the replica has started and so forgotten
//! its promises. It grows, durably, before the replica speaks to anyone. Incarnation 0 is a founding member's first;
//! a later one has no vote until the cluster has made it a learner, filled its log and promoted it (see
//! [`crate::consensus`], "Memory-only logs").

use crate::{
    cursor::Cursor,
    disk::{Disk, read_range},
    types::{ClusterId, ProgramHash},
    wal::{IDENTITY_FILE, Lock, WalError, format, occupy},
};

/// The file's name.
const FILE: &str = IDENTITY_FILE;
const NEXT_FILE: &str = "identity.next";

const MAGIC: [u8; 8] = *b"SKEINID1";
const BYTES: usize = 8 + 16 + 32 + 8 + 4;

/// A data directory taken by a replica with a memory-only log.
pub struct Identity {
    incarnation: u64,
    _lock: Lock,
}

impl Identity {
    /// Takes a directory for a replica that begins with this incarnation, durably. Its old content is replaced.
    pub fn create(
        disk: &dyn Disk,
        cluster: ClusterId,
        program: ProgramHash,
        incarnation: u64,
    ) -> Result<Self, WalError> {
        let (lock, _) = take(disk)?;
        write(disk, cluster, program, incarnation)?;
        Ok(Self { incarnation, _lock: lock })
    }

    /// Takes the directory and counts this start, durably.
    pub fn open(
        disk: &dyn Disk,
        cluster: ClusterId,
        program: ProgramHash,
    ) -> Result<Self, WalError> {
        let (lock, names) = take(disk)?;
        if !names.iter().any(|name| name == FILE) {
            return Err(WalError::NoLog { dir: disk.location() });
        }
        let incarnation = read(disk, cluster, program)? + 1;
        write(disk, cluster, program, incarnation)?;
        Ok(Self { incarnation, _lock: lock })
    }

    /// How often this replica has lost its log.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

fn take(disk: &dyn Disk) -> Result<(Lock, Vec<String>), WalError> {
    let dir = disk.location();
    let (lock, names) = occupy(disk)?;
    if names.iter().any(|name| format::parse_segment_name(name).is_some()) {
        return Err(WalError::OtherDurability { dir, made_for: "fsync" });
    }
    if names.iter().any(|name| name == NEXT_FILE) {
        disk.remove(NEXT_FILE).map_err(WalError::io(&dir, "remove identity.next"))?;
    }
    Ok((lock, names))
}

fn write(
    disk: &dyn Disk,
    cluster: ClusterId,
    program: ProgramHash,
    incarnation: u64,
) -> Result<(), WalError> {
    let path = format!("{}/{NEXT_FILE}", disk.location());
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&cluster.0.to_le_bytes());
    bytes.extend_from_slice(&program.0);
    bytes.extend_from_slice(&incarnation.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    let file = disk.open(NEXT_FILE, true).map_err(WalError::io(&path, "create"))?;
    file.write_at(&bytes, 0).map_err(WalError::io(&path, "write"))?;
    file.sync().map_err(WalError::io(&path, "sync"))?;
    disk.rename(NEXT_FILE, FILE).map_err(WalError::io(&path, "rename"))?;
    disk.sync_dir().map_err(WalError::io(&disk.location(), "sync"))
}

fn read(disk: &dyn Disk, cluster: ClusterId, program: ProgramHash) -> Result<u64, WalError> {
    let path = format!("{}/{FILE}", disk.location());
    let file = disk.open(FILE, false).map_err(WalError::io(&path, "open"))?;
    let bytes = read_range(&*file, 0, BYTES + 1).map_err(WalError::io(&path, "read"))?;
    let (found_cluster, found_program, incarnation) =
        decode(&bytes).ok_or_else(|| WalError::damaged(path, 0, "the checksum is wrong"))?;
    let dir = disk.location();
    if found_cluster != cluster {
        return Err(WalError::OtherCluster { dir, found: found_cluster, expected: cluster });
    }
    if found_program != program {
        return Err(WalError::OtherProgram { dir, found: found_program, expected: program });
    }
    Ok(incarnation)
}

fn decode(bytes: &[u8]) -> Option<(ClusterId, ProgramHash, u64)> {
    let mut cursor = Cursor::new(bytes);
    if bytes.len() != BYTES || cursor.array()? != MAGIC {
        return None;
    }
    let fields = (ClusterId(cursor.u128()?), ProgramHash(cursor.array()?), cursor.u64()?);
    (cursor.u32()? == crc32fast::hash(&bytes[..BYTES - 4])).then_some(fields)
}
