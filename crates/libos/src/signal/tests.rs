//! Receivers of signals, pending signals, and the state in a handler.

use super::{Action, Info, LAST, Target, bit, deliver, mask, post, send, timer, wait};
use crate::abi::{self, epoll_event};
use crate::errno::{Errno, Result};
use crate::fake::{FIRST_TID, Fake, HANDLER, REAL_USER};
use crate::file::{Hold, epoll};
use crate::host::Host;
use crate::thread::Life;
use crate::time::Timeout;
use skein_arena::pool::Handle;

/// The kernel's first real-time signal that libc leaves to programs.
const RT: i32 = 34;

/// Thread `number`'s process handles `signo`.
fn handle(k: &Fake<'_>, number: u32, signo: i32, action: Action) {
    k.by(number, || super::action::set(k, signo, Some(action))).unwrap();
}

fn handler(flags: i32, mask: u64) -> Action {
    Action { handler: HANDLER, flags: flags as u32 as u64, restorer: 0, mask }
}

fn ignore() -> Action {
    Action { handler: abi::SIG_IGN, ..Action::default() }
}

/// Thread `number` blocks these signals and no others.
fn block(k: &Fake<'_>, number: u32, set: u64) {
    k.by(number, || mask::change_mask(k, abi::SIG_SETMASK, Some(set))).unwrap();
}

/// The turn's holder sends a signal to a process: its own, as another one would.
fn send_to_all(k: &Fake<'_>, signo: i32) {
    let process = crate::process::handle(k);
    post(k, Target::Process(process), Info::sent(k, signo, abi::SI_USER)).unwrap();
}

fn send_to(k: &Fake<'_>, number: u32, signo: i32, value: u64) -> Result<()> {
    let info = Info { value, ..Info::sent(k, signo, -1) };
    post(k, Target::Thread(Handle::from_raw(number).unwrap()), info)
}

/// Thread `number` comes to the end of a call.
fn ends_call(k: &Fake<'_>, number: u32) {
    k.by(number, || deliver(k));
}

/// The threads and signals that were handled, oldest first; forgets them.
fn handled(k: &Fake<'_>) -> Vec<(u32, i32)> {
    k.handled.take().iter().map(|(thread, info, _)| (*thread, info.signo)).collect()
}

/// A signalfd's edges.
struct Edges {
    set: i32,
    seen: usize,
}

impl Edges {
    /// Those of a new signalfd for `signals`.
    fn of(k: &Fake<'_>, signals: u64) -> Self {
        let fd = super::signalfd::create(k, signals, 0).unwrap() as i32;
        let set = epoll::create(k, 0).unwrap() as i32;
        let hold = Hold::new(k, k.file_of(set).unwrap());
        let events = (abi::EPOLLIN | abi::EPOLLET) as u32;
        epoll::control(k, &hold, abi::EPOLL_CTL_ADD, fd, Some((events, 0))).unwrap();
        Self { set, seen: 0 }
    }

    /// Counts one if there was one since the last look.
    fn look(&mut self, k: &Fake<'_>) {
        let hold = Hold::new(k, k.file_of(self.set).unwrap());
        let mut event = epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let found = unsafe { epoll::wait(k, &hold, &raw mut event, 1, Timeout::Poll) };
        self.seen += found.unwrap();
    }
}

/// The thread waits in a call.
fn park(k: &Fake<'_>, number: u32) {
    k.thread(number).life.set(Life::Blocked);
}

#[test]
fn the_main_thread_takes_what_is_for_the_process() {
    let k = Fake::new(3);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    park(&k, 1);
    k.by(2, || send_to_all(&k, abi::SIGHUP));
    assert_eq!(k.thread(1).life.get(), Life::Runnable, "it is woken for it");
    ends_call(&k, 2);
    ends_call(&k, 3);
    assert_eq!(handled(&k), []);
    ends_call(&k, 1);
    assert_eq!(handled(&k), [(1, abi::SIGHUP)]);
    ends_call(&k, 1);
    assert_eq!(handled(&k), [], "once");
}

