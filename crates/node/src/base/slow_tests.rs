//! What goes on beside a server: large files are pinned, contents are read again, and what nothing needs is removed.

use super::pin::Pinner;
use super::room;
use super::store::{Added, FileSystem, LARGE_BYTES, Sum};
use super::work::BaseWork;
use super::*;
use crate::base::edition::{Command, Spec};
use skein_log::{EntryKind, LogEntry};
use skein_model::entry::Upgrade;
use skein_model::fact::{Fact, What};
use skein_model::{EntryBuilder, LogIndex, Record, Term, WallNs};
use skein_replica::editions::Plan;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

struct Host {
    dir: tempfile::TempDir,
    file_system: FileSystem,
}

impl Host {
    fn new() -> Self {
        let file_system = FileSystem { free: room::free, share: |_, _| false };
        Self { dir: tempfile::tempdir().unwrap(), file_system }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// A file that is a hole but for its first bytes.
    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        file.set_len(bytes).unwrap();
        file.write_all_at(name.as_bytes(), 0).unwrap();
        path
    }

    /// The base of a new life of the node, which reads contents again each second.
    fn base(&self) -> Arc<Base> {
        let data = self.path("data");
        let config = serde_json::json!({
            "name": "x", "id": 1, "data_dir": &data,
            "peers": [{ "id": 1, "address": self.path("socket") }],
            "server": { "program": "none" }, "checkpoint": { "scrub_s": 1 },
        });
        let config: NodeConfig = serde_json::from_value(config).unwrap();
        let base = Base::open(&data).unwrap();
        let objects = Arc::new(Objects::on(data.join("base/objects"), self.file_system));
        Arc::new(Base { objects, ..base }.of_node(&config))
    }
}

fn entry(index: u64, record: Record<'_>) -> LogEntry {
    let mut payload = EntryBuilder::new(Vec::new());
    payload.push(record);
    let payload = payload.finish(WallNs(1), Term(1)).into();
    LogEntry { index: LogIndex(index), term: Term(1), kind: EntryKind::Normal, payload }
}

/// The server has asked whether these are there.
fn used(paths: &[&Path]) -> LogEntry {
    let mut facts = Vec::new();
    for path in paths {
        let path = path.as_os_str().as_encoded_bytes();
        let fact = Fact { kind: libc::DT_REG, ..Fact::new(What::There, path) };
        let mut bytes = vec![0; fact.bytes()];
        fact.encode(&mut bytes).unwrap();
        facts.extend(bytes);
    }
    entry(1, Record::Files { ask: 1, facts: &facts })
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "no {what}");
        std::thread::yield_now();
    }
}

fn has(base: &Base, path: &Path) -> bool {
    matches!(base.index().files.get(path), Some(Kept::File { .. }))
}

#[test]
fn a_large_file_is_pinned_beside_the_others() {
    let host = Host::new();
    let (large, small) = (host.file("large", LARGE_BYTES + 1), host.file("small", 5));
    let base = host.base();
    let mut work = BaseWork::start(base.clone(), None).unwrap();
    work.committed(&used(&[&large, &small]));
    wait_for("large file in the index", || has(&base, &large) && has(&base, &small));
    drop(work);
    assert!(!host.path("data/base/late-index").exists());
    let again = host.base();
    assert!(has(&again, &large) && again.lost().unwrap().is_empty());
    let (digest, size) = again.index().contents().find(|(_, size)| *size > 5).unwrap();
    assert!(size == LARGE_BYTES + 1 && again.objects().vouches(digest, size));
}

#[test]
fn a_node_that_ends_in_the_middle_of_a_file_goes_on_with_it_in_its_next_life() {
    let host = Host::new();
    let (large, small) = (host.file("large", LARGE_BYTES + 1), host.file("small", 5));
    let base = host.base();
    base.objects().end();
    let mut work = BaseWork::start(base.clone(), None).unwrap();
    work.committed(&used(&[&large, &small]));
    drop(work);
    assert!(has(&base, &small) && !has(&base, &large));
    let base = host.base();
    let work = BaseWork::start(base.clone(), None).unwrap();
    work.log_is_read();
    wait_for("large file in the index", || has(&base, &large));
    drop(work);
    assert!(!host.path("data/base/late-index").exists());
}

