//! The threads that work on images: the loop never waits for one.
//!
//! * One for each image that is taken ([`super::taking`]), and one that reads memory before the server stands for that ([`super::precopying`]).
//! * One for all else: parts for other replicas and from them, removals. It begins with the first of these.
//!
//! Both end by themselves; a node that ends does not wait for them, and its next start removes what they left ([`crate::images::store`]).

use super::Mailbox;
use super::precopying::Precopying;
use super::taking::{Known, forget_files_unless_used, keep_files, take};
use crate::images::incoming::{Incoming, Progress, read_part};
use crate::images::{Removal, Store};
use crate::server::cores::run_anywhere;
use skein_image::file::ImageError;
use skein_model::{LogIndex, ReplicaId};
use skein_replica::environment::{Image, ImageFile, ImageNews, Trouble};
use skein_replica::replica::Inbox;
use skein_replica::server::{Files, MemoryPlace, ServerState, Stood};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

/// A part for another replica: 256 KiB.
pub(super) const PART_BYTES: u64 = 256 << 10;
/// How much other threads go before: half of what there is.
const NICE: i32 = 10;

/// See the [module](self).
pub(super) struct ImageWork {
    store: Store,
    mailbox: Mailbox,
    sender: Option<Sender<Job>>,
    /// An image is being taken.
    taking: Arc<AtomicBool>,
    /// What the next one need not read or write again.
    before: Known,
    precopying: Option<Precopying>,
    /// A thread that waits for the next one to be taken: to start one takes a millisecond or two, for which the server would stand.
    waiting: Option<Sender<Taking>>,
}

/// An image that is taken.
type Taking = Box<dyn FnOnce() + Send>;

/// On a thread of its own.
fn start(take: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name("skein-image".into()).spawn(take).map(drop)
}

enum Job {
    Confirm(LogIndex),
    Doubt(LogIndex),
    Check(LogIndex),
    Remove(Removal, bool),
    Read(ReplicaId, LogIndex, u64),
    Receive(ImageFile, u64, Vec<u8>),
}

impl ImageWork {
    pub(super) fn new(store: Store, mailbox: Mailbox) -> Self {
        let (taking, before) = (Arc::default(), Arc::default());
        Self { store, mailbox, sender: None, taking, before, precopying: None, waiting: None }
    }

    pub(super) const fn store(&self) -> &Store {
        &self.store
    }

    /// Reads a server's memory before it stands; false: it is to stand at once.
    pub(super) fn prepare(&mut self, stood: Stood, paths: &BTreeSet<Vec<u8>>) -> bool {
        let is_busy = self.precopying.as_ref().is_some_and(|one| !one.is_done());
        if is_busy || self.taking.load(Ordering::Relaxed) {
            return false;
        }
        let begun = Precopying::begin(&self.before, &self.store, &self.mailbox, stood, paths);
        self.precopying = begun.unwrap_or_else(|error| {
            tracing::warn!(event = "memory_not_read_ahead", %error, "no thread can be started for it");
            None
        });
        if self.precopying.is_some() && self.waiting.is_none() {
            let (sender, next) = channel::<Taking>();
            let wait = move || next.recv().into_iter().for_each(|take| take());
            // Without it the image begins with a thread of its own.
            self.waiting = start(wait).ok().map(|()| sender);
        }
        self.precopying.is_some()
    }

    /// What is not read by now is left to be read when the server stands.
    pub(super) fn hurry(&self) {
        self.precopying.iter().for_each(Precopying::hurry);
    }

    pub(super) fn take(&mut self, stood: Stood, state: ServerState) {
        self.begin(state, move |work, state| take(&work.0, &work.1, &work.2, stood, state));
    }

    /// The server is gone; what this answers is to be dropped, which may take a while.
    pub(super) fn forget_server(&self) -> impl Send + use<> {
        self.before.lock().expect("no holder panics").forget_server()
    }

