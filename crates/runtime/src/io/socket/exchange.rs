//! One send or receive: the data beside the bytes (flags, an address, control data), and the kind of socket that does it.

use super::unix::rights::Rights;
use super::{Socket, datagram, netlink, stream, unix};
use crate::fatal;
use crate::io::call::Hold;
use crate::kernel::Kernel;
use libc::{cmsghdr, msghdr, sockaddr, socklen_t};
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::Buffers;
use skein_libos::file::wait::{wait, wait_at};
use skein_libos::keys::Key;

/// The data beside the bytes of a send.
pub struct Outgoing<'a> {
    /// As `send` takes them.
    pub flags: i32,
    /// The destination; null when the caller does not name one.
    pub to: *const sockaddr,
    /// The address's length.
    pub to_len: socklen_t,
    /// Control messages.
    pub control: &'a [u8],
}

impl Outgoing<'_> {
    /// Bytes alone.
    pub const fn plain(flags: i32) -> Self {
        Self { flags, to: core::ptr::null(), to_len: 0, control: &[] }
    }

    /// Whether the caller names a destination.
    pub fn has_destination(&self) -> bool {
        !self.to.is_null() && self.to_len > 0
    }
}

/// The results of a receive besides bytes.
pub struct Incoming {
    /// As `recv` takes them.
    pub flags: i32,
    name: *mut u8,
    name_room: usize,
    /// Bytes of the sender's address, cut to the room; 0 when it has none.
    pub name_len: usize,
    control: *mut u8,
    control_room: usize,
    /// Bytes of control messages written.
    pub control_used: usize,
    /// `MSG_TRUNC`, `MSG_CTRUNC`
    pub out_flags: i32,
    /// Descriptors that were received.
    pub rights: Rights,
}

impl Incoming {
    /// Bytes alone.
    pub fn plain(flags: i32) -> Self {
        Self {
            flags,
            name: core::ptr::null_mut(),
            name_room: 0,
            name_len: 0,
            control: core::ptr::null_mut(),
            control_room: 0,
            control_used: 0,
            out_flags: 0,
            rights: Rights::default(),
        }
    }

    /// With the sender's address.
    ///
    /// # Safety
    /// `name` is null, or has room for `room` bytes.
    pub unsafe fn with_name(flags: i32, name: *mut sockaddr, room: socklen_t) -> Self {
        let name = name.cast::<u8>();
        let name_room = if name.is_null() { 0 } else { room as usize };
        Self { name, name_room, ..Self::plain(flags) }
    }

    /// With all that a message header has room for.
    ///
    /// # Safety
    /// `msg` is valid.
    pub unsafe fn from_header(flags: i32, msg: &msghdr) -> Self {
        let control = msg.msg_control.cast::<u8>();
        let control_room = if control.is_null() { 0 } else { msg.msg_controllen };
        // SAFETY: the caller's contract.
        let named = unsafe { Self::with_name(flags, msg.msg_name.cast(), msg.msg_namelen) };
        Self { control, control_room, ..named }
    }

    /// The sender's address.
    pub fn put_name(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.name_room);
        if n > 0 {
            // SAFETY: room for `name_room` bytes, by `with_name`.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.name, n) };
        }
        self.name_len = bytes.len();
    }

    /// Room for the data of one more control message.
    pub fn control_left(&self) -> usize {
        self.control_room.saturating_sub(self.control_used + HEADER_BYTES)
    }

    /// Adds a control message, cut if there is not room for all of it.
    pub fn put_control(&mut self, level: i32, kind: i32, data: &[u8]) {
        if self.control_room < self.control_used + HEADER_BYTES {
            self.out_flags |= libc::MSG_CTRUNC;
            return;
        }
        let n = data.len().min(self.control_left());
        if n < data.len() {
            self.out_flags |= libc::MSG_CTRUNC;
        }
        // SAFETY: all-zero is a valid header.
        let mut header: cmsghdr = unsafe { core::mem::zeroed() };
        header.cmsg_len = (HEADER_BYTES + n) as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: room for `control_room` bytes, by `from_header`; the lengths are checked above.
        unsafe {
            let at = self.control.add(self.control_used);
            at.cast::<cmsghdr>().write_unaligned(header);
            core::ptr::copy_nonoverlapping(data.as_ptr(), at.add(HEADER_BYTES), n);
        }
        let used = (HEADER_BYTES + n).next_multiple_of(CONTROL_ALIGN);
        self.control_used = (self.control_used + used).min(self.control_room);
    }
}

