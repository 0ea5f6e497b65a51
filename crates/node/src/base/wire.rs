//! What a replica asks another one for that its base lacks, over a connection of its own ([`crate::transport::wire`]). It begins without a hello: a replica that has no
//! base does not know its program yet.
//!
//! ```text
//! question = what u8 | digest [u8; 32] | from u64           the index (1), or contents (2) by their digest, or an edition's index (3)
//!                                                           "have that of this edition yourself" (4): the answer has no bytes, or says why not
//!                                                           the commands since an upgrade (5): the answer is Commands as JSON ([`super::told`])
//!                                                           the next data of contents (6): the answer begins with a u64 of its own, where that is: between lies a hole.
//!                                                           Earlier versions end the connection instead
//! answer   = whole u64 | bytes                              its length, and up to 256 KiB of it; the length is all ones if it is not here
//! ```

use super::store::Digest;
use crate::transport::wire::PART_BYTES;

const QUESTION_BYTES: usize = 41;
/// Where data are, before them.
const PLACE_BYTES: usize = 8;
/// In place of a length.
const NOT_HERE: u64 = u64::MAX;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The index.
    Index,
    /// Contents.
    Contents(Digest),
    /// The next data of contents, which may be behind a hole.
    Data(Digest),
    /// The index of an edition of the server.
    Edition(Digest),
    /// The other side is to have it, with its contents.
    Stage(Digest),
    /// The commands of a cluster that was upgraded.
    Commands,
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// What.
    pub what: What,
    /// From this byte on.
    pub from: u64,
}

impl Question {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (what, digest) = match self.what {
            What::Index => (1, [0; 32]),
            What::Contents(digest) => (2, digest.0),
            What::Edition(digest) => (3, digest.0),
            What::Stage(digest) => (4, digest.0),
            What::Commands => (5, [0; 32]),
            What::Data(digest) => (6, digest.0),
        };
        [&[what], &digest[..], &self.from.to_le_bytes()].concat()
    }

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; QUESTION_BYTES] = bytes.try_into().ok()?;
        let digest = Digest(bytes[1..33].try_into().ok()?);
        let what = match bytes[0] {
            1 => What::Index,
            2 => What::Contents(digest),
            3 => What::Edition(digest),
            4 => What::Stage(digest),
            5 => What::Commands,
            6 => What::Data(digest),
            _ => return None,
        };
        Some(Self { what, from: u64::from_le_bytes(bytes[33..].try_into().ok()?) })
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The whole length; none if it is not there.
    pub whole: Option<u64>,
    /// The bytes that were asked for.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&self.whole.unwrap_or(NOT_HERE).to_le_bytes()[..], &self.bytes].concat()
    }

    /// Of data at this place.
    #[must_use]
    pub fn data(whole: u64, at: u64, data: &[u8]) -> Self {
        Self { whole: Some(whole), bytes: [&at.to_le_bytes(), data].concat() }
    }

    /// Where the data are, and they.
    #[must_use]
    pub fn place(&self) -> Option<(u64, &[u8])> {
        let (at, data) = self.bytes.split_first_chunk::<PLACE_BYTES>()?;
        Some((u64::from_le_bytes(*at), data))
    }

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (whole, bytes) = bytes.split_first_chunk::<8>()?;
        let whole = Some(u64::from_le_bytes(*whole)).filter(|whole| *whole != NOT_HERE);
        (bytes.len() <= PART_BYTES + PLACE_BYTES).then(|| Self { whole, bytes: bytes.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        let digest = Digest([9; 32]);
        let all = [
            What::Data(digest),
            What::Index,
            What::Contents(digest),
            What::Edition(digest),
            What::Stage(digest),
            What::Commands,
        ];
        for what in all {
            let question = Question { what, from: 77 };
            let bytes = question.encode();
            assert_eq!(Question::decode(&bytes), Some(question));
            assert_eq!(Question::decode(&bytes[1..]), None);
        }
        assert_eq!(Question::decode(&[9; QUESTION_BYTES]), None);
        for whole in [Some(3), None] {
            let answer = Answer { whole, bytes: vec![1, 2, 3] };
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        let data = Answer::data(9, 5, &[1, 2]);
        assert_eq!(Answer::decode(&data.encode()).unwrap().place(), Some((5, [1, 2].as_slice())));
        assert_eq!(Answer::decode(&[0; 7]), None);
        assert_eq!(Answer::decode(&vec![0; 9 + PART_BYTES + PLACE_BYTES]), None);
    }
}
