//! How a call of the server fails. A leaf: everything else may use it.

/// A call that failed: the error's number, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The answer to a call of the server: a value, or an error number.
pub type Result<T> = core::result::Result<T, Errno>;

/// A call that fails.
pub const fn fail<T>(errno: i32) -> Result<T> {
    Err(Errno(errno))
}
