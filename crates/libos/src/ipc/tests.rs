//! Behaviour of semaphores, message queues and segments; the first thread is the one under test, and others act while it is blocked.

use super::{mq, process_ended, queue, segment, semaphore};
use crate::abi::{self, sembuf, timespec};
use crate::errno::{Errno, RESTART, Result};
use crate::fake::Fake;
use crate::file::{self, Hold, ready};
use crate::host::Host;
use crate::process;
use core::ptr::null;
use std::ffi::CString;

const fn err<T>(errno: i32) -> Result<T> {
    Err(Errno(errno))
}

const UNDO: i16 = 0x1000;
const NOWAIT: i16 = abi::IPC_NOWAIT as i16;

const fn op(sem_num: u16, sem_op: i16, sem_flg: i16) -> sembuf {
    sembuf { sem_num, sem_op, sem_flg }
}

fn set_of(k: &Fake<'_>, values: &[i32]) -> i32 {
    let id = semaphore::get(k, abi::IPC_PRIVATE, values.len() as i32, 0o600).unwrap() as i32;
    for (at, value) in values.iter().enumerate() {
        control(k, id, at as i32, abi::SETVAL, *value as usize).unwrap();
    }
    id
}

fn control(k: &Fake<'_>, id: i32, at: i32, command: i32, arg: usize) -> Result<usize> {
    // SAFETY: these commands take numbers, or a buffer of the test's.
    unsafe { semaphore::control(k, id, at, command, arg) }
}

fn values(k: &Fake<'_>, id: i32, count: i32) -> Vec<usize> {
    (0..count).map(|at| control(k, id, at, abi::GETVAL, 0).unwrap()).collect()
}

fn operate(k: &Fake<'_>, id: i32, operations: &[sembuf]) -> Result<usize> {
    // SAFETY: a slice; no time.
    unsafe { semaphore::operate(k, id, operations.as_ptr(), operations.len(), null()) }
}

fn operate_for(k: &Fake<'_>, id: i32, operations: &[sembuf], ns: i64) -> Result<usize> {
    let limit = timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: a slice; a time.
    unsafe { semaphore::operate(k, id, operations.as_ptr(), operations.len(), &raw const limit) }
}

#[test]
fn a_key_finds_one_object_until_it_is_removed() {
    let k = Fake::new(1);
    let get = |count, flags| semaphore::get(&k, 7, count, flags);
    assert_eq!(get(1, 0o600), err(abi::ENOENT));
    assert_eq!(get(0, abi::IPC_CREAT), err(abi::EINVAL));
    assert_eq!(get(513, abi::IPC_CREAT), err(abi::EINVAL));
    let id = get(2, abi::IPC_CREAT | 0o600).unwrap();
    assert_eq!(get(1, abi::IPC_CREAT), Ok(id));
    assert_eq!(get(0, 0), Ok(id), "zero asks for no size");
    assert_eq!(get(3, 0), err(abi::EINVAL), "the set has two");
    assert_eq!(get(2, abi::IPC_CREAT | abi::IPC_EXCL), err(abi::EEXIST));
    assert_eq!(control(&k, id as i32, 0, abi::IPC_RMID, 0), Ok(0));
    assert_eq!(control(&k, id as i32, 0, abi::GETVAL, 0), err(abi::EINVAL));
    assert_ne!(get(2, abi::IPC_CREAT), Ok(id), "an id is not used again soon");
    let private = [0, 1].map(|_| semaphore::get(&k, abi::IPC_PRIVATE, 1, 0).unwrap());
    assert_ne!(private[0], private[1]);
}

