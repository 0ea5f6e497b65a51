//! A node's environment: the machine that it runs on.

use super::clients::ClientSocket;
use super::datagrams::Datagrams;
use super::forwarding::Forwarding;
use super::images::{ImageWork, PART_BYTES};
use super::old::OldReader;
use super::peers::Peers;
use super::ports::Ports;
use super::sources::Sources;
use super::{CLIENTS, Mailbox, SERVER};
use crate::base::work::BaseWork;
use crate::begin::Answered;
use crate::error::NodeError;
use crate::images::Restart;
use crate::members;
use crate::place;
use crate::server::Launcher;
use crate::server::cores::Cores;
use crate::server::launch::Keeper;
use crate::transport::Address;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use nix::time::{ClockId, clock_gettime};
use skein_arena::layout::Sizes;
use skein_log::frame::Levels;
use skein_log::identity::Identity;
use skein_log::wal::thread::WalThread;
use skein_log::{LogEntry, OldEntries, Persist, Ticket};
use skein_model::{ConnId, EntryBuilder, LogIndex, ReplicaId, SockAddr, Term, WallNs};
use skein_replica::ReplicaError;
use skein_replica::environment::{
    Clock, Image, ImageFile, ImageNews, Images, Kept, Observer, Outside, PeerEvent, Places,
    Servers, Since, Storage, Transport,
};
use skein_replica::replica::Inbox;
use skein_replica::server::{Link, ServerState};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The watched events of a connection.
const INTEREST: Interest = Interest::READABLE.add(Interest::WRITABLE).add(Interest::PRIORITY);

/// See the [module](self).
pub struct System {
    pub(super) sources: Sources,
    pub(super) start: Instant,
    pub(super) mailbox: Mailbox,
    pub(super) peers: Peers,
    pub(super) heard: Vec<PeerEvent>,
    pub(super) ports: Ports,
    pub(super) datagrams: Datagrams,
    pub(super) forwarding: Forwarding,
    pub(super) wal: Option<WalThread>,
    /// Reads old entries for followers that are far behind.
    pub(super) old: Option<OldReader>,
    pub(super) data_dir: PathBuf,
    /// Images of the server; none in a run without a directory.
    pub(super) images: Option<ImageWork>,
    /// Keeps what the server uses of its host; none in such a run.
    pub(super) base: Option<BaseWork>,
    /// The log is being made to begin behind this entry.
    pub(super) forgetting: Option<(Ticket, LogIndex)>,
    pub(super) launcher: Arc<dyn Launcher>,
    /// The server's process, and earlier ones.
    pub(super) keeper: Option<Keeper>,
    pub(super) former: Vec<Keeper>,
    /// Notes when the outside first sees anything of what is in the log.
    pub(super) answered: Answered,
    /// What is on disk of a log in memory.
    pub(super) identity: Option<Identity>,
    /// Others that are not spoken to yet, as that could not be written there.
    pub(super) unmet: Option<Unmet>,
    /// The members, for the next life.
    pub(super) members: members::Notes,
    /// Where the loop's thread may run.
    pub(super) cores: Cores,
}

impl Clock for System {
    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> WallNs {
        WallNs(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64))
    }

    fn steady(&self) -> Duration {
        // The clock exists since Linux 2.6.39, and its reading is valid.
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        // SAFETY: writes at most 32 bytes into `seed`.
        let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        assert_eq!(got, 32, "the kernel gives random bytes");
        seed
    }
}

/// After so long it is tried again to write that this replica is not alone.
const MEETS_AGAIN: Duration = Duration::from_secs(1);

/// Others that are not spoken to before something is on the disk.
pub(super) struct Unmet {
    peers: Vec<(ReplicaId, Address)>,
    since: Option<Since>,
    /// When that is tried again.
    until: Duration,
}

impl Transport for System {
    fn heard(&mut self) -> &mut Vec<PeerEvent> {
        &mut self.heard
    }

    fn connected(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.peers.connected()
    }

