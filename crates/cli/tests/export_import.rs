//! The server's files leave a cluster (`skein files --export`) and a new cluster begins with them (`skein run --import`).

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::cluster::{Cluster, free_port};
use common::real::{ANSWER, Real};
use common::resp::{Redis, Reply};
use common::{Place, assert_line, wait_for};

/// redis with an append-only file below `place`.
fn redis(place: Place, options: &[&str]) -> Real {
    let port = free_port();
    let dir = place.path("redis");
    fs::create_dir_all(&dir).unwrap();
    let server = words(&dir, port);
    Real::serve(place, port, options, server)
}

fn words(dir: &Path, port: u16) -> Vec<String> {
    let port = port.to_string();
    let words = ["/usr/bin/redis-server", "--port", &port, "--dir", dir.to_str().unwrap()];
    words.into_iter().chain(["--appendonly", "yes", "--save", ""]).map(Into::into).collect()
}

fn connect(port: u16) -> Redis {
    wait_for("a connection", || Redis::connect(port, ANSWER).ok())
}

fn set(real: &Real, keys: std::ops::Range<u64>) {
    let mut client = connect(real.port());
    for key in keys {
        assert_eq!(client.say(&format!("SET key:{key} {key}")), Reply::Status("OK".into()));
    }
}

/// Keys 0 to `last` are there.
fn assert_keys(port: u16, last: u64) {
    let (all, missing) = values(port, last + 1);
    assert_eq!(missing, [0; 0], "of {all}");
}

/// How many keys are there, and those of them, counted from 0, that have not their values.
fn values(port: u16, least: u64) -> (u64, Vec<u64>) {
    const AT_ONCE: usize = 1000;
    let mut client = connect(port);
    let Reply::Int(all) = client.say("DBSIZE") else { panic!("no number of keys") };
    let numbers: Vec<u64> = (0..least.max(all.cast_unsigned())).collect();
    let mut missing = Vec::new();
    for some in numbers.chunks(AT_ONCE) {
        let keys = some.iter().map(|number| format!("key:{number}"));
        let words: Vec<String> = ["MGET".to_owned()].into_iter().chain(keys).collect();
        let Ok(Reply::Array(found)) = client.ask(&words) else { panic!("no values") };
        assert_eq!(found.len(), some.len());
        let is_wrong =
            |(number, value): &(&u64, &Reply)| **value != Reply::bulk(number.to_string());
        missing.extend(some.iter().zip(&found).filter(is_wrong).map(|(number, _)| *number));
    }
    (all.cast_unsigned(), missing)
}

/// All keys that are there are the first ones, at least so many, as at one moment while they were set in turn; answers how many.
fn assert_first_keys(port: u16, least: u64) -> u64 {
    let (all, missing) = values(port, least);
    assert_eq!(missing, [0; 0], "{all} are there, of which {least} were acknowledged before");
    all
}

fn assert_all(port: u16, keys: [u64; 3]) {
    let mut client = connect(port);
    for key in keys {
        let text = key.to_string();
        assert_eq!(client.say(&format!("GET key:{key}")), Reply::Bulk(text.into_bytes()), "{key}");
    }
}

/// `skein files --export DIR PATHS`: exit code, and what it said.
fn export(real: &Real, dir: &Path, paths: &[&str]) -> std::process::Output {
    let words = [&["files", "--name", "t", "--export", dir.to_str().unwrap()], paths].concat();
    real.cluster.place.run(&words)
}

fn exported(real: &Real, dir: &Path, paths: &[&str]) -> String {
    let output = export(real, dir, paths);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{error}\n{}", real.cluster.evidence());
    assert!(said.contains(" as of entry "), "{said}");
    said
}

/// The server's directory in an export.
fn inside(export: &Path, dir: &Path) -> PathBuf {
    export.join(dir.strip_prefix("/").unwrap())
}

