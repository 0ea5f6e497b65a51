//! The facts of one question: collected in the arena, where the node reads them and all processes of the server find them.

use super::differs;
use crate::fatal::line;
use crate::files::inode::Id;
use crate::files::{root, stat};
use crate::kernel::Kernel;
use crate::kernel::process;
use crate::local::header;
use crate::sys;
use crate::turn::output;
use core::cell::{Cell, UnsafeCell};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use libc::{c_char, c_int};
use skein_libos::errno::{Errno, Result};
use skein_libos::room::Room;
use skein_model::OutFrame;
use skein_model::fact::{self, Difference, Fact, MAX_FACTS_BYTES, MAX_TEXT_BYTES};
use xxhash_rust::xxh3::Xxh3;

/// The largest fact: two texts. One more must have room before it is made.
const LARGEST: usize = MAX_FACTS_BYTES / 2;
/// The most bytes that the server may send before its findings are agreed on.
const MOST_SENT: u64 = 1 << 20;

const _: () = assert!(fact::FACT_HEADER_BYTES + 2 * MAX_TEXT_BYTES <= LARGEST);

/// The facts. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Facts {
    memory: Cell<usize>,
    used: Cell<u64>,
    /// The number of the last question,
    ask: Cell<u64>,
    /// and of the last one that was answered.
    answered: Cell<u64>,
    sent: Cell<u64>,
}

impl Facts {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        self.memory.set(room.row::<u8>("facts of files", MAX_FACTS_BYTES as u32) as usize);
    }

    /// Whether facts wait for agreement.
    pub fn are_asked(&self) -> bool {
        self.ask.get() != self.answered.get()
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the first so many bytes of its memory were written.
        unsafe {
            core::slice::from_raw_parts(self.memory.get() as *const u8, self.used.get() as usize)
        }
    }

    /// Sends the question to the node.
    pub fn show(&self, k: &Kernel) {
        let h = header();
        let heap = core::ptr::from_ref(k) as usize;
        h.facts_at.store((self.memory.get() - heap) as u64, Ordering::Relaxed);
        h.facts_bytes.store(self.used.get(), Ordering::Relaxed);
    }

    /// Whether there is room for one more.
    pub fn have_room(&self) -> bool {
        self.used.get() as usize + LARGEST <= MAX_FACTS_BYTES
    }

    /// Adds one.
    pub fn add(&self, found: &Fact<'_>) {
        if !self.are_asked() {
            self.ask.set(self.ask.get() + 1);
            self.sent.set(0);
            // Called before output that depends on it is printed.
            header().ask.store(self.ask.get(), Ordering::Release);
            output::emit(OutFrame::Asked { ask: self.ask.get() });
        }
        let used = self.used.get() as usize;
        // SAFETY: the rest of its memory, of which there is no other reference.
        let rest = unsafe {
            core::slice::from_raw_parts_mut(
                (self.memory.get() + used) as *mut u8,
                MAX_FACTS_BYTES - used,
            )
        };
        let len = found.encode(rest).expect("there is room for it");
        self.used.set((used + len) as u64);
    }

    /// Bytes were sent. Answers whether it is time to agree.
    pub fn sent(&self, bytes: usize) -> bool {
        if !self.are_asked() {
            return false;
        }
        self.sent.set(self.sent.get() + bytes as u64);
        self.sent.get() > MOST_SENT
    }

    /// The log has these facts for question `ask`.
    pub fn answer(&self, ask: u64, theirs: &[u8]) {
        if ask <= self.answered.get() {
            return;
        }
        let first = fact::facts(theirs).next();
        if ask != self.ask.get() || !self.are_asked() {
            let path = first.map_or(b"".as_slice(), |fact| fact.path);
            differs(path, b"the server used it when the log was made, and does not now");
        }
        let (mut then, mut now) = (fact::facts(theirs), fact::facts(self.all()));
        loop {
            match (then.next(), now.next()) {
                (None, None) => break,
                (Some(a), Some(b)) if a == b => {}
                (Some(then), Some(now)) => {
                    super::end(line!("{}", Difference { then, now }).bytes())
                }
                (Some(then), None) => {
                    differs(
                        then.path,
                        b"the server used it when the log was made, and does not now",
                    );
                }
                (None, Some(now)) => {
                    differs(now.path, b"the server uses it now, and did not when the log was made");
                }
            }
        }
        self.answered.set(ask);
        self.used.set(0);
    }
}

/// Bytes that only the turn's holder uses, one after the other.
#[repr(align(64))]
struct Scratch<const N: usize>(UnsafeCell<[u8; N]>);
// SAFETY: only the turn's holder gets here, and `with` lends it once at a time.
unsafe impl<const N: usize> Sync for Scratch<N> {}

static PATH: Scratch<MAX_TEXT_BYTES> = Scratch(UnsafeCell::new([0; MAX_TEXT_BYTES]));
static MORE: Scratch<MAX_TEXT_BYTES> = Scratch(UnsafeCell::new([0; MAX_TEXT_BYTES]));
static PIECE: Scratch<{ 128 << 10 }> = Scratch(UnsafeCell::new([0; 128 << 10]));

