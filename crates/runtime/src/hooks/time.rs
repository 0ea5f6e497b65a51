//! Hooks: clocks, sleeps, randomness.

use super::{IntoC, hook};
use crate::errno::{Errno, Result};
use crate::kernel::kernel;
use crate::signal;
use crate::time;
use crate::turn::{self, Wake};
use libc::{c_int, c_long, c_uint, c_void, size_t, ssize_t};

/// `clock_gettime`.
pub fn clock_gettime_into(clock: c_int, out: *mut libc::timespec) -> Result<usize> {
    let ns = time::clock_ns(clock)?;
    if out.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the server's own pointer, not null.
    unsafe { out.write(time::to_timespec(ns)) };
    Ok(0)
}

/// `gettimeofday`.
pub fn gettimeofday_into(out: *mut libc::timeval) -> Result<usize> {
    let ns = time::clock_ns(libc::CLOCK_REALTIME)?;
    if !out.is_null() {
        let value = libc::timeval {
            tv_sec: (ns / time::NS_PER_S) as i64,
            tv_usec: (ns % time::NS_PER_S / 1000) as i64,
        };
        // SAFETY: the server's own pointer, not null.
        unsafe { out.write(value) };
    }
    Ok(0)
}

/// `nanosleep` and `clock_nanosleep`: one that is interrupted says what was left of a time from now.
///
/// # Safety
/// `request` and `left` are null or valid.
pub unsafe fn sleep_request(
    clock: c_int,
    flags: c_int,
    request: *const libc::timespec,
    left: *mut libc::timespec,
) -> Result<usize> {
    turn::operation();
    // SAFETY: the server's own pointer.
    let request = unsafe { request.as_ref() }.ok_or(Errno(libc::EFAULT))?;
    let ns = time::to_ns(request)?;
    if clock == libc::CLOCK_THREAD_CPUTIME_ID {
        return Err(Errno(libc::EINVAL));
    }
    let deadline = if flags & libc::TIMER_ABSTIME != 0 {
        time::deadline_of(clock, ns)?
    } else {
        time::deadline_of(clock, 0)?;
        time::after(ns)
    };
    match sleep_left(deadline) {
        None => Ok(0),
        Some(ns) => {
            if !left.is_null() && flags & libc::TIMER_ABSTIME == 0 {
                // SAFETY: the caller's contract.
                unsafe { left.write(time::to_timespec(ns)) };
            }
            Err(Errno(libc::EINTR))
        }
    }
}

/// Sleeps; answers the nanoseconds that were left when a signal handler ran.
fn sleep_left(deadline_ns: u64) -> Option<u64> {
    while time::sleep_until(deadline_ns) == Wake::Interrupted {
        let left = deadline_ns.saturating_sub(kernel().now_ns.get());
        if !signal::interrupted(false) {
            return Some(left);
        }
    }
    None
}

/// CPU time so far, in nanoseconds: a microsecond an operation.
fn cpu_ns() -> u64 {
    time::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// `times`.
pub fn times_into(out: *mut libc::tms) -> c_long {
    const TICK_NS: u64 = time::NS_PER_S / 100;
    if !out.is_null() {
        let user = (cpu_ns() / TICK_NS) as c_long;
        // SAFETY: the server's own pointer, not null.
        unsafe {
            out.write(libc::tms { tms_utime: user, tms_stime: 0, tms_cutime: 0, tms_cstime: 0 })
        };
    }
    time::clock_ns(libc::CLOCK_MONOTONIC).map_or(0, |ns| (ns / TICK_NS) as c_long)
}

/// `getrusage`: processor time is operations done; all else is zero.
pub fn getrusage_into(who: c_int, out: *mut libc::rusage) -> Result<usize> {
    if ![libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN, libc::RUSAGE_THREAD].contains(&who) {
        return Err(Errno(libc::EINVAL));
    }
    let ns = if who == libc::RUSAGE_CHILDREN { 0 } else { cpu_ns() };
    // SAFETY: all-zero is a valid `rusage`; the pointer is the server's own.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        usage.ru_utime.tv_sec = (ns / time::NS_PER_S) as i64;
        usage.ru_utime.tv_usec = (ns % time::NS_PER_S / 1000) as i64;
        if out.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        out.write(usage);
    }
    Ok(0)
}

/// Bytes from the server's stream of randomness.
pub fn random_into(out: &mut [u8]) {
    turn::operation();
    crate::uses::note(crate::uses::Use::Randomness);
    kernel().random.fill(out);
}

/// Whether `getrandom` has these flags, in this combination.
pub fn random_flags_known(flags: c_uint) -> bool {
    let (random, insecure) = (libc::GRND_RANDOM, libc::GRND_INSECURE);
    flags & !(libc::GRND_NONBLOCK | random | insecure) == 0
        && flags & (random | insecure) != random | insecure
}

