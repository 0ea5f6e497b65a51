//! A directory of images: what a start finds in it, and images that come from other replicas.

use super::super::adopt::{self, Adopted};
use super::super::incoming::{Incoming, Progress, read_part};
use super::*;
use skein_image::Copied;
use skein_model::{Term, WallNs};
use skein_replica::verdicts::digest::DigestState;
use std::os::unix::fs::PermissionsExt;

#[path = "ahead_tests.rs"]
mod ahead;
#[path = "steps_tests.rs"]
mod steps;

const OWNER: Owner = Owner { cluster: 7, program: [9; 32] };

fn store(dir: &Path) -> Store {
    let store = Store::new(dir.join("images"), OWNER);
    store.make_dir().unwrap();
    store
}

fn state(index: u64) -> ServerState {
    ServerState {
        index: LogIndex(index),
        term: Term(3),
        base: vec![1],
        wall: WallNs(5),
        start: vec![2],
        digest: DigestState { value: index, connections: Vec::new() },
        listening: [].into(),
        receiving: [].into(),
        paths: [].into(),
        edition: Default::default(),
        ended: None,
        processor: Vec::new(),
    }
}

fn stream(pages: &[u8]) -> Copied<'static> {
    let mut copied = Copied::new();
    copied.put(&[9; 70]);
    pages.iter().for_each(|page| copied.page(&[*page; 4096]).unwrap());
    copied
}

fn head(store: &Store, named: u64, state: &[u8], [memory, layer]: [&Copied<'_>; 2]) -> Head {
    Head {
        owner: *store.owner(),
        index: LogIndex(named),
        term: Term(3),
        taken_ms: 12,
        processes: 1,
        state_bytes: state.len() as u64,
        memory_bytes: memory.len(),
        layer_bytes: layer.len(),
    }
}

fn write_pages(store: &Store, named: u64, state: &ServerState, pages: &[u8]) -> ImageFile {
    let state = state.encode();
    let (memory, layer) = (stream(pages), stream(&[]));
    let head = head(store, named, &state, [&memory, &layer]);
    let written = store.write(&head, &state, [&memory, &layer], None, None).unwrap();
    store.confirm(LogIndex(named)).unwrap();
    written.file
}

fn write(store: &Store, named: u64, state: &ServerState) -> ImageFile {
    write_pages(store, named, state, &[named as u8, 250])
}

fn packs(store: &Store) -> Vec<PathBuf> {
    let names = names(store).into_iter().filter(|name| name.starts_with("pack-"));
    names.map(|name| store.dir().join(name)).collect()
}

fn images(store: &Store) -> Vec<String> {
    names(store).into_iter().filter(|name| name.starts_with("image-")).collect()
}

fn names(store: &Store) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(store.dir()).unwrap().map(name).collect();
    names.sort();
    names
}

fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn images_are_there_by_their_entries_and_for_this_user_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    assert!(store.all().is_empty());
    let late = write(&store, 300, &state(300));
    write(&store, 20, &state(20));
    let all = store.all();
    assert_eq!(all.iter().map(Image::index).collect::<Vec<_>>(), [LogIndex(20), LogIndex(300)]);
    assert_eq!((all[1].file, &*all[1].state), (late, &state(300)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(store.dir()), mode(&store.path(LogIndex(20)))), (0o700, 0o600));
    let listed = store.list().unwrap();
    let (index, Ok(found)) = &listed[1] else { panic!("{listed:?}") };
    assert_eq!((*index, found.confirmed), (LogIndex(300), true));
    assert_eq!((found.total_bytes, found.head.memory_bytes), (late.bytes, 70 + 2 * 4096));
    let disk: u64 =
        names(&store).iter().map(|n| fs::metadata(store.dir().join(n)).unwrap().len()).sum();
    let listed: u64 = listed.iter().map(|(_, found)| found.as_ref().unwrap().bytes).sum();
    assert_eq!(listed, disk, "each pack counts once");
    store.remove(LogIndex(20)).unwrap();
    store.remove(LogIndex(20)).unwrap();
    assert_eq!(images(&store), ["image-300"]);
}

