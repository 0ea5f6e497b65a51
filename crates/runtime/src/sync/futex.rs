//! `futex(2)` for code that calls it itself.

use crate::sys::{Errno, Result};

/// `futex(2)`.
pub fn futex(_args: [usize; 6]) -> Result<usize> {
    Err(Errno(libc::ENOSYS))
}
