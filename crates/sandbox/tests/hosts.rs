//! Hosts of other kinds: without user namespaces, nodes inside a user namespace, mounts of every sort. The part of the node
//! is played by a second process of this test binary, in namespaces made by `unshare`, which runs one of the tests named
//! `as_node_*` only.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use skein_sandbox::LaunchError;
use support::*;

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
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
    let now = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap();
    let named = format!("user.max_user_namespaces (now {})", now.trim());
    assert!(text.contains(&named), "{text}");
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

/// Runs a test of this binary in new namespaces, after a shell script.
fn in_namespaces(options: &[&str], script: &str, test: &str) {
    let (_dir, copy) = readable_copy();
    let output = Command::new("unshare")
        .args(options)
        .args(["sh", "-e", "-c", &format!("{script}\nexec \"$@\""), "sh"])
        .args(node_arguments(&copy, test))
        .env(ROLE, "nested")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

/// A user namespace of its own, where only this user is mapped, as root.
const USER_NAMESPACE: [&str; 2] = ["--user", "--map-root-user"];

#[test]
fn a_host_without_user_namespaces_is_named() {
    // A server needs two.
    for limit in 0..2 {
        let script = format!("echo {limit} > /proc/sys/user/max_user_namespaces");
        in_namespaces(&USER_NAMESPACE, &script, "as_node_refused");
    }
}

#[test]
fn a_node_may_be_in_a_user_namespace_itself() {
    in_namespaces(&USER_NAMESPACE, "", "as_node_nested");
}

/// Mounts a file system with mounts of its own on /mnt, and a file over /etc/hosts.
const MOUNTS: &str = "mount -t tmpfs none /mnt
    mkdir -p /mnt/a/inner /mnt/plain /mnt/view '/mnt/o d:d,\\'
    echo plain > /mnt/plain/file; echo odd > '/mnt/o d:d,\\/file'
    mount -t tmpfs none /mnt/a/inner
    mount -t tmpfs none '/mnt/o d:d,\\'; echo odd > '/mnt/o d:d,\\/file'
    echo deep > /mnt/a/inner/file; echo top > /mnt/file; ln -s a/inner/file /mnt/link
    head -c 5000000 /dev/zero > /mnt/large
    touch /mnt/namespace; mount --bind /proc/self/ns/uts /mnt/namespace
    mount --bind /mnt/file /etc/hosts";

#[test]
fn as_node_among_mounts() {
    if role().is_none() {
        return;
    }
    let text = shell(
        "cd /mnt; cat file link plain/file 'o d:d,\\/file' /etc/hosts; stat -c %s large; ls; \
         for f in file a/inner/file plain/file /etc/hosts a/new; do echo server > $f; done; cat link; \
         (echo x > large) 2>/dev/null || echo refused",
    );
    assert_eq!(
        text,
        "top\ndeep\nplain\nodd\ntop\n5000000\na\nfile\nlarge\nlink\no d:d,\\\nplain\nview\nserver\nrefused\n"
    );
    for (path, text) in [("file", "top\n"), ("a/inner/file", "deep\n"), ("plain/file", "plain\n")] {
        assert_eq!(fs::read_to_string(Path::new("/mnt").join(path)).unwrap(), text);
    }
    assert!(!Path::new("/mnt/a/new").exists());
}

#[test]
fn other_file_systems_of_the_host_are_layered_too() {
    in_namespaces(&["--user", "--map-root-user", "--mount"], MOUNTS, "as_node_among_mounts");
    if is_root() {
        in_namespaces(&["--mount"], MOUNTS, "as_node_among_mounts");
    }
}

#[test]
fn as_node_in_own_directory() {
    if role().is_none() {
        return;
    }
    let cwd = Path::new("/mnt/lib/deep/own");
    assert_eq!(shell_in(cwd, "echo x > y; mkdir -p d/e; mv y d/e/; cat d/e/y"), "x\n");
    assert!(!cwd.join("d").exists());
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", "echo x > ../y"]);
    setup.cwd = cwd.to_owned();
    assert_ne!(setup.run().exit, skein_sandbox::Exit::Code(0));
}

#[test]
fn an_ordinary_user_writes_its_directory_inside_those_of_others() {
    if !is_root() {
        return;
    }
    let script = format!(
        "mount -t tmpfs none /mnt; mkdir -p /mnt/lib/deep/own; chown {USER}:{USER} /mnt/lib/deep/own
        set -- setpriv --reuid={USER} --regid={USER} --clear-groups -- \"$@\""
    );
    in_namespaces(&["--mount"], &script, "as_node_in_own_directory");
}
