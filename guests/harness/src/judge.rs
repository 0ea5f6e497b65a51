//! Runs one guest three times and judges; runs them all.

use crate::catalogue::{self, Guest};
use crate::compare;
use crate::head::Expect;
use crate::images::Images;
use crate::node::{Account, Counts, End, ORDINARY, Role, Schedule};
use crate::runner::{How, Run, last_line, native, skein, status_words, tail};
use crate::sequences::Subject;
use crate::sys;
use crate::trace::CAPACITY;
use skein_sched::Op;
use skein_sched::op::{Kind, Object};
use skein_sched::trace::{Event, Nesting};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Runs and judges a guest.
///
/// # Errors
/// The defects, in several lines. The good answer is one line of figures.
pub fn judge(guest: &Guest, images: &Images) -> Result<String, String> {
    judge_inner(guest, images).unwrap_or_else(|e| Err(format!("cannot be run: {e}")))
}

fn judge_inner(guest: &Guest, images: &Images) -> io::Result<Result<String, String>> {
    let mut native_stdout = None;
    if guest.head.script.is_none() {
        let native = native(&guest.program, &guest.head.arguments())?;
        if let Some(wrong) = native.wrong() {
            return Ok(Err(wrong));
        }
        native_stdout = Some(native.stdout);
    }
    let mut done = String::new();
    // With the second one as on a processor that cannot fault on `cpuid`.
    for (schedule, no_cpuid_faulting) in [(ORDINARY, false), (guest.head.finest, true)] {
        let stop_at_spin = guest.head.expect == Expect::Spin;
        let how = How { stop_at_spin, no_cpuid_faulting, ..How::default() };
        match judge_schedule(guest, images, native_stdout.as_deref(), schedule, how)? {
            Ok(line) if done.is_empty() => done = line,
            Ok(line) => done += &format!(" | {line}"),
            Err(why) => return Ok(Err(format!("{schedule:?}: {why}"))),
        }
    }
    Ok(Ok(done))
}

/// Runs a guest as leader and as follower of that leader, with one schedule.
fn judge_schedule(
    guest: &Guest,
    images: &Images,
    native: Option<&[u8]>,
    schedule: Schedule,
    how: How<'static>,
) -> io::Result<Result<String, String>> {
    let args = guest.head.arguments();
    let role = Role::Leader(guest.head.script.clone().unwrap_or_default(), schedule);
    let leader = skein(&guest.program, &args, &images.library, role, how)?;
    if how.stop_at_spin {
        return Ok(judge_spin(&leader));
    }
    if let Some(verdict) = judge_refusal(&guest.head.expect, &leader) {
        return Ok(verdict);
    }
    if let Err(why) = judge_end(&leader, "leader") {
        return Ok(Err(why));
    }
    if let (Some(count), Some(native)) = (guest.head.sequences, native)
        && native != leader.stdout
    {
        let shortest = Subject { guest, images, schedule, how }.compare(1, count)?;
        return Ok(Err(match shortest {
            Some(shortest) => shortest,
            None => in_some_runs(guest, native, &leader.stdout)?,
        }));
    }
    let role = Role::Follower(leader.account.log.clone());
    // Recording its operations has no visible effect.
    let how = How { traced: true, ..how };
    let follower = skein(&guest.program, &args, &images.library, role, how)?;
    let (a, b) = (&leader, &follower);
    let texts = |what, left, right| compare::text(what, ("leader", left), ("follower", right));
    let difference = native
        .and_then(|native| {
            compare::text("standard output", ("native", native), ("skein", &a.stdout))
        })
        .or_else(|| judge_end(b, "follower").err())
        .or_else(|| texts("standard output", &a.stdout, &b.stdout))
        .or_else(|| texts("standard error", &a.stderr, &b.stderr))
        .or_else(|| {
            let (left, right) = (&a.account.frames, &b.account.frames);
            compare::frames(("leader", left), ("follower", right))
        })
        .or_else(|| judge_trace(b))
        .or_else(|| judge_idle(guest, schedule, a))
        .or_else(|| judge_net(guest, a, b));
    if let Some(difference) = difference {
        return Ok(Err(difference));
    }
    Ok(Ok(summary(&leader.account)))
}

