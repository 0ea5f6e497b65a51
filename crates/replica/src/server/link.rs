//! The arena's node side: entries in, frames out.
//!
//! Owns one generation's arena, its rings' node ends, the position in the log and the digest of its output. Trusts
//! nothing that the server wrote: impossible data make the server [`Broken`], never the node.

use crate::editions::Edition;
use crate::error::ReplicaError;
use crate::server::ahead::Ahead;
use crate::server::feed::Feed;
use crate::server::passage::Passage;
use crate::server::tap::Tap;
use crate::server::{Files, MemoryPlace, ServerState, Stood};
use crate::verdicts::digest::OutputDigest;
use crate::verdicts::events::Events;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use skein_arena::inodes::{INODE_BYTES, INODES};
use skein_arena::layout::{Header, Sizes, state};
use skein_arena::{Arena, Consumer, Producer, asks, full};
use skein_model::entry;
use skein_model::fact::are_facts;
use skein_model::frame::{FRAME_HEADER_BYTES, entry_frame_bytes, put_entry_frame};
use skein_model::pad8;
use skein_model::{EntryRef, LogIndex, OutFrame, SockAddr, Term, WallNs};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

mod planned;
pub use planned::Planned;

/// Impossible data of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl Broken {
    /// With the reason.
    #[must_use]
    pub fn new(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }
}

/// What a server did with entries that are not committed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// As [`Link::waits`], but such entries count.
    pub waits: Option<u32>,
    /// Something that is to leave follows from them.
    pub speaks: bool,
}

/// One generation of the server, seen from its node.
#[derive(Debug)]
pub struct Link {
    // Before the arena, whose memory they point into.
    input: Producer,
    output: Consumer,
    arena: Arena,
    arena_fd: OwnedFd,
    wake_fd: EventFd,
    /// The number of this start of the server.
    pub generation: u64,
    /// Its process; 0 until it is started.
    pub pid: u32,
    /// The parent of all its processes; 0 until it is started.
    init: u32,
    /// Its private layer.
    pub files: Option<Files>,
    /// Its keeper's knowledge of the log.
    pub passage: Arc<Passage>,
    /// Its position in the log.
    pub feed: Feed,
    /// Entries that it has executed before their commit.
    pub ahead: Ahead,
    /// Its output.
    pub digest: OutputDigest,
    /// Its last actions.
    pub events: Events,
    /// The last entry that it admitted.
    pub admitted: LogIndex,
    /// Its listening addresses.
    pub listening: BTreeSet<SockAddr>,
    /// Its datagram addresses.
    pub receiving: BTreeSet<SockAddr>,
    /// The exit status that it announced.
    pub exit: Option<i32>,
    /// The reason why it stopped.
    pub fatal: Option<String>,
    /// The changed file of the host, and the change.
    pub differs: Option<String>,
    /// The observer, if there is one.
    pub tap: Option<Box<dyn Tap>>,
    /// The runtime may sleep although it has work: an entry, or room that it waits for.
    unseen: bool,
    /// Its next output is for this entry, which was not committed at the last look.
    held: Option<LogIndex>,
    /// Its next output is valid only when this question is answered, which it was not at the last look.
    held_ask: Option<u64>,
    /// The entries given to it that answer questions.
    answers: VecDeque<(u64, LogIndex)>,
    /// The last entry that it has executed and whose output has been taken.
    settled: LogIndex,
    /// Its output no longer counts.
    condemned: bool,
    /// It is to be restored as it was after this entry, and has not been yet.
    restoring: Option<LogIndex>,
    /// Its server is to be given nothing before it is launched: until then its files come.
    awaits_launch: Cell<bool>,
    /// The first entry that it was given, by which it was started.
    start: Vec<u8>,
    /// The stamp of the last one that it was given.
    wall: WallNs,
    /// The paths of its host's files that were agreed on.
    paths: BTreeSet<Vec<u8>>,
    /// What it is started as.
    pub edition: Arc<Edition>,
    plans: planned::Plans,
}