#[test]
fn the_first_thread_that_does_not_block_it_takes_it_otherwise() {
    let k = Fake::new(3);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    block(&k, 1, bit(abi::SIGHUP));
    block(&k, 2, bit(abi::SIGHUP));
    park(&k, 3);
    send_to_all(&k, abi::SIGHUP);
    assert_eq!(k.thread(3).life.get(), Life::Runnable);
    for number in [1, 2, 3] {
        ends_call(&k, number);
    }
    assert_eq!(handled(&k), [(3, abi::SIGHUP)]);
}

#[test]
fn what_all_threads_block_waits_for_the_first_that_lets_it_in() {
    let k = Fake::new(2);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    block(&k, 1, bit(abi::SIGHUP));
    block(&k, 2, bit(abi::SIGHUP));
    send_to_all(&k, abi::SIGHUP);
    ends_call(&k, 1);
    ends_call(&k, 2);
    assert_eq!(handled(&k), []);
    assert_eq!(k.by(2, || mask::pending(&k)), bit(abi::SIGHUP));
    block(&k, 2, 0);
    ends_call(&k, 1);
    ends_call(&k, 2);
    assert_eq!(handled(&k), [(2, abi::SIGHUP)]);
    assert_eq!(k.by(2, || mask::pending(&k)), 0);
}

#[test]
fn a_thread_that_blocks_what_it_would_have_taken_hands_it_on() {
    let k = Fake::new(2);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    park(&k, 2);
    send_to_all(&k, abi::SIGHUP);
    assert_eq!(k.thread(2).life.get(), Life::Blocked, "the main thread's");
    block(&k, 1, bit(abi::SIGHUP));
    assert_eq!(k.thread(2).life.get(), Life::Runnable, "the other's now");
    ends_call(&k, 2);
    assert_eq!(handled(&k), [(2, abi::SIGHUP)]);
}

#[test]
fn a_thread_that_ends_hands_on_what_was_for_the_process_and_loses_what_was_for_it() {
    let k = Fake::new(2);
    for signo in [abi::SIGHUP, abi::SIGURG] {
        handle(&k, 1, signo, handler(0, 0));
    }
    park(&k, 2);
    send_to_all(&k, abi::SIGHUP);
    send_to(&k, 1, abi::SIGURG, 0).unwrap();
    k.thread(1).exiting.set(true);
    super::thread_ended(&k, k.thread(1));
    assert_eq!(k.thread(2).life.get(), Life::Runnable);
    ends_call(&k, 2);
    assert_eq!(handled(&k), [(2, abi::SIGHUP)]);
    assert_eq!(k.signals.any.get(), 0, "nothing waits any more");
}

#[test]
fn a_signal_to_a_thread_is_nobody_elses() {
    let k = Fake::new(2);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    let ids = (FIRST_TID as i32, FIRST_TID as i32 + 1);
    let info = Info::sent(&k, abi::SIGHUP, abi::SI_TKILL);
    send::to_thread_id(&k, Some(ids.0), ids.1, info).unwrap();
    ends_call(&k, 1);
    assert_eq!(handled(&k), []);
    ends_call(&k, 2);
    let [(thread, info, _)] = k.handled.take()[..] else { panic!("one") };
    assert_eq!((thread, info.pid, info.uid), (2, ids.0, REAL_USER as i32));
    for (pid, tid, error) in [
        (Some(ids.0), ids.1 + 1, abi::ESRCH),
        (Some(ids.1), ids.1, abi::ESRCH),
        (Some(0), ids.1, abi::EINVAL),
        (None, 0, abi::EINVAL),
    ] {
        assert_eq!(send::to_thread_id(&k, pid, tid, info), Err(Errno(error)), "{pid:?} {tid}");
    }
    let none = Info { signo: LAST + 1, ..info };
    assert_eq!(send::to_thread_id(&k, None, ids.1, none), Err(Errno(abi::EINVAL)));
}

