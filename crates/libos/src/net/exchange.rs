//! One send or receive: the data beside the bytes (flags, an address, control data), and the kind of socket that does it.

use super::bytes::{array, word};
use super::unix::rights::Rights;
use super::{Socket, datagram, netlink, stream, unix};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::Hold;
use crate::file::buffers::Buffers;
use crate::file::wait::{wait, wait_at};
use crate::host::Host;
use crate::keys::Key;
use skein_arena::pool::Handle;

/// The data beside the bytes of a send.
pub struct Outgoing<'a> {
    /// As `send` takes them.
    pub flags: i32,
    /// The destination; empty when the caller does not name one.
    pub to: &'a [u8],
    /// Control messages.
    pub control: &'a [u8],
}

impl Outgoing<'_> {
    /// Bytes alone.
    pub const fn plain(flags: i32) -> Self {
        Self { flags, to: &[], control: &[] }
    }

    /// Whether the caller names a destination.
    pub const fn has_destination(&self) -> bool {
        !self.to.is_empty()
    }
}

/// The results of a receive besides bytes.
pub struct Incoming<'a> {
    /// As `recv` takes them.
    pub flags: i32,
    /// The caller asks for the sender's address.
    pub named: bool,
    name: &'a mut [u8],
    /// Bytes of the sender's address, cut to the room; 0 when it has none.
    pub name_len: usize,
    control: &'a mut [u8],
    /// Bytes of control messages written.
    pub control_used: usize,
    /// `MSG_TRUNC`, `MSG_CTRUNC`
    pub out_flags: i32,
    /// Descriptors that were received.
    pub rights: Rights,
}

impl<'a> Incoming<'a> {
    /// Bytes alone.
    pub fn plain(flags: i32) -> Self {
        Self { named: false, ..Self::new(flags, &mut [], &mut []) }
    }

    /// With room for the sender's address and for control messages.
    pub fn new(flags: i32, name: &'a mut [u8], control: &'a mut [u8]) -> Self {
        let rights = Rights::default();
        Self {
            flags,
            named: true,
            name,
            name_len: 0,
            control,
            control_used: 0,
            out_flags: 0,
            rights,
        }
    }

    /// The sender's address.
    pub fn put_name(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.name.len());
        self.name[..n].copy_from_slice(&bytes[..n]);
        self.name_len = bytes.len();
    }

    /// Room for the data of one more control message.
    pub fn control_left(&self) -> usize {
        self.control.len().saturating_sub(self.control_used + HEADER_BYTES)
    }

    /// Adds a control message, cut if there is not room for all of it.
    pub fn put_control(&mut self, level: i32, kind: i32, data: &[u8]) {
        if self.control.len() < self.control_used + HEADER_BYTES {
            self.out_flags |= abi::MSG_CTRUNC;
            return;
        }
        let n = data.len().min(self.control_left());
        if n < data.len() {
            self.out_flags |= abi::MSG_CTRUNC;
        }
        let (header, rest) = self.control[self.control_used..].split_at_mut(HEADER_BYTES);
        header[..8].copy_from_slice(&(HEADER_BYTES + n).to_ne_bytes());
        header[8..12].copy_from_slice(&level.to_ne_bytes());
        header[12..].copy_from_slice(&kind.to_ne_bytes());
        rest[..n].copy_from_slice(&data[..n]);
        let used = (HEADER_BYTES + n).next_multiple_of(CONTROL_ALIGN);
        self.control_used = (self.control_used + used).min(self.control.len());
    }
}

/// Bytes of a control message's header (`cmsghdr`): its length, its level, its type.
pub const HEADER_BYTES: usize = 16;
/// Control messages begin at multiples of this.
const CONTROL_ALIGN: usize = size_of::<usize>();

/// A control message of a send.
pub struct Control<'a> {
    /// `SOL_SOCKET`, `IPPROTO_IP`, ...
    pub level: i32,
    /// Its type.
    pub kind: i32,
    /// Its data.
    pub data: &'a [u8],
}

/// The control messages of a send, `EINVAL` for one that is longer than what is there.
pub fn each_control<'a>(
    mut control: &'a [u8],
    mut f: impl FnMut(Control<'a>) -> Result<()>,
) -> Result<()> {
    while control.len() >= HEADER_BYTES {
        let len = usize::from_ne_bytes(array(control, 0));
        if len < HEADER_BYTES || len > control.len() {
            return fail(abi::EINVAL);
        }
        f(Control {
            level: word(control, 8) as i32,
            kind: word(control, 12) as i32,
            data: &control[HEADER_BYTES..len],
        })?;
        control = &control[len.next_multiple_of(CONTROL_ALIGN).min(control.len())..];
    }
    Ok(())
}

