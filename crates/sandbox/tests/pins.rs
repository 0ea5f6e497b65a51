//! Pinned files take the place of the host's, as root and as an ordinary user.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use skein_sandbox::{About, Exit, Pin, Pins};
use support::*;

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
}

/// Pins of everything on the way to `path`, and of that.
fn pin(pins: &mut BTreeMap<PathBuf, Pin>, path: &Path, last: Pin) {
    for above in path.ancestors().skip(1).filter(|above| above.parent().is_some()) {
        let about = About::of(above, &fs::metadata(above).unwrap());
        pins.entry(above.to_owned()).or_insert(Pin::Directory { about, listing: None });
    }
    pins.insert(path.to_owned(), last);
}

#[test]
fn a_server_sees_pinned_files_links_absences_and_listings_and_changes_its_own_copies() {
    let root = tempfile::tempdir().unwrap();
    let host = fs::canonicalize(root.path()).unwrap().join("host, with: \\odd name");
    fs::create_dir_all(host.join("listed")).unwrap();
    for (name, text) in [
        ("edited", "new"),
        ("unpinned", "host's"),
        ("appeared", "x"),
        ("listed/new", "x"),
        ("listed/old", "x"),
    ] {
        fs::write(host.join(name), text).unwrap();
    }
    symlink("unpinned", host.join("link")).unwrap();
    let contents = root.path().join("contents");
    fs::write(&contents, "pinned\n").unwrap();
    let about = About::of(&contents, &fs::metadata(&contents).unwrap());
    let file = |same_as| Pin::File { about, size: 7, from: contents.clone(), same_as };
    let mut all = BTreeMap::new();
    for name in ["edited", "removed", "copy"] {
        pin(&mut all, &host.join(name), file(None));
    }
    pin(&mut all, &host.join("same"), file(Some(host.join("edited"))));
    pin(&mut all, &host.join("appeared"), Pin::Absent);
    pin(&mut all, &host.join("link"), Pin::Link { about, to: "removed".into() });
    let listing = Some(["old".into(), "gone".into()].into());
    pin(
        &mut all,
        &host.join("listed"),
        Pin::Directory { about: About { mode: 0o755, rights: 7, ..about }, listing },
    );
    let pins = Pins { tree: root.path().join("tree-1"), all };
    pins.lay().unwrap();
    let script = "cat edited removed copy same link; ls; ls listed; cat unpinned; echo; \
        [ edited -ef same ] && ! [ edited -ef copy ] && echo linked; \
        echo more >> edited; mv copy moved; rm removed; cat edited moved; true";
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
    setup.cwd = host.clone();
    setup.pins = pins;
    let ran = setup.run();
    assert_eq!((ran.exit, ran.stderr.as_str()), (Exit::Code(0), ""), "{}", ran.stdout);
    let lines = ran.stdout;
    let expected = "pinned\npinned\npinned\npinned\npinned\n\
        copy\nedited\nlink\nlisted\nremoved\nsame\nunpinned\nold\nhost's\nlinked\npinned\nmore\npinned\n";
    assert!(lines.starts_with(expected), "{lines}");
    // Neither the host nor the contents have changed.
    assert_eq!(fs::read_to_string(host.join("edited")).unwrap(), "new");
    assert_eq!(fs::read_to_string(&contents).unwrap(), "pinned\n");
}

#[test]
fn the_kernel_names_mappings_of_pinned_files_by_their_paths() {
    let root = tempfile::tempdir().unwrap();
    let host = fs::canonicalize(root.path()).unwrap().join("host");
    fs::create_dir(&host).unwrap();
    // One beside the tree, and one in another overlay of the server's root.
    let system = fs::canonicalize("/bin/cat").unwrap();
    let meta = fs::metadata(&system).unwrap();
    let about = About { mode: 0o755, rights: 7, ..About::of(&system, &meta) };
    let mut all = BTreeMap::new();
    for (number, path) in [host.join("cat"), system.clone()].iter().enumerate() {
        let from = root.path().join(format!("contents-{number}"));
        copy_program(Path::new("/bin/cat"), &from, 0o755);
        pin(&mut all, path, Pin::File { about, size: meta.len(), from, same_as: None });
    }
    let pins = Pins { tree: root.path().join("tree-1"), all };
    pins.lay().unwrap();
    let script = format!(
        "for cat in {} {}; do $cat /proc/self/maps | grep -c \" $cat\\$\"; done",
        host.join("cat").display(),
        system.display()
    );
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", &script]);
    setup.pins = pins;
    let ran = setup.run();
    assert_eq!((ran.exit, ran.stderr.as_str()), (Exit::Code(0), ""), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|count| count != "0"), "{}", ran.stdout);
}
