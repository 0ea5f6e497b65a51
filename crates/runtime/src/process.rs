//! Processes that the server forks: each runs to its end before its parent goes on.
//!
//! A forked child is a real process with a private copy of the library operating system (the arena's heap is mapped privately over itself), in
//! which the forking thread is the only one. The parent waits for its end inside `fork`, keeps its wait status for `waitpid`, and brings over what
//! the child wrote into pipes and sockets that both have ([`Effects`]). So a child's work is part of the parent's operation `fork`: deterministic without any
//! agreement, at the price that the server stands still meanwhile (a redis `BGSAVE` costs what a `SAVE` does).
//!
//! A child that needs its parent to go on before it can cannot be run this way: it is ended with status 125 and a line that says so.
//! A child's sleeps cost no time: its clock jumps to the deadline.

use crate::fatal::{line, notice, refuse};
use crate::kernel::{Kernel, header, kernel};
use crate::sys::{self, Errno, Result};
use crate::{hooks, turn};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use libc::{c_int, pid_t};
use skein_arena::layout::{ARENA_FD, HEADER_BYTES};

/// Ended children that nobody has waited for: at most this many.
const MAX_ZOMBIES: usize = 256;

/// An ended child.
#[derive(Clone, Copy)]
#[repr(C)]
struct Zombie {
    pid: pid_t,
    status: c_int,
}

/// The children of the server. All-zero bytes: none.
#[repr(C)]
pub struct Children {
    zombies: [Cell<Zombie>; MAX_ZOMBIES],
    count: Cell<u32>,
}

/// Whether this process is a forked child.
static IN_CHILD: AtomicBool = AtomicBool::new(false);
/// Where a child leaves what it wrote for its parent.
static EFFECTS: AtomicUsize = AtomicUsize::new(0);
/// Room for what a child writes to its parent: 4 MiB.
const EFFECTS_BYTES: usize = 4 << 20;

/// Whether this process is a forked child.
#[inline]
pub fn in_child() -> bool {
    IN_CHILD.load(Ordering::Relaxed)
}

/// What a child wrote into channels that its parent has too: `used u64`, then `channel u32 | len u32 | bytes`, padded to 8. Written by the child,
/// read by the parent when the child is gone.
struct Effects {
    base: *mut u8,
}

impl Effects {
    fn map() -> Result<Self> {
        // SAFETY: a new anonymous mapping, shared with the child.
        let at = unsafe {
            sys::call(
                libc::SYS_mmap,
                [
                    0,
                    EFFECTS_BYTES,
                    (libc::PROT_READ | libc::PROT_WRITE) as usize,
                    (libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize,
                    usize::MAX,
                    0,
                ],
            )
        }?;
        Ok(Self { base: at as *mut u8 })
    }

    fn unmap(self) {
        // SAFETY: the mapping made by `map`.
        unsafe {
            sys::raw(libc::SYS_munmap, sys::args([self.base as usize, EFFECTS_BYTES]));
        }
    }

    fn used(&self) -> &Cell<u64> {
        // SAFETY: the first word of the mapping, which one process at a time uses.
        unsafe { &*self.base.cast::<Cell<u64>>() }
    }

    fn add(&self, channel: u32, bytes: &[u8]) -> bool {
        let at = 8 + self.used().get() as usize;
        let len = 8 + bytes.len().next_multiple_of(8);
        if at + len > EFFECTS_BYTES {
            return false;
        }
        // SAFETY: within the mapping, by the check.
        unsafe {
            let to = self.base.add(at);
            to.cast::<[u32; 2]>().write([channel, bytes.len() as u32]);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(8), bytes.len());
        }
        self.used().set(self.used().get() + len as u64);
        true
    }

    fn each(&self, mut f: impl FnMut(u32, &[u8])) {
        let end = 8 + self.used().get() as usize;
        let mut at = 8;
        while at + 8 <= end && end <= EFFECTS_BYTES {
            // SAFETY: within the mapping, by the check.
            let [channel, len] = unsafe { self.base.add(at).cast::<[u32; 2]>().read() };
            let Some(bytes) = (at + 8 + len as usize <= end).then(|| {
                // SAFETY: within the mapping, by the check; the writer is gone.
                unsafe { core::slice::from_raw_parts(self.base.add(at + 8), len as usize) }
            }) else {
                return;
            };
            f(channel, bytes);
            at += 8 + (len as usize).next_multiple_of(8);
        }
    }
}

/// Child: `bytes` went into a channel; the parent's copy of it gets them when this process has ended.
pub fn child_wrote(channel: u32, bytes: &[u8]) {
    let effects = Effects { base: EFFECTS.load(Ordering::Relaxed) as *mut u8 };
    if !effects.add(channel, bytes) {
        refuse!(
            "a forked child wrote more than {EFFECTS_BYTES} bytes to its parent before it ended"
        );
    }
}

