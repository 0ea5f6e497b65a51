//! Puts a node together and runs it.

use crate::admin::{About, Admin, Work};
use crate::base::work::is_read_again;
use crate::begin;
use crate::config::NodeConfig;
use crate::error::{ExitReason, NodeError};
use crate::images::Store;
use crate::images::adopt::Adopted;
use crate::import;
use crate::members;
use crate::reactor::{Log, Mailbox, Parts, Reactor};
use crate::server::Launcher;
use crate::server::program::ProgramLauncher;
use skein_image::file::Owner;
use skein_log::disk::{DirDisk, Disk, durable};
use skein_log::frame::Hello;
use skein_log::identity::Identity;
use skein_log::wal::{Wal, WalOptions};
use skein_log::{ClusterId, Consensus, Durability, ProgramHash, Recovered};
use skein_model::{LogIndex, ReplicaId};
use skein_replica::metrics::Metrics;
use skein_replica::replica::{Command, Inbox};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A node that is ready to run.
pub struct Node {
    reactor: Reactor,
    metrics: Arc<Metrics>,
    admin_path: PathBuf,
    metrics_at: Option<SocketAddr>,
    images: Store,
    about: About,
}

/// A node that was killed keeps its directory until the kernel has taken back all that it had: so long the next one waits.
const FREE_WITHIN: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until no other node has the directory, or for long enough: then opening it says so.
fn await_free(disk: &dyn Disk) {
    let until = Instant::now() + FREE_WITHIN;
    while matches!(disk.lock(), Ok(None)) && Instant::now() < until {
        thread::sleep(LOOK_EVERY);
    }
}

impl Node {
    /// Runs one replica until it ends.
    ///
    /// # Errors
    /// The reason why it could not start or continue.
    pub fn run(config: NodeConfig) -> Result<ExitReason, NodeError> {
        config.check()?;
        let launcher = ProgramLauncher::of_node(&config)?;
        Self::new(config, Arc::new(launcher))?.serve()
    }

    /// Takes the data directory, recovers the log and starts the server by `launcher`.
    ///
    /// # Errors
    /// The reason why it cannot start.
    pub fn new(config: NodeConfig, launcher: Arc<dyn Launcher>) -> Result<Self, NodeError> {
        config.check()?;
        let disk = DirDisk::open(config.log_dir())
            .map_err(|error| NodeError::DataDir { path: config.data_dir.clone(), error })?;
        Self::with_disk(config, launcher, Arc::new(disk))
    }