/// The buffer for a path.
pub fn path_scratch() -> &'static mut [u8] {
    // SAFETY: one path at a time is put together, and used before the next one is.
    unsafe { &mut *PATH.0.get() }
}

/// The buffer for a fact's other text.
pub fn more_scratch() -> &'static mut [u8] {
    // SAFETY: as above.
    unsafe { &mut *MORE.0.get() }
}

/// The whole path of `path` from `at`, as far as it fits.
///
/// # Safety
/// `path` is a string.
pub unsafe fn absolute(k: &Kernel, at: c_int, path: *const c_char) -> &'static [u8] {
    // SAFETY: the caller's contract.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let out = path_scratch();
    let mut used = process::this().root.write_path(k, out);
    if !path.starts_with(b"/") {
        let room = &mut out[used..][..libc::PATH_MAX as usize];
        let len = if at == libc::AT_FDCWD {
            let args = sys::args([room.as_mut_ptr() as usize, room.len()]);
            // SAFETY: a live buffer; what is answered counts the zero.
            unsafe { sys::call(libc::SYS_getcwd, args) }.map_or(0, |len| len.saturating_sub(1))
        } else {
            stat::real_name(at, room).map_or(0, <[u8]>::len)
        };
        if room[..len].starts_with(OUTSIDE) {
            out.copy_within(used + OUTSIDE.len()..used + len, 0);
            used = len - OUTSIDE.len();
        } else {
            used += len;
        }
        if !path.is_empty() && used > 0 && out[used - 1] != b'/' {
            out[used] = b'/';
            used += 1;
        }
    }
    let len = path.len().min(out.len() - used);
    out[used..used + len].copy_from_slice(&path[..len]);
    &out[..used + len]
}

/// The kernel's prefix of a working directory's path that is not below the process's root.
const OUTSIDE: &[u8] = b"(unreachable)";

/// The file that this process has opened last below another root, and its path from there: where there is no /proc its name is known only here.
struct Last {
    id: Cell<Id>,
    len: Cell<usize>,
    path: UnsafeCell<[u8; libc::PATH_MAX as usize]>,
}
// SAFETY: only the turn's holder gets here.
unsafe impl Sync for Last {}
static LAST: Last = Last {
    id: Cell::new(Id { dev: 0, ino: 0 }),
    len: Cell::new(0),
    path: UnsafeCell::new([0; libc::PATH_MAX as usize]),
};

impl Last {
    /// Writes the path of `fd`'s file to the start of `out`; answers its length.
    fn with(&self, fd: c_int, out: &mut [u8]) -> usize {
        let known = stat::real_of(fd).is_ok_and(|st| Id::of(&st) == self.id.get());
        // SAFETY: the first so many bytes were written, and nobody writes now.
        let path = unsafe { &(&*self.path.get())[..self.len.get()] };
        let path = if known { path } else { b"/?" };
        out[..path.len()].copy_from_slice(path);
        path.len()
    }
}

/// The process has opened a file.
pub fn note_name(k: &Kernel, at: c_int, path: *const c_char, st: &libc::stat) {
    if root::is_first() {
        return;
    }
    // SAFETY: the kernel has read the path.
    let whole = unsafe { absolute(k, at, path) };
    let inside = &whole[process::this().root.write_path(k, more_scratch())..];
    let len = inside.len().min(libc::PATH_MAX as usize);
    // SAFETY: as for `Last`; no slice of it is alive.
    unsafe { (&mut *LAST.path.get())[..len].copy_from_slice(&inside[..len]) };
    LAST.len.set(len);
    LAST.id.set(Id::of(st));
}

/// The kernel has numbered all files anew.
pub fn renew_last(now: impl FnOnce(Id) -> Option<Id>) {
    LAST.id.set(now(LAST.id.get()).unwrap_or(Id { dev: 0, ino: 0 }));
}

/// The path of a descriptor's file: the whole one, and as the process would name it; empty when the kernel does not know one.
pub fn name_of(k: &Kernel, fd: c_int) -> (&'static [u8], &'static [u8]) {
    let out = path_scratch();
    let used = process::this().root.write_path(k, out);
    let len = match stat::real_name(fd, &mut out[used..][..libc::PATH_MAX as usize]) {
        Ok(name) => name.len(),
        Err(_) if root::is_first() => 0,
        // There is no /proc below its root.
        Err(_) => LAST.with(fd, &mut out[used..]),
    };
    (&out[..used + len], &out[used..used + len])
}

/// Size and hash of a file's content.
pub fn contents(fd: c_int) -> Result<(u64, [u8; 16])> {
    // SAFETY: used here only, by the turn's holder.
    let piece = unsafe { &mut *PIECE.0.get() };
    let mut hash = Xxh3::new();
    let mut size = 0u64;
    loop {
        let args =
            sys::args([fd as usize, piece.as_mut_ptr() as usize, piece.len(), size as usize]);
        // SAFETY: a live buffer.
        match unsafe { sys::call(libc::SYS_pread64, args) } {
            Ok(0) => return Ok((size, hash.digest128().to_be_bytes())),
            Ok(n) => {
                hash.update(&piece[..n]);
                size += n as u64;
            }
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
}
