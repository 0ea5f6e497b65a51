//! How the runtime begins and ends.
//!
//! Begins: at the first hook or in the constructor, whichever comes first. Without the arena's descriptor the process is not
//! replicated and every hook passes through. With it, anything missing ends the process with one line.
//!
//! Ends: an `Exit` frame with the status, so that every replica ends at a known point of the log.

use crate::fatal::refuse;
use crate::kernel::{self, OFF, READY, SETTING_UP, UNSET, kernel};
use crate::{admit, hooks, io, output, sys, thread, trap};
use core::sync::atomic::Ordering;
use skein_arena::layout::{ARENA_FD, Sizes, state};
use skein_arena::{Arena, MapError};
use skein_model::OutFrame;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    ensure();
}

/// Initialises the runtime unless it is, or is being, initialised. Answers whether hooks are to be handled.
#[inline]
pub fn ensure() -> bool {
    match kernel::state() {
        READY => true,
        UNSET => begin(),
        _ => false,
    }
}

#[cold]
fn begin() -> bool {
    kernel::set_state(SETTING_UP);
    hooks::resolve();
    // SAFETY: no memory is involved.
    let there = unsafe {
        sys::call(libc::SYS_fcntl, sys::args([ARENA_FD as usize, libc::F_GETFD as usize]))
    };
    if there.is_err() {
        kernel::set_state(OFF);
        return false;
    }
    // SAFETY: reads a word of the auxiliary vector.
    let fsgsbase = unsafe { libc::getauxval(libc::AT_HWCAP2) } & 2 != 0;
    if !fsgsbase {
        refuse!(
            "this machine's kernel does not allow FSGSBASE instructions: Linux 5.9 or newer and a processor of 2012 or newer are needed"
        );
    }
    if !thread::descriptor_known() {
        refuse!("this C library is not supported: Skein knows glibc 2.36");
    }
    let arena = match Arena::attach(ARENA_FD) {
        Ok(arena) => arena,
        Err(MapError::Sizes(s)) => refuse!(
            "arena too small: {} bytes of heap, at least {} are needed",
            s.heap,
            Sizes::MIN_HEAP
        ),
        Err(e) => refuse!("{e}"),
    };
    // The arena is mapped for as long as the process lives.
    let arena: &'static Arena = {
        static PLACE: StaticArena = StaticArena(core::cell::UnsafeCell::new(None));
        // SAFETY: initialisation happens once, before there is a second thread.
        let place = unsafe { &mut *PLACE.0.get() };
        place.insert(arena)
    };
    let (heap, len) = arena.heap().expect("a server maps the heap");
    // SAFETY: the first and only server of a fresh arena; the node's side of the heap is unused.
    unsafe {
        kernel::install(arena.header(), heap, len);
        let (input, out) = arena.server_ends();
        admit::install(input);
        output::install(out);
    }
    output::check_wake_fd();
    thread::adopt_main(kernel());
    kernel::set_state(READY);
    kernel::header().server_state.store(state::RUNNING, Ordering::Release);
    drop_preload();
    // The log's first entry starts the schedule, the clock and the randomness.
    admit::wait(kernel(), admit::Wait::Quiescent);
    io::adopt_descriptors();
    trap::install();
    true
}

struct StaticArena(core::cell::UnsafeCell<Option<Arena>>);
// SAFETY: written once during initialisation, by the only thread.
unsafe impl Sync for StaticArena {}

/// Programs that the server starts are not replicated: they must not find the runtime.
fn drop_preload() {
    // SAFETY: the environment is not read by another thread during initialisation.
    unsafe { libc::unsetenv(c"LD_PRELOAD".as_ptr()) };
}

/// The process ends with an exit status: the node is told where in the log.
pub fn end_process(status: i32) -> ! {
    say_exit((status & 0xff) << 8);
    sys::exit_group(status)
}

/// Tells the node that the server ends with this wait status.
pub fn say_exit(wait_status: i32) {
    if kernel::ready() {
        output::emit(OutFrame::Exit { status: wait_status });
        kernel::header().server_state.store(state::ENDED, Ordering::Release);
        output::wake_node();
    }
}
