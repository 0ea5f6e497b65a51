//! A server's questions about the machine and its place on it: scheduling, priorities, limits, the kernel's release. Answers do not come
//! from the machine, which differs between replicas; settings that would only change a server's speed are accepted without effect.

use crate::fatal::{line, refused};
use crate::io::Answer;
use crate::kernel::process::dumpable;
use crate::kernel::{kernel, name};
use crate::process::{self, Life, Process};
use crate::sys;
use crate::time;
use crate::turn::{self, Turn};
use libc::c_int;
use skein_arena::pool::Handle;
use skein_libos::abi::timespec;
use skein_libos::errno::{Errno, Result};
use skein_libos::identity::{CPUS, MEMORY_BYTES};
use skein_sched::op::{Kind, Object};

/// The release of Linux that servers see: the oldest one that Skein runs on.
const RELEASE: &[u8] = b"5.16.0";
const VERSION: &[u8] = b"#1 SMP";
/// The size of `struct robust_list_head`.
pub const ROBUST_BYTES: usize = 24;
/// `RLIM_NLIMITS`.
const RESOURCES: usize = 16;
/// The answer of `sched_rr_get_interval` for ordinary threads, as on a kernel at 250 Hz.
const SLICE_NS: i64 = skein_libos::time::NS_PER_S as i64 / 250;

/// An operation that reads or sets a property of the machine.
fn ask() -> Turn {
    turn::enter(Object::Machine, Kind::Ask)
}

fn refuse(what: &[u8], errno: i32) -> Result<usize> {
    refused(what);
    Err(Errno(errno))
}

/// Writes an answer to the server's own pointer.
fn put<T>(to: *mut T, value: T) -> Result<usize> {
    if to.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the server's own pointer for this answer, not null.
    unsafe { to.write(value) };
    Ok(0)
}

