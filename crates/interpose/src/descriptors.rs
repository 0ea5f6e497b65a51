//! Which arguments of a call are descriptors: the runtime protects its own descriptors from them.
//!
//! Descriptors in memory instead of arguments (`poll`, `select`, `SCM_RIGHTS`) are checked by the runtime where it reads them.

/// The positions of the arguments that are descriptors. Calls that are always refused are left out.
#[must_use]
pub const fn descriptors(nr: i64) -> &'static [usize] {
    match nr {
        // read write close fstat lseek ioctl pread64 pwrite64 readv writev
        0 | 1 | 3 | 5 | 8 | 16..=20 => &[0],
        // mmap
        9 => &[4],
        // dup; connect accept sendto recvfrom sendmsg recvmsg shutdown bind listen getsockname getpeername
        32 | 42..=52 => &[0],
        // dup2 sendfile
        33 | 40 => &[0, 1],
        // setsockopt getsockopt; fcntl flock fsync fdatasync ftruncate; fchdir fchmod fchown
        54 | 55 | 72..=75 | 77 | 81 | 91 | 93 => &[0],
        // fstatfs readahead fsetxattr fgetxattr flistxattr fremovexattr getdents64 fadvise64
        138 | 187 | 190 | 193 | 196 | 199 | 217 | 221 => &[0],
        // epoll_wait
        232 => &[0],
        // epoll_ctl
        233 => &[0, 2],
        // openat mkdirat mknodat fchownat futimesat newfstatat unlinkat
        257..=263 => &[0],
        // renameat linkat
        264 | 265 => &[0, 2],
        // symlinkat
        266 => &[1],
        // readlinkat fchmodat faccessat
        267..=269 => &[0],
        // splice
        275 => &[0, 2],
        // tee
        276 => &[0, 1],
        // sync_file_range vmsplice utimensat epoll_pwait fallocate timerfd_settime timerfd_gettime accept4
        277 | 278 | 280 | 281 | 285..=288 => &[0],
        // dup3
        292 => &[0, 1],
        // preadv pwritev recvmmsg syncfs sendmmsg
        295 | 296 | 299 | 306 | 307 => &[0],
        // renameat2
        316 => &[0, 2],
        // execveat preadv2 pwritev2 statx
        322 | 327 | 328 | 332 => &[0],
        // copy_file_range
        326 => &[0, 2],
        // pidfd_send_signal openat2 faccessat2 epoll_pwait2 fchmodat2; setxattrat and its kind
        424 | 437 | 439 | 441 | 452 | 463..=466 => &[0],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SYSCALLS, Treatment};

    #[test]
    fn calls_that_name_a_descriptor_are_known() {
        let names = |wanted: &[usize]| {
            let rows = SYSCALLS.iter().filter(|row| descriptors(i64::from(row.nr)) == wanted);
            rows.map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[4]), ["mmap"]);
        assert_eq!(names(&[1]), ["symlinkat"]);
        assert_eq!(names(&[0, 1]), ["dup2", "sendfile", "tee", "dup3"]);
        let twice = ["epoll_ctl", "renameat", "linkat", "splice", "renameat2", "copy_file_range"];
        assert_eq!(names(&[0, 2]), twice);
        for row in SYSCALLS {
            let named = row.name.starts_with('f') && row.name.contains("xattr")
                || row.name.ends_with("at") && !row.name.contains("stat")
                || ["ftruncate", "fallocate", "fchown", "fchmod", "fchdir"].contains(&row.name);
            let other =
                ["creat", "shmat", "name_to_handle_at", "open_by_handle_at"].contains(&row.name);
            if named && !other && !matches!(row.treatment, Treatment::Refused(_)) {
                assert!(!descriptors(i64::from(row.nr)).is_empty(), "{}", row.name);
            }
        }
    }

    #[test]
    fn what_passes_the_net_has_one_descriptor_at_most() {
        for row in SYSCALLS {
            if let Treatment::Ordered(_) = row.treatment {
                assert!(descriptors(i64::from(row.nr)).len() <= 1, "{}", row.name);
            }
        }
    }
}
