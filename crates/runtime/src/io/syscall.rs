//! The same calls by number: for `syscall()` and for what the safety net catches.

use crate::files;
use crate::io::{
    Answer, call, descriptor, msg, readiness as ready, sendfile, socket, splice, transfer,
};
use crate::signal::wait;
use skein_libos::abi::timespec;
use skein_libos::errno::{Result, fail};
use skein_libos::time::Timeout;

/// An I/O system call by number: `None` when it is not one, or not on a virtual descriptor.
pub fn syscall(nr: i64, args: [usize; 6]) -> Option<Result<usize>> {
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        descriptors(nr, args)
            .or_else(|| on_socket(nr, args))
            .or_else(|| readiness(nr, args))
            .or_else(|| files::syscall(nr, args))
    }
}

unsafe fn descriptors(nr: i64, [a, b, c, d, e, f]: [usize; 6]) -> Answer {
    let fd = a as i32;
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        match nr {
            libc::SYS_read => transfer::read(fd, b as *mut _, c),
            libc::SYS_write => transfer::write(fd, b as *const _, c),
            libc::SYS_readv => transfer::readv(fd, b as *const _, c as i32),
            libc::SYS_writev => transfer::writev(fd, b as *const _, c as i32),
            libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => {
                transfer::positioned(fd)
            }
            libc::SYS_preadv2 => transfer::preadv2(fd, b as *const _, c as i32, d as i64, f as i32),
            libc::SYS_pwritev2 => {
                transfer::pwritev2(fd, b as *const _, c as i32, d as i64, f as i32)
            }
            libc::SYS_splice => {
                splice::splice(fd, b as *mut i64, c as i32, d as *mut i64, e, f as u32)
            }
            libc::SYS_tee => splice::tee(fd, b as i32, c, d as u32),
            libc::SYS_vmsplice => splice::vmsplice(fd, b as *const _, c, d as u32),
            libc::SYS_sendfile => sendfile::sendfile(fd, b as i32, c as *mut i64, d),
            libc::SYS_close => descriptor::close(fd),
            libc::SYS_close_range => Some(descriptor::close_range(a as u32, b as u32, c as u32)),
            libc::SYS_dup => descriptor::dup(fd),
            libc::SYS_dup2 => descriptor::dup3(fd, b as i32, None),
            libc::SYS_dup3 => descriptor::dup3(fd, b as i32, Some(c as i32)),
            libc::SYS_fcntl => descriptor::fcntl(fd, b as i32, c),
            libc::SYS_ioctl => descriptor::ioctl(fd, b, c),
            libc::SYS_fchmod => descriptor::change_mode(fd, Some(b as u32)),
            libc::SYS_fchown => descriptor::change_mode(fd, None),
            libc::SYS_lseek => descriptor::lseek(fd, c as i32),
            libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_ftruncate => descriptor::sync(fd),
            libc::SYS_pipe => Some(ready::pipe(0).map(|ends| super::put_pair(a as *mut i32, ends))),
            libc::SYS_pipe2 => {
                Some(ready::pipe(b as i32).map(|ends| super::put_pair(a as *mut i32, ends)))
            }
            _ => None,
        }
    }
}

/// What is no socket says so.
unsafe fn on_socket(nr: i64, args: [usize; 6]) -> Answer {
    // SAFETY: passed on.
    let answer = unsafe { sockets(nr, args) };
    match nr {
        libc::SYS_bind
        | libc::SYS_listen
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_shutdown
        | libc::SYS_getsockname
        | libc::SYS_getpeername
        | libc::SYS_setsockopt
        | libc::SYS_getsockopt
        | libc::SYS_recvfrom
        | libc::SYS_sendto
        | libc::SYS_recvmsg
        | libc::SYS_sendmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendmmsg => call::only_virtual(answer, args[0] as i32, libc::ENOTSOCK),
        _ => answer,
    }
}

