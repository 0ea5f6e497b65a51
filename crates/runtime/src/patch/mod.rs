//! Instructions that trap, replaced: `syscall`, `rdtsc` and `rdtscp` in the server's and its libraries' text.
//!
//! Traps in the net ([`crate::entry::net`], [`crate::entry::instructions`]) cost a signal. A place that is caught again and again is replaced by a jump to a
//! stub ([`stub`]) that asks the same functions without one: the same operations, in the same order, with the same answers. So a replaced instruction
//! changes nothing that a replica computes, only its duration; and since it is replaced after a number of executions, all replicas do it at the same
//! point, and their address spaces stay the same.
//!
//! # When a place may be replaced
//!
//! - It lies in a segment of code of an object that the loader has loaded, not in this library's, nor in the loader's, nor in code that the
//!   server has made itself.
//! - The instructions behind it that the jump covers can be moved, and nothing that can be seen jumps in among them ([`code`]).
//! - No kernel thread runs beside this one: none while libc creates one ([`libc_calls`]); due replacements are then done when the new one is parked
//!   ([`thread_created`]).
//!
//! A thread that is inside a call from there goes on in the stub ([`Inside::moved`]).
//!
//! A place that fails these rules keeps trapping, and is counted as such. A library that is unloaded takes its places with it; their stubs stay, unused.
//!
//! # Threads, processes, crashes
//!
//! Stubs are private memory of one process, used by the turn's holder; a forked process has a copy of them, with the text that belongs to them. Traps
//! are counted, and judged once, for all processes of the server together ([`skein_arena::places`]): a short-lived one profits from the traps of earlier
//! ones. A process that forks first replaces the places that its children have met ([`before_fork`]). An executed program begins with nothing replaced, and
//! replaces the known places at the first trap.

mod code;
pub mod instruction;
mod module;
mod newborn;
mod stub;

pub use code::Stretch;
pub use stub::{Kind, write};

use crate::local::LOCAL;
use crate::local::header;
use crate::vectors;
use code::Room;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use module::{Called, Module};
use skein_arena::places::{Id, Verdict};
use stub::{Areas, Made};

/// The number of trapped executions of one place before it is replaced, in all processes: most places of most programs are executed a few times in
/// their lives, and looking through a large program's text takes as long as a thousand traps. A small text is looked through sooner.
const PATIENCE: u64 = 64;
const LEAST_PATIENCE: u64 = 4;
/// Bytes of text for which one more trap is waited for.
const TEXT_A_TRAP: usize = 128 << 10;
/// Places that are remembered. When there are more, the others stay as they are.
const PLACES: usize = 1024;
/// Places that wait until libc has created a thread.
const MOST_DUE: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Counting,
    /// It cannot be.
    Stays,
    Replaced,
}

/// An instruction that traps.
struct Place {
    address: Cell<usize>,
    traps: Cell<u64>,
    /// Traps that are waited for; 0: not known yet.
    patience: Cell<u64>,
    /// Where in the stub execution goes on behind the instruction, when it is replaced.
    behind: Cell<usize>,
    state: Cell<State>,
    /// Its number in the arena's table, where its object has a build id, and 1; 0: none.
    shared: Cell<u32>,
}

struct Process {
    places: [Place; PLACES],
    due: [Cell<Option<(usize, Kind)>>; MOST_DUE],
    areas: Areas,
}

// SAFETY: used by the turn's holder only; kernel threads that libc is creating do not come here.
unsafe impl Sync for Process {}

static PROCESS: Process = Process {
    places: [const {
        Place {
            address: Cell::new(0),
            traps: Cell::new(0),
            patience: Cell::new(0),
            behind: Cell::new(0),
            state: Cell::new(State::Counting),
            shared: Cell::new(0),
        }
    }; PLACES],
    due: [const { Cell::new(None) }; MOST_DUE],
    areas: Areas::new(),
};

/// Begins; to be called while `cpuid` does not trap.
pub fn prepare() {
    LOCAL.patches.store(vectors::prepare(), Ordering::Relaxed);
}

