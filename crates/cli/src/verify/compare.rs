//! Compares surveys of one entry: output, processes, mappings, pages or groups of pages, files, and what the kernel has of processes.

use std::collections::{BTreeMap, BTreeSet};

use skein_node::memory::{ARENA, Fact, Mapping, PageAt, ProcessMemory, ProcessState, Run, Survey};
use skein_sandbox::{Written, WrittenFile};

/// The differences.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Processes and mappings.
    pub structure: Vec<Structure>,
    /// Pages that all have in their page tables, with different hashes.
    pub differing: Vec<Place>,
    /// Pages that only some have in their page tables.
    pub doubtful: Vec<PageAt>,
    /// Files.
    pub files: Vec<Files>,
}

impl Comparison {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.structure.is_empty()
            && self.differing.is_empty()
            && self.doubtful.is_empty()
            && self.files.is_empty()
    }

    /// The replica that the others are repaired from. It has what a majority has wherever they differ; if none does, it is the leader, as clients have seen its answers.
    pub fn model(&self, replicas: usize, leader: usize) -> usize {
        fn with_majority<T: PartialEq>(values: &[T], replica: usize) -> bool {
            2 * values.iter().filter(|value| **value == values[replica]).count() > values.len()
        }
        let everywhere = |replica: usize| {
            self.structure.iter().all(|place| with_majority(&place.values, replica))
                && self.differing.iter().all(|place| with_majority(&place.hashes, replica))
                && self.files.iter().all(|place| with_majority(&place.digests, replica))
        };
        let others = (0..replicas).filter(|replica| *replica != leader);
        std::iter::once(leader).chain(others).find(|n| everywhere(*n)).unwrap_or(leader)
    }
}

/// An output, a process, a mapping or a fact that is missing on some replica, or differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// What it is.
    pub kind: Kind,
    /// The process.
    pub pid: Option<u32>,
    /// Its command line.
    pub command: String,
    /// The mapping, or the fact's name, if not the process itself differs.
    pub mapping: String,
    /// Each replica's value.
    pub values: Vec<String>,
}

/// Kinds of [`Structure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The digest of all output.
    Output,
    /// A process.
    Process,
    /// A mapping.
    Mapping,
    /// What the kernel has of a process.
    State,
}

impl Kind {
    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Process => "process",
            Self::Mapping => "mapping",
            Self::State => "state",
        }
    }
}

/// A page that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its position.
    pub at: PageAt,
    /// Each replica's hash; `None` where there is no such page.
    pub hashes: Vec<Option<u64>>,
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Its path in the server.
    pub path: String,
    /// Each replica's digest.
    pub digests: Vec<String>,
    /// In words, what it is on each replica.
    pub values: Vec<String>,
    /// Whether it is a regular file on all.
    pub is_content: bool,
}

/// The identity of a mapping: begin or, of a stack, end; permissions, name.
pub type Key<'a> = (u64, &'a str, &'a str);
/// By process, the mappings that all replicas have: pages are compared there.
pub type Common<'a> = BTreeMap<u32, BTreeSet<Key<'a>>>;

const ABSENT: &str = "absent";

fn key(mapping: &Mapping) -> Key<'_> {
    (mapping.fixed(), &mapping.permissions, &mapping.name)
}

/// Compares the digests of all output; an empty one is not known.
pub fn compare_output(digests: &[&String], found: &mut Comparison) {
    if digests.iter().all(|digest| !digest.is_empty()) && digests.iter().any(|d| *d != digests[0]) {
        let values = digests.iter().copied().cloned().collect();
        let (command, mapping) = (String::new(), String::new());
        let output = Structure { kind: Kind::Output, pid: None, command, mapping, values };
        found.structure.insert(0, output);
    }
}

