//! memcached from Debian with a UDP port on three replicas: values stored under one leader are found under the next, and the
//! replicas stay identical.

mod common;

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use common::cluster::{Cluster, free_port};
use common::real::{Random, Real, at_once};
use common::{PATIENCE, Place, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A datagram without an answer is sent again after this.
const AGAIN: Duration = Duration::from_millis(200);

/// A client of memcached's UDP protocol: a head of request number, number and count of datagrams, then text.
struct Client {
    socket: UdpSocket,
    request: u16,
}

impl Client {
    fn new(port: u16) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(AGAIN)).unwrap();
        Self { socket, request: 0 }
    }

    /// Asks until there is an answer, in one datagram.
    fn ask(&mut self, text: &str) -> String {
        let limit = std::time::Instant::now() + PATIENCE;
        while std::time::Instant::now() < limit {
            self.request += 1;
            let mut bytes = self.request.to_be_bytes().to_vec();
            bytes.extend([0, 0, 0, 1, 0, 0]);
            bytes.extend(text.as_bytes());
            self.socket.send(&bytes).unwrap();
            let mut answer = [0; 2000];
            loop {
                match self.socket.recv(&mut answer) {
                    // An answer to an earlier try may come late.
                    Ok(n) if answer[..2] != self.request.to_be_bytes() => assert!(n >= 8),
                    Ok(n) => {
                        assert_eq!(answer[2..6], [0, 0, 0, 1]);
                        return String::from_utf8(answer[8..n].to_vec()).unwrap();
                    }
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        break;
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        }
        panic!("waited for {PATIENCE:?}: an answer to {text:?}");
    }

    fn set(&mut self, key: &str, value: &str) {
        let text = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(self.ask(&text), "STORED\r\n");
    }

    fn get(&mut self, key: &str) -> Option<String> {
        let answer = self.ask(&format!("get {key}\r\n"));
        let rest = answer.strip_prefix(&format!("VALUE {key} 0 "))?;
        let (_, value) = rest.split_once("\r\n").unwrap();
        Some(value.strip_suffix("\r\nEND\r\n").unwrap().to_string())
    }
}

fn memcached() -> Real {
    let (port, place) = (free_port(), Place::new());
    let shown = port.to_string();
    let server = [
        "/usr/bin/memcached",
        "-u",
        "root",
        "-t",
        "2",
        "-p",
        &shown,
        "-U",
        &shown,
        "-l",
        "0.0.0.0",
    ];
    let real = Real::serve(place, port, &[], server.map(String::from).to_vec());
    real.cluster.wait_said(&format!("UDP port {port} is published at 127.0.0.1:{port}"));
    real
}

#[test]
fn what_was_stored_by_datagrams_survives_two_leaders() {
    let real = memcached();
    for round in 0..3 {
        at_once(8, |me| {
            let (mut client, mut random) = (Client::new(real.port()), Random::new(me as u64));
            for number in 0..50 {
                let key = format!("{round}:{me}:{number}");
                client.set(&key, &format!("value of {key}"));
                let earlier = random.below(number + 1);
                let key = format!("{}:{me}:{earlier}", random.below(round + 1));
                let found = client.get(&key);
                // All values of an earlier round are there.
                assert_eq!(found, Some(format!("value of {key}")));
            }
        });
        if round < 2 {
            let (_, leader) = Cluster::leader(&real.cluster.wait_status(0));
            kill(Pid::from_raw(leader), Signal::SIGKILL).unwrap();
        }
    }
    // A TCP client sees the same.
    let mut text = common::text::Memcached::connect(real.port(), common::real::ANSWER).unwrap();
    let item = text.get("0:3:7").unwrap().expect("stored");
    assert_eq!(item.value, b"value of 0:3:7");
    real.end();
}

#[test]
fn a_port_that_is_not_named_gets_no_datagrams() {
    let (port, place) = (free_port(), Place::new());
    let (shown, named) = (port.to_string(), format!("127.0.0.1:{port}"));
    let server = ["/usr/bin/memcached", "-u", "root", "-p", &shown, "-U", &shown, "-l", "0.0.0.0"];
    let real = Real::serve(place, port, &["--publish", &named], server.map(String::from).to_vec());
    let outside = wait_for("the free port", || UdpSocket::bind(("127.0.0.1", port)).ok());
    drop(outside);
    assert!(!real.cluster.said().contains("UDP"), "{}", real.cluster.said());
    real.end();
}
