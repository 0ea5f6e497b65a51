//! One replica: clients, admission, limits, the server's misbehaviour.

mod common;

use common::{Client, Cluster, wait_for};
use nix::sys::socket::{MsgFlags, send};
use skein_node::ExitReason;
use skein_node::config::DurabilityMode::{Fsync, Memory};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

#[test]
fn a_client_is_served_and_the_log_survives_a_restart() {
    let mut cluster = Cluster::new(1, Fsync);
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    assert_eq!(client.ask("get a"), "1");
    drop(client);
    cluster.agree();
    assert_eq!(cluster.stop(1).unwrap(), ExitReason::Stopped);
    cluster.start(1).unwrap();
    assert_eq!(cluster.client().ask("get a"), "1");
}

#[test]
fn many_clients_share_entries() {
    let cluster = Cluster::new(1, Memory);
    let mut clients: Vec<_> = (0..200).map(|_| cluster.client()).collect();
    for round in 0..20 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.send(&format!("set k{i} {round}"));
        }
        assert!(clients.iter_mut().all(|c| c.line() == "ok"));
    }
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&format!("get k{i}")), "19");
    }
}

#[test]
fn large_replies_reach_slow_readers_and_others_do_not_wait() {
    let cluster = Cluster::new(1, Memory);
    let mut slow = cluster.client();
    let size = 20_000_000;
    slow.send(&format!("big {size}"));
    let mut quick = cluster.client();
    for i in 0..100 {
        assert_eq!(quick.ask(&format!("set x {i}")), "ok");
    }
    let mut bytes = vec![0; size];
    slow.stream.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
    assert_eq!(slow.ask("get x"), "99");
}

#[test]
fn large_requests_arrive_whole() {
    let cluster = Cluster::new(1, Memory);
    let mut client = cluster.client();
    let value = "v".repeat(5_000_000);
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    let line = format!("set big {value}\n");
    let thread = std::thread::spawn(move || writer.write_all(line.as_bytes()).unwrap());
    assert_eq!(client.line(), "ok");
    thread.join().unwrap();
    client.send("get big");
    assert!(client.line() == value);
}

#[test]
fn urgent_bytes_are_bytes_of_the_stream() {
    let cluster = Cluster::new(1, Memory);
    let mut client = cluster.client();
    client.stream.get_mut().write_all(b"set a 4").unwrap();
    // The last byte of such a send is the urgent one.
    let fd = client.stream.get_ref().as_raw_fd();
    assert_eq!(send(fd, b"2", MsgFlags::MSG_OOB).unwrap(), 1);
    client.send("");
    assert_eq!(client.line(), "ok");
    assert_eq!(client.ask("get a"), "42");
}

#[test]
fn ends_of_connections_keep_their_kind() {
    let cluster = Cluster::new(1, Memory);
    // The client half closes: it still gets its answer, then the end.
    let mut client = cluster.client();
    client.send("set a 5");
    client.stream.get_mut().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.line(), "ok");
    assert_eq!(client.end().unwrap(), 0);
    // The server closes in order.
    let mut client = cluster.client();
    assert_eq!(client.ask("close"), "bye");
    assert_eq!(client.end().unwrap(), 0);
    // The server shuts its sending side and still reads.
    let mut client = cluster.client();
    client.send("half");
    assert_eq!(client.end().unwrap(), 0);
    client.send("set after 1");
    let mut other = cluster.client();
    wait_for("the late line", || (other.ask("get after") == "1").then_some(()));
    drop(client);
    // The server resets.
    let mut client = cluster.client();
    client.send("abort");
    assert_eq!(client.end().unwrap_err().kind(), ErrorKind::ConnectionReset);
    // The client resets: closed with unread data.
    let mut client = cluster.client();
    client.send("big 1000");
    let mut one = [0];
    client.stream.get_mut().read_exact(&mut one).unwrap();
    drop(client);
    wait_for("all clients but one to be gone", || {
        cluster.status(1)?;
        let text = cluster.node(1).metrics.text();
        text.contains("skein_connections 1\n").then_some(())
    });
    assert_eq!(other.ask("get a"), "5");
}

#[test]
fn a_busy_server_gets_bubbles_and_an_idle_one_nothing() {
    let cluster = Cluster::new(1, Memory);
    let mut client = cluster.client();
    assert_eq!(client.ask("slots 50"), "done");
    let seen = &cluster.node(1).seen;
    assert!(seen.bubbles.load(Ordering::SeqCst) >= 40, "{seen:?}");
    let before = cluster.agree();
    // The status is asked many times: the loop turns, and nothing is proposed.
    for _ in 0..200 {
        assert_eq!(cluster.status(1).unwrap().replica.commit_index, before);
    }
}

#[test]
fn a_timer_of_the_server_makes_one_clock_entry() {
    let cluster = Cluster::new(1, Memory);
    let mut client = cluster.client();
    assert_eq!(client.ask("sleep 30"), "awake");
    assert_eq!(cluster.node(1).seen.clocks.load(Ordering::SeqCst), 1);
}

#[test]
fn the_servers_end_ends_the_node_with_its_status() {
    let mut cluster = Cluster::new(1, Memory);
    let mut client = cluster.client();
    client.send("exit 3");
    let reason = cluster.ended(1).unwrap();
    assert!(matches!(reason, ExitReason::ServerEnded { status: 0x300, .. }), "{reason:?}");
    assert_eq!(reason.code(), 3);
    assert!(client.end().is_err(), "the client is reset");
}

#[test]
fn garbage_in_the_output_ring_is_the_servers_fault() {
    let cluster = Cluster::new(1, Fsync);
    let mut client = cluster.client();
    assert_eq!(client.ask("set kept 1"), "ok");
    client.send("garbage-on 1");
    assert!(client.end().is_err(), "the client is reset");
    // Rebuilt from the log; the line that caused it is answered differently in its second life.
    let mut client = wait_for("the server to be rebuilt", || {
        let node = cluster.node(1);
        (node.seen.lives.load(Ordering::SeqCst) == 2).then(|| cluster.client())
    });
    assert_eq!(client.ask("get kept"), "1");
    assert!(cluster.status(1).unwrap().notes.iter().any(|n| n.contains("damaged its arena")));
}

#[test]
fn too_many_clients_are_reset() {
    let cluster = Cluster::with(1, Memory, |c| c.tuning.max_connections = 2);
    let mut first = cluster.client();
    assert_eq!(first.ask("set a 1"), "ok");
    let mut second = cluster.client();
    assert_eq!(second.ask("set a 2"), "ok");
    let mut third = Client::new(TcpStream::connect(cluster.service[0]).unwrap());
    assert!(third.end().is_err());
    drop(second);
    wait_for("room", || {
        let mut client = Client::new(TcpStream::connect(cluster.service[0]).ok()?);
        client.try_ask("get a").ok().filter(|a| a == "2")
    });
    assert!(cluster.status(1).unwrap().notes.iter().any(|n| n.contains("max_connections")));
}
