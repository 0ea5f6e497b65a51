//! Behaviour of files; the first thread is the one under test, and others act while it is blocked.

mod descriptors;
mod fifos;
mod transfers;

use super::buffers::{Buffers, single};
use super::{Hold, epoll, eventfd, inotify, ops, pipe, poll, ready, select, timerfd};
use crate::abi::{self, epoll_event, itimerspec, pollfd, timespec};
use crate::errno::{Errno, RESTART, Result};
use crate::fake::{Fake, MOST_FDS, OTHER_FD, REGULAR_FD};
use crate::time::Timeout;

const fn err<T>(errno: i32) -> Result<T> {
    Err(Errno(errno))
}

/// A call on a descriptor.
fn on<'a, R>(k: &Fake<'a>, fd: i32, call: impl FnOnce(&Hold<'_, Fake<'a>>) -> R) -> R {
    call(&Hold::new(k, k.file_of(fd).expect("an open descriptor")))
}

fn read(k: &Fake<'_>, fd: i32, most: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let parts = [single(bytes.as_mut_ptr().cast(), most)];
    let n = on(k, fd, |hold| ops::read(k, hold, &mut Buffers::new(&parts)?))?;
    bytes.truncate(n);
    Ok(bytes)
}

fn write(k: &Fake<'_>, fd: i32, bytes: &[u8]) -> Result<usize> {
    let parts = [single(bytes.as_ptr().cast_mut().cast(), bytes.len())];
    on(k, fd, |hold| ops::write(k, hold, &mut Buffers::new(&parts)?))
}

fn mask(k: &Fake<'_>, fd: i32) -> u32 {
    super::mask(k, k.file_of(fd).expect("an open descriptor"))
}

fn count(k: &Fake<'_>, fd: i32) -> Result<u64> {
    read(k, fd, 8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
}

fn pipe(k: &Fake<'_>, flags: i32) -> [i32; 2] {
    pipe::create(k, flags).expect("a pipe")
}

#[test]
fn a_pipe_keeps_the_order_and_ends_with_its_writer() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    assert_eq!((mask(&k, r), mask(&k, w)), (0, ready::OUT));
    assert_eq!((write(&k, w, b"abc"), write(&k, w, b"de")), (Ok(3), Ok(2)));
    assert_eq!(mask(&k, r), ready::IN);
    assert_eq!(read(&k, r, 4), Ok(b"abcd".to_vec()));
    k.close(w);
    assert_eq!(mask(&k, r), ready::IN | ready::HUP);
    assert_eq!(read(&k, r, 4), Ok(b"e".to_vec()));
    assert_eq!(read(&k, r, 4), Ok(Vec::new()));
    k.close(r);
    assert_eq!((k.fds.files.used(), k.fds.pipes.used()), (0, 0));
}

#[test]
fn a_reader_waits_for_bytes() {
    let k = Fake::new(2);
    let [r, w] = pipe(&k, 0);
    k.then(2, move |k| assert_eq!(write(k, w, b"x"), Ok(1)));
    assert_eq!(read(&k, r, 9), Ok(b"x".to_vec()));
    assert!(k.is_over());
    assert_eq!(k.fds.waits.used(), 0, "the wait is taken back");
    let [r, _w] = pipe(&k, abi::O_NONBLOCK);
    assert_eq!(read(&k, r, 9), err(abi::EAGAIN));
    assert_eq!(read(&k, w, 1), err(abi::EBADF));
    assert_eq!(write(&k, r, b"x"), err(abi::EBADF));
}

#[test]
fn short_writes_are_not_cut_and_long_ones_go_on() {
    let k = Fake::new(2);
    let [r, w] = pipe(&k, 0);
    let fill = vec![1; (64 << 10) - 10];
    assert_eq!(write(&k, w, &fill), Ok(fill.len()));
    assert_eq!(mask(&k, w), 0, "less than a piece fits");
    let left = k.fds.pipes.get(super::handle(1)).room();
    assert_eq!(left, 10);
    // Eleven bytes wait until the whole piece fits.
    k.then(2, move |k| assert_eq!(read(k, r, 1), Ok(vec![1])));
    k.then(2, move |k| assert_eq!(read(k, r, 4086).map(|bytes| bytes.len()), Ok(4086)));
    assert_eq!(write(&k, w, &[2; 11]), Ok(11));
    let long = vec![3; 10_000];
    for _ in 0..2 {
        k.then(2, move |k| assert_eq!(read(k, r, 5000).map(|bytes| bytes.len()), Ok(5000)));
    }
    assert_eq!(write(&k, w, &long), Ok(long.len()));
    assert!(k.is_over());
}

