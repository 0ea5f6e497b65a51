//! Consensus messages as bytes.
//!
//! Written by hand so that a peer's bytes can become only valid messages: the twelve kinds of message that travel
//! between nodes, with the fields that they use, consecutive entries, and lengths checked before anything
//! is allocated. The consensus library's own protobuf never meets bytes from the network.
//!
//! ```text
//! message: version:u8 kind:u8 flags:u8 context_len:u8
//!          from:u64 to:u64 term:u64 log_term:u64 index:u64 commit:u64 commit_term:u64 reject_hint:u64
//!          context[context_len] entries:u32 { kind:u8 term:u64 index:u64 len:u32 payload[len] }*
//! ```
//!
//! Behind that a snapshot has its base, in the bytes of [`Base`]. A node from before a kind of message refuses it by its number.

use crate::{
    base::{Base, Members},
    cursor::Cursor,
    level::Level,
    places::{Context, Kind, Places},
};
use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType, Message, MessageType, Snapshot};
use skein_model::{LogIndex, Term};

/// The version of this encoding.
pub const VERSION: u8 = 1;
/// The longest context: the library only sends the kind of an election.
const MAX_CONTEXT_BYTES: usize = 32;
/// A message without context and entries.
const HEAD_BYTES: usize = 4 + 8 * 8 + 4;
/// An entry without its payload.
pub(crate) const ENTRY_HEAD_BYTES: usize = 1 + 8 + 8 + 4;
/// The bytes of a message around its entries, at most.
pub(crate) const OVERHEAD_BYTES: usize = HEAD_BYTES + MAX_CONTEXT_BYTES;

/// A leader's log begins behind what this member needs. It carries no snapshot, only the leader's base as `index` and `log_term`, and as `commit` the newest entry
/// whose image the leader could use; 0 from a node that knows of no images. `reject_hint` is the member's [kind](Kind) as the leader knows it, which its configuration may have otherwise:
/// 1 active, 2 passive, 3 witness; 0 where the log says nothing, and from a node of before.
const KIND_BELOW_BASE: u8 = 10;
/// The log of this member is to be replaced by a base: it holds the image.
const KIND_SNAPSHOT: u8 = 11;
/// This member holds an image at `index`, or none if that is 0. The consensus library has no such message; it travels as its report on a snapshot.
const KIND_HOLDS_IMAGE: u8 = 12;
const FLAG_REJECT: u8 = 1;
const ENTRY_NORMAL: u8 = 0;
const ENTRY_MEMBERSHIP: u8 = 1;

/// The reason why bytes are not a consensus message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end early, or continue behind the message.
    #[error("a consensus message has the wrong length")]
    Length,
    /// Another encoding.
    #[error("consensus message version {0} is not supported, this node reads {VERSION}")]
    Version(u8),
    /// A kind of message that does not travel between nodes.
    #[error("{0} is no kind of consensus message")]
    Kind(u8),
    /// A field has a value that no node sends.
    #[error("a consensus message has an impossible {0}")]
    Field(&'static str),
}

fn kind_to_wire(kind: MessageType) -> Option<u8> {
    Some(match kind {
        MessageType::MsgAppend => 1,
        MessageType::MsgAppendResponse => 2,
        MessageType::MsgRequestVote => 3,
        MessageType::MsgRequestVoteResponse => 4,
        MessageType::MsgRequestPreVote => 5,
        MessageType::MsgRequestPreVoteResponse => 6,
        MessageType::MsgHeartbeat => 7,
        MessageType::MsgHeartbeatResponse => 8,
        MessageType::MsgTimeoutNow => 9,
        MessageType::MsgSnapshot => KIND_BELOW_BASE,
        MessageType::MsgSnapStatus => KIND_HOLDS_IMAGE,
        _ => return None,
    })
}

/// Whether these bytes are a follower's answer to a heartbeat.
#[must_use]
pub fn is_heartbeat_answer(bytes: &[u8]) -> bool {
    bytes.get(1).copied() == kind_to_wire(MessageType::MsgHeartbeatResponse)
}

/// Whether these bytes are a follower's answer to entries.
#[must_use]
pub fn is_acknowledgement(bytes: &[u8]) -> bool {
    bytes.get(1).copied() == kind_to_wire(MessageType::MsgAppendResponse)
}

