//! gdb at a server that stands before an entry: its script, and the pipe by which it asks for more entries.
//!
//! The server lives in namespaces of its own and its threads on one kernel thread of each process. So gdb is told where to find its files, which
//! signals are the runtime's, and, by `skein.py`, where in the arena the threads are. While gdb runs, this process feeds the server: `skein next` in
//! gdb writes a line into a pipe; after the server has executed the entries, it gets a signal that only gdb sees.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use nix::sys::stat::Mode;
use skein_model::LogIndex;
use skein_model::limits::SPIN_SIGNAL;
use skein_node::memory::{self, Process, ServerMemory, threads};
use skein_node::replay::{Came, Replay};

use super::{Session, failed};
use crate::failure::Failure;

/// Commands for gdb: `skein threads`, `skein bt`, `skein next`.
const SCRIPT: &str = include_str!("skein.py");
/// The signal that tells gdb that the server stands again: no program uses it, and it never reaches the server.
const STANDS_SIGNAL: i32 = 50;

/// Whether there is a gdb.
pub fn find() -> Result<(), Failure> {
    match Command::new("gdb").arg("--version").output() {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new("gdb", error, "install gdb, or leave out --gdb")),
    }
}

/// A directory for the script and the pipe; removed when this is dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let name = format!("skein-replay-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                // A killed process of the same number left it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 99 => {
                    number += 1;
                }
                made => return made.map(|()| Self(path)),
            }
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A reboot removes it otherwise.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs gdb on the server; returns when that has ended.
pub fn attach(
    session: &mut Session<'_>,
    run: &mut Replay,
    memory: &ServerMemory,
) -> Result<u8, Failure> {
    let process = choose(session, run, memory)?;
    let place = Place::new().map_err(failed)?;
    let (script, asks) = (place.at("skein.py"), place.at("asks"));
    fs::write(&script, SCRIPT).map_err(failed)?;
    nix::unistd::mkfifo(&asks, Mode::S_IRUSR | Mode::S_IWUSR).map_err(failed)?;
    let commands = place.at("commands.gdb");
    fs::write(&commands, commands_for(&process, memory, &script, &asks)?).map_err(failed)?;
    // Also open for writing, so that it never ends.
    let pipe = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&asks);
    let pipe = pipe.map_err(failed)?;
    let mut gdb = Command::new("gdb")
        .args(["-q", "-x"])
        .arg(&commands)
        .args(&session.args.gdb_args)
        .spawn()
        .map_err(|error| Failure::new("gdb", error, "install gdb, or leave out --gdb"))?;
    let mut feeder = Feeder { pipe, process, busy: false, ended: false };
    let status = loop {
        if let Some(status) = gdb.try_wait().map_err(failed)? {
            break status;
        }
        // Ctrl-C is gdb's: it stops the server.
        session.interrupted.store(false, Ordering::Relaxed);
        feeder.look(session, run)?;
    };
    Ok(if status.success() { 0 } else { crate::failure::EXIT_USAGE })
}

/// The process that takes the next entry, unless the user named another one.
fn choose(session: &Session<'_>, run: &Replay, memory: &ServerMemory) -> Result<Process, Failure> {
    let wanted = session.args.pid.unwrap_or(run.place().carrier);
    let processes = memory::below(memory.init).map_err(failed)?;
    let known: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
    processes.into_iter().find(|process| process.pid == wanted).ok_or_else(|| {
        let why = "the server has no such process here";
        Failure::new(format!("--pid {wanted}"), why, format!("it has {}", known.join(", ")))
    })
}

fn commands_for(
    process: &Process,
    memory: &ServerMemory,
    script: &Path,
    asks: &Path,
) -> Result<String, Failure> {
    let places = threads::for_script(memory).map_err(failed)?;
    let (host, asks) = (process.host_pid, asks.display());
    Ok(format!(
        "set confirm off
set pagination off
set sysroot /proc/{host}/root
set auto-load libthread-db off
python
try:
    gdb.execute('set debuginfod enabled off')
except gdb.error:
    pass
end
handle SIGSYS SIG{SPIN_SIGNAL} nostop noprint pass
handle SIGSEGV nostop noprint pass
handle SIG{STANDS_SIGNAL} stop print nopass
attach {host}
python
SKEIN = dict({places}, host={host}, here={here}, asks='{asks}')
end
source {script}
",
        here = process.pid,
        script = script.display(),
    ))
}

/// Feeds the server on gdb's requests.
struct Feeder {
    pipe: File,
    process: Process,
    /// It was given entries and does not stand yet.
    busy: bool,
    ended: bool,
}

impl Feeder {
    fn look(&mut self, session: &mut Session<'_>, run: &mut Replay) -> Result<(), Failure> {
        let mut bytes = [0; 64];
        if let Ok(len @ 1..) = (&self.pipe).read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..len]);
            let next = run.next_entry().map_err(failed)?;
            let until = match (text.trim(), next) {
                ("all", _) | (_, None) => None,
                (count, Some((next, _))) => {
                    Some(LogIndex(next.0 + count.parse::<u64>().unwrap_or(1)))
                }
            };
            run.go_on_until(until);
            self.busy = true;
        }
        session.output.pump();
        if self.ended {
            // gdb must still report.
            std::thread::sleep(std::time::Duration::from_millis(5));
            return Ok(());
        }
        if !self.busy {
            self.ended = run.attend().map_err(failed)?.is_some();
            return Ok(());
        }
        // Two looks at a time: gdb may ask, or end, meanwhile.
        let mut looks = 0;
        let came = run.go(|_| {
            looks += 1;
            looks < 2
        });
        match came.map_err(failed)? {
            Came::Stopped => {}
            Came::Stands => {
                self.busy = false;
                self.tell();
            }
            Came::Ended(_) => (self.busy, self.ended) = (false, true),
            Came::Differs(mismatch) => {
                println!("differs {}", super::difference(&mismatch));
                self.busy = false;
                self.tell();
            }
            Came::HostFile(text) => {
                println!("differs {text}");
                self.busy = false;
                self.tell();
            }
        }
        Ok(())
    }

    /// Has gdb stop the server.
    fn tell(&self) {
        let pid = self.process.host_pid as libc::pid_t;
        // SAFETY: takes no pointers. A process that is gone has been seen by gdb.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, STANDS_SIGNAL) };
    }
}
