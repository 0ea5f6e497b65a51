//! No circles among the rooms of a crate: a room may not use one that uses it, directly or through others.
//!
//! A room is a module at the crate's root, with all that is in its folder. It uses the rooms that its paths name, from `crate::` or by enough
//! `super::`, also under a name that the root exports again. The root itself may use all rooms, and so may tests.
//!
//! In a crate with a room `state`, a room's `records.rs` is a part of that: plain data, below all rooms. Where it stands decides who may touch its
//! fields: those that are `pub(in crate::ROOM)` only its own room, as the compiler checks; those that are `pub` everybody. There is nothing between.

use super::{Complaint, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// From each room to those that it uses: the file and line of the first use.
type Arrows = BTreeMap<String, BTreeMap<String, (PathBuf, usize)>>;

/// Complaints about all crates.
pub fn check(tree: &Tree) -> Vec<Complaint> {
    let houses: BTreeSet<&Path> = tree
        .with_extension("rs")
        .filter(|(path, _)| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs"))
        .filter_map(|(path, _)| path.parent())
        .collect();
    let mut found: Vec<_> = houses.iter().flat_map(|house| circles(&arrows(tree, house))).collect();
    found.extend(houses.iter().flat_map(|house| half_open(tree, house)));
    found
}

/// The room that holds the state of all others, and the file with a room's part of it.
const STATE: &str = "state";
const RECORDS: &str = "records.rs";

/// Complaints about what is neither for its own room alone nor for everybody, in records.
fn half_open(tree: &Tree, house: &Path) -> Vec<Complaint> {
    let files: Vec<_> = tree
        .with_extension("rs")
        .filter_map(|(path, text)| Some((path, path.strip_prefix(house).ok()?, text)))
        .collect();
    if !files.iter().any(|(_, part, _)| room_of(part) == Some(STATE)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (path, part, text) in files {
        let Some(room) = room_of(part).filter(|_| part.ends_with(RECORDS)) else { continue };
        let own = format!("pub(in crate::{room})");
        for (line, code) in productive(text).lines().enumerate() {
            if code.replace(&own, "").contains("pub(") {
                let says = format!("other rooms could change it: `{own}`, or `pub` for everybody");
                found.push(Complaint::of_file(path, line + 1, says));
            }
        }
    }
    found
}

/// The rooms of the crate in directory `of`, a line each with those that it uses, lowest first; `None` when there is no such crate.
pub fn list(tree: &Tree, of: &Path) -> Option<String> {
    let mut left = arrows(tree, &of.join("src"));
    let mut text = String::new();
    let mut listed = BTreeSet::new();
    while !left.is_empty() {
        // Without circles there is always one; with them the others come at the end.
        let free = |uses: &BTreeMap<_, _>| uses.keys().all(|room| listed.contains(room));
        let next = left.iter().find(|(_, uses)| free(uses)).or(left.iter().next());
        let room = next.map(|(room, _)| room.clone())?;
        let uses: Vec<String> = left.remove(&room)?.into_keys().collect();
        text += format!("{room:<14} {}", uses.join(" ")).trim_end();
        text.push('\n');
        listed.insert(room);
    }
    (!text.is_empty()).then_some(text)
}

fn arrows(tree: &Tree, house: &Path) -> Arrows {
    let files: Vec<_> = tree
        .with_extension("rs")
        .filter_map(|(path, text)| Some((path, path.strip_prefix(house).ok()?, text)))
        .collect();
    let mut rooms: BTreeSet<&str> = files.iter().filter_map(|(_, part, _)| room_of(part)).collect();
    let mut exported = BTreeMap::new();
    for (_, _, text) in files.iter().filter(|(_, part, _)| is_root(part)) {
        for room in test_rooms(text) {
            rooms.remove(room);
        }
        for (_, path) in paths(&productive(text), "use ") {
            exported.insert(last(&path).to_owned(), first(&path).to_owned());
        }
    }
    let mut arrows: Arrows =
        rooms.iter().map(|room| ((*room).to_owned(), BTreeMap::new())).collect();
    let has_state = rooms.contains(STATE);
    for (path, part, text) in &files {
        let Some(mut room) = room_of(part).filter(|room| rooms.contains(room)) else { continue };
        let mut text = productive(text);
        let up = "super::".repeat(depth_of(part));
        let mut used = Vec::new();
        if has_state && part.ends_with(RECORDS) {
            text = text.replace(&format!("pub(in crate::{room})"), "pub");
            // Its own room is above it.
            let beside = paths(&text, "super::").into_iter();
            used.extend(
                beside
                    .filter(|(_, path)| first(path) != "super")
                    .map(|(line, _)| (line, room.to_owned())),
            );
            room = STATE;
        }
        used.extend(paths(&text, "crate::"));
        used.extend(paths(&text, &up));
        for (line, used) in used {
            let is_record =
                has_state && used.split([':', ' ']).nth(2) == RECORDS.strip_suffix(".rs");
            let used = if is_record { STATE } else { first(&used) };
            let used = exported.get(used).map_or(used, String::as_str);
            if used != room && rooms.contains(used) {
                let of_room = arrows.entry(room.to_owned()).or_default();
                of_room.entry(used.to_owned()).or_insert(((*path).to_owned(), line));
            }
        }
    }
    arrows
}

/// Complaints about the shortest circles, of which no two share a room.
fn circles(arrows: &Arrows) -> Vec<Complaint> {
    let mut all: Vec<_> = arrows.keys().filter_map(|room| shortest_circle(arrows, room)).collect();
    all.sort_by_key(Vec::len);
    let mut named = BTreeSet::new();
    let mut found = Vec::new();
    for circle in all {
        if circle.iter().any(|room| named.contains(room)) {
            continue;
        }
        let mut text = String::from("rooms use each other in a circle");
        for (from, to) in circle.iter().zip(circle.iter().cycle().skip(1)) {
            let (path, line) = &arrows[*from][*to];
            text += &format!("; {from} uses {to} ({}:{line})", path.display());
        }
        let (path, line) = &arrows[circle[0]][circle[1]];
        found.push(Complaint::of_file(path, *line, text));
        named.extend(circle);
    }
    found
}

/// The rooms of the shortest way from `room` back to it.
fn shortest_circle<'a>(arrows: &'a Arrows, room: &'a str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([room]);
    while let Some(from) = next.pop_front() {
        for to in arrows.get(from).into_iter().flat_map(BTreeMap::keys) {
            if to == room {
                let mut circle = vec![from];
                while let Some(earlier) = before.get(circle[circle.len() - 1]) {
                    circle.push(earlier);
                }
                circle.reverse();
                return Some(circle);
            }
            if !before.contains_key(to.as_str()) {
                before.insert(to, from);
                next.push_back(to);
            }
        }
    }
    None
}

/// Whether a file of a crate's sources is its root.
fn is_root(part: &Path) -> bool {
    part == Path::new("lib.rs") || part == Path::new("main.rs")
}

/// The room that a file is a part of. Roots, further programs and files of tests are in none.
fn room_of(part: &Path) -> Option<&str> {
    let of_tests = part.iter().any(|name| name == "tests" || name == "tests.rs");
    let first = part.iter().next()?.to_str()?;
    let none = is_root(part) || of_tests || first == "bin";
    (!none).then(|| first.strip_suffix(".rs").unwrap_or(first))
}

/// How many steps a file's module is below the root.
fn depth_of(part: &Path) -> usize {
    part.iter().count() - usize::from(part.ends_with("mod.rs"))
}

/// The rooms that a root has for tests only.
fn test_rooms(root: &str) -> impl Iterator<Item = &str> {
    root.split("#[cfg(test)]\n").skip(1).filter_map(|rest| {
        let line = rest.lines().next()?;
        line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
    })
}

/// A text without comments and without items for tests, with its lines.
fn productive(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut test_at = None;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or(line).trim_end();
        let indent = code.len() - code.trim_start().len();
        match test_at {
            None if code.trim_start().starts_with("#[cfg(test)]") => test_at = Some(indent),
            None => out.push_str(code),
            // The last line of the item, as rustfmt writes it.
            Some(at) if at == indent && code.ends_with(['}', ';', ',']) => test_at = None,
            Some(_) => {}
        }
        out.push('\n');
    }
    out
}

/// The paths of a text that begin with `start`, without that; with their lines.
fn paths(text: &str, start: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(start) {
        let before = text[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            let line = text[..at].matches('\n').count() + 1;
            let mut of_here = Vec::new();
            tree("", &text[at + start.len()..], &mut of_here);
            found.extend(of_here.into_iter().map(|path| (line, path)));
        }
    }
    found
}

/// Reads a path, or a tree of them as in `use a::{b, c::{d, e as f}}`; answers the text behind it.
fn tree<'t>(prefix: &str, text: &'t str, found: &mut Vec<String>) -> &'t str {
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '*');
    let end = text.find(|c| !word(c)).unwrap_or(text.len());
    let (path, mut rest) = (format!("{prefix}{}", &text[..end]), &text[end..]);
    let Some(list) = rest.strip_prefix('{') else {
        let name = rest.strip_prefix(" as ").map(|name| name.split(|c| !word(c)).next());
        found.push(name.flatten().map_or_else(|| path.clone(), |name| format!("{path} as {name}")));
        return rest;
    };
    rest = list.trim_start();
    while !rest.is_empty() && !rest.starts_with('}') {
        rest = tree(&path, rest, found);
        let end = rest.find([',', '}']).unwrap_or(rest.len());
        rest = rest[end..].trim_start_matches(',').trim_start();
    }
    rest.strip_prefix('}').unwrap_or(rest)
}

