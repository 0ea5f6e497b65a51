//! UDP between sockets of the server, and netlink.

use super::*;
use crate::file::{epoll, ready};
use crate::time::Timeout;

/// A bound socket and its address.
fn bound(k: &Fake<'_>) -> (i32, Vec<u8>) {
    let fd = socket(k, abi::AF_INET, abi::SOCK_DGRAM);
    bind(k, fd, &v4(0)).unwrap();
    let addr = own_name(k, fd);
    (fd, addr)
}

#[test]
fn messages_keep_their_bounds_and_senders() {
    let k = Fake::new(1);
    let ((a, from), (b, to)) = (bound(&k), bound(&k));
    for message in [&b"one"[..], b"", b"three"] {
        assert_eq!(send_to(&k, a, message, &to), Ok(message.len()));
    }
    assert_eq!(mask(&k, b), ready::IN | ready::OUT);
    let got = receive(&k, b, [9, 0], abi::MSG_PEEK).unwrap();
    assert_eq!((&got.bytes[..], got.from, got.flags), (&b"one"[..], from, 0));
    assert_eq!(recv(&k, b, 9), Ok(b"one".to_vec()));
    assert_eq!(recv(&k, b, 9), Ok(Vec::new()));
    let cut = receive(&k, b, [2, 0], 0).unwrap();
    assert_eq!((&cut.bytes[..], cut.flags), (&b"th"[..], abi::MSG_TRUNC));
    assert_eq!((recv(&k, b, 9), mask(&k, b)), (err(abi::EAGAIN), ready::OUT));
    send_to(&k, a, b"three", &to).unwrap();
    assert_eq!(receive(&k, b, [2, 0], abi::MSG_TRUNC).unwrap().answer, 5, "the whole length");
    k.close(a);
    k.close(b);
    assert_nothing_left(&k);
}

/// The descriptors that an epoll set reports, at most so many.
fn reported(k: &Fake<'_>, set: i32, most: usize) -> Vec<i32> {
    let mut out = vec![abi::epoll_event { events: 0, u64: 0 }; most];
    // SAFETY: room for as many events.
    let n = on(k, set, |hold| unsafe {
        epoll::wait(k, hold, out.as_mut_ptr(), most as i32, Timeout::Poll)
    });
    out[..n.unwrap()].iter().map(|event| event.u64 as i32).collect()
}

#[test]
fn what_comes_is_noted_by_a_set_that_watches_for_urgent_data() {
    let k = Fake::new(1);
    let set = epoll::create(&k, 0).unwrap() as i32;
    let ((a, to), (b, _)) = (bound(&k), bound(&k));
    for (fd, events) in [(a, abi::EPOLLPRI), (b, abi::EPOLLOUT)] {
        let event = Some((events as u32, fd as u64));
        on(&k, set, |hold| epoll::control(&k, hold, abi::EPOLL_CTL_ADD, fd, event)).unwrap();
    }
    send_to(&k, b, b"x", &to).unwrap();
    assert_eq!(reported(&k, set, 1), [b]);
    assert_eq!(shutdown(&k, a, abi::SHUT_RDWR), err(abi::ENOTCONN));
    assert_eq!(reported(&k, set, 8), [a, b], "it has been in the list since the datagram came");
}

#[test]
fn a_connected_socket_takes_messages_of_its_peer_alone() {
    let k = Fake::new(1);
    let ((a, from), (b, to), (c, _)) = (bound(&k), bound(&k), bound(&k));
    assert_eq!(send(&k, a, b"x"), err(abi::EDESTADDRREQ));
    assert_eq!(connect(&k, b, &from), Ok(0));
    assert_eq!(names(&k, b).1, Ok(from.clone()));
    assert_eq!(send(&k, b, b"to its peer"), Ok(11));
    assert_eq!(recv(&k, a, 20), Ok(b"to its peer".to_vec()));
    assert_eq!(send_to(&k, a, b"from its peer", &to), Ok(13));
    k.frames.take();
    assert_eq!(send_to(&k, c, b"from another", &to), Ok(12));
    assert_eq!(k.frames.take().len(), 1, "no socket of the server takes it");
    assert_eq!(recv(&k, b, 20), Ok(b"from its peer".to_vec()));
    assert_eq!(recv(&k, b, 20), err(abi::EAGAIN));
    let nowhere = [0u8; 16];
    assert_eq!(connect(&k, b, &nowhere), Ok(0));
    assert_eq!((names(&k, b).1, send(&k, b, b"x")), (err(abi::ENOTCONN), err(abi::EDESTADDRREQ)));
}

