//! From the arguments of `skein run` to the nodes' configurations: checks everything that can be known before a process is
//! started, so that most mistakes cost no more than a line.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use skein_node::base::index::Command;
use skein_node::config::{
    Address, DurabilityMode, Kind, LayerPlace, Mode as NodeMode, OnExit as NodeOnExit,
    OutgoingConfig, Peer, Publisher, ServerConfig,
};
use skein_node::edition::{self, Commands};
use skein_node::{NodeConfig, archive};
use skein_sandbox::{Program, ProgramError, Search, can_be_stacked};

use crate::args::{self, Durability, Mode, OnExit, RunArgs};
use crate::cluster::{self, DataDir, Found, Identity};
use crate::failure::Failure;
use crate::instance::{Claim, NodeFiles, State};
use crate::paths;
use crate::run::children::Plan;
use crate::run::settings::Settings;

/// The search path of the server, also for finding it.
pub(crate) const SERVER_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A cluster that can be started.
pub struct Setup {
    /// The cluster's name.
    pub name: String,
    /// The program in the user's words, for messages.
    pub program: String,
    /// The path of a program named without a directory, if the user's own search path leads elsewhere: the server's, and the user's.
    pub elsewhere: Option<(PathBuf, PathBuf)>,
    /// What it is since an upgrade, if the command names what it was before.
    pub upgraded: Option<Commands>,
    /// Its right to its name.
    pub _claim: Claim,
    /// Its data.
    pub data: DataDir,
    /// Whether the directory existed before.
    pub found: Found,
    /// The data for `status` and the other commands.
    pub state: State,
    /// The nodes.
    pub plans: Vec<Plan>,
    /// The socket at which nodes ask for published ports.
    pub publish: PathBuf,
}

/// The server's environment: fixed, so that neither the user's shell nor a host's settings can make replicas differ or a
/// restart from the log go another way. Only HOME and USER are the user's, because programs find their files by them.
///
/// The server's interface is a variable, too, and therefore part of the environment.
pub(crate) fn server_env(
    extra: &[(String, String)],
    interface: Option<&str>,
) -> Vec<(String, String)> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let (name, home) = match user {
        Some(user) => (user.name, user.dir.to_string_lossy().into_owned()),
        None => ("nobody".into(), "/".into()),
    };
    let fixed = [
        ("HOME", home.as_str()),
        ("LANG", "C.UTF-8"),
        ("LOGNAME", &name),
        ("PATH", SERVER_PATH),
        ("SHELL", "/bin/sh"),
        ("TZ", "UTC"),
        ("USER", &name),
    ];
    let mut env: Vec<(String, String)> = fixed
        .into_iter()
        .filter(|(name, _)| extra.iter().all(|(other, _)| other != name))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    for (at, pair) in extra.iter().enumerate() {
        if extra[at + 1..].iter().all(|(name, _)| *name != pair.0) {
            env.push(pair.clone());
        }
    }
    if let Some(address) = interface {
        env.push((skein_node::config::INTERFACE.into(), address.into()));
    }
    env
}

fn default_name(program: &OsStr) -> Result<String, Failure> {
    let base = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    args::parse_name(&base).map_err(|why| {
        Failure::new(format!("the program's name '{base}' as the cluster's"), why, "give a --name")
    })
}

pub(crate) fn text(word: &OsStr) -> Result<String, Failure> {
    word.to_str().map(Into::into).ok_or_else(|| {
        Failure::new(
            format!("argument '{}'", word.to_string_lossy()),
            "it is no UTF-8 text",
            "put such values into a file that the server reads",
        )
    })
}

/// The addresses that `--outgoing` allows.
pub(crate) fn outgoing(rules: &[args::Outgoing]) -> OutgoingConfig {
    match rules {
        [] => OutgoingConfig::default(),
        rules => OutgoingConfig { allow: rules.iter().copied().flatten().collect() },
    }
}

/// The program's path by the user's own shell, if that differs from the server's search path.
fn elsewhere(program: &OsStr, server: &Path, path: &OsStr) -> Option<(PathBuf, PathBuf)> {
    use std::os::unix::fs::PermissionsExt;
    if program.as_encoded_bytes().contains(&b'/') {
        return None;
    }
    let runs = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let found = std::env::split_paths(path).map(|dir| dir.join(program)).find(runs)?;
    // /bin and /usr/bin may be one; a link from a virtual environment is another program.
    let dir = |file: &Path| file.parent().and_then(|dir| dir.canonicalize().ok());
    (dir(&found) != dir(server)).then(|| (server.into(), found))
}

