//! A layer that remembers is packed as one that does not, whatever was done to its files since.

use super::super::{Content, Layer, Packs, Shown};
use super::*;
use nix::fcntl::{AT_FDCWD, FallocateFlags, fallocate};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, makedev, mknod, utimensat};
use nix::sys::time::TimeSpec;
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

/// What the server has noted.
#[derive(Default)]
struct Record {
    /// Numbers of files, by their inode numbers; without one it is that.
    numbers: HashMap<u64, u64>,
    mapped: HashSet<u64>,
    /// Numbers of files, and pages.
    written: Vec<(u64, Pages)>,
}

type Pages = (u64, u64);

impl Record {
    fn number(&self, inode: u64) -> u64 {
        self.numbers.get(&inode).copied().unwrap_or(inode)
    }

    /// A file was made.
    fn fresh(&mut self, path: &Path) {
        let number = u64::MAX - self.numbers.len() as u64;
        self.numbers.insert(fs::symlink_metadata(path).unwrap().ino(), number);
    }

    fn note(&mut self, path: &Path, pages: &[Pages]) {
        let Ok(meta) = fs::symlink_metadata(path) else { return };
        let number = self.number(meta.ino());
        self.written.extend(pages.iter().map(|pages| (number, *pages)));
    }
}

/// A stream of files that are followed, if there is a record.
struct Stream<'a>(Vec<u8>, Option<&'a Record>);

impl Packs for Stream<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn keeps_contents(&self) -> bool {
        true
    }

    fn follows(&self, shown: &Shown) -> Option<(u64, u64)> {
        let (record, inode) = (self.1?, shown.id.1);
        let noted = record.written.len() as u64;
        (!record.mapped.contains(&inode)).then(|| (record.number(inode), noted))
    }

    fn written(&self, number: u64, noted: u64) -> Option<Vec<Pages>> {
        let all = self.1?.written[noted as usize..].iter();
        let mut pages: Vec<_> =
            all.filter(|(of, _)| *of == number).map(|(_, pages)| *pages).collect();
        pages.sort_unstable();
        Some(pages)
    }

    fn contents(&mut self, content: &Content<'_>, start: u64, end: u64) -> io::Result<()> {
        let Shown { id, accessed, changed } = content.shown();
        let words = [id.0, id.1, accessed.0 as u64, accessed.1 as u64, changed.1 as u64, end];
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_le_bytes()));
        let mut piece = vec![0; (end - start) as usize];
        content.file()?.read_exact_at(&mut piece, start)?;
        self.bytes(&piece)
    }
}

struct Both {
    place: tempfile::TempDir,
    /// One that remembers, and one that does not.
    layers: [Layer; 2],
    record: RefCell<Record>,
}

