//! Memory that processes share: an object in it is the same for all of them, wherever each has mapped it.
//!
//! Each process has a list of its shared mappings, which a forked child copies. A region is a mapped object: anonymous memory by the call that made
//! it, a file by its inode, a segment of System V by its id. A process without shared mappings pays a load for all this ([`any`]).

use super::{Process, handle, this};
use crate::advice;
use crate::files::change;
use crate::files::inode::Id;
use crate::io::{park, table};
use crate::kernel::memory::{MAX_MAPPINGS, Mapping, Region};
use crate::kernel::{Kernel, kernel};
use crate::local::LOCAL;
use crate::sys::{self, args};
use core::sync::atomic::Ordering;
use libc::c_int;
use skein_arena::layout::{RUNTIME_END, SERVER_BASE};
use skein_arena::pool::Handle;
use skein_libos::errno::{Errno, Result};
use skein_libos::ipc::segment;

/// Whether this process may have shared mappings.
#[inline]
pub fn any() -> bool {
    LOCAL.shares_memory.load(Ordering::Relaxed)
}

/// The region and the offset in it of an address in shared memory.
pub fn find(address: usize) -> Option<(u32, usize)> {
    let k = kernel();
    let mut at = this().mappings.front();
    while let Some(mapping) = at {
        let m = k.shared.mappings.get(mapping);
        if let Some(inside) = address.checked_sub(m.start.get())
            && inside < m.len.get()
        {
            return Some((m.region.get()?.raw(), m.offset.get() + inside));
        }
        at = this().mappings.next(&k.shared.mappings, mapping);
    }
    None
}

/// No file's.
const NOWHERE: Id = Id { dev: u64::MAX, ino: u64::MAX };

/// The object of a mapping.
#[derive(Clone, Copy)]
pub enum What {
    /// Memory of no file.
    Anonymous,
    /// A file (device and inode), or a segment (0 and its id).
    Named(u64, u64),
}

/// The file of a descriptor.
fn file(fd: c_int) -> Option<What> {
    // SAFETY: all-zero is a valid `stat`, which the call writes.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        sys::call(libc::SYS_fstat, args([fd as usize, &raw mut st as usize])).ok()?;
        Some(What::Named(st.st_dev, st.st_ino))
    }
}

/// Notes a shared mapping of this process.
pub fn note(start: usize, len: usize, what: What, offset: usize) {
    let k = kernel();
    let Some((region, mapping)) = region(k, what).zip(k.shared.mappings.alloc()) else {
        crate::fatal::refuse!("more than {MAX_MAPPINGS} shared mappings")
    };
    let m = k.shared.mappings.get(mapping);
    m.start.set(start);
    m.len.set(len.next_multiple_of(4096));
    m.offset.set(offset);
    attach(k, this(), mapping, region);
    LOCAL.shares_memory.store(true, Ordering::Relaxed);
}

fn attach(k: &Kernel, p: &Process, mapping: Handle<Mapping>, region: Handle<Region>) {
    advice::shared_changed();
    k.shared.mappings.get(mapping).region.set(Some(region));
    let r = k.shared.regions.get(region);
    r.mappings.set(r.mappings.get() + 1);
    p.mappings.push_back(&k.shared.mappings, mapping);
    if let Some(id) = segment_of(k, region) {
        segment::attached(k, id);
    }
}

fn region(k: &Kernel, what: What) -> Option<Handle<Region>> {
    if let What::Named(device, inode) = what {
        let known = (1..=k.shared.regions.high()).filter_map(Handle::from_raw).find(|h| {
            let r = k.shared.regions.get(*h);
            r.mappings.get() > 0
                && !r.anonymous.get()
                && (r.device.get(), r.inode.get()) == (device, inode)
        });
        if known.is_some() {
            return known;
        }
    }
    let region = k.shared.regions.alloc()?;
    let r = k.shared.regions.get(region);
    match what {
        What::Anonymous => r.anonymous.set(true),
        What::Named(device, inode) => {
            r.device.set(device);
            r.inode.set(inode);
        }
    }
    Some(region)
}

