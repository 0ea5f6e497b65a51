//! `scripts/guarded.sh` leaves nothing behind, however it ends.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/guarded.sh");

/// Leaves a process in a session of its own, and a file; prints the process's number and the file's name.
const LITTER: &str = "setsid sleep 300 >/dev/null & file=$(mktemp); echo $! $file;";

fn guarded(then: &str) -> (Child, u32, String) {
    let mut child = Command::new(SCRIPT)
        .args(["bash", "-c", &format!("{LITTER} {then}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (pid, file) = line.trim().split_once(' ').expect("two words");
    (child, pid.parse().unwrap(), file.to_owned())
}

fn nothing_is_left(pid: u32, file: &str) {
    let begin = Instant::now();
    let runs =
        || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.starts_with(b"sleep"));
    let dir = Path::new(file).parent().unwrap();
    while runs() || dir.exists() {
        assert!(begin.elapsed() < Duration::from_secs(30), "left: {pid} {file}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn nothing_is_left_after_an_end() {
    let (mut child, pid, file) = guarded("exit 7");
    assert_eq!(child.wait().unwrap().code(), Some(7), "the command's own status");
    nothing_is_left(pid, &file);
}

#[test]
fn nothing_is_left_after_a_kill() {
    let (mut child, pid, file) = guarded("sleep 300");
    assert!(Path::new(&file).exists());
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(pid, &file);
}
