//! Signals: virtual, delivered at points that are a function of the log.
//!
//! What the server asks for (dispositions, masks, alternate stacks) is kept here and never told to the kernel; what it sends itself, what its
//! timers send and what comes through the log is posted here ([`send`]). A signal that a thread has unblocked is delivered synchronously, on
//! the carrier, at the end of an operation of that thread ([`boundary`]); one that is blocked in a call is woken for it.
//!
//! - [`send`] posts signals, [`pending`] keeps them until they are taken.
//! - [`deliver`] runs handlers.
//! - [`stop`] stops processes and lets them go on.
//! - [`wait`] is for threads that wait for signals.
//! - [`fault`] has the kernel's own handlers: faults of the server, and signals from outside, which are not let in.
//! - [`timer`] has the timers that send signals.
//! - [`alternate`] has the alternate stacks.
//! - [`jump`] saves and restores the mask with `sigsetjmp` and `siglongjmp`.
//!
//! Invariant: `SignalState::any` counts the pending sets that are not empty, and the processes that are stopped, so that nothing is looked at while nothing is pending.

mod alternate;
pub mod calls;
pub mod deliver;
pub mod fault;
mod pending;
mod send;
pub mod stop;
pub mod timer;
pub mod wait;

use crate::kernel::{Kernel, kernel};
use crate::process::ProcessHandle;
use crate::process::{self, Process};
use crate::sys;
use crate::thread::Thread;
use crate::turn;
use core::cell::Cell;
use libc::c_int;
use skein_arena::pool::{Handle, Link, Pool};
use skein_libos::errno::{Errno, Result};
use skein_model::limits::SPIN_SIGNAL;
use skein_sched::op::{Kind, Object};

pub use alternate::set_alternate;
pub use deliver::{boundary, boundary_of, boundary_of_call, deliver, interrupted};
pub use fault::terminate_by_signal;
pub use pending::{Pending, Queued};
use send::post_from;
pub use send::{Target, check, post, raise_here, send_to, send_to_process, send_to_thread};
use skein_libos::room::Room;
use skein_libos::thread::Life;
use skein_libos::thread::Wake;

/// Signals are numbered from 1 to this.
pub const LAST: c_int = 64;
/// The first real-time signal of the kernel's; these queue.
const FIRST_REALTIME: c_int = 32;
/// Signals that are queued at one time: 16,384.
const MAX_QUEUED: u32 = 16 << 10;

/// A signal's bit in a set.
pub const fn bit(signo: c_int) -> u64 {
    1 << (signo - 1)
}

/// Signals that nobody can block.
const NEVER_BLOCKED: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
/// Signals that stop a process by default.
const STOPS: u64 =
    bit(libc::SIGSTOP) | bit(libc::SIGTSTP) | bit(libc::SIGTTIN) | bit(libc::SIGTTOU);
/// Signals that do nothing by default.
const HARMLESS: u64 =
    bit(libc::SIGCHLD) | bit(libc::SIGCONT) | bit(libc::SIGURG) | bit(libc::SIGWINCH);
/// Signals that faults raise; these come first.
const FAULTS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSYS);

/// Signals that belong to the runtime: a server can neither block nor handle them.
pub const fn own(signo: c_int) -> bool {
    signo == libc::SIGSYS || signo == SPIN_SIGNAL
}

/// What comes with a signal: the used part of the kernel's `siginfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// Its number.
    pub signo: c_int,
    /// Always 0.
    pub errno: c_int,
    /// Where it came from: `SI_USER`, `SI_TIMER`, ...
    pub code: c_int,
    /// Nothing.
    pub pad: c_int,
    /// The sender's pid, or a timer's id.
    pub pid: c_int,
    /// The sender's user, or a timer's overrun.
    pub uid: c_int,
    /// A value that was sent along; of a child the status.
    pub value: u64,
    /// What few signals have.
    pub rest: [u64; 2],
}

impl Info {
    /// A signal that a process or thread sent.
    pub fn sent(signo: c_int, code: c_int) -> Self {
        let (pid, uid) = (process::this().pid.get(), user());
        Self { signo, code, pid, uid, ..Self::default() }
    }

    /// A signal of the machine's, which no process sent.
    pub fn of_kernel(signo: c_int) -> Self {
        const SI_KERNEL: c_int = 0x80;
        Self { signo, code: SI_KERNEL, ..Self::default() }
    }

