//! FIFOs, and ends of pipes that are opened by the names of their descriptors.

use super::*;
use crate::file::fifo::{self, Name};
use crate::file::{descriptor, table};

const A: Name = Name { device: 1, inode: 5 };
const B: Name = Name { device: 2, inode: 5 };

fn said() -> abi::stat {
    abi::stat { st_ino: 1234, ..Default::default() }
}

fn open(k: &Fake<'_>, name: Name, flags: i32) -> Result<i32> {
    fifo::open(k, name, &said(), flags).map(|fd| fd as i32)
}

const READ: i32 = abi::O_RDONLY;
const WRITE: i32 = abi::O_WRONLY;
const NONBLOCK: i32 = abi::O_NONBLOCK;

fn is_clean(k: &Fake<'_>) -> bool {
    (k.fds.fifos.used(), k.fds.pipes.used(), k.fds.files.used()) == (0, 0, 0)
}

#[test]
fn each_end_waits_for_the_other() {
    for (mine, other) in [(READ, WRITE), (WRITE, READ)] {
        let k = Fake::new(2);
        k.then(2, move |k| assert_eq!(open(k, A, other), Ok(0)));
        assert_eq!(open(&k, A, mine), Ok(1));
        assert!(k.is_over());
        let (r, w) = if mine == READ { (1, 0) } else { (0, 1) };
        assert_eq!(write(&k, w, b"hello"), Ok(5));
        assert_eq!(read(&k, r, 9), Ok(b"hello".to_vec()));
        let stat = on(&k, r, |hold| descriptor::stat(&k, hold));
        assert_eq!(stat, said(), "that of the path");
        k.close(w);
        assert_eq!(read(&k, r, 9), Ok(Vec::new()));
        assert!(fifo::is_open(&k, A));
        k.close(r);
        assert!(!fifo::is_open(&k, A) && is_clean(&k));
    }
}

#[test]
fn ends_that_do_not_wait_follow_linux() {
    let k = Fake::new(1);
    assert_eq!(open(&k, A, WRITE | NONBLOCK), err(abi::ENXIO));
    assert!(is_clean(&k));
    let r = open(&k, A, READ | NONBLOCK).unwrap();
    assert_eq!((mask(&k, r), read(&k, r, 1)), (0, Ok(Vec::new())), "nobody has written yet");
    let w = open(&k, A, WRITE | NONBLOCK).unwrap();
    assert_eq!(read(&k, r, 1), err(abi::EAGAIN));
    k.close(w);
    assert_eq!(mask(&k, r), ready::HUP);
    let late = open(&k, A, READ | NONBLOCK).unwrap();
    assert_eq!(mask(&k, late), 0, "nobody has written since");
    // One that is both waits for nobody.
    let both = open(&k, B, abi::O_RDWR).unwrap();
    assert_eq!((write(&k, both, b"x"), read(&k, both, 9)), (Ok(1), Ok(b"x".to_vec())));
}

#[test]
fn a_name_is_one_pipe_while_it_is_open() {
    let k = Fake::new(1);
    let [a, b] = [A, B].map(|name| open(&k, name, abi::O_RDWR).unwrap());
    let again = open(&k, A, READ).unwrap();
    write(&k, a, b"a").unwrap();
    write(&k, b, b"b").unwrap();
    assert_eq!(read(&k, again, 9), Ok(b"a".to_vec()));
    // The path was removed, and a new FIFO has the kernel's numbers of the old one.
    fifo::made(&k, A);
    let new = open(&k, A, abi::O_RDWR).unwrap();
    write(&k, a, b"old").unwrap();
    write(&k, new, b"new").unwrap();
    assert_eq!((read(&k, new, 9), read(&k, again, 9)), (Ok(b"new".to_vec()), Ok(b"old".to_vec())));
    for fd in [a, b, again, new] {
        k.close(fd);
    }
    assert!(is_clean(&k));
}

#[test]
fn an_open_that_is_interrupted_leaves_nothing() {
    let k = Fake::new(2);
    k.then(2, |k| assert!(k.interrupt(1)));
    assert_eq!(open(&k, A, READ), Err(RESTART));
    assert!(is_clean(&k));
    // So does one without a number.
    k.limit.set(0);
    assert_eq!(open(&k, A, abi::O_RDWR).map_err(|e| e.0), Err(abi::EINVAL));
    assert!(is_clean(&k));
}

#[test]
fn an_end_is_opened_once_more_by_its_descriptors_name() {
    let k = Fake::new(1);
    let [r, w] = pipe(&k, 0);
    let again = fifo::reopen(&k, r, WRITE | abi::O_CLOEXEC).unwrap() as i32;
    assert_eq!(write(&k, again, b"x"), Ok(1));
    assert!(table::of(&k).cloexec(&k.chunks, again));
    k.close(w);
    assert_eq!(read(&k, r, 9), Ok(b"x".to_vec()));
    assert_eq!(mask(&k, r), 0, "it has a writer");
    assert_eq!(fifo::reopen(&k, 55, READ), err(abi::ENOENT));
    let e = eventfd::create(&k, 0, 0).unwrap() as i32;
    assert_eq!(fifo::reopen(&k, e, READ), err(abi::ENXIO));
}
