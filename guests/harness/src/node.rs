//! Plays the node for one guest, without consensus, through the [`Link`] that a replica has to its server, too: gives it entries, and takes its output.
//!
//! Invariants: entries have indices 1, 2, ... without a gap; a leader decides only when the guest has executed all its
//! entries and waits, so its decisions depend on the guest alone and not on how fast anything runs; a follower
//! decides nothing.

use crate::chain::{Chain, Reading};
use crate::heap;
use crate::input::Input;
use crate::launch::Launch;
use crate::script::{Script, TERM};
use crate::started::Started;
use crate::sys;
use skein_arena::layout::{Header, Sizes, state};
use skein_arena::trapped::{self, Trapped};
use skein_image::before::Before;
use skein_image::take::{Figures, Forks, Paths, Shares, Source};
use skein_image::{MemoryError, SpareNumbers};
use skein_model::entry::{EntryBuilder, Record, Start, host_files};
use skein_model::limits::SPIN_SIGNAL;
use skein_model::{LogIndex, OutFrame, Term, WallNs, fact};
use skein_replica::server::tap::Tap;
use skein_replica::server::{Broken, Files, Link};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time of day of the first entry: 2026-01-01, 00:00:00 UTC.
const BIRTH_NS: u64 = 1_767_225_600_000_000_000;
/// A row of bubbles doubles up to this many times `nclock`.
const MAX_GROWTH: u32 = 64;
/// Virtual time that the first bubble of a row takes: 100 us.
const BUBBLE_NS: u64 = 100_000;
/// A guest that does nothing for this long is given up.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// A guest that runs for this long is given up.
const TOTAL_LIMIT: Duration = Duration::from_secs(120);
/// The holder of the turn is asked for its address when it has done no operation for this long.
const SPIN_AFTER: Duration = Duration::from_secs(1);

/// A schedule, as the log's first entry states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Operations a turn.
    pub quantum: u32,
    /// Turns from one slot to the next.
    pub nclock: u32,
}

/// An ordinary schedule, with short turns.
pub const ORDINARY: Schedule = Schedule { quantum: 16, nclock: 64 };
/// The finest schedule: every operation ends the turn, and slots are everywhere.
pub const FINEST: Schedule = Schedule { quantum: 1, nclock: 3 };

/// The source of the log's entries.
#[derive(Debug)]
pub enum Role {
    /// This node, with these clients.
    Leader(Script, Schedule),
    /// A leader: these are its entries.
    Follower(Vec<Vec<u8>>),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this wait status.
    Status(i32),
    /// Given up: the reason, with the runtime's state.
    GivenUp(String),
}

/// A thread that kept the turn without any operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// Its number, from 1.
    pub thread: u32,
    /// Its address.
    pub address: u64,
    /// The number of other threads that could have run.
    pub waiting: u32,
}

/// The results of a run.
#[derive(Debug)]
pub struct Account {
    /// The end.
    pub end: End,
    /// All output frames, in order, as they stood in the ring.
    pub frames: Vec<Vec<u8>>,
    /// Refused calls, notices and fatal lines, in order: `kind: text`.
    pub advice: Vec<String>,
    /// The log.
    pub log: Vec<Vec<u8>>,
    /// A spinning thread, if one was found.
    pub spin: Option<Spin>,
    /// Entries by kind: inputs, bubbles, clock entries.
    pub counts: Counts,
    /// Calls and instructions that came through the net.
    pub trapped: u64,
    /// Calls and instructions from replaced places.
    pub patched: u64,
    /// A traced guest's final heap, if it ended by itself.
    pub heap: Vec<(u64, Vec<u8>)>,
}

/// The number of a leader's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries with inputs.
    pub inputs: u64,
    /// Time bubbles.
    pub bubbles: u64,
    /// Clock entries.
    pub clocks: u64,
}

