//! Stand-ins: for an image of a server whose clients would wait, its node has each process make a copy of itself that keeps its memory as it is (`skein_image::stand_ins`), and the
//! server goes on.
//!
//! A process makes it where its carrier sleeps: its context is saved there, as in an image that is taken of a server that stands. The carrier at the gate wakes the others.
//!
//! It does without memory that the node does not read from it ([`skein_arena::layout::Spared`]): a fork takes time for each page. Nothing there is the runtime's.
//!
//! What the server could see of it: nothing. It is a child of init like all processes, with a number that the server would not come to and that init does not count; it has no descriptors
//! (an open file's locks end with the last one), no timers, takes no signals but those that end it, and does nothing.

use crate::fatal::fatal;
use crate::kernel::Kernel;
use crate::local::{LOCAL, header};
use crate::process::{Life, all, this};
use crate::sys::{self, args};
use core::ptr;
use core::sync::atomic::Ordering;
use skein_arena::layout::MAX_SPARED;

/// Bytes of a name, its zero included.
const NAME_BYTES: usize = 16;
const PREFIX: &[u8; 6] = b"skein-";
/// How often the kernel is told once more to copy what it had no memory to note.
const TELL_AGAIN: u32 = 1000;
/// It goes behind everybody else.
const LEAST: usize = 19;

/// Makes one, if the node wants one and this process has not made it; the carrier at the gate wakes the others for theirs.
pub fn make(k: &Kernel, at_gate: bool) {
    let words = &header().stand_ins;
    let wanted = words.wanted.load(Ordering::Acquire);
    if wanted == 0 {
        return;
    }
    if at_gate && k.processes.live.get() > 1 {
        for (_, p) in all(k).filter(|(_, p)| p.life.get() == Life::Alive) {
            sys::futex_wake(&p.go);
        }
    }
    // The copy knows that it is asked for no other.
    if LOCAL.stands_in.swap(wanted, Ordering::Relaxed) != wanted && !fork(k, wanted) {
        words.failed.fetch_add(1, Ordering::Release);
        sys::futex_wake(&words.made);
    }
}

/// In a process that was restored: what it was asked for was another node's.
pub fn restored() {
    LOCAL.stands_in.store(0, Ordering::Relaxed);
}

/// False: the kernel does not make one.
fn fork(k: &Kernel, wanted: u32) -> bool {
    let mut own = [0u8; NAME_BYTES];
    let name = name(this().pid.get() as u32);
    // Nobody sees it without its name and with signals. A name is of this thread, as are signals.
    let before = block(u64::MAX);
    // SAFETY: live buffers of the kernel's size.
    unsafe {
        sys::raw(libc::SYS_prctl, args([libc::PR_GET_NAME as usize, own.as_mut_ptr() as usize]));
        sys::raw(libc::SYS_prctl, args([libc::PR_SET_NAME as usize, name.as_ptr() as usize]));
    }
    let spared = Spares::own();
    spared.advise(libc::MADV_DONTFORK, 0);
    // SAFETY: a fork, on the same stack, as a child of init.
    let made = unsafe { sys::raw(libc::SYS_clone, args([libc::CLONE_PARENT as usize])) };
    if made == 0 {
        stand(k, wanted);
    }
    // SAFETY: as above.
    unsafe {
        sys::raw(libc::SYS_prctl, args([libc::PR_SET_NAME as usize, own.as_ptr() as usize]));
    }
    if !spared.advise(libc::MADV_DOFORK, TELL_AGAIN) {
        // A child of the server's would miss it.
        fatal(b"no memory is left to take back what the kernel was told for an image");
    }
    block(before);
    made > 0
}

/// What this process's stand-in does without, as the node said once: first and last addresses.
struct Spares {
    ranges: [[usize; 2]; MAX_SPARED],
    count: usize,
}

impl Spares {
    fn own() -> Self {
        let (spared, pid) = (&header().spared, this().pid.get() as u64);
        let mut own = Self { ranges: [[0; 2]; MAX_SPARED], count: 0 };
        let count = spared.count.load(Ordering::Relaxed) as usize;
        let all = spared.ranges.iter().take(count);
        for range in all.filter(|range| range.pid.load(Ordering::Relaxed) == pid) {
            let [start, end] = [&range.start, &range.end].map(|at| at.load(Ordering::Relaxed));
            own.ranges[own.count] = [start as usize, end as usize];
            own.count += 1;
        }
        own
    }

    /// Tells the kernel whether a fork copies it, and so often again; false: of some of it, it has no memory to note that.
    fn advise(&self, advice: i32, again: u32) -> bool {
        let mut all = true;
        for [start, end] in &self.ranges[..self.count] {
            let told = args([*start, end.saturating_sub(*start), advice as usize]);
            // SAFETY: neither the content nor the place of memory changes. What is not mapped is an error, behind which the rest was told.
            let tell = || unsafe { sys::raw(libc::SYS_madvise, told) };
            let no_memory = -(libc::EAGAIN as isize);
            let mut answer = tell();
            for _ in 0..again {
                if answer != no_memory {
                    break;
                }
                // SAFETY: no memory.
                unsafe { sys::raw(libc::SYS_sched_yield, args([])) };
                answer = tell();
            }
            all &= answer != no_memory;
        }
        all
    }
}

/// The stand-in's life.
fn stand(k: &Kernel, wanted: u32) -> ! {
    let words = &header().stand_ins;
    // SAFETY: numbers; this process needs no descriptor.
    unsafe { sys::raw(libc::SYS_close_range, args([0, u32::MAX as usize, 0])) };
    words.made.fetch_add(1, Ordering::Release);
    sys::futex_wake(&words.made);
    // It may be freed anywhere, and not where the server needs the core. Failures cost time, nothing else.
    let cores = k.cores.get();
    // SAFETY: a live set; numbers.
    unsafe {
        let set = args([0, size_of_val(&cores), cores.as_ptr() as usize]);
        sys::raw(libc::SYS_sched_setaffinity, set);
        sys::raw(libc::SYS_setpriority, args([libc::PRIO_PROCESS as usize, 0, LEAST]));
    }
    while words.kept.load(Ordering::Acquire) == wanted {
        sys::futex_wait(&words.kept, wanted);
    }
    sys::exit_group(0)
}

/// Of a stand-in of this process.
fn name(origin: u32) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    name[..PREFIX.len()].copy_from_slice(PREFIX);
    let (mut rest, mut digits, mut at) = (origin, [0u8; 10], 10);
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // Numbers of processes have seven digits at most.
    let digits = digits.get(at..).unwrap_or(&[]);
    let room = name.len() - 1 - PREFIX.len();
    let len = digits.len().min(room);
    name[PREFIX.len()..][..len].copy_from_slice(&digits[..len]);
    name
}

/// Sets the signals that this kernel thread does not take; answers those of before.
fn block(signals: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (ptr::from_ref(&signals) as usize, &raw mut before as usize);
    let set = args([libc::SIG_SETMASK as usize, new, old, size_of::<u64>()]);
    // SAFETY: live masks of the kernel's size.
    unsafe { sys::raw(libc::SYS_rt_sigprocmask, set) };
    before
}
