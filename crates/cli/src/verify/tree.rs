//! Compares servers from the roots of their trees of hashes ([`skein_node::memory`]) down to the pages that differ: equal replicas tell their roots only.
//!
//! A node of an earlier version tells all hashes at once; its tree is made here, so the others still tell no more than what differs.

use std::collections::{BTreeMap, BTreeSet};

use skein_node::memory::{GROUP_BYTES, PAGE_BYTES, PageAt, ProcessState, Survey};
use skein_node::{MemoryRoot, MemoryStatus};
use skein_sandbox::Written;

use super::compare::{
    Comparison, compare_files, compare_output, compare_pages, compare_states, compare_structure,
};
use super::{LIMIT, Unanswered, of_all, parsed};
use crate::admin::{AdminError, Asked};
use crate::standstill::Answer;

/// So many groups are opened at a time: the hashes of their pages are 16 MiB of an answer.
const MAX_GROUPS: usize = 2 << 10;

/// What a node tells first.
pub struct Told {
    root: MemoryRoot,
    /// All of it, of a node that has no trees.
    whole: Option<MemoryStatus>,
}

/// What a node tells first of its server, which stands at this entry or goes on to it; `again`: empty, or what stands behind the target once it stands there.
pub fn first(node: &Asked, index: u64, again: &str) -> Result<Told, AdminError> {
    if node.has_trees {
        let root = parsed(&node.get(&format!("/memory/{index}/root{again}"), LIMIT)?)?;
        return Ok(Told { root, whole: None });
    }
    let status: MemoryStatus = parsed(&node.get(&format!("/memory/{index}{again}"), LIMIT)?)?;
    let root = MemoryRoot::of(&status);
    Ok(Told { root, whole: Some(status) })
}

/// Where more is known than the roots. Answers have the replicas' order.
pub trait Below {
    /// Why it cannot be told.
    type Error;
    /// Surveys with groups in place of pages.
    fn groups(&self) -> Result<Vec<Survey>, Self::Error>;
    /// The pages in these groups.
    fn pages(&self, groups: &[PageAt]) -> Result<Vec<Survey>, Self::Error>;
    /// Lists of files.
    fn files(&self) -> Result<Vec<Written>, Self::Error>;
    /// What the kernels have of the processes.
    fn states(&self) -> Result<Vec<Vec<ProcessState>>, Self::Error>;
}

/// Standing servers' nodes.
pub struct Tree<'a> {
    nodes: &'a [Asked],
    /// By replica, what those told that have no trees.
    whole: BTreeMap<u64, MemoryStatus>,
    index: u64,
}

impl<'a> Tree<'a> {
    /// Behind these answers; their roots.
    pub fn of(nodes: &'a [Asked], told: Vec<Answer<Told>>) -> (Self, Vec<Answer<MemoryRoot>>) {
        let mut tree = Self { nodes, whole: BTreeMap::new(), index: 0 };
        let mut root = |(node, told): (&Asked, Answer<Told>)| {
            let Told { root, whole } = told?;
            tree.index = root.index;
            tree.whole.extend(whole.map(|status| (node.id, status)));
            Ok(root)
        };
        let roots = nodes.iter().zip(told).map(&mut root).collect();
        (tree, roots)
    }

    /// From each node: what was told, or its answer to a question.
    fn each<T: Send>(
        &self,
        told: impl Fn(&MemoryStatus) -> T + Sync,
        ask: impl Fn(&Asked) -> Result<T, AdminError> + Sync,
    ) -> Result<Vec<T>, Unanswered> {
        of_all(self.nodes, |node| match self.whole.get(&node.id) {
            Some(status) => Ok(told(status)),
            None => ask(node),
        })
    }
}