/// Files that differ.
pub fn compare_files(all: &[&Written]) -> Vec<Files> {
    if all.iter().all(|written| written.digest == all[0].digest) {
        return Vec::new();
    }
    let mut told: BTreeMap<&str, Vec<Option<&WrittenFile>>> = BTreeMap::new();
    for (n, written) in all.iter().enumerate() {
        for file in &written.files {
            told.entry(&file.path).or_insert_with(|| vec![None; all.len()])[n] = Some(file);
        }
    }
    let digest = |file: &Option<&WrittenFile>| file.map_or(ABSENT, |file| &file.digest).to_owned();
    let value = |file: &Option<&WrittenFile>| match file {
        None => ABSENT.to_owned(),
        Some(WrittenFile { kind, mode, size, modified, .. }) => {
            let modified = modified.as_deref().unwrap_or("-");
            format!("{kind} {mode:o} {size} bytes, modified {modified}")
        }
    };
    let files = |(path, files): (&str, Vec<Option<&WrittenFile>>)| Files {
        path: path.to_owned(),
        digests: files.iter().map(digest).collect(),
        values: files.iter().map(value).collect(),
        is_content: files.iter().all(|file| file.is_some_and(|file| file.kind == "file")),
    };
    let mut found: Vec<Files> = told.into_iter().map(files).collect();
    found.retain(|file| file.digests.iter().any(|digest| *digest != file.digests[0]));
    if found.is_empty() {
        // Behind those that are listed.
        let digests: Vec<String> = all.iter().map(|written| written.digest.clone()).collect();
        let path = "beyond the first 20,000 files".to_owned();
        found.push(Files { path, values: digests.clone(), digests, is_content: false });
    }
    found
}

/// Compares processes and mappings; answers the mappings that all have.
pub fn compare_structure<'a>(surveys: &[&'a Survey], found: &mut Vec<Structure>) -> Common<'a> {
    let mut common = Common::new();
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
            let (kind, pid, mapping) = (Kind::Process, Some(pid), String::new());
            found.push(Structure { kind, pid, command, mapping, values });
        }
        let Some(here) = here.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let both = compare_mappings(&here, found);
        common.insert(pid, both);
    }
    common
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
            let (kind, pid, mapping) = (Kind::Mapping, Some(pid), format!("{name} {permissions}"));
            found.push(Structure { kind, pid, command, mapping, values });
        }
    }
    common
}

/// Compares what the kernels have of processes, where all have the process.
pub fn compare_states(all: &[Vec<ProcessState>], found: &mut Vec<Structure>) {
    let processes: Vec<BTreeMap<u32, &ProcessState>> =
        all.iter().map(|all| all.iter().map(|process| (process.pid, process)).collect()).collect();
    let Some(first) = processes.first() else { return };
    for pid in first.keys() {
        let here: Option<Vec<&ProcessState>> =
            processes.iter().map(|all| all.get(pid).copied()).collect();
        if let Some(here) = here {
            compare_facts(&here, found);
        }
    }
}

fn compare_facts(processes: &[&ProcessState], found: &mut Vec<Structure>) {
    let facts: Vec<BTreeMap<&str, &Fact>> = processes
        .iter()
        .map(|process| process.facts.iter().map(|fact| (&*fact.name, fact)).collect())
        .collect();
    let mut named = BTreeSet::new();
    // As they are told, which is by number.
    let names = processes.iter().flat_map(|process| &process.facts).map(|fact| &*fact.name);
    for name in names.filter(|name| named.insert(*name)) {
        let here: Vec<Option<&Fact>> = facts.iter().map(|all| all.get(name).copied()).collect();
        // An image opens a file by a name that it has, and the server may have removed the one by which it opened it.
        let is_known = here.iter().flatten().all(|fact| !fact.file.is_empty());
        let value = |fact: &Option<&Fact>| match fact {
            None => ABSENT.to_owned(),
            Some(Fact { file, value, .. }) if is_known => format!("{file}, {value}"),
            Some(fact) => fact.value.clone(),
        };
        let values: Vec<String> = here.iter().map(value).collect();
        if values.iter().any(|value| *value != values[0]) {
            let (pid, command) = (processes[0].pid, processes[0].command.clone());
            let (kind, pid, mapping) = (Kind::State, Some(pid), name.to_owned());
            found.push(Structure { kind, pid, command, mapping, values });
        }
    }
}

