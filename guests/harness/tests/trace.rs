//! Recorded operations: equal in two runs, and not part of the memory that replicas compare.

use skein_harness::images::Images;
use skein_harness::node::{End, ORDINARY, Role};
use skein_harness::runner::{How, skein};
use skein_harness::script::Script;

/// Threads, processes, programs, waits, signals, ends.
const GUESTS: &[&str] = &[
    "thread/mutex_contended",
    "descriptor/epoll_threads",
    "process/fork_wait",
    "process/exec_self",
    "signal/signal_threads",
    "thread/thread_cancel",
    "file/file_mapping",
];

#[test]
fn two_traced_runs_hold_the_same_in_memory_and_have_the_same_trace() {
    let images = Images::build().expect("the guests build");
    for name in GUESTS {
        let program = images.guests.join(name);
        let run = |role, traced| {
            let how = How { traced, ..How::default() };
            let run = skein(&program, &[], &images.library, role, how).expect("it runs");
            assert_eq!(run.account.end, End::Status(0), "{name}");
            run
        };
        let leader = run(Role::Leader(Script::default(), ORDINARY), false);
        let follower = || run(Role::Follower(leader.account.log.clone()), true);
        let (a, b) = (follower(), follower());
        let (one, other) = (a.trace.expect("traced"), b.trace.expect("traced"));
        let differs = one.iter().zip(&other).position(|(a, b)| a != b);
        assert_eq!((differs, one.len()), (None, other.len()), "{name}");
        assert!(one.len() > 10, "{name}: {one:?}");
        let (one, other) = (a.account.heap, b.account.heap);
        assert!(one.len() > 1, "{name}: a heap has more than a page");
        let differs = one.iter().zip(&other).find(|(a, b)| a != b).map(|(a, _)| a.0);
        assert_eq!((differs, one.len()), (None, other.len()), "{name}: this page differs");
    }
}
