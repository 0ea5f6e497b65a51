//! Regular files and directories: the server sees the same of them on all replicas.
//!
//! Contents pass through to the replica's own file system, which starts equal and is changed by the server alone. The kernel's facts *about*
//! files differ: inode and device numbers, times of changes, the order of directories, allocation, free space. So everything that shows such
//! a value comes through here, by symbol or by the net, and is answered by
//!
//! - [`inode`]: numbers in order of first sight, and times of changes in virtual time;
//! - [`stat`]: the stat family and statfs;
//! - [`open`]: opening and creating, where devices, FIFOs and the kernel's own files are told apart;
//! - [`close`]: closing, by whichever call; [`kernels`]: what the library does to the kernel's descriptors;
//! - [`change`]: calls that change a file or a directory, and record the time;
//! - [`stuck`]: changes that an ordinary user's host would refuse;
//! - [`list`]: directories, sorted;
//! - [`socket_file`]: files of UNIX sockets;
//! - [`lock`]: file locks, which block in the runtime and never in the kernel;
//! - [`root`]: a process's root directory;
//! - [`kernel_files`]: the content of /proc and /sys;
//! - [`writes`]: which pages of files were written;
//! - [`disk`]: what file systems below the layer differ in, and a disk that fails;
//! - [`inputs`]: facts of the host's files, agreed on through the log.
//!
//! Invariant: all decisions in here are functions of the server's calls and of the contents of files. The kernel's inode numbers are used as
//! keys only; they are stable while a file exists (overlays are mounted with `xino=on`), except for copies of the host's files,
//! which bear marks.

pub mod change;
pub mod close;
pub mod console;
pub mod disk;
pub mod fake;
pub mod inode;
pub mod inputs;
pub mod kernel_files;
pub mod kernels;
pub mod list;
mod loaders;
mod local;
pub mod lock;
pub mod open;
pub mod root;
pub mod socket_file;
pub mod stat;
pub mod stuck;
pub mod writes;

pub use loaders::from_loader;
use local::{closed, closed_range};

use crate::kernel::{Kernel, kernel};
use crate::local::header;
use crate::sys;
use core::cell::Cell;
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use skein_arena::layout::ARENA_FD;
use skein_libos::room::Room;

/// The state about files. All-zero bytes, then `lay_out`, then [`begin`].
#[repr(C)]
pub struct Files {
    /// Numbers and times.
    pub inodes: inode::Inodes,
    /// Which pages of them were written.
    pub writes: writes::Writes,
    /// Facts of the host's files.
    pub inputs: inputs::Inputs,
    /// The device of /proc.
    pub(crate) proc_dev: Cell<u64>,
    /// The files of descriptors 1 and 2 at the start: the server's own output, which no replica shares with another.
    pub(crate) console: [Cell<inode::Id>; 2],
    /// Status flags of these that the server has set.
    pub(crate) console_flags: [Cell<libc::c_int>; 2],
    /// The arena's file, which the server may not open by any name.
    pub(crate) arena: Cell<inode::Id>,
    begun: Cell<u32>,
    /// Whether the server's changes of host files are copies of its own, and reading leaves no trace there.
    pub(crate) layered: Cell<bool>,
    /// Whether those are on a disk.
    on_disk: Cell<bool>,
    _pad: Cell<[u8; 2]>,
}

impl Kernel {
    /// The state about files.
    #[inline]
    pub fn files(&self) -> &Files {
        // SAFETY: `lay_out` has put it there, when the kernel was made; the arena is never unmapped.
        unsafe { &*(self.files_at.get() as *const Files) }
    }
}

/// Makes what is known about files.
pub fn lay_out(k: &Kernel, room: &mut Room) {
    let at = room.row::<Files>(core::any::type_name::<Files>(), 1);
    k.files_at.set(at as usize);
    k.files().lay_out(room);
    // The kernel is the first thing in the heap.
    let heap = core::ptr::from_ref(k) as usize;
    let inodes_at = k.files().inodes.address() - heap;
    header().inodes_at.store(inodes_at as u64, Ordering::Relaxed);
    let writes_at = k.files().writes.address() - heap;
    header().writes_at.store(writes_at as u64, Ordering::Relaxed);
}

impl Files {
    /// Whether this is the file of descriptor 1 at the start.
    pub(crate) fn is_output(&self, st: &libc::stat) -> bool {
        self.console[0].get() == inode::Id::of(st)
    }

    /// Takes its memory.
    fn lay_out(&self, room: &mut Room) {
        self.inodes.lay_out(room);
        self.writes.lay_out(room);
        self.inputs.lay_out(room);
        room.own_here(&self.proc_dev);
        room.own_here(&self.console);
        room.own_here(&self.arena);
        room.own_here(&self.layered);
        room.own_here(&self.on_disk);
    }
}

/// What a server finds at its start, which is each replica's own.
#[derive(Debug)]
pub struct Surroundings {
    proc_dev: u64,
    console: [inode::Id; 2],
    arena: inode::Id,
    layered: bool,
    on_disk: bool,
    begun: inode::Time,
}

impl Files {
    /// What this server has found.
    pub fn surroundings(&self) -> Surroundings {
        Surroundings {
            proc_dev: self.proc_dev.get(),
            console: [self.console[0].get(), self.console[1].get()],
            arena: self.arena.get(),
            layered: self.layered.get(),
            on_disk: self.on_disk.get(),
            begun: self.inodes.begun.get(),
        }
    }

    /// The state is another server's, continued where this was found.
    pub fn move_to(&self, found: &Surroundings) {
        self.proc_dev.set(found.proc_dev);
        self.console[0].set(found.console[0]);
        self.console[1].set(found.console[1]);
        self.arena.set(found.arena);
        self.layered.set(found.layered);
        self.on_disk.set(found.on_disk);
        self.inodes.begun.set(found.begun);
    }
}

/// Notes when the server begins: before its first entry, as those of an image are unpacked before that.
pub fn note_time() {
    let mut now = skein_libos::abi::timespec { tv_sec: 0, tv_nsec: 0 };
    let args = [libc::CLOCK_REALTIME_COARSE as usize, &raw mut now as usize];
    // SAFETY: writes a local.
    unsafe { sys::raw(libc::SYS_clock_gettime, sys::args(args)) };
    kernel().files().inodes.begun.set(inode::Time { s: now.tv_sec, ns: now.tv_nsec });
}

/// Notes the server's initial descriptors.
pub fn begin() {
    let files = kernel().files();
    if files.begun.replace(1) != 0 {
        return;
    }
    // SAFETY: a constant path.
    if let Ok(st) = unsafe { stat::real_at(libc::AT_FDCWD, c"/proc".as_ptr(), 0) } {
        files.proc_dev.set(st.st_dev);
    }
    files.layered.set(stat::is_layer(c"/"));
    files.on_disk.set(files.layered.get() && disk::is_below());
    if let Ok(st) = stat::real_of(ARENA_FD) {
        files.arena.set(inode::Id::of(&st));
    }
    for (place, fd) in files.console.iter().zip([1, 2]) {
        if let Ok(st) = stat::real_of(fd)
            && st.st_mode & libc::S_IFMT != libc::S_IFCHR
        {
            place.set(inode::Id::of(&st));
        }
    }
}

/// The server's time of day, for files.
pub(crate) fn now(k: &Kernel) -> inode::Time {
    inode::Time::from_ns(k.now_ns.get())
}

/// A path as bytes; null is empty.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn bytes<'a>(path: *const libc::c_char) -> &'a [u8] {
    if path.is_null() {
        return b"";
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}
