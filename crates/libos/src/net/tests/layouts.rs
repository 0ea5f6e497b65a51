//! Structures that the library reads and writes by the places of their bytes, beside libc's.

use super::*;
use crate::net::{address, ioctl};
use core::ffi::CStr;
use core::mem::{offset_of, zeroed};
use skein_model::{Interface, SockAddr};

#[test]
fn socket_addresses_are_libcs() {
    // SAFETY: all-zero is a valid address.
    let mut four: libc::sockaddr_in = unsafe { zeroed() };
    four.sin_family = libc::AF_INET as u16;
    four.sin_port = 0x1234u16.to_be();
    four.sin_addr.s_addr = u32::from_ne_bytes([10, 1, 2, 3]);
    let addr = SockAddr::v4([10, 1, 2, 3], 0x1234);
    assert_eq!(address::read(&bytes_of(&four), abi::AF_INET, 1), Ok(addr));
    let mut out = [0; address::MAX_BYTES];
    let n = address::encode(abi::AF_INET, addr, &mut out);
    assert_eq!(out[..n], bytes_of(&four));
    // SAFETY: as above.
    let mut six: libc::sockaddr_in6 = unsafe { zeroed() };
    six.sin6_family = libc::AF_INET6 as u16;
    six.sin6_port = 0x1234u16.to_be();
    six.sin6_addr.s6_addr = *b"0123456789abcdef";
    let addr = SockAddr::v6(*b"0123456789abcdef", 0x1234);
    assert_eq!(address::read(&bytes_of(&six), abi::AF_INET6, 1), Ok(addr));
    let mut out = [0; address::MAX_BYTES];
    let n = address::encode(abi::AF_INET6, addr, &mut out);
    assert_eq!(out[..n], bytes_of(&six));
    assert_eq!(address::read(&bytes_of(&six), abi::AF_INET, 99), err(99));
    assert_eq!(address::read(&bytes_of(&four)[..15], abi::AF_INET, 99), err(abi::EINVAL));
}

#[test]
fn names_of_unix_sockets_are_libcs() {
    let k = Fake::new(1);
    // SAFETY: all-zero is a valid address.
    let mut addr: libc::sockaddr_un = unsafe { zeroed() };
    addr.sun_family = libc::AF_UNIX as u16;
    addr.sun_path.fill(b'p' as libc::c_char);
    let fd = socket(&k, abi::AF_UNIX, abi::SOCK_DGRAM);
    assert_eq!(bind(&k, fd, &bytes_of(&addr)), Ok(0), "a path may fill the whole array");
    let path = &own_name(&k, fd)[offset_of!(libc::sockaddr_un, sun_path)..];
    assert_eq!(path, [vec![b'p'; addr.sun_path.len()], vec![0]].concat());
}

#[test]
fn control_messages_are_libcs() {
    let k = Fake::new(1);
    let fd = socket(&k, abi::AF_INET, abi::SOCK_DGRAM);
    bind(&k, fd, &v4(0)).unwrap();
    let on = 1i32.to_ne_bytes();
    set_option(&k, fd, (libc::IPPROTO_IP, libc::IP_PKTINFO), &on).unwrap();
    set_option(&k, fd, (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS), &on).unwrap();
    k.now_ns.set(3_000_000_005);
    send_to(&k, fd, b"x", &own_name(&k, fd)).unwrap();
    let mut got = receive(&k, fd, [9, 256], 0).unwrap();
    // SAFETY: all-zero is a valid header.
    let mut head: libc::msghdr = unsafe { zeroed() };
    head.msg_control = got.control.as_mut_ptr().cast();
    head.msg_controllen = got.control.len();
    // SAFETY: libc walks the bytes that the header names, and the data of both messages are as long as their types.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const head);
        assert_eq!(
            ((*first).cmsg_level, (*first).cmsg_type),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
        );
        assert_eq!((*first).cmsg_len, libc::CMSG_LEN(size_of::<libc::timespec>() as u32) as usize);
        let time = libc::CMSG_DATA(first).cast::<libc::timespec>().read_unaligned();
        assert_eq!((time.tv_sec, time.tv_nsec), (3, 5));
        let second = libc::CMSG_NXTHDR(&raw const head, first);
        assert_eq!(
            ((*second).cmsg_level, (*second).cmsg_type),
            (libc::IPPROTO_IP, libc::IP_PKTINFO)
        );
        assert_eq!(
            (*second).cmsg_len,
            libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as u32) as usize
        );
        let info = libc::CMSG_DATA(second).cast::<libc::in_pktinfo>().read_unaligned();
        assert_eq!(info.ipi_ifindex, 1);
        assert_eq!(info.ipi_addr.s_addr, u32::from_ne_bytes([127, 0, 0, 1]));
        assert_eq!(info.ipi_spec_dst.s_addr, info.ipi_addr.s_addr);
        assert!(libc::CMSG_NXTHDR(&raw const head, second).is_null());
    }
}