/// Keeps setting keys from `from` on, until `work` has ended; answers how many were there before and after.
fn under_load(real: &Real, from: u64, work: impl FnOnce()) -> (u64, u64) {
    const MOST: u64 = 200_000;
    let (next, done) = (AtomicU64::new(from), AtomicBool::new(false));
    let before = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = connect(real.port());
            while !done.load(Ordering::Relaxed) && next.load(Ordering::Relaxed) < from + MOST {
                let key = next.load(Ordering::Relaxed);
                let reply = client.say(&format!("SET key:{key} {key}"));
                assert_eq!(reply, Reply::Status("OK".into()));
                next.store(key + 1, Ordering::Relaxed);
            }
        });
        wait_for("some load", || (next.load(Ordering::Relaxed) > from + 20).then_some(()));
        let before = next.load(Ordering::Relaxed);
        // Whatever happens, the thread ends.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        before
    });
    (before, next.into_inner())
}

/// A server without Skein, on a copy of a directory.
fn natively(place: &Place, dir: &Path, check: impl FnOnce(u16)) {
    let port = free_port();
    let words = words(dir, port);
    let mut server = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(place.dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(port)));
    server.kill().unwrap();
    server.wait().unwrap();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_backup_under_load_is_whole_and_a_new_cluster_begins_with_it() {
    let real = redis(Place::new(), &[]);
    let (dir, backup) = (real.cluster.place.path("redis"), real.cluster.place.path("backup"));
    set(&real, 0..200);
    let (before, after) = under_load(&real, 200, || drop(exported(&real, &backup, &[])));
    assert!(after > before, "clients went on");

    // What was acknowledged before is in it, and of the rest what was set up to one entry.
    let copy = real.cluster.place.path("copy");
    let files = inside(&backup, &dir);
    assert!(files.join("appendonlydir").is_dir());
    let copied = Command::new("cp").arg("-a").arg(&files).arg(&copy).status().unwrap();
    assert!(copied.success());
    let mut copied = 0;
    natively(&real.cluster.place, &copy, |port| {
        // It loads its files before it answers.
        wait_for("its keys", || {
            (connect(port).say("GET key:0") == Reply::Bulk(b"0".into())).then_some(())
        });
        copied = assert_first_keys(port, before);
    });
    assert!(copied <= after, "{copied} of {after}");

    // Chosen paths alone, where an export was killed before.
    let some = real.cluster.place.path("some");
    fs::create_dir_all(real.cluster.place.path(".some.part/tmp")).unwrap();
    fs::write(real.cluster.place.path(".some.part/tmp/file"), "left").unwrap();
    let path = dir.join("appendonlydir");
    let said = exported(&real, &some, &[path.to_str().unwrap()]);
    assert!(inside(&some, &path).is_dir() && !some.join("tmp/file").exists(), "{said}");
    let names = |dir: &Path| fs::read_dir(dir).unwrap().count();
    assert_eq!(names(&inside(&some, &dir)), 1);

    // What cannot be.
    let full = export(&real, &backup, &[]);
    assert_line(&full, 2, &["backup", "not empty", "nothing was written"]);
    let missing = export(&real, &real.cluster.place.path("none"), &["/no/such"]);
    assert_line(&missing, 2, &["none", "has written nothing at /no/such"]);
    assert!(!real.cluster.place.path("none").exists());
    assert!(!real.cluster.place.path(".none.part").exists());
    let relative = export(&real, &real.cluster.place.path("none"), &["redis"]);
    assert_line(&relative, 2, &["redis", "slash"]);

    // A new cluster.
    let place = stopped(real);
    fs::rename(place.path("data"), place.path("old")).unwrap();
    let backup_word = backup.to_str().unwrap().to_owned();
    let mut real = redis(place, &["--import", &backup_word]);
    wait_for("its keys", || {
        (connect(real.port()).say("GET key:0") == Reply::Bulk(b"0".into())).then_some(())
    });
    assert_eq!(assert_first_keys(real.port(), before), copied);
    set(&real, after..after + 50);
    real.wait_agreed();
    real.wait_files_agreed();

    // It goes on from its log and those files, also when a replica's directory was lost; the directory that they came from is not used any more.
    fs::remove_dir_all(&backup).unwrap();
    fs::create_dir(&backup).unwrap();
    real.kill_all_and_run_again();
    real.cluster.wait_ready();
    // Those that were set between the backup and its end are in the old cluster alone.
    let (all, missing) = values(real.port(), after + 50);
    assert_eq!((all, missing), (copied + 50, (copied..after).collect()));
    real.wait_agreed();
    real.wait_files_agreed();
    real.wait_memory_agreed();

    // Another directory for a cluster that exists.
    let server = words(&dir, real.port());
    let place = stopped(real);
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    let output = place
        .skein_with_runtime()
        .current_dir(place.dir.path())
        .args(["run", "--name", "t", "--data", &place.data(), "--import", other.to_str().unwrap()])
        .arg("--")
        .args(server)
        .output()
        .unwrap();
    assert_line(&output, 125, &["began with", "backup", "leave out --import"]);
}