#[test]
fn owner_and_mode_decide() {
    let k = Fake::new(1);
    k.user.set([1000, 100]);
    let id = semaphore::get(&k, 9, 1, abi::IPC_CREAT | 0o640).unwrap() as i32;
    k.user.set([1001, 100]);
    assert_eq!(control(&k, id, 0, abi::GETVAL, 0), Ok(0), "its group may read");
    assert_eq!(operate(&k, id, &[op(0, 1, 0)]), err(abi::EACCES));
    assert_eq!(control(&k, id, 0, abi::SETVAL, 1), err(abi::EACCES));
    assert_eq!(control(&k, id, 0, abi::IPC_RMID, 0), err(abi::EPERM));
    k.user.set([1002, 101]);
    assert_eq!(control(&k, id, 0, abi::GETVAL, 0), err(abi::EACCES));
    assert_eq!(semaphore::get(&k, 9, 1, 0o400), err(abi::EACCES));
    k.user.set([0, 0]);
    assert_eq!(operate(&k, id, &[op(0, 1, 0)]), Ok(0), "root may do anything");
}

#[test]
fn operations_are_done_all_or_none() {
    let k = Fake::new(2);
    let id = set_of(&k, &[1, 0]);
    let both = [op(0, -1, 0), op(1, -1, 0)];
    assert_eq!(operate(&k, id, &[both[0], op(1, -1, NOWAIT)]), err(abi::EAGAIN));
    assert_eq!(values(&k, id, 2), [1, 0], "what was done before is taken back");
    k.then(2, move |k| {
        assert_eq!(values(k, id, 2), [1, 0], "nothing is taken by one that waits");
        assert_eq!(control(k, id, 1, abi::GETNCNT, 0), Ok(1));
        assert_eq!(control(k, id, 0, abi::GETNCNT, 0), Ok(0));
        assert_eq!(operate(k, id, &[op(1, 2, 0)]), Ok(0));
        assert_eq!(values(k, id, 2), [0, 1], "whoever posts does it for the one that waits");
    });
    assert_eq!(operate(&k, id, &both), Ok(0));
    assert!(k.is_over());
    assert_eq!(control(&k, id, 1, abi::GETNCNT, 0), Ok(0));
    assert_eq!(k.ipc.sem_waits.used(), 0);
}

#[test]
fn operations_see_what_those_before_them_did() {
    let k = Fake::new(1);
    let id = set_of(&k, &[0]);
    assert_eq!(operate(&k, id, &[op(0, 0, 0), op(0, 3, 0), op(0, -2, 0)]), Ok(0));
    assert_eq!(values(&k, id, 1), [1]);
    assert_eq!(operate(&k, id, &[op(0, 1, 0), op(0, 0, NOWAIT)]), err(abi::EAGAIN));
    assert_eq!(values(&k, id, 1), [1]);
}

#[test]
fn a_wait_for_zero_ends_at_zero_only() {
    let k = Fake::new(2);
    let id = set_of(&k, &[2]);
    k.then(2, move |k| {
        assert_eq!(control(k, id, 0, abi::GETZCNT, 0), Ok(1));
        assert_eq!(operate(k, id, &[op(0, -1, 0)]), Ok(0));
        assert_eq!(control(k, id, 0, abi::GETZCNT, 0), Ok(1), "one is not zero");
        assert_eq!(operate(k, id, &[op(0, -1, 0)]), Ok(0));
    });
    assert_eq!(operate(&k, id, &[op(0, 0, 0), op(0, 5, 0)]), Ok(0));
    assert_eq!(values(&k, id, 1), [5]);
}

#[test]
fn those_that_wait_are_served_in_their_order_but_one_that_cannot_go_on_is_passed() {
    let k = Fake::new(3);
    let id = set_of(&k, &[0]);
    k.then(2, move |k| {
        k.then(3, move |k| assert_eq!(operate(k, id, &[op(0, 2, 0)]), Ok(0)));
        k.then(3, move |k| assert_eq!(operate(k, id, &[op(0, 2, 0)]), Ok(0)));
        assert_eq!(operate(k, id, &[op(0, -1, 0)]), Ok(0));
        assert_eq!(values(k, id, 1), [1], "the older one wants three, this one took one of two");
        // Its turn is over: the older one is still blocked.
    });
    assert_eq!(operate(&k, id, &[op(0, -3, 0)]), Ok(0));
    assert_eq!(values(&k, id, 1), [0]);
}