fn first(path: &str) -> &str {
    path.split([':', ' ']).next().unwrap_or(path)
}

/// The name that a `use` of a path makes.
fn last(path: &str) -> &str {
    path.rsplit([':', ' ']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let root = (
            "a/src/lib.rs",
            "mod low;\nmod high;\n#[cfg(test)]\nmod fake;\npub use high::{self, Thing as Other};\n",
        );
        let files: Vec<_> = files.iter().copied().chain([root]).collect();
        check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rooms_may_use_each_other_in_one_direction() {
        let low =
            "// crate::high\nuse crate::middle;\nfn f() { other::crate::high(); middle::g() }\n";
        assert_eq!(
            complaints(&[
                ("a/src/low.rs", low),
                ("a/src/middle/mod.rs", "mod part;\nuse super::low_but_not_it;"),
                ("a/src/middle/part.rs", "use super::low;"),
                ("a/src/high.rs", "use crate::{low, middle::x};"),
                ("b/src/lib.rs", "use crate::low;"),
                ("b/src/middle.rs", "use crate::low;"),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn a_circle_is_found_however_its_uses_are_written() {
        for text in [
            "use crate::high;",
            "use crate::high::{A, other};",
            "use crate::{other, high};",
            "use crate::{\n    other::{A, B},\n    high,\n};",
            "fn f() { low(crate::high::g()) }",
            "use crate::Other;",
            "use super::super::high;",
            "pub(in super::super::high) fn f() {}",
            "#[cfg(test)]\nuse crate::low;\nuse crate::high;",
            "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse crate::high;",
        ] {
            let high = ("a/src/high/mod.rs", "use crate::low::f;\n");
            let low = ("a/src/low.rs", "\nuse super::middle;\n");
            let found = complaints(&[("a/src/middle/part.rs", text), low, high]);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            for step in ["high uses low", "low uses middle (a/src/low.rs:2)", "middle uses high"] {
                assert!(found[0].contains(step), "{text}: {found:?}");
            }
        }
    }

    #[test]
    fn records_are_below_the_room_that_they_are_of() {
        let state = ("a/src/state.rs", "pub use crate::high::records as high;");
        let high = ("a/src/high/mod.rs", "use crate::state::high::Thing;\nuse crate::low;");
        let low = ("a/src/low.rs", "use crate::high::records::Thing;");
        let found =
            |records: &str| complaints(&[("a/src/high/records.rs", records), state, high, low]);
        let good = "use crate::state::other::Part;\npub(in crate::high) const N: u32 = 3;\npub struct Thing;";
        assert_eq!(found(good), [""; 0]);
        for text in
            ["use crate::high::function;", "use super::function;", "use super::super::high::f;"]
        {
            let found = found(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].contains("state uses high"), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_in_records_is_for_one_room_or_for_all() {
        let of = |state: &'static str, records: &str| {
            complaints(&[("a/src/high/records.rs", records), (state, "")])
        };
        for text in ["pub(crate) x: u32", "pub(super) x: u32", "pub(in crate::low) x: u32"] {
            let found = of("a/src/state.rs", &format!("struct Thing {{\n    {text},\n}}\n"));
            let says = "a/src/high/records.rs:2: other rooms could change it: `pub(in crate::high)`, or `pub` for everybody";
            assert_eq!(found, [says], "{text}");
            assert_eq!(of("a/src/other.rs", text), [""; 0], "there is no room `state`");
        }
        for text in ["pub(in crate::high) x: u32", "pub x: u32", "x: u32", "// pub(crate)"] {
            assert_eq!(of("a/src/state.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn rooms_are_listed_behind_those_that_they_use() {
        let files = [
            ("a/src/lib.rs", ""),
            ("a/src/high.rs", "use crate::{low, middle};"),
            ("a/src/low.rs", "use crate::very_low;"),
            ("a/src/middle/part.rs", "use super::super::low;"),
            ("a/src/very_low.rs", ""),
        ];
        let tree = Tree::of(&files);
        let lines = [
            "very_low",
            "low            very_low",
            "middle         low",
            "high           low middle",
        ];
        assert_eq!(list(&tree, Path::new("a")), Some(lines.join("\n") + "\n"));
        assert_eq!(list(&tree, Path::new("b")), None);
    }

    #[test]
    fn tests_and_roots_may_use_all() {
        for (path, text) in [
            ("a/src/low.rs", "#[cfg(test)]\nmod tests {\n    use crate::high;\n}"),
            ("a/src/low.rs", "#[cfg(test)]\nuse crate::{\n    high,\n};"),
            ("a/src/low/tests.rs", "use crate::high;"),
            ("a/src/low/tests/part.rs", "use crate::high;"),
            ("a/src/fake.rs", "use crate::high;"),
            ("a/src/bin/low.rs", "use crate::high;"),
            ("a/src/main.rs", "use crate::high;"),
        ] {
            let high = ("a/src/high.rs", "use crate::{fake, low, main};");
            assert_eq!(complaints(&[(path, text), high]), [""; 0], "{path}");
        }
    }
}
