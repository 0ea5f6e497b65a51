//! The durable data of a replica whose log is in memory only.
//!
//! One small file: the directory's cluster and replica, and the *incarnation*: how often the replica has started and so forgotten
//! its promises. It grows, durably, before the replica speaks to anyone. Incarnation 0 is a founding member's first;
//! a later one has no vote until the cluster has made it a learner, filled its log and promoted it (see
//! [`crate::consensus`], "A replica that forgot").
//!
//! The only founder of a cluster is *alone* until it connects to another replica. While it is, nobody else has a part of its log or a promise of it, so each start
//! begins the log anew as incarnation 0. That it is not alone any more is in the file, durably, before it connects to anyone ([`Identity::meets_others`]).

use crate::{
    cursor::Cursor,
    disk::{Disk, read_range},
    types::{ClusterId, ProgramHash},
    wal::{IDENTITY_FILE, Lock, WalError, format, occupy},
};
use std::sync::Arc;

/// The file's name.
const FILE: &str = IDENTITY_FILE;
const NEXT_FILE: &str = "identity.next";

const MAGIC: [u8; 8] = *b"SKEINID2";
/// Of programs with which members of such a cluster did not change: they did not say whether the replica is alone.
const FORMER_MAGIC: [u8; 8] = *b"SKEINID1";
const FORMER_BYTES: usize = 8 + 16 + 32 + 8 + 4;
const BYTES: usize = FORMER_BYTES + 1;

/// A data directory taken by a replica with a memory-only log.
pub struct Identity {
    disk: Arc<dyn Disk>,
    content: Content,
    _lock: Lock,
}

#[derive(Clone, Copy)]
struct Content {
    cluster: ClusterId,
    program: ProgramHash,
    incarnation: u64,
    alone: bool,
}

impl Identity {
    /// Takes a directory for a replica that begins with this incarnation, durably. Its old content is replaced. `sole`: its configuration names no other replica.
    ///
    /// # Errors
    /// Another node has the directory, or it cannot be written.
    pub fn create(
        disk: Arc<dyn Disk>,
        cluster: ClusterId,
        program: ProgramHash,
        incarnation: u64,
        sole: bool,
    ) -> Result<Self, WalError> {
        let (lock, _) = take(&*disk)?;
        let content = Content { cluster, program, incarnation, alone: sole && incarnation == 0 };
        write(&*disk, &content)?;
        Ok(Self { disk, content, _lock: lock })
    }

    /// Takes the directory and counts this start, durably. `sole`: as above.
    ///
    /// # Errors
    /// Another node has the directory, it is another replica's, damaged or missing, or cannot be written.
    pub fn open(
        disk: Arc<dyn Disk>,
        cluster: ClusterId,
        program: ProgramHash,
        sole: bool,
    ) -> Result<Self, WalError> {
        let (lock, names) = take(&*disk)?;
        if !names.iter().any(|name| name == FILE) {
            return Err(WalError::NoLog { dir: disk.location() });
        }
        let mut content = read(&*disk, cluster, program, sole)?;
        content.incarnation = if content.alone { 0 } else { content.incarnation + 1 };
        write(&*disk, &content)?;
        Ok(Self { disk, content, _lock: lock })
    }

    /// How often this replica has lost its log; 0 if that was nobody else's loss.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.content.incarnation
    }

    /// To be called before another replica is spoken to: from now on each start is a loss that others know of.
    ///
    /// # Errors
    /// It cannot be written, and nobody may be spoken to.
    pub fn meets_others(&mut self) -> Result<(), WalError> {
        if self.content.alone {
            let content = Content { alone: false, ..self.content };
            write(&*self.disk, &content)?;
            self.content = content;
        }
        Ok(())
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

fn write(disk: &dyn Disk, content: &Content) -> Result<(), WalError> {
    let path = format!("{}/{NEXT_FILE}", disk.location());
    let Content { cluster, program, incarnation, alone } = content;
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&cluster.0.to_le_bytes());
    bytes.extend_from_slice(&program.0);
    bytes.extend_from_slice(&incarnation.to_le_bytes());
    bytes.push(u8::from(*alone));
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    // A write that failed before may have left one.
    let left = disk.list().map_err(WalError::io(&disk.location(), "list"))?;
    if left.iter().any(|name| name == NEXT_FILE) {
        disk.remove(NEXT_FILE).map_err(WalError::io(&path, "remove"))?;
    }
    let file = disk.open(NEXT_FILE, true).map_err(WalError::io(&path, "create"))?;
    file.write_at(&bytes, 0).map_err(WalError::io(&path, "write"))?;
    file.sync().map_err(WalError::io(&path, "sync"))?;
    disk.rename(NEXT_FILE, FILE).map_err(WalError::io(&path, "rename"))?;
    disk.sync_dir().map_err(WalError::io(&disk.location(), "sync"))
}

fn read(
    disk: &dyn Disk,
    cluster: ClusterId,
    program: ProgramHash,
    sole: bool,
) -> Result<Content, WalError> {
    let path = format!("{}/{FILE}", disk.location());
    let file = disk.open(FILE, false).map_err(WalError::io(&path, "open"))?;
    let bytes = read_range(&*file, 0, BYTES + 1).map_err(WalError::io(&path, "read"))?;
    let content =
        decode(&bytes, sole).ok_or_else(|| WalError::damaged(path, 0, "the checksum is wrong"))?;
    let dir = disk.location();
    if content.cluster != cluster {
        let found = content.cluster;
        return Err(WalError::OtherCluster { dir, found, expected: cluster });
    }
    if content.program != program {
        let found = content.program;
        return Err(WalError::OtherProgram { dir, found, expected: program });
    }
    Ok(content)
}

fn decode(bytes: &[u8], sole: bool) -> Option<Content> {
    let mut cursor = Cursor::new(bytes);
    let former = match cursor.array()? {
        MAGIC if bytes.len() == BYTES => false,
        FORMER_MAGIC if bytes.len() == FORMER_BYTES => true,
        _ => return None,
    };
    let (cluster, program) = (ClusterId(cursor.u128()?), ProgramHash(cursor.array()?));
    let incarnation = cursor.u64()?;
    let alone = if former { sole } else { cursor.u8()? != 0 };
    let whole = cursor.u32()? == crc32fast::hash(&bytes[..bytes.len() - 4]);
    whole.then_some(Content { cluster, program, incarnation, alone })
}
