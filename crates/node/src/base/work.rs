//! The thread that pins what was agreed on: the reactor hands it committed entries, and never waits for it. It also removes what no edition needs any more.
//!
//! It ends with the reactor, which waits until all is pinned that was committed, but for large files ([`super::slow`]): these are gone on with in the next life ([`super::late`]).
//! A crash in between loses pins here: the next life takes them from the others ([`super::behind`]), as it does where a log was replaced behind another replica's image. They are not made
//! again from the log: the host's files may be others by then.

use super::index::Command as Wanted;
use super::late::Late;
use super::needed::Needed;
use super::pin::{Found as Large, Pinner, Why};
use super::slow::Slow;
use super::store::{Digest, Hold};
use super::{Base, behind, fetch};
use crate::base::edition::{Command, Commands, Spec};
use skein_log::LogEntry;
use skein_model::entry::Upgrade;
use skein_model::fact::{self, Fact};
use skein_model::{EntryRef, Record, entry};
use skein_replica::editions::{Edition, Plan};
use skein_replica::server::ServerState;
use skein_sandbox::Program;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// What a program was found by, the program, and the server's working directory.
pub type Found = (Wanted, Program, PathBuf);

/// What others are at, or have and do not give, is tried again so often.
const AGAIN: Duration = Duration::from_secs(5);
/// So many entries wait for the base of their edition.
const UNPINNED_MAX: usize = 4096;

/// The entries of a log that each life gets again: they say for which edition facts are, and when its log began.
#[must_use]
pub fn is_read_again(entry: &[u8]) -> bool {
    entry::upgrades(entry) || entry::starts(entry)
}

/// See the [module](self).
#[derive(Debug)]
pub struct BaseWork {
    /// None while it ends.
    sender: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    base: Arc<Base>,
    /// An entry that tells when the log began has been seen.
    knows_begin: bool,
}

enum Job {
    Program(Box<Found>),
    /// The log's first entry for a server: seconds and nanoseconds of its stamp.
    Begun(i64, u32),
    Facts(bytes::Bytes),
    /// An edition of the server may begin soon, since this entry: what it needs is got.
    Stage(String, u64),
    /// The image of this entry is of this edition.
    Hold(String, u64),
    /// The log has been read, and images have been named.
    Known,
    /// The log has forgotten all up to this entry, durably.
    Forgot(u64),
    /// A large file was read.
    Read(Box<(Large, Hold)>),
    /// The node ends.
    End,
    /// What follows this entry is for servers of this edition. With a number, entries before it went by here, and it was demanded so often to catch up.
    Follow(Box<Edition>, u64, Option<u64>),
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
        let back = sender.clone();
        let tell = move |large, hold| {
            // The other side is gone when the node ends: its contents are named by nothing.
            let _ = back.send(Job::Read(Box::new((large, hold))));
        };
        let slow = Slow::start(base.clone(), tell)?;
        let own = base.clone();
        let run = move || Work::new(&own, slow).run(&jobs);
        let thread = Builder::new().name("skein-base".into()).spawn(run)?;
        let (sender, thread) = (Some(sender), Some(thread));
        let work = Self { sender, thread, base, knows_begin: false };
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
                Upgrade::Asked => self.tell(Job::Stage(plan.about, entry.index.0)),
                Upgrade::Begun { .. } => {
                    self.tell(Job::Edition(plan.about, edition, entry.index.0));
                    // Its servers' clock begins with this entry.
                    self.knows_begin = false;
                }
                Upgrade::Kept | Upgrade::GivenUp => {}
            }
        }
    }

    /// A server can begin behind an image with this state, and nowhere before: what its edition needs is got, also where no server runs yet. `anew`: the log was replaced by
    /// what begins there.
    pub fn begins_behind(&mut self, state: &ServerState, anew: bool) {
        let demanded = anew.then(|| self.base.is_behind());
        self.tell(Job::Follow(Box::new(state.edition.clone()), state.index.0, demanded));
        self.began(&state.start);
    }

    /// The image of this entry is of this edition.
    pub fn hold(&self, about: &str, entry: u64) {
        self.tell(Job::Hold(about.to_owned(), entry));
    }

    /// The log has forgotten all up to this entry, durably: what only that needed goes.
    pub fn log_forgot(&self, entry: u64) {
        self.tell(Job::Forgot(entry));
    }

    /// The log has been read, and all images are [held](Self::hold): large files that wait are gone on with.
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
        // What it is getting from others would take long.
        self.base.objects().leave();
        self.tell(Job::End);
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(event = "base_unwritten", error = "the thread that writes it panicked");
        }
    }
}

