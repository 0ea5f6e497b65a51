//! The file of an image: every byte of it counts, and nothing of a damaged or foreign one is used.

use super::*;
use crate::form::Rotten;
use std::fs;

const OWNER: Owner = Owner { cluster: 7, program: [9; 32] };

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed;
    let mut next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Half of it zeroes, as in memory.
        if word >> 63 == 0 { 0 } else { (word >> 40) as u8 }
    };
    (0..length).map(|_| next()).collect()
}

/// State, memory and files.
fn parts() -> [Vec<u8>; 3] {
    [bytes(1, 40), bytes(2, 900), bytes(3, 300)]
}

fn written(path: &Path, owner: Owner, [state, memory, layer]: &[Vec<u8>; 3]) -> (Head, Seal) {
    let head = Head {
        owner,
        index: LogIndex(41),
        term: Term(3),
        taken_ms: 1_700_000_000_123,
        processes: 2,
        state_bytes: state.len() as u64,
        memory_bytes: memory.len() as u64,
        layer_bytes: layer.len() as u64,
    };
    let mut file = File::create(path).unwrap();
    let (memory, layer) = (&mut &memory[..], &mut &layer[..]);
    (head, write(&mut file, path, &head, Contents { state, memory, layer }).unwrap())
}

/// All that a reader of the file gets, or the first error.
fn read(path: &Path, owner: &Owner) -> Result<[Vec<u8>; 3], ImageError> {
    let verified = Opened::open(path, owner)?.verify()?;
    let (state, mut body) = verified.unpack()?;
    let (mut memory, mut layer) = (Vec::new(), Vec::new());
    body.memory(&mut memory)?;
    body.layer(|from| from.read_to_end(&mut layer))
        .and_then(|read| read.map(drop).map_err(|error| ImageError::damaged(path, error)))?;
    Ok([state, memory, layer])
}

#[test]
fn it_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image-41");
    // Of nothing, of little, of more than is read at a time.
    for lengths in [[0, 0, 0], [1, 0, 7], [300_000, 3_000_000, 1_000_000]] {
        let parts = lengths.map(|length| bytes(length as u64, length));
        let (head, seal) = written(&path, OWNER, &parts);
        assert_eq!(Head::read(&path).unwrap(), head);
        assert_eq!(seal.bytes, fs::metadata(&path).unwrap().len());
        let verified = Opened::open(&path, &OWNER).unwrap().verify().unwrap();
        assert_eq!((verified.head(), verified.seal), (&head, seal));
        assert!(read(&path, &OWNER).unwrap() == parts);
    }
}

#[test]
fn equal_contents_make_equal_files_and_others_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name| dir.path().join(name);
    let (_, one) = written(&path("one"), OWNER, &parts());
    let (_, same) = written(&path("same"), OWNER, &parts());
    let mut other = parts();
    other[1][899] ^= 1;
    assert_eq!(one, same);
    assert_ne!(one.digest, written(&path("other"), OWNER, &other).1.digest);
}

#[test]
fn no_changed_byte_goes_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    written(&path, OWNER, &parts());
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for bits in [1, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= bits;
            fs::write(&path, damaged).unwrap();
            let error = read(&path, &OWNER).expect_err(&format!("byte {at} changed by {bits}"));
            let line = error.to_string();
            assert!(line.starts_with(path.to_str().unwrap()) && !line.contains('\n'), "{line}");
        }
    }
}

#[test]
fn what_the_disk_cannot_read_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let (_, seal) = written(&path, OWNER, &parts());
    let rotten = |lost| Rotten { bytes: fs::read(&path).unwrap(), lost };
    assert_eq!(sealed(&rotten(u64::MAX), seal.bytes, &path).unwrap(), seal);
    for lost in [0, seal.bytes / 2, seal.bytes - 1] {
        let error = sealed(&rotten(lost), seal.bytes, &path).unwrap_err();
        assert!(error.is_damage(), "byte {lost}: {error}");
    }
    // Where the names of its packs would be.
    let error = packs(&rotten(HEAD_BYTES as u64), &path).unwrap_err();
    assert!(error.is_damage(), "{error}");
    // Linux cannot read the first byte of a process' memory.
    let error = Head::read(Path::new("/proc/self/mem")).unwrap_err();
    assert!(error.is_damage(), "{error}");
}

#[test]
fn no_missing_end_goes_unseen_and_nothing_may_follow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    written(&path, OWNER, &parts());
    let mut whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = read(&path, &OWNER).expect_err(&format!("cut to {length}"));
        assert!(matches!(error, ImageError::Cut { .. }) && error.is_damage(), "{length}: {error}");
    }
    whole.push(0);
    fs::write(&path, &whole).unwrap();
    assert!(read(&path, &OWNER).is_err());
}

/// The trailer fits, the inside does not: nobody but a broken writer makes such a file.
#[test]
fn sizes_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    written(&path, OWNER, &parts());
    let whole = fs::read(&path).unwrap();
    // State, memory, files, one more and one less; an impossible one.
    for size in 4..7 {
        for change in [1u64, u64::MAX, 1 << 40, 1 << 63] {
            let mut changed = whole.clone();
            let at = 64 + 8 * size;
            let was = u64::from_le_bytes(field(&changed, at));
            changed[at..at + 8].copy_from_slice(&was.wrapping_add(change).to_le_bytes());
            let before = changed.len() - TRAILER_BYTES;
            let digest = xxhash_rust::xxh3::xxh3_128(&changed[..before]);
            changed[before + 16..].copy_from_slice(&digest.to_le_bytes());
            fs::write(&path, changed).unwrap();
            assert!(Opened::open(&path, &OWNER).unwrap().verify().is_ok());
            let error = read(&path, &OWNER).expect_err("a size that does not fit");
            assert!(matches!(error, ImageError::Damaged { .. }), "{error}");
        }
    }
}

#[test]
fn strangers_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    written(&path, Owner { cluster: 8, ..OWNER }, &parts());
    let refusal = || read(&path, &OWNER).unwrap_err().to_string();
    assert!(refusal().contains("another cluster"));
    written(&path, Owner { program: [8; 32], ..OWNER }, &parts());
    assert!(refusal().contains("another program"));
    written(&path, OWNER, &parts());
    let mut later = fs::read(&path).unwrap();
    later[8] = 3;
    fs::write(&path, &later).unwrap();
    assert!(refusal().contains("format 3"));
    fs::write(&path, "a file of something else, which is long enough to have a head like that of an image, and longer by some words and numbers").unwrap();
    assert!(refusal().contains("no image"));
    let nowhere = dir.path().join("nowhere");
    assert!(matches!(read(&nowhere, &OWNER), Err(ImageError::Io { .. })));
}

#[test]
fn a_full_disk_is_named() {
    let mut full = File::options().write(true).open("/dev/full").unwrap();
    let [state, memory, layer] = [bytes(1, 4), bytes(2, 3_000_000), bytes(3, 4)];
    let head = Head {
        owner: OWNER,
        index: LogIndex(1),
        term: Term(1),
        taken_ms: 0,
        processes: 1,
        state_bytes: 4,
        memory_bytes: 3_000_000,
        layer_bytes: 4,
    };
    let (memory, layer) = (&mut &memory[..], &mut &layer[..]);
    let contents = Contents { state: &state, memory, layer };
    let error = write(&mut full, Path::new("images/image-1.part"), &head, contents).unwrap_err();
    assert_eq!(
        error.to_string(),
        "images/image-1.part: disk full; free space, each image takes about as much as the one before"
    );
}
