//! Hooks: mutexes, conditions, rwlocks, spin locks, barriers, semaphores, POSIX and C11. `pthread_once` is in [`crate::entry::hooks::once`],
//! because its frame is written by hand.

use super::{IntoC, hook, pthread_result};
use crate::kernel::Kernel;
use crate::sync::named;
use crate::sync::{attributes, c11};
use crate::turn;
use libc::{c_char, c_int, c_uint, c_void, clockid_t};
use libc::{pthread_condattr_t, pthread_mutexattr_t, pthread_rwlockattr_t};
use skein_libos::abi::timespec;
use skein_libos::sync::Until;
use skein_libos::sync::barrier::{self, Barrier};
use skein_libos::sync::cond::{self, Cond};
use skein_libos::sync::mutex::{self, Mutex};
use skein_libos::sync::rwlock::{self, RwLock};
use skein_libos::sync::semaphore::{self, Semaphore};
use skein_libos::sync::spin::Spin;
use skein_sched::op::{Kind, Object};

/// An operation on an object of the server's.
#[inline]
fn on<T, R>(object: *mut T, kind: Kind, call: impl FnOnce(&Kernel, &T) -> R) -> R {
    let turn = turn::enter(Object::Memory(object as usize), kind);
    // SAFETY: the server's own object, by the contract of every function that takes one; only the turn's holder touches it.
    call(&turn, unsafe { &*object })
}

/// A deadline by the given clock.
fn until<'a>(clock: clockid_t, at: *const timespec) -> Until<'a> {
    // SAFETY: the server's own pointer, by the contract of the function that it was given to.
    Some((clock, unsafe { &*at }))
}

const DAY: clockid_t = libc::CLOCK_REALTIME;

