//! The node processes: starts them, notices their ends, restarts them, stops them in order.
//!
//! Each node is a child in a process group of its own (Ctrl-C in a terminal reaches `skein run` only, which stops them in
//! order) and asks the kernel to be killed when its parent dies, however that happens. That request is bound to the
//! *thread* that started the child, so all starts happen on the main thread.

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use skein_node::durable;

use crate::end::End;
use crate::paths;

/// The pause before a node is started again that ends for the second time; it doubles with every end. The first time there is none.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A node that lived this long has recovered: its next end is a first one again.
const RECOVERED: Duration = Duration::from_secs(30);

/// How long nodes get to stop in order before they are killed.
pub const STOP_LIMIT: Duration = Duration::from_secs(8);

/// The longest time that a server may outlive its node before it is no longer waited for.
const ORPHAN_LIMIT: Duration = Duration::from_secs(3);

/// The parameters of a node's start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The replica.
    pub id: u64,
    /// Its configuration file,
    pub config: PathBuf,
    /// and what that says.
    pub settings: String,
    /// The file for its events: its standard error.
    pub log: PathBuf,
    /// The file for the report of its end.
    pub end: PathBuf,
}

#[derive(Debug)]
struct Slot {
    plan: Plan,
    child: Option<Child>,
    started: Instant,
    pause: Duration,
    again: Option<Instant>,
}

/// A node that ended.
#[derive(Debug)]
pub struct Ended {
    /// The replica.
    pub id: u64,
    /// Its report.
    pub end: Option<End>,
    /// Its end in words.
    pub how: String,
}

/// All nodes of this machine.
#[derive(Debug)]
pub struct Children {
    slots: Vec<Slot>,
    exe: PathBuf,
}

impl Children {
    /// No node runs yet.
    pub fn new(plans: Vec<Plan>) -> io::Result<Self> {
        // Orphans of a killed node come to this process, not to the machine's init.
        nix::sys::prctl::set_child_subreaper(true)?;
        let now = Instant::now();
        let slot = |plan| Slot {
            plan,
            child: None,
            started: now,
            pause: Duration::ZERO,
            again: Some(now),
        };
        Ok(Self { slots: plans.into_iter().map(slot).collect(), exe: std::env::current_exe()? })
    }

    /// Starts nodes whose pause is over; answers their ids.
    pub fn start_due(&mut self, now: Instant) -> Vec<(u64, io::Result<()>)> {
        let mut started = Vec::new();
        for slot in &mut self.slots {
            if slot.child.is_some() || slot.again.is_none_or(|again| again > now) {
                continue;
            }
            slot.again = None;
            slot.started = now;
            let result = spawn(&self.exe, &slot.plan);
            let result = result.map(|child| slot.child = Some(child));
            if result.is_err() {
                slot.put_off(now);
            }
            started.push((slot.plan.id, result));
        }
        started
    }

    /// Collects those that ended.
    pub fn reap(&mut self) -> Vec<Ended> {
        self.reap_orphans();
        let mut ended = Vec::new();
        for slot in &mut self.slots {
            let Some(child) = &mut slot.child else { continue };
            let Ok(Some(status)) = child.try_wait() else { continue };
            slot.child = None;
            ended.push(Ended {
                id: slot.plan.id,
                end: End::take(&slot.plan.end),
                how: describe(status),
            });
        }
        ended
    }

    /// Restarts an ended node, after a pause if it ends again and again; answers the pause.
    pub fn again(&mut self, id: u64, now: Instant) -> Duration {
        match self.slots.iter_mut().find(|slot| slot.plan.id == id) {
            Some(slot) => slot.put_off(now),
            None => Duration::ZERO,
        }
    }