#[test]
fn one_that_is_not_confirmed_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write(&store, 10, &state(10));
    fs::rename(store.path(LogIndex(10)), store.unconfirmed(LogIndex(10))).unwrap();
    assert!(store.all().is_empty());
    assert!(matches!(&store.list().unwrap()[..], [(_, Ok(found))] if !found.confirmed));
    store.confirm(LogIndex(10)).unwrap();
    assert_eq!(store.all().len(), 1);
    assert!(store.confirm(LogIndex(11)).is_err());
}

#[test]
fn a_damaged_one_is_set_aside_and_the_one_before_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    for index in [10, 20, 30] {
        write(&store, index, &state(index));
    }
    damage(&store.path(LogIndex(30)));
    // Whole, and another's.
    fs::rename(store.path(LogIndex(20)), store.path(LogIndex(21))).unwrap();
    assert_eq!(store.all().iter().map(Image::index).collect::<Vec<_>>(), [LogIndex(10)]);
    assert_eq!(images(&store), ["image-10", "image-21.damaged", "image-30.damaged"]);
    assert_eq!([10, 20, 21].map(|index| store.is_removed(LogIndex(index))), [false, true, false]);
}

#[test]
fn a_state_of_another_entry_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write(&store, 10, &state(11));
    let error = store.image(LogIndex(10)).unwrap_err().to_string();
    assert!(error.contains("its state is none of a server at this entry"), "{error}");
}

#[test]
fn another_programs_images_are_named_and_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let other = Store::new(store.dir().to_owned(), Owner { program: [1; 32], ..OWNER });
    write(&other, 10, &state(10));
    assert!(store.all().is_empty());
    assert_eq!(images(&store), ["image-10"]);
    assert_eq!(other.all().len(), 1);
}

#[test]
fn images_of_a_processor_that_has_more_are_named_and_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let here = processor::extensions().to_vec();
    write(&store, 10, &ServerState { processor: here.clone(), ..state(10) });
    let more = here.into_iter().chain(["tomorrow512".into()]).collect();
    let file = write(&store, 20, &ServerState { processor: more, ..state(20) });
    let line = "image-20: an image of a server on a processor that has, and this one has not: tomorrow512; use a host with such a processor";
    let error = store.image(LogIndex(20)).unwrap_err().to_string();
    assert!(error.ends_with(line), "{error}");
    assert_eq!(store.all().iter().map(Image::index).collect::<Vec<_>>(), [LogIndex(10)]);
    assert_eq!(images(&store), ["image-10", "image-20"]);
    // Neither does a new cluster begin with it, nor a replica that gets it from another one.
    let adopted = Adopted::read(&store.path(LogIndex(20)), OWNER.program).unwrap_err();
    assert!(adopted.to_string().ends_with(line), "{adopted}");
    let other = Store::new(dir.path().join("other"), OWNER);
    other.make_dir().unwrap();
    let mut incoming = Incoming::begin(&other, file).unwrap();
    let bytes = read_part(&store.path(LogIndex(20)), 0, 1 << 20).unwrap();
    let error = incoming.take(0, &bytes).err().unwrap().to_string();
    assert!(error.contains("tomorrow512"), "{error}");
    assert!(other.all().is_empty());
}

#[test]
fn no_new_cluster_begins_with_files_that_a_server_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write(&store, 10, &state(10));
    let bytes = state(20).encode();
    let (memory, layer) = (stream(&[]), stream(&[1]));
    let head = Head { processes: 0, ..head(&store, 20, &bytes, [&memory, &layer]) };
    store.write(&head, &bytes, [&memory, &layer], None, None).unwrap();
    store.confirm(LogIndex(20)).unwrap();
    let path = |named| store.path(LogIndex(named));
    adopt::check(&path(10)).unwrap();
    let refused = [
        adopt::check(&path(20)).unwrap_err().to_string(),
        Adopted::read(&path(20), OWNER.program).unwrap_err().to_string(),
    ];
    for said in refused {
        assert!(said.contains("image-20: it has the files that a server left"), "{said}");
    }
    assert_eq!(store.all().len(), 2, "its own server goes on with them");
}

#[test]
fn a_state_that_no_reader_would_take_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write(&store, 10, &state(10));
    let before = names(&store);
    let (memory, layer) = (stream(&[1, 2]), stream(&[3]));
    let long = vec![0; (256 << 20) + 1];
    let head = head(&store, 20, &long, [&memory, &layer]);
    let error = store.write(&head, &long, [&memory, &layer], None, None).unwrap_err();
    assert!(matches!(error, ImageError::TooLong { .. }) && !error.is_damage(), "{error}");
    assert_eq!(names(&store), before);
}