/// The kernel has numbered all files anew: `now` knows how it calls a file, if that exists.
pub fn renew(k: &Kernel, now: impl Fn(Id) -> Option<Id>) {
    for region in (1..=k.shared.regions.high()).filter_map(Handle::from_raw) {
        let r = k.shared.regions.get(region);
        // A segment of System V is no file.
        if !r.anonymous.get() && r.device.get() != 0 {
            let was = Id { dev: r.device.get(), ino: r.inode.get() };
            let is = now(was).unwrap_or(NOWHERE);
            r.device.set(is.dev);
            r.inode.set(is.ino);
        }
    }
}

fn remove(k: &Kernel, p: &Process, mapping: Handle<Mapping>) {
    advice::shared_changed();
    p.mappings.remove(&k.shared.mappings, mapping);
    let region = k.shared.mappings.get(mapping).region.take().expect("a mapping's region");
    k.shared.mappings.free(mapping);
    let r = k.shared.regions.get(region);
    r.mappings.set(r.mappings.get() - 1);
    let unreachable = segment_of(k, region).and_then(|id| segment::detached(k, id));
    if r.mappings.get() == 0 {
        k.shared.regions.free(region);
    }
    if let Some(ticket) = unreachable {
        park::discard(k, ticket);
    }
}

/// Nothing is mapped any more from `start` on.
pub fn unmapped(start: usize, len: usize) {
    let (k, p) = (kernel(), this());
    let end = start + len.next_multiple_of(4096);
    let mut at = p.mappings.front();
    while let Some(mapping) = at {
        at = p.mappings.next(&k.shared.mappings, mapping);
        let m = k.shared.mappings.get(mapping);
        let (from, to) = (m.start.get(), m.start.get() + m.len.get());
        if end <= from || to <= start {
            continue;
        }
        if end < to {
            // The part behind the gap stays.
            match k.shared.mappings.alloc() {
                Some(rest) => {
                    let r = k.shared.mappings.get(rest);
                    r.start.set(end);
                    r.len.set(to - end);
                    r.offset.set(m.offset.get() + (end - from));
                    attach(k, p, rest, m.region.get().expect("a mapping's region"));
                }
                None => crate::fatal::refuse!("more than {MAX_MAPPINGS} shared mappings"),
            }
        }
        if from < start {
            advice::shared_changed();
            m.len.set(start - from);
        } else {
            remove(k, p, mapping);
        }
    }
}

/// A forked child maps what its parent does; false when there is no room.
pub fn copy(k: &Kernel, from: &Process, to: &Process) -> bool {
    let mut at = from.mappings.front();
    while let Some(mapping) = at {
        let m = k.shared.mappings.get(mapping);
        let Some(copy) = k.shared.mappings.alloc() else { return false };
        let c = k.shared.mappings.get(copy);
        c.start.set(m.start.get());
        c.len.set(m.len.get());
        c.offset.set(m.offset.get());
        attach(k, to, copy, m.region.get().expect("a mapping's region"));
        at = from.mappings.next(&k.shared.mappings, mapping);
    }
    true
}

/// A process maps nothing any more.
pub fn forget_all(k: &Kernel, p: &Process) {
    while let Some(mapping) = p.mappings.front() {
        remove(k, p, mapping);
    }
}

/// Whether some of these bytes are in the runtime's own part of the address space: what is there is in no image, and not compared.
const fn is_own(start: usize, len: usize) -> bool {
    start < RUNTIME_END && start.saturating_add(len) > SERVER_BASE
}

