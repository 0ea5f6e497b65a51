//! A server's private layer on disk (`--layer disk`): servers with files go on after kills and from images, nothing of a layer is left, an ordinary user has it too,
//! servers see the same as with a layer in memory, and a full disk is one replica's fault.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::limits::Group;
use common::own::{self, Lines};
use common::real::{ANSWER, Real, installed};
use common::resp::{Redis, Reply};
use common::{PATIENCE, Place, assert_line, runtime, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The user "nobody" of most distributions.
const NOBODY: u32 = 65_534;
const REDIS: &str = "/usr/bin/redis-server";

/// redis with an append-only file in `dir`.
fn redis(dir: &Path, port: u16) -> Vec<String> {
    fs::create_dir_all(dir).unwrap();
    let port = port.to_string();
    let words = [REDIS, "--port", &port, "--dir", dir.to_str().unwrap()];
    words.into_iter().chain(["--appendonly", "yes", "--save", ""]).map(Into::into).collect()
}

fn connect(port: u16) -> Redis {
    wait_for("a connection", || Redis::connect(port, ANSWER).ok())
}

/// Stores so many values of 64 KiB; one key each.
fn store(port: u16, keys: std::ops::Range<u64>) {
    let broken = store_over_failovers(port, keys);
    assert_eq!(broken, 0, "connections broke");
}

/// The same; a connection that breaks is replaced. Answers how many broke.
fn store_over_failovers(port: u16, keys: std::ops::Range<u64>) -> usize {
    let (mut client, mut broken) = (connect(port), 0);
    for key in keys {
        let value = key.to_string().repeat(64 << 10);
        while client.set(&format!("key:{key}"), &value[..64 << 10]).is_err() {
            client = connect(port);
            broken += 1;
            assert!(broken < 10, "connections break again and again");
        }
    }
    broken
}

/// All files of at least so many bytes below a directory.
fn large(dir: &Path, bytes: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            found.extend(large(&entry.path(), bytes));
        } else if meta.len() >= bytes {
            found.push(entry.path());
        }
    }
    found
}

fn layer(place: &Place, replica: u64) -> PathBuf {
    place.path(&format!("data/node-{replica}/layer"))
}

fn layers(place: &Place, replica: u64) -> usize {
    fs::read_dir(layer(place, replica)).map_or(0, Iterator::count)
}

