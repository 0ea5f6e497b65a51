//! One thread a generation: it starts the server, waits for its end and reaps it. The reactor never waits for a process.
//!
//! The thread ends the server when its [`Keeper`] is dropped. When the node dies, the supervisor's own watch does.

use crate::error::NodeError;
use crate::supervisor::{Exit, Layer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Starts servers; one for each generation.
pub trait Launcher: Send + Sync {
    /// Starts a server that finds its arena and the node's eventfd.
    ///
    /// # Errors
    /// It cannot be started.
    fn launch(
        &self,
        arena: BorrowedFd<'_>,
        wake: BorrowedFd<'_>,
    ) -> Result<Box<dyn Running>, NodeError>;
    /// What must be the same on all replicas: the program, its libraries, arguments and environment.
    fn program_hash(&self) -> [u8; 32];
}

/// A server that was started. Dropping it kills it.
pub trait Running: Send {
    /// Its process; 0 if it has none of its own.
    fn pid(&self) -> u32;
    /// What it writes, if that is kept apart.
    fn layer(&self) -> Option<Arc<Layer>> {
        None
    }
    /// Readable when it has ended.
    fn exit_fd(&self) -> BorrowedFd<'_>;
    /// Waits for its end.
    ///
    /// # Errors
    /// As `waitpid`.
    fn wait(&mut self) -> io::Result<Exit>;
    /// Kills it and everything that it started.
    ///
    /// # Errors
    /// As `kill`.
    fn kill(&mut self) -> io::Result<()>;
}

impl Running for crate::supervisor::ServerProcess {
    fn pid(&self) -> u32 {
        self.pid()
    }
    fn layer(&self) -> Option<Arc<Layer>> {
        self.layer()
    }
    fn exit_fd(&self) -> BorrowedFd<'_> {
        self.exit_fd()
    }
    fn wait(&mut self) -> io::Result<Exit> {
        self.wait()
    }
    fn kill(&mut self) -> io::Result<()> {
        self.kill()
    }
}

/// What happened to a server's process.
#[derive(Debug)]
pub enum ServerEvent {
    /// It runs.
    Launched {
        /// Its process.
        pid: u32,
        /// What it writes.
        layer: Option<Arc<Layer>>,
    },
    /// It could not be started.
    Failed(NodeError),
    /// It ended, with this status as `waitpid` reports it.
    Ended {
        /// The status.
        status: i32,
    },
}

/// Holds a generation's process: dropped, the process is killed.
#[derive(Debug)]
pub struct Keeper {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts a server on a thread of its own; `tell` is called there.
    ///
    /// # Errors
    /// No thread or socket can be made.
    pub fn start(
        launcher: Arc<dyn Launcher>,
        arena: OwnedFd,
        wake: OwnedFd,
        tell: impl Fn(ServerEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread = Builder::new().name("skein-server".into()).spawn(move || {
            let mut running = match launcher.launch(arena.as_fd(), wake.as_fd()) {
                Ok(running) => running,
                Err(error) => return tell(ServerEvent::Failed(error)),
            };
            tell(ServerEvent::Launched { pid: running.pid(), layer: running.layer() });
            tell(ServerEvent::Ended { status: keep(&mut *running, &stopped) });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Kills the server without waiting for its end.
    pub fn kill(&mut self) {
        self.stop = None;
    }

    /// Kills the server and waits until it is gone.
    pub fn finish(mut self) {
        self.kill();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(running: &mut dyn Running, stopped: &UnixStream) -> i32 {
    loop {
        let mut waiting = [
            PollFd::new(running.exit_fd(), PollFlags::POLLIN),
            PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
        ];
        // An interrupted wait is tried again; any other failure would repeat, and the server is not to outlive its keeper.
        let failed =
            !matches!(poll(&mut waiting, PollTimeout::NONE), Ok(_) | Err(nix::errno::Errno::EINTR));
        let is_set = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let (ended, told) = (is_set(&waiting[0]), is_set(&waiting[1]) || failed);
        if told {
            let _ = running.kill();
        }
        if ended || told {
            return match running.wait() {
                Ok(Exit::Code(code)) => code << 8,
                Ok(Exit::Signal(signal)) => signal,
                Err(_) => libc::SIGKILL,
            };
        }
    }
}
