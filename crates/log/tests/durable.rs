//! Directories and small files survive a loss of power: they are synced, and a crash's remains are replaced.

use skein_log::disk::{DirDisk, durable};
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// Set in the process that `strace` follows: where it opens a disk, or has a file.
const OPENED: &str = "SKEIN_TEST_OPENED";

/// The files and directories that a process of this test syncs which is told `path`.
fn synced_by(path: &Path, test: &str) -> String {
    let output = Command::new("strace")
        .args(["--follow-forks", "--decode-fds=path", "--trace=fsync", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(OPENED, path)
        .output()
        .expect("strace runs: scripts/setup.sh test installs it");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn a_new_directory_is_durable_and_so_is_each_one_above_it() {
    if let Some(path) = std::env::var_os(OPENED) {
        DirDisk::open(path).unwrap();
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let path = root.join("a/b/log");
    // Also existing ones: a crash may have interrupted the start that made them.
    for start in ["the first", "the next"] {
        let synced = synced_by(&path, "a_new_directory_is_durable_and_so_is_each_one_above_it");
        for dir in [root.clone(), root.join("a"), root.join("a/b")] {
            let words = format!("<{}>)", dir.display());
            assert!(synced.contains(&words), "{start} start does not sync {}", dir.display());
        }
    }
    for dir in ["a", "a/b", "a/b/log"] {
        let mode = fs::metadata(root.join(dir)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{dir}");
    }
}

#[test]
fn a_name_is_durable_and_so_is_its_change() {
    let (first, other) = ("began", "ended");
    if let Some(dir) = std::env::var_os(OPENED) {
        let dir = Path::new(&dir);
        durable::write(&dir.join(first), "a number").unwrap();
        durable::rename(&dir.join(first), &dir.join(other)).unwrap();
        durable::remove(&dir.join(other)).unwrap();
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let synced = synced_by(&root, "a_name_is_durable_and_so_is_its_change");
    let times = |path: &Path| synced.matches(&format!("<{}>)", path.display())).count();
    assert_eq!(times(&root.join("began.new")), 1, "its bytes come first: {synced}");
    assert_eq!(times(&root), 3, "written, renamed, removed: {synced}");
}

#[test]
fn a_file_is_written_whole_whatever_a_crash_left_beside_it() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    fs::write(root.path().join("file.new"), "half of wh").unwrap();
    for text in ["one", "other"] {
        durable::write(&path, text).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    durable::remove(&path).unwrap();
    durable::remove(&path).unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
