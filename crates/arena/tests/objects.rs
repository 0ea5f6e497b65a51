//! The heap's objects against models: byte queues, pools, lists; and an arena mapped twice, as by a node and a server.
#![cfg(not(loom))]

use proptest::prelude::*;
use skein_arena::bytes::{ByteQueue, CHUNK_BYTES, Chunk, Chunks};
use skein_arena::layout::{SERVER_BASE, Sizes};
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Pool};
use skein_arena::{Arena, MapError};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Zeroed, page-aligned memory for a pool, and the pool.
fn pool<T: ArenaObject>(capacity: u32) -> (Vec<u128>, Box<Pool<T>>) {
    let bytes = Pool::<T>::bytes(capacity) + 4096;
    let mut memory = vec![0u128; bytes.div_ceil(16)];
    let base = memory.as_mut_ptr().cast::<u8>();
    let aligned = base.wrapping_add(base.align_offset(4096));
    // SAFETY: all-zero bytes are an empty pool.
    let pool: Box<Pool<T>> = Box::new(unsafe { std::mem::zeroed() });
    // SAFETY: the memory is aligned, zero, large enough and returned together with the pool.
    unsafe { pool.init(aligned, capacity) };
    (memory, pool)
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Pop(usize),
    Peek(usize, usize),
    Discard(usize),
    Front,
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0..3 * CHUNK_BYTES;
    prop_oneof![
        n.clone().prop_map(Op::Push),
        n.clone().prop_map(Op::Pop),
        (n.clone(), n.clone()).prop_map(|(a, b)| Op::Peek(a, b)),
        n.prop_map(Op::Discard),
        Just(Op::Front),
    ]
}

