//! The answer to each system call. A line is read as follows:
//!
//! - `SYS_pause() => { ... }`: the runtime always answers. The row is virtual or agreed.
//! - `SYS_fsync(fd: c_int) if virtual { ... }`: the block answers virtual objects. The kernel answers the rest. The row is checked.
//! - `... else Write |k, call| { ... }`: the rest is an operation of this kind on files, and this block answers it. It may let the kernel do `call`.
//!   None of the call's arguments is then a descriptor of the runtime's own. Without a kind the answer begins the operation itself.
//!
//! All other answers begin the operation of their turn themselves, as they know the object. A call that only passes to the kernel is no operation.

use super::{Form, Syscall, calls, no_own, number, on_files, pass};
use crate::files::{change, close, console, disk, inputs, list, lock, open, root, stat};
use crate::io::{Answer, call, descriptor, msg, put_pair, readiness as ready, socket, transfer};
use crate::ipc;
use crate::kernel::kernel;
use crate::process::{end, exec, fork, group, pidfd, wait};
use crate::signal::calls as signals;
use crate::signal::wait as signal_wait;
use crate::signal::{self, Action, Info, timer};
use crate::time::calls as clocks;
use crate::{glibc, machine, random, sys, thread, time, turn};
use libc::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_void, gid_t, itimerval, mmsghdr, mode_t,
    msghdr, pid_t, rusage, siginfo_t, sigset_t, sockaddr, socklen_t, stack_t, timeval, uid_t,
};
use skein_libos::abi::{epoll_event, iovec, itimerspec, pollfd, sembuf, timespec};
use skein_libos::errno::{RESTART, Result, fail};
use skein_libos::time::{NS_PER_S, Timeout};
use skein_sched::op::{Kind, Object};

type Path = *const c_char;

/// The error of a call on a descriptor that is no socket.
fn on_socket(fd: c_int, answer: Answer) -> Result<usize> {
    call::only_virtual(answer, fd, libc::ENOTSOCK)
}

/// A `timespec` timeout of the server; none when null.
unsafe fn within(at: *const timespec) -> Result<Timeout> {
    // SAFETY: null or the server's own.
    Timeout::from_timespec(unsafe { at.as_ref() })
}

/// A number from the server's memory.
fn number_of(result: Result<i32>) -> Result<usize> {
    result.map(|n| n as usize)
}

/// Success without a value.
fn done(result: Result<()>) -> Result<usize> {
    result.map(|()| 0)
}

unsafe fn waitv(a: [usize; 6]) -> Result<usize> {
    loop {
        let turn = turn::enter(Object::Several, Kind::Wait);
        match skein_libos::sync::waitv::waitv(&*turn, a) {
            Err(RESTART) => turn.end(),
            done => return done,
        }
    }
}

