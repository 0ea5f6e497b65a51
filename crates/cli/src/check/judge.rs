//! From two runs to a verdict, and from observations to the report.

use skein_node::check::seen::{Refused as RefusedCall, Use};
use skein_node::check::{NOWHERE, Seen};
use skein_node::status::trapped_by_name;

use super::findings::{
    Compared, Count, Difference, Drive, FORM, Figures, Findings, Listener, Recommend, Refused,
    Verdict,
};
use super::trial::{Came, Trial};
use crate::args::CheckArgs;
use crate::operations::OperationsCompared;

/// Lines of output in a report.
const OUTPUT_LINES: usize = 8;
/// Less CPU time than this tells nothing about cost: 50 ms.
const MEASURABLE_S: f64 = 0.05;
/// A server that uses its one processor for more than this share of the time may want more: 80 %.
const BUSY: f64 = 0.8;

/// Calls that every server needs: a program that was refused one of them and does not listen cannot run.
const ESSENTIAL: [&str; 12] = [
    "io_uring",
    "socket",
    "bind",
    "listen",
    "accept",
    "connect",
    "clone",
    "fork",
    "vfork",
    "execve",
    "posix_spawn",
    "epoll",
];

/// Findings about a program that was never started.
pub fn not_started(args: &CheckArgs, reason: String) -> Findings {
    let mut words = args.program.iter().map(|word| word.to_string_lossy().into_owned());
    Findings {
        skein_check: FORM,
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        verdict: Verdict::CannotRun,
        exit_code: Verdict::CannotRun.code(),
        reason,
        difference: None,
        ended: None,
        drive: None,
        compared: None,
        listeners: Vec::new(),
        used: Vec::new(),
        refused: Vec::new(),
        net: Vec::new(),
        patched: Vec::new(),
        figures: None,
        operations: None,
        schedule_sensitive: None,
        recommend: None,
        warnings: Vec::new(),
        output: Vec::new(),
    }
}

/// Findings about two runs.
pub fn judge(args: &CheckArgs, trial: &Trial) -> Findings {
    let (verdict, reason) = verdict(args, trial);
    let seen = &trial.seen;
    let ended = trial.status.map(skein_node::check::second::how);
    let figures = figures(trial);
    Findings {
        verdict,
        exit_code: verdict.code(),
        difference: trial.difference.as_ref().map(|found| Difference {
            kind: found.kind.name().into(),
            index: (found.index != NOWHERE).then_some(found.index.0),
            connection: found.connection,
            first: found.first.clone(),
            second: found.second.clone(),
        }),
        drive: args.drive.as_ref().map(|command| drive(command, trial)),
        compared: trial.second.as_ref().map(|second| Compared {
            entries: second.seen.entries,
            frames: second.seen.frames.min(seen.frames),
            sent_bytes: second.seen.sent_bytes.min(seen.sent_bytes),
            printed_bytes: trial.printed.len(),
            files: trial.files,
            complete: seen.rests || trial.status.is_some(),
        }),
        listeners: trial
            .listened
            .iter()
            .map(|(server, at)| Listener {
                server: server.clone(),
                reached_at: at.map(|at| at.to_string()),
            })
            .collect(),
        used: Use::ALL
            .iter()
            .map(|kind| Count { name: kind.name().into(), count: seen.used(*kind) })
            .collect(),
        refused: refused(seen),
        net: net(seen.trapped.iter().chain(&seen.patched)),
        patched: net(&seen.patched),
        operations: trial.operations.as_ref().map(OperationsCompared::from),
        schedule_sensitive: trial.other_answers.map(|connections| connections > 0),
        recommend: matches!(verdict, Verdict::Deterministic | Verdict::CannotTell)
            .then(|| recommend(trial, &figures)),
        warnings: warnings(args, trial, &figures),
        output: trial.printed.last_lines(OUTPUT_LINES),
        ended,
        figures: Some(figures),
        ..not_started(args, reason)
    }
}