/// What the thread has.
struct Work<'a> {
    main: &'a Base,
    beside: Beside,
    begun: Option<(i64, u32)>,
    /// That of the edition whose facts come; none while it cannot be had: nothing is pinned then.
    other: Option<Option<Base>>,
    /// What that edition is.
    about: String,
    /// Its facts while it cannot be had.
    unpinned: Vec<bytes::Bytes>,
    /// Others may have pinned more.
    is_behind: bool,
    /// That many demands to catch up with them have come here.
    demanded: u64,
    /// Facts about large files, for that base.
    late: Option<Late>,
    /// Large files that were read, and what keeps their contents until they are pinned.
    read: Vec<(Large, Hold)>,
    needed: Needed,
    /// The log and the images have been read.
    has_begun: bool,
    /// The log has forgotten something in this life: by then it has handed out what names editions. At a start it may have an upgrade that it does not know to be committed.
    has_forgotten: bool,
    /// Something may be removed.
    is_untidy: bool,
    /// When what could not be done is tried again.
    again: Option<Instant>,
}

/// What is not pinned at once.
struct Beside {
    /// Reads large files.
    slow: Slow,
    /// Paths of which it was said that there is no room for them.
    said: BTreeSet<PathBuf>,
}

impl<'a> Work<'a> {
    fn new(main: &'a Base, slow: Slow) -> Self {
        let beside = Beside { slow, said: BTreeSet::new() };
        let late = Some(Late::read(&main.dir, &main.name));
        let (begun, other, read, needed) = (None, None, Vec::new(), Needed::default());
        Self {
            main,
            beside,
            begun,
            other,
            about: String::new(),
            unpinned: Vec::new(),
            is_behind: true,
            demanded: main.demanded(),
            late,
            read,
            needed,
            has_begun: false,
            has_forgotten: false,
            is_untidy: true,
            again: None,
        }
    }

    fn run(mut self, jobs: &Receiver<Job>) {
        self.tidy();
        while let Some(first) = self.next(jobs) {
            let mut next = Some(first);
            while let Some(job) = next.take() {
                match job {
                    Job::End => return,
                    Job::Hold(about, entry) => {
                        self.named(&about, |needed, base| needed.has_image(entry, base));
                    }
                    Job::Known => {
                        self.has_begun = true;
                        self.catch_up();
                        self.pin_late();
                    }
                    Job::Forgot(entry) => {
                        if self.needed.log_forgot(entry) {
                            self.main.forget_launched();
                        }
                        (self.has_forgotten, self.is_untidy) = (true, true);
                    }
                    Job::Read(read) => {
                        self.beside.slow.told(&read.0);
                        self.read.push(*read);
                        self.pin_late();
                    }
                    Job::Stage(about, entry) => {
                        self.named(&about, |needed, base| needed.is_asked(entry, base));
                        drop(edition(self.main, &about));
                    }
                    Job::Follow(edition, entry, demanded) => {
                        let base = Spec::decode(&edition.about).ok().map(|spec| spec.base);
                        self.needed.follow(entry, base);
                        self.follow(&edition.about);
                        if is_news(self.main, &edition) {
                            note_commands(self.main, &edition);
                        }
                        if let Some(demanded) = demanded {
                            self.demanded = demanded;
                            behind::note(self.main);
                        }
                        self.is_behind = true;
                        self.catch_up();
                    }
                    Job::Edition(about, number, since) => {
                        let base = Spec::decode(&about).ok().map(|spec| spec.base);
                        self.needed.begins(since, base);
                        self.named(&about, |_, _| {});
                        self.follow(&about);
                        self.is_behind |= !self.has_begun;
                        note_commands(self.main, &Edition { number, since, about });
                    }
                    job => next = self.pin_all(job, jobs),
                }
            }
            self.tidy();
        }
    }

