//! Rust's standard library threads: spawn, scoped, channels, Mutex, Condvar, RwLock, Barrier, Once, park, thread locals.
//! All of them stand on raw futex calls, not on pthread mutexes. Deterministic facts to standard output, the order in
//! which things happened to standard error.
//!
//! expect: same

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock};
use std::thread;
use std::time::Duration;

thread_local! {
    static LOCAL: Cell<usize> = const { Cell::new(1) };
}

fn channels() {
    let (sender, receiver) = mpsc::channel();
    let mut order = Vec::new();
    let threads: Vec<_> = (0..4)
        .map(|id| {
            let sender = sender.clone();
            thread::spawn(move || (0..50).for_each(|n| sender.send(id * 100 + n).unwrap()))
        })
        .collect();
    drop(sender);
    while let Ok(value) = receiver.recv() {
        order.push(value);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let digest = order.iter().fold(7u64, |digest, value| digest.wrapping_mul(31).wrapping_add(*value));
    eprintln!("channel order {digest:016x}");
    println!("received {} sum {}", order.len(), order.iter().sum::<u64>());

    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::spawn(move || (0..20).for_each(|n| sender.send(n).unwrap()));
    println!("bounded channel sum {}", receiver.iter().sum::<i32>());
    thread.join().unwrap();
    let (_sender, receiver) = mpsc::channel::<()>();
    println!("timeout {}", receiver.recv_timeout(Duration::from_millis(10)).is_err());
}

fn locks() {
    let shared = Arc::new((Mutex::new(0u64), Condvar::new()));
    let table = Arc::new(RwLock::new(HashMap::new()));
    let threads: Vec<_> = (0..4u64)
        .map(|id| {
            let (shared, table) = (shared.clone(), table.clone());
            thread::spawn(move || {
                for round in 0..25 {
                    let mut turn = shared.0.lock().unwrap();
                    while *turn % 4 != id {
                        turn = shared.1.wait(turn).unwrap();
                    }
                    *turn += 1;
                    shared.1.notify_all();
                    drop(turn);
                    table.write().unwrap().insert((id, round), id * round);
                    assert!(table.read().unwrap().contains_key(&(id, round)));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("turns {} entries {}", shared.0.lock().unwrap(), table.read().unwrap().len());
    // The hash seed is random: the iteration order shows it.
    let keys: Vec<_> = table.read().unwrap().keys().take(5).copied().collect();
    eprintln!("first keys {keys:?}");
    let (turn, timeout) = shared.1.wait_timeout(shared.0.lock().unwrap(), Duration::from_millis(10)).unwrap();
    println!("timed out {} at {}", timeout.timed_out(), *turn);
}

fn rest() {
    static ONCE: OnceLock<usize> = OnceLock::new();
    let barrier = Barrier::new(3);
    let leaders = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..10 {
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::SeqCst);
                    }
                }
                LOCAL.set(LOCAL.get() + 1);
                assert_eq!(LOCAL.get(), 2);
                assert_eq!(*ONCE.get_or_init(|| 17), 17);
            });
        }
    });
    println!("leaders {} local {}", leaders.load(Ordering::SeqCst), LOCAL.get());

    let parked = thread::spawn(|| {
        thread::park();
        thread::park_timeout(Duration::from_millis(10));
        "unparked"
    });
    parked.thread().unpark();
    println!("{}", parked.join().unwrap());
    let panicked = thread::spawn(|| std::panic::resume_unwind(Box::new(5))).join();
    println!("panic caught {}", panicked.is_err());
}

fn main() {
    channels();
    locks();
    rest();
}
