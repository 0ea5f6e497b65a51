//! The files of a restored server: the kernel numbers them anew, and what the arena knows by the old numbers gets the new ones.
//!
//! The image names a path for each file that the arena may know ([`skein_arena::restore::Known`]). The first process asks the kernel about all of them and stores the answers in its copy of
//! that table, which its children inherit. A file without a path was removed: nothing has its number. The words that tell this replica's surroundings stay those of the
//! new start.

use super::{HEAD_AT, TABLES_AT, Tables};
use crate::files::inode::Id;
use crate::files::{inputs, stat};
use crate::kernel::Kernel;
use crate::process::shared;
use skein_arena::restore::{Head, Known, Mapping, kind};
use skein_libos::file::fifo;
use skein_libos::net::unix;

/// The table.
///
/// # Safety
/// It is mapped, and nothing else refers to it.
unsafe fn table() -> &'static mut [Known] {
    // SAFETY: the node has written it so, in front of the other tables.
    unsafe {
        let head = &*(HEAD_AT as *const Head);
        core::slice::from_raw_parts_mut(TABLES_AT as *mut Known, head.files as usize)
    }
}

/// What the kernel calls the file now that it called so.
fn now(table: &[Known], was: Id) -> Option<Id> {
    let at = table.binary_search_by_key(&[was.dev, was.ino], |known| known.was).ok()?;
    let [dev, ino] = table.get(at)?.is;
    (ino != 0).then_some(Id { dev, ino })
}

/// Asks the kernel how it calls the files now.
///
/// # Safety
/// The tables are mapped, and nothing else refers to this one.
pub(super) unsafe fn ask(t: &Tables) -> &'static [Known] {
    // SAFETY: the caller's contract; the names end with zeros.
    let table = unsafe { table() };
    for known in table.iter_mut() {
        let path = t.name(known.path) as *const libc::c_char;
        // SAFETY: as above.
        let st = unsafe { stat::real_at(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW) };
        known.is = st.map_or([0; 2], |st| [st.st_dev, st.st_ino]);
    }
    table
}

/// Gives all that the arena knows its new numbers, when what has no path is made again.
///
/// # Safety
/// The tables are mapped; the arena is the image's and no other process uses it.
pub(super) unsafe fn renew(k: &Kernel, t: &Tables) {
    // SAFETY: the caller's contract.
    let table = unsafe { ask(t) };
    let now = |was| now(table, was).or_else(|| t.object_now(was));
    k.files().inodes.renew(now);
    shared::renew(k, now);
    unix::name::renew(k, |file| {
        let is = now(Id { dev: file.device, ino: file.number })?;
        Some(unix::name::Inode { device: is.dev, number: is.ino })
    });
    fifo::renew(k, |file| now(Id { dev: file.device, ino: file.inode }).map(Id::name));
}

/// Ends the server if a file of the host that it has mapped is another one now.
///
/// # Safety
/// As for [`renew`], which was called.
pub unsafe fn check(k: &Kernel, mappings: &[Mapping], names: usize) {
    for m in mappings.iter().filter(|m| matches!(m.kind, kind::FILE | kind::SHARED_FILE)) {
        // SAFETY: the names end with zeros.
        unsafe { inputs::before_mapping(k, (names + m.of as usize) as *const libc::c_char) };
    }
}

/// Renews what the running process itself knows.
///
/// # Safety
/// The tables are mapped.
pub unsafe fn renew_own() {
    // SAFETY: the caller's contract.
    let table = unsafe { table() };
    inputs::renew_last(|was| now(table, was));
}
