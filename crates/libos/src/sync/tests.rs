//! Behaviour of the objects with several threads; the first thread is the one under test.

use super::barrier::{self, Barrier};
use super::cond::{self, Cond};
use super::mutex::{self, Attributes, Mutex, owner_gone};
use super::rwlock::{self, RwLock};
use super::semaphore::{self, Semaphore};
use super::spin::Spin;
use crate::abi::{self, timespec};
use crate::errno::{Errno, Result};
use crate::fake::{Fake, MONOTONIC_BEHIND_NS};
use core::cell::RefCell;
use skein_arena::pool::Handle;

fn made<T>(init: impl FnOnce(*mut T)) -> T {
    let mut object = core::mem::MaybeUninit::uninit();
    init(object.as_mut_ptr());
    // SAFETY: `init` has written all of it.
    unsafe { object.assume_init() }
}

fn mutex(wanted: Attributes) -> Mutex {
    // SAFETY: a local.
    made(|m| unsafe { mutex::init(m, wanted).unwrap() })
}

fn plain() -> Mutex {
    mutex(Attributes::default())
}

const fn err<T>(errno: i32) -> Result<T> {
    Err(Errno(errno))
}

/// A second from the fake's start.
const SOON: timespec = timespec { tv_sec: 1, tv_nsec: 0 };
const PAST: timespec = timespec { tv_sec: 0, tv_nsec: 1 };

#[test]
fn a_waiter_gets_the_mutex_after_the_unlock() {
    let (m, fake) = (plain(), Fake::new(2));
    fake.by(2, || m.lock(&fake, None)).unwrap();
    assert_eq!(m.try_lock(&fake), err(abi::EBUSY));
    fake.then(2, |f| m.unlock(f).unwrap());
    m.lock(&fake, None).unwrap();
    assert!(fake.is_over());
    assert_eq!(fake.by(2, || m.try_lock(&fake)), err(abi::EBUSY));
    m.unlock(&fake).unwrap();
    assert_eq!(m.destroy(), Ok(()));
    assert_eq!(m.lock(&fake, None), err(abi::EINVAL));
}

#[test]
fn a_waiter_that_was_woken_in_vain_is_handed_the_mutex() {
    let (m, fake) = (plain(), Fake::new(2));
    fake.by(2, || m.lock(&fake, None)).unwrap();
    // Twice thread 2 is faster; the second time its unlock makes the waiter the owner.
    fake.then(2, |f| {
        m.unlock(f).unwrap();
        m.lock(f, None).unwrap();
    });
    fake.then(2, |f| {
        m.unlock(f).unwrap();
        assert_eq!(m.try_lock(f), err(abi::EBUSY), "it was handed over");
    });
    m.lock(&fake, None).unwrap();
    assert!(fake.is_over());
    m.unlock(&fake).unwrap();
    assert_eq!(fake.by(2, || m.try_lock(&fake)), Ok(()));
}

#[test]
fn a_lock_with_a_deadline_times_out_and_takes_no_other_clock() {
    let (m, fake) = (plain(), Fake::new(2));
    fake.by(2, || m.lock(&fake, None)).unwrap();
    assert_eq!(m.lock(&fake, Some((abi::CLOCK_REALTIME, &SOON))), err(abi::ETIMEDOUT));
    assert_eq!(fake.now_ns.get(), 1_000_000_000);
    assert_eq!(m.lock(&fake, Some((99, &SOON))), err(abi::EINVAL));
    assert!(!fake.keys.waited(&fake, crate::keys::Key::of(&fake, &m)), "it has left the queue");
}

#[test]
fn handlers_run_while_a_mutex_is_awaited() {
    let (m, fake) = (plain(), Fake::new(2));
    fake.by(2, || m.lock(&fake, None)).unwrap();
    fake.then(2, |f| assert!(f.interrupt(1)));
    fake.then(2, |f| m.unlock(f).unwrap());
    m.lock(&fake, None).unwrap();
    assert_eq!(fake.deliveries.get(), 1);
}