fn verdict(args: &CheckArgs, trial: &Trial) -> (Verdict, String) {
    let seen = &trial.seen;
    if let Some(fatal) = &seen.fatal {
        return (Verdict::CannotRun, format!("the runtime stopped the server: {fatal}"));
    }
    if let Came::Spinning(how) = &trial.came {
        let reason = format!("{how}: under the serial schedule nothing else can happen meanwhile");
        return (Verdict::CannotRun, reason);
    }
    if let Some(found) = &trial.difference {
        let place = match (found.index, found.connection) {
            (NOWHERE, _) => String::new(),
            (index, None) => format!(" after entry {index}"),
            (index, Some(conn)) => format!(" on connection {conn} after entry {index}"),
        };
        return (
            Verdict::NotDeterministic,
            format!("two runs from one log differ in {}{place}", what(found.kind.name())),
        );
    }
    let how = trial.status.map(skein_node::check::second::how);
    if let (Some(status), Some(how)) = (trial.status, &how)
        && status != 0
    {
        let when = if trial.drive.is_some() { " while the client command ran" } else { "" };
        let reason = format!("it {how}{when}{}", after_refusals(seen));
        return (Verdict::CannotRun, reason);
    }
    let essential = seen
        .refused
        .keys()
        .find(|refused| ESSENTIAL.iter().any(|call| refused.call.starts_with(call)));
    if trial.listened.is_empty()
        && trial.status.is_none()
        && let Some(refused) = essential
    {
        let reason = format!("it never listened, and {} was refused", refused.call);
        return (Verdict::CannotRun, reason);
    }
    match &trial.second {
        Some(second) if second.whole => {}
        _ => {
            let reason = format!(
                "the second run did not come to the end of the log in {:.0} s; give it more with --timeout",
                trial.second_took.as_secs_f64()
            );
            return (Verdict::CannotTell, reason);
        }
    }
    if args.drive.is_some()
        && let Some(reason) = drive_failed(trial, how.as_deref())
    {
        return (Verdict::CannotTell, reason);
    }
    let reason = match how {
        Some(how) => format!("two runs from one log did the same; it {how}"),
        None => "two runs from one log did the same".into(),
    };
    (Verdict::Deterministic, reason)
}

/// The difference, in words that follow "in".
fn what(kind: &str) -> &'static str {
    match kind {
        "clock" => "the logical clock",
        "end" => "how they ended",
        "printed" => "their printed output",
        "files" => "the files that they left",
        "host_file" => "a file of the host",
        "operation" => "an operation",
        _ => "their output",
    }
}

/// The reason why the client command's result tells nothing about the program.
fn drive_failed(trial: &Trial, how: Option<&str>) -> Option<String> {
    let Some(end) = &trial.drive else {
        return Some(match (how, &trial.came) {
            (Some(how), _) => format!("it {how} before the client command could be run"),
            (None, Came::Silent(Some(port))) => format!(
                "it did not listen on port {port}, which --publish names, so the client command was not run"
            ),
            (None, _) => {
                "it did not listen on a TCP port, so the client command was not run".into()
            }
        });
    };
    if end.timed_out {
        let took = end.took.as_secs();
        return Some(format!("the client command did not end in {took} s; see --timeout"));
    }
    if end.code != 0 {
        return Some(format!("the client command failed with exit status {}", end.code));
    }
    (trial.seen.connections == 0).then(|| {
        "the client command never connected; it must use $SKEIN_HOST and $SKEIN_PORT".into()
    })
}

/// `; refused were a, b`, or nothing.
fn after_refusals(seen: &Seen) -> String {
    let mut calls: Vec<&str> = seen.refused.keys().map(|refused| refused.call.as_str()).collect();
    calls.dedup();
    match calls.len() {
        0 => String::new(),
        1..=4 => format!("; refused: {}", calls.join(", ")),
        n => format!("; refused: {} and {} more", calls[..4].join(", "), n - 4),
    }
}

fn drive(command: &str, trial: &Trial) -> Drive {
    let end = trial.drive.as_ref();
    Drive {
        command: command.into(),
        exit_code: end.filter(|end| !end.timed_out).map(|end| end.code),
        seconds: end.map_or(0.0, |end| end.took.as_secs_f64()),
        connections: trial.seen.connections,
        output: end.map(|end| end.last_lines.clone()).unwrap_or_default(),
    }
}

