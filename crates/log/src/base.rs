//! Where a log begins.
//!
//! A log need not reach back to the first entry: what lies before its base is in an image of the server. The base names the last entry that the
//! log does not hold, that entry's term, and the members as they were then, which the log could no longer tell.

use crate::{cursor::Cursor, level::Level, places::Places};
use raft::eraftpb::ConfState;
use skein_model::{LogIndex, Term};

/// More members of one kind than any cluster has.
const MAX_MEMBERS: usize = 256;
const AUTO_LEAVE: u8 = 1;
/// The members' places follow,
const PLACES: u8 = 2;
/// with their kinds.
const KINDS: u8 = 4;
/// The agreed level follows, before that.
const LEVEL: u8 = 8;

/// The entry that a log begins after; the default is the base of a log that holds all entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The last entry that is not in the log; 0 when the log is whole.
    pub index: LogIndex,
    /// That entry's term.
    pub term: Term,
    /// Who took part when it was applied; empty stands for the founders.
    pub members: Members,
}

impl Base {
    /// The first entry that the log can hold.
    #[must_use]
    pub fn first_index(&self) -> LogIndex {
        self.index.next()
    }

    /// Whether the log holds all entries since the cluster was founded.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.index == LogIndex(0)
    }

    /// These bytes say the same: for the record of an image, which must name the base of a log that continues it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// The base in bytes of [`to_bytes`](Self::to_bytes); `None` if they are no base.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let base = Self::decode(&mut cursor)?;
        (cursor.left() == 0).then_some(base)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.index.0.to_le_bytes());
        out.extend_from_slice(&self.term.0.to_le_bytes());
        let members = &self.members;
        let auto_leave = if members.auto_leave { AUTO_LEAVE } else { 0 };
        let places = if members.places.is_empty() { 0 } else { PLACES };
        let kinds = if members.places.have_kinds() { KINDS } else { 0 };
        let level = if members.places.have_level() { LEVEL } else { 0 };
        out.push(auto_leave | places | kinds | level);
        for ids in members.lists() {
            assert!(ids.len() <= MAX_MEMBERS, "{} members", ids.len());
            // Lossless: checked above.
            out.extend_from_slice(&(ids.len() as u16).to_le_bytes());
            ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
        }
        if members.places.have_level() {
            out.extend_from_slice(&members.places.level.0.to_le_bytes());
        }
        if !members.places.is_empty() {
            members.places.encode(out);
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Option<Self> {
        let (index, term) = (LogIndex(cursor.u64()?), Term(cursor.u64()?));
        let flags = cursor.u8()?;
        let mut lists = [const { Vec::new() }; 4];
        for ids in &mut lists {
            let count = usize::from(cursor.u16()?);
            if count > MAX_MEMBERS {
                return None;
            }
            *ids = (0..count).map(|_| cursor.u64()).collect::<Option<_>>()?;
        }
        let [voters, outgoing, learners, next_learners] = lists;
        let auto_leave = flags & AUTO_LEAVE != 0;
        let level = match flags & LEVEL {
            0 => Level::FIRST,
            _ => Some(Level(cursor.u16()?)).filter(|level| *level > Level::FIRST)?,
        };
        // Programs before version 5 of the log's format knew none.
        let places = match flags & PLACES {
            0 => Places::default(),
            _ => Places::decode(cursor, flags & KINDS != 0)?,
        };
        let places = places.with_level(level);
        let members = Members { voters, outgoing, learners, next_learners, auto_leave, places };
        (flags & !(AUTO_LEAVE | PLACES | KINDS | LEVEL) == 0 && flags & (PLACES | KINDS) != KINDS)
            .then_some(Self { index, term, members })
    }
}

/// How a log gets another base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewBase {
    /// Entries up to the base are forgotten; later ones stay. The base is in the log.
    Forget(Box<Base>),
    /// All entries are void, whatever they are: the log continues behind the base, which another replica has committed.
    Reset(Box<Base>),
}

impl NewBase {
    /// The base.
    #[must_use]
    pub fn base(&self) -> &Base {
        let (Self::Forget(base) | Self::Reset(base)) = self;
        base
    }
}

/// Members by their ids on the wire (replica and incarnation), as the consensus library configures them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those with a vote.
    pub(crate) voters: Vec<u64>,
    /// In the middle of a change: those whose majority counts as well.
    pub(crate) outgoing: Vec<u64>,
    /// Those without a vote.
    pub(crate) learners: Vec<u64>,
    /// Those who lose their vote when the change is over.
    pub(crate) next_learners: Vec<u64>,
    /// The change ends by itself.
    pub(crate) auto_leave: bool,
    /// Where they are reached, and the level that they have agreed on.
    pub(crate) places: Places,
}

impl Members {
    /// Whether these stand for the founders.
    #[must_use]
    pub fn is_founders(&self) -> bool {
        self.lists().iter().all(|ids| ids.is_empty())
    }

    /// Whether they have agreed on a level, and not on places.
    pub(crate) fn says_level_only(&self) -> bool {
        self.places.have_level() && self.places.is_empty()
    }

    pub(crate) fn lists(&self) -> [&Vec<u64>; 4] {
        [&self.voters, &self.outgoing, &self.learners, &self.next_learners]
    }

    /// Whether the consensus library can take these for a configuration: it checks by a panic.
    pub(crate) fn is_possible(&self) -> bool {
        let once =
            |ids: &[u64]| ids.iter().enumerate().all(|(n, id)| *id != 0 && !ids[..n].contains(id));
        let apart = |ids: &[u64], others: &[u64]| ids.iter().all(|id| !others.contains(id));
        let joint = !self.outgoing.is_empty();
        !self.voters.is_empty()
            && self.lists().iter().all(|ids| once(ids))
            && apart(&self.learners, &self.voters)
            && apart(&self.learners, &self.outgoing)
            && apart(&self.next_learners, &self.voters)
            && self.next_learners.iter().all(|id| self.outgoing.contains(id))
            && (joint || !self.auto_leave)
    }

    /// These and, without a vote, `member`.
    pub(crate) fn with(mut self, member: u64) -> Self {
        if self.lists().iter().all(|ids| !ids.contains(&member)) {
            self.learners.push(member);
        }
        self
    }

    pub(crate) fn of(state: &ConfState, places: Places) -> Self {
        Self {
            places,
            voters: state.voters.clone(),
            outgoing: state.voters_outgoing.clone(),
            learners: state.learners.clone(),
            next_learners: state.learners_next.clone(),
            auto_leave: state.auto_leave,
        }
    }

    pub(crate) fn to_state(&self) -> ConfState {
        let mut state = ConfState::default();
        state.voters.clone_from(&self.voters);
        state.voters_outgoing.clone_from(&self.outgoing);
        state.learners.clone_from(&self.learners);
        state.learners_next.clone_from(&self.next_learners);
        state.auto_leave = self.auto_leave;
        state
    }
}
