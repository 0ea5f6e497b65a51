//! What is known from the image before: which page was where, and the hash of its content.

use skein_arena::layout::{RUNTIME_END, SERVER_BASE};
use skein_arena::restore::Run;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use xxhash_rust::xxh3::Xxh3;

use crate::contents::{Contents, Listed, Rewritten};
use crate::copied::hash;
use crate::file_pages::{Ahead, put_in_order};
use crate::form::PAGE_BYTES;

/// Where the pages of an image are in its restore file.
#[derive(Debug, Default)]
pub struct Places {
    pub(crate) heap: Vec<Run>,
    /// A hash of the heap without the bytes that belong to one replica.
    pub(crate) heap_root: u64,
    /// By their numbers on the host.
    pub(crate) processes: BTreeMap<u32, Vec<Run>>,
    /// The same numbers by those in the server.
    pub(crate) pids: BTreeMap<u32, u32>,
    pub(crate) objects: Vec<Vec<Run>>,
    /// The kernel's code in each process, from and to, which follows its version; by the same numbers.
    pub(crate) kernels: BTreeMap<u32, (u64, u64)>,
    /// Addresses of private pages, from and to, that may have been written between the image and the moment from which the kernel notes that; by the numbers of their processes on the host.
    pub(crate) doubtful: BTreeMap<u32, Vec<(u64, u64)>>,
    /// The paths of the files that the server knows,
    pub(crate) files: BTreeSet<Vec<u8>>,
    /// and those of the host that it knows, and that are nowhere.
    pub(crate) nowhere: Nowhere,
}

/// Files of the host that the server knows, by device and inode number, and that are not to be found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nowhere {
    pub(crate) files: HashSet<(u64, u64)>,
    /// Where they were sought.
    pub(crate) directories: BTreeSet<Vec<u8>>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Before {
    pub(crate) places: Places,
    hashes: Vec<u128>,
    of_files: HashSet<u128>,
    contents: Contents,
    contents_hashes: Vec<u128>,
    /// A hash of the pages of files in their order.
    files_root: u64,
}

/// Finds the pages of one part of it, fastest in the order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct Lookup<'a> {
    runs: &'a [Run],
    hashes: &'a [u128],
    /// The run that was found last.
    last: usize,
    /// Where a page that was not written since may be another one, in order.
    doubtful: &'a [(u64, u64)],
    /// Pages of nothing that it has not, and that are not doubtful, were zeros.
    is_whole: bool,
}

impl Places {
    /// With the hashes of all pages in the restore file, in their order, and of those of files, which are listed in `contents`.
    #[must_use]
    pub fn with(self, hashes: Vec<u128>, of_files: Vec<u128>, contents: Contents) -> Before {
        let mut files = Xxh3::new();
        // Where a file has holes, its file system decides.
        let zeros = hash(&[0; PAGE_BYTES as usize]);
        let written = of_files.iter().filter(|page| **page != zeros);
        written.for_each(|page| files.update(&page.to_le_bytes()));
        let files_root = files.digest();
        let all = of_files.iter().copied().collect();
        let contents_hashes = of_files;
        Before { places: self, hashes, of_files: all, contents, contents_hashes, files_root }
    }
}

impl Before {
    /// Whether it has a page of a file with this hash.
    #[must_use]
    pub fn has_of_files(&self, hash: u128) -> bool {
        self.of_files.contains(&hash)
    }

    /// Whether it has any.
    #[must_use]
    pub fn has_files(&self) -> bool {
        !self.of_files.is_empty()
    }

