//! The command line: its options, and how a wrong line is refused.
//!
//! Checks single values only; the code that uses several values checks that they fit together.

mod base;
mod checkpoint;
mod members;
mod upgrade;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use skein_node::config::{Interface, Kind};
use skein_replica::config::NoKind;
use skein_replica::outgoing::{NoRule, Rule};

pub use base::{BaseArgs, BaseListArgs, BaseTask};
pub use checkpoint::{
    CheckpointArgs, CheckpointTask, CreateArgs, ExportArgs, ImportArgs, LsArgs, RmArgs,
};
pub use members::{JoinArgs, MembersArgs, MembersTask};
pub use upgrade::UpgradeArgs;

use crate::failure::{EXIT_SKEIN, EXIT_USAGE, Failure};

/// Replicates an unmodified Linux server: if a machine dies, no client loses an answer that it has seen.
#[derive(Debug, Parser)]
#[command(name = "skein", version, max_term_width = 100)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server as several replicas on this machine, until it ends or Ctrl-C
    Run(Box<RunArgs>),
    /// Found a cluster of `skein node`s: once, on each of its hosts, before the nodes are started for the first time
    Found(FoundArgs),
    /// Run one replica on this machine, as its configuration file says
    Node(NodeArgs),
    /// Bring back one replica with a lost or damaged data directory: the others refill it, and it votes again when it is
    /// complete. Never do this for a majority at once: entries that only they had are gone
    Rejoin(RejoinArgs),
    /// Let a new replica join a running cluster: once, on its host, before its node is started for the first time; then 'skein members add' or
    /// 'skein members replace' takes it in
    Join(JoinArgs),
    /// Show the replicas of a cluster of `skein node`s, take one in or out, replace one, or make one lead, while it serves (exit: 0 done, 2 refused or
    /// not in time, 3 not running)
    Members(MembersArgs),
    /// Try whether a program runs under Skein: run it twice from one log and compare (exit: 0 deterministic, 1 not, 2 cannot
    /// run or cannot tell)
    Check(CheckArgs),
    /// Run a replica's server again from its log, without a cluster, and compare with the digests there; stop before an entry, with gdb
    /// (exit: 0 as the log says, 1 it differs, 2 cannot tell)
    Replay(ReplayArgs),
    /// Show the state of a running cluster (exit: 0 healthy, 1 degraded, 2 no quorum, 3 not running)
    Status(StatusArgs),
    /// Show the files that the server has written, and whether the replicas agree (exit: 0 they do, 1 they differ, 2 they
    /// cannot be compared, 3 not running)
    Files(FilesArgs),
    /// Compare the memory and files of the replicas' servers, name the differences, and repair them if wanted (exit: 0 equal
    /// or repaired, 1 they differ, 2 cannot tell, 3 not running)
    Verify(VerifyArgs),
    /// Take an image of the server, list, remove, verify or copy images; replicas start from their newest one
    Checkpoint(CheckpointArgs),
    /// Show the files of the host that replicas keep and their servers see, and what the host has by now instead
    Base(BaseArgs),
    /// Show the events of the nodes and the output of the server
    Logs(LogsArgs),
    /// Send a signal to the server, at the same point on all replicas
    Signal(SignalArgs),
    /// Change the server's program, arguments, environment or files of the host, and keep its data: all replicas' servers end and begin again at the same
    /// point, and the former one comes back if the new one does not come up (exit: 0 done, 1 undone, 2 refused or cannot tell, 3 not running)
    Upgrade(UpgradeArgs),
    /// Stop a running cluster in order
    Stop(StopArgs),
}

