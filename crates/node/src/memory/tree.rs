//! A tree of hashes over a survey, so that what replicas tell each other is in proportion to what differs.
//!
//! ```text
//! root      one hash of everything; replicas that are equal tell no more
//! groups    the processes and their mappings, and a hash for each 2 MiB of addresses with pages in it
//! pages     of groups that differ
//! ```
//!
//! A group is made of the pages of one mapping, or of the arena, with their addresses: groups are equal when the same pages were listed with the same hashes. So
//! whatever a comparison of all pages would find lies in a group that differs.

use super::{ARENA, HASH_DIGITS, Mapping, PAGE_BYTES, PageAt, ProcessMemory, Run, Survey, append};
use std::collections::BTreeSet;
use xxhash_rust::xxh3::Xxh3;

/// Addresses of a group: 512 pages, whose hashes take 8 KiB.
pub const GROUP_BYTES: u64 = 512 * PAGE_BYTES;

impl Run {
    /// Addresses and hashes of what lies here, each as long as `size`.
    pub fn each(&self, size: u64) -> impl Iterator<Item = (u64, &[u8; HASH_DIGITS])> {
        let (hashes, _) = self.hashes.as_bytes().as_chunks::<HASH_DIGITS>();
        // What comes from another node may have any address.
        let address = move |n: usize| self.address.wrapping_add((n as u64).wrapping_mul(size));
        hashes.iter().enumerate().map(move |(n, hash)| (address(n), hash))
    }
}

impl Mapping {
    /// The address by which replicas' mappings are the same: a stack's end, as the kernel grows it when it finds it touched.
    #[must_use]
    pub fn fixed(&self) -> u64 {
        if self.name == "[stack]" { self.end } else { self.start }
    }
}

impl Survey {
    /// The same with groups in place of pages.
    #[must_use]
    pub fn grouped(&self) -> Self {
        self.with_runs(|_, runs| grouped(runs))
    }

    /// One hash of all that is compared, of a survey with groups.
    #[must_use]
    pub fn root(&self) -> u64 {
        let mut root = Xxh3::new();
        add_runs(&mut root, &self.arena);
        add_number(&mut root, self.processes.len());
        for ProcessMemory { pid, command, mappings } in &self.processes {
            root.update(&pid.to_le_bytes());
            add_text(&mut root, command);
            add_number(&mut root, mappings.len());
            for mapping in mappings {
                root.update(&mapping.fixed().to_le_bytes());
                root.update(&mapping.end.to_le_bytes());
                add_text(&mut root, &mapping.permissions);
                add_text(&mut root, &mapping.name);
                add_runs(&mut root, &mapping.pages);
            }
        }
        root.digest()
    }

    /// Only the pages in these groups, and the mappings that have some.
    #[must_use]
    pub fn opened(&self, groups: &[PageAt]) -> Self {
        let groups: BTreeSet<PageAt> = groups.iter().copied().collect();
        let mut opened = self.with_runs(|pid, runs| {
            let mut within = Vec::new();
            for (address, hash) in runs.iter().flat_map(|run| run.each(PAGE_BYTES)) {
                if groups.contains(&PageAt { pid, address: begin(address) }) {
                    append(&mut within, address, PAGE_BYTES, format_args!("{}", text(hash)));
                }
            }
            within
        });
        for process in &mut opened.processes {
            process.mappings.retain(|mapping| !mapping.pages.is_empty());
        }
        opened.processes.retain(|process| !process.mappings.is_empty());
        opened
    }

    fn with_runs(&self, change: impl Fn(u32, &[Run]) -> Vec<Run>) -> Self {
        let mapping = |pid: u32, m: &Mapping| Mapping {
            permissions: m.permissions.clone(),
            name: m.name.clone(),
            pages: change(pid, &m.pages),
            ..*m
        };
        let process = |process: &ProcessMemory| ProcessMemory {
            pid: process.pid,
            command: process.command.clone(),
            mappings: process.mappings.iter().map(|m| mapping(process.pid, m)).collect(),
        };
        let processes = self.processes.iter().map(process).collect();
        Self { processes, arena: change(ARENA, &self.arena), pages: self.pages }
    }
}

/// The first address of a page's group.
const fn begin(address: u64) -> u64 {
    address / GROUP_BYTES * GROUP_BYTES
}

fn grouped(runs: &[Run]) -> Vec<Run> {
    let mut groups = Vec::new();
    let mut open: Option<(u64, Xxh3)> = None;
    for (address, hash) in runs.iter().flat_map(|run| run.each(PAGE_BYTES)) {
        if let Some((at, group)) = open.take_if(|(at, _)| *at != begin(address)) {
            append(&mut groups, at, GROUP_BYTES, format_args!("{:016x}", group.digest()));
        }
        let (_, group) = open.get_or_insert_with(|| (begin(address), Xxh3::new()));
        group.update(&address.to_le_bytes());
        group.update(hash);
    }
    if let Some((at, group)) = open {
        append(&mut groups, at, GROUP_BYTES, format_args!("{:016x}", group.digest()));
    }
    groups
}

fn text(hash: &[u8; HASH_DIGITS]) -> &str {
    std::str::from_utf8(hash).unwrap_or_default()
}

fn add_number(root: &mut Xxh3, number: usize) {
    root.update(&(number as u64).to_le_bytes());
}

fn add_text(root: &mut Xxh3, text: &str) {
    add_number(root, text.len());
    root.update(text.as_bytes());
}

