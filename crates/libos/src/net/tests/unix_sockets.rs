//! UNIX sockets of the three kinds, descriptors and credentials in their messages.

use super::*;
use crate::fake::{FIRST_TID, OTHER_FD, REAL_GROUP, REAL_USER};
use crate::file::{eventfd, ready};

fn pair(k: &Fake<'_>, kind: i32) -> [i32; 2] {
    create::pair(k, abi::AF_UNIX, kind, 0).unwrap()
}

/// A control message.
fn control(kind: i32, data: &[u8]) -> Vec<u8> {
    // SAFETY: all-zero is a valid header.
    let mut head: libc::cmsghdr = unsafe { core::mem::zeroed() };
    head.cmsg_len = size_of::<libc::cmsghdr>() + data.len();
    head.cmsg_level = libc::SOL_SOCKET;
    head.cmsg_type = kind;
    let mut bytes = [bytes_of(&head), data.to_vec()].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn rights(fds: &[i32]) -> Vec<u8> {
    control(libc::SCM_RIGHTS, &fds.iter().flat_map(|fd| fd.to_ne_bytes()).collect::<Vec<_>>())
}

fn send_beside(k: &Fake<'_>, fd: i32, bytes: &[u8], control: &[u8]) -> Result<usize> {
    send_all(k, fd, bytes, &Outgoing { flags: 0, to: &[], control })
}

/// The descriptors of a control message.
fn fds_of(control: &[u8]) -> Vec<i32> {
    assert_eq!(
        control[8..16],
        [libc::SOL_SOCKET.to_ne_bytes(), libc::SCM_RIGHTS.to_ne_bytes()].concat()
    );
    let len = usize::from_ne_bytes(control[..8].try_into().unwrap());
    control[16..len].chunks(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap())).collect()
}

#[test]
fn a_stream_ends_with_its_peer() {
    let k = Fake::new(1);
    let [a, b] = pair(&k, abi::SOCK_STREAM);
    assert_eq!((send(&k, a, b"ab"), send(&k, a, b"cd")), (Ok(2), Ok(2)));
    assert_eq!(recv(&k, b, 3), Ok(b"abc".to_vec()));
    k.close(a);
    assert_eq!(mask(&k, b), ready::IN | ready::OUT | ready::HUP | ready::RDHUP);
    assert_eq!(recv(&k, b, 3), Ok(b"d".to_vec()));
    assert_eq!(recv(&k, b, 3), Ok(Vec::new()));
    assert_eq!((send(&k, b, b"x"), k.sigpipes.get()), (err(abi::EPIPE), 1));
    k.close(b);
    // Unread bytes make the end an error.
    let [a, b] = pair(&k, abi::SOCK_STREAM);
    send(&k, b, b"unread").unwrap();
    k.close(a);
    assert_eq!((recv(&k, b, 1), recv(&k, b, 1)), (err(abi::ECONNRESET), Ok(Vec::new())));
    k.close(b);
    assert_nothing_left(&k);
}

#[test]
fn a_full_stream_takes_a_part() {
    let k = Fake::new(2);
    let [a, b] = pair(&k, abi::SOCK_STREAM);
    let long = vec![3; 300 << 10];
    let sent = try_send(&k, a, &long).unwrap();
    assert!(sent < long.len() && sent > 100 << 10, "{sent}");
    assert_eq!((try_send(&k, a, b"x"), mask(&k, a)), (err(abi::EAGAIN), 0));
    assert_eq!(recv(&k, b, sent / 2).map(|bytes| bytes.len()), Ok(sent / 2));
    assert_eq!(mask(&k, a), ready::OUT);
    // A blocking send goes on as the other end reads.
    k.then(2, move |k| assert_eq!(recv(k, b, 100 << 10).map(|bytes| bytes.len()), Ok(100 << 10)));
    assert_eq!(send(&k, a, &long[..200 << 10]), Ok(200 << 10));
    assert!(k.is_over());
}

