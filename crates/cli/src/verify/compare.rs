//! Compares surveys of one entry: processes, mappings, pages.

use std::collections::{BTreeMap, BTreeSet};

use skein_node::memory::{
    ARENA, HASH_DIGITS, Mapping, PAGE_BYTES, PageAt, ProcessMemory, Run, Survey,
};

/// The differences.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Processes and mappings.
    pub structure: Vec<Structure>,
    /// Pages that all have in their page tables, with different hashes.
    pub differing: Vec<PageAt>,
    /// Pages that only some have in their page tables.
    pub doubtful: Vec<PageAt>,
}

/// A process or a mapping that is missing on some replica, or differs.
#[derive(Debug, PartialEq, Eq)]
pub struct Structure {
    /// The process.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// The mapping, if not the process itself differs.
    pub mapping: Option<String>,
    /// Each replica's value.
    pub values: Vec<String>,
}

/// The identity of a mapping: begin, permissions, name. A stack's end does not count, because it grows as the kernel finds it touched.
type Key<'a> = (u64, &'a str, &'a str);

const ABSENT: &str = "absent";

fn key(mapping: &Mapping) -> Key<'_> {
    let fixed = if mapping.name == "[stack]" { mapping.end } else { mapping.start };
    (fixed, &mapping.permissions, &mapping.name)
}

/// Compares at least two surveys.
pub fn compare(surveys: &[&Survey]) -> Comparison {
    let mut found = Comparison::default();
    // Pages are compared where all have a mapping for them.
    let mut common: BTreeMap<u32, BTreeSet<Key<'_>>> = BTreeMap::new();
    let processes: Vec<BTreeMap<u32, &ProcessMemory>> = surveys
        .iter()
        .map(|survey| survey.processes.iter().map(|process| (process.pid, process)).collect())
        .collect();
    let pids: BTreeSet<u32> = processes.iter().flat_map(|all| all.keys().copied()).collect();
    for pid in pids {
        let here: Vec<Option<&ProcessMemory>> =
            processes.iter().map(|all| all.get(&pid).copied()).collect();
        let command = here.iter().flatten().next().map_or("", |process| process.command.as_str());
        if here.iter().any(|process| process.is_none_or(|process| process.command != command)) {
            let value = |process: &Option<&ProcessMemory>| {
                process.map_or(ABSENT, |process| &process.command).to_owned()
            };
            let values = here.iter().map(value).collect();
            let command = command.to_owned();
            found.structure.push(Structure { pid, command, mapping: None, values });
        }
        let Some(here) = here.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let both = compare_mappings(&here, &mut found.structure);
        common.insert(pid, both);
    }
    compare_pages(surveys, &common, &mut found);
    found
}

/// Answers the mappings that all replicas have.
fn compare_mappings<'a>(
    processes: &[&'a ProcessMemory],
    found: &mut Vec<Structure>,
) -> BTreeSet<Key<'a>> {
    let mappings: Vec<BTreeMap<Key<'_>, &Mapping>> = processes
        .iter()
        .map(|process| process.mappings.iter().map(|m| (key(m), m)).collect())
        .collect();
    let keys: BTreeSet<Key<'a>> = mappings.iter().flat_map(|all| all.keys().copied()).collect();
    let mut common = BTreeSet::new();
    for key in keys {
        let here: Vec<_> = mappings.iter().map(|all| all.get(&key)).collect();
        let (_, permissions, name) = key;
        let range = |m: &&Mapping| match name {
            "[stack]" => format!("up to {:#x}", m.end),
            _ => format!("{:#x}-{:#x}", m.start, m.end),
        };
        let values: Vec<String> =
            here.iter().map(|m| m.map_or_else(|| ABSENT.to_owned(), range)).collect();
        if here.iter().all(Option::is_some) {
            common.insert(key);
        }
        if values.iter().any(|value| *value != values[0]) {
            let (pid, command) = (processes[0].pid, processes[0].command.clone());
            let mapping = Some(format!("{name} {permissions}"));
            found.push(Structure { pid, command, mapping, values });
        }
    }
    common
}

/// A survey's pages, in the order of [`PageAt`], where all have a mapping.
fn pages<'a>(
    survey: &'a Survey,
    common: &'a BTreeMap<u32, BTreeSet<Key<'_>>>,
) -> impl Iterator<Item = (PageAt, &'a [u8])> {
    let of = |pid: u32, runs: &'a [Run]| {
        runs.iter().flat_map(move |run| {
            let (hashes, _) = run.hashes.as_bytes().as_chunks::<HASH_DIGITS>();
            hashes.iter().enumerate().map(move |(n, hash)| {
                let address = run.address + n as u64 * PAGE_BYTES;
                (PageAt { pid, address }, &hash[..])
            })
        })
    };
    let private = survey.processes.iter().flat_map(move |process| {
        let keys = common.get(&process.pid);
        let in_all = move |m: &&Mapping| keys.is_some_and(|keys| keys.contains(&key(m)));
        let mappings = process.mappings.iter().filter(in_all);
        mappings.flat_map(move |mapping| of(process.pid, &mapping.pages))
    });
    of(ARENA, &survey.arena).chain(private)
}