impl Below for Tree<'_> {
    type Error = Unanswered;

    fn groups(&self) -> Result<Vec<Survey>, Unanswered> {
        let target = format!("/memory/{}/groups", self.index);
        let told = |status: &MemoryStatus| status.survey.grouped();
        self.each(told, |node| parsed(&node.get(&target, LIMIT)?))
    }

    fn pages(&self, groups: &[PageAt]) -> Result<Vec<Survey>, Unanswered> {
        let target = format!("/memory/{}/pages", self.index);
        let question = serde_json::to_string(groups).expect("plain structs are valid JSON");
        let told = |status: &MemoryStatus| status.survey.opened(groups);
        self.each(told, |node| parsed(&node.post_json(&target, &question, LIMIT)?))
    }

    fn files(&self) -> Result<Vec<Written>, Unanswered> {
        let target = format!("/memory/{}/files", self.index);
        let told = |status: &MemoryStatus| status.written.clone();
        self.each(told, |node| parsed(&node.get(&target, LIMIT)?))
    }

    fn states(&self) -> Result<Vec<Vec<ProcessState>>, Unanswered> {
        let target = format!("/memory/{}/state", self.index);
        let told = |status: &MemoryStatus| status.state.clone().unwrap_or_default();
        self.each(told, |node| parsed(&node.get(&target, LIMIT)?))
    }
}

