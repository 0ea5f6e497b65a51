//! Threads that have given the turn up while they spin: their registers, and the words that they have read.
//!
//! A thread is taken out of the signal's handler, whose stack others need: the handler returns to [`enter`], on the thread's stack of the runtime's, which waits. It returns to
//! its loop by the same signal, whose handler restores all registers ([`restore`]).

use super::memory::Word;
use super::{MOST_VECTOR_BYTES, look_again_soon, machine::Vectors};
use crate::local::LOCAL;
use crate::stack;
use crate::sys::{self, args};
use crate::turn::spins::{self, Watched};
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::Ordering;
use skein_model::limits::SPIN_SIGNAL;

/// The most threads of one process that spin at one time. Further ones spin until one of the others continues.
const MOST: usize = 32;
/// The most words of each. A thread that reads more is released whenever another thread has done something.
const MOST_WATCHED: usize = 512;

struct Kept {
    used: Cell<bool>,
    registers: Cell<[libc::greg_t; 23]>,
    vectors: UnsafeCell<[u8; MOST_VECTOR_BYTES]>,
    vector_bytes: Cell<usize>,
    watched: [Cell<(usize, u64)>; MOST_WATCHED],
    /// How many; `None` when there were too many.
    watched_len: Cell<Option<usize>>,
}

struct All([Kept; MOST]);

// SAFETY: used by the turn's holder only.
unsafe impl Sync for All {}

static KEPT: All = All([const {
    Kept {
        used: Cell::new(false),
        registers: Cell::new([0; 23]),
        vectors: UnsafeCell::new([0; MOST_VECTOR_BYTES]),
        vector_bytes: Cell::new(0),
        watched: [const { Cell::new((0, 0)) }; MOST_WATCHED],
        watched_len: Cell::new(None),
    }
}; MOST]);

/// A forked process has only the thread that forked it, which does not spin.
pub fn forked() {
    for kept in &KEPT.0 {
        kept.used.set(false);
    }
    super::start_timers();
}

/// Lets the interrupted thread, which is at the agreed state of a cycle that touches `words`, go on by giving up the turn.
///
/// # Safety
/// `context` is its frame, with `vectors` in it.
pub(super) unsafe fn give_up_turn(
    context: *mut libc::ucontext_t,
    vectors: Option<Vectors>,
    words: &[Word],
) {
    let Some(number) = KEPT.0.iter().position(|kept| !kept.used.get()) else { return };
    // Without them the registers could not be put back.
    let Some(vectors) = vectors else { return };
    let kept = &KEPT.0[number];
    kept.used.set(true);
    // SAFETY: the caller's contract.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    kept.registers.set(*registers);
    // SAFETY: not more bytes than there is room for; nobody else uses the place.
    unsafe { kept.vectors.get().cast::<u8>().copy_from_nonoverlapping(vectors.at, vectors.bytes) };
    kept.vector_bytes.set(vectors.bytes);
    kept.watched_len.set((words.len() <= MOST_WATCHED).then_some(words.len()));
    for (to, word) in kept.watched.iter().zip(words) {
        to.set((word.address, word.now));
    }
    let sp = &mut registers[libc::REG_RSP as usize];
    // SAFETY: the thread comes in.
    *sp = unsafe { stack::come_in(*sp as usize, enter as *const () as usize) } as i64;
    registers[libc::REG_RDI as usize] = number as i64;
    registers[libc::REG_RIP as usize] = enter as *const () as i64;
    const DIRECTION: i64 = 1 << 10;
    registers[libc::REG_EFL as usize] &= !DIRECTION;
}

/// The thread itself, out of the handler.
extern "C" fn enter(number: usize) -> ! {
    let kept = &KEPT.0[number];
    spins::wait(kept);
    crate::signal::boundary();
    look_again_soon();
    restore(number)
}

impl Watched for Kept {
    fn changed(&self) -> bool {
        let Some(len) = self.watched_len.get() else { return true };
        self.watched[..len].chunks(CHUNK).any(changed)
    }
}

/// Words that the kernel is asked for at a time.
const CHUNK: usize = 64;

/// The kernel is asked: another thread may have unmapped them, and the spinning thread itself would find that out.
fn changed(words: &[Cell<(usize, u64)>]) -> bool {
    let mut there =
        [skein_libos::abi::iovec { iov_base: core::ptr::null_mut(), iov_len: 8 }; CHUNK];
    let mut values = [0u64; CHUNK];
    for (place, word) in there.iter_mut().zip(words) {
        place.iov_base = word.get().0 as *mut libc::c_void;
    }
    let here =
        skein_libos::abi::iovec { iov_base: values.as_mut_ptr().cast(), iov_len: 8 * words.len() };
    // SAFETY: no arguments.
    let pid = unsafe { sys::raw(libc::SYS_getpid, args([])) } as usize;
    // SAFETY: reads this process's memory into a local.
    let read = unsafe {
        let a = [pid, &raw const here as usize, 1, there.as_ptr() as usize, words.len(), 0];
        sys::call(libc::SYS_process_vm_readv, a)
    };
    read != Ok(8 * words.len())
        || words.iter().zip(values).any(|(word, value)| word.get().1 != value)
}

/// Puts the registers back by the signal's handler, which can set them all.
fn restore(number: usize) -> ! {
    LOCAL.restores.store(number + 1, Ordering::Relaxed);
    // SAFETY: no arguments.
    let pid = unsafe { sys::raw(libc::SYS_getpid, args([])) } as usize;
    // SAFETY: a signal of this kernel thread's own, which is not blocked.
    unsafe {
        sys::raw(libc::SYS_tgkill, args([pid, sys::gettid() as usize, SPIN_SIGNAL as usize]));
    }
    crate::fatal::refuse!("a thread that spins could not be taken up again")
}

/// The handler's part of it.
///
/// # Safety
/// `context` is the frame of a signal that interrupted [`restore`].
pub(super) unsafe fn give_back(number: usize, context: *mut libc::ucontext_t) {
    let kept = &KEPT.0[number];
    // SAFETY: the caller's contract; the frame has as many bytes of vector registers as the one that they come from: both are the kernel's, on one
    // processor.
    unsafe {
        let to = &mut (*context).uc_mcontext;
        let fpregs = to.fpregs.cast::<u8>();
        to.gregs = kept.registers.get();
        fpregs.copy_from_nonoverlapping(kept.vectors.get().cast::<u8>(), kept.vector_bytes.get());
    }
    kept.used.set(false);
}
