//! Ends that nobody asked for: the node killed, namespaces refused. The part of the node is played by a copy of this test
//! binary, which runs one of the tests named `as_node_*` only.

mod supervisor_support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use skein_node::supervisor::{Exit, Isolation, LaunchError};
use supervisor_support::*;

/// Says to an `as_node_*` test that it is wanted, and how.
const ROLE: &str = "SKEIN_TEST_ROLE";

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
}

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// This binary, running only `test`.
fn node_arguments(test: &str) -> Vec<String> {
    let exe = std::env::current_exe().unwrap().display().to_string();
    [exe.as_str(), "--exact", test, "--nocapture", "--test-threads=1"].map(str::to_owned).into()
}

fn start_node(test: &str, role: &str) -> Child {
    let arguments = node_arguments(test);
    Command::new(&arguments[0])
        .args(&arguments[1..])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Launches a server that has a child of its own, says the pids, and waits to be killed.
#[test]
fn as_node_launch_and_wait() {
    let Some(role) = role() else { return };
    let script = "sleep 1000 & echo ready; wait";
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
    if role == "none" {
        setup.isolation = Isolation::None;
    }
    // The thread that launches ends at once: the server must not end with it.
    let server = std::thread::scope(|scope| scope.spawn(|| setup.start()).join().unwrap());
    wait_until("ready", || fs::read_to_string(setup.out()).unwrap() == "ready\n");
    println!("\nserver {} {}", server.pid(), setup.out().parent().unwrap().display());
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// The pids of a process and of all that descend from it.
fn family(pid: u32) -> Vec<u32> {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_ascii_whitespace().map(|pid| pid.parse().unwrap());
    std::iter::once(pid).chain(children.flat_map(family)).collect()
}

fn alive(pid: u32) -> bool {
    // A zombie waits for whoever reaps orphans here; it holds nothing.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap().replace('\n', "\n\n")
}

#[test]
fn a_killed_node_leaves_nothing() {
    for role in ["full", "none"] {
        let mut node = start_node("as_node_launch_and_wait", role);
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.unwrap().strip_prefix("server ").map(str::to_owned));
        let line = line.expect("the node says the server's pid");
        let (pid, dir) = line.split_once(' ').unwrap();
        // init, the server, and the server's child.
        let family: Vec<u32> = family(node.id()).split_off(1);
        assert_eq!(family.len(), 3, "{family:?}");
        assert!(family.contains(&pid.parse().unwrap()));
        assert!(family.iter().all(|pid| alive(*pid)));
        node.kill().unwrap();
        node.wait().unwrap();
        wait_until("all of it is gone", || !family.iter().any(|pid| alive(*pid)));
        assert!(!mounts().contains("- overlay skein") && !mounts().contains("tmpfs skein"));
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn a_server_killed_from_outside_is_a_signal() {
    let setup = Setup::new(Path::new("/bin/sleep"), &["1000"]);
    let mut server = setup.start();
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let init = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
    let init = nix::unistd::Pid::from_raw(init.parse().unwrap());
    nix::sys::signal::kill(init, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(server.wait().unwrap(), Exit::Signal(libc::SIGKILL));
    assert!(!alive(server.pid()));
}

#[test]
fn as_node_refused() {
    if role().is_none() {
        return;
    }
    let setup = Setup::new(Path::new("/bin/true"), &[]);
    let error = setup.try_start().map(|mut server| server.wait()).unwrap_err();
    assert!(matches!(error, LaunchError::Namespaces { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("user.max_user_namespaces (now 0)"), "{text}");
    assert_eq!(error.exit_code(), 125);
}

#[test]
fn as_node_nested() {
    if role().is_none() {
        return;
    }
    assert_eq!(
        shell("id -u; cat /proc/self/uid_map | tr -s ' '; echo x > /tmp/y; cat /tmp/y"),
        "0\n 0 0 1\nx\n"
    );
}

/// Runs a test of this binary in a user namespace of its own, where only this user is mapped, as root.
fn in_user_namespace(before: &str, test: &str) {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", &format!("{before} exec \"$@\""), "sh"])
        .args(node_arguments(test))
        .env(ROLE, "nested")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

#[test]
fn a_host_without_user_namespaces_is_named() {
    in_user_namespace("echo 0 > /proc/sys/user/max_user_namespaces;", "as_node_refused");
}

#[test]
fn a_node_may_be_in_a_user_namespace_itself() {
    in_user_namespace("", "as_node_nested");
}

#[test]
fn many_servers_start_and_end_at_once() {
    let run = || {
        for round in 0..8 {
            let script = format!("echo $$; exit {round}");
            let ran = Setup::new(Path::new("/bin/sh"), &["-c", &script]).run();
            assert_eq!((ran.exit, ran.stdout.as_str()), (Exit::Code(round), "2\n"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(run);
        }
    });
}
