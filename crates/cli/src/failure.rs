//! An error of the command: one line, with its exit code.
//!
//! Every line has the same shape, `skein: <what>: <why>; <what to do>`, and stands in `docs/errors.md`.

use std::fmt;

/// Exit code of `skein run` for its own errors, like `env` and `timeout` do.
pub const EXIT_SKEIN: u8 = 125;
/// Exit code of every other command for wrong arguments and the like.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of `status`, `logs` and `stop` when no such cluster runs.
pub const EXIT_NOT_RUNNING: u8 = 3;

/// An error of the user or the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The failed action, with its value.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The remedy; empty when there is none.
    pub fix: String,
    /// The exit code that goes with it; `None` leaves it to the command.
    pub code: Option<u8>,
}

impl Failure {
    /// An error with the command's usual exit code.
    pub fn new(what: impl Into<String>, why: impl fmt::Display, fix: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.to_string(), fix: fix.into(), code: None }
    }

    /// The same error with an exit code of its own.
    #[must_use]
    pub fn with_code(mut self, code: u8) -> Self {
        self.code = Some(code);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |text: &str| text.trim().replace('\n', " ");
        write!(f, "skein: {}: {}", line(&self.what), line(&self.why))?;
        if self.fix.is_empty() { Ok(()) } else { write!(f, "; {}", line(&self.fix)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_always_one_line() {
        let failure = Failure::new("a", "b\nc\n", "d");
        assert_eq!(failure.to_string(), "skein: a: b c; d");
        assert_eq!(Failure::new("a", "b", "").to_string(), "skein: a: b");
    }
}