proptest! {
    #[test]
    fn a_byte_queue_is_a_deque(ops in proptest::collection::vec(op(), 0..60)) {
        const CHUNKS: u32 = 8;
        let (_memory, chunks) = pool::<skein_arena::bytes::Chunk>(CHUNKS);
        let chunks: &Chunks = &chunks;
        let queue = ByteQueue::default();
        let mut model = VecDeque::new();
        let mut next = 0u8;
        for op in ops {
            match op {
                Op::Push(n) => {
                    let bytes: Vec<u8> = (0..n).map(|_| { next = next.wrapping_add(7); next }).collect();
                    let took = queue.push(chunks, &bytes);
                    prop_assert!(took == n || chunks.used() == CHUNKS);
                    model.extend(&bytes[..took]);
                }
                Op::Pop(n) => {
                    let mut out = vec![0; n];
                    let got = queue.pop(chunks, &mut out);
                    let want: Vec<u8> = model.drain(..n.min(model.len())).collect();
                    prop_assert_eq!(&out[..got], &want[..]);
                }
                Op::Peek(skip, n) => {
                    let mut out = vec![0; n];
                    let got = queue.peek(chunks, skip, &mut out);
                    let want: Vec<u8> = model.iter().skip(skip).take(n).copied().collect();
                    prop_assert_eq!(&out[..got], &want[..]);
                }
                Op::Discard(n) => {
                    queue.discard(chunks, n);
                    model.drain(..n.min(model.len()));
                }
                Op::Front => {
                    let front = queue.front(chunks);
                    prop_assert_eq!(front.is_empty(), model.is_empty());
                    prop_assert!(model.iter().zip(front).all(|(a, b)| a == b));
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
        queue.clear(chunks);
        prop_assert_eq!(chunks.used(), 0, "an empty queue holds no chunk");
    }
}

#[repr(C)]
struct Item {
    node: Node<Item>,
    value: std::cell::Cell<u32>,
}
struct Only;
// SAFETY: a node and a cell; all-zero is valid.
unsafe impl ArenaObject for Item {}
impl In<Only> for Item {
    fn node(&self) -> &Node<Item> {
        &self.node
    }
}

#[test]
fn a_pool_gives_the_same_handles_for_the_same_history() {
    let run = || {
        let (_memory, pool) = pool::<Item>(4);
        let a = pool.alloc().unwrap();
        let b = pool.alloc().unwrap();
        pool.get(a).value.set(5);
        pool.free(a);
        let c = pool.alloc().unwrap();
        assert_eq!(pool.get(c).value.get(), 0, "a new object is zero");
        let d = pool.alloc().unwrap();
        let e = pool.alloc().unwrap();
        assert!(pool.alloc().is_none(), "a full pool says so");
        [a, b, c, d, e].map(Handle::raw)
    };
    assert_eq!(run(), run());
    assert_eq!(run(), [1, 2, 1, 3, 4]);
}

#[test]
fn a_page_that_a_queue_had_is_zero_for_the_next_who_takes_it_whole() {
    let (_memory, chunks) = pool::<Chunk>(1);
    let queue = ByteQueue::default();
    for _ in 0..2 {
        assert_eq!(queue.push(&chunks, &[0xff; CHUNK_BYTES]), CHUNK_BYTES);
        queue.clear(&chunks);
        let page = chunks.alloc().unwrap();
        // SAFETY: a chunk is a page of plain bytes, and no other code has it.
        let bytes = unsafe { std::ptr::from_ref(chunks.get(page)).cast::<[u8; 4096]>().read() };
        assert!(bytes.iter().all(|byte| *byte == 0));
        chunks.free(page);
    }
}

proptest! {
    #[test]
    fn a_list_is_a_vector(ops in proptest::collection::vec((0u8..4, 0usize..16), 0..100)) {
        let (_memory, pool) = pool::<Item>(16);
        let list: List<Item, Only> = List::default();
        let items: Vec<_> = (0..16).map(|_| pool.alloc().unwrap()).collect();
        let mut model: Vec<usize> = Vec::new();
        for (kind, i) in ops {
            match kind {
                0 if !model.contains(&i) => { list.push_back(&pool, items[i]); model.push(i); }
                3 if !model.contains(&i) => { list.push_front(&pool, items[i]); model.insert(0, i); }
                1 if model.contains(&i) => { list.remove(&pool, items[i]); model.retain(|x| *x != i); }
                2 => {
                    let want = if model.is_empty() { None } else { Some(items[model.remove(0)]) };
                    prop_assert_eq!(list.pop_front(&pool), want);
                }
                _ => {}
            }
            let mut seen = Vec::new();
            let mut at = list.front();
            while let Some(h) = at { seen.push(h); at = list.next(&pool, h); }
            let want: Vec<_> = model.iter().map(|i| items[*i]).collect();
            prop_assert_eq!(&seen, &want);
            prop_assert_eq!(list.iter(&pool).map(|(h, _)| h).collect::<Vec<_>>(), want);
            prop_assert_eq!(list.len() as usize, model.len());
        }
        // Each element may be removed when the iteration reaches it.
        let mut taken = Vec::new();
        for (h, _) in list.iter(&pool) {
            list.remove(&pool, h);
            taken.push(h);
        }
        prop_assert_eq!(taken, model.iter().map(|i| items[*i]).collect::<Vec<_>>());
        prop_assert!(list.is_empty());
    }
}

fn memfd() -> OwnedFd {
    // SAFETY: makes a descriptor that is owned from here on.
    unsafe {
        let fd = libc::memfd_create(c"arena".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// One test maps at the server's fixed address at a time.
static FIXED: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn what_the_node_writes_the_server_reads_across_the_wrap() {
    let _alone = FIXED.lock().unwrap();
    let fd = memfd();
    let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
    let node = Arena::create(fd.as_raw_fd(), sizes).unwrap();
    let server = Arena::attach(fd.as_raw_fd()).unwrap();
    assert_eq!(std::ptr::from_ref(server.header()) as usize, SERVER_BASE);
    assert!(node.heap().is_none(), "the node never maps the heap");
    assert_eq!(server.heap().unwrap().1, sizes.heap);
    // SAFETY: one node and one server.
    let ((mut input, mut node_out), (mut server_in, mut output)) =
        unsafe { (node.node_ends(), server.server_ends()) };
    let piece = sizes.input / 3 + 8;
    for round in 0..10u8 {
        let space = input.reserve(piece).unwrap().expect("room for a third");
        space.fill(round);
        input.publish(piece);
        let seen = server_in.readable().unwrap();
        assert_eq!(seen.len(), piece);
        assert!(seen.iter().all(|b| *b == round));
        server_in.release(piece);
    }
    assert!(input.reserve(sizes.input).unwrap().is_some(), "an empty ring has all its room");
    assert!(input.reserve(sizes.input + 1).unwrap().is_none());
    output.reserve(8).unwrap().unwrap().copy_from_slice(b"12345678");
    output.publish(8);
    assert_eq!(node_out.readable().unwrap(), b"12345678");
    node_out.release(8);
}

#[test]
fn a_hostile_position_is_an_error_not_an_access() {
    let _alone = FIXED.lock().unwrap();
    let fd = memfd();
    let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
    let node = Arena::create(fd.as_raw_fd(), sizes).unwrap();
    // SAFETY: the only ends.
    let (mut input, output) = unsafe { node.node_ends() };
    node.header().output.head.0.store(u64::MAX / 2, std::sync::atomic::Ordering::Relaxed);
    assert!(output.readable().is_err());
    node.header().input.tail.0.store(77, std::sync::atomic::Ordering::Relaxed);
    assert!(input.reserve(8).is_err());
}

#[test]
fn nobody_changes_an_arenas_size() {
    let _alone = FIXED.lock().unwrap();
    let fd = memfd();
    let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
    let node = Arena::create(fd.as_raw_fd(), sizes).unwrap();
    let refused = |result: i32| {
        result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    };
    for bytes in [0, sizes.file_bytes() as libc::off_t * 2] {
        // SAFETY: an own file.
        assert!(refused(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) }));
    }
    // SAFETY: as above.
    assert!(refused(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) }));
    // Punched-out memory reads as zeros: the node finds no arena, but lives.
    let holes = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: as above.
    let punched =
        unsafe { libc::fallocate(fd.as_raw_fd(), holes, 0, sizes.file_bytes() as libc::off_t) };
    assert_eq!(punched, 0);
    assert_eq!(node.header().magic.load(std::sync::atomic::Ordering::Relaxed), 0);
    // SAFETY: the only ends.
    let (_input, output) = unsafe { node.node_ends() };
    assert_eq!(output.readable(), Ok(&[][..]));
}

#[test]
fn a_file_that_is_no_arena_is_refused() {
    let _alone = FIXED.lock().unwrap();
    let fd = memfd();
    // SAFETY: sizes an own file.
    assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 1 << 20) }, 0);
    assert_eq!(Arena::attach(fd.as_raw_fd()).unwrap_err(), MapError::Magic(0));
    let small = Sizes { heap: 4096, ..Sizes::default() };
    let error = Arena::create(fd.as_raw_fd(), small).unwrap_err();
    assert!(error.to_string().starts_with("arena too small"), "{error}");
}
