//! Mutexes: every kind, in glibc's layout, so that static initialisers and mutexes that libc locked before the runtime was ready work.
//!
//! `lock` is 0 (free), 1 (held) or 2 (held, and a thread may wait), with a priority ceiling in the upper bits where the kind has one;
//! `owner` is the holder's thread id. Priorities mean nothing under a schedule, so PI and PP mutexes are their base kind with
//! their own checks. What glibc keeps of a robust mutex in `lock` and `owner` is in `flags` here (glibc's lock elision field, unused without
//! hardware elision), and the robust mutexes that a thread holds are a list through the mutexes themselves, as glibc has it.
//!
//! The order of waiters: see [`super`].

use super::{Until, block, deadline, me};
use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::{Thread, Wake};
use core::cell::Cell;
use skein_arena::pool::Handle;

/// `pthread_mutex_t`.
#[repr(C)]
pub struct Mutex {
    lock: Cell<u32>,
    count: Cell<u32>,
    owner: Cell<u32>,
    users: Cell<u32>,
    kind: Cell<i32>,
    spins: Cell<u16>,
    flags: Cell<u16>,
    /// Addresses of the robust mutexes that its holder locked after and before it.
    newer: Cell<usize>,
    older: Cell<usize>,
}

const _: () = assert!(size_of::<Mutex>() == 40);

// `lock` without the ceiling.
const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED: u32 = 2;
const STATE: u32 = (1 << CEILING_SHIFT) - 1;
const CEILING_SHIFT: u32 = 19;

// `kind`, as glibc's.
const TYPE: i32 = 3;
const RECURSIVE: i32 = abi::PTHREAD_MUTEX_RECURSIVE;
const ERRORCHECK: i32 = abi::PTHREAD_MUTEX_ERRORCHECK;
const ROBUST: i32 = 16;
const INHERIT: i32 = 32;
const PROTECT: i32 = 64;
const SHARED: i32 = 128;
const DESTROYED: i32 = -1;

// `flags`.
/// Unlocking hands the mutex to the oldest waiter.
const HAND_OVER: u16 = 1;
/// The last holder died with it.
const INCONSISTENT: u16 = 2;
/// It was unlocked without being made consistent.
const LOST: u16 = 4;

/// The settings of an attribute object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// `PTHREAD_MUTEX_` kind.
    pub kind: i32,
    /// Whether it outlives its holder (`PTHREAD_MUTEX_ROBUST`).
    pub robust: bool,
    /// `PTHREAD_PRIO_` protocol.
    pub protocol: i32,
    /// Whether processes share it.
    pub shared: bool,
    /// The priority ceiling of `PTHREAD_PRIO_PROTECT`.
    pub ceiling: i32,
}

/// `pthread_mutex_init`.
///
/// # Safety
/// `mutex` is the server's to write.
pub unsafe fn init(mutex: *mut Mutex, wanted: Attributes) -> Result<()> {
    let Attributes { kind, robust, protocol, shared, ceiling } = wanted;
    if robust && protocol == abi::PTHREAD_PRIO_PROTECT {
        return Err(Errno(abi::ENOTSUP));
    }
    let kind = kind & TYPE
        | if robust { ROBUST } else { 0 }
        | match protocol {
            abi::PTHREAD_PRIO_INHERIT => INHERIT,
            abi::PTHREAD_PRIO_PROTECT => PROTECT,
            _ => 0,
        }
        | if shared { SHARED } else { 0 };
    // SAFETY: the server's own memory, of a mutex's size; all-zero is a mutex.
    let m = unsafe {
        mutex.write_bytes(0, 1);
        &*mutex
    };
    m.kind.set(kind);
    m.lock.set((ceiling as u32) << CEILING_SHIFT);
    Ok(())
}

impl Mutex {
    fn key(&self, k: &impl Host) -> Key {
        Key::of(k, self)
    }

    fn state(&self) -> u32 {
        self.lock.get() & STATE
    }

    fn set_state(&self, state: u32) {
        self.lock.set(self.lock.get() & !STATE | state);
    }

    fn held(&self) -> bool {
        self.state() != FREE
    }

    fn held_by(&self, tid: u32) -> bool {
        self.held() && self.owner.get() == tid
    }

