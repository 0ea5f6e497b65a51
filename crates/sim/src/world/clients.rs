//! The clients, and the connections between them and the nodes.

use super::{Event, Life, OPERATIONS_PER_KEY, World};
use crate::client::{self, End};
use crate::history::{Action, Operation};
use crate::machine::Client;
use crate::wire::Wire;
use std::cell::RefCell;
use std::rc::Rc;

/// The longest time of a client before it closes what the server has closed.
const DAWDLES_US: u64 = 5_000_000;
/// The pause of a slow client before it reads more.
const SLOW_READER_US: u64 = 30_000;

impl World {
    /// Takes the nodes' output to their clients' sockets.
    ///
    /// # Errors
    /// A client is turned away without need.
    pub(super) fn carry_answers(&mut self, id: u64) -> Result<(), String> {
        let life = self.life(id);
        self.check_refusals(id)?;
        let Some(process) = &mut self.at(id).process else { return Ok(()) };
        let mut carried = Vec::new();
        process.clients.retain(|of| {
            let mut wire = of.wire.borrow_mut();
            let bytes = std::mem::take(&mut wire.outbound);
            let closed = wire.reset || wire.shut;
            let ended = match closed && !wire.told {
                false => End::None,
                true if wire.finished && !wire.reset => End::InOrder,
                true => End::Reset,
            };
            wire.told = closed;
            if !bytes.is_empty() || ended != End::None {
                carried.push((of.client, of.epoch, bytes, ended, of.wire.clone()));
            }
            !wire.gone
        });
        for (client, epoch, bytes, ended, wire) in carried {
            if wire.borrow().room == 0 {
                let slow = if wire.borrow().slow { SLOW_READER_US } else { 0 };
                let delay = self.delay() + slow;
                self.schedule(delay, Event::Took(life, wire));
            }
            // A connection keeps the order of its bytes.
            let arrives = (self.now_us + self.delay()).max(self.clients[client].from_node_us + 1);
            self.clients[client].from_node_us = arrives;
            let event = Event::FromNode { client, epoch, bytes, ended };
            self.schedule(arrives - self.now_us, event);
        }
        Ok(())
    }

    /// A client is turned away only when there are too many others, whose connections the server has not closed, or too many bytes wait.
    fn check_refusals(&self, id: u64) -> Result<(), String> {
        let Some(process) = &self.machines[&id].process else { return Ok(()) };
        let tuning = &self.plan.tuning;
        let refused = process.clients.iter().find(|of| {
            let wire = of.wire.borrow();
            wire.conn.is_none() && wire.reset && wire.gone
        });
        let Some(others) = refused.map(|of| of.wire.borrow().others) else { return Ok(()) };
        let little_memory = tuning.max_memory_bytes < 1 << 20;
        if others >= tuning.max_connections || little_memory {
            return Ok(());
        }
        Err(format!(
            "replica {id} turns a client away with {others} open connections of {}",
            tuning.max_connections
        ))
    }

    pub(super) fn took(&mut self, life: Life, wire: &Rc<RefCell<Wire>>) -> Result<(), String> {
        wire.borrow_mut().room = 1 + usize::try_from(self.rng.below(20)).expect("small");
        let conn = wire.borrow().conn;
        if self.lives(life)
            && let Some(conn) = conn
        {
            let process = self.at(life.replica).process.as_mut().expect("it lives");
            process.replica.writable(conn.0 as u32);
            return self.round(life.replica);
        }
        Ok(())
    }

    /// A client does its next step after a while, unless its connection ends before.
    pub(super) fn ask_later(&mut self, n: usize, delay_us: u64) {
        let epoch = self.clients[n].epoch;
        self.schedule(delay_us, Event::Client(n, epoch));
    }

