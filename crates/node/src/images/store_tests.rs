//! A directory of images: what a start finds in it, and images that come from other replicas.

use super::super::incoming::{Incoming, Progress, read_part};
use super::*;
use skein_model::{Term, WallNs};
use skein_replica::verdicts::digest::DigestState;
use std::os::unix::fs::PermissionsExt;

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
    }
}

fn write(store: &Store, named: u64, state: &ServerState) -> ImageFile {
    let state = state.encode();
    let (memory, layer) = ([named as u8; 5000], [3; 70]);
    let head = Head {
        owner: *store.owner(),
        index: LogIndex(named),
        term: Term(3),
        taken_ms: 12,
        processes: 1,
        state_bytes: state.len() as u64,
        memory_bytes: memory.len() as u64,
        layer_bytes: layer.len() as u64,
    };
    let (memory, layer) = (&mut &memory[..], &mut &layer[..]);
    let file = store.write(&head, Contents { state: &state, memory, layer }).unwrap();
    store.confirm(LogIndex(named)).unwrap();
    store.sync().unwrap();
    file
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
    assert_eq!((found.bytes, found.head.memory_bytes), (late.bytes, 5000));
    store.remove(LogIndex(20)).unwrap();
    store.remove(LogIndex(20)).unwrap();
    assert_eq!(names(&store), ["image-300"]);
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
    assert_eq!(names(&store), ["image-10", "image-21.damaged", "image-30.damaged"]);
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
    assert_eq!(names(&store), ["image-10"]);
    assert_eq!(other.all().len(), 1);
}

#[test]
fn a_writer_that_fails_leaves_nothing_and_what_a_crash_leaves_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let head = Head {
        owner: OWNER,
        index: LogIndex(10),
        term: Term(1),
        taken_ms: 0,
        processes: 1,
        state_bytes: 0,
        memory_bytes: 9,
        layer_bytes: 0,
    };
    // The memory is shorter than it was said to be.
    let contents = Contents { state: &[], memory: &mut &[1, 2][..], layer: &mut io::empty() };
    let error = store.write(&head, contents).unwrap_err().to_string();
    assert!(error.contains("memory"), "{error}");
    assert!(names(&store).is_empty());
    drop(store.nameless(LogIndex(3)).unwrap());
    for name in [
        "image-4.part",
        "image-3.unconfirmed",
        "files-4.part",
        "image-4-0.incoming",
        "image-5.damaged",
    ] {
        fs::write(store.dir().join(name), "").unwrap();
    }
    store.tidy().unwrap();
    assert_eq!(names(&store), ["image-4-0.incoming", "image-5.damaged"]);
}

/// Sends a file in parts of `step` bytes, from where the receiver is.
fn send(from: &Path, file: ImageFile, incoming: &mut Incoming, step: usize) -> Option<Image> {
    let Ok(Progress::Has(mut at)) = incoming.take(0, &[]) else { panic!("it is there already") };
    while at < file.bytes {
        let part = read_part(from, at, step).unwrap();
        match incoming.take(at, &part).ok()? {
            Progress::Has(bytes) => {
                assert_eq!(bytes, at + part.len() as u64);
                at = bytes;
            }
            Progress::Whole(image) => return Some(image),
        }
    }
    None
}

#[test]
fn one_that_is_received_is_the_senders_also_in_several_tries() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    let file = write(&from, 10, &state(10));
    let path = from.path(LogIndex(10));
    let mut incoming = Incoming::begin(&to, file).unwrap();
    let part = read_part(&path, 0, 50).unwrap();
    assert!(matches!(incoming.take(0, &part), Ok(Progress::Has(50))));
    assert!(matches!(incoming.take(0, &part), Ok(Progress::Has(50))), "it has come before");
    assert!(matches!(incoming.take(90, &part), Ok(Progress::Has(50))), "not the next ones");
    drop(incoming);
    to.tidy().unwrap();
    let mut incoming = Incoming::begin(&to, file).unwrap();
    assert!(matches!(incoming.take(0, &[]), Ok(Progress::Has(50))));
    let image = send(&path, file, &mut incoming, 33).unwrap();
    assert_eq!((image.file, &*image.state), (file, &state(10)));
    assert_eq!(names(&to), ["image-10"]);
    assert_eq!(fs::read(to.path(LogIndex(10))).unwrap(), fs::read(path).unwrap());
}

#[test]
fn another_or_a_damaged_one_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (store(&dir.path().join("from")), store(&dir.path().join("to")));
    let file = write(&from, 10, &state(10));
    let path = from.path(LogIndex(10));
    let mut half = Incoming::begin(&to, ImageFile { digest: 1, ..file }).unwrap();
    half.take(0, &read_part(&path, 0, 50).unwrap()).unwrap();
    let mut incoming = Incoming::begin(&to, file).unwrap();
    assert_eq!(names(&to).len(), 1, "only this one is received now");
    damage(&path);
    assert!(send(&path, file, &mut incoming, 64).is_none());
    assert!(names(&to).is_empty(), "nothing of it stays");
    // Whole, and not what was named.
    let file = write(&from, 10, &state(10));
    let named = ImageFile { digest: 1, ..file };
    assert!(send(&path, named, &mut Incoming::begin(&to, named).unwrap(), 64).is_none());
    assert!(names(&to).is_empty());
}
