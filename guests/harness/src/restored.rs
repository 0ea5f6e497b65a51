//! Continues guests from images: a guest runs as a follower up to an entry, an image of it is taken there, and other processes continue from that.

use crate::catalogue::{self, Guest};
use crate::chain::{Chain, Reading};
use crate::compare;
use crate::head::Image;
use crate::images::Images;
use crate::launch::Launch;
use crate::node::{Account, Node, ORDINARY, Role};
use crate::runner::{self, How, Output, Run, tail};
use crate::started::Files;
use skein_image::MemoryError;
use skein_image::restore_file;
use skein_image::take::Figures;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How a guest got past an entry at which an image was to be taken of it.
#[derive(Debug)]
pub enum Came {
    /// Other processes continued from the image.
    Continued(Box<Onward>),
    /// The image cannot hold it.
    Refused(String),
    /// It ended before.
    Ended,
}

/// A guest that continued from images.
#[derive(Debug)]
pub struct Onward {
    /// Output of all together.
    pub run: Run,
    /// The last image's size,
    pub figures: Figures,
    /// and the time until the guest stood again.
    pub took: Duration,
    /// The hash of all memory that each image has, at its entry.
    pub roots: Vec<(u64, u64)>,
}

/// Runs a guest as a follower of this log, and continues from an image of it at each of these entries, after `meanwhile`.
///
/// # Errors
/// It cannot be started or restored.
pub fn at(
    program: &Path,
    args: &[String],
    library: &Path,
    log: &[Vec<u8>],
    entries: &[u64],
    how: How<'_>,
    meanwhile: impl Fn() -> io::Result<()>,
) -> io::Result<Came> {
    let How { no_cpuid_faulting, sandbox, .. } = how;
    let mut output = Output::new()?;
    let launch = Launch { no_cpuid_faulting, sandbox, ..output.launch(program, args) };
    let mut node = Node::start(&launch, library, Role::Follower(Vec::new()))?;
    let (mut frames, mut stdout, mut stderr) = (Vec::new(), Vec::new(), Vec::new());
    // What the image before knows of the host's files, and its entry.
    let (mut known, mut since) = (BTreeSet::new(), 0);
    let (mut taken, mut roots) = (None, Vec::new());
    for at in entries.iter().copied() {
        if !node.stand(log, at)? {
            return Ok(Came::Ended);
        }
        let files = Files::of(node.guest())?;
        known.extend(files.paths()?);
        let launch = output.launch(program, args);
        let given = [launch.stdout, launch.stderr];
        let reading = if sandbox.is_some() { Reading::Forked } else { Reading::Watched };
        let image = node.image(given, known, since, reading)?;
        let (image, figures) = match image {
            Ok(image) => image,
            Err(MemoryError::CannotHold(why)) => return Ok(Came::Refused(why)),
            Err(e) => return Err(io::Error::other(e)),
        };
        // How much one that asks about its host's files has read of an answer meanwhile is not the same each time.
        roots.extend(node.root.filter(|_| !node.is_asking()).map(|root| (at, root)));
        (known, since) = (restore_file::paths(&image).map_err(io::Error::other)?, at);
        meanwhile()?;
        frames.append(&mut node.frames());
        let next = Output::new()?;
        let launch = next.launch(program, args);
        let restore = Some(image.as_fd());
        let launch = Launch { restore, no_cpuid_faulting, sandbox, ..launch };
        let began = Instant::now();
        // The one before stays where it stands meanwhile, so that the kernel numbers the other's files anew.
        let stands =
            std::mem::replace(&mut node, Node::start(&launch, library, Role::Follower(vec![]))?);
        if let Err(e) = node.restored(log, at, |guest| files.give(guest)) {
            drop(node);
            let (_, stderr) = next.texts()?;
            return Err(io::Error::other(format!("{e}: {}", tail(&stderr))));
        }
        taken = Some((figures, began.elapsed()));
        drop(stands);
        let (out, err) = std::mem::replace(&mut output, next).texts()?;
        stdout.extend(out);
        stderr.extend(err);
    }
    let (figures, took) = taken.ok_or_else(|| io::Error::other("no entry is named"))?;
    let mut account = node.run(false)?;
    frames.append(&mut account.frames);
    account.frames = frames;
    let (out, err) = output.texts()?;
    stdout.extend(out);
    stderr.extend(err);
    let run = Run { stdout, stderr, account, trace: None };
    Ok(Came::Continued(Box::new(Onward { run, figures, took, roots })))
}

