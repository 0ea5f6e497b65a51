//! Calls that make or wait for the library's files: pipes, epoll sets, eventfds, signalfds, timerfds, inotify, poll, select.

use crate::io::call::{interruptible, of_kind, with, with_cancel};
use crate::kernel::kernel;
use crate::turn;
use libc::timeval;
use skein_libos::Host;
use skein_libos::abi::{epoll_event, itimerspec, pollfd};
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::file::table::MAX_FDS;
use skein_libos::file::{
    epoll, eventfd, inotify, pipe, poll as polling, select as selecting, timerfd,
};
use skein_libos::signal::signalfd;
use skein_libos::time::Timeout;
use skein_sched::op::{Kind, Object};

/// `pipe2`.
pub fn pipe(flags: i32) -> Result<[i32; 2]> {
    pipe::create(&*turn::enter(Object::Descriptors, Kind::Create), flags)
}

/// `eventfd`.
pub fn eventfd(count: u32, flags: i32) -> Result<usize> {
    eventfd::create(&*turn::enter(Object::Descriptors, Kind::Create), count, flags)
}

/// `signalfd4`.
///
/// # Safety
/// `set` is null or valid.
pub unsafe fn signalfd(fd: i32, set: *const u64, flags: i32) -> Result<usize> {
    // SAFETY: the caller's pointer.
    let set = *unsafe { set.as_ref() }.ok_or(Errno(libc::EFAULT))?;
    signalfd::check(flags)?;
    if fd == -1 {
        return signalfd::create(&*turn::enter(Object::Descriptors, Kind::Create), set, flags);
    }
    let changed =
        with(fd, Kind::Set, |k, hold| signalfd::change(k, hold, set).map(|()| fd as usize));
    of_kind(fd, changed)
}

/// `timerfd_create`.
pub fn timerfd(clock: i32, flags: i32) -> Result<usize> {
    timerfd::create(&*turn::enter(Object::Descriptors, Kind::Create), clock, flags)
}

/// `timerfd_settime`.
///
/// # Safety
/// `new` is null or valid, `old` null or valid.
pub unsafe fn timerfd_settime(
    fd: i32,
    flags: i32,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let set = with(fd, Kind::Set, |k, hold| unsafe { timerfd::settime(k, hold, flags, new, old) });
    of_kind(fd, set)
}

/// `timerfd_gettime`.
///
/// # Safety
/// `out` is valid.
pub unsafe fn timerfd_gettime(fd: i32, out: *mut itimerspec) -> Result<usize> {
    let answer = with(fd, Kind::Ask, |k, hold| {
        // SAFETY: the caller's contract.
        unsafe { out.write(timerfd::get(k, hold)?) };
        Ok(0)
    });
    of_kind(fd, answer)
}

/// `inotify_init1`.
pub fn inotify(flags: i32) -> Result<usize> {
    inotify::create(&*turn::enter(Object::Descriptors, Kind::Create), flags)
}

/// `inotify_add_watch`.
pub fn inotify_add_watch(fd: i32, events: u32) -> Result<usize> {
    of_kind(fd, with(fd, Kind::Watch, |k, hold| inotify::add_watch(k, hold, events)))
}

/// `inotify_rm_watch`.
pub fn inotify_rm_watch(fd: i32) -> Result<usize> {
    of_kind(fd, with(fd, Kind::Watch, inotify::remove_watch))
}

/// `epoll_create1`.
pub fn epoll_create(flags: i32) -> Result<usize> {
    epoll::create(&*turn::enter(Object::Descriptors, Kind::Create), flags)
}

/// `epoll_ctl`.
///
/// # Safety
/// `event` is null or valid.
pub unsafe fn epoll_ctl(epfd: i32, op: i32, fd: i32, event: *const epoll_event) -> Result<usize> {
    if event.is_null() && op != libc::EPOLL_CTL_DEL && kernel().file(epfd).is_some() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's contract.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    let event = event.map(|e| (e.events, e.u64));
    let watch =
        with(epfd, Kind::Watch, |k, hold| epoll::control(k, hold, op, fd, event).map(|()| 0));
    of_kind(epfd, watch)
}

/// `epoll_wait`.
///
/// # Safety
/// `out` has room for `most` events.
pub unsafe fn epoll_wait(
    epfd: i32,
    out: *mut epoll_event,
    most: i32,
    timeout: Timeout,
) -> Result<usize> {
    let waited = with_cancel(epfd, Kind::Wait, |k, hold| {
        // SAFETY: the caller's contract.
        unsafe { epoll::wait(k, hold, out, most, timeout) }
    });
    of_kind(epfd, waited)
}

/// `poll`. Returns early with `EINVAL` when there are more descriptors than may be open.
///
/// # Safety
/// `fds` is `count` valid elements.
pub unsafe fn poll(fds: *mut pollfd, count: usize, timeout: Timeout) -> Result<usize> {
    kernel().test_cancel();
    let turn = turn::enter(Object::Several, Kind::Wait);
    if count > MAX_FDS as usize {
        return fail(libc::EINVAL);
    }
    let fds = match count {
        0 => &mut [],
        // SAFETY: the caller's contract.
        _ => unsafe { core::slice::from_raw_parts_mut(fds, count) },
    };
    interruptible(polling::poll(&*turn, fds, timeout))
}

/// `select`: sets as arrays of 64-bit words, null when not requested. Answers the count and the time left of the timeout.
///
/// # Safety
/// Sets that are not null have room for `count` bits, rounded up to a word.
pub unsafe fn select(count: i32, sets: [*mut u64; 3], timeout: Timeout) -> (Result<usize>, u64) {
    kernel().test_cancel();
    let turn = turn::enter(Object::Several, Kind::Wait);
    // SAFETY: the caller's contract.
    let (result, left) = unsafe { selecting::select(&*turn, count, sets, timeout) };
    (interruptible(result), left)
}

/// `select`: as in Linux the time left is written back.
///
/// # Safety
/// As for `select`.
pub unsafe fn select_timeval(
    count: i32,
    sets: [*mut u64; 3],
    timeout: *mut timeval,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(tv) = timeout.as_mut() else {
            return select(count, sets, Timeout::Never).0;
        };
        if tv.tv_sec < 0 || tv.tv_usec < 0 {
            return fail(libc::EINVAL);
        }
        let ns = (tv.tv_sec as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add((tv.tv_usec as u64).saturating_mul(1000));
        let (result, left_ns) =
            select(count, sets, if ns == 0 { Timeout::Poll } else { Timeout::Ns(ns) });
        let left_us = left_ns / 1000;
        *tv =
            timeval { tv_sec: (left_us / 1_000_000) as i64, tv_usec: (left_us % 1_000_000) as i64 };
        result
    }
}
