//! A server's effects beyond its clients: connections to hosts outside, datagrams, printed lines. Each must follow from a committed entry, and
//! each datagram and connection happens once.

use super::{Event, Life, World};
use crate::machine::Call;
use crate::outside::{HOSTS, Host, NOBODY, REFUSED, host};
use crate::server::{COLLECTOR, Cause};
use skein_model::{ConnId, SockAddr};

/// An action of a host outside on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// It accepts it, or refuses it.
    Connects,
    /// It has received its first bytes.
    Hears,
    /// It sees that the node has shut its sending side.
    Leaves,
}

impl World {
    /// Checks a node's server's actions since the last call.
    pub(super) fn look_outside(&mut self, id: u64) -> Result<(), String> {
        let life = self.life(id);
        let process = self.at(id).process.as_mut().expect("it runs");
        let calls = std::mem::take(&mut process.replica.env.calls);
        let sent = std::mem::take(&mut process.replica.env.sent);
        for (conn, to, wire) in calls {
            self.effects += 1;
            self.checker.seen(&format!("a connection of replica {id}"), Cause::of_address(to))?;
            self.checker.called(conn)?;
            self.trace(|| format!("{id}: begins connection {:x} to {:?}", conn.0, host(to)));
            if host(to) == Host::Unreachable {
                continue;
            }
            self.at(id).process.as_mut().expect("it runs").calls.push(Call { conn, to, wire });
            if host(to) != Host::Hangs {
                let delay = self.delay();
                self.schedule(delay, Event::Outside(life, conn, Does::Connects));
            }
        }
        for (to, bytes) in sent {
            self.effects += 1;
            let decoded = Cause::decode(&bytes);
            let (cause, number) = decoded.unzip();
            self.checker.seen(&format!("a datagram of replica {id}"), cause)?;
            if let Some((cause, number)) = cause.zip(number) {
                self.checker.sent(cause.index, number)?;
                if to == COLLECTOR {
                    self.timer_is_heard(cause.index);
                }
            }
        }
        let readable = self.read_lines(id);
        for line in readable {
            self.effects += 1;
            self.checker.seen(&format!("a line of replica {id}'s server"), Some(line))?;
        }
        Ok(())
    }

    fn read_lines(&mut self, id: u64) -> Vec<Cause> {
        let process = self.at(id).process.as_mut().expect("it runs");
        if let Some(server) = &mut process.server {
            process.keeper.add(&mut server.printed);
        }
        let Some(server) = process.replica.server() else { return Vec::new() };
        process.keeper.copy(&server.passage)
    }

    /// Takes the nodes' output to hosts outside.
    pub(super) fn carry_calls(&mut self, id: u64) -> Result<(), String> {
        let life = self.life(id);
        let Some(process) = &mut self.at(id).process else { return Ok(()) };
        let mut does = Vec::new();
        process.calls.retain(|call| {
            let mut wire = call.wire.borrow_mut();
            let bytes = std::mem::take(&mut wire.outbound);
            if !bytes.is_empty() {
                does.push((call.conn, Does::Hears, Some(bytes)));
            }
            if wire.shut && !wire.told {
                wire.told = true;
                does.push((call.conn, Does::Leaves, None));
            }
            !wire.gone
        });
        for (conn, what, bytes) in does {
            if let Some(bytes) = bytes {
                let cause = Cause::decode(&bytes).map(|(cause, _)| cause);
                self.checker.seen(&format!("what replica {id} tells a host outside"), cause)?;
            }
            let delay = self.delay();
            self.schedule(delay, Event::Outside(life, conn, what));
        }
        Ok(())
    }

    pub(super) fn outside_does(
        &mut self,
        life: Life,
        conn: ConnId,
        does: Does,
    ) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        let process = self.at(life.replica).process.as_mut().expect("it lives");
        let Some(call) = process.calls.iter().find(|call| call.conn == conn) else { return Ok(()) };
        let mut wire = call.wire.borrow_mut();
        match (does, host(call.to)) {
            (Does::Connects, Host::Refuses) => wire.made = Some(Err(REFUSED.into())),
            (Does::Connects, _) => wire.made = Some(Ok(())),
            (Does::Hears, Host::Resets) => wire.reset = true,
            (Does::Hears, host) => {
                wire.inbound.extend(b"A\n");
                wire.ended |= host == Host::Ends;
            }
            (Does::Leaves, _) => wire.ended = true,
        }
        let over = wire.ended || wire.reset;
        drop(wire);
        // The low half is the number of the connection.
        let number = conn.0 as u32;
        if does == Does::Connects {
            process.replica.writable(number);
        } else {
            process.replica.readable(number, over);
        }
        self.round(life.replica)
    }

    /// A client asks the server to speak to a host outside.
    pub(super) fn any_host(&mut self) -> u64 {
        self.rng.below(HOSTS.len() as u64)
    }

    /// A datagram is sent, which finds a leader or not.
    pub(super) fn datagram(&mut self) -> Result<(), String> {
        if !self.is_asked() {
            return Ok(());
        }
        let pause = 1 + self.rng.below(2 * self.plan.datagrams_us);
        self.schedule(pause, Event::Datagram);
        let any = self.any();
        let id = if self.rng.chance(80) { self.leader().unwrap_or(any) } else { any };
        let port = if self.rng.chance(20) { NOBODY } else { 1000 };
        let from = SockAddr::v4([10, 1, 0, 1], port);
        let machine = self.at(id);
        let Some(process) = &mut machine.process else { return Ok(()) };
        if machine.stopped || !process.replica.env.hears {
            return Ok(());
        }
        process.replica.env.datagrams.push_back(from);
        self.round(id)
    }
}
