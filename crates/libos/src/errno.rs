//! Errors of the server's calls. A leaf: every other module may use it.

/// A call that failed: the error's number, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The answer to a call of the server: a value, or an error number.
pub type Result<T> = core::result::Result<T, Errno>;

/// The internal answer of an interrupted call that is to be done again after a handler with `SA_RESTART` (the kernel's ERESTARTSYS).
pub const RESTART: Errno = Errno(512);

/// A call that fails.
pub const fn fail<T>(errno: i32) -> Result<T> {
    Err(Errno(errno))
}
