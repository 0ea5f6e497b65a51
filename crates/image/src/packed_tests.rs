//! Images in a row share pages, and each is read as it was.

use super::*;
use crate::file::{self, Head, Opened, Owner};
use skein_model::{LogIndex, Term};
use std::fs::{self, File};
use std::path::PathBuf;

const OWNER: Owner = Owner { cluster: 7, program: [9; 32] };

/// A directory of images, without what keeps only some of them.
struct Images {
    dir: tempfile::TempDir,
    packs: Vec<PackId>,
}

struct Written {
    path: PathBuf,
    planned: Planned,
    memory: Vec<u8>,
    layer: Vec<u8>,
}

fn page(n: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    let mut word = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for bytes in page.chunks_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    page
}

/// A stream of some bytes and these pages; of those that `known` has, only the hash.
fn stream(pages: &[u64], known: &dyn Fn(u64) -> bool, tail: &[u8]) -> (Copied<'static>, Vec<u8>) {
    let (mut copied, mut bytes) = (Copied::new(), b"head".to_vec());
    copied.put(b"head");
    for n in pages {
        let page = page(*n);
        if known(*n) {
            copied.known(hash(&page), PAGE);
        } else {
            copied.page(&page).unwrap();
        }
        bytes.extend(page);
    }
    copied.put(tail);
    copied.page(&tail[..3]).unwrap();
    bytes.extend(tail);
    bytes.extend(&tail[..3]);
    (copied, bytes)
}

impl Images {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), packs: Vec::new() }
    }

    /// Writes an image of these pages on top of the one before.
    fn write(&mut self, index: u64, pages: &[u64], known: &dyn Fn(u64) -> bool) -> Written {
        let dir = self.dir.path();
        let open = |id: &PackId| Pack::open(dir, *id).unwrap();
        let earlier = Earlier::new(self.packs.iter().map(open).collect());
        let (memory, memory_bytes) = stream(pages, known, b"memory");
        let (layer, layer_bytes) = stream(&pages[..pages.len() / 2], &|_| false, b"layer");
        let mut pack = Vec::new();
        let planned = plan(&memory, &layer, None, earlier, &mut pack, dir).unwrap();
        if let Some(own) = planned.own {
            fs::write(own.path(dir), pack).unwrap();
        }
        let head = Head {
            owner: OWNER,
            index: LogIndex(index),
            term: Term(1),
            taken_ms: 1,
            processes: 1,
            state_bytes: 5,
            memory_bytes: memory.len(),
            layer_bytes: layer.len(),
        };
        let path = dir.join(format!("image-{index}"));
        let mut file = File::create(&path).unwrap();
        file::write_packed(&mut file, &path, &head, b"state", &planned).unwrap();
        assert_eq!(file::packs_of(&path).unwrap().unwrap(), planned.packs);
        self.packs.clone_from(&planned.packs);
        Written { path, planned, memory: memory_bytes, layer: layer_bytes }
    }
}

fn read(path: &Path) -> Result<[Vec<u8>; 3], ImageError> {
    let (state, mut body) = Opened::open(path, &OWNER)?.verify()?.unpack()?;
    let (mut memory, mut layer) = (Vec::new(), Vec::new());
    body.memory(&mut memory)?;
    let damaged = |error: io::Error| ImageError::damaged(path, error);
    body.layer(|from| from.read_to_end(&mut layer))?.map_err(damaged)?;
    Ok([state, memory, layer])
}

fn check(written: &Written) {
    let [state, memory, layer] = read(&written.path).unwrap();
    assert!(state == b"state" && memory == written.memory && layer == written.layer);
}

#[test]
fn each_of_a_chain_is_read_as_it_was_and_costs_what_changed() {
    let mut images = Images::new();
    let mut pages: Vec<u64> = (0..2000).collect();
    let mut next = 10_000;
    let mut known: std::collections::BTreeSet<u64> = std::collections::BTreeSet::new();
    let mut all = Vec::new();
    for index in 1..=40 {
        let written = images.write(index, &pages, &|n| known.contains(&n));
        check(&written);
        assert!(written.planned.packs.len() <= MAX_PACKS, "{}", written.planned.packs.len());
        assert_eq!(written.planned.hashes.len(), pages.len() + 1);
        known.extend(&pages);
        all.push(written);
        // One in fifty is another one.
        for n in (index as usize % 50..pages.len()).step_by(50) {
            pages[n] = next;
            next += 1;
        }
    }
    let own: Vec<u64> =
        all.iter().map(|one| one.planned.own.map_or(0, |pack| pack.bytes)).collect();
    assert!(own[1] < own[0] / 20, "{own:?}");
    // With all that is written again, ten times what changed.
    let later: u64 = own[1..].iter().sum();
    assert!(later < 39 * own[0] / 5, "{later} of {own:?}");
    all.iter().for_each(check);
}

