//! The reason why a server's memory could not be read.

/// The reason why a server's memory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A file of `/proc` is malformed, or cannot be read.
    #[error("{what}: {error}")]
    Read {
        /// The file.
        what: String,
        /// The reason.
        error: std::io::Error,
    },
    /// There is more memory than is read.
    #[error("the server holds more than {0}")]
    TooMuch(&'static str),
    /// The server has what an image cannot hold.
    #[error("an image cannot hold this server: {0}")]
    CannotHold(String),
    /// It took too long.
    #[error("reading the server's memory took longer than a server is held")]
    TooLong,
}

impl MemoryError {
    /// A failed read of this file.
    pub fn read(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Read { what, error }
    }
}

/// With this error.
pub type Result<T> = std::result::Result<T, MemoryError>;