/// Bytes of a control message's header.
pub const HEADER_BYTES: usize = size_of::<cmsghdr>();
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
        // SAFETY: the length is checked; any bytes are a header.
        let header = unsafe { control.as_ptr().cast::<cmsghdr>().read_unaligned() };
        let len = header.cmsg_len;
        if len < HEADER_BYTES || len > control.len() {
            return fail(libc::EINVAL);
        }
        f(Control {
            level: header.cmsg_level,
            kind: header.cmsg_type,
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
    pub fn to_receive(k: &Kernel, hold: &Hold, s: &Socket, flags: i32) -> Self {
        Self::of(k, hold, flags, || s.options.receive_deadline())
    }

    /// Of a send with `flags`.
    pub fn to_send(k: &Kernel, hold: &Hold, s: &Socket, flags: i32) -> Self {
        Self::of(k, hold, flags, || s.options.send_deadline())
    }

    fn of(k: &Kernel, hold: &Hold, flags: i32, limit: impl FnOnce() -> Option<u64>) -> Self {
        let none = flags & libc::MSG_DONTWAIT != 0 || hold.file(k).nonblocking();
        Self { none, deadline_ns: if none { None } else { limit() } }
    }

    /// Whether it waits at all.
    pub fn may_wait(&self) -> bool {
        !self.none
    }

    /// Blocks until the socket may be ready for `events`; fails as [`wait`] does, with `EAGAIN` at once when it must not wait.
    pub fn wait(&self, k: &Kernel, hold: &Hold, events: u32) -> Result<()> {
        if self.none {
            return fail(libc::EAGAIN);
        }
        wait(k, hold.0, events, false, self.deadline_ns)
    }

    /// The same until it is woken at `key`.
    pub fn wait_at(&self, k: &Kernel, key: Key) -> Result<()> {
        if self.none {
            return fail(libc::EAGAIN);
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
        (libc::AF_NETLINK, _) => Way::Netlink,
        (libc::AF_UNIX, true) => Way::UnixStream,
        (libc::AF_UNIX, false) => Way::UnixMessages,
        (_, true) => Way::Stream,
        (_, false) => Way::Datagram,
    }
}

/// Receives.
pub fn receive(
    k: &Kernel,
    hold: &Hold,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming,
) -> Result<usize> {
    if incoming.flags & libc::MSG_OOB != 0 {
        // As in Linux when no urgent data came, which is never sent here.
        fatal::refused(b"recv with MSG_OOB");
        let s = k.io.sockets.get(socket);
        return fail(if s.is_stream() { libc::EINVAL } else { libc::EOPNOTSUPP });
    }
    if incoming.flags & libc::MSG_ERRQUEUE != 0 {
        return fail(libc::EAGAIN);
    }
    match way(k.io.sockets.get(socket)) {
        Way::Stream | Way::UnixStream => stream::receive(k, hold, socket, buffers, incoming),
        Way::UnixMessages => unix::packet::receive(k, hold, socket, buffers, incoming),
        Way::Datagram => datagram::receive(k, hold, socket, buffers, incoming),
        Way::Netlink => netlink::receive(k, hold, socket, buffers, incoming),
    }
}

/// Sends.
pub fn send(
    k: &Kernel,
    hold: &Hold,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
) -> Result<usize> {
    if outgoing.flags & libc::MSG_OOB != 0 {
        fatal::refused(b"send with MSG_OOB");
        return fail(libc::EOPNOTSUPP);
    }
    match way(k.io.sockets.get(socket)) {
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