    /// When the next one is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.again).min()
    }

    /// The number of its starts.
    pub fn running(&self) -> Vec<u64> {
        self.slots.iter().filter(|slot| slot.child.is_some()).map(|slot| slot.plan.id).collect()
    }

    /// Sends a signal to one node.
    pub fn signal(&self, id: u64, signal: Signal) {
        for slot in self.slots.iter().filter(|slot| slot.plan.id == id) {
            if let Some(child) = &slot.child {
                // The child is not reaped yet, so its id is still its own; it may be gone already, which is fine.
                let _ = kill(Pid::from_raw(child.id() as i32), signal);
            }
        }
    }

    /// Stops all in order: first the followers, then the leader, so that no election starts meanwhile. `cut_short` answers
    /// whether the user pressed Ctrl-C again. Answers those that were killed.
    pub fn stop(&mut self, leader: Option<u64>, mut cut_short: impl FnMut() -> bool) -> Vec<u64> {
        for slot in &mut self.slots {
            slot.again = None;
        }
        let (last, first): (Vec<u64>, Vec<u64>) =
            self.running().into_iter().partition(|id| Some(*id) == leader);
        for group in [first, last] {
            for id in &group {
                self.signal(*id, Signal::SIGTERM);
                self.signal(*id, Signal::SIGCONT);
            }
            let limit = Instant::now() + STOP_LIMIT;
            while self.some_run(&group) && Instant::now() < limit && !cut_short() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.reap();
        let late = self.running();
        for id in &late {
            self.signal(*id, Signal::SIGKILL);
        }
        for slot in &mut self.slots {
            if let Some(mut child) = slot.child.take() {
                // SIGKILL was sent: the wait is short, and there is nothing to do about an error.
                let _ = child.wait();
            }
        }
        self.wait_for_orphans(Instant::now() + ORPHAN_LIMIT);
        late
    }

    /// Collects orphans of dead nodes from this process, which is their subreaper: the init of a server's sandbox.
    fn reap_orphans(&self) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while let Ok(status) = waitid(Id::All, flags) {
            let Some(pid) = status.pid() else { return };
            let ours =
                |slot: &Slot| slot.child.as_ref().is_some_and(|c| c.id() as i32 == pid.as_raw());
            if self.slots.iter().any(ours) {
                // A node: `reap` asks for it by its id. Orphans behind it are collected at the next call.
                return;
            }
            // It has ended, so this does not wait, and no other code knows its number.
            let _ = waitpid(pid, None);
        }
    }

    /// Waits until all descendants of this process are gone: a server outlives its node for the moment that its sandbox's init
    /// takes to notice.
    fn wait_for_orphans(&self, limit: Instant) {
        while Instant::now() < limit {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(2)),
                Ok(_) => {}
                // No child is left.
                Err(_) => return,
            }
        }
    }

    fn some_run(&mut self, ids: &[u64]) -> bool {
        self.reap();
        self.running().iter().any(|id| ids.contains(id))
    }
}

impl Slot {
    fn put_off(&mut self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.started) > RECOVERED {
            self.pause = Duration::ZERO;
        }
        let pause = self.pause;
        self.again = Some(now + pause);
        self.pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        pause
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by {}", signal.as_str()),
            Err(_) => format!("killed by signal {number}"),
        },
        _ => "in an unknown way".into(),
    }
}

fn spawn(exe: &std::path::Path, plan: &Plan) -> io::Result<Child> {
    // Its disk may have been lost since this process wrote it.
    if !plan.config.exists() {
        plan.config.parent().map_or(Ok(()), paths::create_private)?;
        paths::write_whole(&plan.config, &plan.settings)?;
    }
    let log = durable::append(&plan.log)?;
    let _ = fs::remove_file(&plan.end);
    let mut command = Command::new(exe);
    command.arg("node").arg("--config").arg(&plan.config).arg("--end").arg(&plan.end);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let parent = std::process::id();
    // SAFETY: between fork and exec only `prctl`, `getppid` and `_exit` are called, which are plain system calls; no
    // memory is allocated and no lock taken.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the request was in place.
            if libc::getppid() as u32 != parent {
                libc::_exit(0);
            }
            Ok(())
        });
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let now = Instant::now();
        let plan = Plan {
            id: 1,
            config: "".into(),
            settings: String::new(),
            log: "".into(),
            end: "".into(),
        };
        let pause = Duration::ZERO;
        let mut slot = Slot { plan, child: None, started: now, pause, again: None };
        let pauses: Vec<Duration> = (0..9).map(|_| slot.put_off(now)).collect();
        assert_eq!(pauses[..3], [Duration::ZERO, FIRST_PAUSE, FIRST_PAUSE * 2]);
        assert_eq!(pauses[8], LONGEST_PAUSE);
        assert_eq!(slot.put_off(now + RECOVERED * 2), Duration::ZERO);
    }
}