    /// The next job; `None`: the node is gone.
    fn next(&mut self, jobs: &Receiver<Job>) -> Option<Job> {
        loop {
            let lacks = self.base().is_none();
            if !self.is_untidy && !self.is_behind && !lacks {
                return jobs.recv().ok();
            }
            // Jobs that come meanwhile do not put it off.
            let again = *self.again.get_or_insert_with(|| Instant::now() + AGAIN);
            let job = jobs.recv_timeout(again.saturating_duration_since(Instant::now()));
            if matches!(job, Err(RecvTimeoutError::Disconnected)) {
                return None;
            }
            if Instant::now() >= again {
                self.again = None;
                if lacks {
                    let about = self.about.clone();
                    self.follow(&about);
                }
                self.catch_up();
                self.tidy();
            }
            if let Ok(job) = job {
                return Some(job);
            }
        }
    }

    /// Removes what nothing needs, if there may be something, and nobody is at it.
    fn tidy(&mut self) {
        if !self.is_untidy {
            return;
        }
        let editions = self.needed.editions();
        let knows_all = self.has_begun && self.has_forgotten;
        match self.main.tidy(knows_all.then_some(&editions)) {
            Ok(None) => {}
            Ok(Some(removed)) => {
                self.is_untidy = false;
                if removed > 0 && self.has_begun {
                    // There may be room for others now.
                    self.beside.slow.forget_refused();
                    self.pin_late();
                }
            }
            Err(error) => {
                self.is_untidy = false;
                tracing::warn!(event = "base_not_tidied", %error, "what nothing needs stays");
            }
        }
    }

    /// The log or an image names an edition.
    fn named(&mut self, about: &str, note: impl FnOnce(&mut Needed, Digest)) {
        if let Ok(spec) = Spec::decode(about) {
            note(&mut self.needed, spec.base);
            self.main.awaits_no_more(spec.base);
        }
    }

    /// What follows is for the base of this edition.
    fn follow(&mut self, about: &str) {
        if about != self.about {
            self.unpinned.clear();
        }
        about.clone_into(&mut self.about);
        self.other = edition(self.main, about);
        self.late = self.base().map(|base| Late::read(&base.dir, &base.name));
        if self.late.is_some() {
            let unpinned = std::mem::take(&mut self.unpinned);
            self.pin(|pinner, late, beside| {
                unpinned.iter().for_each(|entry| pin_entry(pinner, entry, late, beside));
            });
        }
        if self.has_begun {
            self.pin_late();
        }
    }

    /// Pins what others have pinned while entries went by here.
    fn catch_up(&mut self) {
        let is_due = self.is_behind && self.has_begun;
        let Some(base) = self.base().filter(|_| is_due) else { return };
        let edition = Spec::decode(&self.about).ok().map(|spec| spec.base);
        if behind::catch_up(base, edition) {
            self.is_behind = false;
            behind::over(self.main, self.demanded);
        }
    }

    /// The base that facts are for.
    fn base(&self) -> Option<&Base> {
        match &self.other {
            None => Some(self.main),
            Some(other) => other.as_ref(),
        }
    }

    /// Pins what was too large before, as far as that is possible by now.
    fn pin_late(&mut self) {
        let none = self.pin(|pinner, late, beside| {
            late.try_all(|fact| pin(pinner, fact, beside));
        });
        if none.is_none() {
            self.is_untidy |= !self.read.is_empty();
            self.read.clear();
        }
    }

    /// Pins what comes for one base; answers the job that is none of its.
    fn pin_all(&mut self, first: Job, jobs: &Receiver<Job>) -> Option<Job> {
        if self.base().is_none() {
            match first {
                Job::Begun(s, ns) => self.begun = Some((s, ns)),
                Job::Facts(entry) if self.unpinned.len() < UNPINNED_MAX => {
                    self.unpinned.push(entry)
                }
                // The others pin what these say.
                Job::Facts(_) => self.is_behind = true,
                _ => {}
            }
            return None;
        }
        let mut begun = self.begun;
        let mut rest = None;
        self.pin(|pinner, late, beside| {
            for job in std::iter::once(first).chain(jobs.try_iter()) {
                match job {
                    Job::Begun(s, ns) => {
                        begun = Some((s, ns));
                        pinner.log_begun(s, ns);
                    }
                    Job::Program(found) => {
                        let (command, program, cwd) = *found;
                        if let Err(why) = pinner.program(&command, &program, &cwd) {
                            not_pinned(&program.path, &why);
                        }
                    }
                    Job::Facts(entry) => pin_entry(pinner, &entry, late, beside),
                    other => {
                        rest = Some(other);
                        break;
                    }
                }
            }
        });
        self.begun = begun;
        rest
    }

