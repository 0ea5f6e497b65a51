//! The start and the end of the runtime.
//!
//! Start: at the first hook or in the constructor, whichever comes first. Without the arena's descriptor the process is not
//! replicated and every hook passes through. With it, anything missing ends the process with one line.
//!
//! End: an `Exit` frame with the status, so that every replica ends at a known point of the log.

use crate::entry::hooks::jump;
use crate::entry::{net, world};
use crate::fatal::refuse;
use crate::files::inputs;
use crate::kernel::{self, Kernel, kernel};
use crate::local;
use crate::local::LOCAL;
use crate::local::{OFF, READY, SETTING_UP, UNSET};
use crate::turn::{admit, output, trace};
use crate::{files, glibc, image, io, original, patch, process, restore, stack, sys, thread};
use core::sync::atomic::Ordering;
use libc::{c_char, c_int};
use skein_arena::layout::{ARENA_FD, Sizes, state};
use skein_arena::{Arena, MapError, interface};
use skein_model::{Interface, limits};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *mut c_char, *mut *mut c_char) = constructor;

/// By what nodes of other versions know whether they can drive this library.
#[used]
static MARK: [u8; interface::MARK_BYTES] = interface::mark();

/// The loader calls it before every other constructor, libc's included (`build.rs`).
extern "C" fn constructor(_: c_int, _: *const *mut c_char, environment: *mut *mut c_char) {
    LOCAL.environment.store(environment, Ordering::Relaxed);
    let begins = local::state() == UNSET;
    if ensure() && begins {
        if process::this().executed.get() {
            image::renew_guards();
        }
        image::clear_leftovers();
    }
}

/// Initialises the runtime unless it is, or is being, initialised. Answers whether hooks are to be handled.
#[inline]
pub fn ensure() -> bool {
    match local::state() {
        READY => true,
        UNSET => begin(),
        _ => false,
    }
}

#[cold]
fn begin() -> bool {
    local::set_state(SETTING_UP);
    original::resolve();
    world::give();
    // SAFETY: no memory is involved.
    let there = unsafe {
        sys::call(libc::SYS_fcntl, sys::args([ARENA_FD as usize, libc::F_GETFD as usize]))
    };
    if there.is_err() {
        local::set_state(OFF);
        return false;
    }
    // SAFETY: reads a word of the auxiliary vector.
    let fsgsbase = unsafe { libc::getauxval(libc::AT_HWCAP2) } & 2 != 0;
    if !fsgsbase {
        refuse!(
            "this machine's kernel does not allow FSGSBASE instructions: Linux 5.9 or newer and a processor of 2012 or newer are needed"
        );
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
    let first = arena.header().server_state.load(Ordering::Acquire) == state::STARTING;
    // SAFETY: the first process of a fresh arena, of which the node's side of the heap is unused; or one that has the turn in an arena that another
    // one made. The rings' ends are used by whoever has the turn.
    unsafe {
        if first {
            kernel::install(arena.header(), heap, len, &[files::lay_out]);
        } else {
            kernel::attach(arena.header(), heap);
        }
        let (input, out) = arena.server_ends();
        admit::install(input);
        output::install(out);
    }
    output::check_wake_fd();
    stack::begin();
    trace::attach(first);
    if first {
        begin_server()
    } else if restore::is_under_way() {
        local::set_state(READY);
        net::rejoin();
        restore::go_on();
    } else {
        go_on_in_new_program()
    }
    true
}

/// The first process of a server.
fn begin_server() {
    let k = kernel();
    thread::adopt_main(k);
    local::set_state(READY);
    local::header().server_state.store(state::RUNNING, Ordering::Release);
    take_preload(k);
    k.unsafe_admission.set(variable(limits::UNSAFE_ADMIT_ON_ARRIVAL.to_bytes()).is_some());
    k.cpuid_is_left.set(variable(limits::NO_CPUID_FAULTING.to_bytes()).is_some());
    if let Some(text) = variable(limits::INTERFACE.to_bytes()) {
        let Some(interface) = core::str::from_utf8(text).ok().and_then(Interface::parse) else {
            refuse!("the variable SKEIN_INTERFACE is no address");
        };
        k.net.interface.set(interface);
    }
    files::note_time();
    // The log's first entry starts the schedule, the clock and the randomness.
    admit::wait(k, admit::Wait::Quiescent);
    // Only now: a replica that stops after an entry must do so like all others.
    check_glibc();
    // The descriptors that it was started with are all the kernel's, and stay so.
    io::table::begin();
    process::written::begin();
    io::park::open();
    files::begin();
    inputs::libraries::begin();
    net::install();
    restore::begin();
}

/// A process of the server that has executed another program.
fn go_on_in_new_program() {
    let k = kernel();
    let process = process::exec::find_executing(k);
    local::set_state(READY);
    net::join();
    process::written::begin();
    process::exec::join(k, process);
    thread::be_new_main(k, k.current());
    check_glibc();
    take_preload(k);
    image::make_equal(k);
    patch::executed();
}

/// Checks the visible glibc internals at once, before any of them is used.
fn check_glibc() {
    if !jump::buffer_is_libcs() {
        glibc::unknown("its setjmp stores something else");
    }
}

/// A variable of the environment that the kernel put on the stack: libc knows its own only later.
fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let mut at = LOCAL.environment.load(Ordering::Relaxed).cast::<*const libc::c_char>();
    if at.is_null() {
        return None;
    }
    // SAFETY: the kernel's array of strings, which ends with a null pointer and stays where it is.
    unsafe {
        while !(*at).is_null() {
            let text = core::ffi::CStr::from_ptr(*at).to_bytes();
            if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

fn take_preload(k: &Kernel) {
    // SAFETY: the environment that the kernel put on the stack, which nobody else uses yet.
    unsafe { process::exec::take_preload(k, LOCAL.environment.load(Ordering::Relaxed)) };
}

struct StaticArena(core::cell::UnsafeCell<Option<Arena>>);
// SAFETY: written once during initialisation, by the only thread.
unsafe impl Sync for StaticArena {}
