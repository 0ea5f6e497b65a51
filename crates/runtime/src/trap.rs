//! The safety net: system calls that do not come through an interposed symbol.
//!
//! A seccomp filter lets everything from this library's text through and raises SIGSYS for the calls of [`TRAPPED`] from anywhere else: from
//! libc's own insides, from `syscall` instructions in the server. The handler answers them as the hooks would ([`dispatch`]), or refuses to go on and names
//! the call: a socket, futex, time, random or thread call never reaches the kernel unseen.
//!
//! The handler runs on the stack of the thread that has the turn and may block like any hook: SIGSYS is not masked meanwhile.
//!
//! `clone` and `clone3` are let through from libc's text, because libc's thread creation, which the hook of `pthread_create` calls, makes them there.

use crate::fatal::{refuse, refused};
use crate::kernel::{header, kernel};
use crate::sys::{self, Errno, Result};
use crate::{hooks, init, instructions, io, process, sync, time, turn};
use core::sync::atomic::Ordering;
use libc::{c_int, c_void};
use skein_model::limits::SPIN_SIGNAL;

/// System calls by number and name that reach the kernel only from this library.
const TRAPPED: &[(i64, &str)] = &[
    (libc::SYS_socket, "socket"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_shutdown, "shutdown"),
    (libc::SYS_bind, "bind"),
    (libc::SYS_listen, "listen"),
    (libc::SYS_getsockname, "getsockname"),
    (libc::SYS_getpeername, "getpeername"),
    (libc::SYS_socketpair, "socketpair"),
    (libc::SYS_setsockopt, "setsockopt"),
    (libc::SYS_getsockopt, "getsockopt"),
    (libc::SYS_poll, "poll"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_select, "select"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_epoll_create, "epoll_create"),
    (libc::SYS_epoll_create1, "epoll_create1"),
    (libc::SYS_epoll_ctl, "epoll_ctl"),
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_epoll_pwait2, "epoll_pwait2"),
    (libc::SYS_pipe, "pipe"),
    (libc::SYS_pipe2, "pipe2"),
    (libc::SYS_eventfd, "eventfd"),
    (libc::SYS_eventfd2, "eventfd2"),
    (libc::SYS_signalfd, "signalfd"),
    (libc::SYS_signalfd4, "signalfd4"),
    (libc::SYS_timerfd_create, "timerfd_create"),
    (libc::SYS_timerfd_settime, "timerfd_settime"),
    (libc::SYS_timerfd_gettime, "timerfd_gettime"),
    (libc::SYS_timer_create, "timer_create"),
    (libc::SYS_setitimer, "setitimer"),
    (libc::SYS_alarm, "alarm"),
    (libc::SYS_pause, "pause"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_futex_waitv, "futex_waitv"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_clock_gettime, "clock_gettime"),
    (libc::SYS_gettimeofday, "gettimeofday"),
    (libc::SYS_time, "time"),
    (libc::SYS_times, "times"),
    (libc::SYS_getrusage, "getrusage"),
    (libc::SYS_sysinfo, "sysinfo"),
    (libc::SYS_getcpu, "getcpu"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_sched_getaffinity, "sched_getaffinity"),
    (libc::SYS_sched_setaffinity, "sched_setaffinity"),
    (libc::SYS_getrandom, "getrandom"),
    (libc::SYS_fork, "fork"),
    (libc::SYS_vfork, "vfork"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_execveat, "execveat"),
    (libc::SYS_exit_group, "exit_group"),
    (libc::SYS_io_setup, "io_setup"),
    (libc::SYS_io_uring_setup, "io_uring_setup"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_io_uring_register, "io_uring_register"),
    (libc::SYS_userfaultfd, "userfaultfd"),
    (libc::SYS_inotify_init1, "inotify_init1"),
    (libc::SYS_perf_event_open, "perf_event_open"),
    (libc::SYS_ptrace, "ptrace"),
];

/// Calls that make threads or processes; trapped too, but let through from libc's text.
const CLONES: &[(i64, &str)] = &[(libc::SYS_clone, "clone"), (libc::SYS_clone3, "clone3")];