#[test]
fn packets_keep_their_bounds_and_connections_their_names() {
    let k = Fake::new(1);
    let listener = socket(&k, abi::AF_UNIX, abi::SOCK_SEQPACKET);
    let name = abstract_name(b"service");
    let client = socket(&k, abi::AF_UNIX, abi::SOCK_SEQPACKET);
    assert_eq!(connect(&k, client, &name), err(abi::ECONNREFUSED));
    assert_eq!(listen(&k, listener, 1), err(abi::EINVAL), "without a name");
    assert_eq!(bind(&k, listener, &name), Ok(0));
    assert_eq!(connect(&k, client, &name), err(abi::ECONNREFUSED));
    listen(&k, listener, 1).unwrap();
    let stream = socket(&k, abi::AF_UNIX, abi::SOCK_STREAM);
    assert_eq!(
        connect(&k, stream, &name),
        err(abi::ECONNREFUSED),
        "another kind has its own names"
    );
    assert_eq!(bind(&k, stream, &name), Ok(0));
    assert_eq!(send(&k, client, b"x"), err(abi::ENOTCONN));
    assert_eq!(connect(&k, client, &name), Ok(0));
    let server = accept(&k, listener).unwrap();
    assert_eq!(names(&k, client).1, Ok(name.clone()));
    assert_eq!(names(&k, server), (name, Ok((libc::AF_UNIX as u16).to_ne_bytes().to_vec())));
    assert_eq!((send(&k, client, b"one"), send(&k, client, b"two")), (Ok(3), Ok(3)));
    let cut = receive(&k, server, [2, 0], 0).unwrap();
    assert_eq!((&cut.bytes[..], cut.flags), (&b"on"[..], abi::MSG_TRUNC));
    assert_eq!(recv(&k, server, 9), Ok(b"two".to_vec()));
    let cred = option(&k, server, (abi::SOL_SOCKET, libc::SO_PEERCRED)).unwrap();
    let ucred = libc::ucred { pid: FIRST_TID as i32, uid: 0, gid: 0 };
    assert_eq!(cred, bytes_of(&ucred));
    k.close(client);
    assert_eq!(recv(&k, server, 9), Ok(Vec::new()));
}

#[test]
fn datagrams_go_to_names_and_come_from_names() {
    let k = Fake::new(1);
    let [a, b, c] = [0; 3].map(|_| socket(&k, abi::AF_UNIX, abi::SOCK_DGRAM));
    let [of_a, of_b] = [b"a", b"b"].map(|name| abstract_name(name));
    bind(&k, a, &of_a).unwrap();
    bind(&k, b, &of_b).unwrap();
    assert_eq!(bind(&k, c, &of_b), err(abi::EADDRINUSE));
    assert_eq!(send_to(&k, a, b"hello", &of_b), Ok(5));
    let got = receive(&k, b, [9, 0], 0).unwrap();
    assert_eq!((&got.bytes[..], got.from), (&b"hello"[..], of_a.clone()));
    assert_eq!(send_to(&k, c, b"nameless", &of_b), Ok(8));
    assert_eq!(receive(&k, b, [9, 0], 0).unwrap().from, b"");
    // One that is connected hears its peer alone, and nobody when that is closed.
    connect(&k, b, &of_a).unwrap();
    assert_eq!(send_to(&k, c, b"x", &of_b), err(abi::EPERM));
    k.close(a);
    assert_eq!((names(&k, b).1, send_to(&k, c, b"x", &of_b)), (Ok(of_a.clone()), err(abi::EPERM)));
    assert_eq!(send(&k, b, b"x"), err(abi::ECONNREFUSED));
    assert_eq!(send_to(&k, c, b"x", &of_b), Ok(1));
    assert_eq!(send_to(&k, c, b"x", &of_a), err(abi::ECONNREFUSED));
    k.close(b);
    k.close(c);
    assert_nothing_left(&k);
}

#[test]
fn a_full_queue_makes_senders_wait() {
    let k = Fake::new(2);
    let [a, b] = [0; 2].map(|_| socket(&k, abi::AF_UNIX, abi::SOCK_DGRAM));
    let name = abstract_name(b"b");
    bind(&k, b, &name).unwrap();
    connect(&k, a, &name).unwrap();
    // Linux's `max_dgram_qlen`, and one.
    for _ in 0..11 {
        assert_eq!(try_send(&k, a, b"m"), Ok(1));
    }
    assert_eq!((try_send(&k, a, b"m"), mask(&k, a)), (err(abi::EAGAIN), 0));
    k.then(2, move |k| assert_eq!(recv(k, b, 1), Ok(b"m".to_vec())));
    assert_eq!(send(&k, a, b"m"), Ok(1));
    assert!(k.is_over());
}

