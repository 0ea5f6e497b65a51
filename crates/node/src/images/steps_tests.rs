//! A process that works with a directory of images is killed at each of its steps there: before and after each file that is opened, written, synced, named or removed. What is left
//! is tidied up by the next start, has every image that counted, and goes on.
//!
//! `SKEIN_STEPS=all` kills at all steps instead of each [`STRIDE`]th, which begin with another one in each run: `SKEIN_TEST_SEED` repeats a run that failed.

use super::*;
use nix::sys::signal::Signal;
use skein_testkit::random::Random;
use skein_testkit::steps::Steps;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
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

/// Decides at which steps a run kills: each run has another one.
fn seed_of_run() -> u64 {
    let seed = std::env::var("SKEIN_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_secs());
    println!("SKEIN_TEST_SEED={seed}");
    seed
}

/// Kills the process of a task at its steps, each time in a directory that `prepare` has made; `check` gets what is left.
/// `stride`: at one of the first so many steps, and so many further on again and again.
fn killed_at_each_step(
    task: &str,
    stride: u64,
    prepare: impl Fn(&Path),
    check: impl Fn(&Path, u64),
) {
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
    assert!(all > stride.max(100), "{all} steps");
    let stride = if std::env::var_os("SKEIN_STEPS").is_some() { 1 } else { stride };
    let first = 1 + seed_of_run() % stride;
    let mut deaths = 0;
    for n in (first..=all).step_by(stride as usize) {
        let (dir, status, _) = killed_at(n);
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "step {n}: {status}");
        check(dir.path(), n);
        deaths += 1;
    }
    println!(
        "{task}: killed {deaths} times, at steps {first} to {all}: all that counted was there, and nothing else"
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
    let mut there: BTreeSet<PathBuf> = packs(store).into_iter().collect();
    let needed: BTreeSet<PathBuf> = needed.iter().map(|pack| pack.path(store.dir())).collect();
    // Some more may be there while an image comes.
    if names(store).iter().any(|name| name.starts_with("image-") && name.ends_with(".incoming")) {
        there.retain(|pack| needed.contains(pack));
    }
    assert_eq!(there, needed, "step {n}");
    indices
}

#[test]
fn killed_at_each_step_of_taking_images() {
    killed_at_each_step(
        "one_that_takes",
        STRIDE,
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
    killed_at_each_step("one_that_receives", STRIDE, prepare, |dir, n| {
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

/// What a replica does with its images, one thing after the other.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// It takes the image of this entry.
    Take(u64),
    /// It gets it from another replica.
    Receive(u64),
    /// It forgets it.
    Remove(u64),
    /// It starts.
    Start,
}

/// The images that are there, and their pages.
type Model = BTreeMap<u64, Vec<u8>>;

/// Deeds in an order that each seed has anew, and the images behind each of them, first of all none. Other replicas have the images of [`sent_in`].
fn deeds(seed: u64) -> (Vec<Deed>, Vec<Model>) {
    let mut random = Random::new(seed);
    let (mut deeds, mut models) = (Vec::new(), vec![Model::new()]);
    let mut pages: Vec<u8> = (0..40).collect();
    for at in 1..=40 {
        let mut model = models.last().cloned().unwrap_or_default();
        let any = |random: &mut Random, model: &Model| {
            model.keys().copied().nth(random.below(model.len() as u64) as usize)
        };
        let deed = match random.below(10) {
            0..=4 => {
                // The more pages change, the more packs are left behind.
                for _ in 0..1 + random.below(12) {
                    pages[random.below(40) as usize] = random.below(256) as u8;
                }
                model.insert(10 * at, pages.clone());
                Deed::Take(10 * at)
            }
            5..=6 => {
                let received = 10 * random.below(SENT) + 5;
                model.insert(received, sent_pages(received));
                Deed::Receive(received)
            }
            7..=8 if model.len() > 1 => {
                let removed = any(&mut random, &model).expect("there are two");
                model.remove(&removed);
                Deed::Remove(removed)
            }
            _ => Deed::Start,
        };
        deeds.push(deed);
        models.push(model);
    }
    (deeds, models)
}

/// So many images has another replica.
const SENT: u64 = 4;

fn sent_pages(index: u64) -> Vec<u8> {
    (0..40).map(|page| if page % 7 == index / 10 { 99 } else { page as u8 }).collect()
}

fn do_it(dir: &Path, deed: Deed, model: &Model) {
    let store = store(dir);
    match deed {
        Deed::Take(index) => drop(write_pages(&store, index, &state(index), &model[&index])),
        Deed::Receive(index) if store.path(LogIndex(index)).exists() => {}
        Deed::Receive(index) => {
            let (path, file) = sent(dir, index);
            receive(&store, &path, file);
        }
        Deed::Remove(index) => store.remove(LogIndex(index)).unwrap(),
        Deed::Start => store.tidy().unwrap(),
    }
}

/// Its seed.
fn seed(dir: &Path) -> u64 {
    fs::read_to_string(dir.join("seed")).unwrap().parse().unwrap()
}

#[test]
fn one_that_does_all() {
    let Some(dir) = place("one_that_does_all") else { return };
    let (deeds, models) = deeds(seed(&dir));
    for (n, deed) in deeds.into_iter().enumerate() {
        do_it(&dir, deed, &models[n + 1]);
        note(&dir, n as u64 + 1);
    }
}

/// Whether these images are there, each with its pages, and no pack that none of them needs.
fn are_there(dir: &Path, model: &Model, n: u64) -> bool {
    let store = store(dir);
    if found(&store, n) != model.keys().copied().collect::<Vec<_>>() {
        return false;
    }
    for (index, pages) in model {
        let (_, mut body) = verified(&store.path(LogIndex(*index))).unpack().unwrap();
        let mut memory = Vec::new();
        body.memory(&mut memory).unwrap();
        let pages: Vec<u8> = pages.iter().flat_map(|page| [*page; 4096]).collect();
        assert!(memory == [&[9; 70][..], &pages].concat(), "step {n}: image of entry {index}");
    }
    true
}

#[test]
fn killed_at_each_step_of_all_in_any_order() {
    for number in 1..=3 {
        let prepare = |dir: &Path| {
            fs::write(dir.join("seed"), number.to_string()).unwrap();
            let from = sender(dir);
            from.make_dir().unwrap();
            for index in (0..SENT).map(|n| 10 * n + 5) {
                write_pages(&from, index, &state(index), &sent_pages(index));
            }
        };
        let (deeds, models) = deeds(number);
        killed_at_each_step("one_that_does_all", 13 * STRIDE, prepare, |dir, n| {
            // The deed in which it was killed is done or not, and never by halves.
            let done = noted(dir) as usize;
            let next = (done + 1).min(deeds.len());
            let more = !are_there(dir, &models[done], n);
            assert!(
                !more || are_there(dir, &models[next], n),
                "step {n} behind deed {done}: {deeds:?}"
            );
            for (at, deed) in deeds.iter().enumerate().skip(done + usize::from(more)) {
                do_it(dir, *deed, &models[at + 1]);
            }
            assert!(are_there(dir, &models[deeds.len()], n), "step {n}: it goes on");
        });
    }
}
