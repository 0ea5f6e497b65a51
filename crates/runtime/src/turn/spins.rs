//! The wait of a thread that spins: until a word that it looks at has another value.
//!
//! Only the thread itself can look at its memory, so it is given the turn to look: when nobody else can run, and every so many turns while others do; not
//! twice without that somebody else has run. Looking takes a turn, as everything does, but nothing has changed by it.
//!
//! One more thing is seen to: a state of its cycle may be one that others wait for to end, say while it holds a lock that it only tries. So it is let go on now
//! and then although nothing has changed, and then stops at another state of its cycle ([`crate::spin`]).

use crate::kernel::thread::Thread;
use crate::kernel::{Kernel, kernel};
use skein_arena::pool::Handle;
use skein_libos::keys::Key;
use skein_libos::thread::Wake;
use skein_sched::Policy;

/// While others run, one of those that spin looks after so many turns.
const TURNS_BETWEEN: u64 = 64;
/// Of so many looks in vain one is a try.
const LOOKS_A_TRY: u32 = 16;
/// Tries for each thread while nobody else can run.
const TRIES: u32 = 4;

/// Where they wait.
const KEY: Key = Key::of_runtime(6, 0);

/// What a thread has looked at.
pub trait Watched {
    /// Whether that has changed, or cannot be told.
    fn changed(&self) -> bool;
}

/// Turns in which something may have changed.
fn turns(k: &Kernel) -> u64 {
    k.sched.clock() - k.spins.idle.get()
}

/// Waits until the turn's holder is to go on: what it looked at has changed, or it has a signal to handle.
pub fn wait(watched: &impl Watched) {
    let k = kernel();
    let (s, spinner) = (&k.spins, &k.this().spin);
    spinner.waiting.set(true);
    s.waiting.set(s.waiting.get() + 1);
    // The wait itself ends a turn.
    spinner.looked.set(turns(k) + 1);
    loop {
        let why = k.keys.wait(k, KEY, u32::MAX, None);
        if why != Wake::Event || watched.changed() {
            spinner.looks.set(0);
            spinner.order.set(0);
            break;
        }
        spinner.looks.set(spinner.looks.get() + 1);
        let try_it = spinner.looks.get().is_multiple_of(LOOKS_A_TRY);
        if spinner.go_on.replace(false) || try_it {
            s.tried.set(s.tried.get() + 1);
            spinner.order.set(spinner.order.get().wrapping_add(1));
            break;
        }
        s.idle.set(s.idle.get() + 1);
        spinner.looked.set(turns(k) + 1);
    }
    spinner.waiting.set(false);
    s.waiting.set(s.waiting.get() - 1);
}

/// A thread never runs again.
pub fn abandon(k: &Kernel, t: &Thread) {
    if t.spin.waiting.replace(false) {
        k.spins.waiting.set(k.spins.waiting.get() - 1);
    }
}

/// Whether it is time for one of those that spin to look although others can run.
#[inline]
pub fn looks_are_due(k: &Kernel) -> bool {
    k.spins.waiting.get() != 0 && k.sched.clock().is_multiple_of(TURNS_BETWEEN)
}

/// Lets one of the threads that spin run, if one has not looked since somebody else ran. Answers whether there is one.
#[inline]
pub fn let_look(k: &Kernel) -> bool {
    k.spins.waiting.get() != 0 && let_one(k)
}

#[cold]
fn let_one(k: &Kernel) -> bool {
    let now = turns(k);
    if k.keys.wake_first(k, KEY, |t| t.spin.looked.get() != now).is_some() {
        return true;
    }
    let s = &k.spins;
    let others = now - s.tried.get();
    if s.others.replace(others) != others {
        s.rounds.set(0);
    }
    // One alone waits for nobody that spins.
    if s.waiting.get() < 2 || s.rounds.get() >= TRIES * s.waiting.get() {
        return false;
    }
    s.rounds.set(s.rounds.get() + 1);
    let first: Option<Handle<Thread>> = k.keys.wake_first(k, KEY, |_| true);
    if let Some(first) = first {
        k.threads.get(first).spin.go_on.set(true);
    }
    first.is_some()
}
