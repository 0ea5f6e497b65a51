//! Stand-ins: copies of a server's processes that keep its private memory as it is while it goes on, so it stands only until they are made.
//!
//! ```text
//! node: borrows numbers, asks ......................... waits ... gives numbers back ... reads the stand-ins ... lets go of them
//! gate's carrier: wakes the others, forks; they fork ...                                  (the server has gone on)
//! stand-ins:                            close all, tell, sleep ........................................................ end
//! ```
//!
//! The runtime's side is `crates/runtime/src/process/stand_in.rs`; the words are in the arena ([`StandIns`](skein_arena::layout::StandIns)). A stand-in has numbers that the server
//! would not have come to, its origin's number in its name, none of its descriptors, and ends with its pid namespace, when the node lets go of it, and with the node. Not in it: memory that processes share, private
//! memory that a fork does not copy (`MADV_DONTFORK`, `MADV_WIPEONFORK`), and what the image before has ([`Spared`]).

use crate::futex::{wait, wake};
use crate::proc;
use crate::processes::{self, Process, first_number};
use crate::{MemoryError, Result};
use skein_arena::layout::{self, HEADER_BYTES, Header};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// A server of whose processes none has forked within this time stands for its image,
const FORK_WITHIN: Duration = Duration::from_millis(500);
/// and one whose processes have not all forked within this time: to read it takes time, too.
const ALL_WITHIN: Duration = Duration::from_secs(3);
/// How often is looked whether they have ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The gate's carrier is woken again after this time.
const WAKE_EVERY: Duration = Duration::from_millis(2);

/// Where numbers of processes are borrowed that the server would not come to.
pub trait SpareNumbers: std::fmt::Debug {
    /// New processes get numbers from `first` on.
    ///
    /// # Errors
    /// It is not possible, or not now.
    fn lend(&self, first: u32) -> io::Result<()>;
    /// The next number is again the one that it would have been.
    ///
    /// # Errors
    /// Nobody answers.
    fn give_back(&self) -> io::Result<()>;
}

/// Memory of a process that is not read from its stand-in, which does without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spared {
    /// Its number in the server.
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// So many of its pages would be copied.
    pub(crate) pages: u64,
}

/// The stand-ins of all processes of a server. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct StandIns<'a> {
    header: Mapped,
    numbers: &'a dyn SpareNumbers,
    processes: Vec<Process>,
    first: u32,
    wanted: u32,
    borrows: bool,
}

impl<'a> StandIns<'a> {
    /// Asks the server's processes, which sleep, to fork; without `spared`.
    ///
    /// # Errors
    /// Why there will be none.
    pub(crate) fn ask(
        arena: &File,
        numbers: &'a dyn SpareNumbers,
        processes: &[Process],
        spared: &[Spared],
    ) -> std::result::Result<Self, String> {
        let first =
            first_number().ok_or("the kernel's largest number of a process is not known")?;
        if processes.iter().any(|process| process.pid >= first) {
            return Err(format!("a process of the server has a number above {first}"));
        }
        has_room(processes)?;
        let header = Mapped::of(arena).map_err(|error| format!("the arena: {error}"))?;
        spare(&header.get().spared, spared);
        let words = &header.get().stand_ins;
        let wanted = words.asked.load(Ordering::Relaxed).wrapping_add(1).max(1);
        numbers.lend(first).map_err(|error| format!("numbers for them: {error}"))?;
        words.asked.store(wanted, Ordering::Relaxed);
        words.made.store(0, Ordering::Relaxed);
        words.failed.store(0, Ordering::Relaxed);
        words.kept.store(wanted, Ordering::Relaxed);
        words.wanted.store(wanted, Ordering::Release);
        let processes = processes.to_vec();
        let asked = Self { header, numbers, processes, first, wanted, borrows: true };
        wake(asked.header.get().server_gate.word());
        Ok(asked)
    }

    /// Waits until all are made.
    ///
    /// # Errors
    /// Why they are not; then no process forks any more.
    pub(crate) fn await_made(&mut self, deadline: Instant) -> std::result::Result<(), String> {
        let [made, failed] = self.settle(deadline.min(Instant::now() + ALL_WITHIN));
        let all = made == self.count();
        self.await_sleep(deadline).map_err(|error| error.to_string())?;
        self.return_numbers()
            .map_err(|error| format!("the numbers are not given back: {error}"))?;
        if all {
            return Ok(());
        }
        Err(format!("{made} of {} processes have forked, {failed} could not", self.count()))
    }

    fn count(&self) -> u32 {
        self.processes.len() as u32
    }

    /// One that is late may be forking; one that has forked takes back what it told the kernel for that.
    fn await_sleep(&self, deadline: Instant) -> Result<()> {
        self.processes.iter().try_for_each(|process| processes::await_sleep(process, deadline))
    }

