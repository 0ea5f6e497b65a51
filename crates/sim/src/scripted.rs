//! A server's process: the program in the arena that its node made, acting as the runtime does there.
//!
//! It takes entries from the input ring, writes frames into the output ring, publishes its state in the header, and sleeps at its gate until the node
//! opens that. It reports when the node sleeps and must be woken, so a lost wake-up is lost here, too.

use crate::server::{Cause, RegisterServer};
use skein_arena::layout::state;
use skein_arena::{Arena, Consumer, Producer, full};
use skein_model::frame::FRAME_HEADER_BYTES;
use skein_model::pad8;
use skein_model::{EntryRef, LogIndex, OutFrame};
use skein_replica::server::Link;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// See the [module](self).
pub struct Scripted {
    // Before the arena, whose memory they point into.
    input: Consumer,
    output: Producer,
    arena: Arena,
    /// Its generation.
    pub generation: u64,
    /// The program.
    pub program: RegisterServer,
    /// Frames for which there was no room yet.
    unsaid: Vec<u8>,
    /// The entries executed since the last call that took them.
    pub executed: Vec<(LogIndex, Vec<u8>)>,
    /// The lines printed since the last call that took them.
    pub printed: Vec<Cause>,
    /// The entry after which another one has left the files that it begins on; 0: none has.
    pub begins_on: LogIndex,
    /// It has damaged its ring: its output is not read.
    lost: bool,
    /// It continues after this entry as soon as it is given the log's first one.
    continues: Option<LogIndex>,
}

/// The result of putting output into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// All is in it.
    All,
    /// There is no room for the rest.
    Full,
    /// It was interrupted before the rest.
    Part,
}

/// The results of running it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The node sleeps and must be woken.
    pub wakes: bool,
    /// It would continue.
    pub more: bool,
    /// It has ended with this status.
    pub ended: Option<i32>,
    /// So many entries were planned ones.
    pub planned: usize,
    /// It sleeps until then, by the steady clock: it may take a planned entry.
    pub until: Option<Duration>,
}

impl Scripted {
    /// A process in this arena. `continues`: the program is as it was after that entry.
    pub fn start(link: &Link, program: RegisterServer, continues: Option<LogIndex>) -> Self {
        let (arena, _wake) = link.descriptors().expect("there are descriptors");
        let arena = Arena::share(arena.as_raw_fd()).expect("an arena that was just made");
        // SAFETY: the only server of this generation; the arena is dropped after the ends.
        let (input, output) = unsafe { arena.server_ends() };
        // Some runtimes are from before.
        if !link.generation.is_multiple_of(4) {
            arena.header().news.know();
            arena.header().plan.know();
        }
        Self {
            input,
            output,
            arena,
            generation: link.generation,
            program,
            unsaid: Vec::new(),
            executed: Vec::new(),
            printed: Vec::new(),
            begins_on: LogIndex(0),
            lost: false,
            continues,
        }
    }

    /// The entry of the image from which it is to continue.
    pub const fn continues(&self) -> Option<LogIndex> {
        self.continues
    }

    /// Whether all its output so far is in the ring, and taken.
    pub fn has_said_all(&self) -> bool {
        self.unsaid.is_empty()
    }

    /// The first entry is there: it is as it was.
    fn is_restored(&mut self, index: LogIndex) {
        let header = self.arena.header();
        header.now_ns.store(self.program.now_ns(), Ordering::Relaxed);
        header.applied.store(index.0, Ordering::Release);
    }

    /// Whether it does not sleep.
    pub fn is_awake(&self) -> bool {
        !self.arena.header().server_gate.is_closed()
    }

    /// It wakes by itself.
    pub fn rouse(&self) {
        self.arena.header().server_gate.reopen();
    }