/// `fork` and `vfork`.
pub fn fork() -> Result<i32> {
    turn::operation();
    let k = kernel();
    if in_child() {
        // A child's child would be reaped by nobody deterministic.
        crate::fatal::stderr(b"a forked child forks again: not supported");
        return Err(Errno(libc::ENOSYS));
    }
    if k.children.count.get() as usize == MAX_ZOMBIES {
        return Err(Errno(libc::EAGAIN));
    }
    let effects = Effects::map()?;
    EFFECTS.store(effects.base as usize, Ordering::Relaxed);
    // SAFETY: libc's own fork, with its handlers.
    let pid = unsafe { hooks::real!(fork: fn() -> pid_t)() };
    if pid == 0 {
        become_child(k);
        return Ok(0);
    }
    if pid < 0 {
        effects.unmap();
        // SAFETY: this thread's errno.
        return Err(Errno(unsafe { *libc::__errno_location() }));
    }
    let runnable = header().runnable.swap(0, Ordering::Relaxed);
    let status = reap(pid);
    header().runnable.store(runnable, Ordering::Relaxed);
    effects.each(|channel, bytes| crate::io::child_effect(k, channel, bytes));
    effects.unmap();
    if status == 125 << 8 {
        notice(line!("a forked child (pid {pid}) could not be run to its end").bytes());
    }
    let at = k.children.count.get();
    k.children.zombies[at as usize].set(Zombie { pid, status });
    k.children.count.set(at + 1);
    // SAFETY: sends this process SIGCHLD, which most servers ignore and some handle, here and now.
    unsafe {
        let this = sys::raw(libc::SYS_getpid, sys::args([])) as usize;
        sys::raw(
            libc::SYS_tgkill,
            sys::args([this, sys::gettid() as usize, libc::SIGCHLD as usize]),
        );
    }
    Ok(pid)
}

/// Waits for the kernel's word that `pid` has ended.
fn reap(pid: pid_t) -> c_int {
    let mut status: c_int = 0;
    loop {
        // SAFETY: writes a local.
        let result = unsafe {
            sys::call(libc::SYS_wait4, sys::args([pid as usize, &raw mut status as usize, 0, 0]))
        };
        match result {
            Ok(_) => return status,
            Err(Errno(libc::EINTR)) => {}
            Err(e) => refuse!("a forked child (pid {pid}) cannot be waited for: errno {}", e.0),
        }
    }
}

/// The child's first act: its own copy of the library operating system, and no other thread.
fn become_child(k: &Kernel) {
    let sizes = {
        let h = header();
        [&h.input_bytes, &h.output_bytes, &h.heap_bytes].map(|v| v.load(Ordering::Relaxed) as usize)
    };
    let heap = core::ptr::from_ref(k) as usize;
    // SAFETY: maps the arena's heap over itself, privately: the same bytes at the same place, seen by this process only from now on.
    let mapped = unsafe {
        sys::call(
            libc::SYS_mmap,
            [
                heap,
                sizes[2],
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE) as usize,
                ARENA_FD as usize,
                HEADER_BYTES + sizes[0] + sizes[1],
            ],
        )
    };
    IN_CHILD.store(true, Ordering::Relaxed);
    if mapped != Ok(heap) {
        refuse!("a forked child cannot have its own copy of the arena");
    }
    k.io.table.keep_for_parent(k);
    k.timers.forget_all(k);
    while k.run_queue.pop_front(&k.threads).is_some() {}
    k.alive.set(1);
    k.children.count.set(0);
}

/// Child: nothing can run. Time passes at once; without a deadline the child would wait for ever.
pub fn child_waits(k: &Kernel) {
    let deadline = k.timers.next_deadline();
    if deadline == u64::MAX {
        refuse!(
            "a forked child waits for something that only its parent could do: its parent goes on when it has ended"
        );
    }
    k.now_ns.set(k.now_ns.get().max(deadline));
    k.timers.fire_due(k);
}

/// `waitpid` and its relatives: an ended child that `which` (as `waitpid`'s first argument) selects, removed unless `keep`.
pub fn wait(which: pid_t, keep: bool) -> Result<(pid_t, c_int)> {
    turn::operation();
    let children = &kernel().children;
    let count = children.count.get() as usize;
    let at = (0..count)
        .find(|i| which <= 0 || children.zombies[*i].get().pid == which)
        .ok_or(Errno(libc::ECHILD))?;
    let found = children.zombies[at].get();
    if !keep {
        for i in at + 1..count {
            children.zombies[i - 1].set(children.zombies[i].get());
        }
        children.count.set(count as u32 - 1);
    }
    Ok((found.pid, found.status))
}

/// Whether `pid` is an ended child that nobody has waited for: a signal to it does nothing.
pub fn is_zombie(pid: pid_t) -> bool {
    let children = &kernel().children;
    (0..children.count.get() as usize).any(|i| children.zombies[i].get().pid == pid)
}
