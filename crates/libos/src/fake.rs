//! A host for tests: its threads run only when a test says so. While one is blocked, the acts that the test has noted run, oldest first, until one of
//! them resumes it; when none is left, its deadline passes.

use crate::abi;
use crate::errno::{Errno, Result, fail};
use crate::file::{File, table};
use crate::host::{Host, Kernels};
use crate::net::unix::name::Inode;
use crate::process::{self, Process, ProcessHandle};
use crate::room::Room;
use crate::signal::{self, Action, Info, send};
use crate::state::Os;
use crate::thread::{Life, Queue, Thread, Waiting, Wake};
use core::cell::{Cell, RefCell};
use core::ffi::CStr;
use core::fmt::Arguments;
use core::ops::Deref;
use skein_arena::list::{In, Node};
use skein_arena::parts::Parts;
use skein_arena::pool::{ArenaObject, Handle, Pool};
use skein_arena::uses::Use;
use skein_model::{ConnId, OutFrame, SockAddr};
use std::alloc::{Layout, alloc_zeroed};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;

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

/// Another thread's action while the thread under test is blocked.
type Act<'a> = Box<dyn Fn(&Fake<'a>) + 'a>;

/// The host.
pub struct Fake<'a> {
    os: Box<Os<FakeThread, FakeProcess>>,
    acts: RefCell<VecDeque<Act<'a>>>,
    /// The number of times that a runnable thread gave the turn up.
    pub yields: Cell<u32>,
    /// The number of handlers that ran.
    pub deliveries: Cell<u32>,
    /// Whether [`Fake::interrupt`] sends a signal whose handler has no `SA_RESTART`.
    pub no_restart: Cell<bool>,
    /// Handlers that were called: the thread, the signal, and the mask that came back.
    pub handled: RefCell<Vec<(u32, Info, u64)>>,
    /// A handler's change of the mask that comes back.
    pub mask_left: Cell<Option<u64>>,
    /// The running process.
    pub process: Cell<u32>,
    /// The user it acts as.
    pub user: Cell<[u32; 2]>,
    /// Shared memory: its begin and length in the test's process.
    pub shared: Cell<(usize, usize)>,
    /// Reported lines.
    pub refused: RefCell<Vec<String>>,
    /// Reserved numbers of descriptors with their process, and whether they outlive its exec.
    pub numbers: RefCell<BTreeMap<(u32, i32), bool>>,
    /// Descriptors' numbers are smaller than this.
    pub limit: Cell<i32>,
    /// The kernel's regular file: its content and its position.
    pub regular: RefCell<(Vec<u8>, usize)>,
    /// The number of SIGPIPEs raised.
    pub sigpipes: Cell<u32>,
    /// The receivers of SIGIO.
    pub sigios: RefCell<Vec<i32>>,
    /// Helpers that call timers' functions: their threads.
    pub timer_callers: RefCell<Vec<u32>>,
    /// Timers of signals that have fired.
    pub signal_timers: RefCell<Vec<u32>>,
    /// Lines for the node's log.
    pub notices: RefCell<Vec<String>>,
    /// Frames for the node, as their debug texts.
    pub frames: RefCell<Vec<String>>,
    /// Files of the kernel's that are kept, by their tickets.
    pub parked: RefCell<Vec<Option<i32>>>,
    /// Files of UNIX sockets, with their modes.
    pub socket_files: RefCell<BTreeMap<CString, (Inode, u32)>>,
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
/// A process has at most so many descriptors, unless a test says so.
pub const MOST_FDS: usize = 64;
/// The host's own descriptor.
pub const OWN_FD: i32 = 999;
/// A regular file of the kernel's.
pub const REGULAR_FD: i32 = 1000;
/// A descriptor of the kernel's that is none.
pub const OTHER_FD: i32 = 1001;

/// The distance of the monotonic clock behind the time of day.
pub const MONOTONIC_BEHIND_NS: u64 = 7;

/// The address of handlers: no test calls one.
pub const HANDLER: usize = 0x1000;
/// The user that signals name.
pub const REAL_USER: u32 = 1000;

/// Its group.
pub const REAL_GROUP: u32 = 1001;

