//! Compares the files of two runs.
//!
//! Read when both servers are dead: their layers outlive them, but the modification times do not. Only runs that have executed the same whole log are compared so.

use super::compare::{Difference, Kind, NOWHERE};
use super::seen::Seen;
use crate::error::NodeError;
use skein_sandbox::{Written, WrittenFile};
use std::collections::BTreeMap;

/// The most differing paths that are named.
const NAMED: usize = 4;

/// The number of compared entries, and the first difference; `None` when a run had no layer of its own.
///
/// # Errors
/// A layer cannot be read.
pub fn compare(
    first: &Seen,
    second: &Seen,
) -> Result<Option<(u64, Option<Difference>)>, NodeError> {
    let (Some(first), Some(second)) = (&first.layer, &second.layer) else { return Ok(None) };
    let read = NodeError::system("read the program's files");
    let (first, second) = match (first.written(None), second.written(None)) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => return Err(read(error)),
    };
    let count = first.count.max(second.count);
    let found = (first.digest != second.digest).then(|| difference(&first, &second));
    Ok(Some((count, found)))
}

fn difference(first: &Written, second: &Written) -> Difference {
    type Pair<'a> = (Option<&'a WrittenFile>, Option<&'a WrittenFile>);
    let mut paths: BTreeMap<&str, Pair<'_>> = BTreeMap::new();
    for file in &first.files {
        paths.entry(&file.path).or_default().0 = Some(file);
    }
    for file in &second.files {
        paths.entry(&file.path).or_default().1 = Some(file);
    }
    paths.retain(|_, (a, b)| a.map(|file| &file.digest) != b.map(|file| &file.digest));
    let say = |of: fn(&Pair<'_>) -> Option<WrittenFile>| {
        let mut words: Vec<String> =
            paths.iter().take(NAMED).map(|(path, pair)| describe(path, of(pair))).collect();
        match paths.len() {
            0 => "a difference behind the files that are listed".into(),
            n => {
                if n > NAMED {
                    words.push(format!("and {} more that differ", n - NAMED));
                }
                words.join("; ")
            }
        }
    };
    Difference {
        kind: Kind::Files,
        index: NOWHERE,
        connection: None,
        first: say(|pair| pair.0.cloned()),
        second: say(|pair| pair.1.cloned()),
    }
}

fn describe(path: &str, file: Option<WrittenFile>) -> String {
    match file {
        None => format!("{path}: untouched"),
        Some(file) if file.kind == "deleted" => format!("{path}: deleted"),
        Some(file) => format!(
            "{path}: {} of {} bytes, mode {:o}, digest {}",
            file.kind,
            file.size,
            file.mode,
            &file.digest[..8.min(file.digest.len())]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(files: &[(&str, &str)]) -> Written {
        let file = |(path, digest): &(&str, &str)| WrittenFile {
            path: (*path).into(),
            kind: "file".into(),
            mode: 0o644,
            size: 1,
            modified: None,
            digest: (*digest).into(),
        };
        Written { files: files.iter().map(file).collect(), ..Written::default() }
    }

    #[test]
    fn only_what_differs_is_named() {
        let first = written(&[("/a", "1111"), ("/b", "2222"), ("/c", "3333")]);
        let second = written(&[("/a", "1111"), ("/b", "4444"), ("/d", "5555")]);
        let found = difference(&first, &second);
        assert_eq!(
            found.first,
            "/b: file of 1 bytes, mode 644, digest 2222; /c: file of 1 bytes, mode 644, digest 3333; /d: untouched"
        );
        assert!(
            found.second.starts_with("/b: file of 1 bytes, mode 644, digest 4444; /c: untouched")
        );
        let many: Vec<String> = (0..9).map(|n| format!("/{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "1")).collect();
        assert!(
            difference(&written(&many), &written(&[])).first.ends_with("and 5 more that differ")
        );
    }
}