fn kind_from_wire(kind: u8) -> Option<MessageType> {
    Some(match kind {
        1 => MessageType::MsgAppend,
        2 => MessageType::MsgAppendResponse,
        3 => MessageType::MsgRequestVote,
        4 => MessageType::MsgRequestVoteResponse,
        5 => MessageType::MsgRequestPreVote,
        6 => MessageType::MsgRequestPreVoteResponse,
        7 => MessageType::MsgHeartbeat,
        8 => MessageType::MsgHeartbeatResponse,
        9 => MessageType::MsgTimeoutNow,
        KIND_BELOW_BASE | KIND_SNAPSHOT => MessageType::MsgSnapshot,
        KIND_HOLDS_IMAGE => MessageType::MsgSnapStatus,
        _ => return None,
    })
}

/// What a leader of `term`, which has applied entries up to `applied`, tells a member, of this kind if the log says so, who needs entries from before the leader's first one.
pub(crate) fn below_base(
    (from, to, term): (u64, u64, u64),
    base: (LogIndex, Term),
    applied: LogIndex,
    kind: Option<Kind>,
) -> Vec<u8> {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgSnapshot);
    (message.from, message.to, message.term) = (from, to, term);
    (message.index, message.log_term, message.commit) = (base.0.0, base.1.0, applied.0);
    message.reject_hint = match kind {
        None => 0,
        Some(Kind::Active) => 1,
        Some(Kind::Passive) => 2,
        Some(Kind::Witness) => 3,
    };
    encode(&message).expect("a kind that travels")
}

/// The kind that a leader's word of its base names.
pub(crate) fn told_kind(message: &Message) -> Option<Kind> {
    match message.reject_hint {
        1 => Some(Kind::Active),
        2 => Some(Kind::Passive),
        3 => Some(Kind::Witness),
        _ => None,
    }
}

/// What a member tells the leader of `term` about the image that it holds; 0 for none.
pub(crate) fn holds_image(from: u64, to: u64, term: u64, image: LogIndex) -> Vec<u8> {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgSnapStatus);
    (message.from, message.to, message.term, message.index) = (from, to, term, image.0);
    encode(&message).expect("a kind that travels")
}

