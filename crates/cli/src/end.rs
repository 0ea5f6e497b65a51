//! A node's report of its end to `skein run`: a small JSON file, written just before the process exits.
//!
//! A node that was killed leaves none, so the file's absence says that as well.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::paths;

/// The end of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It was asked to stop.
    Stopped,
    /// The cluster has it no longer as a member.
    Removed {
        /// The exit code that goes with it.
        code: u8,
    },
    /// The server ended on a majority of the replicas.
    Server {
        /// Its exit status, or 128 and the number of the signal that killed it.
        code: u8,
        /// The same in words, with the log index.
        how: String,
    },
    /// It could not go on.
    Failed {
        /// One line: problem, reason, remedy.
        line: String,
        /// The exit code that goes with it.
        code: u8,
    },
}

impl End {
    /// Writes the report to `path`.
    pub fn write(&self, path: &Path) {
        let text = serde_json::to_string(self).expect("a plain enum is valid JSON");
        // Without the file the end counts as unexpected, with the exit code; nothing else can be done here.
        let _ = paths::write_whole(path, &text);
    }

    /// Takes the report from `path`.
    pub fn take(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let _ = fs::remove_file(path);
        serde_json::from_str(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_taken_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("end.json");
        let end = End::Server { code: 3, how: "exit status 3 at entry 9".into() };
        end.write(&path);
        assert_eq!(End::take(&path), Some(end));
        assert_eq!(End::take(&path), None);
    }
}
