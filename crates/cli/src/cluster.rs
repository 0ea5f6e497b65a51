//! The identity of a cluster that `skein run` keeps in its data directory.
//!
//! ```text
//! DIR/cluster.json      the log's program, arguments, environment, number of replicas
//! DIR/lock              held by the `skein run` that uses the directory
//! DIR/run.log           its events, one JSON line each
//! DIR/importing/        what a new cluster begins with, until all replicas have it
//! DIR/node-N/           log, configuration, events (node.log) and printed output (server.log) of replica N
//! ```
//!
//! A log replayed by another program, or with other arguments or another environment, would silently build another
//! state. So all of it is compared before anything starts, and a difference is refused by name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use skein_node::base::Base;
use skein_node::base::index::Command;
use skein_node::config::{Kind, Tuning};
use skein_node::edition::{self, Commands};
use skein_node::founding::Beginnings;
use skein_node::{NodeError, begin, durable, import};
use skein_sandbox::Program;

use crate::args::Durability;
use crate::failure::Failure;
use crate::instance;

const FILE: &str = "cluster.json";
/// The remedy for a directory that is in the way.
const OTHER: &str = "choose another --data DIR, or remove this one to start anew";
/// Version of the identity file.
pub const FORMAT: u32 = 1;

/// The identity of the log in a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of this file.
    pub format: u32,
    /// Random; drawn when the cluster was made.
    pub cluster_id: String,
    /// The cluster's name.
    pub name: String,
    /// How many replicas it has.
    pub replicas: u64,
    /// The durability of an acknowledged write.
    pub durability: Durability,
    /// The program as it was named.
    pub program: String,
    /// SHA-256 over the program and its libraries.
    pub program_hash: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// Operations in a turn.
    pub quantum: u32,
    /// Turns from slot to slot.
    pub nclock: u32,
    /// The largest limit of descriptors.
    #[serde(default = "max_open_files")]
    pub max_open_files: u64,
    /// What it began with, if there was something: a directory of files, or an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<PathBuf>,
    /// What replicas do that are not active.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<u64, Kind>,
}

/// That of clusters whose identity does not say it.
fn max_open_files() -> u64 {
    Tuning::default().max_open_files
}

impl Identity {
    /// What a replica does.
    pub fn kind(&self, id: u64) -> Kind {
        self.kinds.get(&id).copied().unwrap_or_default()
    }
}

/// A data directory that this process alone uses.
#[derive(Debug)]
pub struct DataDir {
    /// Its path.
    pub path: PathBuf,
    _lock: File,
}

/// Whether the directory held the cluster already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is new.
    New,
    /// It goes on from its log.
    Continued,
    /// It existed, but its log was in memory and is gone.
    Emptied,
    /// It existed, but no client was ever answered from its log: the log starts anew.
    Discarded,
}

