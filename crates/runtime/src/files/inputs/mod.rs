//! Files of the host are inputs: contents, listings and facts that the server reads from them are agreed on through the log.
//!
//! State is rebuilt by executing the log, so the host's files must be those that the log was made with, on all replicas, for ever. A first observation
//! of a file is a *fact* ([`skein_model::fact`]). The server continues with it; at the next admission it waits until the
//! log has the facts, and every replica compares its own with them. The server's output in between stays with its node
//! ([`skein_model::OutFrame::Asked`]). So many facts cost one agreement, and no consequence of a host's file leaves, or survives, before
//! that file is agreed on. Later uses cost nothing but a look at whether the host's file has changed since.
//!
//! A file that the server has made is not one of the host's ([`MADE`]). A file that the server has opened to write to is a copy of its own from then on
//! ([`OWNED`]): changes of the original by the host are not seen any more.
//!
//! Invariants: questions and their times are functions of the log and of the facts. A discovery of this replica alone (a file that changed
//! while the server ran) never becomes a question, because the others do not have it: the server ends ([`differs`]).

mod copies;
mod entries;
mod facts;
pub mod libraries;
mod names;
mod open;
mod place;

pub use facts::renew_last;

pub use copies::{before_move, opened_copy, original};
pub use entries::listed;
pub use open::{after_read, before_truncation, opened};

use crate::fatal::{self, line};
use crate::files::change;
use crate::files::inode::{MADE, OWNED, Seen, THERE};
use crate::files::stat::{self, Class};
use crate::glibc;
use crate::kernel::{Kernel, kernel};
use crate::local::header;
use crate::sys;
use crate::turn::admit;
use crate::turn::output;
use core::sync::atomic::Ordering;
use facts::Facts;
use libc::{c_char, c_int};
use names::{Names, Told};
use place::{Place, is_kernels, kind_of, stamp_of};
use skein_libos::errno::{Errno, Result};
use skein_libos::room::Room;
use skein_model::OutFrame;
use skein_model::fact::{Fact, What};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// In place of a hash: the contents are the server's own.
const OWN: u64 = 1;

/// The known facts of the host's files. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Inputs {
    names: Names,
    facts: Facts,
}

impl Inputs {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        self.names.lay_out(room);
        self.facts.lay_out(room);
    }

    /// Whether facts must be agreed on before the server goes beyond the next admission.
    pub fn are_asked(&self) -> bool {
        self.facts.are_asked()
    }

    /// Sends the question to the node.
    pub fn show(&self, k: &Kernel) {
        self.facts.show(k);
    }

    /// The log has these facts for question `ask`.
    pub fn answer(&self, ask: u64, theirs: &[u8]) {
        if !is_off(kernel()) {
            self.facts.answer(ask, theirs);
        }
    }
}

/// Nothing is agreed on: for runs that compare something else.
fn is_off(k: &Kernel) -> bool {
    k.unsafe_admission.get() || header().asks_nothing.load(Ordering::Relaxed) != 0
}

/// Bytes were sent: no more than the node keeps until all is agreed on.
pub fn sent(k: &Kernel, bytes: usize) {
    if k.files().inputs.facts.sent(bytes) {
        k.sched.press();
    }
}

/// Waits until all is agreed on.
pub fn settle(k: &Kernel) {
    while k.files().inputs.are_asked() {
        admit::wait(k, admit::Wait::Slot);
    }
}

/// The whole path of what `path` names, from the server's first root on.
///
/// # Safety
/// `path` is a string.
pub unsafe fn whole_path(k: &Kernel, path: *const c_char) -> &'static [u8] {
    // SAFETY: the caller's contract.
    unsafe { facts::absolute(k, libc::AT_FDCWD, path) }
}

/// Ends the server: a file of the host has changed.
fn end(text: &[u8]) -> ! {
    let mut whole = line!("the host's file ");
    whole.append(text);
    whole.append(b"; put it back as it was, or start with a new data directory");
    output::emit(OutFrame::Differs { text: whole.bytes() });
    output::wake_node();
    fatal::stderr(whole.bytes());
    sys::exit_group(125)
}

/// The same, with a file and words.
fn differs(path: &[u8], how: &[u8]) -> ! {
    let mut text = fatal::Line::new();
    text.append(&path[..path.len().min(200)]);
    text.append(b": ");
    text.append(how);
    end(text.bytes())
}

fn add(k: &Kernel, fact: &Fact<'_>) {
    k.files().inputs.facts.add(fact);
    if !k.files().inputs.facts.have_room() {
        settle(k);
    }
}

