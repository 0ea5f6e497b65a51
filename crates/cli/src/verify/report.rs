//! The output of `skein verify`: the verdict, and for each difference its address, its object and each replica's bytes.

use serde::Serialize;
use skein_node::MemoryRoot;
use skein_node::memory::{ARENA, Kind, PAGE_BYTES, Page, PageAt, Survey, Thing, bytes};

use super::Outcome;
use super::compare::{Files, Structure};
use super::repair::Repair;
use crate::admin::Asked;
use crate::standstill::{self, Answer, Verdict};

/// The least number of equal bytes between two places of a page that differ.
const GAP: usize = 8;
/// The most places of one page.
const PLACES: usize = 8;
/// The most bytes of one place.
const BYTES: usize = 32;
/// The most files that are listed.
const FILES: usize = 1000;
/// Differences shown to a reader.
const SHOWN: usize = 50;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    name: String,
    verdict: Verdict,
    replicas: Vec<Replica>,
    /// The number of different pages.
    differing_pages: usize,
    /// The number of different files.
    differing_files: usize,
    /// Different processes, mappings and facts about processes, and the first of these pages.
    differences: Vec<Difference>,
    /// What was done about them.
    repairs: Vec<Repair>,
}

#[derive(Debug, Serialize)]
struct Replica {
    id: u64,
    /// The last entry that was executed; `null` when the node gave no answer, which `problem` explains.
    index: Option<u64>,
    problem: Option<String>,
    processes: u64,
    mappings: u64,
    /// Pages with something in them.
    pages: u64,
    /// Files that the server has written, and bytes in them.
    files: u64,
    bytes: u64,
    /// Whether it tells what the kernel has of its processes; that is compared if all do.
    tells_state: bool,
    /// Bytes of what it was asked about them and what it answered.
    exchanged_bytes: u64,
}

#[derive(Debug, Default, Serialize)]
struct Difference {
    /// `output`, `process`, `mapping`, `state`, `bytes` or `file`.
    kind: &'static str,
    /// The process, as the server numbers them; `null` for the arena.
    pid: Option<u32>,
    command: String,
    /// The mapping and its permissions, what the kernel has, or the file's path.
    mapping: String,
    /// The first byte that differs, and its offset in the mapping.
    address: Option<String>,
    offset: Option<String>,
    /// Program or library with the offset; function or variable, where its symbol table has it.
    object: Option<String>,
    symbol: Option<String>,
    /// The number of bytes from the first to the last that differs.
    len: usize,
    /// Each replica's bytes, in the order of `replicas`, in hexadecimal.
    values: Vec<String>,
}

impl Report {
    /// Made from the result.
    pub fn new(name: &str, nodes: &[Asked], outcome: &Outcome) -> Self {
        let replica = |(node, answer): (&Asked, &Answer<MemoryRoot>)| {
            let root = answer.clone().unwrap_or_default();
            Replica {
                id: node.id,
                index: answer.is_ok().then_some(root.index),
                problem: answer.as_ref().err().cloned(),
                processes: root.processes,
                mappings: root.mappings,
                pages: root.pages,
                files: root.files,
                bytes: root.bytes,
                tells_state: !root.state.is_empty(),
                exchanged_bytes: node.exchanged(),
            }
        };
        let found = &outcome.found;
        let mut differences: Vec<_> =
            found.structure.iter().map(Difference::of_structure).collect();
        for (place, pages) in found.differing.iter().zip(&outcome.shown) {
            differences.extend(of_page(&outcome.mapped, place.at, pages));
        }
        differences.extend(found.files.iter().take(FILES).map(Difference::of_file));
        Self {
            name: name.to_owned(),
            verdict: outcome.verdict,
            replicas: nodes.iter().zip(&outcome.answers).map(replica).collect(),
            differing_pages: found.differing.len(),
            differing_files: found.files.len(),
            differences,
            repairs: outcome.repairs.clone(),
        }
    }

