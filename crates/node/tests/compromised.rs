//! A hostile peer that has the cluster's key: its bytes end its connection, and neither a node nor the cluster's service.
//!
//! Actions that any replica may take (vote, lead, acknowledge) are not tried: Byzantine faults are out of scope (`docs/security.md`).

mod common;

use common::{Cluster, LIMIT, wait_for};
use skein_log::frame::{self, Hello, KIND_APP, KIND_HELLO, KIND_RAFT};
use skein_log::{ClusterId, Durability, ProgramHash};
use skein_model::ReplicaId;
use skein_node::config::DurabilityMode::Memory;
use skein_node::config::NodeConfig;
use skein_node::transport::Key;
use skein_node::transport::channel::Sealer;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const KEY: [u8; 32] = [0x1f; 32];
/// How many frames the loop of changed frames sends.
const CHANGED: u32 = 400;

fn cluster(dir: &std::path::Path) -> Cluster {
    let path = dir.join("key");
    std::fs::write(&path, "1f".repeat(32)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Cluster::with(3, Memory, |config| config.key_file = Some(path.clone()))
}

/// A peer whose node has ended, and whose key and id an attacker has now.
struct Liar {
    id: u64,
    cluster: ClusterId,
}

/// A connection of its own.
struct Link {
    stream: TcpStream,
    sealer: Sealer,
    heard: Vec<u8>,
}

impl Liar {
    /// The leader of a first term is stopped: there is a newer term then.
    fn of(cluster: &mut Cluster) -> Self {
        let id = cluster.leader();
        cluster.stop(id).unwrap();
        cluster.leader();
        Self { id, cluster: ClusterId(cluster.configs[0].cluster()) }
    }

    /// Connects and proves the key; sends nothing yet.
    fn dial(&self, node: &NodeConfig) -> Link {
        let mut stream = TcpStream::connect(node.listen_address().unwrap().tcp().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut wire = Vec::new();
        let sealer = Sealer::new(Some(&Key::new(KEY)), self.cluster, true, &mut wire);
        stream.write_all(&wire).unwrap();
        let mut link = Link { stream, sealer, heard: Vec::new() };
        let begin = Instant::now();
        while !link.sealer.is_open() {
            assert!(begin.elapsed() < LIMIT && !link.hear(), "the key is not taken");
        }
        link
    }

    fn hello(&self) -> Vec<u8> {
        Hello {
            membership: skein_model::LogIndex(0),
            replica: ReplicaId(self.id),
            incarnation: 0,
            durability: Durability::Memory,
            program: ProgramHash([7; 32]),
            levels: None,
        }
        .encode()
    }

    fn frame(&self, kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, self.cluster, kind, payload);
        bytes
    }

    /// Connects, and sends a hello.
    fn enter(&self, node: &NodeConfig) -> Link {
        let mut link = self.dial(node);
        link.say(&self.frame(KIND_HELLO, &self.hello()));
        link
    }

    /// As [`Self::enter`], until the node takes it for the replica that it claims to be.
    fn join(&self, node: &NodeConfig) -> Link {
        let mut link = self.enter(node);
        let begin = Instant::now();
        // The node's hello also comes to a refused peer; a replica gets further messages.
        let hello = frame::HEADER_BYTES + self.hello().len();
        while link.heard.len() <= hello {
            assert!(!link.hear(), "refused");
            assert!(begin.elapsed() < LIMIT, "the hello is not taken");
        }
        link
    }
}

impl Link {
    /// False when the other side has closed.
    fn say(&mut self, bytes: &[u8]) -> bool {
        let (mut wire, mut sent) = (Vec::new(), 0);
        while sent < bytes.len() {
            sent += self.sealer.seal(&bytes[sent..], &mut wire);
        }
        self.stream.write_all(&wire).is_ok()
    }

    /// Takes received bytes; answers whether the other side has closed.
    fn hear(&mut self) -> bool {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(n) => {
                let heard = &mut self.heard;
                let opened = self.sealer.open(&buffer[..n], &mut Vec::new(), &mut |plain| {
                    heard.extend_from_slice(plain)
                });
                opened.is_err()
            }
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    fn is_closed(&mut self) {
        let begin = Instant::now();
        while !self.hear() {
            assert!(begin.elapsed() < LIMIT, "the connection is still open");
        }
    }

    /// The same, but it goes on to send `what`, which is valid: a silent connection is closed, too.
    fn is_closed_though_it_says(&mut self, what: &[u8], after: &str) {
        let begin = Instant::now();
        while self.say(what) && !self.hear() {
            assert!(begin.elapsed() < LIMIT, "the connection is still open after {after}");
        }
    }
}

/// A consensus message as `skein_log::wire` writes it, of term 1: the newest there is is 2 or later.
fn message(kind: u8, from: u64, to: u64, entries: &[(u64, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![1, kind, 0, 0];
    // from, to, term, log term, index, commit, commit term, hint
    for field in [from, to, 1, 1, 1, 0, 0, 0] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for (index, payload) in entries {
        bytes.push(0);
        bytes.extend_from_slice(&1u64.to_le_bytes());
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// Of the message's term.
const TERM: std::ops::Range<usize> = 4 + 2 * 8..4 + 3 * 8;

/// The leader, and its term.
fn standing(cluster: &Cluster) -> (u64, u64) {
    let leader = cluster.leader();
    (leader, cluster.status(leader).unwrap().replica.term)
}

#[test]
fn nonsense_ends_the_connection_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = cluster(dir.path());
    let liar = Liar::of(&mut cluster);
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    let before = standing(&cluster);
    let nodes: Vec<NodeConfig> =
        cluster.configs.iter().filter(|config| config.id != liar.id).cloned().collect();
    let mut elsewhere = Vec::new();
    frame::encode(&mut elsewhere, ClusterId(5), KIND_RAFT, &[]);
    let whole = liar.frame(KIND_APP, &[1; 8]);
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes
    };
    let too_long = (frame::MAX_PAYLOAD_BYTES as u32 + 1).to_le_bytes();
    let frames = [
        ("noise", b"GET / HTTP/1.1\r\n\r\n".repeat(4)),
        ("another cluster", elsewhere),
        ("another version", changed(4, &[9])),
        ("a length that is too long", changed(24, &too_long)),
        ("a wrong checksum", changed(whole.len() - 1, &[9])),
    ];
    // Of an old term, which is allowed.
    let good = |node: &NodeConfig| liar.frame(KIND_RAFT, &message(4, liar.id, node.id, &[]));
    for node in &nodes {
        for (what, bytes) in &frames {
            // In place of a hello, and after it.
            let mut link = liar.dial(node);
            link.say(bytes);
            link.is_closed();
            let mut link = liar.join(node);
            link.say(bytes);
            link.is_closed_though_it_says(&good(node), what);
            assert_eq!(client.ask("get a"), "1", "{what}");
        }
        let mut link = liar.dial(node);
        let stranger = Hello { replica: ReplicaId(9), ..Hello::decode(&liar.hello()).unwrap() };
        link.say(&liar.frame(KIND_HELLO, &stranger.encode()));
        link.is_closed();
        // Invalid content in whole frames.
        let messages = [
            ("no message", liar.frame(KIND_RAFT, b"not a message")),
            ("another's message", liar.frame(KIND_RAFT, &message(7, node.id, liar.id, &[]))),
            (
                "an entry of no known format",
                liar.frame(KIND_RAFT, &message(1, liar.id, node.id, &[(2, b"junk")])),
            ),
            ("a kind that there is not", liar.frame(200, b"what")),
        ];
        for (what, bytes) in &messages {
            let mut link = liar.join(node);
            link.say(bytes);
            link.is_closed_though_it_says(&good(node), what);
            assert_eq!(client.ask("get a"), "1", "{what}");
        }
    }
    // Of an old term, and otherwise valid: it has no effect.
    for node in &nodes {
        let mut link = liar.join(node);
        for kind in 1..=9 {
            link.say(&liar.frame(KIND_RAFT, &message(kind, liar.id, node.id, &[])));
        }
        // It is still a replica to the node, which keeps sending to it.
        let heard = link.heard.len();
        wait_for("the node to say more", || {
            assert!(!link.hear());
            (link.heard.len() > heard).then_some(())
        });
    }
    assert_eq!(client.ask("set a 2"), "ok");
    assert_eq!(standing(&cluster), before);
}

/// A generator of numbers that look random (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// `SKEIN_TEST_SEED` repeats a run that failed.
#[test]
fn changed_frames_end_no_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = cluster(dir.path());
    let liar = Liar::of(&mut cluster);
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    let seed = std::env::var("SKEIN_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SKEIN_TEST_SEED={seed}");
    let mut numbers = Numbers(seed);
    let nodes: Vec<NodeConfig> =
        cluster.configs.iter().filter(|config| config.id != liar.id).cloned().collect();
    for node in &nodes {
        let mut link = liar.enter(node);
        for _ in 0..CHANGED {
            let (kind, mut payload) = match numbers.below(3) {
                0 => {
                    let kind = 1 + numbers.below(9) as u8;
                    let entry = [1, 0, 0, 0, 1, 0, 0, 0].repeat(4);
                    let entries = [(2, &entry[..])];
                    let entries = if kind == 1 { &entries[..] } else { &[] };
                    (KIND_RAFT, message(kind, liar.id, node.id, entries))
                }
                1 => (KIND_APP + numbers.below(13) as u8, numbers.next().to_le_bytes().to_vec()),
                _ => {
                    let len = numbers.below(64);
                    let noise = (0..len).map(|_| numbers.next() as u8).collect();
                    (KIND_APP + numbers.below(13) as u8, noise)
                }
            };
            if !payload.is_empty() {
                for _ in 0..1 + numbers.below(3) {
                    let at = numbers.below(payload.len());
                    payload[at] = numbers.next() as u8;
                }
            }
            if kind == KIND_RAFT {
                // A message of a future term may depose a leader: any replica may send it.
                payload[TERM].copy_from_slice(&1u64.to_le_bytes());
            }
            let mut bytes = liar.frame(kind, &payload);
            if numbers.below(8) == 0 {
                let at = numbers.below(bytes.len());
                bytes[at] = numbers.next() as u8;
            }
            if !link.say(&bytes) || numbers.below(40) == 0 {
                link = liar.enter(node);
            }
        }
        // All of it was read: the last message is answered by the end of the connection. A next one is taken, which waits for that.
        link.say(b"the end of it, in no frame at all");
        link.is_closed();
        let mut link = liar.join(node);
        link.say(b"the end of it, in no frame at all");
        link.is_closed();
    }
    assert_eq!(cluster.running().len(), 2);
    wait_for("service", || {
        let mut client = cluster.client();
        (client.try_ask("get a").ok()? == "1").then_some(())
    });
    for node in &nodes {
        cluster.stop(node.id).unwrap();
    }
}
