//! One round of a soak: one or two replicas take images, lose their servers, and continue.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{READY_MAX, Tally};
use crate::interrupt::Interrupt;
use crate::zoo::cage::Cage;
use crate::zoo::half::Asked;
use crate::zoo::load::Load;
use crate::zoo::say;
use skein_testkit::cluster::Cluster;
use skein_testkit::cluster::status::{Replica, Status};
use skein_testkit::{Failure, Outcome, Random};

/// Requests between two rounds, and before an image: below this.
const SOME: u64 = 6;
/// MariaDB closes a connection that has said nothing for 10 s.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a replica may take until it has an image: it refuses while it is behind.
const IMAGE_MAX: Duration = Duration::from_secs(120);

/// What a round works with.
pub struct Round<'a, 'b> {
    pub interrupt: &'a Interrupt,
    pub cluster: &'a mut Cluster,
    pub cage: &'a Cage<'b>,
    pub load: &'a Load<'b>,
}

/// A replica whose server continues from an image.
struct Chosen {
    replica: u64,
    /// The image's entry.
    index: u64,
    /// The process of the node that took it.
    node: Pid,
}

impl Round<'_, '_> {
    /// At most so many cycles.
    pub fn run(mut self, most: usize, chance: &mut Random, tally: &mut Tally) -> Outcome {
        let term = self.healthy()?.term;
        let half = Asked::begin(self.cage);
        let begun = Instant::now();
        let mut chosen = Vec::new();
        let mut others: Vec<u64> = (1..=super::REPLICAS).collect();
        for _ in 0..most.min(1 + chance.below(2) as usize) {
            let replica = others.remove(chance.below(others.len() as u64) as usize);
            self.requests(chance.below(SOME))?;
            let index = self.image(replica, tally)?;
            let node = of(&self.healthy()?, replica)?.pid()?;
            chosen.push(Chosen { replica, index, node });
        }
        for one in &chosen {
            let interrupt = self.interrupt;
            interrupt.wait_at_most(IMAGE_MAX, "an image to count", || self.counts(one))?;
        }
        let status = self.healthy()?;
        let leader = status.leader()?.id;
        for Chosen { replica, index, .. } in &chosen {
            let (what, pid) = end(&status, *replica, chance.below(2) == 0)?;
            let killed =
                format!("killed {what} {replica}, process {pid}, with an image of {index}");
            say(&self.cage.species.name, &killed);
        }
        for Chosen { replica, index, .. } in &chosen {
            // The one before it may be of a former round.
            let continued = || {
                let restored = self.cluster.restored(*replica)?;
                Ok(restored.last().is_some_and(|last| last >= index).then_some(()))
            };
            self.interrupt.wait_at_most(READY_MAX, "a server to continue from it", continued)?;
        }
        let same_term = self.healthy()?.term == term;
        match half.map(Asked::finish) {
            Some(Ok(())) => tally.halves += 1,
            // A new term resets connections, and servers do where a request does not go on.
            Some(Err(why)) if same_term && begun.elapsed() < PATIENCE => {
                return Err(Failure::of("the rest of a request is not answered", why));
            }
            Some(Err(_)) | None => {}
        }
        self.requests(1 + chance.below(SOME))?;
        self.compare()?;
        tally.cycles += chosen.len() as u64;
        tally.leaders += chosen.iter().filter(|one| one.replica == leader).count() as u64;
        Ok(())
    }

    fn healthy(&mut self) -> Outcome<Status> {
        self.interrupt.wait_at_most(READY_MAX, "all replicas", || self.cluster.healthy())
    }

    /// Something, once an image counts. A node that has ended before keeps none.
    fn counts(&mut self, one: &Chosen) -> Outcome<Option<()>> {
        let node = self.cluster.healthy()?.map(|status| of(&status, one.replica)?.pid());
        if let Some(node) = node.transpose()?.filter(|node| *node != one.node) {
            let Chosen { replica, index, node: before } = one;
            return Err(Failure(format!(
                "node {replica}, process {before}, ended without having been killed here, before its image of {index} counted; it is process {node} now"
            )));
        }
        self.cluster.image_counts(one.replica, one.index)
    }

    /// So many more requests are acknowledged.
    fn requests(&mut self, more: u64) -> Outcome {
        let count = self.load.count()? + more;
        self.interrupt.wait_at_most(READY_MAX, "requests to be acknowledged", || {
            self.cluster.check()?;
            Ok((self.load.count()? >= count).then_some(()))
        })
    }

    /// A replica takes an image; answers its entry.
    fn image(&self, replica: u64, tally: &mut Tally) -> Outcome<u64> {
        let mut refused = String::new();
        let take = || match self.cluster.take_image(replica)? {
            Ok(taken) => Ok(Some(taken)),
            Err(why) => {
                refused = why;
                Ok(None)
            }
        };
        let taken = self.interrupt.wait_at_most(IMAGE_MAX, "an image", take);
        let taken = taken.map_err(|failure| Failure::of(failure, &refused))?;
        tally.stood_us = tally.stood_us.max(taken.stood_us);
        Ok(taken.index)
    }

    /// All servers are alike, while clients rest.
    fn compare(&mut self) -> Outcome {
        self.load.rest(true);
        self.cluster.no_difference()?;
        let cluster = &mut *self.cluster;
        self.interrupt.wait_at_most(READY_MAX, "equal digests", || cluster.equal_digests())?;
        self.interrupt.wait_at_most(READY_MAX, "files to compare", || cluster.equal_files())?;
        self.interrupt.wait_at_most(READY_MAX, "memory to compare", || cluster.equal_memory())?;
        self.load.rest(false);
        Ok(())
    }
}

/// A replica as the status tells of it.
fn of(status: &Status, replica: u64) -> Outcome<&Replica> {
    let of = status.replicas().iter().find(|one| one.id == replica);
    of.ok_or_else(|| Failure(format!("skein status names no replica {replica}")))
}

/// Kills a replica's server, alone or with its node; answers which of them, and its process.
fn end(status: &Status, replica: u64, with_node: bool) -> Outcome<(&'static str, Pid)> {
    let of = of(status, replica)?;
    let (what, pid) = match with_node {
        true => ("node", of.pid()?),
        false => ("the server of node", Pid::from_raw(of.server_pid)),
    };
    if pid.as_raw() <= 1 {
        return Err(Failure(format!("replica {replica} has no server pid in skein status --json")));
    }
    kill(pid, Signal::SIGKILL)
        .map_err(|error| Failure::of(format!("cannot kill process {pid}"), error))?;
    Ok((what, pid))
}