/// Two runs differ, and others do not: where they part, and whose was not like another one.
fn in_some_runs(guest: &Guest, on_linux: &[u8], under_skein: &[u8]) -> io::Result<String> {
    let again = native(&guest.program, &guest.head.arguments())?.stdout;
    let whose = if again == on_linux { "Skein's" } else { "Linux's" };
    let parts = compare::text("standard output", ("native", on_linux), ("skein", under_skein));
    Ok(format!("differs in some runs only, here {whose}: {}", parts.unwrap_or_default()))
}

/// The recorded events of a run are its entries, in order, and operations between them, which name what they are on.
fn judge_trace(run: &Run) -> Option<String> {
    let trace = run.trace.as_deref()?;
    let entries = trace.iter().filter_map(|event| match event {
        Event::Admitted { index } => Some(*index),
        _ => None,
    });
    // It may end before it has taken the last ones.
    let in_order = entries.clone().eq(1..=entries.clone().count() as u64);
    let count = |begins: bool| {
        trace.iter().filter(|event| matches!(event, Event::Begin { .. }) == begins).count()
    };
    if !in_order || count(true) == 0 {
        let entries: Vec<u64> = entries.collect();
        return Some(format!("traced: {} operations, entries {entries:?}", count(true)));
    }
    let mut nesting = Nesting::new();
    if let Some(at) = trace.iter().position(|event| !nesting.allows(event)) {
        let mut report = format!(
            "traced: event {at} begins an operation inside of another, or ends none that is open:"
        );
        for event in &trace[at.saturating_sub(8)..=at] {
            let _ = write!(report, "\n    {event:?}");
        }
        return Some(report);
    }
    // A trace that is full lacks the last ends.
    if let Some(thread) = nesting.open().filter(|_| trace.len() < CAPACITY as usize) {
        return Some(format!("traced: an operation of thread {thread} has no end"));
    }
    nameless(trace).map(|op| format!("traced: an operation names no thread: {op:?}"))
}

/// The first operation on a thread that succeeds and does not say on which; the birth of one cannot.
fn nameless(trace: &[Event]) -> Option<Op> {
    let mut begun = BTreeMap::new();
    for event in trace {
        match event {
            Event::Begin { op, depth, .. } => {
                begun.insert((op.thread, *depth), *op);
            }
            Event::End { thread, depth, result, .. } => {
                let op = begun.remove(&(*thread, *depth));
                let is_nameless =
                    |op: &Op| op.object == Object::Thread(0) && op.kind != Kind::Create;
                if let Some(op) = op.filter(is_nameless)
                    && *result == Some(0)
                {
                    return Some(op);
                }
            }
            Event::Admitted { .. } => {}
        }
    }
    None
}

/// The number of entries, and of inputs, bubbles and clock entries among them.
fn summary(account: &Account) -> String {
    let (counts, entries) = (account.counts, account.log.len());
    format!("{entries} ({} in, {} bub, {} clk)", counts.inputs, counts.bubbles, counts.clocks)
}

fn judge_end(run: &Run, who: &str) -> Result<(), String> {
    let why = match &run.account.end {
        End::Status(0) => return Ok(()),
        End::Status(status) => format!("it ends with {}", status_words(*status)),
        End::GivenUp(why) => format!("given up: {why}{}", last_line(&run.stdout)),
    };
    let mut report = format!("as {who} {why}");
    for line in &run.account.advice {
        let _ = write!(report, "\n    {line}");
    }
    if !run.stderr.is_empty() {
        let _ = write!(report, "\n    {}", tail(&run.stderr));
    }
    Err(report)
}

fn judge_spin(run: &Run) -> Result<String, String> {
    match run.account.spin {
        Some(spin) if spin.thread != 0 && spin.address != 0 && spin.waiting > 0 => Ok(format!(
            "thread {} named at {:#x} while {} waited",
            spin.thread, spin.address, spin.waiting
        )),
        Some(spin) => Err(format!("the spinning thread is not named well: {spin:?}")),
        None => Err(format!("no spinning thread was named: {:?}", run.account.end)),
    }
}

