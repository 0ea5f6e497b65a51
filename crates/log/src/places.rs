//! Where members are reached, what kind each is, and the level that all know: the part of the membership that the consensus library does not know.
//!
//! Each membership change carries all of it in its context, and a log's [base](crate::Base) has it, so it is as durable as the members are. The addresses are
//! texts that nothing in here reads. Founders have theirs from their configuration until the first change. A member keeps its kind for life.
//!
//! Three forms: members that are all active are written as programs before kinds wrote them, which can go on to read that. Others have a kind each. Once the members have
//! agreed on a [level](crate::Level), which is an own record of a change that changes nobody, each later change says it, too.

use crate::{cursor::Cursor, level::Level};
use serde::{Deserialize, Serialize};
use skein_model::ReplicaId;
use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

/// The most replicas of a cluster. With one more on its way in, and one on its way out, a change has room.
pub const MAX_REPLICAS: usize = 9;
/// The longest address: a unix socket's path has 108 bytes.
pub const MAX_ADDRESS_BYTES: usize = 128;
/// The most places in one record.
const MAX_PLACES: usize = MAX_REPLICAS + 2;
/// The version of a change's context whose members are all active,
const CONTEXT_VERSION: u8 = 1;
/// of one that says each member's kind,
const CONTEXT_WITH_KINDS: u8 = 2;
/// and of one that says the agreed level, and whether it says kinds. Those of later levels begin with the level, too.
const CONTEXT_WITH_LEVEL: u8 = 3;

/// What a member does besides voting and keeping the log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It runs a server, always.
    #[default]
    Active,
    /// It keeps images of the server, and runs one only while it leads.
    Passive,
    /// Nothing: it hands leadership on.
    Witness,
}

impl Kind {
    /// Whether it can run a server, and so lead for longer than a moment.
    #[must_use]
    pub const fn can_serve(self) -> bool {
        !matches!(self, Self::Witness)
    }

    /// Its name in options, configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
            Self::Witness => "witness",
        }
    }

    const fn to_byte(self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Passive => 1,
            Self::Witness => 2,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Active),
            1 => Some(Self::Passive),
            2 => Some(Self::Witness),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no kind of replica: active, passive or witness")]
pub struct NoKind(String);

impl FromStr for Kind {
    type Err = NoKind;

    fn from_str(word: &str) -> Result<Self, NoKind> {
        let all = [Self::Active, Self::Passive, Self::Witness];
        all.into_iter().find(|kind| kind.name() == word).ok_or_else(|| NoKind(word.to_owned()))
    }
}

/// A member's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its node's address for other nodes.
    pub address: String,
    /// The replica whose vote it takes when it has caught up.
    pub replaces: Option<ReplicaId>,
    /// What it does.
    pub kind: Kind,
}

impl Place {
    /// Of an active replica that replaces nobody.
    #[must_use]
    pub fn at(address: impl Into<String>) -> Self {
        Self::of(address, Kind::Active)
    }

    /// Of a replica of this kind that replaces nobody.
    #[must_use]
    pub fn of(address: impl Into<String>, kind: Kind) -> Self {
        Self { address: address.into(), replaces: None, kind }
    }
}

/// The members' places, as far as they are known. Small, and cheap to copy: each write to the log has room for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    of: Arc<BTreeMap<ReplicaId, Place>>,
    /// What all members know.
    pub(crate) level: Level,
}