fn no_program(error: &ProgramError) -> Failure {
    Failure::new("program", error, "").with_code(error.exit_code())
}

/// The nodes' mode.
fn mode(args: &RunArgs) -> Result<NodeMode, Failure> {
    let mode = match args.mode {
        Mode::Order => NodeMode::Order,
        Mode::Standby => NodeMode::Standby,
        Mode::Trace | Mode::Sync => {
            return Err(Failure::new(
                format!("--mode {}", format!("{:?}", args.mode).to_lowercase()),
                "this version has no such mode",
                "use --mode order or --mode standby",
            ));
        }
    };
    let Some(kinds) = mode.kinds() else { return Ok(mode) };
    let refuse = |option: &str, fix: &str| {
        let why = "--mode standby is one active replica, one passive one and one witness";
        Err(Failure::new(option.to_owned(), why, fix))
    };
    if args.replicas != kinds.len() as u64 {
        return refuse(
            &format!("--replicas {}", args.replicas),
            "leave it out, or give kinds by --replica-kind instead of the mode",
        );
    }
    if !args.replica_kind.is_empty() {
        return refuse("--replica-kind", "leave out one of the two options");
    }
    Ok(mode)
}

/// What replicas do that are not active.
fn kinds(args: &RunArgs, mode: NodeMode) -> Result<BTreeMap<u64, Kind>, Failure> {
    let mut kinds = BTreeMap::new();
    let of_mode = (1..).zip(mode.kinds().into_iter().flatten().copied());
    for (id, kind) in of_mode.chain(args.replica_kind.iter().copied()) {
        let option = || format!("--replica-kind {id}={kind}");
        if id > args.replicas {
            let why = format!("there are {} replicas", args.replicas);
            return Err(Failure::new(option(), why, "name one of them, or give more --replicas"));
        }
        if kinds.insert(id, kind).is_some_and(|other| other != kind) {
            return Err(Failure::new(option(), "it has another kind, too", "give it one"));
        }
    }
    let all: Vec<_> =
        (1..=args.replicas).map(|id| kinds.get(&id).copied().unwrap_or_default()).collect();
    if let Some(why) = skein_replica::config::unfit_kinds(&all) {
        return Err(Failure::new("--replica-kind", why, "make others active or passive"));
    }
    kinds.retain(|_, kind| *kind != Kind::Active);
    Ok(kinds)
}

