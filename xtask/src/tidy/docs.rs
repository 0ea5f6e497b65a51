//! Documentation that stays true: links and named paths lead somewhere, decisions are numbered.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::{Complaint, Tree};
use crate::{interposition, zoo};

/// Where decision records live.
const DECISIONS: &str = "docs/decisions";

/// Headings that every decision record has, in this order.
const DECISION_PARTS: &[&str] = &["Context", "Decision", "Consequences"];

/// A `code` text in a document that begins so names a file or folder of the repository.
const OWN_PATHS: &[&str] = &["crates/", "docs/", "guests/", "scripts/", "xtask/", "bench/", "zoo/"];

/// Complaints about all documents of `tree`.
pub fn check(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("md") {
        found.extend(check_links(tree, path, text));
    }
    found.extend(check_decisions(tree));
    found.extend(check_interposition(tree));
    found.extend(check_servers(tree));
    found.extend(check_figures(tree));
    found
}

fn check_links(tree: &Tree, path: &Path, text: &str) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (event, span) in Parser::new(text).into_offset_iter() {
        let problem = match &event {
            Event::Start(Tag::Link { dest_url: to, .. } | Tag::Image { dest_url: to, .. }) => {
                link_problem(tree, path, text, to)
            }
            Event::Code(code) => path_problem(tree, code),
            _ => None,
        };
        if let Some(problem) = problem {
            let line = text[..span.start].matches('\n').count() + 1;
            found.push(Complaint::of_file(path, line, problem));
        }
    }
    found
}

fn link_problem(tree: &Tree, from: &Path, text: &str, to: &str) -> Option<String> {
    if to.contains("://") || to.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = to.split_once('#').map_or((to, None), |(file, at)| (file, Some(at)));
    let target = from.parent().unwrap_or(Path::new("")).join(file);
    let target = if file.is_empty() { from.to_path_buf() } else { normal(&target) };
    if !exists(tree, &target) {
        return Some(format!("the link to `{to}` leads nowhere"));
    }
    let target_text = if target == from { Some(text) } else { tree.text(target.to_str()?) };
    let lost = anchor.filter(|anchor| !anchors(target_text.unwrap_or("")).contains(*anchor))?;
    Some(format!("`{}` has no heading for `#{lost}`", target.display()))
}

/// A path of the repository in a `code` text must exist; a `*` or `<` makes it a pattern.
fn path_problem(tree: &Tree, code: &str) -> Option<String> {
    let is_path = OWN_PATHS.iter().any(|start| code.starts_with(start));
    if !is_path || code.contains(['*', '<', ' ', '{']) {
        return None;
    }
    let file = code.split(':').next().unwrap_or(code);
    (!exists(tree, &normal(Path::new(file)))).then(|| format!("`{file}` does not exist"))
}

fn exists(tree: &Tree, target: &Path) -> bool {
    target.as_os_str().is_empty() || tree.paths.iter().any(|path| path.starts_with(target))
}

/// `path` without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::Normal(name) => plain.push(name),
            _ => {}
        }
    }
    plain
}

/// The anchors that a viewer makes of the headings of `text`.
fn anchors(text: &str) -> BTreeSet<String> {
    headings(text).iter().map(|heading| slug(heading)).collect()
}

