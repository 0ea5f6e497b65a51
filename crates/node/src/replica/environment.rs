//! What a replica has around it: clocks, other replicas, a disk, clients, a server's process.
//!
//! A [`Replica`](super::Replica) decides; whatever does something is behind these traits. A node's environment is the machine
//! ([`crate::reactor`]); a simulation has one of its own, and drives the same replica with it. Nothing here blocks: what takes long is begun, and what
//! came of it is told later ([`super::Inbox`]).

use crate::error::NodeError;
use crate::gateway::Socket;
use crate::server::Link;
use skein_arena::layout::Sizes;
use skein_log::frame::Hello;
use skein_log::{LogEntry, OldEntries, Persist};
use skein_model::{ConnId, EntryBuilder, ReplicaId, SockAddr, Term, WallNs};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Time.
pub trait Clock {
    /// Since the replica began.
    fn elapsed(&self) -> Duration;
    /// What this host's wall clock shows; one before 1970 shows 0.
    fn wall(&self) -> WallNs;
    /// A clock that nobody sets and that goes on while the machine is suspended.
    fn steady(&self) -> Duration;
    /// Random bytes, different each time.
    fn seed(&mut self) -> [u8; 32];
}

/// What other replicas bring.
#[derive(Debug)]
pub enum PeerEvent {
    /// One is there, with what it said.
    Joined(Hello),
    /// A frame of it.
    Frame(ReplicaId, u8, Vec<u8>),
    /// Its connection closed.
    Lost(ReplicaId),
}

/// Messages between replicas: in order while a connection lasts, and lost with it.
pub trait Transport {
    /// What came and is not yet taken.
    fn heard(&mut self) -> &mut Vec<PeerEvent>;
    /// Who is connected.
    fn connected(&self) -> impl Iterator<Item = ReplicaId> + '_;
    /// Queues a message; false when the replica is not connected or takes nothing.
    fn send(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool;
    /// Sends what is queued.
    fn flush(&mut self, now: Duration);
    /// One has sent what no node sends: its connection ends.
    fn distrust(&mut self, peer: ReplicaId, why: &str, now: Duration);
    /// Bytes that came and went so far.
    fn traffic(&self) -> (u64, u64);
}

/// What came of keeping a text.
#[derive(Debug)]
pub enum Kept {
    /// It was kept before.
    Before,
    /// It is kept there.
    At(PathBuf),
    /// It cannot be.
    Failed(PathBuf, io::Error),
}

/// The replica's disk.
pub trait Storage {
    /// Whether the log is kept on it.
    fn has_log(&self) -> bool;
    /// Makes this durable, beside the replica; told by [`Inbox::Durable`](super::Inbox::Durable).
    fn append(&mut self, persist: Persist);
    /// Whether it is full, and the log waits.
    fn is_full(&self) -> bool;
    /// Reads what memory no longer has, beside the replica; told by [`Inbox::Old`](super::Inbox::Old).
    ///
    /// # Errors
    /// It cannot be begun.
    fn read_old(&mut self, wanted: OldEntries) -> Result<(), NodeError>;
    /// Keeps a text for an operator under this name, unless there is one.
    fn keep(&mut self, name: &str, text: impl FnOnce() -> String) -> Kept;
}

/// Clients and other hosts.
pub trait Outside {
    /// A connection's socket.
    type Socket: Socket;

    /// Publishes where the server listens and waits for datagrams; the leader that `serves` is who accepts and reads.
    ///
    /// # Errors
    /// An address cannot be had.
    fn publish(
        &mut self,
        listening: &BTreeSet<SockAddr>,
        receiving: &BTreeSet<SockAddr>,
        serves: bool,
    ) -> Result<(), NodeError>;
    /// Which port of the server is published where, for connections.
    fn places(&self) -> Vec<(u16, SocketAddr)>;
    /// Where clients reach the server, in words.
    fn addresses(&self) -> Vec<String>;
    /// Whether [`accept`](Self::accept) may find a client.
    fn may_accept(&self) -> bool;
    /// Whether a client waits to be accepted.
    fn client_waits(&mut self) -> bool;
    /// The next client, with its own address and the one that it connected to.
    fn accept(&mut self) -> Option<(Self::Socket, SockAddr, SockAddr)>;
    /// Tells from now on what happens on a connection.
    ///
    /// # Errors
    /// It cannot.
    fn watch(&mut self, id: ConnId, socket: &mut Self::Socket) -> io::Result<()>;
    /// Begins a connection that the server asked for, and watches it.
    ///
    /// # Errors
    /// Those of `connect`.
    fn connect(&mut self, id: ConnId, to: SockAddr) -> io::Result<Self::Socket>;
    /// Passes clients that came to this replica on to the one that leads, as far as is known; `to` is nowhere when this one does.
    fn forward(&mut self, leader: Option<(ReplicaId, Term)>, to: Option<&Places>, now: Duration);
    /// Whether datagrams came.
    fn has_datagrams(&self) -> bool;
    /// Puts them into an entry.
    fn collect_datagrams(&mut self, entry: &mut EntryBuilder<Vec<u8>>);
    /// Whether a socket of the server answers whoever speaks to it.
    fn hears_anybody(&self, local: SockAddr) -> bool;
    /// Sends a datagram.
    ///
    /// # Errors
    /// It cannot be sent, for a reason that a sender would be told.
    fn send_datagram(&mut self, local: SockAddr, peer: SockAddr, bytes: &[u8]) -> io::Result<()>;
    /// Tells the server that one that it sent cannot arrive.
    fn datagram_failed(&mut self, local: SockAddr, peer: SockAddr, error: &io::Error);
    /// The server closed a socket for datagrams.
    fn close_datagrams(&mut self, local: SockAddr);
}

/// Which replica said last that it leads, and where clients reach it.
pub type Places = (ReplicaId, Vec<(u16, SocketAddr)>);

/// Servers' processes, one generation after the other.
pub trait Servers {
    /// Makes the arena of a generation, beside the replica; told by [`Inbox::Arena`](super::Inbox::Arena).
    fn make_arena(&mut self, sizes: Sizes, generation: u64);
    /// Starts a server with this arena, beside the replica; told by [`Inbox::Server`](super::Inbox::Server). The one before is killed.
    ///
    /// # Errors
    /// It cannot be begun.
    fn start(&mut self, link: &Link) -> Result<(), NodeError>;
    /// Ends the server.
    fn kill(&mut self);
    /// Ends it and waits until it is gone, and those before it.
    fn finish(&mut self);
    /// Unmaps the arena of a generation that has ended, beside the replica.
    fn retire(&mut self, link: Link);
}

/// Who looks on: on a machine nobody, in a simulation its checks.
pub trait Observer {
    /// An entry is committed, and handed out for the first time in this life.
    fn committed(&mut self, _entry: &LogEntry) {}
    /// This replica leads from now on.
    fn leads(&mut self, _term: Term) {}
}

/// All of it.
pub trait Environment: Clock + Transport + Storage + Outside + Servers + Observer {}

impl<T: Clock + Transport + Storage + Outside + Servers + Observer> Environment for T {}