/// Pages of an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    /// It had these itself.
    pub own: usize,
    /// They were read before it,
    pub before: usize,
    /// and of what processes share these.
    pub shared_before: usize,
    /// Of files, it had these from one before.
    pub of_files: usize,
    /// Copies of the guest's processes did without them.
    pub spared: u64,
}

/// Takes images of a guest in a row, at each of these entries, and each a second time as if it were the first. Answers how many pages each had, or the first
/// difference between the two, or between what the guest then does and what it did without; `None`: an image cannot hold it.
///
/// # Errors
/// It cannot be started or read.
pub fn in_a_row(
    guest: &Guest,
    library: &Path,
    leader: &Run,
    entries: &[u64],
    reading: Reading,
    how: How<'_>,
) -> io::Result<Option<Result<Vec<Pages>, String>>> {
    let How { no_cpuid_faulting, sandbox, .. } = how;
    let log = &leader.account.log;
    let (output, args) = (Output::new()?, guest.head.arguments());
    let launch = Launch { no_cpuid_faulting, sandbox, ..output.launch(&guest.program, &args) };
    let given = [launch.stdout, launch.stderr];
    let mut node = Node::start(&launch, library, Role::Follower(Vec::new()))?;
    let mut fresh = Vec::new();
    for at in entries.iter().copied() {
        let stands = match reading {
            Reading::Precopied => node.stand_precopied(log, at)?,
            _ => node.stand(log, at)?,
        };
        if !stands {
            let (stdout, stderr) = output.texts()?;
            let said = [tail(&stdout), tail(&stderr)].join(" ");
            return Ok(Some(Err(format!("it ends before entry {at}, after images: {said}"))));
        }
        let paths = Files::of(node.guest())?.paths()?;
        let mut bytes = [Vec::new(), Vec::new()];
        let mut roots = Vec::new();
        let (mut spared, mut shared_before) = (0, 0);
        // The whole one first: the kernel may join mappings when it begins to watch them.
        for (reading, bytes) in [Reading::Whole, reading].into_iter().zip(&mut bytes) {
            let (mut file, figures) = match node.image(given, paths.clone(), 0, reading)? {
                Ok(taken) => taken,
                Err(MemoryError::CannotHold(_)) => return Ok(None),
                Err(e) => return Err(io::Error::other(e)),
            };
            file.rewind()?;
            file.read_to_end(bytes)?;
            spared += figures.spared;
            shared_before += figures.shared_before;
            roots.push(node.root);
        }
        let Chain { fresh: own, read_before: before, known: of_files, .. } = node.chain;
        fresh.push(Pages { own, before, shared_before, of_files, spared });
        // The carrier's own stack is another one when its process forks.
        let place = match reading {
            Reading::Forked => (roots[0] != roots[1]).then_some(0),
            _ => compare::bytes(&bytes[0], &bytes[1]),
        };
        if let Some(place) = place {
            return Ok(Some(Err(format!("the image of entry {at} differs at {place:#x}"))));
        }
    }
    // Nothing of it is seen by the guest.
    let account = node.follow(log)?;
    let (stdout, stderr) = output.texts()?;
    let run = Run { stdout, stderr, account, trace: None };
    Ok(Some(difference(leader, &run, "after images").map_or(Ok(fresh), Err)))
}

/// The first difference of two runs of a guest.
fn difference(leader: &Run, run: &Run, name: &str) -> Option<String> {
    let texts = |what, left, right| compare::text(what, ("leader", left), (name, right));
    let Account { end, advice, .. } = &run.account;
    let ends = (*end != leader.account.end).then(|| {
        let last = advice.last().map_or("without a word", |last| last);
        format!("{name}: ends with {end:?}, {last}")
    });
    ends.or_else(|| texts("standard output", &leader.stdout, &run.stdout))
        .or_else(|| texts("standard error", &leader.stderr, &run.stderr))
        .or_else(|| {
            let (left, right) = (&leader.account.frames, &run.account.frames);
            compare::frames(("leader", left), (name, right))
        })
}

