//! splice, tee, vmsplice, sendfile, and lists of buffers.

use super::*;
use crate::file::splice::{self, Side};
use crate::file::transfer;
use core::cell::Cell;

const NONBLOCK: u32 = abi::SPLICE_F_NONBLOCK;

fn splice_at(
    k: &Fake<'_>,
    (from, from_at): (i32, Option<&Cell<i64>>),
    (to, to_at): (i32, Option<&Cell<i64>>),
    len: usize,
    flags: u32,
) -> Result<usize> {
    let (a, b) = (Side::of(k, from, from_at), Side::of(k, to, to_at));
    splice::splice(k, &a, &b, [from_at, to_at], len, flags)
}

fn splice(k: &Fake<'_>, from: i32, to: i32, len: usize, flags: u32) -> Result<usize> {
    splice_at(k, (from, None), (to, None), len, flags)
}

fn tee(k: &Fake<'_>, from: i32, to: i32, len: usize, flags: u32) -> Result<usize> {
    splice::tee(k, &Side::of(k, from, None), &Side::of(k, to, None), len, flags)
}

fn send(k: &Fake<'_>, to: i32, at: Option<&Cell<i64>>, count: usize) -> Result<usize> {
    on(k, to, |hold| splice::sendfile(k, hold, REGULAR_FD, at, count))
}

/// A pipe in which there is room for so many bytes.
fn nearly_full(k: &Fake<'_>, room: usize) -> [i32; 2] {
    let ends = pipe(k, 0);
    write(k, ends[1], &vec![9; (64 << 10) - room]).unwrap();
    ends
}

#[test]
fn a_splice_takes_only_what_the_other_pipe_has_room_for() {
    let k = Fake::new(1);
    let ([r, w], [r2, w2]) = (pipe(&k, 0), nearly_full(&k, 4));
    write(&k, w, b"abcdef").unwrap();
    assert_eq!(splice(&k, r, w2, 100, 0), Ok(4));
    assert_eq!(splice(&k, r, w2, 100, NONBLOCK), err(abi::EAGAIN));
    assert_eq!(read(&k, r, 9), Ok(b"ef".to_vec()), "the rest stays");
    let all = read(&k, r2, 64 << 10).unwrap();
    assert_eq!(all[all.len() - 4..], *b"abcd");
}

#[test]
fn a_splice_waits_for_the_side_that_is_stuck() {
    let k = Fake::new(2);
    let ([r, w], [r2, w2]) = (pipe(&k, 0), nearly_full(&k, 0));
    k.then(2, move |k| assert_eq!(write(k, w, b"abc"), Ok(3)));
    k.then(2, move |k| assert_eq!(read(k, r2, 8 << 10).map(|bytes| bytes.len()), Ok(8 << 10)));
    assert_eq!(splice(&k, r, w2, 100, 0), Ok(3));
    assert!(k.is_over());
    k.close(w);
    assert_eq!(splice(&k, r, w2, 100, 0), Ok(0), "the end");
}

#[test]
fn the_mode_of_one_of_two_pipes_is_enough_not_to_wait() {
    let k = Fake::new(2);
    let ([r, _w], [_r2, w2]) = (pipe(&k, 0), pipe(&k, abi::O_NONBLOCK));
    assert_eq!(splice(&k, r, w2, 9, 0), err(abi::EAGAIN));
    // With a file of the kernel's at the other side the call's flag alone counts.
    let [r, w] = pipe(&k, abi::O_NONBLOCK);
    k.then(2, move |k| assert_eq!(write(k, w, b"abc"), Ok(3)));
    assert_eq!(splice(&k, r, REGULAR_FD, 9, 0), Ok(3));
    assert_eq!(splice(&k, r, REGULAR_FD, 9, NONBLOCK), err(abi::EAGAIN));
}

#[test]
fn what_nobody_reads_is_not_taken() {
    let k = Fake::new(1);
    let ([r, w], [r2, w2]) = (pipe(&k, 0), pipe(&k, 0));
    write(&k, w, b"abc").unwrap();
    k.close(r2);
    for call in [splice, tee] {
        assert_eq!(call(&k, r, w2, 9, 0), err(abi::EPIPE));
    }
    assert_eq!((k.sigpipes.get(), read(&k, r, 9)), (2, Ok(b"abc".to_vec())));
}

