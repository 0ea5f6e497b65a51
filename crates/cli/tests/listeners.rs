//! Which of a server's sockets a client from outside reaches: the one that Linux would choose, by TCP and UDP.

mod common;

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use common::cluster::{ask_once, free_port};
use common::own::compiled;
use common::real::Real;
use common::{Place, wait_for};

/// The sockets at one port, in order, and the answer to a client of 127.0.0.1: the socket, the client's address, the server's.
/// "both" is the wildcard of IPv6 without `IPV6_V6ONLY`.
const KINDS: [(&str, &str); 8] = [
    ("::1,127.0.0.1", "127.0.0.1 127.0.0.1 127.0.0.1"),
    ("127.0.0.1,::1", "127.0.0.1 127.0.0.1 127.0.0.1"),
    ("0.0.0.0,127.0.0.1", "127.0.0.1 127.0.0.1 127.0.0.1"),
    ("both,127.0.0.1,::1", "127.0.0.1 127.0.0.1 127.0.0.1"),
    ("::,0.0.0.0", "0.0.0.0 127.0.0.1 127.0.0.1"),
    ("both", "both ::ffff:127.0.0.1 ::ffff:127.0.0.1"),
    // No IPv4 socket listens: the client's address is translated.
    ("::", ":: ::1 ::1"),
    ("::1", "::1 ::1 ::1"),
];

/// A datagram and its answer; `None` when there is none in time.
fn ask_by_datagram(port: u16) -> Option<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    let mut answer = [0; 256];
    let mut asked = || -> io::Result<usize> {
        socket.send(b"x")?;
        socket.recv(&mut answer)
    };
    let n = asked().ok()?;
    Some(String::from_utf8_lossy(&answer[..n]).trim_end().to_string())
}

#[test]
fn a_client_reaches_the_socket_that_linux_would_choose() {
    let place = Place::new();
    let ports = KINDS.map(|_| free_port());
    let mut server = vec![compiled(&place, "listeners.c").to_str().unwrap().to_string()];
    server.extend(KINDS.iter().zip(ports).map(|((kind, _), port)| format!("{kind}={port}")));
    let real = Real::serve(place, ports[0], &[], server);
    for ((kind, want), port) in KINDS.iter().zip(ports) {
        let by_tcp = wait_for("an answer by TCP", || ask_once(("127.0.0.1", port), "x"));
        assert_eq!(by_tcp, *want, "{kind} by TCP");
        let by_udp = wait_for("an answer by UDP", || ask_by_datagram(port));
        let (wanted, _) = want.rsplit_once(' ').unwrap();
        assert_eq!(by_udp, wanted, "{kind} by UDP");
    }
    real.end();
}
