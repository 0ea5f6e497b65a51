//! What was written to private memory, on memory of this process, and on page maps that are made up.

use super::*;
use crate::before::Places;
use crate::contents::Contents;
use skein_arena::restore::Run;
use std::collections::BTreeMap;
use std::process;
use xxhash_rust::xxh3::xxh3_64;

const PAGES: usize = 3000;

/// New memory of this process, in small pages.
fn memory() -> Mapping {
    let bytes = PAGES * PAGE_BYTES as usize;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory of nothing.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: that memory.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    let start = at.expose_provenance() as u64;
    Mapping { start, end: start + bytes as u64, is_used: true, ..Mapping::default() }
}

/// Of this process.
fn watch() -> Watch {
    // SAFETY: takes no pointers; for this process's own writes.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
    let Ok(fd) = i32::try_from(fd) else { panic!("what no number holds") };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: a new descriptor, which nobody else knows.
    Watch::with(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Changes a row of pages in a way of these.
fn change(mapping: &Mapping, way: u64, first: usize, pages: usize) {
    let start = mapping.start as usize + first * PAGE_BYTES as usize;
    let bytes = pages * PAGE_BYTES as usize;
    let at = ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: a part of memory that only this test uses.
    unsafe {
        match way {
            0..4 => at.write_volatile(at.read_volatile().wrapping_add(1)),
            4 => at.write_bytes(way as u8, bytes),
            5 => assert!(at.read_volatile() < u8::MAX, "a page that is only read"),
            6 => assert_eq!(libc::madvise(at.cast(), bytes, libc::MADV_DONTNEED), 0),
            _ => {
                let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let access = libc::PROT_READ | libc::PROT_WRITE;
                assert_eq!(libc::mmap(at.cast(), bytes, access, kind, -1, 0), at.cast());
                libc::madvise(at.cast(), bytes, libc::MADV_NOHUGEPAGE);
            }
        }
    }
}

/// The numbers of the pages in these rows, and whether each was written.
fn pages(mapping: &Mapping, rows: &[Row]) -> BTreeMap<u64, bool> {
    let each = rows.iter().flat_map(|row| {
        let pages = (row.start..row.end).step_by(PAGE_BYTES as usize);
        pages.map(|page| ((page - mapping.start) / PAGE_BYTES, row.written))
    });
    let all: BTreeMap<_, _> = each.collect();
    let count: u64 = rows.iter().map(|row| (row.end - row.start) / PAGE_BYTES).sum();
    assert_eq!(all.len() as u64, count, "each page once");
    assert!(rows.is_sorted_by_key(|row| row.start), "in order");
    all
}

/// An image that has these pages.
fn with(mapping: &Mapping, all: &BTreeMap<u64, bool>) -> crate::before::Before {
    let mut runs: Vec<Run> = Vec::new();
    for page in all.keys() {
        let address = mapping.start + page * PAGE_BYTES;
        match runs.last_mut().filter(|run| run.address + run.bytes == address) {
            Some(run) => run.bytes += PAGE_BYTES,
            None => runs.push(Run {
                address,
                bytes: PAGE_BYTES,
                at: runs.last().map_or(PAGE_BYTES, |run| run.at + run.bytes),
            }),
        }
    }
    let places = Places { processes: BTreeMap::from([(1, runs)]), ..Places::default() };
    places.with(vec![1; all.len()], Vec::new(), Contents::default())
}

#[test]
fn what_is_passed_over_is_as_the_image_before_has_it() {
    let watch = watch();
    let pagemap = File::open(format!("/proc/{}/pagemap", process::id())).unwrap();
    let each_of = |mapping: &Mapping, before: &mut Lookup<'_>| {
        let mut rows = Vec::new();
        let is_all = watch.rows(&pagemap, mapping, before, |row| {
            rows.push(row);
            Ok::<_, ()>(())
        });
        is_all.unwrap().then(|| pages(mapping, &rows))
    };
    let (plain, quick) = (memory(), memory());
    let mut draw = 0_u64;
    let mut random = |below: usize| {
        draw += 1;
        (xxh3_64(&draw.to_le_bytes()) % below as u64) as usize
    };
    for mapping in [&plain, &quick] {
        change(mapping, 4, 0, PAGES - 500);
    }
    let mut before = None;
    let mut have_passed = 0;
    for round in 0..300 {
        let expected = each_of(&plain, &mut Lookup::default());
        let mut lookup = before.as_ref().map_or_else(Lookup::default, |b| {
            let before: &crate::before::Before = b;
            before.process(1)
        });
        have_passed += passed(&pagemap, &quick, &mut lookup, &mut [Region::default(); 8]).len();
        let found = each_of(&quick, &mut lookup);
        assert_eq!(found, expected, "in round {round}");
        // A kernel that cannot tell.
        let Some(found) = found else { return assert_eq!(have_passed, 0) };
        before = Some(with(&quick, &found));
        for _ in 0..random(4) {
            let (way, first) = (random(8) as u64, random(PAGES));
            // Some drop whole page tables.
            let pages = 1 + random(if way > 3 { PAGES - first } else { 1 });
            change(&plain, way, first, pages);
            change(&quick, way, first, pages);
        }
    }
    assert!(have_passed > 100, "only {have_passed} rows were passed over");
    for mapping in [plain, quick] {
        let at = ptr::with_exposed_provenance_mut(mapping.start as usize);
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(at, PAGES * PAGE_BYTES as usize) };
    }
}