hook! {
    fn pthread_mutex_init(m: *mut Mutex, attr: *const pthread_mutexattr_t) -> c_int {
        let _turn = turn::enter(Object::Memory(m as usize), Kind::Create);
        // SAFETY: the arguments are those of `pthread_mutex_init`.
        pthread_result(unsafe { mutex::init(m, attributes::of_mutex(attr)) })
    }
    fn pthread_mutex_destroy(m: *mut Mutex) -> c_int {
        pthread_result(on(m, Kind::Destroy, |_, m| m.destroy()))
    }
    fn pthread_mutex_lock(m: *mut Mutex) -> c_int {
        pthread_result(on(m, Kind::Lock, |k, m| m.lock(k, None)))
    }
    fn pthread_mutex_trylock(m: *mut Mutex) -> c_int {
        pthread_result(on(m, Kind::Lock, |k, m| m.try_lock(k)))
    }
    fn pthread_mutex_timedlock(m: *mut Mutex, time: *const timespec) -> c_int {
        pthread_result(on(m, Kind::Lock, |k, m| m.lock(k, until(DAY, time))))
    }
    fn pthread_mutex_clocklock(m: *mut Mutex, clock: clockid_t, time: *const timespec) -> c_int {
        pthread_result(on(m, Kind::Lock, |k, m| m.lock(k, until(clock, time))))
    }
    fn pthread_mutex_unlock(m: *mut Mutex) -> c_int {
        pthread_result(on(m, Kind::Unlock, |k, m| m.unlock(k)))
    }
    fn pthread_mutex_consistent(m: *mut Mutex) -> c_int {
        pthread_result(on(m, Kind::Set, |_, m| m.consistent()))
    }

    fn pthread_cond_init(c: *mut Cond, attr: *const pthread_condattr_t) -> c_int {
        let _turn = turn::enter(Object::Memory(c as usize), Kind::Create);
        // SAFETY: the arguments are those of `pthread_cond_init`.
        unsafe { cond::init(c, attributes::clock_of_cond(attr)) };
        0
    }
    fn pthread_cond_destroy(c: *mut Cond) -> c_int {
        let _turn = turn::enter(Object::Memory(c as usize), Kind::Destroy);
        0
    }
    fn pthread_cond_wait(c: *mut Cond, m: *mut Mutex) -> c_int {
        // SAFETY: the server's own mutex.
        pthread_result(on(c, Kind::Wait, |k, c| c.wait(k, unsafe { &*m }, None)))
    }
    fn pthread_cond_timedwait(c: *mut Cond, m: *mut Mutex, time: *const timespec) -> c_int {
        // SAFETY: the server's own mutex and time.
        pthread_result(on(c, Kind::Wait, |k, c| unsafe { c.timed_wait(k, &*m, &*time) }))
    }
    fn pthread_cond_clockwait(c: *mut Cond, m: *mut Mutex, clock: clockid_t, time: *const timespec) -> c_int {
        // SAFETY: the server's own mutex.
        pthread_result(on(c, Kind::Wait, |k, c| c.wait(k, unsafe { &*m }, until(clock, time))))
    }
    fn pthread_cond_signal(c: *mut Cond) -> c_int {
        on(c, Kind::Wake, |k, c| c.wake(k, 1));
        0
    }
    fn pthread_cond_broadcast(c: *mut Cond) -> c_int {
        on(c, Kind::Wake, |k, c| c.wake(k, u32::MAX));
        0
    }

    fn pthread_rwlock_init(l: *mut RwLock, attr: *const pthread_rwlockattr_t) -> c_int {
        let _turn = turn::enter(Object::Memory(l as usize), Kind::Create);
        // SAFETY: the arguments are those of `pthread_rwlock_init`.
        unsafe { rwlock::init(l, attributes::kind_of_rwlock(attr)) };
        0
    }
    fn pthread_rwlock_destroy(l: *mut RwLock) -> c_int {
        let _turn = turn::enter(Object::Memory(l as usize), Kind::Destroy);
        0
    }
    fn pthread_rwlock_rdlock(l: *mut RwLock) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.read(k, None)))
    }
    fn pthread_rwlock_tryrdlock(l: *mut RwLock) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.try_read(k)))
    }
    fn pthread_rwlock_timedrdlock(l: *mut RwLock, time: *const timespec) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.read(k, until(DAY, time))))
    }
    fn pthread_rwlock_clockrdlock(l: *mut RwLock, clock: clockid_t, time: *const timespec) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.read(k, until(clock, time))))
    }
    fn pthread_rwlock_wrlock(l: *mut RwLock) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.write(k, None)))
    }
    fn pthread_rwlock_trywrlock(l: *mut RwLock) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.try_write(k)))
    }
    fn pthread_rwlock_timedwrlock(l: *mut RwLock, time: *const timespec) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.write(k, until(DAY, time))))
    }
    fn pthread_rwlock_clockwrlock(l: *mut RwLock, clock: clockid_t, time: *const timespec) -> c_int {
        pthread_result(on(l, Kind::Lock, |k, l| l.write(k, until(clock, time))))
    }
    fn pthread_rwlock_unlock(l: *mut RwLock) -> c_int {
        on(l, Kind::Unlock, |k, l| l.unlock(k));
        0
    }

    fn pthread_spin_init(s: *mut Spin, shared: c_int) -> c_int {
        on(s, Kind::Create, |_, s| s.init());
        0
    }
    fn pthread_spin_destroy(s: *mut Spin) -> c_int {
        let _turn = turn::enter(Object::Memory(s as usize), Kind::Destroy);
        0
    }
    fn pthread_spin_lock(s: *mut Spin) -> c_int {
        on(s, Kind::Lock, |k, s| s.lock(k));
        0
    }
    fn pthread_spin_trylock(s: *mut Spin) -> c_int {
        pthread_result(on(s, Kind::Lock, |_, s| s.try_lock()))
    }
    fn pthread_spin_unlock(s: *mut Spin) -> c_int {
        on(s, Kind::Unlock, |k, s| s.unlock(k));
        0
    }

    fn pthread_barrier_init(b: *mut Barrier, attr: *const c_void, count: c_uint) -> c_int {
        let _turn = turn::enter(Object::Memory(b as usize), Kind::Create);
        // SAFETY: the arguments are those of `pthread_barrier_init`.
        pthread_result(unsafe { barrier::init(b, count) })
    }
    fn pthread_barrier_destroy(b: *mut Barrier) -> c_int {
        let _turn = turn::enter(Object::Memory(b as usize), Kind::Destroy);
        0
    }
    fn pthread_barrier_wait(b: *mut Barrier) -> c_int {
        if on(b, Kind::Wait, |k, b| b.wait(k)) { libc::PTHREAD_BARRIER_SERIAL_THREAD } else { 0 }
    }

    fn sem_init(s: *mut Semaphore, shared: c_int, value: c_uint) -> c_int {
        let _turn = turn::enter(Object::Memory(s as usize), Kind::Create);
        // SAFETY: the arguments are those of `sem_init`.
        unsafe { semaphore::init(s, value) }.into_c()
    }
    fn sem_destroy(s: *mut Semaphore) -> c_int {
        let _turn = turn::enter(Object::Memory(s as usize), Kind::Destroy);
        0
    }
    fn sem_wait(s: *mut Semaphore) -> c_int {
        on(s, Kind::Lock, |k, s| s.wait(k, None)).into_c()
    }
    fn sem_trywait(s: *mut Semaphore) -> c_int {
        on(s, Kind::Lock, |_, s| s.try_wait()).into_c()
    }
    fn sem_timedwait(s: *mut Semaphore, time: *const timespec) -> c_int {
        on(s, Kind::Lock, |k, s| s.wait(k, until(DAY, time))).into_c()
    }
    fn sem_clockwait(s: *mut Semaphore, clock: clockid_t, time: *const timespec) -> c_int {
        on(s, Kind::Lock, |k, s| s.wait(k, until(clock, time))).into_c()
    }
    fn sem_post(s: *mut Semaphore) -> c_int {
        on(s, Kind::Unlock, |k, s| s.post(k)).into_c()
    }
    fn sem_getvalue(s: *mut Semaphore, out: *mut c_int) -> c_int {
        let value = on(s, Kind::Ask, |_, s| s.value());
        // SAFETY: the server's own pointer.
        unsafe { out.write(value) };
        0
    }
    fn sem_open(name: *const c_char, flags: c_int, mode: c_uint, value: c_uint) -> *mut Semaphore {
        // SAFETY: the arguments are those of `sem_open`.
        unsafe { named::open(name, flags, mode, value) }
    }
    fn sem_close(s: *mut Semaphore) -> c_int {
        // SAFETY: the argument is that of `sem_close`.
        unsafe { named::close(s) }
    }

    fn sched_yield() -> c_int {
        let _turn = turn::enter(Object::Machine, Kind::Yield);
        turn::yield_now();
        0
    }

    fn mtx_init(m: *mut Mutex, kind: c_int) -> c_int {
        let _turn = turn::enter(Object::Memory(m as usize), Kind::Create);
        // SAFETY: the arguments are those of `mtx_init`.
        unsafe { c11::mtx_init(m, kind) }
    }
    fn mtx_destroy(m: *mut Mutex) {
        let _ = on(m, Kind::Destroy, |_, m| m.destroy());
    }
    fn mtx_lock(m: *mut Mutex) -> c_int {
        c11::result(on(m, Kind::Lock, |k, m| m.lock(k, None)))
    }
    fn mtx_trylock(m: *mut Mutex) -> c_int {
        c11::result(on(m, Kind::Lock, |k, m| m.try_lock(k)))
    }
    fn mtx_timedlock(m: *mut Mutex, time: *const timespec) -> c_int {
        c11::result(on(m, Kind::Lock, |k, m| m.lock(k, until(DAY, time))))
    }
    fn mtx_unlock(m: *mut Mutex) -> c_int {
        c11::result(on(m, Kind::Unlock, |k, m| m.unlock(k)))
    }
    fn cnd_init(c: *mut Cond) -> c_int {
        let _turn = turn::enter(Object::Memory(c as usize), Kind::Create);
        // SAFETY: the argument is that of `cnd_init`.
        unsafe { cond::init(c, libc::CLOCK_REALTIME) };
        c11::SUCCESS
    }
    fn cnd_destroy(c: *mut Cond) {
        let _turn = turn::enter(Object::Memory(c as usize), Kind::Destroy);
    }
    fn cnd_wait(c: *mut Cond, m: *mut Mutex) -> c_int {
        // SAFETY: the server's own mutex.
        c11::result(on(c, Kind::Wait, |k, c| c.wait(k, unsafe { &*m }, None)))
    }
    fn cnd_timedwait(c: *mut Cond, m: *mut Mutex, time: *const timespec) -> c_int {
        // SAFETY: the server's own mutex and time.
        c11::result(on(c, Kind::Wait, |k, c| unsafe { c.timed_wait(k, &*m, &*time) }))
    }
    fn cnd_signal(c: *mut Cond) -> c_int {
        on(c, Kind::Wake, |k, c| c.wake(k, 1));
        c11::SUCCESS
    }
    fn cnd_broadcast(c: *mut Cond) -> c_int {
        on(c, Kind::Wake, |k, c| c.wake(k, u32::MAX));
        c11::SUCCESS
    }
}

