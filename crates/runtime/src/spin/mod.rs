//! Threads that spin: that wait for another thread by reading memory again and again, without any call.
//!
//! Under `serial` no other thread runs meanwhile, so such a thread would wait for ever. It is detected and gives the turn up, at a point that is the same on all
//! replicas and at every replay, though each of them notices it at another time:
//!
//! - A timer on the carrier's processor time notices that there was no operation for a while ([`on_tick`]). That decides only when to look.
//! - The thread is executed instruction by instruction ([`stepper`]), for a small part of the time that it has already taken. If its registers and all
//!   the memory that it touches return to an earlier value, it waits: only another thread can change its behaviour ([`cycle`]).
//! - The states that it goes through are the same on all replicas; of these the least in a total order is where it gives the turn up. A thread that
//!   makes progress by itself never does.
//! - Its registers and the words that it has read are kept ([`kept`]); it continues when one of these words has changed ([`crate::turn::spins`]). Until
//!   then it would do the same again, so it need not run: it costs nothing, and a server of which all threads wait so is quiescent.
//!
//! Undetected ones (a loop that counts in a register while it waits, a call of the kernel in it) spin on, and the node reports them.
//!
//! Looking leaves nothing in the server's memory: it happens on a stack of the runtime's own, and its notes are unmapped afterwards.

mod cycle;
mod effect;
mod kept;
mod machine;
mod memory;
mod stepper;
mod workspace;

pub use kept::forked;

use crate::kernel::kernel;
use crate::kernel::process::is_here;
use crate::local;
use crate::local::LOCAL;
use crate::local::header;
use crate::sys::{self, args};
use crate::{patch, signal};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;
use cycle::{Found, Order};
use libc::{c_int, c_void};
use machine::{FLAGS, Registers, Vectors};
use skein_model::limits::SPIN_SIGNAL;
use stepper::{Stepper, Stop};

/// The processor time between two checks for operations.
const TICK_NS: u64 = 10_000_000;
/// Ticks without an operation after which a thread is executed here for the first time; then after twice as many, and so on.
const FIRST_LOOK_TICKS: u64 = 2;
/// Instructions that are executed for each tick before: at some 100 ns each about a thirtieth of that time.
const STEPS_A_TICK: u64 = 3_000;
const MOST_STEPS: u64 = 8 << 20;
/// A thread that was found to spin before, and goes on, is looked at after this time.
const AGAIN_NS: u64 = 100_000;
const STEPS_AGAIN: u64 = 20_000;
/// Ticks after which an undetected thread is reported: a second.
const TOLD_TICKS: u64 = 100;

// The data of a timer's signal.
const TICK: usize = 1;
const AGAIN: usize = 2;

/// Begins to watch this process, whose carrier calls; `text` is this library's.
pub fn begin(text: (usize, usize)) {
    LOCAL.watch.text[0].store(text.0, Ordering::Relaxed);
    LOCAL.watch.text[1].store(text.1, Ordering::Relaxed);
    LOCAL.watch.next_look.store(FIRST_LOOK_TICKS, Ordering::Relaxed);
    signal::fault::handle_apart(SPIN_SIGNAL, on_tick);
    start_timers();
}

/// A forked process's carrier watches itself.
pub fn start_timers() {
    LOCAL.watch.operations.store(u64::MAX, Ordering::Relaxed);
    LOCAL.watch.again.store(timer(libc::CLOCK_MONOTONIC, AGAIN), Ordering::Relaxed);
    let tick = timer(libc::CLOCK_THREAD_CPUTIME_ID, TICK);
    LOCAL.watch.tick.store(tick, Ordering::Relaxed);
    set_timer(tick, TICK_NS, TICK_NS);
}

/// Takes back what [`start_timers`] did.
pub fn stop_timers() {
    for timer in [&LOCAL.watch.again, &LOCAL.watch.tick] {
        let id = timer.swap(-1, Ordering::Relaxed);
        if id >= 0 {
            // SAFETY: a number.
            unsafe { sys::raw(libc::SYS_timer_delete, args([id as usize])) };
        }
    }
}

