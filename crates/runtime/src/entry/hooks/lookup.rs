//! Hooks: dlsym. Libraries that look a function up "behind themselves" (`RTLD_NEXT`) would get libc's own and go around the runtime; jemalloc
//! creates its background threads in this way. They get the runtime's.

use crate::original::real_dlsym;
use core::arch::naked_asm;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{Dl_info, c_char, c_void};

/// libc's `dlsym`, once it is known.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// `dlsym`. Names that are not the runtime's are looked up by libc's, which sees its caller's return address.
///
/// # Safety
/// As for libc's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {pick}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {real}]",
        pick = sym pick,
        real = sym REAL,
    )
}

/// The runtime's own function of this name, when one is asked for behind its back; null otherwise.
unsafe extern "C" fn pick(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let real = real_dlsym();
    REAL.store(real as usize, Ordering::Relaxed);
    if handle != libc::RTLD_NEXT || name.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: libc's function; the name is the caller's string.
    let (first, own) =
        unsafe { (real(libc::RTLD_DEFAULT, name), base_of(pick as *const () as *const c_void)) };
    // Its own name is excluded: a caller that asks for `dlsym` wants libc's.
    // SAFETY: the caller's string.
    let itself = unsafe { CStr::from_ptr(name) } == c"dlsym";
    if !first.is_null() && !itself && base_of(first) == own { first } else { core::ptr::null_mut() }
}

/// Where the object that holds `address` is loaded.
fn base_of(address: *const c_void) -> usize {
    // SAFETY: all-zero is a valid `Dl_info`.
    let mut info: Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: writes a local.
    unsafe { libc::dladdr(address, &raw mut info) };
    info.dli_fbase as usize
}
