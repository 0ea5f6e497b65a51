//! Examines the bytes behind the first record that cannot be read.
//!
//! Linear in the bytes: a record is found by the segment's tag, which is secret, so a client's bytes do not look like one.

use super::format::{self, Found, RECORD_HEADER_BYTES, Record, Spot};
use crate::types::HardState;
use std::io;

/// The findings.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// A later record, and the newest record that it vouches for.
    pub vouched: Option<(u64, u64)>,
    /// The newest vote in it. Remembering a vote that was never cast does no harm.
    pub vote: Option<HardState>,
    /// The number of bytes that are not zeros written ahead, and the first offset behind them.
    pub torn_bytes: u64,
}

/// Examines `bytes` from `bad` on, where record `next_seq` should be. `spot` is that of the segment.
pub(super) fn look(bytes: &[u8], bad: usize, spot: Spot, next_seq: u64) -> Tail {
    let mut tail = Tail::default();
    if bytes[bad..].iter().all(|byte| *byte == 0) {
        return tail;
    }
    tail.torn_bytes = (bytes.len() - bad) as u64;
    let mut position = bad;
    while position < bytes.len() {
        let here = Spot { offset: position as u64, ..spot };
        let fits = |seq: u64| {
            let between = ((position - bad) / RECORD_HEADER_BYTES) as u64;
            seq > next_seq && seq - next_seq <= between
        };
        let found = format::decode(&bytes[position..], here).filter(|found| fits(found.seq));
        let Some(found) = found else {
            position += 8;
            continue;
        };
        if tail.vouched.is_none_or(|(_, synced)| found.synced_seq > synced) {
            tail.vouched = Some((found.seq, found.synced_seq));
        }
        if let Found::Other(Record::HardState(state)) = found.found {
            tail.vote = Some(state);
        }
        position += found.len;
    }
    tail
}

/// Whether a hard state of a torn end is newer than the known one.
pub(super) fn says_more(vote: HardState, known: HardState) -> bool {
    vote.term > known.term || (vote.term == known.term && known.vote == 0 && vote.vote != 0)
}

/// Reads `len` bytes into this memory; answers the offset of a sector that cannot be read.
pub(super) fn read(
    read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    len: usize,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, (u64, io::Error)> {
    const CHUNK_BYTES: usize = 1 << 20;
    const SECTOR_BYTES: usize = 512;
    bytes.resize(len, 0);
    let mut at = 0;
    // Smaller steps after a failure: the first bad sector ends it.
    let mut step = CHUNK_BYTES;
    while at < len {
        let end = len.min(at + step);
        match read_at(&mut bytes[at..end], at as u64) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(_) if step > SECTOR_BYTES => step = SECTOR_BYTES,
            Err(error) => return Err((at as u64, error)),
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::format::{Place, encode};
    use skein_model::{LogIndex, Term};

    const SEGMENT: Spot = Spot { segment: 3, salt: 0x1234_5678_9abc_def0, offset: 0 };

    /// A record that vouches for all earlier ones, as at `offset` of this segment with this salt.
    fn forged(salt: u64, offset: usize, seq: u64) -> Vec<u8> {
        let spot = Spot { salt, offset: offset as u64, ..SEGMENT };
        let vote = HardState { term: Term(9), vote: 2, commit: LogIndex(0) };
        let mut out = Vec::new();
        encode(&mut out, Place { spot, seq, synced_seq: seq - 1 }, &Record::HardState(vote));
        out
    }

    #[test]
    fn what_a_client_sent_is_no_record() {
        // A torn entry: its payload would be a record here, except for the salt.
        let mut bytes = vec![0xa5; 64];
        bytes.extend(forged(SEGMENT.salt ^ 1, 64, 8));
        bytes.extend(forged(SEGMENT.salt ^ 1 << 40, bytes.len(), 9));
        let tail = look(&bytes, 0, SEGMENT, 7);
        assert_eq!((tail.vouched, tail.torn_bytes), (None, bytes.len() as u64));
        assert!(tail.vote.is_none());
        // The log's own record is one.
        bytes.extend(forged(SEGMENT.salt, bytes.len(), 9));
        let tail = look(&bytes, 0, SEGMENT, 7);
        assert_eq!(tail.vouched, Some((9, 8)));
        assert_eq!(tail.vote.map(|vote| vote.term), Some(Term(9)));
        // Not with an impossible number.
        for seq in [7, 40] {
            let mut bytes = vec![0xa5; 64];
            bytes.extend(forged(SEGMENT.salt, 64, seq));
            assert_eq!(look(&bytes, 0, SEGMENT, 7).vouched, None, "record {seq}");
        }
    }

    #[test]
    fn a_crafted_payload_costs_no_more_than_its_length() {
        // Each 32 bytes begin what claims to be a record of many megabytes: checking each claim would take hours.
        let mut claim = forged(SEGMENT.salt ^ 1 << 40, 0, 8);
        claim.truncate(32);
        claim[8..12].copy_from_slice(&(16_u32 << 20).to_le_bytes());
        let bytes = claim.repeat(1 << 20);
        assert_eq!(look(&bytes, 0, SEGMENT, 7).vouched, None);
    }
}
