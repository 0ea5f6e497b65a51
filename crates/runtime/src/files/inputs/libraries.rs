//! Libraries that the loader has read by itself: its calls are not caught, so its list is checked.
//!
//! The node compares the libraries of the server's own start beforehand. Others (modules, plug-ins, those of programs that the server executes) are files of
//! the host like any other, found a moment after they were loaded: at the next admission, before any consequence is agreed on.

use super::open::take_contents;
use super::place::Place;
use super::{is_off, tell};
use crate::files::bytes;
use crate::files::inode::MADE;
use crate::files::stat::{self, Class};
use crate::kernel::Kernel;
use crate::local::LOCAL;
use crate::sys;
use libc::{c_char, c_int, c_void};

/// After this many entries of the log the list is checked less often.
const OFTEN: u64 = 256;
const EVERY: u64 = 64;
/// More objects than a process loads.
const MOST: usize = 4096;

/// The loader's list, as debuggers read it.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Object,
    hook: usize,
    /// 0: the list is whole.
    state: c_int,
    base: usize,
}

/// The begin of the loader's record of an object.
#[repr(C)]
pub struct Object {
    base: usize,
    /// Where it was loaded from.
    pub path: *const c_char,
    dynamic: *const c_void,
    next: *const Object,
}

unsafe extern "C" {
    static _r_debug: Debug;
}

/// The objects that the loader has completely loaded, in its order.
fn objects() -> impl Iterator<Item = &'static Object> {
    // SAFETY: the loader's own variable, or the program's copy of it.
    let whole = unsafe { (&raw const _r_debug.state).read_volatile() == 0 };
    listed().take(if whole { MOST } else { 0 })
}

/// The objects loaded at the start of a program. If the program has a copy of the loader's variable, that may never be known to be complete.
pub fn listed() -> impl Iterator<Item = &'static Object> {
    // SAFETY: as above; only read by one thread at a time.
    let mut next = unsafe { (&raw const _r_debug.first).read_volatile() };
    core::iter::from_fn(move || {
        // SAFETY: an object of the list, which stays while nobody unloads it.
        let object = unsafe { next.as_ref() }?;
        next = object.next;
        Some(object)
    })
    .take(MOST)
}

/// The server begins with these.
pub fn begin() {
    LOCAL.own_objects.set(objects().count());
}

/// The entry after `index` is about to be awaited: has anything been loaded?
pub fn look(k: &Kernel, index: u64) {
    if (index > OFTEN && !index.is_multiple_of(EVERY)) || is_off(k) {
        return;
    }
    let list = objects().fold((0, 0usize), |(n, sum), object| {
        (n + 1, sum.rotate_left(5) ^ core::ptr::from_ref(object) as usize)
    });
    if list.0 == 0 || LOCAL.last_objects.replace(list) == list {
        return;
    }
    for object in objects().skip(LOCAL.own_objects.get()) {
        // SAFETY: the loader's string.
        let path = unsafe { bytes(object.path) };
        if path.starts_with(b"/") && path != k.library.path() {
            found(k, object.path);
        }
    }
}

fn found(k: &Kernel, path: *const c_char) {
    let place = Place { at: libc::AT_FDCWD, path, follows: true };
    let Ok(fd) = place.open() else { return };
    if let Ok(st) = stat::real_of(fd)
        && stat::class(k, &st) == Class::Own
    {
        let seen = k.files().inodes.see_stat(&st);
        let known = k.files().inodes.known(seen);
        if !known.is(MADE) && known.contents.get() == 0 {
            tell(k, place, seen);
            take_contents(k, fd, seen, place);
        }
    }
    let _ = sys::close(fd);
}
