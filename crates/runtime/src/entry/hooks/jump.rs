//! `sigsetjmp` and `siglongjmp`: libc would save and restore the kernel's mask; the server's is virtual.
//!
//! The buffer is glibc's, so that its `longjmp` can use it: eight registers of which three are mangled, a flag, a mask.

use crate::entry::init;
use crate::kernel::kernel;
use crate::local::ready;
use crate::original::real;
use crate::signal::{change_mask, deliver, is_due};
use crate::turn::trace;
use crate::{stack, sys};
use core::arch::naked_asm;
use core::cell::UnsafeCell;
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

/// Where the stack pointer and the address to go on at are in a buffer's registers.
const STACK_POINTER: usize = 6;
const RETURN_ADDRESS: usize = 7;

impl Buffer {
    /// The stack pointer that it restores.
    fn sp(&self) -> usize {
        self.unmangled(STACK_POINTER)
    }

    /// One of the registers that glibc mangles.
    fn unmangled(&self, place: usize) -> usize {
        let guard: u64;
        // SAFETY: reads a word of the running thread's descriptor, at a place that compilers know.
        unsafe {
            core::arch::asm!("mov {}, fs:[0x30]", out(reg) guard, options(nostack, readonly, preserves_flags));
        }
        (self.registers[place].rotate_right(17) ^ guard) as usize
    }
}

/// A buffer whose mask is restored already. libc jumps by it when the runtime's stack is left.
struct Copy(UnsafeCell<Buffer>);
// SAFETY: used by the turn's holder, who goes on at once.
unsafe impl Sync for Copy {}
static COPY: Copy = Copy(UnsafeCell::new(Buffer { registers: [0; 8], saved: 0, mask: [0; 16] }));

/// A pending jump: its buffer, and libc's function.
#[repr(C)]
struct Jump {
    buffer: *const c_void,
    function: usize,
}

/// Whether libc's own function stores the same as this one.
pub fn buffer_is_libcs() -> bool {
    let empty = Buffer { registers: [0; 8], saved: 0, mask: [0; 16] };
    let (mut own, mut libcs) = (empty, empty);
    let function = real!(__sigsetjmp: fn(*mut c_void, c_int) -> c_int);
    // SAFETY: two buffers that are never jumped to.
    unsafe { set_both((&raw mut own).cast(), (&raw mut libcs).cast(), function as usize) };
    let place = RETURN_ADDRESS;
    own.saved == libcs.saved
        && own.registers[..place] == libcs.registers[..place]
        // One is called behind the other.
        && own.unmangled(place).wrapping_sub(libcs.unmangled(place)) < 32
}

/// Sets both buffers, without their masks, with the same registers.
///
/// # Safety
/// Nobody jumps by them; `function` is libc's.
#[unsafe(naked)]
unsafe extern "C" fn set_both(own: *mut c_void, libcs: *mut c_void, function: usize) {
    naked_asm!(
        "push rbx",
        "mov rbx, rdi",
        "mov rdi, rsi",
        "xor esi, esi",
        "call rdx",
        "mov rdi, rbx",
        "xor esi, esi",
        "call {own}",
        "pop rbx",
        "ret",
        own = sym __sigsetjmp,
    )
}

/// The work of `longjmp` before it jumps: answers a copy of the buffer, whose mask is restored already.
unsafe fn restore(buffer: *const c_void) -> *const c_void {
    if !init::ensure() {
        return buffer;
    }
    // SAFETY: as for `Copy`.
    let copy = unsafe { &mut *COPY.0.get() };
    // Out of a handler that ran inside a trapped call, too.
    kernel().this().trapped_at.set(0);
    // SAFETY: the caller's buffer.
    *copy = unsafe { buffer.cast::<Buffer>().read() };
    let to = copy.sp();
    if copy.saved != 0 {
        copy.saved = 0;
        let kept = *copy;
        let _ = change_mask(libc::SIG_SETMASK, Some(copy.mask[0]));
        trace::returns(0);
        let k = kernel();
        if is_due(k) {
            deliver(k);
        }
        // Another thread, or a handler, may have jumped meanwhile.
        *copy = kept;
    }
    stack::jumped(to);
    // Handlers that it leaves were inside of operations.
    trace::leaves(kernel().current.get(), stack::depth());
    core::ptr::from_ref(copy).cast()
}

/// Defines the jumps.
macro_rules! jumps {
    ($($name:ident)*) => {$(
        /// Jumps to where the buffer was set.
        ///
        /// # Safety
        /// As `siglongjmp`.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(buffer: *const c_void, value: c_int) {
            unsafe extern "C" fn prepare(buffer: *const c_void) -> Jump {
                // SAFETY: the caller's buffer.
                let buffer = unsafe { restore(buffer) };
                let function = real!($name: fn(*const c_void, c_int)) as *const () as usize;
                Jump { buffer, function }
            }
            naked_asm!(
                "mov r11, rsp",
                "mov r10, rsp",
                "shr r10, {bits}",
                "cmp r10d, {place}",
                "je 2f",
                "mov r10, [rip + {level}]",
                "test r10, r10",
                "jz 2f",
                "mov rsp, r10",
                "2:",
                "push r11",
                // An address in here, as a call leaves it.
                "lea r10, [rip + 2b]",
                "push r10",
                "push rsi",
                "call {prepare}",
                "call {settle}",
                "pop rsi",
                "pop r10",
                "pop rsp",
                // libc's own function, in this one's place.
                "mov rdi, rax",
                "jmp rdx",
                bits = const stack::PLACE_BITS,
                place = const stack::PLACE,
                level = sym crate::local::LOCAL,
                prepare = sym prepare,
                settle = sym crate::vectors::settle,
            )
        }
    )*};
}

jumps! { longjmp _longjmp siglongjmp __longjmp_chk }
