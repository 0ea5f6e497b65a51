//! The dynamic loader's own actions and notes, which no server sees, but which lie in its memory: made equal on all replicas.
//!
//! ```text
//! before the runtime is there   noted, and made equal here: files of libraries (link maps), times by the processor's counter,
//!                               the number of the core, the guard of pointers of a program that was executed     (notes.rs)
//! from then on                  libraries' files: the loader's question is replaced by a jump to a stub, as in [`crate::patch`]
//!                               functions bound at their first call: registers are saved on the runtime's stack  (entry::bind)
//! ```
//!
//! All of it is found at the start of each program by the form of its code and by values that only these places have ([`text`]): layouts change from version to
//! version. Places that are not found stay as they are, and the node's log says so.

mod key;
mod notes;
mod text;

use crate::fatal::{line, notice};
use crate::frame;
use crate::kernel::Kernel;
use crate::local::LOCAL;
use crate::patch::{self, Stretch};
use crate::sys::{self, args};
use core::ops::Range;
use core::sync::atomic::Ordering;
use libc::{Elf64_Ehdr, Elf64_Phdr};

pub use key::renew_key;
pub use notes::renew_guard;
pub use text::{Draw, draw};

/// The loader in memory.
#[derive(Debug)]
pub struct Image {
    /// Its code.
    pub text: Stretch<'static>,
    /// The data that it writes.
    pub data: Range<usize>,
    /// The part of them that it has made read-only at its end.
    sealed: Range<usize>,
}

impl Image {
    /// As the kernel has mapped it.
    pub fn find() -> Option<Self> {
        // SAFETY: reads a word of the auxiliary vector.
        let base = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
        if base == 0 {
            return None;
        }
        // SAFETY: the loader is mapped there, its headers first.
        let headers = unsafe {
            let head = &*(base as *const Elf64_Ehdr);
            let table = (base + head.e_phoff as usize) as *const Elf64_Phdr;
            core::slice::from_raw_parts(table, usize::from(head.e_phnum))
        };
        let range = |header: &Elf64_Phdr| {
            let at = base + header.p_vaddr as usize;
            at..at + header.p_memsz as usize
        };
        let loaded = |flag: u32| {
            let with = |h: &&Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & flag != 0;
            headers.iter().find(with).map(range)
        };
        let (text, data) = (loaded(libc::PF_X)?, loaded(libc::PF_W)?);
        let sealed = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO).map(range);
        // SAFETY: a segment that is mapped for reading, for as long as the program runs.
        let bytes =
            unsafe { core::slice::from_raw_parts(text.start as *const u8, text.end - text.start) };
        Some(Self { text: Stretch { at: text.start, bytes }, data, sealed: sealed.unwrap_or(0..0) })
    }

    /// Lets `change` write to all of [`Image::data`].
    fn unsealed(&self, change: impl FnOnce()) {
        const PAGE: usize = 4096;
        let start = self.sealed.start & !(PAGE - 1);
        // As the loader does it: the page that it shares with what stays writable is not sealed.
        let len = (self.sealed.end & !(PAGE - 1)).saturating_sub(start);
        let protect = |protection: i32| {
            // SAFETY: the loader's own pages, which it has finished writing to.
            unsafe { sys::call(libc::SYS_mprotect, args([start, len, protection as usize])) }
        };
        if len == 0 || protect(libc::PROT_READ | libc::PROT_WRITE).is_ok() {
            change();
            let _ = protect(libc::PROT_READ);
        }
    }
}

/// Makes the loader's notes equal, and prepares its later actions; to be called while neither `rdtsc` nor `cpuid` traps. Tells the node about
/// unknown places, for the first program.
pub fn make_equal(k: &Kernel, first: bool) {
    let unknown = |what: &str| {
        if first {
            let text = line!("this dynamic loader is not known: replicas may differ in {what}");
            notice(text.bytes());
        }
    };
    let Some(image) = Image::find() else {
        return unknown("all that it notes");
    };
    image.unsealed(|| notes::make_equal(k, &image).for_each(unknown));
    let mut asked = 0;
    for question in text::questions(image.text) {
        asked += usize::from(patch::replace_loaders(question));
    }
    if asked == 0 {
        unknown("its notes about libraries that are loaded later");
    }
    if !bind_on_own_stack(&image) {
        unknown("its traces of functions bound at their first call");
    }
}

/// Has functions bound by [`entry::bind`].
fn bind_on_own_stack(image: &Image) -> bool {
    if !patch::vectors_can_be_saved() {
        return false;
    }
    let Some(found) = text::resolvers(image.text) else { return false };
    LOCAL.fixup.store(found.fixup, Ordering::Relaxed);
    // jmp [rip]; the address.
    let mut jump = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    jump[6..].copy_from_slice(&(frame::bind as *const () as usize).to_le_bytes());
    found.begins.iter().filter(|begin| **begin != 0).all(|begin| {
        // SAFETY: the begin of a function, which is longer, and in which nobody is; there is one thread.
        unsafe { patch::write(*begin, &jump) }.is_some()
    })
}