/// The policies that any user may have are accepted without effect: the schedule is Skein's.
pub fn schedule(policy: c_int, priority: *const c_int) -> Result<usize> {
    let _turn = ask();
    if priority.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the server's own pointer, not null.
    let priority = unsafe { priority.read() };
    match policy & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE if priority == 0 => Ok(0),
        libc::SCHED_FIFO | libc::SCHED_RR if (1..=99).contains(&priority) => {
            Err(Errno(libc::EPERM))
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// `sched_setattr`: the second word is the policy, the sixth is the priority.
///
/// # Safety
/// `attributes` is null or valid.
pub unsafe fn set_attributes(attributes: *const [c_int; 6]) -> Result<usize> {
    // SAFETY: the caller's contract.
    match unsafe { attributes.as_ref() } {
        Some(words) => schedule(words[1], &raw const words[5]),
        None => {
            let _turn = ask();
            Err(Errno(libc::EINVAL))
        }
    }
}

/// `sched_getparam`: ordinary threads have no priority.
pub fn priority(out: *mut c_int) -> Result<usize> {
    let _turn = ask();
    put(out, 0)
}

/// `sched_rr_get_interval`.
pub fn slice(out: *mut timespec) -> Result<usize> {
    let _turn = ask();
    put(out, timespec { tv_sec: 0, tv_nsec: SLICE_NS })
}

/// `getpriority`: the kernel answers 20 - nice.
pub fn nice() -> Result<usize> {
    let _turn = ask();
    Ok((20 - process::this().nice.get()) as usize)
}

/// `set_tid_address`: where the kernel would write a zero when the thread ends.
pub fn clear_at_end(at: usize) -> Result<usize> {
    let turn = ask();
    turn.this().clear_at_end.set(at);
    Ok(turn.this().tid.get() as usize)
}

/// `sched_getattr`.
pub fn attributes(out: *mut u32, size: usize) -> Result<usize> {
    let _turn = ask();
    /// `struct sched_attr` as it was first.
    const WORDS: usize = 12;
    if out.is_null() || size < WORDS * 4 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the server's own buffer of at least so many bytes.
    unsafe {
        out.write_bytes(0, WORDS);
        out.write(WORDS as u32 * 4);
    }
    Ok(0)
}

/// As without privileges: a process may lower its priority. It is remembered, without effect.
pub fn prioritise(which: c_int, who: i32, nice: c_int) -> Result<usize> {
    let _turn = ask();
    let own = process::this();
    if which != libc::PRIO_PROCESS as c_int || (who != 0 && who != own.pid.get()) {
        return Ok(0);
    }
    let nice = nice.clamp(-20, 19);
    if nice < own.nice.get() {
        return Err(Errno(libc::EACCES));
    }
    own.nice.set(nice);
    Ok(0)
}

/// `clock_getres`: the coarse clocks' resolution is the host kernel's tick.
pub fn resolution(clock: c_int, out: *mut timespec) -> Result<usize> {
    ask().end();
    time::clock_ns(clock)?;
    let ns = match clock {
        libc::CLOCK_REALTIME_COARSE | libc::CLOCK_MONOTONIC_COARSE => SLICE_NS,
        _ => 1,
    };
    if out.is_null() { Ok(0) } else { put(out, timespec { tv_sec: 0, tv_nsec: ns }) }
}

/// `uname`: the kernel's answer, but for its release.
///
/// # Safety
/// As for the call, which asks for `out`.
pub unsafe fn uname(call: sys::Call, out: *mut libc::utsname) -> Result<usize> {
    let _turn = ask();
    // SAFETY: the server's own pointer; the kernel checks it.
    unsafe { call.make() }?;
    // SAFETY: the kernel has just written there.
    let out = unsafe { &mut *out };
    for (field, text) in [(&mut out.release, RELEASE), (&mut out.version, VERSION)] {
        field.fill(0);
        for (to, from) in field.iter_mut().zip(text) {
            *to = *from as libc::c_char;
        }
    }
    Ok(0)
}

/// `membarrier`: one thread runs at a time, and what it has written is seen by the next one. What remains is which kinds a process has registered, as on a kernel before 6.3 without `rseq`.
pub fn barrier(command: c_int, flags: u32) -> Result<usize> {
    const QUERY: c_int = 0;
    const GLOBAL: c_int = 1 << 0;
    const GLOBAL_EXPEDITED: c_int = 1 << 1;
    const PRIVATE: c_int = 1 << 3;
    const PRIVATE_CORES: c_int = 1 << 5;
    /// The command that registers for one of these is the next bit.
    const KINDS: c_int = GLOBAL_EXPEDITED | PRIVATE | PRIVATE_CORES;
    const REGISTER: c_int = KINDS << 1;
    if flags != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let registered = &process::this().told.barriers;
    match command {
        QUERY => Ok((GLOBAL | KINDS | REGISTER) as usize),
        GLOBAL | GLOBAL_EXPEDITED => Ok(0),
        PRIVATE | PRIVATE_CORES if registered.get() & command << 1 == 0 => Err(Errno(libc::EPERM)),
        PRIVATE | PRIVATE_CORES => Ok(0),
        _ if command.count_ones() == 1 && command & REGISTER != 0 => {
            registered.set(registered.get() | command);
            Ok(0)
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// `mincore`: whether there is memory is the kernel's answer, that all of it is resident is ours.
///
/// # Safety
/// As for the call, which asks for `out` about `len` bytes.
pub unsafe fn resident(call: sys::Call, len: usize, out: *mut u8) -> Result<usize> {
    let _turn = ask();
    // SAFETY: the server's own arguments; the kernel checks them.
    unsafe { call.make() }?;
    // SAFETY: the kernel has just written a byte a page there.
    unsafe { out.write_bytes(1, len.div_ceil(4096)) };
    Ok(0)
}

/// Limits are the supervisor's for the stack, core files and descriptors; all others would be the host's, so there are none until the server sets them.
pub fn limit(pid: usize, resource: usize, new: usize, old: usize) -> Answer {
    let own = process::this();
    let of = match pid as i32 {
        0 => own,
        pid if pid == own.pid.get() => own,
        pid => match other(pid) {
            Some(process) => process,
            // Outside of the server is only who began it.
            None if pid == 1 => return None,
            None => return Some(Err(Errno(libc::ESRCH))),
        },
    };
    let given = [libc::RLIMIT_STACK, libc::RLIMIT_CORE, libc::RLIMIT_NOFILE];
    let bit = 1 << (resource & 31);
    let is_space = resource == libc::RLIMIT_AS as usize;
    if given.iter().any(|r| *r as usize == resource)
        || of.limits_set.get() & bit != 0 && !is_space
        || resource >= RESOURCES
    {
        return None;
    }
    if !core::ptr::eq(of, own) {
        let mut known = [0u64; 2];
        let ask = [pid, resource, 0, &raw mut known as usize, 0, 0];
        // SAFETY: a local.
        if let Err(e) = unsafe { sys::call(libc::SYS_prlimit64, ask) } {
            // There is no such process any more, or it is another user's.
            return Some(Err(e));
        }
    }
    if is_space {
        return Some(space_limit(of, new, old));
    }
    let before = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    if new != 0 {
        // SAFETY: the server's own arguments; the kernel checks them.
        let set = unsafe { sys::call(libc::SYS_prlimit64, [pid, resource, new, 0, 0, 0]) };
        // A limit above the host's own has no effect, and is not remembered.
        match set {
            Err(e) if e.0 == libc::EPERM => {}
            Err(e) => return Some(Err(e)),
            Ok(_) => of.limits_set.set(of.limits_set.get() | bit),
        }
    }
    if old != 0 {
        return Some(put(old as *mut libc::rlimit, before));
    }
    Some(Ok(0))
}

/// The process that has this number, or a thread with it.
fn other(number: i32) -> Option<&'static Process> {
    let k = kernel();
    let of_thread = || {
        let threads = (1..=k.threads.high()).filter_map(Handle::from_raw);
        let mut threads = threads.map(|thread| k.threads.get(thread));
        threads.find(|t| t.tid.get() == number as u32)?.process.get()
    };
    let process = process::find(k, number).or_else(of_thread)?;
    Some(k.processes.get(process)).filter(|process| process.life.get() == Life::Alive)
}

/// The limit of a process's address space: accepted without effect, as the arena and the runtime's stacks are many times larger than any limit of a server.
fn space_limit(of: &Process, new: usize, old: usize) -> Result<usize> {
    let bit = 1 << libc::RLIMIT_AS;
    let is_set = of.limits_set.get() & bit != 0;
    let none = (libc::RLIM_INFINITY, libc::RLIM_INFINITY);
    let (soft, hard) = if is_set { of.space_limit.get() } else { none };
    if new != 0 {
        // SAFETY: the server's own pointer.
        let wanted = unsafe { *(new as *const libc::rlimit) };
        if wanted.rlim_cur > wanted.rlim_max {
            return Err(Errno(libc::EINVAL));
        }
        if wanted.rlim_max > hard {
            return Err(Errno(libc::EPERM));
        }
        of.space_limit.set((wanted.rlim_cur, wanted.rlim_max));
        of.limits_set.set(of.limits_set.get() | bit);
    }
    if old == 0 {
        return Ok(0);
    }
    put(old as *mut libc::rlimit, libc::rlimit { rlim_cur: soft, rlim_max: hard })
}

/// `arch_prctl`: reads give the server's own values; segments are how the runtime tells threads apart.
pub fn segment(option: usize) -> Answer {
    const SET_GS: usize = 0x1001;
    const SET_FS: usize = 0x1002;
    const GET_FS: usize = 0x1003;
    const GET_GS: usize = 0x1004;
    match option {
        GET_FS | GET_GS => None,
        SET_GS | SET_FS => Some(refuse(b"arch_prctl", libc::EPERM)),
        // Shadow stacks and the like, which libc asks for and does without.
        _ => Some(Err(Errno(libc::EINVAL))),
    }
}

// prctl: a name for memory, for /proc only.
const PR_SET_VMA: c_int = 0x5356_4d41;

/// A call was made: one that changes the process's rights changes more.
#[inline]
pub fn settle(nr: i64, result: &Result<usize>) {
    const RIGHTS: [i64; 9] = [
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setreuid,
        libc::SYS_setregid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_capset,
    ];
    if RIGHTS.contains(&nr) && result.is_ok() {
        process::this().told.note_dumpable();
    }
}

/// `prctl`: allowed are operations that neither show the machine nor change the basis of the net and the traps.
pub fn control(option: c_int, args: [usize; 4]) -> Answer {
    let own = process::this();
    let [arg, ..] = args;
    match option {
        // Flags of huge pages, as before Linux 6.18.
        libc::PR_SET_THP_DISABLE if args[1..].iter().any(|flags| *flags != 0) => {
            Some(Err(Errno(libc::EINVAL)))
        }
        libc::PR_SET_DUMPABLE
        | libc::PR_SET_KEEPCAPS
        | libc::PR_SET_SECUREBITS
        | libc::PR_SET_THP_DISABLE
        | libc::PR_SET_TIMERSLACK => {
            let [arg, third, fourth, fifth] = args;
            let all = sys::args([option as usize, arg, third, fourth, fifth]);
            // SAFETY: options that take numbers.
            let done = unsafe { sys::call(libc::SYS_prctl, all) };
            if done.is_ok() {
                own.told.note(option, arg);
            }
            Some(done)
        }
        libc::PR_GET_DUMPABLE => Some(Ok(dumpable())),
        libc::PR_SET_NAME => Some(name::set(arg)),
        libc::PR_GET_NAME => name::get(arg),
        libc::PR_GET_KEEPCAPS
        | libc::PR_CAPBSET_READ
        | libc::PR_CAPBSET_DROP
        | libc::PR_CAP_AMBIENT
        | libc::PR_GET_SECUREBITS
        | libc::PR_SET_NO_NEW_PRIVS
        | libc::PR_GET_NO_NEW_PRIVS
        | libc::PR_GET_THP_DISABLE
        | libc::PR_GET_TIMERSLACK
        | libc::PR_SET_PTRACER
        | PR_SET_VMA => None,
        libc::PR_SET_PDEATHSIG if !(0..=64).contains(&(arg as i64)) => {
            Some(Err(Errno(libc::EINVAL)))
        }
        libc::PR_SET_PDEATHSIG => {
            own.parent_end_signal.set(arg as c_int);
            Some(Ok(0))
        }
        libc::PR_GET_PDEATHSIG => Some(put(arg as *mut c_int, own.parent_end_signal.get())),
        libc::PR_SET_CHILD_SUBREAPER => {
            own.subreaper.set(arg != 0);
            Some(Ok(0))
        }
        libc::PR_GET_CHILD_SUBREAPER => Some(put(arg as *mut c_int, own.subreaper.get().into())),
        // The server must not see the net.
        libc::PR_GET_SECCOMP => Some(Ok(0)),
        _ => Some(refuse(line!("prctl {option}").bytes(), libc::EINVAL)),
    }
}

/// `personality`: it can be asked for, and stays.
pub fn personality(wanted: u32) -> Answer {
    (wanted != u32::MAX).then(|| {
        let _turn = ask();
        refuse(b"personality", libc::EPERM)
    })
}

/// `sysinfo`: one processor, a fixed amount of memory, no load.
pub fn sysinfo(out: *mut libc::sysinfo) -> Result<usize> {
    if out.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let uptime = time::clock_ns(libc::CLOCK_MONOTONIC)? / skein_libos::time::NS_PER_S;
    // SAFETY: all-zero is a valid `sysinfo`; the pointer is the server's own and not null.
    unsafe {
        let mut info: libc::sysinfo = core::mem::zeroed();
        info.uptime = uptime as libc::c_long;
        info.totalram = MEMORY_BYTES;
        info.freeram = MEMORY_BYTES / 2;
        info.procs = 1;
        info.mem_unit = 1;
        out.write(info);
    }
    Ok(0)
}

/// `sched_getaffinity`: the first processors; answers how many bytes the kernel would have written.
pub fn affinity(len: usize, out: *mut u8) -> Result<usize> {
    const WORD: usize = 8;
    if len < WORD || !len.is_multiple_of(WORD) {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the server's own buffer of at least a word.
    unsafe {
        out.write_bytes(0, WORD);
        out.write((1u16 << CPUS).wrapping_sub(1) as u8);
    }
    Ok(WORD)
}