impl Both {
    fn new(on: &Path) -> Self {
        let place = tempfile::tempdir_in(on).unwrap();
        for name in ["u/0/data", "r/tmp", "r/etc"] {
            fs::create_dir_all(place.path().join(name)).unwrap();
        }
        let layers = [(); 2].map(|()| {
            let open = || File::open(place.path()).unwrap();
            Layer {
                uppers: open().into(),
                top: open().into(),
                root: Some(File::open(place.path().join("r")).unwrap()),
                overlays: vec![("0".into(), "/etc".into())],
                made: std::collections::BTreeMap::new(),
                remembered: std::sync::Mutex::default(),
            }
        });
        Self { place, layers, record: RefCell::default() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Packs both, and compares.
    fn packed(&self, after: &str) -> Vec<u8> {
        // Unlike a layer's mount, this one notes when directories and links are read first.
        self.layers[1].pack(&mut Stream(Vec::new(), None)).unwrap();
        *self.layers[1].remembered() = Remembered::default();
        let [remembering, other] = self.layers.each_ref().map(|layer| {
            let record = self.record.borrow();
            let mut stream = Stream(Vec::new(), Some(&record));
            let paths = layer.pack(&mut stream).unwrap();
            self.are_right(paths);
            stream.0
        });
        assert!(remembering == other, "another stream after: {after}");
        remembering
    }

    /// What is said of files is what the server's root shows.
    fn are_right(&self, paths: Vec<(PathBuf, Option<Shown>)>) {
        for (path, shown) in paths {
            let Some(shown) = shown else { continue };
            let meta = fs::symlink_metadata(self.at("r").join(path.strip_prefix("/").unwrap()));
            assert_eq!(Shown::of(&Stat::from(&meta.unwrap())), shown, "{}", path.display());
        }
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Where there are such attributes.
fn set_attribute(path: &Path, name: &std::ffi::CStr, value: &[u8]) {
    let path = c_path(path);
    // SAFETY: two terminated strings, and a live value of this length.
    unsafe {
        libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0);
    }
}

fn set_modified(path: &Path, to: i64) {
    let time = TimeSpec::new(to, 5);
    utimensat(AT_FDCWD, path, &time, &time, UtimensatFlags::NoFollowSymlink).unwrap();
}

fn write_through_mapping(path: &Path, at: usize) {
    // SAFETY: it is a byte of the mapping.
    through_mapping(path, at, |byte| unsafe { byte.write(9) });
}

fn read_through_mapping(path: &Path, at: usize) {
    // SAFETY: as above.
    through_mapping(path, at, |byte| assert_eq!(unsafe { byte.read_volatile() }, 0));
}

fn through_mapping(path: &Path, at: usize, with: impl FnOnce(*mut u8)) {
    use std::os::fd::AsRawFd;
    let file = open(path);
    let (len, rights) =
        (file.metadata().unwrap().len() as usize, libc::PROT_READ | libc::PROT_WRITE);
    assert!(at < len);
    // SAFETY: a new mapping of a file that nobody else changes, which ends below; `at` is inside.
    unsafe {
        let (nowhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        let mapped = libc::mmap(nowhere, len, rights, libc::MAP_SHARED, fd, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        with(mapped.cast::<u8>().add(at));
        libc::munmap(mapped, len);
    }
}

/// What may be done to a file, and the pages that the server notes for it; none: it is a new file.
type Change = (&'static str, Option<&'static [Pages]>, fn(&Path));

const ALL: &[Pages] = &[(0, u64::MAX)];
const NOTHING: Option<&[Pages]> = Some(&[]);

/// Those that an ordinary user, or a file system in memory, may not allow.
const MAYBE_NOTHING: [&str; 4] = ["nothing", "an owner", "an attribute", "another attribute"];

/// Each is done to a file of its own, of twelve pages and a hole behind them.
const CHANGES: &[Change] = &[
    ("nothing", NOTHING, |_| ()),
    ("written", Some(&[(0, 1)]), |file| write_at(file, 100, b"new")),
    ("written in the hole", Some(&[(15, 16)]), |file| write_at(file, 15 << 12, b"new")),
    ("written behind", Some(&[(11, 12), (40, 41)]), |file| {
        write_at(file, 11 << 12, b"new");
        write_at(file, 40 << 12, b"new");
    }),
    ("noted more than is written", Some(&[(9, u64::MAX)]), |file| {
        write_at(file, 12 << 12, b"new");
    }),
    ("longer", Some(&[(40, u64::MAX)]), |file| open(file).set_len(40 << 12).unwrap()),
    ("a bit longer", Some(&[(16, u64::MAX)]), |file| open(file).set_len((16 << 12) + 7).unwrap()),
    ("truncated", Some(&[(1, u64::MAX)]), |file| open(file).set_len(4096).unwrap()),
    ("truncated in a page", Some(&[(11, u64::MAX)]), |file| {
        open(file).set_len((11 << 12) + 50).unwrap();
    }),
    ("emptied", Some(ALL), |file| open(file).set_len(0).unwrap()),
    ("a hole punched", Some(&[(1, u64::MAX)]), |file| punch(file, 1)),
    ("a noted hole punched", Some(&[(1, 2)]), |file| punch(file, 1)),
    ("allocated", Some(&[(12, u64::MAX)]), |file| {
        fallocate(open(file), FallocateFlags::empty(), 12 << 12, 4096).unwrap();
    }),
    ("read by the kernel", NOTHING, |file| read_through_mapping(file, 15 << 12)),
    ("written through a mapping", NOTHING, |file| write_through_mapping(file, 15 << 12)),
    ("renamed over", None, |file| {
        let other = file.with_extension("other");
        make(&other, 8);
        fs::rename(other, file).unwrap();
    }),
    ("renamed", NOTHING, |file| fs::rename(file, file.with_extension("renamed")).unwrap()),
    ("removed", NOTHING, |file| fs::remove_file(file).unwrap()),
    ("removed and made anew", None, |file| {
        let before = fs::metadata(file).unwrap();
        fs::remove_file(file).unwrap();
        make(file, 9);
        set_modified(file, before.mtime());
    }),
    ("a directory instead", None, |file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
        make(&file.join("inner"), 7);
    }),
    ("a link instead", None, |file| {
        fs::remove_file(file).unwrap();
        symlink("elsewhere", file).unwrap();
    }),
    ("a whiteout instead", NOTHING, |file| {
        fs::remove_file(file).unwrap();
        // An ordinary user may, too, since it is no device.
        let _ = mknod(file, SFlag::S_IFCHR, Mode::empty(), makedev(0, 0));
    }),
    ("a mode", NOTHING, |file| {
        fs::set_permissions(file, fs::Permissions::from_mode(0o4751)).unwrap();
    }),
    ("an owner", NOTHING, |file| drop(std::os::unix::fs::chown(file, Some(7), Some(8)))),
    ("an attribute", NOTHING, |file| set_attribute(file, c"user.note", b"text")),
    ("another attribute", NOTHING, |file| set_attribute(file, c"user.kept", b"else")),
    ("another name", NOTHING, |file| {
        fs::hard_link(file, file.with_extension("too")).unwrap();
    }),
    ("a name before it", NOTHING, |file| {
        let name = format!("+{}", file.file_name().unwrap().display());
        fs::hard_link(file, file.with_file_name(name)).unwrap();
    }),
    ("a name less", NOTHING, |file| fs::remove_file(file.with_extension("second")).unwrap()),
    ("a time set back", NOTHING, |file| set_modified(file, 1_000_000)),
    ("written, and the time set back", Some(&[(2, 3)]), |file| {
        let before = fs::metadata(file).unwrap().modified().unwrap();
        write_at(file, 8192, b"other");
        open(file).set_modified(before).unwrap();
    }),
    ("a time of last access", NOTHING, |file| {
        let (then, is) = (TimeSpec::new(3, 4), TimeSpec::UTIME_OMIT);
        utimensat(AT_FDCWD, file, &then, &is, UtimensatFlags::NoFollowSymlink).unwrap();
    }),
];

fn punch(file: &Path, page: i64) {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(open(file), flags, page << 12, 4096).unwrap();
}

fn open(file: &Path) -> File {
    File::options().read(true).write(true).open(file).unwrap()
}

fn write_at(file: &Path, at: u64, bytes: &[u8]) {
    open(file).write_all_at(bytes, at).unwrap();
}

fn make(file: &Path, byte: u8) {
    fs::write(file, [byte; 12 << 12]).unwrap();
    open(file).set_len(16 << 12).unwrap();
}

/// The directories in which there is a file for each change.
const DIRECTORIES: [&str; 2] = ["u/0/data", "r/tmp"];

fn wait_until_settled() {
    std::thread::sleep(SETTLED + Duration::from_millis(100));
}

impl Both {
    /// Makes a change, and notes it as the server's runtime does.
    fn change(&self, file: &Path, (name, noted, change): &Change) {
        let mut record = self.record.borrow_mut();
        if name.contains("mapping") {
            record.mapped.insert(fs::metadata(file).unwrap().ino());
        }
        change(file);
        match noted {
            Some(pages) => record.note(file, pages),
            None => record.fresh(file),
        }
    }

    /// Makes each change to a file of its own, and packs behind each.
    fn all_changes(&self, directory: &str, last: &mut Vec<u8>) {
        for change in CHANGES {
            let name = change.0;
            self.change(&self.at(directory).join(name), change);
            let changed = self.packed(name);
            assert!(changed != *last || MAYBE_NOTHING.contains(&name), "no change: {name}");
            *last = changed;
        }
    }
}

fn looked_at_again(on: &Path) {
    let both = Both::new(on);
    for directory in DIRECTORIES {
        for (name, ..) in CHANGES {
            let file = both.at(directory).join(name);
            make(&file, 3);
            set_attribute(&file, c"user.kept", b"kept");
            if *name == "a name less" {
                fs::hard_link(&file, file.with_extension("second")).unwrap();
            }
        }
        for name in ["opaque", "plain", "closed"] {
            fs::create_dir(both.at(directory).join(name)).unwrap();
            make(&both.at(directory).join(name).join("inner"), 2);
        }
    }
    let counts = |path: &str| {
        let layer = both.layers[0].remembered();
        layer.files.get(Path::new(path)).is_some_and(|found| found.is_as_before)
    };
    let mut last = both.packed("nothing");
    assert!(!counts("/tmp/nothing"), "it has just changed");
    both.all_changes(DIRECTORIES[0], &mut last);
    wait_until_settled();
    last = both.packed("a while");
    assert!(counts("/tmp/nothing") && counts("/etc/data/opaque"));
    both.all_changes(DIRECTORIES[1], &mut last);
    for directory in DIRECTORIES {
        let at = |name: &str| both.at(directory).join(name);
        set_attribute(&at("opaque"), c"user.overlay.opaque", b"y");
        both.packed("a directory made opaque");
        fs::rename(at("plain"), at("renamed directory")).unwrap();
        both.packed("a renamed directory");
        fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        both.packed("a closed directory");
        fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o755)).unwrap();
        both.packed("an open directory");
    }
    // All that it can be done to once more.
    wait_until_settled();
    both.packed("a while");
    for directory in DIRECTORIES {
        for change in CHANGES.iter().filter(|(name, ..)| *name != "a name less") {
            let file = both.at(directory).join(change.0);
            let meta = fs::symlink_metadata(&file);
            if meta.is_ok_and(|meta| meta.is_file() && meta.len() > 15 << 12) {
                let _ = fs::remove_file(file.with_extension("too"));
                let _ = fs::remove_file(file.with_file_name(format!("+{}", change.0)));
                both.change(&file, change);
                both.packed(change.0);
            }
        }
    }
}

#[test]
fn changes_are_packed_whatever_is_remembered() {
    looked_at_again(&std::env::temp_dir());
}

#[test]
fn changes_are_packed_whatever_is_remembered_in_memory() {
    looked_at_again(Path::new("/dev/shm"));
}

#[test]
fn changes_in_the_tick_of_a_packing_are_packed_by_the_next() {
    let both = Both::new(&std::env::temp_dir());
    let files = ["u/0/data/a", "r/tmp/a"].map(|name| both.at(name));
    files.iter().for_each(|file| make(file, 1));
    wait_until_settled();
    both.packed("a while");
    let begun = std::time::Instant::now();
    for n in 0_u64.. {
        for file in &files {
            both.record.borrow_mut().note(file, &[(n % 4 * (2 + n % 3), 1 + n % 4 * (2 + n % 3))]);
            match n % 4 {
                0 => write_at(file, 0, &n.to_le_bytes()),
                1 => set_attribute(file, c"user.n", &n.to_le_bytes()),
                2 => write_at(file, (2 * (2 + n % 3)) << 12, b"x"),
                _ => fs::set_permissions(file, fs::Permissions::from_mode(0o600 + n as u32 % 64))
                    .unwrap(),
            }
        }
        both.packed("a change");
        if begun.elapsed() > Duration::from_millis(500) {
            break;
        }
    }
}

#[test]
fn what_is_remembered_is_used() {
    let both = Both::new(&std::env::temp_dir());
    make(&both.at("r/tmp/a"), 1);
    make(&both.at("u/0/data/a"), 1);
    wait_until_settled();
    let right = both.packed("a while");
    let spoil = |path: &str, spoil: &dyn Fn(&mut Found)| {
        spoil(both.layers[0].remembered().files.get_mut(Path::new(path)).unwrap());
        let record = both.record.borrow();
        let mut stream = Stream(Vec::new(), Some(&record));
        both.layers[0].pack(&mut stream).unwrap();
        let is_used = stream.0 != right;
        *both.layers[0].remembered() = Remembered::default();
        both.packed("all forgotten");
        is_used
    };
    let parts = |found: &mut Found| found.parts.as_mut().unwrap().parts.clear();
    let extended = |found: &mut Found| found.extended.push((b"user.x".into(), b"y".into()));
    assert!(spoil("/tmp/a", &parts) && spoil("/etc/data/a", &parts));
    assert!(spoil("/tmp/a", &extended) && spoil("/etc/data", &extended));
    assert!(spoil("/tmp/a", &|found| found.shown.as_mut().unwrap().0 += 1));
    assert!(spoil("/etc/data", &|found| found.is_opaque = true));
    // Another number: it is asked where it has content.
    assert!(!spoil("/tmp/a", &|found| {
        parts(found);
        found.parts.as_mut().unwrap().number += 1;
    }));
}

fn found_at(s: i64) -> Found {
    let stat = Stat { changed: (s, 0), ..Stat::from(&fs::metadata("/").unwrap()) };
    Found::new(stat)
}

#[test]
fn nothing_is_remembered_that_may_have_the_same_time_when_it_changes() {
    let real = Duration::from_secs(1_000_000);
    for (changed, is_kept) in
        [(999_990, true), (999_997, true), (999_998, false), (1_000_001, false)]
    {
        let mut looking = Looking::default();
        looking.now.at.real = real;
        looking.keep(Path::new("/a"), found_at(changed));
        assert_eq!(looking.finish().files.len() == 1, is_kept, "{changed}");
    }
    // Before the epoch there is no time.
    let mut looking = Looking::default();
    looking.keep(Path::new("/a"), found_at(-5));
    assert!(looking.finish().files.is_empty());
}

#[test]
fn nothing_is_remembered_when_the_clock_was_set_back() {
    let s = Duration::from_secs;
    let at = |real, passed| Moment { real: s(real), passed: s(passed) };
    assert!(at(1000, 50).follows(at(990, 40)));
    assert!(at(5000, 50).follows(at(990, 40)), "it was set to later");
    assert!(!at(998, 50).follows(at(990, 40)));
    let mut before = Remembered::default();
    before.files.insert("/a".into(), found_at(5));
    before.at = Moment::now().unwrap();
    before.forget_unless_in_order();
    assert_eq!(before.files.len(), 1);
    before.at.real += s(5);
    before.forget_unless_in_order();
    assert!(before.files.is_empty());
}

#[test]
fn memory_is_bounded() {
    let mut looking = Looking::default();
    looking.now.at.real = Duration::from_secs(1_000_000);
    let found = Found { extended: vec![(vec![7; 10], vec![7; 1 << 20])], ..found_at(5) };
    for n in 0..100 {
        looking.keep(&PathBuf::from(format!("/{n}")), found.clone());
    }
    assert_eq!(looking.finish().files.len(), 31);
}