/// 128 random bits as hexadecimal digits.
pub fn draw_cluster_id() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl DataDir {
    /// Opens the directory, creating it if need be.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let fail = |why: String, fix: &str| Failure::new(what(path), why, fix);
        let elsewhere = "choose another one with --data DIR";
        let private = || durable::create_dir(path).and_then(|()| durable::make_private(path));
        private().map_err(|error| fail(error.to_string(), elsewhere))?;
        let path = path.canonicalize().map_err(|error| fail(error.to_string(), elsewhere))?;
        match instance::lock_file(&path.join("lock")) {
            Ok(Ok(lock)) => Ok(Self { path, _lock: lock }),
            Ok(Err(pid)) => Err(fail(
                format!("process {pid} uses it"),
                "stop that one or choose another --data DIR",
            )),
            Err(error) => Err(fail(error.to_string(), elsewhere)),
        }
    }

    /// The directory of replica `id`.
    pub fn node(&self, id: u64) -> PathBuf {
        self.path.join(format!("node-{id}"))
    }

    /// Compares the directory's identity with `wanted`, or stores that; answers the identity in force. `pinned`: the hash of the program that the replicas have
    /// pinned, which they use whatever the host has.
    pub fn settle(
        &self,
        wanted: Identity,
        pinned: Option<&str>,
    ) -> Result<(Identity, Found), Failure> {
        let file = self.path.join(FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::new(what(&self.path), error, "")),
        };
        let Some(text) = text else {
            if self.nodes().iter().any(|node| begin::has_log(node)) {
                return Err(Failure::new(
                    what(&self.path),
                    format!("it holds logs but no {FILE}"),
                    "restore that file or choose another --data DIR",
                ));
            }
            let beginnings = self.take(&wanted)?;
            self.found(&wanted, &beginnings)?;
            return Ok((wanted, Found::New));
        };
        let kept: Identity = serde_json::from_str(&text).map_err(|error| {
            Failure::new(
                format!("{}:{}:{}", file.display(), error.line(), error.column()),
                "this is no cluster's identity",
                "restore that file or choose another --data DIR",
            )
        })?;
        self.check_owner(&kept, &wanted)?;
        match kept.durability {
            Durability::Memory => {
                let beginnings = self.take(&wanted)?;
                self.remove_nodes(0)?;
                self.found(&wanted, &beginnings)?;
                Ok((wanted, Found::Emptied))
            }
            Durability::Fsync if self.answered_nobody(&kept) => self.discard(kept, wanted, pinned),
            Durability::Fsync => self.go_on(kept, &wanted, pinned),
        }
    }

    /// Goes on from the log of the cluster that is there.
    fn go_on(
        &self,
        kept: Identity,
        wanted: &Identity,
        pinned: Option<&str>,
    ) -> Result<(Identity, Found), Failure> {
        self.compare(&kept, wanted, pinned)?;
        self.share_imported(&kept)?;
        // What a run has left that was killed when all had it; it only takes room.
        let _ = Beginnings::take(None, &self.path);
        Ok((kept, Found::Continued))
    }

    /// Begins a log anew from which nobody was answered, with what was asked for: it may be what the cluster began with, which is gone from where it came from.
    fn discard(
        &self,
        kept: Identity,
        mut wanted: Identity,
        pinned: Option<&str>,
    ) -> Result<(Identity, Found), Failure> {
        let is_kept = wanted.import.is_none() && kept.import.is_some();
        if is_kept {
            wanted.import.clone_from(&kept.import);
        }
        let beginnings = match self.take(&wanted) {
            Err(error) if is_kept && self.has_imported(&kept) => {
                wanted.import = None;
                // Where it cannot go on as it was, what it began with is missing.
                return self.go_on(kept, &wanted, pinned).map_err(|_| error);
            }
            taken => taken?,
        };
        // Until the end it stays a cluster that answered nobody and knows what it began with: a run that is killed in between is followed by the same.
        for node in self.nodes() {
            begin::forget(&node).map_err(|error| Failure::new("data", error, ""))?;
        }
        self.found(&wanted, &beginnings)?;
        self.remove_nodes(wanted.replicas)?;
        Ok((wanted, Found::Discarded))
    }

    /// Takes what a new cluster begins with.
    fn take(&self, wanted: &Identity) -> Result<Beginnings, Failure> {
        let taken = Beginnings::take(wanted.import.as_deref(), &self.path);
        taken.map_err(|error| imported(&error))
    }

    /// Lets all replicas begin their logs. The mark that they have is written last: a crash before it founds again.
    fn found(&self, wanted: &Identity, beginnings: &Beginnings) -> Result<(), Failure> {
        for id in 1..=wanted.replicas {
            let founded = beginnings.found(&self.node(id));
            founded.map_err(|error| Failure::new("data", error, "the cluster was not made"))?;
        }
        self.write(wanted)
    }

    /// Whether all replicas have what the cluster began with, or a log that was begun with it.
    fn has_imported(&self, kept: &Identity) -> bool {
        let has = |node: PathBuf| import::is_there(&node) || begin::has_begun(&node);
        (1..=kept.replicas).all(|id| has(self.node(id)))
    }

    /// Gives replicas whose directory is new, or was lost, what the cluster began with.
    fn share_imported(&self, identity: &Identity) -> Result<(), Failure> {
        let has = |id: &u64| import::is_there(&self.node(*id));
        let Some(from) = (1..=identity.replicas).find(has) else { return Ok(()) };
        // One that has a log has begun with it.
        let lacks = |id: &u64| !has(id) && !begin::has_log(&self.node(*id));
        for id in (1..=identity.replicas).filter(lacks) {
            import::share(&self.node(from), &self.node(id)).map_err(|error| imported(&error))?;
        }
        Ok(())
    }

    /// Whether all replicas have logs and none of the server's output has reached the outside.
    fn answered_nobody(&self, kept: &Identity) -> bool {
        (1..=kept.replicas).all(|id| begin::answered_nobody(&self.node(id)))
    }

    /// Whether this directory is this cluster's, and can be read.
    fn check_owner(&self, kept: &Identity, wanted: &Identity) -> Result<(), Failure> {
        let refuse = |why: String, fix: &str| Err(Failure::new(what(&self.path), why, fix));
        if kept.format != FORMAT {
            return refuse(
                format!("its format is {}, this skein reads {FORMAT}", kept.format),
                "use the skein that made it",
            );
        }
        if kept.name != wanted.name {
            return refuse(format!("it belongs to the cluster '{}'", kept.name), OTHER);
        }
        Ok(())
    }

    fn compare(
        &self,
        kept: &Identity,
        wanted: &Identity,
        pinned: Option<&str>,
    ) -> Result<(), Failure> {
        let refuse = |why: String, fix: &str| Err(Failure::new(what(&self.path), why, fix));
        let upgraded = self.upgraded()?;
        let is_current = upgraded.as_ref().is_some_and(|commands| {
            let command = edition::Command {
                program: wanted.program.clone(),
                args: wanted.args.clone(),
                env: wanted.env.clone(),
                cwd: wanted.cwd.clone(),
            };
            command == commands.current
        });
        if !is_current {
            self.compare_commands(kept, wanted, pinned, upgraded.as_ref())?;
        }
        if wanted.import.is_some() && kept.import != wanted.import {
            let began = kept.import.as_ref().map_or_else(
                || "without imported files".to_owned(),
                |from| format!("with {}", from.display()),
            );
            return refuse(
                format!("its cluster exists, and began {began}"),
                "leave out --import to go on with it, or choose another --data DIR for a new one",
            );
        }
        if kept.replicas != wanted.replicas {
            return refuse(
                format!("its cluster has {} replicas", kept.replicas),
                &format!("start it with --replicas {}", kept.replicas),
            );
        }
        if kept.kinds != wanted.kinds {
            let all = (1..=kept.replicas).map(|id| format!("{id}={}", kept.kind(id)));
            let all = line(&all.collect::<Vec<_>>()).replace(' ', ",");
            let fix = format!("give --replica-kind {all}");
            return refuse("its replicas are of other kinds".into(), &fix);
        }
        if kept.durability != wanted.durability {
            return refuse("its log is on disk".into(), "start it with --durability fsync");
        }
        if (kept.quantum, kept.nclock) != (wanted.quantum, wanted.nclock) {
            let fix = format!("give --quantum {} --nclock {}", kept.quantum, kept.nclock);
            return refuse("its log was made with another quantum or nclock".into(), &fix);
        }
        if kept.max_open_files != wanted.max_open_files {
            let fix = format!("give --set tuning.max_open_files={}", kept.max_open_files);
            return refuse("its log was made with another max_open_files".into(), &fix);
        }
        Ok(())
    }

    /// Whether the log was made by this command; `upgraded`: what it is called by now.
    fn compare_commands(
        &self,
        kept: &Identity,
        wanted: &Identity,
        pinned: Option<&str>,
        upgraded: Option<&Commands>,
    ) -> Result<(), Failure> {
        let refuse = |why: String, fix: &str| {
            let why = match upgraded {
                Some(commands) => format!(
                    "its command is '{}'{}, and {why}",
                    commands.current.line(),
                    commands.since()
                ),
                None => why,
            };
            let fix = format!("{fix}; 'skein upgrade' changes the command of a running cluster");
            Err(Failure::new(what(&self.path), why, fix))
        };
        if kept.program != wanted.program {
            return refuse(
                format!("its log was made by {}, not by {}", kept.program, wanted.program),
                OTHER,
            );
        }
        if kept.args != wanted.args {
            let was = line(&kept.args);
            return refuse(
                format!("its log was made with the arguments [{was}]"),
                "give the same ones",
            );
        }
        if ![Some(wanted.program_hash.as_str()), pinned].contains(&Some(&kept.program_hash)) {
            return refuse(
                format!("{} or a library of it has changed since its log was made", kept.program),
                "restore that version, or choose another --data DIR",
            );
        }
        if kept.env != wanted.env || kept.cwd != wanted.cwd {
            let difference = if kept.cwd == wanted.cwd {
                let was: Vec<String> = kept.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("the environment {}", line(&was))
            } else {
                format!("the working directory {}", kept.cwd.display())
            };
            return refuse(format!("its log was made with {difference}"), "give the same");
        }
        Ok(())
    }

    /// The commands of the cluster, if it was upgraded.
    pub fn upgraded(&self) -> Result<Option<Commands>, Failure> {
        let read =
            |node: PathBuf| Commands::read(&node).map_err(|error| Failure::new("data", error, ""));
        let all: Result<Vec<_>, _> = self.nodes().into_iter().map(read).collect();
        Ok(all?.into_iter().flatten().max_by_key(|commands| commands.number))
    }

    fn write(&self, identity: &Identity) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(identity).expect("a plain struct is valid JSON");
        durable::write(&self.path.join(FILE), &text).map_err(|error| {
            Failure::new(
                what(&self.path),
                error,
                "make room; only a new cluster can begin in another --data DIR",
            )
        })
    }

    fn nodes(&self) -> Vec<PathBuf> {
        nodes_in(&self.path).into_iter().map(|(_, path)| path).collect()
    }

    /// Removes the directories of replicas beyond so many.
    fn remove_nodes(&self, beyond: u64) -> Result<(), Failure> {
        for (_, path) in nodes_in(&self.path).into_iter().filter(|(id, _)| *id > beyond) {
            fs::remove_dir_all(&path)
                .map_err(|error| Failure::new(path.display().to_string(), error, ""))?;
        }
        Ok(())
    }
}

