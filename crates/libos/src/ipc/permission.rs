//! Shared by System V objects: a key, an id, owners, permissions.

use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
pub use crate::state::ipc::{Head, Known};
use skein_arena::list::{In, List};
use skein_arena::pool::{ArenaObject, Handle, Pool};

/// An object that is found by an id.
pub trait Object: ArenaObject + In<Known> + Sized {
    /// Its head.
    fn head(&self) -> &Head;
}

/// The kernel's `ipc64_perm`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Wire {
    key: i32,
    owner: [u32; 2],
    maker: [u32; 2],
    mode: u32,
    seq: u16,
    pad: [u16; 3],
    unused: [u64; 2],
}
const _: () = assert!(size_of::<Wire>() == 48);

/// The bits of an id that hold its object's number.
const NUMBER_BITS: u32 = 15;
/// Wanted access to an object: read, change.
pub const READ: u32 = 0o444;
/// See [`READ`].
pub const ALTER: u32 = 0o222;

/// The time of day in seconds.
pub fn now_s<H: Host>(k: &H) -> i64 {
    (k.now_ns.get() / crate::time::NS_PER_S) as i64
}

/// Whether the process may do this with an object of these owners.
///
/// # Errors
/// `EACCES`.
pub fn allowed<H: Host>(k: &H, mode: u32, owners: &[[u32; 2]], wanted: u32) -> Result<()> {
    let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
    let user = k.user()[0];
    let granted = if owners.iter().any(|[owner, _]| *owner == user) {
        mode >> 6
    } else if owners.iter().any(|[_, group]| k.in_group(*group)) {
        mode >> 3
    } else {
        mode
    };
    if user == 0 || wanted & !granted == 0 { Ok(()) } else { Err(Errno(abi::EACCES)) }
}

impl Wire {
    /// Adds bits to the mode.
    pub fn mark(&mut self, bits: u32) {
        self.mode |= bits;
    }
}

impl Head {
    /// A new object's.
    pub fn begin<H: Host>(&self, k: &H, raw: u32, key: i32, flags: i32) -> i32 {
        k.ipc.made.set(k.ipc.made.get() % 0xffff + 1);
        let us = k.user();
        self.id.set((k.ipc.made.get() << NUMBER_BITS | (raw - 1)) as i32 & i32::MAX);
        self.key.set(key);
        self.owner.set(us);
        self.maker.set(us);
        self.mode.set(flags as u32 & 0o777);
        self.changed_s.set(now_s(k));
        self.id.get()
    }

    /// Whether the process may do this.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn check<H: Host>(&self, k: &H, wanted: u32) -> Result<()> {
        allowed(k, self.mode.get(), &[self.maker.get(), self.owner.get()], wanted)
    }

    /// Whether the process may remove it or set its owner.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_owner<H: Host>(&self, k: &H) -> Result<()> {
        let user = k.user()[0];
        let owns = user == 0 || user == self.maker.get()[0] || user == self.owner.get()[0];
        if owns { Ok(()) } else { Err(Errno(abi::EPERM)) }
    }

    /// As `IPC_STAT` says it.
    pub fn wire(&self) -> Wire {
        Wire {
            key: self.key.get(),
            owner: self.owner.get(),
            maker: self.maker.get(),
            mode: self.mode.get(),
            seq: (self.id.get() >> NUMBER_BITS) as u16,
            pad: [0; 3],
            unused: [0; 2],
        }
    }

    /// As `IPC_SET` wants it.
    pub fn set<H: Host>(&self, k: &H, wire: &Wire) {
        self.owner.set(wire.owner);
        self.mode.set(wire.mode & 0o777);
        self.changed_s.set(now_s(k));
    }
}

/// The object with this id.
///
/// # Errors
/// `EINVAL` when there is none.
pub fn find<T: Object>(pool: &Pool<T>, id: i32) -> Result<Handle<T>> {
    let raw = (id as u32 & ((1 << NUMBER_BITS) - 1)) + 1;
    let found = Handle::from_raw(raw)
        .filter(|_| id > 0 && raw <= pool.high())
        .filter(|handle| pool.get(*handle).head().id.get() == id);
    found.ok_or(Errno(abi::EINVAL))
}

/// The object with this number, and its id (`SEM_STAT` and its like).
///
/// # Errors
/// `EINVAL` when there is none.
pub fn by_number<T: Object>(pool: &Pool<T>, number: i32) -> Result<Handle<T>> {
    let found = Handle::from_raw(number.wrapping_add(1) as u32)
        .filter(|handle| number >= 0 && handle.raw() <= pool.high())
        .filter(|handle| pool.get(*handle).head().id.get() > 0);
    found.ok_or(Errno(abi::EINVAL))
}

/// The highest number of an object.
pub fn highest<T: Object>(pool: &Pool<T>) -> usize {
    (1..=pool.high())
        .rev()
        .filter_map(Handle::from_raw)
        .find(|handle| pool.get(*handle).head().id.get() > 0)
        .map_or(0, |handle| handle.raw() as usize - 1)
}

/// `semget` and its like: the object of a key, or a new one that `make` makes.
pub fn get<H: Host, T: Object>(
    k: &H,
    pool: &Pool<T>,
    list: &List<T, Known>,
    key: i32,
    flags: i32,
    fits: impl FnOnce(&T) -> bool,
    make: impl FnOnce(&T) -> Result<()>,
) -> Result<usize> {
    let mut known = list.iter(pool).filter(|(_, o)| o.head().key.get() == key);
    if key != abi::IPC_PRIVATE
        && let Some((_, o)) = known.next()
    {
        if flags & abi::IPC_CREAT != 0 && flags & abi::IPC_EXCL != 0 {
            return Err(Errno(abi::EEXIST));
        }
        o.head().check(k, flags as u32 & 0o777)?;
        return if fits(o) { Ok(o.head().id.get() as usize) } else { Err(Errno(abi::EINVAL)) };
    }
    if key != abi::IPC_PRIVATE && flags & abi::IPC_CREAT == 0 {
        return Err(Errno(abi::ENOENT));
    }
    let Some(object) = pool.alloc() else { return Err(Errno(abi::ENOSPC)) };
    let o = pool.get(object);
    make(o).inspect_err(|_| pool.free(object))?;
    let id = o.head().begin(k, object.raw(), key, flags);
    list.push_back(pool, object);
    Ok(id as usize)
}

/// Writes an answer to the server's own pointer.
///
/// # Safety
/// `to` is null or writable.
pub unsafe fn put<T>(to: usize, value: T) -> Result<usize> {
    if to == 0 {
        return Err(Errno(abi::EFAULT));
    }
    // SAFETY: the caller's contract.
    unsafe { (to as *mut T).write(value) };
    Ok(0)
}

/// Reads the server's own argument.
///
/// # Safety
/// `from` is null or readable.
pub unsafe fn fetch<T: Copy>(from: usize) -> Result<T> {
    if from == 0 {
        return Err(Errno(abi::EFAULT));
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { (from as *const T).read() })
}
