//! A follower of a real server's cluster continues from an image.

use super::cluster::wait_for_or;
use super::real::Real;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io;

impl Real {
    /// A follower takes an image of the server and its node is killed: its server continues from the image, and is like the others'. `work` makes the server do
    /// something, again and again.
    #[track_caller]
    pub fn continue_a_follower_from_an_image(&self, mut work: impl FnMut()) {
        // A server that is behind does not stand at once.
        self.wait_agreed();
        let status = self.cluster.wait_status(0);
        let rows = status["replicas"].as_array().unwrap();
        let row = rows.iter().find(|row| row["role"] == "follower").unwrap();
        let id = row["id"].as_u64().unwrap();
        let index = self.image_that_counts(id, &mut work);
        let node = Pid::from_raw(row["node_pid"].as_i64().unwrap() as i32);
        kill(node, Signal::SIGKILL).unwrap();
        self.cluster.wait_said(&format!("node {id} died"));
        work();
        self.cluster.wait_status(0);
        let restored = self.restored(id);
        assert_eq!(restored, Some(index), "{}", self.cluster.evidence());
        work();
        self.wait_agreed();
        self.wait_files_agreed();
        self.wait_memory_agreed();
    }

    /// The same with the work of a client, whose connection is in the image: `ask` makes a request with a word of its own. A connection that breaks is replaced: on a busy host
    /// another replica may lead meanwhile.
    #[track_caller]
    pub fn continue_a_follower_with_a_client<C>(
        &self,
        connect: impl Fn() -> io::Result<C>,
        mut ask: impl FnMut(&mut C, &str) -> io::Result<()>,
    ) {
        let (mut client, mut number) = (None, 0);
        self.continue_a_follower_from_an_image(|| {
            let answered = || {
                number += 1;
                let mut asks = client.take().or_else(|| connect().ok())?;
                ask(&mut asks, &format!("image-{number}")).ok()?;
                client = Some(asks);
                Some(())
            };
            wait_for_or("an answer", || self.cluster.evidence(), answered);
        });
    }

    /// An image of a replica's server: what `skein checkpoint create` says of it. A server that is behind does not stand at once.
    #[track_caller]
    pub fn take_image(&self, id: u64) -> Value {
        let id = id.to_string();
        let words = ["checkpoint", "create", "--name", "t", "--json", "--replica", &id];
        let taken = || {
            let output = self.cluster.place.run(&words);
            output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
        };
        wait_for_or("an image", || self.cluster.evidence(), taken)
    }

    /// An image of a replica's server that counts while `work` is done; its entry.
    #[track_caller]
    pub fn image_that_counts(&self, id: u64, mut work: impl FnMut()) -> Value {
        let place = &self.cluster.place;
        let taken =
            place.run(&["checkpoint", "create", "--name", "t", "--replica", &id.to_string()]);
        let said = String::from_utf8_lossy(&taken.stderr).into_owned();
        assert!(taken.status.success(), "{said}\n{}", self.cluster.evidence());
        // It counts when the servers were compared behind it.
        let counts = || {
            work();
            let image = self.images(id)?.pop()?;
            (image["confirmed"] == true).then(|| image["index"].clone())
        };
        wait_for_or("the image to count", || self.cluster.evidence(), counts)
    }

    /// What `skein checkpoint ls` says of a replica's images, the newest one last; none if it does not answer.
    pub fn images(&self, id: u64) -> Option<Vec<Value>> {
        let words = ["checkpoint", "ls", "--name", "t", "--json"];
        let all: Value = serde_json::from_slice(&self.cluster.place.run(&words).stdout).ok()?;
        let row = all.as_array()?.iter().find(|row| row["replica"] == id)?;
        row["images"].as_array().cloned()
    }

    /// The entry of the image from which a replica's server was restored last.
    pub fn restored(&self, id: u64) -> Option<Value> {
        self.events(id, "restoring").last().map(|line| line["index"].clone())
    }

    /// The lines of a node's log about events of this name.
    pub fn events(&self, id: u64, name: &str) -> Vec<Value> {
        let log = self.cluster.place.path(&format!("data/node-{id}/node.log"));
        let log = fs::read_to_string(log).unwrap();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == name).collect()
    }
}