#[test]
fn a_write_that_nobody_reads_raises_a_signal() {
    let k = Fake::new(2);
    let [r, w] = pipe(&k, 0);
    let fill = vec![1; 64 << 10];
    assert_eq!(write(&k, w, &fill), Ok(fill.len()));
    k.then(2, move |k| k.close(r));
    assert_eq!(write(&k, w, b"x"), err(abi::EPIPE));
    assert_eq!(k.sigpipes.get(), 1);
    assert_eq!(mask(&k, w) & ready::ERR, ready::ERR);
}

#[test]
fn a_pipes_size_has_bounds() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    write(&k, w, &[0; 5000]).unwrap();
    let p = pipe::of(&k, k.fds.files.get(k.file_of(r).unwrap())).unwrap();
    assert_eq!(pipe::resize(&k, p, 4096), err(abi::EBUSY));
    assert_eq!(pipe::resize(&k, p, (1 << 20) + 1), err(abi::EPERM));
    assert_eq!(pipe::resize(&k, p, 9000), Ok(16 << 10));
    assert_eq!(p.room(), (16 << 10) - 5000);
    assert_eq!(pipe::create(&k, abi::O_DIRECT), err(abi::EINVAL));
    assert_eq!(*k.refused.borrow(), ["pipe2 with O_DIRECT"]);
}

#[test]
fn without_a_second_number_a_pipe_leaves_nothing() {
    let k = Fake::new(1);
    for _ in 1..MOST_FDS {
        eventfd::create(&k, 0, 0).unwrap();
    }
    assert_eq!(pipe::create(&k, 0), err(abi::EMFILE));
    assert_eq!((k.fds.pipes.used(), k.fds.files.used()), (0, MOST_FDS as u32 - 1));
}

#[test]
fn an_interrupted_call_is_done_again_unless_it_has_a_limit() {
    let k = Fake::new(2);
    let [r, _w] = pipe(&k, 0);
    k.then(2, |k| assert!(k.interrupt(1)));
    assert_eq!(read(&k, r, 1), Err(RESTART));
    k.then(2, |k| assert!(k.interrupt(1)));
    let limited = super::wait::wait(&k, k.file_of(r).unwrap(), ready::IN, false, Some(u64::MAX));
    assert_eq!(limited, err(abi::EINTR));
}

#[test]
fn a_file_lives_as_long_as_a_call_on_it() {
    let k = Fake::new(2);
    let [r, w] = pipe(&k, 0);
    k.then(2, move |k| k.close(r));
    k.then(2, move |k| assert_eq!(write(k, w, b"x"), Ok(1), "the call still reads"));
    assert_eq!(read(&k, r, 1), Ok(b"x".to_vec()));
    assert_eq!(write(&k, w, b"x"), err(abi::EPIPE));
}

#[test]
fn an_owner_is_told_by_a_signal() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    let f = k.fds.files.get(k.file_of(r).unwrap());
    f.owner.set(42);
    write(&k, w, b"x").unwrap();
    assert_eq!(*k.sigios.borrow(), [0; 0]);
    f.flags.set(f.flags.get() | abi::O_ASYNC);
    write(&k, w, b"x").unwrap();
    assert_eq!(*k.sigios.borrow(), [42]);
}

#[test]
fn an_eventfd_counts() {
    let k = Fake::new(2);
    let fd = eventfd::create(&k, 3, 0).unwrap() as i32;
    assert_eq!(write(&k, fd, &4u64.to_ne_bytes()), Ok(8));
    assert_eq!(count(&k, fd), Ok(7));
    assert_eq!(mask(&k, fd), ready::OUT);
    k.then(2, move |k| assert_eq!(write(k, fd, &1u64.to_ne_bytes()), Ok(8)));
    assert_eq!(count(&k, fd), Ok(1));
    assert_eq!(write(&k, fd, &u64::MAX.to_ne_bytes()), err(abi::EINVAL));
    assert_eq!(write(&k, fd, &(u64::MAX - 1).to_ne_bytes()), Ok(8));
    assert_eq!(mask(&k, fd), ready::IN, "it is full");
    k.then(2, move |k| assert_eq!(count(k, fd), Ok(u64::MAX - 1)));
    assert_eq!(write(&k, fd, &1u64.to_ne_bytes()), Ok(8));
    assert_eq!(read(&k, fd, 7), err(abi::EINVAL));
    assert_eq!(eventfd::create(&k, 0, 1 << 20), err(abi::EINVAL));
}

