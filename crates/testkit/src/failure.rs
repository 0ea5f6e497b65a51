//! The failure of a developer command: one line with the problem, the reason and the remedy.

/// A failure's text, printed after `xtask: `; the command exits with 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// A failure of doing `what`, because of `why`.
    pub fn of(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

/// The result of every developer command.
pub type Outcome<T = ()> = Result<T, Failure>;