    /// As [`new`](Self::new), with the log on `disk`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_disk(
        config: NodeConfig,
        launcher: Arc<dyn Launcher>,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, NodeError> {
        config.check()?;
        raise_file_limit();
        await_free(&*disk);
        let cluster = ClusterId(config.cluster());
        let program = ProgramHash(launcher.program_hash());
        let owner = Owner { cluster: cluster.0, program: program.0 };
        let begin = begin::asked(&config.data_dir)?;
        let data = |error| NodeError::DataDir { path: config.data_dir.clone(), error };
        for dir in [config.data_dir.clone(), config.log_dir()] {
            if dir.exists() {
                durable::make_private(&dir).map_err(data)?;
            }
        }
        let image = import::image(&config.data_dir).filter(|_| begin == Some(0));
        let adopted = image.map(|path| Adopted::read(&path, program.0)).transpose()?;
        let base = adopted.as_ref().map(Adopted::base).unwrap_or_default();
        let durability = config.durability.into();
        let mut identity = None;
        let incarnation;
        let mut wal = None;
        let mut recovered = Recovered::default();
        match durability {
            Durability::Fsync => {
                let options =
                    WalOptions { marks: is_read_again, ..WalOptions::new(cluster, program) };
                let opened = match begin {
                    Some(incarnation) => {
                        Wal::create_after(disk, WalOptions { incarnation, ..options }, base)?
                    }
                    None => Wal::open(disk, options)?,
                };
                incarnation = opened.incarnation;
                if let Some(repair) = opened.repair {
                    tracing::warn!(event = "log_repaired", repair = ?repair);
                }
                recovered = opened.recovered;
                wal = Some(opened.wal);
            }
            Durability::Memory => {
                let sole = config.peers.len() == 1;
                let opened = match begin {
                    Some(incarnation) => {
                        Identity::create(disk, cluster, program, incarnation, sole)?
                    }
                    None => Identity::open(disk, cluster, program, sole)?,
                };
                incarnation = opened.incarnation();
                identity = Some(opened);
                if adopted.is_some() {
                    recovered = Recovered::after(base);
                }
            }
        }
        let images = Store::new(config.images_dir(), owner);
        images.tidy()?;
        if begin == Some(0) {
            images.forget()?;
        }
        if let Some(image) = adopted {
            image.give(&images)?;
        }
        let noted = members::of_former_life(&config.data_dir, begin)?;
        begin::done(&config.data_dir)?;
        import::image_taken(&config.data_dir)?;
        // Different election timeouts in every life.
        let seed = config.id ^ u64::from(std::process::id()) << 16;
        let consensus_config = config.replica().consensus(incarnation, seed);
        let reader =
            wal.as_ref().map(|w| Box::new(w.reader()) as Box<dyn skein_log::EntryReader + Send>);
        let consensus = Consensus::new(consensus_config, recovered, reader)?;
        let replica = ReplicaId(config.id);
        let membership = consensus.membership();
        let program = ProgramHash(launcher.common_hash());
        let hello = Hello { replica, incarnation, durability, program, membership, levels: None };
        let metrics = Arc::new(Metrics::default());
        let (admin_path, metrics_at) = (config.admin_path(), config.metrics);
        say_of_members(&config, &consensus);
        let about = About {
            config: Arc::new(config.clone()),
            base: launcher.base().map(|(base, _)| base),
            other_runtime: Arc::default(),
        };
        let log = wal.map(|wal| Log { old: wal.reader(), wal });
        let metrics_too = metrics.clone();
        let parts = Parts {
            config,
            consensus,
            hello,
            cluster,
            launcher,
            metrics: metrics_too,
            images: Some(images.clone()),
            log,
            identity,
            noted,
        };
        let reactor = Reactor::new(parts)?;
        Ok(Self { reactor, metrics, admin_path, metrics_at, images, about })
    }

    /// The way for other threads to reach the node.
    #[must_use]
    pub fn mailbox(&self) -> Mailbox {
        self.reactor.mailbox()
    }

    /// Its metrics.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Runs until it ends.
    ///
    /// # Errors
    /// The error that ends it.
    pub fn serve(mut self) -> Result<ExitReason, NodeError> {
        let (forward, clients) = tokio::sync::mpsc::unbounded_channel();
        self.reactor.attach_forwarder(forward);
        let (requests, asked) = tokio::sync::mpsc::unbounded_channel();
        self.reactor.attach_admin(requests);
        let _admin = Admin::start(
            &self.admin_path,
            self.metrics_at,
            self.mailbox(),
            self.metrics(),
            (self.images.clone(), self.about.clone()),
            Work { clients, asked },
        )?;
        self.reactor.run()
    }
}

/// The log's members rule: where the configuration names others, that is said once.
fn say_of_members(config: &NodeConfig, consensus: &Consensus) {
    let known: Vec<_> =
        consensus.members().into_iter().map(|m| (m.id.0, m.place.address)).collect();
    let mut named: Vec<_> = config.peers.iter().map(|p| (p.id, p.address.to_string())).collect();
    named.sort_unstable();
    if consensus.membership() > LogIndex(0) && known != named {
        let members = known.iter().map(|(id, at)| format!("{id}={at}")).collect::<Vec<_>>();
        tracing::info!(
            event = "members",
            members = members.join(" "),
            why = "the log has other members than `peers` of the configuration, and counts"
        );
    }
}

/// Thousands of clients need as many descriptors. Beyond the hard limit `accept` will fail.
pub(crate) fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

impl Mailbox {
    /// Asks the node to end, in order.
    pub fn stop(&self) {
        // A node that is gone has stopped.
        let _ = self.tell(Inbox::Command(Command::Stop));
    }
}
