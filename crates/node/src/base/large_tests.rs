//! Large contents: shared where the file system can, copied as far as there is room, given up when the node ends. On file systems of the test's own with reflinks, too.

use super::*;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::os::unix::fs::FileExt;
use std::process::Command;

fn free_3_gib(_: &Path) -> io::Result<u64> {
    Ok(3 << 30)
}

const fn shares_nothing(_: &File, _: &File) -> bool {
    false
}

/// As a file system with reflinks does it.
fn shares(from: &File, to: &File) -> bool {
    copy(from, to, None).is_ok()
}

/// A file with so many bytes, all of them a hole but for its first.
fn sparse(path: &Path, bytes: u64) {
    let file = File::create(path).unwrap();
    file.set_len(bytes).unwrap();
    file.write_all_at(b"x", 0).unwrap();
}

#[test]
fn a_hole_takes_no_room_and_shared_bytes_neither() {
    let dir = tempfile::tempdir().unwrap();
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    sparse(&large, 2 * LARGE_BYTES);
    fs::write(&small, vec![7; 5 << 20]).unwrap();
    let no_room: fn(&Path) -> io::Result<u64> = |_| Ok(4 << 20);
    let full = |name: &str, share| {
        let file_system = FileSystem { free: no_room, share };
        Objects::on(dir.path().join(name).join("objects"), file_system)
    };
    let copies = full("copies", shares_nothing);
    let kept = copies.add(&large).unwrap();
    assert_eq!(kept.size, 2 * LARGE_BYTES);
    assert!(fs::metadata(copies.path(kept.digest)).unwrap().blocks() * 512 < 1 << 20);
    let refused = copies.add(&small).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(refused.to_string().starts_with("its 5.0 MiB do not fit"), "{refused}");
    assert_eq!(fs::read_dir(dir.path().join("copies/objects")).unwrap().count(), 1);
    let shared = full("shares", shares);
    let kept = shared.add(&small).unwrap();
    assert_eq!(shared.room().unwrap(), Room { free: 4 << 20, held: 0 });
    // It is known in the next life, too.
    shared.sync().unwrap();
    let again = full("shares", shares_nothing);
    assert_eq!(again.room().unwrap().held, 0);
    assert!(again.vouches(kept.digest, 5 << 20));
}

#[test]
fn what_is_kept_counts_until_it_is_collected() {
    let dir = tempfile::tempdir().unwrap();
    let file_system = FileSystem { free: free_3_gib, share: shares_nothing };
    let objects = Objects::on(dir.path().join("objects"), file_system);
    let file = dir.path().join("file");
    fs::write(&file, vec![1; 3 << 20]).unwrap();
    let first = objects.add(&file).unwrap();
    assert_eq!(objects.room().unwrap().held, 3 << 20);
    fs::write(&file, vec![2; 2 << 20]).unwrap();
    objects.add(&file).unwrap();
    assert_eq!(objects.room().unwrap().held, 5 << 20);
    // One that takes another one's place counts once.
    objects.add(&file).unwrap();
    assert_eq!(objects.room().unwrap().held, 5 << 20);
    objects.collect(|| Ok([first.digest].into())).unwrap();
    assert_eq!(objects.room().unwrap().held, 3 << 20);
}

#[test]
fn a_large_file_is_given_up_when_the_node_ends_and_a_small_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let objects = Objects::new(dir.path().join("objects"));
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    sparse(&large, LARGE_BYTES + 1);
    fs::write(&small, "small").unwrap();
    // What is got again is given up first.
    objects.leave();
    assert_eq!(objects.add_if(&large, |_| true).unwrap_err().kind(), io::ErrorKind::Interrupted);
    objects.end();
    assert_eq!(objects.add(&large).unwrap_err().kind(), io::ErrorKind::Interrupted);
    objects.add(&small).unwrap();
    assert_eq!(fs::read_dir(dir.path().join("objects")).unwrap().count(), 1);
}

#[test]
fn contents_that_are_there_and_were_read_are_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let objects = Objects::new(dir.path().join("objects"));
    let large = dir.path().join("large");
    sparse(&large, LARGE_BYTES + 1);
    let added = objects.add(&large).unwrap();
    let inode = || fs::metadata(objects.path(added.digest)).unwrap().ino();
    let before = inode();
    assert_eq!(objects.add(&large).unwrap(), added);
    assert_eq!(inode(), before);
    // Rot, as far as is known.
    objects.doubt(None).unwrap();
    assert_eq!(objects.add(&large).unwrap(), added);
    assert_ne!(inode(), before);
}

