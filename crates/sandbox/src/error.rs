//! Errors before the server runs. Every message is one line: problem, reason, remedy.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The reason why a program cannot be replicated.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The messages say what each one and its fields are.
pub enum ProgramError {
    #[error("cannot run '{program}': no such program; check the name, or give its path")]
    NotFound { program: String },
    #[error("cannot run {}: it is not executable; chmod +x it, or give another program", path.display())]
    NotExecutable { path: PathBuf },
    #[error("cannot run {}: it is a directory; give the program inside it", path.display())]
    Directory { path: PathBuf },
    #[error("cannot run {}: {error}; it must be readable, because replicas compare its contents", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("cannot run {}: it is {what}; give an x86-64 Linux program", path.display())]
    Format { path: PathBuf, what: &'static str },
    #[error("cannot run {}: its #! lines name each other more than 4 deep; name the interpreter directly", path.display())]
    ScriptLoop { path: PathBuf },
    #[error("cannot run {}: it is built for {machine}; Skein runs x86-64 programs", path.display())]
    Architecture { path: PathBuf, machine: String },
    #[error("cannot run {}: it is a Go program, which makes its system calls without the C library; Skein cannot make it deterministic", path.display())]
    Go { path: PathBuf },
    #[error("cannot run {}: it is statically linked, so Skein's runtime cannot be loaded into it; use a dynamically linked build", path.display())]
    Static { path: PathBuf },
    #[error("cannot run {}: its C library is not glibc (it asks for {loader}); use a build for glibc", path.display())]
    OtherLibc { path: PathBuf, loader: String },
    #[error("cannot run {}: it is {what}, so the kernel would not load Skein's runtime into it; use a copy without", path.display())]
    Privileged { path: PathBuf, what: &'static str },
    #[error("cannot run {}: the library {library} was not found; install it, or set LD_LIBRARY_PATH", path.display())]
    LibraryMissing { path: PathBuf, library: String },
    #[error("cannot run {}: its libraries cannot be listed: {reason}", path.display())]
    Loader { path: PathBuf, reason: String },
    #[error("cannot run {}: its C library is glibc {major}.{minor}; Skein needs 2.35 or newer", path.display())]
    GlibcTooOld { path: PathBuf, major: u32, minor: u32 },
    #[error("cannot run {}: its C library is glibc {major}.{minor}; Skein knows 2.35 to 2.43", path.display())]
    GlibcTooNew { path: PathBuf, major: u32, minor: u32 },
    #[error("cannot run {}: the version of its C library is unknown; Skein needs glibc 2.35 or newer", path.display())]
    GlibcUnknown { path: PathBuf },
}

impl ProgramError {
    /// The exit status of a command that could not run its program: 127 when it (or a part of it) was not found, else
    /// 126.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::LibraryMissing { .. } => 127,
            _ => 126,
        }
    }
}

/// The reason why the server could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The messages say what each one and its fields are.
pub enum LaunchError {
    #[error("cannot create namespaces for the server ({step}: {error}); {hint}")]
    Namespaces { step: &'static str, error: io::Error, hint: String },
    #[error("cannot put a private layer over {}: {error}; Skein needs overlayfs in user namespaces (Linux 5.11 or newer, 6.6 best)", path.display())]
    Overlay { path: PathBuf, error: io::Error },
    #[error("cannot prepare the server's file system ({what}): {error}")]
    FileSystem { what: String, error: io::Error },
    #[error("cannot enter the server's working directory {}: {error}; give one that it may enter", path.display())]
    WorkingDirectory { path: PathBuf, error: io::Error },
    #[error(
        "cannot set the server's {name} limit to {wanted}: {error}; raise the node's own hard limit (ulimit -H) or configure less"
    )]
    Limit { name: &'static str, wanted: u64, error: io::Error },
    #[error("the program {}, its interpreter or its loader is gone; it was there when it was inspected", path.display())]
    Vanished { path: PathBuf },
    #[error("cannot execute {}: {error}", path.display())]
    Exec { path: PathBuf, error: io::Error },
    #[error(
        "cannot trace the server's start ({step}: {error}); see the sysctl kernel.yama.ptrace_scope, and run the node under no debugger"
    )]
    Trace { step: &'static str, error: io::Error },
    #[error("cannot start the server ({step}): {error}")]
    Step { step: &'static str, error: io::Error },
    #[error("cannot start the server: {what} contains a zero byte")]
    ZeroByte { what: String },
    #[error("cannot start the server: descriptor {target} is given twice or is one of 0, 1, 2")]
    Target { target: i32 },
    #[error(
        "the server's sandbox ended before the server ran ({exit}); see the kernel's log for an out-of-memory kill"
    )]
    Ended { exit: super::Exit },
    #[error(
        "the server's sandbox was not ready after {timeout_s} s; see whether a mounted file system hangs"
    )]
    Timeout { timeout_s: u64 },
}

impl LaunchError {
    /// The exit status of a command that could not start its server: 127 program gone, 126 not executable, 125 else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Vanished { .. } => 127,
            Self::Exec { .. } => 126,
            _ => 125,
        }
    }
}
