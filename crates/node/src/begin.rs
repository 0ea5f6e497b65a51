//! The start of a replica's log, which needs an explicit request.
//!
//! A replica that forgot its votes and acknowledgements must not come back as its former self. So a node makes no log by itself: a
//! data directory without one is refused. `skein found` (and `skein run` for a new cluster) leaves the file `begin` in it, which says "as a
//! founding member"; `skein rejoin` and `skein join` leave one that says "as a new member, without a vote". The node makes that log, and removes the
//! file, durably, before it speaks to any peer or client. Until then it has promised nothing, and after a crash it starts over.
//!
//! A replica that rejoins has a larger *incarnation* than any before, which no two lives share: the leader makes it a learner, fills its
//! log, and gives it a vote when it has all committed entries ([`skein_log::consensus`], "A replica that forgot").

use crate::config::NodeConfig;
use crate::error::NodeError;
use skein_log::disk::{DirDisk, Disk, durable};
use skein_log::wal::WalError;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FILE: &str = "begin";
/// Exists from the founding on, until output of the server may reach the outside. Removing it needs no room: a full disk refuses nothing.
const UNANSWERED: &str = "unanswered";
/// How often the removing thread is polled,
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// and the pause before a failed removal is repeated.
const RETRY: Duration = Duration::from_secs(1);

fn failed(path: &Path) -> impl FnOnce(io::Error) -> NodeError {
    let path = path.to_owned();
    move |error| NodeError::DataDir { path, error }
}

fn log_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("log")
}

/// Whether a data directory has a log, whole or not.
#[must_use]
pub fn has_log(data_dir: &Path) -> bool {
    let entries = std::fs::read_dir(log_dir(data_dir)).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name() != "lock")
}

/// Whether a data directory has a log that was begun: a torn one is begun again as long as that is asked for.
#[must_use]
pub fn has_begun(data_dir: &Path) -> bool {
    has_log(data_dir) && !matches!(asked(data_dir), Ok(Some(_)))
}

/// Lets the next start of a node with this data directory begin the log of a founding member. Only for a new cluster: on all
/// its replicas, before any of them was ever started.
///
/// # Errors
/// There is a log, or the directory cannot be written.
pub fn found(data_dir: &Path) -> Result<(), NodeError> {
    durable::create_dir(data_dir).map_err(failed(data_dir))?;
    if has_log(data_dir) && asked(data_dir)?.is_none() {
        return Err(NodeError::HasLog { path: data_dir.to_owned() });
    }
    durable::write(&data_dir.join(UNANSWERED), "Nothing of the server has reached the outside.\n")
        .map_err(failed(data_dir))?;
    ask(data_dir, 0)
}

/// Whether this replica has a log, or is to begin one, and certainly no output of its server reached the outside.
#[must_use]
pub fn answered_nobody(data_dir: &Path) -> bool {
    let begun = has_log(data_dir) || matches!(asked(data_dir), Ok(Some(_)));
    begun && matches!(data_dir.join(UNANSWERED).try_exists(), Ok(true))
}

/// Removes what a replica has that [`answered_nobody`], which stays true however far this comes: first its log is to be begun again, and that goes before what it began with.
///
/// # Errors
/// The directory cannot be read or written.
pub fn forget(data_dir: &Path) -> Result<(), NodeError> {
    let remove = || -> io::Result<()> {
        remove_all(&log_dir(data_dir))?;
        for entry in std::fs::read_dir(data_dir)? {
            let entry = entry?;
            if ![FILE, UNANSWERED].iter().any(|name| entry.file_name() == *name) {
                remove_all(&entry.path())?;
            }
        }
        Ok(())
    };
    ask(data_dir, 0)?;
    remove().map_err(failed(data_dir))
}

