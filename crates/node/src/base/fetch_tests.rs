//! Transfers between replicas: whole, broken off, of large files and sparse ones, and beside everything else.

use super::super::pin::Pinner;
use super::super::store::{FileSystem, Objects};
use super::*;
use crate::transport::{Address, channel::Sealer, listen};
use skein_log::frame::Decoder;
use skein_model::fact::{Fact, What as About};
use std::path::Path;

const CLUSTER: ClusterId = ClusterId(5);

/// A replica with a pinned file, which another one may ask.
fn replica(dir: &Path) -> (Arc<Base>, Address) {
    let data = dir.join("has");
    let base = Base::open(&data).unwrap();
    let text = vec![b'x'; PART_BYTES + 9];
    std::fs::write(dir.join("file"), text).unwrap();
    let path = dir.join("file").into_os_string().into_encoded_bytes();
    let mut pinner = Pinner::new(&base.objects, Index::default(), None);
    let there = Fact { kind: libc::DT_REG, ..Fact::new(About::There, &path) };
    pinner.fact(&there).unwrap();
    base.set(pinner.index).unwrap();
    (Arc::new(base), Address::Unix(dir.join("socket")))
}

/// Has `lacks` get what it lacks from `base`.
fn fetch(base: &Arc<Base>, address: &Address, lacks: &Base, knows_holes: bool) -> io::Result<u64> {
    serve_once(base, address, || {
        let wire = Wire::connect(BASE, address, None, CLUSTER).unwrap();
        let mut lost = lacks.lost().unwrap();
        let (rate, index) = (u64::MAX, lost.is_empty().then_some(What::Index));
        Fetch { wire, base: lacks, rate, index, knows_holes }.all(&mut lost)
    })
}

/// Has `base` answer the one connection that this makes.
fn serve_once<T>(base: &Arc<Base>, address: &Address, asks: impl FnOnce() -> T) -> T {
    let (base, listener) = (base.clone(), listen(address).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let until = Instant::now() + Duration::from_secs(20);
            let stream = loop {
                if let Some((stream, _)) = listener.accept().unwrap() {
                    break stream;
                }
                assert!(Instant::now() < until, "nobody came");
                std::thread::yield_now();
            };
            let sealer = Sealer::new(None, CLUSTER, false, &mut Vec::new());
            let mut wire = Wire::over(BASE, stream, sealer, Decoder::new(CLUSTER), CLUSTER);
            let first = wire.receive().unwrap();
            serve(base, wire, first).unwrap();
        });
        asks()
    })
}

/// One that has only the index of `base`, on a host that has not got the file any more.
fn without_contents(dir: &Path, base: &Base) -> Base {
    let data = dir.join("lacks");
    std::fs::create_dir_all(data.join("base")).unwrap();
    let lacks = Base::open(&data).unwrap();
    lacks.set((*base.index()).clone()).unwrap();
    std::fs::remove_file(dir.join("file")).unwrap();
    lacks
}

#[test]
fn lost_contents_come_from_another_replica_and_damaged_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let lacks = without_contents(dir.path(), &base);
    let (digest, size) = base.index().contents().next().unwrap();
    let fetch = || fetch(&base, &address, &lacks, true);
    assert!(!lacks.lost().unwrap().is_empty());
    assert_eq!(fetch().unwrap(), size);
    assert!(lacks.lost().unwrap().is_empty());
    // Damage at the sender's, and here.
    for objects in [&base.objects, &lacks.objects] {
        std::fs::write(objects.path(digest), vec![b'y'; size as usize]).unwrap();
    }
    assert!(fetch().unwrap_err().to_string().contains("not those of the digest"));
    assert_eq!(lacks.lost().unwrap().len(), 1);
}

/// It ends the connection when it is asked for what it does not know.
#[test]
fn a_replica_of_an_earlier_version_gives_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let lacks = without_contents(dir.path(), &base);
    let config = serde_json::json!({
        "name": "x", "id": 1, "data_dir": dir.path(), "server": { "program": "none" },
        "peers": [{ "id": 1, "address": dir.path().join("own") }, { "id": 2, "address": dir.path().join("socket") }],
    });
    let config: NodeConfig = serde_json::from_value(config).unwrap();
    let cluster = ClusterId(config.cluster());
    let lacks = lacks.of_node(&config);
    let (listener, base) = (listen(&address).unwrap(), base);
    let came = std::thread::scope(|scope| {
        scope.spawn(move || {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                assert!(Instant::now() < until, "nobody asked again");
                let Some((stream, _)) = listener.accept().unwrap() else {
                    std::thread::yield_now();
                    continue;
                };
                let sealer = Sealer::new(None, cluster, false, &mut Vec::new());
                let mut wire = Wire::over(BASE, stream, sealer, Decoder::new(cluster), cluster);
                let first = wire.receive().unwrap();
                match Question::decode(&first).unwrap().what {
                    What::Data(_) => {}
                    _ => return serve(base.clone(), wire, first).unwrap(),
                }
            }
        });
        // Meanwhile an index may be made.
        let objects = lacks.objects.clone();
        let _making = objects.making();
        mend(&lacks, lacks.lost().unwrap()).unwrap()
    });
    assert!(came);
    assert!(lacks.lost().unwrap().is_empty());
}