#[test]
fn a_writer_that_fails_leaves_nothing_and_what_a_crash_leaves_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    // A page that is said not to have changed, and is nowhere.
    let (mut memory, layer) = (stream(&[1, 2]), stream(&[]));
    memory.known(5, 4096);
    let head = head(&store, 10, &[], [&memory, &layer]);
    let error = store.write(&head, &[], [&memory, &layer], None, None).unwrap_err().to_string();
    assert!(error.contains("no earlier image"), "{error}");
    assert!(names(&store).is_empty());
    let lost = format!("pack-{:032x}", 5);
    for name in [
        "image-4.part",
        "image-3.unconfirmed",
        "pack-4.part",
        &lost,
        "image-4-0.incoming",
        "image-5.damaged",
    ] {
        fs::write(store.dir().join(name), "").unwrap();
    }
    store.tidy().unwrap();
    assert_eq!(names(&store), ["image-4-0.incoming", "image-5.damaged"]);
}

/// Sends an image in parts of `step` bytes, from where the receiver is; answers it, and how many bytes were sent.
fn send(
    from: &Path,
    file: ImageFile,
    incoming: &mut Incoming,
    step: usize,
) -> Option<(Image, u64)> {
    let Ok(Progress::Has(mut at)) = incoming.take(0, &[]) else { panic!("it is there already") };
    let mut sent = 0;
    while at < file.bytes {
        let part = read_part(from, at, step).unwrap();
        sent += part.len() as u64;
        match incoming.take(at, &part).ok()? {
            Progress::Has(bytes) => {
                assert!(
                    bytes >= at + part.len() as u64,
                    "nothing that has come is asked for again"
                );
                at = bytes;
            }
            Progress::Whole(image) => return Some((image, sent)),
        }
    }
    None
}

#[test]
fn one_that_is_received_is_the_senders_also_in_several_tries() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let from = store(&path("from"));
    let file = write(&from, 10, &state(10));
    let image = from.path(LogIndex(10));
    // Parts that end inside of everything, and one that has all.
    for step in [33, 100, 257, 1 << 20] {
        let to = store(&path(&format!("to-{step}")));
        let mut incoming = Incoming::begin(&to, file).unwrap();
        let part = read_part(&image, 0, 50).unwrap();
        assert!(matches!(incoming.take(0, &part), Ok(Progress::Has(50))));
        assert!(matches!(incoming.take(0, &part), Ok(Progress::Has(50))), "it has come before");
        assert!(matches!(incoming.take(90, &part), Ok(Progress::Has(50))), "not the next ones");
        drop(incoming);
        to.tidy().unwrap();
        let mut incoming = Incoming::begin(&to, file).unwrap();
        assert!(matches!(incoming.take(0, &[]), Ok(Progress::Has(50))));
        let (received, _) = send(&image, file, &mut incoming, step).unwrap();
        assert_eq!((received.file, &*received.state), (file, &state(10)));
        assert_eq!(names(&to), names(&from));
        for name in names(&to) {
            let read = |store: &Store| fs::read(store.dir().join(&name)).unwrap();
            assert_eq!(read(&to), read(&from));
        }
    }
}

#[test]
fn a_try_that_ends_anywhere_goes_on_behind_what_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let from = store(&dir.path().join("from"));
    write_pages(&from, 10, &state(10), &(0..200).collect::<Vec<_>>());
    let file = write_pages(&from, 20, &state(20), &(1..=200).collect::<Vec<_>>());
    let image = from.path(LogIndex(20));
    for ends in (1..file.bytes).step_by(61) {
        let to = store(&dir.path().join("to"));
        let mut incoming = Incoming::begin(&to, file).unwrap();
        let part = read_part(&image, 0, ends as usize).unwrap();
        assert!(matches!(incoming.take(0, &part), Ok(Progress::Has(at)) if at == ends));
        drop(incoming);
        to.tidy().unwrap();
        let mut incoming = Incoming::begin(&to, file).unwrap();
        assert!(matches!(incoming.take(0, &[]), Ok(Progress::Has(at)) if at == ends), "{ends}");
        assert!(send(&image, file, &mut incoming, 300).is_some());
        fs::remove_dir_all(to.dir()).unwrap();
    }
}