    /// Keeps the files that a server has left.
    pub(super) fn keep_files(
        &mut self,
        files: Files,
        memory: Option<MemoryPlace>,
        state: ServerState,
    ) {
        self.begin(state, move |(store, _, known), state| {
            keep_files(&store, &known, &files, memory, state).map(Some)
        });
    }

    fn begin(
        &mut self,
        state: ServerState,
        take: impl FnOnce((Store, Mailbox, Known), ServerState) -> Result<Option<Image>, Trouble>
        + Send
        + 'static,
    ) {
        if self.taking.swap(true, Ordering::Relaxed) {
            let why = "the image before it is still being written".to_owned();
            return tell(&self.mailbox, ImageNews::NotTaken(why.into()));
        }
        let (store, mailbox) = (self.store.clone(), self.mailbox.clone());
        let (taking, before) = (self.taking.clone(), self.before.clone());
        let (index, precopying) = (state.index, self.precopying.take());
        let take = move || {
            run_anywhere();
            if let Some(precopying) = precopying {
                precopying.end();
            }
            let news = match take((store, mailbox.clone(), before.clone()), state) {
                Ok(Some(image)) => ImageNews::Kept(image),
                Ok(None) => ImageNews::FilesRead(index),
                Err(why) => ImageNews::NotTaken(why),
            };
            // The next one may be asked for as soon as this is told.
            taking.store(false, Ordering::Relaxed);
            let is_ahead = matches!(news, ImageNews::FilesRead(_));
            tell(&mailbox, news);
            if is_ahead {
                forget_files_unless_used(&before);
            }
        };
        let begun = match self.waiting.take() {
            Some(waiting) => waiting.send(Box::new(take)).or_else(|unsent| start(unsent.0)),
            None => start(take),
        };
        if let Err(error) = begun {
            self.taking.store(false, Ordering::Relaxed);
            let why = format!("no thread can be started for it: {error}");
            tell(&self.mailbox, ImageNews::NotTaken(why.into()));
        }
    }

    pub(super) fn confirm(&mut self, index: LogIndex) {
        self.work(Job::Confirm(index));
    }

    pub(super) fn doubt(&mut self, before: LogIndex) {
        self.work(Job::Doubt(before));
    }

    pub(super) fn check(&mut self, index: LogIndex) {
        self.work(Job::Check(index));
    }

    pub(super) fn remove(&mut self, index: LogIndex, damaged: bool) {
        self.work(Job::Remove(self.store.removal(index), damaged));
    }

    pub(super) fn read(&mut self, to: ReplicaId, index: LogIndex, from: u64) {
        self.work(Job::Read(to, index, from));
    }

    pub(super) fn receive(&mut self, file: ImageFile, from: u64, bytes: Vec<u8>) {
        self.work(Job::Receive(file, from, bytes));
    }

    fn work(&mut self, job: Job) {
        if self.sender.is_none() {
            let (sender, jobs) = channel();
            let (store, mailbox) = (self.store.clone(), self.mailbox.clone());
            let work = move || Worker { store, mailbox, incoming: None }.run(&jobs);
            match Builder::new().name("skein-images".into()).spawn(work) {
                Ok(_) => self.sender = Some(sender),
                Err(error) => {
                    tracing::warn!(event = "images_stand", %error, "no thread can be started for them");
                    return job.failed(&self.mailbox, &error.to_string());
                }
            }
        }
        if let Some(sender) = &self.sender {
            // It ends with the reactor, not before.
            let _ = sender.send(job);
        }
    }
}

impl Job {
    /// What the replica waits for does not come.
    fn failed(self, mailbox: &Mailbox, why: &str) {
        match self {
            Self::Check(_) | Self::Remove(..) | Self::Doubt(_) => {}
            Self::Confirm(index) => {
                tell(mailbox, ImageNews::NotNamed(index, why.to_owned().into()));
            }
            Self::Read(to, index, from) => {
                tell(mailbox, ImageNews::Part(to, index, from, Vec::new()));
            }
            Self::Receive(file, ..) => {
                tell(mailbox, ImageNews::NotReceived(file.index, why.to_owned().into()));
            }
        }
    }
}

