//! The thread that pins what was agreed on: the reactor hands it committed entries, and never waits for it.
//!
//! It ends with the reactor, which waits until all is pinned that was committed. A crash in between loses pins: the next life gets the same entries of the log again.

use super::index::Command as Wanted;
use super::pin::{Pinner, Why};
use super::{Base, fetch};
use crate::base::edition::{Command, Commands, Spec};
use skein_log::LogEntry;
use skein_model::entry::Upgrade;
use skein_model::fact;
use skein_model::{EntryRef, Record, entry};
use skein_replica::editions::Plan;
use skein_sandbox::Program;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// What a program was found by, the program, and the server's working directory.
pub type Found = (Wanted, Program, PathBuf);

/// See the [module](self).
#[derive(Debug)]
pub struct BaseWork {
    /// None while it ends.
    sender: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// An entry that tells when the log began has been seen.
    knows_begin: bool,
}

enum Job {
    Program(Box<Found>),
    /// The log's first entry for a server: seconds and nanoseconds of its stamp.
    Begun(i64, u32),
    Facts(bytes::Bytes),
    /// An edition of the server may begin soon: what it needs is got.
    Stage(String),
    /// An image is of this edition.
    Hold(String),
    /// All editions have been named that images or the log need.
    Known,
    /// What follows is for servers of this edition.
    Follow(String),
    /// An edition begins: its number, and its entry.
    Edition(String, u64, u64),
}

impl BaseWork {
    /// Starts it. A program is pinned first.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(base: Arc<Base>, program: Option<Found>) -> std::io::Result<Self> {
        let (sender, jobs) = channel();
        let thread = Builder::new().name("skein-base".into()).spawn(move || run(&base, &jobs))?;
        let work = Self { sender: Some(sender), thread: Some(thread), knows_begin: false };
        if let Some(found) = program {
            work.tell(Job::Program(Box::new(found)));
        }
        Ok(work)
    }

    fn tell(&self, job: Job) {
        if let Some(sender) = &self.sender {
            // It ends with this sender, not before.
            let _ = sender.send(job);
        }
    }

    /// An entry is committed.
    pub fn committed(&mut self, entry: &LogEntry) {
        if entry::upgrades(&entry.payload) {
            self.upgrades(entry);
        }
        if !self.knows_begin {
            self.began(&entry.payload);
        }
        if entry::answers(&entry.payload).is_some() {
            self.tell(Job::Facts(entry.payload.clone()));
        }
    }

    fn upgrades(&mut self, entry: &LogEntry) {
        let Ok(parsed) = EntryRef::parse(&entry.payload) else { return };
        for record in parsed.records() {
            let Record::Upgrade { edition, step, plan } = record else { continue };
            let Some(plan) = Plan::decode(plan) else { continue };
            match step {
                Upgrade::Asked => self.tell(Job::Stage(plan.about)),
                Upgrade::Begun { .. } => {
                    self.tell(Job::Edition(plan.about, edition, entry.index.0));
                    // Its servers' clock begins with this entry.
                    self.knows_begin = false;
                }
                Upgrade::Kept | Upgrade::GivenUp => {}
            }
        }
    }

    /// The log, as far as it is here, begins with servers of this edition.
    pub fn follow(&self, about: &str) {
        self.tell(Job::Follow(about.to_owned()));
    }

    /// An image here is of this edition.
    pub fn hold(&self, about: &str) {
        self.tell(Job::Hold(about.to_owned()));
    }

    /// The log has been read, and all images are [held](Self::hold): bases of other editions go.
    pub fn log_is_read(&self) {
        self.tell(Job::Known);
    }

    /// The log's first entry for a server, also of a log that has forgotten it: from an image.
    pub fn began(&mut self, entry: &[u8]) {
        let Ok(parsed) = EntryRef::parse(entry) else { return };
        if parsed.records().any(|record| matches!(record, Record::Start(_))) {
            self.knows_begin = true;
            let ns = parsed.wall().0;
            let (s, ns) = ((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32);
            self.tell(Job::Begun(s, ns));
        }
    }
}

impl Drop for BaseWork {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(event = "base_unwritten", error = "the thread that writes it panicked");
        }
    }
}

