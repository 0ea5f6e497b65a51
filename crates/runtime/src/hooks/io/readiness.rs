//! Hooks: epoll, poll, select, eventfd, timerfd.

use super::answer;
use crate::errno::{Errno, Result, fail};
use crate::hooks::{hook, real, set_errno};
use crate::io::epoll::{self, Timeout};
use crate::io::{Answer, eventfd, file, poll, select, timerfd};
use crate::kernel::kernel;
use crate::signal;
use libc::{
    c_int, c_uint, epoll_event, fd_set, itimerspec, nfds_t, pollfd, sigset_t, size_t, ssize_t,
    timespec, timeval,
};

answer! {
    fn epoll_create(size: c_int) -> c_int {
        Some(if size > 0 { epoll::create(0) } else { fail(libc::EINVAL) })
    }
    fn epoll_create1(flags: c_int) -> c_int { Some(epoll::create(flags)) }
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        control(epfd, op, fd, event)
    }
    fn epoll_wait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int) -> c_int {
        on_kind(epfd, epoll::wait(epfd, out, most, Timeout::from_ms(ms)))
    }
    fn epoll_pwait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int, mask: *const sigset_t) -> c_int {
        masked(mask, || on_kind(epfd, epoll::wait(epfd, out, most, Timeout::from_ms(ms))))
    }
    fn epoll_pwait2(
        epfd: c_int,
        out: *mut epoll_event,
        most: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        match Timeout::from_timespec(timeout.as_ref()) {
            Ok(timeout) => masked(mask, || on_kind(epfd, epoll::wait(epfd, out, most, timeout))),
            Err(e) => Some(Err(e)),
        }
    }
    fn poll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
        Some(poll::poll(fds, count as usize, Timeout::from_ms(ms)))
    }
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, ms: c_int, room: size_t) -> c_int {
        if room / size_of::<pollfd>() < count as usize {
            None
        } else {
            Some(poll::poll(fds, count as usize, Timeout::from_ms(ms)))
        }
    }
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        poll_masked(fds, count, timeout, mask)
    }
    fn __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
        room: size_t,
    ) -> c_int {
        if room / size_of::<pollfd>() < count as usize { None } else { poll_masked(fds, count, timeout, mask) }
    }
    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        Some(select_timeval(count, [read.cast(), write.cast(), except.cast()], timeout))
    }
    fn pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        match Timeout::from_timespec(timeout.as_ref()) {
            Ok(timeout) => masked(mask, || {
                Some(select::select(count, [read.cast(), write.cast(), except.cast()], timeout).0)
            }),
            Err(e) => Some(Err(e)),
        }
    }

    fn eventfd(count: c_uint, flags: c_int) -> c_int { Some(eventfd::create(count, flags)) }
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int { Some(timerfd::create(clock, flags)) }
    fn timerfd_settime(fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> c_int {
        set_timer(fd, flags, new, old)
    }
    fn timerfd_gettime(fd: c_int, out: *mut itimerspec) -> c_int { get_timer(fd, out) }
}

hook! {
    fn eventfd_read(fd: c_int, value: *mut u64) -> c_int {
        match crate::io::transfer::read(fd, value.cast(), 8) {
            Some(result) => whole(result),
            None => {
                let real = real!(eventfd_read: fn(c_int, *mut u64) -> c_int);
                // SAFETY: libc's own function, called as it was.
                unsafe { real(fd, value) }
            }
        }
    } else {
        let real = real!(eventfd_read: fn(c_int, *mut u64) -> c_int);
        // SAFETY: libc's own function, called as it was.
        unsafe { real(fd, value) }
    }

    fn eventfd_write(fd: c_int, value: u64) -> c_int {
        match crate::io::transfer::write(fd, (&raw const value).cast(), 8) {
            Some(result) => whole(result),
            None => {
                let real = real!(eventfd_write: fn(c_int, u64) -> c_int);
                // SAFETY: libc's own function, called as it was.
                unsafe { real(fd, value) }
            }
        }
    } else {
        let real = real!(eventfd_write: fn(c_int, u64) -> c_int);
        // SAFETY: libc's own function, called as it was.
        unsafe { real(fd, value) }
    }
}

