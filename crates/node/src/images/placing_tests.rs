//! What the node answers to a server that asks for its pages, and where they come.

use super::*;
use skein_arena::restore::placing::FREE;
use skein_image::Copied;
use skein_image::file::{Head, Opened, Owner, write_packed};
use skein_image::packed::{Earlier, plan};
use skein_model::{LogIndex, Term};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const PAGE: u64 = 4096;
/// Where the pages begin in the file.
const FIRST_AT: u64 = 70;
const OWNER: Owner = Owner { cluster: 5, program: [7; 32] };

fn page(number: u64) -> [u8; PAGE as usize] {
    let mut page = [number as u8; PAGE as usize];
    page[..8].copy_from_slice(&number.to_le_bytes());
    page
}

fn run(address: u64, at: u64, bytes: u64) -> Run {
    Run { address, bytes, at }
}

/// An image of so many pages.
fn image(dir: &Path, pages: u64) -> Placed {
    let (mut memory, mut pack) = (Copied::new(), Vec::new());
    memory.put(&[9; FIRST_AT as usize]);
    (0..pages).for_each(|number| memory.page(&page(number)).unwrap());
    let planned = plan(&memory, &Copied::new(), None, Earlier::default(), &mut pack, dir).unwrap();
    fs::write(planned.own.unwrap().path(dir), pack).unwrap();
    let head = Head {
        owner: OWNER,
        index: LogIndex(1),
        term: Term(1),
        taken_ms: 1,
        processes: 1,
        state_bytes: 0,
        memory_bytes: memory.len(),
        layer_bytes: 0,
    };
    let path = dir.join("image");
    write_packed(&mut File::create(&path).unwrap(), &path, &head, b"", &planned).unwrap();
    let verified = Opened::open(&path, &OWNER).unwrap().verify().unwrap();
    verified.unpack().unwrap().1.placed().unwrap().unwrap()
}

/// A process with 8 MiB of memory that it does not use any more.
struct Asking {
    process: Child,
    memory: u64,
}

impl Asking {
    fn new() -> Self {
        // It waits for somebody who reads.
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=8M", "count=1"]);
        let process = dd.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let maps = format!("/proc/{}/maps", process.id());
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < deadline, "dd has no memory");
            let maps = fs::read_to_string(&maps).unwrap_or_default();
            let found = maps.lines().find_map(|line| {
                let (from, to) = line.split_once(' ')?.0.split_once('-')?;
                let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
                (to - from >= 8 << 20 && line.contains(" rw-p ")).then_some((from + 0xfff) & !0xfff)
            });
            match found {
                Some(memory) => return Self { process, memory },
                None => thread::yield_now(),
            }
        }
    }

    /// Its pages, one behind the other.
    fn pages(&self, count: u64) -> Vec<u8> {
        let memory = File::open(format!("/proc/{}/mem", self.process.id())).unwrap();
        let mut pages = vec![0; (count * PAGE) as usize];
        memory.read_exact_at(&mut pages, self.memory).unwrap();
        pages
    }

    fn private(&self, runs: Vec<Run>) -> Private {
        Private { pid: self.process.id(), runs }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn header() -> Box<Header> {
    // SAFETY: all of its fields are valid when zero.
    unsafe { Box::<Header>::new_zeroed().assume_init() }
}

/// What a node answers whose server asks, and what that was told.
fn asked(
    header: &Header,
    number: u32,
    processes: &[Private],
    placed: Placed,
) -> (Result<Came, ImageError>, u32) {
    let asks = &header.restore_asks;
    offer(header);
    asks.store(FREE, Ordering::Release);
    header.restoring.store(1, Ordering::Release);
    thread::scope(|scope| {
        let init = std::process::id();
        let node = scope.spawn(move || place(header, init, processes, placed, &|| true));
        answer(asks, FIRST + number);
        while asks.load(Ordering::Acquire) == FIRST + number && !node.is_finished() {
            thread::yield_now();
        }
        let told = asks.load(Ordering::Acquire);
        (node.join().unwrap(), told)
    })
}

#[test]
fn pages_come_into_the_memory_of_the_process_that_asks() {
    let (dir, child) = (tempfile::tempdir().unwrap(), Asking::new());
    // The second half before the first, a page between them alone, and another process without pages.
    let (half, count) = (900, 1801);
    let at = |number: u64| FIRST_AT + number * PAGE;
    let runs = vec![
        run(child.memory, at(901), half * PAGE),
        run(child.memory + half * PAGE, at(900), PAGE),
        run(child.memory + (half + 1) * PAGE, at(0), half * PAGE),
    ];
    let processes = [Private::default(), child.private(runs)];
    let (came, told) = asked(&header(), 1, &processes, image(dir.path(), count));
    assert_eq!((came.unwrap(), told), (Came::Placed, PLACED));
    let expected: Vec<u8> = (901..1801).chain([900]).chain(0..900).flat_map(page).collect();
    assert!(child.pages(count) == expected);
}

#[test]
fn memory_that_cannot_be_written_is_read_from_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let gone = Asking::new().private(vec![run(1 << 20, FIRST_AT, PAGE)]);
    let child = Asking::new();
    let unmapped = child.private(vec![run(PAGE, FIRST_AT, PAGE)]);
    let strange = Private { pid: 1, ..unmapped.clone() };
    for process in [gone, unmapped, strange] {
        let (came, told) = asked(&header(), 0, &[process], image(dir.path(), 3));
        assert_eq!((came.unwrap(), told), (Came::InFile, IN_FILE));
    }
}

