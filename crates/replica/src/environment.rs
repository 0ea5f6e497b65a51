//! A replica's environment: clocks, other replicas, a disk, clients, a server's process and images of it.
//!
//! A [`Replica`](crate::Replica) decides; all effects are behind these traits. A node's environment is the machine; a simulation has one of its own,
//! and drives the same replica with it. Nothing here blocks: slow work is begun, and its result is told later ([`crate::Inbox`]).

use crate::error::ReplicaError;
use crate::gateway::Socket;
use crate::server::{Link, ServerState};
use skein_arena::layout::Sizes;
use skein_log::frame::{Hello, Levels};
use skein_log::{LogEntry, OldEntries, Persist};
use skein_model::{ConnId, EntryBuilder, LogIndex, ReplicaId, SockAddr, Term, WallNs};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time.
pub trait Clock {
    /// Time since the replica began.
    fn elapsed(&self) -> Duration;
    /// The reading of this host's wall clock; before 1970 it is 0.
    fn wall(&self) -> WallNs;
    /// A clock that is never set and that continues while the machine is suspended.
    fn steady(&self) -> Duration;
    /// Random bytes, different each time.
    fn seed(&mut self) -> [u8; 32];
}

/// An event from another replica.
#[derive(Debug)]
pub enum PeerEvent {
    /// It is connected, with its hello.
    Joined(Hello),
    /// A frame of it.
    Frame(ReplicaId, u8, Vec<u8>),
    /// Its connection closed.
    Lost(ReplicaId),
}

/// The change of the members that a replica has applied last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// Its entry.
    pub index: LogIndex,
    /// So many have a vote since.
    pub voters: usize,
}

impl Since {
    /// What a replica is told that is no member.
    #[must_use]
    pub fn gone(&self) -> Vec<u8> {
        [self.index.0, self.voters as u64].map(u64::to_le_bytes).concat()
    }
}

