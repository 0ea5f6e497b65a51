//! TCP connections between two sockets of the server.

use super::*;
use crate::file::ready;

/// A listener and its address.
fn listener(k: &Fake<'_>, backlog: i32) -> (i32, Vec<u8>) {
    let fd = socket(k, abi::AF_INET, abi::SOCK_STREAM);
    bind(k, fd, &v4(0)).unwrap();
    listen(k, fd, backlog).unwrap();
    let addr = own_name(k, fd);
    (fd, addr)
}

/// A connection: the end that began it, and the other one.
fn connection(k: &Fake<'_>) -> [i32; 2] {
    let (listener, addr) = listener(k, 1);
    let client = socket(k, abi::AF_INET, abi::SOCK_STREAM);
    connect(k, client, &addr).unwrap();
    let server = accept(k, listener).unwrap();
    k.close(listener);
    [client, server]
}

/// `SO_LINGER` without time: closing resets.
fn close_hard(k: &Fake<'_>, fd: i32) {
    let value = bytes_of(&libc::linger { l_onoff: 1, l_linger: 0 });
    set_option(k, fd, (abi::SOL_SOCKET, libc::SO_LINGER), &value).unwrap();
    k.close(fd);
}

#[test]
fn both_ends_of_a_connection_have_each_others_names() {
    let k = Fake::new(1);
    let (listener, addr) = listener(&k, 1);
    let client = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    assert_eq!(
        names(&k, client),
        (vec![2, 0].into_iter().chain([0; 14]).collect(), err(abi::ENOTCONN))
    );
    assert_eq!(mask(&k, listener), 0);
    assert_eq!(connect(&k, client, &addr), Ok(0));
    assert_eq!(mask(&k, listener), ready::IN);
    let server = accept(&k, listener).unwrap();
    assert_eq!(mask(&k, listener), 0);
    assert_eq!(names(&k, server), (addr.clone(), Ok(own_name(&k, client))));
    assert_eq!(names(&k, client).1, Ok(addr.clone()));
    assert_eq!(own_name(&k, client)[4..8], [127, 0, 0, 1]);
    assert_eq!(connect(&k, client, &addr), err(abi::EISCONN));
    assert_eq!([client, server].map(|fd| mask(&k, fd)), [ready::OUT; 2]);
    assert_eq!(send(&k, client, b"abc"), Ok(3));
    assert_eq!(mask(&k, server), ready::IN | ready::OUT);
    assert_eq!(receive(&k, server, [2, 0], abi::MSG_PEEK).unwrap().bytes, b"ab");
    assert_eq!(recv(&k, server, 9), Ok(b"abc".to_vec()));
    assert_eq!(recv(&k, server, 9), err(abi::EAGAIN));
    for fd in [client, server, listener] {
        k.close(fd);
    }
    assert_nothing_left(&k);
}

#[test]
fn a_connect_that_tells_of_a_reset_drops_what_came_before() {
    let k = Fake::new(1);
    let (listener, addr) = listener(&k, 1);
    let client = create::create(&k, abi::AF_INET, abi::SOCK_STREAM | abi::SOCK_NONBLOCK, 0);
    let client = client.unwrap() as i32;
    assert_eq!(connect(&k, client, &addr), err(abi::EINPROGRESS));
    let server = accept(&k, listener).unwrap();
    assert_eq!(send(&k, server, b"late"), Ok(4));
    k.close(server);
    assert_eq!(send(&k, client, b"x"), Ok(1), "answered by a reset");
    assert_ne!(mask(&k, client) & ready::IN, 0);
    assert_eq!(connect(&k, client, &addr), err(abi::EPIPE));
    assert_eq!(mask(&k, client), ready::OUT | ready::HUP);
}

#[test]
fn a_shutdown_before_the_connection_sends_no_end_but_one_after_it_does() {
    let k = Fake::new(1);
    let (listener, addr) = listener(&k, 1);
    let client = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    assert_eq!(shutdown(&k, client, abi::SHUT_RDWR), err(abi::ENOTCONN));
    connect(&k, client, &addr).unwrap();
    let server = accept(&k, listener).unwrap();
    assert_eq!(recv(&k, server, 9), err(abi::EAGAIN));
    assert_eq!(shutdown(&k, client, abi::SHUT_RDWR), Ok(0));
    assert_eq!(recv(&k, server, 9), Ok(vec![]));
}

#[test]
fn accept_waits_for_a_connection() {
    let k = Fake::new(2);
    let (listener, addr) = listener(&k, 1);
    let client = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    k.then(2, move |k| assert_eq!(connect(k, client, &addr), Ok(0)));
    let server = accept(&k, listener).unwrap();
    assert!(k.is_over());
    k.then(2, move |k| assert_eq!(send(k, client, b"x"), Ok(1)));
    assert_eq!(receive(&k, server, [9, 0], 0).unwrap().bytes, b"x");
    assert_eq!(k.fds.waits.used(), 0);
}

