//! Hooks: signals, and the timers that send them.

use super::{IntoC, hook, pthread_result, set_errno, syscalls};
use crate::kernel::kernel;
use crate::signal::{self, LAST, bit, calls, change_mask, timer, wait};
use libc::{
    c_int, c_uint, itimerval, pid_t, pthread_t, sighandler_t, siginfo_t, sigset_t, stack_t,
};
use skein_libos::abi::itimerspec;
use skein_libos::abi::timespec;
use skein_libos::errno::{Errno, Result};

/// Bytes of the kernel's set of signals.
const KERNEL_SET_BYTES: usize = 8;

fn or_error(handler: Result<usize>) -> usize {
    handler.unwrap_or_else(|e| {
        set_errno(e);
        libc::SIG_ERR
    })
}

syscalls! {
    SYS_signalfd4: fn signalfd(fd: c_int, set: *const sigset_t, flags: c_int) -> c_int = (fd, set, KERNEL_SET_BYTES, flags);
    SYS_pause: fn pause() -> c_int;
    SYS_sigaltstack: fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int;
    SYS_kill: fn kill(pid: pid_t, signo: c_int) -> c_int;
    SYS_tgkill: fn tgkill(pid: pid_t, tid: pid_t, signo: c_int) -> c_int;
    SYS_alarm: fn alarm(seconds: c_uint) -> c_uint;
    SYS_setitimer: fn setitimer(which: c_int, new: *const itimerval, old: *mut itimerval) -> c_int;
    SYS_getitimer: fn getitimer(which: c_int, out: *mut itimerval) -> c_int;
    SYS_timer_settime: fn timer_settime(id: usize, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> c_int;
    SYS_timer_gettime: fn timer_gettime(id: usize, out: *mut itimerspec) -> c_int;
    SYS_timer_getoverrun: fn timer_getoverrun(id: usize) -> c_int;
    SYS_timer_delete: fn timer_delete(id: usize) -> c_int;
}

hook! {
    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: the server's own pointers.
        pthread_result(unsafe { calls::mask_into(how, set, old) })
    }

    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: the server's own pointers.
        unsafe { calls::mask_into(how, set, old) }.into_c()
    }

    fn sigaction(signo: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        // SAFETY: the server's own pointers.
        unsafe { calls::action_into(signo, action, old) }.into_c()
    }

    fn signal(signo: c_int, handler: sighandler_t) -> sighandler_t { or_error(calls::bsd_handler(signo, handler)) }
    fn bsd_signal(signo: c_int, handler: sighandler_t) -> sighandler_t { or_error(calls::bsd_handler(signo, handler)) }
    fn ssignal(signo: c_int, handler: sighandler_t) -> sighandler_t { or_error(calls::bsd_handler(signo, handler)) }
    fn sysv_signal(signo: c_int, handler: sighandler_t) -> sighandler_t { or_error(calls::sysv_handler(signo, handler)) }
    fn __sysv_signal(signo: c_int, handler: sighandler_t) -> sighandler_t { or_error(calls::sysv_handler(signo, handler)) }
    fn sigset(signo: c_int, handler: sighandler_t) -> sighandler_t { or_error(calls::set_disposition(signo, handler)) }
    fn sighold(signo: c_int) -> c_int { calls::one(libc::SIG_BLOCK, signo).into_c() }
    fn sigrelse(signo: c_int) -> c_int { calls::one(libc::SIG_UNBLOCK, signo).into_c() }
    fn sigignore(signo: c_int) -> c_int { calls::ignore(signo).into_c() }

    fn siginterrupt(signo: c_int, interrupts: c_int) -> c_int {
        signal::set_interrupting(signo, interrupts != 0).into_c()
    }

    fn sigblock(mask: c_int) -> c_int {
        change_mask(libc::SIG_BLOCK, Some(mask as u32 as u64)).map(|old| old as i32).into_c()
    }

    fn sigsetmask(mask: c_int) -> c_int {
        change_mask(libc::SIG_SETMASK, Some(mask as u32 as u64)).map(|old| old as i32).into_c()
    }

    fn siggetmask() -> c_int {
        change_mask(libc::SIG_BLOCK, None).map(|old| old as i32).into_c()
    }

    fn sigpending(out: *mut sigset_t) -> c_int {
        let set = signal::pending();
        // SAFETY: the server's own pointer.
        unsafe { calls::write_set(out, set) };
        0
    }

    fn sigsuspend(mask: *const sigset_t) -> c_int {
        // SAFETY: the server's own pointer.
        wait::suspend(unsafe { calls::read_set(mask) }.unwrap_or(0)).into_c()
    }

    fn sigpause(mask: c_int) -> c_int {
        wait::suspend(mask as u32 as u64).into_c()
    }

    fn __xpg_sigpause(signo: c_int) -> c_int {
        let mask = kernel().this().signals.mask.get();
        let open = if (1..=LAST).contains(&signo) { bit(signo) } else { 0 };
        wait::suspend(mask & !open).into_c()
    }

    fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
        // SAFETY: the server's own pointers.
        unsafe { calls::libc_wait_into(set, info, core::ptr::null()) }.into_c()
    }

    fn sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, timeout: *const timespec) -> c_int {
        // SAFETY: the server's own pointers.
        unsafe { calls::libc_wait_into(set, info, timeout) }.into_c()
    }

    fn sigwait(set: *const sigset_t, out: *mut c_int) -> c_int {
        loop {
            // SAFETY: the server's own pointers.
            match unsafe { calls::wait_into(set, core::ptr::null_mut(), core::ptr::null()) } {
                Ok(signo) => {
                    // SAFETY: as above.
                    unsafe { out.write(signo) };
                    break 0;
                }
                Err(Errno(libc::EINTR)) => {}
                Err(e) => break e.0,
            }
        }
    }

    fn killpg(group: pid_t, signo: c_int) -> c_int {
        if group < 0 {
            Err::<(), _>(Errno(libc::EINVAL)).into_c()
        } else {
            signal::send_to_process(-group, signal::sent(signo, libc::SI_USER)).into_c()
        }
    }

    fn sigqueue(pid: pid_t, signo: c_int, value: usize) -> c_int {
        signal::send_to_process(pid, calls::queued(signo, value)).into_c()
    }

    fn raise(signo: c_int) -> c_int {
        let tid = kernel().this().tid.get() as pid_t;
        signal::send_to_thread(None, tid, signal::sent(signo, libc::SI_TKILL)).into_c()
    }

    fn gsignal(signo: c_int) -> c_int {
        let tid = kernel().this().tid.get() as pid_t;
        signal::send_to_thread(None, tid, signal::sent(signo, libc::SI_TKILL)).into_c()
    }

    fn pthread_kill(t: pthread_t, signo: c_int) -> c_int {
        pthread_result(calls::to_thread(t, signal::sent(signo, libc::SI_TKILL)))
    }

    fn pthread_sigqueue(t: pthread_t, signo: c_int, value: usize) -> c_int {
        pthread_result(calls::to_thread(t, calls::queued(signo, value)))
    }

    fn abort() {
        signal::abort()
    }

    fn ualarm(value: c_uint, interval: c_uint) -> c_uint {
        let ns = |us: c_uint| u64::from(us) * 1000;
        match timer::interval(libc::ITIMER_REAL, Some((ns(value), ns(interval)))) {
            Ok((left, _)) => (left / 1000) as c_uint,
            Err(e) => {
                set_errno(e);
                c_uint::MAX
            }
        }
    }

    fn timer_create(clock: c_int, event: *const timer::Event, out: *mut usize) -> c_int {
        // SAFETY: the server's own pointers.
        unsafe { calls::make_timer(clock, event, out) }.into_c()
    }

}
