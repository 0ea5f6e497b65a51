//! Active replicas, passive ones and witnesses: who has a server when, who leads, and what counts where fewer servers are.
//!
//! An **active** replica always has a server. A **passive** one has images and the log; when it is elected, its server continues from its newest image, executes the
//! log behind that, and serves. It hands leadership to an active replica that has caught up, and its server ends when another replica leads that has one: it
//! would only execute what nobody needs, and the next one continues from an image anyhow. While a witness leads, or nobody, the server stays: it may be needed in a
//! moment. A **witness** never has a server. If it is elected, because nobody else has the newest entries, it proposes nothing and hands
//! leadership on; that completes the other's log first. If nobody is there to take it, it says so, and waits.
//!
//! An image counts without a comparison while no other server exists to compare with: on a leader, when no other member is active, or when [`ALONE_AFTER`] after
//! it was taken none that is has a server in step and is connected: that one may need this image to begin. Clients have seen this leader's answers, so its server is right by definition.
//!
//! A witness forgets the log that no replica with images can need: up to the oldest of their newest images, a disconnected one's included, whose images it
//! remembers. So after the loss of any one replica the log of those that remain reaches back to an image that one of them has. One that stays away would make that
//! log grow for ever: beyond [`LONGEST`] times what lies between two images only the connected ones count.

