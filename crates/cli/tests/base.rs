//! A pinned base: a cluster goes on with what its server has used of the host, whatever has become of that by the next start.
//!
//! One of each kind with a real server; each way to use a file is in `host_files.rs`.

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::{Place, resp, runtime};
use nix::sys::signal::Signal;

/// Longer than what a start reads of a base: 1 GiB and a bit.
const LARGE_BYTES: u64 = (1 << 30) + (64 << 20);
/// A user that this machine does not know.
const USER: u32 = 12_345;

/// redis and its configuration in a directory of the test.
struct Redis {
    cluster: Cluster,
    dir: PathBuf,
}

impl Redis {
    fn start() -> Self {
        let (place, port) = (Place::new(), free_port());
        let dir = place.path("redis");
        fs::create_dir(&dir).unwrap();
        fs::copy("/usr/bin/redis-server", dir.join("redis-server")).unwrap();
        let text = format!("port {port}\nsave \"\"\nmaxmemory 11mb\n");
        fs::write(dir.join("redis.conf"), text).unwrap();
        let cluster = Self::run(place, &dir, port);
        cluster.wait_ready();
        Self { cluster, dir }
    }

    fn run(place: Place, dir: &Path, port: u16) -> Cluster {
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let server = [path("redis-server"), path("redis.conf")];
        let server = server.each_ref().map(String::as_str);
        Cluster::start_in(place, port, &[], &server)
    }

    /// Kills everything; `change` comes before the next start.
    fn again(self, change: impl FnOnce(&Path, &Place)) -> Self {
        let Self { mut cluster, dir } = self;
        cluster.kill_all();
        let port = cluster.port;
        let place = cluster.into_place();
        change(&dir, &place);
        Self { cluster: Self::run(place, &dir, port), dir }
    }

    #[track_caller]
    fn ask(&self, words: &[&str]) -> String {
        let port = self.cluster.port;
        wait_for_or(
            "redis' answer",
            || self.cluster.evidence(),
            || {
                let mut client = resp::Redis::connect(port, Duration::from_secs(2)).ok()?;
                client.ask(words).ok().map(|reply| reply.text())
            },
        )
    }

    /// What it says of its configuration, and the value that a client has left.
    #[track_caller]
    fn assert_unchanged(&self) {
        self.cluster.wait_ready();
        assert!(self.ask(&["CONFIG", "GET", "maxmemory"]).contains("11534336"));
        assert!(self.ask(&["GET", "key"]).contains("value"));
    }

    /// Waits until all replicas have pinned the program and the configuration.
    fn wait_pinned(&self) {
        for id in 1..=3 {
            wait_for_or(
                "pinned files",
                || self.cluster.evidence(),
                || {
                    let text = text(&base(&self.cluster.place, "ls", Some(id)));
                    let has = |name: &str| text.contains(&format!("/redis/{name}\n"));
                    ["redis-server", "redis.conf"].iter().all(|n| has(n)).then_some(())
                },
            );
        }
    }
}