#[test]
fn standard_signals_coalesce_and_realtime_ones_queue_in_order() {
    let k = Fake::new(1);
    for signo in [abi::SIGHUP, RT, RT + 1] {
        handle(&k, 1, signo, handler(0, 0));
    }
    block(&k, 1, u64::MAX);
    let mut edges = Edges::of(&k, u64::MAX);
    for value in 1..=3 {
        for signo in [RT + 1, RT, abi::SIGHUP] {
            send_to(&k, 1, signo, value).unwrap();
            edges.look(&k);
        }
    }
    // Each new one is an edge for signalfds.
    assert_eq!(edges.seen, 7);
    block(&k, 1, 0);
    // Each number's first handler is begun on top of the one before, and does not block the others: as in Linux the last runs first, and all of its number.
    ends_call(&k, 1);
    let taken: Vec<_> = k.handled.take().iter().map(|(_, i, _)| (i.signo, i.value)).collect();
    let all_of = |signo| [1, 2, 3].map(|value| (signo, value));
    assert_eq!(taken, [&all_of(RT + 1)[..], &all_of(RT), &[(abi::SIGHUP, 1)]].concat());
}

#[test]
fn waits_take_the_lowest_number_first_and_equal_ones_in_order() {
    let k = Fake::new(1);
    block(&k, 1, u64::MAX);
    for (signo, value) in [(RT, 1), (abi::SIGHUP, 2), (RT, 3), (abi::SIGSEGV, 4)] {
        send_to(&k, 1, signo, value).unwrap();
    }
    let mut taken = Vec::new();
    while let Ok(info) = wait::wait_for(&k, u64::MAX, Some(0)) {
        taken.push((info.signo, info.value));
    }
    // Faults before all others.
    assert_eq!(taken, [(abi::SIGSEGV, 4), (abi::SIGHUP, 2), (RT, 1), (RT, 3)]);
    assert_eq!(k.signals.any.get(), 0);
}

#[test]
fn a_full_queue_refuses_queued_signals_only() {
    let k = Fake::new(1);
    block(&k, 1, u64::MAX);
    for _ in 0..crate::state::signal::MAX_QUEUED {
        send_to(&k, 1, RT, 0).unwrap();
    }
    assert_eq!(send_to(&k, 1, RT, 0), Err(Errno(abi::EAGAIN)));
    assert_eq!(send_to(&k, 1, RT + 1, 0), Err(Errno(abi::EAGAIN)));
    // A standard signal comes, without its data.
    send_to(&k, 1, abi::SIGHUP, 7).unwrap();
    let taken = wait::wait_for(&k, bit(abi::SIGHUP), Some(0)).unwrap();
    assert_eq!((taken.signo, taken.value), (abi::SIGHUP, 0));
}

#[test]
fn ignored_signals_vanish_unless_they_are_blocked() {
    let k = Fake::new(1);
    for (action, signo) in [(ignore(), abi::SIGHUP), (Action::default(), abi::SIGURG)] {
        handle(&k, 1, signo, action);
        send_to_all(&k, signo);
        assert!(!super::waits_for(&k, bit(signo)), "{signo}");
        block(&k, 1, bit(signo));
        send_to_all(&k, signo);
        assert!(super::waits_for(&k, bit(signo)), "{signo}");
        // Ignored while it waits: gone.
        handle(&k, 1, signo, ignore());
        assert!(!super::waits_for(&k, bit(signo)), "{signo}");
    }
    assert_eq!(k.signals.any.get(), 0);
}

#[test]
fn a_handler_runs_with_its_mask_and_the_old_one_comes_back() {
    let k = Fake::new(1);
    handle(&k, 1, abi::SIGHUP, handler(0, bit(abi::SIGALRM) | bit(abi::SIGKILL)));
    handle(&k, 1, abi::SIGURG, handler(abi::SA_NODEFER, 0));
    block(&k, 1, bit(abi::SIGIO));
    let during = |signo| {
        send_to_all(&k, signo);
        deliver(&k);
        let [(1, _, mask)] = k.handled.take()[..] else { panic!("one") };
        assert_eq!(k.thread(1).signals.mask.get(), bit(abi::SIGIO));
        mask
    };
    // Its own signal and the requested ones, except those that cannot be blocked.
    let all = bit(abi::SIGIO) | bit(abi::SIGALRM) | bit(abi::SIGHUP);
    assert_eq!(during(abi::SIGHUP), all);
    assert_eq!(during(abi::SIGURG), bit(abi::SIGIO));
    // A handler may change the mask that comes back.
    k.mask_left.set(Some(bit(abi::SIGURG)));
    send_to_all(&k, abi::SIGHUP);
    deliver(&k);
    assert_eq!(k.thread(1).signals.mask.get(), bit(abi::SIGURG));
}

