//! The runtime's knowledge of glibc's internals, which no interface promises: found at run time, or compared with the expected form. A
//! difference ends the server with one line that has glibc's version.
//!
//! | internal | how it is found |
//! |---|---|
//! | where a thread's descriptor has the kernel's id | the `clone` that makes a thread names the word that the kernel clears ([`note_birth`]) |
//! | the data that `setjmp` stores, and their mangling | libc's own function and the runtime's are called at the same place (`entry::init`) |
//! | the kernel's area for restartable sequences | giving it back succeeds ([`hide_cpu_number`]) |
//! | the key by which malloc recognises freed memory, which later versions draw before the runtime begins | the code that draws it names the word ([`crate::loader::renew_key`]) |
//! | the place of the child's errno in `posix_spawn` | the words that the child has changed ([`crate::process::spawn`]) |
//!
//! Layouts that static initialisers have (mutexes, condition variables and the like) are an interface, and not in here.

use crate::fatal::refuse;
use crate::local::LOCAL;
use crate::patch::Stretch;
use crate::sys::{self, args};
use crate::{context, original};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::c_char;

unsafe extern "C" {
    fn gnu_get_libc_version() -> *const c_char;
}

/// Its version.
pub fn version() -> &'static str {
    // SAFETY: libc's own string.
    unsafe { CStr::from_ptr(gnu_get_libc_version()) }.to_str().unwrap_or("?")
}

/// Ends the server: `what` differs from the expected form.
#[cold]
pub fn unknown(what: &str) -> ! {
    refuse!(
        "this glibc ({}) is not known: {what}; docs/limitations.md lists the known ones",
        version()
    )
}

/// Whether an address is in libc's text.
pub fn is_in_text(at: usize) -> bool {
    text().contains(at)
}

/// libc's text; nothing before it is found.
pub fn text() -> Stretch<'static> {
    let [at, end] = [0, 1].map(|i| LOCAL.libc_text[i].load(Ordering::Relaxed));
    // SAFETY: a segment that is mapped for reading, for as long as the program runs; before it is found, nothing.
    let bytes =
        unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), end - at) };
    Stretch { at, bytes }
}

/// Bytes of a thread's descriptor, at most: more than any glibc has.
const MAX_DESCRIPTOR_BYTES: usize = 8192;

/// libc makes a thread by `clone` with these arguments.
pub fn note_birth([flags, _, _, child_tid, descriptor, _]: [usize; 6]) {
    let needed = (libc::CLONE_CHILD_CLEARTID | libc::CLONE_SETTLS) as usize;
    let at = child_tid.wrapping_sub(descriptor);
    let known = LOCAL.tid_offset.load(Ordering::Relaxed);
    if flags & needed != needed || at >= MAX_DESCRIPTOR_BYTES || at % 4 != 0 {
        unknown("its threads have no word that the kernel clears at their end");
    }
    if known != 0 && known != at {
        unknown("its threads do not have that word at one place");
    }
    LOCAL.tid_offset.store(at, Ordering::Relaxed);
}

/// Tells the kernel which word it is to clear when the main thread ends.
pub fn tell_of_main() {
    let offset = LOCAL.tid_offset.load(Ordering::Relaxed);
    if offset != 0 {
        let word = LOCAL.main_fs.load(Ordering::Relaxed) as usize + offset;
        // SAFETY: the main thread's descriptor stays.
        unsafe { sys::raw(libc::SYS_set_tid_address, args([word])) };
    }
}

/// The word that the kernel clears when the thread ends, of a thread that libc has made.
///
/// # Safety
/// `pthread` is a thread that libc has not freed.
pub unsafe fn tid_word<'a>(pthread: u64) -> &'a AtomicU32 {
    let at = pthread as usize + LOCAL.tid_offset.load(Ordering::Relaxed);
    // SAFETY: the caller's contract; the place is the one that libc has given to the kernel.
    unsafe { &*(at as *const AtomicU32) }
}

/// Takes the CPU number away that the kernel keeps up to date in each thread's memory: libc registers the area before the runtime begins, and does
/// so for later threads only while the first one is registered.
pub fn hide_cpu_number() {
    /// glibc's, for x86-64.
    const SIGNATURE: usize = 0x5305_3053;
    const UNREGISTER: usize = 1;
    /// The first version's size; later kernels may know more, in steps of this.
    const AREA_BYTES: usize = 32;
    /// `AT_RSEQ_FEATURE_SIZE`, which libc does not name.
    const FEATURE_SIZE: libc::c_ulong = 27;
    /// `RSEQ_CPU_ID_REGISTRATION_FAILED`.
    const FAILED: i32 = -2;
    // SAFETY: libc's variable of this name is an offset from the thread pointer.
    let offset = unsafe { *(original::next_symbol("__rseq_offset\0") as *const isize) };
    let area = (context::fs_base() as usize).wrapping_add_signed(offset);
    let number = (area as *mut i32).wrapping_add(1);
    // SAFETY: the running thread's own area. It has no number when it is not registered.
    if unsafe { number.read() } < 0 {
        return;
    }
    // SAFETY: reads the auxiliary vector.
    let features = unsafe { libc::getauxval(FEATURE_SIZE) } as usize;
    let gone = [AREA_BYTES, features.next_multiple_of(AREA_BYTES)].into_iter().any(|bytes| {
        // SAFETY: the area stays memory when it is not registered.
        unsafe { sys::call(libc::SYS_rseq, args([area, bytes, UNREGISTER, SIGNATURE])) }.is_ok()
    });
    if !gone {
        unknown("its area for restartable sequences cannot be given back");
    }
    // SAFETY: as above.
    unsafe { number.write(FAILED) };
}
