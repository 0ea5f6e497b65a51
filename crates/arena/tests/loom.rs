//! Every interleaving of a sleeper and a waker, and of a ring's two sides.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p skein-arena --release --test loom`.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use skein_arena::full;
use skein_arena::gate::{Gate, News};
use skein_arena::layout::{Line, Positions, state};
use skein_arena::planned::{Plan, Step};
use skein_arena::ring::{Consumer, Producer};

/// A gate and what is published behind it.
struct Shared {
    gate: Gate,
    published: AtomicU64,
}

/// If the sleeper would sleep (the gate is closed and nothing was seen), the waker must know that it has to wake it.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let shared = Arc::new(Shared { gate: Gate::default(), published: AtomicU64::new(0) });
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.published.store(1, Ordering::Release);
                shared.gate.open()
            })
        };
        shared.gate.close();
        let seen = shared.published.load(Ordering::Acquire) == 1;
        let woken = waker.join().unwrap();
        assert!(
            seen || woken || !shared.gate.is_closed(),
            "the sleeper sleeps and nobody wakes it"
        );
    });
}

/// A sleeper that wants news only, and sees neither what was said nor that it is needed earlier, is woken.
#[test]
fn no_news_are_lost() {
    struct Shared {
        gate: Gate,
        news: News,
        published: AtomicU64,
    }
    for (says, due) in [(true, 9), (false, 7)] {
        loom::model(move || {
            let (gate, news) = (Gate::default(), News::default());
            let shared = Arc::new(Shared { gate, news, published: AtomicU64::new(0) });
            let waker = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.published.store(1, Ordering::Relaxed);
                    if says {
                        shared.news.say();
                    }
                    shared.gate.open_for(|| shared.news.has_any(due, None))
                })
            };
            shared.news.expect(8);
            shared.gate.close_calmly();
            let seen = shared.published.load(Ordering::Relaxed) == 1;
            let woken = waker.join().unwrap();
            assert!(seen || woken, "the sleeper sleeps and nobody wakes it");
        });
    }
}

/// If the runtime would sleep (its gate is closed and it saw no room), the node, which made room, must know that it has to wake it.
#[test]
fn who_waits_for_room_is_woken() {
    struct Shared {
        gate: Gate,
        state: AtomicU32,
        taken: AtomicU64,
    }
    loom::model(|| {
        let state = AtomicU32::new(state::RUNNING);
        let shared = Arc::new(Shared { gate: Gate::default(), state, taken: AtomicU64::new(0) });
        let node = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.taken.store(8, Ordering::Release);
                full::was_said(&shared.state) && shared.gate.open()
            })
        };
        full::say(&shared.state);
        shared.gate.close();
        let room = shared.taken.load(Ordering::Acquire) == 8;
        let woken = node.join().unwrap();
        assert!(
            room || woken || !shared.gate.is_closed(),
            "the runtime waits for room that there is"
        );
    });
}

const STEP: Step = Step { not_before_ns: 10, stamp_ns: 20, at_ns: 5, bytes: 8 };

/// The node counts what the server has taken, and that was written before it was planned.
#[test]
fn a_planned_entry_is_taken_or_withdrawn() {
    struct Shared {
        plan: Plan,
        entry: AtomicU64,
    }
    loom::model(|| {
        let shared = Arc::new(Shared { plan: Plan::default(), entry: AtomicU64::new(0) });
        let server = {
            let shared = shared.clone();
            thread::spawn(move || {
                let taken = shared.plan.next(15).filter(|next| shared.plan.take(next, 15));
                assert!(taken.is_none() || shared.entry.load(Ordering::Relaxed) == 1);
                taken.is_some()
            })
        };
        shared.entry.store(1, Ordering::Relaxed);
        shared.plan.make(&[STEP], 30);
        let counted = shared.plan.withdraw(1);
        if counted == Some(0) {
            // The place is the node's again.
            shared.entry.store(2, Ordering::Relaxed);
        }
        assert_eq!(counted, Some(usize::from(server.join().unwrap())));
        assert!(counted == Some(0) || shared.plan.due_ns(0) == 15);
    });
}

/// A server that sleeps, and has not seen the plan, is woken.
#[test]
fn a_plan_is_seen() {
    struct Shared {
        plan: Plan,
        gate: Gate,
    }
    for before in [false, true] {
        loom::model(move || {
            let shared = Arc::new(Shared { plan: Plan::default(), gate: Gate::default() });
            if before {
                // It sleeps for an entry with the same stamp, which is withdrawn meanwhile.
                shared.plan.make(&[STEP], 30);
                assert!(shared.plan.look(Some(15)).is_some());
                assert_eq!(shared.plan.withdraw(1), Some(0));
            }
            let node = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.plan.make(&[STEP], 30);
                    shared.plan.is_missed(&shared.gate, STEP.stamp_ns)
                })
            };
            shared.gate.close();
            let next = shared.plan.look(Some(15));
            let woken = node.join().unwrap();
            assert!(next.is_some() || woken, "the server sleeps and nobody wakes it");
        });
    }
}

#[test]
fn what_is_published_is_read_whole() {
    loom::model(|| {
        const CAPACITY: usize = 16;
        let positions =
            Arc::new(Positions { head: Line(AtomicU64::new(0)), tail: Line(AtomicU64::new(0)) });
        // Twice the capacity stands for the double mapping; nothing wraps here.
        let data = Box::leak(vec![0u8; 2 * CAPACITY].into_boxed_slice());
        let at = data.as_mut_ptr() as usize;
        let producer = {
            let positions = positions.clone();
            thread::spawn(move || {
                // SAFETY: the only producer; the memory is leaked.
                let mut p = unsafe { Producer::new(&*positions, at as *mut u8, CAPACITY) };
                for value in [1u8, 2] {
                    p.reserve(8).unwrap().expect("room for both").fill(value);
                    p.publish(8);
                }
            })
        };
        // SAFETY: the only consumer; the memory is leaked.
        let mut c = unsafe { Consumer::new(&*positions, at as *const u8, CAPACITY) };
        let seen = c.readable().unwrap();
        assert!(matches!(seen.len(), 0 | 8 | 16));
        assert!(seen.iter().enumerate().all(|(i, b)| *b == 1 + (i / 8) as u8));
        let n = seen.len();
        c.release(n);
        producer.join().unwrap();
        assert_eq!(c.readable().unwrap().len(), 16 - n);
        // SAFETY: both sides are done.
        drop(unsafe {
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(at as *mut u8, 2 * CAPACITY))
        });
    });
}
