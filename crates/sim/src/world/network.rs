//! Connections between nodes: each keeps the order of its messages, and dies as a whole.
//!
//! The replica with the greater id dials. A link that is cut, one way or both, keeps messages as TCP does: they arrive when the link
//! is mended, if the connection still lives. A node that hears nothing for a few election timeouts closes the connection, and it is dialled anew.

use super::{Event, Life, World, id};
use crate::around::Around;
use crate::machine::Process;
use skein_log::Durability;
use skein_log::frame::{self, Hello};
use skein_log::wire::{self, Promise};
use skein_model::ReplicaId;
use skein_replica::environment::PeerEvent;
use skein_replica::replica::members::GONE;
use std::collections::{BTreeMap, BTreeSet};

/// Pauses between attempts, in us.
const FIRST_PAUSE_US: u64 = 20_000;
const LONGEST_PAUSE_US: u64 = 200_000;
/// After a refusal, in us.
const LATE_US: u64 = 500_000;
/// How often a node looks for silent connections.
const LOOK_EVERY_US: u64 = 50_000;
/// A connection is silent after so many election timeouts.
const SILENT_TIMEOUTS: u64 = 4;
/// After a cut is mended, TCP takes up to this to send again.
const RETRANSMIT_US: u64 = 400_000;

/// The messages of one node to another at one time: kinds and payloads.
pub(super) type Frames = Vec<(u8, Vec<u8>)>;

/// The messages between two nodes that wait for a link to be mended.
struct Held {
    from: u64,
    to: u64,
    connection: u64,
    frames: Frames,
}

/// All connections.
#[derive(Default)]
pub(super) struct Network {
    /// Links that carry nothing in this direction.
    pub cut: BTreeSet<(u64, u64)>,
    /// The connection of a pair, the lower one first.
    connections: BTreeMap<(u64, u64), u64>,
    next: u64,
    /// When the last frame in a direction arrives.
    arrives_us: BTreeMap<(u64, u64), u64>,
    /// The time when the second last heard from the first.
    heard_us: BTreeMap<(u64, u64), u64>,
    held: Vec<Held>,
}

impl Network {
    /// The arrival of a node's last message.
    pub fn last_arrival_us(&self, from: u64) -> u64 {
        let of = self.arrives_us.iter().filter(|((sender, _), _)| *sender == from);
        of.map(|(_, at)| *at).max().unwrap_or_default()
    }
}

const fn pair(a: u64, b: u64) -> (u64, u64) {
    if a < b { (a, b) } else { (b, a) }
}

impl World {
    fn is_current(&self, a: u64, b: u64, connection: u64) -> bool {
        self.network.connections.get(&pair(a, b)) == Some(&connection)
    }

    /// Puts a node's messages to others on their way.
    ///
    /// # Errors
    /// It promises something that it may forget.
    pub(super) fn carry_frames(&mut self, from: u64) -> Result<(), String> {
        let Some(process) = &mut self.at(from).process else { return Ok(()) };
        let said = std::mem::take(&mut process.replica.env.said);
        let distrusted = std::mem::take(&mut process.replica.env.distrusted);
        let parted = std::mem::take(&mut process.replica.env.parted);
        if said.is_empty() && distrusted.is_empty() && parted.is_empty() {
            return Ok(());
        }
        let mut groups: BTreeMap<(u64, u64), Frames> = BTreeMap::new();
        let durable = self.plan.durability == Durability::Fsync;
        for one in said {
            if one.kind == frame::KIND_RAFT
                && let Some(promise) = wire::promise(&one.payload)
            {
                if let Promise::Vote { term, from, to } = promise {
                    self.checker.voted(term, from, to)?;
                }
                if durable {
                    let kept = &self.machines[&from].kept;
                    kept.covers(promise).map_err(|why| format!("replica {from} {why}"))?;
                }
            }
            self.mix(one.payload.len() as u64 ^ u64::from(one.kind) << 32 ^ from << 48);
            groups.entry((id(one.to), one.connection)).or_default().push((one.kind, one.payload));
        }
        for ((to, connection), frames) in groups {
            let delay = self.delay();
            let last = self.network.arrives_us.entry((from, to)).or_default();
            *last = (self.now_us + delay).max(*last + 1);
            let arrives = *last;
            self.schedule_at(arrives, Event::Frames { from, to, connection, frames });
        }
        for (peer, connection) in parted {
            // After its last words.
            let last = self.network.arrives_us.get(&(from, id(peer))).copied().unwrap_or_default();
            let at = last.max(self.now_us) + 1;
            self.schedule_at(at, Event::Part { from, to: id(peer), connection });
        }
        for (peer, why) in distrusted {
            self.trace(|| format!("{from}: distrusts {peer}: {why}"));
            self.close(from, id(peer), true);
        }
        Ok(())
    }