#[test]
fn a_semaphore_of_eventfd_gives_one_at_a_time() {
    let k = Fake::new(1);
    let flags = abi::EFD_SEMAPHORE | abi::EFD_NONBLOCK;
    let fd = eventfd::create(&k, 2, flags).unwrap() as i32;
    assert_eq!((count(&k, fd), count(&k, fd)), (Ok(1), Ok(1)));
    assert_eq!(count(&k, fd), err(abi::EAGAIN));
}

const MS: u64 = 1_000_000;

fn every(first_ms: u64, period_ms: u64) -> itimerspec {
    let spec = |ms: u64| timespec { tv_sec: 0, tv_nsec: (ms * MS) as i64 };
    itimerspec { it_interval: spec(period_ms), it_value: spec(first_ms) }
}

/// The time is so many ms.
fn at(k: &Fake<'_>, ms: u64) {
    k.now_ns.set(ms * MS);
    k.timers.fire_due(k);
}

#[test]
fn a_timerfd_counts_the_periods_that_nobody_read() {
    let k = Fake::new(1);
    let fd = timerfd::create(&k, abi::CLOCK_MONOTONIC, abi::TFD_NONBLOCK).unwrap() as i32;
    at(&k, 1);
    let before = on(&k, fd, |hold| timerfd::set(&k, hold, 0, &every(10, 5)));
    assert_eq!(before, Ok(itimerspec::default()));
    assert_eq!(count(&k, fd), err(abi::EAGAIN));
    at(&k, 10);
    assert_eq!(mask(&k, fd), 0);
    at(&k, 11);
    assert_eq!(mask(&k, fd), ready::IN);
    at(&k, 27);
    assert_eq!(count(&k, fd), Ok(4), "at 11, 16, 21, 26");
    let left = on(&k, fd, |hold| timerfd::get(&k, hold)).unwrap();
    assert_eq!(left.it_value.tv_nsec, 4 * MS as i64);
    assert_eq!(left.it_interval.tv_nsec, 5 * MS as i64);
    on(&k, fd, |hold| timerfd::set(&k, hold, 0, &every(0, 0))).unwrap();
    at(&k, 100);
    assert_eq!(count(&k, fd), err(abi::EAGAIN), "it is disarmed");
}

#[test]
fn a_timerfd_takes_a_clocks_reading_which_may_be_past() {
    let k = Fake::new(1);
    let fd = timerfd::create(&k, abi::CLOCK_REALTIME, 0).unwrap() as i32;
    at(&k, 50);
    let absolute = |spec| on(&k, fd, |hold| timerfd::set(&k, hold, abi::TFD_TIMER_ABSTIME, &spec));
    absolute(every(60, 0)).unwrap();
    at(&k, 60);
    assert_eq!(count(&k, fd), Ok(1));
    absolute(every(1, 0)).unwrap();
    assert_eq!(count(&k, fd), Ok(1), "it was due at once");
    assert_eq!(on(&k, fd, |hold| timerfd::set(&k, hold, 64, &every(1, 0))), err(abi::EINVAL));
    assert_eq!(timerfd::create(&k, 77, 0), err(abi::EINVAL));
    k.close(fd);
    assert_eq!((k.fds.timerfds.used(), k.timers.next_deadline()), (0, u64::MAX));
}

#[test]
fn inotify_has_no_watches() {
    let k = Fake::new(1);
    let fd = inotify::create(&k, abi::IN_NONBLOCK).unwrap() as i32;
    assert_eq!(read(&k, fd, 100), err(abi::EAGAIN));
    let watch = |events| on(&k, fd, |hold| inotify::add_watch(&k, hold, events));
    assert_eq!(watch(0), err(abi::EINVAL));
    assert_eq!(watch(2), err(abi::ENOSPC));
    assert_eq!(*k.refused.borrow(), ["inotify_add_watch"]);
    assert_eq!(on(&k, fd, |hold| inotify::remove_watch(&k, hold)), err(abi::EINVAL));
}

