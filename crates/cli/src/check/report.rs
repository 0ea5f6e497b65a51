//! The findings for a person: one screen.

use std::fmt::Write;

use super::findings::{Findings, OperationsCompared, Verdict};

/// Refused calls that are listed.
const REFUSED_ROWS: usize = 10;
/// Operations before the one that differs that are listed; --json has more.
const BEFORE_ROWS: usize = 3;
/// Characters of a client command that are shown.
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
        self::operations(operations, f.difference.is_some(), &mut row);
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

fn operations(found: &OperationsCompared, differs: bool, row: &mut impl FnMut(&str, &str)) {
    let lost = match found.not_compared {
        0 => String::new(),
        n => format!("; {} more were not written down", number(n)),
    };
    let Some(different) = &found.difference else {
        let compared = plural(found.compared, "event");
        let values = match differs {
            true => ": the runs differ in values that operations carry",
            false => "",
        };
        return row("operations", &format!("{compared} compared, none differs{lost}{values}"));
    };
    let after = different.index.map_or(String::new(), |index| format!(", after entry {index}"));
    let nth = number(different.number + 1);
    row("operations", &format!("event {nth}{after} is the first that differs"));
    for (run, side) in [("first", &different.first), ("second", &different.second)] {
        let words = side.as_ref().map_or("nothing more", |side| side.words.as_str());
        row("", &format!("{:<11} {words}", format!("{run} run:")));
        for frame in side.iter().flat_map(|side| &side.backtrace) {
            row("", &format!("            at {frame}"));
        }
    }
    let more = different.before.len().saturating_sub(BEFORE_ROWS);
    for words in &different.before[more..] {
        row("", &format!("before:     {words}"));
    }
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

fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".into(),
        n => format!("{} entries", number(n)),
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        n => format!("{} times", number(n)),
    }
}

fn plural(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", number(count))
}

/// `1,234,567`.
fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn bytes(n: u64) -> String {
    match n {
        0..10_000 => plural(n, "byte"),
        10_000..10_000_000 => format!("{} KB", number(n / 1000)),
        _ => format!("{} MB", number(n / 1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 12_345, 12_345_678].map(bytes), ["1 byte", "12 KB", "12 MB"]);
        assert_eq!((times(1), times(2)), ("once".into(), "2 times".into()));
    }

    #[test]
    fn a_long_command_is_cut_at_a_character() {
        let long = "ä".repeat(100);
        assert_eq!(shortened(&long), format!("{}...", "ä".repeat(COMMAND_CHARS)));
        assert_eq!(shortened("a\nb"), "a b");
    }
}