    fn send(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool {
        self.peers.send(to, kind, payload, true)
    }

    fn send_later(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool {
        self.peers.send(to, kind, payload, false)
    }

    fn flush(&mut self, now: Duration) {
        if let Some(Unmet { peers, since, .. }) = self.unmet.take_if(|unmet| now >= unmet.until) {
            let peers = peers.into_iter().map(|(id, address)| (id, address.to_string()));
            self.set_peers(peers.collect(), since, now);
        }
        self.peers.flush(self.sources.urgent(), now, &mut self.heard);
    }

    fn distrust(&mut self, peer: ReplicaId, why: &str, now: Duration) {
        self.peers.distrust(peer, why, now, &mut self.heard);
    }

    fn set_peers(&mut self, peers: Vec<(ReplicaId, String)>, since: Option<Since>, now: Duration) {
        let parsed = peers.into_iter().filter_map(|(id, text)| match text.parse() {
            Ok(address) => Some((id, address)),
            Err(why) => {
                tracing::error!(event = "peer_address", replica = id.0, address = text, why);
                None
            }
        });
        let peers: Vec<_> = parsed.collect();
        self.unmet = None;
        let identity = self.identity.as_mut().filter(|_| !peers.is_empty());
        if let Some(Err(error)) = identity.map(Identity::meets_others) {
            tracing::error!(event = "others_not_met", %error);
            self.unmet = Some(Unmet { peers, since, until: now + MEETS_AGAIN });
            return self.peers.set(Vec::new(), since, now, &mut self.heard);
        }
        if let Some(since) = since {
            self.members.note(since.index, &peers);
        }
        self.peers.set(peers, since, now, &mut self.heard);
    }

    fn silent_after(&mut self, silence: Duration) {
        self.peers.silent_after(silence);
    }

    fn say_levels(&mut self, levels: Option<Levels>) {
        self.peers.say_levels(levels);
    }

    fn host(&self, peer: ReplicaId) -> Option<IpAddr> {
        self.peers.host(peer)
    }

    fn traffic(&self) -> (u64, u64) {
        (self.peers.bytes_in, self.peers.bytes_out)
    }
}

impl System {
    /// This is about to be written to the log.
    pub(super) fn writes(&mut self, persist: &Persist) {
        if let Some(new) = &persist.base {
            self.forgetting = Some((persist.ticket, new.base().index));
        }
    }

    /// The log is on disk up to here.
    pub(super) fn wrote(&mut self, ticket: Ticket) {
        if let Some((_, index)) = self.forgetting.take_if(|(forgetting, _)| *forgetting <= ticket)
            && let Some(base) = &self.base
        {
            base.log_forgot(index.0);
        }
    }
}

impl Storage for System {
    fn has_log(&self) -> bool {
        self.wal.is_some()
    }

    fn append(&mut self, persist: Persist) {
        self.writes(&persist);
        if let Some(wal) = &self.wal {
            wal.append(persist);
        }
    }

    fn is_full(&self) -> bool {
        self.wal.as_ref().is_some_and(WalThread::is_full)
    }

    fn read_old(&mut self, wanted: OldEntries) -> Result<(), ReplicaError> {
        self.old
            .as_mut()
            .map_or(Ok(()), |reader| reader.read(wanted, &self.mailbox).map_err(Into::into))
    }

    fn note_answered(&mut self) -> io::Result<()> {
        self.answered.note()
    }

    fn is_answer_noted(&self) -> bool {
        self.answered.is_noted()
    }

    fn begin_answering(&mut self, now: Duration) -> bool {
        self.answered.noted(now)
    }

    fn look_at_answering(&mut self, now: Duration) -> io::Result<()> {
        self.answered.look(now)
    }

    fn answering_wake(&self, now: Duration) -> Option<Duration> {
        self.answered.wake(now)
    }

    fn answering_since(&self) -> Option<Duration> {
        self.answered.waits_since()
    }

    fn keep(&mut self, name: &str, text: impl FnOnce() -> String) -> Kept {
        let file = self.data_dir.join(name);
        if file.exists() {
            return Kept::Before;
        }
        match std::fs::write(&file, text()) {
            Ok(()) => Kept::At(file),
            Err(error) => Kept::Failed(file, error),
        }
    }
}

impl Outside for System {
    type Socket = ClientSocket;

    fn publish(
        &mut self,
        listening: &BTreeSet<SockAddr>,
        receiving: &BTreeSet<SockAddr>,
        serves: bool,
    ) -> Result<(), ReplicaError> {
        self.ports.follow(listening, serves, self.sources.crowd())?;
        Ok(self.datagrams.follow(receiving, serves, self.sources.crowd())?)
    }

    fn places(&self) -> Vec<(u16, SocketAddr)> {
        self.ports.places()
    }

    fn addresses(&self) -> Vec<String> {
        [self.ports.addresses(), self.datagrams.addresses()].concat()
    }

    fn may_accept(&self) -> bool {
        self.ports.may_accept()
    }

    fn client_waits(&mut self) -> bool {
        self.ports.client_waits()
    }

    fn accept(&mut self) -> Option<(ClientSocket, SockAddr, SockAddr)> {
        let (stream, peer, local) = self.ports.accept()?;
        Some((ClientSocket::new(stream), peer.into(), local))
    }

    fn watch(&mut self, id: ConnId, socket: &mut ClientSocket) -> io::Result<()> {
        self.sources.crowd().register(&mut socket.0, token(id), INTEREST)
    }

    fn connect(&mut self, id: ConnId, to: SockAddr) -> io::Result<ClientSocket> {
        let mut socket = ClientSocket::new(TcpStream::connect(to.into())?);
        self.watch(id, &mut socket)?;
        Ok(socket)
    }

    fn forward(&mut self, leader: Option<(ReplicaId, Term)>, to: Option<&Places>, now: Duration) {
        self.forwarding.forward(leader, to, &mut self.ports, now);
    }

    fn has_datagrams(&self) -> bool {
        self.datagrams.has_input()
    }

    fn collect_datagrams(&mut self, entry: &mut EntryBuilder<Vec<u8>>) {
        self.datagrams.collect(entry);
    }

    fn hears_anybody(&self, local: SockAddr) -> bool {
        self.datagrams.heard_from(local)
    }

    fn send_datagram(&mut self, local: SockAddr, peer: SockAddr, bytes: &[u8]) -> io::Result<()> {
        self.datagrams.send(local, peer, bytes, self.sources.crowd())
    }

    fn datagram_failed(&mut self, local: SockAddr, peer: SockAddr, error: &io::Error) {
        self.datagrams.fail(local, peer, error);
    }

    fn close_datagrams(&mut self, local: SockAddr) {
        self.datagrams.close(local);
    }
}

impl Servers for System {
    fn make_arena(&mut self, sizes: Sizes, generation: u64) {
        let mailbox = self.mailbox.clone();
        let make = move || {
            let made = Link::new(sizes, generation, None).map(Box::new);
            // The reactor is gone when the node ends.
            let _ = mailbox.tell(Inbox::Arena(made));
        };
        if let Err(error) = Builder::new().name("skein-arena".into()).spawn(make) {
            let failed = NodeError::system("start a thread for the arena")(error);
            // Read in the next turn.
            let _ = self.mailbox.tell(Inbox::Arena(Err(failed.into())));
        }
    }

    fn start(&mut self, link: &Link, from: Option<LogIndex>) -> Result<(), ReplicaError> {
        if let Some(mut keeper) = self.keeper.take() {
            keeper.kill();
            self.former.push(keeper);
        }
        self.former.extract_if(.., |keeper| keeper.is_over()).for_each(Keeper::finish);
        let generation = link.generation;
        let token = Token(SERVER + generation as usize);
        self.sources
            .urgent()
            .register(&mut SourceFd(&link.wake_fd()), token, Interest::READABLE)
            .map_err(NodeError::system("watch the server"))?;
        let (arena, wake) = link.descriptors().map_err(NodeError::system("copy a descriptor"))?;
        let mailbox = self.mailbox.clone();
        let tell = move |event| {
            // The reactor is gone when the node ends.
            let _ = mailbox.tell(Inbox::Server(generation, event));
        };
        let from = from.map(|index| {
            let images = self.images.as_ref().expect("an image of this environment's");
            Restart { store: images.store().clone(), index }
        });
        let launcher = match link.edition.about.as_str() {
            "" => self.launcher.clone(),
            about => self.launcher.of_edition(about),
        };
        if from.is_none() && launcher.import().is_some() {
            link.await_launch();
        }
        let passage = link.passage.clone();
        let keeper = Keeper::start(launcher, arena, wake, passage, from, tell)
            .map_err(NodeError::system("start a thread for the server"))?;
        self.keeper = Some(keeper);
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.kill();
        }
    }

    fn finish(&mut self) {
        self.former.extend(self.keeper.take());
        self.former.drain(..).for_each(Keeper::finish);
    }

    fn retire(&mut self, link: Link) {
        let files = self.images.as_ref().map(ImageWork::forget_server);
        // Closing its eventfd takes it out of the poll; later events of it are ignored. Without a thread it is dropped here.
        drop(Builder::new().name("skein-arena".into()).spawn(move || drop((link, files))));
    }

    fn describe(&self, server: u32, thread: u32, address: u64) -> (u32, String) {
        let process = place::process(server, thread);
        (process, place::name(process, address))
    }

    fn may_share_core(&mut self) -> bool {
        self.cores = Cores::of_this_thread();
        self.cores.are_several()
    }

    fn bind_to_core(&mut self) -> Option<u32> {
        self.cores.bind()
    }

    fn unbind_from_core(&mut self) {
        self.cores.unbind();
    }
}

impl Images for System {
    const PART_BYTES: u64 = PART_BYTES;

