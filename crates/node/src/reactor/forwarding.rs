//! Clients that connected to a follower, forwarded to the leader ([`crate::forward::Forward`]) as long as that replica leads. Then they are
//! reset, and find the next leader when they connect again; otherwise they would wait for a leader that was stopped or cut off.

use super::ports::Ports;
use crate::forward::Forward;
use mio::net::TcpStream;
use skein_model::{ReplicaId, Term};
use skein_replica::environment::Places;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// After this time without a known leader, the last one counts as gone.
const LEADERLESS: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Forwarding {
    /// The channel to the forwarding thread; `None` without one.
    to: Option<UnboundedSender<Forward>>,
    /// The leader that all connections lead to; they end when it is dropped.
    leads: Option<((ReplicaId, Term), watch::Sender<()>)>,
    /// The time since when no leader is known.
    leaderless: Option<Duration>,
}

impl Forwarding {
    pub(super) const fn new(to: Option<UnboundedSender<Forward>>) -> Self {
        Self { to, leads: None, leaderless: None }
    }

    /// This replica leads in this term, as far as is known here.
    fn follow(&mut self, leader: Option<(ReplicaId, Term)>, now: Duration) {
        let Some((before, _)) = &self.leads else { return };
        let ends = match leader {
            Some(leader) => {
                self.leaderless = None;
                leader != *before
            }
            None => now.saturating_sub(*self.leaderless.get_or_insert(now)) >= LEADERLESS,
        };
        if ends {
            self.leads = None;
            self.leaderless = None;
        }
    }

    /// Forwards new clients to the leader; to no one when this replica leads.
    pub(super) fn forward(
        &mut self,
        leader: Option<(ReplicaId, Term)>,
        to: Option<&Places>,
        ports: &mut Ports,
        now: Duration,
    ) {
        self.follow(leader, now);
        let Some((teller, places)) = to.filter(|_| ports.forwards() && ports.may_accept()) else {
            return;
        };
        let Some(leader) = leader.filter(|_| self.to.is_some()) else { return };
        while *teller == leader.0
            && let Some((client, _, local)) = ports.accept()
        {
            let to = places.iter().find(|(port, _)| *port == local.port);
            if let Some(&(_, to)) = to {
                self.pass(client, leader, to);
            }
        }
    }

    /// Forwards a client to the current leader.
    fn pass(&mut self, client: TcpStream, leader: (ReplicaId, Term), to: SocketAddr) {
        let Some(forwarder) = &self.to else { return };
        let (_, leads) = self.leads.get_or_insert_with(|| (leader, watch::Sender::new(())));
        let leads = leads.subscribe();
        // The admin thread is gone when the node ends.
        let _ = forwarder.send(Forward { client: client.into(), to, leads });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_lead_to_one_leader_of_one_term() {
        let at = Duration::from_millis;
        let leader = |id, term| Some((ReplicaId(id), Term(term)));
        let mut forwarding = Forwarding::new(None);
        let begin = |forwarding: &mut Forwarding| {
            let (sender, receiver) = watch::channel(());
            forwarding.leads = Some((leader(1, 5).unwrap(), sender));
            receiver
        };
        let ended = |leads: &watch::Receiver<()>| leads.has_changed().is_err();
        for other in [leader(2, 6), leader(1, 6)] {
            let leads = begin(&mut forwarding);
            forwarding.follow(leader(1, 5), at(0));
            assert!(!ended(&leads));
            forwarding.follow(other, at(1));
            assert!(ended(&leads));
        }
        let leads = begin(&mut forwarding);
        forwarding.follow(None, at(1000));
        forwarding.follow(None, at(2900));
        forwarding.follow(leader(1, 5), at(2950));
        forwarding.follow(None, at(3000));
        forwarding.follow(None, at(4900));
        assert!(!ended(&leads), "it was known again");
        forwarding.follow(None, at(5000));
        assert!(ended(&leads));
    }
}