    pub(super) fn frames(
        &mut self,
        from: u64,
        to: u64,
        connection: u64,
        frames: Frames,
    ) -> Result<(), String> {
        if !self.is_current(from, to, connection) {
            return Ok(());
        }
        if self.network.cut.contains(&(from, to)) {
            self.network.held.push(Held { from, to, connection, frames });
            return Ok(());
        }
        let now = self.now_us;
        let hears = |process: &Process| {
            process.replica.env.peers.get(&ReplicaId(from)) == Some(&connection)
        };
        if !self.machines[&to].process.as_ref().is_some_and(hears) {
            return Ok(());
        }
        frames.iter().try_for_each(|(kind, payload)| self.check_level(to, *kind, payload))?;
        let process = self.at(to).process.as_mut().expect("it hears");
        let env = &mut process.replica.env;
        let peer = ReplicaId(from);
        env.heard.extend(
            frames.into_iter().map(|(kind, payload)| PeerEvent::Frame(peer, kind, payload)),
        );
        // A node that rests so hears it when its rest ends.
        let waits = process.peers_wait && process.wakes_at.is_some_and(|at| at > now);
        self.network.heard_us.insert((from, to), now);
        if waits {
            self.idle.waits(to, now);
        }
        if waits { Ok(()) } else { self.round(to) }
    }

    pub(super) fn heal(&mut self) {
        self.network.cut.clear();
        for Held { from, to, connection, frames } in std::mem::take(&mut self.network.held) {
            let delay = self.rng.below(RETRANSMIT_US);
            let last = self.network.arrives_us.entry((from, to)).or_default();
            *last = (self.now_us + delay).max(*last + 1);
            let arrives = *last;
            self.schedule_at(arrives, Event::Frames { from, to, connection, frames });
        }
    }

    pub(super) fn dial(&mut self, low: u64, high: u64) {
        let retired = |id: &u64| self.machines[id].retired;
        if retired(&low) || retired(&high) || self.network.connections.contains_key(&(low, high)) {
            return;
        }
        let ready =
            |machine: &crate::machine::Machine| machine.process.is_some() && !machine.stopped;
        let cut = &self.network.cut;
        let of = |at: u64, peer: u64, what: fn(&Around, &Hello) -> bool| {
            let process = self.machines[&at].process.as_ref();
            process.is_some_and(|process| what(&process.replica.env, &self.hello(peer)))
        };
        let knows = |at, peer| of(at, peer, |env, hello| env.known.contains(&hello.replica));
        let takes = |at, peer| of(at, peer, Around::takes);
        let connected = of(high, low, |env, hello| env.peers.contains_key(&hello.replica));
        let possible = ready(&self.machines[&low])
            && ready(&self.machines[&high])
            && !connected
            && (knows(low, high) || knows(high, low))
            && !cut.contains(&(low, high))
            && !cut.contains(&(high, low));
        if !possible {
            let pause = FIRST_PAUSE_US + self.rng.below(LONGEST_PAUSE_US - FIRST_PAUSE_US);
            self.schedule(pause, Event::Dial(low, high));
            return;
        }
        for (at, peer) in [(low, high), (high, low)] {
            if !takes(at, peer) {
                self.schedule(LATE_US, Event::Dial(low, high));
                return self.refuse(at, peer);
            }
        }
        self.network.next += 1;
        let connection = self.network.next;
        self.network.connections.insert((low, high), connection);
        for (at, peer) in [(low, high), (high, low)] {
            let delay = self.delay();
            let arrives = self.now_us + delay;
            // Nothing overtakes the hello.
            self.network.arrives_us.insert((peer, at), arrives);
            let at = self.life(at);
            self.schedule_at(arrives, Event::Joined { at, peer, connection });
        }
    }

    /// A node tells another one that it is no member.
    fn refuse(&mut self, at: u64, peer: u64) {
        let hello = self.hello(at);
        let since = self.machines[&at].process.as_ref().and_then(|p| p.replica.env.since);
        let (Some(since), from) = (since.filter(|since| since.index.0 > 0), ReplicaId(at)) else {
            return;
        };
        let Some(process) = &mut self.at(peer).process else { return };
        let env = &mut process.replica.env;
        if env.takes(&hello) {
            env.heard.push(PeerEvent::Joined(hello));
            env.heard.push(PeerEvent::Frame(from, GONE, since.gone()));
            env.heard.push(PeerEvent::Lost(from));
        }
    }

