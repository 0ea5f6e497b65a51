//! Directories: sorted by name, with entries whose numbers and positions are the same on all replicas.
//!
//! The first look at an open directory reads all of it into a listing, which stays until the directory is rewound or closed. A position is the
//! number of an entry. Listings lie at addresses of their own, by descriptor, so that they do not move what the server maps.

use crate::fatal::refuse;
use crate::files::inode::Id;
use crate::files::local::{self, Slot};
use crate::files::{console, inputs, stat};
use crate::io::table;
use crate::kernel::Kernel;
use crate::sys;
use core::cell::Cell;
use libc::{c_char, c_int};
use skein_libos::errno::{Errno, Result};
use skein_libos::file::table::MAX_FDS;
use skein_libos::process;

/// Where listings lie.
const BASE: usize = 0x3000_0000_0000;
/// Address space of one: 64 MiB, some 1.5 million entries; pages are used as they are needed.
const ROOM_BYTES: usize = 64 << 20;
/// The least room for the kernel's next part.
const PART_BYTES: usize = 32 << 10;

/// The head of a listing; behind it the entries as the kernel gave them, then their places in order.
#[repr(C)]
struct Listing {
    /// The next entry.
    position: Cell<u64>,
    count: u32,
    /// Where the places are, from the head.
    order: u32,
}

/// An entry as the kernel gives it: `ino u64 | off i64 | reclen u16 | type u8 | name, zero`.
const RECLEN_AT: usize = 16;
const TYPE_AT: usize = 18;
const NAME_AT: usize = 19;

/// One entry of a listing.
#[derive(Clone, Copy)]
struct Entry(*const u8);

impl Entry {
    fn reclen(self) -> usize {
        // SAFETY: an entry that the kernel wrote.
        unsafe { self.0.add(RECLEN_AT).cast::<u16>().read_unaligned() as usize }
    }

    fn kind(self) -> u8 {
        // SAFETY: as above.
        unsafe { self.0.add(TYPE_AT).read() }
    }

    fn name<'a>(self) -> &'a [u8] {
        // SAFETY: as above: the name ends in zero. It lives as long as the listing.
        unsafe { super::bytes(self.0.add(NAME_AT).cast()) }
    }

    /// Its length for the server: the fields, the name and its zero, rounded up.
    fn shown_bytes(self) -> usize {
        (NAME_AT + self.name().len() + 1).next_multiple_of(8)
    }

    /// A number that is equal on all replicas. It is not the file's, because that would cost a look at the file.
    fn number(self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in self.name() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash >> 8 | 1 << 48
    }
}

fn make(k: &Kernel, fd: i32, slot: &Slot) -> Result<&'static Listing> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let at = BASE + fd as usize * ROOM_BYTES;
    let args = [at, ROOM_BYTES, protection as usize, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping where nothing is.
    let base = unsafe { sys::call(libc::SYS_mmap, args)? } as *mut u8;
    slot.listing.set(base as usize);
    let listing = fill(k, fd, base);
    if listing.is_err() {
        drop_listing(slot);
    }
    listing
}

fn fill(k: &Kernel, fd: i32, base: *mut u8) -> Result<&'static Listing> {
    let first = size_of::<Listing>();
    let mut end = first;
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_lseek, sys::args([fd as usize, 0, libc::SEEK_SET as usize]))? };
    loop {
        // Places take four bytes an entry, and an entry at least 24.
        if end + PART_BYTES + end / 4 > ROOM_BYTES {
            refuse!("a directory with more entries than {ROOM_BYTES} bytes hold was listed");
        }
        let room = ROOM_BYTES - end - end / 4;
        let args = sys::args([fd as usize, base as usize + end, room.min(1 << 20)]);
        // SAFETY: the rest of the mapping.
        match unsafe { sys::call(libc::SYS_getdents64, args)? } {
            0 => break,
            n => end += n,
        }
    }
    let order_at = end.next_multiple_of(4);
    let (filter, public) = (listing_of_proc(k, fd), is_public(k, fd));
    let mut count = 0;
    let mut at = first;
    while at < end {
        // SAFETY: an entry of the kernel's; behind the entries there is room for their places.
        unsafe {
            let entry = Entry(base.add(at));
            let name = entry.name();
            if !(is_hidden(k, filter, name) || public && is_of_others(k, fd, name)) {
                base.add(order_at).cast::<u32>().add(count).write(at as u32);
                count += 1;
            }
            at += entry.reclen();
        }
    }
    // SAFETY: the places that were just written; nothing else refers to them.
    let places =
        unsafe { core::slice::from_raw_parts_mut(base.add(order_at).cast::<u32>(), count) };
    // SAFETY: a place of an entry.
    let name = |place: &u32| unsafe { Entry(base.add(*place as usize)) }.name();
    places.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    // SAFETY: as above.
    let entry = |place: &u32| unsafe { Entry(base.add(*place as usize)) };
    if !public {
        inputs::listed(k, fd, places.iter().map(|place| (kind(fd, entry(place)), name(place))));
    }
    // SAFETY: the head of the mapping, which lives until the descriptor is closed.
    unsafe {
        base.cast::<Listing>().write(Listing {
            position: Cell::new(0),
            count: count as u32,
            order: order_at as u32,
        });
        Ok(&*base.cast::<Listing>())
    }
}

/// Whether the directory is one for everybody's temporary files: the server sees only its own there, because others come and go.
fn is_public(k: &Kernel, fd: i32) -> bool {
    const PUBLIC: u32 = libc::S_IFDIR | libc::S_ISVTX | libc::S_IWOTH;
    stat::real_of(fd)
        .is_ok_and(|st| st.st_mode & PUBLIC == PUBLIC && stat::class(k, &st) == stat::Class::Own)
}

