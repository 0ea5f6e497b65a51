//! The turn: its holder, giving it up, and passing it on.
//!
//! Invariants: exactly one thread is running; a runnable thread that does not have the turn is in the run queue once; a blocked thread is
//! in no run queue, and the code that ends its wait calls [`resume`].
//!
//! The end of a turn is computed on the stack of the thread that gives it up: there is no idle thread. If that thread is the next
//! to run, nothing is switched. If that is a thread of another process, its carrier is woken and this one sleeps ([`handover`]).
//!
//! - [`carrier`]: the kernel thread that runs all threads of a process. - [`handover`], [`cores`], [`cpu_burst`]: the turn and the core pass to another process.
//! - [`admit`]: inputs enter. - [`output`]: outputs leave. - [`spins`]: threads that spin wait. - [`trace`]: operations are recorded.
//!
//! Functions of the server's resources are called through [`above`].

pub mod above;
pub mod admit;
pub mod carrier;
pub mod cores;
pub mod cpu_burst;
pub mod handover;
pub mod output;
pub mod spins;
pub mod trace;

use crate::kernel::process;
use crate::kernel::thread::Thread;
use crate::kernel::{Kernel, kernel};
use crate::local::header;
use crate::stack::Level;
use crate::{context, sys};
use above::above;
use admit::Wait;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use skein_arena::planned::Next as Planned;
use skein_arena::pool::Handle;
use skein_libos::process::ProcessHandle;
use skein_libos::thread::{Life, Wake};
use skein_sched::op::{Kind, Object};
use skein_sched::{Next, Op, Policy};

/// The turn while its holder does an operation: lends the state of the library operating system.
#[must_use = "the operation lasts as long as this"]
pub struct Turn(&'static Kernel);

impl Deref for Turn {
    type Target = Kernel;

    #[inline]
    fn deref(&self) -> &Kernel {
        self.0
    }
}

impl Turn {
    /// The state, for what outlives a borrow of the guard.
    pub fn kernel(&self) -> &'static Kernel {
        self.0
    }

    /// [`end`]s the operation.
    #[inline]
    pub fn end(&self) {
        end();
    }
}

/// Begins an operation. Every call that touches an object which threads share does this first, once.
#[inline]
pub fn enter(object: Object, kind: Kind) -> Turn {
    let k = kernel();
    let next = k.sched.operation(Op { thread: k.current.get(), object, kind });
    header().operations.store(k.sched.operations(), Ordering::Relaxed);
    if next == Next::Continue {
        return Turn(k);
    }
    // As numbers, which are in registers: an object would be put on the stack before it is known whether anybody wants it.
    let (variant, value) = object.numbers();
    next_turn(variant, value, kind)
}

/// Ends the operation of the turn's holder where its call does not return with it: the call begins another one, or leaves. At a call's end
/// the hook does it ([`trace`]).
#[inline]
pub fn end() {
    if kernel().sched.is_traced() {
        trace::passes();
    }
}

/// The quantum is over, or operations are traced, which costs those that are not nothing. Answers the guard, so that nothing has to outlive the call where it is not made.
#[cold]
#[inline(never)]
fn next_turn(variant: u8, value: u64, kind: Kind) -> Turn {
    let k = kernel();
    if !k.sched.is_traced() {
        end_turn(k, false);
        // A server that continues from an image may be traced from there on.
        if !k.sched.is_traced() {
            return Turn(k);
        }
    } else if k.sched.traced() == Next::EndTurn {
        end_turn(k, false);
    }
    let object = Object::from_numbers(variant, value).expect("numbers of an object");
    trace::begins(Op { thread: k.current.get(), object, kind });
    Turn(k)
}

/// Gives the turn up although the thread can go on (`sched_yield`).
pub fn yield_now() {
    end_turn(kernel(), false);
}

/// Gives the turn up, and waits for the next entry though no slot is due.
#[cold]
pub fn await_entry() {
    let k = kernel();
    end_turn(k, !k.unsafe_admission.get());
}

#[cold]
fn end_turn(k: &Kernel, needs_entry: bool) {
    if tick(k) == Next::Admit || needs_entry {
        admit::wait(k, Wait::Slot);
    }
    if spins::looks_are_due(k) {
        spins::let_look(k);
    }
    if !k.run_queue.is_empty() {
        k.this().life.set(Life::Runnable);
        k.run_queue.push_back(&k.threads, k.current());
        pass_on(k);
    }
}