#[test]
fn the_oldest_waiting_thread_is_served_first() {
    let k = Fake::new(3);
    let id = set_of(&k, &[0]);
    k.then(2, move |k| {
        k.then(3, move |k| assert_eq!(operate(k, id, &[op(0, 2, 0)]), Ok(0)));
        k.then(3, move |k| {
            assert_eq!(values(k, id, 1), [0], "the older thread took both");
            assert_eq!(operate(k, id, &[op(0, 2, 0)]), Ok(0));
        });
        assert_eq!(operate(k, id, &[op(0, -2, 0)]), Ok(0));
        assert_eq!(control(k, id, 0, abi::GETNCNT, 0), Ok(0), "the older thread waits no longer");
    });
    assert_eq!(operate(&k, id, &[op(0, -2, 0)]), Ok(0));
    assert_eq!(values(&k, id, 1), [0]);
}

#[test]
fn limits_of_semaphores() {
    let k = Fake::new(1);
    let id = set_of(&k, &[32_767, 0]);
    assert_eq!(operate(&k, id, &[op(1, 1, 0), op(0, 1, 0)]), err(abi::ERANGE));
    assert_eq!(values(&k, id, 2), [32_767, 0]);
    assert_eq!(operate(&k, id, &[op(2, 1, 0)]), err(abi::EFBIG));
    assert_eq!(operate(&k, id, &[]), err(abi::EINVAL));
    assert_eq!(operate(&k, id, &[op(0, 0, NOWAIT); 501]), err(abi::E2BIG));
    assert_eq!(operate(&k, -1, &[op(0, 1, 0)]), err(abi::EINVAL));
    assert_eq!(control(&k, id, 0, abi::SETVAL, 32_768), err(abi::ERANGE));
    assert_eq!(control(&k, id, 2, abi::SETVAL, 32_768), err(abi::ERANGE), "the value first");
    assert_eq!(control(&k, id, 2, abi::GETVAL, 0), err(abi::EINVAL));
    let words = [7u16, 32_768];
    assert_eq!(control(&k, id, 0, abi::SETALL, words.as_ptr() as usize), err(abi::ERANGE));
    assert_eq!(values(&k, id, 2), [32_767, 0], "all values are set, or none");
    let words = [7u16, 8];
    assert_eq!(control(&k, id, 0, abi::SETALL, words.as_ptr() as usize), Ok(0));
    let mut all = [0u16; 2];
    assert_eq!(control(&k, id, 0, abi::GETALL, all.as_mut_ptr() as usize), Ok(0));
    assert_eq!(all, words);
}

#[test]
fn a_time_limit_an_interruption_and_a_removal_end_a_wait() {
    let k = Fake::new(2);
    let id = set_of(&k, &[0]);
    let before = k.now_ns.get();
    assert_eq!(operate_for(&k, id, &[op(0, -1, 0)], 500), err(abi::EAGAIN));
    assert_eq!(k.now_ns.get(), before + 500);
    k.then(2, |k| assert!(k.interrupt(1)));
    assert_eq!(operate(&k, id, &[op(0, -1, 0)]), err(abi::EINTR), "SA_RESTART does not count");
    k.then(2, move |k| assert_eq!(control(k, id, 0, abi::IPC_RMID, 0), Ok(0)));
    assert_eq!(operate(&k, id, &[op(0, -1, 0)]), err(abi::EIDRM));
    assert_eq!((k.ipc.sem_waits.used(), k.ipc.sets.used()), (0, 0));
}

