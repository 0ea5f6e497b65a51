//! A disk without room for images: while one is written, while its chain is merged, while one is received. The replica says so, serves on, keeps the images that it has, and goes on
//! by itself when there is room.
//!
//! The directory of one replica's images is a file system of its own, in a mount namespace that only the cluster sees. Root only.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::real::{ANSWER, Random, Real};
use common::resp::Redis;
use common::{Place, runtime, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The fault's name.
const NO_ROOM: &str = "image_no_room";
const MIB: usize = 1 << 20;
/// What the server holds: it does not become smaller when it is packed.
const DATA_BYTES: usize = 6 * MIB;
const VALUE_BYTES: usize = 64 << 10;

struct Small {
    real: Real,
    /// The replica whose images have little room.
    id: u64,
    dir: PathBuf,
    random: Random,
}

impl Small {
    /// redis on three replicas, with so many MiB for one's images.
    fn new(options: &[&str], id: u64, mib: usize) -> Self {
        let (place, port) = (Place::new(), free_port());
        let dir = place.path(&format!("data/node-{id}/images"));
        fs::create_dir_all(&dir).unwrap();
        for part in ["data".into(), format!("data/node-{id}")] {
            fs::set_permissions(place.path(&part), fs::Permissions::from_mode(0o700)).unwrap();
        }
        let script = "mount -t tmpfs -o mode=700,size=\"$0\" images \"$1\" && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, &format!("{mib}m")]).arg(&dir);
        command.arg(place.skein().get_program()).args(["run", "--name", "t"]).args(options);
        command.args(["--data", &place.data(), "--", "/usr/bin/redis-server", "--port"]);
        command.args([&port.to_string(), "--save", ""]);
        command.env("SKEIN_RUN_DIR", place.path("run")).env("SKEIN_RUNTIME", runtime());
        let real = Real::around(Cluster::spawn(place, port, &mut command));
        real.cluster.wait_ready();
        // A passive replica that leads first hands on, which ends its clients' connections.
        let leads = || {
            let (status, _) = real.cluster.status();
            let leader = status["leader"].as_u64()?;
            (Cluster::replica(&status, leader)["kind"] == "active").then_some(())
        };
        wait_for_or("an active replica to lead", || real.cluster.evidence(), leads);
        let small = Self { real, id, dir, random: Random::new(3) };
        small.random(0..DATA_BYTES / VALUE_BYTES)
    }

    /// Other values for these keys.
    fn random(mut self, keys: std::ops::Range<usize>) -> Self {
        self.change(keys);
        self
    }

    fn change(&mut self, keys: std::ops::Range<usize>) {
        let mut redis = Redis::connect(self.real.port(), ANSWER).unwrap();
        for key in keys {
            let value = self.random.bytes(VALUE_BYTES);
            redis.ask(&[b"SET", format!("key-{key}").as_bytes(), &value]).unwrap();
        }
    }

    /// The directory as the cluster's processes see it.
    fn seen(&self) -> PathBuf {
        let dir = self.dir.strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.real.cluster.pid())).join(dir)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.seen()).unwrap().flatten();
        let mut names: Vec<_> = names.map(|e| e.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The file system gets this size.
    fn resize(&self, mib: usize) {
        let pid = self.real.cluster.pid().to_string();
        let size = format!("remount,mode=700,size={mib}m");
        let mut mount = Command::new("nsenter");
        mount.args(["--target", &pid, "--mount", "mount", "-o", &size]).arg(&self.dir);
        assert!(mount.status().unwrap().success());
    }

    /// `skein checkpoint create` on a replica: whether it has an image, and what was said.
    fn create(&self, id: u64) -> (bool, String) {
        let id = id.to_string();
        let words = ["checkpoint", "create", "--name", "t", "--replica", &id];
        let output = self.real.cluster.place.run(&words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.lines().count() <= 1, "{said}");
        (output.status.success(), said)
    }

    #[track_caller]
    fn wait_fault(&self, is: bool) {
        let has = || {
            let (status, _) = self.real.cluster.status();
            let row = Cluster::replica(&status, self.id);
            let faults = row["faults"].as_array()?;
            let full = faults.iter().find(|fault| fault["name"] == NO_ROOM);
            let told = full.is_none_or(|fault| {
                fault["why"].as_str().is_some_and(|why| why.contains("disk full; free space"))
            });
            (told && full.is_some() == is).then_some(())
        };
        let evidence =
            || format!("{}\n{:#}", self.real.cluster.evidence(), self.real.cluster.status().0);
        wait_for_or(&format!("the fault {NO_ROOM}: {is}"), evidence, has);
    }

    /// Whether a node's log has these words.
    fn logged(&self, id: u64, words: &str) -> bool {
        let log = self.real.cluster.place.path(&format!("data/node-{id}/node.log"));
        fs::read_to_string(log).unwrap().contains(words)
    }

    fn row(&self, id: u64) -> Value {
        Cluster::replica(&self.real.cluster.wait_status(0), id).clone()
    }
}

