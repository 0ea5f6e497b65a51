//! The replicated program as configured, and how the supervisor starts it.

use super::launch::{Launcher, Running, Started};
use super::layers::{LayerDir, Layers};
use super::printed::Printed;
use crate::base::edition::{Commands, Spec};
use crate::base::index::Command;
use crate::base::runtime::{self, Runtime};
use crate::base::work::Found;
use crate::base::{Base, fetch, told};
use crate::begin;
use crate::config::{Isolation, LAYER_BYTES, LogFiles, NodeConfig};
use crate::error::NodeError;
use crate::import::{self, Import};
use crate::trace::Traced;
use sha2::{Digest, Sha256};
use skein_arena::layout::{ARENA_FD, WAKE_FD};
use skein_sandbox::{LaunchSpec, Limits, Program, Search};
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Starts the configured program under the supervisor.
#[derive(Debug)]
pub struct ProgramLauncher {
    config: NodeConfig,
    program: Program,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    output: PathBuf,
    logs: LogFiles,
    max_open_files: u64,
    isolation: skein_sandbox::Isolation,
    layers: Layers,
    hash: [u8; 32],
    import: Option<Import>,
    writable: Vec<PathBuf>,
    traced: Option<Traced>,
    base: Arc<Base>,
    /// The program, if it is not pinned yet.
    found: Option<Found>,
}

impl ProgramLauncher {
    /// Resolves and checks the program.
    ///
    /// # Errors
    /// It cannot be replicated, or there is no runtime.
    pub fn new(config: &NodeConfig) -> Result<Self, NodeError> {
        Self::with_base(config, Base::open(&config.data_dir)?)
    }

    /// The same for a node of a cluster, whose other replicas give what its base lacks.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_node(config: &NodeConfig) -> Result<Self, NodeError> {
        config.check()?;
        let founds = begin::asked(&config.data_dir)? == Some(0);
        if founds && import::image(&config.data_dir).is_none() {
            Base::forget(&config.data_dir)?;
        }
        let mut commands = Commands::read(&config.data_dir)?;
        // One that comes without a past, or has given it up, knows what the others do.
        if begin::asked(&config.data_dir)?.is_some_and(|life| life > 0)
            && let Some(told) = told::commands(config)?
            && commands.as_ref().is_none_or(|known| known.since < told.since)
        {
            told.write(&config.data_dir)?;
            commands = Some(told);
        }
        let founded = match commands {
            Some(commands) => commands.founded(config)?,
            None => config.clone(),
        };
        let base = fetch::filled(config)?.of_node(&founded);
        if config.server.isolation == Isolation::Full {
            base.pin_runtime(&runtime::of_host()?)?;
        }
        Self::with_base(&founded, base)
    }

    fn with_base(config: &NodeConfig, base: Base) -> Result<Self, NodeError> {
        let server = &config.server;
        let pinned = base.runtime().filter(|_| server.isolation == Isolation::Full);
        let runtime = pinned.map_or_else(Runtime::of_host, Ok)?;
        let mut env: Vec<(OsString, OsString)> =
            server.env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let path = server
            .env
            .iter()
            .find(|(k, _)| k == "PATH")
            .map_or("/usr/bin:/bin", |(_, v)| v.as_str());
        let search = Search { cwd: &server.cwd, path: OsStr::new(path), env: &env };
        base.check()?;
        let command = Command::new(OsStr::new(&server.program), &search);
        let (program, found) = match base.program(&command) {
            Some(program) => (program, None),
            None => {
                let program = skein_sandbox::inspect(OsStr::new(&server.program), &search)?;
                let found = (command, program.clone(), server.cwd.clone());
                (program, Some(found))
            }
        };
        let mut argv = vec![OsString::from(&server.program)];
        argv.extend(server.args.iter().map(OsString::from));
        let import = Import::for_server(config)?;
        let hash = hash(&program, config, &runtime, import.as_ref())?;
        let writable = match &import {
            // root writes everywhere.
            Some(import) if !nix::unistd::geteuid().is_root() => import.own_directories()?,
            _ => Vec::new(),
        };
        env.push(("LD_PRELOAD".into(), runtime.path.into()));
        Ok(Self {
            config: config.clone(),
            argv: program.argv(&argv),
            program,
            env,
            cwd: server.cwd.clone(),
            output: config.output_path(),
            logs: config.logs,
            max_open_files: config.tuning.max_open_files,
            isolation: match server.isolation {
                Isolation::Full => skein_sandbox::Isolation::Full,
                Isolation::None => skein_sandbox::Isolation::None,
            },
            layers: Layers::new(config)?,
            hash,
            import,
            writable,
            traced: None,
            base: Arc::new(base),
            found,
        })
    }

    /// The same, with the server's operations recorded.
    #[must_use]
    pub fn traced(self, traced: Traced) -> Self {
        Self { traced: Some(traced), ..self }
    }
}

/// Starts servers of an edition; what that needs comes from other replicas if it is not here.
struct EditionLauncher {
    config: NodeConfig,
    main: Arc<Base>,
    about: String,
}

