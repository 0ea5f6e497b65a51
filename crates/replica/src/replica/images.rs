//! Takes, fetches, hands out and forgets images of the server; the rules are in [`crate::images`].
//!
//! A server *stands* for its image: it gets no entry beyond the one of the image until it was read. That is apart from a [standstill](super::standstill), which may last
//! longer and begin meanwhile.

mod counting;
mod prepare;
mod transfer;
mod trouble;
mod turn;
mod unusable;

use self::prepare::Preparing;
use self::unusable::Unusable;
use super::Replica;
use super::scrub::Scrub;
use crate::agreement::unhurried::{LONGEST_UNASKED, PATIENCE};
use crate::editions::Editions;
use crate::environment::{Environment, Image, ImageFile, ImageNews};
use crate::images::schedule::{After, Begins};
use crate::images::{Checkpointed, Fetch, Schedule, Sent, Taking, Turn};
use crate::server::Source;
use crate::status::ImagesStatus;
use skein_log::frame::KIND_APP;
use skein_log::{Consensus, Level};
use skein_model::{LogIndex, ReplicaId, WallNs};
use std::collections::BTreeMap;
use std::time::Duration;

/// "My newest image, and a later one that is not confirmed": twice index u64, bytes u64, digest u128; all 0 for none.
pub(super) const HELD: u8 = KIND_APP + 13;
/// "Send the bytes of this image from here on": index u64, position u64. Of entry 0: "I need an image of this entry or a later one", instead of a position.
pub(super) const FETCH: u8 = KIND_APP + 14;
/// "These are they": index u64, position u64, bytes; none: there are no more.
pub(super) const PART: u8 = KIND_APP + 15;

/// "What you sent as this image is damaged": index u64.
pub(super) const DAMAGED: u8 = KIND_APP + 16;

/// How often is looked at what is due.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often peers are told, as messages may be lost.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// An image that is asked for waits so long for a server that was just begun, after an upgrade, say, or that asks about files of its host.
const IN_STEP_WITHIN: Duration = Duration::from_secs(5);
/// A server that is to stand first executes what it was given. One that executes no entry of that within this time goes on, or, after failures, within twice as long for each,
const STANDS_WITHIN: Duration = Duration::from_millis(500);
/// so often at most;
const DOUBLED: u32 = 7;
/// and one that was not read within this time is ended: nothing else ends the reading.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// The next image waits so long for the confirmation of the one before: twice as long as digests may that nobody waits for.
const CONFIRMED_WITHIN: Duration = LONGEST_UNASKED.saturating_add(PATIENCE).saturating_mul(2);

/// The answer to such a request.
pub type Reply = oneshot::Sender<Result<Checkpointed, String>>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Images {
    /// Confirmed ones on disk, oldest first.
    pub(super) kept: Vec<Image>,
    /// One that was taken here, until the servers' digests at its entry or a later one were found equal: the log keeps what it covers.
    pub(super) unconfirmed: Option<Image>,
    /// One that was found equal, and gets its name on the disk: it counts then.
    pub(super) naming: Option<Image>,
    /// The files that this replica's server left when it ended for an upgrade; unconfirmed or kept, too.
    pub(super) ended: Option<Image>,
    /// The number of them to keep.
    keep: usize,
    /// Bytes a second that are fetched at most.
    rate: u64,
    pub(super) schedule: Schedule,
    turn: Turn,
    preparing: Option<Preparing>,
    pub(super) taking: Option<Taking>,
    pub(super) fetch: Option<Fetch>,
    /// The newest image of each connected replica, and a later one that is not confirmed.
    held: BTreeMap<ReplicaId, [Option<ImageFile>; 2]>,
    /// The newest confirmed image that each replica has said it has, connected or not.
    pub(super) known: BTreeMap<ReplicaId, LogIndex>,
    /// KiB that others say they have of an image that they fetch, from whomever.
    others_have: BTreeMap<ReplicaId, u64>,
    /// This replica cannot continue without an image of this entry or a later one.
    need: Option<LogIndex>,
    /// When the others were asked for one last.
    need_told: Duration,
    /// Images of earlier entries are removed when there is one of this entry or a later one: they may have what differed between servers.
    doubted: LogIndex,
    unusable: Unusable,
    /// Who asked for an image,
    asked: Vec<Reply>,
    /// and until when they wait for a server that is not in step yet.
    asked_until: Option<Duration>,
    /// Why none could be had last.
    refused: Option<String>,
    /// There was no room for the last one.
    no_room: Option<String>,
    next: Duration,
    /// When the newest one was taken.
    came: Duration,
    /// When peers were told of the images here.
    told: Duration,
    pub(super) scrub: Scrub,
    sent: Sent,
}