#[test]
fn images_that_cannot_be_written_or_merged_are_named_and_taken_when_there_is_room() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a small file system");
        return;
    }
    let mut small = Small::new(&[], 3, 4);
    small.real.wait_agreed();
    let (done, said) = small.create(3);
    assert!(!done && said.contains("disk full; free space"), "{said}");
    assert_eq!(small.names(), [""; 0], "nothing of it stays");
    small.wait_fault(true);
    // Clients do not notice.
    small.change(0..4);

    small.resize(64);
    small.change(0..4);
    let (done, said) = small.create(3);
    assert!(done, "{said}\n{}", small.real.cluster.evidence());
    small.wait_fault(false);

    // Little changes from image to image, until their chain is merged. There is room for a change, not for that.
    let taken =
        |small: &Small| small.names().iter().filter(|name| name.starts_with("pack-")).count();
    let mut packs = 0;
    let full = (0..40).find_map(|n| {
        small.change(n % 90..n % 90 + 4);
        small.real.wait_agreed();
        if n == 2 {
            packs = taken(&small);
            let free = nix::sys::statvfs::statvfs(&small.seen()).unwrap();
            let free = (free.blocks_available() * free.fragment_size()) as usize;
            fs::write(small.seen().join("ballast"), vec![1; free - 2 * MIB]).unwrap();
        }
        let (done, said) = small.create(3);
        (!done).then_some((n, said))
    });
    let (n, said) = full.expect("there is room for few images only");
    assert!(said.contains("disk full; free space"), "{said}");
    assert!(n > 2 && taken(&small) >= packs, "{n} images");
    small.wait_fault(true);
    assert!(small.names().iter().all(|name| !name.ends_with(".part")), "{:?}", small.names());
    let verified = small.real.cluster.place.run(&["checkpoint", "verify", "--name", "t"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));

    fs::remove_file(small.seen().join("ballast")).unwrap();
    small.change(0..4);
    // A server that is behind does not stand at once.
    let create = || small.create(3).0.then_some(());
    wait_for_or("an image, as there is room", || small.real.cluster.evidence(), create);
    small.wait_fault(false);
    // What was kept is good to continue from, once the servers were compared behind it.
    let mut at = 4;
    let counts = || {
        small.change(at..at + 1);
        at = 4 + (at + 1) % 80;
        let words = ["checkpoint", "ls", "--json", "--name", "t"];
        let listed = small.real.cluster.place.run(&words).stdout;
        let listed: Value = serde_json::from_slice(&listed).unwrap_or_default();
        let own = listed.as_array()?.iter().find(|row| row["replica"] == 3)?;
        let is_confirmed = |image: &Value| image["confirmed"] == true;
        own["images"].as_array()?.iter().any(is_confirmed).then_some(())
    };
    wait_for("an image that counts", counts);
    let node = small.row(3)["node_pid"].as_i64().unwrap() as i32;
    kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
    small.real.cluster.wait_said("node 3 died");
    small.real.cluster.wait_status(0);
    assert!(small.logged(3, r#""event":"restoring""#), "{}", small.real.cluster.evidence());
    small.real.end();
}

#[test]
fn an_image_that_cannot_be_received_is_named_and_comes_when_there_is_room() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a small file system");
        return;
    }
    let small = Small::new(&["--mode", "standby"], 2, 4);
    let (done, said) = small.create(1);
    assert!(done, "{said}");
    small.wait_fault(true);
    assert!(small.logged(2, "the image of replica 1 was not received"));
    // Its sender's image is as it was written: nobody says otherwise, or reads it for that.
    assert!(!small.logged(1, "image_unusable"));
    let mut redis = Redis::connect(small.real.port(), ANSWER).unwrap();
    redis.ask(&["SET", "served", "on"]).unwrap();

    small.resize(64);
    small.wait_fault(false);
    let has = || {
        let [ours, theirs] = [1, 2].map(|id| small.row(id)["images"]["index"].as_u64());
        (ours.is_some() && ours == theirs).then_some(())
    };
    wait_for_or("the passive replica to have the image", || small.real.cluster.evidence(), has);
    assert!(small.names().iter().all(|name| !name.contains(".incoming")), "{:?}", small.names());
    small.real.stop();
}
