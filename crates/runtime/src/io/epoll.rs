//! epoll.
//!
//! The ready list is Linux's: items enter it when their file announces an event that they ask for, and leave it when `epoll_wait` finds
//! nothing to report. Level-triggered items that were reported go to its end, so that a small `maxevents` starves nobody.

use crate::fatal;
use crate::io::file::{self, File, Hold, Kind, OnFile, ready};
use crate::io::wait::WaitSet;
use crate::io::{Answer, table};
use crate::kernel::{Kernel, kernel};
use crate::{time, turn};
use core::cell::Cell;
use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP, epoll_event};
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Result, fail};
use skein_libos::thread::Wake;
use skein_sched::op::{Kind as Op, Object};

/// Flags of an item that are no events.
const PRIVATE_BITS: u32 = (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE) as u32;
/// What may go with `EPOLLEXCLUSIVE`.
const EXCLUSIVE_OK: u32 = (libc::EPOLLIN
    | libc::EPOLLOUT
    | libc::EPOLLERR
    | libc::EPOLLHUP
    | EPOLLWAKEUP
    | EPOLLET
    | EPOLLEXCLUSIVE) as u32;
/// Epoll sets that may watch each other in a row.
const MAX_NESTING: u32 = 5;

/// An item's place in its set.
pub struct OnSet;
/// An item's place in its set's ready list.
pub struct OnReady;

/// An epoll set.
#[repr(C)]
pub struct Epoll {
    file: Link<File>,
    items: List<Item, OnSet>,
    ready: List<Item, OnReady>,
}

/// A descriptor that an epoll set watches.
#[repr(C)]
pub struct Item {
    on_file: Node<Item>,
    on_set: Node<Item>,
    on_ready: Node<Item>,
    set: Link<Epoll>,
    file: Link<File>,
    fd: Cell<i32>,
    events: Cell<u32>,
    data: Cell<u64>,
    is_ready: Cell<bool>,
}

// SAFETY: cells and links.
unsafe impl ArenaObject for Epoll {}
// SAFETY: cells and links.
unsafe impl ArenaObject for Item {}
impl In<OnFile> for Item {
    fn node(&self) -> &Node<Item> {
        &self.on_file
    }
}
impl In<OnSet> for Item {
    fn node(&self) -> &Node<Item> {
        &self.on_set
    }
}
impl In<OnReady> for Item {
    fn node(&self) -> &Node<Item> {
        &self.on_ready
    }
}

/// `epoll_create1`.
pub fn create(flags: i32) -> Result<usize> {
    let turn = turn::enter(Object::Descriptors, Op::Create);
    if flags & !libc::EPOLL_CLOEXEC != 0 {
        return fail(libc::EINVAL);
    }
    let k = &*turn;
    let Some(set) = k.io.epolls.alloc() else { return fail(libc::ENFILE) };
    let cloexec = flags & libc::EPOLL_CLOEXEC != 0;
    let (file, fd) = file::open(k, Kind::Epoll, set.raw(), libc::O_RDWR, cloexec)
        .inspect_err(|_| k.io.epolls.free(set))?;
    k.io.epolls.get(set).file.set(Some(file));
    Ok(fd as usize)
}

/// The last reference to a set is gone.
pub fn release(k: &Kernel, set: Handle<Epoll>) {
    let e = k.io.epolls.get(set);
    while let Some(item) = e.items.front() {
        remove(k, item);
    }
    k.io.epolls.free(set);
}

/// Takes an item out of its set and its file.
pub fn remove(k: &Kernel, item: Handle<Item>) {
    let i = k.io.items.get(item);
    let e = k.io.epolls.get(i.set.get().expect("an item's set"));
    not_ready(k, e, item);
    e.items.remove(&k.io.items, item);
    k.io.files.get(i.file.get().expect("an item's file")).items.remove(&k.io.items, item);
    k.io.items.free(item);
}

fn not_ready(k: &Kernel, e: &Epoll, item: Handle<Item>) {
    if k.io.items.get(item).is_ready.replace(false) {
        e.ready.remove(&k.io.items, item);
    }
}

/// An item may be ready: puts it on the ready list and wakes a waiter of the set. Answers whether it woke one.
fn make_ready(k: &Kernel, item: Handle<Item>) -> bool {
    let i = k.io.items.get(item);
    let e = k.io.epolls.get(i.set.get().expect("an item's set"));
    if !i.is_ready.replace(true) {
        e.ready.push_back(&k.io.items, item);
    }
    file::notify(k, e.file.get(), ready::IN)
}

/// A file announces `events` to the sets that watch it. Answers whether a thread was woken.
#[inline]
pub fn notify(k: &Kernel, f: &File, events: u32) -> bool {
    if f.items.is_empty() {
        return false;
    }
    let mut woken = false;
    let mut exclusive_woken = false;
    for (item, i) in f.items.iter(&k.io.items) {
        let wanted = i.events.get();
        if wanted & !PRIVATE_BITS & events == 0 {
            continue;
        }
        let exclusive = wanted & EPOLLEXCLUSIVE as u32 != 0;
        if exclusive && exclusive_woken {
            continue;
        }
        let woke = make_ready(k, item);
        woken |= woke;
        exclusive_woken |= exclusive && woke;
    }
    woken
}