/// Bytes of memory that is in no file of a disk.
fn in_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Shmem:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_server_goes_on_after_kills_and_from_images_and_nothing_is_left() {
    let (place, port) = (Place::new(), free_port());
    let server = redis(&place.path("redis"), port);
    let mut real = Real::serve(place, port, &["--layer", "disk"], server);
    let before = in_memory();
    store(port, 0..900);
    let mut next = 900;
    real.continue_a_follower_from_an_image(|| {
        store(port, next..next + 5);
        next += 5;
    });
    // So much was not read while the server stood.
    let place = &real.cluster.place;
    let log = |replica| place.path(&format!("data/node-{replica}/node.log"));
    let logs = (1..=3).map(|replica| fs::read_to_string(log(replica)).unwrap());
    let ahead = logs.filter(|log| log.contains("files_read_ahead")).count();
    assert!(ahead > 0, "no replica has read files ahead");
    let mut written = 0;
    for replica in 1..=3 {
        // The append-only file, 56 MiB, is on the disk of the data directory.
        let found = large(&layer(&real.cluster.place, replica), 56 << 20);
        let [file] = &found[..] else { panic!("{found:?}") };
        let dev = fs::metadata(real.cluster.place.path("data")).unwrap().dev();
        let meta = fs::metadata(file).unwrap();
        assert_eq!(meta.dev(), dev);
        written += meta.len();
    }
    // Servers' shared memory, what is pinned, and other tests' have less than what is in the three layers.
    assert!(in_memory() < before + written * 2 / 3, "{before}, now {}", in_memory());
    real.kill_all_and_run_again();
    real.cluster.wait_status(0);
    assert_eq!(connect(port).say("DBSIZE"), Reply::Int(next as i64));
    for replica in 1..=3 {
        let one = || (layers(&real.cluster.place, replica) == 1).then_some(());
        wait_for_or("the killed server's layer to be gone", || real.cluster.evidence(), one);
    }
    let outside = Place::new();
    let exported = outside.path("exported");
    let words = ["files", "--name", "t", "--export", exported.to_str().unwrap()];
    let output = real.cluster.place.run(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(large(&exported, 18 << 20).len(), 1);
    let place = &real.cluster.place;
    let layers: Vec<PathBuf> = (1..=3).map(|replica| layer(place, replica)).collect();
    real.wait_agreed();
    real.wait_files_agreed();
    real.wait_memory_agreed();
    real.cluster.signal(Signal::SIGTERM);
    assert_eq!(real.cluster.wait_end(), Some(0), "{}", real.cluster.said());
    for layer in layers {
        assert_eq!(fs::read_dir(&layer).unwrap().count(), 0, "{}", layer.display());
    }
    // The same cluster with its layer in memory, from image and log; and with what was exported.
    let place = real.cluster.into_place();
    let first = place.dir.path().to_owned();
    let server = redis(&place.path("redis"), port);
    let again = Real::serve(place, port, &["--layer", "memory"], server);
    assert_eq!(connect(port).say("DBSIZE"), Reply::Int(next as i64));
    again.end();
    let (place, port) = (Place::new(), free_port());
    let dir = large(&exported, 18 << 20).remove(0);
    let dir = dir.ancestors().nth(2).unwrap().strip_prefix(&exported).unwrap();
    let server = redis(&Path::new("/").join(dir), port);
    let options = ["--layer", "disk", "--import", exported.to_str().unwrap()];
    let imported = Real::serve(place, port, &options, server);
    assert_eq!(connect(port).say("DBSIZE"), Reply::Int(next as i64));
    imported.end();
    // It was made again, for a server that begins there.
    fs::remove_dir_all(first).unwrap();
}

#[test]
fn an_ordinary_users_server_has_its_layer_on_disk() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    installed(REDIS);
    let (place, port) = (Place::new(), free_port());
    for dir in ["run", "home"] {
        fs::create_dir_all(place.path(dir)).unwrap();
        chown(place.path(dir), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let (skein, library) = (place.path("skein"), place.path("libskein.so"));
    fs::copy(place.skein().get_program(), &skein).unwrap();
    fs::copy(runtime(), &library).unwrap();
    let command = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&skein);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", place.path("home")).env("SKEIN_RUN_DIR", place.path("run"));
        command.env("SKEIN_RUNTIME", &library).current_dir(place.path("home"));
        command
    };
    let server = redis(&place.path("home/redis"), port);
    chown(place.path("home/redis"), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut run = command();
    run.args(["run", "--name", "t", "--layer", "disk", "--detach", "--"]).args(server);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // So much is read ahead of an image.
    store(port, 0..600);
    let created = command().args(["checkpoint", "create", "--name", "t"]).output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let verified = command().args(["verify", "--name", "t"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    let data = place.path("home/.local/state/skein/t");
    for replica in 1..=3 {
        let layer = data.join(format!("node-{replica}/layer"));
        let [file] = &large(&layer, 37 << 20)[..] else { panic!("{}", layer.display()) };
        assert_eq!(fs::metadata(file).unwrap().uid(), NOBODY);
    }
    let log = |replica| fs::read_to_string(data.join(format!("node-{replica}/node.log"))).unwrap();
    assert!((1..=3).any(|replica| log(replica).contains("files_read_ahead")));
    assert!(command().args(["stop", "--name", "t"]).output().unwrap().status.success());
    for replica in 1..=3 {
        let layer = data.join(format!("node-{replica}/layer"));
        assert_eq!(fs::read_dir(&layer).unwrap().count(), 0, "{}", layer.display());
    }
}

/// A server that writes more than all its replica may have of memory, node and files included, has an image, and continues from it.
#[test]
fn a_server_has_more_files_than_memory() {
    const MEMORY_BYTES: u64 = 96 << 20;
    const FILE_MIB: u64 = 192;
    let real = own::start("large.c", &["--layer", "disk", "--replicas", "1"]);
    let row = || Cluster::replica(&real.cluster.wait_status(0), 1).clone();
    let pid = |row: &Value, name: &str| row[name].as_i64().unwrap() as i32;
    let before = row();
    // The next node and its server are in it, too.
    let Some(group) = Group::of_memory(real.cluster.pid(), MEMORY_BYTES) else {
        println!("skipped: control groups cannot be written");
        return;
    };
    ["node_pid", "server_pid"].into_iter().for_each(|name| group.add(pid(&before, name)));
    let ask = |line: &str| {
        let answer = || Lines::connect(real.port(), PATIENCE).ok()?.ask(line).ok();
        wait_for_or("an answer", || real.cluster.evidence(), answer)
    };
    let written = ask(&format!("write {FILE_MIB} 5"));
    assert_ne!(written, "failed");
    assert_eq!(large(&layer(&real.cluster.place, 1), FILE_MIB << 20).len(), 1);
    assert_eq!(ask("sum"), written);
    let image = real.take_image(1)["index"].clone();
    let now = row();
    // Nothing of it was ended for want of memory.
    assert_eq!(["node_pid", "server_pid"].map(|name| now[name] == before[name]), [true; 2]);
    kill(Pid::from_raw(pid(&now, "node_pid")), Signal::SIGKILL).unwrap();
    real.cluster.wait_said("node 1 died (killed by SIGKILL)");
    assert_eq!(ask("sum"), written);
    assert_eq!(real.restored(1), Some(image), "{}", real.cluster.evidence());
    assert_eq!(
        real.cluster.said().matches("node 1 died").count(),
        1,
        "{}",
        real.cluster.evidence()
    );
    real.stop();
    drop(group);
}

#[test]
fn memory_is_refused_as_a_disk() {
    let place = Place::new();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let data = dir.path().join("data");
    let words = ["run", "--layer", "disk", "--data", data.to_str().unwrap(), "--", "/bin/sleep"];
    let output = place.skein_with_runtime().args(words).arg("1").output().unwrap();
    assert_line(
        &output,
        125,
        &["--layer disk", "tmpfs, which is memory", "ext4", "--layer memory"],
    );
    assert!(!data.exists());
}

/// Asks what file systems answer differently, and prints it.
const ASKS: &str = r#"
import ctypes, errno, fcntl, mmap, os, sys
def ask(what, call):
    try: print(what, call())
    except OSError as e: print(what, errno.errorcode[e.errno])
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode, at, n):
    if libc.fallocate(fd, mode, ctypes.c_long(at), ctypes.c_long(n)): raise OSError(ctypes.get_errno(), '')
    return os.fstat(fd).st_size
os.chdir(sys.argv[1])
fd = os.open('file', os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC)
ask('direct', lambda: os.write(fd, b'x' * 1001))
os.ftruncate(fd, 1 << 20)
os.pwrite(fd, b'end', 1 << 20)
for at in (0, 4096, 1 << 20, (1 << 20) + 3): ask(f'data {at}', lambda: os.lseek(fd, at, os.SEEK_DATA))
for at in (0, 4096, (1 << 20) + 3): ask(f'hole {at}', lambda: os.lseek(fd, at, os.SEEK_HOLE))
ask('at', lambda: os.lseek(fd, 0, os.SEEK_CUR))
for mode in (0, 1, 3, 8, 16, 32, 64): ask(f'allocate {mode}', lambda: fallocate(fd, mode, 8192, 1 << 21))
for request in (2, 0xc020660b, 0x40049409, 0x80086601, 0x801c581f): ask(hex(request), lambda: fcntl.ioctl(fd, request, bytes(64)))
ask('flags', lambda: hex(fcntl.fcntl(fd, fcntl.F_GETFL)))
ask('direct later', lambda: fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT))
ask('odd', lambda: os.pwrite(fd, b'y', 7))
s = os.fstat(fd)
print(s.st_size, s.st_blocks, s.st_blksize, s.st_ino, s.st_nlink)
f = os.fstatvfs(fd)
print(f.f_bsize, f.f_blocks, f.f_bfree, f.f_files, f.f_namemax)
m = mmap.mmap(fd, 1 << 16)
m[5] = 65
m.flush()
for n in range(40):
    os.close(os.open(f'a{n}', os.O_CREAT | os.O_WRONLY)); os.unlink(f'a{n}')
    os.mkdir('d'); os.symlink('x', 'l'); print(os.stat('d').st_ino, os.lstat('l').st_ino, end=' ')
    os.rmdir('d'); os.unlink('l')
print()
open('host', 'a').write('more'); os.utime('host', (1, 2)); os.rename('host', 'moved')
print(open('moved').read(), os.stat('moved').st_ino, os.stat('moved').st_mtime)
os.fsync(fd); os.fdatasync(fd); os.sync()
print(sorted(os.listdir('.')), os.stat('.').st_size)
"#;

#[test]
fn a_server_sees_the_same_wherever_its_layer_is() {
    let answers = ["memory", "disk"].map(|where_to| {
        let place = Place::new();
        let dir = place.path("files");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("host"), "host").unwrap();
        let script = place.file("asks.py", ASKS, 0o644);
        let mut run = place.skein_with_runtime();
        run.args(["run", "--name", "t", "--replicas", "1", "--layer", where_to, "--data"]);
        run.arg(place.data()).args(["--", "/usr/bin/python3"]).arg(script).arg(&dir);
        let output = run.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(layers(&place, 1), 0);
        fs::read_to_string(place.path("data/node-1/server.log")).unwrap()
    });
    assert!(answers[0].contains("direct 1001\ndata 0 0\n"), "{}", answers[0]);
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn a_full_disk_ends_a_followers_server_until_there_is_room() {
    if nix::unistd::geteuid().is_root() {
        assert_eq!(fill_a_disk(1), 0, "a connection broke without a failover");
    }
}

#[test]
fn a_full_disk_ends_the_leaders_server_until_there_is_room() {
    if nix::unistd::geteuid().is_root() {
        assert!(fill_a_disk(3) > 0, "the leader's server did not end");
    }
}

/// What `skein status` says about the disk of a replica's layer.
fn layer_fault(status: &Value, id: u64) -> Option<String> {
    let faults = Cluster::replica(status, id)["faults"].as_array().unwrap();
    let fault = faults.iter().find(|fault| fault["name"] == "layer_fails")?;
    Some(fault["why"].as_str().unwrap().to_owned())
}

/// Fills the disk of the third replica's layer while `leader` leads, and makes room again. Answers how many connections broke.
fn fill_a_disk(leader: u64) -> usize {
    let (place, port) = (Place::new(), free_port());
    let server = redis(&place.path("redis"), port);
    // The third replica's layer is on a disk of its own, of which a file takes the most, in a mount namespace that only the cluster sees.
    let disk = place.path("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&disk).status().unwrap();
    assert!(made.success());
    let layer = layer(&place, 3);
    fs::create_dir_all(&layer).unwrap();
    for dir in ["data", "data/node-3"] {
        fs::set_permissions(place.path(dir), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
    }
    let script = "mount -o loop \"$0\" \"$1\" && rmdir \"$1/lost+found\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&disk).arg(&layer);
    command.arg(place.skein().get_program()).args(["run", "--name", "t", "--layer", "disk"]);
    command.args(["--data", &place.data(), "--"]).args(server);
    command.env("SKEIN_RUN_DIR", place.path("run")).env("SKEIN_RUNTIME", runtime());
    let mut cluster = Cluster::spawn(place, port, &mut command);
    let mut status = cluster.wait_ready();
    if status["leader"] != leader {
        let to = leader.to_string();
        let output = cluster.place.run(&["members", "transfer", &to, "--name", "t"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        status = cluster.wait_status(0);
    }
    let node = Cluster::replica(&status, 3)["node_pid"].clone();
    let ballast = PathBuf::from(format!("/proc/{node}/root{}/ballast", layer.display()));
    fs::write(&ballast, vec![1; 44 << 20]).unwrap();
    let broken = store_over_failovers(port, 0..300);
    let log = || fs::read_to_string(cluster.place.path("data/node-3/node.log")).unwrap();
    let full = "the disk of the server's private layer is full";
    wait_for_or("the fault", || cluster.evidence(), || log().contains(full).then_some(()));
    // As long as there is no room the server is built again in vain.
    wait_for_or(
        "it to be told",
        || cluster.evidence(),
        || {
            let (status, code) = cluster.status();
            let why = layer_fault(&status, 3).filter(|_| code == Some(1))?;
            assert!(why.starts_with(full), "{why}");
            assert_eq!([1, 2].map(|id| layer_fault(&status, id)), [None, None]);
            let table = cluster.place.run(&["status", "--name", "t"]);
            let table = String::from_utf8(table.stdout).unwrap();
            let told = table.lines().filter(|line| line.starts_with(&format!("replica 3: {full}")));
            (told.count() == 1).then_some(())
        },
    );
    store(port, 300..310);
    let mut logs = [1, 2].map(|id| format!("data/node-{id}/node.log")).into_iter();
    let others = logs.all(|log| {
        !fs::read_to_string(cluster.place.path(&log)).unwrap().contains("private layer is")
    });
    assert!(others, "{}", cluster.evidence());
    // The kernel may have put the node's successor in its place: any process of the cluster sees the disk.
    let run = cluster.pid();
    fs::remove_file(format!("/proc/{run}/root{}/ballast", layer.display())).unwrap();
    let status = cluster.wait_status(0);
    assert_eq!([1, 2, 3].map(|id| layer_fault(&status, id)), [None, None, None]);
    assert!(!cluster.said().contains("diverged"), "{}", cluster.said());
    let output = cluster.place.run(&["verify", "--name", "t"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(connect(port).say("DBSIZE"), Reply::Int(310));
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.said());
    cluster.assert_nothing_left();
    broken
}