    fn is(&self, kind: i32) -> bool {
        self.kind.get() & kind != 0
    }

    fn base(&self) -> i32 {
        self.kind.get() & TYPE
    }

    fn flag(&self, flag: u16) -> bool {
        self.flags.get() & flag != 0
    }

    fn raise(&self, flag: u16) {
        self.flags.set(self.flags.get() | flag);
    }

    fn clear(&self, flag: u16) {
        self.flags.set(self.flags.get() & !flag);
    }

    /// Whether only the holder may unlock it, by name or by kind.
    fn checks_owner(&self) -> bool {
        self.is(ROBUST | INHERIT) || matches!(self.base(), RECURSIVE | ERRORCHECK)
    }

    /// The caller takes the free mutex.
    #[inline]
    fn take(&self, k: &impl Host, tid: u32, state: u32) -> Result<()> {
        if self.flag(LOST) {
            return Err(Errno(abi::ENOTRECOVERABLE));
        }
        self.set_state(state);
        self.owner.set(tid);
        self.taken(k)
    }

    /// The caller has become the holder.
    #[inline]
    fn taken(&self, k: &impl Host) -> Result<()> {
        self.count.set(1);
        self.users.set(self.users.get().wrapping_add(1));
        if !self.is(ROBUST) {
            return Ok(());
        }
        self.link(k);
        if self.flag(INCONSISTENT) { Err(Errno(abi::EOWNERDEAD)) } else { Ok(()) }
    }

    /// The holder of a recursive mutex locks it again.
    fn again(&self) -> Result<()> {
        let count = self.count.get().checked_add(1).ok_or(Errno(abi::EAGAIN))?;
        self.count.set(count);
        Ok(())
    }

    fn link(&self, k: &impl Host) {
        let head = &k.this().robust;
        self.newer.set(0);
        self.older.set(head.get());
        if let Some(older) = at(head.get()) {
            older.newer.set(core::ptr::from_ref(self) as usize);
        }
        head.set(core::ptr::from_ref(self) as usize);
    }

    fn unlink(&self, holder: &Thread) {
        match at(self.newer.get()) {
            Some(newer) => newer.older.set(self.older.get()),
            None => holder.robust.set(self.older.get()),
        }
        if let Some(older) = at(self.older.get()) {
            older.newer.set(self.newer.get());
        }
        self.newer.set(0);
        self.older.set(0);
    }

    /// `pthread_mutex_lock` and its timed forms.
    #[inline(always)]
    pub fn lock(&self, k: &impl Host, until: Until<'_>) -> Result<()> {
        if let Some((clock, _)) = until
            && clock != abi::CLOCK_REALTIME
            && clock != abi::CLOCK_MONOTONIC
        {
            return Err(Errno(abi::EINVAL));
        }
        if self.kind.get() < 0 {
            return Err(Errno(abi::EINVAL));
        }
        let me = me(k);
        if self.held() { self.lock_held(k, me, until) } else { self.take(k, me, HELD) }
    }

    #[cold]
    fn lock_held(&self, k: &impl Host, me: u32, until: Until<'_>) -> Result<()> {
        if self.owner.get() == me {
            match self.base() {
                RECURSIVE => return self.again(),
                ERRORCHECK => return Err(Errno(abi::EDEADLK)),
                // A deadlock, as natively.
                _ => {}
            }
        }
        let deadline_ns = deadline(k, until)?;
        loop {
            self.set_state(WAITED);
            let why = block(k, self.key(k), deadline_ns);
            if why == Wake::Timeout {
                return Err(Errno(abi::ETIMEDOUT));
            }
            if !self.held() {
                // Others may still wait.
                return self.take(k, me, WAITED);
            }
            if why == Wake::Event {
                // Only an unlock that hands over makes a waiter the owner.
                if self.owner.get() == me {
                    return self.taken(k);
                }
                self.raise(HAND_OVER);
            }
        }
    }

