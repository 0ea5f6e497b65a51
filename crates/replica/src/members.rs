//! Requests about the members, as an operator's command and replicas exchange them: in JSON.
//!
//! A command repeats its request until the answer says that it is done, on any replica: one that does not lead asks the leader.

use serde::{Deserialize, Serialize};
use skein_log::{Change, ChangeError, Kind, Progress};
use skein_model::ReplicaId;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Wanted {
    /// A replica more.
    Add {
        /// Its id.
        id: u64,
        /// Its node's address for the others.
        address: String,
        /// What it does.
        #[serde(default, skip_serializing_if = "is_active")]
        kind: Kind,
    },
    /// A replica less.
    Remove {
        /// Its id.
        id: u64,
    },
    /// A replica in place of another.
    Replace {
        /// The one to go.
        old: u64,
        /// The one to come.
        id: u64,
        /// Its node's address for the others.
        address: String,
        /// What it does; as the one before, unless it is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<Kind>,
    },
    /// A replica that is being taken in is to go again.
    Withdraw {
        /// Its id.
        id: u64,
    },
    /// Another leader.
    Transfer {
        /// Its id.
        to: u64,
    },
}

/// Replicas of programs before kinds were all active: they are spoken to in their words.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_active(kind: &Kind) -> bool {
    *kind == Kind::Active
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What is wanted.
    pub wanted: Wanted,
    /// It was not made before: what is done already is refused.
    pub first: bool,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Not accepted: there is no leader, or it does not answer. To be repeated as it was.
    Later,
    /// Accepted; to be repeated as one that was made before.
    Goes,
    /// The same, and it is in the log.
    Agrees,
    /// At its end.
    Done,
    /// Impossible.
    Refused,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// How far it is.
    pub step: Step,
    /// The same in words, or why it is refused.
    pub line: String,
    /// What a replica that is being taken in has by now. A leader of an earlier version does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<Has>,
}

/// What a replica has of what fills it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Has {
    /// The log up to this entry.
    pub entry: u64,
    /// Of an image that it fetches, so many KiB; 0 while it fetches none.
    #[serde(default)]
    pub image_kib: u64,
}

impl Answer {
    /// An answer.
    #[must_use]
    pub fn new(step: Step, line: impl Into<String>) -> Self {
        Self { step, line: line.into(), has: None }
    }
}

/// A member, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its id.
    pub id: u64,
    /// Its node's address for the others; empty if the log does not have it.
    pub address: String,
    /// What it does.
    #[serde(default)]
    pub kind: Kind,
    /// Whether it has a vote.
    pub votes: bool,
    /// Whether it is being taken in, for the first time or again.
    pub learns: bool,
    /// The replica whose vote it takes.
    pub replaces: Option<u64>,
}

impl Wanted {
    /// The change of the log's members that this is, if it is one.
    #[must_use]
    pub fn change(&self) -> Option<Change> {
        let id = |id: u64| ReplicaId(id);
        Some(match self {
            Self::Add { id: new, address, kind } => Change::Add(id(*new), address.clone(), *kind),
            Self::Remove { id: old } => Change::Remove(id(*old)),
            Self::Replace { old, id: new, address, kind } => {
                Change::Replace(id(*old), id(*new), address.clone(), *kind)
            }
            Self::Withdraw { id: new } => Change::Withdraw(id(*new)),
            Self::Transfer { .. } => return None,
        })
    }
}

/// The answer to a change that is this far. `image_kib`: what a replica says it has of an image that it fetches.
pub(crate) fn answer(
    change: &Change,
    result: Result<Progress, ChangeError>,
    image_kib: impl FnOnce(ReplicaId) -> Option<u64>,
) -> Answer {
    let id = match change {
        Change::Add(id, ..)
        | Change::Replace(_, id, ..)
        | Change::Remove(id)
        | Change::Withdraw(id) => id,
    };
    match result {
        Ok(Progress::Waits) => {
            Answer::new(Step::Later, "another change, or an election, must end first")
        }
        Ok(Progress::Unreached) => Answer::new(
            Step::Goes,
            format!(
                "the leader has not heard of replica {id} yet: 'skein join' there, then 'skein node'"
            ),
        ),
        Ok(Progress::Fills(entry, of)) => {
            let kib = image_kib(*id);
            let image = kib.map(|kib| format!(", and {} MiB of an image", kib >> 10));
            let image = image.unwrap_or_default();
            let line = format!(
                "replica {id} is filled: it has the log up to entry {entry} of {of}{image}"
            );
            let has = Has { entry: entry.0, image_kib: kib.unwrap_or_default() };
            Answer { has: Some(has), ..Answer::new(Step::Goes, line) }
        }
        Ok(Progress::Agreeing) => Answer::new(Step::Agrees, "the members agree on it"),
        Ok(Progress::Done) => Answer::new(Step::Done, "done"),
        Err(error @ (ChangeError::NotLeader(_) | ChangeError::Busy)) => {
            Answer::new(Step::Later, error.to_string())
        }
        Err(error) => Answer::new(Step::Refused, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::LogIndex;

    #[test]
    fn an_answer_says_what_a_replica_has_and_earlier_versions_read_the_rest() {
        let change = Change::Add(ReplicaId(4), "a:1".into(), Kind::Active);
        let fills = || Ok(Progress::Fills(LogIndex(5), LogIndex(9)));
        let line = "replica 4 is filled: it has the log up to entry 5 of 9";
        let without = answer(&change, fills(), |_| None);
        assert_eq!((without.step, without.line.as_str()), (Step::Goes, line));
        assert_eq!(without.has, Some(Has { entry: 5, image_kib: 0 }));
        let with = answer(&change, fills(), |id| (id == ReplicaId(4)).then_some(3 << 10));
        assert_eq!(with.line, format!("{line}, and 3 MiB of an image"));
        assert_eq!(with.has, Some(Has { entry: 5, image_kib: 3 << 10 }));
        let json = serde_json::to_string(&with).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&json).unwrap(), with);

        // As it was before `has`.
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Before {
            step: Step,
            line: String,
        }
        let before: Before = serde_json::from_str(&json).unwrap();
        assert_eq!(before, Before { step: Step::Goes, line: with.line });
        let json = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&json).unwrap().has, None);
    }
}