/// `None` for messages that stay inside a node.
pub(crate) fn encode(message: &Message) -> Option<Vec<u8>> {
    let kind = match kind_to_wire(message.get_msg_type())? {
        KIND_BELOW_BASE if message.has_snapshot() => KIND_SNAPSHOT,
        kind => kind,
    };
    let payload: usize =
        message.entries.iter().map(|entry| ENTRY_HEAD_BYTES + entry.data.len()).sum();
    let mut out = Vec::with_capacity(HEAD_BYTES + message.context.len() + payload);
    assert!(message.context.len() <= MAX_CONTEXT_BYTES, "a context that no peer would read");
    let flags = if message.reject { FLAG_REJECT } else { 0 };
    // Lossless: checked above.
    out.extend_from_slice(&[VERSION, kind, flags, message.context.len() as u8]);
    for field in [
        message.from,
        message.to,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&message.context);
    // Lossless: a message is far shorter than 4 GiB.
    out.extend_from_slice(&(message.entries.len() as u32).to_le_bytes());
    for entry in message.entries.iter() {
        out.push(match entry.get_entry_type() {
            EntryType::EntryNormal => ENTRY_NORMAL,
            EntryType::EntryConfChangeV2 => ENTRY_MEMBERSHIP,
            EntryType::EntryConfChange => unreachable!("only version 2 changes are proposed"),
        });
        out.extend_from_slice(&entry.term.to_le_bytes());
        out.extend_from_slice(&entry.index.to_le_bytes());
        // Lossless: bounded by Config::max_entry_bytes.
        out.extend_from_slice(&(entry.data.len() as u32).to_le_bytes());
        out.extend_from_slice(&entry.data);
    }
    if kind == KIND_SNAPSHOT {
        let meta = message.get_snapshot().get_metadata();
        let (index, term) = (LogIndex(meta.index), Term(meta.term));
        let members = Members::of(meta.get_conf_state(), places_of(message.get_snapshot()));
        Base { index, term, members }.encode(&mut out);
    }
    Some(out)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Message, WireError> {
    let mut cursor = Cursor::new(bytes);
    let [version, kind, flags, context_len] = cursor.array().ok_or(WireError::Length)?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let is_snapshot = kind == KIND_SNAPSHOT;
    let kind = kind_from_wire(kind).ok_or(WireError::Kind(kind))?;
    if flags & !FLAG_REJECT != 0 {
        return Err(WireError::Field("flag"));
    }
    let mut message = Message::default();
    message.set_msg_type(kind);
    message.reject = flags & FLAG_REJECT != 0;
    for field in [
        &mut message.from,
        &mut message.to,
        &mut message.term,
        &mut message.log_term,
        &mut message.index,
        &mut message.commit,
        &mut message.commit_term,
        &mut message.reject_hint,
    ] {
        *field = cursor.u64().ok_or(WireError::Length)?;
    }
    if usize::from(context_len) > MAX_CONTEXT_BYTES {
        return Err(WireError::Field("context"));
    }
    let context = cursor.take(context_len.into()).ok_or(WireError::Length)?;
    message.context = Bytes::copy_from_slice(context);
    let entries = decode_entries(&mut cursor, &message)?;
    message.set_entries(entries.into());
    if is_snapshot {
        let base = Base::decode(&mut cursor).ok_or(WireError::Field("base"))?;
        let meta = message.mut_snapshot().mut_metadata();
        (meta.index, meta.term) = (base.index.0, base.term.0);
        meta.set_conf_state(base.members.to_state());
        message.mut_snapshot().data = base.members.places.to_bytes().into();
        let known = base.term.0 > 0 && base.term.0 <= message.term && base.index.0 <= LIMIT;
        if base.is_start() || !known || !base.members.is_possible() {
            return Err(WireError::Field("base"));
        }
    }
    if cursor.left() > 0 {
        return Err(WireError::Length);
    }
    check_fields(&message)?;
    Ok(message)
}

/// The members' places in a snapshot, which has them as its data.
pub(crate) fn places_of(snapshot: &Snapshot) -> Places {
    // Made by this program: of another replica's they were checked when they came.
    Places::from_bytes(&snapshot.data).unwrap_or_default()
}

/// Entries follow on `message.index` and their terms never go back.
fn decode_entries(cursor: &mut Cursor<'_>, message: &Message) -> Result<Vec<Entry>, WireError> {
    let count = cursor.u32().ok_or(WireError::Length)? as usize;
    if count > cursor.left() / ENTRY_HEAD_BYTES {
        return Err(WireError::Length);
    }
    let mut entries = Vec::with_capacity(count);
    let (mut index, mut term) = (message.index, message.log_term);
    for _ in 0..count {
        let mut entry = Entry::default();
        entry.set_entry_type(match cursor.u8().ok_or(WireError::Length)? {
            ENTRY_NORMAL => EntryType::EntryNormal,
            ENTRY_MEMBERSHIP => EntryType::EntryConfChangeV2,
            _ => return Err(WireError::Field("entry kind")),
        });
        entry.term = cursor.u64().ok_or(WireError::Length)?;
        entry.index = cursor.u64().ok_or(WireError::Length)?;
        let len = cursor.u32().ok_or(WireError::Length)? as usize;
        entry.data = Bytes::copy_from_slice(cursor.take(len).ok_or(WireError::Length)?);
        index = index.checked_add(1).ok_or(WireError::Field("index"))?;
        if entry.index != index {
            return Err(WireError::Field("entry index"));
        }
        if entry.term < term || entry.term > message.term || entry.term == 0 {
            return Err(WireError::Field("entry term"));
        }
        term = entry.term;
        entries.push(entry);
    }
    Ok(entries)
}

/// The library adds to indexes and terms without checking; half the range is out of every log's reach.
const LIMIT: u64 = u64::MAX / 2;

fn check_fields(message: &Message) -> Result<(), WireError> {
    let numbers = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ];
    if numbers.iter().any(|number| *number > LIMIT) {
        return Err(WireError::Field("number"));
    }
    if message.from == 0 || message.to == 0 || message.from == message.to {
        return Err(WireError::Field("member"));
    }
    // A term of 0 marks messages that a node sends to itself.
    if message.term == 0 {
        return Err(WireError::Field("term"));
    }
    if !message.entries.is_empty() && message.get_msg_type() != MessageType::MsgAppend {
        return Err(WireError::Field("entry"));
    }
    Ok(())
}

/// The level that a membership change says.
pub(crate) fn level_of_change(payload: &[u8]) -> Level {
    let mut change = ConfChangeV2::default();
    // What is no change has no effect.
    let read = change.merge_from_bytes(payload);
    read.map_or(Level::FIRST, |()| Context::level(&change.context))
}