fn add_runs(root: &mut Xxh3, runs: &[Run]) {
    add_number(root, runs.len());
    for run in runs {
        root.update(&run.address.to_le_bytes());
        add_text(root, &run.hashes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::push;
    use super::*;
    use proptest::prelude::*;

    const AT: u64 = 7 * GROUP_BYTES;

    fn runs(pages: &[(u64, u64)]) -> Vec<Run> {
        let mut runs = Vec::new();
        pages.iter().for_each(|(address, hash)| push(&mut runs, *address, *hash));
        runs
    }

    fn mapping(name: &str, start: u64, end: u64, pages: &[(u64, u64)]) -> Mapping {
        Mapping { start, end, permissions: "rw-p".into(), name: name.into(), pages: runs(pages) }
    }

    fn survey(mappings: Vec<Mapping>, arena: &[(u64, u64)]) -> Survey {
        let process = ProcessMemory { pid: 2, command: "server".into(), mappings };
        Survey { processes: vec![process], arena: runs(arena), pages: 0 }
    }

    fn listed(runs: &[Run], size: u64) -> Vec<u64> {
        runs.iter().flat_map(|run| run.each(size)).map(|(address, _)| address).collect()
    }

    #[test]
    fn pages_are_grouped_by_address() {
        let (last, next) = (AT + GROUP_BYTES - PAGE_BYTES, AT + GROUP_BYTES);
        let pages = [(AT, 1), (AT + PAGE_BYTES, 2), (last, 3), (next, 4), (next + GROUP_BYTES, 5)];
        let one = survey(vec![mapping("[heap]", AT, AT + 9 * GROUP_BYTES, &pages)], &pages[3..4]);
        let groups = one.grouped();
        let of_heap = &groups.processes[0].mappings[0].pages;
        assert_eq!(listed(of_heap, GROUP_BYTES), [AT, next, next + GROUP_BYTES]);
        assert_eq!(of_heap.len(), 1, "hashes in a row stand in a row");
        assert_eq!(listed(&groups.arena, GROUP_BYTES), [next]);

        let opened = one.opened(&[PageAt { pid: 2, address: AT }]);
        assert_eq!(opened.processes[0].mappings[0].pages, runs(&pages[..3]));
        assert_eq!(opened.arena, []);
        let opened = one.opened(&[PageAt { pid: ARENA, address: next }]);
        assert_eq!((opened.processes, opened.arena), (vec![], runs(&pages[3..4])));
    }

    #[test]
    fn the_root_is_of_all_that_is_compared_and_of_nothing_else() {
        let of = |survey: &Survey| survey.grouped().root();
        let pages = [(AT, 1), (AT + PAGE_BYTES, 2)];
        let stack = |start| mapping("[stack]", start, AT, &[(AT - PAGE_BYTES, 3)]);
        let heap = |pages: &[_]| mapping("[heap]", AT, AT + GROUP_BYTES, pages);
        let one = survey(vec![stack(AT - GROUP_BYTES), heap(&pages)], &pages);
        let grown = survey(vec![stack(AT - 2 * GROUP_BYTES), heap(&pages)], &pages);
        assert_eq!(of(&one), of(&grown));
        let change = |change: fn(&mut Survey)| {
            let mut other = one.clone();
            change(&mut other);
            of(&other)
        };
        let others = [
            of(&one),
            change(|one| one.processes[0].pid = 3),
            change(|one| one.processes[0].command.push('x')),
            change(|one| one.processes[0].mappings[1].end += PAGE_BYTES),
            change(|one| one.processes[0].mappings[1].permissions = "r--p".into()),
            change(|one| one.processes[0].mappings[1].name.push('x')),
            change(|one| one.processes[0].mappings[0].end += PAGE_BYTES),
            change(|one| one.processes[0].mappings[1].pages.clear()),
            change(|one| one.processes[0].mappings[1].pages = runs(&[(AT, 1), (AT + 4096, 3)])),
            change(|one| one.processes[0].mappings[1].pages = runs(&[(AT, 1), (AT + 8192, 2)])),
            change(|one| one.arena.clear()),
            change(|one| one.processes.clear()),
        ];
        let different: BTreeSet<u64> = others.into_iter().collect();
        assert_eq!(different.len(), others.len());
    }

    #[test]
    fn what_another_node_says_has_any_form() {
        let hashes = "0".repeat(3 * HASH_DIGITS) + "rest";
        let run = Run { address: u64::MAX - 5, hashes };
        let all = Survey { arena: vec![run.clone(), run], ..Survey::default() };
        let _ = (all.grouped().root(), all.opened(&[PageAt { pid: ARENA, address: u64::MAX }]));
    }

    proptest! {
        /// Two lists differ in a group exactly where they differ in a page of it.
        #[test]
        fn groups_differ_where_pages_do(
            pages in prop::collection::btree_map(0..2048u64, 0..4u64, 0..200),
            changes in prop::collection::vec((0..2048u64, prop::option::of(0..4u64)), 0..4),
        ) {
            let mut changed = pages.clone();
            for (page, hash) in changes {
                match hash {
                    Some(hash) => drop(changed.insert(page, hash)),
                    None => drop(changed.remove(&page)),
                }
            }
            let groups = |pages: &std::collections::BTreeMap<u64, u64>| {
                let pages: Vec<_> = pages.iter().map(|(n, hash)| (n * PAGE_BYTES, *hash)).collect();
                let groups = grouped(&runs(&pages));
                let all: BTreeSet<(u64, String)> = groups
                    .iter()
                    .flat_map(|run| run.each(GROUP_BYTES))
                    .map(|(at, hash)| (at, text(hash).to_owned()))
                    .collect();
                all
            };
            let differing: BTreeSet<u64> = groups(&pages)
                .symmetric_difference(&groups(&changed))
                .map(|(at, _)| *at)
                .collect();
            let expected: BTreeSet<u64> = (0..2048)
                .filter(|page| pages.get(page) != changed.get(page))
                .map(|page| begin(page * PAGE_BYTES))
                .collect();
            prop_assert_eq!(differing, expected);
        }
    }
}