/// The wait of a send or receive: none, or up to its socket's time limit, which begins with the call.
#[derive(Clone, Copy)]
pub struct Patience {
    none: bool,
    deadline_ns: Option<u64>,
}

impl Patience {
    /// Of a receive with `flags`.
    pub fn to_receive<H: Host>(k: &H, hold: &Hold<'_, H>, s: &Socket, flags: i32) -> Self {
        Self::of(k, hold, flags, || s.options.receive_deadline(k))
    }

    /// Of a send with `flags`.
    pub fn to_send<H: Host>(k: &H, hold: &Hold<'_, H>, s: &Socket, flags: i32) -> Self {
        Self::of(k, hold, flags, || s.options.send_deadline(k))
    }

    fn of<H: Host>(
        k: &H,
        hold: &Hold<'_, H>,
        flags: i32,
        limit: impl FnOnce() -> Option<u64>,
    ) -> Self {
        let none = flags & abi::MSG_DONTWAIT != 0 || hold.file(k).nonblocking();
        Self { none, deadline_ns: if none { None } else { limit() } }
    }

    /// Whether it waits at all.
    pub fn may_wait(&self) -> bool {
        !self.none
    }

    /// Blocks until the socket may be ready for `events`; fails as [`wait`] does, with `EAGAIN` at once when it must not wait.
    pub fn wait<H: Host>(&self, k: &H, hold: &Hold<'_, H>, events: u32) -> Result<()> {
        if self.none {
            return fail(abi::EAGAIN);
        }
        wait(k, hold.0, events, false, self.deadline_ns)
    }

    /// The same until it is woken at `key`.
    pub fn wait_at<H: Host>(&self, k: &H, key: Key) -> Result<()> {
        if self.none {
            return fail(abi::EAGAIN);
        }
        wait_at(k, key, self.deadline_ns)
    }
}

/// Operations of a kind of socket.
enum Way {
    Stream,
    UnixStream,
    UnixMessages,
    Datagram,
    Netlink,
}

fn way(s: &Socket) -> Way {
    match (s.family.get(), s.is_stream()) {
        (abi::AF_NETLINK, _) => Way::Netlink,
        (abi::AF_UNIX, true) => Way::UnixStream,
        (abi::AF_UNIX, false) => Way::UnixMessages,
        (_, true) => Way::Stream,
        (_, false) => Way::Datagram,
    }
}

/// Receives.
pub fn receive<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    // As in Linux UDP knows no such flag.
    if incoming.flags & abi::MSG_OOB != 0 && !matches!(way(s), Way::Datagram) {
        // As in Linux when no urgent data came, which is never sent here.
        k.refused(format_args!("recv with MSG_OOB"));
        return fail(if s.is_stream() { abi::EINVAL } else { abi::EOPNOTSUPP });
    }
    if incoming.flags & abi::MSG_ERRQUEUE != 0 {
        return fail(abi::EAGAIN);
    }
    match way(k.net.sockets.get(socket)) {
        Way::Stream | Way::UnixStream => stream::receive(k, hold, socket, buffers, incoming),
        Way::UnixMessages => unix::packet::receive(k, hold, socket, buffers, incoming),
        Way::Datagram => datagram::receive(k, hold, socket, buffers, incoming),
        Way::Netlink => netlink::receive(k, hold, socket, buffers, incoming),
    }
}

/// Sends.
pub fn send<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
) -> Result<usize> {
    if outgoing.flags & abi::MSG_OOB != 0 {
        k.refused(format_args!("send with MSG_OOB"));
        return fail(abi::EOPNOTSUPP);
    }
    match way(k.net.sockets.get(socket)) {
        Way::Stream => {
            stream::check(k, socket, outgoing)?;
            stream::send(k, hold, socket, buffers, outgoing.flags)
        }
        Way::UnixStream => unix::stream::send(k, hold, socket, buffers, outgoing),
        Way::UnixMessages => unix::packet::send(k, hold, socket, buffers, outgoing),
        Way::Datagram => datagram::send(k, hold, socket, buffers, outgoing),
        Way::Netlink => netlink::send(k, socket, buffers, outgoing),
    }
}