#[test]
fn a_full_backlog_makes_connecting_sockets_wait() {
    let k = Fake::new(2);
    let (listener, addr) = listener(&k, 0);
    // As in Linux one more than the backlog.
    let first = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    assert_eq!(connect(&k, first, &addr), Ok(0));
    let second = socket(&k, abi::AF_INET, abi::SOCK_STREAM | abi::SOCK_NONBLOCK);
    assert_eq!(connect(&k, second, &addr), err(abi::EINPROGRESS));
    assert_eq!((connect(&k, second, &addr), mask(&k, second)), (err(abi::EALREADY), 0));
    let third = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    for _ in 0..2 {
        k.then(2, move |k| assert!(accept(k, listener).is_ok()));
    }
    assert_eq!(connect(&k, third, &addr), Ok(0), "when both others are accepted");
    assert_eq!((connect(&k, second, &addr), mask(&k, second)), (Ok(0), ready::OUT));
    // Those that still wait are refused when the listener closes.
    let [fourth, fifth] =
        [0; 2].map(|_| socket(&k, abi::AF_INET, abi::SOCK_STREAM | abi::SOCK_NONBLOCK));
    assert_eq!(connect(&k, fourth, &addr), err(abi::EINPROGRESS));
    assert_eq!(connect(&k, fifth, &addr), err(abi::EINPROGRESS));
    k.close(listener);
    assert_eq!([third, fourth].map(|fd| error(&k, fd)), [abi::ECONNRESET, abi::ECONNREFUSED]);
    assert_eq!(connect(&k, fifth, &addr), err(abi::ECONNREFUSED));
}

#[test]
fn a_port_of_a_socket_that_does_not_listen_refuses() {
    let k = Fake::new(1);
    let bound = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    bind(&k, bound, &v4(0)).unwrap();
    let client = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    assert_eq!(connect(&k, client, &own_name(&k, bound)), err(abi::ECONNREFUSED));
    assert!(k.frames.borrow().is_empty(), "it does not leave the server");
    assert_eq!(accept(&k, bound), err(abi::EINVAL));
    let taken = own_name(&k, bound);
    let other = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    assert_eq!(bind(&k, other, &taken), err(abi::EADDRINUSE));
    assert_eq!(bind(&k, bound, &v4(0)), err(abi::EINVAL));
}

#[test]
fn a_half_closed_connection_sends_in_the_other_direction() {
    let k = Fake::new(1);
    let [client, server] = connection(&k);
    assert_eq!(send(&k, client, b"ab"), Ok(2));
    assert_eq!(shutdown(&k, client, abi::SHUT_WR), Ok(0));
    assert_eq!(mask(&k, server), ready::IN | ready::OUT | ready::RDHUP);
    assert_eq!(recv(&k, server, 9), Ok(b"ab".to_vec()));
    assert_eq!(recv(&k, server, 9), Ok(Vec::new()));
    assert_eq!(send(&k, client, b"x"), err(abi::EPIPE));
    assert_eq!(k.sigpipes.get(), 1);
    assert_eq!(send_all(&k, client, b"x", &Outgoing::plain(abi::MSG_NOSIGNAL)), err(abi::EPIPE));
    assert_eq!(k.sigpipes.get(), 1);
    assert_eq!(send(&k, server, b"cd"), Ok(2));
    assert_eq!(recv(&k, client, 9), Ok(b"cd".to_vec()));
    // Both have sent their last byte now.
    assert_eq!(shutdown(&k, server, abi::SHUT_WR), Ok(0));
    for fd in [client, server] {
        assert_eq!(
            mask(&k, fd) & (ready::HUP | ready::RDHUP | ready::ERR),
            ready::HUP | ready::RDHUP
        );
        assert_eq!(shutdown(&k, fd, abi::SHUT_WR), err(abi::ENOTCONN));
    }
    assert_eq!(shutdown(&k, client, 9), err(abi::EINVAL));
}

#[test]
fn closing_with_unread_bytes_or_without_lingering_resets() {
    let k = Fake::new(1);
    for unread in [true, false] {
        let [client, server] = connection(&k);
        assert_eq!(send(&k, client, b"unread"), Ok(6));
        assert_eq!(send(&k, server, b"yet"), Ok(3));
        if unread {
            k.close(server);
        } else {
            assert_eq!(recv(&k, server, 9), Ok(b"unread".to_vec()));
            close_hard(&k, server);
        }
        assert_eq!(mask(&k, client) & (ready::HUP | ready::ERR), ready::HUP | ready::ERR);
        // What came before can be read.
        assert_eq!(recv(&k, client, 9), Ok(b"yet".to_vec()));
        assert_eq!(recv(&k, client, 9), err(abi::ECONNRESET));
        assert_eq!(recv(&k, client, 9), Ok(Vec::new()));
        assert_eq!(send(&k, client, b"x"), err(abi::EPIPE));
        k.close(client);
    }
    assert_eq!(k.sigpipes.get(), 2);
    assert_nothing_left(&k);
}

#[test]
fn bytes_for_a_closed_socket_are_answered_by_a_reset() {
    let k = Fake::new(1);
    let [client, server] = connection(&k);
    k.close(server);
    assert_eq!(mask(&k, client), ready::IN | ready::OUT | ready::RDHUP);
    assert_eq!(send(&k, client, b"lost"), Ok(4));
    assert_eq!(send(&k, client, b"x"), err(abi::EPIPE));
    assert_eq!(k.sigpipes.get(), 1);
    k.close(client);
    assert_nothing_left(&k);
}

#[test]
fn a_disconnected_socket_connects_again() {
    let k = Fake::new(1);
    let (listener, addr) = listener(&k, 4);
    let client = socket(&k, abi::AF_INET, abi::SOCK_STREAM);
    connect(&k, client, &addr).unwrap();
    let server = accept(&k, listener).unwrap();
    let nowhere = [0u8; 16];
    assert_eq!(connect(&k, client, &nowhere), Ok(0));
    assert_eq!(recv(&k, server, 1), err(abi::ECONNRESET));
    assert_eq!(names(&k, client).1, err(abi::ENOTCONN));
    assert_eq!(error(&k, client), abi::ECONNRESET);
    assert_eq!(connect(&k, client, &addr), Ok(0));
    let again = accept(&k, listener).unwrap();
    assert_eq!(send(&k, client, b"y"), Ok(1));
    assert_eq!(recv(&k, again, 9), Ok(b"y".to_vec()));
}