calls! {
    // Descriptors and pipes.
    SYS_read(fd: c_int, to: *mut c_void, len: usize)
        if virtual { transfer::read(fd, to, len) } else Read |k, call| { inputs::after_read(k, fd, call.make()) };
    SYS_write(fd: c_int, from: *const c_void, len: usize)
        if virtual { transfer::write(fd, from, len) } else Write |k, call| { change::after_write(k, fd, None, call.make()) };
    SYS_readv(fd: c_int, parts: *const iovec, count: c_int)
        if virtual { transfer::readv(fd, parts, count) } else Read |k, call| { inputs::after_read(k, fd, call.make()) };
    SYS_writev(fd: c_int, parts: *const iovec, count: c_int)
        if virtual { transfer::writev(fd, parts, count) } else Write |k, call| { change::after_write(k, fd, None, call.make()) };
    SYS_pread64(fd: c_int, to: *mut c_void, len: usize, at: i64)
        if virtual { transfer::positioned(fd) } else Read |k, call| { inputs::after_read(k, fd, call.make()) };
    SYS_pwrite64(fd: c_int, from: *const c_void, len: usize, at: i64)
        if virtual { transfer::positioned(fd) } else Write |k, call| { change::after_write(k, fd, Some(at), call.make()) };
    // A position comes in two halves; the kernel ignores the upper one.
    SYS_preadv(fd: c_int, parts: *const iovec, count: c_int, at: i64)
        if virtual { transfer::positioned(fd) } else Read |k, call| { inputs::after_read(k, fd, call.make()) };
    SYS_pwritev(fd: c_int, parts: *const iovec, count: c_int, at: i64)
        if virtual { transfer::positioned(fd) } else Write |k, call| { change::after_write(k, fd, Some(at), call.make()) };
    SYS_preadv2(fd: c_int, parts: *const iovec, count: c_int, at: i64, high: usize, flags: c_int)
        if virtual { transfer::preadv2(fd, parts, count, at, flags) } else Read |k, call| { inputs::after_read(k, fd, call.make()) };
    SYS_pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: i64, high: usize, flags: c_int)
        if virtual { transfer::pwritev2(fd, parts, count, at, flags) } else Write |k, call| { change::after_pwritev2(k, fd, at, flags, call.make()) };
    SYS_splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: u32)
        if virtual { transfer::splice(from, from_at, to, to_at, len, flags) };
    SYS_tee(from: c_int, to: c_int, len: usize, flags: u32) if virtual { transfer::tee(from, to, len, flags) };
    SYS_vmsplice(fd: c_int, parts: *const iovec, count: usize, flags: u32)
        if virtual { transfer::vmsplice(fd, parts, count, flags) };
    SYS_sendfile(out: c_int, from: c_int, at: *mut i64, count: usize)
        if virtual { transfer::sendfile(out, from, at, count) } else Move |k, call| { change::after_write(k, out, None, call.make()) };
    SYS_copy_file_range(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: u32)
        else Move |k, call| {
            let result = call.make();
            // SAFETY: the kernel has read and written the position.
            let at = unsafe { change::moved(to_at, &result) };
            change::after_write(k, to, at, result)
        };
    SYS_close(fd: c_int) if virtual { close::close(fd) };
    SYS_close_range(first: u32, last: u32, flags: u32) if virtual { Some(descriptor::close_range(first, last, flags)) };
    SYS_dup(fd: c_int) if virtual { descriptor::dup(fd) };
    SYS_dup2(old: c_int, new: c_int) if virtual { close::dup3(old, new, None) };
    SYS_dup3(old: c_int, new: c_int, flags: c_int) if virtual { close::dup3(old, new, Some(flags)) };
    SYS_fcntl(fd: c_int, command: c_int, arg: usize)
        if virtual { descriptor::fcntl(fd, command, arg) }
        else |call| {
            let call = sys::Call { args: sys::args([fd as usize, command as usize, disk::argument(command, arg)]), ..call };
            lock::fcntl(fd, command, arg)
                .or_else(|| disk::fcntl(command, arg))
                .or_else(|| console::fcntl(fd, command, arg))
                .unwrap_or_else(|| call.make())
        };
    SYS_ioctl(fd: c_int, request: usize, arg: usize)
        if virtual { descriptor::ioctl(fd, request, arg) }
        else |call| { disk::ioctl(request).or_else(|| console::ioctl(fd, request, arg)).unwrap_or_else(|| call.make()) };
    SYS_lseek(fd: c_int, at: i64, from: c_int)
        if virtual { descriptor::lseek(fd, from) } else Set |k, call| {
            disk::seek(k, fd, at, from).or_else(|| list::lseek(k, fd, at, from)).unwrap_or_else(|| call.make())
        };
    SYS_fsync(fd: c_int) if virtual { descriptor::sync(fd) };
    SYS_fdatasync(fd: c_int) if virtual { descriptor::sync(fd) };
    SYS_pipe(out: *mut c_int) => { ready::pipe(0).map(|ends| put_pair(out, ends)) };
    SYS_pipe2(out: *mut c_int, flags: c_int) => { ready::pipe(flags).map(|ends| put_pair(out, ends)) };
    SYS_eventfd(count: u32) => { ready::eventfd(count, 0) };
    SYS_eventfd2(count: u32, flags: c_int) => { ready::eventfd(count, flags) };
    SYS_signalfd(fd: c_int, set: *const u64, len: usize) => { ready::signalfd(fd, set, 0) };
    SYS_signalfd4(fd: c_int, set: *const u64, len: usize, flags: c_int) => { ready::signalfd(fd, set, flags) };

    // Sockets.
    SYS_socket(family: c_int, kind: c_int, protocol: c_int) => { socket::create(family, kind, protocol) };
    SYS_socketpair(family: c_int, kind: c_int, protocol: c_int, out: *mut c_int) => {
        socket::pair(family, kind, protocol).map(|ends| put_pair(out, ends))
    };
    SYS_bind(fd: c_int, addr: *const sockaddr, len: socklen_t) => { on_socket(fd, socket::bind(fd, addr, len)) };
    SYS_listen(fd: c_int, backlog: c_int) => { on_socket(fd, socket::listen(fd, backlog)) };
    SYS_accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) => {
        on_socket(fd, socket::accept(fd, addr, len, 0))
    };
    SYS_accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) => {
        on_socket(fd, socket::accept(fd, addr, len, flags))
    };
    SYS_connect(fd: c_int, addr: *const sockaddr, len: socklen_t) => {
        on_socket(fd, socket::connect(fd, addr, len))
    };
    SYS_shutdown(fd: c_int, how: c_int) => { on_socket(fd, socket::shutdown(fd, how)) };
    SYS_getsockname(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) => {
        on_socket(fd, socket::local_name(fd, out, len))
    };
    SYS_getpeername(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) => {
        on_socket(fd, socket::remote_name(fd, out, len))
    };
    SYS_setsockopt(fd: c_int, level: c_int, name: c_int, value: *const u8, len: socklen_t) => {
        on_socket(fd, socket::set(fd, level, name, value, len))
    };
    SYS_getsockopt(fd: c_int, level: c_int, name: c_int, out: *mut u8, len: *mut socklen_t) => {
        on_socket(fd, socket::get(fd, level, name, out, len))
    };
    SYS_recvfrom(fd: c_int, to: *mut c_void, len: usize, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) => {
        on_socket(fd, msg::recvfrom(fd, to, len, flags, addr, addr_len))
    };
    SYS_sendto(fd: c_int, from: *const c_void, len: usize, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) => {
        on_socket(fd, msg::sendto(fd, from, len, flags, addr, addr_len))
    };
    SYS_recvmsg(fd: c_int, to: *mut msghdr, flags: c_int) => { on_socket(fd, msg::recvmsg(fd, to, flags)) };
    SYS_sendmsg(fd: c_int, from: *const msghdr, flags: c_int) => { on_socket(fd, msg::sendmsg(fd, from, flags)) };
    SYS_recvmmsg(fd: c_int, to: *mut mmsghdr, count: u32, flags: c_int, timeout: *const timespec) => {
        let timeout = within(timeout)?;
        on_socket(fd, msg::recvmmsg(fd, to, count, flags, timeout))
    };
    SYS_sendmmsg(fd: c_int, from: *mut mmsghdr, count: u32, flags: c_int) => {
        on_socket(fd, msg::sendmmsg(fd, from, count, flags))
    };

    // Waiting for descriptors.
    SYS_epoll_create(size: c_int) => { if size > 0 { ready::epoll_create(0) } else { fail(libc::EINVAL) } };
    SYS_epoll_create1(flags: c_int) => { ready::epoll_create(flags) };
    SYS_epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) => { ready::epoll_ctl(epfd, op, fd, event) };
    SYS_epoll_wait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int) => {
        ready::epoll_wait(epfd, out, most, Timeout::from_ms(ms))
    };
    SYS_epoll_pwait(epfd: c_int, out: *mut epoll_event, most: c_int, ms: c_int, mask: *const sigset_t) => {
        signal_wait::masked(mask, || ready::epoll_wait(epfd, out, most, Timeout::from_ms(ms)))
    };
    SYS_epoll_pwait2(epfd: c_int, out: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) => {
        let timeout = within(timeout)?;
        signal_wait::masked(mask, || ready::epoll_wait(epfd, out, most, timeout))
    };
    SYS_poll(fds: *mut pollfd, count: usize, ms: c_int) => { ready::poll(fds, count, Timeout::from_ms(ms)) };
    SYS_ppoll(fds: *mut pollfd, count: usize, timeout: *const timespec, mask: *const sigset_t) => {
        let timeout = within(timeout)?;
        signal_wait::masked(mask, || ready::poll(fds, count, timeout))
    };
    SYS_select(count: c_int, read: *mut u64, write: *mut u64, except: *mut u64, timeout: *mut timeval) => {
        ready::select_timeval(count, [read, write, except], timeout)
    };
    // The last argument points to the mask and its size.
    SYS_pselect6(count: c_int, read: *mut u64, write: *mut u64, except: *mut u64, timeout: *const timespec, mask: *const *const sigset_t) => {
        let (timeout, mask) = (within(timeout)?, mask.as_ref().copied().unwrap_or(core::ptr::null()));
        signal_wait::masked(mask, || ready::select(count, [read, write, except], timeout).0)
    };

    // Time.
    SYS_clock_gettime(clock: c_int, out: *mut timespec) => { clocks::clock_gettime(clock, out) };
    SYS_clock_getres(clock: c_int, out: *mut timespec) => { machine::resolution(clock, out) };
    SYS_gettimeofday(out: *mut timeval) => { clocks::gettimeofday(out) };
    SYS_time(out: *mut i64) => {
        let seconds = time::clock_ns(libc::CLOCK_REALTIME)? / NS_PER_S;
        if let Some(out) = out.as_mut() {
            *out = seconds as i64;
        }
        Ok(seconds as usize)
    };
    SYS_times(out: *mut libc::tms) => { Ok(clocks::times(out) as usize) };
    SYS_getrusage(who: c_int, out: *mut rusage) => { clocks::getrusage(who, out) };
    SYS_nanosleep(request: *const timespec, left: *mut timespec) => {
        clocks::nanosleep(libc::CLOCK_MONOTONIC, 0, request, left)
    };
    SYS_clock_nanosleep(clock: c_int, flags: c_int, request: *const timespec, left: *mut timespec) => {
        clocks::nanosleep(clock, flags, request, left)
    };
    SYS_alarm(seconds: u32) => { Ok(timer::alarm(seconds) as usize) };
    SYS_setitimer(which: c_int, new: *const itimerval, old: *mut itimerval) => { signals::set_interval(which, new, old) };
    SYS_getitimer(which: c_int, out: *mut itimerval) => { timer::interval_at(which, core::ptr::null(), out) };
    // The kernel's id of a timer is an `int`.
    SYS_timer_create(clock: c_int, event: *const timer::Event, out: *mut c_int) => {
        timer::create(clock, event, false).map(|id| {
            out.write(id as c_int);
            0
        })
    };
    SYS_timer_settime(id: usize, flags: c_int, new: *const itimerspec, old: *mut itimerspec) => {
        signals::set_timer(id, flags, new, old)
    };
    SYS_timer_gettime(id: usize, out: *mut itimerspec) => { signals::get_timer(id, out) };
    SYS_timer_getoverrun(id: usize) => { timer::overrun(id) };
    SYS_timer_delete(id: usize) => { timer::delete(id) };
    SYS_timerfd_create(clock: c_int, flags: c_int) => { ready::timerfd(clock, flags) };
    SYS_timerfd_settime(fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec) => {
        ready::timerfd_settime(fd, flags, new, old)
    };
    SYS_timerfd_gettime(fd: c_int, out: *mut itimerspec) => { ready::timerfd_gettime(fd, out) };

    // Randomness.
    SYS_getrandom(to: *mut u8, len: usize, flags: u32) => {
        if !random::flags_known(flags) {
            return fail(libc::EINVAL);
        }
        random::draw(if len == 0 { &mut [] } else { core::slice::from_raw_parts_mut(to, len) });
        Ok(len)
    };

    // Files: opening and looking.
    SYS_open(path: Path, flags: c_int, mode: u32) if virtual { Some({ let k = on_files(Kind::Open); open::open(&k, AT_FDCWD, path, flags, mode) }) };
    SYS_openat(at: c_int, path: Path, flags: c_int, mode: u32) if virtual { Some({ let k = on_files(Kind::Open); open::open(&k, at, path, flags, mode) }) };
    SYS_openat2(at: c_int, path: Path, how: *const open::How, len: usize) else Open |k, _call| { open::openat2(k, at, path, how, len) };
    SYS_creat(path: Path, mode: u32) if virtual { Some({ let k = on_files(Kind::Open); open::creat(&k, path, mode) }) };
    SYS_stat(path: Path, out: *mut libc::stat) if virtual { Some({ let k = on_files(Kind::Ask); stat::fstatat(&k, AT_FDCWD, path, out, 0) }) };
    SYS_lstat(path: Path, out: *mut libc::stat)
        if virtual { Some({ let k = on_files(Kind::Ask); stat::fstatat(&k, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW) }) };
    SYS_fstat(fd: c_int, out: *mut libc::stat) if virtual { Some({ let k = on_files(Kind::Ask); stat::fstat(&k, fd, out) }) };
    SYS_newfstatat(at: c_int, path: Path, out: *mut libc::stat, flags: c_int)
        if virtual { Some({ let k = on_files(Kind::Ask); stat::fstatat(&k, at, path, out, flags) }) };
    SYS_statx(at: c_int, path: Path, flags: c_int, mask: u32, out: *mut libc::statx)
        if virtual { Some({ let k = on_files(Kind::Ask); stat::statx(&k, at, path, flags, mask, out) }) };
    SYS_statfs(path: Path, out: *mut libc::statfs) if virtual { Some({ let k = on_files(Kind::Ask); stat::statfs(&k, number::SYS_statfs, path as usize, out) }) };
    SYS_fstatfs(fd: c_int, out: *mut libc::statfs) if virtual { Some({ let k = on_files(Kind::Ask); stat::statfs(&k, number::SYS_fstatfs, fd as usize, out) }) };
    SYS_readlink(path: Path, out: *mut u8, len: usize) else Ask |k, _call| { stat::readlinkat(k, AT_FDCWD, path, out, len) };
    SYS_readlinkat(at: c_int, path: Path, out: *mut u8, len: usize) else Ask |k, _call| { stat::readlinkat(k, at, path, out, len) };
    SYS_getdents64(fd: c_int, out: *mut u8, len: usize) else Read |k, _call| { list::getdents64(k, fd, out, len) };
    SYS_flock(fd: c_int, operation: c_int) else |_call| { lock::flock(fd, operation) };
    SYS_access(path: Path, mode: c_int) else Ask |k, call| {
        inputs::glance(k, AT_FDCWD, path, 0);
        call.make()
    };
    SYS_faccessat(at: c_int, path: Path, mode: c_int) else Ask |k, call| {
        inputs::glance(k, at, path, 0);
        call.make()
    };
    SYS_faccessat2(at: c_int, path: Path, mode: c_int, flags: c_int) else Ask |k, call| {
        inputs::glance(k, at, path, flags);
        call.make()
    };
    SYS_chdir(path: Path) else Set |k, call| {
        inputs::glance(k, AT_FDCWD, path, 0);
        call.make()
    };
    SYS_chroot(path: Path) else Set |k, _call| { root::change(k, path) };
    SYS_inotify_init() => { ready::inotify(0) };
    SYS_inotify_init1(flags: c_int) => { ready::inotify(flags) };
    SYS_inotify_add_watch(fd: c_int, path: Path, events: u32) => { ready::inotify_add_watch(fd, events) };
    SYS_inotify_rm_watch(fd: c_int, watch: c_int) => { ready::inotify_rm_watch(fd) };

    // Files: changing them.
    SYS_mkdir(path: Path, mode: mode_t) else Create |k, call| { change::creation(k, call, AT_FDCWD, path) };
    SYS_mkdirat(at: c_int, path: Path, mode: mode_t) else Create |k, call| { change::creation(k, call, at, path) };
    SYS_symlink(to: Path, path: Path) else Create |k, call| { change::creation(k, call, AT_FDCWD, path) };
    SYS_symlinkat(to: Path, at: c_int, path: Path) else Create |k, call| { change::creation(k, call, at, path) };
    SYS_mknod(path: Path, mode: u32, dev: u64) else Create |k, _call| { change::mknodat(k, AT_FDCWD, path, mode, dev) };
    SYS_mknodat(at: c_int, path: Path, mode: u32, dev: u64) else Create |k, _call| { change::mknodat(k, at, path, mode, dev) };
    SYS_rmdir(path: Path) else Destroy |k, call| { change::entries(k, call, &[(AT_FDCWD, path)]) };
    SYS_unlink(path: Path) else Destroy |k, call| { change::entries(k, call, &[(AT_FDCWD, path)]) };
    SYS_unlinkat(at: c_int, path: Path, flags: c_int) else Destroy |k, call| { change::entries(k, call, &[(at, path)]) };
    SYS_link(from: Path, to: Path) else Create |k, call| {
        inputs::before_move(k, AT_FDCWD, from);
        change::entries(k, call, &[(AT_FDCWD, to)])
    };
    SYS_linkat(from_at: c_int, from: Path, at: c_int, to: Path, flags: c_int) else Create |k, call| {
        inputs::before_move(k, from_at, from);
        change::link(k, call, at, to)
    };
    SYS_rename(from: Path, to: Path) else Move |k, call| {
        inputs::before_move(k, AT_FDCWD, from);
        change::entries(k, call, &[(AT_FDCWD, from), (AT_FDCWD, to)])
    };
    SYS_renameat(from_at: c_int, from: Path, at: c_int, to: Path) else Move |k, call| {
        inputs::before_move(k, from_at, from);
        change::entries(k, call, &[(from_at, from), (at, to)])
    };
    SYS_renameat2(from_at: c_int, from: Path, at: c_int, to: Path, flags: u32) else Move |k, call| {
        inputs::before_move(k, from_at, from);
        if flags & libc::RENAME_EXCHANGE != 0 {
            inputs::before_move(k, at, to);
        }
        change::entries(k, call, &[(from_at, from), (at, to)])
    };
    SYS_truncate(path: Path, len: i64) else Set |k, _call| { change::truncate(k, path, len) };
    SYS_ftruncate(fd: c_int, len: i64)
        if virtual { descriptor::sync(fd) }
        else Set |k, call| {
            if console::of(k, fd).is_some() { fail(libc::EINVAL) } else { change::after_change(k, fd, len, call.make()) }
        };
    SYS_fallocate(fd: c_int, mode: c_int, at: i64, len: i64)
        if virtual { descriptor::sync(fd) }
        else Set |k, call| {
            if disk::allocates(mode) { change::after_change(k, fd, at, call.make()) } else { fail(libc::EOPNOTSUPP) }
        };
    SYS_utimensat(at: c_int, path: Path, times: *const [timespec; 2], flags: c_int)
        else Set |k, _call| { change::utimensat(k, at, path, times, flags) };
    SYS_futimesat(at: c_int, path: Path, times: *const [timeval; 2]) else Set |k, _call| { change::utimes(k, at, path, times) };
    SYS_utimes(path: Path, times: *const [timeval; 2]) else Set |k, _call| { change::utimes(k, AT_FDCWD, path, times) };
    SYS_utime(path: Path, times: *const libc::utimbuf) else Set |k, _call| { change::utime(k, path, times) };
    SYS_chmod(path: Path, mode: mode_t) else Set |k, call| { change::permissions(k, call, AT_FDCWD, path, 0) };
    SYS_fchmodat(at: c_int, path: Path, mode: mode_t) else Set |k, call| { change::permissions(k, call, at, path, 0) };
    SYS_fchmodat2(at: c_int, path: Path, mode: mode_t, flags: c_int) else Set |k, call| { change::permissions(k, call, at, path, flags) };
    SYS_chown(path: Path, user: uid_t, group: gid_t) else Set |k, call| { change::permissions(k, call, AT_FDCWD, path, 0) };
    SYS_lchown(path: Path, user: uid_t, group: gid_t)
        else Set |k, call| { change::permissions(k, call, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW) };
    SYS_fchownat(at: c_int, path: Path, user: uid_t, group: gid_t, flags: c_int)
        else Set |k, call| { change::permissions(k, call, at, path, flags) };
    SYS_fchmod(fd: c_int, mode: mode_t)
        if virtual { descriptor::change_mode(fd, Some(mode)) }
        else Set |k, call| { change::permissions(k, call, fd, core::ptr::null(), 0) };
    SYS_fchown(fd: c_int, user: uid_t, group: gid_t)
        if virtual { descriptor::change_mode(fd, None) }
        else Set |k, call| { change::permissions(k, call, fd, core::ptr::null(), 0) };

    // Memory.
    SYS_msync(at: usize, len: usize, flags: c_int) else |call| {
        let args = sys::args([at, len, disk::unsynced(flags) as usize]);
        sys::Call { args, ..call }.make()
    };
    SYS_membarrier(command: c_int, flags: u32) => { machine::barrier(command, flags) };
    SYS_mincore(at: usize, len: usize, out: *mut u8) else |call| { machine::resident(call, len, out) };

    // Threads.
    SYS_futex(word: usize, op: usize, value: usize, timeout: usize, other: usize, bits: usize) => {
        let turn = turn::enter(Object::Memory(word), Kind::Wait);
        skein_libos::sync::futex::futex(&*turn, [word, op, value, timeout, other, bits])
    };
    SYS_futex_waitv(waiters: usize, count: usize, flags: usize, timeout: usize, clock: usize) => {
        waitv([waiters, count, flags, timeout, clock, 0])
    };
    SYS_sched_yield() => {
        let _turn = turn::enter(Object::Machine, Kind::Yield);
        turn::yield_now();
        Ok(0)
    };
    SYS_gettid() => { Ok(kernel().this().tid.get() as usize) };
    SYS_set_tid_address(at: usize) => { machine::clear_at_end(at) };
    SYS_getcpu(cpu: *mut u32, node: *mut u32) => {
        for word in [cpu, node] {
            if let Some(word) = word.as_mut() {
                *word = 0;
            }
        }
        Ok(0)
    };
    SYS_sched_getaffinity(pid: pid_t, len: usize, out: *mut u8) => { machine::affinity(len, out) };
    SYS_sched_setscheduler(pid: pid_t, policy: c_int, priority: *const c_int) => { machine::schedule(policy, priority) };
    SYS_sched_setparam(pid: pid_t, priority: *const c_int) => { machine::schedule(libc::SCHED_OTHER, priority) };
    SYS_sched_getparam(pid: pid_t, out: *mut c_int) => { machine::priority(out) };
    SYS_sched_rr_get_interval(pid: pid_t, out: *mut timespec) => { machine::slice(out) };
    SYS_sched_setattr(pid: pid_t, attributes: *const [c_int; 6]) => { machine::set_attributes(attributes) };
    SYS_sched_getattr(pid: pid_t, out: *mut u32, len: usize) => { machine::attributes(out, len) };
    SYS_getpriority(which: c_int, who: c_int) => { machine::nice() };
    SYS_setpriority(which: c_int, who: c_int, nice: c_int) => { machine::prioritise(which, who, nice) };
    // Without effect: libc's robust mutexes are the runtime's. The net answers it, too.
    SYS_set_robust_list(head: usize, len: usize) => { if len == machine::ROBUST_BYTES { Ok(0) } else { fail(libc::EINVAL) } };
    SYS_arch_prctl(option: usize, arg: usize) if virtual { machine::segment(option) };
    SYS_exit(status: c_int) => { thread::exit_by_call(status, glibc::is_in_text(kernel().this().trapped_at.get())) };

    // Processes.
    SYS_exit_group(status: c_int) => { end::exit(status) };
    SYS_fork() => { number_of(fork::fork()) };
    // By `syscall()`, around the net's handler: a copy that continues like its parent is a fork. Other kinds cannot return twice on one stack.
    SYS_clone(flags: usize, stack: usize, parent_tid: usize, child_tid: usize, tls: usize) => {
        let args = [flags, stack, parent_tid, child_tid, tls, 0];
        if fork::is_plain(args) { fork::clone(args, |_| {}) } else { super::refuse_call(number::SYS_clone, libc::ENOSYS) }
    };
    SYS_execve(path: Path, argv: *const *const c_char, env: *const *const c_char) => {
        exec::execute(AT_FDCWD, path, argv, env, 0)
    };
    SYS_execveat(at: c_int, path: Path, argv: *const *const c_char, env: *const *const c_char, flags: c_int) => {
        exec::execute(at, path, argv, env, flags)
    };
    SYS_wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) => {
        number_of(wait::wait4(pid, status, options, usage))
    };
    SYS_waitid(kind: c_int, id: u32, info: *mut siginfo_t, options: c_int) => { done(wait::waitid(kind, id, info, options)) };
    SYS_pidfd_open(pid: pid_t, flags: u32) => { pidfd::open(pid, flags) };
    SYS_pidfd_send_signal(fd: c_int, signo: c_int, info: *const siginfo_t, flags: u32) => {
        pidfd::send(fd, signo, info, flags)
    };
    SYS_getppid() => { Ok(group::parent() as usize) };
    SYS_getpgid(pid: pid_t) => { number_of(group::group_of(pid)) };
    SYS_getpgrp() => { number_of(group::group_of(0)) };
    SYS_getsid(pid: pid_t) => { number_of(group::session_of(pid)) };
    SYS_setsid() => { number_of(group::new_session()) };
    SYS_setpgid(pid: pid_t, to: pid_t) => { done(group::set_group(pid, to)) };
    SYS_prctl(option: c_int, arg: usize, third: usize, fourth: usize, fifth: usize) if virtual { machine::control(option, [arg, third, fourth, fifth]) };

    // Signals.
    SYS_rt_sigaction(signo: c_int, new: *const Action, old: *mut Action) => {
        signal::set_action(signo, new.as_ref().copied()).map(|before| {
            if let Some(old) = old.as_mut() {
                *old = before;
            }
            0
        })
    };
    SYS_rt_sigprocmask(how: c_int, set: *const u64, old: *mut u64) => { done(signal_wait::change_mask_at(how, set, old)) };
    SYS_rt_sigpending(out: *mut u64) => {
        out.write(signal::pending());
        Ok(0)
    };
    SYS_rt_sigsuspend(mask: *const u64) => { signal_wait::suspend(mask.read()) };
    SYS_rt_sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, timeout: *const timespec) => {
        number_of(signals::wait_into(set, info, timeout))
    };
    SYS_rt_sigqueueinfo(pid: pid_t, signo: c_int, info: *const siginfo_t) => {
        done(signal::send_to_process(pid, Info { signo, ..signal::read_info(info) }))
    };
    SYS_rt_tgsigqueueinfo(pid: pid_t, tid: pid_t, signo: c_int, info: *const siginfo_t) => {
        done(signal::send_to_thread(Some(pid), tid, Info { signo, ..signal::read_info(info) }))
    };
    SYS_kill(pid: pid_t, signo: c_int) => { done(signal::send_to_process(pid, signal::sent(signo, libc::SI_USER))) };
    SYS_tkill(tid: pid_t, signo: c_int) => { done(signal::send_to_thread(None, tid, signal::sent(signo, libc::SI_TKILL))) };
    SYS_tgkill(pid: pid_t, tid: pid_t, signo: c_int) => {
        done(signal::send_to_thread(Some(pid), tid, signal::sent(signo, libc::SI_TKILL)))
    };
    SYS_sigaltstack(new: *const stack_t, old: *mut stack_t) => { signals::alternate_into(new, old) };
    SYS_pause() => { signal_wait::pause() };

    // Identity.
    SYS_uname(out: *mut libc::utsname) else |call| { machine::uname(call, out) };
    SYS_personality(wanted: u32) if virtual { machine::personality(wanted) };
    SYS_getrlimit(resource: usize, old: usize) if virtual { machine::limit(0, resource, 0, old) };
    SYS_setrlimit(resource: usize, new: usize) if virtual { machine::limit(0, resource, new, 0) };
    SYS_prlimit64(pid: usize, resource: usize, new: usize, old: usize) if virtual { machine::limit(pid, resource, new, old) };
    SYS_sysinfo(out: *mut libc::sysinfo) => { machine::sysinfo(out) };

    // Messages and shared memory.
    SYS_semget(key: c_int, count: c_int, flags: c_int) => { ipc::semget(key, count, flags) };
    SYS_semop(id: c_int, operations: *const sembuf, count: usize) => {
        ipc::semop(id, operations, count, core::ptr::null())
    };
    SYS_semtimedop(id: c_int, operations: *const sembuf, count: usize, limit: *const timespec) => {
        ipc::semop(id, operations, count, limit)
    };
    SYS_semctl(id: c_int, number: c_int, command: c_int, arg: usize) => { ipc::semctl(id, number, command, arg) };
    SYS_msgget(key: c_int, flags: c_int) => { ipc::msgget(key, flags) };
    SYS_msgsnd(id: c_int, from: *const i64, len: usize, flags: c_int) => { ipc::msgsnd(id, from, len, flags) };
    SYS_msgrcv(id: c_int, to: *mut i64, len: usize, wanted: i64, flags: c_int) => {
        ipc::msgrcv(id, to, len, wanted, flags)
    };
    SYS_msgctl(id: c_int, command: c_int, arg: usize) => { ipc::msgctl(id, command, arg) };
    SYS_shmget(key: c_int, bytes: usize, flags: c_int) => { ipc::segment::get(key, bytes, flags) };
    SYS_shmat(id: c_int, at: usize, flags: c_int) => { ipc::segment::attach(id, at, flags) };
    SYS_shmdt(at: usize) => { ipc::segment::detach(at) };
    SYS_shmctl(id: c_int, command: c_int, arg: usize) => { ipc::segment::control(id, command, arg) };
    SYS_mq_open(name: Path, flags: c_int, mode: u32, attributes: *const ipc::Attributes) => {
        ipc::mq_open(name, flags, mode, attributes)
    };
    SYS_mq_unlink(name: Path) => { ipc::mq_unlink(name) };
    SYS_mq_timedsend(fd: c_int, from: *const u8, len: usize, priority: u32, limit: *const timespec) => {
        ipc::mq_send(fd, from, len, priority, limit)
    };
    SYS_mq_timedreceive(fd: c_int, to: *mut u8, len: usize, priority: *mut u32, limit: *const timespec) => {
        ipc::mq_receive(fd, to, len, priority, limit)
    };
    SYS_mq_getsetattr(fd: c_int, new: *const ipc::Attributes, old: *mut ipc::Attributes) => { ipc::mq_attributes(fd, new, old) };
}