/// A timer that sends this kernel thread the signal; none (-1) where the kernel has none left: spinning threads are then not found out.
fn timer(clock: c_int, value: usize) -> c_int {
    // SAFETY: all-zero is a valid `sigevent`.
    let mut event: libc::sigevent = unsafe { core::mem::zeroed() };
    event.sigev_value.sival_ptr = value as *mut c_void;
    event.sigev_signo = SPIN_SIGNAL;
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_notify_thread_id = sys::gettid() as c_int;
    let mut id: c_int = -1;
    // SAFETY: live locals.
    let made = unsafe {
        let a = args([clock as usize, &raw const event as usize, &raw mut id as usize]);
        sys::call(libc::SYS_timer_create, a)
    };
    if made.is_ok() { id } else { -1 }
}

fn set_timer(id: c_int, first_ns: u64, then_ns: u64) {
    let time = |ns: u64| skein_libos::abi::timespec { tv_sec: 0, tv_nsec: ns as i64 };
    let setting =
        skein_libos::abi::itimerspec { it_value: time(first_ns), it_interval: time(then_ns) };
    if id >= 0 {
        // SAFETY: a timer of this process, a live local.
        unsafe {
            sys::raw(libc::SYS_timer_settime, args([id as usize, 0, &raw const setting as usize]));
        }
    }
}

/// This library's text.
fn own_text() -> (u64, u64) {
    let [start, end] = [0, 1].map(|i| LOCAL.watch.text[i].load(Ordering::Relaxed) as u64);
    (start, end)
}

/// A thread goes on that was found to spin.
fn look_again_soon() {
    LOCAL.watch.operations.store(header().operations.load(Ordering::Relaxed), Ordering::Relaxed);
    LOCAL.watch.ticks.store(0, Ordering::Relaxed);
    LOCAL.watch.next_look.store(FIRST_LOOK_TICKS, Ordering::Relaxed);
    set_timer(LOCAL.watch.again.load(Ordering::Relaxed), AGAIN_NS, 0);
}

/// A timer's signal, or one of [`kept::restore`]'s. All that can be blocked is.
extern "C" fn on_tick(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    if let Some(number) = LOCAL.restores.swap(0, Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the kernel's frame.
        unsafe { kept::give_back(number, context) };
        return;
    }
    if !local::ready() {
        return;
    }
    let again = {
        // SAFETY: the kernel's `siginfo`; a timer's has a value.
        let (code, value) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr as usize) };
        code == libc::SI_TIMER && value == AGAIN
    };
    let h = header();
    let operations = h.operations.load(Ordering::Relaxed);
    if LOCAL.watch.operations.swap(operations, Ordering::Relaxed) != operations {
        LOCAL.watch.ticks.store(0, Ordering::Relaxed);
        LOCAL.watch.next_look.store(FIRST_LOOK_TICKS, Ordering::Relaxed);
        return;
    }
    // SAFETY: the kernel's frame.
    let at = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] } as u64;
    let (start, end) = own_text();
    let k = kernel();
    // Only the server's own code is looked at, and only while no kernel thread runs beside it.
    let has_turn = k.current.get() != 0 && is_here(k.this()) && !k.this().pinned.get();
    if (start..end).contains(&at) || !has_turn || LOCAL.creates_thread.load(Ordering::Relaxed) {
        return;
    }
    let ticks = LOCAL.watch.ticks.load(Ordering::Relaxed) + u64::from(!again);
    LOCAL.watch.ticks.store(ticks, Ordering::Relaxed);
    if ticks >= TOLD_TICKS {
        h.spin_address.store(patch::original(at as usize) as u64, Ordering::Relaxed);
        h.spin_seen.store(1, Ordering::Release);
    }
    let budget = if again {
        STEPS_AGAIN
    } else if ticks >= LOCAL.watch.next_look.load(Ordering::Relaxed) {
        LOCAL.watch.next_look.store(ticks * 2, Ordering::Relaxed);
        (ticks * STEPS_A_TICK).min(MOST_STEPS)
    } else {
        return;
    };
    // SAFETY: the kernel's frame of a thread of the server's that has the turn.
    unsafe { look(context, budget) };
}