/// What an item would report now.
fn current(k: &Kernel, i: &Item) -> u32 {
    let wanted = i.events.get();
    if wanted & !PRIVATE_BITS == 0 {
        return 0;
    }
    file::mask(k, i.file.get().expect("an item's file")) & wanted
}

/// Readiness of a set: whether one of its items is ready.
pub fn mask(k: &Kernel, set: Handle<Epoll>) -> u32 {
    let e = k.io.epolls.get(set);
    while let Some(item) = e.ready.front() {
        if current(k, k.io.items.get(item)) != 0 {
            return ready::IN;
        }
        not_ready(k, e, item);
    }
    0
}

fn find(k: &Kernel, set: Handle<Epoll>, file: Handle<File>, fd: i32) -> Option<Handle<Item>> {
    let f = k.io.files.get(file);
    let mut items = f.items.iter(&k.io.items);
    items.find(|(_, i)| i.set.get() == Some(set) && i.fd.get() == fd).map(|(item, _)| item)
}

/// How many sets are nested below `set`; `None` when `target` is one of them or there are too many.
fn depth(k: &Kernel, set: Handle<Epoll>, target: Handle<Epoll>, above: u32) -> Option<u32> {
    if set == target || above > MAX_NESTING {
        return None;
    }
    let e = k.io.epolls.get(set);
    let mut deepest = 0;
    for (_, i) in e.items.iter(&k.io.items) {
        let f = k.io.files.get(i.file.get().expect("an item's file"));
        if let Some(inner) = f.as_kind::<Epoll>(Kind::Epoll) {
            deepest = deepest.max(1 + depth(k, inner, target, above + 1)?);
        }
    }
    Some(deepest)
}

/// How many sets are nested above `set`.
fn height(k: &Kernel, set: Handle<Epoll>, below: u32) -> u32 {
    if below > MAX_NESTING {
        return below;
    }
    let Some(file) = k.io.epolls.get(set).file.get() else { return 0 };
    let f = k.io.files.get(file);
    let sets = f.items.iter(&k.io.items).map(|(_, i)| i.set.get().expect("an item's set"));
    sets.map(|outer| 1 + height(k, outer, below + 1)).max().unwrap_or(0)
}

/// `epoll_ctl`.
pub fn ctl(epfd: i32, op: i32, fd: i32, event: Option<(u32, u64)>) -> Answer {
    file::with(epfd, Op::Watch, |k, hold| control(k, hold, op, fd, event).map(|()| 0))
}

fn control(k: &Kernel, hold: &Hold, op: i32, fd: i32, event: Option<(u32, u64)>) -> Result<()> {
    let Some(target) = k.table().get(fd) else {
        if !table::is_open(fd) {
            return fail(libc::EBADF);
        }
        if !is_regular(fd) {
            fatal::refused(b"epoll_ctl on a descriptor that is neither virtual nor a regular file");
        }
        return fail(libc::EPERM);
    };
    if k.io.files.get(target).kind.get() == Kind::Random {
        return fail(libc::EPERM);
    }
    let Some(set) = hold.file(k).as_kind::<Epoll>(Kind::Epoll) else { return fail(libc::EINVAL) };
    if target == hold.0 {
        return fail(libc::EINVAL);
    }
    let inner = k.io.files.get(target).as_kind::<Epoll>(Kind::Epoll);
    let (events, data) = event.unwrap_or((0, 0));
    if op != libc::EPOLL_CTL_DEL && events & EPOLLEXCLUSIVE as u32 != 0 {
        let bad = op == libc::EPOLL_CTL_MOD || inner.is_some() || events & !EXCLUSIVE_OK != 0;
        if bad {
            return fail(libc::EINVAL);
        }
    }
    if let (Some(inner), libc::EPOLL_CTL_ADD) = (inner, op) {
        match depth(k, inner, set, 0) {
            Some(below) if 1 + below + height(k, set, 0) < MAX_NESTING => {}
            _ => return fail(libc::ELOOP),
        }
    }
    let found = find(k, set, target, fd);
    let always = ready::ERR | ready::HUP;
    match (op, found) {
        (libc::EPOLL_CTL_ADD, Some(_)) => fail(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None) => add(k, set, target, fd, events | always, data),
        (libc::EPOLL_CTL_DEL | libc::EPOLL_CTL_MOD, None) => fail(libc::ENOENT),
        (libc::EPOLL_CTL_DEL, Some(item)) => {
            remove(k, item);
            Ok(())
        }
        (libc::EPOLL_CTL_MOD, Some(item)) => {
            let i = k.io.items.get(item);
            if i.events.get() & EPOLLEXCLUSIVE as u32 != 0 {
                return fail(libc::EINVAL);
            }
            i.events.set(events | always);
            i.data.set(data);
            if current(k, i) != 0 {
                make_ready(k, item);
            }
            Ok(())
        }
        _ => fail(libc::EINVAL),
    }
}