#[test]
fn what_no_reader_would_take_is_not_written() {
    let mut images = Images::new();
    let planned = images.write(1, &[1, 2, 9], &|_| false).planned;
    let mut plans = Vec::new();
    planned.memory.write(&mut plans).unwrap();
    planned.layer.write(&mut plans).unwrap();
    assert_eq!(planned.plan_bytes(), plans.len() as u64);
    let path = Path::new("image-1");
    check_lengths(MAX_STATE_BYTES, MAX_PLAN_BYTES, path).unwrap();
    let error = check_lengths(0, MAX_PLAN_BYTES + 1, path).unwrap_err().to_string();
    assert!(error.contains("4294967296 bytes of plans, and this one 4294967297"), "{error}");

    let state = vec![0; MAX_STATE_BYTES as usize + 1];
    let head = Head {
        owner: OWNER,
        index: LogIndex(2),
        term: Term(1),
        taken_ms: 1,
        processes: 1,
        state_bytes: state.len() as u64,
        memory_bytes: 0,
        layer_bytes: 0,
    };
    let mut out = Vec::new();
    let error = file::write_packed(&mut out, path, &head, &state, &planned).unwrap_err();
    assert!(matches!(error, ImageError::TooLong { what: "state", .. }), "{error}");
    assert!(out.is_empty() && !error.is_damage());
}

#[test]
fn equal_pages_are_written_once_and_nothing_new_makes_no_pack() {
    let mut images = Images::new();
    let first = images.write(1, &[1, 2, 1, 2, 3], &|_| false);
    // Three, and the rests of the two streams, which differ.
    assert_eq!(first.planned.own.unwrap(), first.planned.packs[0]);
    let again = images.write(2, &[3, 1, 2], &|_| false);
    assert_eq!((again.planned.own, &again.planned.packs), (None, &first.planned.packs));
    check(&first);
    check(&again);
}

#[test]
fn a_page_that_is_nowhere_is_an_error() {
    let (memory, _) = stream(&[1], &|_| true, b"tail");
    let mut pack = Vec::new();
    let planned =
        plan(&memory, &Copied::new(), None, Earlier::default(), &mut pack, Path::new("x"));
    assert!(planned.unwrap_err().to_string().contains("no earlier image"));
}

#[test]
fn damage_of_a_pack_is_damage_of_its_images() {
    let mut images = Images::new();
    let first = images.write(1, &[1, 2, 3], &|_| false);
    let second = images.write(2, &[1, 2, 4], &|n| n < 3);
    let path = second.planned.packs[0].path(images.dir.path());
    let whole = fs::read(&path).unwrap();
    for at in [0, 20, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        for image in [&first, &second] {
            let error = read(&image.path).unwrap_err();
            assert!(error.is_damage() && error.to_string().contains("pack-"), "{error}");
        }
    }
    fs::remove_file(&path).unwrap();
    assert!(read(&second.path).unwrap_err().is_damage());
    fs::write(&path, whole).unwrap();
    check(&second);
    // Every byte of the image itself, too.
    let whole = fs::read(&second.path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&second.path, damaged).unwrap();
        assert!(read(&second.path).is_err(), "byte {at}");
    }
}

#[test]
fn packs_of_impossible_lengths_are_damage() {
    let mut images = Images::new();
    let written = images.write(1, &[1, 2, 3], &|_| false);
    let [digest, bytes] = [124, 140];
    let whole = fs::read(&written.path).unwrap();
    let own = written.planned.own.unwrap();
    assert_eq!(whole[digest..bytes], own.digest.to_le_bytes());
    for (count, len) in [(1, 0), (1, u64::MAX), (2, u64::MAX / 2 + 1), (3, u64::MAX / 4)] {
        let mut lies = whole[..digest - 4].to_vec();
        lies.extend(names(&vec![PackId { digest: 1, bytes: len }; count]));
        lies.extend(&whole[bytes + 8..]);
        fs::write(&written.path, lies).unwrap();
        assert!(file::packs_of(&written.path).unwrap_err().is_damage(), "{count} of {len}");
        assert!(read(&written.path).is_err());
    }
}

#[test]
fn one_that_stands_alone_has_the_same_contents() {
    let mut images = Images::new();
    images.write(1, &[1, 2, 3, 4], &|_| false);
    let second = images.write(2, &[1, 5, 3, 4], &|n| n != 5);
    let to = images.dir.path().join("copy");
    let whole = |from: &Path| {
        let mut file = File::create(&to).unwrap();
        let verified = Opened::open(from, &OWNER).unwrap().verify().unwrap();
        verified.write_whole(&OWNER, &mut file, &to).unwrap();
        fs::read(&to).unwrap()
    };
    let once = whole(&second.path);
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("image");
    fs::write(&copy, &once).unwrap();
    let [_, memory, layer] = read(&copy).unwrap();
    assert!(memory == second.memory && layer == second.layer);
    assert!(whole(&copy) == once);
}