    /// Lets it execute up to `entries`, when the steady clock shows `now`; it is interrupted after `frames` of its output.
    pub fn run(&mut self, now: Duration, entries: usize, mut frames: usize) -> Ran {
        let mut ran = Ran::default();
        if let Some(status) = self.program.is_refused() {
            // The runtime does not come to say so.
            return Ran { ended: Some(status), ..ran };
        }
        for _ in 0..entries {
            match self.say(&mut frames) {
                Said::All => {}
                Said::Full => return self.wait_for_room(ran),
                Said::Part => return Ran { wakes: self.wakes(), more: true, ..ran },
            }
            if self.program.ended.is_some() {
                break;
            }
            let planned = self.take_planned(now);
            let Some((index, payload)) = self.next(planned) else { break };
            ran.planned += usize::from(planned.is_some());
            if let Some(index) = self.continues.take() {
                self.is_restored(index);
                continue;
            }
            self.arena.header().server_state.store(state::RUNNING, Ordering::Release);
            let entry = EntryRef::parse(&payload).expect("the node gives entries");
            self.program.execute(index, &payload, &entry, &mut self.unsaid);
            self.printed.append(&mut self.program.printed);
            let header = self.arena.header();
            header.applied.store(index.0, Ordering::Release);
            header.now_ns.store(self.program.now_ns(), Ordering::Relaxed);
            header.operations.fetch_add(1, Ordering::Relaxed);
            self.executed.push((index, payload));
        }
        match self.say(&mut frames) {
            Said::All => {}
            Said::Full => return self.wait_for_room(ran),
            Said::Part => return Ran { wakes: self.wakes(), more: true, ..ran },
        }
        if let Some(status) = self.program.ended {
            self.arena.header().server_state.store(state::ENDED, Ordering::Release);
            return Ran { wakes: self.wakes(), ended: Some(status), ..ran };
        }
        if !self.input.is_empty().expect("the node keeps the ring whole") {
            ran.more = true;
            ran.wakes = self.wakes();
            return ran;
        }
        let header = self.arena.header();
        header.deadline_ns.store(self.program.deadline_ns(), Ordering::Relaxed);
        let waits = if self.program.is_busy() { state::SLOT } else { state::QUIESCENT };
        header.server_state.store(waits, Ordering::Release);
        header.server_gate.close();
        if !self.input.is_empty().expect("the node keeps the ring whole") {
            self.arena.header().server_gate.reopen();
            ran.more = true;
        }
        let header = self.arena.header();
        let planned = header.plan.look(header.awaited_timer());
        ran.until = planned.map(|next| Duration::from_nanos(next.step.at_ns));
        ran.wakes = self.wakes();
        ran
    }

    /// Takes the entry that it may take by itself by now, if nothing else is there; answers its length in the ring.
    fn take_planned(&self, now: Duration) -> Option<u64> {
        let is_empty = self.input.is_empty().expect("the node keeps the ring whole");
        let header = self.arena.header();
        let due_ns = header.awaited_timer().filter(|_| is_empty)?;
        let plan = &header.plan;
        let next = plan.next(due_ns)?;
        let takes = Duration::from_nanos(next.step.at_ns) <= now && plan.take(&next, due_ns);
        takes.then_some(next.step.bytes)
    }

    fn next(&mut self, planned: Option<u64>) -> Option<(LogIndex, Vec<u8>)> {
        let ring = match planned {
            Some(bytes) => self.input.planned(bytes),
            None => self.input.readable(),
        };
        let ring = ring.expect("the node keeps the ring whole");
        let head = ring.get(..FRAME_HEADER_BYTES)?;
        let len = u32::from_le_bytes(head[..4].try_into().expect("4 bytes")) as usize;
        let index = LogIndex(u64::from_le_bytes(head[8..].try_into().expect("8 bytes")));
        let payload = ring[FRAME_HEADER_BYTES..][..len].to_vec();
        self.input.release(pad8(FRAME_HEADER_BYTES + len));
        Some((index, payload))
    }

    /// Puts up to so many `frames` of its output into the ring.
    fn say(&mut self, frames: &mut usize) -> Said {
        if self.lost {
            self.unsaid.clear();
            return Said::All;
        }
        let mut at = 0;
        while at < self.unsaid.len() && *frames > 0 {
            let frame = &self.unsaid[at..];
            let len = u32::from_le_bytes(frame[4..8].try_into().expect("4 bytes")) as usize;
            let whole = pad8(FRAME_HEADER_BYTES + len);
            let Some(space) = self.output.reserve(whole).expect("the node keeps the ring whole")
            else {
                break;
            };
            space.copy_from_slice(&frame[..whole]);
            self.output.publish(whole);
            let parsed = OutFrame::parse(&frame[..whole]);
            if !matches!(parsed, Ok(Some((OutFrame::Admitted { .. }, _)))) {
                self.arena.header().news.say();
            }
            at += whole;
            *frames -= 1;
        }
        self.unsaid.drain(..at);
        if self.unsaid.is_empty()
            && self.program.raves
            && let Some(space) = self.output.reserve(64).expect("the node keeps the ring whole")
        {
            space.fill(0xa5);
            self.output.publish(64);
            self.lost = true;
        }
        match (self.unsaid.is_empty(), *frames) {
            (true, _) => Said::All,
            (false, 0) => Said::Part,
            (false, _) => Said::Full,
        }
    }

    fn wait_for_room(&mut self, mut ran: Ran) -> Ran {
        let header = self.arena.header();
        full::say(&header.server_state);
        header.server_gate.close();
        header.plan.look(None);
        let mut all = usize::MAX;
        ran.more = self.say(&mut all) == Said::All;
        if ran.more {
            self.arena.header().server_gate.reopen();
        }
        ran.wakes = self.wakes();
        ran
    }

    fn wakes(&self) -> bool {
        let header = self.arena.header();
        header.node_gate.open_for(|| header.has_news())
    }
}
