//! The kernel's `siginfo` and `sigaction`: a signal's data, and a process's action for it.

use crate::abi;
use crate::host::Host;
use crate::process::{self, Process};

/// The data of a signal: the used part of the kernel's `siginfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// Its number.
    pub signo: i32,
    /// Always 0.
    pub errno: i32,
    /// Its origin: `SI_USER`, `SI_TIMER`, ...
    pub code: i32,
    /// Unused.
    pub pad: i32,
    /// The sender's pid, or a timer's id.
    pub pid: i32,
    /// The sender's user, or a timer's overrun.
    pub uid: i32,
    /// The value sent along; for a child the status.
    pub value: u64,
    /// Used by few signals.
    pub rest: [u64; 2],
}

const _: () = assert!(size_of::<Info>() == 48 && core::mem::offset_of!(Info, pid) == 16);

impl Info {
    /// A signal that the turn's holder sends.
    pub fn sent(k: &impl Host, signo: i32, code: i32) -> Self {
        let (pid, uid) = (process::this(k).pid.get(), k.real_user() as i32);
        Self { signo, code, pid, uid, ..Self::default() }
    }

    /// A signal of the machine's, without a sending process.
    #[must_use]
    pub fn of_kernel(signo: i32) -> Self {
        const SI_KERNEL: i32 = 0x80;
        Self { signo, code: SI_KERNEL, ..Self::default() }
    }

    /// `SIGCHLD` of a process with this wait status. All of the server is one user's.
    pub fn of_child(k: &impl Host, child: &Process, status: i32) -> Self {
        let (code, value) = process::wait::told(status);
        let (pid, uid) = (child.pid.get(), k.real_user() as i32);
        Self { signo: abi::SIGCHLD, code, pid, uid, value: value as u64, ..Self::default() }
    }
}

/// A process's action for a signal: the kernel's `sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or a function.
    pub handler: usize,
    /// `SA_` flags.
    pub flags: u64,
    /// The restorer, kept for `sigaction`'s answer.
    pub restorer: usize,
    /// Additional mask during the handler.
    pub mask: u64,
}

impl Action {
    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: i32) -> bool {
        self.flags & flag as u32 as u64 != 0
    }
}