#[test]
fn files_of_the_kernels_have_positions() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    k.regular.replace((b"0123456789".to_vec(), 2));
    let at = Cell::new(5);
    assert_eq!(splice_at(&k, (REGULAR_FD, Some(&at)), (w, None), 3, 0), Ok(3));
    assert_eq!(splice(&k, REGULAR_FD, w, 3, 0), Ok(3));
    assert_eq!((at.get(), k.regular.borrow().1), (8, 5));
    assert_eq!(read(&k, r, 9), Ok(b"567234".to_vec()));
    write(&k, w, b"abcd").unwrap();
    let at = Cell::new(1);
    assert_eq!(splice_at(&k, (r, None), (REGULAR_FD, Some(&at)), 2, 0), Ok(2));
    assert_eq!(splice(&k, r, REGULAR_FD, 9, 0), Ok(2));
    assert_eq!((at.get(), k.regular.borrow().0.as_slice()), (3, &b"0ab34cd789"[..]));
    // Nothing is lost when the kernel's side fails.
    write(&k, w, b"x").unwrap();
    assert_eq!(splice(&k, r, OTHER_FD, 9, 0), err(abi::EBADF));
    assert_eq!(read(&k, r, 9), Ok(b"x".to_vec()));
}

#[test]
fn what_cannot_be_spliced() {
    let k = Fake::new(1);
    let ([r, w], [r2, w2]) = (pipe(&k, 0), pipe(&k, 0));
    let e = eventfd::create(&k, 1, 0).unwrap() as i32;
    write(&k, w, b"abc").unwrap();
    assert_eq!(splice(&k, r, w2, 9, 64), err(abi::EINVAL), "an unknown flag");
    assert_eq!(splice(&k, r, w2, 0, 0), Ok(0));
    assert_eq!(splice(&k, w, w2, 9, 0), err(abi::EBADF));
    assert_eq!(splice(&k, r, r2, 9, 0), err(abi::EBADF));
    assert_eq!(splice(&k, r, w, 9, 0), err(abi::EINVAL), "one pipe");
    assert_eq!(splice(&k, e, REGULAR_FD, 9, 0), err(abi::EINVAL), "no pipe");
    assert_eq!(
        (splice(&k, e, w2, 9, 0), splice(&k, r, e, 9, 0)),
        (err(abi::EINVAL), err(abi::EINVAL))
    );
    let at = Cell::new(0);
    assert_eq!(splice_at(&k, (r, Some(&at)), (w2, None), 9, 0), err(abi::ESPIPE));
    assert_eq!(splice_at(&k, (e, Some(&at)), (w2, None), 9, 0), err(abi::EINVAL));
    assert_eq!((tee(&k, r, w, 9, 0), tee(&k, r, e, 9, 0)), (err(abi::EINVAL), err(abi::EINVAL)));
    assert_eq!((tee(&k, r, w2, 9, 64), tee(&k, r, w2, 0, 0)), (err(abi::EINVAL), Ok(0)));
    assert_eq!((read(&k, r, 9), count(&k, e)), (Ok(b"abc".to_vec()), Ok(1)));
}

#[test]
fn a_tee_leaves_what_it_copies() {
    let k = Fake::new(2);
    let ([r, w], [r2, w2]) = (pipe(&k, 0), pipe(&k, 0));
    assert_eq!(tee(&k, r, w2, 9, NONBLOCK), err(abi::EAGAIN));
    let long: Vec<u8> = (0..20_000).map(|n| (n % 251) as u8).collect();
    let bytes = long.clone();
    k.then(2, move |k| assert_eq!(write(k, w, &bytes), Ok(20_000)));
    assert_eq!(tee(&k, r, w2, 19_000, 0), Ok(19_000));
    assert_eq!(read(&k, r2, 64 << 10), Ok(long[..19_000].to_vec()));
    assert_eq!(read(&k, r, 64 << 10), Ok(long));
    k.close(w);
    assert_eq!(tee(&k, r, w2, 9, 0), Ok(0));
}