#[test]
fn a_process_end_undoes_its_operations_within_bounds() {
    let k = Fake::new(1);
    let id = set_of(&k, &[2, 0, 5]);
    let child = k.fork();
    k.by(child, || {
        let all = [op(0, -2, UNDO), op(1, 3, UNDO), op(2, -1, UNDO), op(2, -1, 0)];
        assert_eq!(operate(&k, id, &all), Ok(0));
    });
    assert_eq!(values(&k, id, 3), [0, 3, 3]);
    assert_eq!(operate(&k, id, &[op(1, -2, 0)]), Ok(0));
    assert_eq!(control(&k, id, 2, abi::SETVAL, 9), Ok(0), "what is set is not undone");
    k.by(child, || process_ended(&k, process::handle(&k)));
    assert_eq!(values(&k, id, 3), [2, 0, 9], "1 - 3 stays at zero");
    assert_eq!(k.ipc.undos.used(), 0);
}

#[test]
fn what_is_undone_lets_others_go_on() {
    let k = Fake::new(1);
    let id = set_of(&k, &[1]);
    let child = k.fork();
    k.by(child, || assert_eq!(operate(&k, id, &[op(0, -1, UNDO)]), Ok(0)));
    k.then(child, |k| process_ended(k, process::handle(k)));
    assert_eq!(operate(&k, id, &[op(0, -1, 0)]), Ok(0));
    assert_eq!(values(&k, id, 1), [0]);
}

fn queue_of(k: &Fake<'_>) -> i32 {
    queue::get(k, abi::IPC_PRIVATE, 0o600).unwrap() as i32
}

fn send(k: &Fake<'_>, id: i32, kind: i64, text: &[u8], flags: i32) -> Result<usize> {
    let mut whole = kind.to_ne_bytes().to_vec();
    whole.extend(text);
    // SAFETY: a type and the text behind it.
    unsafe { queue::send(k, id, whole.as_ptr().cast(), text.len(), flags) }
}