/// Messages between replicas: in order while a connection lasts, and lost with it.
pub trait Transport {
    /// Arrived events that are not yet taken.
    fn heard(&mut self) -> &mut Vec<PeerEvent>;
    /// The connected replicas.
    fn connected(&self) -> impl Iterator<Item = ReplicaId> + '_;
    /// Queues a message; false when the replica is not connected or takes nothing.
    fn send(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool;
    /// Queues a message that may wait until another one to this replica is sent; false as above.
    fn send_later(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool;
    /// Sends queued messages.
    fn flush(&mut self, now: Duration);
    /// A replica has sent invalid bytes: its connection ends.
    fn distrust(&mut self, peer: ReplicaId, why: &str, now: Duration);
    /// From now on these are the other replicas, each with its node's address; connections with others end. `since`: the change of the members that says so,
    /// for one that does not know it; without, this replica joins, and listens to any replica of the cluster.
    fn set_peers(&mut self, peers: Vec<(ReplicaId, String)>, since: Option<Since>, now: Duration);
    /// From now on a connection without a message for so long is silent, and ends.
    fn silent_after(&mut self, silence: Duration);
    /// From now on hellos say this of levels.
    fn say_levels(&mut self, levels: Option<Levels>);
    /// A replica's host, where it is on one that can be another; what it listens on at all addresses is reached there.
    fn host(&self, peer: ReplicaId) -> Option<IpAddr>;
    /// Bytes received and sent so far.
    fn traffic(&self) -> (u64, u64);
}

/// The result of keeping a text.
#[derive(Debug)]
pub enum Kept {
    /// It was kept before.
    Before,
    /// It is kept there.
    At(PathBuf),
    /// It cannot be kept.
    Failed(PathBuf, io::Error),
}

/// The replica's disk.
pub trait Storage {
    /// Whether the log is kept on it.
    fn has_log(&self) -> bool;
    /// Makes this durable, beside the replica; told by [`Inbox::Durable`](crate::Inbox::Durable).
    fn append(&mut self, persist: Persist);
    /// Whether it is full, and the log waits.
    fn is_full(&self) -> bool;
    /// Reads entries that memory no longer has, beside the replica; told by [`Inbox::Old`](crate::Inbox::Old).
    ///
    /// # Errors
    /// It cannot be begun.
    fn read_old(&mut self, wanted: OldEntries) -> Result<(), ReplicaError>;
    /// Something of the server reaches the outside now: a client is accepted, a connection made, a datagram sent. Notes that at once and durably, once
    /// in the life of a replica.
    ///
    /// # Errors
    /// It cannot be written, and nothing may leave.
    fn note_answered(&mut self) -> io::Result<()>;
    /// Whether that is noted.
    fn is_answer_noted(&self) -> bool;
    /// It is about to happen: whether it is noted. If not, that begins beside the replica, which a disk that hangs does not stop.
    fn begin_answering(&mut self, now: Duration) -> bool;
    /// Looks at what was begun.
    ///
    /// # Errors
    /// Why it failed; it is tried again later.
    fn look_at_answering(&mut self, now: Duration) -> io::Result<()>;
    /// While it is being noted, or must wait: when to look again.
    fn answering_wake(&self, now: Duration) -> Option<Duration>;
    /// Since when the disk has been waited for.
    fn answering_since(&self) -> Option<Duration>;
    /// Keeps a text for an operator under this name, unless there is one.
    fn keep(&mut self, name: &str, text: impl FnOnce() -> String) -> Kept;
}

/// Clients and other hosts.
pub trait Outside {
    /// A connection's socket.
    type Socket: Socket;

    /// Publishes the server's listening and datagram ports; only the leader that `serves` accepts and reads.
    ///
    /// # Errors
    /// An address cannot be had.
    fn publish(
        &mut self,
        listening: &BTreeSet<SockAddr>,
        receiving: &BTreeSet<SockAddr>,
        serves: bool,
    ) -> Result<(), ReplicaError>;
    /// The published address of each server port, for connections.
    fn places(&self) -> Vec<(u16, SocketAddr)>;
    /// The clients' addresses of the server, in words.
    fn addresses(&self) -> Vec<String>;
    /// Whether [`accept`](Self::accept) may find a client.
    fn may_accept(&self) -> bool;
    /// Whether a client waits to be accepted.
    fn client_waits(&mut self) -> bool;
    /// The next client, with its own address and the one that it connected to.
    fn accept(&mut self) -> Option<(Self::Socket, SockAddr, SockAddr)>;
    /// Reports events of a connection from now on.
    ///
    /// # Errors
    /// It cannot.
    fn watch(&mut self, id: ConnId, socket: &mut Self::Socket) -> io::Result<()>;
    /// Begins a connection that the server asked for, and watches it.
    ///
    /// # Errors
    /// Those of `connect`.
    fn connect(&mut self, id: ConnId, to: SockAddr) -> io::Result<Self::Socket>;
    /// Forwards clients of this replica to the leader, as far as it is known; `to` is nothing when this replica leads.
    fn forward(&mut self, leader: Option<(ReplicaId, Term)>, to: Option<&Places>, now: Duration);
    /// Whether datagrams came.
    fn has_datagrams(&self) -> bool;
    /// Puts them into an entry.
    fn collect_datagrams(&mut self, entry: &mut EntryBuilder<Vec<u8>>);
    /// Whether a socket of the server may answer any sender.
    fn hears_anybody(&self, local: SockAddr) -> bool;
    /// Sends a datagram.
    ///
    /// # Errors
    /// It cannot be sent, for a reason that a sender would see.
    fn send_datagram(&mut self, local: SockAddr, peer: SockAddr, bytes: &[u8]) -> io::Result<()>;
    /// Tells the server that one of its datagrams cannot arrive.
    fn datagram_failed(&mut self, local: SockAddr, peer: SockAddr, error: &io::Error);
    /// The server closed a socket for datagrams.
    fn close_datagrams(&mut self, local: SockAddr);
}

/// The replica that last said that it leads, and its clients' address.
pub type Places = (ReplicaId, Vec<(u16, SocketAddr)>);

/// Servers' processes, one generation after the other.
pub trait Servers {
    /// Makes the arena of a generation, beside the replica; told by [`Inbox::Arena`](crate::Inbox::Arena).
    fn make_arena(&mut self, sizes: Sizes, generation: u64);
    /// Starts a server with this arena, beside the replica; told by [`Inbox::Server`](crate::Inbox::Server). The one before is killed. `from`: it continues
    /// from this replica's image after that entry.
    ///
    /// # Errors
    /// It cannot be begun.
    fn start(&mut self, link: &Link, from: Option<LogIndex>) -> Result<(), ReplicaError>;
    /// Ends the server.
    fn kill(&mut self);
    /// Ends it and waits until it is gone, and those before it.
    fn finish(&mut self);
    /// Unmaps the arena of a generation that has ended, beside the replica.
    fn retire(&mut self, link: Link);
    /// Where a thread of the server's process `server` is, in words: `thread` is its number as the server sees it. Also which process that is.
    fn describe(&self, server: u32, thread: u32, address: u64) -> (u32, String);
    /// The calling thread may share its core with the server from now on, if it is on a machine where it has a choice.
    fn may_share_core(&mut self) -> bool;
    /// Binds the calling thread to the core that it is on; answers which, from 1. `None`: it may not.
    fn bind_to_core(&mut self) -> Option<u32>;
    /// Lets the calling thread run anywhere again.
    fn unbind_from_core(&mut self);
}

/// An image of the server on this replica's disk, whole.
#[derive(Clone, Debug)]
pub struct Image {
    /// What the replica knew of the server.
    pub state: Arc<ServerState>,
    /// Its file.
    pub file: ImageFile,
}

impl Image {
    /// The last entry that the server had executed.
    #[must_use]
    pub fn index(&self) -> LogIndex {
        self.file.index
    }
}

/// The file of an image, as replicas name it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// The last entry that the server had executed.
    pub index: LogIndex,
    /// Its length in bytes.
    pub bytes: u64,
    /// XXH3 of its bytes, 128 bits.
    pub digest: u128,
}

/// Why an image could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Its bytes are not what its sender said.
    Damage(String),
    /// There is no room for it.
    NoRoom(String),
    /// Anything else.
    Other(String),
}

