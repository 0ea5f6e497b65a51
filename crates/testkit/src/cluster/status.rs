//! The part of `skein status --json` that the demonstration needs.

use std::collections::BTreeMap;

use nix::unistd::Pid;
use serde::Deserialize;

use crate::{Failure, Outcome};

/// One cluster; other readers need the other fields.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// The leader's id, absent while there is none.
    leader: Option<u64>,
    /// The leader's term.
    pub term: u64,
    replicas: Vec<Replica>,
}

/// One replica.
#[derive(Debug, Clone, Deserialize)]
pub struct Replica {
    /// From 1.
    pub id: u64,
    role: String,
    /// `running`, `passive` and so on.
    pub state: String,
    /// Host pid of its node, 0 or absent when it is down.
    #[serde(default, deserialize_with = "or_zero")]
    pub node_pid: i32,
    /// Host pid of its server, 0 or absent when it is down.
    #[serde(default, deserialize_with = "or_zero")]
    pub server_pid: i32,
    /// The newest entry that its server has executed.
    #[serde(default, deserialize_with = "or_zero")]
    pub applied_index: u64,
    /// How far its server is behind the leader's.
    #[serde(default, deserialize_with = "or_zero")]
    pub lag_ms: u64,
    /// Calls of its server that the safety net caught, by name.
    #[serde(default, deserialize_with = "or_zero")]
    pub trapped_calls: BTreeMap<String, u64>,
    /// Counters of its node.
    #[serde(default, deserialize_with = "or_zero")]
    pub counts: Counts,
    #[serde(default, deserialize_with = "or_zero")]
    digest_index: u64,
    #[serde(default, deserialize_with = "or_zero")]
    digest: String,
}

/// Counters of a node since its start.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Counts {
    /// Bytes sent to other nodes.
    #[serde(default)]
    pub peer_out_bytes: u64,
    /// Entries proposed, as leader.
    #[serde(default)]
    pub proposed_entries: u64,
    /// Of these, time bubbles.
    #[serde(default)]
    pub bubbles: u64,
    /// Of these, entries for a timer.
    #[serde(default)]
    pub clock_entries: u64,
    /// Writes of its log, each with a sync.
    #[serde(default)]
    pub log_writes: u64,
}

/// Reads a field that is null where there is no value.
fn or_zero<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Replica {
    /// Its node's pid, checked: 0 or less would name a group of processes.
    pub fn pid(&self) -> Outcome<Pid> {
        if self.node_pid > 1 {
            return Ok(Pid::from_raw(self.node_pid));
        }
        Err(Failure(format!("replica {} has no node pid in skein status --json", self.id)))
    }
}

impl Status {
    /// Reads the command's output.
    pub fn parse(json: &[u8]) -> Outcome<Self> {
        serde_json::from_slice(json)
            .map_err(|error| Failure::of("cannot read skein status --json", error))
    }

    /// The leader's row.
    pub fn leader(&self) -> Outcome<&Replica> {
        self.replicas
            .iter()
            .find(|replica| Some(replica.id) == self.leader)
            .ok_or_else(|| Failure("skein status names no leader".to_owned()))
    }

    /// Every replica's row.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The number of replicas.
    pub fn count(&self) -> usize {
        self.replicas.len()
    }

    /// Whether all of `count` replicas do all that they are to do.
    pub fn is_whole(&self, count: u64) -> bool {
        let well = |state: &str| matches!(state, "running" | "passive" | "witness");
        let running = self.replicas.iter().filter(|replica| well(&replica.state)).count();
        self.leader().is_ok() && running as u64 == count && self.replicas.len() == running
    }

    /// The same, and each has a vote.
    pub fn is_in_step(&self, count: u64) -> bool {
        self.is_whole(count) && self.replicas.iter().all(|replica| replica.role != "learner")
    }

    /// The digest that all replicas have at the same index, if they are level.
    ///
    /// Replicas that differ at the same index are an error: that is a divergence.
    pub fn equal_digests(&self) -> Outcome<Option<String>> {
        let Some((first, rest)) = self.replicas.split_first() else { return Ok(None) };
        for replica in rest.iter().filter(|at| at.digest_index == first.digest_index) {
            if replica.digest != first.digest {
                return Err(Failure(format!(
                    "replicas {} and {} differ at index {}",
                    first.id, replica.id, first.digest_index
                )));
            }
        }
        let level = rest.iter().all(|replica| replica.digest_index == first.digest_index);
        Ok((level && !first.digest.is_empty())
            .then(|| format!("{} at index {}", first.digest, first.digest_index)))
    }

    /// Every process that the cluster consists of.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.replicas.iter().flat_map(|at| [at.node_pid, at.server_pid]).filter(|pid| *pid > 1)
    }

    /// One line per replica, for people.
    pub fn lines(&self) -> Vec<String> {
        let line = |at: &Replica| {
            format!(
                "  replica {} {:<9} {:<8} node pid {:<7} server pid {:<7} applied {}",
                at.id, at.role, at.state, at.node_pid, at.server_pid, at.applied_index
            )
        };
        self.replicas.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(digests: [(u64, &str); 2]) -> Status {
        let replica = |id: u64, (index, digest): (u64, &str)| {
            format!(
                r#"{{"id":{id},"role":"follower","state":"running","address":"127.0.0.1:9",
                "node_pid":{},"server_pid":null,"digest_index":{index},"digest":"{digest}"}}"#,
                id + 10
            )
        };
        let replicas = [replica(1, digests[0]), replica(2, digests[1])].join(",");
        let json = format!(r#"{{"name":"d","leader":2,"term":3,"replicas":[{replicas}]}}"#);
        Status::parse(json.as_bytes()).expect("the command's own form")
    }

    #[test]
    fn the_leader_and_the_pids_are_found() {
        let status = status([(5, "ab"), (5, "ab")]);
        assert_eq!(status.leader().expect("a leader").node_pid, 12);
        assert_eq!(status.pids().collect::<Vec<_>>(), [11, 12]);
        assert!(status.is_whole(2) && !status.is_whole(3));
    }

    #[test]
    fn a_replica_without_a_vote_is_not_in_step() {
        let mut status = status([(5, "ab"), (5, "ab")]);
        assert!(status.is_in_step(2));
        status.replicas[0].role = "learner".to_owned();
        assert!(status.is_whole(2) && !status.is_in_step(2));
    }

    #[test]
    fn digests_are_compared_only_at_the_same_index() {
        let equal = status([(5, "ab"), (5, "ab")]).equal_digests().expect("equal");
        assert_eq!(equal.as_deref(), Some("ab at index 5"));
        assert_eq!(status([(5, "ab"), (6, "cd")]).equal_digests().expect("not level"), None);
        let differ = status([(5, "ab"), (5, "cd")]).equal_digests().expect_err("a divergence");
        assert!(differ.to_string().contains("1 and 2 differ at index 5"));
    }

    #[test]
    fn a_missing_pid_is_never_killed() {
        let mut status = status([(0, ""), (0, "")]);
        status.replicas[1].node_pid = 0;
        assert!(status.leader().expect("a leader").pid().is_err());
    }
}
