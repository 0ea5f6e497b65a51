//! Two threads for one loop: one runs it, the other takes over when a disk holds it up.
//!
//! A follower's thread makes its log durable by itself: handing that to another thread costs two wake-ups an entry, and meanwhile it has
//! nothing else to do, as long as the disk takes no longer than usual. A disk that stalls must not make
//! a silent node, which its leader would take for a dead one. So the writing thread lays the loop's state aside, and takes it up again
//! afterwards, unless the other thread has found it there for too long and runs the loop with it. Then they have changed places.
//!
//! The other thread looks every [`PATIENCE`] while there are writes, and sleeps when there are none.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// State that lies aside for this long is taken up by the other thread: less than the pause between two heartbeats.
pub const PATIENCE: Duration = Duration::from_millis(10);

/// See the [module](self). `T` is the loop's state, `E` its result.
pub struct Relief<T, E> {
    state: Mutex<State<T, E>>,
    changed: Condvar,
}

struct State<T, E> {
    aside: Option<(T, Instant)>,
    /// The number of times that state was laid aside.
    times: u64,
    /// The other thread sleeps until it is woken.
    asleep: bool,
    ended: bool,
    end: Option<E>,
}

impl<T, E> Default for Relief<T, E> {
    fn default() -> Self {
        let state = State { aside: None, times: 0, asleep: false, ended: false, end: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T, E> Relief<T, E> {
    /// Lays `what` aside while `work` is done. Answers it, unless the other thread has taken it, and the result of the work.
    pub fn aside<R>(&self, what: T, work: impl FnOnce() -> R) -> (Option<T>, R) {
        let mut state = self.lock();
        state.aside = Some((what, Instant::now()));
        state.times += 1;
        let own = state.times;
        if std::mem::take(&mut state.asleep) {
            self.changed.notify_one();
        }
        drop(state);
        let result = work();
        let mut state = self.lock();
        // The other thread may have taken it, and laid it aside in its turn.
        let kept = if state.times == own { state.aside.take() } else { None };
        (kept.map(|(what, _)| what), result)
    }

    /// Waits until state lies aside for too long, and takes it; nothing when the loop has ended.
    pub fn take_up(&self) -> Option<T> {
        let mut state = self.lock();
        let mut seen = state.times;
        loop {
            if state.ended {
                return None;
            }
            let lain = state.aside.as_ref().map(|(_, since)| since.elapsed());
            let pause = match lain {
                Some(lain) if lain >= PATIENCE => return state.aside.take().map(|(what, _)| what),
                Some(lain) => PATIENCE - lain,
                None if state.times != seen => PATIENCE,
                None => {
                    state.asleep = true;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.asleep = false;
                    continue;
                }
            };
            seen = state.times;
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends it for both threads; the first end counts.
    pub fn end(&self, end: Option<E>) {
        let mut state = self.lock();
        if !state.ended {
            state.ended = true;
            state.end = end;
        }
        self.changed.notify_all();
    }

    /// The result, when both threads are done.
    pub fn into_end(self) -> Option<E> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).end
    }

    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    fn wait_until_asleep<T, E>(relief: &Relief<T, E>) {
        while !relief.lock().asleep {
            thread::yield_now();
        }
    }

    #[test]
    fn who_is_not_relieved_keeps_what_it_had() {
        let relief = Relief::<u32, ()>::default();
        for n in 0..100 {
            assert_eq!(relief.aside(n, || 2 * n), (Some(n), 2 * n));
        }
    }

    #[test]
    fn who_is_held_up_is_relieved_and_relieves() {
        let relief = Relief::<Vec<u8>, u8>::default();
        let (free_first, first) = channel();
        let (free_second, second) = channel();
        thread::scope(|scope| {
            let relief = &relief;
            let other = scope.spawn(move || {
                let mut what = relief.take_up().expect("the first one is held up");
                what.push(2);
                free_first.send(()).unwrap();
                let (kept, ()) = relief.aside(what, || second.recv().unwrap());
                assert_eq!(kept, None, "the first one has it again");
                assert_eq!(relief.take_up(), None, "all has ended");
            });
            wait_until_asleep(relief);
            let (kept, result) = relief.aside(vec![1], || first.recv().map(|()| 7).unwrap());
            assert_eq!((kept, result), (None, 7), "the other one has it");
            let mut what = relief.take_up().expect("the other one is held up");
            what.push(3);
            assert_eq!(what, [1, 2, 3]);
            free_second.send(()).unwrap();
            wait_until_asleep(relief);
            relief.end(Some(9));
            relief.end(Some(10));
            other.join().unwrap();
        });
        assert_eq!(relief.into_end(), Some(9), "the first end counts");
    }
}
