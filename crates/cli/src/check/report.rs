//! The findings for a person: one screen.

use std::fmt::Write;

use super::findings::{Findings, Verdict};
use crate::words::{bytes, entries, number, plural, times};

/// The most refused calls in the list.
const REFUSED_ROWS: usize = 10;
/// The most characters of a client command.
const COMMAND_CHARS: usize = 60;

/// The whole text.
pub fn report(findings: &Findings, verbose: bool) -> String {
    let mut text = String::new();
    let f = findings;
    let mut row = |name: &str, what: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<10} {what}");
    };
    row("program", &[std::slice::from_ref(&f.program), &f.args[..]].concat().join(" "));
    row("verdict", &format!("{}: {}", f.verdict.words(), f.reason));
    if let Some(found) = f.difference.as_ref().filter(|found| found.kind != "operation") {
        row("", &format!("first run:  {}", found.first));
        row("", &format!("second run: {}", found.second));
    }
    if let Some(operations) = &f.operations {
        for (at, line) in operations.lines(f.difference.is_some()).iter().enumerate() {
            row(if at == 0 { "operations" } else { "" }, line);
        }
    }
    if let Some(drive) = &f.drive {
        let how = match drive.exit_code {
            Some(code) => format!("exit status {code} in {:.1} s", drive.seconds),
            None if drive.seconds > 0.0 => format!("stopped after {:.1} s", drive.seconds),
            None => "not run".into(),
        };
        let connections = plural(drive.connections, "connection");
        row("drive", &format!("{}: {how}, {connections}", shortened(&drive.command)));
    }
    if let Some(compared) = &f.compared {
        let files = compared.files.map(|n| format!(", {}", plural(n, "file"))).unwrap_or_default();
        row(
            "compared",
            &format!(
                "{}, {}, {} sent, {} printed{files}",
                entries(compared.entries),
                plural(compared.frames, "step"),
                bytes(compared.sent_bytes),
                bytes(compared.printed_bytes)
            ),
        );
    }
    if !f.used.is_empty() || !f.listeners.is_empty() {
        row("uses", &uses(f));
    }
    for (at, refused) in f.refused.iter().take(REFUSED_ROWS).enumerate() {
        let from =
            if refused.from.is_empty() { String::new() } else { format!(" from {}", refused.from) };
        let name = if at == 0 { "refused" } else { "" };
        row(name, &format!("{} ({}){from}", refused.call, times(refused.count)));
    }
    if f.refused.len() > REFUSED_ROWS {
        row("", &format!("and {} more; --json lists all", f.refused.len() - REFUSED_ROWS));
    }
    if !f.net.is_empty() {
        let calls: Vec<String> =
            f.net.iter().take(8).map(|c| format!("{} {}", c.name, number(c.count))).collect();
        row("net", &calls.join(", "));
        let patched: u64 = f.patched.iter().map(|c| c.count).sum();
        if patched > 0 {
            row("", &format!("{} of these from patched places, without a trap", number(patched)));
        }
    }
    figures(f, &mut row);
    for (at, warning) in f.warnings.iter().enumerate() {
        row(if at == 0 { "note" } else { "" }, warning);
    }
    if verbose || f.verdict != Verdict::Deterministic {
        let lines = f.output.iter().map(|line| ("printed", line));
        let client = f.drive.iter().flat_map(|drive| &drive.output).map(|line| ("client", line));
        let mut last = "";
        for (name, line) in lines.chain(client) {
            row(if name == last { "" } else { name }, &format!("| {line}"));
            last = name;
        }
    }
    text
}

fn figures(f: &Findings, row: &mut impl FnMut(&str, &str)) {
    if let Some(figures) = &f.figures
        && figures.seconds > 0.0
    {
        row(
            "measured",
            &format!(
                "{} ordered operations/s, {:.0} % of a processor, {} ({} bubbles, {} clock), {} through the net",
                number(figures.operations_per_second as u64),
                100.0 * figures.busy_share,
                entries(figures.entries),
                number(figures.bubbles),
                number(figures.clock_entries),
                plural(figures.net_calls, "call"),
            ),
        );
    }
    if let Some(recommend) = &f.recommend {
        row(
            "recommend",
            &format!(
                "--mode {}, schedule {} (quantum {}, nclock {})",
                recommend.mode, recommend.schedule, recommend.quantum, recommend.nclock
            ),
        );
        row("cost", &recommend.cost);
    }
}

fn uses(f: &Findings) -> String {
    let mut parts: Vec<String> = f
        .used
        .iter()
        .filter(|use_| use_.count > 0)
        .map(|use_| format!("{} {}", use_.name.replace('_', " "), number(use_.count)))
        .collect();
    let listeners: Vec<&str> = f.listeners.iter().map(|l| l.server.as_str()).collect();
    if !listeners.is_empty() {
        parts.insert(0, format!("listens at {}", listeners.join(" ")));
    }
    if parts.is_empty() { "nothing that Skein has to do with".into() } else { parts.join(", ") }
}

fn shortened(command: &str) -> String {
    let line: String = command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(COMMAND_CHARS) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_at_a_character() {
        let long = "ä".repeat(100);
        assert_eq!(shortened(&long), format!("{}...", "ä".repeat(COMMAND_CHARS)));
        assert_eq!(shortened("a\nb"), "a b");
    }
}