#[test]
fn what_a_handler_does_not_block_is_handled_on_top_of_it() {
    let k = Fake::new(1);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    handle(&k, 1, abi::SIGALRM, handler(0, bit(abi::SIGPROF)));
    handle(&k, 1, abi::SIGPROF, handler(0, 0));
    block(&k, 1, u64::MAX);
    for signo in [abi::SIGHUP, abi::SIGALRM, abi::SIGPROF] {
        send_to_all(&k, signo);
    }
    block(&k, 1, 0);
    deliver(&k);
    // SIGHUP is taken first, SIGALRM comes on top of it and blocks SIGPROF meanwhile.
    let order = [(1, abi::SIGALRM), (1, abi::SIGPROF), (1, abi::SIGHUP)];
    assert_eq!(handled(&k), order);
}

#[test]
fn a_handler_that_runs_once_leaves_the_default() {
    let k = Fake::new(1);
    handle(&k, 1, abi::SIGURG, handler(abi::SA_RESETHAND, 0));
    send_to_all(&k, abi::SIGURG);
    deliver(&k);
    assert_eq!(handled(&k), [(1, abi::SIGURG)]);
    assert_eq!(super::action::set(&k, abi::SIGURG, None).unwrap().handler, abi::SIG_DFL);
}

#[test]
#[should_panic(expected = "process 1 ends by signal 1")]
fn the_default_action_ends_the_process() {
    let k = Fake::new(1);
    send_to_all(&k, abi::SIGHUP);
    deliver(&k);
}

#[test]
#[should_panic(expected = "process 1 ends by signal 6")]
fn abort_ends_the_process_though_its_signal_is_handled_and_blocked() {
    let k = Fake::new(1);
    handle(&k, 1, abi::SIGABRT, handler(0, 0));
    block(&k, 1, u64::MAX);
    send::abort(&k);
}

#[test]
fn nobody_handles_or_blocks_what_ends_and_stops() {
    let k = Fake::new(1);
    for signo in [abi::SIGKILL, abi::SIGSTOP, 0, LAST + 1] {
        let set = super::action::set(&k, signo, Some(handler(0, 0)));
        assert_eq!(set, Err(Errno(abi::EINVAL)), "{signo}");
    }
    assert_eq!(super::action::set(&k, abi::SIGKILL, None), Ok(Action::default()));
    let before = mask::change_mask(&k, abi::SIG_SETMASK, Some(u64::MAX)).unwrap();
    assert_eq!(before, 0);
    let free = [abi::SIGKILL, abi::SIGSTOP, abi::SIGSYS, skein_model::limits::SPIN_SIGNAL];
    let blocked = k.thread(1).signals.mask.get();
    assert_eq!(blocked, free.iter().fold(u64::MAX, |all, signo| all & !bit(*signo)));
    assert_eq!(mask::change_mask(&k, 3, Some(0)), Err(Errno(abi::EINVAL)));
    assert_eq!(mask::change_mask(&k, abi::SIG_UNBLOCK, Some(!bit(1))), Ok(blocked));
    assert_eq!(mask::change_mask(&k, abi::SIG_BLOCK, Some(bit(2))), Ok(bit(1)));
    assert_eq!(k.thread(1).signals.mask.get(), bit(1) | bit(2));
}

#[test]
fn a_wait_for_signals_gets_one_that_is_sent_meanwhile() {
    let k = Fake::new(3);
    block(&k, 1, bit(RT) | bit(abi::SIGHUP));
    block(&k, 3, bit(RT));
    k.then(2, |k| {
        // One waiter for one signal: the other that blocks it keeps it from nobody.
        k.by(2, || block(k, 2, bit(RT)));
        send_to_all(k, RT);
        send_to_all(k, RT);
    });
    let taken = wait::wait_for(&k, bit(RT), None).unwrap();
    assert_eq!((taken.signo, taken.pid), (RT, FIRST_TID as i32));
    assert!(super::waits_for(&k, bit(RT)), "the second still waits");
}