impl Trouble {
    /// In words.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Damage(why) | Self::NoRoom(why) | Self::Other(why) => why,
        }
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

/// News of images.
#[derive(Debug)]
pub enum ImageNews {
    /// What could be read before the server stands was read.
    Prepared,
    /// The server was read, or its processes have made copies that are read, and may go on.
    Copied {
        /// Whether copies were made.
        forked: bool,
    },
    /// An image that is being taken here has all that it is made of. Before it is kept.
    Read {
        /// The server's last entry in it.
        index: LogIndex,
        /// The hash of all memory and files: the same on replicas whose servers are equal at this entry.
        root: u64,
        /// Pages of memory and files that were copied.
        pages: u64,
    },
    /// An image that was taken here is whole and durable.
    Kept(Image),
    /// One that was received is.
    Came(Image),
    /// The image of this entry counts, also at the next start, even after a loss of power.
    Named(LogIndex),
    /// That could not be done.
    NotNamed(LogIndex, Trouble),
    /// No image could be taken of the server: what it has that an image cannot hold, or the error.
    NotTaken(Trouble),
    /// So much was to be read in the server's files for the image of this entry that it was done while the server went on: it is to stand once more.
    FilesRead(LogIndex),
    /// So many bytes of a file are there; its next ones are awaited.
    Received(LogIndex, u64),
    /// A file could not be received, or is not what its sender said.
    NotReceived(LogIndex, Trouble),
    /// A file is not what was written.
    Damaged(LogIndex),
    /// Bytes of a file that another replica asked for, from this position on; none: they cannot be had.
    Part(ReplicaId, LogIndex, u64, Vec<u8>),
}

/// Images of the server, on the replica's disk. All work is done beside the replica, and told by [`Inbox::Images`](crate::Inbox::Images).
pub trait Images {
    /// Bytes that are read at a time for another replica.
    const PART_BYTES: u64;

    /// The confirmed images that were there at the start, oldest first; others are removed.
    fn images_at_start(&mut self) -> Vec<Image>;
    /// Reads what it can of a server that goes on, before it is to stand for an image: [`ImageNews::Prepared`]. False: it is to stand at once. The image may also begin before that is over.
    fn prepare_image(&mut self, server: &Link) -> bool;
    /// That is to end: [`ImageNews::Prepared`] soon.
    fn hurry_image(&mut self);
    /// Takes an image of the server, which stands after the entry of `state`: [`ImageNews::Copied`], [`ImageNews::Read`], then [`ImageNews::Kept`]; or [`ImageNews::NotTaken`]; or
    /// [`ImageNews::Copied`], and later [`ImageNews::FilesRead`] or [`ImageNews::NotTaken`].
    fn take_image(&mut self, server: &Link, state: ServerState);
    /// The server that the image of this entry was taken of was like the others' then: the image is to count, also at the next start: [`ImageNews::Named`] or
    /// [`ImageNews::NotNamed`]. One that was received counts from the beginning.
    fn confirm_image(&mut self, index: LogIndex);
    /// Reads a whole image, and compares it with its digest: [`ImageNews::Damaged`] if it is not what was written.
    fn check_image(&mut self, index: LogIndex);
    /// Removes the image of this entry. `damaged`: it is kept under another name for an operator.
    fn remove_image(&mut self, index: LogIndex, damaged: bool);
    /// Reads bytes of an image for another replica, from a position on: [`ImageNews::Part`].
    fn read_image(&mut self, to: ReplicaId, index: LogIndex, from: u64);
    /// Bytes of a file from another replica, from a position on; none: it begins, or continues where an earlier try ended. [`ImageNews::Received`], and at the
    /// end of the file [`ImageNews::Came`]; or [`ImageNews::NotReceived`].
    fn receive_image(&mut self, file: ImageFile, from: u64, bytes: Vec<u8>);
    /// Images of earlier entries may have what differed between servers: that is known at the next start, too, as [`Self::doubted`].
    fn doubt_images(&mut self, _before: LogIndex) {}
    /// What was said of that last, in this life or another.
    fn doubted(&mut self) -> LogIndex {
        LogIndex(0)
    }
    /// The log begins behind this image, which came from another replica: a server that continues from it needs the files of its edition.
    fn begins_behind(&mut self, _image: &Image) {}
    /// An image counts from now on: a server may continue from it.
    fn image_counts(&mut self, _image: &Image) {}
}

/// An observer: none on a machine, a simulation's checks.
pub trait Observer {
    /// An entry is committed, and handed out for the first time in this life.
    fn committed(&mut self, _entry: &LogEntry) {}
    /// The log has forgotten all up to this entry; where it is on disk, that is not durable yet.
    fn forgot(&mut self, _index: LogIndex) {}
    /// This replica leads from now on.
    fn leads(&mut self, _term: Term) {}
}

/// The whole environment.
pub trait Environment: Clock + Transport + Storage + Outside + Servers + Images + Observer {}

impl<T: Clock + Transport + Storage + Outside + Servers + Images + Observer> Environment for T {}