/// Ends a cluster; answers its place.
fn stopped(real: Real) -> Place {
    let mut cluster = real.cluster;
    cluster.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.said());
    cluster.into_place()
}

/// `skein checkpoint` with these words.
fn checkpoint(real: &Real, words: &[&str]) -> std::process::Output {
    real.cluster.place.run(&[&["checkpoint"], words, &["--name", "t"]].concat())
}

/// Exports an image, which has all that was acknowledged by now; keys from 300 on are set later.
fn export_image(real: &Real, file: &str) {
    let exported = checkpoint(real, &["export", file]);
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    set(real, 300..350);
}

#[test]
fn an_exported_image_goes_on_as_a_new_cluster() {
    let mut real = redis(Place::new(), &[]);
    set(&real, 0..300);
    let image = real.cluster.place.path("moved.image");
    let word = image.to_str().unwrap();
    // What an export that was killed has left is in nobody's way; a file of another name stays.
    let beside = ["part", "part.image", "image"].map(|end| format!("{word}.{end}"));
    beside.iter().for_each(|file| fs::write(file, "left").unwrap());
    export_image(&real, word);
    assert_eq!(beside.map(|file| Path::new(&file).exists()), [false, false, true]);

    // With logs in memory.
    let port = real.port();
    let place = stopped(real);
    fs::rename(place.path("data"), place.path("memory")).unwrap();
    let server = words(&place.path("redis"), port);
    real = Real::serve(place, port, &["--import", word, "--durability", "memory"], server);
    assert_keys(port, 299);
    assert_eq!(connect(port).say("GET key:301"), Reply::Nil, "it was set behind the image");
    set(&real, 1000..1100);
    real.wait_agreed();
    fs::remove_dir_all(real.cluster.place.path("memory")).unwrap();

    // On three replicas, and on one.
    for options in [&["--import", word][..], &["--import", word, "--replicas", "1"]] {
        let port = real.port();
        let place = stopped(real);
        let _ = fs::remove_dir_all(place.path("old"));
        fs::rename(place.path("data"), place.path("old")).unwrap();
        let server = words(&place.path("redis"), port);
        real = Real::serve(place, port, options, server);
        assert_keys(port, 299);
        let mut client = connect(port);
        assert_eq!(client.say("GET key:301"), Reply::Nil, "it was set behind the image");
        set(&real, 1000..1100);
        if options.len() == 2 {
            real.wait_agreed();
            real.wait_files_agreed();
            real.wait_memory_agreed();
        }
        // From its own log and image, whatever became of the file.
        let bytes = fs::read(&image).unwrap();
        fs::write(&image, "something else").unwrap();
        real.kill_all_and_run_again();
        real.cluster.wait_ready();
        assert_all(port, [0, 299, 1099]);
        fs::write(&image, bytes).unwrap();
    }

    // Of another program, and damaged.
    let port = real.port();
    let place = stopped(real);
    fs::rename(place.path("data"), place.path("last")).unwrap();
    let run = |image: &Path, port: u16| {
        let _ = fs::remove_dir_all(place.path("data"));
        let server = words(&place.path("redis"), port);
        let words = ["run", "--name", "t", "--data", &place.data(), "--replicas", "1", "--import"];
        let mut command = place.skein_with_runtime();
        command.current_dir(place.dir.path()).args(words).arg(image).arg("--").args(server);
        command.output().unwrap()
    };
    let other = run(&image, free_port());
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(125), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("import.image: an image of another program"), "{said}");
    let mut bytes = fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let broken = place.path("broken.image");
    fs::write(&broken, &bytes).unwrap();
    assert_line(&run(&broken, port), 125, &["broken.image", "damaged"]);
    bytes.truncate(middle);
    fs::write(&broken, &bytes).unwrap();
    assert_line(&run(&broken, port), 125, &["broken.image", "too early"]);
}