#[test]
fn what_another_replica_has_pinned_meanwhile_is_pinned_here() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let files = base.index().files.clone();
    base.set(Index { files, ..super::super::index::of_a_program() }).unwrap();
    let lacks = Base::open(&dir.path().join("lacks")).unwrap();
    std::fs::remove_file(dir.path().join("file")).unwrap();
    let (digest, size) = base.index().contents().next().unwrap();
    let mut own = (*lacks.index()).clone();
    let with = |own: &mut Index| {
        serve_once(&base, &address, || {
            let wire = Wire::connect(BASE, &address, None, CLUSTER).unwrap();
            let index = Some(What::Index);
            Fetch { wire, base: &lacks, rate: u64::MAX, index, knows_holes: false }.into(own)
        })
    };
    assert_eq!(with(&mut own).unwrap(), Some(base.index().files.len()));
    assert!(lacks.objects.has(digest, size));
    assert_eq!(own.files, base.index().as_ref().clone().without_numbers().files);
    assert_eq!(with(&mut own).unwrap(), Some(0));
    // One that has no edition of that name.
    let mut none = Index::default();
    let asked = serve_once(&base, &address, || {
        let wire = Wire::connect(BASE, &address, None, CLUSTER).unwrap();
        let index = Some(What::Edition(Digest([7; 32])));
        Fetch { wire, base: &lacks, rate: u64::MAX, index, knows_holes: false }.into(&mut none)
    });
    assert_eq!(asked.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn what_came_of_a_file_need_not_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let lacks = without_contents(dir.path(), &base);
    let (digest, size) = base.index().contents().next().unwrap();
    let fetch = || fetch(&base, &address, &lacks, true);
    let begun = |byte| {
        lacks.objects.make_dir().unwrap();
        let part = lacks.objects.go_on(digest).unwrap();
        part.file.write_all_at(&vec![byte; PART_BYTES + 2], 0).unwrap();
        part.path.clone()
    };
    // Something else came: that is found at the end, and the next try begins from the start.
    let part = begun(b'y');
    assert!(fetch().unwrap_err().to_string().contains("not those of the digest"));
    assert!(!part.exists());
    begun(b'x');
    assert_eq!(fetch().unwrap(), 7);
    assert!(lacks.lost().unwrap().is_empty() && !part.exists());
    assert_eq!(size, PART_BYTES as u64 + 9);
}

#[test]
fn a_transfer_ends_when_the_node_does() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let lacks = without_contents(dir.path(), &base);
    let lost = lacks.lost().unwrap();
    lacks.objects.leave();
    let _listener = listen(&address).unwrap();
    let wire = Wire::connect(BASE, &address, None, CLUSTER).unwrap();
    let fetch = Fetch { wire, base: &lacks, rate: 1, index: None, knows_holes: true };
    let error = fetch.all(&mut lost.clone()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    assert_eq!(lacks.lost().unwrap(), lost);
    let error = edition(&lacks, Digest([7; 32])).unwrap_err();
    assert!(error.to_string().contains("the node ends"), "{error}");
}

/// A base with a large file that is nearly nothing but a hole, and one that lacks it, with an answer of its own to what is free.
fn with_a_large_file(dir: &Path, free: fn(&Path) -> io::Result<u64>) -> (Arc<Base>, Address, Base) {
    let (base, address) = replica(dir);
    let path = dir.join("large");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"in the middle", LARGE_BYTES / 2).unwrap();
    file.set_len(LARGE_BYTES + 1).unwrap();
    let mut pinner = Pinner::new(&base.objects, Index::default(), None);
    let name = path.as_os_str().as_encoded_bytes();
    pinner.fact(&Fact { kind: libc::DT_REG, ..Fact::new(About::There, name) }).unwrap();
    base.set(pinner.index).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lacks = without_contents(dir, &base);
    let file_system = FileSystem { free, share: |_, _| false };
    let objects = Arc::new(Objects::on(lacks.dir.join("objects"), file_system));
    (base, address, Base { objects, ..lacks })
}

#[test]
fn a_large_file_comes_also_to_a_small_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address, lacks) = with_a_large_file(dir.path(), |_| Ok(1 << 30));
    fetch(&base, &address, &lacks, true).unwrap();
    assert!(lacks.lost().unwrap().is_empty());
}

