//! Hooks: getaddrinfo. With `AI_ADDRCONFIG` libc finds nothing of a family for which only the loopback interface has an address. The server's
//! interfaces do not tell what it can reach, because the leader's host makes the connections. So the flag is dropped where it asks for one family.

use crate::kernel;
use crate::local;
use core::arch::naked_asm;
use core::sync::atomic::AtomicUsize;
use libc::{addrinfo, c_char, c_int};

/// `getaddrinfo`: libc's own, with other hints.
///
/// # Safety
/// As for libc's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    out: *mut *mut addrinfo,
) -> c_int {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rcx",
        "mov rdi, rdx",
        "call {chosen}",
        "push rax",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rdx",
        "pop rcx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        chosen = sym chosen,
        real = sym real,
    )
}

/// libc's own function.
extern "C" fn real() -> usize {
    static SLOT: AtomicUsize = AtomicUsize::new(0);
    crate::original::original(&SLOT, "getaddrinfo\0")
}

/// The hints for libc instead of `hints`.
unsafe extern "C" fn chosen(hints: *const addrinfo) -> *const addrinfo {
    // SAFETY: the caller's contract.
    let Some(asked) = (unsafe { hints.as_ref() }) else { return hints };
    let about_one = asked.ai_flags & libc::AI_ADDRCONFIG != 0 && asked.ai_family != libc::AF_UNSPEC;
    if !about_one || !local::ready() {
        return hints;
    }
    let place = kernel::kernel().this().hints.as_ptr().cast::<addrinfo>();
    // SAFETY: the running thread's own place, as large as an `addrinfo`, which nobody else uses during the call.
    unsafe {
        place.write(addrinfo { ai_flags: asked.ai_flags & !libc::AI_ADDRCONFIG, ..*asked });
    }
    place
}