#[test]
fn a_send_takes_a_port_even_if_it_fails() {
    let k = Fake::new(1);
    for ask in [
        |k: &Fake<'_>, fd: i32| send(k, fd, b"x"),
        |k: &Fake<'_>, fd: i32| send_to(k, fd, b"x", &v4(0)),
        |k: &Fake<'_>, fd: i32| connect(k, fd, &v4(1)[..9]),
    ] {
        let fd = socket(&k, abi::AF_INET, abi::SOCK_DGRAM);
        assert_eq!(port_of(&own_name(&k, fd)), 0);
        assert!(ask(&k, fd).is_err());
        assert_ne!(port_of(&own_name(&k, fd)), 0);
        k.close(fd);
    }
    let fd = socket(&k, abi::AF_INET, abi::SOCK_DGRAM);
    let mut unix = v4(1);
    unix[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    assert_eq!(send_to(&k, fd, b"x", &unix), err(abi::EAFNOSUPPORT));
    let fd = socket(&k, abi::AF_INET6, abi::SOCK_DGRAM);
    assert_eq!(send_to(&k, fd, b"x", &unix), err(abi::EINVAL));
}

#[test]
fn a_shut_socket_still_receives() {
    let k = Fake::new(1);
    let ((a, from), (b, to)) = (bound(&k), bound(&k));
    assert_eq!(shutdown(&k, b, abi::SHUT_RD), err(abi::ENOTCONN));
    assert_eq!(send_to(&k, a, b"x", &to), Ok(1));
    assert_eq!(recv(&k, b, 9), Ok(b"x".to_vec()));
    connect(&k, b, &from).unwrap();
    assert_eq!(shutdown(&k, b, abi::SHUT_WR), Ok(0));
    assert_eq!(send(&k, b, b"x"), err(abi::EPIPE));
    assert_eq!(k.sigpipes.get(), 0, "no signal as for streams");
    assert_eq!(mask(&k, b) & ready::HUP, ready::HUP);
}

#[test]
fn a_disconnected_socket_keeps_what_bind_gave_it() {
    let k = Fake::new(1);
    let ((_, peer), nowhere) = (bound(&k), [0u8; 16]);
    let fd = socket(&k, abi::AF_INET, abi::SOCK_DGRAM);
    connect(&k, fd, &peer).unwrap();
    assert_eq!(own_name(&k, fd)[4..8], [127, 0, 0, 1]);
    connect(&k, fd, &nowhere).unwrap();
    assert_eq!(own_name(&k, fd)[2..8], [0; 6], "it was not bound");
    let (fd, before) = bound(&k);
    connect(&k, fd, &peer).unwrap();
    connect(&k, fd, &nowhere).unwrap();
    assert_eq!((port_of(&own_name(&k, fd)), &own_name(&k, fd)[4..8]), (0, &before[4..8]));
    assert_eq!(send(&k, fd, b"x"), err(abi::EDESTADDRREQ));
    assert_ne!(port_of(&own_name(&k, fd)), 0);
    assert_eq!(own_name(&k, fd)[4..8], before[4..8]);
}

/// A request for all of a kind (`nlmsghdr` and `rtgenmsg`).
fn dump(kind: u16) -> Vec<u8> {
    // SAFETY: all-zero is a valid header.
    let mut head: libc::nlmsghdr = unsafe { core::mem::zeroed() };
    head.nlmsg_len = 20;
    head.nlmsg_type = kind;
    head.nlmsg_flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    head.nlmsg_seq = 77;
    [bytes_of(&head), vec![0; 4]].concat()
}

#[test]
fn netlink_lists_the_links_and_ends() {
    let k = Fake::new(1);
    let fd =
        create::create(&k, abi::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).unwrap() as i32;
    assert_eq!(send(&k, fd, &dump(libc::RTM_GETLINK)), Ok(20));
    let (mut kinds, mut text) = (Vec::new(), Vec::new());
    while let Ok(bytes) = recv(&k, fd, 8192) {
        let mut at = 0;
        while at + 16 <= bytes.len() {
            let len = u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            kinds.push(u16::from_ne_bytes(bytes[at + 4..at + 6].try_into().unwrap()));
            assert_eq!(bytes[at + 8..at + 12], 77u32.to_ne_bytes(), "the request's number");
            text.extend_from_slice(&bytes[at..at + len]);
            at += len.next_multiple_of(4);
        }
    }
    assert_eq!(kinds, [libc::RTM_NEWLINK, libc::NLMSG_DONE as u16]);
    assert!(text.windows(3).any(|three| three == b"lo\0"));
    // Changes are refused: an error with its number.
    let mut change = dump(libc::RTM_NEWLINK);
    change[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    send(&k, fd, &change).unwrap();
    let refused = recv(&k, fd, 8192).unwrap();
    assert_eq!(refused[4..6], (libc::NLMSG_ERROR as u16).to_ne_bytes());
    assert_eq!(refused[16..20], (-abi::EPERM).to_ne_bytes());
}