/// Images in a row that were what whole ones are, and how many of their pages were not read of a guest that stood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    /// Guests with such images,
    pub guests: u64,
    /// and the images, read in all ways.
    pub images: u64,
    /// Copies of its processes did without them.
    pub spared: u64,
    /// They were read before.
    pub read_before: u64,
    /// The same of what processes share.
    pub shared_before: u64,
}

/// Takes up to `count` images in a row of each guest that `words` select. `None`: not all are what whole ones are.
///
/// # Errors
/// A guest cannot be built or run.
pub fn rows(
    images: &Images,
    count: u64,
    words: &[String],
    how: How<'_>,
) -> io::Result<Option<Rows>> {
    let (mut rows, mut alike) = (Rows::default(), true);
    for guest in catalogue::all(&images.sources, &images.guests)? {
        if !words.is_empty() && !words.iter().any(|word| guest.is_meant_by(word)) {
            continue;
        }
        let role = Role::Leader(guest.head.script.clone().unwrap_or_default(), ORDINARY);
        let args = guest.head.arguments();
        let leader = runner::skein(&guest.program, &args, &images.library, role, how)?;
        let last = leader.account.log.len() as u64;
        let count = count.min(last.saturating_sub(2));
        let entries: Vec<u64> = (0..count).map(|n| 2 + (last - 2) * n / count).collect();
        if entries.is_empty() {
            // It gets so few entries that none is left to take an image at: one that spins for ever, for example.
            continue;
        }
        let readings: &[Reading] = match how.sandbox {
            Some(_) => &[Reading::Forked],
            None => &[Reading::Watched, Reading::Precopied, Reading::Compared],
        };
        let mut is_alike = false;
        for reading in readings.iter().copied() {
            match in_a_row(&guest, &images.library, &leader, &entries, reading, how)? {
                None => {}
                Some(Ok(pages)) => {
                    println!("alike   {:28} {reading:?}: {pages:?}", guest.name);
                    is_alike = true;
                    for one in &pages {
                        rows.images += 1;
                        rows.spared += one.spared;
                        rows.read_before += one.before as u64;
                        rows.shared_before += one.shared_before as u64;
                    }
                }
                Some(Err(why)) => {
                    alike = false;
                    println!("DIFFERS {:28} {reading:?}: {why}", guest.name);
                }
            }
        }
        rows.guests += u64::from(is_alike);
    }
    println!("{rows:?}");
    Ok(alike.then_some(rows))
}

/// The same in the sandbox, from copies of the guests' processes.
///
/// # Errors
/// As for [`rows`].
pub fn rows_of_forks(images: &Images, count: u64, words: &[String]) -> io::Result<Option<Rows>> {
    let directory = tempfile::Builder::new().prefix("skein-guest").tempdir()?;
    rows(images, count, words, How { sandbox: Some(directory.path()), ..How::default() })
}

/// What became of a guest that was to continue from images.
#[derive(Clone, Debug)]
pub struct Went {
    /// Other processes continued from them.
    pub continued: bool,
    /// How often its memory was compared.
    pub compared: u64,
    /// In words.
    pub how: String,
}