#[test]
fn packs_that_are_here_already_are_not_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    let pages: Vec<u8> = (0..200).collect();
    let first = write_pages(&from, 10, &state(10), &pages);
    let mut incoming = Incoming::begin(&to, first).unwrap();
    let path = from.path(LogIndex(10));
    let (_, sent) = send(&path, first, &mut incoming, 64).unwrap();
    assert_eq!(sent, first.bytes);
    let second = write_pages(&from, 20, &state(20), &[&pages[..150], &[201, 202]].concat());
    let mut incoming = Incoming::begin(&to, second).unwrap();
    let path = from.path(LogIndex(20));
    let (received, sent) = send(&path, second, &mut incoming, 64).unwrap();
    assert_eq!(received.file, second);
    assert!(sent < second.bytes / 2, "{sent} of {}", second.bytes);
    assert_eq!(names(&to), names(&from));
}

#[test]
fn parts_that_were_asked_for_before_it_was_known_what_is_here_are_enough() {
    let dir = tempfile::tempdir().unwrap();
    let from = store(&dir.path().join("from"));
    let pages: Vec<u8> = (0..200).collect();
    let first = write_pages(&from, 10, &state(10), &pages);
    let second = write_pages(&from, 20, &state(20), &[&pages[..150], &[201, 202]].concat());
    let [first_path, path] = [10, 20].map(|index| from.path(LogIndex(index)));
    for step in (40..second.bytes as usize).step_by(97) {
        let to = store(&dir.path().join(format!("to-{step}")));
        send(&first_path, first, &mut Incoming::begin(&to, first).unwrap(), 300).unwrap();
        let mut incoming = Incoming::begin(&to, second).unwrap();
        // All of them are on their way before the first one is stored.
        let parts = (0..second.bytes).step_by(step);
        let is_whole = parts.map(|at| incoming.take(at, &read_part(&path, at, step).unwrap()));
        let last = is_whole.map(Result::unwrap).find(|now| matches!(now, Progress::Whole(_)));
        assert!(last.is_some(), "parts of {step} bytes");
    }
}

#[test]
fn another_or_a_damaged_one_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    let file = write(&from, 10, &state(10));
    let path = from.path(LogIndex(10));
    let mut half = Incoming::begin(&to, ImageFile { digest: 1, ..file }).unwrap();
    half.take(0, &read_part(&path, 0, 50).unwrap()).unwrap();
    for damaged in [path.clone(), packs(&from).remove(0)] {
        let mut incoming = Incoming::begin(&to, file).unwrap();
        assert_eq!(names(&to).len(), 1, "only this one is received now");
        let whole = fs::read(&damaged).unwrap();
        damage(&damaged);
        assert!(send(&path, file, &mut incoming, 64).is_none());
        assert!(images(&to).is_empty(), "nothing of it stays");
        fs::write(&damaged, whole).unwrap();
    }
    // Whole, and not what was named.
    let named = ImageFile { digest: 1, ..file };
    assert!(send(&path, named, &mut Incoming::begin(&to, named).unwrap(), 64).is_none());
    assert!(images(&to).is_empty());
    to.collect().unwrap();
    assert!(names(&to).is_empty(), "nor do its packs");
}

#[test]
fn packs_that_are_damaged_here_are_received_again() {
    let dir = tempfile::tempdir().unwrap();
    let from = store(&dir.path().join("from"));
    let first = write_pages(&from, 10, &state(10), &(0..200).collect::<Vec<_>>());
    let second = write_pages(&from, 20, &state(20), &(1..=200).collect::<Vec<_>>());
    let [first_path, path] = [10, 20].map(|index| from.path(LogIndex(index)));
    let cut = |pack: &Path| fs::write(pack, &fs::read(pack).unwrap()[..30]).unwrap();
    let rots: [&dyn Fn(&Path); 2] = [&damage, &cut];
    for (n, rot) in rots.iter().enumerate() {
        let to = store(&dir.path().join(format!("to-{n}")));
        send(&first_path, first, &mut Incoming::begin(&to, first).unwrap(), 300).unwrap();
        rot(&packs(&to)[0]);
        // Its end shows that something is wrong.
        if let Ok(mut incoming) = Incoming::begin(&to, second) {
            assert!(send(&path, second, &mut incoming, 300).is_none());
        }
        assert_eq!(images(&to), ["image-10.damaged"], "it needs the same pack");
        let mut incoming = Incoming::begin(&to, second).unwrap();
        let (received, _) = send(&path, second, &mut incoming, 300).unwrap();
        assert_eq!(received.file, second);
        to.verify(LogIndex(20)).unwrap();
    }
}