#[test]
fn kinds_of_mutexes() {
    let fake = Fake::new(2);
    let of = |kind| mutex(Attributes { kind, ..Attributes::default() });
    let m = of(abi::PTHREAD_MUTEX_RECURSIVE);
    m.lock(&fake, None).unwrap();
    m.lock(&fake, None).unwrap();
    m.unlock(&fake).unwrap();
    assert_eq!(fake.by(2, || m.try_lock(&fake)), err(abi::EBUSY));
    assert_eq!(fake.by(2, || m.unlock(&fake)), err(abi::EPERM));
    m.unlock(&fake).unwrap();
    assert_eq!(fake.by(2, || m.try_lock(&fake)), Ok(()));
    let m = of(abi::PTHREAD_MUTEX_ERRORCHECK);
    m.lock(&fake, None).unwrap();
    assert_eq!(m.lock(&fake, None), err(abi::EDEADLK));
    assert_eq!(m.destroy(), err(abi::EBUSY));
}

#[test]
fn a_robust_mutex_outlives_its_holder() {
    let (m, fake) = (mutex(Attributes { robust: true, ..Attributes::default() }), Fake::new(2));
    let dies = || owner_gone(&fake, Handle::from_raw(2).unwrap());
    fake.by(2, || m.lock(&fake, None)).unwrap();
    dies();
    assert_eq!(fake.thread(2).robust.get(), 0);
    assert_eq!(m.lock(&fake, None), err(abi::EOWNERDEAD));
    assert_eq!(m.consistent(), Ok(()));
    m.unlock(&fake).unwrap();
    fake.by(2, || m.lock(&fake, None)).unwrap();
    dies();
    assert_eq!(m.lock(&fake, None), err(abi::EOWNERDEAD));
    // Unlocked without being made consistent.
    m.unlock(&fake).unwrap();
    assert_eq!(m.lock(&fake, None), err(abi::ENOTRECOVERABLE));
}

#[test]
fn a_recursive_mutex_of_a_dead_holder_complains_of_each_unlock_but_the_last() {
    let kind = abi::PTHREAD_MUTEX_RECURSIVE;
    let m = mutex(Attributes { robust: true, kind, ..Attributes::default() });
    let fake = Fake::new(2);
    fake.by(2, || m.lock(&fake, None)).unwrap();
    owner_gone(&fake, Handle::from_raw(2).unwrap());
    assert_eq!((m.lock(&fake, None), m.lock(&fake, None)), (err(abi::EOWNERDEAD), Ok(())));
    assert_eq!((m.unlock(&fake), m.unlock(&fake)), (err(abi::ENOTRECOVERABLE), Ok(())));
    assert_eq!(m.lock(&fake, None), err(abi::ENOTRECOVERABLE));
}

#[test]
fn a_condition_gives_the_mutex_back_and_counts_its_waiters() {
    let (m, c, fake) = (plain(), Cond::zeroed(), Fake::new(3));
    m.lock(&fake, None).unwrap();
    fake.then(2, |f| {
        m.lock(f, None).unwrap();
        c.wake(f, 1);
        m.unlock(f).unwrap();
    });
    c.wait(&fake, &m, None).unwrap();
    assert!(fake.is_over());
    assert_eq!(fake.by(2, || m.try_lock(&fake)), err(abi::EBUSY), "it has the mutex again");
    assert_eq!(c.timed_wait(&fake, &m, &SOON), err(abi::ETIMEDOUT));
    let before = fake.yields.get();
    assert_eq!(c.timed_wait(&fake, &m, &PAST), err(abi::ETIMEDOUT));
    assert_eq!(fake.yields.get(), before + 1, "others get at the mutex");
    // No thread waits: a signal is lost.
    c.wake(&fake, u32::MAX);
    assert_eq!(c.timed_wait(&fake, &m, &SOON), err(abi::ETIMEDOUT));
}