/// Compares at least two replicas' servers; answers the first one's processes and mappings, too, if memory differs.
pub fn compare<B: Below>(
    roots: &[&MemoryRoot],
    below: &B,
) -> Result<(Comparison, Survey), B::Error> {
    let differ = |of: fn(&MemoryRoot) -> &String| roots.iter().any(|root| of(root) != of(roots[0]));
    let (mut found, mut mapped) = (Comparison::default(), Survey::default());
    if differ(|root| &root.root) {
        let mut grouped = below.groups()?;
        let surveys: Vec<&Survey> = grouped.iter().collect();
        let common = compare_structure(&surveys, &mut found.structure);
        let mut groups = Comparison::default();
        compare_pages(&surveys, &common, GROUP_BYTES, &mut groups);
        let differing = groups.differing.into_iter().map(|place| place.at);
        // Two mappings of a process may have a group at the same address.
        let groups: BTreeSet<PageAt> = differing.chain(groups.doubtful).collect();
        let groups: Vec<PageAt> = groups.into_iter().collect();
        for groups in groups.chunks(MAX_GROUPS) {
            let opened = below.pages(groups)?;
            let opened: Vec<&Survey> = opened.iter().collect();
            compare_pages(&opened, &common, PAGE_BYTES, &mut found);
        }
        mapped = grouped.swap_remove(0);
    }
    let digests: Vec<&String> = roots.iter().map(|root| &root.digest).collect();
    compare_output(&digests, &mut found);
    if differ(|root| &root.files_digest) {
        let written = below.files()?;
        found.files = compare_files(&written.iter().collect::<Vec<_>>());
    }
    // A node of an earlier version does not tell it, nor does one on a kernel that does not.
    if roots.iter().all(|root| !root.state.is_empty()) && differ(|root| &root.state) {
        let states = below.states()?;
        compare_states(&states, &mut found.structure);
    }
    Ok((found, mapped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::NodeFiles;
    use crate::standstill::ask_all;
    use proptest::prelude::*;
    use skein_node::memory::{ARENA, Fact, Mapping, ProcessMemory, Run};
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread;

    fn told() -> MemoryStatus {
        MemoryStatus {
            index: 5,
            digest: String::new(),
            survey: Survey::default(),
            written: Written::default(),
            state: None,
        }
    }

    /// Servers whose memory is here, and how much of it was told.
    struct Here {
        surveys: Vec<Survey>,
        /// What is told of their processes.
        states: Vec<Option<Vec<ProcessState>>>,
        groups_told: Cell<bool>,
        pages_told: Cell<usize>,
        groups_opened: Cell<usize>,
    }

    impl Here {
        fn of(surveys: Vec<Survey>) -> Self {
            let (states, groups_told, pages_told, groups_opened) = Default::default();
            Self { surveys, states, groups_told, pages_told, groups_opened }
        }

        fn compared(&self) -> Comparison {
            let root = |(n, survey): (usize, &Survey)| {
                let state = self.states.get(n).cloned().flatten();
                MemoryRoot::of(&MemoryStatus { survey: survey.clone(), state, ..told() })
            };
            let roots: Vec<MemoryRoot> = self.surveys.iter().enumerate().map(root).collect();
            let roots: Vec<&MemoryRoot> = roots.iter().collect();
            let Ok((found, _)) = compare(&roots, self);
            found
        }

        /// As all pages in one list.
        fn compared_flat(&self) -> Comparison {
            let surveys: Vec<&Survey> = self.surveys.iter().collect();
            let mut found = Comparison::default();
            let common = compare_structure(&surveys, &mut found.structure);
            compare_pages(&surveys, &common, PAGE_BYTES, &mut found);
            found
        }
    }

    impl Below for Here {
        type Error = Infallible;

        fn groups(&self) -> Result<Vec<Survey>, Infallible> {
            self.groups_told.set(true);
            Ok(self.surveys.iter().map(Survey::grouped).collect())
        }

        fn pages(&self, groups: &[PageAt]) -> Result<Vec<Survey>, Infallible> {
            self.groups_opened.set(self.groups_opened.get() + groups.len());
            let opened: Vec<_> = self.surveys.iter().map(|one| one.opened(groups)).collect();
            self.pages_told.set(self.pages_told.get() + listed(&opened[0]));
            Ok(opened)
        }

        fn files(&self) -> Result<Vec<Written>, Infallible> {
            unreachable!("files are equal")
        }

        fn states(&self) -> Result<Vec<Vec<ProcessState>>, Infallible> {
            Ok(self.states.iter().map(|state| state.clone().expect("all tell it")).collect())
        }
    }

    fn listed(survey: &Survey) -> usize {
        let mappings = survey.processes.iter().flat_map(|process| &process.mappings);
        let runs = mappings.flat_map(|mapping| &mapping.pages).chain(&survey.arena);
        runs.map(|run| run.each(PAGE_BYTES).count()).sum()
    }

    /// Pages by process, mapping and page number, with a small number for their hash.
    type Pages = BTreeMap<(u32, usize, u64), u8>;
    const PROCESSES: u32 = 3;
    /// First page, pages and name; the second one begins in the group where the first ends, as the third does, which is a stack.
    const MAPPINGS: [(u64, u64, &str); 3] =
        [(3, 700, "[heap]"), (703, 900, "/a file"), (1700, 400, "[stack]")];

    fn survey(pages: &Pages, without: Option<(u32, usize)>, grown: u64) -> Survey {
        let runs = |pid: u32, mapping: usize, first: u64, len: u64| {
            let here = pages.range((pid, mapping, 0)..(pid, mapping + 1, 0));
            let here = here.filter(|((.., page), _)| *page < len);
            let run = |((.., page), hash): (&(u32, usize, u64), &u8)| Run {
                address: (first + page) * PAGE_BYTES,
                hashes: format!("{hash:016x}"),
            };
            here.map(run).collect::<Vec<_>>()
        };
        let mapping = |pid: u32, n: usize| {
            let (first, len, name) = MAPPINGS[n];
            let begin = if name == "[stack]" { first - grown } else { first };
            Mapping {
                start: begin * PAGE_BYTES,
                end: (first + len) * PAGE_BYTES,
                permissions: "rw-p".into(),
                name: name.into(),
                pages: runs(pid, n, first, len),
            }
        };
        let process = |pid: u32| ProcessMemory {
            pid,
            command: "server".into(),
            mappings: (0..MAPPINGS.len())
                .filter(|n| without != Some((pid, *n)))
                .map(|n| mapping(pid, n))
                .collect(),
        };
        let processes = (1..PROCESSES).filter(|pid| without != Some((*pid, 9))).map(process);
        let processes = processes.collect();
        Survey { processes, arena: runs(ARENA, 0, 5, 2000), pages: pages.len() as u64 }
    }

    fn place() -> impl Strategy<Value = (u32, usize, u64)> {
        (0..PROCESSES, 0..MAPPINGS.len(), 0..900u64)
    }

    #[test]
    fn equal_servers_tell_their_roots_and_those_that_differ_a_group() {
        let pages: Pages = (0..PROCESSES)
            .flat_map(|pid| (0..MAPPINGS.len()).map(move |mapping| (pid, mapping)))
            .flat_map(|(pid, mapping)| (0..400).map(move |page| ((pid, mapping, page), 1)))
            .collect();
        let equal = survey(&pages, None, 0);
        let here = Here::of(vec![equal.clone(), survey(&pages, None, 7), equal.clone()]);
        assert_eq!(here.compared(), Comparison::default());
        assert!(!here.groups_told.get());

        let mut changed = pages;
        changed.insert((1, 0, 17), 2);
        let here = Here::of(vec![equal.clone(), survey(&changed, None, 0), equal]);
        let found = here.compared();
        let differing: Vec<PageAt> = found.differing.iter().map(|place| place.at).collect();
        assert_eq!(differing, [PageAt { pid: 1, address: 20 * PAGE_BYTES }]);
        assert_eq!(found.differing[0].hashes, [Some(1), Some(2), Some(1)]);
        assert_eq!(here.groups_opened.get(), 1);
        assert_eq!(here.pages_told.get(), 400, "of 3,600");
    }

    #[test]
    fn what_kernels_have_is_compared_if_all_nodes_tell_it() {
        let state = |value: &str| {
            let (name, file, value) = ("descriptor 7".into(), "/a".into(), value.into());
            let (command, facts) = ("server".into(), vec![Fact { name, file, value }]);
            Some(vec![ProcessState { pid: 2, command, facts }])
        };
        let compared = |states: [Option<Vec<ProcessState>>; 3]| {
            let here = Here::of(vec![Survey::default(); 3]);
            Here { states: states.to_vec(), ..here }.compared().structure
        };
        let [one, other] = ["position 12", "position 10"];
        assert_eq!(compared([state(one), state(one), state(one)]), []);
        let found = compared([state(one), state(other), state(one)]);
        assert_eq!((found.len(), &*found[0].mapping), (1, "descriptor 7"));
        assert_eq!(compared([state(one), state(other), None]), []);
    }

    #[test]
    fn a_node_of_an_earlier_version_does_not_tell_what_its_kernel_has() {
        let status = MemoryStatus { state: Some(Vec::new()), ..told() };
        let root = MemoryRoot::of(&status);
        assert_ne!(root.state, "", "no process is told, too");
        let mut told = serde_json::to_value(&root).unwrap();
        told.as_object_mut().unwrap().remove("state").unwrap();
        assert_eq!(serde_json::from_value::<MemoryRoot>(told).unwrap().state, "");
        let mut told = serde_json::to_value(&status).unwrap();
        told.as_object_mut().unwrap().remove("state").unwrap();
        let status: MemoryStatus = serde_json::from_value(told).unwrap();
        assert_eq!((&status.state, &*MemoryRoot::of(&status).state), (&None, ""));
    }

    /// A node of this version, or of one without trees, until a question is empty; answers what was asked.
    fn node(listener: &UnixListener, status: &MemoryStatus, has_trees: bool) -> Vec<String> {
        let (mut asked, index) = (Vec::new(), status.index);
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut lines, mut len) = (Vec::new(), 0);
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).unwrap() == 0 {
                    return asked;
                }
                if let Some(bytes) = line.to_lowercase().strip_prefix("content-length: ") {
                    len = bytes.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
                lines.push(line);
            }
            let mut body = vec![0; len];
            stream.read_exact(&mut body).unwrap();
            let target = lines[0].split(' ').nth(1).unwrap().to_owned();
            let below = target.strip_prefix(&format!("/memory/{index}")).unwrap();
            let MemoryStatus { survey, state, .. } = status;
            let answer = match below {
                "" => serde_json::to_string(status).ok(),
                _ if !has_trees => None,
                "/root" => serde_json::to_string(&MemoryRoot::of(status)).ok(),
                "/state" => serde_json::to_string(state).ok(),
                "/groups" => serde_json::to_string(&survey.grouped()).ok(),
                "/pages" => {
                    let groups: Vec<PageAt> = serde_json::from_slice(&body).unwrap();
                    serde_json::to_string(&survey.opened(&groups)).ok()
                }
                other => panic!("{other}"),
            };
            let head = if answer.is_some() { "200 OK" } else { "404 Not Found" };
            let answer = answer.unwrap_or_default();
            let len = answer.len();
            let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {len}\r\n\r\n{answer}");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            asked.push(below.to_owned());
        }
        asked
    }

    #[test]
    fn a_node_without_trees_is_compared_with_those_that_have_them() {
        let dir = tempfile::tempdir().unwrap();
        let pages = (0..400).map(|page| ((1, 0, page), 1)).collect::<Pages>();
        let mut changed = pages.clone();
        changed.insert((1, 0, 17), 2);
        let status = |pages: &Pages| MemoryStatus { survey: survey(pages, None, 0), ..told() };
        let all = [status(&pages), status(&changed), status(&pages)];
        let asked = |id: u64| {
            let (admin, address) = (dir.path().join(id.to_string()), String::new());
            let (log, output, data) = Default::default();
            let mut asked = Asked::here(&NodeFiles { id, admin, address, log, output, data });
            asked.has_trees = id != 2;
            asked
        };
        let nodes = [1, 2, 3].map(asked);
        thread::scope(|scope| {
            let serve = |n: usize| {
                let (at, all) = (dir.path().join((n + 1).to_string()), &all);
                let listener = UnixListener::bind(&at).unwrap();
                (at, scope.spawn(move || node(&listener, &all[n], n != 1)))
            };
            let servers = [0, 1, 2].map(serve);
            let (tree, roots) = Tree::of(&nodes, ask_all(&nodes, |node| first(node, 5, "")));
            let roots: Vec<MemoryRoot> = roots.into_iter().map(Result::unwrap).collect();
            let (found, mapped) = compare(&roots.iter().collect::<Vec<_>>(), &tree).unwrap();
            let differing: Vec<PageAt> = found.differing.iter().map(|place| place.at).collect();
            assert_eq!(differing, [PageAt { pid: 1, address: 20 * PAGE_BYTES }]);
            assert_eq!(mapped.processes.len(), PROCESSES as usize - 1);
            let asked = servers.map(|(at, serves)| {
                drop(UnixStream::connect(at).unwrap());
                serves.join().unwrap()
            });
            assert_eq!(
                asked,
                [&["/root", "/groups", "/pages"][..], &[""], &["/root", "/groups", "/pages"]]
            );
        });
    }

    proptest! {
        #[test]
        fn a_tree_finds_what_a_list_of_all_pages_finds(
            pages in prop::collection::btree_map(place(), 0..3u8, 0..400),
            changes in prop::collection::vec(
                prop::collection::vec((place(), prop::option::of(0..3u8)), 0..4), 2..4),
            without in prop::option::of((1..PROCESSES, prop::sample::select(vec![0usize, 1, 2, 9]))),
            grown in 0..50u64,
        ) {
            let replica = |(n, changes): (usize, &Vec<_>)| {
                let mut pages = pages.clone();
                for (place, hash) in changes {
                    match hash {
                        Some(hash) => drop(pages.insert(*place, *hash)),
                        None => drop(pages.remove(place)),
                    }
                }
                survey(&pages, without.filter(|_| n == 1), n as u64 * grown)
            };
            let here = Here::of(changes.iter().enumerate().map(replica).collect());
            let (flat, found) = (here.compared_flat(), here.compared());
            prop_assert_eq!(&flat, &found);
            prop_assert_eq!(flat.is_empty(), !here.groups_told.get());
            prop_assert!(here.groups_opened.get() <= flat.differing.len() + flat.doubtful.len());
        }
    }
}