impl Images {
    /// `doubted`: what a former life knew of that.
    pub(super) fn new(
        config: &crate::config::CheckpointConfig,
        mut kept: Vec<Image>,
        doubted: LogIndex,
    ) -> Self {
        kept.sort_by_key(Image::index);
        let newest = kept.last().map(Image::index).unwrap_or_default();
        let mut new = Self {
            kept,
            unconfirmed: None,
            ended: None,
            keep: config.keep.max(1),
            rate: config.fetch_bytes_per_s,
            schedule: Schedule::new(config.clone(), newest),
            turn: Turn::default(),
            preparing: None,
            taking: None,
            fetch: None,
            held: BTreeMap::new(),
            known: BTreeMap::new(),
            others_have: BTreeMap::new(),
            need: None,
            need_told: Duration::ZERO,
            doubted,
            unusable: Unusable::default(),
            naming: None,
            asked: Vec::new(),
            asked_until: None,
            refused: None,
            no_room: None,
            next: Duration::ZERO,
            came: Duration::ZERO,
            told: Duration::ZERO,
            scrub: Scrub::new(config.scrub_s),
            sent: Sent::default(),
        };
        new.hurry_behind_files();
        if !new.kept.is_empty() && newest < doubted {
            new.schedule.hurry();
        }
        new
    }

    /// On files that a server left the next one begins anew, which takes longer than to continue: an image of that is to be there soon.
    fn hurry_behind_files(&mut self) {
        if self.newest_is_files() {
            self.schedule.hurry();
        }
    }

    /// The entries of those that are kept.
    pub(super) fn indices(&self) -> Vec<LogIndex> {
        self.kept.iter().map(Image::index).collect()
    }

    pub(super) const fn committed(&mut self, bytes: u64) {
        self.schedule.committed(bytes);
    }

    pub(super) fn newest(&self) -> Option<&Image> {
        self.kept.last()
    }

    /// The newest that does not count yet.
    fn not_counting(&self) -> Option<&Image> {
        self.unconfirmed.as_ref().or(self.naming.as_ref())
    }

    /// Where a server can begin, with a log that holds the entries from `first` to `last`. Files that a server left wait for the edition that begins on them.
    pub(super) fn source(
        &self,
        first: LogIndex,
        last: LogIndex,
        editions: &Editions,
    ) -> Option<Source> {
        let fits = |image: &&Image| image.index().next() >= first && image.index() <= last;
        let all = self.kept.iter().chain(&self.ended);
        let Some(newest) = all.filter(fits).max_by_key(|image| image.index()) else {
            return (first <= LogIndex(1)).then_some(Source::Log);
        };
        let state = newest.state.clone();
        if state.ended.is_none() {
            return Some(Source::Image(state));
        }
        let begun = editions.begun_on(state.index)?;
        Some(Source::Files(state, begun.edition.clone()))
    }

    /// Whether the server must not have the entry at `index` yet.
    pub(super) fn holds_before(&self, index: LogIndex) -> bool {
        self.taking.as_ref().is_some_and(|taking| taking.copied.is_none() && index > taking.after)
    }

    /// Whether the server stands because it is being read.
    pub(super) fn is_copying(&self) -> bool {
        self.taking.as_ref().is_some_and(|t| t.stood.is_some() && t.copied.is_none())
    }

    /// Whether an image of this server is being taken after that entry.
    pub(super) fn is_taking(&self, index: LogIndex, generation: u64) -> bool {
        let is_it = |taking: &Taking| taking.after == index && taking.generation == generation;
        self.taking.as_ref().is_some_and(is_it)
    }

    /// What begins between two entries of digests, given with their times.
    pub(super) fn begins(&self, before: (LogIndex, WallNs), now: (LogIndex, WallNs)) -> Begins {
        self.schedule.begins(before, now)
    }