/// Whether the processor and the kernel know how to save vector registers.
pub fn vectors_can_be_saved() -> bool {
    LOCAL.patches.load(Ordering::Relaxed)
}

/// The place of an address, if there is room to remember it.
fn place(address: usize) -> Option<&'static Place> {
    // Golden ratio; the upper bits.
    let first = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    for n in 0..PLACES {
        let place = &PROCESS.places[(first + n) % PLACES];
        if place.address.get() == 0 {
            // Nearly full: searching would take long.
            if n > 64 {
                return None;
            }
            place.address.set(address);
        }
        if place.address.get() == address {
            return Some(place);
        }
    }
    None
}

impl Place {
    /// Another library is at this address now.
    fn begin_anew(&self) {
        self.state.set(State::Counting);
        self.traps.set(0);
        self.patience.set(0);
        self.shared.set(0);
    }

    /// Finds its name in the arena's table.
    fn call(&self) {
        let called = Called::of(self.address.get());
        let more = (called.text_bytes / TEXT_A_TRAP) as u64;
        self.patience.set((LEAST_PATIENCE + more).min(PATIENCE));
        let places = &header().places;
        let known = places.find(called.id, &called.name, called.offset);
        let number = known.or_else(|| places.add(called.id, &called.name, called.offset));
        let Some(number) = number else { return };
        self.shared.set(number as u32 + 1);
        if let Some(place) = self.shared() {
            place.is_at(self.address.get() as u64);
        }
    }

    /// The same in the arena's table, if it is there.
    fn shared(&self) -> Option<&'static skein_arena::places::Place> {
        header().places.all().get((self.shared.get() as usize).checked_sub(1)?)
    }

    /// Its known state from other processes. A place without a build id may belong to another object of the same name.
    fn known(&self) -> Option<&'static skein_arena::places::Place> {
        self.shared().filter(|place| place.object() != Id::default())
    }

    /// Adds traps that are counted as `call`.
    fn note(&self, call: usize, traps: u64) {
        if self.patience.get() == 0 {
            self.call();
        }
        let everywhere = self.shared().map_or(0, |place| {
            if LOCAL.was_executed.get() {
                place.note_in_executed(traps);
            }
            place.note(call, traps)
        });
        let here = self.traps.get().saturating_add(traps);
        self.traps.set(if self.known().is_some() { everywhere } else { here });
    }

    /// Whether it has trapped often enough.
    fn often(&self) -> bool {
        let replaced = |place: &skein_arena::places::Place| {
            matches!(place.verdict(), Verdict::Replaced { .. })
        };
        self.traps.get() > self.patience.get() || self.known().is_some_and(replaced)
    }

    /// Replaces the instruction if that can be done; answers where in the stub it is executed.
    fn replace(&self, kind: Kind) -> Option<usize> {
        let known = self.known();
        let verdict = known.map_or(Verdict::Counting, |place| place.verdict());
        let made = match verdict {
            Verdict::Stays => None,
            Verdict::Replaced { from, before } => {
                let room = Room { from: from.into(), before: before.into() };
                replace(self.address.get(), kind, Some(room))
            }
            Verdict::Counting => replace(self.address.get(), kind, None),
        };
        self.state.set(if made.is_some() { State::Replaced } else { State::Stays });
        self.behind.set(made.as_ref().map_or(0, |(_, stub)| stub.behind));
        if verdict == Verdict::Counting {
            let verdict = made.as_ref().map_or(Verdict::Stays, |(room, _)| Verdict::Replaced {
                from: room.from as u8,
                before: room.before as u8,
            });
            if let Some(place) = self.shared() {
                place.judge(verdict);
            }
            if made.is_some() && known.is_some() {
                header().places.note_replaced();
            }
        }
        made.map(|(_, stub)| stub.begin)
    }
}

/// The treatment of a trap.
pub enum Met {
    /// The instruction is replaced now: execution goes on at this address, in its stub.
    Replaced(usize),
    /// It must be answered.
    Answer(Inside),
}

