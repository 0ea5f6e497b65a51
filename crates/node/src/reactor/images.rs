//! The threads that work on images: the loop never waits for one.
//!
//! * One for each image that is taken: it copies the server while that stands, at the loop's priority; then it compresses and writes at a lower one.
//! * One for all else: parts for other replicas and from them, removals. It begins with the first of these.
//!
//! Both end by themselves; a node that ends does not wait for them, and its next start removes what they left ([`crate::images::store`]).

use super::Mailbox;
use crate::images::Store;
use crate::images::files::FilesPacked;
use crate::images::incoming::{Incoming, Progress, read_part};
use crate::server;
use skein_image::before::{Before, Places};
use skein_image::contents::{Contents, Rewritten};
use skein_image::file::{Head, ImageError};
use skein_image::take::{Figures, Forks, Source, Taken};
use skein_image::{Copied, FilesCopied, MemoryError};
use skein_model::{LogIndex, ReplicaId};
use skein_replica::environment::{Image, ImageFile, ImageNews, Trouble};
use skein_replica::replica::Inbox;
use skein_replica::server::{Files, MemoryPlace, ServerState, Stood};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A part for another replica: 256 KiB.
pub(super) const PART_BYTES: u64 = 256 << 10;
/// The longest time to copy a server that stands.
const COPIES: Duration = Duration::from_secs(20);
/// The variable of a node's environment that lets it read and compare all pages, as where the kernel does not tell which were written.
const COMPARES: &str = "SKEIN_COMPARE_PAGES";
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
}

/// The last image that was taken here, if nothing has gone wrong since, and how often files had been repaired ([`Store::repairs`]).
type Known = Arc<Mutex<Option<(LogIndex, u64, Before)>>>;

enum Job {
    /// The names in the directory become durable.
    Sync,
    Check(LogIndex),
    Remove(LogIndex, bool),
    Read(ReplicaId, LogIndex, u64),
    Receive(ImageFile, u64, Vec<u8>),
}

impl ImageWork {
    pub(super) fn new(store: Store, mailbox: Mailbox) -> Self {
        Self { store, mailbox, sender: None, taking: Arc::default(), before: Arc::default() }
    }

    pub(super) const fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn take(&mut self, stood: Stood, state: ServerState) {
        self.begin(state, move |work, state| take(&work.0, &work.1, &work.2, stood, state));
    }

    /// Keeps the files that a server has left.
    pub(super) fn keep_files(&mut self, files: Files, state: ServerState) {
        self.begin(state, move |work, state| keep_files(&work.0, &files, state));
    }

    fn begin(
        &mut self,
        state: ServerState,
        take: impl FnOnce((Store, Mailbox, Known), ServerState) -> Result<Image, Trouble>
        + Send
        + 'static,
    ) {
        if self.taking.swap(true, Ordering::Relaxed) {
            let why = "the image before it is still being written".to_owned();
            return tell(&self.mailbox, ImageNews::NotTaken(why.into()));
        }
        let (store, mailbox) = (self.store.clone(), self.mailbox.clone());
        let (taking, before) = (self.taking.clone(), self.before.clone());
        let take = move || {
            let news = match take((store, mailbox.clone(), before), state) {
                Ok(image) => ImageNews::Kept(image),
                Err(why) => ImageNews::NotTaken(why),
            };
            // The next one may be asked for as soon as this is told.
            taking.store(false, Ordering::Relaxed);
            tell(&mailbox, news);
        };
        if let Err(error) = Builder::new().name("skein-image".into()).spawn(take) {
            self.taking.store(false, Ordering::Relaxed);
            let why = format!("no thread can be started for it: {error}");
            tell(&self.mailbox, ImageNews::NotTaken(why.into()));
        }
    }

    /// Names it at once: the log may forget its entries next, and a crash of the node must find it.
    pub(super) fn confirm(&mut self, index: LogIndex) {
        match self.store.confirm(index) {
            Ok(()) => self.work(Job::Sync),
            Err(error) => {
                tracing::warn!(event = "image_not_confirmed", index = index.0, %error);
            }
        }
    }