fn compare_pages(
    surveys: &[&Survey],
    common: &BTreeMap<u32, BTreeSet<Key<'_>>>,
    found: &mut Comparison,
) {
    let mut all: Vec<_> = surveys.iter().map(|survey| pages(survey, common).peekable()).collect();
    loop {
        let next = all.iter_mut().filter_map(|pages| pages.peek().map(|(at, _)| *at)).min();
        let Some(next) = next else { return };
        let hashes: Vec<Option<&[u8]>> = all
            .iter_mut()
            .map(|pages| pages.next_if(|(at, _)| *at == next).map(|(_, hash)| hash))
            .collect();
        if hashes.iter().any(Option::is_none) {
            found.doubtful.push(next);
        } else if hashes.iter().any(|hash| *hash != hashes[0]) {
            found.differing.push(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(address: u64, hashes: &[u64]) -> Run {
        Run { address, hashes: hashes.iter().map(|hash| format!("{hash:016x}")).collect() }
    }

    fn mapping(start: u64, end: u64, name: &str, pages: Vec<Run>) -> Mapping {
        Mapping { start, end, permissions: "rw-p".into(), name: name.into(), pages }
    }

    fn process(pid: u32, mappings: Vec<Mapping>) -> ProcessMemory {
        ProcessMemory { pid, command: "server".into(), mappings }
    }

    fn survey(arena: Vec<Run>, processes: Vec<ProcessMemory>) -> Survey {
        Survey { processes, arena, pages: 0 }
    }

    fn heap(hashes: &[u64]) -> Vec<ProcessMemory> {
        vec![process(2, vec![mapping(0x1000, 0x9000, "[heap]", vec![run(0x1000, hashes)])])]
    }

    fn at(pid: u32, address: u64) -> PageAt {
        PageAt { pid, address }
    }

    #[test]
    fn what_is_the_same_is_found_the_same() {
        let one = survey(vec![run(0x4000, &[1, 2])], heap(&[3, 4]));
        assert_eq!(compare(&[&one, &one.clone(), &one]), Comparison::default());
        assert_eq!(compare(&[&Survey::default(), &Survey::default()]), Comparison::default());
    }

    #[test]
    fn pages_that_differ_are_told_from_those_that_are_missing() {
        let one = survey(vec![run(0x4000, &[1, 2])], heap(&[3, 4, 5]));
        let two = survey(vec![run(0x5000, &[2])], heap(&[3, 9]));
        for found in [compare(&[&one, &two]), compare(&[&one, &two, &one]), compare(&[&two, &one])]
        {
            assert_eq!(found.structure, []);
            assert_eq!(found.differing, [at(2, 0x2000)]);
            assert_eq!(found.doubtful, [at(ARENA, 0x4000), at(2, 0x3000)]);
        }
    }

    #[test]
    fn a_process_that_only_one_has_is_named_once() {
        let one = survey(vec![], heap(&[3]));
        let mut both = heap(&[3]);
        both.push(process(5, vec![mapping(0x1000, 0x2000, "[heap]", vec![run(0x1000, &[1])])]));
        let found = compare(&[&one, &survey(vec![], both)]);
        let missing = &found.structure[0];
        assert_eq!((found.structure.len(), missing.pid, &missing.mapping), (1, 5, &None));
        assert_eq!(missing.values, [ABSENT, "server"]);
        assert_eq!((found.differing, found.doubtful), (vec![], vec![]));
    }

    #[test]
    fn mappings_are_compared_by_place_length_permissions_and_name() {
        let with = |mappings| survey(vec![], vec![process(2, mappings)]);
        let one = with(vec![mapping(0x1000, 0x3000, "[heap]", vec![run(0x1000, &[1])])]);
        let longer = with(vec![mapping(0x1000, 0x4000, "[heap]", vec![run(0x1000, &[2])])]);
        let found = compare(&[&one, &longer]);
        assert_eq!(found.structure[0].mapping.as_deref(), Some("[heap] rw-p"));
        assert_eq!(found.structure[0].values, ["0x1000-0x3000", "0x1000-0x4000"]);
        assert_eq!(found.differing, [at(2, 0x1000)]);
        let other = with(vec![mapping(0x1000, 0x3000, "/file", vec![run(0x1000, &[1])])]);
        let found = compare(&[&one, &other]);
        assert_eq!(found.structure.len(), 2);
        assert_eq!((found.differing, found.doubtful), (vec![], vec![]));
    }

    #[test]
    fn how_far_the_kernel_has_grown_a_stack_does_not_matter() {
        let with = |start, pages| {
            survey(vec![], vec![process(2, vec![mapping(start, 0x9000, "[stack]", pages)])])
        };
        let one = with(0x7000, vec![run(0x8000, &[1])]);
        let two = with(0x6000, vec![run(0x8000, &[2])]);
        let found = compare(&[&one, &two]);
        assert_eq!((found.structure, found.differing), (vec![], vec![at(2, 0x8000)]));
    }
}
