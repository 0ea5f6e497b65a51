//! A disk without room for images: while one is written, while its chain is merged, while one is received. The replica says so, serves on, keeps the images that it has, and goes on
//! by itself when there is room.
//!
//! The directory of one replica's images is a file system of its own, in a mount namespace that only the cluster sees. Root only.

mod common;

use std::collections::BTreeMap;
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

/// What is said of it.
const FULL: &str = "disk full; free space";
/// The fault's name.
const NO_ROOM: &str = "image_no_room";
const MIB: usize = 1 << 20;
/// What the server holds: it does not become smaller when it is packed.
const DATA_BYTES: usize = 6 * MIB;
const VALUE_BYTES: usize = 64 << 10;
/// So many values are new in an image: half a MiB.
const NEW_VALUES: usize = 8;
/// The most packs of an image (`skein_image::packed`): the next one merges the smaller half.
const MAX_PACKS: usize = 8;
/// Room for a pack of what is new, and not for one of that and of four others.
const ROOM: usize = 2 * MIB;
/// The file that takes the rest of the room.
const BALLAST: &str = "ballast";

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

    /// The same on the replica with little room, which has none for it otherwise. A server that is behind does not stand at once.
    #[track_caller]
    fn create_if_room(&self) -> (bool, String) {
        let create = || {
            let (done, said) = self.create(self.id);
            (done || said.contains(FULL)).then_some((done, said))
        };
        wait_for_or("an image, or no room for it", || self.real.cluster.evidence(), create)
    }

    #[track_caller]
    fn wait_fault(&self, is: bool) {
        let has = || {
            let (status, _) = self.real.cluster.status();
            let row = Cluster::replica(&status, self.id);
            let faults = row["faults"].as_array()?;
            let full = faults.iter().find(|fault| fault["name"] == NO_ROOM);
            let told = full
                .is_none_or(|fault| fault["why"].as_str().is_some_and(|why| why.contains(FULL)));
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

    /// The packs, and how long each is.
    fn packs(&self) -> BTreeMap<String, usize> {
        let names = self.names().into_iter().filter(|name| name.starts_with("pack-"));
        let len = |name: &String| fs::metadata(self.seen().join(name)).unwrap().len() as usize;
        names.map(|name| (name.clone(), len(&name))).collect()
    }

    /// Leaves so much room for images.
    fn leave(&self, bytes: usize) {
        let ballast = self.seen().join(BALLAST);
        fs::write(&ballast, []).unwrap();
        let free = nix::sys::statvfs::statvfs(&self.seen()).unwrap();
        let free = (free.blocks_available() * free.fragment_size()) as usize;
        fs::write(ballast, vec![1; free - bytes]).unwrap();
    }

    /// The replica's node is killed when its newest image counts, and its server continues from that; answers its entry.
    #[track_caller]
    fn continues(&mut self) -> u64 {
        let mut at = 4;
        // Once the servers were compared behind it.
        let counts = || {
            self.change(at..at + 1);
            at = 4 + (at + 1) % 80;
            let image = self.real.images(self.id)?.pop()?;
            (image["confirmed"] == true).then(|| image["index"].clone())
        };
        let entry = wait_for("an image that counts", counts);
        let (status, _) = self.real.cluster.status();
        let node = Cluster::replica(&status, self.id)["node_pid"].as_i64().unwrap() as i32;
        kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
        let restored = || {
            self.real.cluster.wait_status(0);
            (self.real.restored(self.id)? == entry).then_some(())
        };
        wait_for_or("its server to continue", || self.real.cluster.evidence(), restored);
        self.real.wait_agreed();
        self.real.wait_memory_agreed();
        entry.as_u64().unwrap()
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
    assert!(!done && said.contains(FULL), "{said}");
    assert_eq!(small.names(), [""; 0], "nothing of it stays");
    small.wait_fault(true);
    // Clients do not notice.
    small.change(0..4);

    small.resize(64);
    small.change(0..4);
    let (done, said) = small.create(3);
    assert!(done, "{said}\n{}", small.real.cluster.evidence());
    small.wait_fault(false);

    // Little is new from image to image, until their chain is merged. There is always room for that, and not for a merged one.
    let mut keys = DATA_BYTES / VALUE_BYTES;
    let mut packs = small.packs();
    assert_eq!(packs.len(), 1);
    let said = loop {
        small.change(keys..keys + NEW_VALUES);
        keys += NEW_VALUES;
        small.real.wait_agreed();
        small.leave(ROOM);
        let (done, said) = small.create_if_room();
        if !done {
            break said;
        }
        let now = small.packs();
        assert_eq!(now.len(), packs.len() + 1, "one for what is new: {now:?}");
        let new = now.iter().find(|(name, _)| !packs.contains_key(*name)).unwrap();
        assert!(*new.1 < ROOM / 2, "{new:?} is small");
        packs = now;
        assert!(packs.len() <= MAX_PACKS, "{packs:?}");
    };
    // The pack of the new image, not what names it.
    assert!(said.contains("images/pack-"), "{said}");
    assert_eq!((packs.len(), &small.packs()), (MAX_PACKS, &packs), "all are there as before");
    small.wait_fault(true);
    assert!(small.names().iter().all(|name| !name.ends_with(".part")), "{:?}", small.names());
    let verified = small.real.cluster.place.run(&["checkpoint", "verify", "--name", "t"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // The chain is good to continue from.
    let last = small.continues();
    assert_eq!(small.packs(), packs);

    small.leave(ROOM);
    assert!(!small.create_if_room().0, "it is merged again");
    small.wait_fault(true);

    fs::remove_file(small.seen().join(BALLAST)).unwrap();
    small.change(0..4);
    assert!(small.create_if_room().0);
    small.wait_fault(false);
    let merged = small.packs();
    let new = merged.iter().find(|(name, _)| !packs.contains_key(*name)).unwrap();
    assert!(*new.1 > ROOM, "{new:?} has what several of these had: {packs:?}");
    assert!(small.continues() > last);
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