/// Whether an entry was made by others.
fn is_of_others(k: &Kernel, fd: i32, name: &[u8]) -> bool {
    if matches!(name, b"." | b"..") {
        return false;
    }
    // SAFETY: the name ends in zero.
    let st = unsafe { stat::real_at(fd, name.as_ptr().cast(), libc::AT_SYMLINK_NOFOLLOW) };
    !st.is_ok_and(|st| k.files().inodes.has_made(Id::of(&st)))
}

/// Directories of /proc that have something of Skein's in them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proc {
    /// Processes.
    Root,
    /// Descriptors of one.
    Descriptors,
}

fn listing_of_proc(k: &Kernel, fd: i32) -> Option<Proc> {
    if stat::real_of(fd).ok()?.st_dev != k.files().proc_dev.get() {
        return None;
    }
    let mut name = [0u8; 64];
    let name = stat::real_name(fd, &mut name).ok()?;
    if name == b"/proc" {
        return Some(Proc::Root);
    }
    (name.ends_with(b"/fd") || name.ends_with(b"/fdinfo")).then_some(Proc::Descriptors)
}

/// The runtime's own descriptors, and processes that are none of the server's: those that stand in for its own while they are read for an image.
fn is_hidden(k: &Kernel, listing: Option<Proc>, name: &[u8]) -> bool {
    let number = || core::str::from_utf8(name).ok()?.parse::<i32>().ok();
    match listing {
        None => false,
        Some(Proc::Root) => number().is_some_and(|n| n != 1 && process::find(k, n).is_none()),
        Some(Proc::Descriptors) => number().is_some_and(table::is_own),
    }
}

/// Forgets a listing.
pub fn drop_listing(slot: &Slot) {
    let base = slot.listing.replace(0);
    // SAFETY: the mapping made by `make`, to which nothing refers any more.
    unsafe {
        sys::raw(libc::SYS_munmap, sys::args([base, ROOM_BYTES]));
    }
}

fn of(k: &Kernel, fd: i32) -> Result<&'static Listing> {
    let Some(slot) = local::slot(fd) else {
        refuse!("a directory was read by a descriptor above {MAX_FDS}");
    };
    match slot.listing.get() {
        0 => make(k, fd, slot),
        // SAFETY: the listing of this descriptor.
        base => Ok(unsafe { &*(base as *const Listing) }),
    }
}

/// `getdents64`.
///
/// # Safety
/// `out` has room for `len` bytes.
pub unsafe fn getdents64(k: &Kernel, fd: i32, out: *mut u8, len: usize) -> Result<usize> {
    if k.file(fd).is_some() {
        return Err(Errno(libc::ENOTDIR));
    }
    let st = stat::real_of(fd)?;
    if st.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Err(Errno(libc::ENOTDIR));
    }
    let listing = of(k, fd)?;
    let base = core::ptr::from_ref(listing).cast::<u8>();
    let mut done = 0;
    while listing.position.get() < u64::from(listing.count) {
        let at = listing.position.get();
        // SAFETY: a place that `fill` wrote, and its entry.
        let entry = unsafe {
            let place = base.add(listing.order as usize).cast::<u32>().add(at as usize).read();
            Entry(base.add(place as usize))
        };
        let bytes = entry.shown_bytes();
        if done + bytes > len {
            if done == 0 {
                return Err(Errno(libc::EINVAL));
            }
            break;
        }
        let name = entry.name();
        // SAFETY: the caller's buffer has room by the check; the name ends in zero.
        unsafe {
            let to = out.add(done);
            to.write_bytes(0, bytes);
            to.cast::<u64>().write_unaligned(entry.number());
            to.add(8).cast::<u64>().write_unaligned(at + 1);
            to.add(RECLEN_AT).cast::<u16>().write_unaligned(bytes as u16);
            to.add(TYPE_AT).write(kind(fd, entry));
            core::ptr::copy_nonoverlapping(name.as_ptr(), to.add(NAME_AT), name.len());
        }
        done += bytes;
        listing.position.set(at + 1);
    }
    Ok(done)
}

/// The kind of an entry: some file systems store it in the directory, for others the entry is looked at.
fn kind(fd: i32, entry: Entry) -> u8 {
    if entry.kind() != libc::DT_UNKNOWN {
        return entry.kind();
    }
    let name = entry.name().as_ptr().cast::<c_char>();
    // SAFETY: the name ends in zero.
    let mode =
        unsafe { stat::real_at(fd, name, libc::AT_SYMLINK_NOFOLLOW) }.map_or(0, |st| st.st_mode);
    ((mode & libc::S_IFMT) >> 12) as u8
}

/// `lseek` on the kernel's descriptors: `None` when it passes.
pub fn lseek(k: &Kernel, fd: i32, to: i64, whence: c_int) -> Option<Result<usize>> {
    let directory =
        local::slot(fd).filter(|slot| slot.listing.get() != 0 || slot.directory.get() && to != 0);
    let Some(slot) = directory else {
        return console::has_no_position(k, fd).then_some(Err(Errno(libc::ESPIPE)));
    };
    Some(seek(k, fd, slot, to, whence))
}

fn seek(k: &Kernel, fd: i32, slot: &Slot, to: i64, whence: c_int) -> Result<usize> {
    let listing = of(k, fd)?;
    let position = match whence {
        libc::SEEK_SET => to,
        libc::SEEK_CUR => listing.position.get() as i64 + to,
        _ => return Err(Errno(libc::EINVAL)),
    };
    if position < 0 {
        return Err(Errno(libc::EINVAL));
    }
    if position == 0 && whence == libc::SEEK_SET {
        // Rewound: the next look sees the directory as it is then.
        drop_listing(slot);
    } else {
        listing.position.set(position as u64);
    }
    Ok(position as usize)
}
