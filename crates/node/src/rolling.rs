//! A log file of bounded size: full, it becomes `NAME.1`, the one of that name `NAME.2`, and so on; the oldest is removed.
//!
//! A write that fails loses its bytes and nothing else: a full disk must not stop a service because of its logs. When a new file cannot be begun, the old one goes on,
//! up to twice its size; what is more than that is lost, until there is room.
//!
//! Writers that share a file (of two servers' lives) notice each other's change of files. Readers follow the names and the files' numbers ([`parts`]).
//! Only regular files roll: what is sent to a device or a pipe is not kept there.
//!
//! Crash: a file may be missing under its name until the next start; what was written is in `NAME.1`.

use serde::{Deserialize, Serialize};
use skein_log::disk::durable;
use skein_replica::config::ConfigError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A log file is no smaller.
const LEAST_BYTES: u64 = 4096;

/// The bounds of log files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogFiles {
    /// The size at which the next file is begun: 16 MiB.
    pub file_bytes: u64,
    /// The number of old files that are kept: 3.
    pub old_files: u32,
}

impl LogFiles {
    /// Checks what types cannot express.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.file_bytes < LEAST_BYTES {
            return Err(ConfigError {
                key: "logs.file_bytes",
                why: "must be at least 4096".into(),
            });
        }
        Ok(())
    }
}