#[test]
fn a_wait_for_signals_ends_with_its_time_or_a_handler() {
    let k = Fake::new(2);
    block(&k, 1, bit(RT));
    assert_eq!(wait::wait_for(&k, bit(RT), Some(0)), Err(Errno(abi::EAGAIN)));
    let before = k.now_ns.get();
    assert_eq!(wait::wait_for(&k, bit(RT), Some(500)), Err(Errno(abi::EAGAIN)));
    assert_eq!(k.now_ns.get(), before + 500);
    // SA_RESTART does not count.
    k.then(2, |k| assert!(k.interrupt(1)));
    assert_eq!(wait::wait_for(&k, bit(RT), None), Err(Errno(abi::EINTR)));
    // A signal that is waited for is taken and not handled, even if no thread blocks it.
    k.handled.take();
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    k.then(2, |k| send_to(k, 1, abi::SIGHUP, 5).unwrap());
    let taken = wait::wait_for(&k, bit(abi::SIGHUP), None).unwrap();
    assert_eq!((taken.signo, taken.value), (abi::SIGHUP, 5));
    assert_eq!(handled(&k), []);
}

#[test]
fn sigsuspend_waits_with_its_mask_and_the_handler_gives_the_old_one_back() {
    let k = Fake::new(2);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    block(&k, 1, bit(abi::SIGHUP));
    k.then(2, |k| {
        assert_eq!(k.thread(1).signals.mask.get(), bit(abi::SIGIO));
        send_to_all(k, abi::SIGHUP);
    });
    let result = wait::with_mask(&k, Some(bit(abi::SIGIO)), || wait::pause(&k));
    assert_eq!(result, Err(Errno(abi::EINTR)));
    let [(1, _, during)] = k.handled.take()[..] else { panic!("one") };
    assert_eq!(during, bit(abi::SIGIO) | bit(abi::SIGHUP));
    assert_eq!(k.thread(1).signals.mask.get(), bit(abi::SIGHUP));
    // Without a signal the old mask comes back with the end of the call.
    assert_eq!(wait::with_mask(&k, Some(0), || Ok(3)), Ok(3));
    assert_eq!(k.thread(1).signals.mask.get(), bit(abi::SIGHUP));
}

#[test]
fn a_poll_without_time_lets_in_what_its_mask_opens() {
    for handled in [true, false] {
        let k = Fake::new(1);
        block(&k, 1, bit(abi::SIGURG));
        if handled {
            handle(&k, 1, abi::SIGURG, handler(abi::SA_RESTART, 0));
        }
        send_to_all(&k, abi::SIGURG);
        let polled =
            wait::with_mask(&k, Some(0), || crate::file::poll::poll(&k, &mut [], Timeout::Poll));
        // A signal without a handler is dropped, and the call goes on.
        assert_eq!(polled, if handled { Err(Errno(abi::EINTR)) } else { Ok(0) });
        assert_eq!(k.handled.take().len(), usize::from(handled));
        assert!(!super::waits_for(&k, bit(abi::SIGURG)));
        assert_eq!(k.thread(1).signals.mask.get(), bit(abi::SIGURG));
    }
}

#[test]
fn interrupted_calls_begin_again_as_the_first_handler_says() {
    let k = Fake::new(1);
    assert!(k.interrupted(false), "nothing has come");
    for (flags, restartable, again) in
        [(abi::SA_RESTART, true, true), (abi::SA_RESTART, false, false), (0, true, false)]
    {
        handle(&k, 1, abi::SIGURG, handler(flags, 0));
        send_to_all(&k, abi::SIGURG);
        assert_eq!(k.interrupted(restartable), again, "{flags:#x} {restartable}");
    }
}