/// Whether a text can be an address: not empty, printable, and short enough to be kept.
pub(crate) fn is_address(text: &str) -> bool {
    (1..=MAX_ADDRESS_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

impl FromIterator<(ReplicaId, Place)> for Places {
    fn from_iter<T: IntoIterator<Item = (ReplicaId, Place)>>(places: T) -> Self {
        Self { of: Arc::new(places.into_iter().collect()), level: Level::FIRST }
    }
}

impl Places {
    pub(crate) fn get(&self, replica: ReplicaId) -> Option<&Place> {
        self.of.get(&replica)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ReplicaId, &Place)> + '_ {
        self.of.iter().map(|(replica, place)| (*replica, place))
    }

    /// To be changed.
    pub(crate) fn edit(&mut self) -> &mut BTreeMap<ReplicaId, Place> {
        Arc::make_mut(&mut self.of)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether one is not active.
    pub(crate) fn have_kinds(&self) -> bool {
        self.of.values().any(|place| place.kind != Kind::Active)
    }

    pub(crate) fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Whether they say a level.
    pub(crate) fn have_level(&self) -> bool {
        self.level > Level::FIRST
    }

    /// The kind of a member; one whose place is unknown is of a program that knew active ones only.
    pub(crate) fn kind_of(&self, replica: ReplicaId) -> Kind {
        self.get(replica).map_or(Kind::Active, |place| place.kind)
    }

    /// `count:u8 { replica:u16 replaces:u16 kind:u8? len:u8 address[len] }*`; kinds are there if one is not active.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let kinds = self.have_kinds();
        assert!(self.of.len() <= MAX_PLACES, "{} places", self.of.len());
        // Lossless here and below: checked above, ids have 16 bits, and addresses were checked when they came.
        out.push(self.of.len() as u8);
        for (replica, place) in self.iter() {
            let replaces = place.replaces.map_or(0, |replica| replica.0);
            assert!(place.address.len() <= MAX_ADDRESS_BYTES, "a long address");
            out.extend_from_slice(&(replica.0 as u16).to_le_bytes());
            out.extend_from_slice(&(replaces as u16).to_le_bytes());
            if kinds {
                out.push(place.kind.to_byte());
            }
            out.push(place.address.len() as u8);
            out.extend_from_slice(place.address.as_bytes());
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>, kinds: bool) -> Option<Self> {
        let count = usize::from(cursor.u8()?);
        if count > MAX_PLACES {
            return None;
        }
        let mut places = BTreeMap::new();
        for _ in 0..count {
            let replica = ReplicaId(cursor.u16()?.into());
            let replaces = Some(ReplicaId(cursor.u16()?.into())).filter(|id| id.0 != 0);
            let kind = if kinds { Kind::from_byte(cursor.u8()?)? } else { Kind::Active };
            let len = usize::from(cursor.u8()?);
            let address = std::str::from_utf8(cursor.take(len)?).ok()?.to_owned();
            if replica.0 == 0 || !is_address(&address) {
                return None;
            }
            places.insert(replica, Place { address, replaces, kind });
        }
        // A replica that is named twice is a mistake of the writer's.
        (places.len() == count).then(|| places.into_iter().collect())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let level = Level(cursor.u16()?);
        let kinds = cursor.u8()? != 0;
        let places = Self { level, ..Self::decode(&mut cursor, kinds)? };
        (cursor.left() == 0).then_some(places)
    }

    /// Within a process, as a snapshot's data: the level, whether there are kinds, and the places. Nothing for none.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.is_empty() || self.have_level() {
            out.extend_from_slice(&self.level.0.to_le_bytes());
            out.push(self.have_kinds().into());
            self.encode(&mut out);
        }
        out
    }
}

/// What a membership change says besides the change: `version:u8 (level:u16 kinds:u8)? founders:u8 { replica:u16 }* places`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// In the cluster's first change: those who founded it. A replica that joins reads the log from there, and its configuration has other peers.
    pub(crate) founders: Vec<ReplicaId>,
    /// Of all members when the change is done.
    pub(crate) places: Places,
}

