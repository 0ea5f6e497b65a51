//! Entries and frames survive a round trip; garbage is refused without a panic.

use proptest::prelude::*;
use skein_model::entry::{self, EntryBuilder, EntryRef, Record, Start, Upgrade};
use skein_model::frame::FRAME_SCRATCH_BYTES;
use skein_model::limits::MAX_DATAGRAM_BYTES;
use skein_model::{Clock, ConnId, LogIndex, OutFrame, ReplicaId, SockAddr, Term, WallNs};

/// An empty fact: 64 bytes, `Absent`, the path `/x`.
const FACT: &[u8] = &{
    let mut bytes = [0; 72];
    (bytes[0], bytes[4], bytes[6], bytes[64], bytes[65]) = (72, 1, 2, b'/', b'x');
    bytes
};

fn record() -> impl Strategy<Value = (u8, u64, Vec<u8>)> {
    (0u8..17, any::<u64>(), proptest::collection::vec(any::<u8>(), 1..300))
}

fn make(kind: u8, n: u64, bytes: &[u8]) -> Record<'_> {
    let conn = ConnId(n);
    match kind {
        0 => Record::Start(Start { seed: [7; 32], quantum: 3, nclock: 4 }),
        1 => Record::TermStart,
        2 => Record::Open {
            conn,
            peer: SockAddr::v4([1, 2, 3, 4], 5),
            local: SockAddr::v6([9; 16], 6379),
        },
        3 => Record::Data { conn, bytes },
        4 => Record::Fin { conn },
        5 => Record::Reset { conn },
        6 => Record::Drained { conn, bytes: n },
        7 => Record::Bubble { turns: n as u32 },
        8 => Record::Connected { conn },
        9 => Record::ConnectFailed { conn, errno: n as u16 },
        10 => Record::Datagram {
            local: SockAddr::v4([1, 2, 3, 4], 5),
            peer: SockAddr::v6([9; 16], 53),
            bytes: if n.is_multiple_of(4) { &[] } else { bytes },
        },
        11 => Record::DatagramFailed {
            local: SockAddr::v4([1, 2, 3, 4], 5),
            peer: SockAddr::v6([9; 16], 53),
            errno: n as u16,
        },
        12 => Record::Signal { number: (n % 64) as u8 + 1 },
        13 => Record::Files { ask: n, facts: FACT },
        14 => Record::Root { replica: ReplicaId(n), index: LogIndex(n), root: n },
        15 => Record::Upgrade {
            edition: n,
            step: match n % 4 {
                0 => Upgrade::Asked,
                1 => Upgrade::Begun { after: LogIndex(n), status: n as i32 },
                2 => Upgrade::Kept,
                _ => Upgrade::GivenUp,
            },
            plan: bytes,
        },
        _ => Record::Digest { replica: ReplicaId(n), index: LogIndex(n), digest: n },
    }
}