#[test]
fn a_replica_that_is_wrong_about_lengths_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    let has = write_pages(&from, 10, &state(10), &[1, 2, 3, 4]);
    let file = write_pages(&from, 20, &state(20), &[1, 2, 3, 5]);
    let image = from.path(LogIndex(10));
    send(&image, has, &mut Incoming::begin(&to, has).unwrap(), 300).unwrap();
    // Of the head, of the packs' number, of a digest.
    let length_at = 120 + 4 + 16;
    let whole = read_part(&from.path(LogIndex(20)), 0, 1 << 20).unwrap();
    assert_eq!(whole.len() as u64, file.bytes);
    let first = u64::from_le_bytes(whole[length_at..length_at + 8].try_into().unwrap());
    let near = |bytes: u64| [0, 1, bytes - 1, bytes, bytes + 1, 2 * bytes, u64::MAX];
    let lengths = [&near(first)[..], &[file.bytes - 130, file.bytes - 10, file.bytes]].concat();
    let totals = [&near(file.bytes)[..], &[130, first, u64::MAX / 2]].concat();
    for (pack, total) in lengths.iter().flat_map(|pack| totals.iter().map(move |t| (*pack, *t))) {
        if (pack, total) == (first, file.bytes) {
            continue;
        }
        let mut lies = whole.clone();
        lies[length_at..length_at + 8].copy_from_slice(&pack.to_le_bytes());
        lies.extend([7; 1000]);
        for step in [40, 147, 300, 1 << 20] {
            let expected = ImageFile { bytes: total, ..file };
            let Ok(mut incoming) = Incoming::begin(&to, expected) else { continue };
            let mut at = 0;
            while let Some(rest) = lies.get(at..).filter(|rest| !rest.is_empty()) {
                match incoming.take(at as u64, &rest[..rest.len().min(step)]) {
                    Ok(Progress::Has(next)) if next > at as u64 => at = next as usize,
                    Ok(Progress::Whole(_)) => panic!("{pack} of {total}"),
                    _ => break,
                }
            }
            drop(incoming);
            for name in images(&to).iter().filter(|name| name.ends_with("incoming")) {
                fs::remove_file(to.dir().join(name)).unwrap();
            }
        }
    }
    to.verify(LogIndex(10)).unwrap();
    send(&from.path(LogIndex(20)), file, &mut Incoming::begin(&to, file).unwrap(), 300).unwrap();
}

#[test]
fn a_copy_stands_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    write_pages(&from, 10, &state(10), &[1, 2, 3, 4]);
    write_pages(&from, 20, &state(20), &[1, 2, 3, 5]);
    let copy = to.path(LogIndex(20));
    let bytes = super::super::export(&from.path(LogIndex(20)), &copy).unwrap();
    assert_eq!((bytes, names(&to)), (fs::metadata(&copy).unwrap().len(), vec!["image-20".into()]));
    assert_eq!(*to.image(LogIndex(20)).unwrap().state, state(20));
    // It is sent like any other.
    let file = to.image(LogIndex(20)).unwrap().file;
    let third = store(&dir.path().join("third"));
    assert!(send(&copy, file, &mut Incoming::begin(&third, file).unwrap(), 64).is_some());
    assert_eq!(names(&third), ["image-20"]);
}

#[test]
fn packs_stay_as_long_as_an_image_needs_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write_pages(&store, 10, &state(10), &[1, 2, 3, 4]);
    write_pages(&store, 20, &state(20), &[1, 2, 3, 5]);
    write_pages(&store, 30, &state(30), &[1, 2, 3, 5]);
    assert_eq!(packs(&store).len(), 2, "the third has nothing of its own");
    store.remove(LogIndex(10)).unwrap();
    assert_eq!(packs(&store).len(), 2);
    store.remove(LogIndex(20)).unwrap();
    assert_eq!((packs(&store).len(), store.all().len()), (2, 1));
    write_pages(&store, 40, &state(40), &[6, 7, 8, 9]);
    store.remove(LogIndex(30)).unwrap();
    assert_eq!((packs(&store).len(), store.all().len()), (1, 1));
    store.remove(LogIndex(40)).unwrap();
    assert!(names(&store).is_empty());
}

