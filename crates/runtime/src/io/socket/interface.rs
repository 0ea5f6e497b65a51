//! The network interfaces that the server sees, the same on every replica: the loopback interface, and the configured one, if any
//! (`--interface`).
//!
//! `ioctl` on any socket reports them, as do [netlink](super::netlink) sockets, which libc's `getifaddrs` and `if_nameindex` use. Changes of an
//! interface are refused.

use crate::fatal;
use crate::kernel::kernel;
use core::ffi::{CStr, c_char, c_int};
use libc::{AF_INET, ifconf, ifreq, sockaddr_in};
use skein_libos::errno::{Result, fail};
use skein_libos::net::interface::{Face, Interfaces, QUEUE_LEN};

/// All of them, in the order of their numbers.
pub fn all() -> impl Iterator<Item = Face> {
    Interfaces::of(kernel().interface.get()).all()
}

/// Requests that libc does not name for this target, or names with another type.
const SIOCATMARK: usize = 0x8905;
const SIOCGIFNAME: usize = 0x8910;
const SIOCGIFCONF: usize = 0x8912;
const SIOCGIFFLAGS: usize = 0x8913;
const SIOCGIFADDR: usize = 0x8915;
const SIOCGIFDSTADDR: usize = 0x8917;
const SIOCGIFBRDADDR: usize = 0x8919;
const SIOCGIFNETMASK: usize = 0x891b;
const SIOCGIFMETRIC: usize = 0x891d;
const SIOCGIFMTU: usize = 0x8921;
const SIOCGIFHWADDR: usize = 0x8927;
const SIOCGIFINDEX: usize = 0x8933;
const SIOCGIFTXQLEN: usize = 0x8942;

const fn internet(ip: [u8; 4]) -> sockaddr_in {
    sockaddr_in {
        sin_family: AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip) },
        sin_zero: [0; 8],
    }
}

/// An `ioctl` about interfaces on a socket.
///
/// # Safety
/// `arg` is the request's argument.
pub unsafe fn ioctl(request: usize, arg: usize) -> Result<usize> {
    if request == SIOCGIFCONF {
        crate::uses::note(crate::uses::Use::Interfaces);
        // SAFETY: the caller's contract.
        return unsafe { list(arg as *mut ifconf) };
    }
    let known = matches!(
        request,
        SIOCGIFNAME
            | SIOCGIFFLAGS
            | SIOCGIFADDR
            | SIOCGIFDSTADDR
            | SIOCGIFBRDADDR
            | SIOCGIFNETMASK
            | SIOCGIFMETRIC
            | SIOCGIFMTU
            | SIOCGIFHWADDR
            | SIOCGIFINDEX
            | SIOCGIFTXQLEN
    );
    if !known {
        let what = if request == SIOCATMARK { " (SIOCATMARK)" } else { "" };
        fatal::refused(fatal::line!("ioctl {request:#x}{what} on a socket").bytes());
        return fail(libc::ENOTTY);
    }
    // SAFETY: the caller's contract.
    let asked = unsafe { &mut *(arg as *mut ifreq) };
    if request == SIOCGIFNAME {
        // SAFETY: the request has a number there.
        let number = unsafe { asked.ifr_ifru.ifru_ifindex };
        let Some(face) = all().find(|face| face.index as c_int == number) else {
            return fail(libc::ENODEV);
        };
        put_name(asked, face.name);
        return Ok(0);
    }
    let mut name = [0u8; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(asked.ifr_name) {
        *to = from as u8;
    }
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    let Some(face) = all().find(|face| face.name.to_bytes() == name) else {
        return fail(libc::ENODEV);
    };
    // SAFETY: all-zero bytes are valid; an address is as long as any.
    let mut answer: libc::__c_anonymous_ifr_ifru = unsafe { core::mem::zeroed() };
    match request {
        SIOCGIFFLAGS => answer.ifru_flags = face.flags as i16,
        SIOCGIFADDR | SIOCGIFDSTADDR => answer.ifru_addr = generic(internet(face.address)),
        SIOCGIFBRDADDR => answer.ifru_addr = generic(internet(face.broadcast)),
        SIOCGIFNETMASK => answer.ifru_addr = generic(internet(face.mask)),
        SIOCGIFMTU => answer.ifru_mtu = face.mtu_bytes,
        SIOCGIFHWADDR => {
            let (sa_family, address) = face.hardware;
            let mut sa_data = [0; 14];
            for (to, from) in sa_data.iter_mut().zip(address) {
                *to = from as c_char;
            }
            answer.ifru_addr = libc::sockaddr { sa_family, sa_data };
        }
        SIOCGIFINDEX => answer.ifru_ifindex = face.index as c_int,
        SIOCGIFTXQLEN => answer.ifru_ifindex = QUEUE_LEN,
        // The metric is 0.
        _ => {}
    }
    asked.ifr_ifru = answer;
    Ok(0)
}

fn generic(address: sockaddr_in) -> libc::sockaddr {
    // SAFETY: both are 16 bytes.
    unsafe { core::mem::transmute::<sockaddr_in, libc::sockaddr>(address) }
}

fn put_name(to: &mut ifreq, name: &CStr) {
    to.ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in to.ifr_name.iter_mut().zip(name.to_bytes()) {
        *to = *from as c_char;
    }
}

/// Without a buffer, how long it had to be.
unsafe fn list(conf: *mut ifconf) -> Result<usize> {
    // SAFETY: the caller's contract.
    let conf = unsafe { &mut *conf };
    let one = size_of::<ifreq>() as c_int;
    // SAFETY: the request has a pointer there.
    let buffer = unsafe { conf.ifc_ifcu.ifcu_req };
    if buffer.is_null() {
        conf.ifc_len = one * all().count() as c_int;
        return Ok(0);
    }
    let mut len = 0;
    for face in all() {
        if len + one > conf.ifc_len {
            break;
        }
        // SAFETY: all-zero bytes are valid; there is room for one more, by the length.
        unsafe {
            let mut entry: ifreq = core::mem::zeroed();
            put_name(&mut entry, face.name);
            entry.ifr_ifru.ifru_addr = generic(internet(face.address));
            buffer.byte_add(len as usize).write_unaligned(entry);
        }
        len += one;
    }
    conf.ifc_len = len;
    Ok(0)
}
