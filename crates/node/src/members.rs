//! The members, as this replica knew them last: `DATA_DIR/members`, a line with id and address of each other one, and `member INDEX` if this replica was one after that change.
//!
//! A node that starts asks them for files that it lacks, before it reads its log, and for its log if that is lost: its configuration may name members of long ago. It
//! is no more than a hint of where to ask: it may be missing or old, so it is synced only where it must not say any more that this replica is a member.

use crate::error::NodeError;
use crate::transport::Address;
use skein_log::disk::durable;
use skein_model::{LogIndex, ReplicaId};
use skein_replica::config::Noted;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "members";
const MEMBER: &str = "member";

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// This replica was a member after this change of the members.
    member_at: Option<LogIndex>,
    /// The others.
    pub others: Vec<(u64, Address)>,
}

/// Writes the file.
pub(crate) struct Notes {
    data_dir: PathBuf,
    /// What was written last.
    written: Known,
}

impl Notes {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), written: Known::default() }
    }

    /// For the next life: this replica is a member since this change, and these are the others.
    pub(crate) fn note(&mut self, since: LogIndex, others: &[(ReplicaId, Address)]) {
        let others = others.iter().map(|(id, address)| (id.0, address.clone())).collect();
        let known = Known { member_at: Some(since), others };
        if self.written != known {
            if let Err(error) = write(&self.data_dir, &known, false) {
                // It is no more than a hint.
                tracing::warn!(event = "members_not_noted", %error);
            }
            self.written = known;
        }
    }
}

fn write(data_dir: &Path, known: &Known, synced: bool) -> io::Result<()> {
    let member = known.member_at.map(|at| format!("{MEMBER} {at}\n"));
    let others = known.others.iter().map(|(id, address)| format!("{id} {address}\n"));
    let text: String = member.into_iter().chain(others).collect();
    let (path, new) = (data_dir.join(FILE), data_dir.join("members.part"));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    if !synced {
        return fs::rename(&new, &path);
    }
    file.sync_all()?;
    durable::rename(&new, &path)
}

/// What the file says; lines that say nothing are left out.
pub(crate) fn noted(data_dir: &Path) -> Known {
    let mut known = Known::default();
    for line in fs::read_to_string(data_dir.join(FILE)).unwrap_or_default().lines() {
        let Some((first, rest)) = line.split_once(' ') else { continue };
        if first == MEMBER {
            known.member_at = rest.parse().ok().map(LogIndex);
        } else if let (Ok(id), Ok(address)) = (first.parse(), rest.parse()) {
            known.others.push((id, address));
        }
    }
    known
}

/// What a replica is told of its former life. With a request to begin its log (`begin`) it is nobody's former member: a founder has no former life, and one that is
/// to come back may have been removed in it. That is on the disk before the request is [done](crate::begin::done): told of its removal then, it would end.
///
/// # Errors
/// It cannot be written.
pub(crate) fn of_former_life(data_dir: &Path, begin: Option<u64>) -> Result<Noted, NodeError> {
    let before = noted(data_dir);
    let mut known = if begin == Some(0) { Known::default() } else { before.clone() };
    known.member_at.take_if(|_| begin.is_some());
    if known != before {
        let failed = |error| NodeError::DataDir { path: data_dir.join(FILE), error };
        write(data_dir, &known, true).map_err(failed)?;
    }
    let other = |(id, address): (u64, Address)| (ReplicaId(id), address.to_string());
    Ok(Noted { member_at: known.member_at, others: known.others.into_iter().map(other).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_as_they_were_noted() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(noted(dir.path()), Known::default());
        let at = |text: &str| -> Address { text.parse().unwrap() };
        let (two, three) = (at("10.0.0.1:7100"), at("/run/with a space.sock"));
        let mut notes = Notes::of(dir.path());
        notes.note(LogIndex(7), &[(ReplicaId(2), two.clone()), (ReplicaId(3), three.clone())]);
        let known = Known { member_at: Some(LogIndex(7)), others: vec![(2, two), (3, three)] };
        assert_eq!(noted(dir.path()), known);
        let told = |begin| of_former_life(dir.path(), begin).unwrap();
        assert_eq!((told(None).member_at, told(None).others.len()), (Some(LogIndex(7)), 2));
        // It joins, and is started once more before it is a member.
        assert_eq!((told(Some(9)).member_at, told(Some(9)).others.len()), (None, 2));
        assert_eq!((told(None).member_at, told(None).others.len()), (None, 2));
        assert_eq!((told(Some(0)), told(None)), (Noted::default(), Noted::default()));
        // Of an earlier version, and with lines that say nothing.
        fs::write(dir.path().join(FILE), "x\n4 nowhere\n\nmember x\n5 /here\n").unwrap();
        assert_eq!(noted(dir.path()), Known { member_at: None, others: vec![(5, at("/here"))] });
    }
}
