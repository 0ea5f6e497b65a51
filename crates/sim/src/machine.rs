//! A machine, with or without a running node: the real replica over a simulated disk.

use crate::around::Around;
use crate::hasty::Hasty;
use crate::keeper::Keeper;
use crate::options::{Break, Plan};
use crate::promises::{Kept, Unsynced};
use crate::scripted::Scripted;
use crate::server::RegisterServer;
use crate::shelf::Shelf;
use crate::wire::Wire;
use skein_log::disk::sim::{SimDisk, SimRng};
use skein_log::identity::Identity;
use skein_log::wal::{Wal, WalError, WalOptions, WalReader};
use skein_log::{
    ClusterId, Config, Consensus, ConsensusError, Durability, EntryReader, Level, ProgramHash,
    Recovered, Ticket,
};
use skein_model::{ConnId, LogIndex, ReplicaId, SockAddr, entry};
use skein_replica::ReplicaError;
use skein_replica::config::{Kind, Member, Noted, OnExit, OutgoingConfig, ReplicaConfig};
use skein_replica::metrics::Metrics;
use skein_replica::modes::{Mode, Order};
use skein_replica::replica::{Parts, Replica};
use skein_replica::server::Link;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const CLUSTER: ClusterId = ClusterId(0x5eed);
/// The program hash of all replicas.
pub const PROGRAM: ProgramHash = ProgramHash([1; 32]);
/// Small, so that every run has several segments.
const SEGMENT_BYTES: u64 = 8 << 10;

/// A node's view of a client's connection.
pub struct Client {
    /// The client.
    pub client: usize,
    /// The number of the client's connection.
    pub epoch: u64,
    /// The connection.
    pub wire: Rc<RefCell<Wire>>,
}

/// A host's view of a connection that a node's server began.
pub struct Call {
    /// The connection's id.
    pub conn: ConnId,
    /// The host.
    pub to: SockAddr,
    /// The connection.
    pub wire: Rc<RefCell<Wire>>,
}

/// The state of a node's process, lost with its life.
pub struct Process {
    /// The replica.
    pub replica: Replica<Around>,
    /// Of a replica with a log on disk.
    pub wal: Option<Wal>,
    reader: Option<WalReader>,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// The writes being synced,
    pub writing: Option<Ticket>,
    /// and their result.
    unsynced: Unsynced,
    /// A write that never ends.
    pub disk_hangs: bool,
    /// When it began, by the world's clock.
    pub began: Duration,
    /// Its next wake-up, by the world's clock in us.
    pub wakes_at: Option<u64>,
    /// Its rest lasts until then, whatever peers say.
    pub peers_wait: bool,
    /// The server's process, if it runs or is being started.
    pub server: Option<Scripted>,
    /// It has been started, and lives.
    pub server_lives: bool,
    /// It will be run soon.
    pub server_runs: bool,
    /// It does nothing for now.
    pub server_hangs: bool,
    /// The last entry that it has executed, and when.
    pub executed: LogIndex,
    pub executed_us: u64,
    /// The last generation of it that was made to answer otherwise than the others; 0: none.
    pub differs: u64,
    /// What the last server left when it ended, and its generation.
    pub left: Option<(u64, RegisterServer)>,
    /// The servers' printed output, on its way to an operator.
    pub keeper: Keeper,
    /// The clients that were accepted or wait to be.
    pub clients: Vec<Client>,
    /// The connections to hosts outside.
    pub calls: Vec<Call>,
}

/// See the [module](self).
pub struct Machine {
    /// The replica's number.
    pub id: ReplicaId,
    /// The peers in its configuration, with their kinds: of a founder all founders.
    pub peers: Vec<(u64, Kind)>,
    /// It was removed from the cluster, and its node has ended; or it never became a member.
    pub retired: bool,
    /// Grows with each start and end: events of another life are not delivered.
    pub life: u64,
    /// Its incarnation.
    pub incarnation: u64,
    /// The newest level that its version of Skein knows,
    pub level: Level,
    /// and that any version knew that it has had.
    pub newest: Level,
    /// Its operator is to read that its version is too old.
    pub refused: bool,
    /// Its disk.
    pub disk: SimDisk,
    /// A requested new log, with its incarnation.
    pub begin: Option<u64>,
    /// Its node.
    pub process: Option<Process>,
    /// The process does not run for now.
    pub stopped: bool,
    /// The error of its wall clock.
    pub clock_offset_us: i64,
    /// Its disk was made to fail.
    pub disk_fails: bool,
    /// Bytes on its disk are not what was written.
    pub rotten: bool,
    /// It is broken for good.
    pub lost: bool,
    /// The additional time of each of its syncs.
    pub slow_disk_us: u64,
    /// The fault of each of its servers.
    pub servers: Servers,
    /// The images on its disk.
    pub images: Shelf,
    /// What its last node noted of the members.
    pub noted: Noted,
    /// The certainly durable data of its disk, and a write that may be only in its cache.
    pub kept: Kept,
    pub in_flight: bool,
}