unsafe fn sockets(nr: i64, [a, b, c, d, e, f]: [usize; 6]) -> Answer {
    let fd = a as i32;
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        match nr {
            libc::SYS_socket => Some(socket::create(a as i32, b as i32, c as i32)),
            libc::SYS_socketpair => Some(
                socket::pair(a as i32, b as i32, c as i32)
                    .map(|ends| super::put_pair(d as *mut i32, ends)),
            ),
            libc::SYS_bind => socket::bind::bind(fd, b as *const _, c as u32),
            libc::SYS_listen => socket::bind::listen(fd, b as i32),
            libc::SYS_accept => socket::accept::accept(fd, b as *mut _, c as *mut _, 0),
            libc::SYS_accept4 => socket::accept::accept(fd, b as *mut _, c as *mut _, d as i32),
            libc::SYS_connect => socket::connect::connect(fd, b as *const _, c as u32),
            libc::SYS_shutdown => socket::close::shutdown(fd, b as i32),
            libc::SYS_getsockname => socket::name::local(fd, b as *mut _, c as *mut _),
            libc::SYS_getpeername => socket::name::remote(fd, b as *mut _, c as *mut _),
            libc::SYS_setsockopt => {
                socket::options::set(fd, b as i32, c as i32, d as *const u8, e as u32)
            }
            libc::SYS_getsockopt => {
                socket::options::get(fd, b as i32, c as i32, d as *mut u8, e as *mut _)
            }
            libc::SYS_recvfrom => {
                msg::recvfrom(fd, b as *mut _, c, d as i32, e as *mut _, f as *mut _)
            }
            libc::SYS_sendto => {
                msg::sendto(fd, b as *const _, c, d as i32, e as *const _, f as u32)
            }
            libc::SYS_recvmsg => msg::recvmsg(fd, b as *mut _, c as i32),
            libc::SYS_sendmsg => msg::sendmsg(fd, b as *const _, c as i32),
            libc::SYS_recvmmsg => match Timeout::from_timespec((e as *const timespec).as_ref()) {
                Ok(timeout) => msg::recvmmsg(fd, b as *mut _, c as u32, d as i32, timeout),
                Err(e) => Some(Err(e)),
            },
            libc::SYS_sendmmsg => msg::sendmmsg(fd, b as *mut _, c as u32, d as i32),
            _ => None,
        }
    }
}

unsafe fn readiness(nr: i64, [a, b, c, d, e, f]: [usize; 6]) -> Answer {
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        match nr {
            libc::SYS_epoll_create => {
                Some(if a as i32 > 0 { ready::epoll_create(0) } else { fail(libc::EINVAL) })
            }
            libc::SYS_epoll_create1 => Some(ready::epoll_create(a as i32)),
            libc::SYS_epoll_ctl => ready::epoll_ctl(a as i32, b as i32, c as i32, d as *const _),
            libc::SYS_epoll_wait => {
                ready::epoll_wait(a as i32, b as *mut _, c as i32, Timeout::from_ms(d as i32))
            }
            libc::SYS_epoll_pwait => wait::masked(e as *const _, || {
                ready::epoll_wait(a as i32, b as *mut _, c as i32, Timeout::from_ms(d as i32))
            }),
            libc::SYS_epoll_pwait2 => with_timeout(d, |t| {
                wait::masked(e as *const _, || {
                    ready::epoll_wait(a as i32, b as *mut _, c as i32, t)
                })
            }),
            libc::SYS_poll => Some(ready::poll(a as *mut _, b, Timeout::from_ms(c as i32))),
            libc::SYS_ppoll => with_timeout(c, |t| {
                wait::masked(d as *const _, || Some(ready::poll(a as *mut _, b, t)))
            }),
            libc::SYS_select => Some(ready::select_timeval(
                a as i32,
                [b as *mut u64, c as *mut u64, d as *mut u64],
                e as *mut _,
            )),
            libc::SYS_pselect6 => {
                // The last argument points to the mask and its size.
                let mask = if f == 0 { 0 } else { *(f as *const usize) };
                let sets = [b as *mut u64, c as *mut u64, d as *mut u64];
                with_timeout(e, |t| {
                    wait::masked(mask as *const _, || Some(ready::select(a as i32, sets, t).0))
                })
            }
            libc::SYS_inotify_init => Some(ready::inotify(0)),
            libc::SYS_inotify_init1 => Some(ready::inotify(a as i32)),
            libc::SYS_inotify_add_watch => ready::inotify_add_watch(a as i32, c as u32),
            libc::SYS_inotify_rm_watch => ready::inotify_rm_watch(a as i32),
            libc::SYS_eventfd => Some(ready::eventfd(a as u32, 0)),
            libc::SYS_eventfd2 => Some(ready::eventfd(a as u32, b as i32)),
            libc::SYS_timerfd_create => Some(ready::timerfd(a as i32, b as i32)),
            libc::SYS_timerfd_settime => {
                ready::timerfd_settime(a as i32, b as i32, c as *const _, d as *mut _)
            }
            libc::SYS_timerfd_gettime => ready::timerfd_gettime(a as i32, b as *mut _),
            _ => None,
        }
    }
}

unsafe fn with_timeout(at: usize, call: impl FnOnce(Timeout) -> Answer) -> Answer {
    // SAFETY: null or the server's `timespec`.
    match Timeout::from_timespec(unsafe { (at as *const timespec).as_ref() }) {
        Ok(timeout) => call(timeout),
        Err(e) => Some(Err(e)),
    }
}
