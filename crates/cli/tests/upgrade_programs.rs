//! `skein upgrade` to a library that the host has by now, and to a program that is another one: it has other libraries, and answers otherwise. The data stay.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::cluster::{Cluster, free_port};
use common::{Place, assert_line};

/// The programs, their libraries and the directory of their data.
struct Programs {
    dir: PathBuf,
}

impl Programs {
    fn new(place: &Place) -> Self {
        let dir = place.path("programs");
        fs::create_dir_all(dir.join("data")).unwrap();
        let programs = Self { dir };
        programs.library("word", 1);
        programs.library("more", 7);
        programs.program("first", &["-lword"]);
        programs.program("second", &["-DSECOND", "-lword", "-lmore"]);
        programs
    }

    fn cc(&self, args: &[&str]) {
        let status = Command::new("cc").args(args).current_dir(&self.dir).status();
        assert!(status.unwrap().success(), "cc {args:?}; run scripts/setup.sh test");
    }

    /// A library with one function, which answers this number.
    fn library(&self, name: &str, number: u64) {
        let text = format!("int {name}(void) {{ return {number}; }}\n");
        fs::write(self.dir.join("library.c"), text).unwrap();
        // Not in place: whoever has mapped the one before keeps it.
        self.cc(&["-shared", "-fPIC", "-o", "new.so", "library.c"]);
        fs::rename(self.dir.join("new.so"), self.dir.join(format!("lib{name}.so"))).unwrap();
    }

    fn program(&self, name: &str, flags: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/keeper.c");
        let path = format!("-Wl,--no-as-needed,-rpath,{}", self.dir.display());
        let head = ["-O2", "-Wl,-z,now", "-o", name, source.to_str().unwrap(), &path, "-L."];
        self.cc(&[&head, flags].concat());
    }

    fn command(&self, name: &str, port: u16) -> [String; 3] {
        let path = |name| self.dir.join(name).to_str().unwrap().to_owned();
        [path(name), path("data"), port.to_string()]
    }
}

fn upgrade(cluster: &Cluster, args: &[&str]) -> Output {
    cluster.place.run(&[&["upgrade", "--name", "t"], args].concat())
}

#[track_caller]
fn does(cluster: &Cluster, args: &[&str]) {
    let output = upgrade(cluster, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", cluster.evidence());
}

#[track_caller]
fn undone(cluster: &Cluster, args: &[&str]) {
    let output = upgrade(cluster, &[&["--wait", "5"], args].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}\n{}", cluster.evidence());
    assert!(said.contains("as before"), "{said}");
}

#[test]
fn another_library_and_another_program_go_on_with_the_data() {
    let (place, port) = (Place::new(), free_port());
    let programs = Programs::new(&place);
    let [first, second] = ["first", "second"].map(|name| programs.command(name, port));
    let start = |place: Place, command: &[String; 3]| {
        Cluster::start_in(place, port, &[], &command.each_ref().map(String::as_str))
    };
    let mut cluster = start(place, &first);
    cluster.wait_ready();
    assert_eq!(cluster.ask("x"), "1 1");
    // The host's library changes nothing by itself.
    programs.library("word", 2);
    assert_eq!(cluster.ask("x"), "2 1");
    does(&cluster, &["--files"]);
    assert_eq!(cluster.ask("x"), "3 2");
    // One that is none is refused, and one without the function is undone.
    fs::write(programs.dir.join("none.so"), "no library").unwrap();
    fs::rename(programs.dir.join("none.so"), programs.dir.join("libword.so")).unwrap();
    let refused = upgrade(&cluster, &["--files"]);
    assert_line(&refused, 2, &["programs/first", "libraries cannot be listed"]);
    programs.library("other", 0);
    let other = programs.dir.join("libother.so");
    fs::rename(other, programs.dir.join("libword.so")).unwrap();
    undone(&cluster, &["--files"]);
    assert_eq!(cluster.ask("x"), "4 2");
    programs.library("word", 3);
    // Another program, which needs the library as the host has it by now; and one that is no server.
    let [program, data, at] = &second;
    let refused = upgrade(&cluster, &["--", program, data, at]);
    assert_line(&refused, 2, &["libword.so as the host has it", "skein upgrade --files"]);
    does(&cluster, &["--files", "--", program, data, at]);
    assert_eq!(cluster.ask("x"), "5 3 7");
    undone(&cluster, &["--", "/bin/false"]);
    assert_eq!(cluster.ask("x"), "6 3 7");
    // It is what a cluster that is started again has, without any of these files.
    cluster.kill_all();
    for name in ["first", "second", "libword.so", "libmore.so"] {
        fs::remove_file(programs.dir.join(name)).unwrap();
    }
    let cluster = start(cluster.into_place(), &second);
    cluster.wait_ready();
    assert_eq!(cluster.ask("x"), "7 3 7");
    let verified = cluster.place.run(&["verify", "--name", "t"]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}\n{}", cluster.evidence());
}
