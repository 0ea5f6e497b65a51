//! Editions of the server: program, arguments, environment and what it sees of its host. A cluster begins with edition 1, as configured; `skein upgrade` makes others.
//!
//! ```text
//! ... | asked | ... | E | ... | begun | ... | kept
//!       the servers     their       the new     it stays
//!       are asked to    last        edition's
//!       end             entry       first entry
//! ```
//!
//! All servers end after the same entry E, as that is a function of the log. Entries between E and `begun` are for no server. The new edition's servers begin with `begun`,
//! on the files that the former ones left at E. If they do not come up, one more `begun` on the same E lets the former edition begin again, under a new number, on
//! the same files.
//!
//! Pure: what is in the log about editions, and nothing else. [`crate::replica`] acts on it.

use crate::verdicts::exits::End;
use serde::{Deserialize, Serialize};
use skein_model::entry::Upgrade;
use skein_model::{LogIndex, SockAddr};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What servers are started as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edition {
    /// Its number, from 1.
    pub number: u64,
    /// The entry with which its servers begin; 0 for the first.
    pub since: u64,
    /// What it is, in a form that only nodes know; empty: as configured.
    pub about: String,
}

impl Default for Edition {
    fn default() -> Self {
        Self { number: 1, since: 0, about: String::new() }
    }
}

impl Edition {
    /// Whether it is the one that a cluster begins with.
    #[must_use]
    pub fn is_first(&self) -> bool {
        *self == Self::default()
    }
}

/// What a record says of the edition to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// As [`Edition::about`].
    pub about: String,
    /// How long the servers may take to end, and the new ones to come up.
    pub wait_ms: u64,
    /// The ports at which the former servers listened: the new ones are up when they listen there, too.
    pub ports: BTreeSet<u16>,
    /// Why a former edition begins again; empty in other cases.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub undoes: String,
}

impl Plan {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and texts have a JSON form")
    }

    /// From bytes; `None` when they are not what [`encode`](Self::encode) made.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// How long the servers may take.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }

    /// Whether a server with these listening addresses is up.
    #[must_use]
    pub fn is_met(&self, listening: &BTreeSet<SockAddr>) -> bool {
        self.ports.iter().all(|port| listening.iter().any(|at| at.port == *port))
    }
}

/// The servers are asked to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The entry.
    pub at: LogIndex,
    /// The edition that is to follow.
    pub number: u64,
    /// The same in full.
    pub plan: Plan,
    /// The signal by which they are asked; 0 while it is not known.
    pub signal: u8,
    /// The entry by which that was given up.
    pub given_up: Option<LogIndex>,
}

/// An edition begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The entry.
    pub at: LogIndex,
    /// The edition.
    pub edition: Arc<Edition>,
    /// The end of the servers before it, on whose files it begins.
    pub ended: End,
    /// What was planned.
    pub plan: Plan,
    /// It stays.
    pub kept: bool,
}