#[test]
fn requests_about_interfaces_are_libcs() {
    let k = Fake::new(1);
    k.net.interface.set(Interface { address: [10, 0, 0, 5], bits: 24 });
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"eth0") {
        *to = *from as libc::c_char;
    }
    let mut ask = |what: libc::Ioctl| {
        // SAFETY: a live request.
        unsafe { ioctl::ioctl(&k, what as usize, (&raw mut request) as usize) }.map(|_| request)
    };
    let internet =
        |addr: libc::sockaddr| addr.sa_data[2..6].iter().map(|b| *b as u8).collect::<Vec<_>>();
    // SAFETY: the union's part that each request is answered by.
    unsafe {
        assert_eq!(internet(ask(libc::SIOCGIFADDR).unwrap().ifr_ifru.ifru_addr), [10, 0, 0, 5]);
        assert_eq!(
            internet(ask(libc::SIOCGIFNETMASK).unwrap().ifr_ifru.ifru_netmask),
            [255, 255, 255, 0]
        );
        assert_eq!(
            internet(ask(libc::SIOCGIFBRDADDR).unwrap().ifr_ifru.ifru_broadaddr),
            [10, 0, 0, 255]
        );
        let flags = i32::from(ask(libc::SIOCGIFFLAGS).unwrap().ifr_ifru.ifru_flags);
        assert_eq!(flags & (libc::IFF_UP | libc::IFF_LOOPBACK), libc::IFF_UP);
        assert_eq!(ask(libc::SIOCGIFMTU).unwrap().ifr_ifru.ifru_mtu, 1500);
        assert_eq!(ask(libc::SIOCGIFINDEX).unwrap().ifr_ifru.ifru_ifindex, 2);
    }
    // All of them at once, and their number before.
    let mut all: [libc::ifreq; 3] = [request; 3];
    // SAFETY: all-zero is a valid list.
    let mut list: libc::ifconf = unsafe { zeroed() };
    let count = |list: &mut libc::ifconf| {
        // SAFETY: a live list, of as many requests as it says.
        unsafe { ioctl::ioctl(&k, libc::SIOCGIFCONF as usize, (&raw mut *list) as usize) }.unwrap();
        list.ifc_len as usize / size_of::<libc::ifreq>()
    };
    assert_eq!(count(&mut list), 2);
    list.ifc_len = size_of_val(&all) as i32;
    list.ifc_ifcu.ifcu_req = all.as_mut_ptr();
    assert_eq!(count(&mut list), 2);
    // SAFETY: names end with a zero.
    let named = all.map(|one| unsafe { CStr::from_ptr(one.ifr_name.as_ptr()) }.to_bytes().to_vec());
    assert_eq!(named[..2], [b"lo".to_vec(), b"eth0".to_vec()]);
}

#[test]
fn memberships_are_libcs() {
    let k = Fake::new(1);
    k.net.interface.set(Interface { address: [10, 0, 0, 5], bits: 24 });
    let group = u32::from_ne_bytes([239, 1, 2, 3]);
    // SAFETY: all-zero is a valid request.
    let mut join: libc::ip_mreqn = unsafe { zeroed() };
    join.imr_multiaddr.s_addr = group;
    for (index, answer) in [(2, Ok(0)), (9, err(abi::ENODEV))] {
        let fd = socket(&k, abi::AF_INET, abi::SOCK_DGRAM);
        join.imr_ifindex = index;
        let option = (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP);
        assert_eq!(set_option(&k, fd, option, &bytes_of(&join)), answer);
        // The older request names an address instead.
        let fd = socket(&k, abi::AF_INET, abi::SOCK_DGRAM);
        let address = u32::from_ne_bytes([10, 0, 0, if index == 2 { 5 } else { 6 }]);
        let older = libc::ip_mreq {
            imr_multiaddr: libc::in_addr { s_addr: group },
            imr_interface: libc::in_addr { s_addr: address },
        };
        assert_eq!(set_option(&k, fd, option, &bytes_of(&older)), answer);
    }
}

/// Linux's numbers of two states (`include/net/tcp_states.h`).
const TCP_CLOSE: u8 = 7;
const TCP_LISTEN: u8 = 10;

#[test]
fn the_state_of_a_connection_is_where_libc_has_it() {
    let k = Fake::new(1);
    let fd = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    let state = |k: &Fake<'_>| {
        let info = option(k, fd, (libc::IPPROTO_TCP, libc::TCP_INFO)).unwrap();
        assert!(info.len() >= size_of::<libc::tcp_info>());
        info[offset_of!(libc::tcp_info, tcpi_state)]
    };
    assert_eq!(state(&k), TCP_CLOSE);
    listen(&k, fd, 1).unwrap();
    assert_eq!(state(&k), TCP_LISTEN);
}

#[test]
fn options_with_structures_are_libcs() {
    let k = Fake::new(1);
    let fd = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    let linger = libc::linger { l_onoff: 1, l_linger: 42 };
    let time = libc::timeval { tv_sec: 3, tv_usec: 250_000 };
    for (name, value) in
        [(libc::SO_LINGER, bytes_of(&linger)), (libc::SO_RCVTIMEO, bytes_of(&time))]
    {
        assert_eq!(set_option(&k, fd, (libc::SOL_SOCKET, name), &value), Ok(0));
        assert_eq!(option(&k, fd, (libc::SOL_SOCKET, name)), Ok(value));
    }
}
