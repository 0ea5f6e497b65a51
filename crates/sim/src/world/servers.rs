//! Servers' processes: started, run, ended.

use super::{Event, Life, World};
use crate::around::Wish;
use crate::keeper::Keeper;
use crate::machine::Servers;
use crate::options::{Break, Scenario};
use crate::scripted::Scripted;
use skein_arena::Sizes;
use skein_log::disk::sim::SimRng;
use skein_model::LogIndex;
use skein_replica::replica::Inbox;
use skein_replica::server::{Link, ServerEvent};

const KILLED: i32 = 9;
/// Entries per step of a server.
const BURST: u64 = 8;
/// The share of steps that end in the midst of its output, in percent, and the most frames of such a step.
const INTERRUPTED: u64 = 20;
const FRAMES: u64 = 4;

impl World {
    /// Carries out a replica's requests about its server, and its reads.
    pub(super) fn do_wishes(&mut self, id: u64) {
        let life = self.life(id);
        let env = &mut self.at(id).process.as_mut().expect("it runs").replica.env;
        let wishes = std::mem::take(&mut env.wishes);
        for wanted in std::mem::take(&mut env.wanted) {
            let delay = 50 + self.rng.below(self.plan.sync_us);
            self.schedule(delay, Event::OldRead(life, wanted));
        }
        for wish in wishes {
            match wish {
                Wish::Arena(sizes, generation) => {
                    let delay = 1000 + self.rng.below(5000);
                    self.schedule(delay, Event::ArenaMade(life, sizes, generation));
                }
                Wish::Start(server) => {
                    let generation = server.generation;
                    self.rebuilds += usize::from(generation > 1);
                    let from = server.continues().unwrap_or_default();
                    // What is wrong with a digest goes on with the files.
                    let differs = self.image_differs(id, from.max(server.begins_on));
                    self.restores += usize::from(from > LogIndex(0));
                    let process = self.at(id).process.as_mut().expect("it runs");
                    if differs {
                        process.differs = generation;
                    }
                    process.server = Some(*server);
                    process.keeper = Keeper::default();
                    process.executed = from;
                    process.server_lives = false;
                    process.server_hangs = false;
                    process.server_runs = false;
                    self.trace(|| format!("{id}: starts server {generation}"));
                    let delay = 1000 + self.rng.below(30_000);
                    self.schedule(delay, Event::Launched(life, generation));
                }
                Wish::Kill => {
                    self.note_memory(id);
                    self.end_server(id, KILLED);
                }
                image => self.do_image(life, image),
            }
        }
    }

    /// Ends a server's process, if there is one.
    pub(super) fn end_server(&mut self, id: u64, status: i32) {
        let life = self.life(id);
        let process = self.at(id).process.as_mut().expect("it runs");
        process.server_lives = false;
        let Some(mut server) = process.server.take() else { return };
        process.keeper.add(&mut server.printed);
        process.left = Some((server.generation, server.program.left()));
        self.trace(|| format!("{id}: server {} ends by {status}", server.generation));
        if self.options.broken != Some(Break::SilentEnd) {
            self.schedule(500, Event::ServerEnded(life, server.generation, status));
        }
    }