#[test]
fn vmsplice_reads_or_writes_as_its_end_does() {
    let k = Fake::new(1);
    let [r, w] = nearly_full(&k, 4);
    let mut bytes = *b"abcdef";
    let parts = [single(bytes.as_mut_ptr().cast(), 6)];
    let call = |fd, flags| {
        // SAFETY: the array above.
        on(&k, fd, |hold| unsafe { splice::vmsplice(&k, hold, parts.as_ptr(), 1, flags) })
    };
    assert_eq!(call(w, NONBLOCK), Ok(4), "what there is room for");
    assert_eq!(call(w, NONBLOCK), err(abi::EAGAIN));
    assert_eq!(call(w, 64), err(abi::EINVAL));
    read(&k, r, (64 << 10) - 4).unwrap();
    assert_eq!(call(r, 0), Ok(4));
    assert_eq!(bytes, *b"abcdef", "the same were written");
    assert_eq!(call(r, NONBLOCK), err(abi::EAGAIN));
    assert_eq!(call(eventfd::create(&k, 0, 0).unwrap() as i32, 0), err(abi::EBADF));
}

#[test]
fn what_sendfile_cannot_send_is_read_again() {
    let k = Fake::new(1);
    k.regular.replace(((0..100).collect(), 10));
    let [r, w] = nearly_full(&k, 4);
    on(&k, w, |hold| hold.file(&k).flags.set(abi::O_WRONLY | abi::O_NONBLOCK));
    // More than a pipe takes in one piece, so that it is cut.
    k.regular.borrow_mut().0.resize(6000, 1);
    assert_eq!(send(&k, w, None, 5000), Ok(4));
    assert_eq!(k.regular.borrow().1, 14, "four of them");
    assert_eq!(send(&k, w, None, 5000), err(abi::EAGAIN));
    assert_eq!(k.regular.borrow().1, 14);
    let sent = read(&k, r, 64 << 10).unwrap();
    assert_eq!(sent[sent.len() - 4..], [10, 11, 12, 13]);
    let at = Cell::new(20);
    assert_eq!(send(&k, w, Some(&at), 3), Ok(3));
    assert_eq!((read(&k, r, 9), at.get()), (Ok(vec![20, 21, 22]), 23));
    assert_eq!(k.regular.borrow().1, 14, "the file's own position stays");
    at.set(5999);
    assert_eq!((send(&k, w, Some(&at), 9), send(&k, w, Some(&at), 9)), (Ok(1), Ok(0)));
    let other = on(&k, w, |hold| splice::sendfile(&k, hold, OTHER_FD, None, 9));
    assert_eq!(other, err(abi::EBADF));
}

#[test]
fn lists_of_no_bytes_do_not_ask_every_kind() {
    let k = Fake::new(1);
    let ([r, w], e) = (pipe(&k, abi::O_NONBLOCK), eventfd::create(&k, 0, 0).unwrap() as i32);
    let t = timerfd::create(&k, abi::CLOCK_MONOTONIC, 0).unwrap() as i32;
    let i = inotify::create(&k, abi::IN_NONBLOCK).unwrap() as i32;
    let none = core::ptr::null();
    // SAFETY: no parts.
    let readv = |fd, count| on(&k, fd, |hold| unsafe { transfer::readv(&k, hold, none, count) });
    // SAFETY: no parts.
    let writev = |fd, count| on(&k, fd, |hold| unsafe { transfer::writev(&k, hold, none, count) });
    assert_eq!([r, e, t].map(|fd| readv(fd, 0)), [Ok(0); 3]);
    assert_eq!(readv(i, 0), err(abi::EAGAIN));
    assert_eq!([w, e].map(|fd| writev(fd, 0)), [Ok(0); 2]);
    assert_eq!(writev(t, 0), err(abi::EINVAL));
    assert_eq!((readv(r, -1), writev(w, -1)), (err(abi::EINVAL), err(abi::EINVAL)));
    assert_eq!((readv(w, 0), writev(r, 0)), (err(abi::EBADF), err(abi::EBADF)));
    assert_eq!(transfer::flagged(&k, 8), err(abi::EOPNOTSUPP));
    assert_eq!(k.refused.borrow().len(), 1);
}
