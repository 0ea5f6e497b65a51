//! A node's configuration: plain values, with every default documented at its field.
//!
//! The command line reads them from TOML; the names of the fields are the names of the keys. Unknown keys are refused.

use crate::processor;
pub use crate::rolling::LogFiles;
pub use crate::transport::Address;
use serde::{Deserialize, Serialize};
pub use skein_model::Interface;
use skein_model::{ReplicaId, limits};
pub use skein_replica::config::{
    CheckpointConfig, ConfigError, DurabilityMode, Kind, Member, OnExit, OutgoingConfig,
    ReplicaConfig, Rule, Tuning,
};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The directory of images in a data directory.
pub(crate) const IMAGES: &str = "images";

/// The most bytes of all files that a server writes in memory: 4 GiB, used as needed.
pub(crate) const LAYER_BYTES: u64 = 4 << 30;

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The cluster's name; all its replicas have the same.
    pub name: String,
    /// This replica's id, from 1; one of [`peers`](Self::peers).
    pub id: u64,
    /// The rules by which the replicas stay equal, and what each of them does; default `order`.
    #[serde(default)]
    pub mode: Mode,
    /// The replicas that found the cluster, this one included; the same list on all of them. Later the log's members count. Of a replica that joins: itself, and
    /// members, where it knocks.
    pub peers: Vec<Peer>,
    /// Listening address for the other nodes; default: this replica's address in `peers`.
    #[serde(default)]
    pub listen: Option<Address>,
    /// A file with the key that all nodes of the cluster share: 64 hexadecimal digits, readable by its owner only. With it nodes prove their
    /// identity to each other, and encrypt their messages. Needed where they listen beyond this machine; default: none.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// Whether nodes listen beyond this machine without a key: anyone who reaches their ports can then end and control the cluster.
    /// Default: no.
    #[serde(default)]
    pub trust_network: bool,
    /// Drawn when the cluster is made, as 32 hexadecimal digits, and then the same on all replicas: nodes of different
    /// clusters refuse each other. Default: a hash of the name and of the replicas' ids.
    #[serde(default)]
    pub cluster_id: Option<String>,
    /// Directory of the log.
    pub data_dir: PathBuf,
    /// What an acknowledged write survives; default `fsync`.
    #[serde(default)]
    pub durability: DurabilityMode,
    /// How clients reach the server's ports; default: every port at 127.0.0.1 with the same number.
    #[serde(default)]
    pub publisher: Publisher,
    /// The addresses outside that the server may reach; default: all.
    #[serde(default)]
    pub outgoing: OutgoingConfig,
    /// The program.
    pub server: ServerConfig,
    /// The effect of the server's end on a majority; default `stop`.
    #[serde(default)]
    pub on_exit: OnExit,
    /// The unix socket of the admin interface; default `admin.sock` in the data directory.
    #[serde(default)]
    pub admin_socket: Option<PathBuf>,
    /// Address of the metrics for Prometheus; default: only at the admin socket.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    /// Destination of the node's log lines; default: standard error.
    #[serde(default)]
    pub log_file: Option<PathBuf>,
    /// Images of the server; default: one from time to time, the last two are kept.
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
    /// The bounds of `log_file`, and of the server's output.
    #[serde(default)]
    pub logs: LogFiles,
    /// Numbers that rarely need a change.
    #[serde(default)]
    pub tuning: Tuning,
    /// For tests of a divergence: the first server's digest is wrong from this entry on. Never in a file.
    #[serde(skip)]
    pub corrupt_digest_at: Option<u64>,
}

/// Another replica, or this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its id, from 1.
    pub id: u64,
    /// Its node's address for other nodes.
    pub address: Address,
    /// What it does; default `active`. Of a member the log's word counts more.
    #[serde(default)]
    pub kind: Kind,
}

/// How replicas stay equal, and what they do unless `peers` says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// All replicas execute the same inputs on the same schedule.
    #[default]
    Order,
    /// The same with three replicas of which only the leader's server runs: the first is active, the second passive, the third a witness.
    Standby,
}

impl Mode {
    /// Its name in options, configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Standby => "standby",
        }
    }

    /// What the replicas do that are named in the order of their ids, if the mode says it.
    #[must_use]
    pub const fn kinds(self) -> Option<&'static [Kind]> {
        match self {
            Self::Order => None,
            Self::Standby => Some(&[Kind::Active, Kind::Passive, Kind::Witness]),
        }
    }
}