/// The fault of all servers of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// Nothing.
    #[default]
    Work,
    /// They do nothing.
    Hang,
    /// They end soon after they were started.
    End,
    /// They damage their arena.
    Rave,
}

impl Machine {
    /// A new one.
    pub fn new(id: u64, peers: Vec<(u64, Kind)>, clock_offset_us: i64, level: Level) -> Self {
        Self {
            id: ReplicaId(id),
            peers,
            retired: false,
            life: 0,
            incarnation: 0,
            level,
            newest: level,
            refused: false,
            disk: SimDisk::new(),
            begin: Some(0),
            process: None,
            stopped: false,
            clock_offset_us,
            disk_fails: false,
            rotten: false,
            lost: false,
            slow_disk_us: 0,
            servers: Servers::Work,
            images: Shelf::default(),
            noted: Noted::default(),
            kept: Kept::default(),
            in_flight: false,
        }
    }

    /// What its replica does, as far as it knows.
    pub fn kind(&self) -> Kind {
        let own = || self.peers.iter().find(|(id, _)| *id == self.id.0).map(|(_, kind)| *kind);
        match &self.process {
            Some(process) => process.replica.consensus().kind_of(self.id),
            None => own().unwrap_or_default(),
        }
    }

    /// Whether its disk has the written data, and it is not broken for good.
    pub const fn is_sound(&self) -> bool {
        !self.rotten && !self.lost
    }

    /// The rate of its clock, up to a twentieth too slow or a tenth too fast: thousandths of a second per second.
    const fn rate(&self) -> u64 {
        950 + self.id.0 % 5 * 30
    }

    /// Its clock's reading of a duration of the world's.
    pub fn shows(&self, true_us: u64) -> Duration {
        Duration::from_nanos(true_us * self.rate())
    }

    /// The world's duration of it, in us.
    pub fn takes(&self, shown: Duration) -> u64 {
        (shown.as_nanos() as u64).div_ceil(self.rate())
    }
}

/// Where a node listens.
pub fn address(id: u64) -> String {
    format!("/nowhere/{id}")
}

/// A node's configuration at its start.
fn replica_config(id: ReplicaId, peers: &[(u64, Kind)], plan: &Plan) -> ReplicaConfig {
    let member =
        |&(id, kind): &(u64, Kind)| Member { id: ReplicaId(id), address: address(id), kind };
    ReplicaConfig {
        name: "simulated".into(),
        mode: "order",
        id,
        members: peers.iter().map(member).collect(),
        fixed_members: false,
        address: address(id.0),
        process: 0,
        processor: vec!["avx2".into()],
        durability: plan.durability_mode(),
        outgoing: OutgoingConfig::default(),
        on_exit: OnExit::Stop,
        noted: Noted::default(),
        data_dir: PathBuf::from("/nowhere"),
        output: PathBuf::from("/nowhere/server.log"),
        checkpoint: plan.checkpoint.clone(),
        tuning: plan.tuning.clone(),
    }
}