/// Calls on descriptors, which may be virtual: stdio makes them inside libc. On the kernel's own descriptors they are made for it.
const ON_FILES: &[(i64, &str)] = &[
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_close, "close"),
    (libc::SYS_lseek, "lseek"),
    (libc::SYS_dup, "dup"),
    (libc::SYS_dup2, "dup2"),
    (libc::SYS_dup3, "dup3"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_ioctl, "ioctl"),
];

fn name_of(nr: i64) -> &'static str {
    TRAPPED
        .iter()
        .chain(ON_FILES)
        .chain(CLONES)
        .find(|(n, _)| *n == nr)
        .map_or("a system call", |(_, name)| name)
}

/// A system call by number, as the hooks would do it: `None` when it is none of the runtime's business.
pub fn dispatch(nr: i64, a: [usize; 6]) -> Option<Result<usize>> {
    Some(match nr {
        libc::SYS_futex => sync::futex::futex(a),
        libc::SYS_clock_gettime => {
            hooks::time::clock_gettime_into(a[0] as i32, a[1] as *mut libc::timespec)
        }
        libc::SYS_gettimeofday => hooks::time::gettimeofday_into(a[0] as *mut libc::timeval),
        libc::SYS_time => time::clock_ns(libc::CLOCK_REALTIME).map(|ns| {
            let seconds = ns / time::NS_PER_S;
            if a[0] != 0 {
                // SAFETY: the server's own pointer.
                unsafe { (a[0] as *mut i64).write(seconds as i64) };
            }
            seconds as usize
        }),
        libc::SYS_nanosleep => {
            hooks::time::sleep_request(libc::CLOCK_MONOTONIC, 0, a[0] as *const libc::timespec)
        }
        libc::SYS_clock_nanosleep => {
            hooks::time::sleep_request(a[0] as i32, a[1] as i32, a[2] as *const libc::timespec)
        }
        libc::SYS_times => Ok(hooks::time::times_into(a[0] as *mut libc::tms) as usize),
        libc::SYS_getrusage => hooks::time::getrusage_into(a[0] as i32, a[1] as *mut libc::rusage),
        libc::SYS_getrandom => {
            if !hooks::time::random_flags_known(a[2] as u32) {
                return Some(Err(Errno(libc::EINVAL)));
            }
            // SAFETY: the server's own buffer.
            let out = unsafe { core::slice::from_raw_parts_mut(a[0] as *mut u8, a[1]) };
            hooks::time::random_into(out);
            Ok(a[1])
        }
        libc::SYS_getcpu => {
            for word in [a[0], a[1]] {
                if word != 0 {
                    // SAFETY: the server's own pointer.
                    unsafe { (word as *mut u32).write(0) };
                }
            }
            Ok(0)
        }
        libc::SYS_sysinfo => hooks::process::sysinfo_into(a[0] as *mut libc::sysinfo),
        libc::SYS_sched_yield => {
            turn::operation();
            turn::yield_now();
            Ok(0)
        }
        libc::SYS_sched_getaffinity => hooks::process::affinity_into(a[1], a[2] as *mut u8),
        libc::SYS_sched_setaffinity => Ok(0),
        libc::SYS_gettid => Ok(kernel().this().tid.get() as usize),
        // A thread that signals itself runs on the carrier.
        libc::SYS_tgkill if a[1] as u32 == kernel().this().tid.get() => {
            // SAFETY: no memory is involved.
            unsafe { sys::call(nr, sys::args([a[0], sys::gettid() as usize, a[2]])) }
        }
        // Disarming what was never armed.
        // SAFETY: the server's own pointer; an `itimerval` is four words.
        libc::SYS_setitimer if a[1] != 0 && unsafe { *(a[1] as *const [u64; 4]) } == [0; 4] => {
            Ok(0)
        }
        libc::SYS_pause => hooks::time::wait_for_signal(),
        libc::SYS_exit_group => init::end_process(a[0] as i32),
        libc::SYS_fork => process::fork().map(|pid| pid as usize),
        libc::SYS_execve | libc::SYS_execveat | libc::SYS_vfork => {
            refused(name_of(nr).as_bytes());
            Err(Errno(libc::ENOSYS))
        }
        libc::SYS_clone | libc::SYS_clone3 => {
            refuse!(
                "{} was called outside pthread_create: a thread or process that Skein does not know cannot be made deterministic",
                name_of(nr)
            )
        }
        libc::SYS_io_uring_setup
        | libc::SYS_io_uring_enter
        | libc::SYS_io_uring_register
        | libc::SYS_io_setup
        | libc::SYS_userfaultfd
        | libc::SYS_inotify_init1
        | libc::SYS_perf_event_open
        | libc::SYS_ptrace
        | libc::SYS_timer_create
        | libc::SYS_setitimer
        | libc::SYS_alarm
        | libc::SYS_signalfd
        | libc::SYS_signalfd4 => {
            refused(name_of(nr).as_bytes());
            Err(Errno(libc::ENOSYS))
        }
        _ => match io::syscall(nr, a) {
            None if ON_FILES.iter().any(|(n, _)| *n == nr) => {
                // SAFETY: the server's own call, on a descriptor of the kernel's.
                unsafe { sys::call(nr, a) }
            }
            answer => return answer,
        },
    })
}

