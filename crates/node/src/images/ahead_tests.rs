//! Packs of files that were read ahead: they stay as long as somebody may name them, and no longer.

use super::*;
use skein_arena::Sizes;
use skein_arena::inodes::{FLAGS_AT, ID_AT, INODE_BYTES, MADE, NUMBER_AT};
use skein_arena::layout::Header;
use skein_image::Plain;
use skein_image::ahead::{Survey, Unread};
use skein_image::copied::hash;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};

const SIZES: Sizes = Sizes { input: 4 << 20, output: 4 << 20, heap: 64 << 20 };
const TABLE_AT: u64 = 4096;
const RECORD_AT: u64 = 32 << 20;
const PAGES: u64 = 200;

/// The arena of a server that has noted one write, and the one file that it has.
fn server() -> (File, File) {
    let [arena, file] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    arena.set_len(SIZES.file_bytes() as u64).unwrap();
    let word = |at: u64, word: u64| arena.write_all_at(&word.to_ne_bytes(), at).unwrap();
    word(offset_of!(Header, inodes_at) as u64, TABLE_AT);
    word(offset_of!(Header, writes_at) as u64, RECORD_AT);
    let heap_at = (SIZES.file_bytes() - SIZES.heap) as u64;
    word(heap_at + RECORD_AT, 1);
    (0..PAGES).for_each(|n| file.write_all_at(&[n as u8; 4096], n * 4096).unwrap());
    let about = file.metadata().unwrap();
    let row = heap_at + TABLE_AT + INODE_BYTES as u64;
    word(row + ID_AT as u64, about.dev());
    word(row + ID_AT as u64 + 8, about.ino());
    word(row + NUMBER_AT as u64, 5);
    word(row + FLAGS_AT as u64, MADE.into());
    (arena, file)
}

fn survey(arena: &File, file: &File) -> Unread {
    let mut survey = Survey::new(arena, SIZES, None, None).unwrap();
    survey.contents(&Plain::new(file.try_clone().unwrap()).unwrap(), 0, PAGES * 4096);
    survey.finish()
}

#[test]
fn files_that_were_read_ahead_are_kept_until_an_image_names_them_or_they_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let (arena, file) = server();
    let ahead = store.read_ahead(survey(&arena, &file), None, &|| true).unwrap();
    assert!(ahead.ahead.is_of(&arena).unwrap());
    let [pack] = &packs(&store)[..] else { panic!("{:?}", names(&store)) };
    store.collect().unwrap();
    assert!(pack.exists(), "nothing names it yet");
    // The second time nothing is new, and what the first has found stays when that is dropped.
    let ahead = store.read_ahead(survey(&arena, &file), Some(ahead), &|| true).unwrap();
    assert_eq!(packs(&store), std::slice::from_ref(pack));
    drop(ahead);
    assert!(packs(&store).is_empty(), "no image has named it");

    let ahead = store.read_ahead(survey(&arena, &file), None, &|| true).unwrap();
    let mut layer = Copied::new();
    let hashes: Vec<u128> = (0..PAGES).map(|n| hash(&[n as u8; 4096])).collect();
    layer.all_known(&hashes);
    let (state, memory) = (state(7).encode(), stream(&[250]));
    let head = head(&store, 7, &state, [&memory, &layer]);
    let lacks = store.write(&head, &state, [&memory, &layer], None, None).unwrap_err();
    assert!(lacks.to_string().contains("no earlier image"), "{lacks}");
    store.write(&head, &state, [&memory, &layer], Some(&ahead), None).unwrap();
    drop(ahead);
    assert_eq!(packs(&store).len(), 2, "its own, and that of the files");
    store.confirm(LogIndex(7)).unwrap();
    store.verify(LogIndex(7)).unwrap();
}

#[test]
fn what_is_not_wanted_any_longer_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let (arena, file) = server();
    let ahead = store.read_ahead(survey(&arena, &file), None, &|| false).unwrap();
    assert!(!ahead.ahead.is_of(&arena).unwrap());
    assert!(names(&store).is_empty(), "{:?}", names(&store));
    // The pack cannot be written: what was read before is given up, too.
    let ahead = store.read_ahead(survey(&arena, &file), None, &|| true).unwrap();
    assert_eq!(packs(&store).len(), 1);
    fs::create_dir(store.dir().join("pack-ahead.part")).unwrap();
    let failed = store.read_ahead(survey(&arena, &file), Some(ahead), &|| true).unwrap_err();
    assert!(failed.to_string().contains("pack-ahead.part"), "{failed}");
    assert_eq!(names(&store), ["pack-ahead.part"]);
}