    /// For a reader.
    pub fn text(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Agree => "all replicas hold the same in memory and files",
            Verdict::Repaired => "the replicas differed, and were repaired",
            Verdict::Differ
                if (self.differing_pages, self.differing_files) == (0, 0)
                    && self.differences.iter().all(|told| told.kind == "state") =>
            {
                "the replicas' processes differ in what the kernel has of them"
            }
            Verdict::Differ if self.differing_files == 0 => "the replicas' memory differs",
            Verdict::Differ => "the replicas' memory or files differ",
            Verdict::Incomparable => "the replicas cannot be compared now",
        };
        let mut text = format!("{}: {verdict}\n\n", self.name);
        for replica in &self.replicas {
            let Replica { id, index, problem, processes, mappings, pages, files, bytes, .. } =
                replica;
            let has = format!(
                "{processes} processes, {mappings} mappings, {pages} pages, {files} files with {bytes} bytes"
            );
            text += &standstill::line(*id, *index, problem.as_deref(), &has);
        }
        let silent = |replica: &&Replica| replica.index.is_some() && !replica.tells_state;
        for Replica { id, .. } in self.replicas.iter().filter(silent) {
            text += &format!(
                "replica {id}  does not tell descriptors, limits and rights of processes: these are not compared\n"
            );
        }
        if self.differences.is_empty() {
            return text;
        }
        let (pages, files) = (self.differing_pages, self.differing_files);
        text += &format!("\ndiffering ({pages} pages, {files} files):\n");
        for difference in self.differences.iter().take(SHOWN) {
            text += &format!("  {}\n", difference.line());
            for (replica, value) in self.replicas.iter().zip(&difference.values) {
                text += &format!("      {}: {value}\n", replica.id);
            }
        }
        if self.differences.len() > SHOWN {
            text +=
                &format!("  ... and {} more; --json lists them\n", self.differences.len() - SHOWN);
        }
        if !self.repairs.is_empty() {
            text += "\nrepaired:\n";
        }
        for repair in &self.repairs {
            text += &format!("  {}\n", repair.line());
        }
        text
    }
}

impl Difference {
    fn of_structure(structure: &Structure) -> Self {
        let Structure { kind, pid, command, mapping, values } = structure.clone();
        Self { kind: kind.name(), pid, command, mapping, values, ..Self::default() }
    }

    fn of_file(file: &Files) -> Self {
        let (mapping, values) = (file.path.clone(), file.values.clone());
        Self { kind: "file", mapping, values, ..Self::default() }
    }

    fn line(&self) -> String {
        let mut line = match (self.pid, self.kind) {
            (Some(pid), _) => format!("process {pid} ({})", self.command),
            (None, "bytes") => "arena".to_owned(),
            (None, kind) => kind.to_owned(),
        };
        let mut add = |text: &str| {
            if !text.is_empty() {
                line += "  ";
                line += text;
            }
        };
        add(&self.mapping);
        match (&self.address, &self.offset) {
            (Some(address), Some(offset)) => add(&format!("+{offset} = {address}")),
            (Some(address), None) => add(address),
            _ => {}
        }
        add(self.object.as_deref().unwrap_or_default());
        add(self.symbol.as_deref().unwrap_or_default());
        line
    }
}

/// The places of a page that differ between replicas.
fn of_page(survey: &Survey, at: PageAt, pages: &[Page]) -> Vec<Difference> {
    let process = survey.processes.iter().find(|process| process.pid == at.pid);
    let mapping = process.and_then(|process| {
        process.mappings.iter().find(|m| (m.start..m.end).contains(&at.address))
    });
    let contents: Vec<Vec<u8>> = pages.iter().map(|page| bytes(&page.contents)).collect();
    let things = pages.first().map_or(&[][..], |page| &page.things);
    let difference = |(from, len): (usize, usize)| {
        let address = at.address + from as u64;
        let name = |kind| named(things, kind, address);
        Difference {
            kind: "bytes",
            pid: (at.pid != ARENA).then_some(at.pid),
            command: process.map(|process| process.command.clone()).unwrap_or_default(),
            mapping: mapping.map(|m| format!("{} {}", m.name, m.permissions)).unwrap_or_default(),
            address: Some(format!("{address:#x}")),
            offset: mapping.map(|m| format!("{:#x}", address - m.start)),
            object: name(Kind::Object),
            symbol: name(Kind::Symbol),
            len,
            values: contents.iter().map(|page| value(page, from, len)).collect(),
        }
    };
    places(&contents).into_iter().map(difference).collect()
}

