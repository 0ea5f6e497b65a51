//! Child processes that cannot outlive or stall the benchmark, and their CPU time; signals that end it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::{Pid, SysconfVar, sysconf};
use signal_hook::consts::{SIGINT, SIGTERM};

use skein_testkit::{Failure, Outcome};

/// How long a process may take to end after it was asked to.
const END_MAX: Duration = Duration::from_secs(10);

/// A flag that SIGINT and SIGTERM set: targets are stopped in order.
pub fn interrupts() -> Outcome<Arc<AtomicBool>> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupt))
            .map_err(|error| Failure::of("cannot catch signals", error))?;
    }
    Ok(interrupt)
}

/// A child that ends when its owner drops it.
pub struct Kept {
    child: Child,
    farewell: Option<Signal>,
}

impl Kept {
    /// Starts `command`, quiet; it dies with this process.
    pub fn start(command: &mut Command) -> Outcome<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: signal and prctl are async-signal-safe and touch nothing of the parent's.
        unsafe {
            command.pre_exec(|| {
                // Background commands of a shell ignore these signals, and a script could not even trap them.
                for asked in [Signal::SIGINT, Signal::SIGQUIT] {
                    signal(asked, SigHandler::SigDfl)?;
                }
                Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
            });
        }
        let failed = |error| Failure::of(format!("cannot run {name}"), error);
        Ok(Self { child: command.spawn().map_err(failed)?, farewell: None })
    }

    /// The signal that asks it to end before it is killed, if any.
    pub fn ended_by(mut self, farewell: Option<Signal>) -> Self {
        self.farewell = farewell;
        self
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(farewell) = self.farewell {
            let _ = kill(Pid::from_raw(self.pid()), farewell);
            let start = Instant::now();
            while start.elapsed() < END_MAX {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Its workers would outlive it.
        for pid in trees([self.pid()]) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Runs `command` to its end, in `max` at most; answers its output, or the last line of it on failure.
///
/// Output goes through files: processes that it leaves running may keep a pipe open for ever.
pub fn output(command: &mut Command, max: Duration) -> Outcome<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| Failure::of(format!("cannot run {name}"), error);
    let out = tempfile::NamedTempFile::new().map_err(failed)?;
    let err = tempfile::NamedTempFile::new().map_err(failed)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.reopen().map_err(failed)?)
        .stderr(err.reopen().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if start.elapsed() > max {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure(format!("{name} had not ended after {} s", max.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |file: &tempfile::NamedTempFile| {
        let mut bytes = Vec::new();
        file.reopen().and_then(|mut file| file.read_to_end(&mut bytes)).map_err(failed)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    if status.success() {
        return read(&out);
    }
    // Some programs print the reason of a failure on standard output.
    let said = [read(&out)?, read(&err)?].concat();
    Err(Failure::of(format!("{name}: {status}"), said.trim().lines().last().unwrap_or("no reason")))
}

/// The processes and all their living descendants.
pub fn trees(roots: impl IntoIterator<Item = i32>) -> Vec<i32> {
    let mut all: Vec<i32> = roots.into_iter().collect();
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children =
                std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
                if !all.contains(&child) {
                    all.push(child);
                }
            }
        }
        at += 1;
    }
    all
}

/// Whether a process has not ended: one that only waits for its parent has.
pub fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// CPU time of the processes and of their ended children so far: user and system.
///
/// A process that ended after it was listed counts where its parent is listed, too.
pub fn cpu_used(pids: &[i32]) -> Outcome<Duration> {
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .filter(|ticks| *ticks > 0)
        .ok_or_else(|| Failure("sysconf knows no CLK_TCK".to_owned()))?;
    let mut ticks = 0;
    for (at, pid) in pids.iter().enumerate() {
        let path = format!("/proc/{pid}/stat");
        let stat = match std::fs::read_to_string(&path) {
            Err(error) if at == 0 => return Err(Failure::of(&path, error)),
            Err(_) => continue,
            Ok(stat) => stat,
        };
        ticks += stat_ticks(&stat).ok_or_else(|| Failure(format!("{path} has another form")))?;
    }
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
}

/// Fields 14 to 17 of a stat line, whose second may hold spaces and parentheses.
fn stat_ticks(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

/// Memory of the living processes [bytes].
pub fn resident(pids: &[i32]) -> u64 {
    let one = |pid: &i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        value.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    pids.iter().filter_map(one).sum::<u64>() * 1024
}

/// Bytes that the living processes wrote to disks so far, in whole pages of files.
pub fn disk_written(pids: &[i32]) -> u64 {
    let written = |pid: &i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix("write_bytes:"))?;
        value.trim().parse::<u64>().ok()
    };
    pids.iter().filter_map(written).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_ends() {
        assert!(lives(std::process::id().cast_signed()));
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let pid = child.id().cast_signed();
        assert!(lives(pid));
        child.kill().expect("killed");
        // Nobody has waited for it.
        let start = Instant::now();
        while lives(pid) {
            assert!(start.elapsed() < Duration::from_secs(30), "the process has not ended");
            std::thread::yield_now();
        }
        child.wait().expect("its end");
        assert!(!lives(pid));
    }

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 40 2 3 1 20 0 1";
        assert_eq!(stat_ticks(stat), Some(46));
        assert_eq!(stat_ticks("7 (a"), None);
    }

    #[test]
    fn what_a_process_started_is_found() {
        let child = Kept::start(Command::new("sleep").arg("60")).expect("sleep");
        let own = i32::try_from(std::process::id()).expect("a pid");
        let all = trees([own]);
        assert_eq!(all[0], own);
        assert!(all.contains(&child.pid()));
    }

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let error = output(Command::new("sleep").arg("60"), Duration::from_millis(20));
        assert!(error.expect_err("too long").to_string().contains("had not ended"));
        assert_eq!(
            output(Command::new("echo").arg("x"), Duration::from_secs(10)).ok(),
            Some("x\n".into())
        );
    }
}