/// The thread ids begin here.
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
        os.signals.lay_out(&mut room);
        os.net.lay_out(&mut room);
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
            handled: RefCell::default(),
            mask_left: Cell::default(),
            timer_callers: RefCell::default(),
            process: Cell::new(1),
            user: Cell::default(),
            shared: Cell::default(),
            refused: RefCell::default(),
            numbers: RefCell::default(),
            limit: Cell::new(MOST_FDS as i32),
            regular: RefCell::default(),
            sigpipes: Cell::default(),
            sigios: RefCell::default(),
            signal_timers: RefCell::default(),
            notices: RefCell::default(),
            frames: RefCell::default(),
            parked: RefCell::default(),
            socket_files: RefCell::default(),
        }
    }

    /// Thread `number`, from 1, does this when the next thread is blocked.
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
        let mut numbers = self.numbers.borrow_mut();
        let copies: Vec<_> = numbers.range((parent.raw(), 0)..=(parent.raw(), i32::MAX)).collect();
        let copies: Vec<_> = copies.iter().map(|((_, fd), keep)| (*fd, **keep)).collect();
        numbers.extend(copies.iter().map(|(fd, keep)| ((child.raw(), *fd), *keep)));
        assert!(p.table.copy_to(self, &c.table));
        thread.raw()
    }

    /// The file behind a virtual descriptor.
    pub fn file_of(&self, fd: i32) -> Option<Handle<File>> {
        table::file(self, fd)
    }

    /// Closes a virtual descriptor.
    pub fn close(&self, fd: i32) {
        table::close(self, fd).expect("an open descriptor");
    }

    /// Whether all acts have run.
    pub fn is_over(&self) -> bool {
        self.acts.borrow().is_empty()
    }

    /// Thread `number`.
    pub fn thread(&self, number: u32) -> &FakeThread {
        self.os.threads.get(Handle::from_raw(number).unwrap())
    }

    /// Interrupts thread `number` by a signal that has a handler. Answers whether it was blocked.
    pub fn interrupt(&self, number: u32) -> bool {
        let (thread, of) = (Handle::from_raw(number).unwrap(), self.thread(number));
        let flags = if self.no_restart.get() { 0 } else { abi::SA_RESTART as u64 };
        let action = Action { handler: HANDLER, flags, ..Action::default() };
        self.by(number, || signal::action::set(self, abi::SIGURG, Some(action))).unwrap();
        let blocked = of.blocked();
        signal::post(self, send::Target::Thread(thread), Info::of_kernel(abi::SIGURG)).unwrap();
        blocked
    }

    /// Another thread of the process that has the turn; answers its number.
    pub fn new_thread(&self) -> u32 {
        let thread = self.threads.alloc().unwrap();
        let t = self.threads.get(thread);
        t.tid.set(FIRST_TID + thread.raw() - 1);
        t.life.set(Life::Running);
        t.process.set(Some(process::handle(self)));
        let of = process::this(self);
        of.threads.set(of.threads.get() + 1);
        thread.raw()
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
        if signal::is_due(self) {
            return Wake::Interrupted;
        }
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
        signal::deliver(self);
    }

    fn interrupted(&self, restartable: bool) -> bool {
        self.deliveries.set(self.deliveries.get() + 1);
        signal::interrupted(self, restartable)
    }

    fn call_handler(
        &self,
        info: &Info,
        action: &Action,
        mask: u64,
        meanwhile: impl FnOnce(),
    ) -> u64 {
        assert_eq!(action.handler, HANDLER);
        meanwhile();
        self.handled.borrow_mut().push((
            self.os.current.get(),
            *info,
            self.this().signals.mask.get(),
        ));
        self.mask_left.take().unwrap_or(mask)
    }

    fn end_by_signal(&self, signo: i32) -> ! {
        panic!("process {} ends by signal {signo}", self.process.get())
    }

    fn kill(&self, process: ProcessHandle) {
        self.processes.get(process).life.set(process::Life::Zombie);
    }

    fn stand_aside(&self) {
        let act = self.acts.borrow_mut().pop_front();
        act.expect("a stopped process is let go on by somebody")(self);
    }

    fn real_user(&self) -> u32 {
        REAL_USER
    }

    fn real_group(&self) -> u32 {
        REAL_GROUP
    }

    fn make_timer_caller(&self) -> Result<()> {
        let caller = self.new_thread();
        self.thread(caller).signals.mask.set(u64::MAX);
        self.timer_callers.borrow_mut().push(caller);
        Ok(())
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

    fn notice(&self, what: Arguments<'_>) {
        self.notices.borrow_mut().push(what.to_string());
    }

    fn emit(&self, frame: OutFrame<'_>) {
        self.frames.borrow_mut().push(format!("{frame:?}"));
    }

    fn emit_send(&self, conn: ConnId, len: usize, fill: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        self.emit(OutFrame::Send { conn, bytes: &bytes });
    }

    fn emit_datagram(
        &self,
        from: SockAddr,
        to: SockAddr,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        self.emit(OutFrame::Datagram { local: from, peer: to, bytes: &bytes });
    }

    fn fatal(&self, why: Arguments<'_>) -> ! {
        panic!("{why}")
    }

    fn note(&self, _: Use) {}

    fn random(&self, out: &mut [u8]) {
        out.fill(7);
    }

    fn reserve(&self, least: i32) -> Result<i32> {
        if !(0..self.limit.get()).contains(&least) {
            return fail(abi::EINVAL);
        }
        let mut numbers = self.numbers.borrow_mut();
        let free = |fd: &i32| !numbers.contains_key(&(self.process.get(), *fd));
        let fd = (least..self.limit.get()).find(free).ok_or(Errno(abi::EMFILE))?;
        numbers.insert((self.process.get(), fd), false);
        Ok(fd)
    }

    fn reserve_at(&self, fd: i32) -> Result<()> {
        if fd >= self.limit.get() {
            return fail(abi::EBADF);
        }
        self.numbers.borrow_mut().insert((self.process.get(), fd), false);
        Ok(())
    }

    fn release(&self, fd: i32) {
        let was = self.numbers.borrow_mut().remove(&(self.process.get(), fd));
        assert!(was.is_some(), "{fd} was not reserved");
    }

    fn keep_over_exec(&self, fd: i32, keep: bool) {
        let before = self.numbers.borrow_mut().insert((self.process.get(), fd), keep);
        assert!(before.is_some(), "{fd} was not reserved");
    }

    fn is_own(&self, fd: i32) -> bool {
        fd == OWN_FD
    }

    fn close_kernels(&self, first: u32, last: u32, flags: u32) -> Result<()> {
        let within = |fd: i32| (first..=last).contains(&(fd as u32));
        if flags & abi::CLOSE_RANGE_CLOEXEC == 0 {
            let me = self.process.get();
            self.numbers.borrow_mut().retain(|(process, fd), _| *process != me || !within(*fd));
        }
        Ok(())
    }

    fn duplicate_kernels(&self, old: i32, new: i32, _: Option<i32>) -> Result<()> {
        if self.of_kernel(old).is_none() {
            return fail(abi::EBADF);
        }
        // The number is the kernel's now.
        self.numbers.borrow_mut().remove(&(self.process.get(), new));
        Ok(())
    }

    fn read_kernels(&self, fd: i32, at: Option<i64>, to: &mut [u8]) -> Result<usize> {
        if fd != REGULAR_FD {
            return fail(abi::EBADF);
        }
        let (bytes, position) = &mut *self.regular.borrow_mut();
        let from = at.map_or(*position, |at| at as usize).min(bytes.len());
        let n = to.len().min(bytes.len() - from);
        to[..n].copy_from_slice(&bytes[from..from + n]);
        if at.is_none() {
            *position += n;
        }
        Ok(n)
    }

    fn write_kernels(&self, fd: i32, at: Option<i64>, more: &[u8]) -> Result<usize> {
        if fd != REGULAR_FD {
            return fail(abi::EBADF);
        }
        let (bytes, position) = &mut *self.regular.borrow_mut();
        let from = at.map_or(*position, |at| at as usize);
        let len = bytes.len().max(from + more.len());
        bytes.resize(len, 0);
        bytes[from..from + more.len()].copy_from_slice(more);
        if at.is_none() {
            *position += more.len();
        }
        Ok(more.len())
    }

    fn move_kernels(&self, fd: i32, by: i64) -> Result<()> {
        assert_eq!(fd, REGULAR_FD);
        let (_, position) = &mut *self.regular.borrow_mut();
        *position = (*position as i64 + by) as usize;
        Ok(())
    }

    fn of_kernel(&self, fd: i32) -> Option<Kernels> {
        match fd {
            REGULAR_FD => Some(Kernels::Regular),
            OTHER_FD => Some(Kernels::Other),
            _ => None,
        }
    }

    fn park(&self, fd: i32) -> Result<u64> {
        if self.of_kernel(fd).is_none() {
            return fail(abi::EBADF);
        }
        let mut parked = self.parked.borrow_mut();
        parked.push(Some(fd));
        Ok(parked.len() as u64)
    }

    fn park_again(&self, ticket: u64) -> Result<u64> {
        let fd = self.parked.borrow()[ticket as usize - 1];
        self.park(fd.expect("a file that is kept"))
    }

    fn take_parked(&self, ticket: u64, _: bool) -> Result<i32> {
        let taken = self.parked.borrow_mut()[ticket as usize - 1].take();
        Ok(taken.expect("a file that is kept"))
    }

    fn discard_parked(&self, ticket: u64) {
        let taken = self.parked.borrow_mut()[ticket as usize - 1].take();
        assert!(taken.is_some(), "a file that is kept");
    }

    fn make_socket_file(&self, path: &CStr, mode: u32) -> Result<Inode> {
        let mut files = self.socket_files.borrow_mut();
        if files.contains_key(path) {
            return fail(abi::EEXIST);
        }
        let inode = Inode { device: 1, number: 1 + files.len() as u64 };
        files.insert(path.to_owned(), (inode, mode));
        Ok(inode)
    }

    fn remove_socket_file(&self, path: &CStr) {
        self.socket_files.borrow_mut().remove(path);
    }

    fn find_socket_file(&self, path: &CStr) -> Result<Inode> {
        self.socket_files.borrow().get(path).map_or_else(|| fail(abi::ENOENT), |file| Ok(file.0))
    }

    fn signal_timer_fired(&self, raw: u32) {
        self.signal_timers.borrow_mut().push(raw);
        if signal::timer::is_one(self, raw) {
            signal::timer::fired(self, raw);
        }
    }

    fn send_sigio(&self, pid: i32) {
        self.sigios.borrow_mut().push(pid);
        send::sigio(self, pid);
    }

    fn raise_sigpipe(&self) {
        self.sigpipes.set(self.sigpipes.get() + 1);
    }
}
