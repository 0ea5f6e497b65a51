//! Segments of System V shared memory are the kernel's, in the replica's own namespace; the times reported about them are not.

use crate::sys;
use crate::turn;
use libc::c_int;
use skein_libos::errno::Result;
use skein_sched::op::{Kind, Object};

// Commands of `shmctl` that libc does not name.
const SHM_STAT: c_int = 13;
const SHM_INFO: c_int = 14;
const SHM_STAT_ANY: c_int = 15;

/// Where `shm_info` has resident and swapped pages: two words and two counts of tries.
const INFO_RESIDENT: usize = 2;

/// `shmctl`: reported times are that of the server's start; residency is not reported.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn control(id: c_int, command: c_int, arg: usize) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Set);
    let args = sys::args([id as usize, command as usize, arg]);
    // SAFETY: the server's own call; the kernel checks its address.
    let result = unsafe { sys::call(libc::SYS_shmctl, args)? };
    match command {
        libc::IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            // SAFETY: the kernel has just written there.
            let about = unsafe { &mut *(arg as *mut libc::shmid_ds) };
            let start = (turn.boot_ns.get() / skein_libos::time::NS_PER_S) as i64;
            for at in [&mut about.shm_atime, &mut about.shm_dtime, &mut about.shm_ctime] {
                if *at != 0 {
                    *at = start;
                }
            }
        }
        // SAFETY: the kernel has just written there.
        SHM_INFO => unsafe { (arg as *mut u64).add(INFO_RESIDENT).write_bytes(0, 4) },
        _ => {}
    }
    Ok(result)
}