fn remove_all(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Records, durably and before it happens, that output of the server reaches the outside: a client is accepted, a connection made, a
/// datagram sent. Once in the life of a node; a log of which no replica ever recorded it binds nobody.
#[derive(Debug, Default)]
pub struct Answered {
    path: PathBuf,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Noted,
    Not,
    /// The start time of the removing thread.
    Noting(Duration, JoinHandle<io::Result<()>>),
    /// The removal failed: not again before this.
    Failed(Duration),
}

impl Answered {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self { path: data_dir.join(UNANSWERED), state: State::Not }
    }

    /// Output leaves now: records it at once.
    pub(crate) fn note(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.state, State::Not) {
            State::Noted => {}
            State::Noting(_, thread) => joined(thread)?,
            State::Not | State::Failed(_) => durable::remove(&self.path)?,
        }
        self.state = State::Noted;
        Ok(())
    }

    pub(crate) const fn is_noted(&self) -> bool {
        matches!(self.state, State::Noted)
    }

    /// Output is about to leave: answers whether that is recorded. If not, the record begins beside the caller, whom a disk that hangs does not stop.
    pub(crate) fn noted(&mut self, now: Duration) -> bool {
        if matches!(self.state, State::Not) {
            let path = self.path.clone();
            let note = move || durable::remove(&path);
            let thread = std::thread::Builder::new().name("skein-note".into()).spawn(note);
            self.state = thread.map_or(State::Failed(now + RETRY), |t| State::Noting(now, t));
        }
        self.is_noted()
    }

    /// Polls the record; answers why it failed.
    pub(crate) fn look(&mut self, now: Duration) -> io::Result<()> {
        match &self.state {
            State::Noting(_, thread) if thread.is_finished() => {
                self.note().inspect_err(|_| self.state = State::Failed(now + RETRY))
            }
            State::Failed(until) if *until <= now => {
                self.state = State::Not;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// While it is being recorded, or must wait: when to poll again.
    pub(crate) fn wake(&self, now: Duration) -> Option<Duration> {
        match self.state {
            State::Noted | State::Not => None,
            State::Noting(..) => Some(now + LOOK_EVERY),
            State::Failed(until) => Some(until),
        }
    }

    /// The time since when the disk has been waited for.
    pub(crate) const fn waits_since(&self) -> Option<Duration> {
        match self.state {
            State::Noting(since, _) => Some(since),
            _ => None,
        }
    }
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that notes it panicked")))
}

/// Lets the next start of a node begin the log of a replica that lost its own. The remains of that are moved aside; answers where to.
///
/// # Errors
/// A node runs with this directory, no other replica has the log, or the directory cannot be written.
pub fn rejoin(config: &NodeConfig) -> Result<Option<PathBuf>, NodeError> {
    if config.peers.len() == 1 {
        return Err(NodeError::NobodyToRejoin);
    }
    let dir = &config.data_dir;
    durable::create_dir(dir).map_err(failed(dir))?;
    let log = config.log_dir();
    let mut aside = None;
    if log.exists() {
        // Held until the old log is out of the way: no node may begin to write there.
        let disk = DirDisk::open(&log).map_err(failed(dir))?;
        let lock = disk.lock().map_err(failed(dir))?;
        let _lock = lock.ok_or_else(|| WalError::InUse { dir: disk.location() })?;
        let free = |n: &u32| !dir.join(format!("log.lost-{n}")).exists();
        let number = (1..=u32::MAX).find(free).expect("nobody has so many");
        let to = dir.join(format!("log.lost-{number}"));
        durable::rename(&log, &to).map_err(failed(dir))?;
        aside = Some(to);
    }
    // The lost log's outputs are unknown.
    Answered::of(dir).note().map_err(failed(dir))?;
    ask(dir, fresh_incarnation())?;
    Ok(aside)
}

/// Lets the next start of a node with this data directory begin the log of a replica that an existing cluster is to take in.
///
/// # Errors
/// There is a log, nobody else is named, or the directory cannot be written.
pub fn join(config: &NodeConfig) -> Result<(), NodeError> {
    if config.peers.len() == 1 {
        return Err(NodeError::NobodyToJoin);
    }
    let dir = &config.data_dir;
    durable::create_dir(dir).map_err(failed(dir))?;
    if has_log(dir) {
        return Err(NodeError::HasLog { path: dir.to_owned() });
    }
    // The cluster's outputs have left long ago.
    Answered::of(dir).note().map_err(failed(dir))?;
    ask(dir, fresh_incarnation())
}

/// Larger than any before, because time goes on: seconds since 1970 and 16 bits of their fraction. Consensus takes the larger of two for the later incarnation.
fn fresh_incarnation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let fraction = (u64::from(now.subsec_nanos()) << 16) / 1_000_000_000;
    // 32 bits of seconds last until 2106; an incarnation has 48.
    (now.as_secs().max(1) & 0xffff_ffff) << 16 | fraction
}

fn ask(data_dir: &Path, incarnation: u64) -> Result<(), NodeError> {
    let path = data_dir.join(FILE);
    durable::write(&path, &format!("{incarnation}\n")).map_err(failed(data_dir))
}

/// The incarnation of a log to be begun, if one was requested.
pub(crate) fn asked(data_dir: &Path) -> Result<Option<u64>, NodeError> {
    match std::fs::read_to_string(data_dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(data_dir)(error)),
        Ok(text) => text.trim().parse().map(Some).map_err(|_| {
            let why = format!("the file `{FILE}` in it holds no number");
            failed(data_dir)(io::Error::other(why))
        }),
    }
}