    /// `SIGCHLD` of a process with this wait status.
    pub fn of_child(child: &Process, status: c_int) -> Self {
        let (code, value) = process::wait::told(status);
        let (signo, pid, value) = (libc::SIGCHLD, child.pid.get(), value as u64);
        Self { signo, code, pid, uid: user(), value, ..Self::default() }
    }

    /// From the server's own `siginfo` (`rt_sigqueueinfo`).
    ///
    /// # Safety
    /// `from` is a valid `siginfo`.
    pub unsafe fn read(from: *const libc::siginfo_t) -> Self {
        // SAFETY: the caller's contract; a `siginfo` is larger.
        unsafe { from.cast::<Self>().read() }
    }

    /// The whole `siginfo`.
    ///
    /// # Safety
    /// `out` is the server's to write.
    pub unsafe fn write(&self, out: *mut libc::siginfo_t) {
        // SAFETY: the caller's contract; the rest is zero, as the kernel leaves it.
        unsafe {
            out.cast::<u8>().write_bytes(0, size_of::<libc::siginfo_t>());
            out.cast::<Self>().write(*self);
        }
    }
}

/// All of the server is one user's.
fn user() -> c_int {
    // SAFETY: no arguments.
    unsafe { sys::raw(libc::SYS_getuid, sys::args([])) as c_int }
}

const _: () = assert!(size_of::<Info>() == 48 && core::mem::offset_of!(Info, pid) == 16);

/// What the server wants done: the kernel's `sigaction`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or a function.
    pub handler: usize,
    /// `SA_` flags.
    pub flags: u64,
    /// Kept for whoever asks.
    pub restorer: usize,
    /// What is blocked meanwhile, too.
    pub mask: u64,
}

impl Action {
    /// Whether a flag is set.
    pub const fn has(&self, flag: c_int) -> bool {
        self.flags & flag as u32 as u64 != 0
    }
}

/// A process's signals. All-zero: everything as by default.
#[repr(C)]
pub struct ProcessSignals {
    actions: [Cell<Action>; LAST as usize],
    /// Sent to the process as a whole.
    pub pending: Pending,
    /// Signals of `siginterrupt`: `signal` gives them no `SA_RESTART`.
    interrupting: Cell<u64>,
    /// `setitimer`'s three timers.
    pub interval_timers: [Link<timer::SignalTimer>; 3],
    /// Timers that call functions.
    pub callers: timer::Callers,
}

/// A thread's signals. All-zero: nothing blocked, nothing pending.
#[repr(C)]
pub struct ThreadSignals {
    /// What is blocked.
    pub mask: Cell<u64>,
    /// The mask that comes back after the next handler (`sigsuspend`, `ppoll`), when there is one.
    saved: Cell<u64>,
    has_saved: Cell<bool>,
    /// Sent to this thread.
    pub pending: Pending,
    /// What it waits for (`sigwait`).
    waiting: Cell<u64>,
    /// Its alternate stack: start, bytes, flags; without a byte between that nobody writes.
    pub alternate: Cell<(usize, usize, libc::c_long)>,
}

/// What all processes share. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct SignalState {
    /// How many pending sets are not empty, and how many processes are stopped.
    pub any: Cell<u32>,
    _pad: Cell<u32>,
    queued: Pool<Queued>,
    /// Timers that send signals.
    pub timers: Pool<timer::SignalTimer>,
}

impl SignalState {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.queued, MAX_QUEUED);
        room.pool(&self.timers, timer::MAX_TIMERS);
    }
}

/// The signals of the process that `t` is of.
fn process_of<'a>(k: &'a Kernel, t: &Thread) -> &'a ProcessSignals {
    &k.processes.get(t.process.get().expect("a thread's process")).signals
}

impl ProcessSignals {
    /// What is to be done about a signal.
    pub fn action(&self, signo: c_int) -> Action {
        self.actions[signo as usize - 1].get()
    }

    /// Whether a signal that nobody blocks does nothing.
    fn ignores(&self, signo: c_int) -> bool {
        match self.action(signo).handler {
            libc::SIG_IGN => true,
            libc::SIG_DFL => HARMLESS & bit(signo) != 0,
            _ => false,
        }
    }

    /// Whether nothing else was asked for a signal than what it does by default.
    fn defaults(&self, signo: c_int) -> bool {
        self.action(signo).handler == libc::SIG_DFL
    }

    /// Whether a signal ends the process.
    fn ends(&self, signo: c_int) -> bool {
        self.action(signo).handler == libc::SIG_DFL && (HARMLESS | STOPS) & bit(signo) == 0
    }
}

