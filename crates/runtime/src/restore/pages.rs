//! The pages of an image come to where they belong: the node writes those of each process into its memory, or they are read from the restore file while the node unpacks it.
//!
//! Nothing here reads the runtime's own variables, which may be the image's already.

use super::{Tables, fail, must, part};
use crate::sys::{self, args};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use skein_arena::layout::{Header, RESTORE_PIECE_BYTES, SERVER_BASE};
use skein_arena::restore::placing::{FIRST, FREE, IN_FILE, NOT, OFFERED, PLACED};
use skein_arena::restore::{Process, Run, advice, kind};

/// So many bytes are read at a time: what a processor's cache holds.
const AT_ONCE: usize = 512 << 10;

/// The arena's header, without any of the runtime's variables.
fn arena() -> &'static Header {
    // SAFETY: the arena, which is mapped as long as the process runs.
    unsafe { &*(SERVER_BASE as *const Header) }
}

/// The node may write pages if it has offered to.
pub fn accept() {
    let asks = &arena().restore_asks;
    if asks.compare_exchange(OFFERED, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        sys::futex_wake(asks);
    }
}

/// Has the node write the pages of the process with this number; false: they are to be read.
fn are_placed(number: u32) -> bool {
    let (asks, own) = (&arena().restore_asks, FIRST + number);
    loop {
        match asks.compare_exchange(FREE, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(NOT | OFFERED | IN_FILE) => return false,
            Err(others) => sys::futex_wait(asks, others),
        }
    }
    sys::futex_wake(asks);
    loop {
        match asks.load(Ordering::Acquire) {
            // A node that cannot go on ends the server.
            asked if asked == own => sys::futex_wait(asks, asked),
            answer => {
                if answer == PLACED {
                    asks.store(FREE, Ordering::Release);
                    sys::futex_wake(asks);
                }
                return answer == PLACED;
            }
        }
    }
}

impl Tables {
    /// The pages of the running process, whose mappings are there, come to where they belong.
    pub unsafe fn take_pages(&self, process: &Process, runs: &[Run]) {
        let number = self.processes.iter().take_while(|other| other.pid < process.pid).count();
        if runs.is_empty() {
            return;
        }
        self.grow_stacks(process, runs);
        // No handler runs on memory that somebody else writes.
        let (all, mut before) = (u64::MAX, 0u64);
        let mask = |how: i32, new: *const u64, old: *mut u64| {
            let words = args([how as usize, new as usize, old as usize, size_of::<u64>()]);
            // SAFETY: both are on this stack, or not there.
            unsafe { sys::raw(libc::SYS_rt_sigprocmask, words) };
        };
        mask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let are_placed = are_placed(number as u32);
        mask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if are_placed {
            return;
        }
        // SAFETY: the caller's.
        unsafe { self.fill(runs, 0) }
    }

    /// Stacks are as long as their pages need: they grow for this process as far as its own limit allows, and for others as far as theirs does.
    fn grow_stacks(&self, process: &Process, runs: &[Run]) {
        let mappings = part(self.mappings, process.mappings).iter();
        for m in mappings.filter(|m| m.kind == kind::STACK || m.advice & advice::GROWS != 0) {
            let inside = runs.iter().find(|run| (m.start..m.end).contains(&run.address));
            if let Some(run) = inside {
                // SAFETY: a byte of the image's memory, which is filled with what it is to be afterwards.
                unsafe { (run.address as *mut u8).write_volatile(0) };
            }
        }
    }

    /// Reads pages from the file to where they belong, or to `base` and more.
    pub unsafe fn fill(&self, runs: &[Run], base: usize) {
        for run in runs {
            let mut to = base + run.address as usize;
            let (mut left, mut from) = (run.bytes as usize, run.at as usize);
            while left > 0 {
                let there = left.min(self.await_piece(from)).min(AT_ONCE);
                // New pages come quicker together than by a fault each. The read makes them where this does not.
                // SAFETY: the image's memory, which is mapped; all of it is filled.
                unsafe {
                    sys::raw(
                        libc::SYS_madvise,
                        args([to, there, libc::MADV_POPULATE_WRITE as usize]),
                    );
                }
                // SAFETY: as above.
                let n = unsafe { must(1, libc::SYS_pread64, args([self.file(), to, there, from])) };
                if n == 0 {
                    fail(2);
                }
                (to, left, from) = (to + n, left - n, from + n);
            }
        }
    }

    /// Waits until the node has unpacked the file at `from`; answers how many bytes are there from then on, or more.
    fn await_piece(&self, from: usize) -> usize {
        let header = arena();
        let shared = &header.restore_shared;
        match from.checked_sub(self.shared_at()) {
            Some(behind) if shared.load(Ordering::Acquire) != 0 => await_in(shared, behind),
            _ => await_in(&header.restore_pieces, from),
        }
    }

    /// Where what processes share begins in the file.
    fn shared_at(&self) -> usize {
        let heap = part(self.runs, [0, self.head.heap_runs]);
        heap.first().map_or(usize::MAX, |run| run.at as usize)
    }
}

/// Waits until a word that counts pieces says that there is more than `from`; answers how much more.
fn await_in(pieces: &AtomicU32, from: usize) -> usize {
    loop {
        let there = pieces.load(Ordering::Acquire);
        let end = match there {
            0 => usize::MAX,
            there => (there as usize - 1) * RESTORE_PIECE_BYTES as usize,
        };
        if from < end {
            return end - from;
        }
        // A node that cannot go on ends the server.
        sys::futex_wait(pieces, there);
    }
}