    /// `pthread_mutex_trylock`.
    pub fn try_lock(&self, k: &impl Host) -> Result<()> {
        if self.kind.get() < 0 {
            return Err(Errno(abi::EINVAL));
        }
        let me = me(k);
        if !self.held() {
            return self.take(k, me, HELD);
        }
        if self.owner.get() == me {
            match self.base() {
                RECURSIVE => return self.again(),
                // As glibc: only the plain kind says "busy" to its holder.
                ERRORCHECK if self.is(ROBUST | INHERIT | PROTECT) => {
                    return Err(Errno(abi::EDEADLK));
                }
                _ => {}
            }
        }
        Err(Errno(abi::EBUSY))
    }

    /// `pthread_mutex_unlock`.
    #[inline(always)]
    pub fn unlock(&self, k: &impl Host) -> Result<()> {
        if self.kind.get() < 0 {
            return Err(Errno(abi::EINVAL));
        }
        if self.checks_owner() {
            if !self.held_by(me(k)) {
                return Err(Errno(abi::EPERM));
            }
            if self.base() == RECURSIVE {
                self.count.set(self.count.get() - 1);
                if self.count.get() != 0 {
                    return self.still_held();
                }
            }
        }
        self.users.set(self.users.get().wrapping_sub(1));
        if self.is(ROBUST) {
            self.unlink(k.this());
            if self.flag(INCONSISTENT) {
                self.flags.set(LOST);
                self.owner.set(0);
                self.set_state(FREE);
                k.keys.wake(k, self.key(k), u32::MAX, u32::MAX);
                return Ok(());
            }
        }
        if self.state() == WAITED {
            self.release(k);
        } else {
            self.owner.set(0);
            self.set_state(FREE);
        }
        Ok(())
    }

    /// The answer of an unlock by the holder of a recursive mutex, which keeps it. As glibc: an error while the state is inconsistent.
    fn still_held(&self) -> Result<()> {
        if self.flag(INCONSISTENT) { Err(Errno(abi::ENOTRECOVERABLE)) } else { Ok(()) }
    }

    /// Unlocks the mutex when a thread may wait for it.
    #[cold]
    fn release(&self, k: &impl Host) {
        if self.flag(HAND_OVER) {
            if let Some(next) = k.keys.wake_oldest(k, self.key(k)) {
                self.owner.set(k.threads.get(next).tid.get());
                self.set_state(WAITED);
                if !k.keys.waited(k, self.key(k)) {
                    self.clear(HAND_OVER);
                }
                return;
            }
            self.clear(HAND_OVER);
        }
        self.owner.set(0);
        self.set_state(FREE);
        k.keys.wake(k, self.key(k), 1, u32::MAX);
    }

    /// Unlocks for a wait at a condition: the waiter goes on counting as a user, so that the mutex is not destroyed.
    pub fn leave(&self, k: &impl Host) -> Result<()> {
        self.unlock(k)?;
        self.users.set(self.users.get().wrapping_add(1));
        Ok(())
    }

    /// Locks after [`leave`](Self::leave).
    pub fn come_back(&self, k: &impl Host) -> Result<()> {
        self.users.set(self.users.get().wrapping_sub(1));
        self.lock(k, None)
    }

    /// `pthread_mutex_consistent`.
    pub fn consistent(&self) -> Result<()> {
        if !self.is(ROBUST) || !self.flag(INCONSISTENT) || !self.held() {
            return Err(Errno(abi::EINVAL));
        }
        self.clear(INCONSISTENT);
        Ok(())
    }

    /// `pthread_mutex_destroy`.
    pub fn destroy(&self) -> Result<()> {
        if !self.is(ROBUST) && self.users.get() != 0 && self.kind.get() >= 0 {
            return Err(Errno(abi::EBUSY));
        }
        self.kind.set(DESTROYED);
        Ok(())
    }
}

/// The mutex at an address of a robust list.
fn at<'a>(address: usize) -> Option<&'a Mutex> {
    // SAFETY: null, or a robust mutex that a thread holds: its memory must stay until it is unlocked, by POSIX, and natively libc
    // follows the same addresses.
    unsafe { (address as *const Mutex).as_ref() }
}

/// The thread is gone: its robust mutexes are passed on as inconsistent, the last locked first.
pub fn owner_gone<H: Host>(k: &H, thread: Handle<H::Thread>) {
    let t = k.threads.get(thread);
    while let Some(m) = at(t.robust.get()) {
        m.unlink(t);
        m.raise(INCONSISTENT);
        m.release(k);
    }
}
