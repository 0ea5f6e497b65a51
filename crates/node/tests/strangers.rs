//! Strangers to the cluster: they hear nothing, change nothing, and keep no one out.

mod common;

use common::{Cluster, wait_for};
use skein_log::ClusterId;
use skein_log::frame::{self, Hello};
use skein_model::ReplicaId;
use skein_node::config::DurabilityMode::Memory;
use skein_node::config::{Address, NodeConfig};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// More than a node's limit of waiting connections.
const MANY: usize = 300;

fn keyed(dir: &std::path::Path, key: &str) -> impl Fn(&mut NodeConfig) + use<> {
    let path = dir.join("key");
    std::fs::write(&path, key).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    move |config| config.key_file = Some(path.clone())
}

fn dial(config: &NodeConfig) -> TcpStream {
    let stream = TcpStream::connect(config.listen_address().unwrap().tcp().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// All bytes until the other side closes; a test fails when it does not.
fn all_of(mut stream: impl Read) -> Vec<u8> {
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("not closed: {e}"),
        _ => heard,
    }
}

/// The hello of another replica, and a heartbeat of a term that is far ahead: a node that believed it would end.
fn forged(config: &NodeConfig) -> Vec<u8> {
    let cluster = ClusterId(config.cluster());
    let other = ReplicaId(if config.id == 1 { 2 } else { 1 });
    let hello = Hello {
        membership: skein_model::LogIndex(0),
        replica: other,
        incarnation: 0,
        durability: skein_log::Durability::Memory,
        program: skein_log::ProgramHash([7; 32]),
        levels: None,
    };
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, cluster, frame::KIND_HELLO, &hello.encode());
    frame::encode(&mut bytes, cluster, frame::KIND_RAFT, &[0xff; 64]);
    bytes
}

#[test]
fn with_a_key_a_stranger_hears_nothing_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::with(3, Memory, keyed(dir.path(), &"1f".repeat(32)));
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    let leader = cluster.leader();
    let term = cluster.status(leader).unwrap().replica.term;
    for config in &cluster.configs {
        let mut liar = dial(config);
        liar.write_all(&forged(config)).unwrap();
        assert_eq!(all_of(liar), b"");
        // A silent stranger is told nothing before it is cut.
        assert_eq!(all_of(dial(config)), b"");
        assert_eq!(client.ask("get a"), "1");
    }
    assert_eq!(cluster.leader(), leader);
    assert_eq!(cluster.status(leader).unwrap().replica.term, term);
}

#[test]
fn without_a_key_a_node_does_not_speak_first() {
    let cluster = Cluster::new(3, Memory);
    cluster.leader();
    for config in &cluster.configs {
        assert_eq!(all_of(dial(config)), b"");
        let mut lost = dial(config);
        let mut elsewhere = config.clone();
        elsewhere.cluster_id = Some("5".repeat(32));
        lost.write_all(&forged(&elsewhere)).unwrap();
        assert_eq!(all_of(lost), b"");
    }
}

#[test]
fn connections_that_say_nothing_keep_no_replica_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::with(3, Memory, keyed(dir.path(), &"1f".repeat(32)));
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    let leader = cluster.leader();
    let other = (1..=3).find(|id| *id != leader).unwrap();
    cluster.stop(other).unwrap();
    let mut idle: Vec<TcpStream> = Vec::new();
    // They come again as soon as they are cut.
    let mut crowd = |cluster: &Cluster| {
        idle.retain(|stream| {
            stream.set_nonblocking(true).unwrap();
            let got = (&*stream).read(&mut [0]);
            got.is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
        });
        while idle.len() < 3 * MANY {
            let id = idle.len() % 3;
            match TcpStream::connect(cluster.configs[id].listen_address().unwrap().tcp().unwrap()) {
                Ok(stream) => idle.push(stream),
                Err(_) => break,
            }
        }
    };
    crowd(&cluster);
    cluster.start(other).unwrap();
    wait_for("the replica to be heard", || {
        crowd(&cluster);
        cluster.status(other).filter(|status| status.leader.is_some())
    });
    assert_eq!(client.ask("get a"), "1");
}

#[test]
fn another_key_is_another_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::with(3, Memory, keyed(dir.path(), &"1f".repeat(32)));
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    let leader = cluster.leader();
    let odd = (1..=3).find(|id| *id != leader).unwrap();
    cluster.stop(odd).unwrap();
    keyed(other.path(), &"2e".repeat(32))(&mut cluster.configs[odd as usize - 1]);
    cluster.start(odd).unwrap();
    assert_eq!(client.ask("set a 2"), "ok");
    let status = wait_for("its status", || cluster.status(odd));
    assert_eq!(status.leader, None);
}

#[test]
fn nodes_on_unix_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    let cluster = Cluster::with(3, Memory, move |config| {
        for peer in &mut config.peers {
            peer.address = Address::Unix(root.join(format!("{}.sock", peer.id)));
        }
    });
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    assert_eq!(client.ask("get a"), "1");
    cluster.agree();
    let Some(Address::Unix(path)) = cluster.configs[0].listen_address() else { panic!() };
    let stranger = UnixStream::connect(path).unwrap();
    stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(all_of(stranger), b"");
}

#[test]
fn a_network_wants_a_key_or_trust() {
    let cluster = Cluster::new(1, Memory);
    let mut config = cluster.configs[0].clone();
    config.peers[0].address = "192.0.2.1:7100".parse().unwrap();
    let refused = config.check().unwrap_err().to_string();
    assert!(refused.starts_with("key_file: is needed") && refused.contains("trust_network"));
    let trusting = NodeConfig { trust_network: true, ..config.clone() };
    trusting.check().unwrap();
    NodeConfig { key_file: Some("/nowhere".into()), ..config }.check().unwrap();
}
