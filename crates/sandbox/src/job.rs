//! The job of init and of the server's process before it is the server: the node writes it, both read it ([`super::handover`]).

use std::ffi::{CString, c_ulong};
use std::os::fd::RawFd;

use serde::{Deserialize, Serialize};

use super::owner::Owner;
use super::plan::Step;
use super::report::Stage;
use super::spec::Limits;
use super::sys::Errno;

/// `close_range` calls: first and last descriptor.
pub(super) type Ranges = Vec<(u32, u32)>;

/// Init's data, prepared by the node.
#[derive(Serialize, Deserialize)]
pub(super) struct InitJob {
    /// To the node: records out; a byte in to go on (id maps written; server's pid known); end of file when the node lets go.
    pub(super) socket: RawFd,
    /// A pidfd of the node: readable when the whole process is gone, whichever thread launched.
    pub(super) node: RawFd,
    /// Where a server that is restored asks for numbers ([`super::numbers`]),
    pub(super) numbers: Option<RawFd>,
    /// and where the node does.
    pub(super) spare: RawFd,
    /// `None` without isolation.
    pub(super) surroundings: Option<Surroundings>,
    pub(super) server: ServerJob,
}

/// The steps inside the namespaces.
#[derive(Serialize, Deserialize)]
pub(super) struct Surroundings {
    pub(super) owner: Owner,
    pub(super) hostname: CString,
    pub(super) steps: Vec<Step>,
}

/// The step that failed.
pub(super) struct Failure(pub(super) Stage, pub(super) u32, pub(super) Errno);

/// The most descriptors of a server.
pub(super) const MAX_INHERITED: usize = 16;

/// The server's data before exec, prepared by the node.
#[derive(Serialize, Deserialize)]
pub(super) struct ServerJob {
    pub(super) program: CString,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: CString,
    pub(super) stdout: RawFd,
    pub(super) stderr: RawFd,
    /// Descriptor now, and its number in the server; at most [`MAX_INHERITED`].
    pub(super) inherit: Vec<(RawFd, RawFd)>,
    /// All descriptors from 3 but the targets of `inherit`.
    pub(super) not_inherited: Ranges,
    pub(super) limits: Limits,
    /// The bytes that `AT_RANDOM` points to.
    pub(super) random: [c_ulong; 2],
}

/// Waits for the node's word to go on; false when it is gone, or gave up.
pub(super) fn await_node(socket: RawFd) -> bool {
    let mut go = [0u8; 1];
    // SAFETY: the buffer is one live byte. No signal interrupts this: all are blocked.
    unsafe { libc::recv(socket, go.as_mut_ptr().cast(), go.len(), 0) == 1 }
}

/// The ranges of descriptors from `first` that leave out `kept`.
pub(super) fn gaps(mut kept: Vec<RawFd>, first: u32) -> Ranges {
    kept.sort_unstable();
    kept.dedup();
    let mut ranges = Vec::new();
    let mut next = first;
    for fd in kept.into_iter().filter_map(|fd| u32::try_from(fd).ok()) {
        if fd > next {
            ranges.push((next, fd - 1));
        }
        next = next.max(fd + 1);
    }
    ranges.push((next, u32::MAX));
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_leave_out_what_is_kept() {
        assert_eq!(gaps(vec![], 3), [(3, u32::MAX)]);
        assert_eq!(gaps(vec![901, 900], 3), [(3, 899), (902, u32::MAX)]);
        assert_eq!(gaps(vec![0, 1, 5, 5], 0), [(2, 4), (6, u32::MAX)]);
    }
}
