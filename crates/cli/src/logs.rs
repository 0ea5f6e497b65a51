//! `skein logs`: events of the nodes and of `skein run`, and the server's output.
//!
//! Events of several nodes are put in the order of their times. All replicas of a server print the same, so without
//! `--replica` only the first one's output is shown. Works for a cluster that has stopped as well: from its data directory.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use skein_node::rolling;

use crate::args::LogsArgs;
use crate::failure::{EXIT_NOT_RUNNING, EXIT_USAGE, Failure};
use crate::instance::{self, Instance, NodeFiles};
use crate::{cluster, paths, status};

/// How often followed files are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The longest line that is kept together.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A file that grows, read by lines.
struct Source {
    label: String,
    path: PathBuf,
    /// Whether its lines carry times.
    events: bool,
    /// The files that are not read to their ends, the oldest first; the last one grows.
    files: VecDeque<File>,
    rest: Vec<u8>,
    /// The time of its last event: lines without a time belong to that.
    time: String,
}

/// Prints the logs; answers the exit code.
pub fn logs(args: &LogsArgs) -> Result<u8, Failure> {
    let (instance, nodes) = nodes(args)?;
    let run = nodes.first().and_then(|node| Some(node.log.parent()?.parent()?.join("run.log")));
    let run = run.filter(|path| args.replica.is_none() && path.exists());
    let nodes: Vec<&NodeFiles> =
        nodes.iter().filter(|node| args.replica.is_none_or(|id| id == node.id)).collect();
    if nodes.is_empty() {
        let what = format!("replica {}", args.replica.unwrap_or_default());
        return Err(Failure::new(what, "there is none here", "'skein status' lists them")
            .with_code(EXIT_USAGE));
    }
    let mut sources: Vec<Source> = nodes
        .iter()
        .map(|node| Source::new(format!("node {}", node.id), &node.log, true))
        .chain(run.map(|path| Source::new("run".into(), &path, true)))
        .chain(nodes.first().map(|n| Source::new(format!("server {}", n.id), &n.output, false)))
        .collect();
    // A reader that closed the pipe wants no more.
    if print(&mut sources, args.json).is_err() || !args.follow {
        return Ok(0);
    }
    while instance.as_ref().is_some_and(Instance::runs) {
        std::thread::sleep(LOOK);
        if print(&mut sources, args.json).is_err() {
            return Ok(0);
        }
    }
    let _ = print(&mut sources, args.json);
    Ok(0)
}

fn nodes(args: &LogsArgs) -> Result<(Option<Instance>, Vec<NodeFiles>), Failure> {
    if let Some(dir) = &args.data {
        let nodes = nodes_in(dir);
        if nodes.is_empty() {
            let why = "it holds no logs of nodes";
            let fix = "give the data directory of a cluster, as 'skein run' names it";
            return Err(Failure::new(dir.display().to_string(), why, fix).with_code(EXIT_USAGE));
        }
        return Ok((None, nodes));
    }
    let failure = match instance::find(args.name.as_deref()) {
        Ok(instance) => {
            let nodes = status::state_of(&instance)?.nodes;
            return Ok((Some(instance), nodes));
        }
        Err(failure) if failure.code == Some(EXIT_NOT_RUNNING) => {
            let fix = "read the logs of one that has stopped with --data DIR";
            Failure { fix: fix.into(), ..failure }
        }
        Err(failure) => failure,
    };
    let Some(name) = &args.name else { return Err(failure) };
    let nodes = nodes_in(&paths::data_dir(name)?);
    if nodes.is_empty() { Err(failure) } else { Ok((None, nodes)) }
}

/// The nodes whose logs lie in a data directory.
fn nodes_in(dir: &Path) -> Vec<NodeFiles> {
    let node = |(id, data): (u64, PathBuf)| NodeFiles {
        id,
        address: String::new(),
        admin: PathBuf::new(),
        log: data.join("node.log"),
        output: data.join("server.log"),
        data,
    };
    cluster::nodes_in(dir).into_iter().map(node).collect()
}

/// Prints what is new.
fn print(sources: &mut [Source], as_json: bool) -> io::Result<()> {
    let mut events: BTreeMap<(String, usize), String> = BTreeMap::new();
    let mut output = Vec::new();
    for source in sources {
        for line in source.read() {
            let event = serde_json::from_str(&line).ok().filter(|_| source.events);
            let text = match (&event, as_json) {
                (Some(event), true) => labelled(&source.label, event),
                (None, true) => json!({ "source": source.label, "line": line }).to_string(),
                (Some(event), false) => human(&source.label, event),
                (None, false) => format!("{} | {line}", source.label),
            };
            if !source.events {
                output.push(text);
                continue;
            }
            if let Some(time) = event.as_ref().and_then(|event| event["timestamp"].as_str()) {
                source.time = time.into();
            }
            events.insert((source.time.clone(), events.len()), text);
        }
    }
    let mut out = io::stdout().lock();
    for text in events.values().chain(&output) {
        writeln!(out, "{text}")?;
    }
    out.flush()
}

/// An event with its origin.
fn labelled(label: &str, event: &Map<String, Value>) -> String {
    let mut event = event.clone();
    event.insert("source".into(), label.into());
    Value::Object(event).to_string()
}