/// The data directories of replicas in a cluster's, by their numbers.
pub fn nodes_in(dir: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.strip_prefix("node-")?.parse().ok()?;
        Some((id, entry.path()))
    };
    let mut nodes: Vec<_> = entries.filter_map(node).collect();
    nodes.sort_unstable();
    nodes
}

/// The program that the replicas in a cluster's directory have pinned, if this command was given for it.
pub fn pinned_in(dir: &Path, command: &Command) -> Result<Option<Program>, Failure> {
    for (_, node) in nodes_in(dir) {
        let base = Base::open(&node).map_err(|error| Failure::new("data", error, ""))?;
        if let Some(program) =
            base.program_of_any(command).map_err(|error| Failure::new("data", error, ""))?
        {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

fn imported(error: &NodeError) -> Failure {
    Failure::new("--import", error, "the cluster was not made")
}

fn what(path: &Path) -> String {
    format!("data directory {}", path.display())
}

fn line(words: &[String]) -> String {
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            format: FORMAT,
            cluster_id: draw_cluster_id().unwrap(),
            name: "a".into(),
            replicas: 3,
            durability: Durability::Fsync,
            program: "/bin/x".into(),
            program_hash: "00".into(),
            args: vec!["-p".into(), "1".into()],
            env: vec![("TZ".into(), "UTC".into())],
            cwd: "/".into(),
            quantum: 256,
            nclock: 16,
            max_open_files: max_open_files(),
            import: None,
            kinds: BTreeMap::new(),
        }
    }

    #[test]
    fn continues_what_is_the_same_and_keeps_its_id() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&root.path().join("d")).unwrap();
        let (first, found) = dir.settle(identity(), None).unwrap();
        assert_eq!(found, Found::New);
        answered(&dir);
        let (second, found) = dir.settle(identity(), None).unwrap();
        assert_eq!(found, Found::Continued);
        assert_eq!(first.cluster_id, second.cluster_id);
    }

    #[test]
    fn refuses_each_difference_by_name() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path()).unwrap();
        dir.settle(identity(), None).unwrap();
        answered(&dir);
        type Change = fn(&mut Identity);
        let changed: [(&str, Change); 11] = [
            ("belongs to the cluster 'a'", |i| i.name = "b".into()),
            ("made by /bin/x", |i| i.program = "/bin/y".into()),
            ("arguments [-p 1]", |i| i.args.clear()),
            ("has changed", |i| i.program_hash = "01".into()),
            ("environment TZ=UTC", |i| i.env.clear()),
            ("working directory /", |i| i.cwd = "/tmp".into()),
            ("has 3 replicas", |i| i.replicas = 5),
            ("on disk", |i| i.durability = Durability::Memory),
            ("quantum", |i| i.quantum = 1),
            ("max_open_files", |i| i.max_open_files = 2048),
            ("began without imported files", |i| i.import = Some("/x".into())),
        ];
        for (words, change) in changed {
            let mut other = identity();
            change(&mut other);
            let failure = dir.settle(other, None).unwrap_err().to_string();
            assert!(failure.contains(words), "{failure}");
        }
    }

    /// Replica 1 has a log, and a client was answered from it.
    fn answered(dir: &DataDir) {
        fs::create_dir_all(dir.node(1).join("log")).unwrap();
        fs::write(dir.node(1).join("log/0000000000000001.wal"), "").unwrap();
        let _ = fs::remove_file(dir.node(1).join("unanswered"));
    }

    #[test]
    fn a_log_that_is_begun_anew_begins_with_what_it_began_with() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&root.path().join("data")).unwrap();
        let files = root.path().join("files");
        fs::create_dir(&files).unwrap();
        dir.settle(Identity { import: Some(files.clone()), ..identity() }, None).unwrap();
        assert!(import::is_there(&dir.node(3)));
        fs::create_dir(dir.node(1).join("log")).unwrap();
        fs::write(dir.node(1).join("log/0000000000000001.wal"), "").unwrap();
        let (again, found) = dir.settle(identity(), None).unwrap();
        assert_eq!((found, again.import), (Found::Discarded, Some(files)));
        assert!(import::is_there(&dir.node(3)));
    }

    #[test]
    fn a_log_from_which_nobody_was_answered_is_begun_anew() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path()).unwrap();
        let (first, _) = dir.settle(identity(), None).unwrap();
        fs::create_dir(dir.node(1).join("log")).unwrap();
        fs::write(dir.node(1).join("log/0000000000000001.wal"), "").unwrap();
        let corrected = || Identity { args: vec!["right".into()], ..identity() };
        let (second, found) = dir.settle(corrected(), None).unwrap();
        assert_eq!((found, &second.args), (Found::Discarded, &corrected().args));
        assert_ne!(first.cluster_id, second.cluster_id);
        assert!(!begin::has_log(&dir.node(1)));
        // Another cluster's directory is left alone; and where a replica's directory is gone, its answers are unknown.
        let other = Identity { name: "b".into(), ..identity() };
        assert!(dir.settle(other, None).is_err());
        fs::remove_dir_all(dir.node(2)).unwrap();
        assert!(dir.settle(identity(), None).is_err());
        assert_eq!(dir.settle(corrected(), None).unwrap().1, Found::Continued);
    }

    /// All replicas have begun their logs, behind an image of which nothing is left, and answered nobody.
    fn begun(dir: &DataDir) {
        for id in 1..=3 {
            fs::create_dir_all(dir.node(id).join("log")).unwrap();
            fs::write(dir.node(id).join("log/0000000000000001.wal"), "").unwrap();
            fs::remove_file(dir.node(id).join("begin")).unwrap();
            fs::remove_file(dir.node(id).join("import")).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_read_again_is_gone_on_with() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&root.path().join("data")).unwrap();
        let files = root.path().join("files");
        fs::create_dir(&files).unwrap();
        let wanted = || Identity { import: Some(files.clone()), ..identity() };
        let (first, _) = dir.settle(wanted(), None).unwrap();
        begun(&dir);
        fs::rename(&files, root.path().join("away")).unwrap();
        fs::create_dir(dir.path.join("importing")).unwrap();
        // Asked for by name it is refused, and nothing is lost.
        let failure = dir.settle(wanted(), None).unwrap_err().to_string();
        assert!(failure.contains("files"), "{failure}");
        assert!((1..=3).all(|id| begin::has_begun(&dir.node(id))));
        let (again, found) = dir.settle(identity(), None).unwrap();
        assert_eq!((found, again), (Found::Continued, first));
        assert!((1..=3).all(|id| begin::has_begun(&dir.node(id))));
        assert!(!dir.path.join("importing").exists());

        // A run that was killed while it removed them, before what it began with was gone, and after.
        begin::forget(&dir.node(2)).unwrap();
        let failure = dir.settle(identity(), None).unwrap_err().to_string();
        assert!(failure.contains("files"), "{failure}");
        fs::rename(root.path().join("away"), &files).unwrap();
        let (again, found) = dir.settle(identity(), None).unwrap();
        assert_eq!((found, again.import), (Found::Discarded, Some(files)));
        assert!((1..=3).all(|id| import::is_there(&dir.node(id))));
        assert!(!dir.path.join("importing").exists());
    }

    #[test]
    fn a_log_that_was_begun_keeps_its_base_when_another_is_to_begin_yet() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path()).unwrap();
        dir.settle(identity(), None).unwrap();
        let path = |id: u64, name: &str| dir.node(id).join(name);
        fs::write(path(1, "import.image"), "image").unwrap();
        for id in [2, 3] {
            fs::remove_file(path(id, "begin")).unwrap();
            fs::remove_file(path(id, "unanswered")).unwrap();
        }
        fs::create_dir_all(path(2, "log")).unwrap();
        fs::create_dir_all(path(2, "base")).unwrap();
        for name in ["log/0000000000000001.wal", "edition", "base/notes"] {
            fs::write(path(2, name), "its own").unwrap();
        }
        // The commands of the cluster are not read here.
        let kept = identity();
        dir.share_imported(&kept).unwrap();
        assert!(path(2, "edition").exists() && path(2, "base/notes").exists());
        assert!(!path(2, "import.image").exists() && path(3, "import.image").exists());
        let refused = import::share(&dir.node(1), &dir.node(2)).unwrap_err().to_string();
        assert!(refused.contains("holds a log already"), "{refused}");
    }

    #[test]
    fn a_founding_begins_with_nothing_that_another_has_left() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&root.path().join("data")).unwrap();
        for id in 1..=3 {
            fs::create_dir_all(dir.node(id).join("base")).unwrap();
            let left = ["import", "import.image", "import.part", "base/index"];
            left.iter().for_each(|name| fs::write(dir.node(id).join(name), "left").unwrap());
        }
        let other = Identity { import: Some(root.path().join("missing")), ..identity() };
        assert!(dir.settle(other, None).is_err());
        let (_, found) = dir.settle(identity(), None).unwrap();
        assert_eq!(found, Found::New);
        assert!((1..=3).all(|id| !import::is_there(&dir.node(id))));
        assert!((1..=3).all(|id| !dir.node(id).join("base").exists()));
    }

    #[test]
    fn a_log_in_memory_starts_empty() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path()).unwrap();
        let memory = || Identity { durability: Durability::Memory, ..identity() };
        let (first, _) = dir.settle(memory(), None).unwrap();
        answered(&dir);
        let (second, found) = dir.settle(memory(), None).unwrap();
        assert_eq!(found, Found::Emptied);
        assert_ne!(first.cluster_id, second.cluster_id);
        assert!(!begin::has_log(&dir.node(1)));
    }

    #[test]
    fn is_used_by_one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let _held = DataDir::open(root.path()).unwrap();
        let failure = DataDir::open(root.path()).unwrap_err().to_string();
        assert!(failure.contains(&format!("process {} uses it", std::process::id())), "{failure}");
    }

    #[test]
    fn a_damaged_identity_is_named() {
        let root = tempfile::tempdir().unwrap();
        let dir = DataDir::open(root.path()).unwrap();
        fs::write(root.path().join(FILE), "{\n]").unwrap();
        let failure = dir.settle(identity(), None).unwrap_err().to_string();
        assert!(failure.contains("cluster.json:2:1"), "{failure}");
        fs::remove_file(root.path().join(FILE)).unwrap();
        answered(&dir);
        assert!(dir.settle(identity(), None).is_err());
    }
}
