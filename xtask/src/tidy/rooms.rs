//! Arrows between the modules inside a crate: a module uses those of its own floor and of the floors below.
//!
//! The floors of a crate are listed from the bottom; modules of one floor may use each other. The aim is one module a floor.

use super::{Complaint, Tree};
use std::path::Path;

/// A crate's sources, and its floors from the bottom.
const HOUSES: &[(&str, &[&[&str]])] = &[
    (
        "crates/libos/src",
        &[
            &["abi", "identity", "room"],
            &["errno"],
            &[
                "fake", "file", "host", "ipc", "keys", "net", "os", "process", "signal", "thread",
                "time", "timers",
            ],
            &["pace", "sync"],
        ],
    ),
    (
        "crates/runtime/src",
        &[
            &["local"],
            &["sys"],
            &["context"],
            &["uses"],
            &["fatal"],
            &["stack"],
            &["origin"],
            &["original"],
            &["frame"],
            &["patch"],
            &["glibc"],
            &["files", "io", "kernel", "process", "signal", "thread", "time", "turn"],
            &["random"],
            &["spin"],
            &["ipc"],
            &["libos"],
            &["loader"],
            &["image"],
            &["machine"],
            &["sync"],
            &["entry"],
        ],
    ),
    (
        "crates/sandbox/src",
        &[&[
            "confine",
            "elf",
            "error",
            "handover",
            "ids",
            "init",
            "launch",
            "layer",
            "libraries",
            "mountinfo",
            "plan",
            "process",
            "program",
            "report",
            "server",
            "spec",
            "sys",
            "times",
        ]],
    ),
    (
        "crates/replica/src",
        &[
            &["gateway", "health", "metrics", "outgoing", "time"],
            &["agreement", "config", "error", "status", "verdicts"],
            &["environment", "server"],
            &["modes"],
            &["replica"],
        ],
    ),
    (
        "crates/node/src",
        &[
            &["memory", "transport"],
            &["config", "forward", "status"],
            &["error"],
            &["begin", "server", "timer", "trace"],
            &["reactor"],
            &["admin"],
            &["node"],
            &["check", "replay"],
        ],
    ),
];

/// Complaints about every crate that has floors.
pub fn check(tree: &Tree) -> Vec<Complaint> {
    HOUSES.iter().flat_map(|(house, floors)| check_house(tree, house, floors)).collect()
}

fn check_house(tree: &Tree, house: &str, floors: &[&[&str]]) -> Vec<Complaint> {
    let floor = |room: &str| floors.iter().position(|floor| floor.contains(&room));
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("rs") {
        let Some(room) = path.strip_prefix(house).ok().and_then(room_of) else { continue };
        let Some(own) = floor(room) else {
            found.push(Complaint::of_file(
                path,
                0,
                format!("{room} has no floor in tidy/rooms.rs"),
            ));
            continue;
        };
        for (number, used) in uses(text) {
            if floor(used).is_some_and(|of| of > own) {
                let text = format!("{room} uses {used}, which is on a floor above");
                found.push(Complaint::of_file(path, number, text));
            }
        }
    }
    found
}

/// The module of the crate that a file is a part of; the crate's root is none.
fn room_of(path: &Path) -> Option<&str> {
    let first = path.components().next()?.as_os_str().to_str()?;
    let room = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(room, "lib" | "main")).then_some(room)
}

/// The modules of the crate that a text names, with the lines; comments and tests do not count.
fn uses(text: &str) -> Vec<(usize, &str)> {
    let text = text.split("#[cfg(test)]").next().unwrap_or(text);
    let mut found = Vec::new();
    let mut group = false;
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.split("//").next().unwrap_or(line);
        if group {
            let end = rest.find("};");
            found.extend(names(&rest[..end.unwrap_or(rest.len())]).map(|name| (number + 1, name)));
            let Some(end) = end else { continue };
            group = false;
            rest = &rest[end..];
        }
        while let Some(at) = rest.find("crate::") {
            let before = rest[..at].chars().next_back();
            rest = &rest[at + "crate::".len()..];
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            if let Some(list) = rest.strip_prefix('{') {
                let end = list.find("};");
                group = end.is_none();
                let list = &list[..end.unwrap_or(list.len())];
                found.extend(names(list).map(|name| (number + 1, name)));
            } else {
                found.extend(names(rest).next().map(|name| (number + 1, name)));
            }
        }
    }
    found
}

/// The first names of the paths in a list.
fn names(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let parts = list.split(move |c| {
        depth = match c {
            '{' => depth + 1,
            '}' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ',' && depth == 0
    });
    parts.filter_map(|part| {
        let part = part.trim();
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(part.len());
        (end > 0).then_some(&part[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOORS: &[&[&str]] = &[&["low"], &["middle", "other"], &["high"]];

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        check_house(&Tree::of(files), "src", FLOORS).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_uses_its_own_floor_and_those_below() {
        let text = "use crate::low;\nuse crate::{low, other::x};\n// crate::high\nfn f() { crate::other::g() }\n";
        assert_eq!(
            complaints(&[("src/middle.rs", text), ("src/lib.rs", "use crate::high;")]),
            [""; 0]
        );
        assert_eq!(complaints(&[("other/src/low.rs", "use crate::high;")]), [""; 0]);
    }

    #[test]
    fn arrows_upwards_are_found_however_they_are_written() {
        for text in [
            "use crate::high;",
            "use crate::high::{A, low};",
            "use crate::{low, high};",
            "use crate::{\n    low::{A, B},\n    high,\n};",
            "fn f() { low(crate::high::g()) }",
        ] {
            let found = complaints(&[("src/middle/part.rs", text)]);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].contains("middle uses high"), "{found:?}");
        }
    }

    #[test]
    fn tests_may_use_all_and_a_new_module_needs_a_floor() {
        let text = "#[cfg(test)]\nmod tests { use crate::high; }";
        assert_eq!(complaints(&[("src/low.rs", text)]), [""; 0]);
        let found = complaints(&[("src/new.rs", "")]);
        assert!(found[0].contains("new has no floor"), "{found:?}");
    }
}
