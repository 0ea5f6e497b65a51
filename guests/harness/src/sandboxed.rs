//! A guest in the sandbox that servers run in, with a private layer over the host's files, instead of the harness's own surroundings.

use crate::launch::{self, Launch};
use skein_arena::layout::{ARENA_FD, TRACE_FD, WAKE_FD};
use skein_model::limits;
use skein_sandbox::{Exit, Isolation, LaunchSpec, Layer, Limits, ServerProcess, SpareNumbers};
use std::io::{self, Error};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;

/// The most bytes that it writes.
const LAYER_BYTES: u64 = 256 << 20;

/// A started guest; killed and reaped when dropped.
#[derive(Debug)]
pub struct Sandboxed {
    process: ServerProcess,
    layer: Arc<Layer>,
}

impl Sandboxed {
    /// Starts a guest that works in this directory.
    ///
    /// # Errors
    /// The sandbox cannot be made, or the program not be executed.
    pub fn start(launch: &Launch<'_>, directory: &Path) -> io::Result<Self> {
        let (library, arena, wake) =
            launch.skein.ok_or_else(|| Error::other("a guest in the sandbox has the runtime"))?;
        let mut env = vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("LC_ALL".into(), "C".into()),
            ("LD_PRELOAD".into(), library.into()),
        ];
        if launch.no_cpuid_faulting {
            let name = limits::NO_CPUID_FAULTING.to_string_lossy();
            env.push((name.into_owned().into(), "1".into()));
        }
        let mut inherit = vec![(arena, ARENA_FD), (wake, WAKE_FD)];
        inherit.extend(launch.trace.map(|trace| (trace, TRACE_FD)));
        let mut argv = vec![launch.program.into()];
        argv.extend(launch.args.iter().map(Into::into));
        let process = skein_sandbox::launch(&LaunchSpec {
            program: launch.program,
            argv,
            env,
            cwd: directory,
            inherit,
            stdout: launch.stdout,
            stderr: launch.stderr,
            hostname: "skein",
            layer_bytes: LAYER_BYTES,
            layer_dir: None,
            writable: Vec::new(),
            limits: Limits::default(),
            isolation: Isolation::Full,
            pins: skein_sandbox::Pins::default(),
            restore: launch.restore,
            random: *b"skein replicates",
        });
        let process = process.map_err(Error::other)?;
        let layer = process.layer().ok_or_else(|| Error::other("the sandbox has no layer"))?;
        Ok(Self { process, layer })
    }

    /// Readable when it has ended.
    #[must_use]
    pub fn ended_fd(&self) -> RawFd {
        self.process.exit_fd().as_raw_fd()
    }

    /// Waits for its end; its wait status.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(&mut self) -> io::Result<i32> {
        Ok(match self.process.wait()? {
            Exit::Code(code) => code << 8,
            Exit::Signal(signal) => signal,
        })
    }

    /// Sends a signal to one of its threads; false when there is none of that number.
    #[must_use]
    pub fn signal_thread(&self, tid: u32, signal: i32) -> bool {
        launch::signal_thread(self.init(), tid, signal)
    }

    /// The parent of its processes.
    #[must_use]
    pub fn init(&self) -> u32 {
        self.process.init()
    }

    /// Where numbers for copies of its processes come from.
    #[must_use]
    pub fn numbers(&self) -> Option<Numbers> {
        self.process.spare_numbers().map(Numbers)
    }

    /// Its files.
    #[must_use]
    pub fn layer(&self) -> &Layer {
        &self.layer
    }
}

/// Numbers for copies of a guest's processes.
#[derive(Debug)]
pub struct Numbers(Arc<SpareNumbers>);

impl skein_image::SpareNumbers for Numbers {
    fn lend(&self, first: u32) -> io::Result<()> {
        self.0.lend(first).map(drop)
    }

    fn give_back(&self) -> io::Result<()> {
        self.0.give_back()
    }
}
