//! Frames over a connection, in any pieces, from anyone.

use proptest::{collection::vec, prelude::*};
use skein_log::{
    ClusterId, Durability, Level, ProgramHash,
    frame::{self, Decoder, FrameError, Hello, Levels},
};
use skein_model::{LogIndex, ReplicaId};

const CLUSTER: ClusterId = ClusterId(0x1234_5678_9abc_def0);

fn decode_all(bytes: &[u8], piece: usize) -> Result<Vec<(u8, Vec<u8>)>, FrameError> {
    let mut decoder = Decoder::new(CLUSTER);
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        while let Some(frame) = decoder.next_frame()? {
            frames.push((frame.kind, frame.payload.to_vec()));
        }
    }
    Ok(frames)
}

proptest! {
    #[test]
    fn frames_come_back_in_any_pieces(
        frames in vec((any::<u8>(), vec(any::<u8>(), 0..100)), 0..8),
        piece in 1..60_usize,
    ) {
        let mut bytes = Vec::new();
        for (kind, payload) in &frames {
            frame::encode(&mut bytes, CLUSTER, *kind, payload);
        }
        prop_assert_eq!(decode_all(&bytes, piece), Ok(frames));
    }

    #[test]
    fn a_changed_bit_is_never_taken_for_a_frame(
        payload in vec(any::<u8>(), 0..60), place in any::<prop::sample::Index>(), bit in 0..8,
    ) {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, CLUSTER, frame::KIND_RAFT, &payload);
        let place = place.index(bytes.len());
        bytes[place] ^= 1_u8 << bit;
        // A longer length waits for bytes that never come.
        prop_assert!(decode_all(&bytes, 1000).is_err() || decode_all(&bytes, 1000) == Ok(vec![]));
    }

    #[test]
    fn noise_is_no_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode_all(&bytes, 7);
        let _ = Hello::decode(&bytes);
    }

    #[test]
    fn hellos_come_back(replica in any::<u64>(), incarnation in any::<u64>(), program in any::<[u8; 32]>(), memory in any::<bool>(), levels in any::<Option<(u16, u16)>>()) {
        let durability = if memory { Durability::Memory } else { Durability::Fsync };
        let program = ProgramHash(program);
        let membership = LogIndex(incarnation / 2);
        let levels =
            levels.map(|(known, needed)| Levels { known: Level(known), needed: Level(needed) });
        let hello =
            Hello { replica: ReplicaId(replica), incarnation, durability, program, membership, levels };
        let mut bytes = hello.encode();
        prop_assert_eq!(Hello::decode(&bytes), Ok(hello));
        prop_assert_eq!(Hello::decode(&bytes[..bytes.len() - 1]), Err(FrameError::Hello));
        let mut out = Vec::new();
        frame::encode_hello(&mut out, CLUSTER, &hello);
        // Nodes from before levels refuse by the version what they cannot read.
        prop_assert_eq!(out[4], if levels.is_some() { 3 } else { 2 });
        prop_assert_eq!(decode_all(&out, 9), Ok(vec![(frame::KIND_HELLO, bytes.clone())]));
        if levels.is_some() {
            bytes.push(7);
            prop_assert_eq!(Hello::decode(&bytes), Ok(hello), "of a later level");
        }
    }
}

#[test]
fn a_hello_from_before_levels_is_read_and_one_without_levels_is_the_same() {
    let mut bytes = vec![3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[9; 32]);
    bytes.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
    let before = Hello {
        replica: ReplicaId(3),
        incarnation: 1,
        durability: Durability::Fsync,
        program: ProgramHash([9; 32]),
        membership: LogIndex(7),
        levels: None,
    };
    assert_eq!(Hello::decode(&bytes), Ok(before));
    assert_eq!(before.encode(), bytes);
    let levels = Some(Levels { known: Level(3), needed: Level(2) });
    bytes.extend_from_slice(&[3, 0, 2, 0]);
    assert_eq!(Hello { levels, ..before }.encode(), bytes);
}

#[test]
fn strangers_are_told_apart() {
    let mut decoder = Decoder::new(CLUSTER);
    decoder.push(b"GE");
    assert_eq!(decoder.next_frame(), Err(FrameError::Garbage), "after two bytes");

    let mut bytes = Vec::new();
    frame::encode(&mut bytes, ClusterId(1), frame::KIND_HELLO, b"");
    assert_eq!(decode_all(&bytes, 100), Err(FrameError::OtherCluster(ClusterId(1))));

    let mut bytes = Vec::new();
    frame::encode(&mut bytes, CLUSTER, frame::KIND_HELLO, b"");
    bytes[4] = 9;
    assert_eq!(decode_all(&bytes, 100), Err(FrameError::Version(9)));

    let mut bytes = Vec::new();
    frame::encode(&mut bytes, CLUSTER, frame::KIND_HELLO, b"");
    bytes[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode_all(&bytes, 100), Err(FrameError::TooLong(u32::MAX)));
}

#[test]
fn the_longest_frame_passes() {
    let payload = vec![3; frame::MAX_PAYLOAD_BYTES];
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, CLUSTER, frame::KIND_APP, &payload);
    assert_eq!(bytes.len(), frame::MAX_FRAME_BYTES);
    assert_eq!(decode_all(&bytes, 1 << 16).unwrap().len(), 1);
}