impl EditionLauncher {
    fn edition(&self) -> Result<(Spec, Base), NodeError> {
        let spec = Spec::decode(&self.about)?;
        self.main.launches(spec.base);
        let base = fetch::edition(&self.main, spec.base)?;
        Ok((spec, base))
    }
}

impl Launcher for EditionLauncher {
    fn prepare(&self) -> Result<(), NodeError> {
        self.edition().map(drop)
    }

    fn launch(
        &self,
        arena: BorrowedFd<'_>,
        wake: BorrowedFd<'_>,
        restore: Option<BorrowedFd<'_>>,
    ) -> Result<Box<dyn Running>, NodeError> {
        let (spec, base) = self.edition()?;
        let mut config = self.config.clone();
        spec.command.give(&mut config.server);
        let launcher = ProgramLauncher::with_base(&config, base)?;
        let hash: String = launcher.program.hash.iter().map(|byte| format!("{byte:02x}")).collect();
        if hash != spec.program_hash {
            let about = spec.command.line();
            let why = "the program or a library of it is another one here; put back what the upgrade was made with, or a data directory on a file system over which the kernel stacks another".into();
            return Err(NodeError::Edition { about, why });
        }
        launcher.launch(arena, wake, restore)
    }

    fn await_files(&self, is_wanted: &dyn Fn() -> bool) {
        self.main.wait_until_caught_up(is_wanted);
    }

    fn program_hash(&self) -> [u8; 32] {
        // Peers compare that of the first edition.
        [0; 32]
    }
}

fn hash(
    program: &Program,
    config: &NodeConfig,
    runtime: &Runtime,
    import: Option<&Import>,
) -> Result<[u8; 32], NodeError> {
    let mut all = Sha256::new();
    let mut add = |bytes: &[u8]| {
        all.update((bytes.len() as u64).to_le_bytes());
        all.update(bytes);
    };
    add(&program.hash);
    add(&runtime.read()?);
    config.server.args.iter().for_each(|a| add(a.as_bytes()));
    for (key, value) in &config.server.env {
        add(key.as_bytes());
        add(value.as_bytes());
    }
    add(&config.tuning.max_open_files.to_le_bytes());
    add(config.server.cwd.as_os_str().as_encoded_bytes());
    import.into_iter().for_each(|import| add(import.hash()));
    Ok(all.finalize().into())
}

impl Launcher for ProgramLauncher {
    fn launch(
        &self,
        arena: BorrowedFd<'_>,
        wake: BorrowedFd<'_>,
        restore: Option<BorrowedFd<'_>>,
    ) -> Result<Box<dyn Running>, NodeError> {
        let printed = arena
            .try_clone_to_owned()
            .and_then(|arena| Printed::new(&self.output, arena.into(), self.logs))
            .map_err(|error| NodeError::DataDir { path: self.output.clone(), error })?;
        let layer = self.layers.next()?;
        let mut inherit = vec![(arena, ARENA_FD), (wake, WAKE_FD)];
        inherit.extend(self.traced.iter().flat_map(Traced::inherit));
        let process = skein_sandbox::launch(&LaunchSpec {
            program: &self.program.path,
            argv: self.argv.clone(),
            env: self.env.clone(),
            cwd: &self.cwd,
            inherit,
            stdout: printed.descriptor(),
            stderr: printed.descriptor(),
            hostname: "skein",
            layer_bytes: LAYER_BYTES,
            layer_dir: layer.as_ref().map(LayerDir::path),
            pins: match self.isolation {
                skein_sandbox::Isolation::Full => self.base.lay()?,
                skein_sandbox::Isolation::None => skein_sandbox::Pins::default(),
            },
            writable: self.writable.clone(),
            limits: Limits { open_files_max: self.max_open_files, ..Limits::default() },
            isolation: self.isolation,
            random: *b"skein replicates",
            restore,
        })?;
        if let Some(traced) = &self.traced {
            traced.launched(process.pid());
        }
        Ok(Box::new(Started { process, printed: Some(printed), _layer: layer }))
    }

    fn await_files(&self, is_wanted: &dyn Fn() -> bool) {
        self.base.wait_until_caught_up(is_wanted);
    }

    fn program_hash(&self) -> [u8; 32] {
        self.hash
    }

    fn common_hash(&self) -> [u8; 32] {
        let Some(file_system) = self.layers.file_system() else { return self.hash };
        let mut all = Sha256::new();
        all.update(self.hash);
        all.update(b"layer on disk");
        all.update(file_system.to_le_bytes());
        all.finalize().into()
    }

    fn import(&self) -> Option<&Import> {
        self.import.as_ref()
    }

    fn of_edition(&self, about: &str) -> Arc<dyn Launcher> {
        let (config, main) = (self.config.clone(), self.base.clone());
        Arc::new(EditionLauncher { config, main, about: about.to_owned() })
    }

    fn base(&self) -> Option<(Arc<Base>, Option<Found>)> {
        // Without a sandbox a server uses the host's files in any case.
        let pins = self.isolation == skein_sandbox::Isolation::Full;
        pins.then(|| (self.base.clone(), self.found.clone()))
    }
}