/// The log was begun, durably, or is not to be.
pub(crate) fn done(data_dir: &Path) -> Result<(), NodeError> {
    durable::remove(&data_dir.join(FILE)).map_err(failed(data_dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_begun_once_it_was_asked_for_and_never_over_another() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        assert_eq!(asked(&dir).unwrap(), None);
        found(&dir).unwrap();
        found(&dir).unwrap();
        assert_eq!(asked(&dir).unwrap(), Some(0));
        // A crash left a part of the log: nothing was promised yet.
        std::fs::create_dir(dir.join("log")).unwrap();
        std::fs::write(dir.join("log/0000000000000001.wal"), "torn").unwrap();
        found(&dir).unwrap();
        done(&dir).unwrap();
        done(&dir).unwrap();
        assert_eq!(asked(&dir).unwrap(), None);
        let refused = found(&dir).unwrap_err().to_string();
        assert!(refused.contains("holds a log"), "{refused}");
        assert!(answered_nobody(&dir));
        let files = || std::fs::read_dir(&dir).unwrap().count();
        let before = files();
        let mut answered = Answered::of(&dir);
        let now = Duration::from_secs(7);
        assert_eq!((answered.wake(now), answered.waits_since()), (None, None));
        assert!(!answered.noted(now));
        assert_eq!(
            (answered.wake(now), answered.waits_since()),
            (Some(now + LOOK_EVERY), Some(now))
        );
        while answered.waits_since().is_some() {
            answered.look(now).unwrap();
            std::thread::yield_now();
        }
        assert!(answered.noted(now));
        assert_eq!(files(), before - 1, "a full disk must not refuse it");
        let mut nowhere = Answered::of(&root.path().join("nowhere"));
        assert!(!nowhere.noted(now));
        let failed = loop {
            if let Err(failed) = nowhere.look(now) {
                break failed;
            }
            std::thread::yield_now();
        };
        assert_eq!(failed.kind(), io::ErrorKind::NotFound);
        assert_eq!((nowhere.noted(now), nowhere.wake(now)), (false, Some(now + RETRY)));
        nowhere.look(now + RETRY).unwrap();
        assert_eq!(nowhere.wake(now), None);
        assert!(!answered_nobody(&dir) && !answered_nobody(&root.path().join("other")));
        std::fs::write(dir.join(FILE), "nonsense").unwrap();
        assert!(asked(&dir).is_err());
    }

    #[test]
    fn what_is_forgotten_is_to_be_begun_again_whatever_is_left_of_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        found(dir).unwrap();
        std::fs::create_dir(dir.join("log")).unwrap();
        std::fs::write(dir.join("log/0000000000000001.wal"), "").unwrap();
        assert!(!has_begun(dir), "it is torn");
        done(dir).unwrap();
        assert!(has_begun(dir) && answered_nobody(dir));
        std::fs::write(dir.join("import"), "what it began with").unwrap();
        forget(dir).unwrap();
        assert!(answered_nobody(dir) && !has_begun(dir));
        let left = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, [FILE, UNANSWERED]);
    }

    #[test]
    fn a_later_life_is_the_larger_one_even_within_a_second() {
        let first = fresh_incarnation();
        let start = std::time::Instant::now();
        let second = loop {
            let second = fresh_incarnation();
            if second != first {
                break second;
            }
            assert!(start.elapsed().as_secs() < 10, "it stands still at {first}");
        };
        assert!(second > first, "{first} {second}");
        assert!([first, second].iter().all(|life| (1 << 46..1 << 48).contains(life)));
    }
}