    fn hello(&self, of: u64) -> Hello {
        Hello {
            replica: ReplicaId(of),
            incarnation: self.machines[&of].incarnation,
            durability: self.plan.durability,
            program: crate::machine::PROGRAM,
            membership: self.machines[&of]
                .process
                .as_ref()
                .map_or_else(Default::default, |p| p.replica.consensus().membership()),
            levels: self.machines[&of].process.as_ref().and_then(|p| p.replica.env.levels),
        }
    }

    pub(super) fn joined(&mut self, at: Life, peer: u64, connection: u64) -> Result<(), String> {
        if !self.lives(at) || !self.is_current(at.replica, peer, connection) {
            return Ok(());
        }
        let (hello, now) = (self.hello(peer), self.now_us);
        if let Some(needed) = self.cannot_read(at.replica, &hello) {
            self.close(at.replica, peer, true);
            return self.is_too_old(at.replica, needed);
        }
        let env = &mut self.at(at.replica).process.as_mut().expect("it lives").replica.env;
        let replica = ReplicaId(peer);
        if env.peers.insert(replica, connection).is_some() {
            env.heard.push(PeerEvent::Lost(replica));
        }
        env.claims.insert(replica, hello.membership);
        env.heard.push(PeerEvent::Joined(hello));
        self.network.heard_us.insert((peer, at.replica), now);
        self.round(at.replica)
    }

    pub(super) fn lost(&mut self, at: Life, peer: u64, connection: u64) -> Result<(), String> {
        if !self.lives(at) {
            return Ok(());
        }
        let env = &mut self.at(at.replica).process.as_mut().expect("it lives").replica.env;
        if env.peers.get(&ReplicaId(peer)) != Some(&connection) {
            return Ok(());
        }
        env.peers.remove(&ReplicaId(peer));
        env.heard.push(PeerEvent::Lost(ReplicaId(peer)));
        self.round(at.replica)
    }

    /// A node's connection to another ends on its side, perhaps with notice to the other side.
    pub(super) fn close(&mut self, from: u64, to: u64, told: bool) {
        let Some(connection) = self.network.connections.remove(&pair(from, to)) else { return };
        if told && !self.network.cut.contains(&(from, to)) {
            let (delay, at) = (self.delay(), self.life(to));
            self.schedule(delay, Event::Lost { at, peer: from, connection });
        }
        let (low, high) = pair(from, to);
        self.schedule(FIRST_PAUSE_US, Event::Dial(low, high));
    }

    /// A node ends its connection with one that is no member any more.
    pub(super) fn part(&mut self, from: u64, to: u64, connection: u64) {
        if self.is_current(from, to, connection) {
            self.close(from, to, true);
        }
    }

    /// The connections of a dead node.
    pub(super) fn close_all(&mut self, id: u64, noticed: bool) {
        for peer in self.ids().into_iter().filter(|peer| *peer != id) {
            self.close(id, peer, noticed);
        }
    }

    /// A connection breaks, and both notice; neither is dead.
    pub(super) fn break_connection(&mut self, a: u64, b: u64) {
        let Some(&connection) = self.network.connections.get(&pair(a, b)) else { return };
        self.close(a, b, true);
        let (delay, at) = (self.delay(), self.life(a));
        self.schedule(delay, Event::Lost { at, peer: b, connection });
    }

    pub(super) fn look_at_peers(&mut self, life: Life) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        self.schedule(LOOK_EVERY_US, Event::LookAtPeers(life));
        let own = life.replica;
        if self.machines[&own].stopped {
            return Ok(());
        }
        self.check_memory(own)?;
        let process = self.machines[&own].process.as_ref().expect("it lives");
        let quick = SILENT_TIMEOUTS * self.plan.tuning.election_timeout_ms * 1000;
        // Lossless: a few seconds.
        let said = process.replica.env.silence.map(|silence| silence.as_micros() as u64);
        let silence = said.unwrap_or(quick);
        let (now, heard_us) = (self.now_us, &self.network.heard_us);
        let is_silent = |(peer, _): &(&ReplicaId, &u64)| {
            heard_us.get(&(peer.0, own)).is_some_and(|heard| now - heard > silence)
        };
        let silent: Vec<(u64, u64)> = process
            .replica
            .env
            .peers
            .iter()
            .filter(is_silent)
            .map(|(peer, connection)| (peer.0, *connection))
            .collect();
        for (peer, connection) in silent {
            self.trace(|| format!("{own}: hears nothing of {peer}"));
            if self.is_current(own, peer, connection) {
                self.close(own, peer, true);
            }
            self.lost(life, peer, connection)?;
        }
        Ok(())
    }

    /// A node that was stopped does not take its own pause for the others' silence.
    pub(super) fn hears_again(&mut self, own: u64) {
        let now = self.now_us;
        for ((_, to), heard) in &mut self.network.heard_us {
            if *to == own {
                *heard = now;
            }
        }
    }
}
