//! Hooks: epoll, poll, select, eventfd, timerfd.

use super::{hook, set_errno, syscalls};
use crate::entry::calls::made;
use crate::entry::hooks::IntoC;
use crate::original::real;
use libc::{c_int, c_uint, fd_set, nfds_t, sigset_t, size_t, timeval};
use skein_libos::abi::{epoll_event, itimerspec, pollfd, timespec};
use skein_libos::errno::Result;

syscalls! {
    SYS_epoll_create: fn epoll_create(size: c_int) -> c_int;
    SYS_epoll_create1: fn epoll_create1(flags: c_int) -> c_int;
    SYS_epoll_ctl: fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    SYS_epoll_wait: fn epoll_wait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int) -> c_int;
    SYS_epoll_pwait: fn epoll_pwait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int, mask: *const sigset_t) -> c_int;
    SYS_epoll_pwait2: fn epoll_pwait2(epfd: c_int, out: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    SYS_poll: fn poll(fds: *mut pollfd, count: nfds_t, ms: c_int) -> c_int;
    SYS_ppoll: fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    SYS_select: fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    SYS_pselect6: fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = (count, read, write, except, timeout, &raw const mask);
    SYS_eventfd2: fn eventfd(count: c_uint, flags: c_int) -> c_int;
    SYS_timerfd_create: fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    SYS_timerfd_settime: fn timerfd_settime(fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> c_int;
    SYS_timerfd_gettime: fn timerfd_gettime(fd: c_int, out: *mut itimerspec) -> c_int;
}

// With the size of the array: libc's own function ends the program when it is too small.
hook! {
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, ms: c_int, room: size_t) -> c_int {
        // SAFETY: the caller's arguments; libc's own function, called as it was.
        unsafe {
            if room / size_of::<pollfd>() < count as usize {
                real!(__poll_chk: fn(*mut pollfd, nfds_t, c_int, size_t) -> c_int)(fds, count, ms, room)
            } else {
                made!(SYS_poll(fds, count, ms)).into_c()
            }
        }
    }

    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int {
        // SAFETY: as above.
        unsafe {
            if room / size_of::<pollfd>() < count as usize {
                real!(__ppoll_chk: fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t) -> c_int)(fds, count, timeout, mask, room)
            } else {
                made!(SYS_ppoll(fds, count, timeout, mask)).into_c()
            }
        }
    }
}

hook! {
    fn eventfd_read(fd: c_int, value: *mut u64) -> c_int {
        // SAFETY: the caller's pointer.
        whole(unsafe { made!(SYS_read(fd, value, 8)) })
    }

    fn eventfd_write(fd: c_int, value: u64) -> c_int {
        // SAFETY: reads a local.
        whole(unsafe { made!(SYS_write(fd, &raw const value, 8)) })
    }
}

/// libc answers -1 to a short transfer without saying why.
fn whole(result: Result<usize>) -> c_int {
    match result {
        Ok(8) => 0,
        Ok(_) => -1,
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}
