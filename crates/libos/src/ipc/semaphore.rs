//! System V semaphores.
//!
//! A thread whose operations cannot be done leaves a copy of them with the set and sleeps. A thread that changes the set then carries out
//! waiting operations that have become possible, oldest first, as Linux does. So the operations of a woken thread are done.

use super::permission::{self, ALTER, Head, READ, Wire};
use super::undo::{self, Undo};
use crate::abi::timespec;
use crate::abi::{self, sembuf};
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::process::{self};
pub use crate::state::ipc::{SemWait, Set};
use crate::thread::Wake;
use core::cell::Cell;
use skein_arena::bytes::Chunk;
use skein_arena::pool::Handle;

/// Semaphores of a set: 512, as many as a page holds.
pub const MOST: usize = size_of::<Chunk>() / size_of::<One>();
/// The most operations of a call, as in Linux.
const MOST_OPERATIONS: usize = 500;
/// The largest value (`SEMVMX`), and the largest adjustment.
const MOST_VALUE: i32 = 32_767;

// Commands of `semctl` that libc does not name.
const SEM_STAT: i32 = 18;
const SEM_INFO: i32 = 19;
const SEM_STAT_ANY: i32 = 20;
const SEM_UNDO: i16 = 0x1000;

/// A semaphore.
#[repr(C)]
struct One {
    value: Cell<i32>,
    /// The process that changed it last.
    pid: Cell<i32>,
}

impl permission::Object for Set {
    fn head(&self) -> &Head {
        &self.head
    }
}

impl Set {
    fn one<'a, H: Host>(&self, k: &'a H, at: usize) -> &'a One {
        assert!(at < MOST, "a semaphore of the set");
        let page = core::ptr::from_ref(k.chunks.get(self.page.get().expect("a set's page")));
        // SAFETY: a zeroed page that is this set's own, with room for all; the arena is never unmapped.
        unsafe { &*page.cast::<One>().add(at) }
    }

    fn len(&self) -> usize {
        self.count.get() as usize
    }
}

/// `semget`.
pub fn get<H: Host>(k: &H, key: i32, count: i32, flags: i32) -> Result<usize> {
    if count < 0 || count as usize > MOST {
        return Err(Errno(abi::EINVAL));
    }
    let fits = |set: &Set| count as u32 <= set.count.get();
    permission::get(k, &k.ipc.sets, &k.ipc.set_list, key, flags, fits, |set| {
        if count == 0 {
            return Err(Errno(abi::EINVAL));
        }
        let page = k.chunks.alloc().ok_or(Errno(abi::ENOMEM))?;
        set.page.set(Some(page));
        set.count.set(count as u32);
        Ok(())
    })
}

/// The result of an attempt.
enum Tried {
    Done {
        changed: bool,
    },
    /// This operation must wait.
    Stuck(usize),
}

/// Does all operations, or none.
fn attempt<H: Host>(
    k: &H,
    set: &Set,
    operations: &[sembuf],
    undo: Option<Handle<Undo>>,
    pid: i32,
) -> Result<Tried> {
    let undo = undo.map(|undo| k.ipc.undos.get(undo));
    let mut outcome = Ok(Tried::Done { changed: false });
    let mut done = 0;
    for (i, op) in operations.iter().enumerate() {
        let (one, change) = (set.one(k, op.sem_num as usize), i32::from(op.sem_op));
        let value = one.value.get() + change;
        if value < 0 || change == 0 && one.value.get() != 0 {
            let hasty = i32::from(op.sem_flg) & abi::IPC_NOWAIT != 0;
            outcome = if hasty { Err(Errno(abi::EAGAIN)) } else { Ok(Tried::Stuck(i)) };
            break;
        }
        if value > MOST_VALUE {
            outcome = Err(Errno(abi::ERANGE));
            break;
        }
        if let Some(undo) = undo
            && op.sem_flg & SEM_UNDO != 0
        {
            let sum = undo.value(k, op.sem_num as usize);
            if !(-MOST_VALUE - 1..=MOST_VALUE).contains(&(sum.get() - change)) {
                outcome = Err(Errno(abi::ERANGE));
                break;
            }
            sum.set(sum.get() - change);
        }
        one.value.set(value);
        done += 1;
    }
    if done < operations.len() {
        for op in operations[..done].iter().rev() {
            let (one, change) = (set.one(k, op.sem_num as usize), i32::from(op.sem_op));
            one.value.set(one.value.get() - change);
            if let Some(undo) = undo
                && op.sem_flg & SEM_UNDO != 0
            {
                let sum = undo.value(k, op.sem_num as usize);
                sum.set(sum.get() + change);
            }
        }
        return outcome;
    }
    for op in operations {
        set.one(k, op.sem_num as usize).pid.set(pid);
    }
    set.operated_s.set(permission::now_s(k));
    Ok(Tried::Done { changed: operations.iter().any(|op| op.sem_op != 0) })
}