fn refused(seen: &Seen) -> Vec<Refused> {
    let row = |(RefusedCall { call, from }, count): (&RefusedCall, &u64)| Refused {
        call: call.clone(),
        from: from.clone(),
        count: *count,
    };
    let mut all: Vec<Refused> = seen.refused.iter().map(row).collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.call.cmp(&b.call)));
    all
}

/// Calls that went around the interposed functions, the most frequent first.
fn net<'a>(counts: impl IntoIterator<Item = &'a (usize, u64)>) -> Vec<Count> {
    let found = trapped_by_name(counts.into_iter().copied());
    let mut all: Vec<Count> =
        found.into_iter().map(|(name, count)| Count { name, count }).collect();
    all.sort_by_key(|call| std::cmp::Reverse(call.count));
    all
}

fn figures(trial: &Trial) -> Figures {
    let (window, seen) = (&trial.window, &trial.seen);
    let seconds = window.took.as_secs_f64();
    let share = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
    Figures {
        seconds,
        operations_per_second: share(window.operations as f64),
        busy_share: share(window.server_cpu.as_secs_f64()),
        server_cpu_seconds: window.server_cpu.as_secs_f64(),
        node_cpu_seconds: (window.node_user + window.node_system).as_secs_f64(),
        entries: seen.entries,
        bubbles: seen.bubbles,
        clock_entries: seen.clock_entries,
        net_calls: seen.net_calls,
        replay_seconds: trial.second_took.as_secs_f64(),
    }
}

fn recommend(trial: &Trial, figures: &Figures) -> Recommend {
    let whole = figures.server_cpu_seconds + figures.node_cpu_seconds;
    // A native server would need the kernel's work for the clients' sockets as well.
    let native = figures.server_cpu_seconds + trial.window.node_system.as_secs_f64();
    let ratio = (whole >= MEASURABLE_S && native > 0.0).then(|| whole / native);
    let cost = match ratio {
        Some(ratio) => format!(
            "about {ratio:.1} times the native processor time on the leader (server {:.2} s, node {:.2} s), and the \
             server's again on each other replica",
            figures.server_cpu_seconds, figures.node_cpu_seconds
        ),
        None if trial.drive.is_some() => {
            "too little work to measure; give a client command that asks for more".into()
        }
        None => "too little work to measure; give a client command with --drive".into(),
    };
    Recommend {
        mode: "order".into(),
        schedule: "serial".into(),
        quantum: trial.tuning.quantum,
        nclock: trial.tuning.nclock,
        cpu_ratio_estimate: ratio,
        cost,
    }
}

fn warnings(args: &CheckArgs, trial: &Trial, figures: &Figures) -> Vec<String> {
    let seen = &trial.seen;
    let mut warnings = seen.notices.clone();
    // Refused calls have a table of their own.
    let told = |note: &&String| !note.starts_with("call_refused");
    warnings.extend(trial.notes.iter().filter(told).cloned());
    if seen.used(Use::Threads) > 0 && figures.busy_share > BUSY {
        warnings.push(format!(
            "its threads were busy for {:.0} % of one processor, and they run one at a time: it may want more than one",
            100.0 * figures.busy_share
        ));
    }
    if seen.used(Use::Interfaces) > 0 && args.interface.is_none() {
        warnings.push(
            "it asked for the network interfaces (getifaddrs, SIOCGIFCONF): it is told of lo alone, which has no multicast; \
             one that wants another does not run unless it is given one: --interface ADDRESS"
                .into(),
        );
    }
    if let Some(connections @ 1..) = trial.other_answers {
        warnings.push(format!(
            "its answers depend on the order of its threads ({connections} connections got others on another schedule): \
             replicas agree, because the schedule is the same on all"
        ));
    }
    if !seen.rests && trial.status.is_none() {
        warnings.push(
            "it was stopped in the middle of something, so its last actions were not compared"
                .into(),
        );
    }
    if trial.listened.is_empty() && trial.status.is_none() {
        warnings.push("it listens on no TCP port".into());
    }
    if trial.listened.is_empty() && trial.status == Some(0) {
        warnings.push("it ended by itself and never listened: it is no server".into());
    }
    if args.drive.is_none() && !trial.listened.is_empty() {
        warnings.push("no client used it: give a client command with --drive to see more".into());
    }
    warnings.dedup();
    warnings
}