impl Link {
    /// A fresh arena for a fresh server.
    ///
    /// # Errors
    /// There is no memory, or the sizes cannot be used.
    pub fn new(
        sizes: Sizes,
        generation: u64,
        corrupt_at: Option<LogIndex>,
    ) -> Result<Self, ReplicaError> {
        Self::make(sizes, generation, corrupt_at, false)
    }

    /// As [`new`](Self::new), with an arena that takes memory when it is first written: for tests with thousands of short-lived servers.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn sparse(sizes: Sizes, generation: u64) -> Result<Self, ReplicaError> {
        Self::make(sizes, generation, None, true)
    }

    fn make(
        sizes: Sizes,
        generation: u64,
        corrupt_at: Option<LogIndex>,
        sparse: bool,
    ) -> Result<Self, ReplicaError> {
        let arena_fd =
            memfd_create(c"skein-arena", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
                .map_err(|e| ReplicaError::System { what: "make the arena", error: e.into() })?;
        let arena = if sparse {
            Arena::create_sparse(arena_fd.as_raw_fd(), sizes)?
        } else {
            Arena::create(arena_fd.as_raw_fd(), sizes)?
        };
        let wake_fd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|e| ReplicaError::System { what: "make an eventfd", error: e.into() })?;
        // SAFETY: the arena was just made, these are its only node ends, and it is dropped after them.
        let (input, output) = unsafe { arena.node_ends() };
        Ok(Self {
            input,
            output,
            arena,
            arena_fd,
            wake_fd,
            generation,
            pid: 0,
            init: 0,
            files: None,
            passage: Arc::default(),
            feed: Feed::default(),
            ahead: Ahead::default(),
            digest: OutputDigest::new(corrupt_at),
            events: Events::default(),
            admitted: LogIndex(0),
            listening: BTreeSet::new(),
            receiving: BTreeSet::new(),
            exit: None,
            fatal: None,
            differs: None,
            tap: None,
            unseen: false,
            held: None,
            held_ask: None,
            answers: VecDeque::new(),
            settled: LogIndex(0),
            condemned: false,
            restoring: None,
            awaits_launch: Cell::new(false),
            start: Vec::new(),
            wall: WallNs(0),
            paths: BTreeSet::new(),
            edition: Arc::default(),
            plans: planned::Plans::default(),
        })
    }

    /// Before its server is started: it continues from an image, and what was known of the server then is known again.
    pub fn continue_from(&mut self, state: &ServerState) {
        let index = state.index;
        assert_eq!(self.feed, Feed::default(), "a link whose server was given nothing");
        self.feed = Feed::after(index);
        (self.admitted, self.settled) = (index, index);
        self.digest.continue_from(index, &state.digest);
        self.listening.clone_from(&state.listening);
        self.receiving.clone_from(&state.receiving);
        self.start.clone_from(&state.start);
        self.paths.clone_from(&state.paths);
        self.wall = state.wall;
        self.edition = Arc::new(state.edition.clone());
        self.passage.gives(index);
        self.passage.committed(index);
        self.restoring = Some(index);
    }

    /// Before its server is started: it begins an edition, on the files that another one left after the entry of `state`. The edition's first entry is its own.
    pub fn begin_edition(&mut self, state: &ServerState, edition: Arc<Edition>) {
        let index = state.index;
        assert_eq!(self.feed, Feed::default(), "a link whose server was given nothing");
        self.feed = Feed::after(index);
        // What is in between was for the servers before.
        self.feed.skip_to(LogIndex(edition.since));
        // The server that executed that entry has not lived on.
        (self.admitted, self.settled) = (index, LogIndex(index.0.saturating_sub(1)));
        self.digest.continue_from(index, &state.digest);
        self.wall = state.wall;
        self.passage.gives(index);
        self.passage.committed(index);
        self.edition = edition;
        self.await_launch();
    }

    /// From its start on, until it is [launched](Self::launched), its server is given nothing.
    pub fn await_launch(&self) {
        self.awaits_launch.set(true);
    }

    /// Whether its server is not yet as it was when the image was taken.
    #[must_use]
    pub const fn is_restoring(&self) -> bool {
        self.restoring.is_some()
    }

    /// What is to be known of the server when another one continues from here. It stands, and all that it has executed is committed; `base` is
    /// the log's at its last entry.
    #[must_use]
    pub fn server_state(&self, term: Term, base: Vec<u8>) -> ServerState {
        ServerState {
            index: self.feed.given(),
            term,
            base,
            wall: self.wall,
            start: self.start.clone(),
            digest: self.digest.state(),
            listening: self.listening.clone(),
            receiving: self.receiving.clone(),
            paths: self.paths.clone(),
            edition: (*self.edition).clone(),
            ended: None,
            processor: Vec::new(),
        }
    }

    /// The paths of its host's files that were agreed on.
    pub const fn paths(&self) -> &BTreeSet<Vec<u8>> {
        &self.paths
    }

    /// Copies of the descriptors that the server inherits: arena and eventfd.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn descriptors(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((
            self.arena_fd.try_clone()?,
            std::os::fd::AsFd::as_fd(&self.wake_fd).try_clone_to_owned()?,
        ))
    }

    /// The runtime's table of changed files; `None` where it has none, or an impossible one.
    fn times_at(&self) -> Option<u64> {
        let (header, sizes) = (self.header(), self.arena.sizes());
        let at = usize::try_from(header.inodes_at.load(Ordering::Relaxed)).ok()?;
        let possible = at != 0 && at.checked_add(INODES * INODE_BYTES)? <= sizes.heap;
        let heap_at = sizes.file_bytes() - sizes.heap;
        possible.then_some((heap_at + at) as u64)
    }

    /// The sources of the server's memory; `None` while it has none, or no table of its parts.
    #[must_use]
    pub fn memory(&self) -> Option<MemoryPlace> {
        let parts_at = self.header().parts_at.load(Ordering::Relaxed);
        let arena = self.arena_fd.try_clone().ok()?;
        let there = self.init != 0 && parts_at != 0;
        let (init, sizes) = (self.init, self.arena.sizes());
        there.then_some(MemoryPlace { init, arena, sizes, parts_at })
    }

    /// What is to be read of a server that stands still.
    ///
    /// # Errors
    /// Why nothing can be, in words.
    pub fn stood(&self) -> Result<Stood, String> {
        let files = self.files.clone().ok_or("its server does not run")?;
        let times_at = self.times_at().ok_or("it does not say when it wrote")?;
        let memory = self.memory().ok_or("it has no table of its parts")?;
        let digest = self.digest.at(self.admitted);
        Ok(Stood { files, times_at, memory, digest })
    }

    /// The server's process runs, as a child of `init`.
    ///
    /// One that is to be restored gets the log's first entry now, and nothing else before it is.
    pub fn launched(&mut self, pid: u32, init: u32, files: Option<Files>) {
        self.init = init;
        if let Some(tap) = &mut self.tap {
            tap.launched(files.as_ref());
        }
        (self.pid, self.files) = (pid, files);
        self.awaits_launch.set(false);
        if self.restoring.is_some() {
            let start = std::mem::take(&mut self.start);
            // The ring is as it was made: empty.
            let _ = self.put(LogIndex(1), &start);
            self.start = start;
        }
    }

    /// The eventfd by which the runtime wakes the reactor.
    #[must_use]
    pub fn wake_fd(&self) -> RawFd {
        self.wake_fd.as_raw_fd()
    }

    /// The header's words.
    #[must_use]
    pub fn header(&self) -> &Header {
        self.arena.header()
    }

    /// The server's state as the runtime reports it.
    #[must_use]
    pub fn state(&self) -> u32 {
        self.header().server_state.load(Ordering::Acquire)
    }

    /// Puts an entry into the input ring; false when there is no room now.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn push(&mut self, index: LogIndex, entry: &[u8]) -> Result<bool, Broken> {
        if self.restoring.is_some() || self.awaits_launch.get() {
            return Ok(false);
        }
        self.passage.gives(index);
        if !self.put(index, entry)? {
            return Ok(false);
        }
        self.feed.gave(index);
        self.note(index, entry);
        if let Some(tap) = &mut self.tap {
            tap.entry(index, entry);
        }
        Ok(true)
    }

    fn put(&mut self, index: LogIndex, entry: &[u8]) -> Result<bool, Broken> {
        let whole = entry_frame_bytes(entry);
        let Some(space) = self.input.reserve(whole).map_err(Broken::new)? else { return Ok(false) };
        put_entry_frame(space, index, entry);
        self.input.publish(whole);
        self.unseen = true;
        Ok(true)
    }

    /// What an image would have to say of this entry.
    fn note(&mut self, index: LogIndex, entry: &[u8]) {
        if self.start.is_empty() {
            self.start = entry.to_vec();
        }
        // The entry is a whole one: consensus, or the caller, has parsed it.
        let parsed = EntryRef::parsed(entry);
        self.wall = parsed.wall();
        let Some(ask) = entry::answers(entry) else { return };
        self.answers.push_back((ask, index));
        self.paths.extend(entry::host_files(entry).map(<[u8]>::to_vec));
    }

    /// Looks whether the server is restored by now; what was sent before belongs to no entry, and what it had asked was answered before the image.
    fn look_at_restoring(&mut self) -> Result<(), Broken> {
        let Some(index) = self.restoring else { return Ok(()) };
        // Before the ring: the runtime sends nothing more until it is given an entry.
        let header = self.header();
        let restored = header.applied.load(Ordering::Acquire) == index.0
            && header.restoring.load(Ordering::Acquire) == 0;
        let ring = self.output.readable().map_err(Broken::new)?;
        let mut at = 0;
        while let Some((frame, len)) = OutFrame::parse(&ring[at..]).map_err(Broken::new)? {
            match frame {
                OutFrame::Fatal { text } => self.fatal = Some(printable(text)),
                OutFrame::Differs { text } => self.differs = Some(printable(text)),
                _ => {}
            }
            at += len;
        }
        if at > 0 {
            self.output.release(at);
        }
        if restored {
            self.restoring = None;
            self.passage.answered(self.header().ask.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Whether an entry of `bytes` would fit.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn has_room(&self, bytes: usize) -> Result<bool, Broken> {
        Ok(self.restoring.is_none()
            && !self.awaits_launch.get()
            && self.input.free().map_err(Broken::new)? >= pad8(FRAME_HEADER_BYTES + bytes))
    }

    /// Whether an entry was pushed, or awaited room released, since it was woken.
    #[must_use]
    pub const fn has_unseen(&self) -> bool {
        self.unseen
    }

    /// Wakes the runtime if it sleeps and has work: once a batch. Answers whether it slept.
    pub fn wake_server(&mut self) -> bool {
        let slept = std::mem::take(&mut self.unseen) && self.header().server_gate.open();
        if slept {
            let word: *const AtomicU32 = self.header().server_gate.word();
            // SAFETY: a futex wake reads no memory; the word lies in the arena, which is mapped.
            unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) };
        }
        slept
    }

    /// The length of the server's busy time between two waits for the node, if it reports it.
    #[must_use]
    pub fn cpu_burst(&self) -> Option<Duration> {
        let ns = self.header().burst_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    /// At its next wait the server moves to this core, from 1; 0: to any.
    pub fn call_to(&self, core: u32) {
        self.header().core.store(core, Ordering::Relaxed);
    }

    /// The node is about to sleep: from now on the runtime wakes it. Check all conditions after this.
    pub fn close_gate(&self) {
        self.header().node_gate.close();
    }

    /// As [`close_gate`](Self::close_gate), but the runtime wakes the node only for news, which a timer before that time is, too; not of a runtime from before news.
    pub fn close_gate_until(&self, not_before_ns: u64) {
        let header = self.header();
        if header.news.is_known() {
            header.news.expect(not_before_ns);
            header.node_gate.close_calmly();
        } else {
            header.node_gate.close();
        }
    }

    /// The node is awake.
    pub fn reopen_gate(&self) {
        self.header().node_gate.reopen();
    }

    /// Whether frames wait that may be taken when output is released up to `released`.
    ///
    /// # Errors
    /// The ring is damaged.
    pub fn has_output(&self, released: LogIndex) -> Result<bool, Broken> {
        if self.is_held(released) {
            return Ok(false);
        }
        Ok(!self.output.is_empty().map_err(Broken::new)?)
    }

    /// Whether none of its next output may be taken.
    fn is_held(&self, released: LogIndex) -> bool {
        self.condemned
            || self.held.is_some_and(|index| index > released)
            || self.held_ask.is_some_and(|ask| !is_answered(&self.answers, ask, released))
    }

    /// Whether output may come that can be taken now: the server has not executed all committed entries, or nothing else.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.ahead.behind().is_none_or(|behind| self.held.is_none() && behind > self.settled)
    }

    /// Output of entries up to this one may leave: what was printed for them may be read.
    pub fn released(&self, index: LogIndex) {
        if let Some((ask, _)) = self.answers.iter().rev().find(|(_, at)| *at <= index) {
            self.passage.answered(*ask);
        }
        self.passage.committed(index);
    }

    /// It has executed entries that were never committed: its output from there on does not count.
    pub fn condemn(&mut self) {
        self.passage.condemn();
        self.condemned = true;
        self.plans = planned::Plans::default();
    }

    /// Hands every waiting frame to `each` (with its payload's position in the slice), then the whole slice to `done`, and
    /// gives the space back; but no frame of an entry after `released`. Answers the number of bytes.
    ///
    /// # Errors
    /// The bytes are no frames, or `each` or `done` found a broken rule.
    pub fn drain<C>(
        &mut self,
        released: LogIndex,
        context: &mut C,
        mut each: impl FnMut(&mut C, &OutFrame<'_>, usize) -> Result<(), Broken>,
        done: impl FnOnce(&mut C, &[u8]) -> Result<(), Broken>,
    ) -> Result<usize, Broken> {
        self.released(released);
        self.look_at_restoring()?;
        if self.restoring.is_some() || self.is_held(released) {
            return Ok(0);
        }
        let Self { output, digest, events, admitted, listening, receiving, exit, tap, .. } = self;
        let Self { fatal, differs, answers, .. } = self;
        let ring = output.readable().map_err(Broken::new)?;
        let (mut at, mut later, mut later_ask) = (0, None, None);
        let mut take = || {
            while at < ring.len() {
                let Some((frame, len)) = OutFrame::parse(&ring[at..]).map_err(Broken::new)? else {
                    return Err(Broken::new("the output ring holds part of a frame"));
                };
                if let OutFrame::Admitted { index, .. } = frame
                    && index > released
                {
                    later = Some(index);
                    break;
                }
                if let OutFrame::Asked { ask } = frame {
                    if !is_answered(answers, ask, released) {
                        later_ask = Some(ask);
                        break;
                    }
                    answers.retain(|(other, _)| *other > ask);
                }
                let raw = &ring[at..at + len];
                digest.frame(raw, &frame);
                events.frame(raw, &frame);
                if let Some(tap) = &mut *tap {
                    tap.frame(raw, &frame);
                }
                match frame {
                    OutFrame::Admitted { index, .. } => {
                        if index <= *admitted {
                            return Err(Broken(format!(
                                "entry {index} was admitted after entry {admitted}"
                            )));
                        }
                        *admitted = index;
                    }
                    OutFrame::Listen { addr } => {
                        listening.insert(addr);
                    }
                    OutFrame::Unlisten { addr } => {
                        listening.remove(&addr);
                    }
                    OutFrame::ListenDatagram { addr } => {
                        receiving.insert(addr);
                    }
                    OutFrame::UnlistenDatagram { addr } => {
                        receiving.remove(&addr);
                    }
                    OutFrame::Exit { status } => *exit = Some(status),
                    OutFrame::Fatal { text } => *fatal = Some(printable(text)),
                    OutFrame::Differs { text } => *differs = Some(printable(text)),
                    _ => {}
                }
                each(context, &frame, at + FRAME_HEADER_BYTES)?;
                at += len;
            }
            Ok(())
        };
        // Frames before the damage were noted by their place in the ring: they leave now, or never would.
        let taken = take();
        let flushed = done(context, &ring[..at]);
        if at > 0 {
            output.release(at);
            self.unseen |= full::was_said(&self.arena.header().server_state);
        }
        (self.held, self.held_ask) = (later, later_ask);
        if let Err(broken) = taken.and(flushed) {
            // Frames behind the damage cannot be understood, and those before it must not be taken twice.
            self.condemned = true;
            return Err(broken);
        }
        let newest = self.held.unwrap_or(self.admitted);
        if newest > self.feed.given() {
            return Err(Broken(format!("entry {newest} was admitted and never given")));
        }
        if let Some(mut tap) = self.tap.take() {
            tap.drained(self.header(), self.waits().is_some());
            self.tap = Some(tap);
        }
        Ok(at)
    }

    /// Whether the server has executed all its entries, and waits for agreement on its findings about its host's files.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        // As for `waits`: the state is raised before the last entry is noted.
        self.restoring.is_none()
            && self.header().applied.load(Ordering::Acquire) == self.feed.given().0
            && self.state() == state::ASKS
    }

    /// Its findings, and the number of its question; `None` when it does not ask, or the values are impossible.
    #[must_use]
    pub fn asks(&self) -> Option<(u64, Vec<u8>)> {
        let asked = asks::asked(self.header(), &self.arena.sizes())?;
        let mut facts = vec![0; asked.len];
        let arena = std::fs::File::from(self.arena_fd.try_clone().ok()?);
        arena.read_exact_at(&mut facts, asked.at).ok()?;
        are_facts(&facts).then_some((asked.ask, facts))
    }

    /// The report of an ended server about a file, although it may be held.
    #[must_use]
    pub fn last_words(&mut self) -> Option<String> {
        let ring = self.output.readable().ok()?;
        let mut at = 0;
        while let Ok(Some((frame, len))) = OutFrame::parse(&ring[at..]) {
            if let OutFrame::Differs { text } = frame {
                return Some(printable(text));
            }
            at += len;
        }
        None
    }

    /// Whether the server has executed all its entries, up to its wait; only then the state words
    /// [`state::QUIESCENT`] and [`state::SLOT`] are current. `None` as well while frames wait: output after the last
    /// drain and before its wait is a consequence of the last entry, too.
    #[must_use]
    pub fn waits(&self) -> Option<u32> {
        // The mark of the last entry is read, and the runtime raised its state to RUNNING before it wrote that mark: the state read here is of that moment or later.
        if self.admitted != self.feed.given() || self.restoring.is_some() {
            return None;
        }
        let now = self.state();
        // After the state: the runtime publishes its frames before it says that it waits.
        let drained = matches!(self.output.is_empty(), Ok(true));
        (drained && matches!(now, state::QUIESCENT | state::SLOT)).then_some(now)
    }

    /// What the server did with entries after `released`; to be called when its earlier output has been taken.
    #[must_use]
    pub fn beyond(&self, released: LogIndex) -> Beyond {
        // Damage is found when the output is taken, so it is to be taken soon.
        const DAMAGED: Beyond = Beyond { waits: None, speaks: true };
        let Ok(ring) = self.output.readable() else { return DAMAGED };
        let (mut at, mut last, mut speaks, mut early) = (0, self.admitted, false, false);
        while at < ring.len() {
            let Ok(Some((frame, len))) = OutFrame::parse(&ring[at..]) else { return DAMAGED };
            match frame {
                OutFrame::Admitted { index, .. } => last = index,
                _ if last > released => speaks = true,
                _ => early = true,
            }
            at += len;
        }
        // As for `waits`: the mark first, then the state, then whether frames came meanwhile.
        let state = (last == self.feed.given() && !early).then(|| self.state());
        let waits = state.filter(|state| matches!(*state, state::QUIESCENT | state::SLOT));
        let all = self.output.readable().is_ok_and(|ring| ring.len() == at);
        Beyond { waits: waits.filter(|_| all), speaks: speaks || state == Some(state::OUTPUT_FULL) }
    }

    /// The entry after which it has ended, if it has: at the earliest that with which its edition begins, though it ended before it admitted that.
    #[must_use]
    pub fn ended_at(&self) -> LogIndex {
        self.admitted.max(LogIndex(self.edition.since))
    }

    /// The server has executed this entry, and lived on.
    #[must_use]
    pub fn survived(&self) -> LogIndex {
        self.settled.max(LogIndex(self.admitted.0.saturating_sub(1)))
    }

    /// Whether all output for the last entry of [`drain`](Self::drain) has been taken: the server waits for the next, or is
    /// beyond.
    pub fn settle(&mut self) -> bool {
        let settled = self.held.is_some() || self.waits().is_some();
        if settled {
            self.digest.settle();
            self.settled = self.admitted;
        }
        settled
    }
}