pub(super) fn tell(mailbox: &Mailbox, news: ImageNews) {
    // The reactor is gone when the node ends.
    let _ = mailbox.tell(Inbox::Images(news));
}

struct Worker {
    store: Store,
    mailbox: Mailbox,
    incoming: Option<Incoming>,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>) {
        run_anywhere();
        step_back();
        for job in jobs {
            match job {
                Job::Confirm(index) => {
                    self.incoming.take_if(|incoming| incoming.expected().index <= index);
                    let news = match self.store.confirm(index) {
                        Ok(()) => ImageNews::Named(index),
                        Err(error) => ImageNews::NotNamed(index, trouble(&error)),
                    };
                    tell(&self.mailbox, news);
                }
                Job::Doubt(before) => {
                    if let Err(error) = self.store.doubt(before) {
                        tracing::warn!(event = "doubt_not_noted", %error);
                    }
                }
                Job::Check(index) => self.check(index),
                Job::Remove(removal, damaged) => self.remove(removal.index, damaged),
                Job::Read(to, index, from) => self.read(to, index, from),
                Job::Receive(file, from, bytes) => {
                    let index = file.index;
                    let news = match self.receive(file, from, &bytes) {
                        Ok(Progress::Has(bytes)) => ImageNews::Received(index, bytes),
                        Ok(Progress::Whole(image)) => ImageNews::Came(image),
                        Err(error) => ImageNews::NotReceived(index, trouble(&error)),
                    };
                    tell(&self.mailbox, news);
                }
            }
            for index in self.store.take_lost() {
                tell(&self.mailbox, ImageNews::Damaged(index));
            }
        }
    }

    fn check(&self, index: LogIndex) {
        if let Err(error) = self.store.image(index) {
            tracing::warn!(event = "image_unusable", index = index.0, %error);
            if error.is_damage() {
                tell(&self.mailbox, ImageNews::Damaged(index));
            }
        }
    }

    fn remove(&self, index: LogIndex, damaged: bool) {
        if damaged {
            self.store.set_aside(index);
        } else if let Err(error) = self.store.remove(index) {
            tracing::warn!(event = "image_not_removed", index = index.0, %error);
        }
    }

    fn read(&self, to: ReplicaId, index: LogIndex, from: u64) {
        let bytes = read_part(&self.store.any_path(index), from, PART_BYTES as usize)
            .unwrap_or_else(|error| {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!(event = "image_unread", index = index.0, %error);
                }
                Vec::new()
            });
        tell(&self.mailbox, ImageNews::Part(to, index, from, bytes));
    }

    fn receive(
        &mut self,
        file: ImageFile,
        from: u64,
        bytes: &[u8],
    ) -> Result<Progress, ImageError> {
        // Without bytes it is a new try: another may have removed the file.
        let mut incoming = match self.incoming.take().filter(|one| one.expected() == file) {
            Some(incoming) if !bytes.is_empty() => incoming,
            _ => Incoming::begin(&self.store, file)?,
        };
        let progress = incoming.take(from, bytes)?;
        if matches!(progress, Progress::Has(_)) {
            self.incoming = Some(incoming);
        }
        Ok(progress)
    }
}

pub(super) fn trouble(error: &ImageError) -> Trouble {
    let why = error.to_string();
    match error {
        ImageError::DiskFull { .. } => Trouble::NoRoom(why),
        error if error.is_damage() => Trouble::Damage(why),
        _ => Trouble::Other(why),
    }
}

/// Other threads of the machine go before this one from now on.
pub(super) fn step_back() {
    // SAFETY: takes no pointers. 0 is the calling thread; should it fail, the work is only less polite.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}
