//! Instructions that trap, replaced: `syscall`, `rdtsc` and `rdtscp` in the server's and its libraries' text.
//!
//! What the net catches ([`crate::trap`], [`crate::instructions`]) costs a signal. A place that is caught again and again is replaced by a jump to a
//! stub ([`stub`]) that asks the same functions without one: the same operations, in the same order, with the same answers. So a replaced instruction
//! changes nothing that a replica computes, only how long it takes; and since it is replaced after a number of executions, all replicas do it at the same
//! point, and their address spaces stay the same.
//!
//! # When a place may be replaced
//!
//! - It lies in a segment of code of an object that the loader has loaded, not in this library's, nor in the loader's, nor in code that the
//!   server has made itself.
//! - The instructions behind it that the jump covers can be moved, and nothing that can be seen jumps in among them ([`code`]).
//! - No thread is inside a call from that place: it would come back to what is no instruction any more. And no kernel thread runs beside this one:
//!   none while libc creates one ([`libc_calls`]).
//!
//! A place that may not be goes on trapping, and is counted so. A library that is unloaded takes its places with it; their stubs stay, unused.
//!
//! # Threads, processes, crashes
//!
//! Everything in here is private memory of one process, used by whoever has the turn; a forked process has a copy of it, with the text and the stubs that
//! belong to it. An executed program begins with nothing replaced.

mod code;
mod module;
mod stub;

pub use stub::Kind;

use crate::kernel::header;
use crate::{instructions, libc_calls, trap};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use module::Module;
use skein_arena::trapped;
use stub::{Areas, Registers};

/// Executions of one place that are trapped before it is replaced: looking through a large program's text takes as long as a thousand of them, and most
/// places of most programs are executed a few times in their lives.
const PATIENCE: u32 = 64;
/// Places that are remembered. When there are more, the others stay as they are.
const PLACES: usize = 1024;

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
    traps: Cell<u32>,
    /// Threads that are inside a call from here.
    inside: Cell<u32>,
    state: Cell<State>,
}

struct Process {
    places: [Place; PLACES],
    areas: Areas,
    ready: AtomicBool,
}

// SAFETY: used by the turn's holder only; kernel threads that libc is creating do not come here.
unsafe impl Sync for Process {}

static PROCESS: Process = Process {
    places: [const {
        Place {
            address: Cell::new(0),
            traps: Cell::new(0),
            inside: Cell::new(0),
            state: Cell::new(State::Counting),
        }
    }; PLACES],
    areas: Areas::new(),
    ready: AtomicBool::new(false),
};

/// Begins; to be called while `cpuid` does not trap.
pub fn prepare() {
    PROCESS.ready.store(stub::prepare(), Ordering::Relaxed);
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

/// A call that is being answered in the net's handler.
pub struct Inside(Option<&'static Place>);

impl Inside {
    /// At a place that is not remembered.
    pub const fn unknown() -> Self {
        Self(None)
    }

    /// It has been answered.
    pub fn leave(self) {
        if let Some(place) = self.0 {
            place.inside.set(place.inside.get() - 1);
        }
    }
}

/// The instruction at `address` has trapped. `None`: it is replaced now, and is to be executed again. `may_be` is false for what must go on trapping.
pub fn trapped(address: usize, kind: Kind, may_be: bool) -> Option<Inside> {
    if libc_calls::newborn() || !PROCESS.ready.load(Ordering::Relaxed) {
        return Some(Inside::unknown());
    }
    let Some(place) = place(address) else { return Some(Inside::unknown()) };
    if place.state.get() == State::Replaced {
        // It would not trap: another library is there now, or the server has taken its text back.
        place.state.set(State::Counting);
        place.traps.set(0);
    }
    let traps = place.traps.get().saturating_add(1);
    place.traps.set(traps);
    let now = place.state.get() == State::Counting && traps > PATIENCE && may_be;
    if now && place.inside.get() == 0 && !libc_calls::creating() {
        match replace(address, kind) {
            Some(()) => {
                place.state.set(State::Replaced);
                return None;
            }
            None => place.state.set(State::Stays),
        }
    }
    place.inside.set(place.inside.get() + 1);
    Some(Inside(Some(place)))
}

/// Replaces the instruction at `address`, if that can be done.
fn replace(address: usize, kind: Kind) -> Option<()> {
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
    let areas = &PROCESS.areas;
    let code = code::Code {
        text: module.text,
        data: module.data,
        function: &|at| module.function(at),
        displaced: &|target| areas.displaced(target),
    };
    let total = code.room(address, kind.bytes().len())?;
    let stub = areas.make(address, kind, total, module.start)?;
    // What is left over is never executed: a breakpoint, so that it would not go unnoticed.
    let mut bytes = [0xcc; code::MOST_BYTES];
    bytes[..code::JUMP_BYTES].copy_from_slice(&stub::jump(address, stub)?);
    // SAFETY: text of a loaded object, which is private; all other kernel threads of this process sleep in this library.
    unsafe { stub::write(address, &bytes[..total]) }
}

/// The address in the server's text that a place in a stub stands for; any other address as it is.
pub fn original(address: usize) -> usize {
    PROCESS.areas.original(address).unwrap_or(address)
}

/// Back from the address in the text that a place in a stub stood for, or one near it, to the stub: the text is not there any more.
pub fn moved(in_stub: usize, original: usize) -> usize {
    PROCESS.areas.moved(in_stub, original)
}

/// A replaced instruction is executed.
extern "C" fn answer(registers: &mut Registers) {
    let (kind, behind) = registers.place();
    match kind {
        Kind::Rdtsc | Kind::Rdtscp => {
            header().patched.note(trapped::RDTSC);
            let now = instructions::time_stamp();
            registers.rax = now & 0xffff_ffff;
            registers.rdx = now >> 32;
            if kind == Kind::Rdtscp {
                registers.rcx = 0;
            }
        }
        Kind::Syscall => {
            let nr = registers.rax as i64;
            let r = &*registers;
            let a = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9].map(|word| word as usize);
            // As the processor leaves them.
            registers.rcx = behind as u64;
            registers.r11 = registers.flags;
            if !trap::without_signal(nr) {
                registers.really();
                return;
            }
            header().net_calls.fetch_add(1, Ordering::Relaxed);
            header().patched.note(trap::counter(nr));
            registers.rax = trap::answer_patched(nr, a, behind) as u64;
        }
    }
}