#[test]
fn what_was_written_again_is_not_written_once_more() {
    // Whichever of two packs has the smaller digest.
    for seed in 0..8 {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let pages: Vec<u8> = (seed..seed + 100).collect();
        write_pages(&store, 10, &state(10), &pages);
        // Less than half of them: the first pack is left behind.
        write_pages(&store, 20, &state(20), &pages[..40]);
        let named = |index| file::packs_of(&store.path(LogIndex(index))).unwrap().unwrap();
        assert!(!named(20).contains(&named(10)[0]));
        // Not the same pages: the same pack would have the same name.
        write_pages(&store, 30, &state(30), &pages[..39]);
        assert_eq!(named(30), named(20), "{seed}");
    }
}

#[test]
fn what_has_come_of_an_image_goes_when_there_is_a_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    let file = write_pages(&from, 20, &state(20), &[1, 2, 3, 4]);
    let come = |bytes| {
        let mut incoming = Incoming::begin(&to, file).unwrap();
        incoming.take(0, &read_part(&from.path(LogIndex(20)), 0, bytes).unwrap()).unwrap();
    };
    let comes = || names(&to).iter().any(|name| name.ends_with(".incoming"));
    let most = file.bytes as usize - 10;
    come(most);
    assert!(comes());
    write_pages(&to, 10, &state(10), &[9]);
    assert!(comes(), "an earlier one changes nothing");
    to.tidy().unwrap();
    assert!(comes());
    write_pages(&to, 20, &state(20), &[8]);
    assert!(!comes(), "there is one of its entry");
    // Which may be of no use.
    come(most);
    to.tidy().unwrap();
    assert!(comes());
    fs::rename(to.path(LogIndex(20)), to.path(LogIndex(21))).unwrap();
    to.tidy().unwrap();
    assert!(!comes(), "there is a later one");
}

#[test]
fn nothing_comes_of_an_image_for_which_there_is_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    let file = write_pages(&from, 20, &state(20), &[1, 2, 3, 4]);
    // Its only pack is an exbibyte long.
    let mut bytes = fs::read(from.path(LogIndex(20))).unwrap();
    let pack = file.bytes - bytes.len() as u64;
    let at = 120 + 4 + 16;
    assert_eq!(bytes[at..at + 8], pack.to_le_bytes());
    bytes[at..at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let file = ImageFile { bytes: bytes.len() as u64 + (1 << 60), ..file };
    let mut incoming = Incoming::begin(&to, file).unwrap();
    let error = incoming.take(0, &bytes).unwrap_err().to_string();
    assert!(error.contains("disk full; free space"), "{error}");
    assert!(names(&to).is_empty(), "{:?}", names(&to));
}

#[test]
fn an_image_gets_its_place_once_another_of_its_entry_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write_pages(&store, 10, &state(10), &[1, 2]);
    let (removal, other) = (store.removal(LogIndex(10)), store.removal(LogIndex(20)));
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| write_pages(&store, 10, &state(10), &[3, 4]));
        let part = store.path(LogIndex(10)).with_extension("part");
        while !part.exists() {
            std::thread::yield_now();
        }
        store.remove(LogIndex(10)).unwrap();
        assert!(store.indices().unwrap().is_empty(), "it waits");
        drop(removal);
        writes.join().unwrap();
    });
    drop(other);
    store.verify(LogIndex(10)).unwrap();
}

#[test]
fn packs_stay_while_their_image_gets_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write_pages(&store, 10, &state(10), &[1, 2, 3, 4]);
    let index = LogIndex(10);
    let needed = file::packs_of(&store.path(index)).unwrap().unwrap();
    let ends = std::time::Instant::now() + std::time::Duration::from_millis(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while std::time::Instant::now() < ends {
                let (name, other) = (store.path(index), store.unconfirmed(index));
                store.give_name(&name, &other, &needed).unwrap();
                store.confirm(index).unwrap();
            }
        });
        while std::time::Instant::now() < ends {
            store.collect().unwrap();
            assert_eq!(packs(&store).len(), 1);
        }
    });
    store.verify(index).unwrap();
}