fn set(k: &Fake<'_>) -> i32 {
    epoll::create(k, 0).unwrap() as i32
}

fn ctl(k: &Fake<'_>, set: i32, op: i32, fd: i32, events: i32) -> Result<()> {
    on(k, set, |hold| epoll::control(k, hold, op, fd, Some((events as u32, fd as u64))))
}

fn add(k: &Fake<'_>, set: i32, fd: i32, events: i32) -> Result<()> {
    ctl(k, set, abi::EPOLL_CTL_ADD, fd, events)
}

fn wait(k: &Fake<'_>, set: i32, most: usize, timeout: Timeout) -> Result<Vec<(i32, u32)>> {
    let mut out = vec![epoll_event { events: 0, u64: 0 }; most];
    // SAFETY: room for as many.
    let n =
        on(k, set, |hold| unsafe { epoll::wait(k, hold, out.as_mut_ptr(), most as i32, timeout) })?;
    Ok(out[..n].iter().map(|e| (e.u64 as i32, e.events)).collect())
}

fn look(k: &Fake<'_>, set: i32) -> Vec<(i32, u32)> {
    wait(k, set, 8, Timeout::Poll).unwrap()
}

const IN: u32 = abi::EPOLLIN as u32;

#[test]
fn a_level_is_reported_again_and_an_edge_once() {
    let k = Fake::new(1);
    let (e, [r, w]) = (set(&k), pipe(&k, 0));
    let [r2, w2] = pipe(&k, 0);
    add(&k, e, r, abi::EPOLLIN).unwrap();
    add(&k, e, r2, abi::EPOLLIN | abi::EPOLLET).unwrap();
    assert_eq!(look(&k, e), []);
    write(&k, w, b"x").unwrap();
    write(&k, w2, b"x").unwrap();
    assert_eq!(mask(&k, e), ready::IN);
    assert_eq!(look(&k, e), [(r, IN), (r2, IN)]);
    assert_eq!(look(&k, e), [(r, IN)]);
    write(&k, w2, b"y").unwrap();
    assert_eq!(look(&k, e), [(r, IN), (r2, IN)]);
    read(&k, r, 9).unwrap();
    assert_eq!(look(&k, e), []);
    assert_eq!(mask(&k, e), 0);
}

#[test]
fn one_shot_items_rest_until_they_are_armed_again() {
    let k = Fake::new(1);
    let (e, [r, w]) = (set(&k), pipe(&k, 0));
    add(&k, e, r, abi::EPOLLIN | abi::EPOLLONESHOT).unwrap();
    write(&k, w, b"x").unwrap();
    assert_eq!(look(&k, e), [(r, IN)]);
    write(&k, w, b"x").unwrap();
    assert_eq!(look(&k, e), []);
    ctl(&k, e, abi::EPOLL_CTL_MOD, r, abi::EPOLLIN).unwrap();
    assert_eq!(look(&k, e), [(r, IN)], "what is ready now is noticed");
}

#[test]
fn a_small_room_starves_nobody() {
    let k = Fake::new(1);
    let e = set(&k);
    let ends = [pipe(&k, 0), pipe(&k, 0)];
    for [r, w] in ends {
        add(&k, e, r, abi::EPOLLIN).unwrap();
        write(&k, w, b"x").unwrap();
    }
    let one = |_| wait(&k, e, 1, Timeout::Poll).unwrap()[0].0;
    assert_eq!([0, 1, 2].map(one), [ends[0][0], ends[1][0], ends[0][0]]);
}

#[test]
fn a_set_is_waited_for_until_something_is_ready_or_it_is_time() {
    let k = Fake::new(2);
    let (e, [r, w]) = (set(&k), pipe(&k, 0));
    add(&k, e, r, abi::EPOLLIN).unwrap();
    k.then(2, move |k| assert_eq!(write(k, w, b"x"), Ok(1)));
    assert_eq!(wait(&k, e, 8, Timeout::Never), Ok(vec![(r, IN)]));
    read(&k, r, 9).unwrap();
    assert_eq!(wait(&k, e, 8, Timeout::from_ms(5)), Ok(Vec::new()));
    assert_eq!(k.now_ns.get(), 6 * MS);
    k.then(2, |k| assert!(k.interrupt(1)));
    assert_eq!(wait(&k, e, 8, Timeout::Never), err(abi::EINTR));
    assert_eq!(wait(&k, e, 0, Timeout::Poll), err(abi::EINVAL));
}