unsafe fn slice<'a>(buf: *mut c_void, n: usize) -> &'a mut [u8] {
    if n == 0 {
        return &mut [];
    }
    // SAFETY: the server's own buffer, by the call's contract.
    unsafe { core::slice::from_raw_parts_mut(buf.cast(), n) }
}

hook! {
    fn clock_gettime(clock: c_int, out: *mut libc::timespec) -> c_int {
        clock_gettime_into(clock, out).map(|_| ()).into_c()
    }

    fn gettimeofday(out: *mut libc::timeval, zone: *mut c_void) -> c_int {
        gettimeofday_into(out).map(|_| ()).into_c()
    }

    fn time(out: *mut libc::time_t) -> libc::time_t {
        let seconds = time::clock_ns(libc::CLOCK_REALTIME).map_or(0, |ns| (ns / time::NS_PER_S) as i64);
        if !out.is_null() {
            // SAFETY: the server's own pointer, not null.
            unsafe { out.write(seconds) };
        }
        seconds
    }

    fn timespec_get(out: *mut libc::timespec, base: c_int) -> c_int {
        const TIME_UTC: c_int = 1;
        if base == TIME_UTC && clock_gettime_into(libc::CLOCK_REALTIME, out).is_ok() { base } else { 0 }
    }

    fn clock() -> libc::clock_t {
        (cpu_ns() / 1000) as libc::clock_t
    }

    fn times(out: *mut libc::tms) -> libc::clock_t {
        times_into(out)
    }

    fn getrusage(who: c_int, out: *mut libc::rusage) -> c_int {
        getrusage_into(who, out).map(|_| ()).into_c()
    }

    fn nanosleep(request: *const libc::timespec, left: *mut libc::timespec) -> c_int {
        // SAFETY: the server's own pointers.
        unsafe { sleep_request(libc::CLOCK_MONOTONIC, 0, request, left) }.map(|_| ()).into_c()
    }

    fn clock_nanosleep(clock: c_int, flags: c_int, request: *const libc::timespec, left: *mut libc::timespec) -> c_int {
        // SAFETY: the server's own pointers.
        super::pthread_result(unsafe { sleep_request(clock, flags, request, left) }.map(|_| ()))
    }

    fn usleep(us: c_uint) -> c_int {
        turn::operation();
        match sleep_left(time::after(u64::from(us) * 1000)) {
            None => 0,
            Some(_) => Err::<(), _>(Errno(libc::EINTR)).into_c(),
        }
    }

    fn sleep(seconds: c_uint) -> c_uint {
        turn::operation();
        // As in glibc whole seconds that were left.
        let left = sleep_left(time::after(u64::from(seconds) * time::NS_PER_S));
        left.map_or(0, |ns| (ns / time::NS_PER_S) as c_uint)
    }

    fn getrandom(buf: *mut c_void, n: size_t, flags: c_uint) -> ssize_t {
        if !random_flags_known(flags) {
            super::set_errno(Errno(libc::EINVAL));
            return -1;
        }
        // SAFETY: the server's own buffer.
        random_into(unsafe { slice(buf, n) });
        n as ssize_t
    }

    fn getentropy(buf: *mut c_void, n: size_t) -> c_int {
        if n > 256 {
            Err::<(), _>(Errno(libc::EIO)).into_c()
        } else {
            // SAFETY: the server's own buffer.
            random_into(unsafe { slice(buf, n) });
            0
        }
    }

    #[allow(non_snake_case, reason = "the mangled name of std::random_device::_M_getval()")]
    fn _ZNSt13random_device9_M_getvalEv(this: *mut c_void) -> c_uint {
        // libstdc++ would use rdrand where the processor has it, and not every processor can hide that.
        let mut bytes = [0; 4];
        random_into(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn arc4random() -> u32 {
        let mut bytes = [0; 4];
        random_into(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn arc4random_buf(buf: *mut c_void, n: size_t) {
        // SAFETY: the server's own buffer.
        random_into(unsafe { slice(buf, n) });
    }

    fn arc4random_uniform(bound: u32) -> u32 {
        uniform(bound)
    }
}

/// A number below `bound` without bias: values below `2^32 mod bound` are drawn again.
fn uniform(bound: u32) -> u32 {
    if bound < 2 {
        return 0;
    }
    let least = bound.wrapping_neg() % bound;
    loop {
        let mut bytes = [0; 4];
        random_into(&mut bytes);
        let drawn = u32::from_le_bytes(bytes);
        if drawn >= least {
            return drawn % bound;
        }
    }
}