/// Names that old programs use. When the process is not replicated libc's newer name is called: the old one cannot be looked up.
macro_rules! aliases {
    ($( $name:ident = $of:ident($($arg:ident: $ty:ty),*) )*) => {$(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            core::arch::naked_asm!(concat!("jmp ", stringify!($of), "@PLT"))
        }
    )*};
}

aliases! {
    __pthread_mutex_init = pthread_mutex_init(m: *mut Mutex, attr: *const pthread_mutexattr_t)
    __pthread_mutex_destroy = pthread_mutex_destroy(m: *mut Mutex)
    __pthread_mutex_lock = pthread_mutex_lock(m: *mut Mutex)
    __pthread_mutex_trylock = pthread_mutex_trylock(m: *mut Mutex)
    __pthread_mutex_unlock = pthread_mutex_unlock(m: *mut Mutex)
    pthread_mutex_consistent_np = pthread_mutex_consistent(m: *mut Mutex)
    __pthread_rwlock_init = pthread_rwlock_init(l: *mut RwLock, attr: *const pthread_rwlockattr_t)
    __pthread_rwlock_destroy = pthread_rwlock_destroy(l: *mut RwLock)
    __pthread_rwlock_rdlock = pthread_rwlock_rdlock(l: *mut RwLock)
    __pthread_rwlock_tryrdlock = pthread_rwlock_tryrdlock(l: *mut RwLock)
    __pthread_rwlock_wrlock = pthread_rwlock_wrlock(l: *mut RwLock)
    __pthread_rwlock_trywrlock = pthread_rwlock_trywrlock(l: *mut RwLock)
    __pthread_rwlock_unlock = pthread_rwlock_unlock(l: *mut RwLock)
    __sched_yield = sched_yield()
    pthread_yield = sched_yield()
}
