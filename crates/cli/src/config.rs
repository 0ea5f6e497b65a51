//! Reads a node's configuration file, and names the position of an error in it: `FILE:LINE:COLUMN: what was expected`.
//!
//! The keys and their defaults are those of [`NodeConfig`]; `docs/skein.toml` explains them, and a test compares it with
//! the code.

use std::fs;
use std::ops::Range;
use std::path::Path;

use skein_node::NodeConfig;
use skein_node::config::ConfigError;

use crate::failure::Failure;

/// The largest configuration file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads and checks the file.
pub fn read(path: &Path) -> Result<NodeConfig, Failure> {
    let unreadable = |why: String| {
        Failure::new(
            format!("config {}", path.display()),
            why,
            "give a TOML file as in docs/skein.toml with --config",
        )
    };
    let meta = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return Err(unreadable("it is no file of at most 1 MiB".into()));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        located(path, &text, Some(at..at), "expected UTF-8 text")
    })?;
    parse(path, &text)
}

/// Reads and checks the text of the file at `path`.
pub fn parse(path: &Path, text: &str) -> Result<NodeConfig, Failure> {
    let config: NodeConfig = toml::from_str(text)
        .map_err(|error| located(path, text, error.span(), &expected(error.message())))?;
    config.check().map_err(|ConfigError { key, why }| {
        located(path, text, key_span(text, key), &format!("{key} {why}"))
    })?;
    Ok(config)
}

/// Refuses a value of the file at `path` that is well-formed.
pub fn refuse(path: &Path, key: &str, why: &str) -> Failure {
    let text = fs::read_to_string(path).unwrap_or_default();
    located(path, &text, key_span(&text, key), why)
}

fn expected(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", ")
}

fn located(path: &Path, text: &str, span: Option<Range<usize>>, why: &str) -> Failure {
    let place = match span {
        Some(span) => {
            let (line, column) = line_and_column(text, span.start);
            format!("config {}:{line}:{column}", path.display())
        }
        None => format!("config {}", path.display()),
    };
    Failure::new(place, why, "docs/skein.toml explains every key")
}

/// Line and column of a byte offset, both from 1; the column counts characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The position of a dotted key's value, or of the longest part of the key that exists.
fn key_span(text: &str, key: &str) -> Option<Range<usize>> {
    let root = toml::de::DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut found = None;
    for part in key.split('.') {
        let Some(value) = table.get(part) else { break };
        found = Some(value.span());
        match value.get_ref() {
            toml::de::DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "redis"
id = 1
data_dir = "/var/lib/skein/redis"
peers = [{ id = 1, address = "127.0.0.1:7100" }]
[server]
program = "redis-server"
"#;

    fn refusal(text: &str) -> String {
        parse(Path::new("a.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn the_least_that_is_needed() {
        let config = parse(Path::new("a.toml"), GOOD).unwrap();
        assert_eq!(config.server.cwd, Path::new("/"));
    }

    #[test]
    fn says_where() {
        for (text, place, what) in [
            (GOOD.replace("id = 1\ndata", "idd = 1\ndata"), "a.toml:3:1", "unknown field `idd`"),
            (GOOD.replace("\"redis\"", "7"), "a.toml:2:8", "expected a string"),
            (GOOD.replace("127.0.0.1:7100", "127.0.0.1"), "a.toml:5:30", "ADDRESS:PORT"),
            (GOOD.replace("127.0.0.1", "10.0.0.1"), "a.toml", "key_file is needed"),
            (GOOD.replace("name = \"redis\"", "name = \"redis"), "a.toml:2", "string"),
            (GOOD.replace("name = \"redis\"\n", ""), "a.toml:1:1", "missing field `name`"),
            (GOOD.replace("id = 1\ndata", "id = 2\ndata"), "a.toml:3:6", "not one of the ids"),
            (format!("{GOOD}[tuning]\nheartbeat_ms = 0\n"), "a.toml:9:16", "heartbeat"),
            (format!("{GOOD}[tuning]\nheartbeat = 0\n"), "a.toml:9:1", "unknown field"),
            (
                format!("{GOOD}env = [[\"SKEIN_INTERFACE\", \"lo\"]]\n"),
                "a.toml:8:7",
                "ADDRESS[/BITS]",
            ),
        ] {
            let line = refusal(&text);
            assert!(line.contains(place) && line.contains(what), "{line}\nwanted {place}: {what}");
            assert_eq!(line.lines().count(), 1);
        }
    }

    #[test]
    fn counts_characters() {
        assert_eq!(line_and_column("ä\nöü=", 7), (2, 3));
        assert_eq!(line_and_column("", 9), (1, 1));
    }
    /// The documented file, with the lines that show defaults (`#key = value`) taken as they are or put in force.
    fn documented(defaults: bool) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/skein.toml");
        let text = fs::read_to_string(path).unwrap();
        let line = |line: &str| match line.strip_prefix('#') {
            Some(rest) if defaults && rest.starts_with(|c: char| c.is_ascii_lowercase()) => {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn documented_defaults_are_the_codes() {
        let plain = parse(Path::new("skein.toml"), &documented(false)).unwrap();
        let mut shown = parse(Path::new("skein.toml"), &documented(true)).unwrap();
        assert_eq!(shown.listen_address(), plain.listen_address());
        assert_eq!(shown.admin_path(), plain.admin_path());
        assert_eq!(shown.output_path(), plain.output_path());
        assert_eq!(shown.tuning, skein_node::config::Tuning::default());
        (shown.listen, shown.admin_socket, shown.server.output) = (None, None, None);
        assert_eq!(shown, plain);
    }

    #[test]
    fn every_key_is_documented() {
        let mut config = parse(Path::new("skein.toml"), &documented(true)).unwrap();
        config.cluster_id = Some("0".repeat(32));
        config.metrics = Some("127.0.0.1:1".parse().unwrap());
        config.log_file = Some("/x".into());
        let text = documented(false);
        for line in toml::to_string(&config).unwrap().lines() {
            let Some((key, _)) = line.split_once(" = ") else { continue };
            let shown = [format!("\n{key} = "), format!("\n#{key} = "), format!("\n# {key} = ")];
            let inline = format!("{{ {key} = ");
            let found = shown.iter().any(|form| text.contains(form)) || text.contains(&inline);
            assert!(
                found || text.contains(&format!(", {key} = ")),
                "{key} is not in docs/skein.toml"
            );
        }
    }
}
