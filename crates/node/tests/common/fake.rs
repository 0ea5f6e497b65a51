//! A thread that plays the runtime on the arena: a small line server that misbehaves on command.
//!
//! Lines: `set K V`, `get K`, `big N`, `close`, `abort`, `exit N`, `slots N` (busy: N admission slots), `sleep MS`,
//! `half` (ends the direction to the client), `spin` (one test a process), and, each on one replica only and in its first life, `crash-on ID`,
//! `garbage-on ID`, `differ-on ID`, `hang-on ID`. `garbage`: on all, in each life.

use skein_arena::layout::{Sizes, state};
use skein_arena::{Arena, Consumer, Producer};
use skein_model::frame::{FRAME_HEADER_BYTES, FRAME_SCRATCH_BYTES, MAX_SEND_BYTES};
use skein_model::limits::{CONSUMED_STEP_BYTES, SEND_WINDOW_BYTES};
use skein_model::pad8;
use skein_model::{Clock, ConnId, EntryRef, LogIndex, OutFrame, Record, SockAddr};
use skein_node::NodeError;
use skein_node::server::{Launcher, Running};
use skein_sandbox::Exit;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The port that the fake server listens on.
pub const PORT: u16 = 7000;

/// A test's view of a fake server.
#[derive(Debug, Default)]
pub struct Seen {
    /// Entries admitted by the current life.
    pub admitted: AtomicU64,
    /// Bubbles admitted, over all lives.
    pub bubbles: AtomicU64,
    /// Entries without records, over all lives.
    pub clocks: AtomicU64,
    /// Lives begun.
    pub lives: AtomicU32,
    /// Values set, over all lives.
    pub sets: AtomicU64,
    /// The current life's.
    process: Mutex<Option<(Arc<AtomicBool>, Arc<Arena>)>>,
}

impl Seen {
    /// Kills the server, as an operator or the kernel might.
    pub fn kill(&self) {
        if let Some((stop, arena)) = &*self.process.lock().unwrap() {
            stop.store(true, Ordering::SeqCst);
            wake_futex(arena.header().server_gate.word());
        }
    }
}

pub struct FakeLauncher {
    pub id: u64,
    pub sizes: Sizes,
    pub seen: Arc<Seen>,
    pub program: [u8; 32],
}

struct Fake {
    stop: Arc<AtomicBool>,
    arena: Arc<Arena>,
    thread: Option<JoinHandle<i32>>,
    ended: UnixStream,
}

impl Launcher for FakeLauncher {
    fn launch(
        &self,
        arena: BorrowedFd<'_>,
        wake: BorrowedFd<'_>,
        _restore: Option<BorrowedFd<'_>>,
    ) -> Result<Box<dyn Running>, NodeError> {
        // Maps the same file a second time, wherever there is room: a real server maps it at a fixed address.
        let arena = Arc::new(Arena::share(arena.as_raw_fd())?);
        let wake = wake.try_clone_to_owned().expect("a descriptor");
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, ends) = UnixStream::pair().expect("a socket pair");
        let life = self.seen.lives.fetch_add(1, Ordering::SeqCst) + 1;
        let (id, seen) = (self.id, self.seen.clone());
        let (arena2, stop2) = (arena.clone(), stop.clone());
        *self.seen.process.lock().unwrap() = Some((stop.clone(), arena.clone()));
        let thread = std::thread::spawn(move || {
            // SAFETY: the only server ends in use on this arena; the arena lives as long as this thread holds it.
            let (input, output) = unsafe { arena2.server_ends() };
            let mut server = Server {
                id,
                life,
                input,
                output,
                arena: arena2,
                wake,
                stop: stop2,
                seen,
                conns: BTreeMap::new(),
                store: BTreeMap::new(),
                sleepers: Vec::new(),
                now: 0,
                turns: 0,
            };
            let status = server.run();
            server.arena.header().server_state.store(state::ENDED, Ordering::Release);
            server.wake_node();
            drop(ends);
            status
        });
        Ok(Box::new(Fake { stop, arena, thread: Some(thread), ended }))
    }

    fn program_hash(&self) -> [u8; 32] {
        self.program
    }
}

impl Running for Fake {
    fn pid(&self) -> u32 {
        // A thread has no process of its own, but signals must go somewhere.
        std::process::id()
    }
    fn exit_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
    fn wait(&mut self) -> io::Result<Exit> {
        let status =
            self.thread.take().map_or(0, |t| t.join().expect("the fake server does not panic"));
        Ok(if status < 0 { Exit::Signal(-status) } else { Exit::Code(status) })
    }
    fn kill(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        wake_futex(self.arena.header().server_gate.word());
        Ok(())
    }
}