    /// For the files of a server that stands.
    #[must_use]
    pub fn list<'a>(
        before: Option<&'a Self>,
        ahead: Option<&'a Ahead>,
        now: Rewritten,
    ) -> Listed<'a> {
        Listed::new(now, before.map(Self::contents), ahead)
    }

    /// Where it has files, and the hashes of all their pages.
    pub(crate) fn contents(&self) -> (&Contents, &[u128]) {
        (&self.contents, &self.contents_hashes)
    }

    /// A hash of all pages of the server and of its files: the same on replicas whose servers are equal. Left out is what `skein verify` leaves out, mappings, and files'
    /// names and attributes.
    #[must_use]
    pub fn root(&self) -> u64 {
        // Whether a page of zeros was ever touched does not matter.
        let zeros = hash(&[0; PAGE_BYTES as usize]);
        let mut all = Xxh3::new();
        let mut pages = |of: u64, runs: &[Run], left_out: (u64, u64)| {
            for run in runs {
                for address in (run.address..run.address + run.bytes).step_by(PAGE_BYTES as usize) {
                    let known = self.hashes.get(place(run, address)).copied().unwrap_or_default();
                    let is_own = (SERVER_BASE as u64..RUNTIME_END as u64).contains(&address);
                    let is_kernels = (left_out.0..left_out.1).contains(&address);
                    if known != zeros && !is_own && !is_kernels {
                        all.update(&of.to_le_bytes());
                        all.update(&address.to_le_bytes());
                        all.update(&known.to_le_bytes());
                    }
                }
            }
        };
        for (pid, host_pid) in &self.places.pids {
            let runs = self.places.processes.get(host_pid).map_or(&[][..], |runs| runs);
            let kernels = self.places.kernels.get(host_pid).copied().unwrap_or_default();
            pages(u64::from(*pid), runs, kernels);
        }
        for (number, runs) in self.places.objects.iter().enumerate() {
            // Numbers of processes are below.
            pages(1 << 32 | number as u64, runs, (0, 0));
        }
        all.update(&self.places.heap_root.to_le_bytes());
        all.update(&self.files_root.to_le_bytes());
        all.digest()
    }

    /// What a process has at these addresses, from and to, in order, may be something else by now.
    pub(crate) fn doubt(&mut self, host_pid: u32, rows: &[(u64, u64)]) {
        let doubtful = self.places.doubtful.entry(host_pid).or_default();
        doubtful.extend(rows.iter().filter(|(from, to)| from < to));
        put_in_order(doubtful);
    }

    /// A process has pages with these hashes at these addresses, in order, unless the kernel says that they were written: they count like those of this image, and are no longer doubtful.
    pub(crate) fn learn(&mut self, host_pid: u32, pages: &[(u64, u128)]) {
        let runs = self.places.processes.entry(host_pid).or_default();
        let mut new: Vec<Run> = Vec::new();
        for (address, hash) in pages.iter().copied() {
            let behind = runs.partition_point(|run| run.address <= address);
            let known = behind.checked_sub(1).map(|n| &runs[n]);
            let known = known.filter(|run| address < run.address + run.bytes);
            if let Some(page) = known.and_then(|run| self.hashes.get_mut(place(run, address))) {
                *page = hash;
                continue;
            }
            if known.is_some() {
                continue;
            }
            self.hashes.push(hash);
            match new.last_mut().filter(|run| run.address + run.bytes == address) {
                Some(run) => run.bytes += PAGE_BYTES,
                None => {
                    let at = self.hashes.len() as u64 * PAGE_BYTES;
                    new.push(Run { address, bytes: PAGE_BYTES, at });
                }
            }
        }
        if !new.is_empty() {
            runs.extend(new);
            runs.sort_unstable_by_key(|run| run.address);
        }
        let Some(doubtful) = self.places.doubtful.get_mut(&host_pid) else { return };
        let mut left = Vec::new();
        let mut pages = pages.iter().map(|(address, _)| *address).peekable();
        for (from, to) in doubtful.drain(..) {
            let mut at = from;
            while pages.next_if(|page| *page < from).is_some() {}
            while let Some(page) = pages.next_if(|page| *page < to) {
                if at < page {
                    left.push((at, page));
                }
                at = page + PAGE_BYTES;
            }
            if at < to {
                left.push((at, to));
            }
        }
        *doubtful = left;
    }

    pub(crate) fn heap(&self) -> Lookup<'_> {
        self.lookup(Some(&self.places.heap))
    }

    pub(crate) fn process(&self, host_pid: u32) -> Lookup<'_> {
        let doubtful = self.places.doubtful.get(&host_pid).map_or(&[][..], |rows| rows);
        let is_whole = self.places.pids.values().any(|known| *known == host_pid);
        Lookup { doubtful, is_whole, ..self.lookup(self.places.processes.get(&host_pid)) }
    }

    pub(crate) fn object(&self, number: usize) -> Lookup<'_> {
        self.lookup(self.places.objects.get(number))
    }

    fn lookup<'a>(&'a self, runs: Option<&'a Vec<Run>>) -> Lookup<'a> {
        let runs = runs.map_or(&[][..], |runs| runs);
        Lookup { runs, hashes: &self.hashes, last: 0, doubtful: &[], is_whole: false }
    }
}

impl Lookup<'_> {
    /// The hash of the page that was at this address.
    pub(crate) fn find(&mut self, address: u64) -> Option<u128> {
        self.known(address, address + PAGE_BYTES)?.first().copied()
    }
}

