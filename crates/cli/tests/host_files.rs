//! Files of the host are inputs: a server goes on with those that it has used, whatever becomes of the host's, and a replica without a base refuses other ones.
//!
//! The server (`guests/servers/files.py`) uses a file in each way once. Then each of them is changed: between two starts, while one replica of
//! three starts again, while the server runs, and all of them on one host of three, whose node sees a changed copy of the directory in a mount namespace of its own.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use common::cluster::{Cluster, ask_once, free_port, wait_for_or};
use common::hosts::Hosts;
use common::{Place, runtime, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PYTHON: &str = "/usr/bin/python3";

/// The questions to the server before anything changes.
const QUESTIONS: [&str; 12] = [
    "row new",
    "read config",
    "read current/text",
    "time stamp",
    "list listed",
    "there absent",
    "link link",
    "there mode",
    "plug",
    "tool",
    "jail config",
    "what",
];

/// A change of one file.
struct Change {
    make: fn(&Path),
    undo: fn(&Path),
    /// The words of the message about it.
    words: [&'static str; 2],
}

fn write(path: PathBuf, text: &str) {
    // The test is not about the time.
    let old = fs::metadata(&path).and_then(|meta| meta.modified());
    fs::write(&path, text).unwrap();
    if let Ok(old) = old {
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    }
}

/// A library stays one with a byte behind it.
fn lengthen(path: PathBuf, by: i64) {
    let old = fs::metadata(&path).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(old.len().strict_add_signed(by)).unwrap();
    file.set_modified(old.modified().unwrap()).unwrap();
}

fn link(path: PathBuf, to: &str) {
    let _ = fs::remove_file(&path);
    symlink(to, &path).unwrap();
    run(Command::new("touch").args(["-h", "-d", "@1600000000"]).arg(&path));
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

fn set_time(path: PathBuf, s: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(s)).unwrap();
}

fn sqlite(dir: &Path, statement: &str) {
    let text =
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()";
    let path = dir.join("seed.db");
    run(Command::new(PYTHON).args(["-c", text]).arg(path).arg(statement));
}

const CHANGES: &[Change] = &[
    Change {
        make: |dir| write(dir.join("config"), "colour = green\n"),
        undo: |dir| write(dir.join("config"), "colour = red\n"),
        words: ["/config: its contents were 13 bytes", "and are 15 bytes"],
    },
    Change {
        make: |dir| write(dir.join("app/words.py"), "UNKNOWN = 'what?'\n"),
        undo: |dir| write(dir.join("app/words.py"), "UNKNOWN = 'ask else'\n"),
        words: ["/app/words.py: its", "is"],
    },
    Change {
        make: |dir| {
            run(Command::new("cp").arg("-a").args([dir.join("seed.db"), dir.join("kept.db")]));
            sqlite(dir, "update row set text = 'other'");
        },
        undo: |dir| fs::rename(dir.join("kept.db"), dir.join("seed.db")).unwrap(),
        words: ["/seed.db: its", "and"],
    },
    Change {
        make: |dir| fs::rename(dir.join("seed.db"), dir.join("kept.db")).unwrap(),
        undo: |dir| fs::rename(dir.join("kept.db"), dir.join("seed.db")).unwrap(),
        words: ["/seed.db: it was a file and is gone", "put it back as it was"],
    },
    Change {
        make: |dir| fs::write(dir.join("app/orig.py"), "").unwrap(),
        undo: |dir| fs::remove_file(dir.join("app/orig.py")).unwrap(),
        words: ["/app: its entry orig.py (a file) was not there", "put it back"],
    },
    Change {
        make: |dir| fs::remove_file(dir.join("listed/one")).unwrap(),
        undo: |dir| fs::write(dir.join("listed/one"), "").unwrap(),
        words: ["/listed: its entry one is gone", "put it back"],
    },
    Change {
        make: |dir| fs::write(dir.join("listed/three"), "").unwrap(),
        undo: |dir| fs::remove_file(dir.join("listed/three")).unwrap(),
        words: ["/listed: its entry three (a file) was not there", "put it back"],
    },
    Change {
        make: |dir| link(dir.join("current"), "v2"),
        undo: |dir| link(dir.join("current"), "v1"),
        words: ["/current/text: it led to", "/v2/text"],
    },
    Change {
        make: |dir| link(dir.join("link"), "b"),
        undo: |dir| link(dir.join("link"), "a"),
        words: ["/link: its target was a and is b", "put it back"],
    },
    Change {
        make: |dir| set_time(dir.join("stamp"), 1_600_000_001),
        undo: |dir| set_time(dir.join("stamp"), 1_600_000_000),
        words: ["/stamp: its time was 1600000000.000000000", "is 1600000001.000000000"],
    },
    Change {
        make: |dir| lengthen(dir.join("plug.so"), 1),
        undo: |dir| lengthen(dir.join("plug.so"), -1),
        words: ["/plug.so: its contents were", "put it back"],
    },
    Change {
        make: |dir| write(dir.join("tool"), "#!/bin/sh\necho other\n"),
        undo: |dir| write(dir.join("tool"), "#!/bin/sh\necho tool\n"),
        words: ["/tool: its contents were", "put it back"],
    },
    Change {
        make: |dir| write(dir.join("jail/config"), "cell = 10\n"),
        undo: |dir| write(dir.join("jail/config"), "cell = 9\n"),
        words: ["/files/jail/config: its contents were 9 bytes", "and are 10 bytes"],
    },
    Change {
        make: |dir| set_time(dir.join("jail/config"), 1_600_000_001),
        undo: |dir| set_time(dir.join("jail/config"), 1_600_000_000),
        words: ["/files/jail/config: its time was 1600000000.000000000", "is 1600000001.000000000"],
    },
    Change {
        make: |dir| fs::write(dir.join("absent"), "here").unwrap(),
        undo: |dir| fs::remove_file(dir.join("absent")).unwrap(),
        words: ["/absent: it was not there, and is a file now", "put it back"],
    },
];

/// The server's directory, as it is at first.
fn prepare(dir: &Path) {
    for name in ["app", "listed", "v1", "v2", "jail"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/servers");
    fs::copy(guests.join("files.py"), dir.join("app/files.py")).unwrap();
    sqlite(dir, "create table row (id integer primary key, text)");
    sqlite(dir, "insert into row (text) values ('old')");
    for (name, text) in [
        ("app/words.py", "UNKNOWN = 'ask else'\n"),
        ("config", "colour = red\n"),
        ("tool", "#!/bin/sh\necho tool\n"),
        ("plug.c", "int number(void) { return 42; }\n"),
        ("jail/config", "cell = 9\n"),
        ("v1/text", "same\n"),
        ("v2/text", "same\n"),
        ("stamp", ""),
        ("mode", ""),
        ("listed/one", ""),
        ("listed/two", ""),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
    set_time(dir.join("stamp"), 1_600_000_000);
    set_time(dir.join("jail/config"), 1_600_000_000);
    fs::set_permissions(dir.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    run(Command::new("cc").args(["-shared", "-fPIC", "-o", "plug.so", "plug.c"]).current_dir(dir));
    link(dir.join("current"), "v1");
    link(dir.join("link"), "a");
}

fn server(dir: &Path, port: u16) -> [String; 4] {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    [PYTHON.into(), path("app/files.py"), port.to_string(), dir.to_str().unwrap().into()]
}

/// A leader that a busy machine keeps from its heartbeats is replaced, and its server is rebuilt if it was ahead of the others: while a file differs, that server
/// rightly does not come back. So no leader is replaced where files change beside a server.
const CALM: [&str; 2] = ["--election-timeout-ms", "5000"];

fn start(place: Place, dir: &Path, port: u16, options: &[&str]) -> Cluster {
    let server = server(dir, port);
    Cluster::start_in(place, port, options, &server.each_ref().map(String::as_str))
}

fn place_with_files() -> (Place, PathBuf) {
    let place = Place::new();
    let dir = place.path("files");
    fs::create_dir(&dir).unwrap();
    prepare(&dir);
    (place, dir)
}

/// What is pinned once all questions were asked.
const PINNED: [&str; 11] = [
    "config",
    "app/words.py",
    "seed.db",
    "listed/two",
    "v1/text",
    "link",
    "stamp",
    "plug.so",
    "tool",
    "jail/config",
    "absent",
];

/// Waits until all replicas have all of it.
#[track_caller]
fn wait_pinned(cluster: &Cluster, dir: &Path) {
    for id in 1..=3 {
        let node = cluster.place.path(&format!("data/node-{id}"));
        let args = ["base", "ls", "--data", node.to_str().unwrap()];
        wait_for_or(
            "the server's files to be pinned",
            || format!("{}\n{:?}", cluster.evidence(), cluster.place.run(&args)),
            || {
                let text = String::from_utf8(cluster.place.run(&args).stdout).unwrap();
                let has = |name| text.contains(&format!("  {}\n", dir.join(name).display()));
                PINNED.iter().all(has).then_some(())
            },
        );
    }
}

/// The answers after a change, which are those before it; the base names the changed file.
#[track_caller]
fn assert_pinned(cluster: &Cluster, answers: &[String; 12], change: &Change) {
    let path = change.words[0].split(": ").next().unwrap();
    assert_eq!(cluster.ask("rows"), "1:old 2:new", "{path}");
    let again = QUESTIONS.map(|q| if q == QUESTIONS[0] { "".into() } else { cluster.ask(q) });
    assert_eq!(again[1..], answers[1..], "{path}");
    let output = cluster.place.run(&["base", "diff", "--name", "t"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{path}: {text}");
    let name = path.rsplit('/').next().unwrap();
    assert!(text.contains(name) || name == "text" && text.contains("/current: "), "{path}: {text}");
}

#[test]
fn between_starts() {
    let (place, dir) = place_with_files();
    let port = free_port();
    let mut cluster = start(place, &dir, port, &[]);
    cluster.wait_ready();
    let answers = QUESTIONS.map(|question| cluster.ask(question));
    assert_eq!(answers[0], "1:old 2:new");
    wait_pinned(&cluster, &dir);
    for change in CHANGES {
        cluster.signal(Signal::SIGKILL);
        cluster.wait_end();
        (change.make)(&dir);
        cluster = start(cluster.into_place(), &dir, port, &[]);
        cluster.wait_ready();
        assert_pinned(&cluster, &answers, change);
        (change.undo)(&dir);
    }
    cluster.signal(Signal::SIGTERM);
    cluster.wait_end();
}

#[test]
fn without_a_base_a_changed_file_is_refused() {
    let (place, dir) = place_with_files();
    let port = free_port();
    let mut cluster = start(place, &dir, port, &[]);
    cluster.wait_ready();
    for question in QUESTIONS {
        cluster.ask(question);
    }
    for change in CHANGES {
        cluster.signal(Signal::SIGTERM);
        cluster.wait_end();
        // As in data directories of versions that kept no files.
        for id in 1..=3 {
            fs::remove_dir_all(cluster.place.path(&format!("data/node-{id}/base"))).unwrap();
        }
        (change.make)(&dir);
        cluster = start(cluster.into_place(), &dir, port, &[]);
        let code = cluster.wait_end();
        (change.undo)(&dir);
        let text = cluster.said();
        assert_eq!(code, Some(125), "{:?}: {text}", change.words);
        for word in change.words {
            assert!(text.contains(word), "'{word}' is not in: {text}");
        }
        cluster = start(cluster.into_place(), &dir, port, &[]);
        cluster.wait_ready();
        assert_eq!(cluster.ask("rows"), "1:old 2:new");
    }
    cluster.signal(Signal::SIGTERM);
    cluster.wait_end();
}

/// Ends a follower's node, which is started again.
fn restart_follower(cluster: &Cluster) -> u64 {
    let status = cluster.wait_status(0);
    let (leader, _) = Cluster::leader(&status);
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let pid = Cluster::replica(&status, follower)["node_pid"].as_i64().unwrap() as i32;
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    follower
}

#[test]
fn while_the_others_run() {
    let (place, dir) = place_with_files();
    let cluster = start(place, &dir, free_port(), &CALM);
    cluster.wait_ready();
    let answers = QUESTIONS.map(|question| cluster.ask(question));
    wait_pinned(&cluster, &dir);
    // Edited, removed, new in a listing, and created where no file was.
    for path in ["/config: ", "/seed.db: it was", "/listed: its entry three", "/absent: "] {
        let change = CHANGES.iter().find(|change| change.words[0].starts_with(path)).unwrap();
        (change.make)(&dir);
        restart_follower(&cluster);
        cluster.wait_status(0);
        assert_pinned(&cluster, &answers, change);
        (change.undo)(&dir);
    }
}

#[test]
fn a_file_that_changes_while_it_is_used() {
    let (place, dir) = place_with_files();
    let cluster = start(place, &dir, free_port(), &CALM);
    cluster.wait_ready();
    let answers = QUESTIONS.map(|question| cluster.ask(question));
    wait_pinned(&cluster, &dir);
    // Neither time nor size reveals the change.
    write(dir.join("config"), "colour = rot\n");
    let port = cluster.port;
    // All replicas are on this host: all find it, and no client gets an answer.
    assert_eq!(ask_once(("127.0.0.1", port), "read config"), None);
    cluster.wait_said("/config: its contents have changed since the server first used it");
    // Their next servers have the pinned one.
    assert_eq!(cluster.ask("read config"), "colour = red");
    let change = CHANGES.iter().find(|change| change.words[0].starts_with("/config")).unwrap();
    assert_pinned(&cluster, &answers, change);
}

/// The question about each change that is made while the server runs.
const USES: [(&str, &str); 9] = [
    ("/listed: its entry one", "list listed"),
    ("/listed: its entry three", "list listed"),
    ("/current/", "read current/text"),
    ("/link: ", "link link"),
    ("/stamp: ", "time stamp"),
    ("/tool: ", "tool"),
    ("/absent: ", "there absent"),
    ("/seed.db: its", "rows"),
    ("/seed.db: it was", "rows"),
];

#[test]
fn nobody_gets_another_answer_after_a_change() {
    let (place, dir) = place_with_files();
    let cluster = start(place, &dir, free_port(), &CALM);
    cluster.wait_ready();
    for question in QUESTIONS {
        cluster.ask(question);
    }
    wait_pinned(&cluster, &dir);
    for (path, question) in USES {
        let change = CHANGES.iter().find(|change| change.words[0].starts_with(path)).unwrap();
        let expected = cluster.ask(question);
        (change.make)(&dir);
        // Servers of before may end at it; those after them have the pinned one.
        assert_eq!(cluster.ask(question), expected, "{path}");
        (change.undo)(&dir);
        assert_eq!(cluster.ask(question), expected, "{path}");
    }
    cluster.wait_status(0);
}

/// The kernel identifies a copy by the host's file, as long as that has one name: a host that removes it, replaces it or adds a link changes that.
#[test]
fn a_copy_stays_the_same_file_whatever_becomes_of_the_original() {
    let (place, dir) = place_with_files();
    for name in ["linked", "moved", "grown", "chosen"] {
        fs::write(dir.join(name), "text\n").unwrap();
    }
    fs::hard_link(dir.join("linked"), dir.join("linked-too")).unwrap();
    let cluster = start(place, &dir, free_port(), &CALM);
    cluster.wait_ready();
    let names = ["seed.db", "linked", "grown", "chosen", "there"];
    let number = |name: &str| cluster.ask(&format!("number {name}"));
    let before = ["seed.db", "linked", "grown", "chosen", "moved"].map(number);
    assert_eq!(cluster.ask("row new"), "1:old 2:new");
    for (at, name) in ["linked", "grown", "chosen"].into_iter().enumerate() {
        assert_eq!(cluster.ask(&format!("add {name}")), before[at + 1], "{name}");
    }
    assert_eq!(cluster.ask("move moved there"), "moved");
    assert_eq!(names.map(number), before);

    let replace = |name: &str| {
        run(Command::new("cp").arg("-a").args([dir.join(name), dir.join("kept")]));
        fs::rename(dir.join("kept"), dir.join(name)).unwrap();
    };
    replace("seed.db");
    fs::remove_file(dir.join("linked-too")).unwrap();
    fs::hard_link(dir.join("grown"), dir.join("grown-too")).unwrap();
    // No other file of the host may get its inode number.
    replace("chosen");
    replace("moved");
    assert_eq!(names.map(number), before);
    assert_eq!(cluster.ask("rows"), "1:old 2:new");
    assert_eq!(cluster.ask("read grown"), "text more");
    for id in 1..=3 {
        let node = || Cluster::replica(&cluster.wait_status(0), id)["node_pid"].as_i64().unwrap();
        let before = node();
        kill(Pid::from_raw(before as i32), Signal::SIGKILL).unwrap();
        wait_for_or("a new node", || cluster.evidence(), || (node() != before).then_some(()));
    }
    assert_eq!(names.map(number), before);
    let output = cluster.place.run(&["verify", "--name", "t"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = cluster.place.run(&["files", "--name", "t"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_leader_that_dies_before_the_server_has_started() {
    let (place, dir) = place_with_files();
    let cluster = start(place, &dir, free_port(), &CALM);
    // Its server's findings are not agreed on, or only just: the next leader proposes them again.
    let pid = wait_for_or(
        "a leader",
        || cluster.evidence(),
        || {
            let (status, _) = cluster.status();
            let id = status["leader"].as_u64()?;
            Cluster::replica(&status, id)["node_pid"].as_i64()
        },
    );
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    assert_eq!(cluster.ask("rows"), "1:old");
    cluster.wait_status(0);
    assert_eq!(cluster.ask("read config"), "colour = red");
}

#[test]
fn between_hosts() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make these surroundings");
        return;
    }
    let (place, dir) = place_with_files();
    let hosts = Hosts::new();
    let root = place.dir.path().display().to_string();
    let server = server(&dir, 7000);
    let node = |id: u64, dir_of_host: &Path| {
        let text = format!(
            "name = \"files\"\nid = {id}\ndata_dir = \"{root}/data-{id}\"\n\
             peers = [\n    {{ id = 1, address = \"10.77.0.1:7100\" }},\n    \
             {{ id = 2, address = \"10.77.0.2:7100\" }},\n    \
             {{ id = 3, address = \"10.77.0.3:7100\" }},\n]\ntrust_network = true\nlog_file = \"{root}/node-{id}.log\"\n\
             [server]\nprogram = \"{PYTHON}\"\nargs = {:?}\n[publisher.bind]\n\
             publish = [{{ address = \"0.0.0.0:80\", server_port = 7000 }}]\n",
            &server[1..]
        );
        let config = place.file(&format!("skein-{id}.toml"), &text, 0o644);
        if !place.path(&format!("data-{id}")).exists() {
            let founded = place.run(&["found", "--config", config.to_str().unwrap()]);
            assert!(founded.status.success(), "{founded:?}");
        }
        let run = place.path(&format!("run-{id}"));
        let mut command = hosts.host(id).command("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" \"$1\" && shift && exec \"$@\""]);
        command.args([dir_of_host, &dir]).arg(env!("CARGO_BIN_EXE_skein"));
        command.args(["node", "--config"]).arg(config).env("SKEIN_RUNTIME", runtime());
        command.env("SKEIN_RUN_DIR", run).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let evidence = || {
        let log = |id: u64| fs::read_to_string(place.path(&format!("node-{id}.log")));
        (1..=3).map(|id| log(id).unwrap_or_default()).collect::<String>()
    };
    let ask = |question: &str| {
        wait_for_or("an answer", evidence, || {
            let ask = |id| ask_once((format!("10.77.0.{id}").as_str(), 80), question);
            hosts.middle.enter(|| (1..=2).find_map(ask))
        })
    };
    for id in 1..=3 {
        // Writes the configuration.
        drop(node(id, &dir));
        let mut found = place.skein();
        found.env("SKEIN_RUN_DIR", place.path(&format!("run-{id}"))).args(["found", "--config"]);
        run(found.arg(place.path(&format!("skein-{id}.toml"))));
    }
    let mut others: Vec<Guard> = (1..=2).map(|id| Guard(node(id, &dir).spawn().unwrap())).collect();
    let answers = QUESTIONS.map(ask);
    let copy = place.path("copy");
    run(Command::new("cp").arg("-a").args([&dir, &copy]));
    CHANGES.iter().for_each(|change| (change.make)(&copy));
    let pinned = |id: u64| {
        let data = place.path(&format!("data-{id}"));
        let listed = place.run(&["base", "ls", "--data", data.to_str().unwrap()]);
        String::from_utf8(listed.stdout).unwrap()
    };
    wait_for_or("all files to be pinned", evidence, || {
        let text = pinned(1);
        let has = |name: &&str| text.contains(&format!("  {}\n", dir.join(name).display()));
        PINNED.iter().all(has).then_some(())
    });
    let mut third = Guard(node(3, &copy).spawn().unwrap());
    wait_for("the third host to catch up", || {
        assert!(third.0.try_wait().unwrap().is_none(), "{}", evidence());
        let log = fs::read_to_string(place.path("node-3.log")).unwrap_or_default();
        log.contains("caught_up").then_some(())
    });
    assert_eq!(ask("time stamp"), answers[3]);
    assert_eq!(pinned(3), pinned(1));
    let log = fs::read_to_string(place.path("node-3.log")).unwrap();
    assert!(!log.contains("diverged") && !log.contains("file_differs"), "{log}");
    drop(third);
    others.clear();
}

/// Ends a node with its test.
struct Guard(std::process::Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