    pub(super) fn check(&mut self, index: LogIndex) {
        self.work(Job::Check(index));
    }

    pub(super) fn remove(&mut self, index: LogIndex, damaged: bool) {
        self.work(Job::Remove(index, damaged));
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
            Self::Sync | Self::Check(_) | Self::Remove(..) => {}
            Self::Read(to, index, from) => {
                tell(mailbox, ImageNews::Part(to, index, from, Vec::new()));
            }
            Self::Receive(file, ..) => {
                tell(mailbox, ImageNews::NotReceived(file.index, why.to_owned().into()));
            }
        }
    }
}

fn tell(mailbox: &Mailbox, news: ImageNews) {
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
        step_back();
        for job in jobs {
            match job {
                Job::Sync => {
                    if let Err(error) = self.store.sync() {
                        tracing::warn!(event = "image_not_confirmed", %error);
                    }
                }
                Job::Check(index) => self.check(index),
                Job::Remove(index, damaged) => self.remove(index, damaged),
                Job::Read(to, index, from) => self.read(to, index, from),
                Job::Receive(file, from, bytes) => {
                    let index = file.index;
                    let news = match self.receive(file, from, &bytes) {
                        Ok(Progress::Has(bytes)) => ImageNews::Received(index, bytes),
                        Ok(Progress::Whole(image)) => ImageNews::Kept(image),
                        Err(error) => ImageNews::NotReceived(index, trouble(&error)),
                    };
                    tell(&self.mailbox, news);
                }
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

fn trouble(error: &ImageError) -> Trouble {
    let why = error.to_string();
    match error {
        ImageError::DiskFull { .. } => Trouble::NoRoom(why),
        error if error.is_damage() => Trouble::Damage(why),
        _ => Trouble::Other(why),
    }
}

/// Other threads of the machine go before this one from now on.
fn step_back() {
    // SAFETY: takes no pointers. 0 is the calling thread; should it fail, the work is only less polite.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Takes an image of a server that stands; tells when it need not any longer.
fn take(
    store: &Store,
    mailbox: &Mailbox,
    known: &Known,
    stood: Stood,
    state: ServerState,
) -> Result<Image, Trouble> {
    let begun = Instant::now();
    // It counts again when this one is written. Its pages are in a file of this directory, or it is worth nothing.
    let before = known.lock().expect("no holder panics").take();
    let repairs = store.repairs();
    let before =
        before.filter(|(index, then, _)| *then == repairs && store.any_path(*index).exists());
    let before = before.as_ref().map(|(.., before)| before);
    let mut pause_us = 0;
    let copied = |forked| {
        pause_us = begun.elapsed().as_micros() as u64;
        tell(mailbox, ImageNews::Copied { forked });
        step_back();
    };
    let Standing { memory, figures, places, layer, contents } =
        copy(store, stood, &state, before, copied)?;
    let encoded = state.encode();
    let copies = [&memory, &layer];
    let head = head(store, &state, &encoded, figures.processes, copies);
    let written = store.write(&head, &encoded, copies).map_err(|error| trouble(&error))?;
    let file = written.file;
    let before = (state.index, repairs, places.with(written.hashes, written.of_files, contents));
    tell(mailbox, ImageNews::Root(state.index, before.2.root()));
    *known.lock().expect("no holder panics") = Some(before);
    tracing::debug!(
        event = "image_written",
        index = head.index.0,
        bytes = file.bytes,
        written = written.written,
        pages = figures.pages,
        copied = memory.fresh(),
        spared = figures.spared,
        memory = head.memory_bytes,
        files = head.layer_bytes,
        processes = head.processes,
        pause_us,
        ms = begun.elapsed().as_millis() as u64
    );
    Ok(Image { state: Arc::new(state), file })
}

/// The head of an image of a server of so many processes: of its memory and its files.
fn head(
    store: &Store,
    state: &ServerState,
    encoded: &[u8],
    processes: usize,
    [memory, layer]: [&Copied; 2],
) -> Head {
    Head {
        owner: *store.owner(),
        index: state.index,
        term: state.term,
        taken_ms: now_ms(),
        processes: processes as u64,
        state_bytes: encoded.len() as u64,
        memory_bytes: memory.len(),
        layer_bytes: layer.len(),
    }
}

/// Keeps the files of a server that has ended as an image without processes.
fn keep_files(store: &Store, files: &Files, state: ServerState) -> Result<Image, Trouble> {
    let mut packed =
        FilesPacked(FilesCopied::new(None, Rewritten::default(), store.nameless_file()));
    let (s, ns) = (state.wall.0 / 1_000_000_000, state.wall.0 % 1_000_000_000);
    let time = (s.cast_signed(), ns.cast_signed());
    server::layer(files)
        .pack_left(&mut packed, time)
        .map_err(|error| format!("the server's files cannot be packed: {error}"))?;
    let (layer, _) = packed.0.finish();
    let memory = Copied::new();
    let encoded = state.encode();
    let copies = [&memory, &layer];
    let head = head(store, &state, &encoded, 0, copies);
    let written = store.write(&head, &encoded, copies).map_err(|error| trouble(&error))?;
    Ok(Image { state: Arc::new(state), file: written.file })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// A copy of a server that stood.
struct Standing {
    memory: Copied,
    figures: Figures,
    places: Places,
    layer: Copied,
    contents: Contents,
}

/// When a server forks for an image. Each page that is read while it stands costs some 3 us; each that a fork copies 0.1 to 0.2 us, and later a fault when the server writes it. A row of
/// pages that it does without costs 3 us.
const FORKS: Forks =
    Forks { for_pages: |read, copied| read > 1024 && read > copied / 16, spares: 64 };

/// Calls `copied` when the server may go on.
fn copy(
    store: &Store,
    stood: Stood,
    state: &ServerState,
    before: Option<&Before>,
    copied: impl FnOnce(bool),
) -> Result<Standing, String> {
    let deadline = Instant::now() + COPIES;
    let outfit = server::outfit(&stood.files);
    let given = outfit.given().ok_or("what the server prints into is not known")?;
    let MemoryPlace { init, arena, sizes, .. } = stood.memory;
    let arena = File::from(arena);
    let layer = server::layer(&stood.files);
    let root = layer.root().ok_or("the server's root was not seen")?;
    let host = state.paths.iter().map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let paths = || {
        let own = layer.paths().map_err(MemoryError::read("the server's files"))?;
        Ok(own.into_iter().chain(host.clone()).collect())
    };
    let given = [given, given];
    let watches = std::env::var_os(COMPARES).is_none();
    let (arena, paths, numbers) = (&arena, &paths, outfit.numbers());
    let source = Source { init, arena, sizes, given, root, paths, watches, numbers, forks: FORKS };
    let mut packed = None;
    let pack = |rewritten: &mut Rewritten| {
        let files = FilesCopied::new(before, std::mem::take(rewritten), store.nameless_file());
        let mut files = FilesPacked(files.until(deadline));
        layer.pack(&mut files).map_err(MemoryError::read("the server's files"))?;
        packed = Some(files.0.finish());
        Ok(())
    };
    let standing = source.stand(before, deadline, pack).map_err(|error| error.to_string())?;
    if let Some(why) = standing.stood_because() {
        tracing::info!(event = "image_without_fork", index = state.index.0, why);
    }
    let (layer, contents) = packed.expect("files are packed while the server stands");
    let forked = standing.is_forked();
    let deadline = if forked { Instant::now() + COPIES } else { deadline };
    let taken = standing.finish(deadline, || copied(forked)).map_err(|error| error.to_string())?;
    let Taken { copied: memory, figures, places, .. } = taken;
    Ok(Standing { memory, figures, places, layer, contents })
}
