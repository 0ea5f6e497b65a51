//! epoll.
//!
//! The ready list is Linux's: items enter it when their file reports an event that they ask for, and leave it when `epoll_wait` finds
//! nothing to report. Level-triggered items that were reported go to its end, so that each gets its turn with a small `maxevents`.

use super::ops::{FileOps, Queue};
use super::wait::WaitSet;
use super::{File, Hold, Kind, handle, ready, table};
use crate::abi::{self, EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP, epoll_event};
use crate::errno::{Result, fail};
use crate::host::{Host, Kernels};
use crate::state::file::Epoll;
pub use crate::state::file::Item;
use crate::thread::Wake;
use crate::time::Timeout;
use skein_arena::pool::Handle;

/// Flags of an item that are not events.
const PRIVATE_BITS: u32 = (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE) as u32;
/// The flags allowed together with `EPOLLEXCLUSIVE`.
const EXCLUSIVE_OK: u32 = (abi::EPOLLIN
    | abi::EPOLLOUT
    | abi::EPOLLERR
    | abi::EPOLLHUP
    | EPOLLWAKEUP
    | EPOLLET
    | EPOLLEXCLUSIVE) as u32;
/// The longest chain of epoll sets that watch each other.
const MAX_NESTING: u32 = 5;

/// `epoll_create1`.
pub fn create<H: Host>(k: &H, flags: i32) -> Result<usize> {
    if flags & !abi::EPOLL_CLOEXEC != 0 {
        return fail(abi::EINVAL);
    }
    let Some(set) = k.fds.epolls.alloc() else { return fail(abi::ENFILE) };
    let cloexec = flags & abi::EPOLL_CLOEXEC != 0;
    let (file, fd) = super::open(k, Kind::Epoll, set.raw(), abi::O_RDWR, cloexec)
        .inspect_err(|_| k.fds.epolls.free(set))?;
    k.fds.epolls.get(set).file.set(Some(file));
    Ok(fd as usize)
}

/// The functions of an epoll set.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    /// Whether one of its items is ready.
    fn mask(&self, k: &H, file: &File) -> u32 {
        let e = k.fds.epolls.get(handle(file.object.get()));
        while let Some(item) = e.ready.front() {
            if current(k, k.fds.items.get(item)) != 0 {
                return ready::IN;
            }
            not_ready(k, e, item);
        }
        0
    }

    fn release(&self, k: &H, file: Handle<File>) {
        let set = handle(k.fds.files.get(file).object.get());
        let e = k.fds.epolls.get(set);
        while let Some(item) = e.items.front() {
            remove(k, item);
        }
        k.fds.epolls.free(set);
    }

    fn queued(&self, _: &H, _: &File, _: Queue) -> Result<usize> {
        fail(abi::EINVAL)
    }

    /// Epoll sets have requests of their own, none of them known here.
    unsafe fn ioctl(&self, _: &H, _: &File, _: usize, _: usize) -> Result<usize> {
        fail(abi::EINVAL)
    }

    fn stays(&self) -> bool {
        true
    }
}

/// Takes an item out of its set and its file.
pub fn remove<H: Host>(k: &H, item: Handle<Item>) {
    let i = k.fds.items.get(item);
    let e = k.fds.epolls.get(i.set.get().expect("an item's set"));
    not_ready(k, e, item);
    e.items.remove(&k.fds.items, item);
    k.fds.files.get(i.file.get().expect("an item's file")).items.remove(&k.fds.items, item);
    k.fds.items.free(item);
}

// Inlined: called once for each item that is reported.
#[inline(always)]
fn not_ready<H: Host>(k: &H, e: &Epoll, item: Handle<Item>) {
    if k.fds.items.get(item).is_ready.replace(false) {
        e.ready.remove(&k.fds.items, item);
    }
}

