//! Repairs replicas that differ, while all stand at one entry: pages and pieces of files that differ are taken from the model, and nothing else.
//!
//! What is left (output, processes, mappings, what the kernel has of processes, kinds and attributes of files) cannot be repaired in a server: such a replica rebuilds it.

use serde::Serialize;
use skein_node::memory::{MAX_SHOWN, Page, PageAt, PageContents, Question};
use skein_node::{FileAnswer, FileQuestion};

use super::compare::{Comparison, Files, Kind, Place};
use super::{LIMIT, parsed};
use crate::admin::{AdminError, Asked};

/// The most pages that are repaired in a server: 256 MiB of them. Beyond that an image is cheaper.
const MAX_PAGES: usize = 64 << 10;
/// Pieces of a file in one request: 1 MiB in hexadecimal.
const PIECES: usize = 8;

/// What was done about a replica that differed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The replica.
    pub id: u64,
    /// The replica that it was repaired from.
    pub from: u64,
    /// Pages that were written.
    pub pages: usize,
    /// Pieces of files that were written, 64 KiB each, and files that became shorter.
    pub pieces: usize,
    /// Why its server was, or is, rebuilt.
    pub rebuilt: Option<String>,
}

impl Repair {
    /// What was repaired, in words; empty: nothing.
    pub fn what(&self) -> String {
        match (self.pages, self.pieces) {
            (0, 0) => String::new(),
            (pages, pieces) => format!("{pages} pages and {pieces} pieces of files"),
        }
    }

    /// A line for a reader.
    pub fn line(&self) -> String {
        let Self { id, from, rebuilt, .. } = self;
        let mut line = format!("replica {id}");
        if !self.what().is_empty() {
            line += &format!("  {} from replica {from}", self.what());
        }
        if let Some(why) = rebuilt {
            line += &format!("  rebuilt: {why}");
        }
        line
    }
}

/// Repairs all replicas that differ from the model, as far as that can be done while they stand.
pub fn repair(nodes: &[Asked], found: &Comparison, model: usize) -> Vec<Repair> {
    let others = (0..nodes.len()).filter(|n| *n != model);
    let repairs = others.map(|n| {
        let (id, from) = (nodes[n].id, nodes[model].id);
        let mut repair = Repair { id, from, ..Repair::default() };
        repair.rebuilt = differs_in_structure(found, model, n);
        if repair.rebuilt.is_none()
            && let Err(why) = in_place(nodes, found, (model, n), &mut repair)
        {
            repair.rebuilt = Some(why);
        }
        repair
    });
    repairs.filter(|repair| repair.rebuilt.is_some() || !repair.what().is_empty()).collect()
}

/// Whether anything differs between two replicas.
pub fn differs(found: &Comparison, model: usize, other: usize) -> bool {
    differs_in_structure(found, model, other).is_some()
        || found.differing.iter().any(|place| place.hashes[model] != place.hashes[other])
        || found.files.iter().any(|file| file.digests[model] != file.digests[other])
}

/// What differs between two replicas that cannot be written into a server.
fn differs_in_structure(found: &Comparison, model: usize, other: usize) -> Option<String> {
    let differs = found.structure.iter().find(|s| s.values[model] != s.values[other])?;
    let kind = if differs.kind == Kind::State { "" } else { differs.kind.name() };
    let value = &differs.values;
    let of = match differs.pid {
        Some(pid) => format!(" of process {pid} ({})", differs.command),
        None => String::new(),
    };
    let what = format!("{kind} {}", differs.mapping);
    Some(format!("its {}{of} is {}, not {}", what.trim(), value[other], value[model]))
}

fn in_place(
    nodes: &[Asked],
    found: &Comparison,
    (model, other): (usize, usize),
    repair: &mut Repair,
) -> Result<(), String> {
    let unlike = |place: &&Place| place.hashes[model] != place.hashes[other];
    let places: Vec<&Place> = found.differing.iter().filter(unlike).collect();
    if places.len() > MAX_PAGES {
        return Err(format!("{} pages differ", places.len()));
    }
    if let Some(missing) = places.iter().find(|place| place.hashes[model].is_none()) {
        return Err(format!("it has a page at {:#x}, and another replica not", missing.at.address));
    }
    let at: Vec<PageAt> = places.iter().map(|place| place.at).collect();
    for at in at.chunks(MAX_SHOWN) {
        pages(&nodes[model], &nodes[other], at).map_err(|error| error.to_string())?;
        repair.pages += at.len();
    }
    for file in found.files.iter().filter(|f| f.digests[model] != f.digests[other]) {
        let Files { path, values, .. } = file;
        if !file.is_content {
            return Err(format!("{path} is {}, not {}", values[other], values[model]));
        }
        let written = one_file(&nodes[model], &nodes[other], path);
        repair.pieces += written.map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn pages(from: &Asked, to: &Asked, at: &[PageAt]) -> Result<(), AdminError> {
    let question = json(&Question { contents: true, pages: at.to_vec() });
    let answer = from.post_json("/memory/look", &question, LIMIT)?;
    let found: Vec<Page> = parsed(&answer)?;
    let pages =
        at.iter().zip(found).map(|(at, page)| PageContents { at: *at, contents: page.contents });
    let pages: Vec<_> = pages.collect();
    if pages.len() != at.len() || pages.iter().any(|page| page.contents.is_empty()) {
        return Err(AdminError::Wrong("a page is missing".into()));
    }
    to.post_json("/memory/repair", &json(&pages), LIMIT).map(drop)
}

/// Answers the number of pieces, at least 1: its length is set, too.
fn one_file(from: &Asked, to: &Asked, path: &str) -> Result<usize, AdminError> {
    let look = |node: &Asked, pieces: &[u64]| {
        let question = FileQuestion { path: path.to_owned(), pieces: pieces.to_vec() };
        let answer = node.post_json("/files/look", &json(&question), LIMIT)?;
        parsed::<FileAnswer>(&answer)
    };
    let (right, wrong) = (look(from, &[])?.extents, look(to, &[])?.extents);
    let differs = |n: &u64| {
        let n = *n as usize;
        right.hashes.get(n) != wrong.hashes.get(n)
    };
    let numbers: Vec<u64> = (0..right.hashes.len() as u64).filter(differs).collect();
    if numbers.is_empty() && right.size == wrong.size {
        // Its time of modification was in the arena's pages, or its attributes differ: the last look tells.
        return Ok(0);
    }
    let write = |pieces| {
        let mut extents = right.clone();
        extents.hashes.clear();
        let answer = FileAnswer { path: path.to_owned(), extents, pieces };
        to.post_json("/files/repair", &json(&answer), LIMIT)
    };
    if numbers.is_empty() {
        write(Vec::new())?;
    }
    for numbers in numbers.chunks(PIECES) {
        write(look(from, numbers)?.pieces)?;
    }
    Ok(numbers.len().max(1))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs are valid JSON")
}
