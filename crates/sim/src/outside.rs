//! Hosts outside of the cluster that its server speaks to: the kind of host at each port, and its behaviour.
//!
//! Each connection names its cause in its address, and so do the first bytes on it ([`Cause`](crate::server::Cause)): a host can tell whether it was
//! reached because of a committed entry, and only once.

use skein_model::SockAddr;
use std::io;

/// `ECONNREFUSED`.
pub const REFUSED: u16 = 111;
/// `ENETUNREACH`.
const UNREACHABLE: i32 = 101;
/// An address without a receiver of datagrams.
pub const NOBODY: u16 = 9;

/// The behaviour of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Answers the first bytes.
    Answers,
    /// Shuts its sending side after them.
    Ends,
    /// Resets the connection after them.
    Resets,
    /// Refuses connections.
    Refuses,
    /// Never answers a connection.
    Hangs,
    /// There is no route to it.
    Unreachable,
}

/// All of them; the port is the position.
pub const HOSTS: [Host; 6] =
    [Host::Answers, Host::Ends, Host::Resets, Host::Refuses, Host::Hangs, Host::Unreachable];

/// The host at an address.
pub fn host(at: SockAddr) -> Host {
    HOSTS[usize::from(at.port) % HOSTS.len()]
}

/// The reason why a connection cannot even be begun, if there is one.
pub fn refuses_at_once(to: SockAddr) -> Option<io::Error> {
    (host(to) == Host::Unreachable).then(|| io::Error::from_raw_os_error(UNREACHABLE))
}
