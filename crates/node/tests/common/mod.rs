//! Clusters of nodes in threads of one process, with fake servers.
#![allow(dead_code, missing_docs)] // Each test file uses its part.

pub mod fake;
pub mod stall;
pub mod wires;

use fake::{FakeLauncher, PORT, Seen};
use skein_node::config::{
    CheckpointConfig, DurabilityMode, Isolation, Kind, LogFiles, Mode, NodeConfig, OnExit, Peer,
    Publish, Publisher, ServerConfig, Tuning,
};
use skein_node::reactor::Mailbox;
use skein_node::{ExitReason, Node, NodeError, NodeStatus};
use skein_replica::replica::{Command, Inbox};
use stall::{Stall, StallDisk};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time of anything in a test that does not hang.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Running {
    pub id: u64,
    pub mailbox: Mailbox,
    pub seen: Arc<Seen>,
    pub metrics: Arc<skein_replica::metrics::Metrics>,
    thread: Option<JoinHandle<Result<ExitReason, NodeError>>>,
}

pub struct Cluster {
    pub dir: tempfile::TempDir,
    pub configs: Vec<NodeConfig>,
    pub nodes: Vec<Option<Running>>,
    pub service: Vec<SocketAddr>,
    /// The disks under all logs,
    pub disks: Arc<Stall>,
    /// and under that of each node.
    pub own_disks: Vec<Arc<Stall>>,
}

pub fn free_address() -> SocketAddr {
    skein_testkit::free_address().unwrap()
}

pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begin.elapsed() < LIMIT, "waited in vain: {what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

impl Cluster {
    pub fn new(replicas: u64, durability: DurabilityMode) -> Self {
        Self::with(replicas, durability, |_| {})
    }

    pub fn with(
        replicas: u64,
        durability: DurabilityMode,
        change: impl Fn(&mut NodeConfig),
    ) -> Self {
        // SKEIN_TEST_LOG=1 shows the nodes' logs, by node; another test may have set it up already.
        if std::env::var_os("SKEIN_TEST_LOG").is_some() {
            let _ = tracing_subscriber::fmt()
                .with_thread_names(true)
                .with_writer(std::io::stderr)
                .try_init();
        }
        let dir = tempfile::tempdir().unwrap();
        let peers: Vec<Peer> = (1..=replicas)
            .map(|id| Peer { id, address: free_address().into(), kind: Kind::Active })
            .collect();
        let service: Vec<SocketAddr> = (0..replicas).map(|_| free_address()).collect();
        let config = |id: u64| {
            let mut config = NodeConfig {
                mode: Mode::Order,
                name: "test".into(),
                id,
                peers: peers.clone(),
                listen: None,
                key_file: None,
                trust_network: false,
                cluster_id: None,
                data_dir: dir.path().join(id.to_string()),
                durability,
                outgoing: skein_node::config::OutgoingConfig::default(),
                publisher: Publisher::Bind {
                    publish: vec![Publish {
                        address: service[id as usize - 1],
                        server_port: Some(PORT),
                        udp: false,
                    }],
                },
                server: ServerConfig {
                    program: "fake".into(),
                    args: vec![],
                    env: vec![],
                    cwd: "/".into(),
                    output: None,
                    isolation: Isolation::None,
                    layer: skein_node::config::LayerPlace::Memory,
                },
                on_exit: OnExit::Stop,
                admin_socket: None,
                metrics: None,
                log_file: None,
                checkpoint: CheckpointConfig::default(),
                logs: LogFiles::default(),
                tuning: Tuning::default(),
                corrupt_digest_at: None,
            };
            change(&mut config);
            config
        };
        let configs: Vec<_> = (1..=replicas).map(config).collect();
        let nodes = configs.iter().map(|_| None).collect();
        let own_disks = configs.iter().map(|_| Arc::default()).collect();
        let mut cluster = Self { dir, configs, nodes, service, disks: Arc::default(), own_disks };
        for id in 1..=replicas {
            cluster.found(id);
            cluster.start(id).unwrap();
        }
        cluster
    }

    /// Lets a replica begin its log as a founding member.
    pub fn found(&self, id: u64) {
        skein_node::begin::found(&self.configs[id as usize - 1].data_dir).unwrap();
    }

    pub fn start(&mut self, id: u64) -> Result<(), NodeError> {
        self.start_program(id, [7; 32])
    }

