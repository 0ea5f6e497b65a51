//! Where members are reached: the part of the membership that the consensus library does not know.
//!
//! Each membership change carries all of it in its context, and a log's [base](crate::Base) has it, so it is as durable as the members are. The addresses are
//! texts that nothing in here reads. Founders have theirs from their configuration until the first change.

use crate::cursor::Cursor;
use skein_model::ReplicaId;
use std::{collections::BTreeMap, sync::Arc};

/// The most replicas of a cluster. With one more on its way in, and one on its way out, a change has room.
pub const MAX_REPLICAS: usize = 9;
/// The longest address: a unix socket's path has 108 bytes.
pub const MAX_ADDRESS_BYTES: usize = 128;
/// The most places in one record.
const MAX_PLACES: usize = MAX_REPLICAS + 2;
/// The version of a change's context.
const CONTEXT_VERSION: u8 = 1;

/// A member's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its node's address for other nodes.
    pub address: String,
    /// The replica whose vote it takes when it has caught up.
    pub replaces: Option<ReplicaId>,
}

impl Place {
    /// Of a replica that replaces nobody.
    #[must_use]
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), replaces: None }
    }
}

/// The members' places, as far as they are known. Small, and cheap to copy: each write to the log has room for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(Arc<BTreeMap<ReplicaId, Place>>);

/// Whether a text can be an address: not empty, printable, and short enough to be kept.
pub(crate) fn is_address(text: &str) -> bool {
    (1..=MAX_ADDRESS_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

impl FromIterator<(ReplicaId, Place)> for Places {
    fn from_iter<T: IntoIterator<Item = (ReplicaId, Place)>>(places: T) -> Self {
        Self(Arc::new(places.into_iter().collect()))
    }
}

impl Places {
    pub(crate) fn get(&self, replica: ReplicaId) -> Option<&Place> {
        self.0.get(&replica)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ReplicaId, &Place)> + '_ {
        self.0.iter().map(|(replica, place)| (*replica, place))
    }

    /// To be changed.
    pub(crate) fn edit(&mut self) -> &mut BTreeMap<ReplicaId, Place> {
        Arc::make_mut(&mut self.0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `count:u8 { replica:u16 replaces:u16 len:u8 address[len] }*`
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.0.len() <= MAX_PLACES, "{} places", self.0.len());
        // Lossless here and below: checked above, ids have 16 bits, and addresses were checked when they came.
        out.push(self.0.len() as u8);
        for (replica, place) in self.iter() {
            let replaces = place.replaces.map_or(0, |replica| replica.0);
            assert!(place.address.len() <= MAX_ADDRESS_BYTES, "a long address");
            out.extend_from_slice(&(replica.0 as u16).to_le_bytes());
            out.extend_from_slice(&(replaces as u16).to_le_bytes());
            out.push(place.address.len() as u8);
            out.extend_from_slice(place.address.as_bytes());
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Option<Self> {
        let count = usize::from(cursor.u8()?);
        if count > MAX_PLACES {
            return None;
        }
        let mut places = BTreeMap::new();
        for _ in 0..count {
            let replica = ReplicaId(cursor.u16()?.into());
            let replaces = Some(ReplicaId(cursor.u16()?.into())).filter(|id| id.0 != 0);
            let len = usize::from(cursor.u8()?);
            let address = std::str::from_utf8(cursor.take(len)?).ok()?.to_owned();
            if replica.0 == 0 || !is_address(&address) {
                return None;
            }
            places.insert(replica, Place { address, replaces });
        }
        // A replica that is named twice is a mistake of the writer's.
        (places.len() == count).then(|| Self(Arc::new(places)))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let places = Self::decode(&mut cursor)?;
        (cursor.left() == 0).then_some(places)
    }

    /// Nothing for none.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.is_empty() {
            self.encode(&mut out);
        }
        out
    }
}

/// What a membership change says besides the change: `version:u8 founders:u8 { replica:u16 }* places`.
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
        let mut out = vec![CONTEXT_VERSION, self.founders.len() as u8];
        for founder in &self.founders {
            out.extend_from_slice(&(founder.0 as u16).to_le_bytes());
        }
        self.places.encode(&mut out);
        out
    }

    /// `None` for a change of a program that did not say it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        if cursor.u8()? != CONTEXT_VERSION {
            return None;
        }
        let founders = (0..cursor.u8()?)
            .map(|_| cursor.u16().map(|id| ReplicaId(id.into())).filter(|id| id.0 != 0))
            .collect::<Option<_>>()?;
        let places = Places::decode(&mut cursor)?;
        (cursor.left() == 0).then_some(Self { founders, places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_context_comes_back_and_its_bytes_stay_what_they_are() {
        let place = Place { address: "h:1".into(), replaces: Some(ReplicaId(2)) };
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
        for wrong in [&b"\x02\0\0"[..], b"\x01\0\0\0", b"\x01\0\xff", b"\x01\0\x01\0\0\0\0\x01a"] {
            assert_eq!(Context::decode(wrong), None, "{wrong:?}");
        }
        let twice = b"\x01\0\x02\x01\0\0\0\x01a\x01\0\0\0\x01b";
        assert_eq!(Context::decode(twice), None, "one replica at two places");
        assert_eq!(Context::decode(b"\x01\0\0"), Some(Context::default()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_context_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(context) = Context::decode(&bytes) {
                prop_assert_eq!(Context::decode(&context.encode()), Some(context));
            }
        }
    }
}
