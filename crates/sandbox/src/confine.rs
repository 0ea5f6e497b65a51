//! The server's remaining rights, whatever it executes: a few capabilities, and no system call that reaches beyond it.
//!
//! The server's process gives up all other rights just before its exec. They cannot be taken back: privileges never grow again (`no_new_privs`), and the filter
//! stays.

use std::ptr;

use skein_interpose::forbidden;

use super::sys::{Errno, check, check_int};

/// The kept capabilities where the server runs as root; docker's containers have four more. An ordinary user's server has none.
const KEPT: u64 = 1 << 0 // CAP_CHOWN
    | 1 << 1 // CAP_DAC_OVERRIDE
    | 1 << 3 // CAP_FOWNER
    | 1 << 4 // CAP_FSETID
    | 1 << 5 // CAP_KILL
    | 1 << 6 // CAP_SETGID
    | 1 << 7 // CAP_SETUID
    | 1 << 8 // CAP_SETPCAP
    | 1 << 10 // CAP_NET_BIND_SERVICE
    | 1 << 18; // CAP_SYS_CHROOT

// BPF: load a word, jump on comparison, return.
const LOAD: u16 = 0x20;
const JUMP_EQ: u16 = 0x15;
const JUMP_GE: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;
// Offsets in `struct seccomp_data`.
const AT_NR: u32 = 0;
const AT_ARCH: u32 = 4;
const AT_ARG_0_LOW: u32 = 16;
/// Of `userfaultfd`: it does not catch faults inside the kernel, as any user may ask for.
const USER_MODE_ONLY: u32 = 1;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// All namespaces that `clone` can make.
const NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP)
    .cast_unsigned();

/// The treatment of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Allowed,
    /// `EPERM`.
    Forbidden,
    /// `ENOSYS`: libc then uses `clone`, whose flags can be seen.
    Missing,
    /// Allowed without new namespaces.
    Clone,
    /// Allowed for faults in user mode: the node sees by it which pages a process writes.
    Faults,
}

fn fate(nr: i64) -> Fate {
    match nr {
        libc::SYS_clone => Fate::Clone,
        libc::SYS_clone3 => Fate::Missing,
        libc::SYS_userfaultfd => Fate::Faults,
        _ if forbidden(nr) => Fate::Forbidden,
        _ => Fate::Allowed,
    }
}

/// The filter's program: the number is compared before anything else, so that the kernel knows in advance which calls pass.
pub(super) fn filter() -> Vec<libc::sock_filter> {
    let deny = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut code = vec![
        instruction(LOAD, AT_ARCH, 0, 0),
        instruction(JUMP_EQ, AUDIT_ARCH_X86_64, 1, 0),
        instruction(RETURN, deny, 0, 0),
        instruction(LOAD, AT_NR, 0, 0),
    ];
    let end = skein_interpose::SYSCALLS.last().map_or(0, |row| i64::from(row.nr) + 1);
    // Every number at which the answer changes.
    let changes: Vec<i64> = (1..=end).filter(|nr| fate(*nr) != fate(*nr - 1)).collect();
    decide(&mut code, &changes, 0);
    code
}

/// The decision over `changes`; `first` is a number below the first of them.
fn decide(code: &mut Vec<libc::sock_filter>, changes: &[i64], first: i64) {
    let answer = |errno: i32| libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
    let Some(pivot) = changes.get(changes.len() / 2) else {
        match fate(first) {
            Fate::Allowed => code.push(instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0)),
            Fate::Forbidden => code.push(instruction(RETURN, answer(libc::EPERM), 0, 0)),
            Fate::Missing => code.push(instruction(RETURN, answer(libc::ENOSYS), 0, 0)),
            Fate::Clone => code.extend([
                instruction(LOAD, AT_ARG_0_LOW, 0, 0),
                instruction(JUMP_SET, NAMESPACES, 0, 1),
                instruction(RETURN, answer(libc::EPERM), 0, 0),
                instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
            ]),
            Fate::Faults => code.extend([
                instruction(LOAD, AT_ARG_0_LOW, 0, 0),
                instruction(JUMP_SET, USER_MODE_ONLY, 1, 0),
                instruction(RETURN, answer(libc::EPERM), 0, 0),
                instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
            ]),
        }
        return;
    };
    let (below, above) = changes.split_at(changes.len() / 2);
    let at = code.len();
    code.push(instruction(JUMP_GE, pivot.unsigned_abs() as u32, 0, 0));
    decide(code, below, first);
    let left = code.len() - at - 1;
    code[at].jt = u8::try_from(left).expect("the table has few runs");
    decide(code, &above[1..], *pivot);
}

const fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Gives up capabilities for good.
pub(super) fn drop_capabilities() -> Result<(), Errno> {
    for capability in 0..64 {
        // SAFETY: takes no pointers. EINVAL: the kernel has no more capabilities.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) };
        if dropped < 0 {
            break;
        }
        if dropped == 1 && KEPT & 1 << capability == 0 {
            // SAFETY: as above.
            check_int(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) })?;
        }
    }
    // SAFETY: as above.
    check_int(unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    })?;
    let mut sets = Capabilities::of_this_process()?;
    sets.effective &= KEPT;
    sets.permitted &= KEPT;
    // None over an exec by an ordinary user.
    sets.inheritable = 0;
    sets.set()
}

/// The capabilities of a process.
struct Capabilities {
    effective: u64,
    permitted: u64,
    inheritable: u64,
}

impl Capabilities {
    /// `_LINUX_CAPABILITY_VERSION_3`, for this process.
    const HEADER: [u32; 2] = [0x2008_0522, 0];

    fn of_this_process() -> Result<Self, Errno> {
        // Effective, permitted, inheritable: the lower halves, then the upper ones.
        let mut sets = [0u32; 6];
        let header = Self::HEADER;
        // SAFETY: header and data are as the kernel reads and writes them in this version.
        check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, &raw mut sets) })?;
        let set = |at: usize| u64::from(sets[at]) | u64::from(sets[at + 3]) << 32;
        Ok(Self { effective: set(0), permitted: set(1), inheritable: set(2) })
    }

    fn set(&self) -> Result<(), Errno> {
        let all = [self.effective, self.permitted, self.inheritable];
        let sets = [all.map(|set| set as u32), all.map(|set| (set >> 32) as u32)];
        let header = Self::HEADER;
        // SAFETY: as above.
        check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const sets) })
            .map(drop)
    }
}

/// Installs the filter. The process has `no_new_privs`.
pub(super) fn install(code: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: code.len() as u16,
        // The kernel only reads it.
        filter: ptr::from_ref(&code[0]).cast_mut(),
    };
    // SAFETY: a valid program, which is alive.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    })
    .map(drop)
}

/// Keeps all capabilities of this process over its next exec, which would take them from an ordinary user.
pub(super) fn keep_capabilities() -> Result<(), Errno> {
    let mut sets = Capabilities::of_this_process()?;
    sets.inheritable = sets.permitted;
    sets.set()?;
    for capability in (0..64).filter(|capability| sets.permitted & 1 << capability != 0) {
        let raise = libc::PR_CAP_AMBIENT_RAISE;
        // SAFETY: takes no pointers.
        check_int(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, capability as u64, 0, 0) })?;
    }
    Ok(())
}

/// From now on only root of the host can read this process's memory and descriptors, and it leaves no core.
pub fn hide_memory() {
    // SAFETY: takes no pointers. It cannot fail.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}