/// The set has changed: carries out operations that have become possible.
fn changed<H: Host>(k: &H, set: &Set) {
    let mut at = set.waiting.front();
    while let Some(wait) = at {
        let w = k.ipc.sem_waits.get(wait);
        let pid = k.processes.get(w.process.get().expect("a waiting process")).pid.get();
        at = match attempt(k, set, w.copied(k), w.undo.get(), pid) {
            Ok(Tried::Stuck(stuck)) => {
                w.stuck.set(stuck as u32);
                set.waiting.next(&k.ipc.sem_waits, wait)
            }
            Ok(Tried::Done { changed }) => {
                let next = set.waiting.next(&k.ipc.sem_waits, wait);
                answer(k, set, wait, 0);
                // Earlier waiters may continue now, too.
                if changed { set.waiting.front() } else { next }
            }
            Err(e) => {
                let next = set.waiting.next(&k.ipc.sem_waits, wait);
                answer(k, set, wait, e.0);
                next
            }
        };
    }
}

fn answer<H: Host>(k: &H, set: &Set, wait: Handle<SemWait>, errno: i32) {
    let w = k.ipc.sem_waits.get(wait);
    set.waiting.remove(&k.ipc.sem_waits, wait);
    w.answer.set(errno);
    w.answered.set(true);
    k.keys.wake(k, key(wait), 1, u32::MAX);
}

/// Where one waiting thread sleeps.
fn key(wait: Handle<SemWait>) -> Key {
    Key::of_runtime(6, wait.raw())
}

impl SemWait {
    /// The operations: a copy, as the thread's process may be another one.
    fn copied<'a, H: Host>(&self, k: &'a H) -> &'a [sembuf] {
        const { assert!(MOST_OPERATIONS * size_of::<sembuf>() <= size_of::<Chunk>()) };
        let page = core::ptr::from_ref(k.chunks.get(self.operations.get().expect("a wait's page")));
        // SAFETY: so many were copied there when the wait began; nobody changes them.
        unsafe { core::slice::from_raw_parts(page.cast::<sembuf>(), self.count.get() as usize) }
    }
}

/// `semop`, and with a time limit `semtimedop`.
///
/// # Safety
/// `operations` is `count` operations; `limit` is null or a time.
pub unsafe fn operate<H: Host>(
    k: &H,
    id: i32,
    operations: *const sembuf,
    count: usize,
    limit: *const timespec,
) -> Result<usize> {
    if count == 0 || id < 0 {
        return Err(Errno(abi::EINVAL));
    }
    if count > MOST_OPERATIONS {
        return Err(Errno(abi::E2BIG));
    }
    if operations.is_null() {
        return Err(Errno(abi::EFAULT));
    }
    // SAFETY: the caller's contract; no other thread runs before the copy below.
    let operations = unsafe { core::slice::from_raw_parts(operations, count) };
    // SAFETY: the caller's contract.
    let limit = unsafe { limit.as_ref() }.map(crate::time::to_ns).transpose()?;
    let handle = permission::find(&k.ipc.sets, id)?;
    let set = k.ipc.sets.get(handle);
    if operations.iter().any(|op| op.sem_num as usize >= set.len()) {
        return Err(Errno(abi::EFBIG));
    }
    let alters = operations.iter().any(|op| op.sem_op != 0);
    set.head.check(k, if alters { ALTER } else { READ })?;
    let undone = operations.iter().any(|op| op.sem_flg & SEM_UNDO != 0);
    let undo = undone.then(|| undo::of(k, process::handle(k), handle)).transpose()?;
    match attempt(k, set, operations, undo, process::this(k).pid.get())? {
        Tried::Done { changed: true } => changed(k, set),
        Tried::Done { .. } => {}
        Tried::Stuck(stuck) => return wait(k, handle, operations, (undo, stuck), limit),
    }
    Ok(0)
}