/// Executes the interrupted thread for up to `budget` instructions; if it spins, it goes on by giving up the turn.
///
/// # Safety
/// `context` is the frame of a signal that interrupted the server's own code; nothing else of its process runs.
unsafe fn look(context: *mut libc::ucontext_t, budget: u64) {
    let Some(mut workspace) = workspace::Workspace::take() else { return };
    let (known, memory) = workspace.parts();
    // SAFETY: the caller's contract.
    let (registers, vectors) = unsafe { (registers_of(context), vectors_of(context)) };
    let (start, end) = own_text();
    let mut thread = Looked {
        stepper: Stepper::new(registers, vectors, known, memory, start..end),
        first: Registers::default(),
        vectors_at_first: UnsafeCell::new([0; MOST_VECTOR_BYTES]),
    };
    let order = Order(kernel().this().spin.order.get());
    let found = cycle::look(&mut thread, order, budget);
    // SAFETY: as above; what the thread has done meanwhile is what it would have done.
    unsafe { set_registers(context, &thread.stepper.registers) };
    if let Found::Cycle(_) = found {
        // SAFETY: as above.
        unsafe { kept::give_up_turn(context, vectors, thread.stepper.memory.words()) };
    }
}

/// A thread that is looked at, with its vector registers as they were at first.
struct Looked<'a> {
    stepper: Stepper<'a>,
    first: Registers,
    vectors_at_first: UnsafeCell<[u8; MOST_VECTOR_BYTES]>,
}

/// Bytes of vector registers that are kept: those of AVX-512 are 2,696.
const MOST_VECTOR_BYTES: usize = 3 << 10;

impl Looked<'_> {
    fn vectors(&self) -> &[u8] {
        // SAFETY: as the kernel has saved them, in the handler's frame.
        self.stepper.vectors.map_or(&[], |v| unsafe { core::slice::from_raw_parts(v.at, v.bytes) })
    }
}

impl cycle::Thread for Looked<'_> {
    type Stop = Stop;

    fn registers(&self) -> Registers {
        self.stepper.registers
    }

    fn begin(&mut self) {
        self.first = self.stepper.registers;
        let vectors = self.vectors();
        let at = self.vectors_at_first.get().cast::<u8>();
        // SAFETY: not more bytes than there is room for (`vectors_of`).
        unsafe { at.copy_from_nonoverlapping(vectors.as_ptr(), vectors.len()) };
        self.stepper.begin();
    }

    fn step(&mut self) -> Result<(), Stop> {
        self.stepper.step()
    }

    fn as_at_first(&self) -> bool {
        let vectors_are = || {
            let vectors = self.vectors();
            // SAFETY: written by `begin`.
            let first = unsafe { &*self.vectors_at_first.get() };
            !self.stepper.vectors_used || vectors == &first[..vectors.len()]
        };
        self.stepper.memory.as_at_first() && vectors_are()
    }

    fn digest(&self) -> u64 {
        self.stepper.memory.digest()
    }
}

/// Where a signal's frame has the general registers, in the processor's order.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

unsafe fn registers_of(context: *const libc::ucontext_t) -> Registers {
    // SAFETY: the caller's contract: a signal's frame.
    let all = unsafe { &(*context).uc_mcontext.gregs };
    Registers {
        rip: all[libc::REG_RIP as usize] as u64,
        general: GENERAL.map(|n| all[n as usize] as u64),
        flags: all[libc::REG_EFL as usize] as u64 & FLAGS,
    }
}

unsafe fn set_registers(context: *mut libc::ucontext_t, registers: &Registers) {
    // SAFETY: the caller's contract: a signal's frame.
    let all = unsafe { &mut (*context).uc_mcontext.gregs };
    for (n, value) in GENERAL.into_iter().zip(registers.general) {
        all[n as usize] = value as i64;
    }
    all[libc::REG_RIP as usize] = registers.rip as i64;
    let flags = &mut all[libc::REG_EFL as usize];
    *flags = *flags & !(FLAGS as i64) | registers.flags as i64;
}

/// The vector registers in a signal's frame, where the kernel says what is there.
unsafe fn vectors_of(context: *const libc::ucontext_t) -> Option<Vectors> {
    // The end of the first 512 bytes: a mark, all bytes, the parts, and bytes that `xsave` uses.
    const SOFTWARE: usize = 464;
    const MARK: u32 = 0x4650_5853;
    // SAFETY: the caller's contract: a signal's frame.
    unsafe {
        let at = (*context).uc_mcontext.fpregs.cast::<u8>();
        if at.is_null() || at.add(SOFTWARE).cast::<u32>().read() != MARK {
            return None;
        }
        let mask = at.add(SOFTWARE + 8).cast::<u64>().read();
        let bytes = at.add(SOFTWARE + 16).cast::<u32>().read() as usize;
        let usable = bytes <= MOST_VECTOR_BYTES && at.align_offset(64) == 0;
        usable.then_some(Vectors { at, bytes, mask })
    }
}