pub(crate) fn level_of_entry(entry: &Entry) -> Level {
    match entry.get_entry_type() {
        EntryType::EntryNormal => Level::FIRST,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => level_of_change(&entry.data),
    }
}

/// The level that a receiver of this message must know.
pub(crate) fn level_of_message(message: &Message) -> Level {
    let entries = message.entries.iter().map(level_of_entry).max().unwrap_or_default();
    entries.max(places_of(message.get_snapshot()).level)
}

/// The level that a receiver of these bytes must know. For tests that nobody gets what it does not know.
pub fn level(bytes: &[u8]) -> Result<Level, WireError> {
    Ok(level_of_message(&decode(bytes)?))
}

/// One line about a message, for traces: its kind and its claims.
pub fn describe(bytes: &[u8]) -> Result<String, WireError> {
    let message = decode(bytes)?;
    let kind = format!("{:?}", message.get_msg_type());
    let kind = match message.get_msg_type() {
        MessageType::MsgSnapshot if !message.has_snapshot() => "BelowBase",
        MessageType::MsgSnapStatus => "HoldsImage",
        _ => kind.strip_prefix("Msg").unwrap_or(&kind),
    };
    let mut line = format!("{kind} term {}", message.term);
    let numbers = [
        ("log-term", message.log_term),
        ("index", message.index),
        ("commit", message.commit),
        ("hint", message.reject_hint),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
        line.push_str(&format!(" {name} {number}"));
    }
    if message.reject {
        line.push_str(" reject");
    }
    if message.has_snapshot() {
        let meta = message.get_snapshot().get_metadata();
        let members = meta.get_conf_state();
        line.push_str(&format!(" base {}/{}", meta.index, meta.term));
        line.push_str(&format!(" voters {:?} learners {:?}", members.voters, members.learners));
    }
    for entry in message.entries.iter() {
        line.push_str(&format!(" [{}/{} {} bytes]", entry.index, entry.term, entry.data.len()));
    }
    Ok(line)
}

/// A message's promise: the state that its sender must not forget, and must have made durable before sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// In this term the member `from` has voted for the member `to`.
    Vote {
        /// The term.
        term: Term,
        /// The voter.
        from: u64,
        /// The candidate.
        to: u64,
    },
    /// Its log equals the log of this term's leader, up to this entry.
    Stored {
        /// The term.
        term: Term,
        /// The last entry of the equal part.
        index: LogIndex,
    },
}

