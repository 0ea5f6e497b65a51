//! Leaders and followers come and go under load: no acknowledged write is lost, and none comes from nowhere.

mod common;

use common::{Client, Cluster, wait_for};
use skein_node::ReplicaState;
use skein_node::config::DurabilityMode::{self, Fsync, Memory};
use skein_replica::replica::{Command, Inbox};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One writer: counts up in a key of its own, by whatever replica takes it.
#[derive(Default)]
struct Writer {
    tried: AtomicU64,
    acknowledged: AtomicU64,
}

fn write(key: usize, service: &[SocketAddr], writer: &Writer, stop: &AtomicBool) {
    let mut client: Option<Client> = None;
    let mut at = key;
    while !stop.load(Ordering::SeqCst) {
        let Some(c) = &mut client else {
            at += 1;
            client = TcpStream::connect(service[at % service.len()]).ok().map(Client::new);
            if let Some(c) = &client {
                // A follower without a leader makes its clients wait: then ask another one.
                c.stream
                    .get_ref()
                    .set_read_timeout(Some(std::time::Duration::from_millis(500)))
                    .unwrap();
            }
            continue;
        };
        let n = writer.tried.fetch_add(1, Ordering::SeqCst) + 1;
        match c.try_ask(&format!("set k{key} {n}")) {
            Ok(answer) => {
                assert_eq!(answer, "ok");
                writer.acknowledged.store(n, Ordering::SeqCst);
            }
            Err(_) => client = None,
        }
    }
}

fn churn(durability: DurabilityMode, rounds: u64) {
    let mut cluster = Cluster::new(3, durability);
    cluster.leader();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|key| {
            let writer = Arc::new(Writer::default());
            let (mine, stop, service) = (writer.clone(), stop.clone(), cluster.service.clone());
            let thread = std::thread::spawn(move || write(key, &service, &mine, &stop));
            (writer, thread)
        })
        .collect();
    let progress = |what: &str| {
        for (writer, _) in &writers {
            let before = writer.acknowledged.load(Ordering::SeqCst);
            wait_for(what, || {
                (writer.acknowledged.load(Ordering::SeqCst) > before + 3).then_some(())
            });
        }
    };
    for round in 0..rounds {
        progress("writes to go on");
        let leader = cluster.leader();
        let other =
            (1..=3).find(|id| *id != leader && (*id + round) % 2 == 0).unwrap_or(leader % 3 + 1);
        match round % 3 {
            0 => {
                let (reply, answer) = oneshot::channel();
                cluster
                    .node(leader)
                    .mailbox
                    .tell(Inbox::Command(Command::Transfer(Some(other), reply)));
                // It may have lost its leadership meanwhile.
                let _ = answer.recv();
            }
            kind => {
                let id = if kind == 1 { leader } else { other };
                cluster.stop(id).unwrap();
                progress("writes to go on with two replicas");
                cluster.start(id).unwrap();
                // A replica reports itself that it has caught up and has its vote: then the next one may go.
                wait_for("all to run", || {
                    (1..=3)
                        .all(|id| {
                            cluster
                                .status(id)
                                .is_some_and(|s| s.replica.state == ReplicaState::Running)
                        })
                        .then_some(())
                });
            }
        }
    }
    progress("writes to go on at the end");
    stop.store(true, Ordering::SeqCst);
    let writers: Vec<_> = writers.into_iter().map(|(w, t)| t.join().map(|()| w).unwrap()).collect();
    cluster.agree();
    let mut client = cluster.client();
    for (key, writer) in writers.iter().enumerate() {
        let value: u64 = client.ask(&format!("get k{key}")).parse().unwrap();
        let acknowledged = writer.acknowledged.load(Ordering::SeqCst);
        let tried = writer.tried.load(Ordering::SeqCst);
        assert!((acknowledged..=tried).contains(&value), "{acknowledged} <= {value} <= {tried}");
    }
    for id in 1..=3 {
        assert!(cluster.node(id).metrics.text().contains("skein_divergences_total 0\n"));
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_the_log_on_disk() {
    churn(Fsync, 12);
}

#[test]
fn nothing_acknowledged_is_lost_with_the_log_in_memory() {
    churn(Memory, 12);
}