    pub(super) fn client(&mut self, n: usize, epoch: u64) {
        let client = &self.clients[n];
        if client.epoch != epoch || client.waiting.is_some() || client.working.is_some() {
            return;
        }
        if !self.is_asked() {
            return;
        }
        if self.clients[n].wire.is_none() {
            let target = match self.rng.chance(70).then(|| self.leader()).flatten() {
                Some(leader) => leader,
                None => self.any(),
            };
            self.clients[n].target = target;
            let delay = self.delay();
            self.schedule(delay, Event::Connect(n, target));
            return;
        }
        if let Some(request) = self.no_operation() {
            let long = request.strip_prefix(['L', 'Q']).and_then(|rest| rest.trim().parse().ok());
            if long.is_some() {
                let wire = self.clients[n].wire.as_ref().expect("it is connected");
                wire.borrow_mut().slow = true;
            }
            self.clients[n].working = Some(long.unwrap_or("OK".len()));
            self.say(n, request.into_bytes());
            // A client without an answer in time gives up at its next step.
            let epoch = self.clients[n].epoch;
            self.schedule(800_000, Event::Impatient(n, epoch));
            return;
        }
        let key = self.rng.below(self.plan.keys);
        let allowance = self.allowance();
        let count = self.per_key.entry(key).or_default();
        if *count >= allowance {
            self.ask_later(n, 100_000);
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
        let patience = 200_000 + self.rng.below(600_000);
        self.clients[n].waiting = Some(waiting);
        self.say(n, client::request(&operation));
        self.schedule(patience, Event::GiveUp { client: n, waiting });
    }

    /// Sometimes a request that is no operation on a register.
    fn no_operation(&mut self) -> Option<String> {
        match self.rng.below(30) {
            0..3 if self.plan.works => Some(format!("B {}\n", 1 + self.rng.below(200))),
            3 if self.plan.slow_readers => Some(format!("L {}\n", 1 + self.rng.below(4000))),
            6 if self.plan.dawdlers => Some("E\n".to_owned()),
            7 if self.plan.dawdlers && self.plan.slow_readers => {
                Some(format!("Q {}\n", 1 + self.rng.below(400)))
            }
            4 | 5 if self.plan.calls => Some(format!("C {}\n", self.any_host())),
            _ => None,
        }
    }

    pub(super) fn say(&mut self, n: usize, bytes: Vec<u8>) {
        let arrives = (self.now_us + self.delay()).max(self.clients[n].to_node_us + 1);
        let client = &mut self.clients[n];
        client.to_node_us = arrives;
        let epoch = client.epoch;
        self.schedule_at(arrives, Event::ToNode { client: n, epoch, bytes });
    }

    pub(super) fn connect(&mut self, n: usize, target: u64) -> Result<(), String> {
        let room = 1 + usize::try_from(self.rng.below(20)).expect("small");
        let machine = self.machines.get_mut(target);
        let open = machine.process.as_mut().filter(|process| process.replica.env.open);
        let Some(process) = open.filter(|_| !machine.stopped) else {
            let delay = 20_000 + self.rng.below(50_000);
            self.ask_later(n, delay);
            return Ok(());
        };
        let wire = Rc::new(RefCell::new(Wire { room, ..Wire::default() }));
        let client = &mut self.clients[n];
        client.wire = Some(wire.clone());
        let epoch = client.epoch;
        process.replica.env.waiting.push_back(wire.clone());
        process.clients.push(Client { client: n, epoch, wire });
        self.trace(|| format!("client {n} connects to {target}"));
        let delay = self.delay();
        self.ask_later(n, delay);
        self.round(target)
    }

    pub(super) fn reach_node(&mut self, n: usize, epoch: u64, bytes: &[u8]) -> Result<(), String> {
        let client = &self.clients[n];
        let Some(wire) = client.wire.clone().filter(|_| client.epoch == epoch) else {
            return Ok(());
        };
        wire.borrow_mut().inbound.extend(bytes);
        if self.node_hears(self.clients[n].target, &wire)? {
            let delay = self.delay();
            self.schedule(
                delay,
                Event::FromNode { client: n, epoch, bytes: Vec::new(), ended: End::Reset },
            );
        }
        Ok(())
    }

    /// Bytes arrived at a node's socket. Answers whether the connection is unknown there.
    fn node_hears(&mut self, id: u64, wire: &Rc<RefCell<Wire>>) -> Result<bool, String> {
        if self.machines[&id].stopped {
            return Ok(false);
        }
        let (conn, closed) = {
            let wire = wire.borrow();
            (wire.conn, wire.ended || wire.reset)
        };
        let Some(process) = &mut self.at(id).process else { return Ok(false) };
        let known = process.clients.iter().any(|of| Rc::ptr_eq(&of.wire, wire));
        if !known && !closed {
            // Of an earlier life: the machine answers by a reset.
            wire.borrow_mut().reset = true;
            return Ok(true);
        }
        let Some(conn) = conn.filter(|_| known) else { return Ok(false) };
        process.replica.readable(conn.0 as u32, closed);
        self.round(id)?;
        Ok(false)
    }

    pub(super) fn reach_client(
        &mut self,
        n: usize,
        epoch: u64,
        bytes: &[u8],
        ended: End,
    ) -> Result<(), String> {
        if self.clients[n].epoch != epoch {
            return Ok(());
        }
        let now_us = self.now_us;
        if !bytes.is_empty() && self.clients[n].receive(bytes, now_us, &mut self.history)? {
            self.mix(now_us);
            let busy = self.plan.keys * OPERATIONS_PER_KEY as u64 / self.plan.clients;
            let mean = match self.plan.think_us {
                0 => self.plan.faults_until_us / busy,
                think_us => think_us,
            };
            let think = self.rng.below(2 * mean) * self.plan.quiet;
            self.ask_later(n, think);
        }
        if ended == End::None {
            return Ok(());
        }
        if ended == End::InOrder && self.clients[n].has_half_an_answer() {
            return Err(format!("client {n}: the connection ends in order within an answer"));
        }
        self.trace(|| format!("client {n}: connection ends"));
        let target = self.clients[n].target;
        let wire = self.clients[n].disconnect();
        let delay = 20_000 + self.rng.below(200_000);
        self.ask_later(n, delay);
        let Some(wire) = wire else { return Ok(()) };
        if self.plan.dawdlers && self.rng.chance(50) {
            let delay = self.rng.below(DAWDLES_US);
            self.schedule(delay, Event::HangUp(target, wire));
            return Ok(());
        }
        self.hang_up(target, &wire)
    }

    pub(super) fn hang_up(&mut self, target: u64, wire: &Rc<RefCell<Wire>>) -> Result<(), String> {
        wire.borrow_mut().ended = true;
        self.node_hears(target, wire).map(drop)
    }

    pub(super) fn give_up(&mut self, n: usize, waiting: usize) -> Result<(), String> {
        if self.clients[n].waiting != Some(waiting) {
            return Ok(());
        }
        self.leave(n)
    }

    /// A client that asked for work gives up.
    pub(super) fn impatient(&mut self, n: usize, epoch: u64) -> Result<(), String> {
        if self.clients[n].epoch != epoch || self.clients[n].working.is_none() {
            return Ok(());
        }
        self.leave(n)
    }

    pub(super) fn leave(&mut self, n: usize) -> Result<(), String> {
        self.trace(|| format!("client {n} gives up"));
        let target = self.clients[n].target;
        let wire = self.clients[n].disconnect();
        self.ask_later(n, 1000);
        let Some(wire) = wire else { return Ok(()) };
        if self.rng.chance(50) {
            wire.borrow_mut().ended = true;
        } else {
            wire.borrow_mut().reset = true;
        }
        self.node_hears(target, &wire).map(drop)
    }
}