impl<'a> Lookup<'a> {
    /// The hashes of the pages at this address and behind it, up to `end` at most, which were not written since the kernel notes that; none when that says nothing.
    pub(crate) fn row(&mut self, address: u64, end: u64) -> &'a [u128] {
        let behind = self.doubtful.partition_point(|(_, to)| *to <= address);
        let end = match self.doubtful.get(behind) {
            Some((from, _)) if *from <= address => return &[],
            Some((from, _)) => end.min(*from),
            None => end,
        };
        self.known(address, end).unwrap_or(&[])
    }

    /// How many pages of nothing at this address and behind it, up to `end` at most, are zeros unless they were written since the kernel notes that: an image has no such pages.
    pub(crate) fn zeros(&self, address: u64, end: u64) -> u64 {
        if !self.is_whole {
            return 0;
        }
        let doubtful = self.doubtful.partition_point(|(_, to)| *to <= address);
        let known = self.runs.partition_point(|run| run.address + run.bytes <= address);
        let doubtful = self.doubtful.get(doubtful).map_or(end, |(from, _)| *from);
        let known = self.runs.get(known).map_or(end, |run| run.address);
        end.min(doubtful).min(known).saturating_sub(address) / PAGE_BYTES
    }

    /// The next addresses of which [`row`](Self::row) tells, between these two: from and to.
    pub(crate) fn next_row(&mut self, from: u64, to: u64) -> Option<(u64, u64)> {
        let mut at = from;
        while at < to {
            let pages = self.row(at, to).len() as u64;
            if pages > 0 {
                return Some((at, at + pages * PAGE_BYTES));
            }
            let doubtful = self.doubtful.partition_point(|(_, to)| *to <= at);
            at = match self.doubtful.get(doubtful) {
                Some((from, to)) if *from <= at => *to,
                _ => {
                    let behind = self.runs.partition_point(|run| run.address <= at);
                    self.runs.get(behind)?.address
                }
            };
        }
        None
    }

    fn known(&mut self, address: u64, end: u64) -> Option<&'a [u128]> {
        let holds = |run: &Run| (run.address..run.address + run.bytes).contains(&address);
        if !self.runs.get(self.last).is_some_and(holds) {
            let behind = self.runs.partition_point(|run| run.address <= address);
            self.last = behind.checked_sub(1)?;
        }
        let run = self.runs.get(self.last).filter(|run| holds(run))?;
        let pages = (end.min(run.address + run.bytes).saturating_sub(address)) / PAGE_BYTES;
        let first = place(run, address);
        self.hashes.get(first..(first + pages as usize).min(self.hashes.len()))
    }
}