#[test]
fn whoever_asks_for_what_is_not_his_gets_nothing() {
    let (dir, child) = (tempfile::tempdir().unwrap(), Asking::new());
    let (own, before) = (child.private(vec![run(child.memory, FIRST_AT, PAGE)]), child.pages(1));
    for number in [1, 2, u32::MAX - FIRST] {
        let processes = [own.clone(), Private::default()];
        let (came, told) = asked(&header(), number, &processes, image(dir.path(), 3));
        assert_eq!((came.unwrap(), told), (Came::InFile, IN_FILE));
    }
    assert!(child.pages(1) == before);
}

#[test]
fn damage_is_an_error() {
    let (dir, child) = (tempfile::tempdir().unwrap(), Asking::new());
    let nowhere = child.private(vec![run(child.memory, FIRST_AT + 3 * PAGE, PAGE)]);
    let (came, _) = asked(&header(), 0, &[nowhere], image(dir.path(), 3));
    assert!(came.unwrap_err().is_damage());
}

#[test]
fn a_runtime_of_before_and_one_that_is_gone_are_not_waited_for() {
    let (dir, header) = (tempfile::tempdir().unwrap(), header());
    let processes = [Private { pid: 1, runs: vec![run(1 << 20, FIRST_AT, PAGE)] }];
    offer(&header);
    let placed = |is_wanted: &dyn Fn() -> bool| {
        place(&header, std::process::id(), &processes, image(dir.path(), 3), is_wanted).unwrap()
    };
    assert_eq!(placed(&|| false), Came::Nowhere, "it is gone");
    header.restoring.store(1, Ordering::Release);
    assert_eq!(placed(&|| true), Came::InFile, "it takes its pages from the file");
    // One that was there without having asked, and goes on.
    header.restore_asks.store(FREE, Ordering::Release);
    let looks = AtomicUsize::new(0);
    thread::scope(|scope| {
        let node = scope.spawn(|| {
            let looked = || looks.fetch_add(1, Ordering::Relaxed) < usize::MAX;
            let placed = image(dir.path(), 3);
            place(&header, std::process::id(), &processes, placed, &looked).unwrap()
        });
        while looks.load(Ordering::Relaxed) < 3 && !node.is_finished() {
            thread::yield_now();
        }
        header.restoring.store(0, Ordering::Release);
        assert_eq!(node.join().unwrap(), Came::Nowhere);
    });
}

#[test]
fn threads_divide_what_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let placed = image(dir.path(), 3000);
    let runs: Vec<Run> = (0..100)
        .map(|n| (n * 30, if n % 3 == 0 { 30 } else { 1 }))
        .map(|(first, count)| run(first * PAGE, FIRST_AT + first * PAGE, count * PAGE))
        .chain([run(1 << 40, FIRST_AT, 3000 * PAGE)])
        .collect();
    let parts = parts(&placed, &runs).unwrap();
    let bytes: Vec<u64> = parts.iter().map(|part| part.iter().map(|run| run.bytes).sum()).collect();
    let (last, others) = bytes.split_last().unwrap();
    assert!(others.iter().all(|bytes| (PART_BYTES..PART_BYTES + 64 * PAGE).contains(bytes)));
    assert!(*last > 0 && *last < PART_BYTES + 64 * PAGE && parts.len() > 10);
    let pages = |runs: &mut dyn Iterator<Item = Run>| -> Vec<[u64; 2]> {
        let each = |Run { address, at, bytes }: Run| {
            (0..bytes / PAGE).map(move |page| [address + page * PAGE, at + page * PAGE])
        };
        runs.flat_map(each).collect()
    };
    assert!(pages(&mut parts.into_iter().flatten()) == pages(&mut runs.into_iter()));
}
