//! What a node is told when it is started: plain values, every default documented where it stands.
//!
//! The command line reads them from TOML; the names of the fields are the names of the keys. Unknown keys are refused.

pub use crate::outgoing::{OutgoingConfig, Rule};
pub use crate::transport::Address;
use serde::{Deserialize, Serialize};
use skein_log::Durability;
pub use skein_model::Interface;
use skein_model::limits;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The cluster's name; all its replicas have the same.
    pub name: String,
    /// This replica's id, from 1; one of [`peers`](Self::peers).
    pub id: u64,
    /// All replicas of the cluster, this one included; the same list on all of them.
    pub peers: Vec<Peer>,
    /// Where this node listens for the other nodes; default: this replica's address in `peers`.
    #[serde(default)]
    pub listen: Option<Address>,
    /// A file with the key that all nodes of the cluster share: 64 hexadecimal digits, readable by nobody else. With it they prove to each
    /// other who they are, and encrypt what they say. Needed where they listen beyond this machine; default: none.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// Whether nodes listen beyond this machine without a key: whoever reaches their ports can then end and control the cluster.
    /// Default: no.
    #[serde(default)]
    pub trust_network: bool,
    /// Drawn when the cluster is made, as 32 hexadecimal digits, and then the same on all replicas: nodes of different
    /// clusters refuse each other. Default: a hash of the name and of the replicas' ids.
    #[serde(default)]
    pub cluster_id: Option<String>,
    /// Where the log is kept.
    pub data_dir: PathBuf,
    /// What an acknowledged write survives; default `fsync`.
    #[serde(default)]
    pub durability: DurabilityMode,
    /// How the server's ports reach the clients; default: every port at 127.0.0.1 with the same number.
    #[serde(default)]
    pub publisher: Publisher,
    /// What the server may reach beyond itself; default: everything.
    #[serde(default)]
    pub outgoing: OutgoingConfig,
    /// The program.
    pub server: ServerConfig,
    /// What happens when the server ends on a majority; default `stop`.
    #[serde(default)]
    pub on_exit: OnExit,
    /// The unix socket of the admin interface; default `admin.sock` in the data directory.
    #[serde(default)]
    pub admin_socket: Option<PathBuf>,
    /// Where Prometheus finds metrics; default: nowhere but at the admin socket.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    /// Where the node's log lines go; default: standard error.
    #[serde(default)]
    pub log_file: Option<PathBuf>,
    /// Numbers that seldom need a change.
    #[serde(default)]
    pub tuning: Tuning,
    /// For tests of what a divergence does: the first server's digest is wrong from this entry on. Never in a file.
    #[serde(skip)]
    pub corrupt_digest_at: Option<u64>,
}

/// Another replica, or this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its id, from 1.
    pub id: u64,
    /// Where its node listens for other nodes.
    pub address: Address,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityMode {
    /// The loss of power everywhere: a replica acknowledges after `fdatasync`.
    #[default]
    Fsync,
    /// The loss of a minority of nodes.
    Memory,
}

impl From<DurabilityMode> for Durability {
    fn from(mode: DurabilityMode) -> Self {
        match mode {
            DurabilityMode::Fsync => Self::Fsync,
            DurabilityMode::Memory => Self::Memory,
        }
    }
}

/// How the server's ports reach the clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Publisher {
    /// The node binds addresses itself.
    Bind {
        /// Which; empty: every port that the server listens on, at 127.0.0.1, with the same number.
        #[serde(default)]
        publish: Vec<Publish>,
    },
    /// Every port that the server listens on, at 127.0.0.1, wherever a port is free: for a server that is only tried.
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
    /// Where clients connect.
    pub address: SocketAddr,
    /// The port that the server listens on; default: the number in `address`.
    #[serde(default)]
    pub server_port: Option<u16>,
    /// Whether that is a port for datagrams; default: for connections.
    #[serde(default)]
    pub udp: bool,
}

