//! The sandbox: the server's view, its remains, and its end; as root and as an ordinary user.

mod support;

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skein_sandbox::{Exit, Isolation, LaunchError, LaunchSpec, Limits, launch};
use support::*;

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
}

const SURROUNDINGS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
extern char **environ;
int main(int argc, char **argv) {
    int local;
    const unsigned char *random = (void *)getauxval(AT_RANDOM);
    for (int i = 0; i < 16; i++) putchar(random[i]);
    printf(" vdso=%lu", getauxval(AT_SYSINFO_EHDR));
    printf(" %p %p %p %p %p\n", (void *)&local, malloc(100), (void *)printf, (void *)main, (void *)environ);
    for (char **e = environ; *e; e++) printf("%s\n", *e);
    FILE *self = fopen("/proc/self/personality", "r");
    char line[64] = "";
    if (self) fgets(line, sizeof line, self);
    printf("%s", line);
}
"#;

#[test]
fn addresses_randomness_and_environment_are_the_same_every_time() {
    let dir = workspace();
    let program = compile(dir.path(), "around", SURROUNDINGS, &[]);
    for isolation in [Isolation::Full, Isolation::None] {
        let mut setup = Setup::new(&program, &["x"]);
        setup.isolation = isolation;
        let runs: Vec<Ran> = (0..3).map(|_| setup.run()).collect();
        assert_eq!(runs[0].exit, Exit::Code(0), "{}", runs[0].stderr);
        assert!(runs[0].stdout.starts_with("0123456789abcdef vdso=0 0x7ff"), "{}", runs[0].stdout);
        assert!(runs[0].stdout.contains("\nPATH=/usr/bin:/bin\nONE=1=2\n00040000\n"));
        assert_eq!(runs[0], runs[1]);
        assert_eq!(runs[0], runs[2]);
    }
}

#[test]
fn pids_names_and_limits_are_fixed() {
    let text = shell(
        "echo $$ $PPID; hostname; cat /proc/sys/kernel/domainname; umask; ulimit -n; ulimit -Hn; ulimit -s; ulimit -c; \
         grep -E '^(NoNewPrivs|SigBlk|SigIgn|TracerPid)' /proc/self/status; readlink /proc/self/fd/0; \
         ls /proc/self/fd; cat /proc/1/comm; grep -c . /proc/net/dev; ls /sys",
    );
    let expected = "2 1\nflock\n(none)\n0022\n1024\n4096\n8192\n0\nTracerPid:\t0\nSigBlk:\t0000000000000000\n\
        SigIgn:\t0000000000000000\nNoNewPrivs:\t1\n/dev/null\n0\n1\n2\n3\nskein-init\n3\n";
    assert_eq!(text, expected);
}

#[test]
fn the_server_keeps_its_user() {
    let text = shell("id -u; id -g; test -r /etc/passwd && echo readable");
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    assert_eq!(text, format!("{uid}\n{gid}\nreadable\n"));
    if is_root() {
        // Every id is mapped: files keep their owners, and a server may become another user.
        let text = shell(
            "stat -c %u /etc/passwd; touch /tmp/x; chown 1234:99 /tmp/x; stat -c %u:%g /tmp/x; \
             setpriv --reuid=1234 --regid=99 --clear-groups id -u",
        );
        assert_eq!(text, "0\n1234:99\n1234\n");
    }
}

#[test]
fn writes_stay_in_the_layer_and_each_start_has_a_fresh_one() {
    let dir = workspace();
    let file = dir.path().join("file");
    fs::write(&file, "host").unwrap();
    let script = "cat file; echo server > file; cat file; echo new > new; mkdir d; mv new d/; ls; \
        echo x > /tmp/skein-never; echo x > /var/tmp/skein-never; echo x > /dev/shm/skein-never; rm file; ls";
    for _ in 0..2 {
        let text = shell_in(dir.path(), script);
        assert_eq!(text, "hostserver\nd\nfile\nd\n");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "host");
    for path in ["/tmp/skein-never", "/var/tmp/skein-never", "/dev/shm/skein-never"] {
        assert!(!Path::new(path).exists(), "{path}");
    }
}

#[test]
fn directories_and_links_have_the_hosts_times() {
    let stat = "stat -c '%n %Y %F' /bin /etc /usr /home";
    let native = std::process::Command::new("sh").args(["-c", stat]).output().unwrap();
    assert_eq!(shell(stat), String::from_utf8(native.stdout).unwrap());
    assert_eq!(shell("stat -c %Y /dev /dev/shm"), "0\n0\n");
}

#[test]
fn devices_are_there_and_work() {
    let text = shell(
        "ls /dev; echo x > /dev/null; head -c 3 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c; \
         head -c 8 /dev/random | wc -c; stat -c %a /dev/shm /tmp; \
         (echo x > /dev/full) 2>/dev/null || echo full; echo out >> /dev/stdout",
    );
    let expected = "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n \
        00 00 00\n8\n8\n1777\n1777\nfull\nout\n";
    assert_eq!(text, expected);
}