/// A survey's pages or groups, which are as long as `size`, in the order of [`PageAt`], where all have a mapping.
fn pages<'a>(
    survey: &'a Survey,
    common: &'a Common<'_>,
    size: u64,
) -> impl Iterator<Item = (PageAt, &'a [u8])> {
    let of = move |pid: u32, runs: &'a [Run]| {
        let hashes = runs.iter().flat_map(move |run| run.each(size));
        hashes.map(move |(address, hash)| (PageAt { pid, address }, &hash[..]))
    };
    let private = survey.processes.iter().flat_map(move |process| {
        let keys = common.get(&process.pid);
        let in_all = move |m: &&Mapping| keys.is_some_and(|keys| keys.contains(&key(m)));
        let mappings = process.mappings.iter().filter(in_all);
        mappings.flat_map(move |mapping| of(process.pid, &mapping.pages))
    });
    of(ARENA, &survey.arena).chain(private)
}

/// Compares pages, or groups of them, which are as long as `size`.
pub fn compare_pages(surveys: &[&Survey], common: &Common<'_>, size: u64, found: &mut Comparison) {
    let pages = |survey| pages(survey, common, size).peekable();
    let mut all: Vec<_> = surveys.iter().copied().map(pages).collect();
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
            let hashes = hashes.into_iter().map(|hash| number(hash?)).collect();
            found.differing.push(Place { at: next, hashes });
        }
    }
}

