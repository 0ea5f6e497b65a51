//! Free ports that nothing else takes before they are used.
//!
//! A closed port that the kernel had picked may be taken again at once, as the source port of any connection. The ports here
//! lie below the range of source ports, and each is reserved for as long as the process lives: by a socket
//! with a name that the kernel forgets together with the process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::sync::Mutex;

/// Below the ports of `skein run`'s own nodes and the kernel's source ports (`net.ipv4.ip_local_port_range`).
const PORTS: std::ops::Range<u16> = 10_000..20_000;

/// A port on 127.0.0.1 that is free for TCP and UDP.
pub fn free_port() -> io::Result<u16> {
    static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    let mut reserved = RESERVED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Processes start at different ports, so that they seldom collide.
    let count = PORTS.len();
    let first = std::process::id() as usize * 97 % count;
    for port in (0..count).map(|n| PORTS.start + ((first + n) % count) as u16) {
        let name = UnixAddr::from_abstract_name(format!("skein-port-{port}"))?;
        let Ok(reservation) = UnixDatagram::bind_addr(&name) else { continue };
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            reserved.push(reservation);
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The address of such a port.
pub fn free_address() -> io::Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_can_be_bound() {
        let ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        let mut different = ports.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ports.len());
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn what_another_process_reserved_or_uses_is_not_given() {
        let next = free_port().unwrap() + 1;
        let name = UnixAddr::from_abstract_name(format!("skein-port-{next}")).unwrap();
        let _theirs = UnixDatagram::bind_addr(&name);
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, next + 1));
        let got = free_port().unwrap();
        assert!(got != next && got != next + 1, "{got}");
    }
}
