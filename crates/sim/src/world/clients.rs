//! The clients, and the connections between them and the nodes.

use super::{CALM_US, Event, OPERATIONS_PER_KEY, World};
use crate::{
    client,
    history::{Action, Operation},
    replica::{Link, Wire},
};
use std::{cell::RefCell, rc::Rc, time::Duration};

impl World {
    /// Takes what a node wrote to its clients' sockets.
    pub(super) fn carry_answers(&mut self, id: u64) {
        let life = self.at(id).life;
        let Some(process) = self.process(id) else { return };
        let mut carried = Vec::new();
        process.links.retain(|link| {
            let mut wire = link.wire.borrow_mut();
            let bytes = std::mem::take(&mut wire.outbound);
            let ended = wire.reset || wire.shut;
            if !bytes.is_empty() || ended {
                carried.push((link.client, link.epoch, bytes, ended, link.wire.clone()));
            }
            !ended
        });
        for (client, epoch, bytes, ended, wire) in carried {
            if wire.borrow().room == 0 {
                let delay = self.delay();
                self.schedule(delay, Event::Took { replica: id, life, wire });
            }
            // A connection keeps the order of its bytes.
            let arrives = (self.now_us + self.delay()).max(self.clients[client].from_node_us + 1);
            self.clients[client].from_node_us = arrives;
            let event = Event::FromNode { client, epoch, bytes, ended };
            self.schedule(arrives - self.now_us, event);
        }
    }

    pub(super) fn took(
        &mut self,
        id: u64,
        life: u64,
        wire: &Rc<RefCell<Wire>>,
    ) -> Result<(), String> {
        wire.borrow_mut().room = 1 + usize::try_from(self.rng.below(20)).expect("small");
        let now = Duration::from_micros(self.now_us);
        if self.at(id).life == life
            && let Some(process) = self.process(id)
        {
            process.client_took(wire, now);
            return self.turn(id);
        }
        Ok(())
    }

    pub(super) fn client(&mut self, n: usize) {
        if self.clients[n].waiting.is_some() {
            return;
        }
        if self.now_us > self.plan.faults_until_us + CALM_US {
            return;
        }
        if self.clients[n].wire.is_none() {
            let target = match self.rng.chance(70).then(|| self.leader()).flatten() {
                Some(leader) => leader,
                None => 1 + self.rng.below(self.plan.replicas),
            };
            self.clients[n].target = target;
            let delay = self.delay();
            self.schedule(delay, Event::Connect(n, target));
            return;
        }
        let key = self.rng.below(self.plan.keys);
        let count = self.per_key.entry(key).or_default();
        // Some are kept for after the faults.
        let late = self.now_us > self.plan.faults_until_us;
        if *count >= if late { OPERATIONS_PER_KEY } else { OPERATIONS_PER_KEY - 20 } {
            self.schedule(100_000, Event::Client(n));
            return;
        }
        *count += 1;
        let action = if self.rng.chance(50) {
            self.next_value += 1;
            Action::Write(self.next_value)
        } else {
            Action::Read(None)
        };
        let operation = Operation { key, action, invoked_us: self.now_us, returned_us: None };
        let waiting = self.history.len();
        self.history.push(operation);
        let arrives = (self.now_us + self.delay()).max(self.clients[n].to_node_us + 1);
        let patience = 200_000 + self.rng.below(600_000);
        let client = &mut self.clients[n];
        client.waiting = Some(waiting);
        client.to_node_us = arrives;
        let (epoch, bytes) = (client.epoch, client::request(&operation));
        self.schedule(arrives - self.now_us, Event::ToNode { client: n, epoch, bytes });
        self.schedule(patience, Event::GiveUp { client: n, waiting });
    }

    pub(super) fn connect(&mut self, n: usize, target: u64) -> Result<(), String> {
        let replica = self.replicas.get_mut(&target).expect("a replica");
        let served = replica.process.as_mut().filter(|process| process.serves());
        let Some(process) = served.filter(|_| !replica.stopped) else {
            let delay = 20_000 + self.rng.below(50_000);
            self.schedule(delay, Event::Client(n));
            return Ok(());
        };
        let room = 1 + usize::try_from(self.rng.below(20)).expect("small");
        let wire = Rc::new(RefCell::new(Wire { room, ..Wire::default() }));
        let client = &mut self.clients[n];
        client.wire = Some(wire.clone());
        let epoch = client.epoch;
        process.links.push(Link { client: n, epoch, wire, conn: None });
        let delay = self.delay();
        self.schedule(delay, Event::Client(n));
        self.turn(target)
    }

    pub(super) fn reach_node(&mut self, n: usize, epoch: u64, bytes: &[u8]) -> Result<(), String> {
        let client = &self.clients[n];
        let Some(wire) = client.wire.clone().filter(|_| client.epoch == epoch) else {
            return Ok(());
        };
        wire.borrow_mut().inbound.extend(bytes);
        self.node_hears(self.clients[n].target, &wire)
    }

    /// Something arrived at a node's socket.
    fn node_hears(&mut self, id: u64, wire: &Rc<RefCell<Wire>>) -> Result<(), String> {
        let now = Duration::from_micros(self.now_us);
        if self.at(id).stopped {
            return Ok(());
        }
        if let Some(process) = self.process(id) {
            process.client_spoke(wire, now);
        }
        self.turn(id)
    }

    pub(super) fn reach_client(
        &mut self,
        n: usize,
        epoch: u64,
        bytes: &[u8],
        ended: bool,
    ) -> Result<(), String> {
        if self.clients[n].epoch != epoch {
            return Ok(());
        }
        let now_us = self.now_us;
        if !bytes.is_empty() && self.clients[n].receive(bytes, now_us, &mut self.history)? {
            self.mix(now_us);
            let busy = self.plan.keys * OPERATIONS_PER_KEY as u64 / self.plan.clients;
            let think = self.rng.below(2 * self.plan.faults_until_us / busy);
            self.schedule(think, Event::Client(n));
        }
        if ended {
            self.clients[n].disconnect();
            let delay = self.delay();
            self.schedule(delay, Event::Client(n));
        }
        Ok(())
    }

    pub(super) fn give_up(&mut self, n: usize, waiting: usize) -> Result<(), String> {
        if self.clients[n].waiting != Some(waiting) {
            return Ok(());
        }
        let target = self.clients[n].target;
        let wire = self.clients[n].disconnect();
        self.schedule(1000, Event::Client(n));
        let Some(wire) = wire else { return Ok(()) };
        if self.rng.chance(50) {
            wire.borrow_mut().ended = true;
        } else {
            wire.borrow_mut().reset = true;
        }
        self.node_hears(target, &wire)
    }
}
