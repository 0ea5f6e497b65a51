//! The table of descriptors, and calls on its numbers.

use super::*;
use crate::fake::OWN_FD;
use crate::file::table::MAX_FDS;
use crate::file::{descriptor, random, table};
use crate::process;

fn dup(k: &Fake<'_>, fd: i32) -> Result<usize> {
    on(k, fd, |hold| descriptor::duplicate(k, hold, 0, false))
}

fn dup2(k: &Fake<'_>, old: i32, new: i32) -> Result<usize> {
    on(k, old, |hold| descriptor::duplicate_to(k, hold, old, new, None))
}

fn fcntl(k: &Fake<'_>, fd: i32, command: i32, arg: i32) -> Result<usize> {
    on(k, fd, |hold| descriptor::control(k, hold, fd, command, arg as usize))
}

fn ioctl(k: &Fake<'_>, fd: i32, request: u32, arg: &mut i32) -> Result<usize> {
    let arg = core::ptr::from_mut(arg) as usize;
    // SAFETY: the requests of these tests take or write a number.
    on(k, fd, |hold| unsafe { descriptor::ioctl(k, hold, fd, request as usize, arg) })
}

fn event(k: &Fake<'_>) -> i32 {
    eventfd::create(k, 0, 0).expect("an eventfd") as i32
}

/// The numbers that are reserved for the turn's holder's process.
fn reserved(k: &Fake<'_>) -> Vec<i32> {
    let of = |(process, fd): &(u32, i32)| (*process == k.process.get()).then_some(*fd);
    k.numbers.borrow().keys().filter_map(of).collect()
}

#[test]
fn each_descriptor_has_the_lowest_free_number() {
    let k = Fake::new(1);
    assert_eq!((pipe(&k, 0), event(&k)), ([0, 1], 2));
    k.close(1);
    assert_eq!((dup(&k, 2), dup(&k, 2)), (Ok(1), Ok(3)));
    assert_eq!(fcntl(&k, 0, abi::F_DUPFD, 10), Ok(10));
    assert_eq!(fcntl(&k, 0, abi::F_DUPFD_CLOEXEC, 10), Ok(11));
    assert_eq!(fcntl(&k, 11, abi::F_GETFD, 0), Ok(1));
    assert_eq!(k.file_of(10), k.file_of(0));
    assert_eq!(reserved(&k), [0, 1, 2, 3, 10, 11]);
    for least in [-1, MOST_FDS as i32] {
        assert_eq!(fcntl(&k, 0, abi::F_DUPFD, least), err(abi::EINVAL), "{least}");
    }
    let last = MOST_FDS as i32 - 1;
    assert_eq!(fcntl(&k, 0, abi::F_DUPFD, last), Ok(last as usize));
    assert_eq!(fcntl(&k, 0, abi::F_DUPFD, last), err(abi::EMFILE));
}

#[test]
fn numbers_that_the_table_has_no_room_for_are_given_back() {
    let k = Fake::new(1);
    let e = event(&k);
    k.limit.set(MAX_FDS + 10);
    assert_eq!(fcntl(&k, e, abi::F_DUPFD, MAX_FDS - 1), Ok(MAX_FDS as usize - 1));
    assert_eq!(fcntl(&k, e, abi::F_DUPFD, MAX_FDS - 1), err(abi::EMFILE));
    // Without memory for a page of entries there is none, either.
    while k.chunks.alloc().is_some() {}
    assert_eq!(fcntl(&k, e, abi::F_DUPFD, 5000), err(abi::ENOMEM));
    assert_eq!(dup2(&k, e, 5000), err(abi::ENOMEM));
    assert_eq!(reserved(&k), [e, MAX_FDS - 1]);
}

#[test]
fn onto_itself_dup2_does_nothing_and_dup3_is_refused() {
    let k = Fake::new(1);
    let e = event(&k);
    fcntl(&k, e, abi::F_SETFD, abi::FD_CLOEXEC).unwrap();
    assert_eq!(dup2(&k, e, e), Ok(e as usize));
    assert_eq!(fcntl(&k, e, abi::F_GETFD, 0), Ok(1), "the flag stays");
    let dup3 =
        |new, flags| on(&k, e, |hold| descriptor::duplicate_to(&k, hold, e, new, Some(flags)));
    assert_eq!(dup3(e, 0), err(abi::EINVAL));
    assert_eq!(dup3(9, abi::O_NONBLOCK), err(abi::EINVAL));
    assert_eq!(dup3(9, abi::O_CLOEXEC), Ok(9));
    assert_eq!(fcntl(&k, 9, abi::F_GETFD, 0), Ok(1));
    assert_eq!(dup2(&k, e, 9), Ok(9));
    assert_eq!(fcntl(&k, 9, abi::F_GETFD, 0), Ok(0), "the flag is the number's");
    k.close(e);
    k.close(9);
    assert_eq!(k.fds.files.used(), 0);
}

