//! Hooks: clocks, sleeps, randomness.

use super::{IntoC, hook};
use crate::random;
use crate::time::{self, calls};
use crate::turn;
use libc::{c_int, c_uint, c_void, size_t, ssize_t};
use skein_libos::errno::Errno;
use skein_sched::op::{Kind, Object};

unsafe fn slice<'a>(buf: *mut c_void, n: usize) -> &'a mut [u8] {
    if n == 0 {
        return &mut [];
    }
    // SAFETY: the server's own buffer, by the call's contract.
    unsafe { core::slice::from_raw_parts_mut(buf.cast(), n) }
}

hook! {
    fn clock_gettime(clock: c_int, out: *mut skein_libos::abi::timespec) -> c_int {
        calls::clock_gettime(clock, out).map(|_| ()).into_c()
    }

    fn gettimeofday(out: *mut libc::timeval, zone: *mut c_void) -> c_int {
        calls::gettimeofday(out).map(|_| ()).into_c()
    }

    fn time(out: *mut libc::time_t) -> libc::time_t {
        let seconds = time::clock_ns(libc::CLOCK_REALTIME).map_or(0, |ns| (ns / skein_libos::time::NS_PER_S) as i64);
        if !out.is_null() {
            // SAFETY: the server's own pointer, not null.
            unsafe { out.write(seconds) };
        }
        seconds
    }

    fn timespec_get(out: *mut skein_libos::abi::timespec, base: c_int) -> c_int {
        const TIME_UTC: c_int = 1;
        if base == TIME_UTC && calls::clock_gettime(libc::CLOCK_REALTIME, out).is_ok() { base } else { 0 }
    }

    fn clock() -> libc::clock_t {
        (calls::cpu_ns() / 1000) as libc::clock_t
    }

    fn times(out: *mut libc::tms) -> libc::clock_t {
        calls::times(out)
    }

    fn getrusage(who: c_int, out: *mut libc::rusage) -> c_int {
        calls::getrusage(who, out).map(|_| ()).into_c()
    }

    fn nanosleep(request: *const skein_libos::abi::timespec, left: *mut skein_libos::abi::timespec) -> c_int {
        // SAFETY: the server's own pointers.
        unsafe { calls::nanosleep(libc::CLOCK_MONOTONIC, 0, request, left) }.map(|_| ()).into_c()
    }

    fn clock_nanosleep(clock: c_int, flags: c_int, request: *const skein_libos::abi::timespec, left: *mut skein_libos::abi::timespec) -> c_int {
        // SAFETY: the server's own pointers.
        super::pthread_result(unsafe { calls::nanosleep(clock, flags, request, left) }.map(|_| ()))
    }

    fn usleep(us: c_uint) -> c_int {
        let _turn = turn::enter(Object::Clock, Kind::Wait);
        match calls::sleep_left(time::after(u64::from(us) * 1000)) {
            None => 0,
            Some(_) => Err::<(), _>(Errno(libc::EINTR)).into_c(),
        }
    }

    fn sleep(seconds: c_uint) -> c_uint {
        let _turn = turn::enter(Object::Clock, Kind::Wait);
        // As in glibc whole seconds that were left.
        let left = calls::sleep_left(time::after(u64::from(seconds) * skein_libos::time::NS_PER_S));
        left.map_or(0, |ns| (ns / skein_libos::time::NS_PER_S) as c_uint)
    }

    fn getrandom(buf: *mut c_void, n: size_t, flags: c_uint) -> ssize_t {
        if !random::flags_known(flags) {
            super::set_errno(Errno(libc::EINVAL));
            return -1;
        }
        // SAFETY: the server's own buffer.
        random::draw(unsafe { slice(buf, n) });
        n as ssize_t
    }

    fn getentropy(buf: *mut c_void, n: size_t) -> c_int {
        if n > 256 {
            Err::<(), _>(Errno(libc::EIO)).into_c()
        } else {
            // SAFETY: the server's own buffer.
            random::draw(unsafe { slice(buf, n) });
            0
        }
    }

    #[allow(non_snake_case, reason = "the mangled name of std::random_device::_M_getval()")]
    fn _ZNSt13random_device9_M_getvalEv(this: *mut c_void) -> c_uint {
        // libstdc++ would use rdrand where the processor has it, and not every processor can hide that.
        let mut bytes = [0; 4];
        random::draw(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn arc4random() -> u32 {
        let mut bytes = [0; 4];
        random::draw(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn arc4random_buf(buf: *mut c_void, n: size_t) {
        // SAFETY: the server's own buffer.
        random::draw(unsafe { slice(buf, n) });
    }

    fn arc4random_uniform(bound: u32) -> u32 {
        random::below(bound)
    }
}