    fn images_at_start(&mut self) -> Vec<Image> {
        let all = self.images.as_ref().map(|images| images.store().all()).unwrap_or_default();
        if let (Some(base), Some(image)) = (&mut self.base, all.first()) {
            all.iter().for_each(|image| base.hold(&image.state.edition.about, image.index().0));
            base.begins_behind(&image.state, false);
        }
        all
    }

    fn begins_behind(&mut self, image: &Image) {
        if let Some(base) = &mut self.base {
            base.hold(&image.state.edition.about, image.index().0);
            base.begins_behind(&image.state, true);
        }
    }

    fn doubt_images(&mut self, before: LogIndex) {
        if let Some(images) = &mut self.images {
            images.doubt(before);
        }
    }

    fn doubted(&mut self) -> LogIndex {
        self.images.as_ref().map_or(LogIndex(0), |images| images.store().doubted())
    }

    fn image_counts(&mut self, image: &Image) {
        if let Some(base) = &mut self.base {
            base.hold(&image.state.edition.about, image.index().0);
        }
    }

    fn prepare_image(&mut self, server: &Link) -> bool {
        let Some(images) = &mut self.images else { return false };
        server.stood().is_ok_and(|stood| images.prepare(stood, server.paths()))
    }

    fn hurry_image(&mut self) {
        self.images.iter().for_each(ImageWork::hurry);
    }

