//! The state of the other replicas: whether they are heard, how fast they answer, and how far their servers are.
//!
//! Nodes send pulses: each tells all others how far its server is and whether it is fit to lead, and each answer measures the round trip.

use super::{Fault, seconds};
use skein_model::{LogIndex, ReplicaId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A replica that is disconnected for longer is named.
const SILENT: Duration = Duration::from_secs(1);
/// A link is slow when this many answers in a row are late,
const ANSWERS: usize = 4;
/// and the last of them is not older than this.
const FRESH: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct Peer {
    connected: bool,
    since: Duration,
    executed: LogIndex,
    unfit: bool,
    took: VecDeque<Duration>,
    last: Duration,
}

/// The other replicas, each with its last pulse.
#[derive(Debug, Default)]
pub struct Neighbours(BTreeMap<ReplicaId, Peer>);

impl Neighbours {
    /// These are the others, none of them connected.
    pub fn new(others: impl Iterator<Item = ReplicaId>) -> Self {
        Self(others.map(|id| (id, Peer::default())).collect())
    }

    /// From now on these are the others.
    pub fn set(&mut self, others: impl Iterator<Item = ReplicaId>, now: Duration) {
        let mut known = std::mem::take(&mut self.0);
        let new = || Peer { since: now, ..Peer::default() };
        self.0 = others.map(|id| (id, known.remove(&id).unwrap_or_else(new))).collect();
    }

    /// A replica was connected, or lost.
    pub fn connected(&mut self, id: ReplicaId, connected: bool, now: Duration) {
        if let Some(peer) = self.0.get_mut(&id)
            && peer.connected != connected
        {
            *peer = Peer { connected, since: now, ..Peer::default() };
        }
    }

    /// A replica's pulse.
    pub fn pulse(&mut self, id: ReplicaId, executed: LogIndex, unfit: bool) {
        if let Some(peer) = self.0.get_mut(&id) {
            (peer.executed, peer.unfit) = (executed, unfit);
        }
    }

    /// A replica answered a pulse after this time.
    pub fn answered(&mut self, id: ReplicaId, took: Duration, now: Duration) {
        if let Some(peer) = self.0.get_mut(&id) {
            peer.took.push_back(took);
            if peer.took.len() > ANSWERS {
                peer.took.pop_front();
            }
            peer.last = now;
        }
    }

    /// The position of the foremost of the connected others' servers.
    #[must_use]
    pub fn foremost(&self) -> LogIndex {
        let connected = self.0.values().filter(|peer| peer.connected);
        connected.map(|peer| peer.executed).max().unwrap_or_default()
    }

    /// Whether a replica may be asked to lead.
    #[must_use]
    pub fn is_fit(&self, id: ReplicaId) -> bool {
        self.0.get(&id).is_some_and(|peer| peer.connected && !peer.unfit)
    }

    /// The faults of links; a link that takes `slow` or longer has one.
    pub fn faults(&self, slow: Duration, now: Duration) -> impl Iterator<Item = Fault> {
        self.0.iter().filter_map(move |(id, peer)| {
            let silent = now.saturating_sub(peer.since);
            if !peer.connected {
                let why = || format!("replica {id} has not been heard of for {}", seconds(silent));
                return (silent >= SILENT).then(|| Fault::new(format!("silent_{id}"), why()));
            }
            let known = peer.took.len() == ANSWERS && now.saturating_sub(peer.last) < FRESH;
            let least = *peer.took.iter().min().filter(|least| known && **least >= slow)?;
            let why = format!("replica {id} answers after {} ms and more", least.as_millis());
            Some(Fault::new(format!("slow_link_{id}"), why))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &Neighbours, now: Duration) -> Vec<String> {
        all.faults(Duration::from_millis(75), now).map(|fault| fault.name).collect()
    }

    #[test]
    fn who_is_not_connected_is_named_after_a_while() {
        let at = Duration::from_millis;
        let mut all = Neighbours::new([ReplicaId(2), ReplicaId(3)].into_iter());
        all.connected(ReplicaId(2), true, at(100));
        assert_eq!(names(&all, at(900)), [""; 0]);
        assert_eq!(names(&all, at(1000)), ["silent_3"]);
        all.connected(ReplicaId(3), true, at(1100));
        all.connected(ReplicaId(2), false, at(1100));
        all.connected(ReplicaId(2), false, at(1900));
        assert_eq!(names(&all, at(2100)), ["silent_2"]);
        assert!(all.is_fit(ReplicaId(3)) && !all.is_fit(ReplicaId(2)));
        all.pulse(ReplicaId(2), LogIndex(9), false);
        all.pulse(ReplicaId(3), LogIndex(7), true);
        assert!(!all.is_fit(ReplicaId(3)));
        assert_eq!(all.foremost(), LogIndex(7), "of those that are there");
    }

    #[test]
    fn others_come_and_go_with_the_members() {
        let at = Duration::from_millis;
        let mut all = Neighbours::new([ReplicaId(2), ReplicaId(3)].into_iter());
        all.connected(ReplicaId(2), true, at(0));
        all.set([ReplicaId(2), ReplicaId(4)].into_iter(), at(5000));
        assert_eq!(names(&all, at(5900)), [""; 0], "3 is gone, and 4 is new");
        assert!(all.is_fit(ReplicaId(2)), "what is known of the others stays");
        assert_eq!(names(&all, at(6000)), ["silent_4"]);
        all.connected(ReplicaId(3), true, at(6000));
        assert!(!all.is_fit(ReplicaId(3)));
    }

    #[test]
    fn a_link_is_slow_while_every_answer_is_late() {
        let at = Duration::from_millis;
        let mut all = Neighbours::new([ReplicaId(2)].into_iter());
        all.connected(ReplicaId(2), true, at(0));
        for now in [100, 200, 300] {
            all.answered(ReplicaId(2), at(80), at(now));
        }
        assert_eq!(names(&all, at(300)), [""; 0]);
        all.answered(ReplicaId(2), at(80), at(400));
        assert_eq!(names(&all, at(400)), ["slow_link_2"]);
        all.answered(ReplicaId(2), at(2), at(500));
        assert_eq!(names(&all, at(500)), [""; 0]);
    }
}