fn receive(k: &Fake<'_>, id: i32, most: usize, wanted: i64, flags: i32) -> Result<(i64, Vec<u8>)> {
    let mut whole = vec![0u64; 1 + most.div_ceil(8)];
    // SAFETY: room for a type and so many bytes.
    let n = unsafe { queue::receive(k, id, whole.as_mut_ptr().cast(), most, wanted, flags)? };
    let bytes: Vec<u8> = whole[1..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok((whole[0] as i64, bytes[..n].to_vec()))
}

#[test]
fn a_receiver_chooses_by_type() {
    let k = Fake::new(1);
    let id = queue_of(&k);
    let messages = [(5, b"a"), (3, b"b"), (5, b"c"), (2, b"d"), (3, b"e"), (9, b"f"), (2, b"g")];
    for (kind, text) in messages {
        assert_eq!(send(&k, id, kind, text, 0), Ok(0));
    }
    let take = |wanted, flags| receive(&k, id, 9, wanted, flags | abi::IPC_NOWAIT);
    assert_eq!(take(4, 0), err(abi::ENOMSG));
    assert_eq!(take(-1, 0), err(abi::ENOMSG));
    assert_eq!(take(3, 0), Ok((3, b"b".to_vec())), "the oldest of its type");
    assert_eq!(take(-4, 0), Ok((2, b"d".to_vec())), "the oldest of the least type up to four");
    assert_eq!(take(-4, 0), Ok((2, b"g".to_vec())));
    assert_eq!(take(5, abi::MSG_EXCEPT), Ok((3, b"e".to_vec())), "the oldest of another type");
    assert_eq!(take(0, 0), Ok((5, b"a".to_vec())), "the oldest");
    assert_eq!(take(i64::MIN, 0), Ok((5, b"c".to_vec())));
    assert_eq!(take(0, 0), Ok((9, b"f".to_vec())));
    assert_eq!(take(0, 0), err(abi::ENOMSG));
    assert_eq!(k.ipc.messages.used(), 0);
}

#[test]
fn a_message_that_is_too_long_stays_unless_it_may_be_cut() {
    let k = Fake::new(1);
    let id = queue_of(&k);
    assert_eq!(send(&k, id, 1, b"hello", 0), Ok(0));
    assert_eq!(receive(&k, id, 4, 0, 0), err(abi::E2BIG));
    assert_eq!(receive(&k, id, 4, 0, abi::MSG_NOERROR), Ok((1, b"hell".to_vec())));
    assert_eq!(receive(&k, id, 4, 0, abi::IPC_NOWAIT), err(abi::ENOMSG), "the rest is lost");
    assert_eq!(send(&k, id, 1, b"", 0), Ok(0));
    assert_eq!(receive(&k, id, 0, 0, 0), Ok((1, vec![])));
    assert_eq!(send(&k, id, 0, b"x", 0), err(abi::EINVAL));
    assert_eq!(send(&k, id, -1, b"x", 0), err(abi::EINVAL));
    assert_eq!(send(&k, id, 1, &[0; 8193], 0), err(abi::EINVAL));
}

#[test]
fn a_full_queue_blocks_its_senders() {
    let k = Fake::new(2);
    let id = queue_of(&k);
    for _ in 0..2 {
        assert_eq!(send(&k, id, 1, &[7; 8192], 0), Ok(0));
    }
    assert_eq!(send(&k, id, 1, b"x", abi::IPC_NOWAIT), err(abi::EAGAIN));
    k.then(2, move |k| assert_eq!(receive(k, id, 8192, 0, 0).unwrap().1.len(), 8192));
    assert_eq!(send(&k, id, 2, b"x", 0), Ok(0));
    assert!(k.is_over());
    assert_eq!(receive(&k, id, 9, 2, 0), Ok((2, b"x".to_vec())));
}

#[test]
fn receivers_wait_for_their_type_and_end_with_the_queue() {
    let k = Fake::new(2);
    let id = queue_of(&k);
    k.then(2, move |k| assert_eq!(send(k, id, 1, b"other", 0), Ok(0)));
    k.then(2, move |k| assert_eq!(send(k, id, 2, b"mine", 0), Ok(0)));
    assert_eq!(receive(&k, id, 9, 2, 0), Ok((2, b"mine".to_vec())));
    k.then(2, |k| assert!(k.interrupt(1)));
    assert_eq!(receive(&k, id, 9, 2, 0), err(abi::EINTR), "SA_RESTART does not count");
    k.then(2, move |k| {
        // SAFETY: this command has no argument.
        assert_eq!(unsafe { queue::control(k, id, abi::IPC_RMID, 0) }, Ok(0));
    });
    assert_eq!(receive(&k, id, 9, 2, 0), err(abi::EIDRM));
    assert_eq!((k.ipc.messages.used(), k.ipc.queues.used()), (0, 0));
    assert_eq!(receive(&k, id, 9, 2, 0), err(abi::EINVAL));
}

fn open(k: &Fake<'_>, name: &str, flags: i32, size: Option<[i64; 2]>) -> Result<i32> {
    let name = CString::new(name).unwrap();
    let attributes = size.map(|[most, bytes]| mq::Attributes::of(most, bytes));
    let attributes = attributes.as_ref().map_or(null(), core::ptr::from_ref);
    // SAFETY: a string, and attributes or none.
    unsafe { mq::open(k, name.as_ptr(), flags, 0o644, attributes) }.map(|fd| fd as i32)
}

fn on<'a, R>(k: &Fake<'a>, fd: i32, call: impl FnOnce(&Hold<'_, Fake<'a>>) -> R) -> R {
    call(&Hold::new(k, k.file_of(fd).expect("an open descriptor")))
}

fn post(k: &Fake<'_>, fd: i32, text: &[u8], priority: u32, deadline: Option<u64>) -> Result<usize> {
    // SAFETY: a slice.
    on(k, fd, |hold| unsafe { mq::send(k, hold, text.as_ptr(), text.len(), priority, deadline) })
}

fn take(k: &Fake<'_>, fd: i32, most: usize, deadline: Option<u64>) -> Result<(u32, Vec<u8>)> {
    let (mut bytes, mut priority) = (vec![0; most], 0);
    // SAFETY: a buffer and a word.
    let n = on(k, fd, |hold| unsafe {
        mq::receive(k, hold, bytes.as_mut_ptr(), most, &raw mut priority, deadline)
    })?;
    bytes.truncate(n);
    Ok((priority, bytes))
}