/// How clients reach the server's ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Publisher {
    /// The node binds addresses itself.
    Bind {
        /// The addresses; empty: every port that the server listens on, at 127.0.0.1, with the same number.
        #[serde(default)]
        publish: Vec<Publish>,
    },
    /// Every port that the server listens on, at 127.0.0.1, at any free port: for a server that is only tried.
    Anywhere,
    /// The parent owns the listening sockets and hands them over this unix socket.
    Inherited {
        /// The parent's socket.
        socket: PathBuf,
    },
}

impl Default for Publisher {
    fn default() -> Self {
        Self::Bind { publish: Vec::new() }
    }
}

/// One published port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// The clients' address.
    pub address: SocketAddr,
    /// The port that the server listens on; default: the number in `address`.
    #[serde(default)]
    pub server_port: Option<u16>,
    /// Whether that is a port for datagrams; default: for connections.
    #[serde(default)]
    pub udp: bool,
}

/// The replicated program and its environment; the same on all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// The program, looked up in the environment's `PATH` unless it has a slash.
    pub program: String,
    /// Its arguments, without its name.
    #[serde(default)]
    pub args: Vec<String>,
    /// The whole environment. Default: empty.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Its working directory; default `/`.
    #[serde(default = "root")]
    pub cwd: PathBuf,
    /// Destination of its standard output and error; default: `server.log` in the data directory.
    #[serde(default)]
    pub output: Option<PathBuf>,
    /// Its sandbox; default `full`.
    #[serde(default)]
    pub isolation: Isolation,
    /// Where what it writes is kept; default `memory`. The same on all replicas, at each of their starts.
    #[serde(default)]
    pub layer: LayerPlace,
}

fn root() -> PathBuf {
    PathBuf::from("/")
}

/// The variable of a server's environment that holds its interface.
pub const INTERFACE: &str = match limits::INTERFACE.to_str() {
    Ok(name) => name,
    Err(_) => panic!("a name of ASCII"),
};

/// Whether a server's environment switches agreed admission off ([`limits::UNSAFE_ADMIT_ON_ARRIVAL`]).
#[must_use]
pub fn unsafe_admission(env: &[(String, String)]) -> bool {
    let switch = limits::UNSAFE_ADMIT_ON_ARRIVAL.to_bytes();
    env.iter().any(|(name, _)| name.as_bytes() == switch)
}

/// The server's sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Own user, mount, pid, network, host name and IPC namespaces, a private writable layer over the file system.
    #[default]
    Full,
    /// None: for diagnosis. Replicas may then differ.
    None,
}

/// The place of a server's private layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerPlace {
    /// Memory, 4 GiB at most.
    #[default]
    Memory,
    /// The data directory.
    Disk,
}

impl NodeConfig {
    /// Directory of such a node's log.
    #[must_use]
    pub fn log_dir(&self) -> PathBuf {
        self.data_dir.join("log")
    }

    /// Directory of such a node's images.
    #[must_use]
    pub fn images_dir(&self) -> PathBuf {
        self.data_dir.join(IMAGES)
    }

