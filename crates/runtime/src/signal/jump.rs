//! `sigsetjmp` and `siglongjmp`: libc would save and restore the kernel's mask; the server's is virtual.
//!
//! The buffer is glibc's, so that its `longjmp` takes it up: eight registers of which three are mangled, a flag, a mask.

use super::{change_mask, deliver, is_due};
use crate::hooks::real;
use crate::kernel::{kernel, ready};
use crate::{init, sys};
use core::arch::naked_asm;
use libc::{c_int, c_void};

/// `struct __jmp_buf_tag`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Buffer {
    registers: [u64; 8],
    saved: c_int,
    mask: [u64; 16],
}

const _: () = assert!(core::mem::offset_of!(Buffer, saved) == 64 && size_of::<Buffer>() == 200);

/// `sigsetjmp(buffer, save)`.
///
/// # Safety
/// As `sigsetjmp`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigsetjmp(buffer: *mut c_void, save: c_int) -> c_int {
    naked_asm!(
        "mov [rdi], rbx",
        "mov rax, rbp",
        "xor rax, fs:[0x30]",
        "rol rax, 17",
        "mov [rdi + 8], rax",
        "mov [rdi + 16], r12",
        "mov [rdi + 24], r13",
        "mov [rdi + 32], r14",
        "mov [rdi + 40], r15",
        "lea rax, [rsp + 8]",
        "xor rax, fs:[0x30]",
        "rol rax, 17",
        "mov [rdi + 48], rax",
        "mov rax, [rsp]",
        "xor rax, fs:[0x30]",
        "rol rax, 17",
        "mov [rdi + 56], rax",
        "jmp {save_mask}",
        save_mask = sym save_mask,
    )
}

/// `setjmp` as a function saves the mask, as BSD's does.
///
/// # Safety
/// As `setjmp`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setjmp(buffer: *mut c_void) -> c_int {
    naked_asm!("mov esi, 1", "jmp {sigsetjmp}", sigsetjmp = sym __sigsetjmp)
}

unsafe extern "C" fn save_mask(buffer: *mut Buffer, save: c_int) -> c_int {
    // SAFETY: the caller's buffer.
    let buffer = unsafe { &mut *buffer };
    buffer.saved = c_int::from(save != 0);
    if save != 0 {
        buffer.mask[0] = if ready() {
            kernel().this().signals.mask.get()
        } else {
            let mut mask = 0u64;
            // SAFETY: asks for the mask, into a local.
            unsafe {
                sys::raw(
                    libc::SYS_rt_sigprocmask,
                    sys::args([libc::SIG_BLOCK as usize, 0, &raw mut mask as usize, 8]),
                );
            }
            mask
        };
    }
    0
}

/// What `longjmp` does before it jumps: the buffer that it jumps to has its mask already, in a copy.
unsafe fn restore(buffer: *const c_void, copy: &mut Buffer) -> *const c_void {
    if !init::ensure() {
        return buffer;
    }
    // Out of a handler that ran inside a trapped call, too.
    kernel().this().trapped_at.set(0);
    // SAFETY: the caller's buffer.
    *copy = unsafe { buffer.cast::<Buffer>().read() };
    if copy.saved == 0 {
        return buffer;
    }
    copy.saved = 0;
    let _ = change_mask(libc::SIG_SETMASK, Some(copy.mask[0]));
    let k = kernel();
    if is_due(k) {
        deliver(k);
    }
    core::ptr::from_ref(copy).cast()
}

/// Defines the jumps.
macro_rules! jumps {
    ($($name:ident)*) => {$(
        /// Jumps to where the buffer was set.
        ///
        /// # Safety
        /// As `siglongjmp`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(buffer: *const c_void, value: c_int) {
            let mut copy = Buffer { registers: [0; 8], saved: 0, mask: [0; 16] };
            // SAFETY: the caller's buffer; libc's own function takes it or its copy up.
            unsafe {
                let buffer = restore(buffer, &mut copy);
                real!($name: fn(*const c_void, c_int))(buffer, value)
            }
        }
    )*};
}

jumps! { longjmp _longjmp siglongjmp __longjmp_chk }
