//! A log that is only read: nothing in its directory changes, whatever its state.

mod support;

use skein_log::disk::{DirDisk, StoredDir};
use skein_log::wal::{Stored, Wal, WalError};
use skein_model::LogIndex;
use std::{collections::BTreeMap, fs, path::Path, sync::Arc};
use support::{entry, options, persist};

type Files = BTreeMap<String, Vec<u8>>;

fn files(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let named =
        |file: fs::DirEntry| (file.file_name().into_string().unwrap(), fs::read(file.path()));
    entries.map(named).map(|(name, bytes)| (name, bytes.unwrap())).collect()
}

fn look(dir: &Path) -> Result<Stored, WalError> {
    let before = files(dir);
    let found = Wal::look(Arc::new(StoredDir::new(dir)), options());
    assert_eq!(files(dir), before, "something was changed");
    found
}

/// A log of 20 entries, 18 of them known to be committed, in several segments.
fn begin(dir: &Path) -> Wal {
    let mut wal = Wal::create(Arc::new(DirDisk::open(dir).unwrap()), options()).unwrap().wal;
    for n in 1..=20 {
        wal.append(&persist(Some((1, (n - 1).min(18))), vec![entry(n, 1, 60)])).unwrap();
        wal.sync().unwrap();
    }
    wal.witness().unwrap();
    wal
}

fn newest(dir: &Path) -> std::path::PathBuf {
    dir.join(files(dir).into_keys().filter(|name| name.ends_with(".wal")).max().unwrap())
}

#[test]
fn a_log_that_is_not_in_use_is_read_whole() {
    let root = tempfile::tempdir().unwrap();
    let wal = begin(root.path());
    assert!(matches!(look(root.path()), Err(WalError::InUse { .. })), "a node has it");
    drop(wal);
    for has_lock in [true, false] {
        if !has_lock {
            fs::remove_file(root.path().join("lock")).unwrap();
        }
        let stored = look(root.path()).unwrap();
        assert_eq!((stored.last, stored.commit, &stored.torn), (LogIndex(20), LogIndex(18), &None));
        let entries = stored.reader.read(LogIndex(1), stored.last, usize::MAX).unwrap();
        assert_eq!(entries, (1..=20).map(|n| entry(n, 1, 60)).collect::<Vec<_>>());
    }
    // A node that starts now finds the directory free.
    let stored = look(root.path()).unwrap();
    fs::write(root.path().join("lock"), "").unwrap();
    let wal = Wal::open(Arc::new(DirDisk::open(root.path()).unwrap()), options()).unwrap().wal;
    assert_eq!(stored.reader.read(LogIndex(20), LogIndex(20), 1).unwrap().len(), 1);
    drop(wal);
}

#[test]
fn a_torn_end_is_told_and_left() {
    let root = tempfile::tempdir().unwrap();
    drop(begin(root.path()));
    let path = newest(root.path());
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let end = end.next_multiple_of(8);
    bytes.truncate(end);
    bytes.extend_from_slice(&[0xa5; 24]);
    fs::write(&path, &bytes).unwrap();
    let stored = look(root.path()).unwrap();
    let torn = stored.torn.expect("a torn end");
    assert_eq!((stored.last, torn.offset), (LogIndex(20), end as u64));
    assert_eq!(torn.file, path.display().to_string());
}

#[test]
fn damage_is_named_with_file_and_offset() {
    let root = tempfile::tempdir().unwrap();
    drop(begin(root.path()));
    let path = root.path().join("0000000000000001.wal");
    assert!(path.exists());
    let mut bytes = fs::read(&path).unwrap();
    bytes[300] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let Err(error) = look(root.path()) else { panic!("damage was not seen") };
    let line = error.to_string();
    assert!(line.contains("0000000000000001.wal: damaged at byte "), "{line}");
    fs::remove_file(root.path().join("witness")).unwrap();
    assert!(look(root.path()).is_err());
}