proptest! {
    #[test]
    fn entries_round_trip(records in proptest::collection::vec(record(), 0..20)) {
        let mut builder = EntryBuilder::new(Vec::new());
        for (kind, n, bytes) in &records {
            builder.push(make(*kind, *n, bytes));
        }
        let bytes = builder.finish(WallNs(12), Term(3));
        let entry = EntryRef::parse(&bytes).unwrap();
        prop_assert_eq!(entry.wall(), WallNs(12));
        prop_assert_eq!(entry.term(), Term(3));
        let back: Vec<Record> = entry.records().collect();
        let want: Vec<Record> = records.iter().map(|(k, n, b)| make(*k, *n, b)).collect();
        prop_assert_eq!(back, want);
        for cut in 0..bytes.len() {
            prop_assert!(EntryRef::parse(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn garbage_entries_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Some(first) = bytes.first_mut() { *first = 2; }
        if let Ok(entry) = EntryRef::parse(&bytes) {
            let _ = entry.records().count();
        }
    }

    #[test]
    fn garbage_frames_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = OutFrame::parse(&bytes);
    }

    #[test]
    fn frames_round_trip(n in any::<u64>(), bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        let conn = ConnId(n);
        for frame in [
            OutFrame::Admitted { index: LogIndex(n), clock: Clock(n), ops: n },
            OutFrame::Send { conn, bytes: &bytes },
            OutFrame::Fin { conn },
            OutFrame::Close { conn },
            OutFrame::Abort { conn },
            OutFrame::Consumed { conn, bytes: n },
            OutFrame::Listen { addr: SockAddr::v4([127, 0, 0, 1], 80) },
            OutFrame::Unlisten { addr: SockAddr::v4([127, 0, 0, 1], 80) },
            OutFrame::Connect {
                conn: ConnId::outgoing(Term(n), n as u32),
                addr: SockAddr::v6([1; 16], 443),
            },
            OutFrame::ListenDatagram { addr: SockAddr::v4([0; 4], 53) },
            OutFrame::UnlistenDatagram { addr: SockAddr::v4([0; 4], 53) },
            OutFrame::Datagram {
                local: SockAddr::v4([0; 4], 53),
                peer: SockAddr::v6([1; 16], 443),
                bytes: if n.is_multiple_of(4) { &[] } else { &bytes },
            },
            OutFrame::Exit { status: n as i32 },
            OutFrame::Refused { call: &bytes },
            OutFrame::Notice { text: &bytes },
            OutFrame::Fatal { text: &bytes },
            OutFrame::Asked { ask: n },
            OutFrame::Differs { text: &bytes },
        ] {
            let mut scratch = [0; FRAME_SCRATCH_BYTES];
            let (header, payload) = frame.encode(&mut scratch);
            let mut wire = header.to_vec();
            wire.extend_from_slice(payload);
            prop_assert!(OutFrame::parse(&wire[..wire.len() - 1]).unwrap().is_none());
            wire.resize(wire.len().next_multiple_of(8), 0);
            prop_assert_eq!(OutFrame::parse(&wire).unwrap(), Some((frame, wire.len())));
        }
    }
}

#[test]
fn the_largest_datagram_fits_and_a_larger_one_does_not() {
    let (local, peer) = (SockAddr::v4([0; 4], 53), SockAddr::v4([1; 4], 9));
    for (len, fits) in [(MAX_DATAGRAM_BYTES, true), (MAX_DATAGRAM_BYTES + 1, false)] {
        let bytes = vec![7; len];
        let mut scratch = [0; FRAME_SCRATCH_BYTES];
        let frame = OutFrame::Datagram { local, peer, bytes: &bytes };
        let (header, payload) = frame.encode(&mut scratch);
        let mut wire = header.to_vec();
        wire.extend_from_slice(payload);
        wire.resize(wire.len().next_multiple_of(8), 0);
        assert_eq!(OutFrame::parse(&wire).is_ok(), fits);
        let mut builder = EntryBuilder::new(Vec::new());
        builder.push(Record::Datagram { local, peer, bytes: &bytes });
        let entry = builder.finish(WallNs(0), Term(0));
        assert_eq!(EntryRef::parse(&entry).is_ok(), fits);
    }
}

#[test]
fn connections_of_clients_and_of_the_server_have_different_ids() {
    let (client, own) = (ConnId::new(Term(7), 5), ConnId::outgoing(Term(7), 5));
    assert_ne!(client, own);
    assert_eq!((client.is_outgoing(), own.is_outgoing()), (false, true));
    assert_eq!((client.term(), own.term()), (Term(7), Term(7)));
    // The number of a client's connection cannot stand in a frame that begins one.
    let mut scratch = [0; FRAME_SCRATCH_BYTES];
    let frame = OutFrame::Connect { conn: client, addr: SockAddr::v4([1; 4], 9) };
    let mut wire = frame.encode(&mut scratch).0.to_vec();
    wire.resize(wire.len().next_multiple_of(8), 0);
    assert!(OutFrame::parse(&wire).is_err());
}

#[test]
fn data_is_read_in_place() {
    let mut builder = EntryBuilder::new(Vec::new());
    let read: Result<usize, ()> = builder.push_data_with(ConnId(1), 100, |buf| {
        buf[..3].copy_from_slice(b"abc");
        Ok(3)
    });
    assert_eq!(read, Ok(3));
    assert_eq!(builder.push_data_with(ConnId(2), 100, |_| Ok::<_, ()>(0)), Ok(0));
    assert_eq!(builder.push_data_with(ConnId(3), 100, |_| Err(5)), Err(5));
    assert_eq!(builder.records(), 1);
    let bytes = builder.finish(WallNs(0), Term(0));
    let all: Vec<Record> = EntryRef::parse(&bytes).unwrap().records().collect();
    assert_eq!(all, [Record::Data { conn: ConnId(1), bytes: b"abc" }]);
}

#[test]
fn what_replicas_agree_on_among_themselves_is_no_input() {
    let conn = ConnId(7);
    let inputs =
        [Record::Data { conn, bytes: b"x" }, Record::Fin { conn }, Record::Signal { number: 15 }];
    assert!(inputs.iter().all(Record::is_input));
    let own = [Record::Bubble { turns: 3 }, Record::TermStart];
    assert!(!own.iter().any(Record::is_input));
}

/// A log has entries of consensus, too: protocol buffers, with any byte where a record's kind would be.
#[test]
fn entries_of_consensus_are_taken_for_nothing_else() {
    let mut entry = EntryBuilder::new(Vec::new());
    entry.push(Record::Start(Start { seed: [7; 32], quantum: 1, nclock: 1 }));
    let start = entry.finish(WallNs(5), Term(1));
    assert!(entry::starts(&start) && !entry::upgrades(&start));
    let mut others = start;
    others[0] = 0x12;
    for kind in 0..=u8::MAX {
        others[entry::ENTRY_HEADER_BYTES] = kind;
        assert!(!entry::starts(&others) && !entry::upgrades(&others), "{kind}");
    }
    assert!(!entry::starts(b"") && !entry::upgrades(b""));
}