    /// Has the current base's pinner do this, and makes what it did durable. `None`: there is no base.
    fn pin(&mut self, act: impl FnOnce(&mut Pinner<'_>, &mut Late, &mut Beside)) -> Option<()> {
        let base = match &self.other {
            None => self.main,
            Some(other) => other.as_ref()?,
        };
        let late = self.late.as_mut()?;
        let mut pinner = Pinner::new(base.objects(), (*base.index()).clone(), self.begun);
        let (found, holds): (Vec<_>, Vec<_>) = self.read.drain(..).unzip();
        let kept: Vec<_> = found
            .iter()
            .filter_map(|one| one.added.as_ref().ok())
            .map(|added| added.digest)
            .collect();
        pinner.found = Some(found);
        act(&mut pinner, late, &mut self.beside);
        let written = match pinner.changed {
            true => base.objects().sync().and_then(|()| base.set(pinner.index)),
            false => Ok(()),
        };
        // Facts that are pinned wait no more, once the index is written.
        let written = written.and_then(|()| late.write());
        let is_written = written.is_ok();
        if let Err(error) = written {
            tracing::warn!(
                event = "base_unwritten", %error,
                "what the server uses of this host stays where it is; the base is written with the next use"
            );
            late.wait_on();
        }
        // The index names them by now, or nothing does. One that could not be written may do so with the next use.
        if is_written && !kept.is_empty() {
            let named = base.index().digests();
            self.is_untidy |= kept.iter().any(|digest| !named.contains(digest));
        }
        drop(holds);
        Some(())
    }
}

/// The base of an edition: `None` is the main one.
fn edition(main: &Base, about: &str) -> Option<Option<Base>> {
    if about.is_empty() {
        return None;
    }
    let found = Spec::decode(about).and_then(|spec| {
        let found = fetch::edition(main, spec.base);
        // More can be pinned for it before the node ends, whatever of it is whole.
        let is_ending = found.is_err() && main.objects().stays().is_err();
        match main.of_edition(spec.base) {
            Ok(base) if is_ending && !base.is_empty() => Ok(base),
            _ => found,
        }
    });
    if let Err(error) = &found {
        tracing::warn!(event = "edition_not_staged", %error);
    }
    Some(found.ok())
}

/// Whether an image's edition began later than the last one that was noted: the log was replaced meanwhile.
fn is_news(main: &Base, edition: &Edition) -> bool {
    let known = main.node().map(|config| Commands::read(&config.data_dir));
    match known {
        None | Some(Err(_)) => false,
        Some(Ok(None)) => !edition.is_first(),
        Some(Ok(Some(known))) => known.since < edition.since,
    }
}

/// For the next start, whose configuration may name either command.
fn note_commands(main: &Base, edition: &Edition) {
    let Some(config) = main.node() else { return };
    let &Edition { number, since, ref about } = edition;
    let first = Command::of(&config.server);
    let current = match about.as_str() {
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

fn pin_entry(pinner: &mut Pinner<'_>, entry: &[u8], late: &mut Late, beside: &mut Beside) {
    let Ok(entry) = EntryRef::parse(entry) else { return };
    for record in entry.records() {
        let Record::Files { facts, .. } = record else { continue };
        for fact in fact::facts(facts) {
            if pin(pinner, &fact, beside) && !late.add(&fact) {
                let why = Why::Because("too many large files wait to be pinned".into());
                not_pinned(Path::new(&*String::from_utf8_lossy(fact.path)), &why);
            }
        }
    }
}

/// Pins what a fact is about. True if that is to be tried again later.
fn pin(pinner: &mut Pinner<'_>, fact: &Fact<'_>, beside: &mut Beside) -> bool {
    let Err(why) = pinner.fact(fact) else { return false };
    if let Some(path) = pinner.wanted.take() {
        beside.slow.read(path);
    }
    let path = PathBuf::from(&*String::from_utf8_lossy(fact.path));
    let is_later = matches!(why, Why::Later | Why::NoRoom(_));
    if !matches!(why, Why::NoRoom(_)) || beside.said.insert(path.clone()) {
        not_pinned(&path, &why);
    }
    is_later
}

fn not_pinned(path: &Path, why: &Why) {
    match why {
        Why::Because(why) | Why::NoRoom(why) => {
            tracing::info!(event = "not_pinned", path = %path.display(), why);
        }
        Why::Kernels | Why::Later => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::index;
    use super::*;
    use skein_model::fact::What;
    use std::fs;

    /// The thread's part of the base of a data directory.
    fn work(base: &Arc<Base>) -> Work<'_> {
        let slow = Slow::start(base.clone(), |_, _| {}).unwrap();
        Work::new(base, slow)
    }

    #[test]
    fn facts_wait_on_while_the_index_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let base = Arc::new(Base::open(&dir.join("data")).unwrap());
        base.objects().make_dir().unwrap();
        let mut work = work(&base);
        let file = dir.join("file");
        fs::write(&file, "here").unwrap();
        let there = Fact::new(What::There, file.as_os_str().as_encoded_bytes());
        work.late.as_mut().unwrap().add(&Fact { kind: libc::DT_REG, ..there });
        let index = base.dir.join(index::FILE);
        fs::create_dir_all(index.join("in the way")).unwrap();
        work.pin_late();
        assert!(base.is_empty());
        fs::remove_dir_all(&index).unwrap();
        work.pin_late();
        assert!(base.index().files.contains_key(&file));
    }

    /// An entry of facts: this file is there.
    fn facts(path: &Path) -> bytes::Bytes {
        let fact = Fact::new(What::There, path.as_os_str().as_encoded_bytes());
        let fact = Fact { kind: libc::DT_REG, ..fact };
        let mut bytes = vec![0; fact.bytes()];
        fact.encode(&mut bytes).unwrap();
        entry_of(Record::Files { ask: 1, facts: &bytes })
    }

    fn entry_of(record: Record<'_>) -> bytes::Bytes {
        let mut entry = skein_model::EntryBuilder::new(Vec::new());
        entry.push(record);
        entry.finish(skein_model::WallNs(1), skein_model::Term(1)).into()
    }

    #[test]
    fn facts_wait_for_the_base_of_their_edition() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let base = Arc::new(Base::open(&dir.join("data")).unwrap());
        base.objects().make_dir().unwrap();
        let file = dir.join("file");
        fs::write(&file, "here").unwrap();
        let digest = Digest([7; 32]);
        let command =
            Command { program: "x".into(), args: Vec::new(), env: Vec::new(), cwd: "/".into() };
        let about = Spec { command, program_hash: String::new(), base: digest }.encode();
        let mut work = work(&base);
        // No other replica has it yet.
        work.follow(&about);
        assert!(work.base().is_none());
        let (_sender, jobs) = channel();
        assert!(work.pin_all(Job::Facts(facts(&file)), &jobs).is_none());
        // It has come.
        let edition = base.of_edition(digest).unwrap();
        edition.set(index::of_a_program()).unwrap();
        let about = work.about.clone();
        work.follow(&about);
        assert!(work.base().unwrap().index().files.contains_key(&file));
        assert!(base.of_edition(digest).unwrap().index().files.contains_key(&file));
    }

    #[test]
    fn contents_that_are_not_pinned_after_all_are_to_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let base = Arc::new(Base::open(&dir.join("data")).unwrap());
        let mut work = work(&base);
        let file = dir.join("file");
        fs::write(&file, "of which no fact tells").unwrap();
        let hold = base.objects.hold();
        let (meta, added) = (fs::metadata(&file).unwrap(), base.objects().add(&file).unwrap());
        hold.add([added.digest]);
        work.is_untidy = false;
        // What could not be written is not read again at once.
        let again = base.objects.hold();
        again.add([added.digest]);
        let there = Fact::new(What::There, b"/other");
        work.late.as_mut().unwrap().add(&Fact { kind: libc::DT_REG, ..there });
        let late = base.dir.join(crate::base::late::name(index::FILE));
        fs::create_dir_all(late.join("in the way")).unwrap();
        let same = Large { path: file.clone(), meta: meta.clone(), added: Ok(added) };
        work.read.push((same, again));
        work.pin_late();
        assert!(!work.is_untidy);
        fs::remove_dir_all(&late).unwrap();
        work.read.push((Large { path: file, meta, added: Ok(added) }, hold));
        work.pin_late();
        assert!(work.is_untidy);
        work.tidy();
        assert!(!base.objects().path(added.digest).exists());
    }
}
