//! Which crate may depend on which, read from `cargo metadata`.
//!
//! The arrows are those of `docs/architecture.md`. They hold for normal and build dependencies;
//! tests may look further, except at libraries that have one owner (`OWNED`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use super::Complaint;
use skein_testkit::{Failure, Outcome};

/// A crate of the workspace and the crates of the workspace that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("skein-model", &[]),
    ("skein-interpose", &[]),
    ("skein-arena", &["skein-model"]),
    ("skein-sched", &["skein-model"]),
    ("skein-libos", &["skein-model", "skein-arena", "skein-sched", "skein-interpose"]),
    (
        "skein-runtime",
        &["skein-model", "skein-interpose", "skein-arena", "skein-sched", "skein-libos"],
    ),
    ("skein-log", &["skein-model"]),
    (
        "skein-replica",
        &["skein-model", "skein-interpose", "skein-arena", "skein-sched", "skein-log"],
    ),
    ("skein-image", &["skein-model", "skein-arena"]),
    ("skein-sandbox", &["skein-interpose", "skein-arena"]),
    (
        "skein-node",
        &[
            "skein-model",
            "skein-interpose",
            "skein-arena",
            "skein-sched",
            "skein-log",
            "skein-replica",
            "skein-image",
            "skein-sandbox",
        ],
    ),
    ("skein-cli", &["skein-node", "skein-replica", "skein-sandbox", "skein-model"]),
    ("skein-sim", &["skein-model", "skein-arena", "skein-log", "skein-replica"]),
    (
        "skein-harness",
        &[
            "skein-model",
            "skein-interpose",
            "skein-arena",
            "skein-sched",
            "skein-image",
            "skein-replica",
            "skein-sandbox",
        ],
    ),
    ("skein-testkit", &[]),
    ("skein-bench", &["skein-testkit"]),
    ("xtask", &["skein-model", "skein-interpose", "skein-testkit", "skein-bench"]),
];

/// A library and the only crate that may name it, even in tests.
const OWNED: &[(&str, &str)] = &[("raft", "skein-log"), ("raft-proto", "skein-log")];

/// A crate and the libraries that it must not reach, even indirectly.
const UNREACHABLE: &[(&str, &[&str])] = &[
    ("skein-runtime", &["tokio", "tracing", "serde", "mio", "skein-node", "skein-log"]),
    ("skein-model", &["tokio", "tracing", "mio", "libc", "nix"]),
    ("skein-sched", &["tokio", "tracing", "mio", "libc", "nix"]),
    ("skein-log", &["tokio", "mio"]),
    ("skein-replica", &["mio", "axum", "skein-sandbox", "skein-node"]),
    ("skein-sim", &["mio", "axum", "skein-sandbox", "skein-node"]),
    ("skein-sandbox", &["tokio", "mio", "skein-log"]),
];

/// Crates that name no library but the workspace's own, outside of their tests: their callers provide everything else of a system.
const WITHOUT_LIBRARIES: &[&str] = &["skein-libos"];

/// Crates that must build without the standard library.
const WITHOUT_STD: &[&str] = &["skein-model", "skein-interpose", "skein-arena", "skein-libos"];

/// Complaints about the workspace at `root`.
pub fn check(root: &Path) -> Outcome<Vec<Complaint>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        // Only for this platform: other platforms' libraries need not be on this machine.
        .other_options(["--filter-platform".into(), "x86_64-unknown-linux-gnu".into()])
        .exec()
        .map_err(|error| Failure::of("cannot read the workspace by cargo metadata", error))?;
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        found.extend(check_arrows(package, ARROWS));
        found.extend(check_owned(package));
        found.extend(check_std(package));
        found.extend(check_libraries(package, WITHOUT_LIBRARIES));
    }
    let edges = normal_edges(&metadata);
    for (name, forbidden) in UNREACHABLE {
        let reached = reachable(&metadata, &edges, name);
        for library in forbidden.iter().filter(|library| reached.contains(**library)) {
            let text = format!("reaches `{library}`, which it must not; see `cargo tree -i`");
            found.push(Complaint::of_crate(name, text));
        }
    }
    Ok(found)
}

fn check_arrows(package: &Package, arrows: &[(&str, &[&str])]) -> Vec<Complaint> {
    let name = package.name.as_str();
    let Some((_, allowed)) = arrows.iter().find(|(from, _)| *from == name) else {
        let text = "has no row in ARROWS of xtask/src/tidy/layers.rs: say what it may depend on";
        return vec![Complaint::of_crate(name, text)];
    };
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .filter(|dependency| arrows.iter().any(|(to, _)| *to == dependency.name))
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| {
            let text = format!("must not depend on {}: no such arrow", dependency.name);
            Complaint::of_crate(name, text)
        })
        .collect()
}

