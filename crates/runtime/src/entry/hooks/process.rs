//! Hooks: processes, and a server's questions about the machine.

use super::{IntoC, hook, rows, syscalls};
use crate::advice;
use crate::entry::calls;
use crate::original::real;
use crate::sys;
use crate::{fatal, machine, process, turn};
use libc::{c_int, c_long, c_void, pid_t, size_t};
use skein_libos::errno::Errno;
use skein_libos::identity::CPUS;
use skein_sched::op::{Kind, Object};

/// A call that would make a process or a thread without the runtime.
fn no_process(call: &[u8]) -> Errno {
    let _turn = turn::enter(Object::Machine, Kind::Refuse);
    fatal::refused(call);
    Errno(libc::ENOSYS)
}

rows! {
    SYS_mq_notify: fn mq_notify(queue: c_int, event: *const c_void) -> c_int;
    SYS_sched_setaffinity: fn sched_setaffinity(pid: pid_t, len: size_t, set: *const libc::cpu_set_t) -> c_int;
}

// libc does these by threads of its own, which it makes without the hook of `pthread_create`: they would run beside the turn's holder.
hook! {
    fn aio_read(request: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"aio_read")).into_c()
    }

    fn aio_read64(request: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"aio_read64")).into_c()
    }

    fn aio_write(request: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"aio_write")).into_c()
    }

    fn aio_write64(request: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"aio_write64")).into_c()
    }

    fn aio_fsync(how: c_int, request: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"aio_fsync")).into_c()
    }

    fn aio_fsync64(how: c_int, request: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"aio_fsync64")).into_c()
    }

    fn lio_listio(mode: c_int, list: *const c_void, n: c_int, event: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"lio_listio")).into_c()
    }

    fn lio_listio64(mode: c_int, list: *const c_void, n: c_int, event: *mut c_void) -> c_int {
        Err::<i32, _>(no_process(b"lio_listio64")).into_c()
    }

    fn getaddrinfo_a(mode: c_int, list: *mut c_void, n: c_int, event: *mut c_void) -> c_int {
        super::set_errno(no_process(b"getaddrinfo_a"));
        libc::EAI_SYSTEM
    }
}

/// libc's result for a host without an id and with the address 127.0.0.1. Hosts' own ids in /etc differ.
const HOST_ID: c_long = 0x7f_0100;

/// "Unchanged" in the calls that take several ids.
const KEEP: u32 = u32::MAX;

// The server's user. libc would make every kernel thread do the same by a signal and wait for it; all but the carrier are parked
// and act as no user, and later threads inherit from the carrier.
rows! {
    SYS_setuid: fn setuid(a: u32) -> c_int;
    SYS_setgid: fn setgid(a: u32) -> c_int;
    SYS_setreuid: fn setreuid(a: u32, b: u32) -> c_int;
    SYS_setregid: fn setregid(a: u32, b: u32) -> c_int;
    SYS_setresuid: fn setresuid(a: u32, b: u32, c: u32) -> c_int;
    SYS_setresgid: fn setresgid(a: u32, b: u32, c: u32) -> c_int;
    SYS_setresuid: fn seteuid(id: u32) -> c_int = (KEEP, id, KEEP);
    SYS_setresgid: fn setegid(id: u32) -> c_int = (KEEP, id, KEEP);
    SYS_setgroups: fn setgroups(count: size_t, groups: *const u32) -> c_int;
}

syscalls! {
    SYS_gettid: fn gettid() -> pid_t;
    SYS_sysinfo: fn sysinfo(out: *mut libc::sysinfo) -> c_int;
}

hook! {
    fn sched_getaffinity(pid: pid_t, len: size_t, out: *mut libc::cpu_set_t) -> c_int {
        // SAFETY: the server's own buffer; bytes that the kernel does not write are cleared as libc does.
        unsafe { out.cast::<u8>().write_bytes(0, len) };
        machine::affinity(len, out.cast()).map(|_| ()).into_c()
    }

    fn pthread_getaffinity_np(t: libc::pthread_t, len: size_t, out: *mut libc::cpu_set_t) -> c_int {
        // SAFETY: as above.
        unsafe { out.cast::<u8>().write_bytes(0, len) };
        super::pthread_result(machine::affinity(len, out.cast()).map(|_| ()))
    }

    fn pthread_setaffinity_np(t: libc::pthread_t, len: size_t, set: *const libc::cpu_set_t) -> c_int {
        0
    }

    fn sched_getcpu() -> c_int {
        0
    }

    fn gethostid() -> c_long {
        HOST_ID
    }

    fn sethostid(id: c_long) -> c_int {
        let _turn = turn::enter(Object::Machine, Kind::Refuse);
        fatal::refused(b"sethostid");
        Err::<(), _>(Errno(libc::EPERM)).into_c()
    }

    fn get_nprocs() -> c_int {
        CPUS as c_int
    }

    fn get_nprocs_conf() -> c_int {
        CPUS as c_int
    }

    fn getloadavg(out: *mut f64, n: c_int) -> c_int {
        let n = n.clamp(0, 3);
        for i in 0..n as usize {
            // SAFETY: the server's own array of `n` numbers.
            unsafe { out.add(i).write(0.0) };
        }
        n
    }

    fn sysconf(name: c_int) -> c_long {
        match name {
            libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF => CPUS as c_long,
            libc::_SC_PHYS_PAGES => (skein_libos::identity::MEMORY_BYTES / 4096) as c_long,
            libc::_SC_AVPHYS_PAGES => (skein_libos::identity::MEMORY_BYTES / 8192) as c_long,
            // SAFETY: passed on.
            _ => unsafe { real!(sysconf: fn(c_int) -> c_long)(name) },
        }
    }

    fn _exit(status: c_int) {
        process::end::exit(status)
    } else { sys::exit_group(status) }

    fn _Exit(status: c_int) {
        process::end::exit(status)
    } else { sys::exit_group(status) }

    fn syscall(nr: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        // SAFETY: the caller's arguments.
        unsafe {
            let args = [a, b, c, d, e, f];
            advice::handle(nr, args).unwrap_or_else(|| calls::by_number(nr, args))
        }
        .into_c()
    } on stack
}
