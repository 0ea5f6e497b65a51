//! A started guest, in the harness's own surroundings or in the sandbox of servers; and its files, which go with an image of it.

use crate::launch::{Guest, Launch};
use crate::sandboxed::{Numbers, Sandboxed};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A started guest; killed and reaped when dropped.
#[derive(Debug)]
pub enum Started {
    /// In the harness's own surroundings.
    Own(Guest),
    /// In the sandbox.
    Sandboxed(Box<Sandboxed>),
}

impl Started {
    /// Starts a guest.
    ///
    /// # Errors
    /// No namespace, or no such program.
    pub fn start(launch: &Launch<'_>) -> io::Result<Self> {
        Ok(match launch.sandbox {
            Some(directory) => Self::Sandboxed(Box::new(Sandboxed::start(launch, directory)?)),
            None => Self::Own(Guest::start(launch)?),
        })
    }

    /// Readable when it has ended.
    #[must_use]
    pub fn ended_fd(&self) -> RawFd {
        match self {
            Self::Own(guest) => guest.ended_fd(),
            Self::Sandboxed(guest) => guest.ended_fd(),
        }
    }

    /// Waits for its end; its wait status.
    ///
    /// # Errors
    /// It never ran: the reason is on its standard error.
    pub fn wait(&mut self) -> io::Result<i32> {
        match self {
            Self::Own(guest) => guest.wait(),
            Self::Sandboxed(guest) => guest.wait(),
        }
    }

    /// Sends a signal to the thread that has this number in its pid namespace; false when there is none.
    #[must_use]
    pub fn signal_thread(&self, tid: u32, signal: i32) -> bool {
        match self {
            Self::Own(guest) => guest.signal_thread(tid, signal),
            Self::Sandboxed(guest) => guest.signal_thread(tid, signal),
        }
    }

    /// The parent of its processes.
    #[must_use]
    pub fn init(&self) -> u32 {
        match self {
            Self::Own(guest) => guest.init(),
            Self::Sandboxed(guest) => guest.init(),
        }
    }

    /// Where numbers for copies of its processes come from: in the sandbox.
    #[must_use]
    pub fn numbers(&self) -> Option<Numbers> {
        match self {
            Self::Own(_) => None,
            Self::Sandboxed(guest) => guest.numbers(),
        }
    }

    /// Its root, as its mounts show it.
    ///
    /// # Errors
    /// It is gone.
    pub fn root(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Own(guest) => Ok(File::open(format!("/proc/{}/root", guest.init()))?.into()),
            Self::Sandboxed(guest) => {
                let root = guest.layer().root();
                root.ok_or_else(|| io::Error::other("its root was not seen"))?.try_clone_to_owned()
            }
        }
    }

    /// Where parts of its layer are mounted in it: in the sandbox.
    #[must_use]
    pub fn mounts(&self) -> Vec<PathBuf> {
        match self {
            Self::Own(_) => Vec::new(),
            Self::Sandboxed(guest) => guest.layer().mounts(),
        }
    }
}

/// The files of a guest.
#[derive(Debug)]
pub enum Files {
    /// Copies of what is in its own directories.
    Copied(tempfile::TempDir),
    /// Its packed layer, and the paths in it.
    Packed(Vec<u8>, BTreeSet<PathBuf>),
}

impl Files {
    const DIRECTORIES: [&str; 2] = ["mnt", "dev/shm"];

    /// Copies those of a guest, which stands.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of(guest: &Started) -> io::Result<Self> {
        match guest {
            Started::Own(guest) => {
                let files = tempfile::Builder::new().prefix("skein-guest").tempdir()?;
                for name in Self::DIRECTORIES {
                    fs::create_dir_all(files.path().join(name))?;
                    copy(&below(guest.init(), name), &files.path().join(name))?;
                }
                Ok(Self::Copied(files))
            }
            Started::Sandboxed(guest) => {
                let mut bytes = Vec::new();
                let paths = guest.layer().pack(&mut bytes)?.into_iter().map(|(path, _)| path);
                Ok(Self::Packed(bytes, paths.collect()))
            }
        }
    }

    /// Their paths in the guest.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn paths(&self) -> io::Result<BTreeSet<PathBuf>> {
        let files = match self {
            Self::Copied(files) => files.path(),
            Self::Packed(_, paths) => return Ok(paths.clone()),
        };
        let mut paths = BTreeSet::new();
        let mut directories: Vec<PathBuf> = Self::DIRECTORIES.map(|name| files.join(name)).into();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    directories.push(entry.path());
                }
                let path = entry.path();
                let path = path.strip_prefix(files).map_err(io::Error::other)?;
                paths.insert(Path::new("/").join(path));
            }
        }
        Ok(paths)
    }

    /// Gives them to another guest, which has not begun to work.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn give(&self, to: &Started) -> io::Result<()> {
        match (self, to) {
            (Self::Copied(files), Started::Own(guest)) => Self::DIRECTORIES
                .iter()
                .try_for_each(|name| copy(&files.path().join(name), &below(guest.init(), name))),
            (Self::Packed(bytes, _), Started::Sandboxed(guest)) => {
                guest.layer().unpack(&mut bytes.as_slice())
            }
            _ => Err(io::Error::other("the two guests have other surroundings")),
        }
    }
}

fn below(init: u32, name: &str) -> PathBuf {
    Path::new("/proc").join(format!("{init}/root")).join(name)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other("a guest's files cannot be copied"))
    }
}
