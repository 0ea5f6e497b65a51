//! Protects the bytes between two nodes that share a key: the Noise protocol framework's `NNpsk0` (mutual proof of the key, fresh
//! keys a connection, every byte encrypted and authenticated, nothing replayed), by the library `snow`.
//!
//! ```text
//! on the wire: len:u16 (big-endian) message[len], at most 65,535 bytes a message
//! the dialling side: first message; the accepting side: second message, once the first has proved the key; then frames, sealed
//! ```
//!
//! An accepting side sends nothing to a peer that has not proved the key. Without a key, and on unix sockets, bytes pass unchanged.

use super::key::Key;
use skein_log::ClusterId;
use snow::{Builder, HandshakeState, TransportState};

const PROTOCOL: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The longest message of the protocol.
const MAX_MESSAGE_BYTES: usize = 65_535;
/// The overhead of a message.
const TAG_BYTES: usize = 16;
/// The most payload bytes of one message.
const MAX_PLAIN_BYTES: usize = MAX_MESSAGE_BYTES - TAG_BYTES;
/// The two first messages: a public key and a tag each.
const SHAKE_BYTES: usize = 32 + TAG_BYTES;
const LEN_BYTES: usize = 2;

/// The other side does not know the key, or bytes were changed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The first message is wrong.
    #[error("the other side does not have this cluster's key: give all nodes the same `key_file`")]
    Key,
    /// A later one.
    #[error("bytes were changed on the way")]
    Changed,
}

/// One side's state.
#[derive(Debug)]
pub enum Channel {
    /// Bytes pass unchanged.
    Plain,
    /// The key is being proved.
    Shaking(Box<HandshakeState>),
    /// Bytes are sealed.
    Sealed(Box<TransportState>),
}

/// A connection's bytes before they are opened, and after they are sealed.
#[derive(Debug)]
pub struct Sealer {
    channel: Channel,
    /// An incomplete message.
    partial: Vec<u8>,
    message: Vec<u8>,
}

impl Sealer {
    /// The dialling or accepting side of a connection of this cluster. The dialling side's first bytes go to `wire`.
    pub fn new(key: Option<&Key>, cluster: ClusterId, dials: bool, wire: &mut Vec<u8>) -> Self {
        let mut sealer = Self { channel: Channel::Plain, partial: Vec::new(), message: Vec::new() };
        if let Some(key) = key {
            let mut shaking = shake(key, cluster, dials);
            if dials {
                put(wire, SHAKE_BYTES, |out| shaking.write_message(&[], out));
            }
            sealer.channel = Channel::Shaking(Box::new(shaking));
        }
        sealer
    }

    /// Whether bytes sent now go to a peer that has proved the key, if there is one.
    pub const fn is_open(&self) -> bool {
        !matches!(self.channel, Channel::Shaking(_))
    }

    /// Whether the other side has proved the key.
    pub const fn has_proof(&self) -> bool {
        matches!(self.channel, Channel::Sealed(_))
    }

