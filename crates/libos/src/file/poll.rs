//! poll. Descriptors that are not virtual are regular files: always ready, as on Linux.

use super::wait::{WaitSet, looks_again};
use super::{ready, table};
use crate::abi::{self, pollfd};
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::thread::Wake;
use crate::time::Timeout;

const NVAL: u32 = abi::POLLNVAL as u32;

/// `poll`: answers the number of descriptors with reported events.
pub fn poll<H: Host>(k: &H, fds: &mut [pollfd], timeout: Timeout) -> Result<usize> {
    let deadline = timeout.deadline_ns(k);
    loop {
        let found = look(k, fds);
        if found > 0 {
            return Ok(found);
        }
        if matches!(timeout, Timeout::Poll) {
            if !looks_again(k)? {
                return Ok(0);
            }
            continue;
        }
        let waits = WaitSet::default();
        for fd in fds.iter() {
            if let Some(file) = table::file(k, fd.fd)
                && let Err(e) = waits.add(k, file, fd.events as u16 as u32, false)
            {
                waits.clear(k);
                return Err(e);
            }
        }
        match waits.block(k, deadline) {
            Wake::Event => {}
            Wake::Timeout => return Ok(look(k, fds)),
            Wake::Interrupted => {
                k.test_cancel();
                if !k.interrupted(false) {
                    return fail(abi::EINTR);
                }
            }
        }
    }
}

fn look<H: Host>(k: &H, fds: &mut [pollfd]) -> usize {
    let mut found = 0;
    for fd in fds.iter_mut() {
        let wanted = fd.events as u16 as u32 | ready::ERR | ready::HUP | NVAL;
        fd.revents = (state(k, fd.fd) & wanted) as i16;
        found += usize::from(fd.revents != 0);
    }
    found
}

/// The events that a descriptor is ready for; none when the number is negative.
fn state<H: Host>(k: &H, fd: i32) -> u32 {
    match table::file(k, fd) {
        Some(file) => super::mask(k, file),
        None if fd < 0 => 0,
        None if k.of_kernel(fd).is_some() => ready::IN | ready::OUT,
        None => NVAL,
    }
}
