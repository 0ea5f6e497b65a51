//! A connection between nodes over which one asks and the other answers, each in a thread of its own: away from consensus, whose messages do not wait for it.
//!
//! It begins with a question in place of a hello, after the same proof of the key. All its frames are of one kind, which says what may be asked: what a
//! base has ([`crate::base::wire`]), or what the admin interface answers other members ([`crate::relay`]).

use super::channel::Sealer;
use super::{Address, Key, Stream};
use skein_log::ClusterId;
use skein_log::frame::{self, Decoder};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// The frames of questions about a base.
pub const BASE: u8 = 3;
/// The frames of requests to an admin interface.
pub const ADMIN: u8 = 4;
/// The bytes of a part of a long answer.
pub const PART_BYTES: usize = 256 << 10;
/// The other side must say something within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at a socket that has nothing.
const LOOK: Duration = Duration::from_millis(1);

/// One side of such a connection.
pub struct Wire {
    kind: u8,
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
    pub fn connect(
        kind: u8,
        address: &Address,
        key: Option<&Key>,
        cluster: ClusterId,
    ) -> io::Result<Self> {
        let stream = super::connect(address)?;
        let mut first = Vec::new();
        let sealer = Sealer::new(key, cluster, true, &mut first);
        let mut wire = Self::over(kind, stream, sealer, Decoder::new(cluster), cluster);
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
        kind: u8,
        stream: Box<dyn Stream>,
        sealer: Sealer,
        decoder: Decoder,
        cluster: ClusterId,
    ) -> Self {
        Self { kind, stream, sealer, decoder, cluster, buffer: vec![0; PART_BYTES] }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The other side is gone, or takes nothing.
    pub fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let (mut plain, mut wire) = (Vec::new(), Vec::new());
        frame::encode(&mut plain, self.cluster, self.kind, payload);
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
        self.receive_within(PATIENCE)
    }

    /// As [`receive`](Self::receive), of a side that may say nothing for so long.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_within(&mut self, patience: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + patience;
        loop {
            match self.decoder.next_frame().map_err(io::Error::other)? {
                Some(frame) if frame.kind == self.kind => return Ok(frame.payload.to_vec()),
                Some(_) => {
                    return Err(io::Error::other(
                        "it does not answer such questions: it is of another version of Skein, or does not take this replica",
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

/// How many are answered at a time, each in a thread of its own; others ask again.
#[derive(Debug)]
pub struct Turns {
    taken: AtomicUsize,
    most: usize,
}

impl Turns {
    /// At most so many.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    /// Answers in a thread of this name.
    ///
    /// # Errors
    /// Too many are answered already, or no thread can be made.
    pub fn serve(
        &'static self,
        thread: &str,
        answer: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        let turn = Turn(self);
        if before >= self.most {
            return Err(io::Error::other("too many ask at a time"));
        }
        let answer = move || {
            let _turn = turn;
            answer();
        };
        Builder::new().name(thread.into()).spawn(answer).map(drop)
    }
}

/// The right to be answered.
struct Turn(&'static Turns);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