/// The promise of the message with these bytes, if any. For tests that promises are kept.
#[must_use]
pub fn promise(bytes: &[u8]) -> Option<Promise> {
    let promises = [
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestVoteResponse,
    ];
    let kind = kind_from_wire(*bytes.get(1)?)?;
    // Appends, which are long, promise nothing.
    let message = promises.contains(&kind).then(|| decode(bytes).ok()).flatten()?;
    let (term, from) = (Term(message.term), message.from);
    match message.get_msg_type() {
        // A candidate has voted for itself.
        MessageType::MsgRequestVote => Some(Promise::Vote { term, from, to: from }),
        MessageType::MsgRequestVoteResponse if !message.reject => {
            Some(Promise::Vote { term, from, to: message.to })
        }
        MessageType::MsgAppendResponse if !message.reject => {
            Some(Promise::Stored { term, index: LogIndex(message.index) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Place;
    use proptest::{collection::vec, prelude::*};
    use skein_model::ReplicaId;

    fn message() -> impl Strategy<Value = Message> {
        let numbers = [1..1000_u64, 0..500, 0..1000, 0..1000, 0..1000, 0..1000];
        let payloads = vec((any::<bool>(), vec(any::<u8>(), 0..50)), 0..5);
        (1..=12_u8, any::<bool>(), 0..2_usize, numbers, payloads).prop_map(
            |(
                kind,
                reject,
                context,
                [term, log_term, index, commit, commit_term, hint],
                payloads,
            )| {
                let mut message = Message::default();
                message.set_msg_type(kind_from_wire(kind).unwrap());
                (message.from, message.to, message.term) = (2, 1, term + 500);
                (message.log_term, message.index, message.commit) = (log_term, index, commit);
                (message.commit_term, message.reject_hint, message.reject) =
                    (commit_term, hint, reject);
                message.context = [&b""[..], b"CampaignTransfer"][context].into();
                if kind == KIND_SNAPSHOT {
                    let meta = message.mut_snapshot().mut_metadata();
                    (meta.index, meta.term) = (index + 1, log_term + 1);
                    let members = Members { voters: vec![1, 3], ..Members::default() };
                    meta.set_conf_state(members.with(2 + hint % 3).to_state());
                }
                if kind == 1 {
                    let entries = payloads.into_iter().zip(index + 1..).map(
                        |((membership, payload), index)| {
                            let mut entry = Entry::default();
                            if membership {
                                entry.set_entry_type(EntryType::EntryConfChangeV2);
                            }
                            (entry.term, entry.index) = (log_term.max(1), index);
                            entry.data = payload.into();
                            entry
                        },
                    );
                    message.set_entries(entries.collect::<Vec<_>>().into());
                }
                message
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            let bytes = encode(&message).unwrap();
            prop_assert_eq!(decode(&bytes), Ok(message));
        }

        #[test]
        fn every_shorter_or_longer_message_is_refused(message in message(), cut in any::<prop::sample::Index>()) {
            let mut bytes = encode(&message).unwrap();
            let cut = cut.index(bytes.len());
            prop_assert!(decode(&bytes[..cut]).is_err());
            bytes.push(0);
            prop_assert_eq!(decode(&bytes), Err(WireError::Length));
        }

        #[test]
        fn garbage_is_no_panic(message in message(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut bytes = encode(&message).unwrap();
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            // An accepted message encodes to exactly these bytes.
            if let Ok(message) = decode(&bytes) {
                prop_assert_eq!(encode(&message).unwrap(), bytes);
            }
        }

        #[test]
        fn noise_is_no_panic(bytes in vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_count_of_entries_that_cannot_be_there_allocates_nothing() {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.from, message.to, message.term) = (1, 2, 3);
        let mut bytes = encode(&message).unwrap();
        let count = bytes.len() - 4;
        bytes[count..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&bytes), Err(WireError::Length));
    }

    /// The consensus library would panic.
    #[test]
    fn a_snapshot_of_impossible_members_is_refused() {
        let refused = |base: (u64, u64), members: Members| {
            let mut message = Message::default();
            message.set_msg_type(MessageType::MsgSnapshot);
            (message.from, message.to, message.term) = (1, 2, 5);
            let meta = message.mut_snapshot().mut_metadata();
            (meta.index, meta.term) = base;
            meta.set_conf_state(members.to_state());
            message.mut_snapshot().data = members.places.to_bytes().into();
            decode(&encode(&message).unwrap()) == Err(WireError::Field("base"))
        };
        let members = |voters: &[u64], outgoing: &[u64], learners: &[u64], next: &[u64]| Members {
            voters: voters.to_vec(),
            outgoing: outgoing.to_vec(),
            learners: learners.to_vec(),
            next_learners: next.to_vec(),
            auto_leave: !outgoing.is_empty(),
            places: Places::from_iter([(ReplicaId(1), Place::at("a"))]),
        };
        for possible in [
            members(&[1, 2], &[], &[3], &[]),
            members(&[1, 2], &[1, 3], &[4], &[3]),
            members(&[1], &[1, 2], &[], &[]),
        ] {
            assert!(!refused((7, 5), possible));
        }
        for impossible in [
            members(&[], &[], &[1], &[]),
            members(&[1, 1], &[], &[], &[]),
            members(&[1, 0], &[], &[], &[]),
            members(&[1, 2], &[], &[2], &[]),
            members(&[1], &[2], &[2], &[]),
            members(&[1], &[], &[], &[2]),
            members(&[1, 2], &[1, 2], &[], &[2]),
            Members { auto_leave: true, ..members(&[1], &[], &[], &[]) },
        ] {
            assert!(refused((7, 5), impossible.clone()), "{impossible:?}");
        }
        for base in [(0, 5), (7, 0), (7, 6), (u64::MAX, 5)] {
            assert!(refused(base, members(&[1], &[], &[], &[])), "{base:?}");
        }
    }

    #[test]
    fn messages_that_stay_inside_a_node_are_not_encoded() {
        let mut message = Message::default();
        for kind in [MessageType::MsgHup, MessageType::MsgPropose, MessageType::MsgCheckQuorum] {
            message.set_msg_type(kind);
            assert_eq!(encode(&message), None);
        }
    }
}