    fn take_image(&mut self, server: &Link, state: ServerState) {
        let images = self.images.as_mut().ok_or("this run has no directory for images");
        let begun = images.map_err(String::from).and_then(|images| {
            if state.ended.is_none() {
                images.take(server.stood()?, state);
            } else {
                let files = server.files.clone().ok_or("it has no private layer of files")?;
                images.keep_files(files, server.memory(), state);
            }
            Ok(())
        });
        if let Err(why) = begun {
            // Read in the next turn.
            let _ = self.mailbox.tell(Inbox::Images(ImageNews::NotTaken(why.into())));
        }
    }

    fn confirm_image(&mut self, index: LogIndex) {
        if let Some(images) = &mut self.images {
            images.confirm(index);
        }
    }

    fn check_image(&mut self, index: LogIndex) {
        if let Some(images) = &mut self.images {
            images.check(index);
        }
    }

    fn remove_image(&mut self, index: LogIndex, damaged: bool) {
        if let Some(images) = &mut self.images {
            images.remove(index, damaged);
        }
    }

    fn read_image(&mut self, to: ReplicaId, index: LogIndex, from: u64) {
        if let Some(images) = &mut self.images {
            images.read(to, index, from);
        }
    }

    fn receive_image(&mut self, file: ImageFile, from: u64, bytes: Vec<u8>) {
        if let Some(images) = &mut self.images {
            images.receive(file, from, bytes);
        }
    }
}

impl Observer for System {
    fn committed(&mut self, entry: &LogEntry) {
        if let Some(base) = &mut self.base {
            base.committed(entry);
        }
    }

    fn forgot(&mut self, index: LogIndex) {
        // A log on disk tells when it has written that.
        if let Some(base) = self.base.as_ref().filter(|_| self.wal.is_none()) {
            base.log_forgot(index.0);
        }
    }
}

fn token(id: ConnId) -> Token {
    Token(CLIENTS + (id.0 as u32) as usize)
}
