//! Instructions of a server's calls inside `libskein.so`, counted one by one.
//!
//! Valgrind cannot run a server under the runtime: its own text would make the server's system calls and be caught by the net. So a program
//! (`hooks.c`) runs under the harness, and this process traces it from outside, which neither the net nor the runtime notices: between two marks it
//! does one instruction at a time. A call's count is the median of its rounds, because some rounds also end a turn or wait for an entry.
//! It covers the whole call, including libc's copying of bytes, which takes a few instructions more or less on another processor; but not the runtime's function that gives
//! vector registers one value: 21 instructions, or 45 where the processor has AVX-512.
//!
//! Threads: the caller's, which is the tracer. Crash: the program dies with its tracer, and with the harness, which gives it up after 120 s.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use object::{Object, ObjectSymbol};

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

const SOURCE: &str = "xtask/src/counts/hooks.c";

/// The word of the program that the tracer sets when it is attached.
const TRACED: &str = "traced";

/// What the name of the function that is not counted has in it.
const SETTLE: &str = "7vectors6settle";

/// The least share of a call's rounds that must take as many instructions as the median [%].
const ALIKE_PERCENT: usize = 70;

/// The harness has executed the program within this time.
const START_MAX: Duration = Duration::from_secs(20);

/// The longest name in the program, in words of 8 bytes.
const NAME_WORDS: u64 = 8;

/// Instructions of each call, by name.
pub fn count(harness: &Path, runtime: &Path) -> Outcome<BTreeMap<String, f64>> {
    let program = compile()?;
    let traced = place_of(&program, TRACED, |name| name == TRACED)?.start;
    let uncounted = place_of(runtime, SETTLE, |name| name.contains(SETTLE))?;
    let mut child = Command::new(harness)
        .arg("--time")
        .arg::<&Path>(&program)
        .env("SKEIN_RUNTIME", runtime)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::of(harness.display(), error))?;
    let rounds = find(&mut child, &program).and_then(|pid| trace(pid, traced, uncounted));
    if rounds.is_err() {
        // The program's init dies with the harness, and the program with it.
        let _ = child.kill();
    }
    let output = child.wait_with_output().map_err(|error| Failure::of(harness.display(), error))?;
    let rounds = rounds?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure(format!("{SOURCE} under the harness: {}", said.trim())));
    }
    rounds.into_iter().map(|(name, counts)| Ok((name.clone(), median(&name, counts)?))).collect()
}

/// The count of most rounds.
fn median(name: &str, mut counts: Vec<u64>) -> Outcome<f64> {
    counts.sort_unstable();
    let median = counts[counts.len() / 2];
    let alike = counts.iter().filter(|count| **count == median).count();
    if alike * 100 < counts.len() * ALIKE_PERCENT {
        return Err(Failure(format!(
            "{name}: only {alike} of {} rounds take {median} instructions, the others {} to {}: this count means nothing",
            counts.len(),
            counts[0],
            counts[counts.len() - 1],
        )));
    }
    Ok(median as f64)
}

fn compile() -> Outcome<tempfile::TempPath> {
    let failed = |error| Failure::of(format!("cannot compile {SOURCE}"), error);
    let root = workspace::root();
    let program = tempfile::NamedTempFile::new().map_err(failed)?.into_temp_path();
    // Not position independent: a word's address is the one in the file.
    let status = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-no-pie", "-pthread", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(root.join("guests"))
        .arg("-o")
        .arg(&program)
        .arg(root.join(SOURCE))
        .status()
        .map_err(failed)?;
    if status.success() { Ok(program) } else { Err(Failure(format!("cc refuses {SOURCE}"))) }
}

/// Where a built file has `what`, a word or a function.
fn place_of(file: &Path, what: &str, is_name: impl Fn(&str) -> bool) -> Outcome<Range<u64>> {
    let failed = |error: &dyn std::fmt::Display| Failure::of(file.display(), error);
    let bytes = std::fs::read(file).map_err(|error| failed(&error))?;
    let parsed = object::File::parse(&*bytes).map_err(|error| failed(&error))?;
    let symbol = parsed.symbols().find(|symbol| symbol.name().is_ok_and(&is_name));
    let symbol = symbol.ok_or_else(|| failed(&format!("no symbol {what}")))?;
    Ok(symbol.address()..symbol.address() + symbol.size())
}