impl Process {
    /// Starts a node on the content of the disk; answers its incarnation and the recovered data.
    pub fn start(
        machine: &Machine,
        plan: &Plan,
        broken: Option<Break>,
        mut rng: SimRng,
        now_us: u64,
    ) -> Result<(Self, u64, Kept), ReplicaError> {
        let (disk, begin) = (&machine.disk, machine.begin);
        let mut config = replica_config(machine.id, &machine.peers, plan);
        config.noted = machine.noted.clone();
        let mut recovered = Recovered::default();
        let (mut process_wal, mut identity) = (None, None);
        let mut incarnation;
        match plan.durability {
            Durability::Fsync => {
                let options = WalOptions {
                    segment_bytes: SEGMENT_BYTES,
                    tail_bytes: 500,
                    marks: entry::upgrades,
                    incarnation: begin.unwrap_or_default(),
                    ..WalOptions::new(CLUSTER, PROGRAM)
                };
                let opened = match begin {
                    Some(_) => Wal::create(Arc::new(disk.clone()), options)?,
                    None => Wal::open(Arc::new(disk.clone()), options)?,
                };
                incarnation = opened.incarnation;
                recovered = opened.recovered;
                process_wal = Some(opened.wal);
            }
            Durability::Memory => {
                let (disk, sole) = (Arc::new(disk.clone()), machine.peers.len() == 1);
                let taken = match begin {
                    Some(incarnation) => {
                        Identity::create(disk, CLUSTER, PROGRAM, incarnation, sole)?
                    }
                    None => Identity::open(disk, CLUSTER, PROGRAM, sole)?,
                };
                incarnation = taken.incarnation();
                identity = Some(taken);
            }
        }
        let known = incarnation;
        let kept = Kept::of(&recovered);
        if broken == Some(Break::ForgetIncarnation) {
            incarnation = 0;
        }
        let consensus_config = Config {
            recent_bytes: 300,
            max_message_bytes: 2000,
            max_uncommitted_bytes: plan.uncommitted_bytes,
            eager_commit: plan.eager_commit,
            level: machine.level,
            ..config.consensus(incarnation, rng.next_u64())
        };
        let reader = process_wal.as_ref().map(Wal::reader);
        let boxed =
            process_wal.as_ref().map(|wal| Box::new(wal.reader()) as Box<dyn EntryReader + Send>);
        let consensus = match Consensus::new(consensus_config, recovered, boxed) {
            Err(ConsensusError::TooNew(error)) => return Err(error.into()),
            consensus => consensus.expect("a sound configuration"),
        };
        let timer = (plan.timer_ns, plan.timer_speaks);
        let mut env = Around::new(rng, timer, process_wal.is_some(), plan.loss);
        (env.images, env.imaged) = machine.images.at_start();
        env.identity = identity;
        let metrics = Arc::<Metrics>::default();
        let is_active = consensus.kind_of(machine.id) == Kind::Active;
        let server = is_active.then(|| Link::sparse(config.tuning.sizes(), 1).expect("memory"));
        let order = Order::new(&config.tuning, false);
        let mode: Box<dyn Mode> = match broken {
            Some(Break::EarlyOutput) => Box::new(Hasty(order)),
            _ => Box::new(order),
        };
        let parts = Parts { config, mode, consensus, env, server, metrics: metrics.clone() };
        let mut replica = Replica::new(parts).expect("an environment that refuses nothing");
        replica.begin();
        let process = Self {
            replica,
            wal: process_wal,
            reader,
            metrics,
            writing: None,
            unsynced: Unsynced::default(),
            disk_hangs: false,
            began: Duration::from_micros(now_us),
            wakes_at: None,
            peers_wait: false,
            server: None,
            server_lives: false,
            server_runs: false,
            server_hangs: false,
            executed: LogIndex(0),
            executed_us: now_us,
            differs: 0,
            left: None,
            keeper: Keeper::default(),
            clients: Vec::new(),
            calls: Vec::new(),
        };
        Ok((process, known, kept))
    }

    /// Reads old entries for a follower.
    pub fn read_old(
        &self,
        wanted: &skein_log::OldEntries,
    ) -> Result<Vec<skein_log::LogEntry>, WalError> {
        let reader = self.reader.as_ref().expect("only a log on disk has old entries");
        EntryReader::read(reader, wanted.from, wanted.to, wanted.max_bytes)
    }

    /// Hands the gathered writes to the disk, if it is idle. True if a sync began.
    pub fn begin_write(&mut self) -> Result<bool, WalError> {
        let env = &mut self.replica.env;
        let Some(wal) = &mut self.wal else { return Ok(false) };
        if self.writing.is_some() || env.to_write.is_empty() || env.full {
            return Ok(false);
        }
        for persist in env.to_write.drain(..) {
            // One that fails may be on the disk all the same, in parts.
            self.writing = Some(persist.ticket);
            wal.append(&persist)?;
            self.unsynced.add(&persist);
        }
        Ok(true)
    }

    /// The sync is over: answers the durable ticket. `kept` becomes the durable state.
    pub fn end_write(&mut self, kept: &mut Kept) -> Result<Option<Ticket>, WalError> {
        let (Some(wal), Some(ticket)) = (&mut self.wal, self.writing) else {
            return Ok(None);
        };
        wal.sync()?;
        self.writing = None;
        self.unsynced.done(kept);
        Ok(Some(ticket))
    }

    /// The log's witness is written now and then.
    pub fn witness(&mut self) -> Result<(), WalError> {
        self.wal.as_mut().map_or(Ok(()), Wal::witness)
    }
}