fn base(place: &Place, task: &str, replica: Option<u64>) -> Output {
    let data = place.data();
    let number = replica.unwrap_or(1).to_string();
    place.run(&["base", task, "--data", &data, "--replica", &number])
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The file stays what it is, with a byte behind it.
fn lengthen(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes.push(0);
    // Another file, as a package's installation makes it: the old one may be in use.
    let new = path.with_extension("new");
    fs::copy(path, &new).unwrap();
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn configuration_and_program_may_change_or_vanish() {
    let redis = Redis::start();
    assert!(redis.ask(&["SET", "key", "value"]).contains("OK"));
    redis.wait_pinned();
    assert_eq!(base(&redis.cluster.place, "diff", None).status.code(), Some(0));
    let redis = redis.again(|dir, _| {
        let conf = fs::read_to_string(dir.join("redis.conf")).unwrap();
        fs::write(dir.join("redis.conf"), conf.replace("11mb", "12mb")).unwrap();
        lengthen(&dir.join("redis-server"));
    });
    redis.assert_unchanged();
    let differs = base(&redis.cluster.place, "diff", Some(2));
    assert_eq!(differs.status.code(), Some(1));
    for name in ["redis.conf", "redis-server"] {
        let line = format!("/redis/{name}: was ");
        assert!(text(&differs).contains(&line), "{}", text(&differs));
    }
    let redis = redis.again(|dir, _| {
        for name in ["redis.conf", "redis-server"] {
            fs::remove_file(dir.join(name)).unwrap();
        }
    });
    redis.assert_unchanged();
    let gone = text(&base(&redis.cluster.place, "diff", None));
    assert!(
        gone.contains("/redis/redis.conf: was ") && gone.contains("host has nothing"),
        "{gone}"
    );
}

#[test]
fn a_library_may_change_or_vanish() {
    let (place, port) = (Place::new(), free_port());
    let dir = place.path("lib");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("word.c"), "int word(void) { return 42; }\n").unwrap();
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    let cc = |args: &[&str]| {
        let status =
            Command::new("cc").args(args).arg("-I").arg(&guests).current_dir(&dir).status();
        assert!(status.unwrap().success(), "cc {args:?}");
    };
    let source = guests.join("servers/echo_threads.c");
    let path = format!("-Wl,--no-as-needed,-rpath,{}", dir.display());
    cc(&["-shared", "-fPIC", "-o", "libword.so.1", "word.c"]);
    std::os::unix::fs::symlink("libword.so.1", dir.join("libword.so")).unwrap();
    cc(&["-O2", "-pthread", "-o", "server", source.to_str().unwrap(), &path, "-L.", "-lword"]);
    let server = dir.join("server");
    let run = |place: Place| {
        let server = [server.to_str().unwrap(), &port.to_string()];
        Cluster::start_in(place, port, &[], &server)
    };
    let mut cluster = run(place);
    cluster.wait_ready();
    let before = cluster.count();
    let ls = |id| text(&base(&cluster.place, "ls", Some(id)));
    for id in 1..=3 {
        wait_for_or("pinned files", || ls(id), || ls(id).contains("/lib/libword.so").then_some(()));
    }
    for change in [lengthen as fn(&Path), |path| fs::remove_file(path).unwrap()] {
        cluster.kill_all();
        change(&dir.join("libword.so.1"));
        cluster = run(cluster.into_place());
        cluster.wait_ready();
    }
    assert_eq!(cluster.count(), before + 1);
}

/// The object of a file in a replica's base.
fn object(place: &Place, id: u64, name: &str) -> PathBuf {
    let text = text(&base(place, "ls", Some(id)));
    let row = text.lines().find(|line| line.ends_with(name)).unwrap();
    let digest = row.split_whitespace().nth(2).unwrap();
    place.path(&format!("data/node-{id}/base/objects/{digest}"))
}

fn rot(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[7] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn rot_is_mended_from_the_host_or_from_another_replica() {
    let redis = Redis::start();
    assert!(redis.ask(&["SET", "key", "value"]).contains("OK"));
    redis.wait_pinned();
    let redis = redis.again(|_, place| rot(&object(place, 1, "/redis.conf")));
    redis.assert_unchanged();
    assert_eq!(base(&redis.cluster.place, "diff", None).status.code(), Some(0));
    // The host has another one by now; and one of the program is missing altogether.
    let redis = redis.again(|dir, place| {
        rot(&object(place, 1, "/redis.conf"));
        fs::remove_file(object(place, 1, "/redis-server")).unwrap();
        fs::write(dir.join("redis.conf"), "nonsense\n").unwrap();
        lengthen(&dir.join("redis-server"));
    });
    redis.assert_unchanged();
    let log = fs::read_to_string(redis.cluster.place.path("data/node-1/node.log")).unwrap();
    assert!(log.contains("\"base_fetched\""), "{log}");
}

#[test]
fn a_wiped_replica_gets_a_base_from_the_others_on_a_host_that_has_other_files() {
    let redis = Redis::start();
    assert!(redis.ask(&["SET", "key", "value"]).contains("OK"));
    redis.wait_pinned();
    let redis = redis.again(|dir, place| {
        fs::remove_dir_all(place.path("data/node-3")).unwrap();
        fs::write(dir.join("redis.conf"), "nonsense\n").unwrap();
        fs::remove_file(dir.join("redis-server")).unwrap();
    });
    redis.cluster.wait_said("holds no log; 'skein rejoin' brings a replica back");
    let rejoined = redis.cluster.place.run(&["rejoin", "--name", "t", "--replica", "3"]);
    assert!(rejoined.status.success(), "{rejoined:?}");
    redis.assert_unchanged();
    let listed = |id| text(&base(&redis.cluster.place, "ls", Some(id)));
    assert_eq!(listed(3), listed(1));
}

/// A file that is a hole but for its middle.
fn large(path: &Path, middle: &str) {
    let file = fs::File::create(path).unwrap();
    file.set_len(LARGE_BYTES).unwrap();
    file.write_all_at(middle.as_bytes(), LARGE_BYTES / 2).unwrap();
}

/// The start of a node does not read it: what the server finds does.
#[test]
fn a_very_large_file_is_pinned_and_what_rots_of_it_is_mended() {
    let (place, port) = (Place::new(), free_port());
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/servers");
    let dir = place.path("files");
    fs::create_dir_all(dir.join("app")).unwrap();
    fs::copy(guests.join("files.py"), dir.join("app/files.py")).unwrap();
    fs::write(dir.join("app/words.py"), "UNKNOWN = 'ask else'\n").unwrap();
    large(&dir.join("big"), "the good");
    let (script, directory) = (dir.join("app/files.py"), dir.to_str().unwrap());
    let run = |place: Place| {
        let port_text = port.to_string();
        let server = ["/usr/bin/python3", script.to_str().unwrap(), &port_text, directory];
        Cluster::start_in(place, port, &[], &server)
    };
    let mut cluster = run(place);
    cluster.wait_ready();
    assert_eq!(cluster.ask("middle big"), "the good");
    for id in 1..=3 {
        let ls = || text(&base(&cluster.place, "ls", Some(id)));
        wait_for_or("the pinned file", ls, || ls().contains("/files/big\n").then_some(()));
    }
    cluster.signal(Signal::SIGTERM);
    cluster.wait_end();
    let place = cluster.into_place();
    // The host has another one by now, one replica has lost it, and another one has it damaged, of which nothing shows.
    large(&dir.join("big"), "the bad!");
    fs::remove_file(object(&place, 3, "/files/big")).unwrap();
    let damaged = object(&place, 1, "/files/big");
    let good = fs::read_to_string(place.path("data/node-1/base/notes")).unwrap();
    let file = fs::File::options().write(true).open(&damaged).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"the rot!", LARGE_BYTES / 2).unwrap();
    file.set_modified(modified).unwrap();
    let cluster = run(place);
    cluster.wait_ready();
    assert_eq!(cluster.ask("middle big"), "the good", "{good}");
    let middle = |id| {
        let mut bytes = [0; 8];
        let file = fs::File::open(object(&cluster.place, id, "/files/big")).ok()?;
        file.read_exact_at(&mut bytes, LARGE_BYTES / 2).ok()?;
        // It came as a hole, too.
        assert!(file.metadata().unwrap().blocks() * 512 < LARGE_BYTES / 4);
        (&bytes == b"the good").then_some(())
    };
    for id in 1..=3 {
        wait_for_or("the good contents", || cluster.evidence(), || middle(id));
    }
    let log = fs::read_to_string(cluster.place.path("data/node-1/node.log")).unwrap();
    let at = |word: &str| log.find(word).unwrap_or_else(|| panic!("{word}: {log}"));
    assert!(at("\"node_failed\"") < at("\"base_damaged\""), "{log}");
    cluster.wait_ready();
}

#[test]
fn an_ordinary_users_server_sees_the_same_owners_in_its_base() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let (place, port) = (Place::new(), free_port());
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/servers");
    let dir = place.path("files");
    // Some files of root, which the server may read or not, in a directory of root.
    fs::create_dir_all(dir.join("app")).unwrap();
    fs::create_dir(dir.join("own")).unwrap();
    fs::copy(guests.join("files.py"), dir.join("app/files.py")).unwrap();
    fs::write(dir.join("app/words.py"), "UNKNOWN = 'ask else'\n").unwrap();
    fs::write(dir.join("config"), "colour = red\n").unwrap();
    fs::write(dir.join("own/config"), "colour = blue\n").unwrap();
    fs::write(dir.join("closed"), "").unwrap();
    fs::set_permissions(dir.join("closed"), fs::Permissions::from_mode(0o600)).unwrap();
    let seed = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('create table row (id integer primary key, text)')";
    let made =
        Command::new("/usr/bin/python3").args(["-c", seed]).arg(dir.join("seed.db")).status();
    assert!(made.unwrap().success());
    for path in ["run", "files/own", "files/own/config", "files/seed.db"] {
        chown(place.path(path), Some(USER), Some(USER)).unwrap();
    }
    fs::create_dir(place.path("data")).unwrap();
    chown(place.path("data"), Some(USER), Some(USER)).unwrap();
    let start = |place: Place| {
        let mut command = Command::new("setpriv");
        let user = format!("--reuid={USER}");
        let group = format!("--regid={USER}");
        command.args([&user, &group, "--clear-groups", "--", env!("CARGO_BIN_EXE_skein")]);
        command.args(["run", "--name", "t", "--data", &place.data(), "--", "/usr/bin/python3"]);
        command.arg(dir.join("app/files.py")).arg(port.to_string()).arg(&dir);
        command.env("SKEIN_RUN_DIR", place.path("run")).env("SKEIN_RUNTIME", runtime());
        Cluster::spawn(place, port, &mut command)
    };
    let questions = [
        "about config",
        "read config",
        "about own/config",
        "read own/config",
        "about closed",
        "read closed",
        "about app",
        "about own",
        "rows",
    ];
    let mut cluster = start(place);
    let answers = questions.map(|question| cluster.ask(question));
    assert_eq!(answers[0], "100644 65534 65534");
    assert_eq!(answers[2], format!("100644 {USER} {USER}"));
    assert_eq!(answers[5], "error 13");
    let ls = |cluster: &Cluster| text(&base(&cluster.place, "ls", Some(3)));
    wait_for_or(
        "pinned files",
        || ls(&cluster),
        || ls(&cluster).contains("/files/own/config\n").then_some(()),
    );
    cluster.signal(Signal::SIGTERM);
    cluster.wait_end();
    fs::write(dir.join("config"), "colour = green\n").unwrap();
    fs::remove_file(dir.join("own/config")).unwrap();
    let cluster = start(cluster.into_place());
    assert_eq!(questions.map(|question| cluster.ask(question)), answers);
    cluster.wait_said("ready at");
}