/// Arguments of `skein run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// How many replicas: 2f+1 survive the loss of f (1, 3 or 5; an even number survives no more than the odd one below)
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=9))]
    pub replicas: u64,
    /// How replicas stay equal, and what each does
    #[arg(long, value_enum, default_value_t = Mode::Order)]
    pub mode: Mode,
    /// What replicas do, as 1=active,2=passive,3=witness; may be given again. active: runs a server; passive: keeps images and the log, and runs a server only
    /// while it leads; witness: votes and keeps the log [default: active]
    #[arg(long, value_name = "ID=KIND", value_delimiter = ',', value_parser = parse_kind)]
    pub replica_kind: Vec<(u64, Kind)>,
    /// Where clients reach the server's SERVERPORT (default: PORT), by TCP or, with /udp, by datagrams; may be given again.
    /// Without this option every port that the server listens on is published at 127.0.0.1 with the same number; with it only the
    /// named ones
    #[arg(long, value_name = "HOST:PORT[:SERVERPORT][/udp]", value_parser = parse_publish)]
    pub publish: Vec<Publish>,
    /// The addresses outside that the server may connect and send to: any, none, loopback, or ADDRESS[/BITS][:PORT] with an IPv6
    /// address in brackets; may be given again. The leader makes the connections [default: any]
    #[arg(long, value_name = "WHERE", value_parser = parse_outgoing)]
    pub outgoing: Vec<Outgoing>,
    /// The directory of the cluster's log and configuration [default: /var/lib/skein/NAME as root,
    /// ~/.local/state/skein/NAME otherwise]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The cluster's name [default: the program's]
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Begin a new cluster with what FROM is: a directory that stands for the server's root, whose files are laid over the host's as `cp -a FROM/. /`
    /// would (`skein files --export` writes one); or an image of the same server with the same arguments, which goes on (`skein checkpoint export`)
    #[arg(long, value_name = "FROM")]
    pub import: Option<PathBuf>,
    /// When an input counts as written: fsync = it is on a majority's disks; memory = in a majority's memory, and lost
    /// when a majority dies at once
    #[arg(long, value_enum, default_value_t = Durability::Fsync)]
    pub durability: Durability,
    /// Where what the server writes is kept until it ends: memory = 4 GiB at most; disk = in the data directory, for data larger than memory
    #[arg(long, value_enum, default_value_t = Layer::Memory)]
    pub layer: Layer,
    /// Whether a node that died is restarted
    #[arg(long, value_enum, default_value_t = YesNo::Yes)]
    pub restart: YesNo,
    /// Return when the cluster is ready and leave it running
    #[arg(long)]
    pub detach: bool,
    /// When the server ends on all replicas: stop the cluster, or restart the server and execute the log again
    #[arg(long, value_enum, default_value_t = OnExit::Stop)]
    pub on_exit: OnExit,
    /// Set a variable of the server's environment; may be given again. The rest of the environment is fixed and the same on
    /// all replicas and at every start: PATH, HOME, USER, LOGNAME, SHELL, LANG=C.UTF-8, TZ=UTC
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env)]
    pub env: Vec<(String, String)>,
    /// Give the server a network interface (eth0, with multicast) beside lo: ADDRESS[/BITS], an IPv4 address of your choice that the
    /// server names to its clients; --publish says where they really reach it [default: lo alone]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_interface)]
    pub interface: Option<String>,
    /// Set a key of docs/skein.toml under [checkpoint], [logs] or [tuning], as checkpoint.keep=1; may be given again. An option of its own counts more
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = parse_setting)]
    pub set: Vec<Setting>,
    /// Tuning.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// Set in the background process of `--detach`: the descriptor for its report.
    #[arg(long, hide = true)]
    pub report_fd: Option<i32>,
    /// The server and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}

/// A key of a node's settings, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// As in docs/skein.toml.
    pub section: String,
    pub key: String,
    pub value: toml::Value,
}

/// Tuning flags of `skein run`; `docs/skein.toml` explains each.
#[derive(Args, Clone, Debug)]
pub struct TuningArgs {
    /// Shortest time without a heartbeat after which followers elect another leader; the longest is twice that [ms]
    #[arg(long, value_name = "MS", help_heading = "Tuning",
          value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub election_timeout_ms: Option<u64>,
    /// How long a busy server waits at an admission slot for an input before it gets a time bubble [us]
    #[arg(long, value_name = "US", help_heading = "Tuning",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub wtimeout_us: Option<u64>,
    /// Operations of a thread in one turn
    #[arg(long, value_name = "N", help_heading = "Tuning",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub quantum: Option<u32>,
    /// Turns between two admission slots, for each input that was admitted at the first
    #[arg(long, value_name = "N", help_heading = "Tuning",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub nclock: Option<u32>,
    /// The most memory that a node and its server share for sockets, pipes and other objects [MiB]
    #[arg(long, value_name = "MIB", help_heading = "Tuning",
          value_parser = clap::value_parser!(u64).range(64..=1 << 16))]
    pub arena_mib: Option<u64>,
    /// Concurrent client connections
    #[arg(long, value_name = "N", help_heading = "Tuning",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub max_connections: Option<u64>,

    /// Log entries that may be on their way to the replicas at a time; meanwhile clients' inputs gather for the next
    #[arg(long, value_name = "N", help_heading = "Tuning",
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub max_in_flight_entries: Option<u64>,
}