#[test]
fn a_cluster_is_moved_by_export_and_import() {
    let real = redis(Place::new(), &["--replicas", "1"]);
    set(&real, 0..300);
    let moved = real.cluster.place.path("moved");
    export_image(&real, moved.to_str().unwrap());
    let port = real.port();
    let place = stopped(real);
    fs::rename(place.path("data"), place.path("old")).unwrap();
    let server = words(&place.path("redis"), port);
    let import = |place: &Place, words: &[&OsStr]| {
        let mut command = place.skein_with_runtime();
        command.current_dir(place.dir.path()).args(["checkpoint", "import", "--name", "t"]);
        command.args(["--data", &place.data()]).args(words).arg("--").args(&server);
        command
    };
    let refused = |words: &[&OsStr], code: i32, parts: &[&str]| {
        assert_line(&import(&place, words).output().unwrap(), code, parts);
        assert!(!place.path("data/cluster.json").exists());
    };
    let (old, missing) = (place.path("old"), place.path("missing"));
    refused(&[old.as_os_str()], 2, &["old", "directory", "skein run --import"]);
    refused(&[moved.as_os_str(), OsStr::new("--import"), old.as_os_str()], 2, &["leave out"]);
    refused(&[missing.as_os_str()], 125, &["missing", "No such file"]);
    refused(&[OsStr::new("--detach"), missing.as_os_str()], 125, &["missing", "No such file"]);

    let mut command = import(&place, &[moved.as_os_str()]);
    let cluster = Cluster::spawn(place, port, &mut command);
    cluster.wait_ready();
    assert_keys(port, 299);
    let real = Real::around(cluster);
    assert_eq!(connect(port).say("GET key:301"), Reply::Nil, "it was set behind the image");
    set(&real, 1000..1100);
    real.wait_agreed();
}

#[test]
fn an_export_needs_nothing_of_its_host_but_skein() {
    // A program of this host alone, whose cluster began with files, and was upgraded since.
    let (place, port) = (Place::new(), free_port());
    let own = place.path("own-redis");
    fs::copy("/usr/bin/redis-server", &own).unwrap();
    let (from, dir) = (place.path("from"), place.path("redis"));
    fs::create_dir_all(inside(&from, &dir)).unwrap();
    fs::write(inside(&from, &dir).join("note"), "text").unwrap();
    let mut server = words(&dir, port);
    server[0] = own.to_str().unwrap().to_owned();
    let real = Real::serve(place, port, &["--import", from.to_str().unwrap()], server.clone());
    set(&real, 0..300);
    server.extend(["--maxmemory", "12mb"].map(String::from));
    let upgrade = [&["upgrade", "--name", "t", "--args"][..], &as_words(&server[1..])].concat();
    let upgraded = real.cluster.place.run(&upgrade);
    assert_eq!(upgraded.status.code(), Some(0), "{upgraded:?}");
    assert_keys(port, 299);
    let file = real.cluster.place.path("moved.skein");
    let word = file.to_str().unwrap();
    export_image(&real, word);

    // A host with neither the program, nor the files, nor that version of Skein.
    let place = stopped(real);
    fs::rename(place.path("data"), place.path("old")).unwrap();
    fs::remove_file(&own).unwrap();
    fs::remove_dir_all(&from).unwrap();
    let library = place.path("libskein.so");
    let bytes = fs::read(common::runtime()).unwrap();
    fs::write(&library, [&bytes[..], b"another version"].concat()).unwrap();
    let start = |place: Place, import: &[&str]| {
        let mut command = place.skein();
        command.env("SKEIN_RUNTIME", &library);
        command.args(["run", "--name", "t", "--data", &place.data()]).args(import);
        let cluster = common::cluster::Cluster::spawn(place, port, command.arg("--").args(&server));
        cluster.wait_ready();
        cluster
    };
    let cluster = start(place, &["--import", word]);
    assert_keys(port, 299);
    let (status, _) = cluster.status();
    let rows = status["replicas"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["other_runtime"] == true), "{status}");
    assert_eq!(connect(port).say("CONFIG GET maxmemory").text().matches("12582912").count(), 1);
    connect(port).say("SET key:1000 1000");
    // And again from what it has itself.
    cluster.signal(nix::sys::signal::Signal::SIGINT);
    let mut cluster = cluster;
    cluster.wait_end();
    let place = std::mem::replace(&mut cluster.place, Place::new());
    fs::rename(&file, place.path("away")).unwrap();
    let again = start(place, &[]);
    assert_all(port, [0, 299, 1000]);
    let (status, _) = again.status();
    assert_eq!(status["replicas"].as_array().map(Vec::len), Some(3), "{status}");
}

