//! Rules for source files.

use std::path::Path;

use super::{Complaint, Tree};

/// A longer file has a seam: split it.
const LINES_MAX: usize = 800;

/// Files that people write: their size and their white space are checked.
const WRITTEN: &[&str] = &["rs", "c", "cc", "h", "sh", "md", "toml", "py", "yml", "S", "ld"];

/// Macros that are fine while writing and never in a commit.
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

/// The file that explains every skipped test.
const LIMITATIONS: &str = "docs/limitations.md";

/// Complaints about all files of `tree`.
pub fn check(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (path, text) in &tree.texts {
        if is_written(path) {
            found.extend(check_text(path, text));
        }
    }
    let limitations = tree.text(LIMITATIONS).unwrap_or_default();
    for (path, text) in tree.with_extension("rs") {
        found.extend(check_head(path, text));
        found.extend(check_unfinished(path, text));
        found.extend(check_ignored(path, text, limitations));
    }
    found
}

fn is_written(path: &Path) -> bool {
    let extension = path.extension().and_then(|at| at.to_str());
    extension.map_or_else(
        || path.ends_with("Makefile") || path.ends_with(".ci/run"),
        |extension| WRITTEN.contains(&extension),
    )
}

fn check_text(path: &Path, text: &str) -> Vec<Complaint> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        let say = format!("{lines} lines; split it, {LINES_MAX} is the limit");
        found.push(Complaint::of_file(path, 0, say));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        found.push(Complaint::of_file(path, lines, "ends without a newline"));
    }
    for (number, line) in numbered(text) {
        if line.ends_with([' ', '\t', '\r']) {
            found.push(Complaint::of_file(path, number, "white space at the end of the line"));
        }
    }
    found
}

/// A Rust file begins with its purpose.
fn check_head(path: &Path, text: &str) -> Option<Complaint> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !is_attribute(line));
    let has_head = first.is_some_and(|line| line.starts_with("//!"));
    (!has_head).then(|| Complaint::of_file(path, 1, "no `//!` head that says what it is for"))
}

fn is_attribute(line: &str) -> bool {
    line.starts_with("#![") || line.starts_with("#!/")
}

fn check_unfinished(path: &Path, text: &str) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (number, line) in numbered(text).filter(|(_, line)| !is_comment(line)) {
        for name in UNFINISHED.iter().filter(|name| calls_macro(line, name)) {
            found.push(Complaint::of_file(path, number, format!("`{name}!` is not done")));
        }
    }
    found
}

/// Whether `line` calls the macro `name` itself, not one whose name ends like it.
fn calls_macro(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let whole = before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
        whole && line[at + name.len()..].starts_with("!(")
    })
}

/// A skipped test gives a reason, and the reason is explained to users.
fn check_ignored(path: &Path, text: &str, limitations: &str) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        let Some(rest) = line.trim().strip_prefix("#[ignore") else { continue };
        let reason = rest
            .trim_start_matches([' ', '='])
            .strip_prefix('"')
            .and_then(|rest| rest.split_once('"'))
            .map(|(reason, _)| reason);
        match reason {
            None => found.push(Complaint::of_file(path, number, "a skipped test needs a reason")),
            Some(reason) if !limitations.contains(reason) => {
                let say = format!("the reason \"{reason}\" is not in {LIMITATIONS}");
                found.push(Complaint::of_file(path, number, say));
            }
            Some(_) => {}
        }
    }
    found
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    // Not `lines`, which hides a carriage return.
    text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text), (LIMITATIONS, "needs a second machine\n")]);
        check(&tree).iter().map(Complaint::to_string).collect()
    }

    #[test]
    fn a_good_file_passes() {
        let text = "//! Head.\n\n#[ignore = \"needs a second machine\"]\nfn mytodo() {}\n";
        assert_eq!(complaints("a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn attributes_may_come_before_the_head() {
        assert!(complaints("a.rs", "#![no_std]\n//! Head.\n").is_empty());
    }

    #[test]
    fn a_missing_head_is_found() {
        assert!(complaints("a.rs", "fn a() {}\n")[0].contains("no `//!` head"));
    }

    #[test]
    fn unfinished_code_is_found_but_not_in_comments_or_longer_names() {
        let name = UNFINISHED[0];
        let text = format!("//! Head.\n// {name}!()\nmy_{name}!();\n  {name}!();\n");
        assert_eq!(complaints("a.rs", &text), [format!("a.rs:4: `{name}!` is not done")]);
    }

    #[test]
    fn a_skipped_test_needs_an_explained_reason() {
        let skip = "#[ignore";
        let text = format!("//! Head.\n{skip}]\n{skip} = \"slow\"]\n");
        let found = complaints("a.rs", &text);
        assert!(found[0].contains("needs a reason"), "{found:?}");
        assert!(found[1].contains("\"slow\" is not in"), "{found:?}");
    }

    #[test]
    fn white_space_and_size_are_found() {
        assert!(complaints("a.c", "int a; \n")[0].starts_with("a.c:1: white space"));
        assert!(complaints("a.c", "int a;\r\n")[0].starts_with("a.c:1: white space"));
        assert!(complaints("a.c", "int a;")[0].contains("without a newline"));
        assert!(complaints("a.c", &"\n".repeat(LINES_MAX + 1))[0].contains("split it"));
        assert!(complaints("data.bin", "x ").is_empty(), "data is not checked");
    }
}
