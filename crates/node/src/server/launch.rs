//! One thread a generation: it starts the server, waits for its end and reaps it. The reactor never waits for a process.
//!
//! The thread ends the server when its [`Keeper`] is dropped. When the node dies, the supervisor's own watch does.

use crate::base::Base;
use crate::base::work::Found;
use crate::error::NodeError;
use crate::images::Restart;
use crate::images::restart::{RestartError, Unpacked};
use crate::import::Import;
use crate::server::layers::LayerDir;
use crate::server::memory::Outfit;
use crate::server::printed::Printed;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skein_replica::server::{Files, Passage, ServerEvent};
use skein_sandbox::{Exit, Layer, ServerProcess, SpareNumbers};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Starts servers; one for each generation.
pub trait Launcher: Send + Sync {
    /// Starts a server that finds its arena and the node's eventfd; with a restore file, it continues from that when it gets its first entry.
    ///
    /// # Errors
    /// It cannot be started.
    fn launch(
        &self,
        arena: BorrowedFd<'_>,
        wake: BorrowedFd<'_>,
        restore: Option<BorrowedFd<'_>>,
    ) -> Result<Box<dyn Running>, NodeError>;
    /// Waits for files of the next server that are on their way, as long as it is wanted.
    fn await_files(&self, _is_wanted: &dyn Fn() -> bool) {}
    /// Gets what a launch needs and is not here.
    ///
    /// # Errors
    /// It cannot be had.
    fn prepare(&self) -> Result<(), NodeError> {
        Ok(())
    }
    /// The parts that must be equal on all replicas: the program, its libraries, arguments and environment.
    fn program_hash(&self) -> [u8; 32];
    /// The same with what must be equal as long as replicas run at the same time.
    fn common_hash(&self) -> [u8; 32] {
        self.program_hash()
    }
    /// The files that a server begins with, if there are some.
    fn import(&self) -> Option<&Import> {
        None
    }
    /// What starts servers of another edition, which is found out at the start.
    fn of_edition(&self, about: &str) -> Arc<dyn Launcher> {
        Arc::new(NoEdition(about.to_owned()))
    }
    /// Where what a server uses of its host is kept, and its program, if that is not there yet.
    fn base(&self) -> Option<(Arc<Base>, Option<Found>)> {
        None
    }
}

/// Refuses each start: what makes servers knows no editions.
struct NoEdition(String);

impl Launcher for NoEdition {
    fn launch(
        &self,
        _: BorrowedFd<'_>,
        _: BorrowedFd<'_>,
        _: Option<BorrowedFd<'_>>,
    ) -> Result<Box<dyn Running>, NodeError> {
        Err(NodeError::Edition { about: self.0.clone(), why: "it is not known here".into() })
    }

    fn program_hash(&self) -> [u8; 32] {
        [0; 32]
    }
}

/// A started server. Dropping it kills it.
pub trait Running: Send {
    /// Its process; 0 if it has no process of its own.
    fn pid(&self) -> u32;
    /// The parent of all its processes; 0 if there is none.
    fn init(&self) -> u32 {
        0
    }
    /// Its private layer, if it has one.
    fn layer(&self) -> Option<Arc<Layer>> {
        None
    }
    /// Where numbers for copies of its processes come from, if it has a pid namespace.
    fn spare_numbers(&self) -> Option<Arc<SpareNumbers>> {
        None
    }
    /// What it was given as standard output and standard error, if an image of it can be taken.
    fn given(&self) -> Option<OwnedFd> {
        None
    }
    /// Its output, if its keeper must pass that on.
    fn printed(&mut self) -> Option<Printed> {
        None
    }
    /// Readable when it has ended.
    fn exit_fd(&self) -> BorrowedFd<'_>;
    /// Waits for its end.
    ///
    /// # Errors
    /// As `waitpid`.
    fn wait(&mut self) -> io::Result<Exit>;
    /// Kills it and all its descendants.
    ///
    /// # Errors
    /// As `kill`.
    fn kill(&mut self) -> io::Result<()>;
}

/// A process, and its output until its keeper has that.
pub(super) struct Started {
    pub(super) process: ServerProcess,
    pub(super) printed: Option<Printed>,
    /// Removed behind the process.
    pub(super) _layer: Option<LayerDir>,
}

impl Running for Started {
    fn pid(&self) -> u32 {
        self.process.pid()
    }
    fn init(&self) -> u32 {
        self.process.init()
    }
    fn layer(&self) -> Option<Arc<Layer>> {
        self.process.layer()
    }
    fn spare_numbers(&self) -> Option<Arc<SpareNumbers>> {
        self.process.spare_numbers()
    }
    fn given(&self) -> Option<OwnedFd> {
        self.printed.as_ref()?.descriptor().try_clone_to_owned().ok()
    }
    fn printed(&mut self) -> Option<Printed> {
        self.printed.take()
    }
    fn exit_fd(&self) -> BorrowedFd<'_> {
        self.process.exit_fd()
    }
    fn wait(&mut self) -> io::Result<Exit> {
        self.process.wait()
    }
    fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }
}