#[test]
fn no_note_speaks_for_contents_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let objects = Objects::new(dir.path().join("objects"));
    let large = dir.path().join("large");
    sparse(&large, LARGE_BYTES + 1);
    let added = objects.add(&large).unwrap();
    let object = objects.path(added.digest);
    let inode = || fs::metadata(&object).unwrap().ino();
    let before = inode();
    // As a disk does it: for once, the file cannot even be opened.
    fs::rename(&object, dir.path().join("aside")).unwrap();
    std::os::unix::fs::symlink("nowhere", &object).unwrap();
    assert!(!objects.is_whole(added.digest, added.size, Sum::of(added.hash)));
    fs::rename(dir.path().join("aside"), &object).unwrap();
    assert!(!objects.vouches(added.digest, added.size));
    objects.add(&large).unwrap();
    assert_ne!(inode(), before);
}

#[test]
fn nothing_is_removed_that_somebody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let objects = Arc::new(Objects::new(dir.path().join("objects")));
    let mut digests = Vec::new();
    for text in ["one", "two"] {
        fs::write(dir.path().join("file"), text).unwrap();
        digests.push(objects.add(&dir.path().join("file")).unwrap().digest);
    }
    let collect = || objects.collect(|| Ok(BTreeSet::new())).unwrap();
    let all = objects.keep_all();
    let again = objects.keep_all();
    assert_eq!(collect(), None);
    drop((all, again));
    let hold = objects.hold();
    hold.add([digests[0]]);
    assert_eq!(collect(), Some(1));
    assert!(objects.has(digests[0], 3) && !objects.has(digests[1], 3));
    drop(hold);
    assert_eq!(collect(), Some(1));
    assert!(!objects.has(digests[0], 3));
}

/// Does this with a new file system below a directory of its own, in a thread with a mount namespace of its own, of which nothing is left however it ends: the loop device
/// frees itself with the mount. False where this machine has none.
fn on(kind: &str, mkfs: &[&str], bytes: u64, work: impl FnOnce(&Path) + Send) -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root mounts file systems");
        return false;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("image"), dir.path().join("mounted"));
    fs::create_dir(&at).unwrap();
    File::create(&image).unwrap().set_len(bytes).unwrap();
    let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            let none: Option<&Path> = None;
            let can = unshare(CloneFlags::CLONE_NEWNS).is_ok()
                && mount(none, "/", none, private, none).is_ok()
                && run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image))
                && run(Command::new("mount").args(["-t", kind, "-o", "loop"]).arg(&image).arg(&at));
            if !can {
                eprintln!("skipped: {kind} cannot be made and mounted here");
                return false;
            }
            // A test that is killed leaves no more than a directory.
            fs::remove_file(&image).unwrap();
            work(&at);
            assert!(run(Command::new("umount").arg(&at)), "{kind} is busy");
            true
        });
        inside.join().unwrap()
    })
}

/// Takes no room: the file system has less than two of the file.
fn a_large_file_is_shared(at: &Path) {
    let free = room::free(at).unwrap();
    let len = free / 8 * 5;
    let host = at.join("host");
    let file = File::create(&host).unwrap();
    let piece = vec![5; 1 << 20];
    for n in 0..len >> 20 {
        // No two pieces are the same, or a file system could store them once.
        file.write_all_at(&piece, n << 20).unwrap();
        file.write_all_at(&n.to_le_bytes(), n << 20).unwrap();
    }
    file.sync_all().unwrap();
    let size = file.metadata().unwrap().len();
    assert!(size > LARGE_BYTES, "{size}");
    let left = room::free(at).unwrap();
    let objects = Objects::new(at.join("data/objects"));
    let added = objects.add(&host).unwrap();
    assert_eq!((added.size, objects.room().unwrap().held), (size, 0));
    assert!(objects.has(added.digest, size));
    let now = room::free(at).unwrap();
    assert!(left.saturating_sub(now) < size / 4, "{left} {now}");
    // The host's may change.
    file.write_all_at(b"other", 7 << 20).unwrap();
    assert!(objects.is_whole(added.digest, size, Sum::of(added.hash)));
    drop(file);
}

#[test]
fn a_large_file_takes_no_room_on_btrfs() {
    on("btrfs", &["mkfs.btrfs", "-q"], 640 << 20, a_large_file_is_shared);
}

#[test]
fn a_large_file_takes_no_room_on_xfs() {
    on("xfs", &["mkfs.xfs", "-q"], 400 << 20, a_large_file_is_shared);
}