/// An item may be ready: puts it on the ready list and wakes a waiter of the set. Answers whether it woke one.
fn make_ready<H: Host>(k: &H, item: Handle<Item>) -> bool {
    let i = k.fds.items.get(item);
    let e = k.fds.epolls.get(i.set.get().expect("an item's set"));
    if !i.is_ready.replace(true) {
        e.ready.push_back(&k.fds.items, item);
    }
    super::notify(k, e.file.get(), ready::IN)
}

/// A file reports `events` to the sets that watch it. Answers whether a thread was woken.
#[inline]
pub fn notify<H: Host>(k: &H, f: &File, events: u32) -> bool {
    if f.items.is_empty() {
        return false;
    }
    let mut woken = false;
    let mut exclusive_woken = false;
    for (item, i) in f.items.iter(&k.fds.items) {
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

/// The events that an item would report now.
#[inline]
fn current<H: Host>(k: &H, i: &Item) -> u32 {
    let wanted = i.events.get();
    if wanted & !PRIVATE_BITS == 0 {
        return 0;
    }
    super::mask(k, i.file.get().expect("an item's file")) & wanted
}

fn find<H: Host>(k: &H, set: Handle<Epoll>, file: Handle<File>, fd: i32) -> Option<Handle<Item>> {
    let f = k.fds.files.get(file);
    let mut items = f.items.iter(&k.fds.items);
    items.find(|(_, i)| i.set.get() == Some(set) && i.fd.get() == fd).map(|(item, _)| item)
}

/// How many sets are nested below `set`; `None` when `target` is one of them or there are too many.
fn depth<H: Host>(k: &H, set: Handle<Epoll>, target: Handle<Epoll>, above: u32) -> Option<u32> {
    if set == target || above > MAX_NESTING {
        return None;
    }
    let e = k.fds.epolls.get(set);
    let mut deepest = 0;
    for (_, i) in e.items.iter(&k.fds.items) {
        let f = k.fds.files.get(i.file.get().expect("an item's file"));
        if let Some(inner) = f.as_kind::<Epoll>(Kind::Epoll) {
            deepest = deepest.max(1 + depth(k, inner, target, above + 1)?);
        }
    }
    Some(deepest)
}

/// How many sets are nested above `set`.
fn height<H: Host>(k: &H, set: Handle<Epoll>, below: u32) -> u32 {
    if below > MAX_NESTING {
        return below;
    }
    let Some(file) = k.fds.epolls.get(set).file.get() else { return 0 };
    let f = k.fds.files.get(file);
    let sets = f.items.iter(&k.fds.items).map(|(_, i)| i.set.get().expect("an item's set"));
    sets.map(|outer| 1 + height(k, outer, below + 1)).max().unwrap_or(0)
}

/// `epoll_ctl`.
pub fn control<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    op: i32,
    fd: i32,
    event: Option<(u32, u64)>,
) -> Result<()> {
    let Some(target) = table::file(k, fd) else {
        return fail(match k.of_kernel(fd) {
            None => abi::EBADF,
            Some(Kernels::Regular) => abi::EPERM,
            Some(Kernels::Other) => {
                k.refused(format_args!(
                    "epoll_ctl on a descriptor that is neither virtual nor a regular file"
                ));
                abi::EPERM
            }
        });
    };
    if k.fds.files.get(target).kind.get() == Kind::Random {
        return fail(abi::EPERM);
    }
    let Some(set) = hold.file(k).as_kind::<Epoll>(Kind::Epoll) else { return fail(abi::EINVAL) };
    if target == hold.0 {
        return fail(abi::EINVAL);
    }
    let inner = k.fds.files.get(target).as_kind::<Epoll>(Kind::Epoll);
    let (events, data) = event.unwrap_or((0, 0));
    if op != abi::EPOLL_CTL_DEL && events & EPOLLEXCLUSIVE as u32 != 0 {
        let bad = op == abi::EPOLL_CTL_MOD || inner.is_some() || events & !EXCLUSIVE_OK != 0;
        if bad {
            return fail(abi::EINVAL);
        }
    }
    if let (Some(inner), abi::EPOLL_CTL_ADD) = (inner, op) {
        match depth(k, inner, set, 0) {
            Some(below) if 1 + below + height(k, set, 0) < MAX_NESTING => {}
            _ => return fail(abi::ELOOP),
        }
    }
    let found = find(k, set, target, fd);
    let always = ready::ERR | ready::HUP;
    match (op, found) {
        (abi::EPOLL_CTL_ADD, Some(_)) => fail(abi::EEXIST),
        (abi::EPOLL_CTL_ADD, None) => add(k, set, target, fd, events | always, data),
        (abi::EPOLL_CTL_DEL | abi::EPOLL_CTL_MOD, None) => fail(abi::ENOENT),
        (abi::EPOLL_CTL_DEL, Some(item)) => {
            remove(k, item);
            Ok(())
        }
        (abi::EPOLL_CTL_MOD, Some(item)) => {
            let i = k.fds.items.get(item);
            if i.events.get() & EPOLLEXCLUSIVE as u32 != 0 {
                return fail(abi::EINVAL);
            }
            i.events.set(events | always);
            i.data.set(data);
            // One that is on the list already is told to nobody again: it is no edge for a set that watches this one.
            if current(k, i) != 0 && !i.is_ready.get() {
                make_ready(k, item);
            }
            Ok(())
        }
        _ => fail(abi::EINVAL),
    }
}

fn add<H: Host>(
    k: &H,
    set: Handle<Epoll>,
    file: Handle<File>,
    fd: i32,
    events: u32,
    data: u64,
) -> Result<()> {
    let Some(item) = k.fds.items.alloc() else { return fail(abi::ENOSPC) };
    let i = k.fds.items.get(item);
    i.set.set(Some(set));
    i.file.set(Some(file));
    i.fd.set(fd);
    i.events.set(events);
    i.data.set(data);
    k.fds.epolls.get(set).items.push_back(&k.fds.items, item);
    // As in Linux's wait queues: the newest registration is told first, exclusive ones last and in the order of their registration.
    let items = &k.fds.files.get(file).items;
    if events & EPOLLEXCLUSIVE as u32 == 0 {
        items.push_front(&k.fds.items, item);
    } else {
        items.push_back(&k.fds.items, item);
    }
    if current(k, i) != 0 {
        make_ready(k, item);
    }
    Ok(())
}

/// `epoll_wait`.
///
/// # Safety
/// `out` has room for `most` events.
// Inlined: its result would go through memory.
#[inline(always)]
pub unsafe fn wait<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    out: *mut epoll_event,
    most: i32,
    timeout: Timeout,
) -> Result<usize> {
    if most <= 0 || most as usize > i32::MAX as usize / size_of::<epoll_event>() {
        return fail(abi::EINVAL);
    }
    let Some(set) = hold.file(k).as_kind::<Epoll>(Kind::Epoll) else {
        return fail(abi::EINVAL);
    };
    let deadline = timeout.deadline_ns(k);
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
            // Events that came at the same admission are still reported.
            // SAFETY: the caller's contract.
            Wake::Timeout => return Ok(unsafe { report(k, set, out, most as u32) }),
            Wake::Interrupted => return fail(abi::EINTR),
        }
    }
}

/// Reports up to `most` ready items.
///
/// # Safety
/// `out` has room for `most` events.
unsafe fn report<H: Host>(k: &H, set: Handle<Epoll>, out: *mut epoll_event, most: u32) -> usize {
    let e = k.fds.epolls.get(set);
    let mut reported = 0;
    // Items that go back to the end are not looked at again.
    let mut left = e.ready.len();
    while left > 0 && reported < most {
        left -= 1;
        let Some(item) = e.ready.front() else { break };
        not_ready(k, e, item);
        let i = k.fds.items.get(item);
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
            e.ready.push_back(&k.fds.items, item);
        }
    }
    if reported > 0 && !e.ready.is_empty() {
        // Another waiter may have work, too.
        if let Some(file) = e.file.get() {
            super::notify_waits(k, k.fds.files.get(file), ready::IN);
        }
    }
    reported as usize
}
