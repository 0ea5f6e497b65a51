//! The network interfaces that the server sees, the same on every replica: the loopback interface, and the one that it was given, if any
//! (`--interface`).
//!
//! `ioctl` on any socket tells about it, as do `getifaddrs` and `if_nameindex`, which libc would ask the kernel for by a netlink socket. What
//! changes an interface is refused.

use super::datagram::{GIVEN_INDEX, LOOPBACK_INDEX};
use crate::fatal;
use crate::io::fail;
use crate::kernel::kernel;
use crate::sys::Result;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use libc::{AF_INET, AF_INET6, ifaddrs, ifconf, ifreq, in6_addr, sockaddr_in, sockaddr_in6};

/// An interface.
#[derive(Clone, Copy)]
pub struct Face {
    /// Its name.
    pub name: &'static CStr,
    index: u32,
    address: [u8; 4],
    mask: [u8; 4],
    /// What `getifaddrs` has beside its address.
    beside: [u8; 4],
    broadcast: [u8; 4],
    flags: c_int,
    mtu_bytes: c_int,
    /// Its kind, and its address there.
    hardware: (u16, [u8; 6]),
}

const LOOPBACK: Face = Face {
    name: c"lo",
    index: LOOPBACK_INDEX,
    address: [127, 0, 0, 1],
    mask: [255, 0, 0, 0],
    beside: [127, 0, 0, 1],
    broadcast: [0; 4],
    flags: libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING,
    mtu_bytes: 65_536,
    hardware: (libc::ARPHRD_LOOPBACK, [0; 6]),
};
const QUEUE_LEN: c_int = 1000;
/// At most so many.
const MOST: usize = 2;

/// The interface that the server was given.
fn given() -> Option<Face> {
    let given = kernel().interface.get();
    let [a, b, c, d] = given.address;
    (!given.is_none()).then(|| Face {
        name: c"eth0",
        index: GIVEN_INDEX,
        address: given.address,
        mask: given.mask(),
        beside: given.broadcast(),
        broadcast: given.broadcast(),
        flags: libc::IFF_UP | libc::IFF_BROADCAST | libc::IFF_RUNNING | libc::IFF_MULTICAST,
        mtu_bytes: 1500,
        // An address of nobody's making: the bit for that is set.
        hardware: (libc::ARPHRD_ETHER, [2, 0, a, b, c, d]),
    })
}

/// All of them, in the order of their numbers.
pub fn all() -> impl Iterator<Item = Face> {
    [Some(LOOPBACK), given()].into_iter().flatten()
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
/// `arg` is what the request wants.
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

/// What `getifaddrs` and `if_nameindex` give out. It is never freed; a server that changes it changes its own copy of this.
#[repr(C)]
struct Listed {
    /// An entry for each address of IPv4, then the one of IPv6.
    entries: [ifaddrs; MOST + 1],
    /// Address, mask and what stands beside them.
    v4: [[sockaddr_in; 3]; MOST],
    v6: [sockaddr_in6; 2],
    /// The last one ends the list.
    indices: [libc::if_nameindex; MOST + 1],
    names: [[c_char; 8]; MOST],
}

struct Place(UnsafeCell<core::mem::MaybeUninit<Listed>>);
// SAFETY: only the turn's holder writes it, always the same; the server reads it.
unsafe impl Sync for Place {}
static LISTED: Place = Place(UnsafeCell::new(core::mem::MaybeUninit::zeroed()));

fn listed() -> *mut Listed {
    let at = LISTED.0.get().cast::<Listed>();
    let v6 = |ip: [u8; 16]| sockaddr_in6 {
        sin6_family: AF_INET6 as u16,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: in6_addr { s6_addr: ip },
        sin6_scope_id: 0,
    };
    let mut own = [0; 16];
    own[15] = 1;
    // SAFETY: the static's memory, which has room for all; pointers are into it.
    unsafe {
        let names = (&raw mut (*at).names).cast::<[c_char; 8]>();
        let v4 = (&raw mut (*at).v4).cast::<[sockaddr_in; 3]>();
        let entries = (&raw mut (*at).entries).cast::<ifaddrs>();
        let indices = (&raw mut (*at).indices).cast::<libc::if_nameindex>();
        let mut n = 0;
        for face in all() {
            let mut name = [0; 8];
            for (to, from) in name.iter_mut().zip(face.name.to_bytes()) {
                *to = *from as c_char;
            }
            names.add(n).write(name);
            let name = names.add(n).cast::<c_char>();
            v4.add(n).write([face.address, face.mask, face.beside].map(internet));
            let address = v4.add(n).cast::<sockaddr_in>();
            entries.add(n).write(ifaddrs {
                ifa_next: entries.add(n + 1),
                ifa_name: name,
                ifa_flags: face.flags as u32,
                ifa_addr: address.cast(),
                ifa_netmask: address.add(1).cast(),
                ifa_ifu: address.add(2).cast(),
                ifa_data: core::ptr::null_mut(),
            });
            indices.add(n).write(libc::if_nameindex { if_index: face.index, if_name: name });
            n += 1;
        }
        indices.add(n).write(libc::if_nameindex { if_index: 0, if_name: core::ptr::null_mut() });
        (&raw mut (*at).v6).write([v6(own), v6([0xff; 16])]);
        let address = (&raw mut (*at).v6).cast::<sockaddr_in6>();
        entries.add(n).write(ifaddrs {
            ifa_next: core::ptr::null_mut(),
            ifa_name: names.cast(),
            ifa_flags: LOOPBACK.flags as u32,
            ifa_addr: address.cast(),
            ifa_netmask: address.add(1).cast(),
            ifa_ifu: core::ptr::null_mut(),
            ifa_data: core::ptr::null_mut(),
        });
    }
    at
}

/// What `getifaddrs` gives.
pub fn addresses() -> *mut ifaddrs {
    crate::uses::note(crate::uses::Use::Interfaces);
    // SAFETY: just written.
    unsafe { (&raw mut (*listed()).entries).cast() }
}

/// What `if_nameindex` gives.
pub fn indices() -> *mut libc::if_nameindex {
    crate::uses::note(crate::uses::Use::Interfaces);
    // SAFETY: just written.
    unsafe { (&raw mut (*listed()).indices).cast() }
}