/// libc answers -1 to a short transfer without saying why.
fn whole(result: Result<usize>) -> c_int {
    match result {
        Ok(n) if n as ssize_t == 8 => 0,
        Ok(_) => -1,
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// What is no epoll set or timerfd says so.
pub fn on_kind(fd: c_int, answer: Answer) -> Answer {
    file::only_virtual(answer, fd, libc::EINVAL)
}

/// `epoll_ctl`.
///
/// # Safety
/// `event` is null or valid.
pub unsafe fn control(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Answer {
    if event.is_null() && op != libc::EPOLL_CTL_DEL && kernel().table().get(epfd).is_some() {
        return Some(fail(libc::EFAULT));
    }
    // SAFETY: the caller's contract.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    on_kind(epfd, epoll::ctl(epfd, op, fd, event.map(|e| (e.events, e.u64))))
}

/// Runs a call with another signal mask.
///
/// # Safety
/// `mask` is null or valid.
pub unsafe fn masked(mask: *const sigset_t, call: impl FnOnce() -> Answer) -> Answer {
    if mask.is_null() {
        return call();
    }
    // SAFETY: the caller's contract; the kernel's set is the first word of libc's.
    let mask = unsafe { mask.cast::<u64>().read() };
    let mut passes = false;
    let result = signal::wait::with_mask(Some(mask), || {
        call().unwrap_or_else(|| {
            passes = true;
            Ok(0)
        })
    });
    (!passes).then_some(result)
}

unsafe fn poll_masked(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Answer {
    // SAFETY: the caller's arguments.
    unsafe {
        match Timeout::from_timespec(timeout.as_ref()) {
            Ok(timeout) => masked(mask, || Some(poll::poll(fds, count as usize, timeout))),
            Err(e) => Some(Err(e)),
        }
    }
}

/// `select`: as in Linux the time left is written back.
///
/// # Safety
/// As for `select`.
pub unsafe fn select_timeval(
    count: c_int,
    sets: [*mut u64; 3],
    timeout: *mut timeval,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(tv) = timeout.as_mut() else {
            return select::select(count, sets, Timeout::Never).0;
        };
        if tv.tv_sec < 0 || tv.tv_usec < 0 {
            return Err(Errno(libc::EINVAL));
        }
        let ns = (tv.tv_sec as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add((tv.tv_usec as u64).saturating_mul(1000));
        let (result, left_ns) =
            select::select(count, sets, if ns == 0 { Timeout::Poll } else { Timeout::Ns(ns) });
        let left_us = left_ns / 1000;
        *tv =
            timeval { tv_sec: (left_us / 1_000_000) as i64, tv_usec: (left_us % 1_000_000) as i64 };
        result
    }
}

/// `timerfd_settime`.
///
/// # Safety
/// `new` is valid, `old` null or valid.
pub unsafe fn set_timer(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Answer {
    let answer = file::with(fd, |k, hold| {
        // SAFETY: the caller's contract.
        unsafe {
            let before = timerfd::set(k, hold, flags, new.as_ref().ok_or(Errno(libc::EFAULT))?)?;
            if let Some(old) = old.as_mut() {
                *old = before;
            }
        }
        Ok(0)
    });
    on_kind(fd, answer)
}

/// `timerfd_gettime`.
///
/// # Safety
/// `out` is valid.
pub unsafe fn get_timer(fd: c_int, out: *mut itimerspec) -> Answer {
    let answer = file::with(fd, |k, hold| {
        // SAFETY: the caller's contract.
        unsafe { out.write(timerfd::get(k, hold)?) };
        Ok(0)
    });
    on_kind(fd, answer)
}
