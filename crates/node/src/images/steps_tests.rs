//! A process that works with a directory of images is killed at each of its steps there: before and after each file that is opened, written, synced, named or removed. What is left
//! is tidied up by the next start, has every image that counted, and goes on.
//!
//! `SKEIN_STEPS=all` kills at all steps instead of each [`STRIDE`]th.

use super::*;
use nix::sys::signal::Signal;
use skein_testkit::steps::Steps;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// The variable that tells the killed process its directory.
const DIR: &str = "SKEIN_STEPS_DIR";
const STRIDE: u64 = 11;
/// All of them, before and after.
const ANY: &str = "any any /images/";
/// More steps than there are.
const MANY: u64 = 1 << 40;

/// Images that differ in few pages, so that their chain grows until it is merged.
fn pages(index: u64) -> Vec<u8> {
    (0..40).map(|page| if page % 13 == index / 10 { 200 } else { page as u8 }).collect()
}

fn note(dir: &Path, what: u64) {
    let mut notes = OpenOptions::new().create(true).append(true).open(dir.join("notes")).unwrap();
    writeln!(notes, "{what}").unwrap();
}

/// The last thing that was done.
fn noted(dir: &Path) -> u64 {
    let notes = fs::read_to_string(dir.join("notes")).unwrap_or_default();
    notes.lines().last().map_or(0, |line| line.parse().unwrap())
}

/// The processes that are killed: they are tests that do nothing by themselves.
fn place(task: &str) -> Option<PathBuf> {
    let (own, dir) =
        std::env::var(DIR).ok()?.split_once(':').map(|(t, d)| (t.to_owned(), d.to_owned()))?;
    (own == task).then(|| dir.into())
}

#[test]
fn one_that_takes() {
    let Some(dir) = place("one_that_takes") else { return };
    let store = store(&dir);
    for index in (10..=120).step_by(10) {
        write_pages(&store, index, &state(index), &pages(index));
        note(&dir, index);
        store.remove(LogIndex(index.saturating_sub(20))).unwrap();
    }
}

#[test]
fn one_that_receives() {
    let Some(dir) = place("one_that_receives") else { return };
    let to = store(&dir);
    for index in [10, 20] {
        let (path, file) = sent(&dir, index);
        receive(&to, &path, file);
        note(&dir, index);
    }
}

/// The sender's store, and one of its images.
fn sender(dir: &Path) -> Store {
    Store::new(dir.join("from"), OWNER)
}

fn sent(dir: &Path, index: u64) -> (PathBuf, ImageFile) {
    let from = sender(dir);
    (from.path(LogIndex(index)), from.image(LogIndex(index)).unwrap().file)
}

/// What is there of it already is not sent: perhaps all of it is.
fn receive(to: &Store, path: &Path, file: ImageFile) {
    let mut incoming = Incoming::begin(to, file).unwrap();
    let mut part = Vec::new();
    let mut from = 0;
    while let Progress::Has(at) = incoming.take(from, &part).unwrap() {
        from = at;
        part = read_part(path, at, 700).unwrap();
    }
}

/// Kills the process of a task at its steps, each time in a directory that `prepare` has made; `check` gets what is left.
fn killed_at_each_step(task: &str, prepare: impl Fn(&Path), check: impl Fn(&Path, u64)) {
    let library = tempfile::tempdir().unwrap();
    let steps = Steps::new(library.path()).unwrap_or_else(|failure| panic!("{failure}"));
    // Syncs cost nothing there.
    let killed_at = |n: u64| {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        prepare(dir.path());
        steps.kill_next_at(ANY, n).unwrap_or_else(|failure| panic!("{failure}"));
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &format!("images::store::tests::steps::{task}")]);
        child.env(DIR, format!("{task}:{}", dir.path().display())).stdout(Stdio::null());
        steps.attach(&mut child, "--exact");
        let child = child.stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let status = { child }.wait().unwrap();
        (dir, status, steps.left(pid as i32).unwrap_or_else(|failure| panic!("{failure}")))
    };
    let (dir, status, left) = killed_at(MANY);
    assert!(status.success(), "{status}");
    check(dir.path(), 0);
    let all = MANY - left;
    assert!(all > 100, "{all} steps");
    let stride = if std::env::var_os("SKEIN_STEPS").is_some() { 1 } else { STRIDE };
    let mut deaths = 0;
    for n in (1..=all).step_by(stride as usize) {
        let (dir, status, _) = killed_at(n);
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "step {n}: {status}");
        check(dir.path(), n);
        deaths += 1;
    }
    println!(
        "{task}: killed {deaths} times, at steps 1 to {all}: all that counted was there, and nothing else"
    );
}

/// The entries of the images, all of which are whole and have their packs, and nothing else is there.
fn found(store: &Store, n: u64) -> Vec<u64> {
    store.tidy().unwrap();
    let indices: Vec<u64> = store.all().iter().map(|image| image.index().0).collect();
    let mut needed = BTreeSet::new();
    for index in &indices {
        needed.extend(file::packs_of(&store.path(LogIndex(*index))).unwrap().unwrap());
    }
    let there: BTreeSet<PathBuf> = packs(store).into_iter().collect();
    let needed: BTreeSet<PathBuf> = needed.iter().map(|pack| pack.path(store.dir())).collect();
    assert_eq!(there, needed, "step {n}");
    indices
}

#[test]
fn killed_at_each_step_of_taking_images() {
    killed_at_each_step(
        "one_that_takes",
        |_| (),
        |dir, n| {
            let (store, counted) = (store(dir), noted(dir));
            let indices = found(&store, n);
            assert_eq!(names(&store).len(), indices.len() + packs(&store).len(), "step {n}");
            assert!(counted == 0 || indices.contains(&counted), "step {n}: {indices:?}");
            // One that got its name, and that this was not said of; and those before that were to go.
            let may = counted.saturating_sub(20)..=counted + 10;
            assert!(indices.iter().all(|index| may.contains(index)), "step {n}: {indices:?}");
            write_pages(&store, 200, &state(200), &pages(30));
            assert_eq!(found(&store, n).last(), Some(&200), "step {n}");
        },
    );
}

#[test]
fn killed_at_each_step_of_receiving_images() {
    let prepare = |dir: &Path| {
        let from = sender(dir);
        from.make_dir().unwrap();
        for index in [10, 20] {
            write_pages(
                &from,
                index,
                &state(index),
                &(0..120).map(|p| p ^ index as u8).collect::<Vec<_>>(),
            );
        }
    };
    killed_at_each_step("one_that_receives", prepare, |dir, n| {
        let (to, has) = (store(dir), noted(dir));
        to.tidy().unwrap();
        let indices: Vec<u64> = to.all().iter().map(|image| image.index().0).collect();
        assert!(has == 0 || indices.contains(&has), "step {n}: {indices:?}");
        // The rest comes.
        for index in [10, 20].into_iter().filter(|index| !indices.contains(index)) {
            let (path, file) = sent(dir, index);
            receive(&to, &path, file);
        }
        assert_eq!(found(&to, n), [10, 20]);
        assert_eq!(names(&to), names(&sender(dir)), "step {n}");
    });
}
