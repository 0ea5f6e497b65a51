//! A connection over which a replica gets what its base lacks from another one.
//!
//! It is one between nodes ([`crate::transport`]), with the same proof of the key, and begins with a question in place of a hello: a replica that has no
//! base does not know its program yet. All frames are of one kind:
//!
//! ```text
//! question = what u8 | digest [u8; 32] | from u64           the index (1), or contents (2) by their digest, or an edition's index (3)
//!                                                           "have that of this edition yourself" (4): the answer has no bytes, or says why not
//!                                                           the commands since an upgrade (5): the answer is Commands as JSON ([`super::told`])
//! answer   = whole u64 | bytes                              its length, and up to 256 KiB of it; the length is all ones if it is not here
//! ```
//!
//! Either side waits for the other in a thread of its own, and gives up after [`PATIENCE`].

use super::store::Digest;
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::transport::channel::Sealer;
use crate::transport::{self, Address, Key, Stream};
use skein_log::ClusterId;
use skein_log::frame::{self, Decoder};
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The frames' kind.
pub const KIND: u8 = 3;
/// Bytes of an answer.
pub const PART_BYTES: usize = 256 << 10;
/// The other side must say something within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at a socket that has nothing.
const LOOK: Duration = Duration::from_millis(1);
const QUESTION_BYTES: usize = 41;
/// In place of a length.
const NOT_HERE: u64 = u64::MAX;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The index.
    Index,
    /// Contents.
    Contents(Digest),
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

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (whole, bytes) = bytes.split_first_chunk::<8>()?;
        let whole = Some(u64::from_le_bytes(*whole)).filter(|whole| *whole != NOT_HERE);
        (bytes.len() <= PART_BYTES).then(|| Self { whole, bytes: bytes.to_vec() })
    }
}

/// The key that both sides have, if one is configured.
///
/// # Errors
/// Its file cannot be read, is open to others, or is malformed.
pub fn key(config: &NodeConfig) -> Result<Option<Key>, NodeError> {
    let read = |path: &PathBuf| {
        Key::read(path).map_err(|error| NodeError::Key { path: path.clone(), error })
    };
    config.key_file.as_ref().map(read).transpose()
}

/// One side of such a connection.
pub struct Wire {
    stream: Box<dyn Stream>,
    sealer: Sealer,
    decoder: Decoder,
    cluster: ClusterId,
    buffer: Vec<u8>,
}

impl Wire {
    /// Connects to a node, and proves the key.
    ///
    /// # Errors
    /// It cannot be reached, or does not answer.
    pub fn connect(address: &Address, key: Option<&Key>, cluster: ClusterId) -> io::Result<Self> {
        let stream = transport::connect(address)?;
        let mut first = Vec::new();
        let sealer = Sealer::new(key, cluster, true, &mut first);
        let mut wire = Self::over(stream, sealer, Decoder::new(cluster), cluster);
        let until = Instant::now() + PATIENCE;
        wire.write(&first, until)?;
        while !wire.sealer.is_open() {
            wire.read(until)?;
        }
        Ok(wire)
    }

    /// Goes on with a connection that has begun.
    #[must_use]
    pub fn over(
        stream: Box<dyn Stream>,
        sealer: Sealer,
        decoder: Decoder,
        cluster: ClusterId,
    ) -> Self {
        Self { stream, sealer, decoder, cluster, buffer: vec![0; PART_BYTES] }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The other side is gone, or takes nothing.
    pub fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let (mut plain, mut wire) = (Vec::new(), Vec::new());
        frame::encode(&mut plain, self.cluster, KIND, payload);
        let mut sealed = 0;
        while sealed < plain.len() {
            sealed += self.sealer.seal(&plain[sealed..], &mut wire);
        }
        self.write(&wire, until)
    }

    /// The next frame.
    ///
    /// # Errors
    /// The other side is gone, says nothing, or something else.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.decoder.next_frame().map_err(io::Error::other)? {
                Some(frame) if frame.kind == KIND => return Ok(frame.payload.to_vec()),
                Some(_) => {
                    return Err(io::Error::other(
                        "it has no base to give: it is of another version of Skein, or does not take this replica",
                    ));
                }
                None => self.read(until)?,
            }
        }
    }

    fn read(&mut self, until: Instant) -> io::Result<()> {
        let n = patiently(until, || self.stream.read(&mut self.buffer))?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let (mut wire, decoder) = (Vec::new(), &mut self.decoder);
        let opened =
            self.sealer.open(&self.buffer[..n], &mut wire, &mut |plain| decoder.push(plain));
        opened.map_err(io::Error::other)?;
        self.write(&wire, until)
    }

    fn write(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match patiently(until, || self.stream.write(bytes))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => bytes = &bytes[n..],
            }
        }
        Ok(())
    }
}

/// The sockets never block.
fn patiently(until: Instant, mut act: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match act() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
            {
                if Instant::now() > until {
                    return Err(ErrorKind::TimedOut.into());
                }
                sleep(LOOK);
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        let digest = Digest([9; 32]);
        let all = [
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
        assert_eq!(Answer::decode(&[0; 7]), None);
        assert_eq!(Answer::decode(&vec![0; 9 + PART_BYTES]), None);
    }
}