fn run(main: &Base, jobs: &Receiver<Job>) {
    if let Err(error) = main.tidy() {
        tracing::warn!(event = "base_not_tidied", %error, "objects that nothing names stay");
    }
    let mut begun = None;
    // That of the edition whose facts come; none while it cannot be had: nothing is pinned then.
    let mut other: Option<Option<Base>> = None;
    let mut needed = BTreeSet::new();
    while let Ok(first) = jobs.recv() {
        let mut next = Some(first);
        while let Some(job) = next.take() {
            if let Job::Hold(about) | Job::Stage(about) | Job::Edition(about, ..) = &job {
                needed.extend(Spec::decode(about).ok().map(|spec| spec.base));
            }
            match job {
                Job::Hold(_) => {}
                Job::Known => {
                    if let Err(error) = main.keep_editions(&needed) {
                        tracing::warn!(event = "base_not_tidied", %error, "bases that nothing needs stay");
                    }
                }
                Job::Stage(about) => drop(edition(main, &about)),
                Job::Follow(about) => other = edition(main, &about),
                Job::Edition(about, number, since) => {
                    other = edition(main, &about);
                    note_commands(main, &about, number, since);
                }
                job => match &other {
                    None => next = pin_all(main, &mut begun, job, jobs),
                    Some(Some(base)) => next = pin_all(base, &mut begun, job, jobs),
                    Some(None) => {}
                },
            }
        }
    }
}

/// The base of an edition: `None` is the main one.
fn edition(main: &Base, about: &str) -> Option<Option<Base>> {
    if about.is_empty() {
        return None;
    }
    let found = Spec::decode(about).and_then(|spec| fetch::edition(main, spec.base));
    if let Err(error) = &found {
        tracing::warn!(event = "edition_not_staged", %error);
    }
    Some(found.ok())
}

/// For the next start, whose configuration may name either command.
fn note_commands(main: &Base, about: &str, number: u64, since: u64) {
    let Some(config) = main.node() else { return };
    let first = Command::of(&config.server);
    let current = match about {
        "" => Ok((first.clone(), None)),
        about => Spec::decode(about).map(|spec| (spec.command, Some(spec.base))),
    };
    let written = current.and_then(|(current, base)| {
        Commands { first, current, number, since, base }.write(&config.data_dir)
    });
    if let Err(error) = written {
        tracing::warn!(event = "edition_not_noted", %error);
    }
}

/// Pins what comes for one base; answers the job that is none of its.
fn pin_all(
    base: &Base,
    begun: &mut Option<(i64, u32)>,
    first: Job,
    jobs: &Receiver<Job>,
) -> Option<Job> {
    let mut pinner = Pinner::new(base.objects(), (*base.index()).clone(), *begun);
    let mut rest = None;
    for job in std::iter::once(first).chain(jobs.try_iter()) {
        match job {
            Job::Begun(s, ns) => {
                *begun = Some((s, ns));
                pinner.log_begun(s, ns);
            }
            Job::Program(found) => {
                let (command, program, cwd) = *found;
                if let Err(why) = pinner.program(&command, &program, &cwd) {
                    not_pinned(&program.path, &why);
                }
            }
            Job::Facts(entry) => pin(&mut pinner, &entry),
            other => {
                rest = Some(other);
                break;
            }
        }
    }
    if pinner.changed
        && let Err(error) = base.objects().sync().and_then(|()| base.set(pinner.index))
    {
        tracing::warn!(
            event = "base_unwritten", %error,
            "what the server uses of this host stays where it is; the base is written with the next use"
        );
    }
    rest
}

fn pin(pinner: &mut Pinner<'_>, entry: &[u8]) {
    let Ok(entry) = EntryRef::parse(entry) else { return };
    for record in entry.records() {
        let Record::Files { facts, .. } = record else { continue };
        for fact in fact::facts(facts) {
            if let Err(why) = pinner.fact(&fact) {
                let path = String::from_utf8_lossy(fact.path).into_owned();
                not_pinned(Path::new(&path), &why);
            }
        }
    }
}

fn not_pinned(path: &Path, why: &Why) {
    if let Why::Because(why) = why {
        tracing::info!(event = "not_pinned", path = %path.display(), why);
    }
}