/// The metadata of a file, as the server sees it. `link` reads the target of a symbolic link.
fn about<'a>(
    k: &Kernel,
    st: &libc::stat,
    seen: Seen,
    path: &'a [u8],
    link: impl FnOnce(&'static mut [u8]) -> &'static [u8],
) -> Fact<'a> {
    let mut shown = *st;
    stat::replace(k, &mut shown, Some(seen));
    let kind = kind_of(st);
    let directory = kind == libc::DT_DIR;
    let modified = if directory { (0, 0) } else { (shown.st_mtime, shown.st_mtime_nsec as u32) };
    Fact {
        kind,
        mode: shown.st_mode & 0o7777,
        user: shown.st_uid,
        group: shown.st_gid,
        size: if kind == libc::DT_REG { shown.st_size as u64 } else { 0 },
        modified,
        more: if kind == libc::DT_LNK { link(facts::more_scratch()) } else { b"" },
        ..Fact::new(What::About, path)
    }
}

fn hash_of(fact: &Fact<'_>) -> u64 {
    let words = [
        u64::from(fact.mode) << 32 | u64::from(fact.kind),
        u64::from(fact.user) << 32 | u64::from(fact.group),
        fact.size,
        fact.modified.0 as u64,
        u64::from(fact.modified.1),
    ];
    xxh3_64_with_seed(fact.more, xxh3_64(words.map(u64::to_le_bytes).as_flattened())) | 1
}

/// Reads a symbolic link of the kernel's.
fn link_of(place: Place) -> impl FnOnce(&'static mut [u8]) -> &'static [u8] {
    move |room| {
        let args = [place.at as usize, place.path as usize, room.as_mut_ptr() as usize, room.len()];
        // SAFETY: a path that the kernel has read, and live memory.
        let len = unsafe { sys::call(libc::SYS_readlinkat, sys::args(args)) };
        &room[..len.unwrap_or(0)]
    }
}

/// The metadata of a file that was found at `place`.
fn about_place(k: &Kernel, st: &libc::stat, seen: Seen, place: Place) -> Fact<'static> {
    about(k, st, seen, place.whole(), link_of(place))
}

/// A file of the host was looked at before: it is unchanged, or the server ends. `fd` is a descriptor of it, or it is at `place`.
#[cold]
fn look_again(k: &Kernel, st: &libc::stat, seen: Seen, fd: Option<i32>, place: Option<Place>) {
    let known = k.files().inodes.known(seen);
    let path = || match (place, fd) {
        (Some(place), _) => place.whole(),
        (None, Some(fd)) => facts::name_of(k, fd).0,
        _ => b"",
    };
    if known.about.get() != 0 {
        let link = |room| match place {
            Some(place) => link_of(place)(room),
            None => b"".as_slice(),
        };
        if hash_of(&about(k, st, seen, b"", link)) != known.about.get() {
            differs(path(), b"its metadata have changed since the server first used it");
        }
    }
    if known.contents.get() > OWN {
        let opened = match (fd, place) {
            (Some(fd), _) => Ok((fd, false)),
            (None, Some(place)) => place.open().map(|fd| (fd, true)),
            (None, None) => return,
        };
        let Ok((fd, own)) = opened else {
            differs(path(), b"it cannot be read any more");
        };
        let now = facts::contents(fd);
        if own {
            let _ = sys::close(fd);
        }
        if now.map(|(_, hash)| short(&hash)) != Ok(known.contents.get()) {
            differs(path(), b"its contents have changed since the server first used it");
        }
    }
    known.stamp.set(stamp_of(st));
}

/// A restored server is about to map a file again: it is as it was, or the server ends.
///
/// # Safety
/// `path` is a string.
pub unsafe fn before_mapping(k: &Kernel, path: *const c_char) {
    // SAFETY: the caller's contract.
    let Ok(st) = (unsafe { stat::real_at(libc::AT_FDCWD, path, 0) }) else { return };
    let Some(seen) = k.files().inodes.seen(&st) else { return };
    let known = k.files().inodes.known(seen);
    let is_hosts = !known.is(MADE) && !known.is(OWNED) && known.contents.get() > OWN;
    if is_hosts && known.stamp.get() != stamp_of(&st) && !is_off(k) {
        let place = Place { at: libc::AT_FDCWD, path, follows: true };
        look_again(k, &st, seen, None, Some(place));
    }
}

/// The kept part of a hash.
fn short(hash: &[u8; 16]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&hash[8..]);
    u64::from_le_bytes(word) | 2
}