fn wait<H: Host>(
    k: &H,
    handle: Handle<Set>,
    operations: &[sembuf],
    (undo, stuck): (Option<Handle<Undo>>, usize),
    limit: Option<u64>,
) -> Result<usize> {
    let Some((wait, page)) = k.ipc.sem_waits.alloc().zip(k.chunks.alloc()) else {
        k.fatal(format_args!("no memory for a thread that waits for semaphores"));
    };
    let (w, set) = (k.ipc.sem_waits.get(wait), k.ipc.sets.get(handle));
    // SAFETY: a page of its own with room for as many as a call may have; they do not overlap.
    unsafe {
        let to = core::ptr::from_ref(k.chunks.get(page)).cast::<sembuf>().cast_mut();
        core::ptr::copy_nonoverlapping(operations.as_ptr(), to, operations.len());
    }
    w.thread.set(k.current.get());
    w.process.set(Some(process::handle(k)));
    w.set.set(Some(handle));
    w.undo.set(undo);
    w.operations.set(Some(page));
    w.count.set(operations.len() as u32);
    w.stuck.set(stuck as u32);
    set.waiting.push_back(&k.ipc.sem_waits, wait);
    let deadline_ns = limit.map(|ns| k.after(ns));
    let result = loop {
        if w.answered.get() {
            let errno = w.answer.get();
            break if errno == 0 { Ok(0) } else { Err(Errno(errno)) };
        }
        let why = if deadline_ns.is_some_and(|at| at <= k.now_ns.get()) {
            Wake::Timeout
        } else {
            k.keys.wait(k, key(wait), u32::MAX, deadline_ns)
        };
        if w.answered.get() {
            continue;
        }
        match why {
            Wake::Event => {}
            Wake::Timeout => break Err(Errno(abi::EAGAIN)),
            // Never repeated after a handler, unless that has changed the set.
            Wake::Interrupted if k.interrupted(false) || w.answered.get() => {}
            Wake::Interrupted => break Err(Errno(abi::EINTR)),
        }
    };
    free_wait(k, wait);
    result
}

fn free_wait<H: Host>(k: &H, wait: Handle<SemWait>) {
    let w = k.ipc.sem_waits.get(wait);
    if !w.answered.get()
        && let Some(set) = w.set.get()
    {
        k.ipc.sets.get(set).waiting.remove(&k.ipc.sem_waits, wait);
    }
    w.thread.set(0);
    if let Some(page) = w.operations.take() {
        k.chunks.free(page);
    }
    k.ipc.sem_waits.free(wait);
}

/// A thread never runs again.
pub(super) fn abandon<H: Host>(k: &H, thread: Handle<H::Thread>) {
    if k.ipc.sem_waits.used() == 0 {
        return;
    }
    for wait in (1..=k.ipc.sem_waits.high()).filter_map(Handle::from_raw) {
        if k.ipc.sem_waits.get(wait).thread.get() == thread.raw() {
            free_wait(k, wait);
        }
    }
}

/// A process ends: adds its adjustments to each semaphore, within its bounds.
pub(super) fn adjust<H: Host>(k: &H, set: Handle<Set>, of: impl Fn(usize) -> i32) {
    let set = k.ipc.sets.get(set);
    for at in 0..set.len() {
        let change = of(at);
        if change != 0 {
            let one = set.one(k, at);
            one.value.set((one.value.get() + change).clamp(0, MOST_VALUE));
            one.pid.set(process::this(k).pid.get());
        }
    }
    set.operated_s.set(permission::now_s(k));
    changed(k, set);
}

/// The kernel's `semid64_ds`.
#[repr(C)]
struct About {
    permission: Wire,
    operated_s: i64,
    _reserved: u64,
    changed_s: i64,
    _reserved_too: u64,
    count: u64,
    unused: [u64; 2],
}

/// The kernel's `seminfo`, as ints.
type Limits = [i32; 10];