#[test]
fn files_without_room_are_pinned_once_there_is_some() {
    let mut host = Host::new();
    let files = [host.file("one", LARGE_BYTES + 1), host.file("two", LARGE_BYTES + 2)];
    let small = host.file("small", 3);
    let [one, two] = files.each_ref().map(PathBuf::as_path);
    host.file_system.free = |_| Ok(0);
    let base = host.base();
    let mut work = BaseWork::start(base.clone(), None).unwrap();
    work.committed(&used(&[one, &small, two]));
    drop(work);
    assert!(!has(&base, one) && !has(&base, &small));
    host.file_system.free = room::free;
    let base = host.base();
    let work = BaseWork::start(base.clone(), None).unwrap();
    work.log_is_read();
    wait_for("files in the index", || [one, two, &small].iter().all(|path| has(&base, path)));
}

/// Pins a file; answers its contents.
fn pin(base: &Base, path: &Path) -> Added {
    let mut pinner = Pinner::new(base.objects(), (*base.index()).clone(), None);
    let path = path.as_os_str().as_encoded_bytes();
    pinner.fact(&Fact { kind: libc::DT_REG, ..Fact::new(What::There, path) }).unwrap();
    let added = base.objects().add(Path::new(std::str::from_utf8(path).unwrap())).unwrap();
    base.objects().sync().unwrap();
    base.set(pinner.index).unwrap();
    added
}

/// As a disk does it: nothing shows that.
fn rot(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"rot", 99).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn a_start_reads_a_part_and_what_is_not_as_it_was_read() {
    let host = Host::new();
    let path = host.file("file", 2 << 20);
    let added = pin(&host.base(), &path);
    fs::remove_file(&path).unwrap();
    let object = host.path("data/base/objects").join(added.digest.to_string());
    let is_lost = |most| host.base().lost_beyond(most).contains_key(&added.digest);
    assert!(!is_lost(0) && !is_lost(added.size));
    rot(&object);
    assert!(!is_lost(0) && !is_lost(added.size - 1) && is_lost(added.size));
    // The server has found it.
    let other = host.file("elsewhere", 5);
    host.base().doubt(&format!("the host's file {}: it is other: now", other.display()));
    assert!(!is_lost(0));
    host.base().doubt(&format!("the host's file {}: it is other: now", path.display()));
    assert!(is_lost(0));
    // Another file, and one with another time.
    let path = host.file("other", 2 << 20);
    let added = pin(&host.base(), &path);
    fs::remove_file(&path).unwrap();
    let object = host.path("data/base/objects").join(added.digest.to_string());
    let is_lost = |most| host.base().lost_beyond(most).contains_key(&added.digest);
    let set_time =
        || File::options().write(true).open(&object).unwrap().set_modified(std::time::UNIX_EPOCH);
    let base = host.base();
    base.objects().while_times_are_set(set_time).unwrap();
    base.objects().save_notes();
    rot(&object);
    assert!(!is_lost(0));
    File::options().write(true).open(&object).unwrap().write_all_at(b"new", 77).unwrap();
    assert!(is_lost(0));
}

#[test]
fn contents_that_rot_are_found_and_mended_beside_the_server() {
    let host = Host::new();
    let base = host.base();
    let path = host.file("file", 3 << 20);
    let added = pin(&base, &path);
    let object = base.objects().path(added.digest);
    rot(&object);
    let is_whole = || base.objects().is_whole(added.digest, added.size, Sum::of(added.hash));
    assert!(!is_whole());
    let _work = BaseWork::start(base.clone(), None).unwrap();
    wait_for("mended contents", is_whole);
    // Once more, after it was found whole.
    rot(&object);
    wait_for("contents mended again", is_whole);
}

#[test]
fn other_contents_of_the_host_are_not_kept_in_place_of_damaged_ones() {
    let host = Host::new();
    let base = host.base();
    let path = host.file("file", 3 << 20);
    let added = pin(&base, &path);
    let object = base.objects().path(added.digest);
    rot(&object);
    File::options().write(true).open(&path).unwrap().write_all_at(b"other", 9).unwrap();
    let is_lost = || base.lost().unwrap().contains_key(&added.digest);
    assert!(is_lost());
    assert_eq!(fs::read_dir(host.path("data/base/objects")).unwrap().count(), 1);
}

#[test]
fn only_contents_that_a_report_may_be_about_are_doubted() {
    let host = Host::new();
    let base = host.base();
    let path = host.file("file: 1", 5);
    let added = pin(&base, &host.file("file", 2 << 20));
    let (link, odd) = (host.path("link"), pin(&base, &path));
    std::os::unix::fs::symlink("file", &link).unwrap();
    let mut pinner = Pinner::new(base.objects(), (*base.index()).clone(), None);
    let name = link.as_os_str().as_encoded_bytes();
    pinner.fact(&Fact { kind: libc::DT_REG, ..Fact::new(What::There, name) }).unwrap();
    base.set(pinner.index).unwrap();
    let of =
        |path: &Path| base.reported(&format!("the host's file {}: 5 bytes: 6", path.display()));
    assert_eq!(of(&host.path("file")), Some([added.digest].into()));
    assert_eq!(of(&path), Some([added.digest, odd.digest].into()));
    // The host's own; one that is not there may be a link that the server has made.
    assert_eq!(of(&host.file("other", 5)), Some([].into()));
    assert_eq!(of(&host.path("none")), None);
    let long = host.path(&"x".repeat(200));
    for unknown in [&link, &host.path("a b"), &host.path("x/../file"), &long, Path::new("file")] {
        assert_eq!(of(unknown), None, "{}", unknown.display());
    }
    assert_eq!((base.reported("no report"), base.reported("the host's file /x")), (None, None));
}