#[test]
fn what_is_replaced_is_closed() {
    let k = Fake::new(1);
    let ([r, w], e) = (pipe(&k, 0), event(&k));
    assert_eq!(dup2(&k, e, w), Ok(w as usize));
    assert_eq!(mask(&k, r), ready::HUP, "the only writer is gone");
    assert_eq!(k.file_of(w), k.file_of(e));
    k.close(e);
    assert_eq!(k.fds.eventfds.used(), 1);
    k.close(w);
    assert_eq!((k.fds.eventfds.used(), reserved(&k)), (0, vec![r]));
}

#[test]
fn numbers_that_are_not_the_servers_are_refused() {
    let k = Fake::new(1);
    let e = event(&k);
    k.limit.set(2000);
    for fd in [-1, OWN_FD, 2000, MAX_FDS] {
        assert_eq!(dup2(&k, e, fd), err(abi::EBADF), "{fd}");
        assert_eq!(k.file_of(fd), None, "{fd}");
    }
    assert_eq!(dup2(&k, e, OWN_FD + 1), Ok(OWN_FD as usize + 1));
    assert_eq!(reserved(&k), [e, OWN_FD + 1]);
    assert_eq!(table::close(&k, OWN_FD), err(abi::EBADF));
}

#[test]
fn a_file_of_the_kernels_takes_a_virtual_ones_place() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    assert_eq!(descriptor::give_way(&k, 55, w, None), err(abi::EBADF));
    assert_eq!(mask(&k, r), 0, "the writer is still there");
    assert_eq!(descriptor::give_way(&k, REGULAR_FD, w, None), Ok(w as usize));
    assert_eq!((mask(&k, r), k.file_of(w)), (ready::HUP, None));
}

#[test]
fn an_exec_closes_what_is_marked() {
    let k = Fake::new(1);
    let [kept, marked, by_ioctl, unmarked] = [(); 4].map(|()| event(&k));
    let p = process::this(&k);
    fcntl(&k, marked, abi::F_SETFD, abi::FD_CLOEXEC).unwrap();
    for fd in [by_ioctl, unmarked] {
        ioctl(&k, fd, abi::FIOCLEX, &mut 0).unwrap();
    }
    ioctl(&k, unmarked, abi::FIONCLEX, &mut 0).unwrap();
    p.table.keep_over_exec(&k, true);
    // What the kernel does at the exec.
    k.numbers.borrow_mut().retain(|_, keep| *keep);
    assert_eq!(reserved(&k), [kept, unmarked]);
    p.table.close_on_exec(&k);
    assert_eq!(
        [kept, marked, by_ioctl, unmarked].map(|fd| k.file_of(fd).is_some()),
        [true, false, false, true]
    );
    assert_eq!(k.fds.eventfds.used(), 2);
    assert!(k.numbers.borrow().values().all(|keep| !keep), "until the next exec");
}

#[test]
fn an_exec_that_fails_changes_nothing() {
    let k = Fake::new(1);
    let e = event(&k);
    process::this(&k).table.keep_over_exec(&k, true);
    process::this(&k).table.keep_over_exec(&k, false);
    assert!(!k.numbers.borrow()[&(k.process.get(), e)]);
    assert!(k.file_of(e).is_some());
}

#[test]
fn a_forked_child_shares_the_files_but_not_the_numbers() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    fcntl(&k, r, abi::F_SETFD, abi::FD_CLOEXEC).unwrap();
    let child = k.fork();
    k.by(child, || {
        assert_eq!(fcntl(&k, r, abi::F_GETFD, 0), Ok(1));
        fcntl(&k, r, abi::F_SETFD, 0).unwrap();
        fcntl(&k, r, abi::F_SETFL, abi::O_NONBLOCK).unwrap();
        k.close(w);
        assert_eq!(read(&k, r, 1), err(abi::EAGAIN), "the parent still writes");
    });
    assert_eq!(fcntl(&k, r, abi::F_GETFD, 0), Ok(1), "the flag is the process's");
    assert_eq!(
        fcntl(&k, r, abi::F_GETFL, 0),
        Ok(abi::O_NONBLOCK as usize),
        "the mode is the file's"
    );
    k.close(w);
    k.close(r);
    assert_eq!(k.fds.pipes.used(), 1, "the child reads");
    k.by(child, || {
        assert_eq!(read(&k, r, 1), Ok(Vec::new()));
        let chunks = k.chunks.used();
        process::this(&k).table.close_all(&k);
        assert_eq!((k.file_of(r), k.chunks.used()), (None, chunks - 1));
    });
    assert_eq!((k.fds.pipes.used(), k.fds.files.used()), (0, 0));
}