fn add(
    k: &Kernel,
    set: Handle<Epoll>,
    file: Handle<File>,
    fd: i32,
    events: u32,
    data: u64,
) -> Result<()> {
    let Some(item) = k.io.items.alloc() else { return fail(libc::ENOSPC) };
    let i = k.io.items.get(item);
    i.set.set(Some(set));
    i.file.set(Some(file));
    i.fd.set(fd);
    i.events.set(events);
    i.data.set(data);
    k.io.epolls.get(set).items.push_back(&k.io.items, item);
    k.io.files.get(file).items.push_back(&k.io.items, item);
    if current(k, i) != 0 {
        make_ready(k, item);
    }
    Ok(())
}

/// Whether a descriptor of the kernel's is a regular file or directory.
fn is_regular(fd: i32) -> bool {
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes to a local.
    let done = unsafe {
        crate::sys::call(libc::SYS_fstat, crate::sys::args([fd as usize, &raw mut st as usize]))
    };
    done.is_ok() && matches!(st.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR)
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub enum Timeout {
    /// Not at all.
    Poll,
    /// Until something happens.
    Never,
    /// Nanoseconds.
    Ns(u64),
}

impl Timeout {
    /// From poll's and epoll's milliseconds.
    pub const fn from_ms(ms: i32) -> Self {
        match ms {
            0 => Self::Poll,
            ..0 => Self::Never,
            _ => Self::Ns(ms as u64 * 1_000_000),
        }
    }

    /// From a `timespec`, if any.
    pub fn from_timespec(ts: Option<&skein_libos::abi::timespec>) -> Result<Self> {
        Ok(match ts.map(skein_libos::time::to_ns).transpose()? {
            None => Self::Never,
            Some(0) => Self::Poll,
            Some(ns) => Self::Ns(ns),
        })
    }

    /// The deadline in the server's time of day, when there is one.
    pub fn deadline_ns(self) -> Option<u64> {
        match self {
            Self::Ns(ns) => Some(time::after(ns)),
            _ => None,
        }
    }
}

/// `epoll_wait`.
///
/// # Safety
/// `out` has room for `most` events.
pub unsafe fn wait(epfd: i32, out: *mut epoll_event, most: i32, timeout: Timeout) -> Answer {
    file::with_cancel(epfd, Op::Wait, |k, hold| {
        if most <= 0 || most as usize > i32::MAX as usize / size_of::<epoll_event>() {
            return fail(libc::EINVAL);
        }
        let Some(set) = hold.file(k).as_kind::<Epoll>(Kind::Epoll) else {
            return fail(libc::EINVAL);
        };
        let deadline = timeout.deadline_ns();
        loop {
            // SAFETY: the caller's contract.
            let n = unsafe { report(k, set, out, most as u32) };
            if n > 0 || matches!(timeout, Timeout::Poll) {
                return Ok(n);
            }
            let waits = WaitSet::default();
            waits.add(k, hold.0, ready::IN, true)?;
            match waits.block(k, deadline) {
                Wake::Event => {}
                // What became ready at the same admission is reported still.
                // SAFETY: the caller's contract.
                Wake::Timeout => return Ok(unsafe { report(k, set, out, most as u32) }),
                Wake::Interrupted => return fail(libc::EINTR),
            }
        }
    })
}

/// Reports up to `most` ready items.
///
/// # Safety
/// `out` has room for `most` events.
unsafe fn report(k: &Kernel, set: Handle<Epoll>, out: *mut epoll_event, most: u32) -> usize {
    let e = k.io.epolls.get(set);
    let mut reported = 0;
    // Items that go back to the end are not looked at again.
    let mut left = e.ready.len();
    while left > 0 && reported < most {
        left -= 1;
        let Some(item) = e.ready.front() else { break };
        not_ready(k, e, item);
        let i = k.io.items.get(item);
        let events = current(k, i);
        if events == 0 {
            continue;
        }
        // SAFETY: the caller's contract; `reported < most`.
        unsafe {
            out.add(reported as usize).write_unaligned(epoll_event { events, u64: i.data.get() })
        };
        reported += 1;
        if i.events.get() & EPOLLONESHOT as u32 != 0 {
            i.events.set(i.events.get() & PRIVATE_BITS);
        } else if i.events.get() & EPOLLET as u32 == 0 {
            i.is_ready.set(true);
            e.ready.push_back(&k.io.items, item);
        }
    }
    if reported > 0 && !e.ready.is_empty() {
        // Another waiter may have something to do, too.
        if let Some(file) = e.file.get() {
            file::notify_waits(k, k.io.files.get(file), ready::IN);
        }
    }
    reported as usize
}

/// `epoll_ctl`.
///
/// # Safety
/// `event` is null or valid.
pub unsafe fn ctl_at(epfd: i32, op: i32, fd: i32, event: *const epoll_event) -> Answer {
    if event.is_null() && op != libc::EPOLL_CTL_DEL && kernel().table().get(epfd).is_some() {
        return Some(fail(libc::EFAULT));
    }
    // SAFETY: the caller's contract.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    file::of_kind(epfd, ctl(epfd, op, fd, event.map(|e| (e.events, e.u64))))
}