/// The replicated program and its surroundings; the same on all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// The program, looked up in the environment's `PATH` unless it has a slash.
    pub program: String,
    /// Its arguments, without its name.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its environment, exactly. Default: empty.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Its working directory; default `/`.
    #[serde(default = "root")]
    pub cwd: PathBuf,
    /// Where its standard output and error go; default: `server.log` in the data directory.
    #[serde(default)]
    pub output: Option<PathBuf>,
    /// Its sandbox; default `full`.
    #[serde(default)]
    pub isolation: Isolation,
}

fn root() -> PathBuf {
    PathBuf::from("/")
}

/// The variable of a server's environment that holds the interface which it is given.
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
    /// None: for finding out what a sandbox breaks. Replicas may then differ.
    None,
}

/// What happens when the server has ended on a majority of the replicas at the same index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExit {
    /// The nodes end too, with the server's status.
    #[default]
    Stop,
    /// The server is started again and rebuilt from the log; when it ends at the same index again, the nodes end.
    Restart,
}

/// Numbers that seldom need a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// A follower that hears nothing for this long, and up to twice as long, asks for an election: 150 ms.
    pub election_timeout_ms: u64,
    /// How often an idle leader is heard: 30 ms.
    pub heartbeat_ms: u64,
    /// How long a busy server waits at a slot for an input before the leader proposes a time bubble: 100 us.
    pub wtimeout_us: u64,
    /// How many operations a thread of the server may do in one turn: 256. Fixed when the cluster is made.
    pub quantum: u32,
    /// How many turns from one admission slot to the next: 16. Fixed when the cluster is made.
    pub nclock: u32,
    /// Client connections at a time: 10,000. More are reset.
    pub max_connections: usize,
    /// What clients may have sent and been sent beyond what the server and they have taken, over all connections:
    /// 512 MiB. New connections are reset while it is more.
    pub max_memory_bytes: usize,
    /// What may be proposed and not yet committed before the gateway stops reading: 8 MiB.
    pub max_in_flight_bytes: usize,
    /// Entries that may be proposed and not yet committed: 4. While so many are on their way, what clients send gathers
    /// for the next one: few, large entries cost less than many small ones.
    pub max_in_flight_entries: usize,
    /// How far the servers of followers may be behind the leader's, in time: 1,000 ms. When too few are within it, what clients send waits
    /// ([`crate::order::lag`]). 0: without a bound.
    pub max_lag_ms: u64,
    /// Whether a leader's server executes what is proposed while it is being agreed on: yes. Its replies wait for the commit.
    /// A leader that was cut off from the others rebuilds its server from the log when it has executed what they never got.
    pub execute_ahead: bool,
    /// Whether a leader and its server share a core while the server is busy for moments only: yes.
    pub share_core: bool,
    /// The arena's input ring: 4 MiB.
    pub input_ring_bytes: usize,
    /// The arena's output ring: 4 MiB.
    pub output_ring_bytes: usize,
    /// The arena's heap, only reserved, used as the server needs it: 1 GiB.
    pub arena_heap_bytes: usize,
    /// Descriptors that the server may raise its limit to (it starts with 1,024): 16,384, the same on all replicas. Not more
    /// than the host allows the node.
    pub max_open_files: u64,
    /// A leader hands leadership over when a write of its log has not been done for so long, or an election timeout:
    /// 1,000 ms.
    pub disk_patience_ms: u64,
    /// And when its server has executed nothing for so long, though another replica's did: 1,000 ms, at least an election
    /// timeout. After thirty times that a stuck server is
    /// rebuilt from the log, on any replica.
    pub server_patience_ms: u64,
    /// How often a server that keeps ending on this replica alone is rebuilt before the node gives up: 5 times in a row.
    pub max_rebuilds: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            election_timeout_ms: 150,
            heartbeat_ms: 30,
            wtimeout_us: 100,
            quantum: 256,
            nclock: 16,
            max_connections: 10_000,
            max_memory_bytes: 512 << 20,
            max_in_flight_bytes: 8 << 20,
            max_in_flight_entries: 4,
            max_lag_ms: 1_000,
            execute_ahead: true,
            share_core: true,
            input_ring_bytes: 4 << 20,
            output_ring_bytes: 4 << 20,
            arena_heap_bytes: 1 << 30,
            max_open_files: 16_384,
            disk_patience_ms: 1000,
            server_patience_ms: 1000,
            max_rebuilds: 5,
        }
    }
}