fn wake_futex(word: &AtomicU32) {
    word.store(skein_arena::gate::OPEN, Ordering::SeqCst);
    // SAFETY: a futex wake reads no memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

#[derive(Default)]
struct Conn {
    line: Vec<u8>,
    out: VecDeque<u8>,
    in_window: usize,
    consumed: usize,
    close: bool,
    fin: bool,
}

struct Server {
    id: u64,
    life: u32,
    input: Consumer,
    output: Producer,
    arena: Arc<Arena>,
    wake: OwnedFd,
    stop: Arc<AtomicBool>,
    seen: Arc<Seen>,
    conns: BTreeMap<ConnId, Conn>,
    store: BTreeMap<String, String>,
    sleepers: Vec<(u64, ConnId)>,
    now: u64,
    turns: u64,
}

/// The thread ends with this status (negative: by a signal).
struct End(i32);

impl Server {
    fn run(&mut self) -> i32 {
        loop {
            if let Err(End(status)) = self.admit(state::QUIESCENT) {
                return status;
            }
        }
    }

    fn wake_node(&self) {
        if self.arena.header().node_gate.open() {
            // The node is gone when this fails.
            let _ = nix::unistd::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    fn sleep(&self, still: impl Fn(&Self) -> bool) -> Result<(), End> {
        self.wake_node();
        let gate = &self.arena.header().server_gate;
        while still(self) {
            gate.close();
            if self.stop.load(Ordering::SeqCst) {
                return Err(End(-libc::SIGKILL));
            }
            if still(self) {
                // SAFETY: waits on a word of the arena, which is mapped.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        gate.word().as_ptr(),
                        libc::FUTEX_WAIT,
                        skein_arena::gate::CLOSED,
                        std::ptr::null::<libc::timespec>(),
                    )
                };
            }
            gate.reopen();
        }
        if self.stop.load(Ordering::SeqCst) { Err(End(-libc::SIGKILL)) } else { Ok(()) }
    }

    fn emit(&mut self, frame: OutFrame<'_>) -> Result<(), End> {
        let mut scratch = [0; FRAME_SCRATCH_BYTES];
        let (head, payload) = frame.encode(&mut scratch);
        let used = head.len() + payload.len();
        let whole = pad8(used);
        if self.output.free().unwrap() < whole {
            self.sleep(|s| s.output.free().unwrap() < whole)?;
        }
        let space = self.output.reserve(whole).unwrap().expect("there is room");
        space[..head.len()].copy_from_slice(head);
        space[head.len()..used].copy_from_slice(payload);
        space[used..].fill(0);
        self.output.publish(whole);
        Ok(())
    }

    fn admit(&mut self, waiting: u32) -> Result<(), End> {
        let header = self.arena.header();
        if self.input.is_empty().unwrap() {
            let deadline = self.sleepers.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX);
            header.deadline_ns.store(deadline, Ordering::Relaxed);
            header.server_state.store(waiting, Ordering::Release);
            self.sleep(|s| s.input.is_empty().unwrap())?;
            self.arena.header().server_state.store(state::RUNNING, Ordering::Release);
        }
        let ready = self.input.readable().unwrap();
        let len = u32::from_le_bytes(ready[..4].try_into().unwrap()) as usize;
        let index = LogIndex(u64::from_le_bytes(ready[8..16].try_into().unwrap()));
        let bytes = ready[FRAME_HEADER_BYTES..][..len].to_vec();
        self.input.release(pad8(FRAME_HEADER_BYTES + len));
        self.turns += 1;
        self.emit(OutFrame::Admitted { index, clock: Clock(self.turns), ops: self.turns })?;
        let entry = EntryRef::parse(&bytes).expect("nodes give entries");
        self.now = self.now.max(entry.wall().0);
        if entry.records().next().is_none() {
            self.seen.clocks.fetch_add(1, Ordering::SeqCst);
        }
        for (at, conn) in std::mem::take(&mut self.sleepers) {
            if at <= self.now {
                self.reply(conn, b"awake\n")?;
            } else {
                self.sleepers.push((at, conn));
            }
        }
        for record in entry.records() {
            self.record(record, entry.term())?;
        }
        self.arena.header().applied.store(index.0, Ordering::Release);
        self.seen.admitted.store(index.0, Ordering::SeqCst);
        Ok(())
    }

    fn record(&mut self, record: Record<'_>, term: skein_model::Term) -> Result<(), End> {
        match record {
            Record::Start(_) => self.emit(OutFrame::Listen { addr: SockAddr::v4([0; 4], PORT) }),
            Record::TermStart => {
                self.conns.retain(|id, _| id.term() == term);
                Ok(())
            }
            Record::Open { conn, local, .. } => {
                assert_eq!(local.port, PORT);
                self.conns.insert(conn, Conn::default());
                Ok(())
            }
            Record::Data { conn, bytes } => self.data(conn, bytes),
            Record::Fin { conn } => {
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.close = true;
                }
                self.push(conn)
            }
            Record::Reset { conn } => {
                self.conns.remove(&conn);
                Ok(())
            }
            Record::Drained { conn, bytes } => {
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.in_window -= bytes as usize;
                }
                self.push(conn)
            }
            Record::Bubble { .. } => {
                self.seen.bubbles.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
            Record::Connected { .. }
            | Record::ConnectFailed { .. }
            | Record::Datagram { .. }
            | Record::DatagramFailed { .. } => panic!("the fake server has asked for none"),
            Record::Files { .. } => panic!("the fake server has no files"),
            Record::Signal { .. } => Ok(()),
            Record::Upgrade { .. } => Ok(()),
            Record::Digest { .. } | Record::Root { .. } => panic!("digests are not for servers"),
        }
    }

    fn data(&mut self, id: ConnId, bytes: &[u8]) -> Result<(), End> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        conn.line.extend_from_slice(bytes);
        conn.consumed += bytes.len();
        if conn.consumed >= CONSUMED_STEP_BYTES {
            let bytes = std::mem::take(&mut conn.consumed) as u64;
            self.emit(OutFrame::Consumed { conn: id, bytes })?;
        }
        while let Some(conn) = self.conns.get_mut(&id) {
            let Some(end) = conn.line.iter().position(|b| *b == b'\n') else { break };
            let line: Vec<u8> = conn.line.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            self.line(id, &line)?;
        }
        Ok(())
    }

    fn line(&mut self, conn: ConnId, line: &str) -> Result<(), End> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = || words.get(1).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0);
        let here = self.life == 1 && number() == self.id;
        match words[0] {
            "set" => {
                self.store.insert(words[1].into(), words[2].into());
                self.seen.sets.fetch_add(1, Ordering::SeqCst);
                self.reply(conn, b"ok\n")
            }
            "get" => {
                let value = self.store.get(words[1]).cloned().unwrap_or("none".into());
                self.reply(conn, format!("{value}\n").as_bytes())
            }
            "big" => {
                let bytes: Vec<u8> = (0..number()).map(|i| (i % 251) as u8).collect();
                self.reply(conn, &bytes)
            }
            "close" => {
                self.reply(conn, b"bye\n")?;
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.close = true;
                }
                self.push(conn)
            }
            "half" => {
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.fin = true;
                }
                self.emit(OutFrame::Fin { conn })
            }
            "abort" => {
                self.conns.remove(&conn);
                self.emit(OutFrame::Abort { conn })
            }
            "exit" => {
                let code = number() as i32;
                self.emit(OutFrame::Exit { status: code << 8 })?;
                self.wake_node();
                Err(End(code))
            }
            "slots" => {
                for _ in 0..number() {
                    self.admit(state::SLOT)?;
                }
                self.reply(conn, b"done\n")
            }
            "sleep" => {
                self.sleepers.push((self.now + number() * 1_000_000, conn));
                Ok(())
            }
            "crash-on" if here => Err(End(-libc::SIGSEGV)),
            "garbage-on" | "garbage" if here || words[0] == "garbage" => {
                let space = self.output.reserve(64).unwrap().expect("room");
                space.fill(0xee);
                self.output.publish(64);
                self.wake_node();
                self.sleep(|_| true)
            }
            "hang-on" if here => {
                while !self.stop.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                Err(End(-libc::SIGKILL))
            }
            "spin" => self.spin(),
            "differ-on" if here => self.reply(conn, b"OK\n"),
            _ => self.reply(conn, b"ok\n"),
        }
    }

    /// Runs on without any operation while others could run, until it is killed.
    fn spin(&mut self) -> Result<(), End> {
        let header = self.arena.header();
        header.spin_address.store(a_place_that_spins as *const () as u64, Ordering::Relaxed);
        header.spin_seen.store(1, Ordering::Release);
        self.arena.header().runnable.store(1, Ordering::Relaxed);
        self.arena.header().turn_holder.store(3, Ordering::Relaxed);
        while !self.stop.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Err(End(-libc::SIGKILL))
    }

    fn reply(&mut self, id: ConnId, bytes: &[u8]) -> Result<(), End> {
        // After the end of its direction no one hears it.
        if let Some(conn) = self.conns.get_mut(&id).filter(|c| !c.fin) {
            conn.out.extend(bytes);
        }
        self.push(id)
    }

    fn push(&mut self, id: ConnId) -> Result<(), End> {
        loop {
            let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
            let n = conn.out.len().min(SEND_WINDOW_BYTES - conn.in_window).min(MAX_SEND_BYTES);
            if n == 0 || conn.fin {
                if conn.close && conn.out.is_empty() {
                    self.conns.remove(&id);
                    self.emit(OutFrame::Close { conn: id })?;
                }
                return Ok(());
            }
            conn.in_window += n;
            let bytes: Vec<u8> = conn.out.drain(..n).collect();
            self.emit(OutFrame::Send { conn: id, bytes: &bytes })?;
        }
    }
}

/// The address that a spinning fake server reports.
#[unsafe(no_mangle)]
extern "C" fn a_place_that_spins() -> u32 {
    std::hint::black_box(3)
}
