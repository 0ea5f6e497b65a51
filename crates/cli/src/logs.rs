//! `skein logs`: the nodes' events, and what the server printed.
//!
//! Events of several nodes are put in the order of their times. All replicas of a server print the same, so without
//! `--replica` only the first one's output is shown. Works for a cluster that has stopped as well, when its data directory
//! is the default one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::args::LogsArgs;
use crate::failure::{EXIT_USAGE, Failure};
use crate::instance::{self, Instance, NodeFiles};
use crate::{paths, status};

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
    file: Option<File>,
    rest: Vec<u8>,
}

/// Prints the logs; answers the exit code.
pub fn logs(args: &LogsArgs) -> Result<u8, Failure> {
    let (instance, nodes) = nodes(args)?;
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
        .chain(nodes.first().map(|n| Source::new(format!("server {}", n.id), &n.output, false)))
        .collect();
    // A reader that closed the pipe wants no more.
    if print(&mut sources).is_err() || !args.follow {
        return Ok(0);
    }
    while instance.as_ref().is_some_and(Instance::runs) {
        std::thread::sleep(LOOK);
        if print(&mut sources).is_err() {
            return Ok(0);
        }
    }
    let _ = print(&mut sources);
    Ok(0)
}

fn nodes(args: &LogsArgs) -> Result<(Option<Instance>, Vec<NodeFiles>), Failure> {
    let failure = match instance::find(args.name.as_deref()) {
        Ok(instance) => {
            let nodes = status::state_of(&instance)?.nodes;
            return Ok((Some(instance), nodes));
        }
        Err(failure) => failure,
    };
    let Some(name) = &args.name else { return Err(failure) };
    let dir = paths::data_dir(name)?;
    let mut nodes: Vec<NodeFiles> = std::fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.strip_prefix("node-")?.parse().ok()?;
            Some(NodeFiles {
                id,
                address: String::new(),
                admin: PathBuf::new(),
                log: entry.path().join("node.log"),
                output: entry.path().join("server.log"),
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    if nodes.is_empty() { Err(failure) } else { Ok((None, nodes)) }
}

/// Prints what is new.
fn print(sources: &mut [Source]) -> io::Result<()> {
    let mut events: BTreeMap<(String, usize), String> = BTreeMap::new();
    let mut output = Vec::new();
    for source in sources {
        for line in source.read() {
            let text = format!("{} | {line}\n", source.label);
            if source.events {
                let at = (timestamp(&line), events.len());
                events.insert(at, text);
            } else {
                output.push(text);
            }
        }
    }
    let mut out = io::stdout().lock();
    for text in events.values().chain(&output) {
        out.write_all(text.as_bytes())?;
    }
    out.flush()
}

/// The time of an event; lines that are none come first.
fn timestamp(line: &str) -> String {
    serde_json::from_str::<serde_json::Value>(line)
        .ok()
        .and_then(|event| event["timestamp"].as_str().map(Into::into))
        .unwrap_or_default()
}

impl Source {
    fn new(label: String, path: &Path, events: bool) -> Self {
        Self { label, path: path.into(), events, file: None, rest: Vec::new() }
    }

    /// The lines that are whole now.
    fn read(&mut self) -> Vec<String> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        // A file that became shorter was begun anew.
        if let (Ok(at), Ok(meta)) = (file.stream_position(), file.metadata())
            && meta.len() < at
        {
            self.rest.clear();
            let _ = file.seek(SeekFrom::Start(0));
        }
        // What cannot be read now is tried again at the next look.
        let _ = file.read_to_end(&mut self.rest);
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
    fn finds_times() {
        assert_eq!(timestamp(r#"{"timestamp":"2026-01-01T00:00:00Z"}"#), "2026-01-01T00:00:00Z");
        assert_eq!(timestamp("panicked at"), "");
    }
}