/// Holds a generation's process: dropped, the process is killed.
#[derive(Debug)]
pub struct Keeper {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts a server on a thread of its own, perhaps from an image; `tell` is called there.
    ///
    /// # Errors
    /// No thread or socket can be made.
    pub fn start(
        launcher: Arc<dyn Launcher>,
        arena: OwnedFd,
        wake: OwnedFd,
        passage: Arc<Passage>,
        from: Option<Restart>,
        tell: impl Fn(ServerEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let thread = Builder::new().name("skein-server".into()).spawn(move || {
            launcher.await_files(&|| !is_told(&stopped));
            if is_told(&stopped) {
                return tell(ServerEvent::Ended { status: libc::SIGKILL });
            }
            let started = start(&*launcher, arena.as_fd(), wake.as_fd(), from, &stopped);
            let (mut running, image) = match started {
                Ok(started) => started,
                Err(event) => return tell(event),
            };
            let (pid, init) = (running.pid(), running.init());
            let files = Outfit::of(&*running).map(|outfit| Arc::new(outfit) as Files);
            let mut output = Output { printed: running.printed(), passage };
            tell(ServerEvent::Launched { pid, init, files });
            let is_wanted = || is_wanted(&*running, &stopped);
            let given = image.map(|image| image.give_pages(arena.as_fd(), init, &is_wanted));
            if let Some(Err(error)) = given {
                end(&mut *running);
                return tell(not_restored(&error));
            }
            let status = keep(&mut *running, &stopped, &mut output);
            output.printed.iter_mut().for_each(Printed::ended);
            let waits = output.copy();
            tell(ServerEvent::Ended { status });
            if waits {
                output.wait(&stopped);
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Whether its thread is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
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

/// Waits for its end, so that it is gone when the next one is started. What fails here fails because it has ended.
fn end(running: &mut dyn Running) {
    let _ = running.kill();
    let _ = running.wait();
}

/// Whether its keeper was told to end it.
fn is_told(stopped: &UnixStream) -> bool {
    let mut told = [PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
    !matches!(poll(&mut told, PollTimeout::ZERO), Ok(0) | Err(nix::errno::Errno::EINTR))
}

/// Whether it still runs, and its keeper was not told to end it.
fn is_wanted(running: &dyn Running, stopped: &UnixStream) -> bool {
    let mut over = [
        PollFd::new(running.exit_fd(), PollFlags::POLLIN),
        PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
    ];
    matches!(poll(&mut over, PollTimeout::ZERO), Ok(0) | Err(nix::errno::Errno::EINTR))
}

fn not_restored(error: &RestartError) -> ServerEvent {
    let damaged = matches!(error, RestartError::Image(error) if error.is_damage());
    ServerEvent::NotRestored { why: error.to_string(), damaged }
}

/// Held by whoever launches a server.
static LAUNCHING: Mutex<()> = Mutex::new(());

/// A server that has all that it needs to get its first entry, and the image that has its pages; or what is to be told instead.
fn start(
    launcher: &dyn Launcher,
    arena: BorrowedFd<'_>,
    wake: BorrowedFd<'_>,
    from: Option<Restart>,
    stopped: &UnixStream,
) -> Result<(Box<dyn Running>, Option<Unpacked>), ServerEvent> {
    let unusable = |error: RestartError| match error {
        // The image is as it should be.
        RestartError::Setting { .. } => {
            ServerEvent::Failed(NodeError::Setting { why: error.to_string() }.into())
        }
        error => not_restored(&error),
    };
    let mut image = from.map(|from| from.unpack(arena)).transpose().map_err(unusable)?;
    let restore = image.as_ref().and_then(Unpacked::memory);
    launcher.prepare().map_err(|error| ServerEvent::Failed(error.into()))?;
    let launching = LAUNCHING.lock().unwrap_or_else(PoisonError::into_inner);
    // To read an image takes long: what it would lay for its server would replace what the next one's has by now.
    if is_told(stopped) {
        return Err(ServerEvent::Ended { status: libc::SIGKILL });
    }
    let mut running =
        launcher.launch(arena, wake, restore).map_err(|error| ServerEvent::Failed(error.into()))?;
    drop(launching);
    let layer = running.layer();
    let given = match (&mut image, launcher.import()) {
        (Some(image), _) => image.give_files(layer.as_deref()).map_err(unusable),
        (None, Some(import)) => {
            import.give(layer.as_deref()).map_err(|error| ServerEvent::Failed(error.into()))
        }
        (None, None) => Ok(()),
    };
    if let Err(event) = given {
        end(&mut *running);
        return Err(event);
    }
    Ok((running, image))
}

/// The server's output on its way out.
struct Output {
    printed: Option<Printed>,
    passage: Arc<Passage>,
}

impl Output {
    /// Passes on released output; true while some waits.
    fn copy(&mut self) -> bool {
        self.printed.as_mut().is_some_and(|printed| printed.copy(&self.passage))
    }

    /// When to call again.
    fn next(&mut self) -> PollTimeout {
        self.copy();
        match &self.printed {
            Some(printed) => {
                printed.next_look(Instant::now()).try_into().unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        }
    }

    /// For a server that has ended: passes on the rest when it is released, unless the keeper is told to end.
    fn wait(&mut self, stopped: &UnixStream) {
        let told = |timeout| {
            let mut waiting = [PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
            !matches!(poll(&mut waiting, timeout), Ok(0) | Err(nix::errno::Errno::EINTR))
        };
        while self.copy() {
            let timeout = self.next();
            if told(timeout) {
                self.copy();
                return;
            }
        }
    }
}

fn keep(running: &mut dyn Running, stopped: &UnixStream, output: &mut Output) -> i32 {
    loop {
        let timeout = output.next();
        let mut waiting = [
            PollFd::new(running.exit_fd(), PollFlags::POLLIN),
            PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
        ];
        // An interrupted wait is retried; any other failure would repeat, and the server must not outlive its keeper.
        let failed = !matches!(poll(&mut waiting, timeout), Ok(_) | Err(nix::errno::Errno::EINTR));
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