/// The threads of a process that can take signals, oldest first.
fn threads(k: &Kernel, process: ProcessHandle) -> impl Iterator<Item = Handle<Thread>> {
    process::threads_of(k, process)
        .filter(|(_, t)| t.tid.get() != 0 && !matches!(t.life.get(), Life::Unborn | Life::Ended))
        .map(|(h, _)| h)
}

/// The main thread has its process's number.
fn main_thread(k: &Kernel, process: ProcessHandle) -> Option<Handle<Thread>> {
    let pid = k.processes.get(process).pid.get() as u32;
    threads(k, process).find(|h| k.threads.get(*h).tid.get() == pid)
}

/// Who takes a signal that is sent to the process: the main thread if it has it unblocked, else the first thread that has.
fn pick(k: &Kernel, process: ProcessHandle, set: u64) -> Option<Handle<Thread>> {
    let wants = |h: &Handle<Thread>| {
        let t = k.threads.get(*h);
        t.signals.mask.get() & set == 0 && !t.exiting.get()
    };
    main_thread(k, process).filter(wants).or_else(|| threads(k, process).find(wants))
}

/// Who waits for it in `sigwait`.
fn waiter(k: &Kernel, target: Target, set: u64) -> Option<Handle<Thread>> {
    let waits = |h: &Handle<Thread>| k.threads.get(*h).signals.waiting.get() & set != 0;
    match target {
        Target::Thread(h) => Some(h).filter(waits),
        Target::Process(process) => threads(k, process).find(waits),
    }
}

/// What the turn's holder has to take now.
fn due(k: &Kernel) -> u64 {
    let me = k.current();
    let t = k.this();
    let process = t.process.get().expect("a thread's process");
    let open = !t.signals.mask.get();
    let mut all = t.signals.pending.bits() & open;
    let mut common = process_of(k, t).pending.bits() & open;
    while common != 0 {
        let one = common & common.wrapping_neg();
        common &= !one;
        if pick(k, process, one) == Some(me) {
            all |= one;
        }
    }
    all
}

/// Whether the turn's holder must run a handler before it may block.
#[inline]
pub fn is_due(k: &Kernel) -> bool {
    k.signals.any.get() != 0 && due(k) != 0
}

/// Takes the next signal of `set` that is for the turn's holder.
fn take(k: &Kernel, set: u64) -> Option<Info> {
    let t = k.this();
    t.signals.pending.take(k, set).or_else(|| process_of(k, t).pending.take(k, set))
}

/// Takes a signal of `set` for the turn's holder, as a signalfd does.
pub fn take_of(k: &Kernel, set: u64) -> Option<Info> {
    take(k, set & !NEVER_BLOCKED)
}

/// Whether a signal of `set` waits for the turn's holder.
pub fn waits_for(k: &Kernel, set: u64) -> bool {
    let t = k.this();
    (t.signals.pending.bits() | process_of(k, t).pending.bits()) & set & !NEVER_BLOCKED != 0
}

/// Sets the turn's holder's mask. What another thread must take now instead is handed on.
pub fn set_mask(k: &Kernel, mask: u64) {
    let t = k.this();
    let before = t.signals.mask.replace(mask & !NEVER_BLOCKED);
    let closed = mask & !before;
    let common = process_of(k, t).pending.bits() & closed;
    if k.signals.any.get() != 0 && common != 0 {
        hand_on(k, t, common);
    }
}

/// A thread no longer takes what is pending for its process: others do.
fn hand_on(k: &Kernel, t: &Thread, mut common: u64) {
    let Some(process) = t.process.get() else { return };
    while common != 0 {
        let one = common & common.wrapping_neg();
        common &= !one;
        if let Some(taker) = pick(k, process, one) {
            turn::resume(taker, Wake::Interrupted);
        }
    }
}

/// `sigprocmask` on kernel's sets: changes the mask, answers the one before.
pub fn change_mask(how: c_int, set: Option<u64>) -> Result<u64> {
    let turn = turn::enter(Object::Signals, Kind::Set);
    let k = &*turn;
    let before = k.this().signals.mask.get();
    if let Some(set) = set {
        let mask = match how {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return Err(Errno(libc::EINVAL)),
        };
        set_mask(k, mask & !bit(libc::SIGSYS) & !bit(SPIN_SIGNAL));
    }
    Ok(before)
}