/// `semctl`; `arg` is the union.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn control<H: Host>(
    k: &H,
    id: i32,
    number: i32,
    command: i32,
    arg: usize,
) -> Result<usize> {
    match command {
        abi::IPC_INFO | SEM_INFO => {
            let limits = limits(k, command == SEM_INFO);
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, limits)? };
            return Ok(permission::highest(&k.ipc.sets));
        }
        SEM_STAT | SEM_STAT_ANY => {
            let set = k.ipc.sets.get(permission::by_number(&k.ipc.sets, id)?);
            if command == SEM_STAT {
                set.head.check(k, READ)?;
            }
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, about(set))? };
            return Ok(set.head.id.get() as usize);
        }
        // As in Linux before anything about the set.
        abi::SETVAL if id >= 0 && !(0..=MOST_VALUE).contains(&(arg as i32)) => {
            return Err(Errno(abi::ERANGE));
        }
        _ => {}
    }
    let handle = permission::find(&k.ipc.sets, id)?;
    let set = k.ipc.sets.get(handle);
    match command {
        abi::IPC_RMID => {
            set.head.check_owner(k)?;
            remove(k, handle);
            Ok(0)
        }
        abi::IPC_SET => {
            set.head.check_owner(k)?;
            // SAFETY: the caller's contract.
            set.head.set(k, &unsafe { permission::fetch::<Wire>(arg)? });
            Ok(0)
        }
        abi::IPC_STAT => {
            set.head.check(k, READ)?;
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, about(set)) }
        }
        abi::GETALL => {
            set.head.check(k, READ)?;
            for at in 0..set.len() {
                // SAFETY: the caller's contract: a word for each.
                unsafe { permission::put(arg + 2 * at, set.one(k, at).value.get() as u16)? };
            }
            Ok(0)
        }
        abi::SETALL => {
            set.head.check(k, ALTER)?;
            // SAFETY: the caller's contract: a word for each.
            let value = |at: usize| unsafe { permission::fetch::<u16>(arg + 2 * at) };
            for at in 0..set.len() {
                if i32::from(value(at)?) > MOST_VALUE {
                    return Err(Errno(abi::ERANGE));
                }
            }
            for at in 0..set.len() {
                assign(k, set, at, value(at)?.into());
            }
            undo::clear_values(k, handle, None);
            set.head.changed_s.set(permission::now_s(k));
            changed(k, set);
            Ok(0)
        }
        _ => one(k, handle, number, command, arg as i32),
    }
}

/// The commands on one semaphore.
fn one<H: Host>(k: &H, handle: Handle<Set>, number: i32, command: i32, arg: i32) -> Result<usize> {
    let set = k.ipc.sets.get(handle);
    let known = [abi::GETVAL, abi::GETPID, abi::GETNCNT, abi::GETZCNT, abi::SETVAL];
    if !known.contains(&command) || number < 0 || number as usize >= set.len() {
        return Err(Errno(abi::EINVAL));
    }
    let at = number as usize;
    if command == abi::SETVAL {
        set.head.check(k, ALTER)?;
        assign(k, set, at, arg);
        undo::clear_values(k, handle, Some(at));
        set.head.changed_s.set(permission::now_s(k));
        changed(k, set);
        return Ok(0);
    }
    set.head.check(k, READ)?;
    let one = set.one(k, at);
    Ok(match command {
        abi::GETVAL => one.value.get() as usize,
        abi::GETPID => one.pid.get() as usize,
        _ => waiting_for(k, set, at, command == abi::GETZCNT),
    })
}

/// Threads that wait for semaphore `at` to become zero, or to grow.
fn waiting_for<H: Host>(k: &H, set: &Set, semaphore: usize, zero: bool) -> usize {
    let waits = |w: &SemWait| {
        let op = &w.copied(k)[w.stuck.get() as usize];
        op.sem_num as usize == semaphore && (op.sem_op == 0) == zero
    };
    set.waiting.iter(&k.ipc.sem_waits).filter(|(_, w)| waits(w)).count()
}

fn assign<H: Host>(k: &H, set: &Set, at: usize, value: i32) {
    let one = set.one(k, at);
    one.value.set(value);
    one.pid.set(process::this(k).pid.get());
}

fn about(set: &Set) -> About {
    About {
        permission: set.head.wire(),
        operated_s: set.operated_s.get(),
        _reserved: 0,
        changed_s: set.head.changed_s.get(),
        _reserved_too: 0,
        count: set.count.get().into(),
        unused: [0; 2],
    }
}

fn limits<H: Host>(k: &H, used: bool) -> Limits {
    let (sets, most) = (k.ipc.sets.capacity() as i32, MOST as i32);
    let mut limits = [
        sets * most,
        sets,
        sets * most,
        sets * most,
        most,
        MOST_OPERATIONS as i32,
        most,
        20,
        MOST_VALUE,
        MOST_VALUE,
    ];
    if used {
        // In place of two that mean nothing: the numbers of sets and semaphores.
        limits[7] = k.ipc.sets.used() as i32;
        let all: u32 = k.ipc.set_list.iter(&k.ipc.sets).map(|(_, set)| set.count.get()).sum();
        limits[9] = all as i32;
    }
    limits
}

fn remove<H: Host>(k: &H, handle: Handle<Set>) {
    let set = k.ipc.sets.get(handle);
    while let Some(wait) = set.waiting.front() {
        answer(k, set, wait, abi::EIDRM);
    }
    undo::forget_set(k, handle);
    set.head.id.set(0);
    if let Some(page) = set.page.take() {
        k.chunks.free(page);
    }
    k.ipc.set_list.remove(&k.ipc.sets, handle);
    k.ipc.sets.free(handle);
}