#[test]
fn the_layer_has_a_bound() {
    let program = Path::new("/bin/sh");
    let mut setup = Setup::new(program, &["-c", "head -c 9000000 /dev/zero > /tmp/large"]);
    setup.layer_bytes = 4 << 20;
    let ran = setup.run();
    assert_ne!(ran.exit, Exit::Code(0));
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
}

#[test]
fn a_layer_on_disk_lies_below_a_directory_that_the_server_changes() {
    let dir = workspace();
    fs::write(dir.path().join("host"), "host").unwrap();
    let layer = dir.path().join("layer");
    fs::create_dir(&layer).unwrap();
    let script = "echo more >> host; mkdir -p a/b; echo new > a/b/new; rm a/b/new; echo new > a/b/new; ln a/b/new a/other; \
        head -c 9000000 /dev/zero > large; cat host a/other; stat -c %s large; echo shared > /dev/shm/shared; cat /dev/shm/shared";
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
    setup.cwd = fs::canonicalize(dir.path()).unwrap();
    setup.layer_bytes = 1 << 20;
    setup.layer_dir = Some(layer.clone());
    let mut server = setup.start();
    let exit = server.wait().unwrap();
    let ran = setup.ran(exit);
    assert_eq!((ran.exit, ran.stderr.as_str()), (Exit::Code(0), ""));
    assert_eq!(ran.stdout, "hostmore\nnew\n9000000\nshared\n");
    assert_eq!(fs::read_to_string(dir.path().join("host")).unwrap(), "host");
    let written = server.layer().unwrap().written(None).unwrap();
    let has = |name: &str| written.files.iter().any(|file| file.path.ends_with(name));
    assert!(["/host", "/a/b/new", "/a/other", "/large", "/dev/shm/shared"].into_iter().all(has));
    assert_eq!(written.bytes, 4 + 5 + 4 + 4 + 9_000_000 + 7);
    let on_disk = String::from_utf8(
        std::process::Command::new("find")
            .arg(&layer)
            .arg("-size")
            .arg("+8000k")
            .output()
            .unwrap()
            .stdout,
    );
    assert!(on_disk.unwrap().trim_end().ends_with("/large"));
    // An ordinary user may not enter what overlayfs worked in.
    drop(server);
    skein_sandbox::remove_layer(&layer).unwrap();
    assert!(!layer.exists());
}

#[test]
fn descriptors_arrive_at_their_numbers_even_when_they_overlap() {
    let dir = workspace();
    let files: Vec<fs::File> = ["a", "b"]
        .map(|name| {
            let path = dir.path().join(name);
            fs::write(&path, name).unwrap();
            fs::File::open(path).unwrap()
        })
        .into();
    let out = fs::File::create(dir.path().join("out")).unwrap();
    let numbers = [files[0].as_raw_fd(), files[1].as_raw_fd()];
    let script =
        format!("cat <&{} <&{1}; cat <&{0}; ls /proc/self/fd | wc -l", numbers[0], numbers[1]);
    let spec = |inherit| LaunchSpec {
        program: Path::new("/bin/bash"),
        argv: ["bash", "-c", &script].map(Into::into).into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: Path::new("/"),
        inherit,
        stdout: out.as_fd(),
        stderr: out.as_fd(),
        hostname: "flock",
        layer_bytes: 1 << 20,
        layer_dir: None,
        writable: Vec::new(),
        pins: skein_sandbox::Pins::default(),
        limits: Limits::default(),
        isolation: Isolation::Full,
        restore: None,
        random: [0; 16],
    };
    // Swapped: each one's number is the other's target.
    let swapped = vec![(files[0].as_fd(), numbers[1]), (files[1].as_fd(), numbers[0])];
    let exit = launch(&spec(swapped)).unwrap().wait().unwrap();
    assert_eq!(exit, Exit::Code(0));
    // 0, 1, 2, the two, and the one of ls.
    assert_eq!(fs::read_to_string(dir.path().join("out")).unwrap(), "ab6\n");
    for targets in [[2, 900], [900, 900]] {
        let inherit = files.iter().map(AsFd::as_fd).zip(targets).collect();
        assert!(matches!(launch(&spec(inherit)), Err(LaunchError::Target { .. })));
    }
}

#[test]
fn exits_are_reported() {
    for (script, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 41", Exit::Code(41)),
        ("kill -SEGV $$", Exit::Signal(libc::SIGSEGV)),
        // Orphans do not count, and do not outlive it.
        ("sleep 1000 & (exit 3) & wait $!; exit 5", Exit::Code(5)),
    ] {
        for isolation in [Isolation::Full, Isolation::None] {
            let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
            setup.isolation = isolation;
            let mut server = setup.start();
            let mut waiting = [PollFd::new(server.exit_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut waiting, PollTimeout::from(20_000u16)).unwrap(), 1, "{script}");
            assert_eq!(server.try_wait().unwrap(), Some(exit), "{script}");
            assert_eq!(server.wait().unwrap(), exit);
        }
    }
}

