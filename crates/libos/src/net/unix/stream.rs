//! The data beside the bytes of a stream: descriptors and credentials.
//!
//! They belong to the bytes that they were sent with. A message in the receiver's queue names these by their positions in the
//! stream; the bytes themselves are in the socket's own queue, as with any stream.

use super::super::exchange::{Incoming, Outgoing};
use super::super::message::{self, Message};
use super::super::{Socket, State, stream};
use super::name::{self, MAX_ADDRESS};
use super::rights::{self, Cred};
use crate::abi::{self, SCM_CREDENTIALS, SOL_SOCKET};
use crate::errno::{Result, fail};
use crate::file::Hold;
use crate::file::buffers::Buffers;
use crate::host::Host;
use skein_arena::pool::Handle;

/// The data beside the bytes of a send: once the descriptors, and with every piece the sender.
pub struct Beside {
    first: Option<Handle<Message>>,
    cred: Option<Cred>,
}

impl Beside {
    /// Nothing.
    pub const fn nothing() -> Self {
        Self { first: None, cred: None }
    }

    /// `n` bytes are now at the end of `to`'s queue.
    pub fn attach<H: Host>(&mut self, k: &H, to: &Socket, n: usize) {
        let message = match (self.first.take(), self.cred) {
            (Some(first), _) => first,
            (None, None) => return,
            (None, Some(cred)) => {
                // Without memory for it, the receiver sees no sender.
                let Some(more) = k.net.messages.alloc() else { return };
                k.net.messages.get(more).cred.set(cred);
                more
            }
        };
        let end = to.taken.get() + to.received.len() as u64;
        k.net.messages.get(message).span.set((end - n as u64, end));
        message::push(k, to, message);
    }
}

/// Sends on a connection.
pub fn send<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let sent = rights::collect(k, outgoing)?;
    let peer = s.peer.get().map(|peer| k.net.sockets.get(peer));
    // It may have been shut before it was connected.
    let takes_nothing = |p: &Socket| p.shut.get() & super::SHUT_RECEIVE != 0;
    let possible = if outgoing.has_destination() {
        fail(if s.state.get() == State::Connected { abi::EISCONN } else { abi::EOPNOTSUPP })
    } else if s.state.get() != State::Connected {
        fail(abi::ENOTCONN)
    } else if s.shut.get() & super::SHUT_SEND != 0 || peer.is_some_and(takes_nothing) {
        // An error that is pending, too, is the receiver's to see.
        stream::broken_pipe(k, outgoing.flags)
    } else {
        Ok(0)
    };
    let mut beside = Beside::nothing();
    // One that is not accepted yet may ask later.
    let asks = |p: &Socket| p.options.pass_cred() || p.file.get().is_none();
    let asked = s.options.pass_cred() || peer.is_some_and(asks);
    beside.cred = sent.cred.or_else(|| asked.then(|| Cred::real(k)));
    if possible.is_err() || buffers.left() == 0 {
        rights::drop_all(k, &sent.rights);
        return possible;
    }
    if !sent.rights.is_empty() {
        let Ok(first) = message::make(k, &mut Buffers::new(&[])?) else {
            rights::drop_all(k, &sent.rights);
            return fail(abi::ENOBUFS);
        };
        let m = k.net.messages.get(first);
        rights::hand_over(k, &sent.rights, &m.rights);
        m.cred.set(beside.cred.unwrap_or_default());
        beside.first = Some(first);
    }
    let result = stream::send_with(k, hold, socket, buffers, outgoing.flags, &mut beside);
    if let Some(unsent) = beside.first {
        message::free(k, unsent);
    }
    result
}

/// How a receive goes on at the stream's position.
pub enum Stretch {
    /// Any number of bytes may come next.
    Open,
    /// At most so many may.
    Until(usize),
    /// This receive ends here.
    Stop,
}

/// The state of a receive in progress.
#[derive(Default)]
pub struct Progress {
    sender: Option<Cred>,
    stop: bool,
}

impl Progress {
    /// Whether this receive ends with what it has.
    pub const fn stopped(&self) -> bool {
        self.stop
    }

    /// The number of bytes that may be received at `position`; takes the data beside them.
    pub fn at<H: Host>(
        &mut self,
        k: &H,
        s: &Socket,
        position: u64,
        incoming: &mut Incoming<'_>,
    ) -> Stretch {
        if self.stop {
            return Stretch::Stop;
        }
        let asked = s.options.pass_cred();
        if !asked && s.messages.is_empty() {
            return Stretch::Open;
        }
        // Only a look leaves messages behind that it has passed.
        let mut messages = s.messages.iter(&k.net.messages).map(|(_, m)| m);
        let next = messages.find(|m| m.span.get().1 > position);
        let (sender, stretch) = match next {
            None => (Cred::NOBODY, Stretch::Open),
            Some(m) if position < m.span.get().0 => {
                (Cred::NOBODY, Stretch::Until((m.span.get().0 - position) as usize))
            }
            Some(m) => {
                let cred = m.cred.get();
                let sender = if cred == Cred::default() { Cred::NOBODY } else { cred };
                (sender, Stretch::Until((m.span.get().1 - position) as usize))
            }
        };
        // Bytes of different senders are not mixed for a receiver that wants credentials.
        if asked && self.sender.is_some_and(|before| before != sender) {
            self.stop = true;
            return Stretch::Stop;
        }
        self.sender = Some(sender);
        if let Some(m) = next
            && m.span.get().0 <= position
            && !m.rights.is_empty()
        {
            if incoming.flags & abi::MSG_PEEK == 0 {
                rights::hand_over(k, &m.rights, &incoming.rights);
            } else if rights::duplicate(k, &m.rights, &incoming.rights).is_err() {
                incoming.out_flags |= abi::MSG_CTRUNC;
            }
            // Nothing comes behind bytes that brought descriptors.
            self.stop = true;
        }
        stretch
    }

    /// Writes the control messages.
    pub fn finish<H: Host>(self, k: &H, s: &Socket, incoming: &mut Incoming<'_>) {
        if s.options.pass_cred() {
            // As in Linux the end has credentials, which are zero.
            let sender = self.sender.unwrap_or_default();
            incoming.put_control(SOL_SOCKET, SCM_CREDENTIALS, &sender.bytes());
        }
        rights::deliver(k, incoming);
    }
}

/// `n` bytes were taken out: drops the data beside those that are gone.
pub fn took<H: Host>(k: &H, s: &Socket, n: usize) {
    s.taken.set(s.taken.get() + n as u64);
    while let Some(first) = s.messages.front()
        && k.net.messages.get(first).span.get().1 <= s.taken.get()
    {
        message::pop(k, s);
        message::free(k, first);
    }
}

/// The name of the socket at the other end, if it has one. One that has closed left its name behind.
pub fn put_sender<H: Host>(k: &H, s: &Socket, incoming: &mut Incoming<'_>) {
    let peers = s.peer.get().map(|peer| k.net.sockets.get(peer).name.get());
    let name = peers.unwrap_or_else(|| s.peer_name.get());
    if name.is_some() {
        let mut bytes = [0; MAX_ADDRESS];
        let len = name::encode(k, name, &mut bytes);
        incoming.put_name(&bytes[..len]);
    }
}
