//! A host for tests: its threads run only as a test says. While one is blocked, the acts that the test has noted run, oldest first, until one of
//! them resumes it; when none is left, its deadline passes.

use crate::abi;
use crate::errno::{Errno, Result};
use crate::file::ops::FileOps;
use crate::file::{File, Kind, add_ref, drop_ref, ready};
use crate::host::{Host, Kernels};
use crate::os::Os;
use crate::process::{self, Process};
use crate::room::Room;
use crate::thread::{Life, Queue, Thread, Waiting, Wake};
use core::cell::{Cell, RefCell};
use core::fmt::Arguments;
use core::ops::Deref;
use skein_arena::list::{In, Node};
use skein_arena::parts::Parts;
use skein_arena::pool::{ArenaObject, Handle, Pool};
use skein_arena::uses::Use;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::VecDeque;

/// A thread of the fake's.
#[repr(C)]
pub struct FakeThread {
    run: Node<FakeThread>,
    waiting: Node<FakeThread>,
    os: Thread,
}

// SAFETY: cells and links; all-zero is an unborn thread.
unsafe impl ArenaObject for FakeThread {}
impl In<Queue> for FakeThread {
    fn node(&self) -> &Node<Self> {
        &self.run
    }
}
impl In<Waiting> for FakeThread {
    fn node(&self) -> &Node<Self> {
        &self.waiting
    }
}
impl Deref for FakeThread {
    type Target = Thread;

    fn deref(&self) -> &Thread {
        &self.os
    }
}

/// A process of the fake's.
#[repr(C)]
pub struct FakeProcess {
    _free: Cell<u32>,
    os: Process,
}

// SAFETY: cells and links; all-zero is no process.
unsafe impl ArenaObject for FakeProcess {}
impl Deref for FakeProcess {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.os
    }
}

/// What another thread does while the one under test is blocked.
type Act<'a> = Box<dyn Fn(&Fake<'a>) + 'a>;

/// The host.
pub struct Fake<'a> {
    os: Box<Os<FakeThread, FakeProcess>>,
    acts: RefCell<VecDeque<Act<'a>>>,
    /// How often the turn was given up by a thread that could go on.
    pub yields: Cell<u32>,
    /// How often handlers ran.
    pub deliveries: Cell<u32>,
    /// Whether a handler without `SA_RESTART` is what interrupts.
    pub no_restart: Cell<bool>,
    /// The process that runs.
    pub process: Cell<u32>,
    /// Who it acts as.
    pub user: Cell<[u32; 2]>,
    /// Memory that is shared: its begin and length here.
    pub shared: Cell<(usize, usize)>,
    /// What was reported.
    pub refused: RefCell<Vec<String>>,
    /// Virtual descriptors, by number.
    descriptors: RefCell<Vec<Option<Handle<File>>>>,
    /// How often SIGPIPE was raised.
    pub sigpipes: Cell<u32>,
    /// Who got SIGIO.
    pub sigios: RefCell<Vec<i32>>,
    /// Timers of signals that have fired.
    pub signal_timers: RefCell<Vec<u32>>,
}

/// Zero bytes for a pool, never given back: a test is short.
pub fn give<T: ArenaObject>(pool: &Pool<T>, capacity: u32) {
    let layout = Layout::from_size_align(Pool::<T>::bytes(capacity), 4096).unwrap();
    // SAFETY: fresh zero bytes, aligned to a page, of the pool's size, for ever.
    unsafe { pool.init(alloc_zeroed(layout), capacity) };
}

/// Zero bytes for all of the library's pools.
fn room() -> Room {
    const BYTES: usize = 64 << 20;
    let layout = Layout::from_size_align(BYTES, 4096).unwrap();
    // SAFETY: all-zero is an empty list of parts.
    let parts: &'static Parts = Box::leak(unsafe { Box::new_zeroed().assume_init() });
    // SAFETY: fresh zero bytes, aligned to a page, for ever; those that are not used are never there.
    unsafe { Room::new(alloc_zeroed(layout), 0, BYTES, parts) }
}

/// There are at most so many threads.
const MOST_THREADS: u32 = 64;
/// A process has at most so many descriptors.
pub const MOST_FDS: usize = 64;
/// A regular file of the kernel's.
pub const REGULAR_FD: i32 = 1000;
/// A descriptor of the kernel's that is none.
pub const OTHER_FD: i32 = 1001;