/// The path leads to this file: as before, or for the first time.
fn tell(k: &Kernel, place: Place, seen: Seen) {
    if is_kernels(place.text()) {
        // A descriptor's name, say: it may lead elsewhere each time.
        return;
    }
    let Some(key) = place.key(k) else { return };
    let names = &k.files().inputs.names;
    let is = Told::file(seen.number);
    match names.told(key) {
        Some(told) if told == is => return,
        None | Some(Told::Error) => {}
        Some(_) if names.is_touched(place.text()) => {}
        Some(Told::Absent) => {
            differs(place.whole(), b"it was not there when the server first looked for it")
        }
        Some(Told::Is(_)) => {
            differs(place.whole(), b"it is another file than when the server first used it")
        }
    }
    names.tell(key, is);
}

/// A file was found at `place`; `fd` is a descriptor of it. Answers it, if it is the host's.
fn found(k: &Kernel, place: Place, st: &libc::stat, fd: Option<i32>) -> Option<Seen> {
    if stat::class(k, st) != Class::Own {
        return None;
    }
    let seen = k.files().inodes.see_stat(st);
    let known = k.files().inodes.known(seen);
    if known.is(MADE) {
        return None;
    }
    tell(k, place, seen);
    let stamp = stamp_of(st);
    if known.stamp.get() == 0 {
        known.stamp.set(stamp);
    } else if !known.is(OWNED) && known.stamp.get() != stamp {
        look_again(k, st, seen, fd, Some(place));
    }
    Some(seen)
}

/// The kernel has answered a question about a path, of the server or of the runtime for it. Answers the file, if it is the host's.
///
/// # Safety
/// `path` is a string, or something that the kernel refuses.
pub unsafe fn looked(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    flags: c_int,
    answer: &Result<libc::stat>,
    what: What,
) -> Option<Seen> {
    if is_off(k) {
        return None;
    }
    let place = Place { at, path, follows: flags & libc::AT_SYMLINK_NOFOLLOW == 0 };
    let st = match answer {
        Ok(st) => st,
        Err(e) => {
            missing(k, place, *e);
            return None;
        }
    };
    let seen = found(k, place, st, None)?;
    let known = k.files().inodes.known(seen);
    if known.about.get() != 0 {
        if kind_of(st) == libc::DT_DIR
            && !known.is(OWNED)
            && hash_of(&about(k, st, seen, b"", |_| b"")) != known.about.get()
        {
            look_again(k, st, seen, None, Some(place));
        }
    } else if what == What::About {
        let fact = about_place(k, st, seen, place);
        known.about.set(hash_of(&fact));
        known.set(THERE);
        add(k, &fact);
    } else if !known.is(THERE) {
        known.set(THERE);
        add(
            k,
            &Fact {
                kind: kind_of(st),
                mode: st.st_mode & 0o7777,
                user: st.st_uid,
                group: st.st_gid,
                ..Fact::new(What::There, place.whole())
            },
        );
    }
    Some(seen)
}

/// The server tests for a file by a call whose answer says nothing else: whether it exists is asked here.
///
/// # Safety
/// As for [`looked`].
pub unsafe fn glance(k: &Kernel, at: c_int, path: *const c_char, flags: c_int) {
    if is_off(k) || path.is_null() {
        return;
    }
    let flags = flags & libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the caller's contract.
    unsafe {
        let answer = stat::real_at(at, path, flags);
        looked(k, at, path, flags, &answer, What::There);
    }
}

/// The server has read a symbolic link, or has found that there is none.
///
/// # Safety
/// As for [`looked`].
pub unsafe fn link_read(k: &Kernel, at: c_int, path: *const c_char) {
    // SAFETY: the caller's contract.
    if is_off(k) || path.is_null() || unsafe { *path } == 0 {
        return;
    }
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the caller's contract.
    unsafe {
        let answer = stat::real_at(at, path, flags);
        let link = matches!(&answer, Ok(st) if kind_of(st) == libc::DT_LNK);
        let what = if link { What::About } else { What::There };
        looked(k, at, path, flags, &answer, what);
    }
}

/// The same, before the server changes a file's metadata: these must be known to be equal on all replicas.
///
/// # Safety
/// As for [`looked`].
pub unsafe fn before_change(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    flags: c_int,
) -> Option<Seen> {
    if is_off(k) {
        return None;
    }
    let before = k.files().inodes.renewals();
    // SAFETY: the caller's contract.
    if path.is_null() || unsafe { *path } == 0 {
        let mut st = stat::real_of(at).ok().filter(|st| stat::class(k, st) == Class::Own)?;
        stated(k, at, &st);
        if k.files().inodes.renewals() != before {
            st = stat::real_of(at).ok()?;
        }
        return Some(k.files().inodes.see_stat(&st));
    }
    let flags = flags & libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the caller's contract.
    let answer = unsafe { stat::real_at(at, path, flags) };
    // SAFETY: as above.
    unsafe { looked(k, at, path, flags, &answer, What::About) };
    let mut st = answer.ok().filter(|st| stat::class(k, st) == Class::Own)?;
    if k.files().inodes.renewals() != before {
        // SAFETY: the caller's contract.
        st = unsafe { stat::real_at(at, path, flags) }.ok()?;
    }
    Some(k.files().inodes.see_stat(&st))
}