#[test]
fn siginterrupt_is_remembered_for_signal() {
    let k = Fake::new(1);
    let before = handler(abi::SA_RESTART, 0);
    let after = super::action::set_interrupting(&k, abi::SIGHUP, true, before);
    assert!(!after.has(abi::SA_RESTART) && super::action::interrupting(&k, abi::SIGHUP));
    let after = super::action::set_interrupting(&k, abi::SIGHUP, false, after);
    assert!(after.has(abi::SA_RESTART) && !super::action::interrupting(&k, abi::SIGHUP));
}

#[test]
fn kill_means_one_process_a_group_or_all() {
    let k = Fake::new(1);
    let (own, child, other) = (1, k.fork(), k.fork());
    let pid = |number: u32| (FIRST_TID + number - 1) as i32;
    k.by(other, || {
        let p = crate::process::this(&k);
        p.group.set(pid(other));
    });
    for number in [own, child, other] {
        block(&k, number, bit(abi::SIGHUP));
    }
    let got = |target: i32| {
        let sent = send::to_process(&k, target, Info::sent(&k, abi::SIGHUP, abi::SI_USER));
        let got = [own, child, other]
            .map(|number| k.by(number, || super::take_of(&k, bit(abi::SIGHUP)).is_some()));
        (sent, got)
    };
    assert_eq!(got(pid(child)), (Ok(()), [false, true, false]));
    assert_eq!(got(0), (Ok(()), [true, true, false]), "the sender's group");
    assert_eq!(got(-pid(other)), (Ok(()), [false, false, true]));
    assert_eq!(got(-1), (Ok(()), [false, true, true]), "all but the sender");
    assert_eq!(got(9999), (Err(Errno(abi::ESRCH)), [false; 3]));
    assert_eq!(got(1), (Err(Errno(abi::EPERM)), [false; 3]), "init");
    let asks = Info { signo: 0, ..Info::default() };
    assert_eq!(send::to_process(&k, pid(child), asks), Ok(()), "it is there");
    assert_eq!(k.signals.any.get(), 0, "and gets nothing");
}

#[test]
fn a_stopped_process_tells_its_parent_and_goes_on_when_it_is_let() {
    let k = Fake::new(1);
    handle(&k, 1, abi::SIGCHLD, handler(0, 0));
    let child = k.fork();
    let process = k.thread(child).process.get().unwrap();
    let pid = (FIRST_TID + child - 1) as i32;
    let told = |signo| {
        send::to_process(&k, pid, Info::sent(&k, signo, abi::SI_USER)).unwrap();
        deliver(&k);
        k.handled.take().iter().map(|(_, i, _)| (i.code, i.pid, i.value as i32)).collect::<Vec<_>>()
    };
    let p = k.processes.get(process);
    assert_eq!(told(abi::SIGSTOP), [(abi::CLD_STOPPED, pid, abi::SIGSTOP)]);
    assert!(p.stopped.get() && k.processes.stopped.get() == 1);
    assert_eq!(told(abi::SIGSTOP), [], "it is stopped already");
    assert_eq!(told(abi::SIGCONT), [(abi::CLD_CONTINUED, pid, abi::SIGCONT)]);
    assert!(!p.stopped.get() && k.processes.stopped.get() == 0);
    handle(&k, 1, abi::SIGCHLD, handler(abi::SA_NOCLDSTOP, 0));
    assert_eq!(told(abi::SIGSTOP), []);
    assert_eq!(told(abi::SIGCONT), []);
    assert_eq!(k.signals.any.get(), 0);
}