fn as_words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn what_cannot_be_imported_is_refused_and_no_cluster_is_made() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let run_in = |cwd: &Path, import: &Path| {
        let words = ["run", "--name", "t", "--data", &place.data(), "--import"];
        let mut command = place.skein_with_runtime();
        command.current_dir(cwd).args(words).arg(import);
        command.args(["--", "/usr/bin/redis-server", "--port", "0"]).output().unwrap()
    };
    let strange = place.dir.path().join(OsStr::from_bytes(b"strange-\xff"));
    fs::create_dir(&strange).unwrap();
    let no_text = |what| [what, "strange-", "no UTF-8 text"];
    assert_line(&run_in(place.dir.path(), &strange), 125, &no_text("--import"));
    assert_line(&run_in(&strange, &place.path("file")), 125, &no_text("working directory"));
    let missing = place.path("missing");
    let run = |import: &str| run_in(place.dir.path(), Path::new(import));
    assert_line(&run(missing.to_str().unwrap()), 125, &["--import", "missing", "No such file"]);
    assert_line(&run(place.path("file").to_str().unwrap()), 125, &["--import", "file"]);
    assert!(!place.path("data/cluster.json").exists() && !place.path("data/importing").exists());
}

#[test]
fn a_replica_is_founded_with_what_was_given_for_it_and_nothing_else() {
    let (place, import) = (Place::new(), "--import");
    let text = format!(
        "name = \"t\"\nid = 1\ndata_dir = \"{}\"\ntrust_network = true\n\
         peers = [{{ id = 1, address = \"127.0.0.1:7100\" }}]\n[server]\nprogram = \"/bin/true\"\n",
        place.path("node").display()
    );
    let config = place.file("skein.toml", &text, 0o644);
    let found = |words: &[&str]| {
        place.run(&[&["found", "--config", config.to_str().unwrap()], words].concat())
    };
    let there = |name: &str| place.path("node").join(name).exists();
    let missing = place.path("missing");
    assert_line(&found(&[import, missing.to_str().unwrap()]), 2, &["missing", "No such file"]);
    assert!(!there("begin") && !there("importing"));
    // Of a try that was killed.
    fs::create_dir_all(place.path("node/base")).unwrap();
    let left = ["import", "import.image", "import.part", "base/index"];
    left.iter().for_each(|name| fs::write(place.path("node").join(name), "left").unwrap());
    assert_eq!(found(&[]).status.code(), Some(0));
    assert!(there("begin") && !left.iter().any(|name| there(name)));
    let files = place.path("files");
    fs::create_dir(&files).unwrap();
    assert_eq!(found(&[import, files.to_str().unwrap()]).status.code(), Some(0));
    assert!(there("import") && !there("importing"));
    // Asked for once more it is the same.
    assert_eq!(found(&[]).status.code(), Some(0));
    assert!(there("import"));
}