extern "C" fn on_sigsys(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context; it belongs to this handler's frame.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = |r: c_int| registers[r as usize] as usize;
    let nr = registers[libc::REG_RAX as usize];
    let a = [
        at(libc::REG_RDI),
        at(libc::REG_RSI),
        at(libc::REG_RDX),
        at(libc::REG_R10),
        at(libc::REG_R8),
        at(libc::REG_R9),
    ];
    // SAFETY: as above.
    let code = unsafe { (*info).si_code };
    const SYS_SECCOMP: c_int = 1;
    if code != SYS_SECCOMP {
        refuse!("a SIGSYS that is not from the safety net (code {code})");
    }
    header().net_calls.fetch_add(1, Ordering::Relaxed);
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    let Some(result) = dispatch(nr, a) else {
        refuse!(
            "system call {} ({nr}) at {:#x} reached the kernel around the interposed functions and cannot be made deterministic",
            name_of(nr),
            at(libc::REG_RIP)
        )
    };
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    registers[libc::REG_RAX as usize] = match result {
        Ok(n) => n as i64,
        Err(e) => -i64::from(e.0),
    };
}

extern "C" fn on_spin(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let h = header();
    h.spin_address.store(registers[libc::REG_RIP as usize] as u64, Ordering::Relaxed);
    h.spin_seen.store(1, Ordering::Release);
}

fn handle(signal: c_int, handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)) {
    // SAFETY: all-zero is a valid `sigaction`; the mask is empty.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: libc's own function with a valid action.
    let failed =
        unsafe { (hooks::originals().sigaction)(signal, &raw const action, core::ptr::null_mut()) };
    if failed != 0 {
        refuse!("cannot handle signal {signal}");
    }
}

/// Executable segments that matter: this library's and libc's.
#[derive(Default)]
struct Texts {
    own: (usize, usize),
    libc: (usize, usize),
}

unsafe extern "C" fn note_text(
    object: *mut libc::dl_phdr_info,
    _: usize,
    texts: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes valid pointers for the time of the call.
    let (object, texts) = unsafe { (&*object, &mut *texts.cast::<Texts>()) };
    // SAFETY: as above.
    let headers =
        unsafe { core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum as usize) };
    let own = dispatch as *const () as usize;
    let libc = hooks::originals().pthread_create as usize;
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
            let start = object.dlpi_addr as usize + header.p_vaddr as usize;
            let range = (start, start + header.p_memsz as usize);
            if (range.0..range.1).contains(&own) {
                texts.own = range;
            }
            if (range.0..range.1).contains(&libc) {
                texts.libc = range;
            }
        }
    }
    0
}

/// A classic BPF program under construction.
struct Filter {
    code: [libc::sock_filter; 320],
    len: usize,
}

