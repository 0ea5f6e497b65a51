//! A runtime directory in which `skein` finds nodes that have one each: as if all were on one host, so that their memory can be compared.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde_json::json;

use crate::{Failure, Outcome};

/// A node.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Where it listens for others.
    pub address: String,
    /// Its data directory.
    pub data: PathBuf,
    /// Its events.
    pub log: PathBuf,
}

/// The directory, for as long as this lives.
pub struct Joined {
    root: PathBuf,
    name: String,
    _lock: fs::File,
}

impl Joined {
    /// Makes it, without nodes.
    ///
    /// # Errors
    /// There is no room, or another process has it.
    pub fn new(root: &Path, name: &str) -> Outcome<Self> {
        let dir = root.join(name);
        let failed = |error: std::io::Error| Failure::of(dir.display(), error);
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&dir).map_err(failed)?;
        let mut lock = fs::File::create(dir.join("lock")).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        let whole = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&lock, FcntlArg::F_OFD_SETLK(&whole)).map_err(|error| failed(error.into()))?;
        Ok(Self { root: root.to_owned(), name: name.to_owned(), _lock: lock })
    }

    /// Names the nodes, in place of all before.
    ///
    /// # Errors
    /// There is no room.
    pub fn name(&self, mode: &str, nodes: &[Member]) -> Outcome {
        let node = |Member { id, address, data, log }: &Member| {
            json!({
                "id": id, "address": address, "log": log, "data": data,
                "admin": data.join("admin.sock"), "output": data.join("server.log"),
            })
        };
        let state = json!({
            "name": self.name, "pid": std::process::id(), "mode": mode, "schedule": "serial",
            "replicas": nodes.len(), "nodes": nodes.iter().map(node).collect::<Vec<_>>(),
        });
        let path = self.root.join(&self.name).join("state.json");
        let new = path.with_extension("new");
        fs::write(&new, state.to_string())
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| Failure::of(path.display(), error))
    }

    /// The value of `SKEIN_RUN_DIR` for commands that are to find all.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}
