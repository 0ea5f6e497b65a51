//! Named semaphores: libc's own files in /dev/shm, which every process that opens one maps. A semaphore in such a mapping is the same object for
//! all processes ([`crate::process::shared`]), so waiting and posting are as for any other.

use crate::original::real;
use crate::process::shared::{self, What};
use crate::stack;
use crate::sys;
use crate::turn;
use core::ffi::CStr;
use libc::{c_char, c_int, c_uint};
use skein_libos::sync::semaphore::Semaphore;
use skein_sched::op::{Kind, Object};

/// The directory of libc's files.
const PLACE: &[u8] = b"/dev/shm/sem.";
const PAGE_BYTES: usize = 4096;

/// `sem_open`: libc's, with its mapping noted.
///
/// # Safety
/// As for libc's.
pub unsafe fn open(
    name: *const c_char,
    flags: c_int,
    mode: c_uint,
    value: c_uint,
) -> *mut Semaphore {
    let _turn = turn::enter(Object::Ipc, Kind::Open);
    let real = real!(sem_open: fn(*const c_char, c_int, c_uint, c_uint) -> *mut Semaphore);
    // SAFETY: the caller's contract.
    let found = stack::in_library(|| unsafe { real(name, flags, mode, value) });
    if found.is_null() || shared::any() && shared::find(found as usize).is_some() {
        return found;
    }
    // SAFETY: libc has read the name.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let name = &name[name.iter().take_while(|byte| **byte == b'/').count()..];
    let mut path = [0; 512];
    path[..PLACE.len()].copy_from_slice(PLACE);
    if let Some(rest) = path.get_mut(PLACE.len()..PLACE.len() + name.len()) {
        rest.copy_from_slice(name);
    }
    // SAFETY: a string that ends in zero, as no file's name is longer.
    match unsafe { crate::files::stat::real_at(libc::AT_FDCWD, path.as_ptr().cast(), 0) } {
        Ok(st) => {
            let start = found as usize / PAGE_BYTES * PAGE_BYTES;
            shared::note(start, PAGE_BYTES, What::Named(st.st_dev, st.st_ino), 0);
        }
        Err(_) => crate::fatal::refuse!("the file of a named semaphore is not where libc puts it"),
    }
    found
}

/// `sem_close`: libc's, which takes the mapping away when the process has closed it as often as it has opened it.
///
/// # Safety
/// As for libc's.
pub unsafe fn close(semaphore: *mut Semaphore) -> c_int {
    let _turn = turn::enter(Object::Ipc, Kind::Close);
    // SAFETY: the caller's contract.
    let result =
        stack::in_library(|| unsafe { real!(sem_close: fn(*mut Semaphore) -> c_int)(semaphore) });
    let start = semaphore as usize / PAGE_BYTES * PAGE_BYTES;
    let mut resident = 0u8;
    let ask = sys::args([start, PAGE_BYTES, &raw mut resident as usize]);
    // SAFETY: writes a local.
    if result == 0 && unsafe { sys::call(libc::SYS_mincore, ask) }.is_err() {
        shared::unmapped(start, PAGE_BYTES);
    }
    result
}
