//! Ends: the node killed, init killed, many servers at once. The part of the node is played by a second process of this
//! test binary, which runs one of the tests named `as_node_*` only.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use skein_arena::layout::{HEADER_BYTES, Header};
use skein_sandbox::{Exit, Isolation};
use support::*;

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
}

/// Launches a server that has a child of its own, prints the pids, and waits to be killed.
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

/// The pids of a process and of all its descendants.
fn family(pid: u32) -> Vec<u32> {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_ascii_whitespace().map(|pid| pid.parse().unwrap());
    std::iter::once(pid).chain(children.flat_map(family)).collect()
}

fn alive(pid: u32) -> bool {
    // A zombie waits for the reaper of orphans; it holds nothing.
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

/// A server with an orphan, which is init's child as all processes under the runtime are; `deaths` of its processes were announced.
fn with_orphan(deaths: u32) -> (Setup, skein_sandbox::ServerProcess, u32) {
    let script = "sh -c 'sleep 1000 & echo ready'; exec sleep 1000";
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
    let arena = tempfile::tempfile().unwrap();
    arena.set_len(HEADER_BYTES as u64).unwrap();
    let at = std::mem::offset_of!(Header, deaths) as u64;
    arena.write_all_at(&deaths.to_le_bytes(), at).unwrap();
    setup.arena = Some(arena);
    let server = setup.start();
    wait_until("ready", || fs::read_to_string(setup.out()).unwrap() == "ready\n");
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let init = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
    let mut orphan = 0;
    wait_until("the orphan is init's", || {
        let children = family(init.parse().unwrap());
        orphan = children
            .iter()
            .copied()
            .find(|pid| ![init.parse().unwrap(), server.pid()].contains(pid))
            .unwrap_or(0);
        let parent = fs::read_to_string(format!("/proc/{orphan}/status")).unwrap_or_default();
        parent.contains(&format!("PPid:\t{init}\n"))
    });
    (setup, server, orphan)
}

fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(pid as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn a_process_that_is_killed_from_outside_ends_the_server() {
    let (_setup, mut server, orphan) = with_orphan(0);
    kill(orphan);
    assert_eq!(server.wait().unwrap(), Exit::Signal(libc::SIGKILL));
    assert!(!alive(server.pid()));
}

#[test]
fn a_process_whose_end_was_announced_does_not_end_the_server() {
    let (_setup, mut server, orphan) = with_orphan(1);
    kill(orphan);
    wait_until("the orphan is gone", || !Path::new(&format!("/proc/{orphan}")).exists());
    assert_eq!(server.try_wait().unwrap(), None);
    kill(server.pid());
    assert_eq!(server.wait().unwrap(), Exit::Signal(libc::SIGKILL));
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