    /// A peer is gone.
    pub(super) fn lost(&mut self, peer: ReplicaId) {
        self.held.remove(&peer);
        self.others_have.remove(&peer);
        if self.fetch.as_ref().is_some_and(|fetch| fetch.from == peer) {
            self.fetch = None;
        }
    }

    /// KiB that are here of an image that is fetched.
    pub(super) fn fetched_kib(&self) -> Option<u64> {
        self.fetch.as_ref().map(|fetch| fetch.stored() >> 10)
    }

    /// A peer says the same of itself.
    pub(super) fn another_has(&mut self, peer: ReplicaId, kib: Option<u64>) {
        match kib {
            Some(kib) => drop(self.others_have.insert(peer, kib)),
            None => drop(self.others_have.remove(&peer)),
        }
    }

    /// What it said last, unless it fetches none, or is not connected.
    pub(super) fn kib_of(&self, peer: ReplicaId) -> Option<u64> {
        self.others_have.get(&peer).copied()
    }

    pub(super) fn status(&self) -> ImagesStatus {
        ImagesStatus {
            count: self.kept.len() as u64,
            index: self.newest().map_or(0, |image| image.index().0),
            bytes: self.kept.iter().map(|image| image.file.bytes).sum(),
            fetched_percent: self.fetch.as_ref().map(Fetch::percent),
            not_taken: self.refused.clone(),
        }
    }

    fn answer(&mut self, answer: &Result<Checkpointed, String>) {
        self.asked_until = None;
        for reply in self.asked.drain(..) {
            // The requester may be gone.
            let _ = reply.send(answer.clone());
        }
    }
}

/// The images that were there at the start, without those of a log that is not this one: in memory it went with the node, on a disk another one was put in its place. One that the log
/// begins behind is this log's in memory, too.
pub(super) fn of_this_log<E: Environment>(env: &mut E, consensus: &Consensus) -> Vec<Image> {
    let (kept, others): (Vec<_>, Vec<_>) = env.images_at_start().into_iter().partition(|image| {
        let base = consensus.base_at(image.index());
        base.map_or_else(|| env.has_log(), |base| base.term == image.state.term)
    });
    for image in others {
        tracing::info!(event = "image_of_another_log", index = image.index().0);
        env.remove_image(image.index(), false);
    }
    kept
}

impl<E: Environment> Replica<E> {
    /// Where a server can begin.
    pub(super) fn source(&self) -> Option<Source> {
        let (first, last) = (self.consensus.first_index(), self.consensus.last_index());
        self.images.source(first, last, &self.upgrades.editions)
    }

    /// Whether a server can begin nowhere, and not because files that one has left wait for their edition.
    pub(super) fn begins_nowhere(&self) -> bool {
        let first = self.consensus.first_index();
        let waits = |image: &Image| image.state.ended.is_some() && image.index().next() >= first;
        let Images { ended, kept, .. } = &self.images;
        !ended.iter().chain(kept.last()).any(waits) && self.source().is_none()
    }

    /// A request for an image, now.
    pub(super) fn checkpoint(&mut self, reply: Reply) {
        if let Some(why) = self.has_no_server() {
            // The requester may be gone.
            let _ = reply.send(Err(why.into()));
            return;
        }
        self.images.asked.push(reply);
        self.images.asked_until.get_or_insert(self.now + IN_STEP_WITHIN);
        self.begin_asked();
    }