/// Checks everything, takes the name and the data directory, and writes the nodes' configurations.
pub fn prepare(args: &RunArgs) -> Result<Setup, Failure> {
    let mode = mode(args)?;
    let settings = Settings::of(args)?;
    let (program, rest) = args.program.split_first().expect("clap requires a program");
    let name = args.name.clone().map_or_else(|| default_name(program), Ok)?;
    let words: Vec<String> = rest.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
    let program_text = text(program)?;
    let cwd = std::env::current_dir().map_err(|error| {
        Failure::new("working directory", error, "change to a directory that exists")
    })?;
    check_text("working directory", &cwd)?;
    let env = server_env(&args.env, args.interface.as_deref());
    let os_env: Vec<(OsString, OsString)> =
        env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let path = env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
    let search = Search { cwd: &cwd, path: OsStr::new(path), env: &os_env };
    skein_node::base::runtime::of_host()
        .map_err(|error| Failure::new("installation", error, ""))?;
    let dir = args.data.clone().map_or_else(|| paths::data_dir(&name), Ok)?;
    let has = |program: &Program| program.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let command = Command::new(program, &search);
    let exported = exported(args, &dir, &command)?;
    let pinned = match &exported {
        None => cluster::pinned_in(&dir, &command)?,
        exported => exported.clone(),
    };
    let on_host = skein_sandbox::inspect(program, &search);
    let (inspected, missing) = match (on_host, &pinned) {
        (_, Some(pinned)) if exported.is_some() => (pinned.clone(), None),
        (Ok(found), _) => (found, None),
        (Err(error), Some(pinned)) => (pinned.clone(), Some(error)),
        (Err(error), None) => return Err(no_program(&error)),
    };
    let users = std::env::var_os("PATH").unwrap_or_default();
    let elsewhere = elsewhere(program, &inspected.path, &users);
    if args.layer == args::Layer::Disk {
        skein_node::server::layers::check(&dir)
            .map_err(|error| Failure::new("--layer disk", error, ""))?;
    }
    let claim = Claim::take(&name)?;
    let data = DataDir::open(&dir)?;
    check_text("data directory", &data.path)?;
    let Settings { checkpoint, logs, tuning } = settings;
    let wanted = Identity {
        format: cluster::FORMAT,
        cluster_id: cluster::draw_cluster_id()
            .map_err(|error| Failure::new("/dev/urandom", error, ""))?,
        name: name.clone(),
        replicas: args.replicas,
        durability: args.durability,
        program: program_text.clone(),
        program_hash: has(&inspected),
        args: words,
        env,
        cwd,
        quantum: tuning.quantum,
        nclock: tuning.nclock,
        max_open_files: tuning.max_open_files,
        import: args.import.as_deref().map(canonical).transpose()?,
        kinds: kinds(args, mode)?,
    };
    let pinned: Option<String> = pinned.as_ref().map(has);
    let named = edition::Command {
        program: program_text.clone(),
        args: wanted.args.clone(),
        env: wanted.env.clone(),
        cwd: wanted.cwd.clone(),
    };
    let (identity, found) = data.settle(wanted, pinned.as_deref())?;
    let upgraded = data.upgraded()?.filter(|commands| commands.current != named);
    if let Some(error) = missing.filter(|_| found != Found::Continued) {
        // The new cluster has nothing of the old one's.
        return Err(no_program(&error));
    }
    // No other user can reach into the directory, so no other user talks to the nodes.
    let address = |id| Address::Unix(claim.dir.join(format!("peer-{id}.sock")));
    let peers: Vec<Peer> = (1..=args.replicas)
        .map(|id| Peer {
            id,
            address: address(id),
            kind: if mode.kinds().is_some() { Kind::Active } else { identity.kind(id) },
        })
        .collect();
    let publish = claim.dir.join("publish.sock");
    let mut plans = Vec::new();
    let mut nodes = Vec::new();
    for peer in &peers {
        let files = NodeFiles {
            id: peer.id,
            address: peer.address.to_string(),
            admin: claim.dir.join(format!("node-{}.sock", peer.id)),
            log: data.node(peer.id).join("node.log"),
            output: data.node(peer.id).join("server.log"),
            data: data.node(peer.id),
        };
        let config = NodeConfig {
            name: name.clone(),
            mode,
            id: peer.id,
            peers: peers.clone(),
            listen: None,
            key_file: None,
            trust_network: false,
            cluster_id: Some(identity.cluster_id.clone()),
            data_dir: data.node(peer.id),
            durability: match args.durability {
                Durability::Fsync => DurabilityMode::Fsync,
                Durability::Memory => DurabilityMode::Memory,
            },
            publisher: Publisher::Inherited { socket: publish.clone() },
            outgoing: outgoing(&args.outgoing),
            server: ServerConfig {
                program: identity.program.clone(),
                args: identity.args.clone(),
                env: identity.env.clone(),
                cwd: identity.cwd.clone(),
                output: Some(files.output.clone()),
                isolation: skein_node::config::Isolation::default(),
                layer: match args.layer {
                    args::Layer::Memory => LayerPlace::Memory,
                    args::Layer::Disk => LayerPlace::Disk,
                },
            },
            on_exit: match args.on_exit {
                OnExit::Stop => NodeOnExit::Stop,
                OnExit::Restart => NodeOnExit::Restart,
            },
            admin_socket: Some(files.admin.clone()),
            metrics: None,
            log_file: Some(files.log.clone()),
            logs,
            checkpoint: checkpoint.clone(),
            tuning: tuning.clone(),
            corrupt_digest_at: None,
        };
        plans.push(write_node(&data.node(peer.id), &config, &files, &claim.dir)?);
        nodes.push(files);
    }
    let state = State {
        name: name.clone(),
        pid: std::process::id() as i32,
        mode: mode.name().into(),
        schedule: "serial".into(),
        replicas: peers.len(),
        nodes,
    };
    claim.announce(&state)?;
    Ok(Setup {
        name,
        program: program_text,
        elsewhere,
        upgraded,
        _claim: claim,
        data,
        found,
        state,
        plans,
        publish,
    })
}