/// `mmap`. A place that is only a wish, and the runtime's own, does not count: V8 chooses them by chance.
pub fn mmap(mut a: [usize; 6]) -> Result<usize> {
    table::no_own(libc::SYS_mmap, &a)?;
    if is_own(a[0], a[1]) {
        if a[3] as c_int & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
            return Err(Errno(libc::ENOMEM));
        }
        a[0] = 0;
    }
    // SAFETY: the server's own call.
    let at = unsafe { sys::call(libc::SYS_mmap, a)? };
    let [_, len, _, flags, fd, offset] = a;
    let flags = flags as c_int;
    advice::mapped(flags as u32);
    if any() {
        unmapped(at, len);
    }
    if matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE) {
        if flags & libc::MAP_ANONYMOUS != 0 {
            note(at, len, What::Anonymous, 0);
        } else {
            change::mapped(kernel(), fd as c_int);
            if let Some(what) = file(fd as c_int) {
                note(at, len, what, offset);
            }
        }
    }
    Ok(at)
}

/// `munmap`.
pub fn munmap(start: usize, len: usize) -> Result<()> {
    // SAFETY: the server's own call.
    unsafe { sys::call(libc::SYS_munmap, args([start, len]))? };
    if any() {
        unmapped(start, len);
    }
    Ok(())
}

/// `mremap`.
pub fn mremap(a: [usize; 6]) -> Result<usize> {
    let [start, len, new_len, flags, new_start, _] = a;
    if flags as c_int & libc::MREMAP_FIXED != 0 && is_own(new_start, new_len) {
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: the server's own call.
    let at = match unsafe { sys::call(libc::SYS_mremap, a) } {
        Ok(at) => at,
        Err(refusal) => super::written::mremap(a, refusal)?,
    };
    if any() {
        let k = kernel();
        let mut mapping = this().mappings.front();
        while let Some(m) = mapping {
            let found = k.shared.mappings.get(m);
            if (found.start.get()..found.start.get() + found.len.get()).contains(&start) {
                let offset = found.offset.get() + (start - found.start.get());
                let region = found.region.get().expect("a mapping's region");
                // Kept during the moment without a mapping of it.
                let r = k.shared.regions.get(region);
                r.mappings.set(r.mappings.get() + 1);
                unmapped(start, len);
                unmapped(at, new_len);
                let Some(fresh) = k.shared.mappings.alloc() else { break };
                let f = k.shared.mappings.get(fresh);
                f.start.set(at);
                f.len.set(new_len.next_multiple_of(4096));
                f.offset.set(offset);
                attach(k, this(), fresh, region);
                r.mappings.set(r.mappings.get() - 1);
                break;
            }
            mapping = this().mappings.next(&k.shared.mappings, m);
        }
    }
    Ok(at)
}

/// Unmaps a segment that this process has attached at `at`; false when there is none.
pub fn detach(at: usize) -> bool {
    let k = kernel();
    let mut mapping = this().mappings.front();
    let mut found = None;
    while let Some(m) = mapping {
        let here = k.shared.mappings.get(m);
        let region = here.region.get().filter(|r| segment_of(k, *r).is_some());
        if here.start.get() == at + here.offset.get() && region.is_some() {
            found = region;
            break;
        }
        mapping = this().mappings.next(&k.shared.mappings, m);
    }
    let Some(region) = found else { return false };
    // A part of it may be unmapped already.
    let mut mapping = this().mappings.front();
    while let Some(m) = mapping {
        mapping = this().mappings.next(&k.shared.mappings, m);
        let here = k.shared.mappings.get(m);
        if here.region.get() == Some(region) && here.start.get() == at + here.offset.get() {
            // SAFETY: the server's own memory, of which it wants to be rid.
            unsafe {
                sys::raw(libc::SYS_munmap, args([here.start.get(), here.len.get()]));
            }
            remove(k, this(), m);
        }
    }
    true
}

/// The id of the segment that a region is.
fn segment_of(k: &Kernel, region: Handle<Region>) -> Option<i32> {
    let r = k.shared.regions.get(region);
    (r.device.get() == 0 && !r.anonymous.get()).then(|| r.inode.get() as i32)
}

/// In a process that has just begun: whether it has shared mappings.
pub(super) fn begin(k: &Kernel) {
    LOCAL.shares_memory.store(!k.processes.get(handle()).mappings.is_empty(), Ordering::Relaxed);
}