// BPF: load a word, jump on comparison, return.
const LOAD: u16 = 0x20;
const JUMP_EQ: u16 = 0x15;
const JUMP_GE: u16 = 0x35;
const RETURN: u16 = 0x06;
// Offsets in `struct seccomp_data`.
const AT_NR: u32 = 0;
const AT_ARCH: u32 = 4;
const AT_IP_LOW: u32 = 8;
const AT_IP_HIGH: u32 = 12;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const X32_BIT: u32 = 0x4000_0000;

impl Filter {
    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        assert!(self.len < self.code.len(), "the net's filter is too long");
        self.code[self.len] = libc::sock_filter { code, jt, jf, k };
        self.len += 1;
    }

    /// Lets the call through when its instruction lies in `text`; goes on behind otherwise.
    fn allow_from(&mut self, text: (usize, usize)) {
        self.push(LOAD, AT_IP_HIGH, 0, 0);
        self.push(JUMP_EQ, (text.0 >> 32) as u32, 0, 4);
        self.push(LOAD, AT_IP_LOW, 0, 0);
        self.push(JUMP_GE, text.0 as u32, 0, 2);
        self.push(JUMP_GE, text.1 as u32, 1, 0);
        self.push(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    }
}

/// Spreads the net. From here on nothing but this library makes the trapped calls.
pub fn install() {
    handle(libc::SIGSYS, on_sigsys);
    handle(SPIN_SIGNAL, on_spin);
    handle(libc::SIGSEGV, instructions::on_segv);
    instructions::install();
    let mut texts = Texts::default();
    // SAFETY: `note_text` is what the loader wants; `texts` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_text), (&raw mut texts).cast()) };
    for (what, text) in [("libskein.so", texts.own), ("the C library", texts.libc)] {
        if text.0 == 0 || text.0 >> 32 != (text.1 - 1) >> 32 {
            refuse!("the text of {what} was not found where the safety net needs it");
        }
    }
    let mut filter =
        Filter { code: [libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; 320], len: 0 };
    let trap = libc::SECCOMP_RET_TRAP;
    filter.push(LOAD, AT_ARCH, 0, 0);
    filter.push(JUMP_EQ, AUDIT_ARCH_X86_64, 1, 0);
    filter.push(RETURN, trap, 0, 0);
    filter.allow_from(texts.own);
    filter.push(LOAD, AT_NR, 0, 0);
    filter.push(JUMP_GE, X32_BIT, 0, 1);
    filter.push(RETURN, trap, 0, 0);
    for (nr, _) in TRAPPED.iter().chain(ON_FILES) {
        filter.push(JUMP_EQ, *nr as u32, 0, 1);
        filter.push(RETURN, trap, 0, 0);
    }
    // Only the calls that make threads are left; from libc's text they are pthread_create's.
    for (i, (nr, _)) in CLONES.iter().enumerate() {
        let last = i + 1 == CLONES.len();
        // To the check behind the list, or on to the next number; the last one jumps over the return.
        filter.push(JUMP_EQ, *nr as u32, if last { 1 } else { 2 }, 0);
    }
    filter.push(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    filter.allow_from(texts.libc);
    filter.push(RETURN, trap, 0, 0);
    let program = libc::sock_fprog { len: filter.len as u16, filter: filter.code.as_mut_ptr() };
    // SAFETY: a valid program; both calls only restrict this process.
    let result = unsafe {
        sys::call(libc::SYS_prctl, sys::args([libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]))
            .and_then(|_| {
                sys::call(
                    libc::SYS_seccomp,
                    sys::args([
                        libc::SECCOMP_SET_MODE_FILTER as usize,
                        libc::SECCOMP_FILTER_FLAG_TSYNC as usize,
                        &raw const program as usize,
                    ]),
                )
            })
    };
    match result {
        Ok(0) => {}
        Ok(tid) => {
            refuse!("thread {tid} was created before the runtime: a library's constructor made it")
        }
        Err(e) => refuse!("cannot spread the safety net: seccomp: errno {}", e.0),
    }
}