    /// Begins, continues and ends what is to be done about images.
    pub(super) fn tend_images(&mut self) {
        self.tend_preparing();
        if self.images.taking.is_some() {
            self.tend_taking();
        }
        if self.now < self.images.next {
            return;
        }
        self.images.next = self.now + LOOK_EVERY;
        if self.now >= self.images.told + TELL_EVERY {
            self.tell_image();
        }
        self.scrub_images();
        if !self.members.kind.can_serve() {
            return self.forget_as_witness();
        }
        self.begin_asked();
        self.forget_log();
        self.look_for_need();
        self.tend_fetch();
        self.try_left_out();
        self.confirm_image();
        if self.slot.rests() {
            self.images.turn.is_over();
            // It takes none, and has each newer one of the others, not too often.
            if self.images.fetch.is_none() && self.images.schedule.may_begin(self.now) {
                self.fetch(LogIndex(1), false);
            }
            return;
        }
        let waits =
            self.images.not_counting().is_some() && self.now < self.images.came + CONFIRMED_WITHIN;
        let is_begun = self.images.taking.is_some() || self.images.preparing.is_some();
        if is_begun || self.images.fetch.is_some() || waits {
            return self.images.turn.is_over();
        }
        // Another replica needs one, and there is none that would do.
        let base = LogIndex(self.consensus.first_index().0 - 1);
        let asked = !self.consensus.take_below_base().is_empty();
        if asked && self.images.newest().is_none_or(|image| image.index() < base) {
            let _ = self.prepare_image();
            return;
        }
        let (executed, after) = (self.survived(), self.image_after());
        let is_due = |after| self.images.schedule.is_due(executed, after, self.now);
        let lacks = self.lacks_an_image(executed);
        let due = is_due(after) || lacks && after != After::Others;
        let of_others = is_due(After::Nobody) || lacks;
        let in_turn = due && after == After::Nobody;
        if !in_turn {
            self.images.turn.is_over();
        }
        if due && (!in_turn || self.is_its_turn()) {
            // When it cannot begin now, it is tried again soon.
            if self.prepare_image().is_ok() {
                self.images.turn.is_over();
            }
        } else if after == After::Others && of_others {
            self.fetch(LogIndex(1), false);
        }
    }

    /// Whether the log is longer than it ever is with as many images as there are to be, and forgets nothing for want of one: a new replica has got another one's whole log.
    fn lacks_an_image(&self, executed: LogIndex) -> bool {
        let entries = executed.next().0.saturating_sub(self.consensus.first_index().0);
        let Images { kept, keep, schedule, .. } = &self.images;
        kept.last().is_some_and(|newest| newest.index() < executed)
            && kept.len() < *keep
            && schedule.is_full(entries, *keep as u64, self.now)
    }

    /// Whom this replica lets take an image first.
    fn image_after(&self) -> After {
        match self.lead {
            Some(_) if self.another_has_a_server() => After::Others,
            Some(_) => After::Clients,
            None if self.compares_roots() => After::Digests,
            None => After::Nobody,
        }
    }

    /// When images need attention by time alone, if ever.
    pub(super) fn images_wake(&self) -> Option<Duration> {
        let asked = self.images.asked_until.is_some();
        let begins = asked || self.images.preparing.is_some();
        let fetches = self.images.fetch.is_some() || self.images.need.is_some();
        let busy = begins || fetches || self.images.turn.is_awaited();
        let newest = self.images.newest().map(Image::index).unwrap_or_default();
        if self.slot.rests() && !busy {
            let known = self.images.held.values().filter_map(|[confirmed, _]| confirmed.as_ref());
            let newer = known.map(|file| file.index).max() > Some(newest);
            let fetches = newer && self.members.kind.can_serve();
            return fetches.then(|| self.images.schedule.not_before().max(self.images.next));
        }
        let confirms = self.images.unconfirmed.is_some() && self.lead.is_some();
        let changed = newest < self.survived() || confirms;
        match (busy, changed) {
            (true, _) => Some(self.images.next),
            (false, true) => {
                let wake = self.images.schedule.wake(self.survived(), self.image_after());
                wake.map(|wake| wake.max(self.images.next))
            }
            (false, false) => None,
        }
    }

    /// Lets the server stand where it is.
    pub(super) fn begin_image(&mut self) -> Result<(), String> {
        let (after, generation) = self.image_may_begin()?;
        self.end_preparing();
        // One of the same entry would have the same place on the disk.
        self.images.fetch.take_if(|fetch| fetch.index() <= after);
        self.images.taking = Some(Taking::begin(after, generation, self.now));
        Ok(())
    }

