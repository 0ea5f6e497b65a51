//! The rights that the sandbox gives up for good, whatever the server executes; as root and as an ordinary user.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use skein_sandbox::Exit;
use support::*;

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
}

const CALLS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static int failed;
#define REFUSED(wanted, nr, ...) do { \
    errno = 0; \
    long result = syscall(nr, __VA_ARGS__); \
    if (result != -1 || errno != (wanted)) { printf("%s: %ld, errno %d\n", #nr, result, errno); failed = 1; } \
} while (0)
int main(int count, char **words) {
    REFUSED(EPERM, SYS_mount, "none", "/tmp", "tmpfs", 0, 0);
    REFUSED(EPERM, SYS_mount, 0, "/", 0, MS_REMOUNT | MS_BIND, 0);
    REFUSED(EPERM, SYS_umount2, "/proc", MNT_DETACH);
    REFUSED(EPERM, SYS_pivot_root, ".", ".");
    REFUSED(EPERM, SYS_setns, 0, 0);
    REFUSED(EPERM, SYS_unshare, CLONE_NEWUSER);
    REFUSED(EPERM, SYS_unshare, 0);
    REFUSED(EPERM, SYS_bpf, 0, 0, 0);
    REFUSED(EPERM, SYS_ptrace, 0, 0, 0, 0);
    REFUSED(EPERM, SYS_kexec_load, 0, 0, 0, 0);
    REFUSED(EPERM, SYS_finit_module, 0, "", 0);
    REFUSED(EPERM, SYS_init_module, 0, 0, "");
    REFUSED(EPERM, SYS_delete_module, "none", 0);
    REFUSED(EPERM, SYS_open_by_handle_at, 0, 0, 0);
    REFUSED(EPERM, SYS_keyctl, 0, 0, 0, 0, 0);
    REFUSED(EPERM, SYS_perf_event_open, 0, 0, 0, 0, 0);
    REFUSED(EPERM, SYS_userfaultfd, 0);
    char word = 0;
    struct iovec part = {&word, 1};
    REFUSED(EPERM, SYS_process_vm_readv, 1, &part, 1, &part, 1, 0);
    REFUSED(EPERM, SYS_process_vm_writev, 1, &part, 1, &part, 1, 0);
    REFUSED(EPERM, SYS_iopl, 0);
    REFUSED(EPERM, SYS_open_tree, 0, "/", 0);
    REFUSED(EPERM, SYS_mount_setattr, 0, "/", 0, 0, 0);
    REFUSED(EPERM, SYS_io_uring_setup, 1, 0);
    REFUSED(EPERM, SYS_pidfd_getfd, 0, 0, 0);
    REFUSED(EPERM, SYS_clone, CLONE_NEWUSER, 0, 0, 0, 0);
    REFUSED(EPERM, SYS_clone, CLONE_NEWNS, 0, 0, 0, 0);
    REFUSED(ENOSYS, SYS_clone3, 0, 0);
    // Sockets are the runtime's: the server can make none of the kernel's that reaches a file, another network or the machine's host.
    for (int family = AF_UNIX; family < 48; family++) REFUSED(EPERM, SYS_socket, family, SOCK_STREAM, 0);
    REFUSED(EPERM, SYS_connect, 0, 0, 0);
    // The node, and all others outside.
    for (int i = 1; i < count; i++) {
        REFUSED(ESRCH, SYS_kill, atoi(words[i]), 0);
        REFUSED(ESRCH, SYS_pidfd_open, atoi(words[i]), 0);
    }
    // init gets no signal from inside.
    kill(1, SIGKILL);
    kill(1, SIGSTOP);
    const char *hidden[] = {
        "/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv", "/proc/1/pagemap", "/proc/1/fd/0", "/proc/1/root/etc", "/proc/1/cwd/etc",
        "/proc/1/ns/mnt", "/proc/kcore", "/proc/keys", "/proc/kmsg", "/proc/timer_list", "/proc/slabinfo", "/proc/interrupts", 0};
    for (const char **path = hidden; *path; path++) {
        char byte;
        int fd = open(*path, O_RDONLY);
        if (fd >= 0 && read(fd, &byte, 1) != 0) { printf("%s can be read\n", *path); failed = 1; }
    }
    const char *kernels[] = {
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/sys/fs/file-max",
        "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", 0};
    for (const char **path = kernels; *path; path++) {
        if (open(*path, O_WRONLY | O_APPEND) >= 0) { printf("%s can be written\n", *path); failed = 1; }
    }
    // A device works; the host's settings of it stay.
    int null = open("/dev/null", O_WRONLY);
    if (null < 0 || write(null, "x", 1) != 1) { printf("/dev/null: errno %d\n", errno); failed = 1; }
    struct stat st;
    fstat(null, &st);
    if (fchmod(null, st.st_mode & 07777) == 0) { printf("the host's /dev/null can be changed\n"); failed = 1; }
    int child = fork();
    if (child == 0) _exit(0);
    if (child < 0) { printf("fork: errno %d\n", errno); failed = 1; }
    return failed;
}
"#;

#[test]
fn what_reaches_beyond_the_server_is_refused_from_any_text() {
    let dir = workspace();
    let program = compile(dir.path(), "calls", CALLS, &[]);
    let ran = Setup::new(&program, &[&std::process::id().to_string()]).run();
    assert_eq!((ran.exit, ran.stdout.as_str()), (Exit::Code(0), ""), "{}", ran.stderr);
}

#[test]
fn few_capabilities_are_left_and_none_comes_back() {
    let text = shell("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
    let kept = 0x405fb_u64;
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap();
        let value = value.trim();
        match name {
            "NoNewPrivs" => assert_eq!(value, "1"),
            "Seccomp" => assert_eq!(value, "2"),
            "CapInh" | "CapAmb" => assert_eq!(value, "0000000000000000", "{line}"),
            // The test's machine may have fewer capabilities.
            _ => assert_eq!(u64::from_str_radix(value, 16).unwrap() & !kept, 0, "{line}"),
        }
    }
    assert_eq!(text.lines().count(), 7, "{text}");
}

/// A server that waits.
fn waiting() -> (Setup, skein_sandbox::ServerProcess) {
    let setup = Setup::new(Path::new("/bin/sh"), &["-c", "echo ready; exec sleep 1000"]);
    let server = setup.start();
    wait_until("ready", || fs::read_to_string(setup.out()).unwrap() == "ready\n");
    (setup, server)
}

#[test]
fn init_has_nothing_of_the_nodes() {
    // Made while running, so that it is in no program's text.
    let secret = format!("a client's word, {}", std::process::id()).into_bytes();
    let (_setup, server) = waiting();
    let init = format!("/proc/{}", server.init());
    assert_eq!(fs::read(format!("{init}/cmdline")).unwrap(), b"skein-init\0");
    let memory = fs::File::open(format!("{init}/mem"));
    if !is_root() {
        let refused = memory.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
        assert!(fs::read_dir(format!("{init}/fd")).is_err());
        return;
    }
    // The kernel's last number of a process, and the node's questions for it; of the node, for the ends of children, and to the node.
    let mut descriptors: Vec<String> = fs::read_dir(format!("{init}/fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
        .map(|name| name.split(['[', ']']).take(2).collect::<Vec<_>>().join(" "))
        .map(|name| if name.starts_with("socket") { "socket:".to_owned() } else { name })
        .collect();
    descriptors.sort();
    let numbers = "/proc/sys/kernel/ns_last_pid";
    let expected = [numbers, "anon_inode: pidfd", "anon_inode: signalfd", "socket:", "socket:"];
    assert_eq!(descriptors, expected);
    assert_eq!(fs::read(format!("{init}/environ")).unwrap(), b"");
    let (own, inits) = (fs::File::open("/proc/self/mem").unwrap(), memory.unwrap());
    let own_maps = fs::read_to_string("/proc/self/maps").unwrap();
    let inits_maps = fs::read_to_string(format!("{init}/maps")).unwrap();
    assert!(holds(&own, &own_maps, &secret), "the search finds what is there");
    assert!(!holds(&inits, &inits_maps, &secret));
}

/// Whether writable private memory holds these bytes.
fn holds(memory: &fs::File, maps: &str, wanted: &[u8]) -> bool {
    maps.lines().filter(|line| line.contains(" rw-p ")).any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let mut bytes = vec![0; (number(last) - number(first)) as usize];
        // Unreadable memory is gone (another thread of this test frees memory).
        let read = memory.read_at(&mut bytes, number(first)).unwrap_or(0);
        bytes[..read].windows(wanted.len()).any(|part| part == wanted)
    })
}

#[test]
fn what_init_has_mounted_is_locked_even_with_all_capabilities() {
    if !is_root() {
        // An ordinary user's programs lose their capabilities at exec, in whatever namespace.
        return;
    }
    let (_setup, server) = waiting();
    let pid = server.pid().to_string();
    // An attacker from outside, with all capabilities and without a filter, in the server's namespaces.
    let inside = |words: &[&str]| {
        let output = Command::new("nsenter")
            .args(["--target", &pid, "--user", "--mount", "--preserve-credentials", "--"])
            .args(words)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(inside(&["mount", "-t", "tmpfs", "none", "/mnt"]), (true, String::new()));
    let (done, said) = inside(&["mount", "-o", "remount,bind,rw", "/proc/sys"]);
    assert!(!done && said.contains("permission denied"), "{said}");
    // The files below cannot be uncovered either.
    for place in ["/proc/sys", "/proc/kcore", "/proc", "/dev/null", "/usr", "/"] {
        for options in [&["umount", place][..], &["umount", "--lazy", place]] {
            assert!(!inside(options).0, "{options:?}");
        }
    }
    let (done, _) = inside(&["sh", "-c", "echo 1 > /proc/sys/vm/drop_caches"]);
    assert!(!done);
    assert_eq!(inside(&["umount", "/mnt"]), (true, String::new()), "its own");
}