    pub(super) fn arena_made(
        &mut self,
        life: Life,
        sizes: Sizes,
        generation: u64,
    ) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        self.tell(life, Inbox::Arena(Link::sparse(sizes, generation).map(Box::new)))
    }

    pub(super) fn launched(&mut self, life: Life, generation: u64) -> Result<(), String> {
        if let Some(why) = self.alarm.take() {
            return Err(why);
        }
        if !self.lives(life) {
            return Ok(());
        }
        let process = self.at(life.replica).process.as_mut().expect("it lives");
        if process.server.as_ref().is_none_or(|server| server.generation != generation) {
            return Ok(());
        }
        process.server_lives = true;
        if self.lacks_memory(life, generation) {
            self.not_restored += 1;
            self.trace(|| format!("{}: server {generation} lacks memory", life.replica));
            let why = "Cannot allocate memory".to_owned();
            let failed = ServerEvent::NotRestored { why, damaged: false };
            return self.tell(life, Inbox::Server(generation, failed));
        }
        if self.machines[&life.replica].servers != Servers::Work {
            let delay = self.rng.below(50_000);
            self.schedule(delay, Event::Spoil(life, generation));
        }
        let launched = ServerEvent::Launched { pid: 1000, init: 999, files: None };
        self.tell(life, Inbox::Server(generation, launched))
    }

    /// Whether this server cannot continue from its image. Drawn aside, so that the rest of a seed's run stays.
    fn lacks_memory(&self, life: Life, generation: u64) -> bool {
        let process = self.machines[&life.replica].process.as_ref();
        let continues = process.and_then(|p| p.server.as_ref()?.continues()).is_some();
        let which = generation << 32 | life.life << 8 | life.replica;
        continues
            && self.now_us < self.plan.faults_until_us
            && SimRng::new(self.seed ^ which.rotate_left(17)).chance(self.plan.not_restored)
    }

    pub(super) fn server_ended(
        &mut self,
        life: Life,
        generation: u64,
        status: i32,
    ) -> Result<(), String> {
        self.tell(life, Inbox::Server(generation, ServerEvent::Ended { status }))
    }

    /// Whether its server is slower than others.
    fn is_slow(&self, id: u64) -> bool {
        if self.options.scenario == Scenario::Behind {
            // All are until one leads, which would have executed the log by then.
            let is_behind = self.broken == 0 || self.broken == id && self.leader() == Some(id);
            return self.faults > 0 && is_behind;
        }
        self.plan.slow_followers_us > 0 && self.leader() != Some(id)
    }

    /// A server that does not sleep goes on soon.
    pub(super) fn wake_server(&mut self, id: u64) {
        let slow_us = if self.is_slow(id) { self.plan.slow_followers_us } else { 0 };
        let delay = 5 + self.rng.below(self.plan.execute_us) + slow_us;
        let life = self.life(id);
        let Some(process) = &mut self.at(id).process else { return };
        let Some(server) = &process.server else { return };
        if process.server_lives
            && !process.server_runs
            && !process.server_hangs
            && server.is_awake()
        {
            process.server_runs = true;
            let generation = server.generation;
            self.schedule(delay, Event::ServerRuns(life, generation));
        }
    }

    pub(super) fn server_runs(&mut self, life: Life, generation: u64) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        let entries = match self.is_slow(life.replica) {
            true => 1,
            false => 1 + self.rng.below(BURST) as usize,
        };
        let frames = match self.rng.chance(INTERRUPTED) {
            true => 1 + self.rng.below(FRAMES) as usize,
            false => usize::MAX,
        };
        let id = life.replica;
        let process = self.at(id).process.as_mut().expect("it lives");
        if process.server.as_ref().is_none_or(|server| server.generation != generation) {
            return Ok(());
        }
        process.server_runs = false;
        if process.server_hangs || !process.server_lives {
            return Ok(());
        }
        let wakes = self.execute(id, entries, frames);
        if wakes && !self.machines[&id].stopped {
            return self.round(id);
        }
        self.wake_server(id);
        Ok(())
    }

    /// A server that sleeps wakes by itself.
    pub(super) fn server_wakes(&mut self, life: Life, generation: u64) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        let process = self.at(life.replica).process.as_ref().expect("it lives");
        let server = process.server.as_ref().filter(|server| server.generation == generation);
        let Some(server) = server.filter(|server| process.server_lives && !server.is_awake())
        else {
            return Ok(());
        };
        server.rouse();
        self.server_runs(life, generation)
    }

    /// Where servers are quick: lets it execute what its node gave it, before that rests.
    pub(super) fn execute_at_once(&mut self, id: u64) {
        let process = self.at(id).process.as_ref().expect("it runs");
        let lives = process.server_lives && !process.server_hangs;
        let runs = lives && process.server.as_ref().is_some_and(Scripted::is_awake);
        if runs && self.plan.quick_servers {
            self.execute(id, BURST as usize, usize::MAX);
        }
    }

    /// Lets a server that lives execute up to so many entries, and say so many frames. Whether its node sleeps, and is to be woken.
    fn execute(&mut self, id: u64, entries: usize, frames: usize) -> bool {
        let now_us = self.now_us;
        let now = self.steady(id);
        let process = self.at(id).process.as_mut().expect("it lives");
        let server = process.server.as_mut().expect("it lives");
        let ran = server.run(now, entries, frames);
        let generation = server.generation;
        if let Some((index, _)) = server.executed.last() {
            process.executed = *index;
            process.executed_us = now_us;
        }
        let executed = process.executed;
        self.planned += ran.planned;
        self.lag.executed(executed, now_us);
        if let Some(status) = ran.ended {
            self.end_server(id, status);
        }
        if let Some(until) = ran.until {
            let left = self.machines[&id].takes(until.saturating_sub(now));
            self.schedule(left.max(1), Event::ServerWakes(self.life(id), generation));
        }
        ran.wakes
    }
}