/// What a guest did when other processes were to continue from an image at each of these entries; or its first difference from `leader`, whose log it had, or from the memory that it had before
/// at an entry, which `roots` has.
///
/// # Errors
/// It cannot be started.
fn judge(
    guest: &Guest,
    library: &Path,
    leader: &Run,
    entries: &[u64],
    roots: &mut BTreeMap<u64, u64>,
    how: How<'_>,
) -> io::Result<Result<Went, String>> {
    let went = |continued, compared, how| Ok(Ok(Went { continued, compared, how }));
    let log = &leader.account.log;
    let (program, args) = (&guest.program, guest.head.arguments());
    let came = match at(program, &args, library, log, entries, how, || Ok(())) {
        Ok(came) => came,
        Err(e) => return Ok(Err(format!("restored at {entries:?}: {e}"))),
    };
    let onward = match (came, &guest.head.image) {
        (Came::Ended, _) => return went(false, 0, "ended before".into()),
        (Came::Refused(why), Image::Refused(word)) if why.contains(word) => {
            return went(false, 0, format!("refused: {why}"));
        }
        (Came::Refused(why), _) => return Ok(Err(format!("no image at {entries:?}: {why}"))),
        (Came::Continued(..), Image::Refused(word)) => {
            return Ok(Err(format!("an image at {entries:?}, and not refused: {word}")));
        }
        (Came::Continued(onward), _) => onward,
    };
    let Onward { run, figures, took, roots: found } = *onward;
    let name = format!("restored at {entries:?} of {}", log.len());
    let difference = difference(leader, &run, &name);
    let Figures { processes, mappings, pages, .. } = figures;
    if let Some(difference) = difference {
        return Ok(Err(difference));
    }
    let mut compared = 0;
    for (at, root) in found {
        match roots.insert(at, root) {
            Some(before) if before != root => {
                return Ok(Err(format!("{name}: its memory at entry {at} is another one")));
            }
            before => compared += u64::from(before.is_some()),
        }
    }
    went(
        true,
        compared,
        format!("{processes} processes, {mappings} mappings, {pages} pages, {took:?}"),
    )
}

/// How many went on as they should.
#[derive(Clone, Copy, Debug, Default)]
pub struct Continued {
    /// Guests that were asked for,
    pub guests: u64,
    /// those of them that continued from an image at least,
    pub continued: u64,
    /// how often they did,
    pub times: u64,
    /// and how often one's memory, behind an image before, was compared with that of one that never stopped.
    pub compared: u64,
}

/// Continues the guests that `words` select from images at `count` entries of each; and once more through images at all of these entries, each of a guest that continues from the one
/// before, and has the memory there of one that never stopped. `None`: not all went on as they should.
///
/// # Errors
/// A guest cannot be built or run.
pub fn all(count: u64, words: &[String]) -> io::Result<Option<Continued>> {
    these(&Images::build()?, count, words, How::default())
}

/// The same in the sandbox of servers, with programs that are there already.
///
/// # Errors
/// As for [`all`].
pub fn in_sandbox(images: &Images, count: u64, words: &[String]) -> io::Result<Option<Continued>> {
    let directory = tempfile::Builder::new().prefix("skein-guest").tempdir()?;
    these(images, count, words, How { sandbox: Some(directory.path()), ..How::default() })
}

fn these(
    images: &Images,
    count: u64,
    words: &[String],
    how: How<'_>,
) -> io::Result<Option<Continued>> {
    let (mut alike, mut all_guests) = (true, Continued::default());
    for guest in catalogue::all(&images.sources, &images.guests)? {
        if !words.is_empty() && !words.iter().any(|word| guest.is_meant_by(word)) {
            continue;
        }
        let (program, args) = (&guest.program, guest.head.arguments());
        let role = Role::Leader(guest.head.script.clone().unwrap_or_default(), ORDINARY);
        let leader = runner::skein(program, &args, &images.library, role, how)?;
        let last = leader.account.log.len() as u64;
        let mut entries: Vec<u64> =
            (0..count.min(last.saturating_sub(2))).map(|n| 2 + (last - 2) * n / count).collect();
        entries.dedup();
        let all = Some(entries.clone()).filter(|all| all.len() > 1);
        let (mut times, mut roots) = (0, BTreeMap::new());
        for entries in entries.into_iter().map(|index| vec![index]).chain(all) {
            match judge(&guest, &images.library, &leader, &entries, &mut roots, how)? {
                Ok(Went { continued, compared, how }) => {
                    times += u64::from(continued);
                    // The first of a row never stopped before.
                    all_guests.compared += compared.saturating_sub(1);
                    println!("alike   {:28} at {entries:?} of {last}: {how}", guest.name);
                }
                Err(why) => {
                    alike &= matches!(guest.head.image, Image::NotYet(_));
                    println!("DIFFERS {:28} at {entries:?} of {last}: {why}", guest.name);
                }
            }
        }
        all_guests.guests += 1;
        all_guests.continued += u64::from(times > 0);
        all_guests.times += times;
    }
    println!("{all_guests:?}");
    Ok(alike.then_some(all_guests))
}