#[test]
fn what_is_closed_is_watched_no_more() {
    let k = Fake::new(1);
    let (e, [r, w]) = (set(&k), pipe(&k, 0));
    add(&k, e, r, abi::EPOLLIN).unwrap();
    write(&k, w, b"x").unwrap();
    k.close(r);
    assert_eq!((look(&k, e), k.fds.items.used()), (Vec::new(), 0));
    add(&k, e, w, abi::EPOLLOUT).unwrap();
    k.close(e);
    assert_eq!((k.fds.items.used(), k.fds.epolls.used()), (0, 0));
}

#[test]
fn what_cannot_be_watched() {
    let k = Fake::new(1);
    let (e, [r, w]) = (set(&k), pipe(&k, 0));
    let new = |fd| add(&k, e, fd, abi::EPOLLIN);
    assert_eq!(new(r), Ok(()));
    assert_eq!(new(r), err(abi::EEXIST));
    assert_eq!(new(e), err(abi::EINVAL));
    assert_eq!(new(REGULAR_FD), err(abi::EPERM));
    assert_eq!(*k.refused.borrow(), [""; 0]);
    assert_eq!(new(OTHER_FD), err(abi::EPERM));
    assert_eq!(k.refused.borrow().len(), 1);
    assert_eq!(new(55), err(abi::EBADF));
    assert_eq!(add(&k, r, w, abi::EPOLLIN), err(abi::EINVAL), "no set");
    assert_eq!(ctl(&k, e, abi::EPOLL_CTL_MOD, w, 0), err(abi::ENOENT));
    assert_eq!(ctl(&k, e, abi::EPOLL_CTL_DEL, w, 0), err(abi::ENOENT));
    assert_eq!(ctl(&k, e, 9, w, 0), err(abi::EINVAL));
    assert_eq!(ctl(&k, e, abi::EPOLL_CTL_DEL, r, 0), Ok(()));
}

#[test]
fn sets_of_sets_have_no_circle_and_a_bound() {
    let k = Fake::new(1);
    let sets = [(); 6].map(|()| set(&k));
    for pair in sets.windows(2).take(4) {
        assert_eq!(add(&k, pair[0], pair[1], abi::EPOLLIN), Ok(()));
    }
    assert_eq!(add(&k, sets[4], sets[0], abi::EPOLLIN), err(abi::ELOOP));
    assert_eq!(add(&k, sets[4], sets[5], abi::EPOLLIN), err(abi::ELOOP));
    let [r, w] = pipe(&k, 0);
    add(&k, sets[4], r, abi::EPOLLIN).unwrap();
    write(&k, w, b"x").unwrap();
    assert_eq!(look(&k, sets[0]), [(sets[1], IN)], "it is told through all of them");
}

#[test]
fn a_change_of_a_ready_item_is_no_edge_for_a_set_above() {
    let k = Fake::new(1);
    let ([outer, inner], [r, w]) = ([set(&k), set(&k)], pipe(&k, 0));
    add(&k, inner, r, abi::EPOLLIN).unwrap();
    add(&k, outer, inner, abi::EPOLLIN | abi::EPOLLET).unwrap();
    write(&k, w, b"x").unwrap();
    assert_eq!((look(&k, outer), look(&k, outer)), (vec![(inner, IN)], vec![]));
    ctl(&k, inner, abi::EPOLL_CTL_MOD, r, abi::EPOLLIN).unwrap();
    assert_eq!((look(&k, outer), look(&k, inner)), (vec![], vec![(r, IN)]));
}

#[test]
fn of_exclusive_waiters_one_is_woken() {
    let k = Fake::new(3);
    let (a, b, [r, w]) = (set(&k), set(&k), pipe(&k, 0));
    for e in [a, b] {
        add(&k, e, r, abi::EPOLLIN | abi::EPOLLEXCLUSIVE).unwrap();
    }
    assert_eq!(ctl(&k, a, abi::EPOLL_CTL_MOD, r, abi::EPOLLIN), err(abi::EINVAL));
    k.then(2, move |k| {
        k.then(3, move |k| assert_eq!(write(k, w, b"x"), Ok(1)));
        // Nested: thread 2 is blocked, too, and is not the one that is woken.
        k.then(3, |k| assert!(k.interrupt(2)));
        assert_eq!(wait(k, b, 8, Timeout::Never), err(abi::EINTR));
    });
    assert_eq!(wait(&k, a, 8, Timeout::Never), Ok(vec![(r, IN)]));
    assert!(k.is_over());
}