/// Gives the turn up because the holder's process is stopped.
pub fn stand_aside() {
    let k = kernel();
    if tick(k) == Next::Admit && others_can_run(k) {
        admit::wait(k, Wait::Slot);
    }
    k.this().life.set(Life::Runnable);
    k.run_queue.push_back(&k.threads, k.current());
    pass_on(k);
}

fn tick(k: &Kernel) -> Next {
    let next = k.sched.end_turn();
    header().clock.store(k.sched.clock(), Ordering::Relaxed);
    if k.unsafe_admission.get() {
        admit::arrived(k);
        return Next::Continue;
    }
    next
}

/// Blocks the turn's holder until [`resume`] or the deadline (in the server's time of day); not at all when it has a signal to handle. The caller has registered the thread wherever
/// it is to be resumed from, and removes it again afterwards.
pub fn suspend(deadline_ns: Option<u64>) -> Wake {
    let k = kernel();
    if skein_libos::signal::is_due(k) {
        return Wake::Interrupted;
    }
    let (me, this) = (k.current(), k.this());
    this.life.set(Life::Blocked);
    this.wake.set(Wake::Event);
    if let Some(deadline) = deadline_ns {
        k.timers.set_thread(k, me, deadline);
    }
    if tick(k) == Next::Admit && others_can_run(k) {
        admit::wait(k, Wait::Slot);
    }
    pass_on(k);
    kernel().this().wake.get()
}

/// Ends a thread's wait. Answers whether it was waiting.
pub fn resume(thread: Handle<Thread>, why: Wake) -> bool {
    let k = kernel();
    let t = k.threads.get(thread);
    if t.life.get() != Life::Blocked {
        return false;
    }
    t.life.set(Life::Runnable);
    t.wake.set(why);
    k.timers.clear_thread(k, thread);
    k.run_queue.push_back(&k.threads, thread);
    header().runnable.store(k.run_queue.len(), Ordering::Relaxed);
    true
}

/// Takes the first thread of the run queue; those of stopped processes are put aside.
fn take_first(k: &Kernel) -> Option<Handle<Thread>> {
    loop {
        let next = k.run_queue.pop_front(&k.threads)?;
        header().runnable.store(k.run_queue.len(), Ordering::Relaxed);
        if k.processes.stopped.get() == 0 {
            return Some(next);
        }
        let t = k.threads.get(next);
        if !k.processes.get(t.process.get().expect("a thread's process")).stopped.get() {
            return Some(next);
        }
        t.life.set(Life::Stopped);
        k.set_aside.push_back(&k.threads, next);
    }
}

/// Whether there is a thread to give the turn to. One that spins may look only now.
fn others_can_run(k: &Kernel) -> bool {
    !k.run_queue.is_empty() || spins::let_look(k)
}

/// The first thread of the run queue, waiting for entries while there is none.
fn next_runnable(k: &Kernel) -> Handle<Thread> {
    loop {
        if let Some(next) = take_first(k) {
            return next;
        }
        if !spins::let_look(k) {
            admit::wait(k, Wait::Quiescent);
        }
    }
}

fn give(k: &Kernel, next: Handle<Thread>) -> &Thread {
    k.current.set(next.raw());
    header().turn_holder.store(next.raw(), Ordering::Relaxed);
    let t = k.threads.get(next);
    t.life.set(Life::Running);
    t
}

/// Gives the turn to the first thread of the run queue, unless it is one of another process: then that process has the turn until it comes back.
/// Answers the thread of this process that has it.
fn next_here(k: &Kernel) -> Handle<Thread> {
    loop {
        let next = next_runnable(k);
        let t = give(k, next);
        if process::is_here(t) {
            return next;
        }
        handover::hand_over(k, t.process.get().expect("a thread's process"));
        if let Some(mine) = Handle::from_raw(k.current.get()) {
            return mine;
        }
        // The process that ended had nobody to give the turn to.
    }
}

/// The turn's holder ends with its process: gives the turn to the next thread, if one can run, and answers its process.
pub fn leave(k: &Kernel) -> Option<ProcessHandle> {
    k.current.set(0);
    if tick(k) == Next::Admit && others_can_run(k) {
        admit::wait(k, Wait::Slot);
    }
    let next = take_first(k)?;
    give(k, next).process.get()
}

