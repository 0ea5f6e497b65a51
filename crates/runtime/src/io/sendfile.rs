//! sendfile: from a regular file to a virtual descriptor.

use crate::io::Answer;
use crate::io::call;
use crate::io::call::Hold;
use crate::io::table;
use crate::kernel::{Kernel, kernel};
use crate::sys;
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::{Buffers, single};
use skein_libos::file::ops;
use skein_sched::op::Kind;

/// Bytes copied at a time, on the thread's stack.
const PIECE_BYTES: usize = 8 << 10;

/// `sendfile`; passes through when neither descriptor is virtual.
///
/// # Safety
/// `offset` is null or valid.
pub unsafe fn sendfile(out_fd: i32, in_fd: i32, offset: *mut i64, count: usize) -> Answer {
    if kernel().table().get(in_fd).is_some() {
        return call::with(in_fd, Kind::Move, |_, _| fail(libc::EINVAL));
    }
    if let Err(e) = table::not_own(in_fd) {
        return Some(Err(e));
    }
    // SAFETY: the caller's contract.
    call::with_cancel(out_fd, Kind::Move, |k, hold| unsafe { copy(k, hold, in_fd, offset, count) })
}

unsafe fn copy(
    k: &Kernel,
    hold: &Hold,
    in_fd: i32,
    offset: *mut i64,
    count: usize,
) -> Result<usize> {
    let mut piece = [0u8; PIECE_BYTES];
    let mut done = 0;
    while done < count {
        let most = (count - done).min(PIECE_BYTES);
        // SAFETY: the caller's contract.
        let at = unsafe { offset.as_ref() }.map_or(0, |at| *at as usize);
        let args = sys::args([in_fd as usize, piece.as_mut_ptr() as usize, most, at]);
        let nr = if offset.is_null() { libc::SYS_read } else { libc::SYS_pread64 };
        // SAFETY: writes at most `most` bytes to a local.
        let n = match unsafe { sys::call(nr, args) } {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) => return if done > 0 { Ok(done) } else { Err(e) },
        };
        let part = [single(piece.as_mut_ptr().cast(), n)];
        let sent = ops::write(k, hold, &mut Buffers::new(&part)?);
        let taken = *sent.as_ref().unwrap_or(&0);
        if !offset.is_null() {
            // SAFETY: the caller's contract.
            unsafe { *offset += taken as i64 };
        } else if taken < n {
            // What was read but not sent goes back.
            let back = -((n - taken) as i64);
            // SAFETY: no memory is involved.
            unsafe {
                sys::call(
                    libc::SYS_lseek,
                    sys::args([in_fd as usize, back as usize, libc::SEEK_CUR as usize]),
                )?;
            }
        }
        done += taken;
        match sent {
            Ok(sent) if sent == n => {}
            Ok(_) => break,
            Err(e) => return if done > 0 { Ok(done) } else { Err(e) },
        }
    }
    Ok(done)
}
