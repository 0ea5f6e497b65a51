//! Facts about large files that are still to be pinned: the files are read first, beside everything else ([`super::slow`]), or there is no room for them yet. They are in a file
//! beside the index that is to have them, since the log may have forgotten them before.
//!
//! `late-INDEX`: the facts one after the other, in hexadecimal. One that is damaged is taken for empty: its files stay the host's.

use super::index::{hex, unhex};
use skein_log::disk::durable;
use skein_model::fact::{Fact, are_facts, facts};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// No more facts wait; files of others stay the host's.
const FACTS_MAX: usize = 4096;

/// The name of the file for an index of this name.
pub(super) fn name(index: &str) -> String {
    format!("late-{index}")
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Late {
    path: PathBuf,
    /// The facts, encoded.
    all: Vec<Vec<u8>>,
    /// Those that wait no more once the index is written.
    pinned: Vec<Vec<u8>>,
    is_changed: bool,
}

impl Late {
    /// Those that wait for an index of this name.
    pub(super) fn read(dir: &Path, index: &str) -> Self {
        let path = dir.join(name(index));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let bytes = unhex(&text).filter(|bytes| are_facts(bytes)).unwrap_or_default();
        let all = facts(&bytes).map(|fact| encode(&fact)).collect();
        Self { path, all, pinned: Vec::new(), is_changed: false }
    }

    /// One more; false: there are too many.
    pub(super) fn add(&mut self, fact: &Fact<'_>) -> bool {
        let bytes = encode(fact);
        if self.all.contains(&bytes) {
            return true;
        }
        let fits = self.all.len() < FACTS_MAX;
        if fits {
            self.all.push(bytes);
            self.is_changed = true;
        }
        fits
    }

    /// Tries each again: those stay for which this says so.
    pub(super) fn try_all(&mut self, mut stays: impl FnMut(&Fact<'_>) -> bool) {
        let stays = |bytes: &Vec<u8>| Fact::decode(bytes).is_some_and(|(fact, _)| stays(&fact));
        let (all, pinned): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.all).into_iter().partition(stays);
        self.is_changed |= !pinned.is_empty();
        self.all = all;
        self.pinned.extend(pinned);
    }

    /// The index was not written: those that it was to have wait on.
    pub(super) fn wait_on(&mut self) {
        self.all.append(&mut self.pinned);
    }

    /// Writes them if there are others than before, durably. The index is written by now.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.is_changed {
            match self.all.is_empty() {
                true => durable::remove(&self.path)?,
                false => durable::write(&self.path, &hex(&self.all.concat()))?,
            }
            self.is_changed = false;
        }
        self.pinned.clear();
        Ok(())
    }
}

fn encode(fact: &Fact<'_>) -> Vec<u8> {
    let mut bytes = vec![0; fact.bytes()];
    fact.encode(&mut bytes).expect("as long as it says");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::fact::What;

    #[test]
    fn facts_that_wait_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let fact = |path| Fact { size: 7, ..Fact::new(What::Contents, path) };
        let (a, b) = (fact(b"/a"), Fact { more: b"/c", ..fact(b"/b") });
        let mut late = Late::read(dir.path(), "index");
        assert!(late.add(&a) && late.add(&b) && late.add(&a));
        late.write().unwrap();
        let seen = |late: &mut Late| {
            let mut seen = Vec::new();
            late.try_all(|fact| {
                seen.push((fact.path.to_vec(), fact.more.to_vec(), fact.size));
                true
            });
            seen
        };
        let mut again = Late::read(dir.path(), "index");
        let all = seen(&mut again);
        assert_eq!(all, [(b"/a".to_vec(), b"".to_vec(), 7), (b"/b".to_vec(), b"/c".to_vec(), 7)]);
        assert_eq!(seen(&mut Late::read(dir.path(), "index-other")), []);
        again.try_all(|fact| fact.path == b"/b");
        again.write().unwrap();
        assert_eq!(seen(&mut Late::read(dir.path(), "index")), all[1..]);
        again.try_all(|_| false);
        again.write().unwrap();
        assert!(!dir.path().join("late-index").exists());
        // Pinned in an index that could not be written.
        let mut late = Late::read(dir.path(), "index");
        assert!(late.add(&a) && late.add(&b));
        late.try_all(|fact| fact.path == b"/b");
        late.wait_on();
        late.write().unwrap();
        assert_eq!(seen(&mut Late::read(dir.path(), "index")).len(), 2);
        fs::write(dir.path().join("late-index"), "00ff").unwrap();
        assert_eq!(seen(&mut Late::read(dir.path(), "index")), []);
    }
}
