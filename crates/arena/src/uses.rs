//! Features that a server has used, counted by kind: an answer to "what does this program do?", never an input of anything.
//!
//! The runtime counts when an object is made, never on a hot path; a node reads plain numbers that it need not trust.

use crate::sync::{AtomicU64, Ordering};

/// A kind of feature. The number is its place in the header and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Use {
    /// Threads created, the main one not counted.
    Threads = 0,
    /// Processes forked or spawned.
    Processes = 1,
    /// Programs executed in place of another.
    Programs = 2,
    /// TCP sockets.
    TcpSockets = 3,
    /// UDP sockets.
    UdpSockets = 4,
    /// UNIX sockets, pairs included.
    UnixSockets = 5,
    /// Outgoing connections.
    Outgoing = 6,
    /// Pipes.
    Pipes = 7,
    /// Files opened for writing or created.
    FilesWritten = 8,
    /// Timer objects made: timerfd, interval timers, POSIX timers.
    Timers = 9,
    /// Signal handlers installed.
    SignalHandlers = 10,
    /// Requests for random bytes.
    Randomness = 11,
    /// Requests for the network interfaces.
    Interfaces = 12,
    /// What the kernel was told about memory, and shows only where it counts pages: copies at a fork, huge pages, protection keys, seals.
    MemoryAdvice = 13,
    /// Files of `/proc` opened for writing: what a process tells the kernel of itself.
    OwnSettings = 14,
}

/// Room in the header, some of it for later kinds.
pub const PLACES: usize = 32;

impl Use {
    /// All kinds, in order of their places.
    pub const ALL: [Self; 15] = [
        Self::Threads,
        Self::Processes,
        Self::Programs,
        Self::TcpSockets,
        Self::UdpSockets,
        Self::UnixSockets,
        Self::Outgoing,
        Self::Pipes,
        Self::FilesWritten,
        Self::Timers,
        Self::SignalHandlers,
        Self::Randomness,
        Self::Interfaces,
        Self::MemoryAdvice,
        Self::OwnSettings,
    ];

    /// Its name in reports and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
            Self::Programs => "programs",
            Self::TcpSockets => "tcp_sockets",
            Self::UdpSockets => "udp_sockets",
            Self::UnixSockets => "unix_sockets",
            Self::Outgoing => "outgoing_connections",
            Self::Pipes => "pipes",
            Self::FilesWritten => "files_written",
            Self::Timers => "timers",
            Self::SignalHandlers => "signal_handlers",
            Self::Randomness => "randomness",
            Self::Interfaces => "interfaces",
            Self::MemoryAdvice => "memory_advice",
            Self::OwnSettings => "own_settings",
        }
    }
}

/// The counters.
#[repr(C)]
#[derive(Debug)]
pub struct Uses([AtomicU64; PLACES]);

impl Uses {
    /// Adds one.
    #[inline]
    pub fn note(&self, kind: Use) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn count(&self, kind: Use) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_place_and_name() {
        for (place, kind) in Use::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert!(Use::ALL[..place].iter().all(|other| other.name() != kind.name()));
        }
        assert!(Use::ALL.len() <= PLACES);
    }
}