impl Context {
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(self.founders.len() <= usize::from(u8::MAX), "too many founders");
        let kinds = self.places.have_kinds();
        let mut out = Vec::new();
        if self.places.have_level() {
            out.push(CONTEXT_WITH_LEVEL);
            out.extend_from_slice(&self.places.level.0.to_le_bytes());
            out.push(kinds.into());
        } else {
            out.push(if kinds { CONTEXT_WITH_KINDS } else { CONTEXT_VERSION });
        }
        out.push(self.founders.len() as u8);
        for founder in &self.founders {
            out.extend_from_slice(&(founder.0 as u16).to_le_bytes());
        }
        self.places.encode(&mut out);
        out
    }

    /// Whether it leaves places as they are.
    pub(crate) fn says_level_only(&self) -> bool {
        self.places.have_level() && self.places.is_empty()
    }

    /// The level that is agreed with a change, also where a later level has another form.
    pub(crate) fn level(bytes: &[u8]) -> Level {
        match bytes.split_first_chunk::<3>() {
            Some(([version, low, high], _)) if *version >= CONTEXT_WITH_LEVEL => {
                Level(u16::from_le_bytes([*low, *high]))
            }
            _ => Level::FIRST,
        }
    }

    /// `None` for a change of a program that did not say it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let (level, kinds) = match cursor.u8()? {
            CONTEXT_VERSION => (Level::FIRST, false),
            CONTEXT_WITH_KINDS => (Level::FIRST, true),
            CONTEXT_WITH_LEVEL => (Level(cursor.u16()?), cursor.u8()? != 0),
            _ => return None,
        };
        let founders = (0..cursor.u8()?)
            .map(|_| cursor.u16().map(|id| ReplicaId(id.into())).filter(|id| id.0 != 0))
            .collect::<Option<_>>()?;
        let places = Places { level, ..Places::decode(&mut cursor, kinds)? };
        (cursor.left() == 0).then_some(Self { founders, places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_context_comes_back_and_its_bytes_stay_what_they_are() {
        let place = Place { replaces: Some(ReplicaId(2)), ..Place::at("h:1") };
        let places =
            [(ReplicaId(1), Place::at("/s")), (ReplicaId(0x102), place)].into_iter().collect();
        let context = Context { founders: vec![ReplicaId(1), ReplicaId(2)], places };
        let bytes = context.encode();
        assert_eq!(
            bytes, b"\x01\x02\x01\0\x02\0\x02\x01\0\0\0\x02/s\x02\x01\x02\0\x03h:1",
            "other replicas read these"
        );
        assert_eq!(Context::decode(&bytes), Some(context));
        for end in 0..bytes.len() {
            assert_eq!(Context::decode(&bytes[..end]), None, "{end}");
        }
        for wrong in [
            &b"\x04\0\0"[..],
            b"\x02\0\x01\x01\0\0\0\x03\x01a",
            b"\x01\0\0\0",
            b"\x01\0\xff",
            b"\x01\0\x01\0\0\0\0\x01a",
        ] {
            assert_eq!(Context::decode(wrong), None, "{wrong:?}");
        }
        let twice = b"\x01\0\x02\x01\0\0\0\x01a\x01\0\0\0\x01b";
        assert_eq!(Context::decode(twice), None, "one replica at two places");
        assert_eq!(Context::decode(b"\x01\0\0"), Some(Context::default()));
    }

    #[test]
    fn a_member_that_is_not_active_has_its_kind_written() {
        let place = Place { replaces: Some(ReplicaId(2)), ..Place::of("h:1", Kind::Witness) };
        let places: Places = [
            (ReplicaId(1), Place::at("a")),
            (ReplicaId(2), Place::of("b", Kind::Passive)),
            (ReplicaId(3), place),
        ]
        .into_iter()
        .collect();
        let context = Context { founders: Vec::new(), places };
        let bytes = context.encode();
        assert_eq!(
            bytes, b"\x02\0\x03\x01\0\0\0\0\x01a\x02\0\0\0\x01\x01b\x03\0\x02\0\x02\x03h:1",
            "other replicas read these"
        );
        assert_eq!(Context::decode(&bytes), Some(context.clone()));
        assert_eq!(Places::from_bytes(&context.places.to_bytes()), Some(context.places));
        for kind in [Kind::Active, Kind::Passive, Kind::Witness] {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("learner".parse::<Kind>().is_err());
    }

    #[test]
    fn an_agreed_level_is_said_in_a_form_of_its_own() {
        let mut places: Places = [(ReplicaId(1), Place::at("a"))].into_iter().collect();
        places.level = Level(0x102);
        let mut context = Context { founders: vec![ReplicaId(1)], places };
        let bytes = context.encode();
        assert_eq!(
            bytes, b"\x03\x02\x01\0\x01\x01\0\x01\x01\0\0\0\x01a",
            "other replicas read these"
        );
        assert_eq!(Context::level(&bytes), Level(0x102));
        assert_eq!(Context::decode(&bytes), Some(context.clone()));
        context.places.edit().insert(ReplicaId(2), Place::of("b", Kind::Witness));
        assert_eq!(Context::decode(&context.encode()), Some(context.clone()));
        assert_eq!(Places::from_bytes(&context.places.to_bytes()), Some(context.places));
        let nobody = Places { level: Level(7), ..Places::default() };
        assert_eq!(Places::from_bytes(&nobody.to_bytes()), Some(nobody));
        for (bytes, level) in [(&b"\x04\x07\0"[..], 7), (b"\x02\x07\0", 1), (b"\x03", 1), (b"", 1)]
        {
            assert_eq!(Context::level(bytes), Level(level), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_context_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(context) = Context::decode(&bytes) {
                // Kinds that are all active have a shorter form.
                prop_assert_eq!(Context::decode(&context.encode()), Some(context));
            }
        }
    }
}