/// Arguments of `skein found`.
#[derive(Args, Debug)]
pub struct FoundArgs {
    /// The configuration file of this host's replica
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Begin with what FROM is: a directory of files, as `skein run --import` has it, the same on every host; or an image of the server, on one host alone
    #[arg(long, value_name = "FROM")]
    pub import: Option<PathBuf>,
}

/// Arguments of `skein rejoin`.
#[derive(Args, Debug)]
pub struct RejoinArgs {
    /// The configuration file of a replica of `skein node`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replica", "name", "data"],
          required_unless_present = "replica")]
    pub config: Option<PathBuf>,
    /// The replica of `skein run`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=9))]
    pub replica: Option<u64>,
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// The data directory, if the cluster does not run and the directory is not at the usual place
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// Arguments of `skein node`.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// The configuration file; docs/skein.toml explains every key
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Set by `skein run`: the file for the reason of its end.
    #[arg(long, hide = true, value_name = "FILE")]
    pub end: Option<PathBuf>,
}

/// Arguments of `skein check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// A client command that uses the program, run by `sh -c` when the program listens; it reaches the program at $SKEIN_HOST and
    /// $SKEIN_PORT (its first TCP port; all of them as SERVERPORT:PORT in $SKEIN_PORTS)
    #[arg(long, value_name = "COMMAND")]
    pub drive: Option<String>,
    /// Where clients reach the program's SERVERPORT (default: PORT), as for `skein run`; may be given again. The client command
    /// runs when the program listens on all named TCP ports, and $SKEIN_PORT is the first of them. Without this option the first
    /// port that the program listens on is enough, and clients reach each port of the program at a free one of 127.0.0.1
    #[arg(long, value_name = "HOST:PORT[:SERVERPORT][/udp]", value_parser = parse_publish)]
    pub publish: Vec<Publish>,
    /// Machine-readable; docs/check.md explains every field
    #[arg(long)]
    pub json: bool,
    /// The longest time of the program to listen, and of the client command to end, each [s]
    #[arg(long, value_name = "S", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// How long the program is watched without a client command [s]
    #[arg(long, value_name = "S", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub observe: u64,
    /// The addresses outside that the program may connect and send to, as for `skein run`; the second run connects to nothing
    #[arg(long, value_name = "WHERE", value_parser = parse_outgoing)]
    pub outgoing: Vec<Outgoing>,
    /// Compare each operation of the program's threads, too (locks, reads, waits, ...), and name the first that differs with its backtraces
    #[arg(long)]
    pub operations: bool,
    /// Show all output of the program and the client command
    #[arg(short, long)]
    pub verbose: bool,
    /// Set a variable of the program's environment, as `skein run` does; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_env)]
    pub env: Vec<(String, String)>,
    /// Give the program a network interface beside lo, as `skein run` does
    #[arg(long, value_name = "ADDRESS", value_parser = parse_interface)]
    pub interface: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM [ARGS]")]
    pub program: Vec<OsString>,
}

