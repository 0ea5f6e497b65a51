//! The runtime that a server is started with: it belongs to what a server sees, so it is pinned with the rest, and a new version of Skein changes no server by itself.
//!
//! `skein upgrade --skein` takes over the host's. Where nothing can be pinned, the host's is used, and a log refuses another one.

use super::edition::Spec;
use super::pin::{Pinner, Why};
use super::store::Digest;
use super::{Base, failed};
use crate::error::NodeError;
use memchr::memmem;
use skein_arena::interface::{self, INTERFACE, OLDEST_INTERFACE};
use skein_sandbox::can_be_stacked;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The host's: `SKEIN_RUNTIME`, or `libskein.so` beside this executable.
///
/// # Errors
/// It does not exist.
pub fn of_host() -> Result<PathBuf, NodeError> {
    let path = match std::env::var_os("SKEIN_RUNTIME") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()
            .map_err(NodeError::system("find this executable"))?
            .with_file_name("libskein.so"),
    };
    path.canonicalize().map_err(|_| NodeError::Runtime { path })
}

/// A runtime for a server to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Its path, as the server sees it.
    pub path: PathBuf,
    /// The file on the host that has its contents.
    pub file: PathBuf,
}

impl Runtime {
    /// The host's.
    ///
    /// # Errors
    /// It does not exist.
    pub fn of_host() -> Result<Self, NodeError> {
        of_host().map(|path| Self { path: path.clone(), file: path })
    }

    /// What is in it.
    ///
    /// # Errors
    /// It cannot be read, is none of Skein's, or none that this version can drive.
    pub fn read(&self) -> Result<Vec<u8>, NodeError> {
        let bytes = fs::read(&self.file).map_err(NodeError::system("read libskein.so"))?;
        self.judge(number(&bytes))?;
        Ok(bytes)
    }

    /// This one, if this version of Skein can drive it.
    ///
    /// # Errors
    /// It cannot.
    pub fn driven(self) -> Result<Self, NodeError> {
        self.read().map(|_| self)
    }

    fn judge(&self, found: Option<u32>) -> Result<(), NodeError> {
        let refused = |why: String| NodeError::OtherRuntime { path: self.path.clone(), why };
        match found {
            Some(OLDEST_INTERFACE..=INTERFACE) => Ok(()),
            Some(later) if later > INTERFACE => Err(refused(
                "it is of a later Skein: install that here, too".into(),
            )),
            Some(_) => Err(refused(
                "it is of a Skein that is too old for this one: start the version of before, install each next one on all hosts, and say 'skein upgrade --skein' after each".into(),
            )),
            None => Err(refused("it is no runtime of Skein: install 'libskein.so' anew".into())),
        }
    }
}

/// The number of the interface that a runtime's file names.
fn number(bytes: &[u8]) -> Option<u32> {
    let at = memmem::find(bytes, &interface::NAME)?;
    interface::number(&bytes[at + interface::NAME.len()..])
}

impl Base {
    /// The pinned runtime, if servers can be shown one.
    #[must_use]
    pub fn runtime(&self) -> Option<Runtime> {
        let index = self.index();
        let (path, _, digest) = index.runtime()?;
        let file = self.objects().path(digest);
        can_be_stacked(&self.dir).then(|| Runtime { path: path.to_owned(), file })
    }

    /// This version of Skein can drive the pinned runtime.
    ///
    /// # Errors
    /// It cannot.
    pub fn can_run(&self) -> Result<(), NodeError> {
        self.runtime().map_or(Ok(()), |runtime| runtime.driven().map(drop))
    }

    /// Pins this one, unless one is pinned, or cannot be. Before any server is started: so none has two.
    ///
    /// # Errors
    /// The base cannot be written.
    pub fn pin_runtime(&self, path: &Path) -> Result<(), NodeError> {
        if self.index().runtime.is_some() {
            return Ok(());
        }
        self.objects().make_dir().map_err(failed(&self.dir))?;
        if !can_be_stacked(&self.dir) {
            return Ok(());
        }
        let (_making, _all) = (self.objects().making(), self.objects().keep_all());
        let mut pinner = Pinner::new(self.objects(), (*self.index()).clone(), None);
        match pinner.runtime(path) {
            Ok(()) => {}
            Err(Why::Kernels) => return Ok(()),
            Err(Why::Later) => unreachable!("a runtime is pinned at once"),
            Err(Why::Because(why) | Why::NoRoom(why)) => {
                tracing::warn!(event = "not_pinned", path = %path.display(), why);
                return Ok(());
            }
        }
        self.objects().sync().and_then(|()| self.set(pinner.index)).map_err(failed(&self.dir))
    }
}

/// Whether servers run with another runtime than the host had when it was first asked.
#[derive(Debug, Default)]
pub struct Other {
    host: OnceLock<Option<(Digest, u64)>>,
    /// The answer for an edition.
    known: Mutex<Option<(String, bool)>>,
}

impl Other {
    /// Whether those of an edition do; `main` is the node's own base.
    #[must_use]
    pub fn than_in(&self, main: &Base, about: &str) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, answer)) = &*known
            && of == about
        {
            return *answer;
        }
        let index = match about {
            "" => Some(main.index()),
            about => {
                let base = Spec::decode(about).and_then(|spec| main.of_edition(spec.base));
                base.ok().map(|base| base.index())
            }
        };
        let Some((_, size, digest)) = index.as_ref().and_then(|index| index.runtime()) else {
            return false;
        };
        let host = self.host.get_or_init(|| {
            of_host().ok().and_then(|path| super::store::digest_of(&path, None).ok())
        });
        let answer = host.is_some_and(|host| host != (digest, size));
        *known = Some((about.to_owned(), answer));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_cannot_be_driven_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libskein.so");
        let runtime = Runtime { path: "/usr/lib/libskein.so".into(), file: file.clone() };
        let with = |mark: &[u8]| {
            fs::write(&file, [b"\x7fELF", mark, b"\0more"].concat()).unwrap();
            runtime.read().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with(&interface::mark()), Ok(()));
        let numbered = |digits: &[u8]| with(&[&interface::NAME, digits].concat()).unwrap_err();
        for (said, part) in [
            (numbered(b"9999"), "a later Skein"),
            (numbered(b"0000"), "too old"),
            (numbered(b"x"), "no runtime of Skein"),
            (with(b"").unwrap_err(), "no runtime of Skein"),
        ] {
            assert!(said.contains(part) && said.contains("/usr/lib/libskein.so"), "{said}");
        }
    }

    #[test]
    fn one_runtime_is_pinned_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let path = dir.join("libskein.so");
        fs::write(&path, "first").unwrap();
        let base = Base::open(&dir.join("data")).unwrap();
        assert_eq!(base.runtime(), None);
        base.pin_runtime(&path).unwrap();
        fs::write(&path, "second").unwrap();
        base.pin_runtime(&path).unwrap();
        let again = Base::open(&dir.join("data")).unwrap();
        if let Some(pinned) = again.runtime() {
            assert_eq!(pinned.path, path);
            assert_eq!(fs::read_to_string(pinned.file).unwrap(), "first");
        } else {
            assert!(!can_be_stacked(&dir), "nothing was pinned");
        }
    }
}
