//! What servers are started as since an upgrade ([`skein_replica::editions`]), as nodes know it.
//!
//! ```text
//! DATA_DIR/edition     the command that the cluster was founded with, and the current one; written when an edition begins
//! ```
//!
//! The identity of a log, which peers compare, stays that of the command that it was founded with. So a node whose configuration names either of the two goes
//! on, and one that names another command is refused.

use super::store::Digest;
use crate::config::{NodeConfig, ServerConfig};
use crate::error::NodeError;
use serde::{Deserialize, Serialize};
use skein_log::disk::durable;
use std::io;
use std::path::{Path, PathBuf};

/// Its file in a data directory.
pub const FILE: &str = "edition";

/// A program with all that it is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program as it was named.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: PathBuf,
}

impl Command {
    /// The one that a configuration names.
    #[must_use]
    pub fn of(server: &ServerConfig) -> Self {
        Self {
            program: server.program.clone(),
            args: server.args.clone(),
            env: server.env.clone(),
            cwd: server.cwd.clone(),
        }
    }

    /// Puts it into a configuration.
    pub fn give(&self, server: &mut ServerConfig) {
        server.program.clone_from(&self.program);
        server.args.clone_from(&self.args);
        server.env.clone_from(&self.env);
        server.cwd.clone_from(&self.cwd);
    }

    /// Program and arguments in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// What is in the log about an edition that was not configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The command.
    pub command: Command,
    /// SHA-256 of the program and its libraries, in hexadecimal.
    pub program_hash: String,
    /// The digest of the index of its base, which names what it sees of its host.
    pub base: Digest,
}

impl Spec {
    /// As a replica carries it.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("texts have a JSON form")
    }

    /// From there.
    ///
    /// # Errors
    /// It was written by a later version.
    pub fn decode(about: &str) -> Result<Self, NodeError> {
        serde_json::from_str(about).map_err(|error| NodeError::Edition {
            about: about.chars().take(100).collect(),
            why: format!("{error}; run the version of Skein that made it"),
        })
    }
}

/// The commands of a cluster that was upgraded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// The one that it was founded with.
    pub first: Command,
    /// The current one.
    pub current: Command,
    /// The number of its edition.
    pub number: u64,
    /// The entry with which that began.
    pub since: u64,
    /// The digest of the index of its base; none for the one that the cluster was founded with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> NodeError {
    let path = path.to_owned();
    move |error| NodeError::DataDir { path: path.clone(), error }
}

impl Commands {
    /// Those of a data directory; `None`: its cluster was never upgraded, as far as is known here.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, NodeError> {
        let path = data_dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed(&path))?,
        };
        let damaged = |error| failed(&path)(io::Error::new(io::ErrorKind::InvalidData, error));
        serde_json::from_str(&text).map(Some).map_err(damaged)
    }

    /// Writes them, durably.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn write(&self, data_dir: &Path) -> Result<(), NodeError> {
        let text = serde_json::to_string(self).expect("texts have a JSON form");
        let path = data_dir.join(FILE);
        durable::write(&path, &format!("{text}\n")).map_err(failed(&path))
    }

    /// A cluster that is founded has no past.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn forget(data_dir: &Path) -> Result<(), NodeError> {
        let path = data_dir.join(FILE);
        durable::remove(&path).map_err(failed(&path))
    }

    /// The configuration as the cluster was founded with it, whether it names that command or the current one.
    ///
    /// # Errors
    /// It names another one.
    pub fn founded(&self, config: &NodeConfig) -> Result<NodeConfig, NodeError> {
        let named = Command::of(&config.server);
        if named != self.first && named != self.current {
            let named = if named.line() == self.current.line() {
                format!("{}, with another environment or working directory", named.line())
            } else {
                named.line()
            };
            return Err(NodeError::OtherCommand {
                is: self.current.line(),
                since: self.since(),
                named,
                first: self.first.line(),
            });
        }
        if named != self.current {
            let (command, since) = (self.current.line(), self.since());
            tracing::warn!(
                event = "upgraded",
                command,
                since,
                "the configuration names the command from before"
            );
        }
        let mut config = config.clone();
        self.first.give(&mut config.server);
        Ok(config)
    }

    /// Since when the current one is that, in words.
    #[must_use]
    pub fn since(&self) -> String {
        format!(" since the upgrade at entry {}", self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(arg: &str) -> Command {
        Command {
            program: "redis-server".into(),
            args: vec![arg.into()],
            env: vec![("TZ".into(), "UTC".into())],
            cwd: "/".into(),
        }
    }

    /// `SKEIN_BLESS` writes the stored ones.
    #[test]
    fn what_is_stored_by_earlier_versions_is_read() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/base/formats");
        let base = Digest([7; 32]);
        let spec = Spec { command: command("b"), program_hash: "0a".repeat(32), base };
        let (first, current) = (command("a"), command("b"));
        let commands = Commands { first, current, number: 2, since: 70, base: Some(base) };
        if std::env::var_os("SKEIN_BLESS").is_some() {
            commands.write(&dir).unwrap();
            std::fs::write(dir.join("spec"), spec.encode()).unwrap();
        }
        assert_eq!(Commands::read(&dir).unwrap(), Some(commands));
        let stored = std::fs::read_to_string(dir.join("spec")).unwrap();
        assert_eq!(Spec::decode(&stored).unwrap(), spec);
    }

    #[test]
    fn a_configuration_names_the_first_command_or_the_current_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Commands::read(dir.path()).unwrap(), None);
        let commands = Commands {
            first: command("a"),
            current: command("b"),
            number: 2,
            since: 70,
            base: None,
        };
        commands.write(dir.path()).unwrap();
        assert_eq!(Commands::read(dir.path()).unwrap(), Some(commands.clone()));
        let config = |arg: &str| -> NodeConfig {
            let server = serde_json::json!({
                "program": "redis-server", "args": [arg], "env": [["TZ", "UTC"]]
            });
            let peers = serde_json::json!([{ "id": 1, "address": "/tmp/x" }]);
            let config = serde_json::json!({
                "name": "x", "id": 1, "peers": peers, "data_dir": "/tmp", "server": server
            });
            serde_json::from_value(config).unwrap()
        };
        for arg in ["a", "b"] {
            let founded = commands.founded(&config(arg)).unwrap();
            assert_eq!(Command::of(&founded.server), command("a"));
        }
        let refused = commands.founded(&config("c")).unwrap_err().to_string();
        for part in [
            "'redis-server b'",
            "entry 70",
            "'redis-server c'",
            "'redis-server a'",
            "skein upgrade",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
        Commands::forget(dir.path()).unwrap();
        assert_eq!(Commands::read(dir.path()).unwrap(), None);
    }

    #[test]
    fn an_edition_is_read_as_it_was_written() {
        let spec = Spec { command: command("a"), program_hash: "00".into(), base: Digest([7; 32]) };
        assert_eq!(Spec::decode(&spec.encode()).unwrap(), spec);
        assert!(Spec::decode("{}").is_err());
    }
}