/// An upgrade that is not at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay<'a> {
    /// The servers are to end.
    Ending(&'a Asked),
    /// The new ones are to come up.
    Proving(&'a Begun),
}

/// The result of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The servers are asked to end.
    Ending,
    /// The new ones have begun.
    Starting,
    /// They have come up.
    Kept,
    /// They have not, for this reason: the former edition has begun again.
    Undone(String),
    /// The servers did not end in time, and go on.
    GivenUp,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Editions {
    /// That of the server after the entry `known`.
    first: Arc<Edition>,
    known: LogIndex,
    asked: Vec<Asked>,
    begun: Vec<Begun>,
    /// Entries that say once more that an edition begins: they are for no server.
    void: BTreeSet<LogIndex>,
}

impl Editions {
    /// Those of a log that is known from `known` on, where servers are of this edition.
    #[must_use]
    pub fn after(known: LogIndex, first: Edition) -> Self {
        Self { first: Arc::new(first), known, ..Self::default() }
    }

    /// A committed record. Each is noted once; false: it cannot be read.
    #[must_use]
    pub fn note(&mut self, at: LogIndex, number: u64, step: Upgrade, plan: &[u8]) -> bool {
        if at <= self.known {
            return true;
        }
        match step {
            Upgrade::Asked => {
                let Some(plan) = Plan::decode(plan) else { return false };
                self.asked.push(Asked { at, number, plan, signal: 0, given_up: None });
            }
            Upgrade::Begun { after, status } => {
                let Some(plan) = Plan::decode(plan) else { return false };
                // Two leaders proposed it, or one did not know yet that it stays: clients may have been answered since.
                let stays = || self.begun.last().is_none_or(|begun| begun.kept);
                if self.current().number >= number || !plan.undoes.is_empty() && stays() {
                    self.void.insert(at);
                    self.known = at;
                    return true;
                }
                let edition = Edition { number, since: at.0, about: plan.about.clone() };
                // One that has run before needs no proof.
                let kept = !plan.undoes.is_empty();
                let (edition, ended) = (Arc::new(edition), (after, status));
                self.begun.push(Begun { at, edition, ended, plan, kept });
            }
            Upgrade::Kept => {
                let last = self.begun.last_mut().filter(|begun| begun.edition.number == number);
                last.into_iter().for_each(|begun| begun.kept = true);
            }
            Upgrade::GivenUp => {
                let last = self.asked.last_mut().filter(|asked| asked.number == number);
                last.into_iter().for_each(|asked| asked.given_up = Some(at));
            }
        }
        self.known = at;
        true
    }

    /// The servers are asked to end by this signal, if they are by this entry.
    pub fn note_signal(&mut self, at: LogIndex, signal: u8) {
        self.asked
            .last_mut()
            .filter(|asked| asked.at == at)
            .into_iter()
            .for_each(|asked| asked.signal = signal);
    }

    /// The log was replaced by what follows the entry `known`: nothing is known of editions before, but that of servers there, if a replica has that in an image. On `files`
    /// that servers left, what asked them to end is not at its end.
    pub fn continue_after(&mut self, known: LogIndex, first: Option<Edition>, files: bool) {
        if known > self.known {
            let first = first.unwrap_or_else(|| (**self.current()).clone());
            let mut asked = std::mem::take(&mut self.asked);
            asked.retain(|asked| files && asked.at.0 > first.since);
            *self = Self { asked, ..Self::after(known, first) };
        }
    }

    /// The newest.
    #[must_use]
    pub fn current(&self) -> &Arc<Edition> {
        self.begun.last().map_or(&self.first, |begun| &begun.edition)
    }

    /// That of servers which executed this entry.
    #[must_use]
    pub fn at(&self, index: LogIndex) -> &Arc<Edition> {
        let begun = self.begun.iter().rfind(|begun| begun.at <= index);
        begun.map_or(&self.first, |begun| &begun.edition)
    }

    /// Whether the entry at `index` says once more what was said before.
    #[must_use]
    pub fn is_void(&self, index: LogIndex) -> bool {
        self.void.contains(&index)
    }

    /// The upgrade that is not at its end.
    #[must_use]
    pub fn under_way(&self) -> Option<UnderWay<'_>> {
        if let Some(begun) = self.begun.last().filter(|begun| !begun.kept) {
            return Some(UnderWay::Proving(begun));
        }
        let last = self.begun.last().map_or(LogIndex(0), |begun| begun.at);
        let open = |asked: &&Asked| asked.at > last && asked.given_up.is_none();
        self.asked.last().filter(open).map(UnderWay::Ending)
    }

    /// The upgrade for which a server of the edition that began at `since` has ended after `end`, if it was asked to.
    #[must_use]
    pub fn asked_before(&self, since: u64, end: LogIndex) -> Option<&Asked> {
        let asked = self.asked.iter().rfind(|asked| asked.at <= end && asked.at.0 > since)?;
        // One that was given up when it had already ended goes on all the same.
        asked.given_up.is_none_or(|at| end < at).then_some(asked)
    }

    /// What begins on the files that servers left at `end`.
    #[must_use]
    pub fn begun_on(&self, end: LogIndex) -> Option<&Begun> {
        self.begun.iter().rfind(|begun| begun.ended.0 == end)
    }

    /// What began with this entry.
    #[must_use]
    pub fn begun_at(&self, since: u64) -> Option<&Begun> {
        self.begun.iter().find(|begun| begun.at.0 == since)
    }

    /// What ends servers of the edition that began at `since`.
    #[must_use]
    pub fn begun_behind(&self, since: u64) -> Option<&Begun> {
        self.begun.iter().find(|begun| begun.at.0 > since)
    }

    /// How far the upgrade to this edition is; `None`: the log does not have it any more.
    #[must_use]
    pub fn outcome(&self, number: u64) -> Option<Outcome> {
        let begun = self.begun.iter().position(|begun| begun.edition.number == number);
        if let Some(at) = begun {
            let (begun, later) = (&self.begun[at], self.begun.get(at + 1));
            let undone = later.filter(|later| later.ended.0 == begun.ended.0);
            return Some(match (undone, begun.kept) {
                (Some(later), _) => Outcome::Undone(later.plan.undoes.clone()),
                (None, true) => Outcome::Kept,
                (None, false) => Outcome::Starting,
            });
        }
        let asked = self.asked.iter().rfind(|asked| asked.number == number)?;
        // Of one behind which another began, what became of it went with the log: it did not begin.
        let over = asked.given_up.is_some() || self.begun_behind(asked.at.0).is_some();
        Some(if over { Outcome::GivenUp } else { Outcome::Ending })
    }

    /// The results of all upgrades that the log still has, with the editions' numbers. One that begins a former edition again is none.
    #[must_use]
    pub fn outcomes(&self) -> Vec<(u64, Outcome)> {
        let numbers: BTreeSet<u64> = self.asked.iter().map(|asked| asked.number).collect();
        numbers.into_iter().filter_map(|number| Some((number, self.outcome(number)?))).collect()
    }

    /// The number of the next one: one that was given up has used its own.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        let asked = self.asked.last().map_or(0, |asked| asked.number);
        self.current().number.max(asked) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: fn(&str) -> Plan = |about| Plan {
        about: about.into(),
        wait_ms: 7,
        ports: [6379].into(),
        undoes: String::new(),
    };

    fn note(editions: &mut Editions, at: u64, number: u64, step: Upgrade, plan: &Plan) {
        assert!(editions.note(LogIndex(at), number, step, &plan.encode()));
    }

    #[test]
    fn one_follows_the_other_on_the_files_of_the_end() {
        let mut editions = Editions::default();
        assert!(editions.current().is_first() && editions.under_way().is_none());
        note(&mut editions, 5, 2, Upgrade::Asked, &PLAN("two"));
        assert!(matches!(editions.under_way(), Some(UnderWay::Ending(asked)) if asked.number == 2));
        assert_eq!(editions.outcome(2), Some(Outcome::Ending));
        assert!(editions.asked_before(0, LogIndex(4)).is_none(), "it ended by itself");
        assert!(editions.asked_before(0, LogIndex(7)).is_some());
        let begun = Upgrade::Begun { after: LogIndex(7), status: 0 };
        note(&mut editions, 9, 2, begun, &PLAN("two"));
        // Noted once, whoever reads the log again, and whoever proposed it, too.
        note(&mut editions, 9, 2, begun, &PLAN("two"));
        note(&mut editions, 10, 2, begun, &PLAN("two"));
        assert!(editions.is_void(LogIndex(10)) && !editions.is_void(LogIndex(9)));
        assert!(matches!(editions.under_way(), Some(UnderWay::Proving(begun)) if begun.at.0 == 9));
        assert_eq!(editions.begun_behind(0).map(|begun| begun.at.0), Some(9));
        assert!(
            editions.begun_behind(9).is_none() && editions.asked_before(9, LogIndex(12)).is_none()
        );
        note(&mut editions, 11, 2, Upgrade::Kept, &Plan::default());
        assert!(editions.under_way().is_none());
        assert_eq!(editions.outcome(2), Some(Outcome::Kept));
        assert_eq!((editions.current().number, editions.at(LogIndex(8)).number), (2, 1));
    }

    #[test]
    fn one_that_does_not_come_up_is_followed_by_the_former() {
        let mut editions = Editions::default();
        note(&mut editions, 5, 2, Upgrade::Asked, &PLAN("two"));
        let begun = Upgrade::Begun { after: LogIndex(7), status: 0 };
        note(&mut editions, 9, 2, begun, &PLAN("two"));
        let undoes = Plan { undoes: "it ended".into(), ..PLAN("") };
        note(&mut editions, 14, 3, begun, &undoes);
        assert!(editions.under_way().is_none(), "the former one needs no proof");
        assert_eq!(editions.outcome(2), Some(Outcome::Undone("it ended".into())));
        assert_eq!(editions.begun_on(LogIndex(7)).map(|begun| begun.edition.number), Some(3));
        assert_eq!((editions.current().about.as_str(), editions.next_number()), ("", 4));
    }

    #[test]
    fn one_that_stays_is_not_undone_by_a_leader_that_does_not_know_yet() {
        let mut editions = Editions::default();
        note(&mut editions, 5, 2, Upgrade::Asked, &PLAN("two"));
        editions.note_signal(LogIndex(5), 15);
        editions.note_signal(LogIndex(6), 9);
        assert_eq!(editions.asked_before(0, LogIndex(7)).map(|asked| asked.signal), Some(15));
        let begun = Upgrade::Begun { after: LogIndex(7), status: 0 };
        note(&mut editions, 9, 2, begun, &PLAN("two"));
        note(&mut editions, 11, 2, Upgrade::Kept, &Plan::default());
        note(&mut editions, 12, 3, begun, &Plan { undoes: "it was late".into(), ..PLAN("") });
        assert!(editions.is_void(LogIndex(12)));
        assert_eq!((editions.current().number, editions.outcome(2)), (2, Some(Outcome::Kept)));
    }

    #[test]
    fn one_whose_servers_do_not_end_is_given_up_unless_they_had_ended() {
        let mut editions = Editions::default();
        note(&mut editions, 5, 2, Upgrade::Asked, &PLAN("two"));
        note(&mut editions, 20, 2, Upgrade::GivenUp, &Plan::default());
        assert!(editions.under_way().is_none());
        assert_eq!((editions.outcome(2), editions.next_number()), (Some(Outcome::GivenUp), 3));
        assert!(editions.asked_before(0, LogIndex(19)).is_some());
        assert!(editions.asked_before(0, LogIndex(20)).is_none(), "a later end is its own");
    }

    #[test]
    fn a_log_that_begins_later_knows_what_its_image_says() {
        let third = Edition { number: 3, since: 40, about: "three".into() };
        let mut editions = Editions::after(LogIndex(50), third);
        note(&mut editions, 40, 3, Upgrade::Asked, &PLAN("three"));
        assert_eq!((editions.current().number, editions.next_number()), (3, 4));
        assert!(!editions.note(LogIndex(51), 4, Upgrade::Asked, b"no plan"));
        // Its log is replaced by a later one: what was under way there is over.
        note(&mut editions, 52, 4, Upgrade::Asked, &PLAN("four"));
        let fourth = Edition { number: 4, since: 55, about: "four".into() };
        editions.continue_after(LogIndex(51), Some(Edition::default()), false);
        assert!(editions.under_way().is_some(), "it is known up to a later entry");
        let third = (*editions.first).clone();
        editions.continue_after(LogIndex(56), Some(third), true);
        assert!(editions.under_way().is_some(), "the servers ended there for it");
        editions.continue_after(LogIndex(60), Some(fourth), false);
        assert!(editions.under_way().is_none() && editions.current().since == 55);
        editions.continue_after(LogIndex(70), None, false);
        assert_eq!(editions.next_number(), 5);
        assert!(Plan::decode(&PLAN("x").encode()).is_some_and(|plan| plan == PLAN("x")));
        let listens = |port| [SockAddr::v4([0; 4], port)].into();
        assert!(PLAN("x").is_met(&listens(6379)) && !PLAN("x").is_met(&listens(80)));
    }
}