/// Whether the entry that answers a question is committed.
fn is_answered(answers: &VecDeque<(u64, LogIndex)>, ask: u64, released: LogIndex) -> bool {
    answers.iter().any(|(other, index)| *other == ask && *index <= released)
}

/// The runtime's words in a form for a log line: one line of printable text, not too long.
#[must_use]
pub fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text)
        .chars()
        .take(500)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::fact::{Fact, What};
    use skein_model::frame::FRAME_SCRATCH_BYTES;
    use skein_model::{Clock, ConnId, EntryBuilder, Record, Term, WallNs};

    /// The server's side.
    fn emit(out: &mut Producer, frame: OutFrame<'_>) {
        let mut scratch = [0; FRAME_SCRATCH_BYTES];
        let (head, payload) = frame.encode(&mut scratch);
        let bytes = [head, payload].concat();
        let whole = pad8(bytes.len());
        let space = out.reserve(whole).unwrap().unwrap();
        space[..bytes.len()].copy_from_slice(&bytes);
        space[bytes.len()..].fill(0);
        out.publish(whole);
    }

    fn entry(records: &[Record<'_>]) -> Vec<u8> {
        let mut builder = EntryBuilder::new(Vec::new());
        records.iter().for_each(|record| builder.push(*record));
        builder.finish(WallNs(1), Term(1))
    }

    fn drain(link: &mut Link, committed: u64) -> usize {
        let mut sends = 0;
        let each = |sends: &mut usize, frame: &OutFrame<'_>, _| {
            *sends += usize::from(matches!(frame, OutFrame::Send { .. }));
            Ok(())
        };
        link.drain(LogIndex(committed), &mut sends, each, |_, _| Ok(())).unwrap();
        sends
    }

    #[test]
    fn what_follows_from_a_file_is_kept_until_that_file_is_agreed_on() {
        let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
        let mut link = Link::new(sizes, 1, None).unwrap();
        let (arena, _) = link.descriptors().unwrap();
        let arena = Arena::share(arena.as_raw_fd()).unwrap();
        // SAFETY: called once; the arena outlives the ends.
        let (_, mut out) = unsafe { arena.server_ends() };
        let send = OutFrame::Send { conn: ConnId(1), bytes: b"x" };
        let admitted =
            |index| OutFrame::Admitted { index: LogIndex(index), clock: Clock(1), ops: 1 };
        assert!(link.push(LogIndex(1), &entry(&[Record::TermStart])).unwrap());
        for frame in [admitted(1), send, OutFrame::Asked { ask: 1 }, send, send] {
            emit(&mut out, frame);
        }
        assert_eq!(drain(&mut link, 1), 1, "what was sent before the file was used leaves");
        assert!(!link.has_output(LogIndex(1)).unwrap() && !link.settle());
        let mut facts = vec![0; 256];
        let len = Fact::new(What::Contents, b"/etc/x").encode(&mut facts).unwrap();
        let answer = entry(&[Record::Files { ask: 1, facts: &facts[..len] }]);
        assert!(link.push(LogIndex(2), &answer).unwrap());
        emit(&mut out, admitted(2));
        assert_eq!(drain(&mut link, 1), 0, "proposed is not committed");
        assert!(link.has_output(LogIndex(2)).unwrap());
        assert_eq!(drain(&mut link, 2), 2);
        assert_eq!(link.admitted, LogIndex(2));
        emit(&mut out, OutFrame::Asked { ask: 2 });
        emit(&mut out, OutFrame::Differs { text: b"/etc/x" });
        assert_eq!(drain(&mut link, 2), 0);
        assert_eq!((link.differs.clone(), link.last_words()), (None, Some("/etc/x".into())));
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod damage_tests;
