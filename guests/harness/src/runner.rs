//! Runs one program once: natively, under Skein, or for its time.

use crate::launch::{self, Launch};
use crate::node::{Account, End, Node, ORDINARY, Role};
use crate::script::Script;
use crate::sys;
use crate::trace::Trace;
use skein_sched::trace::Event;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// A guest that runs natively for this long is given up.
const NATIVE_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Output {
    stdout: File,
    stderr: File,
}

impl Output {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { stdout: sys::printed(c"stdout")?, stderr: sys::printed(c"stderr")? })
    }

    pub(crate) fn texts(mut self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let read = |file: &mut File| -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        Ok((read(&mut self.stdout)?, read(&mut self.stderr)?))
    }

    pub(crate) fn launch<'a>(&'a self, program: &'a Path, args: &'a [String]) -> Launch<'a> {
        let (stdout, stderr) = (self.stdout.as_fd(), self.stderr.as_fd());
        let no_cpuid_faulting = false;
        Launch {
            program,
            args,
            stdout,
            stderr,
            skein: None,
            trace: None,
            restore: None,
            sandbox: None,
            no_cpuid_faulting,
        }
    }
}

/// The results of a run.
#[derive(Debug)]
pub struct Run {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// The rest.
    pub account: Account,
    /// The recorded operations, if requested.
    pub trace: Option<Vec<Event>>,
}

/// The results of a native run.
#[derive(Debug)]
pub struct Native {
    /// The wait status; none if it was given up.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Native {
    /// What is wrong with its end.
    pub fn wrong(&self) -> Option<String> {
        let how = match self.status {
            Some(0) => return None,
            Some(status) => format!("ends with {}", status_words(status)),
            None => format!("does not end{}", last_line(&self.stdout)),
        };
        Some(format!("natively it {how}: {}", String::from_utf8_lossy(&self.stderr)))
    }
}

/// Runs a guest natively with these arguments.
///
/// # Errors
/// It cannot be started.
pub fn native(program: &Path, args: &[String]) -> io::Result<Native> {
    let output = Output::new()?;
    let mut guest = launch::Guest::start(&output.launch(program, args))?;
    let started = Instant::now();
    let mut ended = sys::is_readable(guest.ended_fd())?;
    while !ended && started.elapsed() < NATIVE_LIMIT {
        sys::wait_readable([guest.ended_fd(), guest.ended_fd()], 1000)?;
        ended = sys::is_readable(guest.ended_fd())?;
    }
    let status = if ended { Some(guest.wait()?) } else { None };
    drop(guest);
    let (stdout, stderr) = output.texts()?;
    Ok(Native { status, stdout, stderr })
}

/// How a guest runs under Skein.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Until a thread that spins is named.
    pub stop_at_spin: bool,
    /// As on a processor that cannot fault on `cpuid`.
    pub no_cpuid_faulting: bool,
    /// Its operations are recorded.
    pub traced: bool,
    /// As [`Launch::sandbox`].
    pub sandbox: Option<&'a Path>,
}

/// Runs a guest under Skein with these arguments.
///
/// # Errors
/// It cannot be started, or damages its arena.
pub fn skein(
    program: &Path,
    args: &[String],
    library: &Path,
    role: Role,
    how: How<'_>,
) -> io::Result<Run> {
    let output = Output::new()?;
    let no_cpuid_faulting = how.no_cpuid_faulting;
    let trace = how.traced.then(Trace::new).transpose()?;
    let descriptor = trace.as_ref().map(Trace::descriptor);
    let (trace_to, sandbox) = (descriptor, how.sandbox);
    let launch = output.launch(program, args);
    let launch = Launch { no_cpuid_faulting, trace: trace_to, sandbox, ..launch };
    let node = Node::start(&launch, library, role)?;
    let account = node.run(how.stop_at_spin)?;
    let (stdout, stderr) = output.texts()?;
    let trace = trace.map(|trace| trace.events()).transpose()?;
    Ok(Run { stdout, stderr, account, trace })
}

/// Runs a program under Skein as a leader; answers its run time, from its start to its end with status 0.
///
/// # Errors
/// It cannot be started, or ends otherwise.
pub fn timed(program: &Path, args: &[String], library: &Path) -> io::Result<Duration> {
    let output = Output::new()?;
    let launch = output.launch(program, args);
    let began = Instant::now();
    let node = Node::start(&launch, library, Role::Leader(Script::default(), ORDINARY))?;
    let account = node.run(false)?;
    let took = began.elapsed();
    let (_, stderr) = output.texts()?;
    match account.end {
        End::Status(0) => Ok(took),
        end => Err(io::Error::other(format!("it ended with {end:?}: {}", tail(&stderr)))),
    }
}

/// The last lines of an output.
pub(crate) fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(4)..].join("\n    ")
}

/// The last line of an output that stops too early; a guest of sequences tells by it which one it is in.
pub(crate) fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .last()
        .map_or(String::new(), |line| format!(" (the last line that it wrote: {line})"))
}

/// A wait status.
pub(crate) fn status_words(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("signal {}", libc::WTERMSIG(status))
    } else {
        format!("status {}", libc::WEXITSTATUS(status))
    }
}