/// An event as a line: time, origin, level if it is bad, message, and the rest as name=value.
fn human(label: &str, event: &Map<String, Value>) -> String {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    // To the millisecond: 2026-01-01T00:00:00.123456Z.
    let time = text("timestamp").trim_end_matches('Z').replace('T', " ");
    let mut line = format!("{} {label} |", time.get(..23).unwrap_or(&time));
    for word in [text("level"), text("event"), text("message")] {
        if !["", "INFO", "DEBUG", "TRACE"].contains(&word) {
            line.push_str(&format!(" {word}"));
        }
    }
    for (name, value) in event {
        if ["timestamp", "level", "target", "event", "message"].contains(&name.as_str()) {
            continue;
        }
        match value {
            Value::String(word) if !word.is_empty() && !word.contains([' ', '"']) => {
                line.push_str(&format!(" {name}={word}"));
            }
            other => line.push_str(&format!(" {name}={other}")),
        }
    }
    line
}

impl Source {
    fn new(label: String, path: &Path, events: bool) -> Self {
        Self {
            label,
            path: path.into(),
            events,
            files: VecDeque::new(),
            rest: Vec::new(),
            time: String::new(),
        }
    }

    /// The files that have been begun after the last known one.
    fn later(&self) -> Vec<File> {
        let same = |file: &File, meta: &Metadata| {
            file.metadata().is_ok_and(|own| rolling::same(&own, meta))
        };
        let Some(last) = self.files.back() else { return Vec::new() };
        // While it has no name, there is none.
        if std::fs::metadata(&self.path).map_or(true, |named| same(last, &named)) {
            return Vec::new();
        }
        let (Ok(mut parts), Ok(last)) = (rolling::parts(&self.path), last.metadata()) else {
            return Vec::new();
        };
        // If it is gone, so are some after it, perhaps.
        match parts.iter().position(|file| same(file, &last)) {
            Some(at) => parts.split_off(at + 1),
            None => parts,
        }
    }

    /// The complete lines.
    fn read(&mut self) -> Vec<String> {
        if self.files.is_empty() {
            self.files = rolling::parts(&self.path).unwrap_or_default().into();
        }
        loop {
            let Some(file) = self.files.front_mut() else { return Vec::new() };
            // A file that became shorter was restarted.
            if let (Ok(at), Ok(meta)) = (file.stream_position(), file.metadata())
                && meta.len() < at
            {
                self.rest.clear();
                let _ = file.seek(SeekFrom::Start(0));
            }
            // Looked at before the end of this one is read: what was written before is in there.
            let later = if self.files.len() == 1 { self.later() } else { Vec::new() };
            let Some(file) = self.files.front_mut() else { return Vec::new() };
            // A failed read is tried again at the next look.
            let _ = file.read_to_end(&mut self.rest);
            self.files.extend(later);
            if self.files.len() == 1 {
                break;
            }
            self.files.pop_front();
        }
        let end = match self.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if self.rest.len() > MAX_LINE_BYTES => self.rest.len(),
            None => return Vec::new(),
        };
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        String::from_utf8_lossy(&whole).lines().map(Into::into).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whole_lines_as_they_come() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.log");
        let mut source = Source::new("a".into(), &path, false);
        assert!(source.read().is_empty(), "no file yet");
        let mut file = File::create(&path).unwrap();
        write!(file, "one\ntw").unwrap();
        assert_eq!(source.read(), ["one"]);
        writeln!(file, "o").unwrap();
        assert_eq!(source.read(), ["two"]);
        assert!(source.read().is_empty());
        std::fs::write(&path, "x\n").unwrap();
        assert_eq!(source.read(), ["x"], "begun anew");
    }

    #[test]
    fn files_that_were_full_are_read_in_their_order_and_followed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.log");
        let bounds = rolling::LogFiles { file_bytes: 30, old_files: 3 };
        let mut log = rolling::Rolling::open(&path, bounds).unwrap();
        let mut number = 0;
        let mut write = |lines: u64| {
            for _ in 0..lines {
                number += 1;
                writeln!(log, "number {number:02}").unwrap();
            }
        };
        let names = |numbers: std::ops::RangeInclusive<u64>| {
            numbers.map(|n| format!("number {n:02}")).collect::<Vec<_>>()
        };
        write(5);
        let mut source = Source::new("a".into(), &path, false);
        assert_eq!(source.read(), names(1..=5));
        write(1);
        assert_eq!(source.read(), names(6..=6));
        write(4);
        assert_eq!(source.read(), names(7..=10), "two files further");
        write(40);
        assert_eq!(source.read(), [names(11..=12), names(40..=50)].concat(), "what is left");
        assert!(source.read().is_empty());
    }

    #[test]
    fn an_event_is_a_line_that_people_read() {
        let event = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let ended = event(
            r#"{"timestamp":"2026-01-01T00:00:00.123456Z","level":"WARN","event":"server_ended","how":"signal 9","index":7,"target":"skein_node"}"#,
        );
        assert_eq!(
            human("node 2", &ended),
            r#"2026-01-01 00:00:00.123 node 2 | WARN server_ended how="signal 9" index=7"#
        );
        assert!(labelled("node 2", &ended).contains(r#""source":"node 2""#));
        let said =
            event(r#"{"timestamp":"2026-01-01T00:00:00.123Z","message":"skein: t: stopping"}"#);
        assert_eq!(human("run", &said), "2026-01-01 00:00:00.123 run | skein: t: stopping");
    }
}