/// The program's process, when the harness has executed it and no longer traces it.
fn find(harness: &mut Child, program: &Path) -> Outcome<Pid> {
    let start = Instant::now();
    while start.elapsed() < START_MAX {
        let found = child_of(harness.id()).and_then(child_of);
        if let Some(pid) = found.filter(|pid| is_free(*pid, program)) {
            return Ok(Pid::from_raw(pid.cast_signed()));
        }
        if harness.try_wait().map_err(|error| Failure::of("the harness", error))?.is_some() {
            let mut said = String::new();
            if let Some(mut stderr) = harness.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
            }
            return Err(Failure(format!("{SOURCE} does not start: {}", said.trim())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Failure(format!(
        "the harness has not started {SOURCE} in {START_MAX:?}, or this user may not trace it: run without a debugger, and as the harness's owner"
    )))
}

fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn is_free(pid: u32, program: &Path) -> bool {
    let executed = std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    executed && status.lines().any(|line| line == "TracerPid:\t0")
}

/// Runs the process to its end; instructions from mark to mark, by name.
fn trace(pid: Pid, traced: u64, uncounted: Range<u64>) -> Outcome<BTreeMap<String, Vec<u64>>> {
    let failed = |error| Failure::of(format!("cannot trace {SOURCE}"), error);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_EXITKILL).map_err(|error| {
        Failure(format!(
            "cannot trace the program whose hooks are counted (PTRACE_SEIZE: {error}): allow it (sysctl kernel.yama.ptrace_scope=1; in a container --cap-add SYS_PTRACE)"
        ))
    })?;
    let mut tracee = Tracee { pid, uncounted };
    let rounds = tracee.rounds(traced);
    if rounds.is_err() {
        // A traced process is not gone before its tracer has seen its end.
        let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
        while tracee.wait().is_ok_and(|stop| stop != Stop::Ended) {}
    }
    rounds.map_err(failed)
}

/// The reason why the process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The tracer stopped it.
    Asked,
    /// At a mark.
    Mark,
    /// After an instruction: the next one's address.
    Step(usize),
    /// Before it gets a signal.
    Signal(Signal),
    /// Before it gets a signal that is not the server's: the harness asks a thread that has the turn for long for its address.
    Question,
    /// It is gone.
    Ended,
}

/// The traced process. It stands, except within a function.
struct Tracee {
    pid: Pid,
    /// Instructions here do not count.
    uncounted: Range<u64>,
}

impl Tracee {
    fn rounds(&mut self, traced: u64) -> Result<BTreeMap<String, Vec<u64>>, Errno> {
        ptrace::interrupt(self.pid)?;
        while self.wait()? != Stop::Asked {
            ptrace::cont(self.pid, None)?;
        }
        ptrace::write(self.pid, traced as *mut c_void, 1)?;
        let mut rounds = BTreeMap::<String, Vec<u64>>::new();
        let mut signal = None;
        loop {
            ptrace::cont(self.pid, signal.take())?;
            match self.wait()? {
                Stop::Mark => {
                    let name = self.name()?;
                    let instructions = self.step_to_mark()?;
                    rounds.entry(name).or_default().push(instructions);
                }
                Stop::Signal(other) => signal = Some(other),
                Stop::Ended => return Ok(rounds),
                Stop::Asked | Stop::Step(_) | Stop::Question => {}
            }
        }
    }

    /// Does one instruction at a time until the next mark; answers their number.
    fn step_to_mark(&mut self) -> Result<u64, Errno> {
        let (mut count, mut last, mut signal) = (0, 0, None);
        loop {
            ptrace::step(self.pid, signal.take())?;
            match self.wait()? {
                Stop::Mark => return Ok(count),
                // An instruction that repeats itself (`rep movsb`) stays at its address: it counts once.
                Stop::Step(address) if address == last => {}
                Stop::Step(address) if self.uncounted.contains(&(address as u64)) => last = address,
                Stop::Step(address) => {
                    count += 1;
                    last = address;
                }
                Stop::Signal(other) => signal = Some(other),
                Stop::Ended => return Err(Errno::ESRCH),
                Stop::Asked | Stop::Question => {}
            }
        }
    }

    fn wait(&mut self) -> Result<Stop, Errno> {
        let signal = match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return Ok(Stop::Ended),
            Ok(WaitStatus::Stopped(_, signal)) => signal,
            Ok(_) => return Ok(Stop::Asked),
            // A real-time signal, which has no name there.
            Err(Errno::EINVAL) => return Ok(Stop::Question),
            Err(errno) => return Err(errno),
        };
        if signal != Signal::SIGTRAP {
            return Ok(Stop::Signal(signal));
        }
        let info = ptrace::getsiginfo(self.pid)?;
        if info.si_code == libc::SI_KERNEL {
            return Ok(Stop::Mark);
        }
        // SAFETY: the kernel has filled in what a SIGTRAP of a step has, an address; any bits are one.
        Ok(Stop::Step(unsafe { info.si_addr() } as usize))
    }

    /// The name that the mark has in rax.
    fn name(&self) -> Result<String, Errno> {
        let at = ptrace::getregs(self.pid)?.rax;
        let mut bytes = Vec::new();
        for word in 0..NAME_WORDS {
            let word = ptrace::read(self.pid, (at + 8 * word) as *mut c_void)?;
            bytes.extend(word.to_le_bytes());
            if let Some(length) = bytes.iter().position(|byte| *byte == 0) {
                bytes.truncate(length);
                break;
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_what_most_rounds_have() {
        let mut counts = vec![80; 40];
        counts.extend([300; 11]);
        assert_eq!(median("clock", counts.clone()).expect("alike"), 80.0);
        counts.extend([301; 11]);
        let said = median("clock", counts).expect_err("not alike").to_string();
        assert!(
            said.contains("only 40 of 62 rounds take 80") && said.contains("80 to 301"),
            "{said}"
        );
    }
}