#[test]
fn the_second_part_of_the_memory_may_come_first() {
    let mut images = Images::new();
    images.write(1, &(0..300).collect::<Vec<_>>(), &|_| false);
    // In the packs of two images.
    let pages: Vec<u64> = (0..200).chain(1_000..1_100).collect();
    let written = images.write(2, &pages, &|n| n < 300);
    assert_eq!(written.planned.packs.len(), 2);
    let whole = &written.memory;
    let read = |at: usize| {
        let (_, mut body) = Opened::open(&written.path, &OWNER)?.verify()?.unpack()?;
        let (mut second, mut first) = (Vec::new(), Vec::new());
        body.memory_behind(at as u64, &mut second)?;
        body.memory_before(at as u64, &mut first).map(|()| (first, second))
    };
    let end = whole.len();
    let pages = [0, 1, 63, 64, 200, 300].map(|page| 4 + page * PAGE);
    for at in pages.into_iter().chain([0, 2, end - 5, end - 3, end]) {
        let (first, second) = read(at).unwrap();
        assert!(first == whole[..at] && second == whole[at..], "{at} of {end}");
    }
    // Inside a page, and behind the end.
    for at in [5, 4 + PAGE + 1, end - 1, end + 1] {
        assert!(read(at).unwrap_err().is_damage(), "{at} of {end}");
    }
}

#[test]
fn pages_are_found_by_their_places() {
    let mut images = Images::new();
    images.write(1, &(0..300).collect::<Vec<_>>(), &|_| false);
    let pages: Vec<u64> = (10..200).chain(1_000..1_100).chain(20..25).collect();
    let written = images.write(2, &pages, &|n| n < 300);
    let (whole, count) = (&written.memory, pages.len());
    let (_, body) =
        Opened::open(&written.path, &OWNER).unwrap().verify().unwrap().unpack().unwrap();
    let one = body.placed().unwrap().unwrap();
    let (mut place, step) = (one.again().unwrap(), PAGE as u64);
    let end = 4 + count as u64 * step;
    for first in 0..count as u64 {
        let at = 4 + first * step;
        for most in [1, 3, 1_000] {
            let found = place.read(at, most * step).unwrap();
            assert!(!found.is_empty() && found.len().is_multiple_of(PAGE));
            assert!(found.len() <= most as usize * PAGE);
            assert!(whole[at as usize..].starts_with(found), "{most} pages from {first}");
        }
        for least in [step, 10 * step, 70 * step] {
            let cut = one.end_of_part(at, least, end).unwrap();
            assert!(cut == end || cut >= at + least && cut - at - least < 64 * step);
            // A part does not share with the next one what is unpacked together.
            let last = place.read(cut - step, 2 * step).unwrap();
            assert!(cut == end || last.len() == PAGE, "{first} and {least}");
        }
    }
    for nowhere in [0, 3, 5, 4 + step - 1, end, end + step] {
        assert!(place.read(nowhere, step).unwrap_err().is_damage(), "{nowhere}");
    }
}

#[test]
fn pages_that_were_read_before_are_written_with_the_image_that_has_them() {
    let mut precopied = Precopied::default();
    let (kept, changed) = ([5; PAGE], [6; PAGE]);
    let hashes = [&kept, &changed].map(|page| precopied.put(page).unwrap());
    assert_eq!(precopied.put(&kept).unwrap(), hashes[0]);
    assert_eq!(precopied.pages(), 2, "each content once");
    let dir = tempfile::tempdir().unwrap();
    let mut memory = Copied::new();
    memory.known(hashes[0], PAGE);
    memory.page(&[7; PAGE]).unwrap();
    let mut pack = Vec::new();
    let (none, path) = (Copied::new(), Path::new("x"));
    let plan = |precopied, pack: &mut Vec<u8>| {
        plan(&memory, &none, precopied, Earlier::default(), pack, path)
    };
    let lacks = plan(None, &mut Vec::new()).unwrap_err().to_string();
    assert!(lacks.contains("in no earlier image"), "{lacks}");
    let own = plan(Some(&precopied), &mut pack).unwrap().own.unwrap();
    fs::write(own.path(dir.path()), pack).unwrap();
    let mut written = Pack::open(dir.path(), own).unwrap();
    assert_eq!(written.hashes().len(), 2, "what was written again meanwhile is left out");
    assert!(*written.page(0).unwrap() == kept && *written.page(1).unwrap() == [7; PAGE]);
}