/// A call that is being answered in the net's handler, from a place that may be replaced meanwhile.
pub struct Inside(Option<&'static Place>);

impl Inside {
    /// At a place that is not remembered.
    pub const fn unknown() -> Self {
        Self(None)
    }

    /// It has been answered: the address where execution continues, if that is not behind the instruction any more.
    pub fn moved(self) -> Option<usize> {
        let place = self.0.filter(|place| place.state.get() == State::Replaced)?;
        Some(place.behind.get())
    }
}

/// The instruction at `address` has trapped, which is counted as `call`. `may_be` is false for what must go on trapping, `newborn` says
/// that a kernel thread was trapped that libc has just made.
pub fn trapped(address: usize, kind: Kind, call: usize, may_be: bool, newborn: bool) -> Met {
    let unknown = || Met::Answer(Inside::unknown());
    if !LOCAL.patches.load(Ordering::Relaxed) {
        return unknown();
    }
    if newborn {
        newborn::note(address, call);
        return unknown();
    }
    let Some(place) = place(address) else { return unknown() };
    if place.state.get() == State::Replaced {
        // It would not trap: another library is there now, or the server has restored its text.
        place.begin_anew();
    }
    place.note(call, 1);
    if place.state.get() == State::Counting && may_be && place.often() {
        if LOCAL.creates_thread.load(Ordering::Relaxed) {
            wait_for_thread(address, kind);
        } else if let Some(at) = place.replace(kind) {
            return Met::Replaced(at);
        }
    }
    Met::Answer(Inside(Some(place)))
}

/// A place is to be replaced when libc has created its thread.
fn wait_for_thread(address: usize, kind: Kind) {
    let due = &PROCESS.due;
    if due.iter().all(|slot| slot.get().is_none_or(|(there, _)| there != address))
        && let Some(free) = due.iter().find(|slot| slot.get().is_none())
    {
        free.set(Some((address, kind)));
    }
}

/// libc has created a thread, which is parked: traps in between, including the new kernel thread's, are counted, and places replaced if due.
pub fn thread_created() {
    newborn::take(|address, call, traps| {
        let Some(place) = place(address) else { return };
        place.note(call, traps);
        if place.state.get() == State::Counting && place.often() {
            wait_for_thread(address, Kind::Syscall);
        }
    });
    for slot in &PROCESS.due {
        let Some((address, kind)) = slot.take() else { continue };
        if let Some(place) = place(address)
            && place.state.get() == State::Counting
        {
            place.replace(kind);
        }
    }
}

/// This process will be copied: places that trapped often in any of the server's processes are replaced in this one, so that they are in the copies.
pub fn before_fork() {
    let (places, seen) = (&header().places, &LOCAL.places_replaced);
    // Another thread's creation may be under way: then it is left to the next fork.
    let can_be =
        LOCAL.patches.load(Ordering::Relaxed) && !LOCAL.creates_thread.load(Ordering::Relaxed);
    if !can_be || seen.get() == places.replaced() {
        return;
    }
    seen.set(places.replaced());
    for shared in to_replace() {
        // Where it was in the process that it trapped in: as here, if that came from this one.
        let address = shared.address() as usize;
        let called = Called::of(address);
        if called.id == shared.object() && called.offset == shared.offset() {
            replace_known(address);
        }
    }
}

/// In an executed program: places that trapped often in others before it are replaced at once.
pub fn executed() {
    LOCAL.was_executed.set(true);
    if !LOCAL.patches.load(Ordering::Relaxed) {
        return;
    }
    let usual = |place: &&skein_arena::places::Place| place.in_executed() > LEAST_PATIENCE;
    if to_replace().any(|place| usual(&place)) {
        module::each(|id, base| {
            for shared in to_replace().filter(usual).filter(|place| place.object() == id) {
                replace_known(base.wrapping_add(shared.offset() as usize));
            }
        });
    }
}

/// Places that are replaced in every process that comes there.
fn to_replace() -> impl Iterator<Item = &'static skein_arena::places::Place> {
    header().places.all().iter().filter(|place| {
        matches!(place.verdict(), Verdict::Replaced { .. }) && place.object() != Id::default()
    })
}