impl Default for LogFiles {
    fn default() -> Self {
        Self { file_bytes: 16 << 20, old_files: 3 }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Rolling {
    path: PathBuf,
    file: File,
    bounds: LogFiles,
    /// Whether it has a size.
    regular: bool,
    bytes: u64,
    /// The size at which the next file is begun, after an attempt that failed later.
    rolls_at: u64,
}

impl Rolling {
    /// Opens the file for more, or creates it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(path: &Path, bounds: LogFiles) -> io::Result<Self> {
        let file = durable::append(path)?;
        let meta = file.metadata()?;
        let (regular, bytes) = (meta.is_file(), meta.len());
        Ok(Self {
            path: path.to_owned(),
            file,
            bounds,
            regular,
            bytes,
            rolls_at: bounds.file_bytes,
        })
    }

    /// The file written to now.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// The size of a file that cannot be followed by the next.
    const fn most_bytes(&self) -> u64 {
        self.bounds.file_bytes.saturating_mul(2)
    }

    /// Begins the next file when this one is full.
    fn roll_if_full(&mut self, more: usize) {
        let rolls_at = self.rolls_at.min(self.most_bytes());
        if !self.regular || self.bytes == 0 || self.bytes + more as u64 <= rolls_at {
            return;
        }
        match self.roll() {
            Ok(()) => self.rolls_at = self.bounds.file_bytes,
            // Tried again when it has grown by some more.
            Err(_) => self.rolls_at = self.bytes + self.bounds.file_bytes / 16,
        }
    }

    fn roll(&mut self) -> io::Result<()> {
        let (own, named) = (self.file.metadata()?, fs::metadata(&self.path));
        if named.is_ok_and(|named| same(&own, &named)) {
            self.move_files()?;
        }
        // Otherwise another writer has begun one.
        let next = durable::append(&self.path)?;
        self.bytes = next.metadata()?.len();
        let former = std::mem::replace(&mut self.file, next);
        self.take_standard_streams(&former);
        Ok(())
    }

    /// The names move on by one. Nothing is removed before there is a file for what comes.
    fn move_files(&self) -> io::Result<()> {
        let next = name(&self.path, "next");
        drop(durable::append(&next)?);
        let moved = || {
            if self.bounds.old_files == 0 {
                return Ok(());
            }
            for number in (1..self.bounds.old_files).rev() {
                match fs::rename(old(&self.path, number), old(&self.path, number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.path, old(&self.path, 1))
        };
        moved().and_then(|()| fs::rename(&next, &self.path)).inspect_err(|_| {
            // The next attempt makes it again.
            let _ = fs::remove_file(&next);
        })
    }

    /// A process whose standard streams go to its log writes there on.
    fn take_standard_streams(&self, former: &File) {
        let goes_there = |stream: &dyn AsFd| {
            let copy = stream.as_fd().try_clone_to_owned().map(File::from);
            let metas = copy.and_then(|copy| Ok((copy.metadata()?, former.metadata()?)));
            metas.is_ok_and(|(stream, former)| same(&stream, &former))
        };
        // What fails leaves the stream where it is.
        if goes_there(&io::stdout()) {
            let _ = nix::unistd::dup2_stdout(&self.file);
        }
        if goes_there(&io::stderr()) {
            let _ = nix::unistd::dup2_stderr(&self.file);
        }
    }
}

impl Write for Rolling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.roll_if_full(bytes.len());
        if self.regular && self.bytes >= self.most_bytes() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the next file cannot be made"));
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The files of a log that exist, the oldest first, opened: at one moment, although a writer may move them meanwhile.
///
/// # Errors
/// They move all the time.
pub fn parts(path: &Path) -> io::Result<Vec<File>> {
    /// A writer moves files once in many megabytes.
    const ATTEMPTS: u32 = 10;
    for _ in 0..ATTEMPTS {
        let mut names = vec![path.to_owned()];
        names.extend((1..).map(|n| old(path, n)).take_while(|name| name.exists()));
        let files: Vec<Option<File>> =
            names.iter().rev().map(|name| File::open(name).ok()).collect();
        let stayed = names.iter().rev().zip(&files).all(|(name, file)| {
            let (now, then) =
                (fs::metadata(name).ok(), file.as_ref().and_then(|f| f.metadata().ok()));
            match (now, then) {
                (Some(now), Some(then)) => same(&now, &then),
                (None, None) => true,
                _ => false,
            }
        });
        if stayed {
            return Ok(files.into_iter().flatten().collect());
        }
    }
    Err(io::Error::other("its files are moved all the time"))
}

/// The name of the old file of this number, from 1.
#[must_use]
pub fn old(path: &Path, number: u32) -> PathBuf {
    name(path, &number.to_string())
}

fn name(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Whether these are of one file.
#[must_use]
pub fn same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: LogFiles = LogFiles { file_bytes: 100, old_files: 2 };

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn a_full_file_becomes_an_old_one_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut log = Rolling::open(&path, BOUNDS).unwrap();
        for n in 0..12 {
            log.write_all(format!("line {n:02} {}\n", "x".repeat(31)).as_bytes()).unwrap();
        }
        let numbers =
            |path: &Path| text(path).lines().map(|line| line[5..7].to_owned()).collect::<Vec<_>>();
        assert_eq!(numbers(&path), ["10", "11"]);
        assert_eq!(numbers(&old(&path, 1)), ["08", "09"]);
        assert_eq!(numbers(&old(&path, 2)), ["06", "07"]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        let order: Vec<String> =
            parts(&path).unwrap().iter().map(|f| io::read_to_string(f).unwrap()).collect();
        assert!(order[0].starts_with("line 06") && order[2].starts_with("line 10"));
        drop(log);
        let mut log = Rolling::open(&path, BOUNDS).unwrap();
        log.write_all(&[b'y'; 40]).unwrap();
        assert_eq!(text(&path), "y".repeat(40), "what it found in the file counts");
    }

    #[test]
    fn two_writers_of_one_file_move_it_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut logs = [0, 1].map(|_| Rolling::open(&path, BOUNDS).unwrap());
        logs[0].write_all(&[b'a'; 60]).unwrap();
        logs[1].write_all(&[b'b'; 40]).unwrap();
        logs[0].write_all(&[b'c'; 60]).unwrap();
        logs[1].write_all(&[b'd'; 80]).unwrap();
        assert_eq!(text(&old(&path, 1)), ["a".repeat(60), "b".repeat(40)].concat());
        assert_eq!(text(&path), ["c".repeat(60), "d".repeat(80)].concat());
    }

    #[test]
    fn a_file_that_cannot_be_moved_goes_on_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        // A directory with something in it is not replaced by a file.
        fs::create_dir(name(&path, "next")).unwrap();
        let mut log = Rolling::open(&path, BOUNDS).unwrap();
        for _ in 0..20 {
            // Lost lines are lost.
            let _ = log.write_all(&[b'x'; 30]);
        }
        let size = fs::metadata(&path).unwrap().len();
        assert!((180..=230).contains(&size), "{size}");
        fs::remove_dir(name(&path, "next")).unwrap();
        log.write_all(&[b'y'; 30]).unwrap();
        assert_eq!(text(&path), "y".repeat(30), "as soon as it can");
    }

    #[test]
    fn what_is_no_file_is_not_moved() {
        let mut log = Rolling::open(Path::new("/dev/null"), BOUNDS).unwrap();
        (0..10).for_each(|_| log.write_all(&[b'x'; 60]).unwrap());
        assert!(!old(Path::new("/dev/null"), 1).exists());
    }
}
