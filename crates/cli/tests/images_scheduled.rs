//! Images that nobody asks for: whom they are taken from, who gets them, how many stay, and what the logs forget behind them.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::cluster::{Cluster, wait_for_or};
use common::real::{ANSWER, Real};
use common::resp::{Redis, Reply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A client that writes keys of its own, with another connection where one breaks.
struct Writer<'a> {
    real: &'a Real,
    client: Option<Redis>,
    tried: i64,
    told: i64,
}

impl<'a> Writer<'a> {
    const fn new(real: &'a Real) -> Self {
        Self { real, client: None, tried: 0, told: 0 }
    }

    fn write(&mut self, times: usize) {
        for _ in 0..times {
            self.client = self.client.take().or_else(|| self.connect());
            let Some(client) = &mut self.client else { continue };
            self.tried += 1;
            match client.set(&format!("key-{}", self.tried), "value") {
                Ok(()) => self.told += 1,
                Err(_) => self.client = None,
            }
        }
    }

    fn connect(&self) -> Option<Redis> {
        Redis::connect(self.real.port(), ANSWER).ok()
    }

    /// Everything that it was told is there, and nothing else.
    #[track_caller]
    fn check(&self) {
        let size = || match self.connect()?.ask(&["DBSIZE"]).ok()? {
            Reply::Int(size) => Some(size),
            _ => None,
        };
        let size = wait_for_or("an answer", || self.real.cluster.evidence(), size);
        let Self { tried, told, .. } = self;
        assert!(*told > 0 && (*told..=*tried).contains(&size), "{told} of {tried}: {size}");
    }
}

/// Entries of lines of a log, or of images.
fn entries<'a>(lines: impl IntoIterator<Item = &'a Value>) -> BTreeSet<u64> {
    lines.into_iter().map(|line| line["index"].as_u64().unwrap()).collect()
}

/// The entries of the images in a replica's directory.
fn on_disk(real: &Real, id: u64) -> BTreeSet<u64> {
    let dir = real.cluster.place.path(&format!("data/node-{id}/images"));
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("image-")?.parse().ok()).collect()
}

/// The first entry of a replica's log, if it answers.
fn first_entry(status: &Value, id: u64) -> Option<u64> {
    let rows = status["replicas"].as_array()?;
    rows.iter().find(|row| row["id"] == id)?["first_entry"].as_u64()
}

/// Waits until replica 1 leads, and all are well; answers the status.
#[track_caller]
fn wait_led_by_first(real: &Real) -> Value {
    let evidence = || format!("{}\n{:#}", real.cluster.evidence(), real.cluster.status().0);
    wait_for_or("replica 1 to lead, and all to be well", evidence, || {
        let (status, code) = real.cluster.status();
        (code == Some(0) && status["leader"] == 1).then_some(status)
    })
}

/// Where one replica has the only server, images of it are the leader's own, and count without a comparison; the passive replica has them, and goes on from one.
#[test]
fn a_standby_takes_images_of_its_leader_by_itself_and_its_logs_forget() {
    let options = ["--mode", "standby", "--set", "checkpoint.log_entries=100"];
    let real = Real::redis(&options, &["--save", ""]);
    let evidence = || format!("{}\n{:#}", real.cluster.evidence(), real.cluster.status().0);
    wait_led_by_first(&real);
    let mut writer = Writer::new(&real);
    // A log that is cut short at a second image and at a third one.
    let forgot = |id| entries(&real.events(id, "log_forgot"));
    wait_for_or("all logs to be cut short twice", evidence, || {
        writer.write(25);
        (1..=3).all(|id| forgot(id).len() >= 2).then_some(())
    });
    let status = wait_led_by_first(&real);

    let received = entries(&real.events(2, "image_received"));
    // There may be another one at any time.
    let are_the_leaders = |what: &str, all: &BTreeSet<u64>| {
        let taken = entries(&real.events(1, "image_taken"));
        assert!(all.is_subset(&taken), "{what}: {all:?} of {taken:?}\n{}", evidence());
    };
    assert!(received.len() >= 3, "{received:?}");
    are_the_leaders("received", &received);
    for id in 1..=2 {
        let images = real.images(id).unwrap();
        assert!(!images.is_empty(), "{}", evidence());
        are_the_leaders("listed", &entries(&images));
        are_the_leaders("on disk", &on_disk(&real, id));
    }
    assert_eq!((on_disk(&real, 3), real.images(3).unwrap_or_default()), ([].into(), vec![]));
    for id in 1..=3 {
        let (first, forgot) = (first_entry(&status, id).unwrap(), forgot(id));
        assert!(forgot.iter().any(|entry| first == entry + 1), "replica {id}: {first}, {forgot:?}");
        are_the_leaders("forgotten", &forgot);
    }

    let node = Cluster::replica(&status, 1)["node_pid"].as_i64().unwrap();
    kill(Pid::from_raw(node as i32), Signal::SIGKILL).unwrap();
    wait_for_or("the passive replica to go on from an image", evidence, || {
        writer.write(1);
        real.restored(2)
    });
    let restored = entries(&real.events(2, "restoring"));
    let received = entries(&real.events(2, "image_received"));
    assert!(restored.is_subset(&received), "{restored:?} of {received:?}");
    wait_led_by_first(&real);
    writer.check();
    let said = real.cluster.said();
    assert!(!said.contains("diverged"), "{said}");
    real.stop();
}

/// Under load until each replica has had two images more than are to be kept: so many are left on its disk, and the log begins behind the oldest one.
#[track_caller]
fn are_kept(keep: usize) {
    const VALUE_BYTES: usize = 32 << 10;
    let keep_option = format!("checkpoint.keep={keep}");
    // The pause behind an image ends when the log has grown by eight times as many bytes.
    let options = ["--set", &keep_option, "--set", "checkpoint.log_bytes=1048576"];
    let more = ["--set", "checkpoint.log_entries=1000000"];
    let real = Real::redis(&[&options[..], &more].concat(), &["--save", ""]);
    let evidence = || format!("{}\n{:#}", real.cluster.evidence(), real.cluster.status().0);
    let mut client = Redis::connect(real.port(), ANSWER).unwrap();
    let value = "v".repeat(VALUE_BYTES);
    let had = |id| {
        let all = ["image_taken", "image_received"].map(|name| entries(&real.events(id, name)));
        all[0].union(&all[1]).count()
    };
    wait_for_or("more images than are kept", evidence, || {
        for key in 0..40 {
            if client.set(&format!("key-{}", key % 8), &value).is_err() {
                client = Redis::connect(real.port(), ANSWER).ok()?;
            }
        }
        (1..=3).all(|id| had(id) >= keep + 2).then_some(())
    });
    let is_settled = |status: &Value, id| {
        let images = real.images(id)?;
        let all = entries(&images);
        let counts = images.iter().all(|image| image["confirmed"] == true);
        let is_so = counts && all.len() == keep && on_disk(&real, id) == all;
        let begins = first_entry(status, id)? == all.first()? + 1;
        (is_so && begins).then_some(())
    };
    wait_for_or("so many images, and logs behind them", evidence, || {
        // An image counts when servers were compared behind it.
        let _ = client.set("small", "value");
        let (status, code) = real.cluster.status();
        let all = (1..=3).all(|id| is_settled(&status, id).is_some());
        (code == Some(0) && all).then_some(())
    });
    real.end();
}

#[test]
fn one_image_is_kept_where_one_is_to_be() {
    are_kept(1);
}

#[test]
fn three_images_are_kept_where_three_are_to_be() {
    are_kept(3);
}