#[test]
fn a_running_server_can_be_found_signalled_and_killed() {
    for isolation in [Isolation::Full, Isolation::None] {
        let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
        let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
        setup.isolation = isolation;
        let mut server = setup.start();
        assert_eq!(server.try_wait().unwrap(), None);
        let comm = fs::read_to_string(format!("/proc/{}/comm", server.pid())).unwrap();
        assert_eq!(comm, "sh\n");
        wait_until("ready", || fs::read_to_string(setup.out()).unwrap() == "ready\n");
        server.signal(libc::SIGTERM).unwrap();
        assert_eq!(server.wait().unwrap(), Exit::Code(7));

        let mut server = setup.start();
        server.kill().unwrap();
        assert_eq!(server.wait().unwrap(), Exit::Signal(libc::SIGKILL));
        let server = setup.start();
        let pid = server.pid();
        drop(server);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn the_layer_can_be_looked_into_from_outside() {
    if !is_root() {
        return;
    }
    let script = "echo inside > /etc/skein-note; echo ready; sleep 1000";
    let setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
    let server = setup.start();
    wait_until("ready", || fs::read_to_string(setup.out()).unwrap() == "ready\n");
    let note = format!("/proc/{}/root/etc/skein-note", server.pid());
    assert_eq!(fs::read_to_string(note).unwrap(), "inside\n");
    assert!(!Path::new("/etc/skein-note").exists());
}

#[test]
fn failures_are_named() {
    let program = Path::new("/bin/true");
    let fails = |change: &dyn Fn(&mut Setup)| {
        let mut setup = Setup::new(program, &[]);
        change(&mut setup);
        let error = setup.try_start().map(|mut server| server.wait()).expect_err("must fail");
        assert!(!error.to_string().contains('\n'), "{error}");
        error
    };
    let error = fails(&|setup| setup.cwd = "/nowhere/at/all".into());
    assert!(matches!(error, LaunchError::WorkingDirectory { .. }), "{error}");
    let error = fails(&|setup| setup.program = "/bin/no-such-program".into());
    assert!(matches!(error, LaunchError::Vanished { .. }), "{error}");
    assert_eq!(error.exit_code(), 127);
    let error = fails(&|setup| setup.program = "/etc/passwd".into());
    assert!(matches!(error, LaunchError::Exec { .. }), "{error}");
    assert_eq!(error.exit_code(), 126);
    let error = fails(&|setup| setup.limits.open_files_max = u64::MAX - 1);
    assert!(matches!(error, LaunchError::Limit { name: "open files", .. }), "{error}");
    let error = fails(&|setup| setup.argv.push("a\0b".into()));
    assert!(matches!(error, LaunchError::ZeroByte { .. }), "{error}");
    let error = fails(&|setup| setup.layer_bytes = 4096);
    assert!(
        matches!(error, LaunchError::FileSystem { .. } | LaunchError::Overlay { .. }),
        "{error}"
    );
}

#[test]
fn a_directory_with_odd_characters_is_no_obstacle() {
    let dir = workspace();
    let odd = dir.path().join("a:b,c\\d e");
    fs::create_dir(&odd).unwrap();
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(shell_in(&odd, "echo x > y; cat y; basename \"$PWD\""), "x\na:b,c\\d e\n");
}

const ASKS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
static int ask(unsigned number) {
    int answer = -1;
    send(909, &number, sizeof number, MSG_NOSIGNAL);
    return recv(909, &answer, sizeof answer, 0) == sizeof answer ? answer : -1;
}
int main(int argc, char **argv) {
    char text[6] = "";
    pread(908, text, 5, 0);
    printf("%s", text);
    for (unsigned number = 30000; number > 29000; number -= 500) {
        printf(" %d", ask(number));
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, NULL, 0);
        printf(" %d", child);
    }
    printf(" %s", ask(0xffffffff) > 0 ? "refused" : "set");
    /* Anything else is the end of it. */
    if (argc > 1) {
        send(909, "nonsense", atoi(argv[1]), MSG_NOSIGNAL);
        printf(" %d\n", ask(1000));
    }
    close(909);
    return 0;
}
"#;

#[test]
fn a_server_that_is_restored_gets_numbers_from_init() {
    let dir = workspace();
    let program = compile(dir.path(), "asks", ASKS, &[]);
    let image = dir.path().join("image");
    fs::write(&image, "image").unwrap();
    for bytes in ["0", "3", "5", "8"] {
        let mut setup = Setup::new(&program, &[bytes]);
        setup.restore = Some(fs::File::open(&image).unwrap());
        let ran = setup.run();
        let expected = "image 0 30001 0 29501 refused -1\n";
        assert_eq!((ran.exit, &*ran.stdout), (Exit::Code(0), expected), "{bytes} bytes");
    }
    let mut setup = Setup::new(&program, &[]);
    setup.restore = Some(fs::File::open(&image).unwrap());
    assert_eq!(setup.run().stdout, "image 0 30001 0 29501 refused");
    setup.isolation = Isolation::None;
    let error = setup.try_start().unwrap_err().to_string();
    assert!(error.contains("continue from an image without a sandbox"), "{error}");
    // Nobody else has such a way.
    assert!(Setup::new(&program, &[]).run().stdout.starts_with(" -1 "));
}