#[test]
fn an_image_that_cannot_be_read_keeps_all_packs_and_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write_pages(&store, 10, &state(10), &[1, 2, 3, 4]);
    write_pages(&store, 20, &state(20), &[5, 6, 7, 8]);
    let whole = fs::read(store.path(LogIndex(10))).unwrap();
    let mut newer = whole.clone();
    newer[8] = 99;
    fs::write(store.path(LogIndex(10)), newer).unwrap();
    // What is no file cannot be read at all.
    fs::create_dir(store.dir().join("image-5")).unwrap();
    store.tidy().unwrap();
    write_pages(&store, 30, &state(30), &[5, 6, 7, 9]);
    store.remove(LogIndex(20)).unwrap();
    assert_eq!(store.all().iter().map(Image::index).collect::<Vec<_>>(), [LogIndex(30)]);
    assert_eq!(packs(&store).len(), 3);
    fs::write(store.path(LogIndex(10)), whole).unwrap();
    fs::remove_dir(store.dir().join("image-5")).unwrap();
    assert_eq!(store.all().len(), 2);
    store.remove(LogIndex(10)).unwrap();
    assert_eq!(packs(&store).len(), 2, "now it is known what is needed");
}

#[test]
fn a_damaged_pack_is_set_aside_with_all_its_images_and_no_new_one_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write_pages(&store, 10, &state(10), &[1, 2, 3, 4]);
    write_pages(&store, 20, &state(20), &[1, 2, 3, 5]);
    let path = file::packs_of(&store.path(LogIndex(10))).unwrap().unwrap()[0].path(store.dir());
    damage(&path);
    assert!(store.set_aside(LogIndex(10)));
    assert!(!path.exists() && path.with_extension(DAMAGED).exists());
    // What is not set aside itself is told.
    assert_eq!((store.take_lost(), store.take_lost()), (vec![LogIndex(20)], vec![]));
    write_pages(&store, 30, &state(30), &[1, 2, 3, 5]);
    assert_eq!(store.all().iter().map(Image::index).collect::<Vec<_>>(), [LogIndex(30)]);
    store.collect().unwrap();
    assert_eq!(images(&store), ["image-10.damaged", "image-20.damaged", "image-30"]);
    assert_eq!(store.all().len(), 1);
}

/// By a passing fault of the disk, for example.
#[test]
fn packs_stay_while_their_image_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write_pages(&store, 10, &state(10), &[1, 2, 3, 4]);
    write_pages(&store, 20, &state(20), &[5, 6, 7, 8]);
    let (image, away) = (store.path(LogIndex(10)), dir.path().join("away"));
    fs::rename(&image, &away).unwrap();
    // Linux cannot read the first byte of a process' memory: EIO.
    std::os::unix::fs::symlink("/proc/self/mem", &image).unwrap();
    store.remove(LogIndex(20)).unwrap();
    assert_eq!(packs(&store).len(), 2);
    fs::remove_file(&image).unwrap();
    fs::rename(&away, &image).unwrap();
    store.verify(LogIndex(10)).unwrap();
    store.collect().unwrap();
    assert_eq!(packs(&store).len(), 1);
}

#[test]
fn no_image_gets_a_name_once_a_pack_of_it_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    write_pages(&store, 10, &state(10), &[1, 2, 3, 4]);
    let (first, part) = (store.path(LogIndex(10)), store.dir().join("image-20.part"));
    // A writer has got this far with an image of the same pages.
    fs::copy(&first, &part).unwrap();
    let needed = file::packs_of(&part).unwrap().unwrap();
    damage(&packs(&store)[0]);
    assert!(store.set_aside(LogIndex(10)));
    let name = store.unconfirmed(LogIndex(20));
    let error = store.give_name(&part, &name, &needed).unwrap_err().to_string();
    assert!(error.contains("is gone") && !name.exists(), "{error}");
    // Nor does one count that has the name of one that does not yet.
    fs::rename(&part, &name).unwrap();
    let error = store.confirm(LogIndex(20)).unwrap_err();
    assert!(error.is_damage() && !store.path(LogIndex(20)).exists(), "{error}");
}