    /// Checks rules that types cannot express.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bad = |key, why: &str| Err(ConfigError { key, why: why.into() });
        if self.name.is_empty() || self.name.len() > 64 {
            return bad("name", "must have 1 to 64 characters");
        }
        if self.peers.iter().all(|p| p.id != self.id) {
            return bad("id", "is not one of the ids in `peers`");
        }
        if self.peers.iter().any(|p| p.id == 0 || p.id > 0xffff) {
            return bad("peers", "ids go from 1 to 65535");
        }
        for (i, p) in self.peers.iter().enumerate() {
            if self.peers[..i].iter().any(|q| q.id == p.id || q.address == p.address) {
                return bad("peers", "two replicas have the same id or address");
            }
        }
        if let Some(kinds) = self.mode.kinds() {
            if self.peers.len() != kinds.len() {
                return bad(
                    "mode",
                    "standby has three replicas; for another number give each peer its `kind`",
                );
            }
            if self.peers.iter().any(|p| p.kind != Kind::Active) {
                return bad(
                    "mode",
                    "standby says what each replica does: leave out `kind`, or `mode`",
                );
            }
        }
        let kinds: Vec<_> = self.peers.iter().map(|peer| self.kind(peer)).collect();
        if let Some(why) = skein_log::unfit_kinds(&kinds) {
            return Err(ConfigError { key: "peers", why: why.to_string() });
        }
        self.logs.check()?;
        let local =
            self.peers.iter().map(|p| &p.address).chain(&self.listen).all(Address::is_local);
        if !local && self.key_file.is_none() && !self.trust_network {
            let why = "is needed, as the nodes talk over a network: make a key with 'openssl rand -hex 32', give it to the nodes only; or write trust_network = true where only they can reach their ports";
            return bad("key_file", why);
        }
        if self.cluster_id.is_some() && self.parsed_cluster_id().is_none() {
            return bad("cluster_id", "must be 32 hexadecimal digits");
        }
        if self.server.program.is_empty() {
            return bad("server.program", "must name a program");
        }
        if !self.server.cwd.is_absolute() {
            return bad("server.cwd", "must be an absolute path");
        }
        if self.server.layer == LayerPlace::Disk && self.server.isolation == Isolation::None {
            return bad(
                "server.layer",
                "cannot be disk where server.isolation is none: such a server has no layer",
            );
        }
        let given = self.server.env.iter().find(|(name, _)| name == INTERFACE);
        if given.is_some_and(|(_, value)| Interface::parse(value).is_none()) {
            return bad("server.env", "has a SKEIN_INTERFACE that is no ADDRESS[/BITS] of IPv4");
        }
        self.checkpoint.check()?;
        self.tuning.check()
    }

    /// What the replica in this node is told.
    #[must_use]
    pub fn replica(&self) -> ReplicaConfig {
        let member = |peer: &Peer| Member {
            id: ReplicaId(peer.id),
            address: peer.address.to_string(),
            kind: self.kind(peer),
        };
        ReplicaConfig {
            name: self.name.clone(),
            mode: self.mode.name(),
            id: ReplicaId(self.id),
            members: self.peers.iter().map(member).collect(),
            noted: skein_replica::config::Noted::default(),
            // Its parent has as many nodes as it was told.
            fixed_members: matches!(self.publisher, Publisher::Inherited { .. }),
            address: self.listen_address().map(|address| address.to_string()).unwrap_or_default(),
            process: std::process::id(),
            processor: processor::extensions().to_vec(),
            durability: self.durability,
            outgoing: self.outgoing.clone(),
            on_exit: self.on_exit,
            data_dir: self.data_dir.clone(),
            output: self.output_path(),
            checkpoint: self.checkpoint.clone(),
            tuning: self.tuning.clone(),
        }
    }

    /// What one of [`peers`](Self::peers) does.
    fn kind(&self, peer: &Peer) -> Kind {
        let rank = self.peers.iter().filter(|other| other.id < peer.id).count();
        self.mode.kinds().and_then(|kinds| kinds.get(rank).copied()).unwrap_or(peer.kind)
    }

    fn parsed_cluster_id(&self) -> Option<u128> {
        let text = self.cluster_id.as_ref()?;
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten()
    }

    /// Whether nodes on other machines may be spoken to.
    #[must_use]
    pub const fn trusts_network(&self) -> bool {
        self.key_file.is_some() || self.trust_network
    }

    /// The cluster's id: as configured, or a hash of the name and of the replicas' ids. Not of their addresses: a replica may move.
    #[must_use]
    pub fn cluster(&self) -> u128 {
        self.parsed_cluster_id().unwrap_or_else(|| {
            let mut text = self.name.clone();
            let mut ids: Vec<_> = self.peers.iter().map(|p| p.id).collect();
            ids.sort_unstable();
            for id in ids {
                text.push_str(&format!("\n{id}"));
            }
            xxhash_rust::xxh3::xxh3_128(text.as_bytes())
        })
    }

    /// The address of this node in `peers`.
    #[must_use]
    pub fn own_address(&self) -> Option<Address> {
        self.peers.iter().find(|p| p.id == self.id).map(|p| p.address.clone())
    }

    /// This node's listening address for the others.
    #[must_use]
    pub fn listen_address(&self) -> Option<Address> {
        self.listen.clone().or_else(|| self.own_address())
    }

    /// The admin interface's unix socket.
    #[must_use]
    pub fn admin_path(&self) -> PathBuf {
        self.admin_socket.clone().unwrap_or_else(|| self.data_dir.join("admin.sock"))
    }

    /// Destination of the server's standard output and error.
    #[must_use]
    pub fn output_path(&self) -> PathBuf {
        self.server.output.clone().unwrap_or_else(|| self.data_dir.join("server.log"))
    }
}
