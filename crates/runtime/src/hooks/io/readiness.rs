//! Hooks: epoll, poll, select, eventfd, timerfd.

use super::answer;
use crate::hooks::{hook, set_errno};
use crate::io::readiness;
use crate::original::real;
use crate::signal::wait;
use libc::timeval;
use libc::{c_int, c_uint, fd_set, nfds_t, sigset_t, size_t, ssize_t};
use skein_libos::abi::epoll_event;
use skein_libos::abi::itimerspec;
use skein_libos::abi::pollfd;
use skein_libos::abi::timespec;
use skein_libos::errno::{Result, fail};
use skein_libos::time::Timeout;

answer! {
    fn epoll_create(size: c_int) -> c_int {
        Some(if size > 0 { readiness::epoll_create(0) } else { fail(libc::EINVAL) })
    }
    fn epoll_create1(flags: c_int) -> c_int { Some(readiness::epoll_create(flags)) }
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        readiness::epoll_ctl(epfd, op, fd, event)
    }
    fn epoll_wait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int) -> c_int {
        readiness::epoll_wait(epfd, out, most, Timeout::from_ms(ms))
    }
    fn epoll_pwait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int, mask: *const sigset_t) -> c_int {
        wait::masked(mask, || readiness::epoll_wait(epfd, out, most, Timeout::from_ms(ms)))
    }
    fn epoll_pwait2(
        epfd: c_int,
        out: *mut epoll_event,
        most: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        match Timeout::from_timespec(timeout.as_ref()) {
            Ok(timeout) => wait::masked(mask, || readiness::epoll_wait(epfd, out, most, timeout)),
            Err(e) => Some(Err(e)),
        }
    }
    fn poll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int {
        Some(readiness::poll(fds, count as usize, Timeout::from_ms(ms)))
    }
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, ms: c_int, room: size_t) -> c_int {
        if room / size_of::<pollfd>() < count as usize {
            None
        } else {
            Some(readiness::poll(fds, count as usize, Timeout::from_ms(ms)))
        }
    }
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        readiness::ppoll(fds, count, timeout, mask)
    }
    fn __ppoll_chk(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
        room: size_t,
    ) -> c_int {
        if room / size_of::<pollfd>() < count as usize { None } else { readiness::ppoll(fds, count, timeout, mask) }
    }
    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        Some(readiness::select_timeval(count, [read.cast(), write.cast(), except.cast()], timeout))
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
            Ok(timeout) => wait::masked(mask, || {
                Some(readiness::select(count, [read.cast(), write.cast(), except.cast()], timeout).0)
            }),
            Err(e) => Some(Err(e)),
        }
    }

    fn eventfd(count: c_uint, flags: c_int) -> c_int { Some(readiness::eventfd(count, flags)) }
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int { Some(readiness::timerfd(clock, flags)) }
    fn timerfd_settime(fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> c_int {
        readiness::timerfd_settime(fd, flags, new, old)
    }
    fn timerfd_gettime(fd: c_int, out: *mut itimerspec) -> c_int { readiness::timerfd_gettime(fd, out) }
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