/// The places where pages differ, and their lengths; the whole page where one replica has none.
fn places(pages: &[Vec<u8>]) -> Vec<(usize, usize)> {
    let Some(first) = pages.first() else { return Vec::new() };
    if pages.iter().any(|page| page.len() != first.len()) {
        return vec![(0, PAGE_BYTES as usize)];
    }
    let mut found: Vec<(usize, usize)> = Vec::new();
    for at in (0..first.len()).filter(|at| pages.iter().any(|page| page[*at] != first[*at])) {
        match found.last_mut() {
            Some((from, len)) if at < *from + *len + GAP => *len = at + 1 - *from,
            _ => found.push((at, 1)),
        }
    }
    found.truncate(PLACES);
    found
}

fn value(page: &[u8], from: usize, len: usize) -> String {
    let Some(bytes) = page.get(from..from + len) else { return "no such page".to_owned() };
    let mut text: String = bytes.iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect();
    if len > BYTES {
        text += "...";
    }
    text
}

/// The smallest object of a kind at the address, and the offset in it.
fn named(things: &[Thing], kind: Kind, address: u64) -> Option<String> {
    let has = |thing: &&Thing| {
        thing.kind == kind && address.checked_sub(thing.address).is_some_and(|far| far < thing.len)
    };
    let thing = things.iter().filter(has).min_by_key(|thing| thing.len)?;
    Some(format!("{}+{:#x}", thing.name, address - thing.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_node::memory::{Mapping, ProcessMemory};

    fn page(change: &[(usize, u8)], things: &[Thing]) -> Page {
        let mut contents = vec![0; PAGE_BYTES as usize];
        change.iter().for_each(|(at, byte)| contents[*at] = *byte);
        let contents = contents.iter().map(|byte| format!("{byte:02x}")).collect();
        Page { hash: String::new(), contents, things: things.to_vec() }
    }

    fn survey() -> Survey {
        let mapping = Mapping {
            start: 0x1000,
            end: 0x9000,
            permissions: "rw-p".into(),
            name: "/bin/server".into(),
            pages: vec![],
        };
        let process = ProcessMemory { pid: 2, command: "server".into(), mappings: vec![mapping] };
        Survey { processes: vec![process], arena: vec![], pages: 0 }
    }

    #[test]
    fn a_difference_names_process_mapping_symbol_offset_and_values() {
        let thing =
            |kind, address, len, name: &str| Thing { kind, address, len, name: name.into() };
        let things = [
            thing(Kind::Object, 0x1000, 0x9000, "server"),
            thing(Kind::Symbol, 0x2000, 0x1000, "table"),
            thing(Kind::Symbol, 0x2010, 8, "counter"),
        ];
        let pages = [page(&[(0x12, 1)], &things), page(&[(0x12, 0xff)], &things)];
        let found = of_page(&survey(), PageAt { pid: 2, address: 0x2000 }, &pages);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].line(),
            "process 2 (server)  /bin/server rw-p  +0x1012 = 0x2012  server+0x1012  counter+0x2"
        );
        assert_eq!(found[0].values, ["01", "ff"]);
    }

    #[test]
    fn neighbouring_bytes_are_one_place_and_a_page_tells_only_some() {
        let of =
            |change: &[(usize, u8)]| places(&[vec![0; 4096], bytes(&page(change, &[]).contents)]);
        assert_eq!(of(&[(10, 1), (12, 1), (19, 1), (40, 1)]), [(10, 10), (40, 1)]);
        let many: Vec<_> = (0..100).map(|n| (n * 40, 1)).collect();
        assert_eq!(of(&many).len(), PLACES);
        assert_eq!(places(&[vec![0; 4096], vec![]]), [(0, 4096)]);
        assert_eq!(value(&[], 0, 4096), "no such page");
        assert_eq!(value(&[7; 4096], 0, 40), "07".repeat(BYTES) + "...");
    }
}