/// The server has changed the metadata of the file that [`before_change`] answered.
///
/// # Safety
/// As for [`before_change`].
pub unsafe fn after_change(
    k: &Kernel,
    seen: Option<Seen>,
    at: c_int,
    path: *const c_char,
    flags: c_int,
) {
    if let Some(seen) = seen {
        // SAFETY: the caller's contract.
        unsafe {
            if path.is_null() || *path == 0 {
                copies::own(k, seen, at, core::ptr::null(), 0);
            } else {
                copies::own(k, seen, at, path, flags & libc::AT_SYMLINK_NOFOLLOW);
            }
        }
    }
}

/// A path led nowhere.
///
/// # Safety
/// As for [`looked`].
pub unsafe fn not_opened(k: &Kernel, at: c_int, path: *const c_char, flags: c_int, e: Errno) {
    if is_off(k) || path.is_null() {
        return;
    }
    let follows = flags & libc::O_NOFOLLOW == 0;
    if matches!(e, Errno(libc::ENOTDIR | libc::ELOOP)) {
        // The file may be no directory, or a link, while the call wanted something else.
        // SAFETY: the caller's contract.
        return unsafe { glance(k, at, path, if follows { 0 } else { libc::AT_SYMLINK_NOFOLLOW }) };
    }
    missing(k, Place { at, path, follows }, e);
}

fn missing(k: &Kernel, place: Place, Errno(errno): Errno) {
    let gone = matches!(errno, libc::ENOENT | libc::ENOTDIR);
    if !gone && !matches!(errno, libc::EACCES | libc::ELOOP) {
        return;
    }
    let text = place.text();
    if text.is_empty() || is_kernels(text) {
        return;
    }
    let names = &k.files().inputs.names;
    let Some(key) = place.key(k) else { return };
    match names.told(key) {
        Some(Told::Absent | Told::Error) => return,
        Some(Told::Is(_)) if !gone => return,
        Some(Told::Is(_)) if names.is_touched(text) => {}
        Some(Told::Is(_)) => {
            differs(place.whole(), b"it is gone, and was there when the server first used it")
        }
        None => {}
    }
    // SAFETY: the kernel has read the path.
    if unsafe { change::parent(place.at, place.path) }.is_some_and(|st| is_made(k, &st)) {
        return;
    }
    names.tell(key, if gone { Told::Absent } else { Told::Error });
    add(k, &Fact { errno: errno as u32, ..Fact::new(What::Absent, place.whole()) });
}

/// Whether the server has made a file.
fn is_made(k: &Kernel, st: &libc::stat) -> bool {
    stat::class(k, st) != Class::Own
        || k.files().inodes.known(k.files().inodes.see_stat(st)).is(MADE)
}

/// The server has made, removed or replaced the entry `path` of a directory.
pub fn touched(k: &Kernel, directory: &libc::stat, path: &[u8]) {
    if !is_off(k) && !is_made(k, directory) {
        k.files().inputs.names.touch(path);
    }
}

/// The server reads facts of a descriptor of the kernel's.
pub fn stated(k: &Kernel, fd: i32, st: &libc::stat) {
    if is_off(k) || stat::class(k, st) != Class::Own {
        return;
    }
    let seen = k.files().inodes.see_stat(st);
    let known = k.files().inodes.known(seen);
    if known.is(MADE) {
        return;
    }
    let stamp = stamp_of(st);
    if known.about.get() != 0 {
        if !known.is(OWNED) && known.stamp.get() != stamp {
            look_again(k, st, seen, Some(fd), None);
        }
        return;
    }
    if glibc::is_in_text(k.this().trapped_at.get()) {
        // It only chooses the size of its buffers by it.
        return;
    }
    let (path, named) = facts::name_of(k, fd);
    if st.st_nlink == 0
        || !named.starts_with(b"/")
        || named.starts_with(b"/memfd:")
        || named.ends_with(b" (deleted)")
    {
        known.set(MADE);
        return;
    }
    if is_kernels(named) {
        return;
    }
    let fact = about(k, st, seen, path, |_| b"");
    known.about.set(hash_of(&fact));
    if known.stamp.get() == 0 {
        known.stamp.set(stamp);
    }
    add(k, &fact);
}