/// The program that a new cluster is to get from an export, if this command was given for it.
fn exported(args: &RunArgs, dir: &Path, command: &Command) -> Result<Option<Program>, Failure> {
    let Some(file) = args.import.as_deref().filter(|from| from.is_file()) else { return Ok(None) };
    let program = archive::program(file, command)
        .map_err(|error| Failure::new("--import", error, "the cluster was not made"))?;
    // Where nothing can be pinned, the host's files count.
    let place = dir.ancestors().find(|place| place.exists());
    Ok(program.filter(|_| place.is_some_and(can_be_stacked)))
}

fn canonical(import: &Path) -> Result<PathBuf, Failure> {
    let path = import.canonicalize().map_err(|error| {
        Failure::new(
            format!("--import {}", import.display()),
            error,
            "name a directory that stands for the server's root, as 'skein files --export' writes it",
        )
    })?;
    check_text("--import", &path)?;
    Ok(path)
}

/// A path that the cluster's files are to name.
fn check_text(what: &str, path: &Path) -> Result<(), Failure> {
    let refused = || {
        let what = format!("{what} {}", path.display());
        Failure::new(what, "its path is no UTF-8 text", "give it another name, or use another one")
    };
    path.to_str().map(drop).ok_or_else(refused)
}

fn write_node(
    dir: &Path,
    config: &NodeConfig,
    files: &NodeFiles,
    runtime: &Path,
) -> Result<Plan, Failure> {
    config.check().map_err(|error| {
        Failure::new(
            "settings",
            error,
            "'skein run --help' and docs/skein.toml list the valid values",
        )
    })?;
    let fail = |error: std::io::Error| {
        Failure::new(
            format!("data directory {}", dir.display()),
            error,
            "make room; only a new cluster can begin in another --data DIR",
        )
    };
    paths::create_private(dir).map_err(fail)?;
    let path = dir.join("node.toml");
    let body = toml::to_string(config)
        .map_err(|error| Failure::new("settings", error, "give plainer values"))?;
    let head = "# Written by `skein run` at every start; changes here are lost.\n";
    let settings = format!("{head}{body}");
    paths::write_whole(&path, &settings).map_err(fail)?;
    Ok(Plan {
        id: config.id,
        config: path,
        settings,
        log: files.log.clone(),
        end: runtime.join(format!("node-{}.end", config.id)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_users_shell_finds_elsewhere_is_noticed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let root = tempfile::tempdir().unwrap();
        let (bin, venv) = (root.path().join("bin"), root.path().join("venv"));
        for dir in [&bin, &venv] {
            std::fs::create_dir(dir).unwrap();
        }
        let tool = bin.join("tool");
        std::fs::write(&tool, "").unwrap();
        std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
        let path = |dirs: &[&PathBuf]| std::env::join_paths(dirs).unwrap();
        let find = |name: &str, dirs: &[&PathBuf]| elsewhere(name.as_ref(), &tool, &path(dirs));
        assert_eq!(find("tool", &[&bin]), None);
        assert_eq!(find("tool", &[&venv, &bin]), None, "there is none");
        symlink(&tool, venv.join("tool")).unwrap();
        assert_eq!(find("tool", &[&venv, &bin]), Some((tool.clone(), venv.join("tool"))));
        assert_eq!(find("/venv/tool", &[&venv, &bin]), None);
        let merged = root.path().join("merged");
        symlink(&bin, &merged).unwrap();
        assert_eq!(find("tool", &[&merged]), None);
    }

    #[test]
    fn the_environment_is_fixed_but_for_what_is_given() {
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let env = server_env(&[pair("TZ", "CET"), pair("A", "1"), pair("A", "2")], None);
        let get = |name: &str| {
            env.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(get("TZ"), ["CET"]);
        assert_eq!(get("A"), ["2"]);
        assert_eq!(get("LANG"), ["C.UTF-8"]);
        assert_eq!(get("PATH"), [SERVER_PATH]);
        assert!(get("PWD").is_empty() && get("TERM").is_empty());
    }
}