fn mask(k: &Fake<'_>, fd: i32) -> u32 {
    file::mask(k, k.file_of(fd).unwrap())
}

const CREATE: i32 = abi::O_CREAT | abi::O_RDWR;

#[test]
fn a_posix_queue_orders_by_priority_then_by_age() {
    let k = Fake::new(1);
    let fd = open(&k, "q", CREATE, None).unwrap();
    for (text, priority) in [(b"a", 1), (b"b", 5), (b"c", 0), (b"d", 5), (b"e", 1)] {
        assert_eq!(post(&k, fd, text, priority, None), Ok(0));
    }
    for (priority, text) in [(5, b"b"), (5, b"d"), (1, b"a"), (1, b"e"), (0, b"c")] {
        assert_eq!(take(&k, fd, 8192, None), Ok((priority, text.to_vec())));
    }
    k.close(fd);
}

#[test]
fn a_posix_queue_is_found_by_its_name() {
    let k = Fake::new(1);
    assert_eq!(open(&k, "q", abi::O_RDWR, None), err(abi::ENOENT));
    assert_eq!(open(&k, "a/b", CREATE, None), err(abi::EACCES));
    assert_eq!(open(&k, "", CREATE, None), err(abi::ENOENT));
    assert_eq!(open(&k, &"n".repeat(256), CREATE, None), err(abi::ENAMETOOLONG));
    assert_eq!(open(&k, "q", CREATE, Some([0, 8])), err(abi::EINVAL));
    let one = open(&k, "q", CREATE, Some([2, 8])).unwrap();
    assert_eq!(open(&k, "q", CREATE | abi::O_EXCL, None), err(abi::EEXIST));
    let two = open(&k, "q", abi::O_RDONLY, None).unwrap();
    assert_eq!(post(&k, one, b"x", 0, None), Ok(0));
    assert_eq!(post(&k, two, b"x", 0, None), err(abi::EBADF), "it is for reading");
    let name = CString::new("q").unwrap();
    // SAFETY: a string.
    let unlink = || unsafe { mq::unlink(&k, name.as_ptr()) };
    k.user.set([5, 5]);
    assert_eq!(open(&k, "q", abi::O_WRONLY, None), err(abi::EACCES));
    assert_eq!(unlink(), err(abi::EACCES));
    k.user.set([0, 0]);
    assert_eq!((unlink(), unlink()), (Ok(0), err(abi::ENOENT)));
    assert_eq!(take(&k, two, 8, None), Ok((0, b"x".to_vec())), "it lives while it is open");
    let other = open(&k, "q", CREATE, None).unwrap();
    assert_eq!(mask(&k, other), ready::OUT, "another one of the same name");
    for fd in [one, two] {
        k.close(fd);
    }
    assert_eq!(k.ipc.mqs.used(), 1);
    k.close(other);
    assert_eq!(k.ipc.mqs.used(), 1, "one with a name outlives its descriptors");
}

#[test]
fn a_posix_queue_has_bounds_and_is_ready() {
    let k = Fake::new(1);
    let fd = open(&k, "q", CREATE | abi::O_NONBLOCK, Some([1, 4])).unwrap();
    assert_eq!(mask(&k, fd), ready::OUT);
    assert_eq!(take(&k, fd, 4, None), err(abi::EAGAIN));
    assert_eq!(post(&k, fd, b"12345", 0, None), err(abi::EMSGSIZE));
    assert_eq!(post(&k, fd, b"1234", 0, None), Ok(0));
    assert_eq!(mask(&k, fd), ready::IN);
    assert_eq!(post(&k, fd, b"1", 0, None), err(abi::EAGAIN));
    assert_eq!(take(&k, fd, 3, None), err(abi::EMSGSIZE), "room for the longest is asked for");
    let set = |new: Option<i64>| {
        let new = new.map(mq::Attributes::with_flags);
        on(&k, fd, |hold| mq::attributes(&k, hold, new.as_ref()))
    };
    assert_eq!(set(Some(1)), err(abi::EINVAL));
    let nonblock = i64::from(abi::O_NONBLOCK);
    assert_eq!(set(Some(0)).unwrap().numbers(), [nonblock, 1, 4, 1]);
    assert_eq!(set(None).unwrap().numbers(), [0, 1, 4, 1]);
    k.close(fd);
}