/// Replaces one of them, before it traps here.
fn replace_known(address: usize) {
    let (Some(place), Some(kind)) = (place(address), kind_at(address)) else { return };
    if place.state.get() == State::Counting {
        if place.patience.get() == 0 {
            place.call();
        }
        place.replace(kind);
    }
}

/// The instruction at an address of a loaded object's text.
fn kind_at(address: usize) -> Option<Kind> {
    let module = Module::of(address)?;
    let there = module.text.bytes.get(address.checked_sub(module.text.at)?..)?;
    let kinds = [Kind::Syscall, Kind::Rdtsc, Kind::Rdtscp];
    kinds.into_iter().find(|kind| there.starts_with(kind.bytes()))
}

/// Replaces the instruction at `address`, if possible; if that is known already, with its room, it is only checked once more.
/// With what room, and by which stub.
fn replace(address: usize, kind: Kind, known: Option<Room>) -> Option<(Room, Made)> {
    let module = Module::of(address)?;
    let own = prepare as *const () as usize;
    // SAFETY: reads a word of the auxiliary vector.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    let text = module.text.at..module.text.at + module.text.bytes.len();
    if text.contains(&own) || module.start == loader {
        return None;
    }
    let there = &module.text.bytes[address - text.start..];
    if !there.starts_with(kind.bytes()) {
        return None;
    }
    let len = kind.bytes().len();
    let room = module.code(|code| match known {
        Some(known) => code.displaces(address, len).filter(|room| *room == known),
        None => code.room(address, len),
    })?;
    jump_from(&module, address, kind, room)
}

/// Replaces a system call of the loader's, which has a handful of them, each in a function of its own that nothing jumps into.
pub fn replace_loaders(address: usize) -> bool {
    let kind = Kind::Syscall;
    let replaced = || {
        let module = Module::of(address)?;
        let room = module.code(|code| {
            let fits = code.displaces(address, kind.bytes().len());
            fits.filter(|_| code.is_instruction(address) == Some(true))
        })?;
        jump_from(&module, address, kind, room)
    };
    LOCAL.patches.load(Ordering::Relaxed) && replaced().is_some()
}

/// Makes a stub for an instruction, and puts a jump to it in the place of the instruction and those around it.
fn jump_from(module: &Module, address: usize, kind: Kind, room: Room) -> Option<(Room, Made)> {
    let stub = PROCESS.areas.make(address, kind, room, module.start)?;
    let start = address - room.before;
    // The remaining bytes are never executed: breakpoints, so that an execution would be noticed.
    let mut bytes = [0xcc; code::MOST_BEFORE + code::MOST_BYTES];
    bytes[..code::JUMP_BYTES].copy_from_slice(&stub::jump(start, stub.entry)?);
    // SAFETY: text of a loaded object, which is private; all other kernel threads of this process sleep in this library.
    unsafe { stub::write(start, &bytes[..room.before + room.from])? };
    Some((room, stub))
}

impl Module {
    /// Its code, for `look` to look at.
    fn code<T>(&self, look: impl FnOnce(&code::Code<'_>) -> T) -> T {
        look(&code::Code {
            text: self.text,
            data: self.data,
            function: &|at| self.function(at),
            displaced: &|target| PROCESS.areas.displaced(target),
        })
    }
}

/// The address in the server's text that a place in a stub stands for; any other address unchanged.
pub fn original(address: usize) -> usize {
    PROCESS.areas.original(address).unwrap_or(address)
}

/// Back from the address in the text that a place in a stub stood for, or one near it, to the stub: the text is not there any more.
pub fn moved(in_stub: usize, original: usize) -> usize {
    PROCESS.areas.moved(in_stub, original)
}