    /// Waits until each process has forked, or has failed to: so many. None begins to from then on.
    fn settle(&self, deadline: Instant) -> [u32; 2] {
        let words = &self.header.get().stand_ins;
        let (mut seen, mut until) = (0, Instant::now() + FORK_WITHIN);
        let counts = loop {
            let made = words.made.load(Ordering::Acquire);
            let failed = words.failed.load(Ordering::Acquire);
            let (done, now) = (made.saturating_add(failed), Instant::now());
            if done > seen {
                (seen, until) = (done, now + FORK_WITHIN);
            }
            if done >= self.count() || now >= until.min(deadline) {
                break [made, failed];
            }
            if !wait(&words.made, made, WAKE_EVERY) {
                wake(self.header.get().server_gate.word());
            }
        };
        words.wanted.store(0, Ordering::Release);
        counts
    }

    /// Those of these processes, below `init`, in their order.
    pub(crate) fn of(&self, init: u32, processes: &[Process]) -> Result<Vec<Process>> {
        let by_origin = processes::stand_ins(init, self.first)?;
        let one = |process: &Process| {
            let gone =
                || MemoryError::CannotHold(format!("the copy of process {} is gone", process.pid));
            let host_pid = *by_origin.get(&process.pid).ok_or_else(gone)?;
            // Where memory is short it goes first. It works without that.
            let _ = fs::write(format!("/proc/{host_pid}/oom_score_adj"), "1000");
            Ok(Process { host_pid, ..process.clone() })
        };
        processes.iter().map(one).collect()
    }

    fn return_numbers(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.borrows) { self.numbers.give_back() } else { Ok(()) }
    }
}

impl Drop for StandIns<'_> {
    fn drop(&mut self) {
        let words = &self.header.get().stand_ins;
        if self.borrows {
            self.settle(Instant::now() + FORK_WITHIN);
            // Whoever does not is ending.
            let _ = self.await_sleep(Instant::now() + FORK_WITHIN);
        }
        if words.kept.load(Ordering::Relaxed) == self.wanted {
            words.kept.store(0, Ordering::Release);
        }
        wake(&words.kept);
        // Whoever does not answer is ending, and the server with it.
        let _ = self.return_numbers();
    }
}

/// Tells the processes what to spare.
fn spare(words: &layout::Spared, spared: &[Spared]) {
    let mut count = 0;
    for (word, one) in words.ranges.iter().zip(spared) {
        word.pid.store(one.pid.into(), Ordering::Relaxed);
        word.start.store(one.start, Ordering::Relaxed);
        word.end.store(one.end, Ordering::Relaxed);
        count += 1;
    }
    words.count.store(count, Ordering::Relaxed);
}

/// Waits until they are gone, which were let go: the next ones get their numbers. If they are not until `deadline`, there are no next ones for so long.
pub(crate) fn await_end(copies: &[Process], deadline: Instant) {
    let is_there = |copy: &Process| fs::exists(format!("/proc/{}", copy.host_pid)).unwrap_or(false);
    while copies.iter().any(is_there) && Instant::now() < deadline {
        thread::sleep(LOOK_EVERY);
    }
}

/// A server near its limit of processes would see them.
fn has_room(processes: &[Process]) -> std::result::Result<(), String> {
    let read = |pid: u32, name: &str| {
        let path = format!("/proc/{pid}/{name}");
        proc::text(&path).map_err(|error| format!("{path}: {error}"))
    };
    let mut tasks = 0;
    let mut least = u64::MAX;
    for process in processes {
        let limits = read(process.host_pid, "limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max processes"));
        let soft = line.and_then(|line| line.split_whitespace().next()).unwrap_or("0");
        least = least.min(if soft == "unlimited" { u64::MAX } else { soft.parse().unwrap_or(0) });
        let status = read(process.host_pid, "status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        tasks += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(1);
    }
    if least / 2 >= tasks + processes.len() as u64 {
        return Ok(());
    }
    Err(format!("its limit of processes, {least}, is too near"))
}

/// The arena's header.
#[derive(Debug)]
struct Mapped(NonNull<Header>);

// SAFETY: it owns its mapping, and the header is atomics.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn of(arena: &File) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is at least as long.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                HEADER_BYTES,
                access,
                libc::MAP_SHARED,
                arena.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(NonNull::new(at.cast()).expect("no mapping is at 0")))
    }

    fn get(&self) -> &Header {
        // SAFETY: mapped until this is dropped; any bytes are a header.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `of`, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), HEADER_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_another_one() {
        let own = std::process::id();
        let this = Process { pid: own, host_pid: own, command: String::new() };
        has_room(&[this]).unwrap();
    }
}
