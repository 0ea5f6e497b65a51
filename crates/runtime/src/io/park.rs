//! Files of the kernel on their way from one process of the server to another.
//!
//! One real socket pair, whose ends all processes of the server have at the same numbers, holds them: each is a packet of a ticket's number
//! with the descriptor beside it. A process that wants one takes packets out at one end and puts the others back at the other;
//! no other process does so meanwhile, because only one thread of the server runs. Usually there is one packet.
//!
//! The order of the packets decides nothing: a ticket is found wherever it is.

use crate::fatal::refuse;
use crate::io::table;
use crate::kernel::Kernel;
use crate::sys;
use libc::{cmsghdr, msghdr};
use skein_libos::abi::iovec;
use skein_libos::errno::{Errno, Result, fail};

/// The most files that wait at one time: as many as surely fit into the socket's buffer.
const MAX_PARKED: u32 = 128;

/// A packet: a ticket and one descriptor.
#[repr(C)]
struct Packet {
    ticket: u64,
    part: iovec,
    control: Control,
    header: msghdr,
}

#[repr(C)]
struct Control {
    header: cmsghdr,
    fd: i32,
    _pad: u32,
}

const CONTROL_LEN: usize = size_of::<cmsghdr>() + size_of::<i32>();

impl Packet {
    const fn new(ticket: u64, fd: i32) -> Self {
        // SAFETY: all-zero bytes are valid headers.
        let (mut beside, mut header): (cmsghdr, msghdr) = unsafe { core::mem::zeroed() };
        beside.cmsg_len = CONTROL_LEN as _;
        beside.cmsg_level = libc::SOL_SOCKET;
        beside.cmsg_type = libc::SCM_RIGHTS;
        header.msg_iovlen = 1;
        Self {
            ticket,
            part: iovec { iov_base: core::ptr::null_mut(), iov_len: size_of::<u64>() },
            control: Control { header: beside, fd, _pad: 0 },
            header,
        }
    }

    /// The message header, pointing to where this packet is now.
    fn aim(&mut self) -> *mut msghdr {
        self.part.iov_base = (&raw mut self.ticket).cast();
        self.header.msg_iov = (&raw mut self.part).cast();
        self.header.msg_control = (&raw mut self.control).cast();
        self.header.msg_controllen = CONTROL_LEN as _;
        &raw mut self.header
    }
}

/// Makes the parking place, at the start of the server; a program that one of its processes executes has it already.
pub fn open() {
    // SAFETY: no memory is involved.
    let there = unsafe {
        sys::call(libc::SYS_fcntl, sys::args([table::PARK_IN_FD as usize, libc::F_GETFD as usize]))
    };
    if there.is_ok() {
        return;
    }
    let mut ends = [0i32; 2];
    let args = sys::args([
        libc::AF_UNIX as usize,
        (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize,
        0,
        ends.as_mut_ptr() as usize,
    ]);
    // SAFETY: a local array.
    if unsafe { sys::call(libc::SYS_socketpair, args) }.is_err() {
        refuse!("no socket pair can be made for descriptors on their way");
    }
    for (end, place) in ends.into_iter().zip([table::PARK_IN_FD, table::PARK_OUT_FD]) {
        let args = sys::args([end as usize, place as usize, 0]);
        // SAFETY: no memory is involved.
        if unsafe { sys::call(libc::SYS_dup3, args) }.is_err() {
            refuse!("descriptor {place} is not free: raise the limit of open files above {place}");
        }
        let _ = sys::close(end);
    }
}

/// Parks a file; answers the ticket for it. The caller's descriptor stays its own.
pub fn park(k: &Kernel, fd: i32) -> Result<u64> {
    if !table::is_open(fd) {
        return fail(libc::EBADF);
    }
    let p = &k.park;
    if p.parked.get() == MAX_PARKED {
        return fail(libc::ETOOMANYREFS);
    }
    let ticket = p.last_ticket.get() + 1;
    put(ticket, fd);
    p.last_ticket.set(ticket);
    p.parked.set(p.parked.get() + 1);
    Ok(ticket)
}

/// Parks a file under the ticket that it had in the server that an image is of.
pub fn put(ticket: u64, fd: i32) {
    let mut packet = Packet::new(ticket, fd);
    let args = sys::args([
        table::PARK_IN_FD as usize,
        packet.aim() as usize,
        (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize,
    ]);
    // SAFETY: the header points into the local packet.
    if let Err(Errno(errno)) = unsafe { sys::call(libc::SYS_sendmsg, args) } {
        refuse!("a descriptor cannot be passed on: sendmsg: errno {errno}");
    }
}

/// Looks at the next packet, or takes it out: its ticket and, when asked for, its descriptor.
fn next(flags: i32, with_fd: bool) -> (u64, i32) {
    let mut packet = Packet::new(0, -1);
    let at = packet.aim();
    if !with_fd {
        // Without room for it the descriptor stays (a look) or is closed by the kernel.
        // SAFETY: the header is the local packet's.
        unsafe { (*at).msg_controllen = 0 };
    }
    let args = sys::args([
        table::PARK_OUT_FD as usize,
        at as usize,
        (flags | libc::MSG_DONTWAIT) as usize,
    ]);
    // SAFETY: the header points into the local packet.
    if let Err(Errno(errno)) = unsafe { sys::call(libc::SYS_recvmsg, args) } {
        refuse!("a descriptor on its way is lost: recvmsg: errno {errno}");
    }
    // SAFETY: still the local packet.
    if with_fd && unsafe { (*at).msg_flags } & libc::MSG_CTRUNC != 0 {
        refuse!("a descriptor on its way cannot be received: the limit of open files is reached");
    }
    (packet.ticket, packet.control.fd)
}

/// Moves the packets in front of a ticket's behind it.
fn bring_forward(k: &Kernel, ticket: u64) {
    for _ in 0..k.park.parked.get() {
        if next(libc::MSG_PEEK, false).0 == ticket {
            return;
        }
        let (other, fd) = next(libc::MSG_CMSG_CLOEXEC, true);
        put(other, fd);
        let _ = sys::close(fd);
    }
    refuse!("a descriptor on its way (ticket {ticket}) was not found")
}

/// Takes a parked file out: its new descriptor, the lowest free one. `EMFILE` when there is none; the file stays parked.
pub fn take(k: &Kernel, ticket: u64, cloexec: bool) -> Result<i32> {
    table::check_free()?;
    bring_forward(k, ticket);
    k.park.parked.set(k.park.parked.get() - 1);
    Ok(next(if cloexec { libc::MSG_CMSG_CLOEXEC } else { 0 }, true).1)
}

/// A descriptor of a parked file, which stays parked.
pub fn look(k: &Kernel, ticket: u64) -> Result<i32> {
    let fd = take(k, ticket, true)?;
    put(ticket, fd);
    k.park.parked.set(k.park.parked.get() + 1);
    Ok(fd)
}

/// A second ticket for the file of one; the first stays.
pub fn duplicate(k: &Kernel, ticket: u64) -> Result<u64> {
    if k.park.parked.get() == MAX_PARKED {
        return fail(libc::ETOOMANYREFS);
    }
    let fd = look(k, ticket)?;
    let second = park(k, fd);
    let _ = sys::close(fd);
    second
}

/// Closes a parked file.
pub fn discard(k: &Kernel, ticket: u64) {
    bring_forward(k, ticket);
    k.park.parked.set(k.park.parked.get() - 1);
    next(0, false);
}
