//! The error catalogue equals the source.
//!
//! The first cell of each row of `docs/errors.md` is a message as `code`, with `<...>` for the variable
//! parts. Every fixed part of it must be in a string of the source.

use std::path::Path;

use super::{Complaint, Tree};

const CATALOGUE: &str = "docs/errors.md";

/// Shorter parts are in the source by chance.
const PART_CHARS_MIN: usize = 8;

/// Complaints about messages that the source lacks.
pub fn check(tree: &Tree) -> Vec<Complaint> {
    let Some(catalogue) = tree.text(CATALOGUE) else { return Vec::new() };
    let shipped = tree.with_extension("rs").filter(|(path, _)| path.starts_with("crates"));
    let source = shipped.map(|(_, text)| joined(text)).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (index, line) in catalogue.lines().enumerate() {
        let message = line.strip_prefix("| `").and_then(|rest| rest.split_once("` |"));
        let Some((message, _)) = message else { continue };
        if message.starts_with("skein ") {
            // A command in the table of exit codes.
            continue;
        }
        for part in parts(message).filter(|part| !source.contains(*part)) {
            let say = format!("no message in crates/ says \"{part}\"");
            found.push(Complaint::of_file(Path::new(CATALOGUE), index + 1, say));
        }
    }
    found
}

/// The rest of a message without its `<...>`.
fn parts(message: &str) -> impl Iterator<Item = &str> {
    message
        .split('<')
        .enumerate()
        .map(|(nth, piece)| match piece.split_once('>') {
            Some((_, fixed)) if nth > 0 => fixed,
            _ => piece,
        })
        .map(|part| part.trim_matches(|letter: char| !letter.is_alphanumeric()))
        .filter(|part| part.chars().count() >= PART_CHARS_MIN)
}

/// Source text with strings joined that continue in the next line.
fn joined(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut pieces = text.split("\\\n");
    whole.extend(pieces.next());
    for piece in pieces {
        whole.push_str(piece.trim_start());
    }
    whole.replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "#[error(\"cannot open {file}: {why}; \\\n         check \\\"it\\\" first\")]";

    fn complaints(row: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/log/src/a.rs", SOURCE), (CATALOGUE, row)]);
        check(&tree).iter().map(Complaint::to_string).collect()
    }

    #[test]
    fn a_message_of_the_source_passes() {
        assert!(
            complaints("| `cannot open <file>: <why>; check \"it\" first` | x | y |").is_empty()
        );
    }

    #[test]
    fn a_message_that_nobody_says_is_found() {
        let found = complaints("\n| `cannot close <file>` | x | y |");
        assert_eq!(found, ["docs/errors.md:2: no message in crates/ says \"cannot close\""]);
    }

    #[test]
    fn other_tables_are_left_alone() {
        assert!(complaints("| `skein` | anything |\n| plain | words here |").is_empty());
    }
}