use super::{Environment, Replica};
use crate::health::Fault;
use skein_log::{Kind, Role};
use skein_model::{LogIndex, ReplicaId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A follower whose server is behind by no more than this takes leadership over without a pause that anybody notices.
const CLOSE: Duration = Duration::from_millis(100);
/// The length of a witness's log, in times of what lies between two images, from which on a replica that is away does not count.
const LONGEST: u64 = 4;
/// A leader's image counts without a comparison when so long after it was taken nobody is there to compare with.
const ALONE_AFTER: Duration = Duration::from_secs(5);
/// A witness that leads for longer has nobody to hand leadership to.
const WAITS: Duration = Duration::from_secs(1);

impl<E: Environment> Replica<E> {
    /// So many replicas have a server: the active ones, and one that leads.
    pub(super) fn servers(&self) -> usize {
        self.with_servers().len()
    }

    /// These are they.
    pub(super) fn with_servers(&self) -> BTreeSet<ReplicaId> {
        let mut all = self.members.actives();
        all.extend(self.consensus.leader().filter(|id| self.members.kind_of(*id).can_serve()));
        all
    }

    /// So many have one while this replica leads.
    pub(super) fn servers_if_it_led(&self) -> usize {
        let mut all = self.members.actives();
        all.extend(self.members.kind.can_serve().then_some(self.own));
        all.len()
    }

    /// Whether another replica whose server is in step is connected.
    pub(super) fn another_has_a_server(&self) -> bool {
        self.others_with_servers().next().is_some()
    }

    /// These are they.
    pub(super) fn others_with_servers(&self) -> impl Iterator<Item = ReplicaId> {
        let is_active = |id: ReplicaId| {
            self.members.kind_of(id) == Kind::Active && self.members.voters.contains(&id)
        };
        self.env.connected().filter(move |id| self.pulse.is_in_step(*id) && is_active(*id))
    }

    /// Why this replica has no server, by its kind.
    pub(super) fn has_no_server(&self) -> Option<&'static str> {
        match self.members.kind {
            Kind::Witness => Some("it is a witness: it has no server and no images"),
            Kind::Passive if self.slot.rests() => Some(
                "it is passive: it has no server while another replica leads, and fetches that one's images",
            ),
            _ => None,
        }
    }

    /// Whether a server belongs here now.
    fn wants_server(&self) -> bool {
        match self.members.kind {
            Kind::Active => true,
            Kind::Witness => false,
            Kind::Passive if self.lead.is_some() => true,
            Kind::Passive => {
                let leader = self.consensus.leader();
                let has_one = leader.is_some_and(|id| self.members.kind_of(id).can_serve());
                !self.slot.rests() && !has_one
            }
        }
    }

    /// Begins or ends the server when this replica's kind, and its part, say so.
    pub(super) fn follow_kind(&mut self) {
        match (self.wants_server(), self.slot.rests()) {
            (true, true) => {
                tracing::info!(event = "server_needed", kind = %self.members.kind);
                self.slot.call(self.now);
                self.make_next();
            }
            (false, false) => {
                tracing::info!(event = "server_not_needed", kind = %self.members.kind);
                self.env.kill();
                self.leave_core();
                if let Some(link) = self.slot.rest() {
                    self.env.retire(link);
                }
                self.no_server();
                self.no_server_ended();
                self.health.progress.forget();
                self.forget_unconfirmed();
                self.follow_ports_or_note();
            }
            _ => {}
        }
        // The next election does not wait for memory.
        if self.slot.rests() && self.members.kind.can_serve() {
            self.make_next();
        }
    }

    /// A new leader that another one would serve better hands leadership on before it begins anything.
    pub(super) fn hand_on_at_once(&mut self) {
        if self.members.kind == Kind::Witness {
            self.hand_over_for("it is a witness");
        }
        self.hand_to_an_active();
    }

    /// A passive leader hands over to an active replica whose server is close.
    pub(super) fn hand_to_an_active(&mut self) {
        if self.members.kind != Kind::Passive || self.lead.is_none() || self.is_handing_over() {
            return;
        }
        let close = |id| self.pulse.is_close(id, CLOSE, self.now);
        let is_active = |id| self.members.kind_of(id) == Kind::Active;
        let heir = self.heir_of(|id| !self.members.is_replaced(id));
        if let Some(to) = heir.filter(|to| is_active(*to) && close(*to)) {
            self.health.handed_over = Some(self.now);
            tracing::info!(event = "handing_over", to = to.0, why = "an active replica is in step");
            self.hand_leadership_to(to);
        }
    }

    /// Whom a witness leaves leadership to. One that is replaced would give it back, as this one completes the change; but if that lasts, clients count more.
    pub(super) fn heir_of_witness(&self) -> Option<ReplicaId> {
        let since = self.health.led_since.unwrap_or(self.now);
        let lasts = self.now.saturating_sub(since) >= WAITS;
        self.heir_of(|id| !self.members.is_replaced(id)).or_else(|| self.heir().filter(|_| lasts))
    }

    /// The fault of a witness that leads, as nobody else can.
    pub(super) fn witness_fault(&self) -> Option<Fault> {
        let alone = self.members.kind == Kind::Witness && self.consensus.role() == Role::Leader;
        let since = self.health.led_since.filter(|_| alone)?;
        (self.now.saturating_sub(since) >= WAITS).then(|| {
            let why = "it is a witness and leads, as no replica with a server is connected and fit: nobody serves until one is back";
            Fault::new("nobody_serves", why)
        })
    }

    /// Whether no other server exists to compare an image of this one with, which was taken at `came`.
    pub(super) fn nobody_compares(&self, came: Duration) -> bool {
        if self.replicas == 1 {
            return true;
        }
        let mut others = self.members.actives();
        others.remove(&self.own);
        let left = !self.another_has_a_server() && self.now >= came + ALONE_AFTER;
        self.lead.is_some() && (others.is_empty() || left)
    }

    /// A witness's log forgets what others have in images.
    pub(super) fn forget_as_witness(&mut self) {
        let images = &self.images;
        let newest = |id| images.known.get(&id).copied().unwrap_or_default();
        let of_all = self.members.that_can_serve().map(newest).min().unwrap_or_default();
        let first = self.consensus.first_index();
        let entries = (self.consensus.applied().0 + 1).saturating_sub(first.0);
        let of_connected = || {
            let there: Vec<_> = self.env.connected().collect();
            let these = self.members.that_can_serve().filter(|id| there.contains(id));
            these.map(newest).filter(|index| *index > LogIndex(0)).min().unwrap_or_default()
        };
        let long = images.schedule.is_exceeded(entries, LONGEST);
        let up_to = if long { of_all.max(of_connected()) } else { of_all };
        if up_to >= first
            && let Some(base) = self.consensus.compact(up_to, 0)
        {
            tracing::info!(event = "log_forgot", index = base.index.0);
            self.images.schedule.came(base.index, Duration::ZERO, self.now);
        }
    }
}