/// A hash in hexadecimal; `None` for none.
pub fn number(hash: impl AsRef<[u8]>) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(hash.as_ref()).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_node::memory::PAGE_BYTES;

    fn compare(surveys: &[&Survey]) -> Comparison {
        let mut found = Comparison::default();
        let common = compare_structure(surveys, &mut found.structure);
        compare_pages(surveys, &common, PAGE_BYTES, &mut found);
        found
    }

    fn places(found: &Comparison) -> Vec<PageAt> {
        found.differing.iter().map(|place| place.at).collect()
    }

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
            assert_eq!(places(&found), [at(2, 0x2000)]);
            assert_eq!(found.differing[0].hashes[..2].iter().flatten().count(), 2);
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
        assert_eq!((found.structure.len(), missing.pid, missing.kind), (1, Some(5), Kind::Process));
        assert_eq!(missing.values, [ABSENT, "server"]);
        assert_eq!((found.differing, found.doubtful), (vec![], vec![]));
    }

    #[test]
    fn mappings_are_compared_by_place_length_permissions_and_name() {
        let with = |mappings| survey(vec![], vec![process(2, mappings)]);
        let one = with(vec![mapping(0x1000, 0x3000, "[heap]", vec![run(0x1000, &[1])])]);
        let longer = with(vec![mapping(0x1000, 0x4000, "[heap]", vec![run(0x1000, &[2])])]);
        let found = compare(&[&one, &longer]);
        assert_eq!(
            (found.structure[0].kind, &*found.structure[0].mapping),
            (Kind::Mapping, "[heap] rw-p")
        );
        assert_eq!(found.structure[0].values, ["0x1000-0x3000", "0x1000-0x4000"]);
        assert_eq!(places(&found), [at(2, 0x1000)]);
        let other = with(vec![mapping(0x1000, 0x3000, "/file", vec![run(0x1000, &[1])])]);
        let found = compare(&[&one, &other]);
        assert_eq!(found.structure.len(), 2);
        assert_eq!((found.differing, found.doubtful), (vec![], vec![]));
    }

    fn state(facts: &[(&str, &str, &str)]) -> Vec<ProcessState> {
        let fact = |(name, file, value): &(&str, &str, &str)| Fact {
            name: (*name).into(),
            file: (*file).into(),
            value: (*value).into(),
        };
        let facts = facts.iter().map(fact).collect();
        vec![ProcessState { pid: 2, command: "server".into(), facts }]
    }

    fn states(all: &[Vec<ProcessState>]) -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        compare_states(all, &mut found);
        for told in &found {
            assert_eq!((told.kind, told.pid, &*told.command), (Kind::State, Some(2), "server"));
        }
        found.into_iter().map(|told| (told.mapping, told.values)).collect()
    }

    #[test]
    fn what_the_kernel_has_of_a_process_is_compared_by_name() {
        let one = state(&[("umask", "", "022"), ("descriptor 7", "/a", "position 12")]);
        let two = state(&[("umask", "", "027"), ("descriptor 7", "/a", "position 10")]);
        let more = state(&[("umask", "", "022"), ("descriptor 8", "/a", "position 12")]);
        assert_eq!(states(&[one.clone(), one.clone()]), []);
        let found = states(&[one.clone(), two, one.clone()]);
        assert_eq!(found[0], ("umask".into(), ["022", "027", "022"].map(String::from).to_vec()));
        let positions = ["12", "10", "12"].map(|at| format!("/a, position {at}"));
        assert_eq!(found[1], ("descriptor 7".into(), positions.to_vec()));
        let found = states(&[one.clone(), more]);
        let at = "/a, position 12";
        assert_eq!(found[0], ("descriptor 7".into(), vec![at.into(), ABSENT.into()]));
        assert_eq!(found[1], ("descriptor 8".into(), vec![ABSENT.into(), at.into()]));
        assert_eq!(states(&[one, vec![]]), [], "its memory tells of the process");
    }

    #[test]
    fn by_which_of_its_names_a_file_is_open_does_not_matter_where_one_is_removed() {
        let one = state(&[("descriptor 7", "", "position 12")]);
        let other = |at| state(&[("descriptor 7", "/other", at)]);
        assert_eq!(states(&[one.clone(), other("position 12")]), []);
        let found = states(&[other("position 10"), one]);
        assert_eq!(found[0].1, ["position 10", "position 12"]);
    }

    #[test]
    fn how_far_the_kernel_has_grown_a_stack_does_not_matter() {
        let with = |start, pages| {
            survey(vec![], vec![process(2, vec![mapping(start, 0x9000, "[stack]", pages)])])
        };
        let one = with(0x7000, vec![run(0x8000, &[1])]);
        let two = with(0x6000, vec![run(0x8000, &[2])]);
        let found = compare(&[&one, &two]);
        assert_eq!((places(&found), found.structure), (vec![at(2, 0x8000)], vec![]));
    }

    #[test]
    fn the_model_has_a_majority_everywhere_or_leads() {
        let place = |hashes: &[u64]| Place {
            at: at(2, 0x1000),
            hashes: hashes.iter().map(|hash| Some(*hash)).collect(),
        };
        let model = |places: &[&[u64]], leader| {
            let differing: Vec<_> = places.iter().map(|hashes| place(hashes)).collect();
            let found = Comparison { differing, ..Comparison::default() };
            found.model(places[0].len(), leader)
        };
        assert_eq!(model(&[&[1, 1, 2]], 0), 0);
        assert_eq!(model(&[&[2, 1, 1]], 0), 1, "also when the leader differs");
        assert_eq!(model(&[&[1, 2]], 1), 1, "of two, the leader");
        assert_eq!(model(&[&[1, 2, 3]], 2), 2);
        assert_eq!(model(&[&[2, 1, 1], &[1, 2, 1]], 0), 2, "two that differ by themselves");
        assert_eq!(model(&[&[2, 1, 1], &[1, 2, 1], &[1, 1, 2]], 1), 1, "no whole one");
    }

    #[test]
    fn files_are_compared_by_path_and_digest() {
        let file = |path: &str, kind: &str, digest: &str| WrittenFile {
            path: path.into(),
            kind: kind.into(),
            mode: 0o644,
            size: 1,
            modified: None,
            digest: digest.into(),
        };
        let written = |digest: &str, files: &[WrittenFile]| Written {
            digest: digest.into(),
            files: files.to_vec(),
            ..Written::default()
        };
        let one = written("a", &[file("/same", "file", "1"), file("/other", "file", "1")]);
        let two = written(
            "b",
            &[file("/same", "file", "1"), file("/other", "file", "2"), file("/only", "file", "1")],
        );
        assert_eq!(compare_files(&[&one, &one]), []);
        let found = compare_files(&[&one, &two]);
        let told: Vec<_> = found.iter().map(|file| (&*file.path, file.is_content)).collect();
        assert_eq!(told, [("/only", false), ("/other", true)]);
        assert_eq!((&*found[0].digests[0], &*found[1].digests[1]), (ABSENT, "2"));
        let unlisted = compare_files(&[&written("a", &[]), &written("b", &[])]);
        assert_eq!((unlisted.len(), unlisted[0].is_content), (1, false));
    }
}