#[test]
fn a_crash_at_any_step_leaves_whole_images() {
    // What the directory is after each step of a writer that has nothing to remove, of a remover, and of both.
    let dir = tempfile::tempdir().unwrap();
    let whole = store(&dir.path().join("whole"));
    write_pages(&whole, 10, &state(10), &[1, 2, 3, 4]);
    write_pages(&whole, 20, &state(20), &[1, 2, 3, 5]);
    let own = packs(&whole).into_iter().find(|path| {
        let first = file::packs_of(&whole.path(LogIndex(10))).unwrap().unwrap();
        !first.iter().any(|pack| pack.path(whole.dir()) == *path)
    });
    let own = own.unwrap();
    let steps: [&dyn Fn(&Path); 4] = [
        // The pack is written in part, or whole, and has no name yet; then its image has none.
        &|dir| {
            fs::remove_file(dir.join("image-20")).unwrap();
            let name = dir.join(own.file_name().unwrap());
            fs::rename(&name, dir.join("pack-20.part")).unwrap();
        },
        &|dir| fs::remove_file(dir.join("image-20")).unwrap(),
        &|dir| fs::rename(dir.join("image-20"), dir.join("image-20.part")).unwrap(),
        // The image is removed, its pack is not yet.
        &|dir| fs::remove_file(dir.join("image-10")).unwrap(),
    ];
    for (n, step) in steps.iter().enumerate() {
        let crashed = store(&dir.path().join(n.to_string()));
        for name in names(&whole) {
            fs::copy(whole.dir().join(&name), crashed.dir().join(&name)).unwrap();
        }
        step(crashed.dir());
        crashed.tidy().unwrap();
        let there: Vec<_> = crashed.all().iter().map(Image::index).collect();
        assert_eq!(there, [LogIndex(if n == 3 { 20 } else { 10 })]);
        let needed = file::packs_of(&crashed.path(there[0])).unwrap().unwrap().len();
        assert_eq!((names(&crashed).len(), packs(&crashed).len()), (1 + needed, needed));
        // It goes on.
        write_pages(&crashed, 30, &state(30), &[1, 2, 3, 5]);
        assert_eq!(crashed.all().len(), 2);
    }
}

fn verified(path: &Path) -> Verified {
    Opened::open(path, &OWNER).unwrap().verify().unwrap()
}

/// Images as this version and those before it have written them. `SKEIN_BLESS=1` writes those of a format that has none yet.
#[test]
fn images_of_all_formats_are_read() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/images/formats");
    let dir = tempfile::tempdir().unwrap();
    let newest = formats.join(file::VERSION.to_string());
    if std::env::var_os("SKEIN_BLESS").is_some() && !newest.exists() {
        let store = store(dir.path());
        write_pages(&store, 10, &state(10), &[1, 2, 3, 4]);
        write_pages(&store, 20, &state(20), &[1, 2, 3, 5]);
        super::super::export(&store.path(LogIndex(20)), &store.path(LogIndex(30))).unwrap();
        fs::rename(store.path(LogIndex(30)), store.dir().join("copy")).unwrap();
        fs::create_dir_all(&newest).unwrap();
        for name in names(&store) {
            fs::copy(store.dir().join(&name), newest.join(&name)).unwrap();
        }
    }
    assert!(newest.exists(), "no images of the newest format are stored: run with SKEIN_BLESS=1");
    for format in fs::read_dir(&formats).unwrap() {
        let format = format.unwrap().path();
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        for file in fs::read_dir(&format).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), store.dir().join(file.file_name())).unwrap();
        }
        let copy = store.dir().join("copy");
        for (index, last) in [(10, 4), (20, 5)] {
            let image = store.image(LogIndex(index)).unwrap();
            assert_eq!(*image.state, state(index), "{}", format.display());
            let whole = dir.path().join(format!("whole-{index}"));
            super::super::export(&store.path(LogIndex(index)), &whole).unwrap();
            for from in [whole, copy.clone()].into_iter().take(if index == 20 { 2 } else { 1 }) {
                let (found, mut body) = verified(&from).unpack().unwrap();
                assert_eq!(ServerState::decode(&found), Some(state(index)));
                let mut memory = Vec::new();
                body.memory(&mut memory).unwrap();
                let pages: Vec<u8> =
                    [1, 2, 3, last].iter().flat_map(|page| [*page; 4096]).collect();
                assert_eq!(memory, [&[9; 70][..], &pages].concat(), "{}", from.display());
            }
        }
    }
}