fn headings(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => open = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => found.extend(open.take()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut open {
                    heading.push_str(&part);
                }
            }
            _ => {}
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The page printed from the table equals the table.
fn check_interposition(tree: &Tree) -> Option<Complaint> {
    let printed = tree.text(interposition::PAGE)?;
    let say = "is not what the table says: run `cargo xtask interposition`";
    (printed != interposition::page())
        .then(|| Complaint::of_file(Path::new(interposition::PAGE), 0, say))
}

/// The page of servers equals the zoo's files.
fn check_servers(tree: &Tree) -> Option<Complaint> {
    let printed = tree.text(zoo::PAGE)?;
    let wrong = |text: String| Some(Complaint::of_file(Path::new(zoo::PAGE), 0, text));
    match zoo::page() {
        Ok(page) if page == printed => None,
        Ok(_) => wrong("is not what zoo/ says: run `cargo xtask zoo --page`".to_owned()),
        Err(failure) => wrong(failure.to_string()),
    }
}

/// Documents made from results equal these.
fn check_figures(tree: &Tree) -> Vec<Complaint> {
    if tree.text("docs/performance.md").is_none() {
        return Vec::new();
    }
    let pages = match skein_bench::report::pages() {
        Ok(pages) => pages,
        Err(failure) => {
            return vec![Complaint::of_file(Path::new("bench"), 0, failure.to_string())];
        }
    };
    let differs = pages.iter().filter(|page| tree.text(&page.path) != Some(page.text.as_str()));
    let say = "is not what bench/results gives: run `cargo xtask bench --report`";
    differs.map(|page| Complaint::of_file(Path::new(&page.path), 0, say)).collect()
}

/// Decisions are numbered from 1 without a gap, have the same parts and are in the index.
fn check_decisions(tree: &Tree) -> Vec<Complaint> {
    let mut found = Vec::new();
    let index = tree.text(&format!("{DECISIONS}/README.md")).unwrap_or_default();
    let mut next = 1;
    for (path, text) in tree.with_extension("md") {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !path.starts_with(DECISIONS) || name == "README.md" {
            continue;
        }
        let number = name.split('-').next().filter(|digits| digits.len() == 4);
        match number.and_then(|digits| digits.parse::<usize>().ok()) {
            // 0000 is the form to copy.
            Some(0) => continue,
            Some(number) if number == next => next += 1,
            Some(number) => {
                let say = format!("number {number} where {next:04} comes next");
                found.push(Complaint::of_file(path, 0, say));
                next = number + 1;
            }
            None => {
                found.push(Complaint::of_file(path, 0, "name it `NNNN-what-was-decided.md`"));
                continue;
            }
        }
        if !index.contains(name) {
            found.push(Complaint::of_file(path, 0, format!("not in {DECISIONS}/README.md")));
        }
        let headings = headings(text);
        let mut at = headings.iter();
        for part in DECISION_PARTS {
            if !at.any(|heading| heading.starts_with(part)) {
                let say = format!("no heading \"{part}\", or not in its place");
                found.push(Complaint::of_file(path, 0, say));
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# 1\n## Context\n## Decision\n## Consequences\n";

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(Complaint::to_string).collect()
    }

    #[test]
    fn links_and_named_paths_that_lead_somewhere_pass() {
        let text = "[a](docs/b.md#two-words) [c](docs) [d](#here) [e](http://x.invalid)\n\
                    `docs/b.md` `docs/*.md`\n# Here\n";
        let found = complaints(&[("README.md", text), ("docs/b.md", "# Two `words`\n")]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn broken_links_are_found_with_their_line() {
        let text = "\n[a](../c.md)\n\n[b](b.md#none)\n`docs/none.rs`\n";
        let found = complaints(&[("docs/b.md", text)]);
        assert_eq!(
            found,
            [
                "docs/b.md:2: the link to `../c.md` leads nowhere",
                "docs/b.md:4: `docs/b.md` has no heading for `#none`",
                "docs/b.md:5: `docs/none.rs` does not exist",
            ]
        );
    }

    #[test]
    fn decisions_are_numbered_complete_and_listed() {
        let index = ("docs/decisions/README.md", "`0001-a.md` `0003-c.md`");
        let good = ("docs/decisions/0001-a.md", GOOD);
        assert_eq!(complaints(&[index, good]), Vec::<String>::new());
        let found = complaints(&[index, good, ("docs/decisions/0003-c.md", "## Decision\n")]);
        assert!(found[0].contains("number 3 where 0002"), "{found:?}");
        assert!(found[1].contains("no heading \"Context\""), "{found:?}");
        let found = complaints(&[index, good, ("docs/decisions/0002-b.md", GOOD)]);
        assert!(found[0].contains("not in docs/decisions/README.md"), "{found:?}");
        let found = complaints(&[index, ("docs/decisions/notes.md", GOOD)]);
        assert!(found[0].contains("name it"), "{found:?}");
    }
}
