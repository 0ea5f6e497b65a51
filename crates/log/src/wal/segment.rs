//! One segment's file, read into memory when a log is opened.

use super::{
    format::{self, Found, HEADER_BYTES, MAX_START_BYTES, Record, SegmentHeader, Spot, Start},
    tail,
};
use crate::disk::File;
use std::sync::Arc;

/// The least that a disk writes at once: a header is in one of them.
const LEAST_SECTOR_BYTES: usize = 512;

/// A segment in memory.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) file: Arc<dyn File>,
    pub(super) bytes: Vec<u8>,
}

impl Segment {
    /// Nothing was written to it after its creation, which may have been torn: then the one before need not be sealed.
    pub(super) fn is_fresh(&self) -> bool {
        if self.is_blank(HEADER_BYTES) {
            return true;
        }
        let Ok(header) = SegmentHeader::decode(&self.bytes) else {
            // A start longer than a sector may have been written without its header.
            return self.bytes.iter().take(LEAST_SECTOR_BYTES).all(|byte| *byte == 0)
                && self.is_blank(HEADER_BYTES + MAX_START_BYTES);
        };
        match self.start() {
            Some((_, end)) => self.is_blank(end),
            None => header.layout.has_start() && self.has_no_record(&header),
        }
    }

    /// Whether its start is torn, and not damaged: then records follow.
    fn has_no_record(&self, header: &SegmentHeader) -> bool {
        let spot = Spot { segment: self.number, salt: header.salt, offset: 0 };
        let tail = tail::look(&self.bytes, HEADER_BYTES, spot, header.first_seq);
        tail.vouched.is_none() && self.is_blank(HEADER_BYTES + MAX_START_BYTES)
    }

    fn is_blank(&self, from: usize) -> bool {
        self.bytes.iter().skip(from).all(|byte| *byte == 0)
    }

    /// Its start, and where that ends.
    pub(super) fn start(&self) -> Option<(Start, usize)> {
        let header = SegmentHeader::decode(&self.bytes).ok()?;
        let spot = Spot { segment: self.number, salt: header.salt, offset: HEADER_BYTES as u64 };
        let decoded = format::decode(self.bytes.get(HEADER_BYTES..)?, spot)?;
        match decoded.found {
            Found::Other(Record::Start(start)) => Some((start, HEADER_BYTES + decoded.len)),
            _ => None,
        }
    }
}