/// For guests that may be refused: the verdict, if they were or should have been.
fn judge_refusal(expect: &Expect, run: &Run) -> Option<Result<String, String>> {
    let fatal = run.account.advice.iter().find(|line| line.starts_with("fatal: "));
    match (expect, fatal) {
        (Expect::SameOrFatal(words), Some(line)) => {
            let named = words.iter().any(|word| line.contains(word));
            let code = run.account.end == End::Status(125 << 8);
            Some(if named && code {
                Ok(format!("refused by name: {line}"))
            } else {
                Err(format!(
                    "refused without its name or status 125: {line}, {:?}",
                    run.account.end
                ))
            })
        }
        (Expect::SameAndRefused(words), _) => {
            let told = |word: &str| {
                let mut lines = run.account.advice.iter();
                lines.any(|line| line.starts_with("refused: ") && line.contains(word))
            };
            let untold = words.iter().find(|word| !told(word))?;
            Some(Err(format!("the node was not told that {untold} was refused")))
        }
        _ => None,
    }
}

/// A server that does nothing by itself costs no entry besides its clients' inputs; nor bubbles, unless its work for them
/// takes it across a slot, as with the finest schedule.
fn judge_idle(guest: &Guest, schedule: Schedule, leader: &Run) -> Option<String> {
    let Counts { bubbles, clocks, .. } = leader.account.counts;
    let needless = clocks > 0 || (bubbles > 0 && schedule == ORDINARY);
    (guest.head.idle && needless)
        .then(|| format!("an idle server cost {bubbles} bubbles and {clocks} clock entries"))
}

/// Traps are the same on all replicas, and a place that traps often is replaced.
fn judge_net(guest: &Guest, leader: &Run, follower: &Run) -> Option<String> {
    let counts = |run: &Run| (run.account.trapped, run.account.patched);
    let (trapped, patched) = counts(leader);
    if counts(leader) != counts(follower) {
        return Some(format!(
            "trapped and replaced: {:?} as leader, {:?} as follower",
            counts(leader),
            counts(follower)
        ));
    }
    let net = guest.head.net?;
    let right = (net.least_trapped..=net.most_trapped).contains(&trapped)
        && patched >= net.least_patched
        && (net.least_patched > 0 || patched == 0);
    (!right).then(|| format!("{trapped} trapped, {patched} from replaced places; wanted {net:?}"))
}

/// Runs all guests whose names contain one of `words` (all guests without words), one line each, one for each
/// processor at a time.
#[must_use]
pub fn all(words: &[String]) -> ExitCode {
    let guests = Images::build()
        .and_then(|images| Ok((catalogue::all(&images.sources, &images.guests)?, images)));
    let (mut guests, images) = match guests {
        Ok(found) => found,
        Err(e) => {
            eprintln!("cannot prepare the guests: {e}");
            return ExitCode::FAILURE;
        }
    };
    guests.retain(|guest| words.is_empty() || words.iter().any(|word| guest.is_meant_by(word)));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(guest) = guests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = Instant::now();
                    let verdict = judge(guest, &images);
                    let ms = started.elapsed().as_millis();
                    match verdict {
                        Ok(line) => println!("ok      {:28} {ms:6} ms  {line}", guest.name),
                        Err(why) => {
                            println!("FAILED  {:28} {ms:6} ms  {why}", guest.name);
                            failed.lock().expect("no panics").push(guest.name.clone());
                        }
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().expect("no panics");
    failed.sort();
    println!(
        "{}",
        match sys::faults_on_cpuid() {
            true => "CPUID faulting: on with the first schedule, off with the second",
            false => "CPUID faulting: this processor has none",
        }
    );
    println!("{} guests, {} failed {}", guests.len(), failed.len(), failed.join(" "));
    if failed.is_empty() && !guests.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