#[test]
fn poll_reports_each_descriptor() {
    let k = Fake::new(2);
    let [r, w] = pipe(&k, 0);
    let ask = |fd, events| pollfd { fd, events, revents: 77 };
    let mut all = [
        ask(r, abi::EPOLLIN as i16),
        ask(w, abi::EPOLLOUT as i16),
        ask(-1, 1),
        ask(55, 1),
        ask(REGULAR_FD, 1),
    ];
    assert_eq!(poll::poll(&k, &mut all, Timeout::Poll), Ok(3));
    let nval = abi::POLLNVAL;
    assert_eq!(all.map(|fd| fd.revents), [0, abi::EPOLLOUT as i16, 0, nval, 1]);
    k.then(2, move |k| assert_eq!(write(k, w, b"x"), Ok(1)));
    assert_eq!(poll::poll(&k, &mut all[..1], Timeout::Never), Ok(1));
    read(&k, r, 9).unwrap();
    assert_eq!(poll::poll(&k, &mut all[..1], Timeout::from_ms(3)), Ok(0));
    k.close(w);
    assert_eq!(poll::poll(&k, &mut [ask(r, 0)], Timeout::Never), Ok(1), "hang-ups always");
    assert_eq!(k.fds.waits.used(), 0);
}

#[test]
fn select_answers_by_bits_and_says_what_time_is_left() {
    let k = Fake::new(2);
    let [r, w] = pipe(&k, 0);
    let call = |k: &Fake<'_>, fds: u64, ms| {
        let (mut reads, mut writes) = (fds, fds);
        let sets = [&raw mut reads, &raw mut writes, core::ptr::null_mut()];
        // SAFETY: a word each.
        let (n, left) = unsafe { select::select(k, 64, sets, Timeout::from_ms(ms)) };
        (n, reads, writes, left)
    };
    assert_eq!(call(&k, 1 << r | 1 << w, 0), (Ok(1), 0, 1 << w, 0));
    let before = k.now_ns.get();
    k.then(2, move |k| {
        k.now_ns.set(before + MS);
        assert_eq!(write(k, w, b"x"), Ok(1));
    });
    assert_eq!(call(&k, 1 << r, 4), (Ok(1), 1 << r, 0, 3 * MS));
    assert_eq!(call(&k, 1 << 50, 0).0, err(abi::EBADF));
    let none = [core::ptr::null_mut(); 3];
    // SAFETY: no sets.
    let too_many = unsafe { select::select(&k, 2000, none, Timeout::Poll) };
    assert_eq!(too_many.0, err(abi::EINVAL));
    assert_eq!(*k.refused.borrow(), ["select on descriptors from 1024 on"]);
}

#[test]
fn buffers_are_gone_through_piece_by_piece() {
    let (mut a, mut b) = ([1u8, 2, 3], [4u8, 5]);
    let parts = [
        single(a.as_mut_ptr().cast(), 3),
        single(core::ptr::null_mut(), 0),
        single(b.as_mut_ptr().cast(), 2),
    ];
    let mut buffers = Buffers::new(&parts).unwrap();
    buffers.skip(1);
    let mut again = buffers.again();
    let mut three = [0; 3];
    // SAFETY: the arrays above.
    unsafe { buffers.gather(&mut three) };
    assert_eq!((three, buffers.left()), ([2, 3, 4], 1));
    again.limit(3);
    // SAFETY: the arrays above.
    assert_eq!(unsafe { again.scatter(&[7, 8, 9, 10]) }, 3);
    assert_eq!((a, b), ([1, 7, 8], [9, 5]));
    // SAFETY: more parts than there may be are not looked at.
    let too_many = unsafe { Buffers::from_raw(parts.as_ptr(), 1025, abi::EMSGSIZE) };
    assert_eq!(too_many.err(), Some(Errno(abi::EMSGSIZE)));
}