#[test]
fn a_condition_keeps_the_clock_that_it_was_made_with() {
    let fake = Fake::new(1);
    let m = plain();
    // SAFETY: a local.
    let c = made(|c| unsafe { cond::init(c, abi::CLOCK_MONOTONIC) });
    m.lock(&fake, None).unwrap();
    assert_eq!(c.timed_wait(&fake, &m, &SOON), err(abi::ETIMEDOUT));
    assert_eq!(fake.now_ns.get(), 1_000_000_000 + MONOTONIC_BEHIND_NS);
    assert_eq!(c.wait(&fake, &m, Some((abi::CLOCK_BOOTTIME, &SOON))), err(abi::EINVAL));
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    // SAFETY: a local.
    let l: RwLock = made(|l| unsafe { rwlock::init(l, 0) });
    let fake = Fake::new(3);
    fake.by(2, || l.read(&fake, None)).unwrap();
    fake.by(3, || l.read(&fake, None)).unwrap();
    assert_eq!(l.try_write(&fake), err(abi::EBUSY));
    fake.then(2, |f| l.unlock(f));
    fake.then(3, |f| l.unlock(f));
    l.write(&fake, None).unwrap();
    assert!(fake.is_over());
    assert_eq!(l.read(&fake, None), err(abi::EDEADLK));
    assert_eq!(fake.by(2, || l.try_read(&fake)), err(abi::EBUSY));
    l.unlock(&fake);
    assert_eq!(fake.by(2, || l.try_read(&fake)), Ok(()));
}

#[test]
fn a_lock_that_prefers_writers_keeps_new_readers_out() {
    for (kind, expected) in [(0, Ok(())), (2, err(abi::EBUSY))] {
        // SAFETY: a local.
        let l: RwLock = made(|l| unsafe { rwlock::init(l, kind) });
        let found = RefCell::new(None);
        let fake = Fake::new(3);
        fake.by(2, || l.read(&fake, None)).unwrap();
        fake.then(3, |f| *found.borrow_mut() = Some(l.try_read(f)));
        let until = Some((abi::CLOCK_REALTIME, &SOON));
        assert_eq!(l.write(&fake, until), err(abi::ETIMEDOUT));
        assert_eq!(*found.borrow(), Some(expected), "kind {kind}");
        assert_eq!(fake.by(3, || l.try_read(&fake)), Ok(()), "the writer is gone");
    }
}

#[test]
fn a_post_gives_its_token_to_a_waiter() {
    // SAFETY: a local.
    let s: Semaphore = made(|s| unsafe { semaphore::init(s, 1).unwrap() });
    let fake = Fake::new(2);
    s.wait(&fake, None).unwrap();
    assert_eq!(s.try_wait(), err(abi::EAGAIN));
    fake.then(2, |f| {
        s.post(f).unwrap();
        assert_eq!(s.value(), 0, "the waiter has it");
    });
    s.wait(&fake, None).unwrap();
    s.post(&fake).unwrap();
    assert_eq!(s.value(), 1);
    // SAFETY: a local.
    assert_eq!(unsafe { semaphore::init(&mut made(|_| {}), u32::MAX) }, err(abi::EINVAL));
}

#[test]
fn a_semaphore_is_waited_for_again_after_a_handler_that_says_so() {
    // SAFETY: a local.
    let s: Semaphore = made(|s| unsafe { semaphore::init(s, 0).unwrap() });
    let fake = Fake::new(2);
    fake.then(2, |f| assert!(f.interrupt(1)));
    fake.then(2, |f| s.post(f).unwrap());
    s.wait(&fake, None).unwrap();
    fake.no_restart.set(true);
    fake.then(2, |f| assert!(f.interrupt(1)));
    assert_eq!(s.wait(&fake, None), err(abi::EINTR));
    s.post(&fake).unwrap();
    assert_eq!(s.value(), 1);
}

#[test]
fn the_last_at_a_barrier_is_serial() {
    // SAFETY: a local.
    let b: Barrier = made(|b| unsafe { barrier::init(b, 2).unwrap() });
    let fake = Fake::new(2);
    for _ in 0..2 {
        fake.then(2, |f| assert!(b.wait(f)));
        assert!(!b.wait(&fake));
    }
    // SAFETY: a local.
    assert_eq!(unsafe { barrier::init(&mut made(|_| {}), 0) }, err(abi::EINVAL));
}

#[test]
fn a_spin_lock_blocks_and_is_handed_over() {
    // SAFETY: all-zero is a held lock, which `init` frees.
    let s: Spin = unsafe { core::mem::zeroed() };
    s.init();
    let fake = Fake::new(2);
    fake.by(2, || s.lock(&fake));
    fake.then(2, |f| {
        s.unlock(f);
        assert_eq!(s.try_lock(), err(abi::EBUSY));
    });
    s.lock(&fake);
    assert!(fake.is_over());
    s.unlock(&fake);
    assert_eq!(s.try_lock(), Ok(()));
}
