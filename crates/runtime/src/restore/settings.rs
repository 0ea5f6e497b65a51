//! What a process has told the kernel about itself: its name, its limits, its root, its rights.
//!
//! The rights come last, as everything else may need those that a server begins with. The kernel has them for each of its threads, so those that are made again take
//! them, too.

use super::{Tables, must, part};
use crate::fatal::{Line, line};
use crate::process;
use crate::sys::{self, args};
use crate::uses::{self, Use};
use core::ffi::CStr;
use skein_arena::restore::{Credentials, NO_NAME, Process, Settings};

/// `SECBIT_NO_SETUID_FIXUP`: another user does not mean other capabilities.
const NO_FIXUP: usize = 1 << 2;
const NOT_PERMITTED: isize = -(libc::EPERM as isize);
/// More groups than these are always set.
const MOST_GROUPS: usize = 256;
/// `_LINUX_CAPABILITY_VERSION_3`, for this thread.
const CAPABILITIES: [u32; 2] = [0x2008_0522, 0];

/// Takes what the process has told the kernel, but for its limits and rights.
pub(super) unsafe fn of_process(t: &Tables, p: &Process) {
    let name = args([libc::PR_SET_NAME as usize, p.title.as_ptr() as usize]);
    // SAFETY: the table's words.
    unsafe { sys::raw(libc::SYS_prctl, name) };
    settle_break(p);
    let n = t.processes.iter().position(|one| one.pid == p.pid).unwrap_or(0);
    if let Some(at) = t.head.settings_at.checked_sub(1) {
        uses::note(Use::OwnSettings);
        // SAFETY: the node has written one for each process.
        let own = unsafe { (t.name(at) as *const Settings).add(n).read_unaligned() };
        tell(c"/proc/self/oom_score_adj", line!("{}", own.score));
        tell(c"/proc/self/coredump_filter", line!("{}", own.filter));
    }
}

/// Writes to a file of the kernel's. It refuses what only a host's root may have said.
fn tell(path: &CStr, text: Line) {
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let open = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize];
    // SAFETY: a terminated string, and a live buffer.
    unsafe {
        if let Ok(fd) = sys::call(libc::SYS_openat, args(open)) {
            let text = text.bytes();
            sys::raw(libc::SYS_write, args([fd, text.as_ptr() as usize, text.len()]));
            let _ = sys::close(fd as i32);
        }
    }
}

/// Takes the process's limits, when it has all its kernel threads: those of the original may have come later than what they limit now. That of a user's processes is lowered when it is that user's
/// and has its rights: the kernel would note that there are too many.
pub(super) unsafe fn limits(p: &Process, with_rights: bool) {
    let own = process::this();
    // Others are the host's own, and the server does not see them.
    let given = [libc::RLIMIT_STACK, libc::RLIMIT_CORE, libc::RLIMIT_NOFILE];
    let seen = given.iter().fold(own.limits_set.get(), |all, resource| all | 1 << resource)
        & !(1 << libc::RLIMIT_AS);
    // SAFETY: the tables' words.
    unsafe {
        for (resource, limit) in p.limits.iter().enumerate() {
            let mut now = [0u64; 2];
            let ask = [0, resource, 0, &raw mut now as usize, 0, 0];
            must(39, libc::SYS_prlimit64, ask);
            let is_lower = limit[0] < now[0] || limit[1] < now[1];
            let is_last = resource == libc::RLIMIT_NPROC as usize && is_lower;
            if seen & 1 << resource != 0 && now != *limit && is_last == with_rights {
                must(39, libc::SYS_prlimit64, args([0, resource, limit.as_ptr() as usize]));
            }
        }
    }
}

/// Enters the process's root, when nothing outside of it is needed any more.
pub(super) unsafe fn root(t: &Tables, p: &Process) {
    if p.root != NO_NAME {
        // SAFETY: a path of the tables.
        unsafe { must(40, libc::SYS_chroot, args([t.name(p.root)])) };
    }
}

/// The break is within a page, as libc knows it: the image has its end.
fn settle_break(p: &Process) {
    unsafe extern "C" {
        static __curbrk: usize;
    }
    // SAFETY: libc's word, which the turn's holder changes.
    let exact = unsafe { __curbrk };
    if p.brk != 0 && exact.next_multiple_of(super::PAGE_BYTES) == p.brk as usize {
        // SAFETY: in the last page of the heap: no memory comes or goes.
        unsafe { sys::raw(libc::SYS_brk, args([exact])) };
    }
}