/// Every entry is as good as committed.
const ALL: LogIndex = LogIndex(u64::MAX);
/// The arena's heap.
const HEAP_BYTES: usize = 512 << 20;

/// Keeps the frames that count as output, as they stand in the ring.
#[derive(Clone, Debug, Default)]
struct Frames(Arc<Mutex<Vec<Vec<u8>>>>);

impl Tap for Frames {
    fn launched(&mut self, _: Option<&Files>) {}

    fn entry(&mut self, _: LogIndex, _: &[u8]) {}

    fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>) {
        if frame.is_output() {
            self.0.lock().expect("no holder panics").push(raw.to_vec());
        }
    }

    fn drained(&mut self, _: &Header, _: bool) {}
}

/// One guest's node.
#[derive(Debug)]
pub struct Node {
    link: Link,
    frames: Frames,
    memory: File,
    wake: OwnedFd,
    guest: Started,
    traced: bool,
    role: Role,
    term: Term,
    wall_ns: u64,
    growth: u32,
    last_operations: u64,
    operations_since: Instant,
    last_progress: (u64, u64, u64),
    progress_since: Instant,
    started: Instant,
    record: Account,
    /// The images of it so far.
    pub chain: Chain,
    /// The hash of all memory and files in the last image.
    pub root: Option<u64>,
}

/// The guest's last seen wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Slot,
    Files,
    Quiescent(u64),
}

impl Node {
    /// Makes an arena and starts a guest in it. `launch.skein` is set here.
    ///
    /// # Errors
    /// No memory, no namespace, no such program.
    pub fn start(launch: &Launch<'_>, library: &Path, role: Role) -> io::Result<Self> {
        let sizes = Sizes { heap: HEAP_BYTES, ..Sizes::default() };
        let mut link = Link::new(sizes, 1, None).map_err(Error::other)?;
        let (memory, wake) = link.descriptors()?;
        let frames = Frames::default();
        link.tap = Some(Box::new(frames.clone()));
        let skein = Some((library, memory.as_fd(), wake.as_fd()));
        let guest = Started::start(&Launch { skein, ..launch.clone() })?;
        let now = Instant::now();
        let record = Account {
            end: End::Status(0),
            frames: Vec::new(),
            advice: Vec::new(),
            log: Vec::new(),
            spin: None,
            counts: Counts::default(),
            trapped: 0,
            patched: 0,
            heap: Vec::new(),
        };
        Ok(Self {
            link,
            frames,
            memory: File::from(memory),
            wake,
            guest,
            traced: launch.trace.is_some(),
            role,
            term: TERM,
            wall_ns: BIRTH_NS,
            growth: 1,
            last_operations: 0,
            operations_since: now,
            last_progress: (0, 0, 0),
            progress_since: now,
            started: now,
            record,
            chain: Chain::default(),
            root: None,
        })
    }

    /// Gives the guest the entries up to `at`, until it has executed them and sleeps; false when it ended before.
    ///
    /// # Errors
    /// It does not come there.
    pub fn stand(&mut self, log: &[Vec<u8>], at: u64) -> io::Result<bool> {
        self.role = Role::Follower(log[..at as usize].to_vec());
        let since = Instant::now();
        loop {
            self.feed_log()?;
            self.collect()?;
            let header = self.link.header();
            let there = header.applied.load(Ordering::Acquire) == at;
            if there && self.waiting() != Waiting::Nothing && header.server_gate.is_closed() {
                return Ok(true);
            }
            if self.sleep()? {
                return Ok(false);
            }
            if since.elapsed() > IDLE_LIMIT {
                return Err(Error::other(format!("does not come to entry {at}; {}", self.words())));
            }
        }
    }

    /// The same; meanwhile its memory is read for the next image.
    ///
    /// # Errors
    /// It does not come there, or the image before does not count any more.
    pub fn stand_precopied(&mut self, log: &[Vec<u8>], at: u64) -> io::Result<bool> {
        let (mut chain, arena) = (std::mem::take(&mut self.chain), self.memory.try_clone()?);
        let stands = chain.precopy_beside((self.guest.init(), &arena), || self.stand(log, at));
        self.chain = chain;
        stands.map_err(Error::other)?
    }