/// Arguments of `skein replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// A node's data directory, or a copy (`skein run`: DATA/node-N). The node must not run; replay changes nothing there
    #[arg(value_name = "NODE-DATA-DIR")]
    pub dir: PathBuf,
    /// The configuration file of a `skein node` [default: node.toml in the directory, which `skein run` writes]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Stop before this entry is executed, and show the state of the server
    #[arg(long, value_name = "ENTRY", value_parser = clap::value_parser!(u64).range(1..))]
    pub at: Option<u64>,
    /// Attach gdb there, with the commands `skein threads`, `skein bt` and `skein next`
    #[arg(long, requires = "at")]
    pub gdb: bool,
    /// Attach gdb to this process of the server, by its number there [default: the process that takes the next entry]
    #[arg(long, value_name = "N", requires = "gdb")]
    pub pid: Option<u32>,
    /// The file for the server's output [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Run the server twice from the log and name the first operation of its threads that differs (exit: 0 none, 1 one does)
    #[arg(long, conflicts_with = "gdb")]
    pub operations: bool,
    /// Take the second run's log from this directory, which belongs to another replica of the same cluster
    #[arg(long, value_name = "NODE-DATA-DIR", requires = "operations")]
    pub with: Option<PathBuf>,
    /// Record operations from this entry on [default: from the server's start]
    #[arg(long, value_name = "ENTRY", requires = "operations", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,
    /// Begin with the image of this entry; with --operations only the later runs do, and are compared from there on with one that began earlier
    #[arg(long, value_name = "ENTRY", conflicts_with_all = ["with", "from"])]
    pub image: Option<u64>,
    /// For a rare difference: make up to N runs, until one differs from the first
    #[arg(long, value_name = "N", requires = "operations", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub runs: u64,
    /// More arguments for gdb: -batch -ex 'skein bt all'
    #[arg(last = true, value_name = "GDB ARGS", requires = "gdb")]
    pub gdb_args: Vec<OsString>,
}

/// Arguments of `skein files`.
#[derive(Args, Clone, Debug)]
pub struct FilesArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Machine-readable
    #[arg(long, conflicts_with = "export")]
    pub json: bool,
    /// Write what the server has written to DIR, a new directory, as it was at one entry: a backup, for `skein run --import`. Clients
    /// wait for nothing where a follower is on this machine
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// With --export: only these of the server's paths, and what is below them [default: all]
    #[arg(value_name = "PATH", requires = "export")]
    pub paths: Vec<PathBuf>,
}