fn check_owned(package: &Package) -> Vec<Complaint> {
    let name = package.name.as_str();
    OWNED
        .iter()
        .filter(|(library, owner)| {
            *owner != name && package.dependencies.iter().any(|at| at.name == *library)
        })
        .map(|(library, owner)| {
            Complaint::of_crate(name, format!("names `{library}`, which only {owner} may"))
        })
        .collect()
}

fn check_libraries(package: &Package, without: &[&str]) -> Vec<Complaint> {
    if !without.contains(&package.name.as_str()) {
        return Vec::new();
    }
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .filter(|dependency| dependency.path.is_none())
        .map(|dependency| {
            let text = format!("names `{}`, but may use the workspace's own only", dependency.name);
            Complaint::of_crate(&package.name, text)
        })
        .collect()
}

fn check_std(package: &Package) -> Option<Complaint> {
    if !WITHOUT_STD.contains(&package.name.as_str()) {
        return None;
    }
    let library = package.targets.iter().find(|target| target.is_lib())?;
    let text = std::fs::read_to_string(&library.src_path).unwrap_or_default();
    let declared = text.lines().any(|line| line.starts_with("#![") && line.contains("no_std"));
    (!declared).then(|| Complaint::of_crate(&package.name, "must declare `#![no_std]`"))
}

type Edges<'a> = BTreeMap<&'a PackageId, Vec<&'a PackageId>>;

/// Dependencies in shipped code: no edges of tests and build scripts.
fn normal_edges(metadata: &Metadata) -> Edges<'_> {
    let nodes = metadata.resolve.as_ref().map(|resolve| resolve.nodes.as_slice());
    let mut edges = Edges::new();
    for node in nodes.unwrap_or_default() {
        let normal = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        });
        edges.insert(&node.id, normal.map(|dependency| &dependency.pkg).collect());
    }
    edges
}

/// Names of all packages that the crate `from` is linked with.
fn reachable<'a>(metadata: &'a Metadata, edges: &Edges<'a>, from: &str) -> BTreeSet<&'a str> {
    let start = metadata.workspace_packages().into_iter().find(|package| package.name == from);
    let mut open: Vec<&PackageId> = start.map(|package| &package.id).into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        for next in edges.get(id).into_iter().flatten() {
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    seen.into_iter().map(|id| metadata[id].name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_workspace() -> Metadata {
        MetadataCommand::new()
            .manifest_path(skein_testkit::workspace::root().join("Cargo.toml"))
            .other_options(["--filter-platform".into(), "x86_64-unknown-linux-gnu".into()])
            .exec()
            .expect("cargo metadata works in the repository")
    }

    #[test]
    fn arrows_have_no_circle() {
        let mut settled: BTreeSet<&str> = BTreeSet::new();
        while settled.len() < ARROWS.len() {
            let before = settled.len();
            for (name, to) in ARROWS {
                if to.iter().all(|at| settled.contains(at)) {
                    settled.insert(name);
                }
            }
            assert!(settled.len() > before, "a circle among the arrows; settled: {settled:?}");
        }
    }

    #[test]
    fn a_missing_row_and_a_missing_arrow_are_found() {
        let metadata = this_workspace();
        let packages = metadata.workspace_packages();
        let xtask = packages.iter().find(|package| package.name == "xtask").expect("this crate");
        assert!(check_arrows(xtask, &[])[0].text.contains("no row"));
        // `clap` stands for a crate of the workspace that xtask has no arrow to.
        let arrows: &[(&str, &[&str])] = &[("xtask", &[]), ("clap", &[])];
        assert!(check_arrows(xtask, arrows)[0].text.contains("must not depend on clap"));
    }

    #[test]
    fn a_library_that_a_crate_must_do_without_is_found() {
        let metadata = this_workspace();
        let packages = metadata.workspace_packages();
        let xtask = packages.iter().find(|package| package.name == "xtask").expect("this crate");
        let found = check_libraries(xtask, &["xtask"]);
        assert!(found.iter().any(|at| at.text.contains("`clap`")), "{}", found.len());
        assert!(!found.iter().any(|at| at.text.contains("skein")), "the workspace's own may be");
        assert!(check_libraries(xtask, &["another"]).is_empty());
    }

    #[test]
    fn reaching_goes_through_other_crates() {
        let metadata = this_workspace();
        let reached = reachable(&metadata, &normal_edges(&metadata), "xtask");
        assert!(reached.contains("clap_builder"), "through clap; found {reached:?}");
        assert!(!reached.contains("xtask"));
    }
}