static TIDIED: OnceLock<Arc<Base>> = OnceLock::new();
static IS_TIDY: AtomicBool = AtomicBool::new(false);

/// Has the base tidied while a file is being copied.
fn tidies(_: &File, _: &File) -> bool {
    let base = TIDIED.get().unwrap();
    let removed = base.objects().collect(|| Ok(BTreeSet::new())).unwrap();
    IS_TIDY.store(removed.is_some(), Ordering::Relaxed);
    false
}

#[test]
fn a_base_is_tidied_while_a_large_file_is_read_and_that_stays() {
    let mut host = Host::new();
    host.file_system.share = tidies;
    let base = TIDIED.get_or_init(|| host.base());
    let path = host.file("file", LARGE_BYTES + 1);
    let (found, hold) = slow::read(base, path).unwrap();
    assert!(IS_TIDY.load(Ordering::Relaxed));
    let object = base.objects().path(found.added.unwrap().digest);
    let collect = || base.objects().collect(|| Ok(BTreeSet::new())).unwrap();
    assert_eq!((collect(), object.exists()), (Some(0), true));
    drop(hold);
    assert_eq!((collect(), object.exists()), (Some(1), false));
}

/// An edition of the server begins.
fn begins(index: u64, about: &str) -> LogEntry {
    let plan = Plan { about: about.to_owned(), ..Plan::default() }.encode();
    let step = Upgrade::Begun { after: LogIndex(index - 1), status: 0 };
    entry(index, Record::Upgrade { edition: index, step, plan: &plan })
}

#[test]
fn what_no_edition_needs_any_more_goes_while_the_node_runs() {
    let host = Host::new();
    let base = host.base();
    let main = pin(&base, &host.file("first", 5));
    let edition = |n: u8, name: &str| {
        let base = base.of_edition(Digest([n; 32])).unwrap();
        let added = pin(&base, &host.file(name, 5));
        let command =
            Command { program: name.into(), args: Vec::new(), env: Vec::new(), cwd: "/".into() };
        let spec = Spec { command, program_hash: String::new(), base: Digest([n; 32]) };
        (base, added.digest, spec.encode())
    };
    let (second, third, fourth) = (edition(2, "second"), edition(3, "third"), edition(4, "fourth"));
    let fifth = edition(5, "fifth");
    // One that is staged for an upgrade to come, and one that continues from another replica's image.
    base.awaits(Digest([4; 32]));
    base.launches(Digest([5; 32]));
    let is_there = |digest: Digest| base.objects().path(digest).exists();
    let mut work = BaseWork::start(base.clone(), None).unwrap();
    work.committed(&begins(10, &second.2));
    work.committed(&begins(20, &third.2));
    work.log_is_read();
    // A server that continues from an image of entry 15 would be the second's. A file that is pinned shows that the thread has come so far.
    let marker = |name| {
        let path = host.file(name, 1);
        let there = used(&[&path]);
        (path, there)
    };
    work.log_forgot(15);
    let (path, entry) = marker("so far");
    work.committed(&entry);
    wait_for("pinned file", || has(&base.of_edition(Digest([3; 32])).unwrap(), &path));
    let all = [main.digest, second.1, third.1, fourth.1, fifth.1];
    assert!(all.iter().all(|digest| is_there(*digest)));
    work.log_forgot(20);
    wait_for("tidied base", || !is_there(second.1));
    assert!(!host.path("data/base").join(edition_name(Digest([2; 32]))).exists());
    assert!([main.digest, third.1, fourth.1, fifth.1].iter().all(|digest| is_there(*digest)));
    // Another one has been started since, and the log is in that.
    base.launches(Digest([3; 32]));
    work.log_forgot(21);
    wait_for("tidied base", || !is_there(fifth.1));
    assert!([main.digest, third.1, fourth.1].iter().all(|digest| is_there(*digest)));
    assert!(has(&base, &host.path("first")) && !second.0.is_empty());
}