/// The kinds of files that the library has not.
struct Others;

impl FileOps<Fake<'_>> for Others {
    fn mask(&self, _: &Fake<'_>, _: &File) -> u32 {
        ready::IN | ready::OUT
    }

    fn release(&self, _: &Fake<'_>, _: Handle<File>) {}
}

/// The monotonic clock is so far behind the time of day.
pub const MONOTONIC_BEHIND_NS: u64 = 7;

/// Threads have these ids.
pub const FIRST_TID: u32 = 101;

impl<'a> Fake<'a> {
    /// A host with one process of so many threads, of which the first has the turn.
    pub fn new(threads: u32) -> Self {
        // SAFETY: all-zero is an empty library.
        let os: Box<Os<FakeThread, FakeProcess>> = unsafe { Box::new_zeroed().assume_init() };
        give(&os.threads, MOST_THREADS);
        give(&os.chunks, 64);
        let mut room = room();
        os.timers.lay_out(&mut room);
        os.fds.lay_out(&mut room);
        os.processes.lay_out(&mut room);
        os.ipc.lay_out(&mut room, MOST_THREADS);
        let process = os.processes.alloc().unwrap();
        let p = os.processes.get(process);
        p.life.set(process::Life::Alive);
        for id in [&p.pid, &p.group, &p.session] {
            id.set(FIRST_TID as i32);
        }
        p.threads.set(threads);
        os.processes.live.set(1);
        os.processes.root.set(Some(process));
        for n in 0..threads {
            let thread = os.threads.alloc().unwrap();
            os.threads.get(thread).tid.set(FIRST_TID + n);
            os.threads.get(thread).life.set(Life::Running);
            os.threads.get(thread).process.set(Some(process));
        }
        os.current.set(1);
        os.now_ns.set(1_000_000);
        Self {
            os,
            acts: RefCell::default(),
            yields: Cell::default(),
            deliveries: Cell::default(),
            no_restart: Cell::default(),
            process: Cell::new(1),
            user: Cell::default(),
            shared: Cell::default(),
            refused: RefCell::default(),
            descriptors: RefCell::default(),
            sigpipes: Cell::default(),
            sigios: RefCell::default(),
            signal_timers: RefCell::default(),
        }
    }

    /// Thread `number`, from 1, does this when next somebody is blocked.
    pub fn then(&self, number: u32, act: impl Fn(&Self) + 'a) {
        self.acts.borrow_mut().push_back(Box::new(move |fake| fake.by(number, || act(fake))));
    }

    /// Thread `number` does this now.
    pub fn by<R>(&self, number: u32, act: impl FnOnce() -> R) -> R {
        let of = self.thread(number).process.get().expect("a thread's process");
        let before = (self.os.current.replace(number), self.process.replace(of.raw()));
        let done = act();
        self.os.current.set(before.0);
        self.process.set(before.1);
        done
    }

    /// A child of the turn's holder's process, with one thread; answers the thread's number. Both have the same id.
    pub fn fork(&self) -> u32 {
        let (parent, child) = (process::handle(self), self.processes.alloc().unwrap());
        let thread = self.threads.alloc().unwrap();
        let (p, c) = (self.processes.get(parent), self.processes.get(child));
        let t = self.threads.get(thread);
        t.tid.set(FIRST_TID + thread.raw() - 1);
        t.life.set(Life::Running);
        t.process.set(Some(child));
        c.life.set(process::Life::Alive);
        c.pid.set(t.tid.get() as i32);
        c.group.set(p.group.get());
        c.session.set(p.session.get());
        c.parent.set(Some(parent));
        c.threads.set(1);
        c.born.set(self.processes.births.get());
        self.processes.births.set(c.born.get() + 1);
        self.processes.live.set(self.processes.live.get() + 1);
        thread.raw()
    }

    /// Whether all acts have run.
    pub fn is_over(&self) -> bool {
        self.acts.borrow().is_empty()
    }

    /// Thread `number`.
    pub fn thread(&self, number: u32) -> &FakeThread {
        self.os.threads.get(Handle::from_raw(number).unwrap())
    }

    /// Interrupts thread `number`, if it is blocked.
    pub fn interrupt(&self, number: u32) -> bool {
        self.resume(Handle::from_raw(number).unwrap(), Wake::Interrupted)
    }
}

