//! Calls that no process in the sandbox may make from any code, not even from the runtime's, which its own net lets through.
//!
//! The runtime's filter recognises the runtime by the address of its instructions, so a server that jumps there bypasses it. The calls that it
//! reaches then must be harmless: the supervisor installs a second filter against all others before the server's exec.

use crate::{Family, Treatment, syscall};

/// Whether the call is refused to all of the sandbox. Numbers without a row are refused too.
#[must_use]
pub fn forbidden(nr: i64) -> bool {
    let Some(row) = syscall(nr) else { return true };
    match row.treatment {
        Treatment::Refused(_) => match row.family {
            // The runtime installs its net by this call.
            Family::Machine => row.name != "seccomp",
            _ => OTHERS.contains(&row.name),
        },
        _ => VIRTUAL.contains(&row.name),
    }
}

/// Calls that the runtime answers itself and never makes. Of sockets it makes pairs only: it creates none without a namespace, and none that reaches
/// a file of the host.
const VIRTUAL: [&str; 6] = ["accept", "accept4", "bind", "connect", "listen", "socket"];

/// Refused calls of other families that reach beyond the process: other processes, files despite their permissions, rarely used parts of the
/// kernel. `process_vm_readv` and `process_vm_writev` are allowed: the runtime reads its own process by them, where a bad address must
/// not end it, and they reach no more than `/proc/PID/mem` does: the server's own processes, and not init.
const OTHERS: [&str; 26] = [
    "fanotify_init",
    "fanotify_mark",
    "get_mempolicy",
    "io_cancel",
    "io_destroy",
    "io_getevents",
    "io_pgetevents",
    "io_setup",
    "io_submit",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "kcmp",
    "lookup_dcookie",
    "mbind",
    "memfd_secret",
    "migrate_pages",
    "modify_ldt",
    "move_pages",
    "name_to_handle_at",
    "open_by_handle_at",
    "pidfd_getfd",
    "process_madvise",
    "ptrace",
    "set_mempolicy",
    "userfaultfd",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SYSCALLS;

    #[test]
    fn what_reaches_beyond_the_server_is_forbidden() {
        let named = |name: &str| SYSCALLS.iter().find(|row| row.name == name).unwrap();
        for name in [
            "mount",
            "umount2",
            "pivot_root",
            "setns",
            "unshare",
            "bpf",
            "kexec_load",
            "kexec_file_load",
            "init_module",
            "finit_module",
            "delete_module",
            "keyctl",
            "add_key",
            "request_key",
            "perf_event_open",
            "iopl",
            "ioperm",
            "open_tree",
            "move_mount",
            "fsopen",
            "fsmount",
            "fsconfig",
            "mount_setattr",
            "reboot",
            "swapon",
            "acct",
            "quotactl",
            "syslog",
        ] {
            assert!(forbidden(i64::from(named(name).nr)), "{name}");
        }
        for name in OTHERS.into_iter().chain(VIRTUAL) {
            assert!(forbidden(i64::from(named(name).nr)), "{name}");
        }
        for name in [
            "read",
            "clone",
            "execve",
            "seccomp",
            "rseq",
            "prctl",
            "futex",
            "process_vm_readv",
            "socketpair",
        ] {
            assert!(!forbidden(i64::from(named(name).nr)), "{name}");
        }
        assert!(forbidden(337) && forbidden(1 << 30) && forbidden(-1));
    }
}