#[test]
fn a_range_is_closed_or_marked() {
    let k = Fake::new(1);
    for _ in 0..6 {
        event(&k);
    }
    let range = |first, last, flags| descriptor::close_range(&k, first, last, flags);
    assert_eq!(range(2, 1, 0), err(abi::EINVAL));
    assert_eq!(range(0, 9, 1), err(abi::EINVAL));
    assert_eq!(k.fds.files.used(), 6);
    assert_eq!(range(1, 2, 0), Ok(0));
    assert_eq!(reserved(&k), [0, 3, 4, 5]);
    assert_eq!(range(4, u32::MAX, abi::CLOSE_RANGE_CLOEXEC), Ok(0));
    assert_eq!([0, 3, 4, 5].map(|fd| fcntl(&k, fd, abi::F_GETFD, 0)), [0, 0, 1, 1].map(Ok));
    assert_eq!(range(70_000, u32::MAX, 0), Ok(0));
    assert_eq!(range(3, u32::MAX, abi::CLOSE_RANGE_UNSHARE), Ok(0));
    assert_eq!((reserved(&k), k.fds.files.used()), (vec![0], 1));
    assert_eq!(event(&k), 1);
}

#[test]
fn a_files_mode_and_owner_are_set() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    fcntl(&k, w, abi::F_SETFL, abi::O_NONBLOCK | abi::O_APPEND | abi::O_RDWR).unwrap();
    let flags = abi::O_NONBLOCK | abi::O_APPEND | abi::O_WRONLY;
    assert_eq!(fcntl(&k, w, abi::F_GETFL, 0), Ok(flags as usize), "the access stays");
    ioctl(&k, w, abi::FIONBIO, &mut 0).unwrap();
    ioctl(&k, w, abi::FIOASYNC, &mut 1).unwrap();
    let flags = abi::O_ASYNC | abi::O_APPEND | abi::O_WRONLY;
    assert_eq!(fcntl(&k, w, abi::F_GETFL, 0), Ok(flags as usize));
    assert_eq!(fcntl(&k, w, abi::F_SETOWN, 42), Ok(0));
    assert_eq!(fcntl(&k, w, abi::F_GETOWN, 0), Ok(42));
    assert_eq!(fcntl(&k, w, abi::F_SETOWN, -42), err(abi::EINVAL));
    assert_eq!(*k.refused.borrow(), ["fcntl F_SETOWN with a process group"]);
    assert_eq!(fcntl(&k, w, abi::F_SETPIPE_SZ, 8192), Ok(8192));
    assert_eq!(fcntl(&k, r, abi::F_GETPIPE_SZ, 0), Ok(8192));
    assert_eq!(fcntl(&k, event(&k), abi::F_GETPIPE_SZ, 0), err(abi::EBADF));
    assert_eq!(fcntl(&k, w, 77, 0), err(abi::EINVAL));
}

#[test]
fn each_kind_answers_what_it_has() {
    let k = Fake::new(1);
    let ([r, w], e, s) = (pipe(&k, 0), event(&k), set(&k));
    write(&k, w, b"abc").unwrap();
    let mut n = 0;
    assert_eq!((ioctl(&k, r, abi::FIONREAD, &mut n), n), (Ok(0), 3));
    assert_eq!(ioctl(&k, w, abi::TIOCOUTQ, &mut n), err(abi::ENOTTY));
    assert_eq!(ioctl(&k, e, abi::FIONREAD, &mut n), err(abi::ENOTTY));
    assert_eq!(ioctl(&k, s, abi::FIONREAD, &mut n), err(abi::EINVAL));
    assert_eq!(
        (ioctl(&k, e, 0x1234, &mut n), ioctl(&k, s, 0x1234, &mut n)),
        (err(abi::ENOTTY), err(abi::EINVAL))
    );
    let seek = |fd, whence| on(&k, fd, |hold| descriptor::seek(&k, hold, whence));
    assert_eq!([r, e, s].map(|fd| seek(fd, abi::SEEK_SET)), [err(abi::ESPIPE), Ok(0), Ok(0)]);
    assert_eq!(seek(e, abi::SEEK_HOLE + 1), err(abi::EINVAL));
    let stat = |fd| on(&k, fd, |hold| descriptor::stat(&k, hold));
    assert_eq!(stat(r), stat(w));
    assert_eq!((stat(r).st_mode, stat(e).st_mode), (abi::S_IFIFO | 0o600, 0o600));
    assert_ne!(stat(e).st_ino, stat(s).st_ino);
}

#[test]
fn random_devices_give_the_servers_randomness() {
    let k = Fake::new(1);
    assert!(random::is_device(b"/dev/random") && !random::is_device(b"/dev/null"));
    let fd = random::open(&k, abi::O_RDWR | abi::O_CLOEXEC).unwrap() as i32;
    assert_eq!((read(&k, fd, 3), write(&k, fd, b"more")), (Ok(vec![7; 3]), Ok(4)));
    assert_eq!((mask(&k, fd), fcntl(&k, fd, abi::F_GETFD, 0)), (ready::IN | ready::OUT, Ok(1)));
    let stat = on(&k, fd, |hold| descriptor::stat(&k, hold));
    assert_eq!((stat.st_mode, stat.st_ino), (abi::S_IFCHR | 0o666, 9));
    assert_eq!(on(&k, fd, |hold| descriptor::seek(&k, hold, abi::SEEK_SET)), Ok(0));
}