/// The number of a page of a run: pages of a restore file begin behind its head.
const fn place(run: &Run, address: u64) -> usize {
    ((run.at + (address - run.address)) / PAGE_BYTES - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_by_their_addresses() {
        let run = |address, pages, place| Run {
            address,
            bytes: pages * PAGE_BYTES,
            at: (place + 1_u64) * PAGE_BYTES,
        };
        let runs = vec![run(0x10000, 2, 0), run(0x20000, 1, 5)];
        let processes = BTreeMap::from([(7, runs)]);
        let places = Places { processes, ..Places::default() };
        let before = places.with((100..106).collect(), vec![7], Contents::default());
        assert!(before.has_of_files(7) && !before.has_of_files(100));
        let mut found = before.process(7);
        let mut at = |address| found.find(address);
        assert_eq!([at(0x10000), at(0x11000), at(0x20000)], [Some(100), Some(101), Some(105)]);
        assert_eq!([at(0xf000), at(0x12000), at(0x21000)], [None; 3]);
        assert_eq!(at(0x11000), Some(101), "also backwards");
        assert_eq!(found.row(0x10000, 0x30000), [100, 101]);
        assert_eq!(found.row(0x10000, 0x11000), [100]);
        assert!(found.row(0x12000, 0x13000).is_empty());
        let mut doubted = Lookup { doubtful: &[(0x11000, 0x12000)], ..found };
        assert_eq!(doubted.row(0x10000, 0x12000), [100]);
        assert!(doubted.row(0x11000, 0x12000).is_empty());
        assert_eq!(doubted.find(0x11000), Some(101), "its content is compared");
        let mut rows = |from| doubted.next_row(from, 0x30000);
        let expected = [Some((0x10000, 0x11000)), Some((0x20000, 0x21000)), None];
        assert_eq!([rows(0), rows(0x11000), rows(0x21000)], expected);
        assert_eq!(doubted.next_row(0, 0x10000), None);
        assert_eq!([before.process(8).find(0x10000), before.heap().find(0x10000)], [None; 2]);
    }

    #[test]
    fn what_an_image_has_not_of_a_process_that_it_has_is_zeros() {
        let run = |address, pages| Run { address, bytes: pages * PAGE_BYTES, at: PAGE_BYTES };
        let processes = BTreeMap::from([(7, vec![run(0x10000, 2), run(0x20000, 1)])]);
        let pids = BTreeMap::from([(2, 7)]);
        let places = Places { processes, pids, ..Places::default() };
        let mut before = places.with(vec![1; 2], Vec::new(), Contents::default());
        let zeros = |before: &Before, at: u64| before.process(7).zeros(at, 0x30000);
        assert_eq!([0x8000, 0xf000, 0x10000, 0x11000].map(|at| zeros(&before, at)), [8, 1, 0, 0]);
        assert_eq!([0x12000, 0x20000, 0x21000].map(|at| zeros(&before, at)), [14, 0, 15]);
        assert_eq!(before.process(7).zeros(0x12000, 0x14000), 2);
        before.doubt(7, &[(0x14000, 0x15000)]);
        assert_eq!([0x12000, 0x14000, 0x15000].map(|at| zeros(&before, at)), [2, 0, 11]);
        // It was made since, and all that is known of it was read since.
        before.learn(8, &[(0x10000, 5)]);
        assert_eq!(before.process(8).zeros(0x11000, 0x20000), 0);
    }

    #[test]
    fn what_is_learned_counts_until_it_is_doubted() {
        let run = |address, pages, place| Run {
            address,
            bytes: pages * PAGE_BYTES,
            at: (place + 1_u64) * PAGE_BYTES,
        };
        let processes = BTreeMap::from([(7, vec![run(0x10000, 4, 0), run(0x30000, 2, 4)])]);
        let places = Places { processes, ..Places::default() };
        let mut before = places.with((100..106).collect(), Vec::new(), Contents::default());
        let told = |before: &Before, from: u64, to: u64| {
            let mut lookup = before.process(7);
            let page = |at: u64| lookup.row(at, at + PAGE_BYTES).first().copied().unwrap_or(0);
            (from..to).step_by(PAGE_BYTES as usize).map(page).collect::<Vec<_>>()
        };
        before.doubt(7, &[(0x11000, 0x13000), (0x20000, 0x22000), (0x12000, 0x12000)]);
        before.doubt(7, &[(0xf000, 0x12000), (0x30000, 0x31000)]);
        assert_eq!(told(&before, 0x10000, 0x14000), [0, 0, 0, 103]);
        assert_eq!(told(&before, 0x30000, 0x32000), [0, 105]);
        // A page in the middle of what is doubtful, new ones, and one that nobody doubts.
        before.learn(7, &[(0x11000, 1), (0x20000, 2), (0x21000, 3), (0x22000, 4), (0x31000, 5)]);
        assert_eq!(told(&before, 0x10000, 0x14000), [0, 1, 0, 103]);
        assert_eq!(told(&before, 0x1f000, 0x24000), [0, 2, 3, 4, 0]);
        assert_eq!(told(&before, 0x30000, 0x32000), [0, 5]);
        assert_eq!(before.process(7).row(0x20000, 0x30000), [2, 3, 4], "in one row");
        assert_eq!(
            before.places.doubtful[&7],
            [(0xf000, 0x11000), (0x12000, 0x13000), (0x30000, 0x31000)]
        );
        before.doubt(7, &[(0x21000, 0x22000)]);
        assert_eq!(told(&before, 0x20000, 0x23000), [2, 0, 4]);
        before.learn(7, &[(0x21000, 6)]);
        before.learn(8, &[(0x21000, 9)]);
        assert_eq!(told(&before, 0x20000, 0x23000), [2, 6, 4]);
        assert_eq!(before.process(8).find(0x21000), Some(9));
    }

    #[test]
    fn the_root_says_whether_servers_are_equal() {
        let run = |address| Run { address, bytes: PAGE_BYTES, at: PAGE_BYTES };
        let of = |host_pid, address, hash: u128, heap_root, file: u128| {
            let processes = BTreeMap::from([(host_pid, vec![run(address)])]);
            let pids = BTreeMap::from([(2, host_pid)]);
            // The kernel's code follows its version.
            let kernels = BTreeMap::from([(host_pid, (0x7000, 0x9000))]);
            let places = Places { processes, pids, heap_root, kernels, ..Places::default() };
            places.with(vec![hash], vec![file], Contents::default()).root()
        };
        let one = of(70, 0x1000, 5, 8, 9);
        assert_eq!(of(71, 0x1000, 5, 8, 9), one, "numbers of the host do not count");
        let others = [of(70, 0x2000, 5, 8, 9), of(70, 0x1000, 6, 8, 9), of(70, 0x1000, 5, 7, 9)];
        assert!(others.iter().all(|other| *other != one) && of(70, 0x1000, 5, 8, 8) != one);
        let (zeros, own) = (hash(&[0; PAGE_BYTES as usize]), SERVER_BASE as u64);
        let nothing = of(70, own, 5, 8, 9);
        assert_eq!(of(70, 0x1000, zeros, 8, 9), nothing);
        assert_eq!(of(70, own, 6, 8, 9), nothing, "nor the runtime's own memory");
        assert_eq!(of(70, 0x8000, 6, 8, 9), nothing, "nor the kernel's");
    }
}