    /// The guest's processes.
    #[must_use]
    pub fn guest(&self) -> &Started {
        &self.guest
    }

    /// An image of the guest, which stands, with these files and those of the host that entries behind `since` name; or why none can be taken.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn image(
        &mut self,
        given: [BorrowedFd<'_>; 2],
        mut paths: BTreeSet<PathBuf>,
        since: u64,
        reading: Reading,
    ) -> io::Result<Result<(File, Figures), MemoryError>> {
        let sizes = Sizes { heap: HEAP_BYTES, ..Sizes::default() };
        let init = self.guest.init();
        let at = self.link.header().applied.load(Ordering::Acquire);
        let Role::Follower(log) = &self.role else {
            return Err(Error::other("images are taken of followers"));
        };
        let asked = self.link.asks().map_or_else(Vec::new, |(_, facts)| facts);
        let known = log[since as usize..at as usize].iter().flat_map(|entry| host_files(entry));
        let all = known.chain(fact::paths(&asked));
        paths.extend(all.map(|path| PathBuf::from(OsStr::from_bytes(path))));
        let (arena, root) = (&self.memory, self.guest.root()?);
        let root = root.as_fd();
        let watches = matches!(reading, Reading::Watched | Reading::Precopied | Reading::Forked);
        let numbers = self.guest.numbers().filter(|_| reading == Reading::Forked);
        let numbers = numbers.as_ref().map(|numbers| numbers as &dyn SpareNumbers);
        let known = || paths.iter().map(|path| (path.clone(), None)).collect();
        let known = &known as _;
        let mounts = self.guest.mounts();
        let forks = Forks { for_pages: |_, _| true, spares: 1 };
        let ahead = None;
        let source = Source {
            init,
            arena,
            sizes,
            given,
            root,
            paths: known,
            mounts: &mounts,
            watches,
            numbers,
            forks,
            ahead,
        };
        let mut whole = Chain::default();
        let chain = if reading == Reading::Whole { &mut whole } else { &mut self.chain };
        let deadline = Instant::now() + IDLE_LIMIT;
        let before = chain.take_before();
        let shares = Shares { room: None, read: chain.take_shared() };
        let before = before.as_ref();
        let standing = match source.stand(before, shares, deadline, |_| Ok(Paths::new())) {
            Ok(standing) => standing,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(why) = standing.stood_because() {
            return Err(Error::other(format!("its processes did not fork: {why}")));
        }
        match standing.finish(deadline, || ()) {
            Ok(taken) => {
                let file = chain.file(taken, before, root, &paths)?;
                self.root = chain.before().map(Before::root);
                Ok(Ok(file))
            }
            Err(why) => Ok(Err(why)),
        }
    }

    /// Whether it waits for an answer about files of its host.
    pub fn is_asking(&self) -> bool {
        self.link.asks().is_some()
    }

    /// Its output frames so far.
    #[must_use]
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.frames.0.lock().expect("no holder panics").clone()
    }

    /// A guest that continues from an image of entry `at`: when it waits for the first entry, with which every server begins, `prepare` is called with its
    /// processes; then it gets that entry, and stands at `at`.
    ///
    /// # Errors
    /// It does not come there.
    pub fn restored(
        &mut self,
        log: &[Vec<u8>],
        at: u64,
        prepare: impl FnOnce(&Started) -> io::Result<()>,
    ) -> io::Result<()> {
        self.await_applied(0)?;
        prepare(&self.guest)?;
        self.give(&log[0])?;
        self.await_applied(at)?;
        self.link.feed.skip_to(LogIndex(at + 1));
        self.frames.0.lock().expect("no holder panics").clear();
        self.role = Role::Follower(log.to_vec());
        Ok(())
    }

