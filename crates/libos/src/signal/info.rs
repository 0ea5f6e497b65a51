//! The kernel's `siginfo` and `sigaction`: a signal's data, and a process's action for it.

use crate::abi;
use crate::host::Host;
use crate::process::{self, Process};
pub use crate::state::signal::{Action, Info};

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

impl Action {
    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: i32) -> bool {
        self.flags & flag as u32 as u64 != 0
    }
}
