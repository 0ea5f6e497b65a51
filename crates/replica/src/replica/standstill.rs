//! A standstill: for a moment the server gets no entry beyond a certain one, so that all replicas' files or memory can be read at the same point.
//!
//! ```text
//! ask all:  hold             each stops where it is and answers its entry
//! ask all:  stand at N       each goes on to entry N, the largest of these, and answers when its server waits there
//!           ... the files, or the memory, are read ...
//! ask all:  stand on          if there is more to read, or to repair ([`super::repair`])
//! ask all:  go on
//! ```
//!
//! Only the server's input stops: the log goes on, and entries committed meanwhile are executed afterwards. Clients wait for as
//! long. The requester may vanish: a standstill ends by itself.

use super::{Environment, Replica};
use crate::server::Stood;
use skein_model::LogIndex;
use std::time::Duration;

/// How long a server is held for a requester that does not name the entry.
const HELD: Duration = Duration::from_secs(1);
/// The longest standstill: the server must reach the entry, and its files or its memory are read.
pub const STANDS: Duration = Duration::from_secs(30);
/// The extension for a requester that continues reading.
pub const STANDS_ON: Duration = Duration::from_secs(5);

/// A server that stands, or the reason why it does not.
pub type Standing = Result<Stood, String>;

/// See the [module](self).
#[derive(Debug)]
pub struct Standstill {
    after: LogIndex,
    until: Duration,
    /// The generation that stands; a new one begins anew.
    generation: u64,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Its entry.
    Held,
    /// On its way; the requester is to be told.
    Coming(oneshot::Sender<Standing>),
    /// There; its files are read.
    Stands,
}

impl<E: Environment> Replica<E> {
    /// Stops here; answers the last entry that the server was given.
    pub(super) fn hold(&mut self) -> Result<u64, String> {
        let Some(server) = self.slot.link().filter(|server| server.files.is_some()) else {
            return Err(self.has_no_server().unwrap_or("its server does not run").into());
        };
        if !self.slot.is_in_step() {
            return Err("its server still executes entries that the others have executed".into());
        }
        if !matches!(self.standstill, None | Some(Standstill { step: Step::Held, .. })) {
            return Err("another command compares replicas now".into());
        }
        let after = server.feed.given();
        let (until, generation) = (self.now + HELD, server.generation);
        self.standstill = Some(Standstill { after, until, generation, step: Step::Held });
        Ok(after.0)
    }

    /// Goes on to `index`, and no further.
    pub(super) fn stand_at(&mut self, index: LogIndex, reply: oneshot::Sender<Standing>) {
        match &mut self.standstill {
            Some(held) if held.after <= index && matches!(held.step, Step::Held) => {
                held.after = index;
                held.until = self.now + STANDS;
                held.step = Step::Coming(reply);
            }
            _ => {
                // The requester may be gone.
                let _ = reply.send(Err("it was not held".into()));
            }
        }
    }

    /// The readable parts of a standing server.
    fn stood(&mut self) -> Standing {
        let server = self.slot.link_mut().ok_or("it has no server")?;
        server.settle();
        server.stood()
    }

    /// Stands for so much longer, if it has stood up to now; no shorter than before if it is `at_least` so long.
    pub(super) fn stand_on(&mut self, longer: Duration, at_least: bool) -> Standing {
        if !self.stands() {
            return Err("its server has not stood up to now".into());
        }
        if let Some(held) = &mut self.standstill {
            let until = self.now + longer;
            held.until = if at_least { held.until.max(until) } else { until };
        }
        self.stood()
    }

    /// Whether the server has stood up to now.
    pub(super) fn stands(&self) -> bool {
        self.standstill.as_ref().is_some_and(|held| {
            matches!(held.step, Step::Stands) && held.generation == self.generation()
        })
    }

    /// Ends a standstill; true when the server has stood up to now.
    pub(super) fn go_on(&mut self) -> bool {
        let stood = self.stands();
        self.standstill = None;
        stood
    }

    /// Whether the server must not have the entry at `index` yet.
    pub(super) fn is_held_before(&self, index: LogIndex) -> bool {
        self.standstill.as_ref().is_some_and(|held| index > held.after)
            || self.images.holds_before(index)
            || self.is_another_editions(index)
    }

    /// When a standstill ends by itself.
    pub(super) fn standstill_wake(&self) -> Option<Duration> {
        self.standstill.as_ref().map(|held| held.until)
    }

    /// Whether a requester must be told that the server stands.
    pub(super) fn has_come_to_stand(&self) -> bool {
        self.standstill.as_ref().is_some_and(|held| {
            matches!(held.step, Step::Coming(_))
                && self.server().is_some_and(|server| {
                    server.feed.given() == held.after
                        && (server.waits().is_some() || server.is_asking())
                })
        })
    }

    /// The generation of the server; 0 without one.
    pub(super) fn generation(&self) -> u64 {
        self.server().map_or(0, |server| server.generation)
    }

    /// Answers when the server stands, and ends a standstill that has lasted too long.
    pub(super) fn tend_standstill(&mut self) {
        let stands = self.has_come_to_stand();
        let generation = self.generation();
        let Some(held) = &mut self.standstill else { return };
        let ended = held.generation != generation || self.now >= held.until;
        if !ended && !stands {
            return;
        }
        if let Step::Coming(asked) = std::mem::replace(&mut held.step, Step::Stands) {
            let standing = match ended {
                true => Err("it did not get there in time".to_owned()),
                false => self.stood(),
            };
            // The requester may be gone.
            let _ = asked.send(standing);
        }
        if ended {
            self.standstill = None;
        }
    }
}
