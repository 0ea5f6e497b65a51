//! Continues guests from images: a guest runs as a follower up to an entry, an image of it is taken there, and other processes continue from that.

use crate::catalogue::{self, Guest};
use crate::compare;
use crate::head::Image;
use crate::images::Images;
use crate::launch::Launch;
use crate::node::{Node, ORDINARY, Role};
use crate::runner::{self, How, Output, Run, tail};
use skein_image::MemoryError;
use skein_image::take::Figures;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The files in a guest's own directories.
struct Files(PathBuf);

impl Files {
    const DIRECTORIES: [&str; 2] = ["mnt", "dev/shm"];

    /// Copies those of the guest below `init`.
    fn of(init: u32) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("skein-guest-{}-{number}", std::process::id());
        let files = Self(std::env::temp_dir().join(name));
        for name in Self::DIRECTORIES {
            fs::create_dir_all(files.0.join(name))?;
            copy(&Path::new("/proc").join(format!("{init}/root")).join(name), &files.0.join(name))?;
        }
        Ok(files)
    }

    /// Their paths in the guest.
    fn paths(&self) -> io::Result<BTreeSet<PathBuf>> {
        let mut paths = BTreeSet::new();
        let mut directories: Vec<PathBuf> = Self::DIRECTORIES.map(|name| self.0.join(name)).into();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    directories.push(entry.path());
                }
                let path = entry.path();
                let path = path.strip_prefix(&self.0).map_err(io::Error::other)?;
                paths.insert(Path::new("/").join(path));
            }
        }
        Ok(paths)
    }

    /// Copies them to another guest, which has not begun to work.
    fn give(&self, init: u32) -> io::Result<()> {
        for name in Self::DIRECTORIES {
            copy(&self.0.join(name), &Path::new("/proc").join(format!("{init}/root")).join(name))?;
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other("a guest's files cannot be copied"))
    }
}

/// How a guest got past an entry at which an image was to be taken of it.
#[derive(Debug)]
pub enum Came {
    /// Other processes continued from the image: output of both together, the image's size, and the time until the guest stood again.
    Continued(Box<Run>, Figures, Duration),
    /// The image cannot hold it.
    Refused(String),
    /// It ended before.
    Ended,
}

/// Runs a guest as a follower of this log, and continues from an image of it at entry `at`.
///
/// # Errors
/// It cannot be started or restored.
pub fn at(
    program: &Path,
    args: &[String],
    library: &Path,
    log: &[Vec<u8>],
    at: u64,
    no_cpuid_faulting: bool,
) -> io::Result<Came> {
    let first = Output::new()?;
    let launch = Launch { no_cpuid_faulting, ..first.launch(program, args) };
    let mut node = Node::start(&launch, library, Role::Follower(Vec::new()))?;
    if !node.stand(log, at)? {
        return Ok(Came::Ended);
    }
    let files = Files::of(node.init())?;
    let (image, figures) = match node.image([launch.stdout, launch.stderr], files.paths()?)? {
        Ok(image) => image,
        Err(MemoryError::CannotHold(why)) => return Ok(Came::Refused(why)),
        Err(e) => return Err(io::Error::other(e)),
    };
    let mut frames = node.frames();
    let (mut stdout, mut stderr) = first.texts()?;
    let second = Output::new()?;
    let restore = Some(image.as_fd());
    let launch = Launch { restore, no_cpuid_faulting, ..second.launch(program, args) };
    let began = Instant::now();
    // The first one stays where it stands meanwhile, so that the kernel numbers the other's files anew.
    let _stands = node;
    let mut node = Node::start(&launch, library, Role::Follower(Vec::new()))?;
    if let Err(e) = node.restored(log, at, |init| files.give(init)) {
        drop(node);
        let (_, stderr) = second.texts()?;
        return Err(io::Error::other(format!("{e}: {}", tail(&stderr))));
    }
    let took = began.elapsed();
    let mut account = node.run(false)?;
    frames.append(&mut account.frames);
    account.frames = frames;
    let (out, err) = second.texts()?;
    stdout.extend(out);
    stderr.extend(err);
    let run = Run { stdout, stderr, account, trace: None };
    Ok(Came::Continued(Box::new(run), figures, took))
}

/// The first difference of a run from `leader`, whose log it had, when other processes continue from an image at entry `index`.
///
/// # Errors
/// It cannot be started.
pub fn judge(
    guest: &Guest,
    library: &Path,
    leader: &Run,
    index: u64,
    no_cpuid_faulting: bool,
) -> io::Result<Result<String, String>> {
    let log = &leader.account.log;
    let (program, args) = (&guest.program, guest.head.arguments());
    let came = match at(program, &args, library, log, index, no_cpuid_faulting) {
        Ok(came) => came,
        Err(e) => return Ok(Err(format!("restored at {index}: {e}"))),
    };
    let (run, figures, took) = match (came, &guest.head.image) {
        (Came::Ended, _) => return Ok(Ok("ended before".into())),
        (Came::Refused(why), Image::Refused(word)) if why.contains(word) => {
            return Ok(Ok(format!("refused: {why}")));
        }
        (Came::Refused(why), _) => return Ok(Err(format!("no image at {index}: {why}"))),
        (Came::Continued(run, figures, took), _) => (run, figures, took),
    };
    let name = format!("restored at {index} of {}", log.len());
    let texts = |what, left, right| compare::text(what, ("leader", left), (&name, right));
    let difference = (run.account.end != leader.account.end)
        .then(|| format!("{name}: ends with {:?}", run.account.end))
        .or_else(|| texts("standard output", &leader.stdout, &run.stdout))
        .or_else(|| texts("standard error", &leader.stderr, &run.stderr))
        .or_else(|| {
            let (left, right) = (&leader.account.frames, &run.account.frames);
            compare::frames(("leader", left), (&name, right))
        });
    let Figures { processes, mappings, pages } = figures;
    Ok(difference.map_or_else(
        || Ok(format!("{processes} processes, {mappings} mappings, {pages} pages, {took:?}")),
        Err,
    ))
}

/// Continues the guests that `words` select from images at `count` entries of each. Answers whether all went on as they should.
///
/// # Errors
/// A guest cannot be built or run.
pub fn all(count: u64, words: &[String]) -> io::Result<bool> {
    let images = Images::build()?;
    let mut alike = true;
    for guest in catalogue::all(&images.sources, &images.guests)? {
        if !words.is_empty() && !words.iter().any(|word| guest.is_meant_by(word)) {
            continue;
        }
        let (program, args) = (&guest.program, guest.head.arguments());
        let role = Role::Leader(guest.head.script.clone().unwrap_or_default(), ORDINARY);
        let leader = runner::skein(program, &args, &images.library, role, How::default())?;
        let last = leader.account.log.len() as u64;
        for n in 0..count.min(last.saturating_sub(2)) {
            let index = 2 + (last - 2) * n / count;
            match judge(&guest, &images.library, &leader, index, false)? {
                Ok(line) => println!("alike   {:28} at {index} of {last}: {line}", guest.name),
                Err(why) => {
                    alike &= matches!(guest.head.image, Image::NotYet(_));
                    println!("DIFFERS {:28} at {index} of {last}: {why}", guest.name);
                }
            }
        }
    }
    Ok(alike)
}