#[test]
fn a_table_that_is_gone_is_not_passed_over() {
    let tables = 4;
    let (start, end) = (TABLE_BYTES, TABLE_BYTES * (1 + tables));
    let pagemap = tempfile::tempfile().unwrap();
    let there = (1_u64 << 63).to_ne_bytes();
    // Nothing is in the second one.
    for table in [1, 3, 4] {
        pagemap.write_all_at(&there, table * TABLE_BYTES / PAGE_BYTES * 8).unwrap();
    }
    let mapping = Mapping { start, end, ..Mapping::default() };
    let all = (0..tables * TABLE_BYTES / PAGE_BYTES).map(|page| (page, false)).collect();
    let before = with(&mapping, &all);
    let mut rows = Vec::new();
    pass(&pagemap, false, &mut before.process(1), start, end - PAGE_BYTES, &mut rows);
    let row = |start, end| Row { start, end, written: false };
    let expected =
        [row(start, 2 * TABLE_BYTES), row(3 * TABLE_BYTES, 5 * TABLE_BYTES - PAGE_BYTES)];
    assert_eq!(rows, expected);
}

#[test]
fn short_mappings_are_asked_about_together() {
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let whole = memory();
    let part = |from: u64, to: u64| Mapping {
        start: whole.start + from * PAGE_BYTES,
        end: whole.start + to * PAGE_BYTES,
        ..Mapping::default()
    };
    change(&whole, 0, 25, 1);
    change(&whole, 0, 2600, 1);
    let parts = [part(0, 20), part(20, 30), part(30, 40), part(41, 2000), part(2500, 2501)];
    let found = may_have_pages(&pagemap, &parts.iter().collect::<Vec<_>>());
    if present(&pagemap, &whole).is_some() {
        assert_eq!(found, [false, true, false, true, true]);
    } else {
        assert_eq!(found, [true; 5], "a kernel that cannot tell");
    }
    let at = ptr::with_exposed_provenance_mut(whole.start as usize);
    // SAFETY: nobody uses it any more.
    unsafe { libc::munmap(at, PAGES * PAGE_BYTES as usize) };
}

#[test]
fn a_copys_pages_are_those_before_where_its_origin_was_not_written() {
    let row = |start, end, written| Row { start, end, written };
    let there = [row(0, 10, true), row(20, 30, true), row(40, 50, true)];
    let noted = [row(2, 4, false), row(4, 6, true), row(8, 22, false), row(29, 45, false)];
    let found = unless_noted(&there, &noted);
    let expected = [
        row(0, 2, true),
        row(2, 4, false),
        row(4, 8, true),
        row(8, 10, false),
        row(20, 22, false),
        row(22, 29, true),
        row(29, 30, false),
        row(40, 45, false),
        row(45, 50, true),
    ];
    assert_eq!(found, expected);
    assert_eq!(unless_noted(&there, &[]), there);
}

#[test]
fn a_page_of_zeros_is_not_taken_for_the_one_before() {
    let (watch, pagemap, mapping) = (watch(), File::open("/proc/self/pagemap").unwrap(), memory());
    let rows = |before: &mut Lookup<'_>| {
        let mut rows = Vec::new();
        let each = |row| {
            rows.push(row);
            Ok::<_, ()>(())
        };
        watch.rows(&pagemap, &mapping, before, each).unwrap().then_some(rows)
    };
    change(&mapping, 4, 0, PAGES);
    let Some(all) = rows(&mut Lookup::default()) else { return };
    // A copy has them all, and the process has one no more by the time at which it is asked.
    let before = with(&mapping, &pages(&mapping, &all));
    let page = 1000;
    change(&mapping, 6, page, 1);
    change(&mapping, 5, page, 1);
    rows(&mut Lookup::default()).unwrap();
    let found = rows(&mut before.process(1)).unwrap();
    assert!(!pages(&mapping, &found).contains_key(&(page as u64)));
    let at = ptr::with_exposed_provenance_mut(mapping.start as usize);
    // SAFETY: nobody uses it any more.
    unsafe { libc::munmap(at, PAGES * PAGE_BYTES as usize) };
}

#[test]
fn kernels_tell_their_version() {
    assert_eq!(version("6.18.44-fc-v669\n"), Some((6, 18)));
    assert_eq!([version("6.9"), version("6"), version("")], [Some((6, 9)), None, None]);
}
