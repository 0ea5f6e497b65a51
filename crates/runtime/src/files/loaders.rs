//! The dynamic loader's own questions about files.

use crate::files::stat;
use crate::local::LOCAL;
use crate::sys;
use core::sync::atomic::Ordering;
use skein_libos::errno::Result;

/// The loader's question about a file, whose answer stays in its record of a library and below the server's stack: answered like a server's question, but not
/// an operation of the server's. `None` when it is another call, or another caller's.
pub fn from_loader(nr: i64, args: [usize; 6], at: usize) -> Option<Result<usize>> {
    let answer = match nr {
        libc::SYS_fstat => args[1],
        libc::SYS_newfstatat => args[2],
        _ => return None,
    };
    if !is_in_loader(at) {
        return None;
    }
    // SAFETY: the loader's own call.
    let result = unsafe { sys::call(nr, args) };
    if result.is_ok() {
        // SAFETY: the kernel has just written there.
        stat::replace(crate::kernel::kernel(), unsafe { &mut *(answer as *mut libc::stat) }, None);
    }
    Some(result)
}

/// Whether an address is in the loader's text.
fn is_in_loader(at: usize) -> bool {
    let [start, end] = [0, 1].map(|i| LOCAL.loader_text[i].load(Ordering::Relaxed));
    (start..end).contains(&at)
}
