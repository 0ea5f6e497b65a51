//! `skein signal`: a signal goes through the log to the server of every replica, and survives a failover and a restart; a signal from outside is
//! ignored.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use common::cluster::{Cluster, free_port};
use common::{PATIENCE, Place, assert_line, guest_server, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn start() -> Cluster {
    let place = Place::new();
    let port = free_port();
    let server = guest_server(&place, "signal_count");
    Cluster::start_in(place, port, &[], &[server.to_str().unwrap(), &port.to_string()])
}

fn send(cluster: &Cluster, signal: &str) {
    let output = cluster.place.run(&["signal", "--name", "t", signal]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", cluster.evidence());
}

#[test]
fn every_replica_gets_it() {
    let cluster = start();
    let status = cluster.wait_ready();
    assert_eq!(cluster.ask("?"), "0 0");
    send(&cluster, "SIGUSR1");
    // It returns when the leader's server has it.
    assert_eq!(cluster.ask("?"), "1 0");
    send(&cluster, "hup");
    send(&cluster, "10");
    assert_eq!(cluster.ask("?"), "2 1");

    // One from outside is ignored, and noted.
    let (leader, node) = Cluster::leader(&status);
    let server = Cluster::replica(&status, leader)["server_pid"].as_i64().unwrap() as i32;
    kill(Pid::from_raw(server), Signal::SIGUSR1).unwrap();
    let log = cluster.place.path(&format!("data/node-{leader}/node.log"));
    wait_for("the signal from outside to be noted", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.contains("skein signal").then_some(())
    });
    assert_eq!(cluster.ask("?"), "2 1");

    // The followers have counted, too: one of them answers now.
    kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
    wait_for("another leader", || {
        let (status, _) = cluster.status();
        status["leader"].as_u64().filter(|id| *id != leader)
    });
    assert_eq!(cluster.ask("?"), "2 1");
    send(&cluster, "SIGUSR1");
    assert_eq!(cluster.ask("?"), "3 1");
    // The replica that was killed executes the log again, signals included, and agrees.
    cluster.wait_status(0);
    let digests = wait_for("equal digests", || {
        let (status, _) = cluster.status();
        let rows = status["replicas"].as_array()?.clone();
        let all: Vec<_> =
            rows.iter().map(|r| (r["digest_index"].clone(), r["digest"].clone())).collect();
        all.iter().all(|d| *d == all[0]).then_some(all)
    });
    assert_eq!(digests.len(), 3);
}

#[test]
fn what_cannot_be_sent_is_said() {
    let cluster = start();
    cluster.wait_ready();
    let run = |signal: &str| cluster.place.run(&["signal", signal]);
    assert_line(&run("SIGKILL"), 2, &["SIGKILL", "skein stop"]);
    assert_line(&run("TSTP"), 2, &["TSTP", "terminal"]);
    assert_line(&run("SIGNOPE"), 2, &["SIGNOPE", "no such signal"]);
    assert_line(&cluster.place.run(&["signal"]), 2, &["SIGNAL"]);
    assert_line(&cluster.place.run(&["signal", "--name", "u", "HUP"]), 3, &["cluster u"]);
    assert_eq!(cluster.ask("?"), "0 0");
}

/// A stopped server's clients wait; it finds their requests when it continues.
#[test]
fn one_that_stops_the_server_stops_it_everywhere() {
    let cluster = start();
    cluster.wait_ready();
    assert_eq!(cluster.ask("?"), "0 0");
    let mut client = TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"?\n").unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"0 0\n");

    send(&cluster, "STOP");
    let index = applied(&cluster);
    client.write_all(b"?\n").unwrap();
    // All replicas have the request; none answers. The next leader's server is stopped, too.
    wait_for("the question to be in the log", || (applied(&cluster) > index).then_some(()));
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut answer).unwrap_err().kind(), ErrorKind::WouldBlock);
    let (leader, node) = Cluster::leader(&cluster.wait_status(0));
    kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
    wait_for("another leader", || {
        let (status, _) = cluster.status();
        status["leader"].as_u64().filter(|id| *id != leader)
    });
    let mut client = TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
    client.write_all(b"?\n").unwrap();
    cluster.wait_status(0);
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut answer).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();

    send(&cluster, "USR1");
    send(&cluster, "CONT");
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"1 0\n");
    assert_eq!(cluster.ask("?"), "1 0");
}

/// The last entry that all replicas' servers have executed.
fn applied(cluster: &Cluster) -> u64 {
    let (status, _) = cluster.status();
    let rows = status["replicas"].as_array().cloned().unwrap_or_default();
    rows.iter().filter_map(|row| row["applied_index"].as_u64()).min().unwrap_or(0)
}

#[test]
fn one_that_ends_the_server_ends_it_everywhere() {
    let mut cluster = start();
    cluster.wait_ready();
    let _ = cluster.place.run(&["signal", "TERM"]);
    assert_eq!(cluster.wait_end(), Some(128 + 15), "{}", cluster.said());
}
