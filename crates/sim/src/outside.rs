//! Hosts outside of the cluster that its server speaks to: which port stands for which kind of host, and what it does.
//!
//! Each connection names its cause in its address, and the first bytes on it do again ([`Cause`](crate::server::Cause)): a host can tell whether it was
//! reached by what is committed, and only once.

use skein_model::SockAddr;
use std::io;

/// `ECONNREFUSED`.
pub const REFUSED: u16 = 111;
/// `ENETUNREACH`.
const UNREACHABLE: i32 = 101;
/// Where nobody waits for datagrams.
pub const NOBODY: u16 = 9;

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Answers the first bytes.
    Answers,
    /// Closes its direction after them.
    Ends,
    /// Resets the connection after them.
    Resets,
    /// Refuses connections.
    Refuses,
    /// Never answers a connection.
    Hangs,
    /// There is no way to it.
    Unreachable,
}

/// All of them; the port is the position.
pub const HOSTS: [Host; 6] =
    [Host::Answers, Host::Ends, Host::Resets, Host::Refuses, Host::Hangs, Host::Unreachable];

/// The host at an address.
pub fn host(at: SockAddr) -> Host {
    HOSTS[usize::from(at.port) % HOSTS.len()]
}

/// Why a connection cannot even be begun, if so.
pub fn refuses_at_once(to: SockAddr) -> Option<io::Error> {
    (host(to) == Host::Unreachable).then(|| io::Error::from_raw_os_error(UNREACHABLE))
}
