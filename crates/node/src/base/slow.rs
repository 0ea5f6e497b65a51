//! The thread for large files, which all others go before: it reads those that are to be pinned, and now and then all contents again, to find rot before a server needs them.
//!
//! Contents that rot are taken from the host or another replica again. A running server still has what it began with, and sees the new ones when it starts again.
//!
//! It ends with the thread that asks it ([`super::work`]), in the middle of a file.

use super::index::Contents;
use super::pin::{Found, Why};
use super::store::{Digest, Hold};
use super::{Base, fetch, quiet};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Between two looks at what is to be read again, at most: an hour.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Slow {
    base: Arc<Base>,
    /// None while it ends.
    sender: Option<Sender<PathBuf>>,
    thread: Option<JoinHandle<()>>,
    /// Shared with the thread, which forgets those that are gone.
    asked: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// Those among them that cannot be kept.
    refused: BTreeSet<PathBuf>,
}

impl Slow {
    /// Starts it. `tell` gets each file that was read, with what keeps its contents until an index names them.
    pub(super) fn start(
        base: Arc<Base>,
        tell: impl Fn(Found, Hold) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, jobs) = channel();
        let (own, asked) = (base.clone(), Arc::<Mutex<BTreeSet<PathBuf>>>::default());
        let seen = asked.clone();
        let run = move || {
            run(&own, &jobs, &|path| match read(&own, path.clone()) {
                Some((found, hold)) => tell(found, hold),
                None => {
                    known(&seen).remove(&path);
                }
            });
        };
        let thread = Builder::new().name("skein-base-slow".into()).spawn(run)?;
        Ok(Self {
            base,
            sender: Some(sender),
            thread: Some(thread),
            asked,
            refused: BTreeSet::new(),
        })
    }

    /// Has a file read, unless that was asked for before.
    pub(super) fn read(&mut self, path: PathBuf) {
        if let Some(sender) = &self.sender
            && known(&self.asked).insert(path.clone())
        {
            // It ends with this sender, not before.
            let _ = sender.send(path);
        }
    }

    /// It has told of this one. One that cannot be kept now is not read again before [`Self::forget_refused`].
    pub(super) fn told(&mut self, found: &Found) {
        if found.added.is_ok() {
            known(&self.asked).remove(&found.path);
        } else {
            self.refused.insert(found.path.clone());
        }
    }

    /// There may be room by now.
    pub(super) fn forget_refused(&mut self) {
        for path in std::mem::take(&mut self.refused) {
            known(&self.asked).remove(&path);
        }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.base.objects.end();
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(event = "base_unread", error = "the thread that reads it panicked");
        }
    }
}

fn known(asked: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(base: &Base, asked: &Receiver<PathBuf>, read: &dyn Fn(PathBuf)) {
    quiet::lower();
    let every = base.node().map_or(0, |config| config.checkpoint.scrub_s);
    let every = Some(Duration::from_secs(every)).filter(|every| !every.is_zero());
    let mut due = Vec::new();
    let mut wait = Duration::ZERO;
    loop {
        match asked.recv_timeout(wait) {
            Ok(path) => read(path),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if due.is_empty() {
                    due = every.map(|every| contents_due(base, every)).unwrap_or_default();
                }
                if let Some(one) = due.pop() {
                    scrub(base, &one);
                }
                // The next is read at once, unless a file is asked for.
                wait = Duration::ZERO;
                if due.is_empty() {
                    base.objects.save_notes();
                    wait = every.unwrap_or(LOOK).min(LOOK);
                }
            }
        }
        if base.objects.ends() {
            return;
        }
    }
}

/// Reads a file and keeps its contents; `None` if it is gone.
pub(super) fn read(base: &Base, path: PathBuf) -> Option<(Found, Hold)> {
    let hold = base.objects.hold();
    let meta = fs::symlink_metadata(&path).ok()?;
    let added = base.objects.add_if(&path, |digest| {
        hold.add([digest]);
        true
    });
    Some((Found { path, meta, added: added.map_err(Why::from) }, hold))
}

/// Contents of all editions that were not read for so long; each with the index that has them.
struct Due {
    index: String,
    digest: Digest,
}

fn contents_due(base: &Base, every: Duration) -> Vec<Due> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for name in base.names().unwrap_or_default() {
        let Ok(other) = base.with_index(&name) else { continue };
        for Contents { digest, size, .. } in other.index().kept_once() {
            if base.objects.is_due(digest, size, every) && seen.insert(digest) {
                all.push(Due { index: name.clone(), digest });
            }
        }
    }
    all
}

fn scrub(base: &Base, due: &Due) {
    let hold = base.objects.hold();
    let all = base.objects.keep_all();
    // Its edition may be gone by now.
    let Ok(other) = base.with_index(&due.index) else { return };
    hold.add([due.digest]);
    drop(all);
    let index = other.index();
    let mut kept = index.kept_once().into_iter();
    let Some(Contents { path, digest, size, sum }) = kept.find(|one| one.digest == due.digest)
    else {
        return;
    };
    match base.objects.is_whole_still(digest, size, sum) {
        Ok(false) => {}
        // Read, or the node ends.
        Ok(true) | Err(_) => return,
    }
    tracing::warn!(event = "base_damaged", path = %path.display(), object = %digest);
    if base.comes_from_host(path, digest, size) {
        return;
    }
    let lost = BTreeMap::from([(digest, (path.to_owned(), size))]);
    match fetch::mend(base, lost) {
        Ok(true) => {}
        Ok(false) if base.objects.stays().is_err() => {}
        Ok(false) => tracing::error!(
            event = "base_lost", path = %path.display(), object = %digest,
            "no other replica that can be reached has these contents; they are looked for again at the next start"
        ),
        Err(error) => tracing::error!(event = "base_lost", path = %path.display(), %error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_gone_may_be_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let base = Arc::new(Base::open(&dir.path().join("data")).unwrap());
        let (told, found) = channel();
        let mut slow = Slow::start(base, move |found, _| told.send(found).unwrap()).unwrap();
        let (gone, next) = (dir.path().join("gone"), dir.path().join("next"));
        fs::write(&next, "here").unwrap();
        slow.read(gone.clone());
        slow.read(next);
        // It goes on in order.
        found.recv().unwrap();
        fs::write(&gone, "again").unwrap();
        slow.read(gone.clone());
        // Before the thread ends: it leaves then what it was asked for.
        assert_eq!(found.recv_timeout(Duration::from_secs(20)).unwrap().path, gone);
    }
}