    /// Takes received bytes; appends their payload to `plain`, and answers to `wire`.
    ///
    /// # Errors
    /// The connection must end.
    pub fn open(
        &mut self,
        bytes: &[u8],
        wire: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ChannelError> {
        if matches!(self.channel, Channel::Plain) {
            plain(bytes);
            return Ok(());
        }
        self.partial.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(head) = self.partial[used..].first_chunk::<LEN_BYTES>() {
            let len = usize::from(u16::from_be_bytes(*head));
            if !self.is_open() && len != SHAKE_BYTES {
                return Err(ChannelError::Key);
            }
            let start = used + LEN_BYTES;
            let Some(message) = self.partial.get(start..start + len) else { break };
            used = start + len;
            self.message.resize(MAX_MESSAGE_BYTES, 0);
            match &mut self.channel {
                Channel::Sealed(sealed) => {
                    let opened = sealed.read_message(message, &mut self.message);
                    let n = opened.map_err(|_| ChannelError::Changed)?;
                    plain(&self.message[..n]);
                }
                Channel::Shaking(shaking) => {
                    let read = shaking.read_message(message, &mut self.message);
                    read.map_err(|_| ChannelError::Key)?;
                    self.shaken(wire)?;
                }
                Channel::Plain => {}
            }
        }
        self.partial.drain(..used);
        Ok(())
    }

    /// The other side's first message was right.
    fn shaken(&mut self, wire: &mut Vec<u8>) -> Result<(), ChannelError> {
        let Channel::Shaking(mut shaking) = std::mem::replace(&mut self.channel, Channel::Plain)
        else {
            return Ok(());
        };
        if !shaking.is_handshake_finished() {
            put(wire, SHAKE_BYTES, |out| shaking.write_message(&[], out));
        }
        let sealed = shaking.into_transport_mode().map_err(|_| ChannelError::Key)?;
        self.channel = Channel::Sealed(Box::new(sealed));
        Ok(())
    }

    /// Moves bytes to be sent from the front of `plain` to `wire`; answers the number. None while the key is not proved.
    pub fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> usize {
        match &mut self.channel {
            Channel::Plain => {
                wire.extend_from_slice(plain);
                plain.len()
            }
            Channel::Shaking(_) => 0,
            Channel::Sealed(_) if plain.is_empty() => 0,
            Channel::Sealed(sealed) => {
                let part = &plain[..plain.len().min(MAX_PLAIN_BYTES)];
                put(wire, part.len() + TAG_BYTES, |out| sealed.write_message(part, out));
                part.len()
            }
        }
    }

    /// Whether bytes are sealed, so that [`seal`](Self::seal) copies them in any case.
    pub const fn seals(&self) -> bool {
        !matches!(self.channel, Channel::Plain)
    }
}

fn shake(key: &Key, cluster: ClusterId, dials: bool) -> HandshakeState {
    let build = || {
        let prologue = cluster.0.to_le_bytes();
        let builder = Builder::new(PROTOCOL.parse()?).prologue(&prologue)?.psk(0, key.bytes())?;
        if dials { builder.build_initiator() } else { builder.build_responder() }
    };
    build().expect("a protocol that the library has, with all that it needs")
}

/// Appends a message of `len` bytes, which `write` makes.
fn put(
    wire: &mut Vec<u8>,
    len: usize,
    write: impl FnOnce(&mut [u8]) -> Result<usize, snow::Error>,
) {
    wire.extend_from_slice(&(len as u16).to_be_bytes());
    let start = wire.len();
    wire.resize(start + len, 0);
    let written = write(&mut wire[start..]).expect("room for a message in its turn");
    assert_eq!(written, len, "a message's length follows from what it carries");
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ClusterId = ClusterId(7);

    fn key(byte: u8) -> Key {
        Key::new([byte; 32])
    }

    fn open(side: &mut Sealer, bytes: &[u8]) -> Result<(Vec<u8>, Vec<u8>), ChannelError> {
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        // One byte at a time: messages come in pieces.
        for byte in bytes {
            side.open(&[*byte], &mut wire, &mut |part| plain.extend_from_slice(part))?;
        }
        Ok((wire, plain))
    }

    fn pair() -> (Sealer, Sealer) {
        let mut first = Vec::new();
        let mut dialer = Sealer::new(Some(&key(1)), CLUSTER, true, &mut first);
        let mut acceptor = Sealer::new(Some(&key(1)), CLUSTER, false, &mut Vec::new());
        assert_eq!(dialer.seal(b"early", &mut first.clone()), 0, "nothing before the proof");
        let (second, _) = open(&mut acceptor, &first).unwrap();
        open(&mut dialer, &second).unwrap();
        assert!(dialer.is_open() && acceptor.is_open());
        (dialer, acceptor)
    }

    #[test]
    fn who_has_the_key_is_understood() {
        let (mut dialer, mut acceptor) = pair();
        let long = vec![9; 200_000];
        let (mut wire, mut sent) = (Vec::new(), 0);
        while sent < long.len() {
            sent += dialer.seal(&long[sent..], &mut wire);
        }
        assert!(!wire.windows(64).any(|part| part == [9; 64]), "nothing can be read on the way");
        assert_eq!(open(&mut acceptor, &wire).unwrap().1, long);
        wire.clear();
        assert_eq!((acceptor.seal(b"", &mut wire), wire.len()), (0, 0), "nothing is no message");
        assert_eq!(acceptor.seal(b"back", &mut wire), 4);
        assert_eq!(open(&mut dialer, &wire).unwrap().1, b"back");
    }

    #[test]
    fn who_has_not_hears_nothing() {
        for (other, cluster) in [(key(2), CLUSTER), (key(1), ClusterId(8))] {
            let mut first = Vec::new();
            let _dialer = Sealer::new(Some(&other), cluster, true, &mut first);
            let mut wire = Vec::new();
            let mut acceptor = Sealer::new(Some(&key(1)), CLUSTER, false, &mut wire);
            let refused = acceptor.open(&first, &mut wire, &mut |_| {});
            assert_eq!((refused, wire.len()), (Err(ChannelError::Key), 0));
        }
        let mut acceptor = Sealer::new(Some(&key(1)), CLUSTER, false, &mut Vec::new());
        assert_eq!(open(&mut acceptor, b"SKNP").unwrap_err(), ChannelError::Key);
    }

    #[test]
    fn what_was_changed_or_comes_again_is_refused() {
        let (mut dialer, mut acceptor) = pair();
        let mut wire = Vec::new();
        dialer.seal(b"a frame", &mut wire);
        assert_eq!(open(&mut acceptor, &wire).unwrap().1, b"a frame");
        assert_eq!(open(&mut acceptor, &wire).unwrap_err(), ChannelError::Changed);
        let (mut dialer, mut acceptor) = pair();
        wire.clear();
        dialer.seal(b"a frame", &mut wire);
        wire[5] ^= 1;
        assert_eq!(open(&mut acceptor, &wire).unwrap_err(), ChannelError::Changed);
    }

    #[test]
    fn a_first_message_of_yesterday_opens_nothing() {
        let mut first = Vec::new();
        let mut dialer = Sealer::new(Some(&key(1)), CLUSTER, true, &mut first);
        let mut acceptor = Sealer::new(Some(&key(1)), CLUSTER, false, &mut Vec::new());
        let (second, _) = open(&mut acceptor, &first).unwrap();
        open(&mut dialer, &second).unwrap();
        let mut sealed = Vec::new();
        dialer.seal(b"a frame", &mut sealed);
        // An attacker who has recorded all that.
        let mut later = Sealer::new(Some(&key(1)), CLUSTER, false, &mut Vec::new());
        open(&mut later, &first).unwrap();
        assert_eq!(open(&mut later, &sealed).unwrap_err(), ChannelError::Changed);
    }
}