#[test]
fn nothing_stays_of_a_file_that_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let full = |_: &Path| Err(io::ErrorKind::StorageFull.into());
    let (base, address, lacks) = with_a_large_file(dir.path(), full);
    let error = fetch(&base, &address, &lacks, true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(std::fs::read_dir(lacks.dir.join("objects")).unwrap().count(), 0);
}

#[test]
fn one_that_only_lacks_contents_takes_no_index() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let lacks = without_contents(dir.path(), &base);
    let listener = listen(&address).unwrap();
    let index = lacks.index();
    // All came from another one before, and could not be kept.
    let wire = Wire::connect(BASE, &address, None, CLUSTER).unwrap();
    drop(listener);
    lacks.objects.make_dir().unwrap();
    let fetch = Fetch { wire, base: &lacks, rate: 1, index: None, knows_holes: true };
    fetch.all(&mut BTreeMap::new()).unwrap();
    assert_eq!(lacks.index(), index);
}

#[test]
fn no_replica_is_believed_that_a_file_is_larger_than_files_are() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let lacks = without_contents(dir.path(), &base);
    let _listener = listen(&address).unwrap();
    let wire = Wire::connect(BASE, &address, None, CLUSTER).unwrap();
    let mut fetch = Fetch { wire, base: &lacks, rate: 1, index: None, knows_holes: true };
    let error = fetch.contents(Digest([1; 32]), SIZE_MAX + 1).unwrap_err();
    assert!(error.to_string().contains("larger than any file"), "{error}");
}

#[test]
fn holes_travel_as_zeros_and_are_holes_again() {
    let dir = tempfile::tempdir().unwrap();
    let (base, address) = replica(dir.path());
    let all = 32 << 20;
    let path = dir.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.write_all_at(b"in the middle", all / 2).unwrap();
    file.set_len(all).unwrap();
    let mut pinner = Pinner::new(&base.objects, (*base.index()).clone(), None);
    let name = path.into_os_string().into_encoded_bytes();
    pinner.fact(&Fact { kind: libc::DT_REG, ..Fact::new(About::There, &name) }).unwrap();
    base.set(pinner.index).unwrap();
    let lacks = without_contents(dir.path(), &base);
    std::fs::remove_file(dir.path().join("sparse")).unwrap();
    let (digest, _) = base.index().contents().find(|(_, size)| *size == all).unwrap();
    // Also between versions of which one knows nothing of holes.
    for knows_holes in [true, false] {
        fetch(&base, &address, &lacks, knows_holes).unwrap();
        assert!(lacks.lost().unwrap().is_empty());
        let takes = std::os::unix::fs::MetadataExt::blocks;
        assert!(takes(&lacks.objects.open(digest).unwrap().metadata().unwrap()) * 512 < 4 << 20);
        std::fs::remove_file(lacks.objects.path(digest)).unwrap();
    }
    // A hole does not travel.
    let hold = base.objects.hold();
    let next = |from| base.answer(Question { what: What::Data(digest), from }, &mut None, &hold);
    let (first, last) = (next(0), next(all - 5));
    assert!(first.place().unwrap().0 > 0 && first.place().unwrap().0 <= all / 2);
    assert_eq!((last.whole, last.place()), (Some(all), Some((all, [].as_slice()))));
}

#[test]
fn one_that_asks_for_an_edition_is_not_kept_waiting_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let (base, _) = replica(dir.path());
    let here = Digest([3; 32]);
    base.of_edition(here).unwrap().set((*base.index()).clone()).unwrap();
    let making = base.objects.making();
    let soon = |digest| edition_soon(&base, digest, Duration::ZERO);
    assert!(soon(here).unwrap().is_some());
    assert!(soon(Digest([4; 32])).unwrap().is_none());
    drop(making);
    assert!(soon(Digest([4; 32])).is_err());
}

#[test]
fn what_a_replica_is_being_given_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (base, _) = replica(dir.path());
    let (digest, _) = base.index().contents().next().unwrap();
    let asks = [What::Index, What::Contents(digest), What::Data(digest)];
    for what in asks {
        let hold = base.objects.hold();
        let answer = base.answer(Question { what, from: 0 }, &mut None, &hold);
        assert!(answer.whole.is_some());
        base.objects.collect(|| Ok(std::collections::BTreeSet::new())).unwrap();
        assert!(base.objects.path(digest).exists(), "{what:?}");
    }
    base.objects.collect(|| Ok(std::collections::BTreeSet::new())).unwrap();
    assert!(!base.objects.path(digest).exists());
    // What is not here is not held.
    let hold = base.objects.hold();
    for what in [What::Contents(digest), What::Data(digest)] {
        let answer = base.answer(Question { what, from: 0 }, &mut None, &hold);
        assert_eq!((answer.whole, hold.count()), (None, 0));
    }
}