/// Arguments of `skein verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Make replicas that differ equal to the majority, or of two to the leader: first by what differs alone, else by rebuilding their server
    #[arg(long)]
    pub repair: bool,
    /// Machine-readable
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `skein status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Machine-readable
    #[arg(long)]
    pub json: bool,
    /// Only the replicas of this host
    #[arg(long)]
    pub here: bool,
    /// Also list the servers' calls that came through the safety net, by name: each costs a signal
    #[arg(long)]
    pub calls: bool,
}

/// Arguments of `skein logs`.
#[derive(Args, Debug)]
pub struct LogsArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// The data directory of a cluster that has stopped, where it is not the default one
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    pub data: Option<PathBuf>,
    /// Only this replica's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub replica: Option<u64>,
    /// Events as in the files, a JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Follow the logs until the cluster stops or Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
}

/// Arguments of `skein signal`.
#[derive(Args, Debug)]
pub struct SignalArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// The signal, by name or number: SIGHUP, USR1, RTMIN+3, 10
    #[arg(value_name = "SIGNAL", value_parser = crate::signals::parse)]
    pub signal: u8,
}

/// Arguments of `skein stop`.
#[derive(Args, Debug)]
pub struct StopArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
}

/// How replicas stay equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// All replicas execute the same inputs on the same schedule
    Order,
    /// The same, on three replicas at the price of one server: one active, one passive that takes over from an image and the log, one witness
    Standby,
    /// Not in this version
    #[value(hide = true)]
    Trace,
    /// Not in this version
    #[value(hide = true)]
    Sync,
}

/// When an input counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On a majority's disks
    Fsync,
    /// In a majority's memory
    Memory,
}

/// The place of what the server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// Memory, 4 GiB at most
    Memory,
    /// The data directory
    Disk,
}

/// The effect of the server's end on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExit {
    /// The cluster stops
    Stop,
    /// The server starts again
    Restart,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum YesNo {
    /// Yes
    Yes,
    /// No
    No,
}

/// The clients' address for one port of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The address to listen at.
    pub address: SocketAddr,
    /// The port that the server listens on.
    pub server_port: u16,
    /// Whether that is a port for datagrams.
    pub udp: bool,
}

impl Publish {
    /// Whether this is the place of this TCP port of the server.
    pub const fn names_tcp(&self, server_port: u16) -> bool {
        !self.udp && self.server_port == server_port
    }
}

impl From<Publish> for skein_node::config::Publish {
    fn from(Publish { address, server_port, udp }: Publish) -> Self {
        Self { address, server_port: Some(server_port), udp }
    }
}

/// Reads `HOST:PORT[:SERVERPORT][/udp]`; an IPv6 host stands in brackets.
pub fn parse_publish(text: &str) -> Result<Publish, String> {
    const SHAPE: &str = "expected HOST:PORT[:SERVERPORT][/udp], an IPv6 host in brackets";
    let (text, udp) = match text.strip_suffix("/udp") {
        Some(rest) => (rest, true),
        None => (text.strip_suffix("/tcp").unwrap_or(text), false),
    };
    let (host, ports) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(SHAPE)?;
        (host, rest.strip_prefix(':').ok_or(SHAPE)?)
    } else {
        text.split_once(':').ok_or(SHAPE)?
    };
    let (port, server_port) = ports.split_once(':').unwrap_or((ports, ports));
    let number = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("'{text}' is no port (1 to 65535); {SHAPE}")),
    };
    let (port, server_port) = (number(port)?, number(server_port)?);
    let ip = match host.parse::<IpAddr>() {
        Ok(ip) => ip,
        Err(_) if host.is_empty() => return Err(SHAPE.into()),
        Err(_) => (host, port)
            .to_socket_addrs()
            .ok()
            .and_then(|mut all| all.next())
            .map(|address| address.ip())
            .ok_or_else(|| format!("host '{host}' is unknown; {SHAPE}"))?,
    };
    Ok(Publish { address: SocketAddr::new(ip, port), server_port, udp })
}

/// One `--outgoing`: `None` for `none`.
pub type Outgoing = Option<Rule>;

/// Reads `any`, `none`, `loopback`, or an address rule.
pub fn parse_outgoing(text: &str) -> Result<Outgoing, String> {
    if text == "none" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: NoRule| error.to_string())
}

/// Checks a cluster's name: it becomes a directory and stands in metrics.
pub fn parse_name(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.is_empty() || text.len() > 48 || text.starts_with(['.', '-']) || !text.chars().all(good)
    {
        return Err("a name is 1 to 48 letters, digits, '.', '_' or '-', and starts with none of \
                    '.' and '-'"
            .into());
    }
    Ok(text.into())
}

/// Checks `ADDRESS[/BITS]` of `--interface`.
pub fn parse_interface(text: &str) -> Result<String, String> {
    match Interface::parse(text) {
        Some(_) => Ok(text.into()),
        None => Err(
            "expected ADDRESS[/BITS], an IPv4 address that a host can have and 8 to 30 bits [24]"
                .into(),
        ),
    }
}

/// `2=passive`.
fn parse_kind(text: &str) -> Result<(u64, Kind), String> {
    let (id, kind) = text.split_once('=').ok_or("must be ID=KIND, as 2=passive")?;
    let id = id.parse().ok().filter(|id| (1..=9).contains(id));
    let id = id.ok_or("the id before '=' is from 1 to 9")?;
    Ok((id, kind.parse().map_err(|error: NoKind| error.to_string())?))
}

/// Reads `NAME=VALUE`.
pub fn parse_env(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    check_env_name(name)?;
    Ok((name.into(), value.into()))
}

/// Parses `SECTION.KEY=VALUE`.
pub fn parse_setting(text: &str) -> Result<Setting, String> {
    let expected = || "expected SECTION.KEY=VALUE, as checkpoint.keep=1".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(expected)?;
    let (section, key) = name.split_once('.').ok_or_else(expected)?;
    if !["checkpoint", "logs", "tuning"].contains(&section) {
        return Err(format!(
            "[{section}] cannot be set here; [checkpoint], [logs] and [tuning] can"
        ));
    }
    let value = value
        .parse()
        .map_err(|_| format!("{value} is no value: expected a number, true or false"))?;
    Ok(Setting { section: section.into(), key: key.into(), value })
}

/// Refuses names of variables that Skein sets itself.
pub fn check_env_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("expected NAME=VALUE".into());
    }
    if name.starts_with("LD_") || name.starts_with("SKEIN_") || name == "GLIBC_TUNABLES" {
        return Err(format!("{name} is the dynamic linker's or Skein's own, which Skein sets"));
    }
    Ok(())
}

/// Reads the command line; `Err` carries the text to print and the exit code.
pub fn parse(args: &[OsString]) -> Result<Cli, (String, u8)> {
    let error = match Cli::try_parse_from(args) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    if !error.use_stderr() {
        return Err((error.render().to_string(), 0));
    }
    let command = args.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let known = ["run", "found", "node", "rejoin", "check", "status", "logs", "signal", "stop"]
        .contains(&command);
    let code = if command == "run" { EXIT_SKEIN } else { EXIT_USAGE };
    let help =
        if known { format!("see 'skein {command} --help'") } else { "see 'skein --help'".into() };
    Err((Failure::new("arguments", clap_reason(&error), help).to_string(), code))
}

/// clap's error in one line, without its usage and hints.
fn clap_reason(error: &clap::Error) -> String {
    use clap::error::ErrorKind;
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".into();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let reason: Vec<&str> =
        text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    reason.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn publish_takes_all_shapes() {
        let p = parse_publish("0.0.0.0:80:6379").unwrap();
        assert_eq!((p.address, p.server_port), ("0.0.0.0:80".parse().unwrap(), 6379));
        let p = parse_publish("127.0.0.1:53:5353/udp").unwrap();
        assert_eq!((p.address.port(), p.server_port, p.udp), (53, 5353, true));
        assert!(!parse_publish("127.0.0.1:53/tcp").unwrap().udp);
        let p = parse_publish("[::1]:80").unwrap();
        assert_eq!((p.address, p.server_port), ("[::1]:80".parse().unwrap(), 80));
        assert!(parse_publish("localhost:80").unwrap().address.ip().is_loopback());
    }

    #[test]
    fn publish_refuses_what_is_none() {
        for bad in [
            "",
            "80",
            ":80",
            "h:",
            "127.0.0.1:0",
            "127.0.0.1:70000",
            "127.0.0.1:1:2:3",
            "[::1",
            "::1:80",
        ] {
            assert!(parse_publish(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_and_variables() {
        assert!(parse_name("redis-server.1").is_ok());
        for bad in ["", ".", "..", "-x", "a/b", "a b", &"x".repeat(49)] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_env("A=b=c"), Ok(("A".into(), "b=c".into())));
        for bad in ["A", "=b", "LD_PRELOAD=x", "SKEIN_X=1", "GLIBC_TUNABLES=x"] {
            assert!(parse_env(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_are_keys_of_some_sections() {
        let set = parse_setting("checkpoint.enabled=false").unwrap();
        assert_eq!((&*set.section, &*set.key), ("checkpoint", "enabled"));
        assert_eq!(set.value, toml::Value::Boolean(false));
        assert_eq!(parse_setting("tuning.nclock=3").unwrap().value, toml::Value::Integer(3));
        for bad in [
            "",
            "keep=1",
            "checkpoint.keep",
            "checkpoint.keep=",
            "tuning.nclock=a b",
            "server.cwd=1",
        ] {
            assert!(parse_setting(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn wrong_lines_get_one_line_and_the_right_code() {
        for (line, code) in [
            ("skein run --replicas 0 -- x", 125),
            ("skein run", 125),
            ("skein run --interface 127.0.0.1 -- x", 125),
            ("skein run --mode fast -- x", 125),
            ("skein status --foo", 2),
            ("skein frobnicate", 2),
            ("skein", 2),
        ] {
            let (text, got) = parse(&words(line)).unwrap_err();
            assert_eq!(got, code, "{line}");
            assert!(text.starts_with("skein: arguments: ") && text.lines().count() == 1, "{text}");
        }
    }

    #[test]
    fn help_is_no_error() {
        for line in ["skein --help", "skein run --help", "skein --version"] {
            assert_eq!(parse(&words(line)).unwrap_err().1, 0, "{line}");
        }
    }
}
