//! The link with a ring that a broken server filled.

use super::*;
use skein_model::frame::FRAME_SCRATCH_BYTES;
use skein_model::{Clock, ConnId, EntryBuilder};

fn put(output: &mut Producer, frame: OutFrame<'_>) {
    let mut scratch = [0; FRAME_SCRATCH_BYTES];
    let (head, payload) = frame.encode(&mut scratch);
    let whole = pad8(head.len() + payload.len());
    let mut bytes = [head, payload].concat();
    bytes.resize(whole, 0);
    output.reserve(whole).unwrap().expect("room").copy_from_slice(&bytes);
    output.publish(whole);
}

#[test]
fn what_was_sent_before_damage_leaves_once_and_nothing_after_it() {
    let mut link = Link::new(crate::config::Tuning::default().sizes(), 1, None).unwrap();
    let entry = EntryBuilder::new(Vec::new()).finish(WallNs(1), Term(1));
    assert!(link.push(LogIndex(1), &entry).unwrap());
    // SAFETY: the only server ends in use on this arena, which outlives them.
    let (_input, mut output) = unsafe { link.arena.server_ends() };
    let conn = ConnId(7);
    put(&mut output, OutFrame::Admitted { index: LogIndex(1), clock: Clock(1), ops: 1 });
    put(&mut output, OutFrame::Send { conn, bytes: b"answer" });
    output.reserve(64).unwrap().expect("room").fill(0xee);
    output.publish(64);
    let mut sent = Vec::new();
    let mut flushes = Vec::new();
    let mut drain = |link: &mut Link| {
        let mut places = Vec::new();
        link.drain(
            LogIndex(1),
            &mut places,
            |places, frame, at| {
                if let OutFrame::Send { bytes, .. } = frame {
                    places.push((at, bytes.len()));
                }
                Ok(())
            },
            |places, ring| {
                flushes.push(ring.len());
                sent.extend(places.drain(..).map(|(at, len)| ring[at..at + len].to_vec()));
                Ok(())
            },
        )
    };
    assert!(drain(&mut link).is_err());
    assert_eq!(drain(&mut link), Ok(0), "what is broken is left alone");
    assert_eq!(sent, [b"answer".to_vec()]);
    assert_eq!(flushes.len(), 1);
    assert_eq!(link.admitted, LogIndex(1));
}