    /// Waits until the guest has executed this entry, and sleeps.
    fn await_applied(&mut self, at: u64) -> io::Result<()> {
        let since = Instant::now();
        let there = |header: &Header| {
            header.applied.load(Ordering::Acquire) == at && header.server_gate.is_closed()
        };
        while !there(self.link.header()) {
            self.collect()?;
            if self.sleep()? {
                let status = self.guest.wait()?;
                return Err(Error::other(format!("it ends with {status:#x} while it is restored")));
            }
            if since.elapsed() > IDLE_LIMIT {
                return Err(Error::other(format!("is not restored; {}", self.words())));
            }
        }
        self.collect()
    }

    /// Runs the guest to its end, with the rest of this log.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn follow(mut self, log: &[Vec<u8>]) -> io::Result<Account> {
        self.role = Role::Follower(log.to_vec());
        self.run(false)
    }

    /// Runs the guest to its end. With `stop_at_spin` the first spinning thread ends the run.
    ///
    /// # Errors
    /// The arena is damaged, or a system call fails.
    pub fn run(mut self, stop_at_spin: bool) -> io::Result<Account> {
        if let Role::Leader(_, Schedule { quantum, nclock }) = self.role {
            let start = Start { seed: [0x5e; 32], quantum, nclock };
            self.propose(&[Record::Start(start), Record::TermStart], 0)?;
        }
        loop {
            self.feed_log()?;
            self.collect()?;
            let waiting = self.waiting();
            if self.act(waiting)? {
                continue;
            }
            if let Some(why) = self.given_up(waiting) {
                self.record.end = End::GivenUp(format!("{why}; {}", self.words()));
                return Ok(self.account());
            }
            self.watch_for_spin();
            if stop_at_spin && self.record.spin.is_some() {
                self.record.end = End::GivenUp(format!("it spins; {}", self.words()));
                return Ok(self.account());
            }
            if self.sleep()? {
                let status = self.guest.wait()?;
                self.collect()?;
                let header = self.link.header();
                // `cpuid` traps on some processors only, a dozen times for each program that begins, and is not replaced.
                let sum = |calls: &Trapped| {
                    let counted = |(call, _): &(usize, u64)| *call != trapped::CPUID;
                    calls.counts().filter(counted).map(|(_, count)| count).sum()
                };
                self.record.trapped = sum(&header.trapped);
                self.record.patched = sum(&header.patched);
                self.record.end = End::Status(status);
                if self.traced {
                    let begin = self.memory.metadata()?.len() - HEAP_BYTES as u64;
                    let parts_at = header.parts_at.load(Ordering::Relaxed);
                    self.record.heap = heap::pages(&self.memory, begin, parts_at)?;
                }
                return Ok(self.account());
            }
        }
    }

    fn account(self) -> Account {
        let frames = std::mem::take(&mut *self.frames.0.lock().expect("no holder panics"));
        Account { frames, ..self.record }
    }

    /// The guest's wait, after it has executed all entries.
    fn waiting(&self) -> Waiting {
        match self.link.waits() {
            Some(state::SLOT) => Waiting::Slot,
            Some(_) => Waiting::Quiescent(self.link.header().deadline_ns.load(Ordering::Acquire)),
            None if self.link.is_asking() => Waiting::Files,
            None => Waiting::Nothing,
        }
    }

    /// Leader: proposes due entries. Answers whether there were any.
    fn act(&mut self, waiting: Waiting) -> io::Result<bool> {
        let Role::Leader(script, schedule) = &mut self.role else { return Ok(false) };
        let nclock = schedule.nclock;
        let inputs = match waiting {
            Waiting::Nothing => return Ok(false),
            Waiting::Files => {
                let impossible = || Error::other("the guest asks about files, and not which");
                let (ask, facts) = self.link.asks().ok_or_else(impossible)?;
                self.propose(&[Record::Files { ask, facts: &facts }], 0)?;
                return Ok(true);
            }
            Waiting::Slot | Waiting::Quiescent(_) => script.inputs(),
        };
        if !inputs.is_empty() {
            self.growth = 1;
            self.record.counts.inputs += 1;
            if inputs.contains(&Input::TermStart) {
                self.term = self.term.next();
            }
            let records: Vec<Record<'_>> = inputs.iter().map(|input| input.record()).collect();
            self.propose(&records, BUBBLE_NS)?;
            return Ok(true);
        }
        match waiting {
            Waiting::Slot => {
                let growth = self.growth;
                self.growth = (growth * 2).min(MAX_GROWTH);
                self.record.counts.bubbles += 1;
                let bubble = Record::Bubble { turns: nclock * growth };
                self.propose(&[bubble], BUBBLE_NS * u64::from(growth))?;
            }
            Waiting::Quiescent(u64::MAX) | Waiting::Nothing | Waiting::Files => return Ok(false),
            Waiting::Quiescent(deadline) => {
                self.growth = 1;
                self.record.counts.clocks += 1;
                self.propose(&[], deadline.saturating_sub(self.wall_ns).max(1))?;
            }
        }
        Ok(true)
    }

    /// Leader: appends an entry, this much later than the last one, and gives it to the guest.
    fn propose(&mut self, records: &[Record<'_>], later_ns: u64) -> io::Result<()> {
        self.wall_ns += later_ns;
        let mut builder = EntryBuilder::new(Vec::new());
        for record in records {
            builder.push(*record);
        }
        let entry = builder.finish(WallNs(self.wall_ns), self.term);
        if !self.give(&entry)? {
            return Err(Error::other("an entry does not fit into an empty input ring"));
        }
        self.record.log.push(entry);
        Ok(())
    }

    /// Follower: gives the guest as many entries as its ring takes.
    fn feed_log(&mut self) -> io::Result<()> {
        let Role::Follower(entries) = &mut self.role else { return Ok(()) };
        let entries = std::mem::take(entries);
        while let Some(entry) = entries.get(self.link.feed.next().0 as usize - 1) {
            if !self.give(entry)? {
                break;
            }
        }
        self.role = Role::Follower(entries);
        Ok(())
    }

    /// Gives the guest an entry and wakes it; false when there is no room.
    fn give(&mut self, entry: &[u8]) -> io::Result<bool> {
        let done = self.link.push(self.link.feed.next(), entry).map_err(broken)?;
        self.link.wake_server();
        Ok(done)
    }

    /// Takes all frames out of the output ring.
    fn collect(&mut self) -> io::Result<()> {
        let Self { link, role, record, .. } = self;
        let each = |advice: &mut Vec<String>, frame: &OutFrame<'_>, _| {
            if let Role::Leader(script, _) = role {
                script.output(frame);
            }
            let text = String::from_utf8_lossy;
            match frame {
                OutFrame::Refused { call } => {
                    let (call, _) = skein_model::frame::split_refused(call);
                    advice.push(format!("refused: {}", text(call)));
                }
                OutFrame::Notice { text: line } => advice.push(format!("notice: {}", text(line))),
                OutFrame::Differs { text: line } | OutFrame::Fatal { text: line } => {
                    advice.push(format!("fatal: {}", text(line)));
                }
                _ => {}
            }
            Ok(())
        };
        link.drain(ALL, &mut record.advice, each, |_, _| Ok(())).map_err(broken)?;
        link.wake_server();
        Ok(())
    }

    /// The reason why the run cannot continue by itself, if there is one.
    fn given_up(&mut self, waiting: Waiting) -> Option<String> {
        if self.started.elapsed() > TOTAL_LIMIT {
            return Some("it does not end".into());
        }
        let header = self.link.header();
        let progress = (
            header.operations.load(Ordering::Relaxed),
            header.clock.load(Ordering::Relaxed),
            header.applied.load(Ordering::Relaxed),
        );
        if progress != self.last_progress {
            self.last_progress = progress;
            self.progress_since = Instant::now();
        } else if self.progress_since.elapsed() > IDLE_LIMIT {
            return Some("no progress".into());
        }
        match (&self.role, waiting) {
            (_, Waiting::Nothing) => None,
            (Role::Leader(script, _), _) => {
                Some(format!("all threads are blocked without a deadline; {}", script.rest()))
            }
            (Role::Follower(log), _) if self.link.feed.given().0 == log.len() as u64 => {
                Some("the follower wants an entry that the leader did not need".into())
            }
            (Role::Follower(_), _) => None,
        }
    }

    /// Asks a thread that has had the turn for long without an operation for its address.
    fn watch_for_spin(&mut self) {
        let header = self.link.header();
        let operations = header.operations.load(Ordering::Relaxed);
        let running = header.server_state.load(Ordering::Relaxed) == state::RUNNING;
        if operations != self.last_operations || !running {
            self.last_operations = operations;
            self.operations_since = Instant::now();
            return;
        }
        if self.record.spin.is_some() || self.operations_since.elapsed() < SPIN_AFTER {
            return;
        }
        if header.spin_seen.load(Ordering::Acquire) != 0 {
            self.record.spin = Some(Spin {
                thread: header.turn_holder.load(Ordering::Relaxed),
                address: header.spin_address.load(Ordering::Relaxed),
                waiting: header.runnable.load(Ordering::Relaxed),
            });
        } else {
            let carrier = header.carrier_tid.load(Ordering::Relaxed);
            let asked = carrier != 0 && self.guest.signal_thread(carrier, SPIN_SIGNAL);
            self.operations_since = Instant::now();
            if !asked {
                self.record.advice.push("harness: no carrier to ask for its address".into());
            }
        }
    }

    /// Sleeps until the guest has done something; true when it has ended.
    fn sleep(&mut self) -> io::Result<bool> {
        self.link.close_gate();
        let output = self.link.has_output(ALL).map_err(broken)?;
        let waits = output || self.waiting() != Waiting::Nothing;
        let timeout_ms = if waits { 0 } else { 100 };
        sys::wait_readable([self.wake.as_raw_fd(), self.guest.ended_fd()], timeout_ms)?;
        self.link.reopen_gate();
        sys::drain_eventfd(&self.wake);
        sys::is_readable(self.guest.ended_fd())
    }

    /// The runtime's reported state.
    fn words(&self) -> String {
        let h = self.link.header();
        let state = match h.server_state.load(Ordering::Relaxed) {
            state::STARTING => "starting",
            state::RUNNING => "running",
            state::QUIESCENT => "quiescent",
            state::SLOT => "at a slot",
            state::ASKS => "waiting until files of the host are agreed on",
            state::OUTPUT_FULL => "waiting for the output ring",
            state::ENDED => "ended",
            _ => "in an unknown state",
        };
        let spin = match self.record.spin {
            Some(spin) => format!(", thread {} spins at {:#x}", spin.thread, spin.address),
            None => String::new(),
        };
        format!(
            "the runtime is {state}: {} of {} entries, clock {}, {} operations, turn of thread {}, {} runnable, deadline in {} ms{spin}",
            h.applied.load(Ordering::Relaxed),
            self.link.feed.given().0,
            h.clock.load(Ordering::Relaxed),
            h.operations.load(Ordering::Relaxed),
            h.turn_holder.load(Ordering::Relaxed),
            h.runnable.load(Ordering::Relaxed),
            match h.deadline_ns.load(Ordering::Relaxed) {
                u64::MAX => "?".into(),
                ns => (ns.saturating_sub(self.wall_ns) / 1_000_000).to_string(),
            },
        )
    }
}

fn broken(Broken(why): Broken) -> Error {
    Error::other(why)
}
