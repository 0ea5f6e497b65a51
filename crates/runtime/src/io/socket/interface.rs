//! The network interfaces that the server sees: the loopback interface alone, the same on every replica.
//!
//! `ioctl` on any socket tells about it, as do `getifaddrs` and `if_nameindex`, which libc would ask the kernel for by a netlink socket. What
//! changes an interface is refused.

use super::datagram::LOOPBACK_INDEX;
use crate::fatal;
use crate::io::fail;
use crate::sys::Result;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use libc::{AF_INET, AF_INET6, ifaddrs, ifconf, ifreq, in6_addr, sockaddr_in, sockaddr_in6};

const NAME: &CStr = c"lo";
const ADDRESS: [u8; 4] = [127, 0, 0, 1];
const MASK: [u8; 4] = [255, 0, 0, 0];
const FLAGS: c_int = libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING;
const MTU_BYTES: c_int = 65_536;
const QUEUE_LEN: c_int = 1000;

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
        if unsafe { asked.ifr_ifru.ifru_ifindex } != LOOPBACK_INDEX as c_int {
            return fail(libc::ENODEV);
        }
        put_name(asked);
        return Ok(0);
    }
    let mut name = [0u8; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(asked.ifr_name) {
        *to = from as u8;
    }
    if name.split(|b| *b == 0).next() != Some(NAME.to_bytes()) {
        return fail(libc::ENODEV);
    }
    // SAFETY: all-zero bytes are valid; an address is as long as any.
    let mut answer: libc::__c_anonymous_ifr_ifru = unsafe { core::mem::zeroed() };
    match request {
        SIOCGIFFLAGS => answer.ifru_flags = FLAGS as i16,
        SIOCGIFADDR | SIOCGIFDSTADDR => answer.ifru_addr = generic(internet(ADDRESS)),
        SIOCGIFBRDADDR => answer.ifru_addr = generic(internet([0; 4])),
        SIOCGIFNETMASK => answer.ifru_addr = generic(internet(MASK)),
        SIOCGIFMTU => answer.ifru_mtu = MTU_BYTES,
        SIOCGIFHWADDR => {
            answer.ifru_addr =
                libc::sockaddr { sa_family: libc::ARPHRD_LOOPBACK, sa_data: [0; 14] };
        }
        SIOCGIFINDEX => answer.ifru_ifindex = LOOPBACK_INDEX as c_int,
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

fn put_name(to: &mut ifreq) {
    to.ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in to.ifr_name.iter_mut().zip(NAME.to_bytes()) {
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
        conf.ifc_len = one;
        return Ok(0);
    }
    if conf.ifc_len < one {
        conf.ifc_len = 0;
        return Ok(0);
    }
    // SAFETY: all-zero bytes are valid; there is room for one, by the length.
    unsafe {
        let mut entry: ifreq = core::mem::zeroed();
        put_name(&mut entry);
        entry.ifr_ifru.ifru_addr = generic(internet(ADDRESS));
        buffer.write_unaligned(entry);
    }
    conf.ifc_len = one;
    Ok(0)
}

/// What `getifaddrs` and `if_nameindex` give out. It is never freed; a server that changes it changes its own copy of this.
#[repr(C)]
struct Listed {
    entries: [ifaddrs; 2],
    v4: [sockaddr_in; 3],
    v6: [sockaddr_in6; 2],
    indices: [libc::if_nameindex; 2],
    name: [c_char; 4],
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
    // SAFETY: the static's memory, which has room for it; pointers are into it.
    unsafe {
        (&raw mut (*at).name).write([b'l' as c_char, b'o' as c_char, 0, 0]);
        let name = (&raw mut (*at).name).cast::<c_char>();
        (&raw mut (*at).v4).write([ADDRESS, MASK, ADDRESS].map(internet));
        (&raw mut (*at).v6).write([v6(own), v6([0xff; 16])]);
        let v4_at = (&raw mut (*at).v4).cast::<sockaddr_in>();
        let v6_at = (&raw mut (*at).v6).cast::<sockaddr_in6>();
        let entries = (&raw mut (*at).entries).cast::<ifaddrs>();
        entries.write(ifaddrs {
            ifa_next: entries.add(1),
            ifa_name: name,
            ifa_flags: FLAGS as u32,
            ifa_addr: v4_at.cast(),
            ifa_netmask: v4_at.add(1).cast(),
            ifa_ifu: v4_at.add(2).cast(),
            ifa_data: core::ptr::null_mut(),
        });
        entries.add(1).write(ifaddrs {
            ifa_next: core::ptr::null_mut(),
            ifa_name: name,
            ifa_flags: FLAGS as u32,
            ifa_addr: v6_at.cast(),
            ifa_netmask: v6_at.add(1).cast(),
            ifa_ifu: core::ptr::null_mut(),
            ifa_data: core::ptr::null_mut(),
        });
        let indices = (&raw mut (*at).indices).cast::<libc::if_nameindex>();
        indices.write(libc::if_nameindex { if_index: LOOPBACK_INDEX, if_name: name });
        indices.add(1).write(libc::if_nameindex { if_index: 0, if_name: core::ptr::null_mut() });
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