    /// After which entry an image of which server can begin now.
    fn image_may_begin(&self) -> Result<(LogIndex, u64), String> {
        let Some(server) = self.slot.link().filter(|_| self.slot.is_in_step()) else {
            return Err(
                "its server does not run, or still executes what the others have executed".into()
            );
        };
        let (after, generation) = (server.feed.given(), server.generation);
        if self.images.taking.is_some() {
            return Err("an image is being taken already".into());
        }
        if let Some(why) = self.upgrade_is_under_way() {
            return Err(why);
        }
        if !self.upgrade_asked.is_empty() {
            // The log would begin behind what asks the server to end.
            return Err("an upgrade was requested just now".into());
        }
        let Images { kept, unconfirmed, naming, .. } = &self.images;
        if kept.last().into_iter().chain(unconfirmed).chain(naming).any(|i| i.index() >= after) {
            return Err(format!("there is an image of entry {after} already"));
        }
        Ok((after, generation))
    }

    /// Reads the server when it stands, or lets it go on.
    fn tend_taking(&mut self) {
        let executed = self.survived();
        let Some(taking) = &mut self.images.taking else { return };
        if let Some(stood) = taking.stood {
            if taking.copied.is_none() && self.now >= stood + READ_WITHIN {
                let generation = taking.generation;
                self.not_taken("its server could not be read in time".into());
                if self.server().is_some_and(|server| server.generation == generation) {
                    self.kill_server();
                }
            }
            return;
        }
        let awaits = taking.after > self.handed;
        // Who asks for one is not kept waiting.
        let is_asked = !self.images.asked.is_empty();
        let failures = if is_asked { 0 } else { self.images.schedule.failures() };
        let within = STANDS_WITHIN * (1 << failures.min(DOUBLED));
        if self.now >= taking.gets_on(executed, awaits, self.now) + within {
            let ms = within.as_millis();
            return self.not_taken(format!(
                "its server executes a request for {ms} ms and more; try again"
            ));
        }
        let (after, generation) = (taking.after, taking.generation);
        let there = self.slot.link_mut().filter(|server| server.generation == generation);
        let Some(server) = there.filter(|server| server.pid != 0) else {
            return self.not_taken("its server has ended".into());
        };
        if server.is_asking() {
            return self.asks_first();
        }
        if server.feed.given() != after || after > self.handed || server.waits().is_none() {
            return;
        }
        server.settle();
        let Some((term, base)) =
            self.consensus.base_at(after).map(|base| (base.term, base.to_bytes()))
        else {
            return self.not_taken(format!("entry {after} is not in the log any more"));
        };
        let mut state = server.server_state(term, base);
        if self.consensus.agreed_level() >= Level::PROCESSORS {
            state.processor.clone_from(&self.config.processor);
        }
        taking.stands(self.now);
        if let Some(server) = self.slot.link() {
            self.env.take_image(server, state);
        }
    }

    /// News of images.
    pub(super) fn image_news(&mut self, news: ImageNews) {
        match news {
            ImageNews::Prepared => self.image_prepared(),
            ImageNews::Copied { forked } => {
                let now = self.now;
                if let Some(taking) = &mut self.images.taking {
                    taking.forked = forked;
                    taking.copied = taking.stood.map(|stood| now.saturating_sub(stood));
                }
            }
            ImageNews::Read { index, root, pages } => self.image_read(index, root, pages),
            ImageNews::Kept(image) => self.image_kept(image),
            ImageNews::Came(image) => self.image_came(image),
            ImageNews::Named(index) => self.image_named(index),
            ImageNews::NotNamed(index, trouble) => self.not_named(index, &trouble),
            ImageNews::NotTaken(trouble) => {
                self.no_room_for_image(&trouble);
                self.not_taken(trouble.why().to_owned());
            }
            ImageNews::FilesRead(index) => self.files_were_read(index),
            ImageNews::Received(index, bytes) => {
                let fetch = self.images.fetch.as_mut().filter(|fetch| fetch.index() == index);
                if let Some(fetch) = fetch {
                    fetch.is_stored(bytes, self.now);
                }
                self.ask_for_parts();
            }
            ImageNews::NotReceived(index, trouble) => self.not_received(index, &trouble),
            ImageNews::Damaged(index) => {
                if self.images.kept.iter().any(|image| image.index() == index) {
                    self.note(format!("its image of entry {index} is damaged: that is set aside"));
                    self.give_up_image(index, true);
                }
            }
            ImageNews::Part(to, index, from, bytes) => {
                let mut payload = index.0.to_le_bytes().to_vec();
                payload.extend_from_slice(&from.to_le_bytes());
                payload.extend_from_slice(&bytes);
                // One that is lost is asked for again.
                self.env.send(to, PART, &payload);
            }
        }
    }

