//! The files of UNIX sockets: inodes in the server's file system, behind which nothing of the kernel listens.

use crate::files::{change, inputs};
use crate::kernel::Kernel;
use crate::sys;
use core::ffi::CStr;
use skein_libos::errno::{Result, fail};
use skein_libos::net::unix::name::Inode;

/// Makes a socket's file, as the kernel's `bind` does: without the umask's bits.
pub fn make(k: &Kernel, path: &CStr, mode: u32) -> Result<Inode> {
    // SAFETY: a path that ends in a NUL.
    unsafe { change::mknodat(k, libc::AT_FDCWD, path.as_ptr(), libc::S_IFSOCK | mode, 0) }?;
    look(k, path).map(|st| inode_of(&st))
}

/// Takes back what [`make`] made.
pub fn remove(k: &Kernel, path: &CStr) {
    let args = sys::args([path.as_ptr() as usize]);
    let at = [(libc::AT_FDCWD, path.as_ptr())];
    // SAFETY: a path that ends in a NUL.
    let _ = unsafe { change::entries(k, sys::Call { nr: libc::SYS_unlink, args }, &at) };
}

/// The inode that a path leads to; it must be a socket that the server may write to.
pub fn find(k: &Kernel, path: &CStr) -> Result<Inode> {
    let st = look(k, path)?;
    let args = sys::args([
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        libc::W_OK as usize,
        libc::AT_EACCESS as usize,
    ]);
    // SAFETY: a path that ends in a NUL.
    unsafe { sys::call(libc::SYS_faccessat2, args) }?;
    if st.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        return fail(libc::ECONNREFUSED);
    }
    Ok(inode_of(&st))
}

fn look(k: &Kernel, path: &CStr) -> Result<libc::stat> {
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    let args = sys::args([path.as_ptr() as usize, &raw mut st as usize]);
    // SAFETY: a path that ends in a NUL, a local.
    unsafe {
        inputs::glance(k, libc::AT_FDCWD, path.as_ptr(), 0);
        sys::call(libc::SYS_stat, args)?;
    }
    Ok(st)
}

const fn inode_of(st: &libc::stat) -> Inode {
    Inode { device: st.st_dev, number: st.st_ino }
}