/// Gives the running kernel thread the process's rights.
pub(super) unsafe fn rights(t: &Tables, p: &Process) {
    let Some(c) = t.credentials.get(p.credentials as usize) else { super::fail(41) };
    let groups = part(t.groups, c.others);
    // SAFETY: numbers, locals and the tables' words.
    unsafe {
        bound(c);
        if !same(c, groups) {
            let before = control(libc::PR_GET_SECUREBITS, 0);
            if control(libc::PR_SET_SECUREBITS, before as usize | NO_FIXUP) < 0 {
                must(42, libc::SYS_prctl, args([libc::PR_SET_KEEPCAPS as usize, 1]));
            }
            let [real, effective, saved, files] = c.groups.map(|id| id as usize);
            // An ordinary user's processes have the groups that they began with, for good.
            let set = args([groups.len(), groups.as_ptr() as usize]);
            if !matches!(sys::raw(libc::SYS_setgroups, set), 0 | NOT_PERMITTED) {
                super::fail(43);
            }
            must(44, libc::SYS_setresgid, args([real, effective, saved]));
            sys::raw(libc::SYS_setfsgid, args([files]));
            let [real, effective, saved, files] = c.users.map(|id| id as usize);
            must(45, libc::SYS_setresuid, args([real, effective, saved]));
            sys::raw(libc::SYS_setfsuid, args([files]));
            control(libc::PR_SET_SECUREBITS, before as usize);
        }
        process::this().told.tell_securebits();
        capabilities(c);
        process::this().told.tell_others();
    }
}

fn control(option: i32, arg: usize) -> isize {
    // SAFETY: an option that takes a number.
    unsafe { sys::raw(libc::SYS_prctl, args([option as usize, arg])) }
}

/// Gives up what the process has given up for ever.
fn bound(c: &Credentials) {
    for capability in 0..64 {
        match control(libc::PR_CAPBSET_READ, capability) {
            1 if c.capabilities[3] & 1 << capability == 0 => {
                // SAFETY: a number.
                unsafe {
                    let drop = libc::PR_CAPBSET_DROP as usize;
                    must(46, libc::SYS_prctl, args([drop, capability]));
                }
            }
            0 | 1 => {}
            _ => return,
        }
    }
}

/// Whether the running thread has these users and groups already.
unsafe fn same(c: &Credentials, groups: &[u32]) -> bool {
    let mut ids = [[0u32; 3]; 2];
    let mut others = [0u32; MOST_GROUPS];
    // SAFETY: locals.
    unsafe {
        for (nr, ids) in [libc::SYS_getresuid, libc::SYS_getresgid].into_iter().zip(&mut ids) {
            let [real, effective, saved] = ids;
            let at = [real, effective, saved].map(|id| &raw mut *id as usize);
            must(47, nr, args(at));
        }
        let asked = args([MOST_GROUPS, others.as_mut_ptr() as usize]);
        let count = sys::raw(libc::SYS_getgroups, asked);
        let is_known = usize::try_from(count).is_ok_and(|n| others.get(..n) == Some(groups));
        // Of a number that is none the kernel answers the present one.
        let none = args([usize::MAX]);
        let files = [libc::SYS_setfsuid, libc::SYS_setfsgid].map(|nr| sys::raw(nr, none) as u32);
        let [users, own] = [(0, c.users), (1, c.groups)]
            .map(|(n, wanted)| ids[n] == wanted[..3] && files[n] == wanted[3]);
        users && own && is_known
    }
}

/// Sets the capabilities.
unsafe fn capabilities(c: &Credentials) {
    let [effective, permitted, inheritable, _, ambient] = c.capabilities;
    let wanted = [effective, permitted, inheritable];
    let mut now = [0u32; 6];
    let (low, high) = (wanted.map(|set| set as u32), wanted.map(|set| (set >> 32) as u32));
    let sets = [low, high];
    let header = CAPABILITIES.as_ptr() as usize;
    // SAFETY: locals, laid out as the kernel's.
    unsafe {
        must(48, libc::SYS_capget, args([header, now.as_mut_ptr() as usize]));
        if now[..3] != low || now[3..] != high {
            must(48, libc::SYS_capset, args([header, sets.as_ptr() as usize]));
        }
    }
    for capability in (0..64).filter(|capability| ambient & 1 << capability != 0) {
        let raise = libc::PR_CAP_AMBIENT_RAISE as usize;
        // SAFETY: numbers.
        unsafe {
            must(49, libc::SYS_prctl, args([libc::PR_CAP_AMBIENT as usize, raise, capability]));
        }
    }
}