    /// Removes images beyond those to keep and doubted ones, and what the oldest of these covers from the log.
    fn forget_old_images(&mut self) {
        let doubted = self.images.doubted;
        let renewed = self.images.newest().is_some_and(|newest| newest.index() >= doubted);
        let beyond = self.images.kept.len().saturating_sub(self.images.keep);
        let goes = |(n, index): (usize, LogIndex)| {
            let spare = n < beyond && !self.images.sent.is_wanted(index, self.now);
            (spare || renewed && index < doubted).then_some(index)
        };
        let gone: Vec<_> = self.images.indices().into_iter().enumerate().filter_map(goes).collect();
        self.images.kept.retain(|image| !gone.contains(&image.index()));
        gone.into_iter().for_each(|index| self.env.remove_image(index, false));
        self.forget_log();
    }

    /// What the oldest image covers goes from the log, once that is on disk so far, and this replica's server has got it: one that was just started may continue from an
    /// earlier image.
    fn forget_log(&mut self) {
        let server = self.server().filter(|_| self.slot.can_be_fed());
        let next = server.map(|server| server.feed.next());
        if self.images.kept.len() >= self.images.keep
            && let Some(oldest) = self.images.kept.first()
            && oldest.index() >= self.consensus.first_index()
            && next.is_none_or(|next| next > oldest.index())
            && let Some(base) = self.consensus.compact(oldest.index(), 0)
        {
            tracing::info!(event = "log_forgot", index = base.index.0);
            self.images.schedule.forgot();
            self.env.forgot(base.index);
        }
    }

    /// This replica has no server any more: nothing confirms an image that is not confirmed.
    pub(super) fn forget_unconfirmed(&mut self) {
        if let Some(image) = self.images.unconfirmed.take() {
            self.images.ended.take_if(|ended| ended.index() == image.index());
            self.images.unusable.replaced(image.index());
            self.discard(image.index());
            self.an_uncounted_went();
        }
    }

    /// An image went that did not count yet: the next one is due behind the newest that is left.
    fn an_uncounted_went(&mut self) {
        let Images { kept, unconfirmed, naming, .. } = &self.images;
        let left = kept.last().into_iter().chain(unconfirmed).chain(naming).map(Image::index).max();
        self.images.schedule.is_left(left.unwrap_or_default());
    }

    /// This replica's server has ended, maybe by a fault of its own: the digests of its next one tell nothing of what was taken of it.
    pub(super) fn forget_images_of_server(&mut self) {
        if self.images.unconfirmed.as_ref().is_some_and(|image| image.state.ended.is_none()) {
            self.forget_unconfirmed();
        }
        let after = self.images.taking.as_ref().map(|taking| taking.after);
        if after.is_some_and(|after| !self.awaits_edition(after))
            && let Some(taking) = &mut self.images.taking
        {
            // No server's.
            taking.generation = 0;
        }
    }

    /// This replica's server differed from the others' after `agreed`: later images of it may have what made it differ. `again`: even those from before.
    pub(super) fn distrust_images(&mut self, agreed: LogIndex, again: bool) {
        if let Some(taking) = &mut self.images.taking {
            // No server's: what is being read is not kept.
            taking.generation = 0;
        }
        self.forget_unconfirmed();
        if let Some(image) = self.images.naming.take_if(|image| again || image.index() > agreed) {
            self.images.ended.take_if(|ended| ended.index() == image.index());
            self.discard(image.index());
            self.an_uncounted_went();
        }
        let doubtful = |image: &&Image| again || image.index() > agreed;
        let all = self.images.kept.iter().chain(self.images.unusable.left_out());
        let indexes: Vec<_> = all.filter(doubtful).map(Image::index).collect();
        for index in indexes {
            self.give_up_image(index, false);
        }
    }

    /// Images of entries before `index` may have what differed between servers: others are to be had soon.
    pub(super) fn renew_images(&mut self, index: LogIndex) {
        if index > self.images.doubted {
            self.images.doubted = index;
            self.env.doubt_images(index);
        }
        if !self.images.kept.is_empty() {
            self.images.schedule.hurry();
            self.images.next = self.now;
        }
    }

