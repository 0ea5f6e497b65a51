//! System V shared memory: what is known of each segment. Its memory is a file of the host's, which the host keeps under a ticket and maps.
//!
//! A segment that was removed goes with its last mapping; until then it is found by its id.

use super::permission::{self, ALTER, Head, READ, Wire};
use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::process;
pub use crate::state::ipc::Segment;

/// `SHMMAX`, in whole pages below it.
const MOST_BYTES: u64 = u64::MAX - (1 << 24);
/// Only readers may be attached.
pub const READ_ONLY: i32 = 0o10000;
/// Huge pages, of which a server has none.
const HUGE: i32 = 0o4000;
/// In the mode of a segment that was removed.
const REMOVED: u32 = 0o1000;

// Commands of `shmctl` that libc does not name.
const LOCK: i32 = 11;
const UNLOCK: i32 = 12;
const STAT: i32 = 13;
const INFO: i32 = 14;
const STAT_ANY: i32 = 15;

impl permission::Object for Segment {
    fn head(&self) -> &Head {
        &self.head
    }
}

/// `shmget`; `make` answers a ticket for new memory of so many bytes.
pub fn get<H: Host>(
    k: &H,
    key: i32,
    bytes: u64,
    flags: i32,
    make: impl FnOnce(u64) -> Result<u64>,
) -> Result<usize> {
    let fits = |segment: &Segment| bytes <= segment.bytes.get();
    permission::get(k, &k.ipc.segments, &k.ipc.segment_list, key, flags, fits, |segment| {
        if bytes == 0 || bytes > MOST_BYTES {
            return Err(Errno(abi::EINVAL));
        }
        if flags & HUGE != 0 {
            return Err(Errno(abi::ENOMEM));
        }
        segment.ticket.set(make(bytes)?);
        segment.bytes.set(bytes);
        segment.attached.set(0);
        segment.is_removed.set(false);
        segment.attached_s.set(0);
        segment.detached_s.set(0);
        segment.maker.set(process::this(k).pid.get());
        segment.last.set(0);
        Ok(())
    })
}

/// The memory that a process may attach: its ticket and length.
pub fn memory<H: Host>(k: &H, id: i32, flags: i32) -> Result<(u64, u64)> {
    let segment = k.ipc.segments.get(permission::find(&k.ipc.segments, id)?);
    segment.head.check(k, if flags & READ_ONLY != 0 { READ } else { READ | ALTER })?;
    Ok((segment.ticket.get(), segment.bytes.get()))
}

fn touched<H: Host>(k: &H, segment: &Segment) {
    segment.last.set(process::this(k).pid.get());
}

/// A process has one more mapping of it.
pub fn attached<H: Host>(k: &H, id: i32) {
    if let Ok(handle) = permission::find(&k.ipc.segments, id) {
        let segment = k.ipc.segments.get(handle);
        segment.attached.set(segment.attached.get() + 1);
        segment.attached_s.set(permission::now_s(k));
        touched(k, segment);
    }
}

/// A process has one mapping of it less. Answers the ticket of its memory if nobody can reach that any more.
pub fn detached<H: Host>(k: &H, id: i32) -> Option<u64> {
    let segment = k.ipc.segments.get(permission::find(&k.ipc.segments, id).ok()?);
    segment.attached.set(segment.attached.get() - 1);
    segment.detached_s.set(permission::now_s(k));
    touched(k, segment);
    gone(k, id)
}

/// Forgets a segment that was removed and is not mapped.
fn gone<H: Host>(k: &H, id: i32) -> Option<u64> {
    let handle = permission::find(&k.ipc.segments, id).ok()?;
    let segment = k.ipc.segments.get(handle);
    if !segment.is_removed.get() || segment.attached.get() > 0 {
        return None;
    }
    segment.head.id.set(0);
    k.ipc.segment_list.remove(&k.ipc.segments, handle);
    k.ipc.segments.free(handle);
    Some(segment.ticket.get())
}

/// The kernel's `shmid64_ds`.
#[repr(C)]
#[derive(Clone, Copy)]
struct About {
    permission: Wire,
    bytes: u64,
    attached_s: i64,
    detached_s: i64,
    changed_s: i64,
    maker: i32,
    last: i32,
    attached: u64,
    unused: [u64; 2],
}
const _: () = assert!(size_of::<About>() == 112);

fn about(segment: &Segment) -> About {
    let mut permission = segment.head.wire();
    if segment.is_removed.get() {
        permission.mark(REMOVED);
    }
    About {
        permission,
        bytes: segment.bytes.get(),
        attached_s: segment.attached_s.get(),
        detached_s: segment.detached_s.get(),
        changed_s: segment.head.changed_s.get(),
        maker: segment.maker.get(),
        last: segment.last.get(),
        attached: segment.attached.get().into(),
        unused: [0; 2],
    }
}

/// `shmctl`, and the ticket of memory that nobody can reach any more.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn control<H: Host>(
    k: &H,
    id: i32,
    command: i32,
    arg: usize,
) -> Result<(usize, Option<u64>)> {
    // SAFETY: the caller's contract.
    let answer = unsafe { information(k, id, command, arg) };
    if let Some(answer) = answer {
        return answer.map(|answer| (answer, None));
    }
    let segment = k.ipc.segments.get(permission::find(&k.ipc.segments, id)?);
    match command {
        abi::IPC_STAT => {
            segment.head.check(k, READ)?;
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, about(segment))? };
        }
        abi::IPC_SET => {
            segment.head.check_owner(k)?;
            // SAFETY: the caller's contract.
            let wanted = unsafe { permission::fetch::<About>(arg)? };
            segment.head.set(k, &wanted.permission);
        }
        abi::IPC_RMID => {
            segment.head.check_owner(k)?;
            segment.is_removed.set(true);
            // Nobody finds it by its key any more.
            segment.head.key.set(abi::IPC_PRIVATE);
            return Ok((0, gone(k, id)));
        }
        // All memory is as good as locked.
        LOCK | UNLOCK => segment.head.check_owner(k)?,
        _ => return Err(Errno(abi::EINVAL)),
    }
    Ok((0, None))
}

/// The commands that are about all segments; `None` for the others.
///
/// # Safety
/// `arg` is the command's argument.
unsafe fn information<H: Host>(k: &H, id: i32, command: i32, arg: usize) -> Option<Result<usize>> {
    let pool = &k.ipc.segments;
    let put = match command {
        // SHMMAX, SHMMIN, SHMMNI, SHMSEG, SHMALL.
        abi::IPC_INFO => {
            let count = u64::from(pool.capacity());
            let limits: [u64; 9] = [MOST_BYTES, 1, count, count, MOST_BYTES, 0, 0, 0, 0];
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, limits) }
        }
        // Segments, pages; residency is not reported.
        INFO => {
            let segments = k.ipc.segment_list.iter(pool);
            let pages = segments.map(|(_, segment)| segment.bytes.get().div_ceil(4096)).sum();
            let about: [u64; 6] = [pool.used().into(), pages, 0, 0, 0, 0];
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, about) }
        }
        STAT | STAT_ANY => {
            return Some(permission::by_number(pool, id).and_then(|handle| {
                let segment = pool.get(handle);
                if command == STAT {
                    segment.head.check(k, READ)?;
                }
                // SAFETY: the caller's contract.
                unsafe { permission::put(arg, about(segment))? };
                Ok(segment.head.id.get() as usize)
            }));
        }
        _ => return None,
    };
    Some(put.map(|_| permission::highest(pool)))
}