impl Deref for Fake<'_> {
    type Target = Os<FakeThread, FakeProcess>;

    fn deref(&self) -> &Os<FakeThread, FakeProcess> {
        &self.os
    }
}

impl Host for Fake<'_> {
    type Thread = FakeThread;
    type Process = FakeProcess;

    fn suspend(&self, deadline_ns: Option<u64>) -> Wake {
        let this = self.this();
        this.life.set(Life::Blocked);
        this.wake.set(Wake::Event);
        while this.blocked() {
            let act = self.acts.borrow_mut().pop_front();
            match (act, deadline_ns) {
                (Some(act), _) => act(self),
                (None, Some(at)) => {
                    self.now_ns.set(at.max(self.now_ns.get()));
                    this.wake.set(Wake::Timeout);
                    break;
                }
                (None, None) => panic!("thread {} is blocked for ever", self.os.current.get()),
            }
        }
        this.life.set(Life::Running);
        this.wake.get()
    }

    fn resume(&self, thread: Handle<FakeThread>, why: Wake) -> bool {
        let t = self.threads.get(thread);
        let blocked = t.blocked();
        if blocked {
            t.life.set(Life::Runnable);
            t.wake.set(why);
        }
        blocked
    }

    fn yield_now(&self) {
        self.yields.set(self.yields.get() + 1);
    }

    fn deliver_signals(&self) {
        self.deliveries.set(self.deliveries.get() + 1);
    }

    fn interrupted(&self, restartable: bool) -> bool {
        self.deliver_signals();
        restartable && !self.no_restart.get()
    }

    fn test_cancel(&self) {
        assert!(!self.this().cancel_pending(), "the thread ends");
    }

    fn process(&self) -> u32 {
        self.process.get()
    }

    fn user(&self) -> [u32; 2] {
        self.user.get()
    }

    fn in_group(&self, group: u32) -> bool {
        self.user.get()[1] == group
    }

    fn file_mask(&self) -> u32 {
        0o022
    }

    fn in_shared_memory(&self, address: usize) -> Option<(u32, usize)> {
        let (start, len) = self.shared.get();
        (start..start + len).contains(&address).then(|| (1, address - start))
    }

    fn deadline_of(&self, clock: i32, at_ns: u64) -> Result<u64> {
        match clock {
            abi::CLOCK_REALTIME => Ok(at_ns),
            abi::CLOCK_MONOTONIC => Ok(at_ns + MONOTONIC_BEHIND_NS),
            _ => Err(Errno(abi::EINVAL)),
        }
    }

    fn refused(&self, what: Arguments<'_>) {
        self.refused.borrow_mut().push(what.to_string());
    }

    fn fatal(&self, why: Arguments<'_>) -> ! {
        panic!("{why}")
    }

    fn note(&self, _: Use) {}

    fn file_of(&self, fd: i32) -> Option<Handle<File>> {
        *self.descriptors.borrow().get(usize::try_from(fd).ok()?)?
    }

    fn install(&self, file: Handle<File>, least: i32, _: bool) -> Result<i32> {
        let mut all = self.descriptors.borrow_mut();
        let fd = (least as usize..).find(|fd| all.get(*fd).is_none_or(Option::is_none)).unwrap();
        if fd >= MOST_FDS {
            return Err(Errno(abi::EMFILE));
        }
        let len = all.len().max(fd + 1);
        all.resize(len, None);
        all[fd] = Some(file);
        add_ref(self, file);
        Ok(fd as i32)
    }

    fn close(&self, fd: i32) {
        let file = self.descriptors.borrow_mut()[fd as usize].take();
        drop_ref(self, file.expect("an open descriptor"));
    }

    fn of_kernel(&self, fd: i32) -> Option<Kernels> {
        match fd {
            REGULAR_FD => Some(Kernels::Regular),
            OTHER_FD => Some(Kernels::Other),
            _ => None,
        }
    }

    fn ops<'s>(_: Kind) -> &'s dyn FileOps<Self>
    where
        Self: 's,
    {
        &Others
    }

    fn forget_fifo(&self, _: u32) {}

    fn signal_timer_fired(&self, raw: u32) {
        self.signal_timers.borrow_mut().push(raw);
    }

    fn send_sigio(&self, pid: i32) {
        self.sigios.borrow_mut().push(pid);
    }

    fn raise_sigpipe(&self) {
        self.sigpipes.set(self.sigpipes.get() + 1);
    }
}