/// `sigaction`: answers what was set before.
pub fn set_action(signo: c_int, action: Option<Action>) -> Result<Action> {
    let turn = turn::enter(Object::Signals, Kind::Set);
    let unchangeable = signo == libc::SIGKILL || signo == libc::SIGSTOP;
    if !(1..=LAST).contains(&signo) || unchangeable && action.is_some() {
        return Err(Errno(libc::EINVAL));
    }
    let k = &*turn;
    let t = k.this();
    let p = process_of(k, t);
    let before = p.action(signo);
    if let Some(mut action) = action
        && !own(signo)
    {
        action.mask &= !NEVER_BLOCKED;
        p.actions[signo as usize - 1].set(action);
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.handler) {
            crate::uses::note(crate::uses::Use::SignalHandlers);
        }
        if signo == libc::SIGCHLD {
            let forgets = action.handler == libc::SIG_IGN || action.has(libc::SA_NOCLDWAIT);
            process::this().forgets_children.set(forgets);
        }
        if p.ignores(signo) {
            // What is pending and ignored now is gone, even when it is blocked.
            p.pending.forget(k, bit(signo));
            for h in threads(k, process::handle()) {
                k.threads.get(h).signals.pending.forget(k, bit(signo));
            }
        }
    }
    Ok(before)
}

/// Whether `siginterrupt` was asked for.
pub fn interrupting(signo: c_int) -> bool {
    let k = kernel();
    (1..=LAST).contains(&signo) && process_of(k, k.this()).interrupting.get() & bit(signo) != 0
}

/// `siginterrupt`.
pub fn set_interrupting(signo: c_int, interrupts: bool) -> Result<()> {
    let mut action = set_action(signo, None)?;
    let k = kernel();
    let all = &process_of(k, k.this()).interrupting;
    let restart = libc::SA_RESTART as u64;
    if interrupts {
        all.set(all.get() | bit(signo));
        action.flags &= !restart;
    } else {
        all.set(all.get() & !bit(signo));
        action.flags |= restart;
    }
    set_action(signo, Some(action)).map(|_| ())
}

/// What is pending for the turn's holder and blocked.
pub fn pending() -> u64 {
    let turn = turn::enter(Object::Signals, Kind::Ask);
    let k = &*turn;
    let t = k.this();
    (t.signals.pending.bits() | process_of(k, t).pending.bits()) & t.signals.mask.get()
}

/// A thread is gone: what was sent to it is too, and what it would have taken for the process others take.
pub fn thread_ended(k: &Kernel, t: &Thread) {
    abandon(k, t);
    let common = process_of(k, t).pending.bits();
    if common != 0 {
        hand_on(k, t, common);
    }
}

/// What was sent to a thread that never runs again is gone.
pub fn abandon(k: &Kernel, t: &Thread) {
    t.signals.pending.forget(k, u64::MAX);
    t.signals.waiting.set(0);
}

/// A process has ended: nothing is sent to it, and none of its timers runs.
pub fn process_ended(k: &Kernel, p: &Process) {
    p.signals.pending.forget(k, u64::MAX);
    stop::ended(k, p);
    timer::process_ended(k, p);
}

/// A new thread begins with its creator's mask.
pub fn inherit(from: &Thread, to: &Thread) {
    to.signals.mask.set(from.signals.mask.get());
}

/// A forked process begins with its parent's dispositions; nothing is pending, and it has no timers.
pub fn forked(parent: &Process, child: &Process) {
    for (from, to) in parent.signals.actions.iter().zip(&child.signals.actions) {
        to.set(from.get());
    }
    child.signals.interrupting.set(parent.signals.interrupting.get());
}

/// A process has executed another program: what was handled is at its default, what was ignored or blocked stays so.
pub fn executed(k: &Kernel, p: &Process, main: &Thread) {
    for action in &p.signals.actions {
        if action.get().handler != libc::SIG_IGN {
            action.set(Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 });
        }
    }
    p.signals.interrupting.set(0);
    timer::executed(k, p);
    main.signals.has_saved.set(false);
    main.signals.waiting.set(0);
    main.signals.alternate.set((0, 0, 0));
}

/// `abort`: the handler of SIGABRT runs, and when it returns the default action is taken.
pub fn abort() -> ! {
    let k = kernel();
    let _turn = turn::enter(Object::Signals, Kind::Exit);
    set_mask(k, k.this().signals.mask.get() & !bit(libc::SIGABRT));
    let _ = post(k, Target::Thread(k.current()), Info::sent(libc::SIGABRT, libc::SI_TKILL));
    deliver(k);
    terminate_by_signal(libc::SIGABRT)
}