/// Lets the first thread of the run queue run; returns when the caller's thread, which is blocked or in the run queue, has the turn again.
fn pass_on(k: &Kernel) {
    let me = k.current();
    let this = k.threads.get(me);
    if this.pinned.get() {
        // On its own kernel thread: the carrier decides what runs next.
        let level = Level::current();
        carrier::hand_to_carrier(this);
        level.set();
        return;
    }
    let level = Level::current();
    loop {
        let next = next_here(k);
        if next == me {
            level.set();
            return;
        }
        let t = k.threads.get(next);
        if t.pinned.get() {
            run_pinned(k, next);
            continue;
        }
        // SAFETY: `t` is suspended with a context saved by `switch` or `park_here` that nobody else takes up: only the carrier switches,
        // and it is here.
        unsafe { context::switch(this.sp.as_ptr(), t.sp.get(), t.fs.get()) };
        level.set();
        return;
    }
}

/// The running thread has ended its start routine or exits: it leaves the carrier and finishes on its own kernel thread.
/// Returns there.
pub fn pin_current() {
    let k = kernel();
    let this = k.this();
    if this.pinned.get() {
        return;
    }
    this.pinned.set(true);
    let level = Level::current();
    // SAFETY: the idle stack is free: the carrier is on this thread's stack.
    unsafe {
        context::onto_stack(
            this.sp.as_ptr(),
            carrier::idle_stack_top(),
            carrier::main_fs(),
            carry_on,
            k.current.get(),
        );
    }
    level.set();
}

/// The carrier on its idle stack: runs a pinned thread, then whatever comes next.
extern "C" fn carry_on(pinned: u32) -> ! {
    let k = kernel();
    run_pinned(k, Handle::from_raw(pinned).expect("a thread"));
    carry(k)
}

fn carry(k: &Kernel) -> ! {
    loop {
        let next = next_here(k);
        let t = k.threads.get(next);
        if t.pinned.get() {
            run_pinned(k, next);
            continue;
        }
        // SAFETY: as in `pass_on`; the idle stack holds nothing that is needed again.
        unsafe { context::take_up(t.sp.get(), t.fs.get()) };
    }
}

/// Lets a pinned thread, which has the turn, run on its own kernel thread until it gives the turn back or is gone.
fn run_pinned(k: &Kernel, handle: Handle<Thread>) {
    let t = k.threads.get(handle);
    loop {
        match carrier::run_on_own(t) {
            carrier::HandBack::AwaitsEntry => admit::wait_here(k, Wait::Slot),
            carrier::HandBack::GaveUp => return,
            carrier::HandBack::Gone => {
                tick(k);
                return above().gone(k, handle);
            }
        }
    }
}

/// The main thread is done but others are not: it never runs again.
pub fn end_main() -> ! {
    let k = kernel();
    let this = k.this();
    this.life.set(Life::Ended);
    // SAFETY: as in `pin_current`; the context saved is never taken up.
    unsafe {
        context::onto_stack(
            this.sp.as_ptr(),
            carrier::idle_stack_top(),
            carrier::main_fs(),
            end_carry_on,
            0,
        );
    }
    unreachable!("the main thread's context is never taken up again")
}

extern "C" fn end_carry_on(_: u32) -> ! {
    let k = kernel();
    if tick(k) == Next::Admit && others_can_run(k) {
        admit::wait(k, Wait::Slot);
    }
    carry(k)
}

/// Whether the node wants a copy of each process's memory, for an image.
#[inline]
fn is_copy_wanted() -> bool {
    header().stand_ins.wanted.load(Ordering::Relaxed) != 0
}

/// Sleeps until the node opens the server's gate, or that entry may be taken, if `blocked` still says so after the gate was closed.
pub fn sleep_at_gate(blocked: impl Fn() -> bool, planned: impl Fn() -> Option<Planned>) {
    let gate = &header().server_gate;
    output::wake_node_for_news();
    gate.close();
    let k = kernel();
    cpu_burst::ends(k);
    while blocked() && gate.is_closed() {
        cores::at_gate(k);
        if is_copy_wanted() {
            above().copy_memory(k, true);
        }
        match planned() {
            None => sys::futex_wait(gate.word(), skein_arena::gate::CLOSED),
            Some(next) => match admit::time_left(&next) {
                Some(0) => break,
                Some(left) => {
                    sys::futex_wait_for(gate.word(), skein_arena::gate::CLOSED, left);
                }
                None => sys::futex_wait(gate.word(), skein_arena::gate::CLOSED),
            },
        }
        above().tell_of_signals();
    }
    gate.reopen();
    cores::at_work(k);
    cpu_burst::begins(k);
}