#[test]
fn stops_and_going_on_take_each_other_back() {
    let k = Fake::new(1);
    let child = k.fork();
    // Its group has a member whose parent is in another group of the session; otherwise SIGTSTP would have no effect.
    k.by(child, || crate::process::this(&k).group.set(7));
    handle(&k, child, abi::SIGCONT, handler(0, 0));
    block(&k, child, bit(abi::SIGTSTP) | bit(abi::SIGCONT));
    let waits = || {
        k.by(child, || {
            k.thread(child).signals.pending.bits() | crate::process::this(&k).signals.pending.bits()
        })
    };
    let pid = (FIRST_TID + child - 1) as i32;
    let send = |signo| send::to_process(&k, pid, Info::sent(&k, signo, abi::SI_USER)).unwrap();
    send(abi::SIGTSTP);
    assert_eq!(waits(), bit(abi::SIGTSTP));
    send(abi::SIGCONT);
    assert_eq!(waits(), bit(abi::SIGCONT));
    send(abi::SIGTSTP);
    assert_eq!(waits(), bit(abi::SIGTSTP));
    let p = k.processes.get(k.thread(child).process.get().unwrap());
    assert!(!p.stopped.get(), "blocked");
    // Once unblocked, it stops the process at the end of a call, which waits for the other process to continue it.
    k.then(1, move |k| send::to_process(k, pid, Info::sent(k, abi::SIGCONT, 0)).unwrap());
    block(&k, child, 0);
    ends_call(&k, child);
    assert!(k.is_over() && !p.stopped.get());
    assert_eq!(handled(&k), [(child, abi::SIGCONT)]);
}

#[test]
fn a_terminals_stop_does_nothing_to_an_orphaned_group() {
    let k = Fake::new(1);
    let child = k.fork();
    let pid = (FIRST_TID + child - 1) as i32;
    let p = k.processes.get(k.thread(child).process.get().unwrap());
    // The whole session is one group: no process could continue it.
    send::to_process(&k, pid, Info::sent(&k, abi::SIGTSTP, 0)).unwrap();
    assert!(!p.stopped.get());
    send::to_process(&k, pid, Info::sent(&k, abi::SIGSTOP, 0)).unwrap();
    assert!(p.stopped.get(), "SIGSTOP does all the same");
}

#[test]
fn a_signal_of_the_log_is_for_the_first_process() {
    let k = Fake::new(1);
    let child = k.fork();
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    k.by(child, || send::from_outside(&k, abi::SIGHUP));
    for none in [0, LAST + 1] {
        send::from_outside(&k, none);
    }
    ends_call(&k, 1);
    assert_eq!(handled(&k), [(1, abi::SIGHUP)]);
    k.processes.root.set(None);
    send::from_outside(&k, abi::SIGHUP);
    assert_eq!(k.signals.any.get(), 0, "nobody's");
}

#[test]
fn a_forked_process_has_its_parents_dispositions_and_none_of_its_signals() {
    let k = Fake::new(1);
    handle(&k, 1, abi::SIGHUP, handler(0, 0));
    handle(&k, 1, abi::SIGALRM, ignore());
    block(&k, 1, bit(abi::SIGHUP));
    send_to_all(&k, abi::SIGHUP);
    let child = k.fork();
    let process = k.thread(child).process.get().unwrap();
    let (p, c) = (crate::process::this(&k), k.processes.get(process));
    super::forked(p, c);
    super::inherit(k.thread(1), k.thread(child));
    assert_eq!(c.signals.action(abi::SIGHUP), handler(0, 0));
    assert_eq!(k.thread(child).signals.mask.get(), bit(abi::SIGHUP));
    assert_eq!(k.by(child, || mask::pending(&k)), 0);
    // After an exec handlers are gone, ignored or blocked signals stay so.
    super::executed(&k, process, k.thread(child));
    assert_eq!(c.signals.action(abi::SIGHUP), Action::default());
    assert_eq!(c.signals.action(abi::SIGALRM), ignore());
    assert_eq!(k.thread(child).signals.mask.get(), bit(abi::SIGHUP));
}

#[test]
fn a_stopped_interval_timer_has_no_interval_unless_it_counts_processor_time() {
    let k = Fake::new(1);
    for (which, left) in [(abi::ITIMER_REAL, 0), (abi::ITIMER_VIRTUAL, 5), (abi::ITIMER_PROF, 5)] {
        let set = |value| k.by(1, || timer::interval(&k, which, Some((value, 5)))).unwrap();
        set(1_000);
        assert_eq!(set(0).1, 5, "{which}: it ran");
        assert_eq!(k.by(1, || timer::interval(&k, which, None)), Ok((0, left)), "{which}");
    }
}