#[test]
fn waits_for_a_posix_queue_end() {
    let k = Fake::new(2);
    let fd = open(&k, "q", CREATE, Some([1, 4])).unwrap();
    k.then(2, move |k| assert_eq!(post(k, fd, b"x", 3, None), Ok(0)));
    assert_eq!(take(&k, fd, 4, None), Ok((3, b"x".to_vec())));
    let at = k.now_ns.get() + 70;
    assert_eq!(take(&k, fd, 4, Some(at)), err(abi::ETIMEDOUT));
    assert_eq!(k.now_ns.get(), at);
    assert_eq!(take(&k, fd, 4, Some(at - 1)), err(abi::ETIMEDOUT), "at once");
    k.then(2, |k| assert!(k.interrupt(1)));
    assert_eq!(take(&k, fd, 4, Some(at + 70)), Err(RESTART), "the limit is a time of day");
    k.deliver_signals();
    assert_eq!(post(&k, fd, b"y", 0, None), Ok(0));
    k.then(2, move |k| assert_eq!(take(k, fd, 4, None), Ok((0, b"y".to_vec()))));
    assert_eq!(post(&k, fd, b"z", 0, None), Ok(0), "there is room again");
    k.close(fd);
}

#[test]
fn a_segment_goes_with_its_last_mapping() {
    let k = Fake::new(1);
    let made = core::cell::Cell::new(0);
    let get = |key, bytes, flags| {
        segment::get(&k, key, bytes, flags, |_| {
            made.set(made.get() + 1);
            Ok(made.get())
        })
    };
    assert_eq!(get(7, 0, abi::IPC_CREAT), err(abi::EINVAL), "no size");
    let id = get(7, 5000, abi::IPC_CREAT | 0o600).unwrap() as i32;
    assert_eq!(get(7, 5000, 0), Ok(id as usize));
    assert_eq!(get(7, 5001, 0), err(abi::EINVAL), "it is smaller");
    assert_eq!((segment::memory(&k, id, 0), made.get()), (Ok((1, 5000)), 1));
    segment::attached(&k, id);
    segment::attached(&k, id);
    assert_eq!(segment::detached(&k, id), None);
    // SAFETY: takes no argument.
    let remove = || unsafe { segment::control(&k, id, abi::IPC_RMID, 0) };
    assert_eq!(remove(), Ok((0, None)), "it is mapped");
    assert_eq!(get(7, 5000, 0), err(abi::ENOENT), "its key is free");
    assert_eq!(segment::memory(&k, id, 0), Ok((1, 5000)), "its id still finds it");
    assert_eq!(segment::detached(&k, id), Some(1));
    assert_eq!(segment::memory(&k, id, 0), err(abi::EINVAL));
    let id = get(7, 1, abi::IPC_CREAT).unwrap() as i32;
    // SAFETY: as above.
    assert_eq!(unsafe { segment::control(&k, id, abi::IPC_RMID, 0) }, Ok((0, Some(2))));
}

#[test]
fn a_segments_owner_lets_others_read() {
    let k = Fake::new(1);
    k.user.set([1000, 100]);
    let id = segment::get(&k, 3, 1, abi::IPC_CREAT | 0o640, |_| Ok(1)).unwrap() as i32;
    k.user.set([1001, 100]);
    assert_eq!(segment::memory(&k, id, segment::READ_ONLY), Ok((1, 1)));
    assert_eq!(segment::memory(&k, id, 0), err(abi::EACCES));
    // SAFETY: takes no argument.
    assert_eq!(unsafe { segment::control(&k, id, abi::IPC_RMID, 0) }, err(abi::EPERM));
}