    /// A request to remove an image: refused where the log alone would not be the whole.
    pub(super) fn remove_image(&mut self, index: LogIndex) -> Result<(), String> {
        let is_it = |image: &mut Image| image.index() == index;
        let Images { unconfirmed, naming, .. } = &mut self.images;
        let does_not_count = unconfirmed.take_if(is_it).or_else(|| naming.take_if(is_it)).is_some();
        if does_not_count && !self.images.kept.iter().any(|image| image.index() == index) {
            self.images.ended.take_if(|ended| ended.index() == index);
            self.images.unusable.replaced(index);
            self.env.remove_image(index, false);
            self.an_uncounted_went();
            return Ok(());
        }
        let all = || self.images.kept.iter().chain(self.images.unusable.left_out());
        let kept = || all().map(Image::index);
        if !kept().any(|other| other == index) {
            return Err(format!("there is no image of entry {index}"));
        }
        let first = self.consensus.first_index();
        let stays = kept().any(|other| other != index && other.next() >= first);
        if first > LogIndex(1) && !stays {
            return Err(format!(
                "the log begins at entry {first}, and no other image here reaches that"
            ));
        }
        self.give_up_image(index, false);
        Ok(())
    }

    /// Tells all peers which image is the newest here.
    pub(super) fn tell_image(&mut self) {
        self.images.told = self.now;
        let mut bytes = Vec::new();
        // After a start less may be known to be committed than before: no leader can count on a later image.
        let applied = self.consensus.applied();
        let confirmed = self.images.kept.iter().rfind(|image| image.index() <= applied);
        for image in [confirmed, self.images.not_counting()] {
            let none = ImageFile { index: LogIndex(0), bytes: 0, digest: 0 };
            let file = image.map_or(none, |image| image.file);
            bytes.extend_from_slice(&file.index.0.to_le_bytes());
            bytes.extend_from_slice(&file.bytes.to_le_bytes());
            bytes.extend_from_slice(&file.digest.to_le_bytes());
        }
        self.tell_all_routinely(HELD, &bytes);
    }

    /// A peer speaks of images; false when that means nothing.
    pub(super) fn peer_says_of_images(&mut self, peer: ReplicaId, kind: u8, bytes: &[u8]) -> bool {
        let u64_at = |at: usize| {
            bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")))
        };
        match (kind, u64_at(0), u64_at(8), bytes.len()) {
            (HELD, .., 64) => {
                let file = |at: usize| {
                    let digest = &bytes[at + 16..at + 32];
                    let digest = u128::from_le_bytes(digest.try_into().expect("16 bytes"));
                    let (index, bytes) = (LogIndex(u64_at(at)?), u64_at(at + 8)?);
                    (index > LogIndex(0)).then_some(ImageFile { index, bytes, digest })
                };
                let confirmed = file(0).map(|file| file.index).unwrap_or_default();
                self.images.known.insert(peer, confirmed);
                self.images.held.insert(peer, [file(0), file(32)]);
            }
            (FETCH, Some(0), Some(least), 16) => self.another_needs(LogIndex(least)),
            (FETCH, Some(index), Some(from), 16) => {
                self.images.sent.asked(peer, LogIndex(index), self.now);
                self.env.read_image(peer, LogIndex(index), from);
            }
            (DAMAGED, Some(index), None, 8) => self.env.check_image(LogIndex(index)),
            (PART, Some(index), Some(from), 16..) => {
                self.part_came(peer, LogIndex(index), from, &bytes[16..]);
            }
            _ => return false,
        }
        true
    }

    /// The log was replaced by a base, which an image here fills: the server continues from that.
    pub(super) fn log_was_reset(&mut self, index: LogIndex) {
        tracing::info!(event = "log_reset", index = index.0);
        self.images.need = None;
        self.images.schedule.forgot();
        self.upgrades.continue_behind(&self.images.kept, index);
        // What ended before is the past, but an end on whose files the next edition begins.
        self.ends_before(if self.images.has_ended_at(index) { index } else { index.next() });
        self.started = true;
        self.slot.forgive();
        if self.slot.can_be_fed() {
            self.kill_server();
        }
    }

    /// Tells consensus which images there are.
    fn hold_images(&mut self) {
        self.consensus.hold_images(self.images.kept.iter().map(Image::index));
    }
}