    pub fn start_program(&mut self, id: u64, program: [u8; 32]) -> Result<(), NodeError> {
        let config = self.configs[id as usize - 1].clone();
        let seen = Arc::new(Seen::default());
        let launcher =
            FakeLauncher { id, sizes: config.tuning.sizes(), seen: seen.clone(), program };
        let log = config.log_dir();
        let disk = StallDisk::open(&log, vec![self.disks.clone(), self.disk(id).clone()]).unwrap();
        let node = Node::with_disk(config, Arc::new(launcher), Arc::new(disk))?;
        let (mailbox, metrics) = (node.mailbox(), node.metrics());
        let thread = std::thread::Builder::new()
            .name(format!("node{id}"))
            .spawn(move || node.serve())
            .unwrap();
        self.nodes[id as usize - 1] =
            Some(Running { id, mailbox, seen, metrics, thread: Some(thread) });
        Ok(())
    }

    /// The disk under a node's log.
    pub fn disk(&self, id: u64) -> &Arc<Stall> {
        &self.own_disks[id as usize - 1]
    }

    /// Waits until a node names a fault whose name begins with this.
    pub fn wait_fault(&self, id: u64, name: &str) {
        wait_for(name, || {
            let faults = self.status(id)?.replica.faults;
            faults.iter().any(|fault| fault.name.starts_with(name)).then_some(())
        });
    }

    /// Waits until no node has a fault.
    pub fn wait_well(&self) {
        wait_for("all to be well", || {
            let well = |id| self.status(id).is_some_and(|s| s.replica.faults.is_empty());
            self.running().into_iter().all(well).then_some(())
        });
    }

    pub fn node(&self, id: u64) -> &Running {
        self.nodes[id as usize - 1].as_ref().expect("the node runs")
    }

    pub fn stop(&mut self, id: u64) -> Result<ExitReason, NodeError> {
        let mut node = self.nodes[id as usize - 1].take().expect("the node runs");
        node.mailbox.stop();
        node.thread.take().unwrap().join().expect("no panic")
    }

    /// Waits until a node ends by itself.
    pub fn ended(&mut self, id: u64) -> Result<ExitReason, NodeError> {
        let mut node = self.nodes[id as usize - 1].take().expect("the node runs");
        let thread = node.thread.take().unwrap();
        wait_for("the node to end", || thread.is_finished().then_some(()));
        thread.join().expect("no panic")
    }

    pub fn status(&self, id: u64) -> Option<NodeStatus> {
        let (reply, answer) = oneshot::channel();
        self.nodes[id as usize - 1].as_ref()?.mailbox.tell(Inbox::Command(Command::Status(reply)));
        answer.recv().ok()
    }

    pub fn running(&self) -> Vec<u64> {
        self.nodes.iter().flatten().map(|n| n.id).collect()
    }

    /// Waits for a leader that serves.
    pub fn leader(&self) -> u64 {
        wait_for("a leader", || {
            self.running().into_iter().find(|id| self.status(*id).is_some_and(|s| s.serving))
        })
    }

    /// A client of the leader.
    pub fn client(&self) -> Client {
        let leader = self.leader();
        Client::new(TcpStream::connect(self.service[leader as usize - 1]).unwrap())
    }

    /// Waits until all running replicas have executed the same log and report the same digest.
    pub fn agree(&self) -> u64 {
        wait_for("the replicas to agree", || {
            let all: Vec<_> =
                self.running().into_iter().map(|id| self.status(id)).collect::<Option<_>>()?;
            let first = &all[0].replica;
            let same = all.iter().all(|s| {
                let r = &s.replica;
                r.state == skein_node::ReplicaState::Running
                    && r.digest_index == first.digest_index
                    && r.digest == first.digest
                    && r.lag_entries == 0
                    && r.commit_index == first.commit_index
            });
            (same && first.digest_index > 0).then_some(first.digest_index)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            node.mailbox.stop();
        }
        for node in self.nodes.iter_mut().flatten() {
            let _ = node.thread.take().map(JoinHandle::join);
        }
    }
}

pub struct Client {
    pub stream: BufReader<TcpStream>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, line: &str) {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// As `ask`, but the connection may break.
    pub fn try_ask(&mut self, line: &str) -> std::io::Result<String> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer.trim_end().to_owned())
    }

    /// The next byte, or the end, or the error.
    pub fn end(&mut self) -> std::io::Result<usize> {
        self.stream.read(&mut [0])
    }
}
