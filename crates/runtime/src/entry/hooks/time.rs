//! Hooks: clocks, sleeps, randomness.

use super::{IntoC, hook, syscalls};
use crate::entry::calls::made;
use crate::random;
use crate::time::calls;
use crate::turn;
use libc::{c_int, c_uint, c_void, size_t, ssize_t};
use skein_libos::abi::timespec;
use skein_libos::errno::Errno;
use skein_sched::op::{Kind, Object};

unsafe fn slice<'a>(buf: *mut c_void, n: usize) -> &'a mut [u8] {
    if n == 0 {
        return &mut [];
    }
    // SAFETY: the server's own buffer, by the call's contract.
    unsafe { core::slice::from_raw_parts_mut(buf.cast(), n) }
}

syscalls! {
    SYS_clock_gettime: fn clock_gettime(clock: c_int, out: *mut timespec) -> c_int;
    SYS_gettimeofday: fn gettimeofday(out: *mut libc::timeval, zone: *mut c_void) -> c_int = (out);
    SYS_time: fn time(out: *mut libc::time_t) -> libc::time_t;
    SYS_times: fn times(out: *mut libc::tms) -> libc::clock_t;
    SYS_getrusage: fn getrusage(who: c_int, out: *mut libc::rusage) -> c_int;
    SYS_nanosleep: fn nanosleep(request: *const timespec, left: *mut timespec) -> c_int;
    SYS_getrandom: fn getrandom(buf: *mut c_void, n: size_t, flags: c_uint) -> ssize_t;
}

hook! {
    fn timespec_get(out: *mut timespec, base: c_int) -> c_int {
        const TIME_UTC: c_int = 1;
        if base == TIME_UTC && calls::clock_gettime(libc::CLOCK_REALTIME, out).is_ok() { base } else { 0 }
    }

    fn clock() -> libc::clock_t {
        (calls::cpu_ns() / 1000) as libc::clock_t
    }

    fn clock_nanosleep(clock: c_int, flags: c_int, request: *const timespec, left: *mut timespec) -> c_int {
        // SAFETY: the server's own pointers.
        super::pthread_result(unsafe { made!(SYS_clock_nanosleep(clock, flags, request, left)) }.map(|_| ()))
    }

    fn usleep(us: c_uint) -> c_int {
        let turn = turn::enter(Object::Clock, Kind::Wait);
        match calls::sleep_left(&turn, turn.after(u64::from(us) * 1000)) {
            None => 0,
            Some(_) => Err::<(), _>(Errno(libc::EINTR)).into_c(),
        }
    }

    fn sleep(seconds: c_uint) -> c_uint {
        let turn = turn::enter(Object::Clock, Kind::Wait);
        // As in glibc the remaining whole seconds.
        let left = calls::sleep_left(&turn, turn.after(u64::from(seconds) * skein_libos::time::NS_PER_S));
        left.map_or(0, |ns| (ns / skein_libos::time::NS_PER_S) as c_uint)
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