/// A value that cannot be used, with its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct ConfigError {
    /// The key, with dots.
    pub key: &'static str,
    /// What is wrong and what to write.
    pub why: String,
}

impl NodeConfig {
    /// Where the log of such a node is.
    #[must_use]
    pub fn log_dir(&self) -> PathBuf {
        self.data_dir.join("log")
    }

    /// Checks what types cannot say.
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
        let local =
            self.peers.iter().map(|p| &p.address).chain(&self.listen).all(Address::is_local);
        if !local && self.key_file.is_none() && !self.trust_network {
            let why = "is needed, as the nodes talk over a network: make a key with 'openssl rand -hex 32', give it to all nodes and nobody else; or write trust_network = true where only they can reach their ports";
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
        let given = self.server.env.iter().find(|(name, _)| name == INTERFACE);
        if given.is_some_and(|(_, value)| Interface::parse(value).is_none()) {
            return bad("server.env", "has a SKEIN_INTERFACE that is no ADDRESS[/BITS] of IPv4");
        }
        self.tuning.check()
    }

    fn parsed_cluster_id(&self) -> Option<u128> {
        let text = self.cluster_id.as_ref()?;
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten()
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

    /// Where this node listens for the others.
    #[must_use]
    pub fn listen_address(&self) -> Option<Address> {
        let own = || self.peers.iter().find(|p| p.id == self.id).map(|p| p.address.clone());
        self.listen.clone().or_else(own)
    }

    /// The admin interface's unix socket.
    #[must_use]
    pub fn admin_path(&self) -> PathBuf {
        self.admin_socket.clone().unwrap_or_else(|| self.data_dir.join("admin.sock"))
    }

    /// Where the server's standard output and error go.
    #[must_use]
    pub fn output_path(&self) -> PathBuf {
        self.server.output.clone().unwrap_or_else(|| self.data_dir.join("server.log"))
    }
}

impl Tuning {
    fn check(&self) -> Result<(), ConfigError> {
        let bad = |key, why: String| Err(ConfigError { key, why });
        if self.heartbeat_ms == 0 || self.election_timeout_ms < 3 * self.heartbeat_ms {
            let why = format!(
                "is {} ms with an election timeout of {} ms; the timeout must be at least three heartbeats",
                self.heartbeat_ms, self.election_timeout_ms
            );
            return bad("tuning.heartbeat_ms", why);
        }
        if self.quantum == 0 || self.nclock == 0 {
            return bad("tuning.quantum", "quantum and nclock must be at least 1".into());
        }
        if self.max_open_files < 1024 {
            return bad("tuning.max_open_files", "must be at least 1024".into());
        }
        if self.max_connections == 0 {
            return bad("tuning.max_connections", "must be at least 1".into());
        }
        if self.max_in_flight_bytes < skein_model::entry::MAX_ENTRY_BYTES {
            return bad("tuning.max_in_flight_bytes", "must hold at least one entry, 1 MiB".into());
        }
        if self.max_in_flight_entries == 0 {
            return bad("tuning.max_in_flight_entries", "must be at least 1".into());
        }
        let sizes = self.sizes();
        if !sizes.valid() {
            return bad("tuning.arena_heap_bytes", skein_arena::MapError::Sizes(sizes).to_string());
        }
        Ok(())
    }

    /// The arena's sizes.
    #[must_use]
    pub const fn sizes(&self) -> skein_arena::Sizes {
        skein_arena::Sizes {
            input: self.input_ring_bytes,
            output: self.output_ring_bytes,
            heap: self.arena_heap_bytes,
        }
    }
}
