//! The memory for looking at a thread: mapped for that time only, at a place of its own, so that the server sees nothing of it.

use super::memory::Memory;
use super::stepper::{Known, SLOTS_BYTES};
use crate::sys::{self, args};

/// Beside this library, far from all that Linux places by itself.
const PLACE: usize = 0x2f10_0000_0000;

#[repr(C)]
struct Parts {
    known: Known,
    memory: Memory,
}

/// It is unmapped when this is dropped.
pub struct Workspace(&'static mut Parts);

impl Workspace {
    /// Maps it; nothing where the kernel does not allow that.
    pub fn take() -> Option<Self> {
        let bytes = size_of::<Parts>();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let data = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where there is none.
        let made = unsafe {
            sys::call(libc::SYS_mmap, [PLACE, bytes, data as usize, flags as usize, usize::MAX, 0])
        };
        if made != Ok(PLACE) {
            return None;
        }
        // SAFETY: zero bytes are valid parts, and nobody else's.
        let workspace = Self(unsafe { &mut *(PLACE as *mut Parts) });
        let code = data | libc::PROT_EXEC;
        // SAFETY: its own first bytes, in which the slots are.
        let executable =
            unsafe { sys::call(libc::SYS_mprotect, args([PLACE, SLOTS_BYTES, code as usize])) };
        executable.is_ok().then_some(workspace)
    }

    /// What is known of the code, and of the memory.
    pub fn parts(&mut self) -> (&mut Known, &mut Memory) {
        (&mut self.0.known, &mut self.0.memory)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // SAFETY: its own mapping, to which nothing refers any more.
        unsafe { sys::raw(libc::SYS_munmap, args([PLACE, size_of::<Parts>()])) };
    }
}
