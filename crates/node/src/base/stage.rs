//! Makes the base of a new edition of the server: the current one's, with what of the host is taken over, and with the new program.
//!
//! It is a new index beside the current one; contents are shared. Other replicas get it from here before the edition is agreed on.

use super::index::{Command as Wanted, Index, Kept};
use super::pin::{Pinner, Why};
use super::runtime::Runtime;
use super::{Base, failed};
use crate::base::edition::{Command, Spec};
use crate::error::NodeError;
use serde::{Deserialize, Serialize};
use skein_sandbox::{Program, Search, can_be_stacked};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// One edition is made or got at a time; the next one waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is to be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Another program.
    #[serde(default)]
    pub program: Option<String>,
    /// Other arguments.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    /// Variables of the environment; the others stay.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Variables that go.
    #[serde(default)]
    pub unset: Vec<String>,
    /// What the host has by now takes the place of what was pinned, its runtime included.
    #[serde(default)]
    pub files: bool,
    /// Servers run with the host's runtime from now on.
    #[serde(default)]
    pub skein: bool,
}

/// A new edition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// What it is.
    pub spec: Spec,
    /// The paths that were taken over.
    pub files: Vec<String>,
}

/// Why an edition cannot be made: what, and what to do.
fn refused(about: &str, why: impl std::fmt::Display) -> NodeError {
    NodeError::Edition { about: about.to_owned(), why: why.to_string() }
}

impl Base {
    /// The command of an edition.
    ///
    /// # Errors
    /// It is of a later version.
    pub fn command_of(&self, about: &str) -> Result<Command, NodeError> {
        match (about, self.node()) {
            ("", Some(config)) => Ok(Command::of(&config.server)),
            _ => Spec::decode(about).map(|spec| spec.command),
        }
    }

    /// Makes the base of the edition that `change` makes of the current one, which is `about`. `None`: there is nothing to change.
    ///
    /// # Errors
    /// The program cannot be replicated, or a file not be kept.
    pub fn stage(&self, about: &str, change: &Change) -> Result<Option<Staged>, NodeError> {
        let Some(config) = self.node() else {
            return Err(refused("to come", "this base belongs to no node"));
        };
        let Some(_making) = self.objects.making_within(PATIENCE) else {
            return Err(refused(
                "to come",
                "files of another edition are being got; try again later",
            ));
        };
        let _all = self.objects.keep_all();
        let (former, current) = match about {
            "" => (Command::of(&config.server), self.index()),
            about => {
                let spec = Spec::decode(about)?;
                let index = self.of_edition(spec.base)?.index();
                (spec.command, index)
            }
        };
        let command = change.apply(&former);
        let line = command.line();
        if !can_be_stacked(&self.dir) {
            let why = format!(
                "{} is on overlayfs, where no base can be shown to a server; use a data directory on another file system",
                self.dir.display()
            );
            return Err(refused(&line, why));
        }
        let env: Vec<(OsString, OsString)> =
            command.env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let path = command.env.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or("/usr/bin:/bin", |(_, path)| path.as_str());
        let search = Search { cwd: &command.cwd, path: OsStr::new(path), env: &env };
        let wanted = Wanted::new(OsStr::new(&command.program), &search);
        let known = current.program.as_ref().filter(|known| known.command == wanted);
        let found = match known.filter(|_| !change.files) {
            Some(_) => None,
            None => Some(skein_sandbox::inspect(OsStr::new(&command.program), &search)?),
        };
        let mut pinner = Pinner::new(self.objects(), (*current).clone(), None);
        let mut files =
            if change.files { take_over(&current, &mut pinner, &line)? } else { Vec::new() };
        if change.files || change.skein || current.runtime.is_none() {
            let Runtime { path, .. } = Runtime::of_host()?.driven()?;
            pinner.runtime(&path).map_err(|why| not_kept(&line, &path, &why))?;
            let name = path.to_string_lossy().into_owned();
            if pinner.index.runtime() != current.runtime() && !files.contains(&name) {
                files.push(name);
            }
        }
        if let Some(program) = &found {
            pin_program(&mut pinner, &wanted, program, &command)?;
        }
        let Some(known) = &pinner.index.program else {
            return Err(refused(
                &line,
                "the current program is not pinned yet; try again in a moment",
            ));
        };
        let hash = |program: &Program| -> String {
            program.hash.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let program_hash = hash(&known.program);
        let same = current.program.as_ref().is_some_and(|now| hash(&now.program) == program_hash);
        if command == former && same && files.is_empty() {
            return Ok(None);
        }
        pinner.index.made = Some(RandomState::new().hash_one(SystemTime::now()));
        let base = pinner.index.digest();
        self.objects.sync().map_err(failed(&self.dir))?;
        self.of_edition(base)?.set(pinner.index).map_err(failed(&self.dir))?;
        self.awaits(base);
        Ok(Some(Staged { spec: Spec { command, program_hash, base }, files }))
    }
}

fn take_over(
    current: &Index,
    pinner: &mut Pinner<'_>,
    about: &str,
) -> Result<Vec<String>, NodeError> {
    let changed = super::diff::changed(current).map_err(|error| refused(about, error))?;
    for path in &changed {
        pinner.take_over(path).map_err(|why| not_kept(about, path, &why))?;
    }
    // A file with several names is one: those that did not change before their name did are as they were.
    for kept in pinner.index.files.values_mut() {
        if let Kept::File { same_as: same_as @ Some(_), .. } = kept
            && same_as.as_ref().is_some_and(|path| changed.contains(&PathBuf::from(&path.0)))
        {
            *same_as = None;
        }
    }
    Ok(changed.iter().map(|path| path.to_string_lossy().into_owned()).collect())
}

fn pin_program(
    pinner: &mut Pinner<'_>,
    wanted: &Wanted,
    program: &Program,
    command: &Command,
) -> Result<(), NodeError> {
    let line = command.line();
    let pinned = pinner.program(wanted, program, &command.cwd);
    pinned.map_err(|why| not_kept(&line, &program.path, &why))?;
    for (path, hash) in &program.files {
        let has = pinner.has(path, *hash).map_err(|why| not_kept(&line, path, &why))?;
        if !has {
            let why = format!(
                "it needs {} as the host has it, and the server has used another one, which is pinned; 'skein upgrade --files' takes the host's over",
                path.display()
            );
            return Err(refused(&line, why));
        }
    }
    Ok(())
}

fn not_kept(about: &str, path: &Path, why: &Why) -> NodeError {
    let why = match why {
        Why::Kernels => "it is the kernel's".to_owned(),
        Why::Because(why) | Why::NoRoom(why) => why.clone(),
        Why::Later => "it is large, and the node ends".to_owned(),
    };
    refused(about, format!("{}: {why}", path.display()))
}

impl Change {
    fn apply(&self, former: &Command) -> Command {
        let mut command = former.clone();
        if let Some(program) = &self.program {
            command.program.clone_from(program);
        }
        if let Some(args) = &self.args {
            command.args.clone_from(args);
        }
        for (name, value) in &self.env {
            match command.env.iter_mut().find(|(other, _)| other == name) {
                Some((_, old)) => old.clone_from(value),
                None => command.env.push((name.clone(), value.clone())),
            }
        }
        command.env.retain(|(name, _)| !self.unset.contains(name));
        command
    }
}
