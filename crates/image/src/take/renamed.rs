//! Files that processes have open or mapped by a name that is removed, while they have another one: made without a name and given one later, or linked and then removed.
//!
//! The kernel shows them as it shows removed files. The other name is among the paths of files that the arena knows.

use super::objects::mapped_id;
use super::{FileId, Image};
use crate::contents::Rewritten;
use crate::{MemoryError, Result};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use skein_arena::restore::kind;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::BorrowedFd;

/// Files systems that number files of several ones keep their own number in the lower bits.
const NUMBER: u64 = u32::MAX as u64;

/// An open file whose name is removed, though it has another one.
pub(super) struct Renamed {
    /// The number of its record.
    pub(super) description: usize,
    pub(super) id: FileId,
    /// A process that has it open.
    pub(super) pid: u32,
    pub(super) fd: i32,
}

impl Image<'_> {
    /// Gives files whose name is removed the one that they have, if they have one.
    pub(super) fn name_renamed(
        &mut self,
        root: BorrowedFd<'_>,
        found: &BTreeMap<FileId, Vec<u8>>,
        rewritten: &Rewritten,
    ) -> Result<()> {
        for Renamed { description, id, pid, fd } in std::mem::take(&mut self.renamed) {
            let path = found.get(&id).ok_or_else(|| {
                let what = "which has another name that is not known";
                MemoryError::CannotHold(format!(
                    "process {pid} has descriptor {fd}, of a file whose name is removed, {what}"
                ))
            })?;
            let name = self.bytes_name(path);
            let record = &mut self.descriptions[description];
            record.name = name;
            // It is not without a name any more.
            if record.flags & libc::O_TMPFILE == libc::O_TMPFILE {
                record.flags &= !libc::O_TMPFILE;
            }
        }
        for n in 0..self.shared.len() {
            let Some(mapped) = self.shared[n].shown().first().map(|shown| &shown.mapping) else {
                continue;
            };
            let is_memory = ["/dev/zero", "/memfd:", "/SYSV", "["]
                .iter()
                .any(|start| mapped.name.starts_with(start));
            if is_memory || !mapped.is_of_file() {
                continue;
            }
            let id = mapped.file;
            let may_be = |(file, _): &(&FileId, &Vec<u8>)| {
                file.1 & NUMBER == id.1 & NUMBER || rewritten.was_mapped(**file)
            };
            for (_, path) in found.iter().filter(may_be) {
                if is_mapped_as(root, path, id)? {
                    self.show_file(n, path);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The mappings of an object are of the file at `path`.
    fn show_file(&mut self, object: usize, path: &[u8]) {
        let name = self.bytes_name(path);
        for shown in self.shared[object].take_shown() {
            let record = &mut self.mappings[shown.record];
            record.of = name;
            record.kind = match shown.mapping.has("mw") {
                true => kind::WRITTEN_FILE,
                false => kind::SHARED_FILE,
            };
        }
    }
}

/// Whether mappings show the file at `path` by this device and inode number.
fn is_mapped_as(root: BorrowedFd<'_>, path: &[u8], id: FileId) -> Result<bool> {
    let text = String::from_utf8_lossy(path);
    let open = |flags: OFlag| {
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
        openat2(root, path, how.resolve(ResolveFlag::RESOLVE_IN_ROOT)).map(File::from)
    };
    let failed = |error: nix::Error| MemoryError::read(&*text)(error.into());
    let plain = open(OFlag::O_PATH | OFlag::O_NOFOLLOW);
    let Ok(about) = plain.and_then(|file| file.metadata().map_err(|_| nix::Error::EIO)) else {
        return Ok(false);
    };
    if !about.is_file() {
        return Ok(false);
    }
    let read = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = open(read | OFlag::O_NOATIME).or_else(|_| open(read)).map_err(failed)?;
    Ok(mapped_id(&file)? == id)
}
