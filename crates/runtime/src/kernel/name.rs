//! Threads' names. One kernel thread runs all threads of a process, so the runtime knows them; the kernel is told, for those who look at its threads (`/proc`, `top -H`).

use super::kernel;
use super::thread::Thread;
use crate::fatal::line;
use crate::sys::{self, args};
use core::ffi::CStr;
use skein_libos::errno::{Errno, Result};

/// With the zero at its end.
pub type Name = [u8; 16];

/// The name of the running kernel thread.
pub fn of_kernels() -> Name {
    let mut name = Name::default();
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe {
        let get = libc::PR_GET_NAME as usize;
        sys::raw(libc::SYS_prctl, args([get, name.as_mut_ptr() as usize]));
    }
    name
}

/// Gives the running kernel thread a name.
pub fn give(name: &Name) {
    // SAFETY: a string that ends in zero, of which the kernel reads at most 16 bytes.
    unsafe {
        sys::raw(libc::SYS_prctl, args([libc::PR_SET_NAME as usize, name.as_ptr() as usize]));
    }
}

/// `PR_SET_NAME`, with the server's own string.
pub fn set(text: usize) -> Result<usize> {
    let (t, before) = (kernel().this(), of_kernels());
    // SAFETY: the kernel checks the address.
    unsafe { sys::call(libc::SYS_prctl, args([libc::PR_SET_NAME as usize, text]))? };
    let is_other = t.name.replace(of_kernels()) != t.name.get();
    if !runs(t) {
        give(&before);
        if is_other {
            write(t);
        }
    }
    Ok(0)
}

/// `PR_GET_NAME`. A name may have been written to `/proc`, too.
pub fn get(out: usize) -> Option<Result<usize>> {
    let t = kernel().this();
    if runs(t) {
        return None;
    }
    let before = of_kernels();
    give(&t.name.get());
    // SAFETY: the kernel checks the address.
    let told = unsafe { sys::call(libc::SYS_prctl, args([libc::PR_GET_NAME as usize, out])) };
    give(&before);
    Some(told)
}

/// Gives a thread a name.
pub fn name(t: &Thread, text: &CStr) -> Result<()> {
    let (text, mut name) = (text.to_bytes(), Name::default());
    if text.len() >= name.len() {
        return Err(Errno(libc::ERANGE));
    }
    name[..text.len()].copy_from_slice(text);
    t.name.set(name);
    if runs(t) {
        give(&name)
    } else {
        write(t)
    }
    Ok(())
}

/// Whether the running kernel thread is the thread's own.
fn runs(t: &Thread) -> bool {
    t.tid.get() == sys::gettid()
}

/// Gives the thread's own kernel thread its name. Where there is no `/proc`, as after a `chroot`, or no descriptor is left, it keeps the one before.
fn write(t: &Thread) {
    let path = line!("/proc/self/task/{}/comm\0", t.tid.get());
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let open = [libc::AT_FDCWD as usize, path.bytes().as_ptr() as usize, flags as usize];
    let name = t.name.get();
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    // SAFETY: a string that ends in zero; a local.
    unsafe {
        if let Ok(fd) = sys::call(libc::SYS_openat, args(open)) {
            // An empty name is one, too.
            let text: &[u8] = if len == 0 { &[0] } else { &name[..len] };
            sys::raw(libc::SYS_write, args([fd, text.as_ptr() as usize, text.len()]));
            let _ = sys::close(fd as i32);
        }
    }
}