#[test]
fn descriptors_travel_and_closed_ones_stay_open_on_their_way() {
    let k = Fake::new(1);
    for kind in [abi::SOCK_STREAM, abi::SOCK_DGRAM, abi::SOCK_SEQPACKET] {
        let [a, b] = pair(&k, kind);
        let given = eventfd::create(&k, 5, 0).unwrap() as i32;
        assert_eq!(send_beside(&k, a, b"x", &rights(&[given, OTHER_FD])), Ok(1));
        k.close(given);
        let got = receive(&k, b, [9, 64], 0).unwrap();
        let [event, other] = fds_of(&got.control)[..] else { panic!("two") };
        assert_eq!((got.flags, other), (0, OTHER_FD));
        assert!(k.file_of(event).is_some());
        k.close(event);
        // Without room they are closed.
        assert_eq!(send_beside(&k, a, b"x", &rights(&[a, b])), Ok(1));
        let cut = receive(&k, b, [9, 20], 0).unwrap();
        assert_eq!((cut.flags, fds_of(&cut.control).len()), (abi::MSG_CTRUNC, 1));
        k.close(fds_of(&cut.control)[0]);
        // So are those that nobody has received.
        send_beside(&k, a, b"x", &rights(&[a])).unwrap();
        assert_eq!(send_beside(&k, a, b"x", &rights(&[55])), err(abi::EBADF));
        k.close(b);
        k.close(a);
        assert_nothing_left(&k);
    }
}

#[test]
fn credentials_come_when_the_receiver_asks_for_them() {
    let k = Fake::new(1);
    let [a, b] = pair(&k, abi::SOCK_STREAM);
    let on = 1i32.to_ne_bytes();
    set_option(&k, b, (abi::SOL_SOCKET, libc::SO_PASSCRED), &on).unwrap();
    send(&k, a, b"x").unwrap();
    let got = receive(&k, b, [9, 64], 0).unwrap();
    let mine = libc::ucred { pid: FIRST_TID as i32, uid: REAL_USER, gid: REAL_GROUP };
    assert_eq!(got.control, control(libc::SCM_CREDENTIALS, &bytes_of(&mine)));
    // Only root may claim others.
    let claimed = libc::ucred { pid: 1, uid: 2, gid: 3 };
    let claim = control(libc::SCM_CREDENTIALS, &bytes_of(&claimed));
    assert_eq!(send_beside(&k, a, b"y", &claim), Ok(1));
    assert_eq!(receive(&k, b, [9, 64], 0).unwrap().control, claim);
    k.user.set([REAL_USER, REAL_GROUP]);
    assert_eq!(send_beside(&k, a, b"y", &claim), err(abi::EPERM));
    let too_long = [&200usize.to_ne_bytes()[..], &claim[8..]].concat();
    assert_eq!(send_beside(&k, a, b"y", &too_long), err(abi::EINVAL));
}

#[test]
fn a_path_is_a_file() {
    let k = Fake::new(1);
    let path = [&(libc::AF_UNIX as u16).to_ne_bytes()[..], b"/run/s\0"].concat();
    let [a, b, c] = [0; 3].map(|_| socket(&k, abi::AF_UNIX, abi::SOCK_DGRAM));
    assert_eq!(send_to(&k, a, b"x", &path), err(abi::ENOENT));
    assert_eq!(bind(&k, a, &path), Ok(0));
    assert_eq!(own_name(&k, a), path);
    assert_eq!(k.socket_files.borrow().len(), 1);
    assert_eq!(bind(&k, b, &path), err(abi::EADDRINUSE));
    // The path's errors come before that of a socket that has a name.
    assert_eq!(bind(&k, a, &path), err(abi::EADDRINUSE));
    let other = [&path[..8], b"t\0"].concat();
    assert_eq!((bind(&k, a, &other), k.socket_files.borrow().len()), (err(abi::EINVAL), 1));
    assert_eq!(send_to(&k, c, b"x", &path), Ok(1));
    k.close(a);
    assert_eq!(send_to(&k, c, b"x", &path), err(abi::ECONNREFUSED));
    assert_eq!(bind(&k, b, &path), err(abi::EADDRINUSE), "the file stays");
}
